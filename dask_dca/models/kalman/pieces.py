"""A Kalman filter over pieces of sequences: cutting, reading, filtering and smoothing; states and predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from dask_dca.engine.cubes import labelled
from dask_dca.engine.passes import Pass, Run, map_frames, run_pass
from dask_dca.engine.rows import Rows
from dask_dca.engine.sequences import Batch, Cut, batches, cut_sequences
from dask_dca.engine.tiles import tiles
from dask_dca.engine.types import Window, add_parts, stack_parts
from dask_dca.errors import InvalidInputError
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import Total, plain_total
from dask_dca.models.kalman.filter import (
    Filtered,
    FilteredStates,
    Gains,
    SmoothedStates,
    filter_pieces,
    filter_states,
    filtered_covariances,
    memory_length,
    smooth_by_kind,
    smooth_pieces,
    smoothed_complete,
    start_gains,
    steady_gains,
)
from dask_dca.models.kalman.system import (
    LinearSystem,
    Observer,
    forecast,
    prepare_observer,
    reduce_frames,
    reduce_incomplete,
    regularised,
    require_range,
    row_products,
    split_reduced,
)

MAX_MEMORY_FRAMES: Final = 4096  # maximum burn-in; systems that remember longer are run over whole sequences
_MIN_MEMORY_FRAMES: Final = 8  # minimum burn-in


@dataclass(frozen=True)
class PreparedFilter:
    """A system prepared to be run over pieces of sequences.

    observer: reduces frames to k numbers; gains: of the first frames of a sequence, and steady ones; memory: frames
    after which the filter has forgotten its initial state; centre, unit (p,): the system is one of (x - centre) / unit.
    """

    observer: Observer
    gains: tuple[Gains, Gains]
    cut: Cut
    memory: int
    centre: Floats
    unit: Floats

    @property
    def system(self) -> LinearSystem:
        """The system, with regular observation noise."""
        return self.observer.system


@dataclass(frozen=True)
class PieceBatch:
    """The pieces of a batch.

    y (steps, pieces, k): reduced frames; log_density (steps, pieces): of the remaining part of each frame; factors
    (steps, pieces, k, k): F of each frame, zero outside; None if no entry of the block is missing; frames (rows + 1,
    p): (x - centre) / unit of the rows of `batch.values`, if requested.
    """

    batch: Batch
    y: Floats
    log_density: Floats
    factors: Floats | None
    frames: Floats


def prepare(
    system: LinearSystem, edges: Numbers, centre: Floats, unit: Floats, *, tolerance: float, n_frames: int, width: int
) -> PreparedFilter:
    """Compute the gains of a system, and cut sequences into pieces.

    edges (m + 1,): first frame of each sequence, and the number of frames; centre, unit (p,): the system is one of
    (x - centre) / unit; tolerance: share of an initial error that may remain after the burn-in; n_frames: length of a
    piece, unless the burn-in is longer; width: numbers per frame that are in memory at once.
    """
    observer = prepare_observer(regularised(system))
    longest = int(np.diff(edges).max())
    start = start_gains(observer.system, observer.factor, min(longest, MAX_MEMORY_FRAMES))
    gains = (start, steady_gains(start))
    memory = int(max(min(memory_length(gains[1], tolerance), MAX_MEMORY_FRAMES + 1), _MIN_MEMORY_FRAMES))
    length = longest if memory > MAX_MEMORY_FRAMES else max(memory, n_frames)
    cut = cut_sequences(edges, length=min(length, longest), burn_in=min(memory, length), width=width)
    return PreparedFilter(observer, gains, cut, memory, centre, unit)


def _reduce_tile(plan: PreparedFilter, missing: bool, keep: bool, tile: Floats) -> Floats:
    """Reduce the frames of a tile for the recursions."""
    frames = (tile - plan.centre) / plan.unit
    found = (reduce_incomplete if missing else reduce_frames)(plan.observer, frames)
    return np.hstack([found, frames]) if keep else found


def read_pieces(
    plan: PreparedFilter,
    window: Window,
    columns: Sequence[Any],
    *,
    missing: bool,
    touching: bool = False,
    keep: bool = False,
) -> Iterator[PieceBatch]:
    """Iterate over the pieces of a block in batches.

    window: the block's rows and halo; missing: whether entries may be missing; touching: include all pieces with an own
    frame in the block, not only those that begin in it; keep: keep the frames, too.
    """
    k = plan.system.n_dim_state
    width = k + 1 + (k * k if missing else 0)
    reader = partial(_reduce_tile, plan, missing, keep)
    for batch in batches(plan.cut, window, columns, reader, touching=touching, finite=False):
        numbers = batch.values[batch.index][:, :, :width] * batch.inside[:, :, None]
        factors = None
        if missing:
            y, logs, factors = split_reduced(numbers, k)
        else:
            y, logs = numbers[:, :, :k], numbers[:, :, k]
        yield PieceBatch(batch, np.ascontiguousarray(y), logs, factors, batch.values[:, width:])


def filter_complete(plan: PreparedFilter, pieces: PieceBatch) -> Filtered:
    """Filter pieces of complete frames."""
    batch, observer, begin = pieces.batch, plan.observer, plan.cut.burn_in
    return filter_pieces(plan.system, observer.factor, plan.gains, pieces.y, batch.inside, batch.first, begin)


def smooth_complete(plan: PreparedFilter, pieces: PieceBatch) -> tuple[Filtered, Floats]:
    """Filter pieces of complete frames, and smooth their means, which is all that a fit needs.

    Returns the smoothed means (steps, pieces, k) as second value.
    """
    filtered = filter_complete(plan, pieces)
    return filtered, smooth_pieces(plan.system, plan.gains, filtered, pieces.batch.first, plan.cut.burn_in)


def smooth_missing(plan: PreparedFilter, pieces: PieceBatch, which: Numbers) -> tuple[FilteredStates, SmoothedStates]:
    """Filter and smooth pieces with missing entries; which (c,): indices of these pieces."""
    assert pieces.factors is not None
    factors, first = pieces.factors[:, which], pieces.batch.first[which]
    steady = plan.gains[1].root[0]
    filtered = filter_states(plan.system, pieces.y[:, which], factors, first, plan.cut.burn_in, steady)
    return filtered, smooth_by_kind(plan.system, filtered, filtered.roots, factors, slice(None))


Result = TypeVar("Result")
_MAX_INITIAL_ERROR: Final = 1e-6  # maximum effect of a piece's start after its burn-in, in standard deviations
_BURN_IN_TOL: Final = 1e-12  # share of an initial error that may remain after the burn-in, for complete frames
_PIECE_FRAMES: Final = 256  # length of a piece, unless the burn-in is longer
_LOG_DENSITY_GRID: Final = 2.0**-36  # nats to which log densities are rounded before they are summed exactly
_MIN_OVERLAP_FRAMES: Final = 64  # minimum burn-in, so that short gaps do not need a longer one
_MAX_LAZY_FRAMES: Final = 65_536  # maximum length of a sequence of chunked data that cannot be cut


class _OverlapTooShortError(InvalidInputError):
    """A piece depends on frames before its burn-in, since too many entries are missing."""


def with_overlap(plan: PreparedFilter, overlap: int) -> PreparedFilter:
    """Cut sequences into pieces with another overlap; sequences that were not cut stay whole.

    overlap: frames before and after a piece that it includes.
    """
    cut = plan.cut
    if cut.burn_in == 0:
        return plan
    width = 6 * plan.system.n_dim_state**2 + plan.system.n_dim_state + 1
    return replace(plan, cut=cut_sequences(cut.edges, length=max(cut.length, overlap), burn_in=overlap, width=width))


def with_enough_overlap(rows: Rows, plan: PreparedFilter, work: Callable[[PreparedFilter], Result]) -> Result:
    """Run some work, and repeat it with longer overlaps while pieces with missing entries depend on their start.

    rows: only rows in memory can be cut anew; work: from a plan system to the result, by `smooth_missing_checked`.
    Raises InvalidInputError: the data are chunked, and an overlap is too short.
    """
    while True:
        try:
            return work(plan)
        except _OverlapTooShortError:
            if rows.kind != "memory":
                raise
        plan = with_overlap(plan, 4 * plan.cut.burn_in)


def smooth_missing_checked(
    plan: PreparedFilter, pieces: PieceBatch, missing: Numbers, *, smooth: bool
) -> tuple[FilteredStates, SmoothedStates]:
    """Filter and smooth pieces with missing entries, and check that their overlap is long enough.

    missing (c,): indices of these pieces; smooth: whether the overlap after a piece is checked, too.
    Raises InvalidInputError: a piece depends on frames outside its overlap.
    """
    filtered, smoothed = smooth_missing(plan, pieces, missing)
    overlap, batch = plan.cut.burn_in, pieces.batch
    if overlap:
        left = np.where(batch.first[missing], 0.0, filtered.initial_error[overlap - 1])
        if smooth:
            left = np.maximum(left, np.where(batch.inside[-1, missing], filtered.initial_error[-1], 0.0))
        if not (left <= _MAX_INITIAL_ERROR).all():
            where = int(batch.begins[missing[int((~(left <= _MAX_INITIAL_ERROR)).argmax())]])
            msg = (
                f"so many entries of frames {where} to {where + plan.cut.length} are missing that the filter "
                f"remembers more than {overlap} frames there, which is not supported for chunked data; pass them in "
                "memory: X.compute(), or begin a new sequence after the gap (lengths)"
            )
            raise _OverlapTooShortError(msg)
    return filtered, smoothed


@dataclass(frozen=True)
class _State:
    """State of a pass."""

    plan: PreparedFilter
    smooth: bool = False
    n_steps: int | None = None  # predict frames that many steps ahead; None: states


def prepare_filter(system: LinearSystem, rows: Rows, edges: Numbers) -> PreparedFilter:
    """Prepare a system for inference, with pieces that do not affect results on complete frames beyond 1e-12.

    edges (m + 1,): first frame of each sequence, and the number of frames.
    Raises InvalidInputError: the system remembers too long to cut long sequences of chunked data.
    """
    k, p = system.n_dim_state, system.n_dim_obs
    width = 6 * k * k + k + 1
    plan = prepare(system, edges, np.zeros(p), np.ones(p), tolerance=_BURN_IN_TOL, n_frames=_PIECE_FRAMES, width=width)
    longest = int(np.diff(edges).max())
    if plan.memory > MAX_MEMORY_FRAMES and rows.kind != "memory" and longest > _MAX_LAZY_FRAMES:
        msg = (
            f"the filter remembers more than {MAX_MEMORY_FRAMES} frames, so that sequences of {longest} frames cannot "
            "be cut into pieces; pass them in memory: X.compute()"
        )
        raise InvalidInputError(msg)
    if plan.memory > MAX_MEMORY_FRAMES < longest:
        gains = start_gains(plan.system, plan.observer.factor, longest)
        plan = replace(plan, gains=(gains, steady_gains(gains)))
    return with_overlap(plan, max(plan.cut.burn_in, _MIN_OVERLAP_FRAMES))


def state_estimates(rows: Rows, plan: PreparedFilter, *, smooth: bool) -> tuple[Any, Any]:
    """Compute means (n, k) and covariances (n, k, k) of the states, lazy for chunked input.

    smooth: condition on all frames of a sequence instead of those up to each.
    """
    k, name, bare = plan.system.n_dim_state, ("smooth" if smooth else "filter"), replace(rows, labels=None)

    def _states(some: PreparedFilter) -> Any:
        state, halo = _State(some, smooth=smooth), some.cut.halo_touching
        return map_frames(bare, _block, state, k + k * k, halo, rows.result_dtype, name)

    found = with_enough_overlap(rows, plan, _states)
    if isinstance(found, np.ndarray):
        means, covariances = found[:, :k].copy(), _covariance_part(found, k)
    else:
        sizes, nothing = (found.chunks[0], (k,), (k,)), np.empty((0, 0, 0))
        means = found[:, :k]
        covariances = found.map_blocks(_covariance_part, k, chunks=sizes, new_axis=[2], dtype=found.dtype, meta=nothing)
    return labelled(rows.labels, means, "parts"), labelled(rows.labels, covariances, "parts", "parts")


def _covariance_part(numbers: Floats, k: int) -> Floats:
    return numbers[:, k:].reshape(-1, k, k)


def predictions(rows: Rows, plan: PreparedFilter, n_steps: int) -> Any:
    """Predict frames n_steps ahead.

    Returns (n, p): row t is the expectation of frame t + n_steps, given the frames up to t.
    """

    def _frames(some: PreparedFilter) -> Any:
        state, halo, p = _State(some, n_steps=n_steps), some.cut.halo_touching, some.system.n_dim_obs
        return map_frames(rows, _block, state, p, halo, rows.result_dtype, "predict", "features")

    return with_enough_overlap(rows, plan, _frames)


def forecasts(rows: Rows, plan: PreparedFilter, n_steps: int, run: Run) -> tuple[Floats, Floats]:
    """Predict the frames that follow the last one: means and variances (n_steps, p)."""
    k, last = plan.system.n_dim_state, rows.blocks_with(np.array([rows.n_rows - 1]))

    def _states(some: PreparedFilter) -> Floats:
        job: Pass[Floats] = Pass("filter", _block, stack_parts, some.cut.halo_touching)
        return run_pass(rows, job, _State(some), run, blocks=last)

    found = with_enough_overlap(rows, plan, _states)[-1]
    return forecast(plan.system, found[:k], found[k:].reshape(k, k), n_steps)


def total_log_likelihood(rows: Rows, plan: PreparedFilter, run: Run) -> float:
    """Compute the log likelihood of all sequences, in one pass."""

    def _total(some: PreparedFilter) -> Total:
        job: Pass[Total] = Pass("score", _likelihood_block, add_parts, some.cut.halo)
        return run_pass(rows, job, some, run)

    return float(with_enough_overlap(rows, plan, _total).value())


def _likelihood_block(plan: PreparedFilter, window: Window, *columns: Any) -> Total:
    total = plain_total(np.zeros(0), _LOG_DENSITY_GRID)
    for pieces, missing in _pieces_with_missing(plan, window, columns, touching=False):
        filtered = filter_complete(plan, pieces)
        density = filtered.log_density
        if missing is not None:
            density[:, missing] = smooth_missing_checked(plan, pieces, missing, smooth=False)[0].log_density
        whole = np.where(pieces.batch.own, density + pieces.log_density, 0.0)
        total += plain_total(whole.ravel(), _LOG_DENSITY_GRID)
    return total


def _pieces_with_missing(
    plan: PreparedFilter, window: Window, columns: Sequence[Any], *, touching: bool
) -> Iterator[tuple[PieceBatch, Numbers | None]]:
    """Iterate over the pieces of a block, with the indices of those that have missing entries, or None."""
    lacking = any(bool(np.isnan(tile).any()) for _, tile in tiles(columns, 0, copy=False))
    for pieces in read_pieces(plan, window, columns, missing=lacking, touching=touching):
        if pieces.factors is None:
            yield pieces, None
            continue
        differ = (pieces.factors != plan.observer.factor).any(axis=(2, 3)) & pieces.batch.inside
        which = np.flatnonzero(differ.any(axis=0))
        yield pieces, which if len(which) else None


def _block(state: _State, window: Window, *columns: Any) -> Floats:
    """Compute the states' means and covariances, or predictions, of a block's own rows."""
    plan, k = state.plan, state.plan.system.n_dim_state
    result = np.empty((window.stop - window.start, k if state.n_steps else k + k * k))
    for pieces, missing in _pieces_with_missing(plan, window, columns, touching=True):
        means, covariances = _complete_states(state, pieces)
        if missing is not None:
            filtered, smoothed = smooth_missing_checked(plan, pieces, missing, smooth=state.smooth)
            means[:, missing] = smoothed.means if state.smooth else filtered.means
            covariances[:, missing] = smoothed.covariances if state.smooth else filtered.covariances
        found = means if state.n_steps else np.concatenate([means, covariances.reshape(*means.shape[:2], -1)], axis=2)
        pieces.batch.scatter(result, window, found)
    return result if state.n_steps is None else _predict_ahead(plan.system, result, state.n_steps)


def _predict_ahead(system: LinearSystem, states: Floats, n_steps: int) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        power = np.linalg.matrix_power(system.transition, n_steps)
        found = system.offset + row_products(states, system.observation @ power)
    require_range(system, "n_steps", n_steps, found)
    return found


def _complete_states(state: _State, pieces: PieceBatch) -> tuple[Floats, Floats]:
    """Compute means and covariances of pieces of complete frames."""
    plan, batch = state.plan, pieces.batch
    filtered = filter_complete(plan, pieces)
    begin, steps, k = plan.cut.burn_in, len(pieces.y), plan.system.n_dim_state
    if state.n_steps:
        return filtered.means.copy(), np.zeros((*pieces.y.shape[:2], k, k))
    if not state.smooth:
        return filtered.means.copy(), filtered_covariances(plan.gains, batch.first, begin, steps)
    ends = steps - batch.inside[::-1].argmax(axis=0)
    ends[~batch.inside.any(axis=0)] = 0
    return smoothed_complete(plan.system, plan.observer.factor, plan.gains, filtered, batch.first, ends, begin)
