"""The divide step and its merge: sub-problems x blocks -> extremes -> tree.

Random planes depend on the seed alone, never on chunks, and every decisive comparison is exact, so any chunking and
any number of workers give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.passes import Pass, plane_groups, run_pass, step
from dask_dca.engine.tiles import Reading, RowCensus, clip_rounding, count_unusable, slabs, tiles
from dask_dca.engine.types import Groups, add_parts
from dask_dca.geometry import planes, votes
from dask_dca.geometry.exact import Workspace
from dask_dca.geometry.moments import SubspaceCoordinates, coordinates, scale_in_place
from dask_dca.geometry.screening import (
    MAX_OUTLYING_ROWS,
    Outlying,
    approximate_positions,
    find_outlying_rows,
    prepare_screen,
    surviving_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import PlaneGroup, Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.geometry.screening import Screen
    from dask_dca.geometry.votes import VoteHistogram


_LOOK: Final = 1024  # rows that are looked at exactly at a time
_BROUGHT: Final = 2**24  # bytes of extreme rows that a pass may bring along
_MANY: Final = 0.5  # of the rows: so many may stand outside, by their bounds, that double precision pays at once


@dataclass(frozen=True)
class Divided:
    """What the divide step found: the votes of the planes, and what was met on the way."""

    votes: VoteHistogram
    fresh: Floats  # (2, f) how far the data reach along the fresh directions, and against them
    census: RowCensus
    numbers: Numbers  # of candidates that were brought along, increasing
    rows: NDArray[Any]  # (b, p) these rows as they were read; none if they weren't brought along
    outlying: Outlying  # rows that stand furthest outside the subspace, if they were wanted


@dataclass(frozen=True)
class _GroupExtremes:
    """The extreme row of each signed direction of a group of planes."""

    extremes: votes.ArgBest
    n_planes: int  # which are the first of its directions; the others are fresh
    census: RowCensus
    numbers: Numbers  # of rows that are extreme and were brought along, increasing
    rows: NDArray[Any]  # (b, p) these rows as they were read
    outlying: Outlying


@dataclass(frozen=True)
class Directions:
    """What regenerates the directions of a divide pass anywhere."""

    ensemble: str
    seed: int
    count: int
    fresh: int  # further directions, in all r dimensions, that only test what the anchors reach
    dim: int
    scales: Floats
    features: Floats | None = None

    def regenerate(self) -> Floats:
        """Return the integer directions, shape (count + fresh, r): made once a process, and never sent."""
        return self._integers

    @cached_property
    def _integers(self) -> Floats:
        every = np.arange(self.count + self.fresh)
        features = None if self.features is None else self.features[:, : self.dim]
        found = np.zeros((len(every), len(self.scales)))
        found[: self.count, : self.dim] = planes.directions(
            self.ensemble, self.seed, every[: self.count], self.scales[: self.dim], features
        )
        # whitened, so that every ray counts alike; what is narrower than the anchors' own directions stays narrow
        widths = np.maximum(self.scales, self.scales[self.dim - 1])
        found[self.count :] = planes.directions("whitened", self.seed, every[self.count :], widths)
        return votes.integer_directions(found)

    def __getstate__(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self)}


@dataclass(frozen=True)
class _State:
    """How rows are read and placed, and what regenerates the planes."""

    reading: Reading
    frame: SubspaceCoordinates
    planes: Directions
    bring: bool  # extreme rows come along, so that anchors need not be read again
    typical: float  # height of a row, if those that stand outside the subspace are wanted; zero if not

    @cached_property
    def bars(self) -> dict[int, votes.ArgBest]:
        """Extremes of each group of planes in the blocks that this process has seen.

        Any row of the data may set a bar for those of other blocks: the merge is the same, and most are below.
        """
        return {}

    @cached_property
    def outlying(self) -> dict[np.dtype[Any], Outlying]:
        """Likewise the rows of those blocks that stand furthest outside the subspace, by the dtype of their blocks."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self)}


def divide(
    rows: Rows,
    reading: Reading,
    frame: SubspaceCoordinates,
    directions: Directions,
    run: Run,
    *,
    n_planes: int | None = None,
    n_groups: int | None = None,
    typical: float = 0.0,
) -> Divided:
    """Solve all sub-problems on all rows, and merge their votes: the divide and the conquer step.

    A task is a block of rows with a group of planes. The extremes of a group merge over the blocks; each group then
    gives its vote histogram, and histograms merge in a tree. There is one group where blocks are enough to fill the
    threads of the cluster, else as many as fill them; the result is the same for any number. The pass also keeps the
    rows that stand furthest outside the subspace, where a typical height of rows is given.
    """
    state = step(run, "state", _prepare, reading, frame, directions, _Blocks.of(rows), typical)
    groups = plane_groups(rows, n_planes, n_groups)
    job: Pass[Any] = Pass(
        "divide", _divide_block, _merge_extremes, groups=Groups(groups, _count_votes, _merge_divided, _place_block)
    )
    return run_pass(rows, job, state, run)


