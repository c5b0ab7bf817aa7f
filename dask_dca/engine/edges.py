"""Where sequences begin and end among the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.errors import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Mask = NDArray[np.bool_]

__all__ = ["as_edges", "pair_mask"]


def as_edges(lengths: Any, n_rows: int) -> Numbers:
    """
    Check the lengths of sequences.

    Parameters
    ----------
    lengths : array-like of int, shape (m,), or None
        Frames of each sequence, one after the other, as hmmlearn takes them; None is one sequence.
    n_rows : int
        Frames in all.

    Returns
    -------
    ndarray of int64, shape (m + 1,)
        First frame of each sequence, and the number of frames; sequences without frames are left out.

    Raises
    ------
    InvalidInputError
        Not integers, negative, or another number in all.

    Examples
    --------
    >>> as_edges([3, 0, 2], 5)
    array([0, 3, 5])
    """
    if lengths is None:
        return np.array([0, n_rows], dtype=np.int64)
    found = np.atleast_1d(np.asarray(lengths))
    if found.ndim != 1 or found.dtype.kind not in "iu" or (found < 0).any():
        msg = f"lengths must be non-negative integers, one a sequence; received {lengths!r:.80}"
        raise InvalidInputError(msg)
    total = int(found.sum()) if found.max(initial=0) <= n_rows else sum(found.tolist())  # which doesn't wrap
    if total != n_rows:
        msg = f"lengths add up to {total} frames, but X has {n_rows} rows; pass lengths=[{n_rows}] for one"
        raise InvalidInputError(msg)
    return np.concatenate([[0], np.cumsum(found[found > 0], dtype=np.int64)])


def pair_mask(edges: Numbers, start: int, stop: int, lag: int) -> Mask:
    """
    Tell which frames have a later frame in their own sequence.

    Parameters
    ----------
    edges : ndarray of int64, shape (m + 1,)
        From `as_edges`.
    start, stop : int
        Frames to ask for: start, ..., stop - 1.
    lag : int
        How much later; negative for earlier.

    Returns
    -------
    ndarray of bool, shape (stop - start,)
        True where frame t + lag is in the sequence of frame t.

    Examples
    --------
    >>> pair_mask(np.array([0, 3, 5]), 0, 5, 1)
    array([ True,  True, False,  True, False])
    """
    number = np.arange(start, stop)
    which = np.searchsorted(edges, number, side="right") - 1
    return (number + lag < edges[which + 1]) & (number + lag >= edges[which])
