"""States of frames by a fitted Kalman filter: filtered, smoothed, predicted; and how far pieces must overlap for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from dask_dca.engine.cubes import labelled
from dask_dca.engine.map import map_frames
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.sequences import cut_sequences
from dask_dca.engine.tiles import tiles
from dask_dca.engine.types import add_parts, stack_parts
from dask_dca.errors import InvalidInputError
from dask_dca.geometry.exact import plain_total
from dask_dca.models.kalman.covariances import filtered_covariances, smoothed_complete
from dask_dca.models.kalman.filter import start_gains, steady_gains
from dask_dca.models.kalman.pieces import LONGEST_MEMORY, complete_filtered, prepare, read_pieces, smooth_missing
from dask_dca.models.kalman.system import forecast, require_range, row_products

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.types import Window
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.geometry.exact import Total
    from dask_dca.models.kalman.covariances import FilteredStates, SmoothedStates
    from dask_dca.models.kalman.pieces import PieceBatch, PreparedFilter
    from dask_dca.models.kalman.system import LinearSystem

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
    Raises InvalidInputError: A piece has not forgotten where it began.
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
        return map_frames(bare, _block, state, k + k * k, halo, rows.output_dtype, name)

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
        return map_frames(rows, _block, state, p, halo, rows.output_dtype, "predict", "features")

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
    """Pieces of a block, and which of their chains lack entries."""
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
