"""The divide step and the merge of its results: (sub-problems, blocks) -> extremes -> votes, merged in a tree.

Random planes depend on the seed alone, not on chunks, and comparisons that decide are exact, so that any chunking and
any number of workers give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.engine.entry import OwnCaches
from dask_dca.engine.passes import Pass, PlaneGroup, Run, plane_groups, run_pass, step
from dask_dca.engine.rows import Rows
from dask_dca.engine.tiles import Reading, RowCounts, clip_rounding, count_unusable, slabs, tiles
from dask_dca.engine.types import Groups, add_parts
from dask_dca.geometry import planes, votes
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import Workspace
from dask_dca.geometry.moments import SubspaceCoordinates, coordinates, scale_in_place
from dask_dca.geometry.outlying import MAX_OUTLYING_ROWS, Outlying, find_outlying_rows
from dask_dca.geometry.screening import Screen, approximate_positions, prepare_screen, surviving_rows
from dask_dca.geometry.votes import VoteHistogram

_EXACT_ROWS: Final = 1024  # rows that are compared exactly at a time
_MAX_BROUGHT_BYTES: Final = 2**24  # bytes of extreme rows that a pass may return with its result
# share of a slab whose score bounds exceed the threshold above which screening goes on in double precision
_MAX_OUTLYING_SHARE: Final = 0.5


@dataclass(frozen=True)
class Divided:
    """Result of the divide step: votes of the planes, counts of rows, and candidate and outlying rows."""

    votes: VoteHistogram
    fresh: Floats  # (2, f) greatest heights along the fresh directions and along their opposites
    row_counts: RowCounts
    numbers: Numbers  # (b,) of the candidates in `rows`, increasing
    rows: NDArray[Any]  # (b, p) candidates, unscaled; b = 0 if they were not brought along
    outlying: Outlying  # rows furthest outside the subspace, if they were asked for


@dataclass(frozen=True)
class _GroupExtremes:
    """The extreme row of each signed direction of a group of planes."""

    extremes: votes.ArgBest
    n_planes: int  # number of planes; their directions come first, then fresh ones
    row_counts: RowCounts
    numbers: Numbers  # (b,) of the extreme rows in `rows`, increasing
    rows: NDArray[Any]  # (b, p) extreme rows, unscaled
    outlying: Outlying


@dataclass(frozen=True)
class Directions(OwnCaches):
    """Parameters from which any process regenerates the directions of a divide pass."""

    ensemble: str
    seed: int
    count: int
    fresh: int  # number of further directions, in all r dimensions, that only test the anchors' coverage
    dim: int
    scales: Floats
    features: Floats | None = None

    def regenerate(self) -> Floats:
        """Return the integer directions, shape (count + fresh, r): computed once per process, never sent."""
        return self._integers

    @cached_property
    def _integers(self) -> Floats:
        every = np.arange(self.count + self.fresh)
        features = None if self.features is None else self.features[:, : self.dim]
        found = np.zeros((len(every), len(self.scales)))
        found[: self.count, : self.dim] = planes.directions(
            self.ensemble, self.seed, every[: self.count], self.scales[: self.dim], features
        )
        # whitened, so that all rays have equal weight, except that narrower directions than the anchors' stay narrow
        widths = np.maximum(self.scales, self.scales[self.dim - 1])
        found[self.count :] = planes.directions("whitened", self.seed, every[self.count :], widths)
        return votes.integer_directions(found)


@dataclass(frozen=True)
class _State(OwnCaches):
    """What a task needs besides its block: how rows are read and placed, and the planes."""

    reading: Reading
    frame: SubspaceCoordinates
    planes: Directions
    bring: bool  # whether extreme rows are returned, so that anchors need not be read again
    typical_height: float  # median height of rows; zero if outlying rows are not wanted

    @cached_property
    def seen_extremes(self) -> dict[int, votes.ArgBest]:
        """Extremes of each group of planes over the blocks that this process has done.

        They are thresholds for the rows of further blocks, most of which are below them; the merge is the same.
        """
        return {}

    @cached_property
    def seen_outlying(self) -> dict[np.dtype[Any], Outlying]:
        """Likewise, by the dtype of blocks, the rows furthest outside the subspace."""
        return {}


def divide(
    rows: Rows,
    reading: Reading,
    frame: SubspaceCoordinates,
    directions: Directions,
    run: Run,
    *,
    n_planes: int | None = None,
    n_groups: int | None = None,
    typical_height: float = 0.0,
) -> Divided:
    """Solve all sub-problems on all rows, and merge their votes: the divide and the conquer step.

    A task is a block of rows and a group of planes. The extremes of a group are merged over blocks and give its vote
    histogram, and histograms are merged in a tree. There is one group where blocks fill the threads of the cluster,
    else as many as fill them; the result does not depend on their number. If `typical_height` is positive, the pass
    also keeps the rows furthest outside the subspace.
    """
    state = step(run, "state", _prepare, reading, frame, directions, _Blocks.of(rows), typical_height)
    groups = plane_groups(rows, n_planes, n_groups)
    job: Pass[Any] = Pass(
        "divide", _divide_block, _merge_extremes, groups=Groups(groups, _count_votes, _merge_divided, _screen_block)
    )
    return run_pass(rows, job, state, run)


@dataclass(frozen=True)
class _Blocks:
    """Sizes of the blocks, which decide whether rows are returned."""

    n_rows: int
    row_bytes: int
    n_blocks: int
    n_chunks: int  # number of pieces that can be read alone
    held: bool  # whether the data are in memory already

    @classmethod
    def of(cls, rows: Rows) -> _Blocks:
        size = rows.n_features * rows.dtype.itemsize
        return cls(rows.n_rows, size, rows.n_blocks, rows.by_chunk().n_blocks, rows.kind == "memory")


def _prepare(
    reading: Reading, frame: SubspaceCoordinates, directions: Directions, blocks: _Blocks, typical_height: float
) -> _State:
    few = MAX_OUTLYING_ROWS * blocks.row_bytes <= _MAX_BROUGHT_BYTES
    return _State(reading, frame, directions, _should_bring_rows(blocks, directions), typical_height if few else 0.0)


def _should_bring_rows(blocks: _Blocks, directions: Directions) -> bool:
    """Whether moving the extreme rows of all blocks costs less than reading the anchors' chunks again."""
    most = 2 * directions.count
    if blocks.held or most * blocks.row_bytes > _MAX_BROUGHT_BYTES:
        return False
    return 2 * most * blocks.n_blocks * blocks.n_chunks < min(blocks.n_chunks, directions.dim + 1) * blocks.n_rows


