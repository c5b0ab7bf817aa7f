"""Row-wise results of the size of the data: lazy on chunked input, at once on data in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.entry import admitted
from dask_dca.engine.labels import labelled
from dask_dca.engine.sending import held_bytes, scattered

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dask_dca.engine.entry import Declared
    from dask_dca.engine.rows import Rows

__all__ = ["map_rows"]

_MOST_IN_GRAPH: Final = 8 * 10**6  # bytes of a state; Dask warns of graphs of 10 MB


def map_rows(rows: Rows, function: Callable[..., NDArray[Any]], state: Any, width: int | None) -> Any:
    """
    Apply a function to every block of rows.

    Parameters
    ----------
    rows : Rows
        The data.
    function : callable
        (state, first row number, *column chunks) -> array of shape (rows of the block, width).
    state : object
        What the function receives; one node of the graph. On a cluster large ones (of more than 8 MB) are sent to the
        workers at once, so that the result belongs to this cluster.
    width : int or None
        Columns of the result; None for a single one, of which the result is not a matrix but a vector.

    Returns
    -------
    ndarray, dask.array.Array or xarray.DataArray of shape (n, width) or (n,)
        In the input's floating dtype; a Dask array for chunked input, of which nothing is computed yet. Rows that have
        labels keep them.
    """
    if rows.kind == "memory":
        found: Any = function(state, 0, rows.source).astype(rows.output_dtype, copy=False)
    else:
        found = _lazily(rows, function, state, width or 1)
    return labelled(rows.labels, found[:, 0]) if width is None else labelled(rows.labels, found, "parts")


def _lazily(rows: Rows, function: Callable[..., NDArray[Any]], state: Any, width: int) -> Any:
    import dask.array as da

    source, dtype = rows.source, rows.output_dtype
    if rows.kind == "zarr":
        source = da.from_array(source, chunks=(tuple(np.diff(rows.offsets).tolist()), -1))
    return da.blockwise(
        _apply,
        "ik",
        source,
        "ij",
        _starts(rows),
        "i",
        _shared(state),
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


def _shared(state: Any) -> Any:
    """
    One node of the graph for all blocks; where it would make the graph too large, what workers already hold.

    It is an array without dimensions: array expressions lose Delayed keyword arguments.
    """
    import dask
    import dask.array as da

    holder = np.empty((), dtype=object)
    holder[()] = _Shared(state)
    held = scattered(holder) if held_bytes(state) > _MOST_IN_GRAPH else holder
    if held is not holder:
        return da.from_delayed(held, (), dtype=object)
    return da.from_array(holder, name=f"dca-state-{dask.base.tokenize(state)}")


class _Shared:
    """Keep an array from being taken for a collection."""

    def __init__(self, state: Any) -> None:
        self.state = state


def _starts(rows: Rows) -> Any:
    """Row number of the first row of each block, as an array chunked like the rows."""
    import dask.array as da

    lengths = tuple(np.diff(rows.offsets).tolist())
    return da.map_blocks(_block_starts, chunks=(lengths,), dtype=np.int64, meta=np.empty(0, np.int64))


def _block_starts(block_info: Any = None) -> NDArray[np.int64]:
    ((begin, end),) = block_info[None]["array-location"]
    return np.arange(begin, end)


def _apply(
    columns: Any, starts: NDArray[np.int64], shared: Any, *, function: Callable[..., Any], declared: Declared, out: Any
) -> NDArray[Any]:
    start = int(starts[0]) if len(starts) else 0
    chunks = columns if isinstance(columns, list) else [columns]
    parts = admitted(chunks, range(start, start + len(starts)), declared)
    result: NDArray[Any] = function(shared.item().state, start, *parts).astype(out, copy=False)
    return result
