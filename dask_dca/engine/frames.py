"""Results of a row a frame, from blocks that see their neighbours: lazy on chunked input, at once in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.engine.graphs import block_tasks
from dask_dca.engine.halo import Window
from dask_dca.engine.merges import stack_parts
from dask_dca.engine.passes import Pass

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dask_dca.engine.halo import Halo
    from dask_dca.engine.rows import Rows

__all__ = ["map_frames"]


def map_frames(
    rows: Rows,
    function: Callable[..., NDArray[Any]],
    state: Any,
    width: int,
    halo: Halo,
    dtype: np.dtype[Any],
    name: str = "decode",
) -> Any:
    """
    Apply a function to every block and its halo, for a result of a row a frame.

    Parameters
    ----------
    rows : Rows
        The data.
    function : callable
        (state, window, *column chunks) -> array of shape (window.stop - window.start, width).
    state : object
        Small object that the function receives.
    width : int
        Columns of the result.
    halo : Halo
        Rows of its neighbours that a block sees.
    dtype : dtype
        Of the result.
    name : str, default "decode"
        Tasks are called dca-<name>.

    Returns
    -------
    ndarray or dask.array.Array of shape (n, width)
        A Dask array for chunked input, of which nothing is computed yet.
    """
    if rows.kind == "memory":
        found = function(state, Window(0, 0, rows.n_rows), rows.source)
        return found.astype(dtype, copy=False)
    import dask.array as da
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph
    from dask.task_spec import Alias

    job: Pass[Any] = Pass(name, _Typed(function, dtype), stack_parts, halo)
    graph, keys, token = block_tasks(rows, job, state, None)
    layer = f"dca-{name}-pass-{token}"
    if da.array_expr_enabled():
        whole = HighLevelGraph({layer: graph}, {layer: set()})
        return da.concatenate(
            [
                da.from_delayed(Delayed(key, whole, layer=layer), (int(n), width), dtype=dtype)
                for key, n in zip(keys, np.diff(rows.offsets), strict=True)
            ]
        )
    graph |= {(layer, i, 0): Alias((layer, i, 0), key) for i, key in enumerate(keys)}
    chunks = (tuple(np.diff(rows.offsets).tolist()), (width,))
    return da.Array(HighLevelGraph({layer: graph}, {layer: set()}), layer, chunks, dtype=dtype)


@dataclass(frozen=True)
class _Typed:
    """A block's function, whose result is cast."""

    function: Callable[..., NDArray[Any]]
    dtype: np.dtype[Any]

    def __call__(self, *args: Any) -> NDArray[Any]:
        return self.function(*args).astype(self.dtype, copy=False)
