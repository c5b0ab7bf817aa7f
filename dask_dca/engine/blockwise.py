"""Row-wise results of the size of the data: lazy on chunked input, at once on data in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows

__all__ = ["map_rows"]


def map_rows(rows: Rows, function: Callable[..., NDArray[Any]], state: Any, width: int) -> Any:
    """
    Apply a function to every block of rows.

    Parameters
    ----------
    rows : Rows
        The data.
    function : callable
        (state, first row number, *column chunks) -> array of shape (rows of the block, width).
    state : object
        Small object that the function receives; one node of the graph.
    width : int
        Columns of the result.

    Returns
    -------
    ndarray or dask.array.Array of shape (n, width)
        In the input's floating dtype; a Dask array for chunked input, of which nothing is computed yet.
    """
    dtype = rows.output_dtype
    if rows.kind == "memory":
        return function(state, 0, rows.source).astype(dtype, copy=False)
    import dask
    import dask.array as da

    source = rows.source
    if rows.kind == "zarr":
        source = da.from_array(source, chunks=(tuple(np.diff(rows.offsets).tolist()), -1))
    # as an array without dimensions: array expressions lose Delayed keyword arguments
    holder = np.empty((), dtype=object)
    holder[()] = _Shared(state)
    shared = da.from_array(holder, name=f"dca-state-{dask.base.tokenize(state)}")
    return da.blockwise(
        _apply,
        "ik",
        source,
        "ij",
        _starts(rows),
        "i",
        shared,
        "",
        new_axes={"k": width},
        concatenate=False,
        align_arrays=False,
        dtype=dtype,
        meta=np.empty((0, 0), dtype=dtype),
        token="dca-transform",
        function=function,
        out=dtype,
    )


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
    columns: Any, starts: NDArray[np.int64], shared: Any, *, function: Callable[..., Any], out: Any
) -> NDArray[Any]:
    parts = columns if isinstance(columns, list) else [columns]
    start = int(starts[0]) if len(starts) else 0
    result: NDArray[Any] = function(shared.item().state, start, *parts).astype(out, copy=False)
    return result
