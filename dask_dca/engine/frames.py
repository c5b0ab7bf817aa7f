"""Results of a row a frame, from blocks that see their neighbours: lazy on chunked input, at once in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.engine.graphs import block_tasks
from dask_dca.engine.halo import Window
from dask_dca.engine.labels import labelled
from dask_dca.engine.merges import stack_parts
from dask_dca.engine.passes import Pass
from dask_dca.engine.threads import call_on_one_blas_thread

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
    width: int | None,
    halo: Halo,
    dtype: np.dtype[Any],
    name: str = "decode",
    kind: str = "parts",
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
    width : int or None
        Columns of the result; None for a single one, of which the result is not a matrix but a vector.
    halo : Halo
        Rows of its neighbours that a block sees.
    dtype : dtype
        Of the result.
    name : str, default "decode"
        Tasks are called dca-<name>.
    kind : {"parts", "features"}, default "parts"
        What the columns are, for rows that have labels.

    Returns
    -------
    ndarray, dask.array.Array or xarray.DataArray of shape (n, width) or (n,)
        A Dask array for chunked input, of which nothing is computed yet. Rows that have labels keep them.
    """
    if rows.kind == "memory":
        window = Window(0, 0, rows.n_rows)
        found: Any = call_on_one_blas_thread(function, state, window, rows.source).astype(dtype, copy=False)
    else:
        found = _lazily(rows, Pass(name, _Typed(function, dtype), stack_parts, halo), state, width or 1, dtype)
    return labelled(rows.labels, found[:, 0]) if width is None else labelled(rows.labels, found, kind)


def _lazily(rows: Rows, job: Pass[Any], state: Any, width: int, dtype: np.dtype[Any]) -> Any:
    import dask.array as da
    from dask.delayed import Delayed
    from dask.highlevelgraph import HighLevelGraph
    from dask.task_spec import Alias

    graph, (keys,), token = block_tasks(rows, [job], state, None)
    layer = f"dca-{job.name}-pass-{token}"
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