@dataclass(frozen=True)
class _Screened:
    """Approximate positions of the rows of a block, shared by all groups of planes."""

    positions: NDArray[Any]
    margins: Floats
    scores: Floats
    row_counts: RowCounts


def _screen_block(state: _State, start: int, *columns: Any) -> _Screened:
    """Compute approximate positions once for all groups of planes."""
    found, row_counts = prepare_screen(state.frame), RowCounts()
    near = [(np.zeros((0, len(state.planes.scales)), dtype=np.float32), np.zeros(0), np.zeros(0))]
    near += [
        approximate_positions(_read_rows(state, slab, numbers, row_counts), found, state.typical_height)
        for numbers, slab in slabs(columns, start)
    ]
    positions, margins, scores = zip(*near, strict=True)
    return _Screened(np.concatenate(positions), np.concatenate(margins), np.concatenate(scores), row_counts)


def _read_rows(state: _State, slab: NDArray[Any], numbers: Numbers, row_counts: RowCounts) -> NDArray[Any]:
    """Clip negative entries that are rounding errors, and count them, where data must be non-negative."""
    if not state.reading.nonnegative or slab.min(initial=0.0) >= 0.0:
        return slab
    return clip_rounding(slab.astype(np.float64), numbers, row_counts)


def _divide_block(
    group: PlaneGroup, shared: Sequence[_Screened], state: _State, start: int, *columns: Any
) -> _GroupExtremes:
    """Find the extreme rows of a block for one group of planes: screen, then compare the survivors exactly."""
    count = state.planes.count
    own = group.range_of(count)
    directions = state.planes.regenerate()[np.concatenate([own, count + group.range_of(state.planes.fresh)])]
    rough, best, row_counts = directions.astype(np.float32), state.seen_extremes.get(group.number), RowCounts()
    best = best or votes.ArgBest.empty(2 * len(directions), directions.shape[1])
    screened = _concatenate(shared) if shared else None
    typical_height = state.typical_height if group.number == 0 else 0.0
    screen, space, outlying = None, Workspace(), Outlying.empty(len(state.frame.gain), _dtype_of(columns))
    if typical_height > 0.0:
        outlying = state.seen_outlying.get(outlying.rows.dtype, outlying)
    for numbers, slab in slabs(columns, start):
        # rows to compare exactly: all of the slab, unless screening excludes some
        rows, where, scores = slab, np.arange(len(slab)), np.full(len(slab), np.inf)
        if screened is not None:
            here = slice(numbers[0] - start, numbers[-1] + 1 - start)
            where = surviving_rows(best, screened.positions[here], screened.margins[here], rough, space)
            scores = screened.scores[here]
        else:
            rows = _read_rows(state, slab, numbers, row_counts)
            if len(rows) > 2 * len(directions):  # otherwise most rows are extreme
                screen = screen or prepare_screen(state.frame)
                positions, margins, scores = approximate_positions(rows, screen, typical_height, space)
                where = surviving_rows(best, positions, margins, rough, space)
        for some in (where[i : i + _EXACT_ROWS] for i in range(0, len(where), _EXACT_ROWS)):
            exact_rows = _read_rows(state, rows[some].astype(np.float64, copy=False), numbers[some], RowCounts())
            best = _compare_exactly(state, best, exact_rows, numbers[some], directions, row_counts)
        if typical_height > 0.0:
            outlying = _update_outlying(state, outlying, rows, numbers, scores, screen)
            single = screen is not None and screen.table.dtype == np.float32
            if single and _may_be_kept(outlying, scores).mean() > _MAX_OUTLYING_SHARE:
                screen = prepare_screen(state.frame, np.float64)
    state.seen_extremes[group.number] = best
    if typical_height > 0.0:
        state.seen_outlying[outlying.rows.dtype] = outlying
    wanted = np.unique(votes.voted_rows(best, len(own)))
    wanted = wanted[(wanted >= start) & (wanted < start + columns[0].shape[0])]
    row_counts += RowCounts() if screened is None else screened.row_counts
    return _GroupExtremes(best, len(own), row_counts, *_candidate_rows(state, wanted, start, columns), outlying)


