"""A Kalman filter made ready for blocks: how sequences are cut into pieces, and pieces filtered and smoothed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.sequences import batches, cut_sequences
from dask_dca.models.kalman.covariances import filter_states, smooth_kinds
from dask_dca.models.kalman.filter import filter_chains, memory_of, smooth_chains, start_gains, steady_gains
from dask_dca.models.kalman.system import (
    frame_numbers,
    incomplete_numbers,
    prepare_observer,
    safe_system,
    split_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dask_dca.engine.sequences import Batch, Cut
    from dask_dca.engine.types import Window
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.models.kalman.covariances import FilteredStates, SmoothedStates
    from dask_dca.models.kalman.filter import Filtered, Gains
    from dask_dca.models.kalman.system import LinearSystem, Observer

LONGEST_MEMORY: Final = 4096  # frames: systems that remember longer are run over whole sequences
_SHORTEST: Final = 8


@dataclass(frozen=True)
class PreparedFilter:
    """A system prepared to be run over pieces of sequences.

    observer: from frames to k numbers; gains: of the first frames of a sequence, and of later ones; memory: frames
    after which the filter has forgotten where it began; centre, unit (p,): the system is one of (x - centre) / unit.
    """

    observer: Observer
    gains: tuple[Gains, Gains]
    cut: Cut
    memory: int
    centre: Floats
    unit: Floats

    @property
    def system(self) -> LinearSystem:
        """The system itself, its noise nowhere singular."""
        return self.observer.system


@dataclass(frozen=True)
class PieceBatch:
    """The pieces of a batch.

    y (steps, chains, k): observations of the state; log_density (steps, chains): of what else the frames hold; factors
    (steps, chains, k, k): F of each frame, zero outside; None where no entry of the block is missing; frames (rows + 1,
    p): (x - centre) / unit of the rows of `batch.values`, if asked for.
    """

    batch: Batch
    y: Floats
    log_density: Floats
    factors: Floats | None
    frames: Floats


def prepare(
    system: LinearSystem,
    edges: Numbers,
    centre: Floats,
    unit: Floats,
    *,
    tolerance: float,
    n_frames: int,
    width: int,
) -> PreparedFilter:
    """Prepare a system for all blocks: gains, and how sequences are cut.

    edges (m + 1,): first frame of each sequence, and the number of frames; centre, unit (p,): the system is one of (x -
    centre) / unit; tolerance: what may be left of an error at the beginning of a piece: it decides the burn-in;
    n_frames: frames of a piece at most, unless the burn-in is longer; width: numbers per frame that are held at once.
    Returns to be sent with a pass.
    """
    observer = prepare_observer(safe_system(system))
    longest = int(np.diff(edges).max())
    start = start_gains(observer.system, observer.factor, min(longest, LONGEST_MEMORY))
    gains = (start, steady_gains(start))
    memory = int(max(min(memory_of(gains[1], tolerance), LONGEST_MEMORY + 1), _SHORTEST))
    length = longest if memory > LONGEST_MEMORY else max(memory, n_frames)
    cut = cut_sequences(edges, length=min(length, longest), burn_in=min(memory, length), width=width)
    return PreparedFilter(observer, gains, cut, memory, centre, unit)


def _numbers(tracker: PreparedFilter, missing: bool, keep: bool, tile: Floats) -> Floats:
    """From a tile of frames to the numbers that the recursions need."""
    frames = (tile - tracker.centre) / tracker.unit
    found = (incomplete_numbers if missing else frame_numbers)(tracker.observer, frames)
    return np.hstack([found, frames]) if keep else found


def read_pieces(
    tracker: PreparedFilter,
    window: Window,
    columns: Sequence[Any],
    *,
    missing: bool,
    touching: bool = False,
    keep: bool = False,
) -> Iterator[PieceBatch]:
    """Go through the pieces of a block.

    window: the block's rows and halo; missing: whether entries may be missing; touching: all pieces with an own frame
    in the block, not only those that begin in it. Returns some pieces side by side.
    """
    k = tracker.system.n_dim_state
    width = k + 1 + (k * k if missing else 0)
    reader = partial(_numbers, tracker, missing, keep)
    for batch in batches(tracker.cut, window, columns, reader, touching=touching, finite=False):
        numbers = batch.values[batch.index][:, :, :width] * batch.inside[:, :, None]
        factors = None
        if missing:
            y, logs, factors = split_numbers(numbers, k)
        else:
            y, logs = numbers[:, :, :k], numbers[:, :, k]
        yield PieceBatch(batch, np.ascontiguousarray(y), logs, factors, batch.values[:, width:])


def complete_filtered(tracker: PreparedFilter, chains: PieceBatch) -> Filtered:
    """Filter pieces whose frames are complete."""
    batch, observer, begin = chains.batch, tracker.observer, tracker.cut.burn_in
    return filter_chains(tracker.system, observer.factor, tracker.gains, chains.y, batch.inside, batch.first, begin)


def smooth_complete(tracker: PreparedFilter, chains: PieceBatch) -> tuple[Filtered, Floats]:
    """Filter and smooth pieces whose frames are complete, as a fit needs it: means alone, by the steady gains.

    Returns smoothed (steps, chains, k): means of the states given all frames of their pieces.
    """
    filtered = complete_filtered(tracker, chains)
    return filtered, smooth_chains(tracker.system, tracker.gains, filtered, chains.batch.first, tracker.cut.burn_in)


def smooth_missing(
    tracker: PreparedFilter, chains: PieceBatch, which: Numbers
) -> tuple[FilteredStates, SmoothedStates]:
    """Filter and smooth pieces in which entries are missing.

    chains: the pieces, with their factors; which (c,): which chains.
    """
    assert chains.factors is not None
    factors, first = chains.factors[:, which], chains.batch.first[which]
    steady = tracker.gains[1].root[0]
    filtered = filter_states(tracker.system, chains.y[:, which], factors, first, tracker.cut.burn_in, steady)
    return filtered, smooth_kinds(tracker.system, filtered, filtered.roots, factors, slice(None))
