"""The filter and the smoother on the pieces of a block, whether or not entries are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.sequences import batches, cut_sequences
from dask_dca.kernels.lds_gains import memory_of, start_gains, steady_gains
from dask_dca.kernels.lds_incomplete import filter_states, smooth_states
from dask_dca.kernels.lds_observe import frame_numbers, incomplete_numbers, prepare_observer, split_numbers
from dask_dca.kernels.lds_recursion import filter_chains, smooth_chains
from dask_dca.kernels.lds_system import safe_system

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.halo import Window
    from dask_dca.engine.sequences import Batch, Cut
    from dask_dca.kernels.lds_gains import Gains
    from dask_dca.kernels.lds_incomplete import FilteredStates, SmoothedStates
    from dask_dca.kernels.lds_observe import Observer
    from dask_dca.kernels.lds_recursion import Filtered
    from dask_dca.kernels.lds_system import LinearSystem

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]
    Mask = NDArray[np.bool_]

__all__ = [
    "LONGEST_MEMORY",
    "Chains",
    "Tracker",
    "complete_filtered",
    "complete_states",
    "lacking_states",
    "prepare",
    "read_pieces",
]

LONGEST_MEMORY: Final = 4096  # frames: systems that remember longer are run over whole sequences
_SHORTEST: Final = 8


@dataclass(frozen=True)
class Tracker:
    """
    A system prepared to be run over pieces of sequences.

    Attributes
    ----------
    observer : Observer
        From frames to k numbers.
    gains : tuple of Gains
        Of the first frames of a sequence, and of later ones.
    cut : Cut
        How sequences are cut.
    memory : int
        Frames after which the filter has forgotten where it began.
    centre, unit : ndarray of float64, shape (p,)
        The system is one of (x - centre) / unit.
    """

    observer: Observer
    gains: tuple[Gains, Gains]
    cut: Cut
    memory: int
    centre: Floats
    unit: Floats

    @property
    def system(self) -> LinearSystem:
        """
        The system itself, its noise nowhere singular.

        Returns
        -------
        LinearSystem
            The system.
        """
        return self.observer.system


@dataclass(frozen=True)
class Chains:
    """
    The pieces of a batch.

    Attributes
    ----------
    batch : Batch
        Which frames.
    y : ndarray of float64, shape (steps, chains, k)
        Observations of the state.
    log_density : ndarray of float64, shape (steps, chains)
        Of what else the frames hold.
    factors : ndarray of float64, shape (steps, chains, k, k), or None
        F of each frame, zero outside; None where no entry of the block is missing.
    frames : ndarray of float64, shape (rows + 1, p)
        (x - centre) / unit of the rows of `batch.values`, if asked for.
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
) -> Tracker:
    """
    Prepare a system for all blocks: gains, and how sequences are cut.

    Parameters
    ----------
    system : LinearSystem
        The system.
    edges : ndarray of int64, shape (m + 1,)
        First frame of each sequence, and the number of frames.
    centre, unit : ndarray of float64, shape (p,)
        The system is one of (x - centre) / unit.
    tolerance : float
        What may be left of an error at the beginning of a piece: it decides the burn-in.
    n_frames : int
        Frames of a piece at most, unless the burn-in is longer.
    width : int
        Numbers a frame that are held at once.

    Returns
    -------
    Tracker
        To be sent with a pass.
    """
    observer = prepare_observer(safe_system(system))
    longest = int(np.diff(edges).max())
    start = start_gains(observer.system, observer.factor, min(longest, LONGEST_MEMORY))
    gains = (start, steady_gains(start))
    memory = int(max(min(memory_of(gains[1], tolerance), LONGEST_MEMORY + 1), _SHORTEST))
    length = longest if memory > LONGEST_MEMORY else max(memory, n_frames)
    cut = cut_sequences(edges, length=min(length, longest), burn_in=min(memory, length), width=width)
    return Tracker(observer, gains, cut, memory, centre, unit)


@dataclass(frozen=True)
class _Reader:
    """From a tile of frames to the numbers that the recursions need."""

    tracker: Tracker
    missing: bool
    keep: bool

    def __call__(self, tile: Floats) -> Floats:
        frames = (tile - self.tracker.centre) / self.tracker.unit
        read = incomplete_numbers if self.missing else frame_numbers
        found = read(self.tracker.observer, frames)
        return np.hstack([found, frames]) if self.keep else found


def read_pieces(
    tracker: Tracker,
    window: Window,
    columns: Sequence[Any],
    *,
    missing: bool,
    touching: bool = False,
    keep: bool = False,
) -> Iterator[Chains]:
    """
    Go through the pieces of a block.

    Parameters
    ----------
    tracker : Tracker
        The prepared system.
    window : Window
        The block's rows and halo.
    columns : sequence
        The block's column chunks.
    missing : bool
        Whether entries may be missing.
    touching : bool, default False
        All pieces with an own frame in the block, not only those that begin in it.
    keep : bool, default False
        Keep the frames too.

    Yields
    ------
    Chains
        Some pieces side by side.
    """
    k = tracker.system.n_dim_state
    width = k + 1 + (k * k if missing else 0)
    reader = _Reader(tracker, missing, keep)
    for batch in batches(tracker.cut, window, columns, reader, touching=touching, finite=False):
        numbers = batch.values[batch.index][:, :, :width] * batch.inside[:, :, None]
        factors = None
        if missing:
            y, logs, factors = split_numbers(numbers, k)
        else:
            y, logs = numbers[:, :, :k], numbers[:, :, k]
        yield Chains(batch, np.ascontiguousarray(y), logs, factors, batch.values[:, width:])


def complete_filtered(tracker: Tracker, chains: Chains) -> Filtered:
    """
    Filter pieces whose frames are complete.

    Parameters
    ----------
    tracker : Tracker
        The prepared system.
    chains : Chains
        The pieces.

    Returns
    -------
    Filtered
        From `filter_chains`.
    """
    batch, observer, begin = chains.batch, tracker.observer, tracker.cut.burn_in
    return filter_chains(tracker.system, observer.factor, tracker.gains, chains.y, batch.inside, batch.first, begin)


def complete_states(tracker: Tracker, chains: Chains) -> tuple[Filtered, Floats]:
    """
    Filter and smooth pieces whose frames are complete, as a fit needs it: means alone, by the steady gains.

    Parameters
    ----------
    tracker : Tracker
        The prepared system.
    chains : Chains
        The pieces.

    Returns
    -------
    filtered : Filtered
        From `filter_chains`.
    smoothed : ndarray of float64, shape (steps, chains, k)
        Means of the states given all frames of their pieces.
    """
    filtered = complete_filtered(tracker, chains)
    return filtered, smooth_chains(tracker.system, tracker.gains, filtered, chains.batch.first, tracker.cut.burn_in)


def lacking_states(tracker: Tracker, chains: Chains, which: Numbers) -> tuple[FilteredStates, SmoothedStates]:
    """
    Filter and smooth pieces in which entries are missing.

    Parameters
    ----------
    tracker : Tracker
        The prepared system.
    chains : Chains
        The pieces, with their factors.
    which : ndarray of int64, shape (c,)
        Which chains.

    Returns
    -------
    filtered : FilteredStates
        Of these chains.
    smoothed : SmoothedStates
        Of these chains.
    """
    assert chains.factors is not None
    filtered = filter_states(
        tracker.system,
        chains.y[:, which],
        chains.factors[:, which],
        chains.batch.first[which],
        tracker.cut.burn_in,
        tracker.gains[1].root[0],
    )
    return filtered, smooth_states(tracker.system, chains.factors[:, which], filtered)
