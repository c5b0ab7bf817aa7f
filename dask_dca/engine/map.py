"""Row-wise results of the size of the data, also of blocks that see their neighbours: lazy on chunked input."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.advice import Telling
from dask_dca.engine.computing import scattered
from dask_dca.engine.cubes import labelled
from dask_dca.engine.entry import admitted, held_bytes
from dask_dca.engine.graphs import block_tasks, rows_of_tasks
from dask_dca.engine.numerics import call_on_one_blas_thread, numpy_defaults
from dask_dca.engine.passes import Pass
from dask_dca.engine.types import Window, stack_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dask_dca.engine.advice import Form
    from dask_dca.engine.entry import Declared
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.types import Halo

_MOST_IN_GRAPH: Final = 8 * 10**6  # bytes of a state; Dask warns of graphs of 10 MB


def map_rows(rows: Rows, function: Callable[..., NDArray[Any]], state: Any, width: int | None) -> Any:
    """Apply a function to every block of rows.

    Returns (n, width) or (n,): in the input's floating dtype, at least float32; a Dask array for chunked input, of
    which nothing is computed yet. Rows that have labels keep them.
    """
    if rows.kind == "memory":
        told = Telling(function, rows.form, rows.feature_names)
        found: Any = call_on_one_blas_thread(_typed, told, rows.result_dtype, state, 0, rows.source)
    else:
        found = _lazily(rows, function, state, width or 1)
    return labelled(rows.labels, found[:, 0]) if width is None else labelled(rows.labels, found, "parts")


def _lazily(rows: Rows, function: Callable[..., NDArray[Any]], state: Any, width: int) -> Any:
    import dask.array as da

    source, dtype = rows.source, rows.result_dtype
    if rows.kind == "zarr":
        source = da.from_array(source, chunks=(tuple(np.diff(rows.offsets).tolist()), -1))
    return da.blockwise(
        _apply,
        "ik",
        source,
        "ij",
        _starts(rows),
        "i",
        _shared(_State(state, rows.form, rows.feature_names)),
        "",
        new_axes={"k": width},
        concatenate=False,
        align_arrays=False,
        dtype=dtype,
        meta=np.empty((0, 0), dtype=dtype),
        token="dca-transform",
        function=function,
        declared=rows.declared,
        out=dtype,
    )


@dataclass(frozen=True)
class _State:
    """What all blocks receive: an object of its own, for an array would be taken for a collection."""

    value: Any
    form: Form
    names: Any


def _shared(state: _State) -> Any:
    """
    One node of the graph for all blocks; where it would make the graph too large, what workers already hold.

    It is an array without dimensions: array expressions lose Delayed keyword arguments.
    """
    import dask
    import dask.array as da

    holder = np.empty((), dtype=object)
    holder[()] = state
    held = scattered(holder) if held_bytes(state) > _MOST_IN_GRAPH else holder
    if held is not holder:
        return da.from_delayed(held, (), dtype=object)
    return da.from_array(holder, name=f"dca-state-{dask.base.tokenize(state)}")


def _starts(rows: Rows) -> Any:
    """Row number of the first row of each block, as an array chunked like the rows."""
    import dask.array as da

    lengths = tuple(np.diff(rows.offsets).tolist())
    return da.map_blocks(_block_starts, chunks=(lengths,), dtype=np.int64, meta=np.empty(0, np.int64))


def _block_starts(block_info: Any = None) -> NDArray[np.int64]:
    ((begin, end),) = block_info[None]["array-location"]
    return np.arange(begin, end)


@numpy_defaults
def _apply(
    columns: Any, starts: NDArray[np.int64], shared: Any, *, function: Callable[..., Any], declared: Declared, out: Any
) -> NDArray[Any]:
    start = int(starts[0]) if len(starts) else 0
    chunks = columns if isinstance(columns, list) else [columns]
    parts = admitted(chunks, range(start, start + len(starts)), declared)
    state: _State = shared.item()
    told = Telling(function, state.form, state.names)
    return call_on_one_blas_thread(_typed, told, out, state.value, start, *parts)


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
    """Apply a function to every block and its halo, for a result of a row a frame.

    Returns (n, width) or (n,): A Dask array for chunked input, of which nothing is computed yet. Rows that have labels
    keep them.
    """
    typed = partial(_typed, Telling(function, rows.form, rows.feature_names), dtype)
    if rows.kind == "memory":
        window = Window(0, 0, rows.n_rows)
        found: Any = call_on_one_blas_thread(typed, state, window, rows.source)
    else:
        found = _lazy_frames(rows, Pass(name, typed, stack_parts, halo), state, width or 1, dtype)
    return labelled(rows.labels, found[:, 0]) if width is None else labelled(rows.labels, found, kind)


def _lazy_frames(rows: Rows, job: Pass[Any], state: Any, width: int, dtype: np.dtype[Any]) -> Any:
    import dask.array as da
    from dask.highlevelgraph import HighLevelGraph
    from dask.task_spec import Alias

    graph, (keys,), token = block_tasks(rows, [job], state, None)
    layer = f"dca-{job.name}-pass-{token}"
    if da.array_expr_enabled():
        whole = HighLevelGraph({layer: graph}, {layer: set()})
        return rows_of_tasks(whole, layer, keys, np.diff(rows.offsets), width, dtype)
    graph |= {(layer, i, 0): Alias((layer, i, 0), key) for i, key in enumerate(keys)}
    chunks = (tuple(np.diff(rows.offsets).tolist()), (width,))
    return da.Array(HighLevelGraph({layer: graph}, {layer: set()}), layer, chunks, dtype=dtype)


def _typed(function: Callable[..., NDArray[Any]], dtype: np.dtype[Any], *args: Any) -> NDArray[Any]:
    """Call a block's function, and cast its result."""
    return function(*args).astype(dtype, copy=False)
