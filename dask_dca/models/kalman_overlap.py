"""How far pieces of sequences must overlap so that no result depends on where they begin, where entries are missing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from dask_dca.engine.sequences import cut_sequences
from dask_dca.errors import InvalidInputError
from dask_dca.models.kalman_pieces import lacking_states

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows
    from dask_dca.kernels.lds_incomplete import FilteredStates, SmoothedStates
    from dask_dca.models.kalman_pieces import Chains, Tracker

    Numbers = NDArray[np.int64]

__all__ = ["lacking_alone", "overlapping_enough", "with_overlap"]

Found = TypeVar("Found")

_REMEMBERED: Final = 1e-6  # standard deviations of a state: more must not be left of the beginning of a piece


class _RememberedError(InvalidInputError):
    """So many entries are missing that a piece depends on frames that it does not see."""


def with_overlap(tracker: Tracker, overlap: int) -> Tracker:
    """
    Let pieces overlap more.

    Parameters
    ----------
    tracker : Tracker
        A prepared system.
    overlap : int
        Frames before and after a piece that it sees.

    Returns
    -------
    Tracker
        The same system; its sequences are whole where they were.
    """
    cut = tracker.cut
    if cut.burn_in == 0:
        return tracker
    width = 6 * tracker.system.n_dim_state**2 + tracker.system.n_dim_state + 1
    return replace(tracker, cut=cut_sequences(cut.edges, length=max(cut.length, overlap), burn_in=overlap, width=width))


def overlapping_enough(rows: Rows, tracker: Tracker, work: Callable[[Tracker], Found]) -> Found:
    """
    Work with pieces that overlap more and more, until all that lack entries have forgotten where they began.

    Parameters
    ----------
    rows : Rows
        The data. Only in memory can pieces be cut anew.
    tracker : Tracker
        A prepared system.
    work : callable
        From a prepared system to the result, by `lacking_alone`.

    Returns
    -------
    object
        The result.

    Raises
    ------
    InvalidInputError
        The data are chunked, and a piece has not forgotten.
    """
    while True:
        try:
            return work(tracker)
        except _RememberedError:
            if rows.kind != "memory":
                raise
        tracker = with_overlap(tracker, 4 * tracker.cut.burn_in)


def lacking_alone(
    tracker: Tracker, chains: Chains, missing: Numbers, *, smooth: bool
) -> tuple[FilteredStates, SmoothedStates]:
    """
    Filter and smooth pieces in which entries are missing, unless they depend on frames that they do not see.

    Parameters
    ----------
    tracker : Tracker
        The prepared system.
    chains : Chains
        The pieces.
    missing : ndarray of int64, shape (c,)
        Those that lack entries.
    smooth : bool
        Whether frames after a piece matter too.

    Returns
    -------
    filtered : FilteredStates
        Of these chains.
    smoothed : SmoothedStates
        Of these chains.

    Raises
    ------
    InvalidInputError
        A piece has not forgotten where it began.
    """
    filtered, smoothed = lacking_states(tracker, chains, missing)
    overlap, batch = tracker.cut.burn_in, chains.batch
    if overlap:
        left = np.where(batch.first[missing], 0.0, filtered.remembered[overlap - 1])
        if smooth:
            left = np.maximum(left, np.where(batch.inside[-1, missing], filtered.remembered[-1], 0.0))
        if not (left <= _REMEMBERED).all():
            where = int(batch.begins[missing[int((~(left <= _REMEMBERED)).argmax())]])
            msg = (
                f"frames near {where} to {where + tracker.cut.length} lack so many entries that the filter remembers "
                f"more than {overlap} frames there, and chunked data can't be cut; pass them in memory: X.compute(), "
                "or begin a new sequence after the gap (lengths)"
            )
            raise _RememberedError(msg)
    return filtered, smoothed