@dataclass(frozen=True)
class _Blocks:
    """What blocks cost to read and to bring along."""

    n_rows: int
    row_bytes: int
    n_blocks: int
    n_chunks: int  # that can be read alone
    held: bool  # in memory already

    @classmethod
    def of(cls, rows: Rows) -> _Blocks:
        size = rows.n_features * rows.dtype.itemsize
        return cls(rows.n_rows, size, rows.n_blocks, rows.by_chunk().n_blocks, rows.kind == "memory")


def _prepare(
    reading: Reading, frame: SubspaceCoordinates, directions: Directions, blocks: _Blocks, typical: float
) -> _State:
    few = MAX_OUTLYING_ROWS * blocks.row_bytes <= _BROUGHT
    return _State(reading, frame, directions, _brings(blocks, directions), typical if few else 0.0)


def _brings(blocks: _Blocks, directions: Directions) -> bool:
    """Whether extreme rows of all blocks are less to move than the few chunks with anchors are to read again."""
    most = 2 * directions.count
    if blocks.held or most * blocks.row_bytes > _BROUGHT:
        return False
    return 2 * most * blocks.n_blocks * blocks.n_chunks < min(blocks.n_chunks, directions.dim + 1) * blocks.n_rows


@dataclass(frozen=True)
class _Placed:
    """Approximate places of some rows, which all groups of planes look at."""

    positions: NDArray[Any]
    margins: Floats
    scores: Floats
    census: RowCensus


def _place_block(state: _State, start: int, *columns: Any) -> _Placed:
    """Place rows approximately, once for all groups of planes."""
    found, census = prepare_screen(state.frame), RowCensus()
    near = [(np.zeros((0, len(state.planes.scales)), dtype=np.float32), np.zeros(0), np.zeros(0))]
    near += [
        approximate_positions(_read(state, slab, numbers, census), found, state.typical)
        for numbers, slab in slabs(columns, start)
    ]
    positions, margins, scores = zip(*near, strict=True)
    return _Placed(np.concatenate(positions), np.concatenate(margins), np.concatenate(scores), census)


def _read(state: _State, slab: NDArray[Any], numbers: Numbers, census: RowCensus) -> NDArray[Any]:
    """Rows without the negative entries that are mere rounding, which are counted."""
    if not state.reading.nonnegative or slab.min(initial=0.0) >= 0.0:
        return slab
    return clip_rounding(slab.astype(np.float64), numbers, census)


def _divide_block(
    group: PlaneGroup, shared: Sequence[_Placed], state: _State, start: int, *columns: Any
) -> _GroupExtremes:
    count = state.planes.count
    own = group.range_of(count)
    directions = state.planes.regenerate()[np.concatenate([own, count + group.range_of(state.planes.fresh)])]
    rough, best, census = directions.astype(np.float32), state.bars.get(group.number), RowCensus()
    best = best or votes.ArgBest.empty(2 * len(directions), directions.shape[1])
    placed = _join(shared) if shared else None
    typical = state.typical if group.number == 0 else 0.0
    found, space, far = None, Workspace(), Outlying.empty(len(state.frame.gain), _dtype_of(columns))
    if typical > 0.0:
        far = state.outlying.get(far.rows.dtype, far)
    for numbers, slab in slabs(columns, start):
        rows, where, scores = slab, np.arange(len(slab)), np.full(len(slab), np.inf)
        if placed is not None:
            here = slice(numbers[0] - start, numbers[-1] + 1 - start)
            where = surviving_rows(best, placed.positions[here], placed.margins[here], rough, space)
            scores = placed.scores[here]
        else:
            rows = _read(state, slab, numbers, census)
            if len(rows) > 2 * len(directions):  # else most are extreme
                found = found or prepare_screen(state.frame)
                positions, margins, scores = approximate_positions(rows, found, typical, space)
                where = surviving_rows(best, positions, margins, rough, space)
        for some in (where[i : i + _LOOK] for i in range(0, len(where), _LOOK)):
            looked = _read(state, rows[some].astype(np.float64, copy=False), numbers[some], RowCensus())
            best = _look(state, best, looked, numbers[some], directions, census)
        if typical > 0.0:
            far = _stand_outside(state, far, rows, numbers, scores, found)
            if found is not None and found.table.dtype == np.float32 and _may_be_of(far, scores).mean() > _MANY:
                found = prepare_screen(state.frame, np.float64)
    state.bars[group.number] = best
    if typical > 0.0:
        state.outlying[far.rows.dtype] = far
    wanted = np.unique(votes.voted_rows(best, len(own)))
    wanted = wanted[(wanted >= start) & (wanted < start + columns[0].shape[0])]
    census += RowCensus() if placed is None else placed.census
    return _GroupExtremes(best, len(own), census, *_brought(state, wanted, start, columns), far)


