"""A Kalman filter over pieces of sequences: how these are cut, read, filtered and smoothed; states, predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from dask_dca.engine.cubes import labelled
from dask_dca.engine.passes import Pass, map_frames, run_pass
from dask_dca.engine.sequences import batches, cut_sequences
from dask_dca.engine.tiles import tiles
from dask_dca.engine.types import add_parts, stack_parts
from dask_dca.errors import InvalidInputError
from dask_dca.geometry.exact import plain_total
from dask_dca.models.kalman.filter import (
    filter_pieces,
    filter_states,
    filtered_covariances,
    memory_of,
    smooth_kinds,
    smooth_pieces,
    smoothed_complete,
    start_gains,
    steady_gains,
)
from dask_dca.models.kalman.system import (
    forecast,
    frame_numbers,
    incomplete_numbers,
    prepare_observer,
    require_range,
    row_products,
    safe_system,
    split_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.sequences import Batch, Cut
    from dask_dca.engine.types import Window
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.geometry.exact import Total
    from dask_dca.models.kalman.filter import Filtered, FilteredStates, Gains, SmoothedStates
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

    y (steps, pieces, k): observations of the state; log_density (steps, pieces): of what else the frames hold; factors
    (steps, pieces, k, k): F of each frame, zero outside; None where no entry of the block is missing; frames (rows + 1,
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
    return filter_pieces(tracker.system, observer.factor, tracker.gains, chains.y, batch.inside, batch.first, begin)


def smooth_complete(tracker: PreparedFilter, chains: PieceBatch) -> tuple[Filtered, Floats]:
    """Filter and smooth pieces whose frames are complete, as a fit needs it: means alone, by the steady gains.

    Returns smoothed (steps, pieces, k): means of the states given all frames of their pieces.
    """
    filtered = complete_filtered(tracker, chains)
    return filtered, smooth_pieces(tracker.system, tracker.gains, filtered, chains.batch.first, tracker.cut.burn_in)


def smooth_missing(
    tracker: PreparedFilter, chains: PieceBatch, which: Numbers
) -> tuple[FilteredStates, SmoothedStates]:
    """Filter and smooth pieces in which entries are missing.

    chains: the pieces, with their factors; which (c,): which pieces.
    """
    assert chains.factors is not None
    factors, first = chains.factors[:, which], chains.batch.first[which]
    steady = tracker.gains[1].root[0]
    filtered = filter_states(tracker.system, chains.y[:, which], factors, first, tracker.cut.burn_in, steady)
    return filtered, smooth_kinds(tracker.system, filtered, filtered.roots, factors, slice(None))


Found = TypeVar("Found")
_REMEMBERED: Final = 1e-6  # standard deviations of a state: more must not be left of the beginning of a piece
_TOLERANCE: Final = 1e-12  # what is left of the beginning of a piece
_PIECE: Final = 256
_NATS: Final = 2.0**-36
_LEAST_OVERLAP: Final = 64  # frames: a gap within them is nothing to worry about
_LONGEST_LAZY: Final = 65_536  # frames of a sequence that can't be cut, on chunked data


class _RememberedError(InvalidInputError):
    """So many entries are missing that a piece depends on frames that it does not see."""


def with_overlap(tracker: PreparedFilter, overlap: int) -> PreparedFilter:
    """Let pieces overlap more.

    overlap: frames before and after a piece that it sees. Returns the same system; its sequences are whole where they
    were.
    """
    cut = tracker.cut
    if cut.burn_in == 0:
        return tracker
    width = 6 * tracker.system.n_dim_state**2 + tracker.system.n_dim_state + 1
    return replace(tracker, cut=cut_sequences(cut.edges, length=max(cut.length, overlap), burn_in=overlap, width=width))


def overlapping_enough(rows: Rows, tracker: PreparedFilter, work: Callable[[PreparedFilter], Found]) -> Found:
    """Work with pieces that overlap more and more, until all that lack entries have forgotten where they began.

    rows: the data. Only in memory can pieces be cut anew; work: from a prepared system to the result, by
    `lacking_alone`.
    Raises InvalidInputError: the data are chunked, and a piece has not forgotten.
    """
    while True:
        try:
            return work(tracker)
        except _RememberedError:
            if rows.kind != "memory":
                raise
        tracker = with_overlap(tracker, 4 * tracker.cut.burn_in)


def lacking_alone(
    tracker: PreparedFilter, chains: PieceBatch, missing: Numbers, *, smooth: bool
) -> tuple[FilteredStates, SmoothedStates]:
    """Filter and smooth pieces in which entries are missing, unless they depend on frames that they do not see.

    missing (c,): those that lack entries; smooth: whether frames after a piece matter too.
    Raises InvalidInputError: a piece has not forgotten where it began.
    """
    filtered, smoothed = smooth_missing(tracker, chains, missing)
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


@dataclass(frozen=True)
class _State:
    """What a block needs."""

    tracker: PreparedFilter
    smooth: bool = False
    n_steps: int | None = None  # predict frames that many steps ahead; None: states


def tracker_for(system: LinearSystem, rows: Rows, edges: Numbers) -> PreparedFilter:
    """Prepare a system for data.

    edges (m + 1,): first frame of each sequence, and the number of frames. Returns whose pieces overlap so much that no
    result depends on them, to 1e-12, where frames are complete.
    Raises InvalidInputError: the system never forgets, so that chunked data can't be cut.
    """
    k, p = system.n_dim_state, system.n_dim_obs
    width = 6 * k * k + k + 1
    tracker = prepare(system, edges, np.zeros(p), np.ones(p), tolerance=_TOLERANCE, n_frames=_PIECE, width=width)
    longest = int(np.diff(edges).max())
    if tracker.memory > LONGEST_MEMORY and rows.kind != "memory" and longest > _LONGEST_LAZY:
        msg = (
            f"the filter remembers more than {LONGEST_MEMORY} frames, so that sequences of {longest} frames can't be "
            "cut into pieces; pass them in memory: X.compute()"
        )
        raise InvalidInputError(msg)
    if tracker.memory > LONGEST_MEMORY < longest:
        gains = start_gains(tracker.system, tracker.observer.factor, longest)
        tracker = replace(tracker, gains=(gains, steady_gains(gains)))
    return with_overlap(tracker, max(tracker.cut.burn_in, _LEAST_OVERLAP))


def states_of(rows: Rows, tracker: PreparedFilter, *, smooth: bool) -> tuple[Any, Any]:
    """Means and covariances of the state of every frame.

    smooth: given all frames of the sequence, not only those up to its own. Returns means (n, k): lazy for chunked
    input; covariances (n, k, k): likewise.
    """
    k, name, bare = tracker.system.n_dim_state, ("smooth" if smooth else "filter"), replace(rows, labels=None)

    def _states(some: PreparedFilter) -> Any:
        state, halo = _State(some, smooth=smooth), some.cut.halo_touching
        return map_frames(bare, _block, state, k + k * k, halo, rows.result_dtype, name)

    found = overlapping_enough(rows, tracker, _states)
    if isinstance(found, np.ndarray):
        means, covariances = found[:, :k].copy(), _as_matrices(found, k)
    else:
        sizes, nothing = (found.chunks[0], (k,), (k,)), np.empty((0, 0, 0))
        means = found[:, :k]
        covariances = found.map_blocks(_as_matrices, k, chunks=sizes, new_axis=[2], dtype=found.dtype, meta=nothing)
    return labelled(rows.labels, means, "parts"), labelled(rows.labels, covariances, "parts", "parts")


def _as_matrices(numbers: Floats, k: int) -> Floats:
    return numbers[:, k:].reshape(-1, k, k)


def predictions(rows: Rows, tracker: PreparedFilter, n_steps: int) -> Any:
    """Predict frames from those up to n_steps before them.

    Returns (n, p): row t is what frame t + n_steps is expected to be, given frames up to t.
    """

    def _frames(some: PreparedFilter) -> Any:
        state, halo, p = _State(some, n_steps=n_steps), some.cut.halo_touching, some.system.n_dim_obs
        return map_frames(rows, _block, state, p, halo, rows.result_dtype, "predict", "features")

    return overlapping_enough(rows, tracker, _frames)


def forecasts(rows: Rows, tracker: PreparedFilter, n_steps: int, run: Run) -> tuple[Floats, Floats]:
    """Predict the frames that follow the last one.

    Returns means, variances (n_steps, p): of each channel.
    """
    k, last = tracker.system.n_dim_state, rows.blocks_with(np.array([rows.n_rows - 1]))

    def _states(some: PreparedFilter) -> Floats:
        job: Pass[Floats] = Pass("filter", _block, stack_parts, some.cut.halo_touching)
        return run_pass(rows, job, _State(some), run, blocks=last)

    found = overlapping_enough(rows, tracker, _states)[-1]
    return forecast(tracker.system, found[:k], found[k:].reshape(k, k), n_steps)


def likelihood_of(rows: Rows, tracker: PreparedFilter, run: Run) -> float:
    """Sum the logarithm of the density of all frames, in one pass."""

    def _total(some: PreparedFilter) -> Total:
        job: Pass[Total] = Pass("score", _likelihood_block, add_parts, some.cut.halo)
        return run_pass(rows, job, some, run)

    return float(overlapping_enough(rows, tracker, _total).value())


def _likelihood_block(tracker: PreparedFilter, window: Window, *columns: Any) -> Total:
    total = plain_total(np.zeros(0), _NATS)
    for chains, missing in _pieces(tracker, window, columns, touching=False):
        filtered = complete_filtered(tracker, chains)
        density = filtered.log_density
        if missing is not None:
            density[:, missing] = lacking_alone(tracker, chains, missing, smooth=False)[0].log_density
        whole = np.where(chains.batch.own, density + chains.log_density, 0.0)
        total += plain_total(whole.ravel(), _NATS)
    return total


def _pieces(
    tracker: PreparedFilter, window: Window, columns: Sequence[Any], *, touching: bool
) -> Iterator[tuple[PieceBatch, Numbers | None]]:
    """Pieces of a block, and which of them lack entries."""
    lacking = any(bool(np.isnan(tile).any()) for _, tile in tiles(columns, 0, copy=False))
    for chains in read_pieces(tracker, window, columns, missing=lacking, touching=touching):
        if chains.factors is None:
            yield chains, None
            continue
        differ = (chains.factors != tracker.observer.factor).any(axis=(2, 3)) & chains.batch.inside
        which = np.flatnonzero(differ.any(axis=0))
        yield chains, which if len(which) else None


def _block(state: _State, window: Window, *columns: Any) -> Floats:
    """Means with covariances, or predictions, of a block's own rows."""
    tracker, k = state.tracker, state.tracker.system.n_dim_state
    result = np.empty((window.stop - window.start, k if state.n_steps else k + k * k))
    for chains, missing in _pieces(tracker, window, columns, touching=True):
        means, covariances = _complete(state, chains)
        if missing is not None:
            filtered, smoothed = lacking_alone(tracker, chains, missing, smooth=state.smooth)
            means[:, missing] = smoothed.means if state.smooth else filtered.means
            covariances[:, missing] = smoothed.covariances if state.smooth else filtered.covariances
        found = means if state.n_steps else np.concatenate([means, covariances.reshape(*means.shape[:2], -1)], axis=2)
        chains.batch.scatter(result, window, found)
    return result if state.n_steps is None else _ahead(tracker.system, result, state.n_steps)


def _ahead(system: LinearSystem, states: Floats, n_steps: int) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        power = np.linalg.matrix_power(system.transition, n_steps)
        found = system.offset + row_products(states, system.observation @ power)
    require_range(system, "n_steps", n_steps, found)
    return found


def _complete(state: _State, chains: PieceBatch) -> tuple[Floats, Floats]:
    """Means and covariances of pieces without missing entries."""
    tracker, batch = state.tracker, chains.batch
    filtered = complete_filtered(tracker, chains)
    begin, steps, k = tracker.cut.burn_in, len(chains.y), tracker.system.n_dim_state
    if state.n_steps:
        return filtered.means.copy(), np.zeros((*chains.y.shape[:2], k, k))
    if not state.smooth:
        return filtered.means.copy(), filtered_covariances(tracker.gains, batch.first, begin, steps)
    ends = steps - batch.inside[::-1].argmax(axis=0)
    ends[~batch.inside.any(axis=0)] = 0
    return smoothed_complete(tracker.system, tracker.observer.factor, tracker.gains, filtered, batch.first, ends, begin)