def _update_outlying(
    state: _State, outlying: Outlying, rows: NDArray[Any], numbers: Numbers, scores: Floats, screen: Screen | None
) -> Outlying:
    """Update the outlying rows by those of a slab, given upper bounds on the scores of its rows.

    The rows with the greatest bounds come first, which raises the threshold. Where noise is small against the rows,
    bounds in single precision are loose, and many rows are bounded again in double precision.
    """
    first = np.zeros(0, dtype=np.intp)
    if len(scores) > 4 * MAX_OUTLYING_ROWS:
        first = np.argpartition(-scores, MAX_OUTLYING_ROWS)[:MAX_OUTLYING_ROWS]
    double = screen if screen is not None and screen.table.dtype == np.float64 else None
    is_double = double is not None
    for where in (np.sort(first), None):
        candidates = _may_be_kept(outlying, scores)
        wanted = np.flatnonzero(candidates) if where is None else where[candidates[where]]
        for some in (wanted[i : i + _EXACT_ROWS] for i in range(0, len(wanted), _EXACT_ROWS)):
            exact_rows = _read_rows(state, rows[some].astype(np.float64, copy=False), numbers[some], RowCounts())
            if len(some) > MAX_OUTLYING_ROWS and not is_double:
                double = double or prepare_screen(state.frame, np.float64)
                kept = _may_be_kept(outlying, approximate_positions(exact_rows, double, state.typical_height)[2])
                some, exact_rows = some[kept], exact_rows[kept]
            dtype = outlying.rows.dtype
            outlying += find_outlying_rows(exact_rows, numbers[some], state.frame, state.typical_height, dtype)
    return outlying


