"""Anchors that are known beforehand: rows, or row numbers, that must be among those that are found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.engine.graphs import as_dask
from dask_dca.engine.passes import Run, step
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.errors import InvalidInputError, InvalidParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Known", "check_known", "fetch_known"]


@dataclass(frozen=True)
class Known:
    """Rows that must be among the anchors."""

    rows: Floats  # (r, p)
    numbers: Numbers  # (r,) their row numbers; -1 for rows that were given as such


def check_known(known: Any, source: Rows, n_anchors: int | None, run: Run, *, nonnegative: bool = False) -> Known:
    """Check and fetch anchors that are known beforehand.

    known: row numbers of `source`, or rows (r, p); n_anchors: how many anchors there are to be, if that is known.
    Returns the rows; a Delayed in a lazy run.
    Raises DCAError: neither of these, more than n_anchors, or numbers that are repeated or out of range.
    """
    given = np.asarray(known) if np.ndim(known) < 2 else known
    count = np.shape(given)[0] if np.ndim(given) else 0
    if count == 0 or np.ndim(given) > 2:
        msg = f"known must be row numbers, or rows of shape (r, {source.n_features}); received {known!r}"
        raise InvalidParameterError(msg)
    if n_anchors is not None and count > n_anchors:
        msg = f"known names {count} anchors where {n_anchors} are asked for; ask for at least {count}"
        raise InvalidParameterError(msg)
    if np.ndim(given) == 2:
        rows = as_rows(given)
        if rows.n_features != source.n_features:
            msg = f"known has rows of {rows.n_features} features and the data have {source.n_features}"
            raise InvalidInputError(msg)
        numbers = np.full(count, -1)
    else:
        rows, numbers = source, _numbers(given, source.n_rows)
    fetched = fetch_known(rows, None if rows is not source else numbers, run, nonnegative=nonnegative)
    return step(run, "known", Known, fetched, numbers)


def fetch_known(rows: Rows, numbers: Numbers | None, run: Run, *, nonnegative: bool = False) -> Floats:
    """Bring few rows to the driver; those in memory at once, in a lazy run too.

    Returns (m, p): the rows; a Delayed in a lazy run of chunked ones.
    """
    if rows.kind == "memory":
        return fetch_rows(rows, numbers, Run(), nonnegative=nonnegative)
    return fetch_rows(as_dask(rows) if run.lazy else rows, numbers, run, nonnegative=nonnegative)


def _numbers(given: NDArray[Any], n_rows: int) -> Numbers:
    if given.dtype.kind not in "iu" or len(np.unique(given)) < len(given) or not (given >= 0).all():
        msg = f"known must be distinct row numbers from 0, or rows of the data; received {given.tolist()!r}"
        raise InvalidParameterError(msg)
    if given.max() >= n_rows:
        msg = f"known names row {given.max()}, and there are {n_rows:,} rows; the last one is {n_rows - 1}"
        raise InvalidParameterError(msg)
    return given.astype(np.int64)