def _stand_outside(
    state: _State, far: Outlying, rows: NDArray[Any], numbers: Numbers, scores: Floats, screen: Screen | None
) -> Outlying:
    """Keep the rows of greatest score among these and those that are kept already, given bounds on the scores.

    Where noise is small against the rows, bounds in single precision are far above it; those in double are not.
    """
    first = (
        np.argpartition(-scores, MAX_OUTLYING_ROWS)[:MAX_OUTLYING_ROWS]
        if len(scores) > 4 * MAX_OUTLYING_ROWS
        else np.zeros(0, dtype=np.intp)
    )
    closely = screen if screen is not None and screen.table.dtype == np.float64 else None
    near = closely is not None
    for where in (np.sort(first), None):
        able = _may_be_of(far, scores)
        wanted = np.flatnonzero(able) if where is None else where[able[where]]
        for some in (wanted[i : i + _LOOK] for i in range(0, len(wanted), _LOOK)):
            looked = _read(state, rows[some].astype(np.float64, copy=False), numbers[some], RowCensus())
            if len(some) > MAX_OUTLYING_ROWS and not near:
                closely = closely or prepare_screen(state.frame, np.float64)
                kept = _may_be_of(far, approximate_positions(looked, closely, state.typical)[2])
                some, looked = some[kept], looked[kept]
            far += find_outlying_rows(looked, numbers[some], state.frame, state.typical, far.rows.dtype)
    return far


def _may_be_of(far: Outlying, scores: Floats) -> NDArray[np.bool_]:
    """Whether rows may be among those that are kept, given bounds on their scores."""
    found: NDArray[np.bool_] = (scores > 0.0) & (scores >= far.threshold)
    return found


def _join(parts: Sequence[_Placed]) -> _Placed:
    positions = np.concatenate([part.positions for part in parts])
    margins = np.concatenate([part.margins for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    return _Placed(positions, margins, scores, sum((part.census for part in parts), RowCensus()))


def _look(
    state: _State, best: votes.ArgBest, rows: Floats, numbers: Numbers, directions: Floats, census: RowCensus
) -> votes.ArgBest:
    """Let some rows compete exactly; overwrites them."""
    usable = scale_in_place(rows, state.reading.axis, state.reading.even)
    if not usable.all():
        count_unusable(rows[~usable], numbers[~usable], census)
        rows, numbers = rows[usable], numbers[usable]
    return votes.extremes(coordinates(rows, state.frame), numbers, directions, best) if len(rows) else best


def _brought(state: _State, candidates: Numbers, start: int, columns: Sequence[Any]) -> tuple[Numbers, NDArray[Any]]:
    """Rows of a block that may be anchors, as they were read."""
    wanted = candidates if state.bring else np.zeros(0, dtype=np.int64)
    found = [np.zeros((0, len(state.frame.gain)), _dtype_of(columns))]
    for numbers, tile in tiles(columns, start, wanted):
        rows = clip_rounding(tile, numbers, RowCensus()) if state.reading.nonnegative else tile
        found.append(rows.astype(found[0].dtype))
    return wanted, np.concatenate(found)


def _dtype_of(columns: Sequence[Any]) -> type[np.floating[Any]]:
    """The type that rows are brought along in."""
    return np.float32 if all(part.dtype == np.float32 for part in columns) else np.float64


def _merge_extremes(parts: Sequence[_GroupExtremes]) -> _GroupExtremes:
    """The extremes of one group of planes over more blocks."""
    census = sum((part.census for part in parts), RowCensus())
    best = add_parts([part.extremes for part in parts])
    brought = _still_wanted(parts, best.rows)
    return _GroupExtremes(best, parts[0].n_planes, census, *brought, add_parts([part.outlying for part in parts]))


def _still_wanted(parts: Sequence[_GroupExtremes | Divided], wanted: Numbers) -> tuple[Numbers, NDArray[Any]]:
    """The rows that were brought along, each once, without those that are no longer wanted."""
    numbers = np.concatenate([part.numbers for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    numbers, first = np.unique(numbers, return_index=True)
    kept = np.isin(numbers, wanted)
    return numbers[kept], rows[first[kept]]


def _count_votes(group: PlaneGroup, found: _GroupExtremes) -> Divided:
    """The votes of one group of planes, from its extremes over all rows."""
    histogram = votes.votes_of_extremes(found.extremes, found.n_planes)
    fresh = found.extremes.keys.reshape(2, -1)[:, found.n_planes :]
    return Divided(histogram, fresh, found.census, found.numbers, found.rows, found.outlying)


def _merge_divided(parts: Sequence[Divided]) -> Divided:
    """The votes of all groups of planes; each has met the same rows."""
    histogram = votes.merge_histograms([part.votes for part in parts])
    fresh = np.concatenate([part.fresh for part in parts], axis=1)
    far = add_parts([part.outlying for part in parts])
    return Divided(histogram, fresh, parts[0].census, *_still_wanted(parts, histogram.rows), far)