def _may_be_kept(outlying: Outlying, scores: Floats) -> NDArray[np.bool_]:
    """Whether rows may be kept, given upper bounds on their scores."""
    return (scores > 0.0) & (scores >= outlying.threshold)


def _concatenate(parts: Sequence[_Screened]) -> _Screened:
    positions = np.concatenate([part.positions for part in parts])
    margins = np.concatenate([part.margins for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    return _Screened(positions, margins, scores, sum((part.row_counts for part in parts), RowCounts()))


def _compare_exactly(
    state: _State, best: votes.ArgBest, rows: Floats, numbers: Numbers, directions: Floats, row_counts: RowCounts
) -> votes.ArgBest:
    """Update the extremes by some rows, exactly; overwrites the rows."""
    usable = scale_in_place(rows, state.reading.axis, state.reading.even)
    if not usable.all():
        count_unusable(rows[~usable], numbers[~usable], row_counts)
        rows, numbers = rows[usable], numbers[usable]
    return votes.extremes(coordinates(rows, state.frame), numbers, directions, best) if len(rows) else best


def _candidate_rows(
    state: _State, candidates: Numbers, start: int, columns: Sequence[Any]
) -> tuple[Numbers, NDArray[Any]]:
    """The rows of a block that may be anchors, unscaled."""
    wanted = candidates if state.bring else np.zeros(0, dtype=np.int64)
    found = [np.zeros((0, len(state.frame.gain)), _dtype_of(columns))]
    for numbers, tile in tiles(columns, start, wanted):
        rows = clip_rounding(tile, numbers, RowCounts()) if state.reading.nonnegative else tile
        found.append(rows.astype(found[0].dtype))
    return wanted, np.concatenate(found)


def _dtype_of(columns: Sequence[Any]) -> type[np.floating[Any]]:
    """The dtype in which rows are returned."""
    return np.float32 if all(part.dtype == np.float32 for part in columns) else np.float64


def _merge_extremes(parts: Sequence[_GroupExtremes]) -> _GroupExtremes:
    """Merge the extremes of one group of planes over blocks."""
    row_counts = sum((part.row_counts for part in parts), RowCounts())
    best = add_parts([part.extremes for part in parts])
    brought = _merge_candidate_rows(parts, best.rows)
    return _GroupExtremes(best, parts[0].n_planes, row_counts, *brought, add_parts([part.outlying for part in parts]))


def _merge_candidate_rows(parts: Sequence[_GroupExtremes | Divided], wanted: Numbers) -> tuple[Numbers, NDArray[Any]]:
    """Merge candidate rows, each once, without those that are no longer extreme."""
    numbers = np.concatenate([part.numbers for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    numbers, first = np.unique(numbers, return_index=True)
    kept = np.isin(numbers, wanted)
    return numbers[kept], rows[first[kept]]


def _count_votes(group: PlaneGroup, found: _GroupExtremes) -> Divided:
    """Count the votes of one group of planes, from its extremes over all rows."""
    histogram = votes.votes_of_extremes(found.extremes, found.n_planes)
    fresh = found.extremes.keys.reshape(2, -1)[:, found.n_planes :]
    return Divided(histogram, fresh, found.row_counts, found.numbers, found.rows, found.outlying)


def _merge_divided(parts: Sequence[Divided]) -> Divided:
    """Merge the votes of all groups of planes, each of which has seen all rows."""
    histogram = votes.merge_histograms([part.votes for part in parts])
    fresh = np.concatenate([part.fresh for part in parts], axis=1)
    far = add_parts([part.outlying for part in parts])
    return Divided(histogram, fresh, parts[0].row_counts, *_merge_candidate_rows(parts, histogram.rows), far)
