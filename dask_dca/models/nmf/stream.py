"""Anchors of rows that arrive in batches: fixed planes, the extreme rows so far on each, and a choice from these.

The stream's state is the same for any division of the rows into batches, in any order: positions and heights of rows
are integers below 2**53, and of rows of equal height the one with the lowest hash of its content wins, whatever its
number or batch. The state is stored in fitted attributes, so that a saved model can be continued.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from dask_dca.anchoring.completion import count_observed, fit_batch_completion
from dask_dca.anchoring.parameters import AnchorResult, Settings, certify, check_integer
from dask_dca.engine.fingerprint import hash_of_contents
from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import Rows
from dask_dca.engine.tiles import RowCounts, clip_rounding, count_unusable, tiles
from dask_dca.engine.types import Reads, Summed, add_parts
from dask_dca.errors import InvalidInputError, InvalidParameterError, MissingEntriesError, ModelFileError
from dask_dca.geometry import planes, votes
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.low_rank import LowRank
from dask_dca.geometry.moments import ratios, scale_in_place
from dask_dca.geometry.solvers import successive_projection
from dask_dca.geometry.votes import NO_ROW, ArgBest, integer_directions
from dask_dca.models.attributes import COMMON, completion_of
from dask_dca.models.nmf.fit import fill_rows
from dask_dca.models.nmf.passes import Filling
from dask_dca.models.stream import has_stream, rows_from

_POSITION_BITS: Final = 31  # bits of integer positions; directions have length 2**20, so heights stay below 2**52
_SLAB_ROWS: Final = 512  # rows whose heights are computed at once
_SAMPLE_ROWS: Final = 128  # rows of least hash that are kept as a sample


@dataclass(frozen=True)
class FixedPlanes:
    """Planes spanned by all ones and Gaussian directions in feature space, which are regenerated from a seed."""

    seed: int
    count: int  # number of planes that vote
    fresh: int  # number of further planes, which only measure the coverage
    n_features: int

    def directions(self) -> Floats:
        """Return the integer directions, shape (count + fresh, p), computed once per process."""
        return _directions(self.seed, self.count + self.fresh, self.n_features)


@lru_cache(maxsize=2)
def _directions(seed: int, count: int, n_features: int) -> Floats:
    found = planes.directions("gaussian", seed, np.arange(count), np.ones(n_features))
    return integer_directions(found)


def _integer_positions(scaled: Floats) -> Floats:
    """Round non-negative rows (n, p) of sum one to integer positions, in place, so that heights are exact."""
    scaled *= 2.0**_POSITION_BITS
    return np.rint(scaled, out=scaled)


@dataclass(frozen=True)
class ExtremeRows:
    """The extreme rows of fixed planes, and the rows of least hash; `+` merges those of two sets of rows."""

    best: ArgBest  # (2, t): greatest height along each direction and against it, and the hash of the row
    hashes: Numbers  # (c,): hashes of the rows' contents, increasing
    rows: Floats  # (c, p): the rows as they were read
    numbers: Numbers  # (c,): lowest row number with this content

    @classmethod
    def empty(cls, planes_: FixedPlanes) -> ExtremeRows:
        """Return the neutral element of the sum."""
        empty = np.zeros(0, dtype=np.int64)
        best = ArgBest.empty((2, planes_.count + planes_.fresh))
        return cls(best, empty, np.zeros((0, planes_.n_features)), empty)

    @classmethod
    def of_rows(cls, rows: Floats, scaled: Floats, numbers: Numbers, planes_: FixedPlanes) -> ExtremeRows:
        """Select from rows the extreme ones and those of least hash.

        rows (n, p): non-negative; scaled (n, p): the same with sum one, overwritten; numbers (n,): row numbers.
        """
        hashes = hash_of_contents(rows)
        order = np.argsort(hashes, kind="stable")
        best = _extremes(_integer_positions(scaled)[order], hashes[order], planes_.directions())
        return cls(best, hashes, rows, numbers)._deduplicated()

    @classmethod
    def restored(cls, rows: Floats, numbers: Numbers, holders: Numbers, planes_: FixedPlanes) -> ExtremeRows:
        """Restore the state from saved rows (c, p), their numbers (c,), and which are extreme (2, t); -1 for none."""
        places, directions, hashes = _integer_positions(ratios(rows)[0]), planes_.directions(), hash_of_contents(rows)
        heights = np.stack([np.einsum("tp,tp->t", directions, places[of]) for of in holders])
        heights[1] *= -1.0
        there = holders >= 0
        best = ArgBest(np.where(there, heights, -np.inf), np.where(there, hashes[holders], NO_ROW), _no_values(heights))
        return cls(best, hashes, rows, numbers)

    def __add__(self, other: ExtremeRows) -> ExtremeRows:
        return ExtremeRows(
            self.best + other.best,
            np.concatenate([self.hashes, other.hashes]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.numbers, other.numbers]),
        )._deduplicated()

    @property
    def holders(self) -> Numbers:
        """Index of the extreme row of each signed direction, shape (2, t); -1 for none."""
        at = np.searchsorted(self.hashes, self.best.rows)
        return np.where(self.best.rows == NO_ROW, -1, at)

    @property
    def sample(self) -> Floats:
        """At most 128 rows, those of least hash: a sample that depends on the rows' contents only."""
        return self.rows[:_SAMPLE_ROWS]

    def _deduplicated(self) -> ExtremeRows:
        """Drop duplicate contents and rows that are neither extreme nor in the sample; sort by hash."""
        order = np.lexsort((self.numbers, self.hashes))
        hashes = self.hashes[order]
        order = order[np.diff(hashes, prepend=-1) > 0]
        hashes = self.hashes[order]
        counts = np.isin(hashes, self.best.rows)
        counts[:_SAMPLE_ROWS] = True
        order = order[counts]
        return ExtremeRows(self.best, self.hashes[order], self.rows[order], self.numbers[order])


def _extremes(places: Floats, hashes: Numbers, directions: Floats) -> ArgBest:
    """Greatest heights along each direction and against it; rows are sorted by hash, so the first wins ties."""
    found, every = ArgBest.empty((2, len(directions))), np.arange(len(directions))
    for start in range(0, len(places), _SLAB_ROWS):
        heights, here = directions @ places[start : start + _SLAB_ROWS].T, hashes[start : start + _SLAB_ROWS]
        highest, lowest = heights.argmax(axis=1), heights.argmin(axis=1)
        keys = np.stack([heights[every, highest], -heights[every, lowest]])
        found += ArgBest(keys, np.stack([here[highest], here[lowest]]), _no_values(keys))
    return found


def _no_values(keys: Floats) -> Floats:
    return np.zeros((*keys.shape, 0))


_PLANES_FACTOR: Final = 20.0  # the number of planes is this times k ln k: they lie in all features, not a subspace
_MIN_PLANES: Final = 256  # minimum number of planes
_FRESH_PLANES: Final = 128  # number of planes that only measure the coverage
_POSITION_TOL: Final = 2.0**-26  # positions nearer than this, relative to a row's sum, count as equal


@dataclass(frozen=True)
class AnchorStream:
    """The state of a stream after the rows so far."""

    planes: FixedPlanes
    kept: ExtremeRows
    n_rows: int
    row_counts: RowCounts


@dataclass(frozen=True)
class _BlockRows(Summed):
    """What a block adds to the state."""

    kept: ExtremeRows
    row_counts: RowCounts


@dataclass(frozen=True)
class _State:
    """The planes, the number of the first new row, and the offset from row numbers in X to those in the stream."""

    planes: FixedPlanes
    since: int
    offset: int


def begin_stream(seed: int, n_subproblems: int | None, n_anchors: int, n_features: int) -> AnchorStream:
    """Begin an empty stream with fixed planes.

    seed: below 2**62; n_subproblems: number of planes; if None ceil(20 k ln k), at least 256.
    """
    count = n_subproblems or max(_MIN_PLANES, math.ceil(_PLANES_FACTOR * n_anchors * math.log(n_anchors)))
    planes = FixedPlanes(seed, count, _FRESH_PLANES, n_features)
    return AnchorStream(planes, ExtremeRows.empty(planes), 0, RowCounts())


def add_rows(stream: AnchorStream, rows: Rows, run: Run, *, since: int = 0) -> AnchorStream:
    """Add non-negative rows to a stream.

    since: number of the first new row; blocks before it are not read. Row numbers in the stream count in the order of
    arrival.
    """
    rows = rows.by_chunk() if since else rows
    first = int(np.searchsorted(rows.offsets, since, side="right")) - 1
    blocks = np.arange(first, rows.n_blocks) if since else None
    job: Pass[_BlockRows] = Pass("stream", _stream_block, add_parts)
    added = run_pass(rows, job, _State(stream.planes, since, stream.n_rows - since), run, blocks=blocks)
    n_rows = stream.n_rows + rows.n_rows - since
    return AnchorStream(stream.planes, stream.kept + added.kept, n_rows, stream.row_counts + added.row_counts)


@dataclass(frozen=True)
class MissingCounts:
    """Counts of what is missing in the rows of a stream, and the low-rank model that fills missing entries."""

    n_unobserved_rows: int = 0
    n_missing_entries: int = 0
    completion: LowRank | None = None

    @classmethod
    def of(cls, model: Any) -> MissingCounts:
        """Read the counts and the low-rank model of a fitted model."""
        return cls(model.n_unobserved_rows_, model.n_missing_entries_, completion_of(model))

    def __add__(self, other: MissingCounts) -> MissingCounts:
        rows = self.n_unobserved_rows + other.n_unobserved_rows
        entries = self.n_missing_entries + other.n_missing_entries
        return MissingCounts(rows, entries, self.completion or other.completion)


def add_incomplete_rows(
    stream: AnchorStream, rows: Rows, run: Run, n_anchors: int, missing: MissingCounts, *, since: int = 0
) -> tuple[AnchorStream, MissingCounts, int]:
    """Add rows to a stream, missing entries filled by their posterior means.

    missing: of the rows before; if it has no low-rank model yet, one is fitted to these rows and kept. Complete rows
    need none, and give the same bits as in a stream without missing entries. Returns the stream, what is missing in it,
    and how often rows were read.
    """
    model, n_passes = missing.completion, 0
    if model is None:
        try:
            return add_rows(stream, rows, run, since=since), missing, 1
        except MissingEntriesError:
            n_passes = 1
    rows = rows_from(rows, since) if since else rows
    run = replace(run, reads=Reads(rows.source, n_passes))
    if model is None:
        model, (n_unobserved, n_observed) = fit_batch_completion(rows, n_anchors, run)
    else:
        n_unobserved, n_observed = count_observed(rows, run)
    rows = fill_rows(rows, Filling(model.mean[None], model))
    run = replace(run, reads=Reads(rows.source, run.n_passes))
    found = add_rows(stream, rows, run)
    row_counts = replace(found.row_counts, zero_rows=found.row_counts.zero_rows - n_unobserved)
    missing += MissingCounts(n_unobserved, rows.n_rows * rows.n_features - n_observed, model)
    return replace(found, row_counts=row_counts), missing, run.n_passes


def _stream_block(state: _State, start: int, *columns: Any) -> _BlockRows:
    added = _BlockRows(ExtremeRows.empty(state.planes), RowCounts())
    new = np.arange(max(start, state.since), max(start + columns[0].shape[0], state.since))
    for numbers, tile in tiles(columns, start, new):
        row_counts = RowCounts()
        rows = clip_rounding(tile, numbers, row_counts)
        scaled = rows.copy()
        usable = scale_in_place(scaled)
        if not usable.all():
            count_unusable(rows[~usable], numbers[~usable], row_counts)
        kept = ExtremeRows.of_rows(rows[usable], scaled[usable], numbers[usable] + state.offset, state.planes)
        added += _BlockRows(kept, row_counts)
    return added


def merge_streams(stream: AnchorStream, other: AnchorStream) -> AnchorStream:
    """Merge two streams with the same planes, as if the rows of the second had arrived after those of the first.

    Raises ValueError: their planes differ.
    """
    if stream.planes != other.planes:
        msg = f"the planes differ: {stream.planes} and {other.planes}"
        raise ValueError(msg)
    later = replace(other.kept, numbers=other.kept.numbers + stream.n_rows)
    return AnchorStream(
        stream.planes, stream.kept + later, stream.n_rows + other.n_rows, stream.row_counts + other.row_counts
    )


def stream_anchors(stream: AnchorStream, n_anchors: int) -> AnchorResult:
    """Choose anchors from the extreme rows by successive projection, and certify them.

    Fewer than `n_anchors` are found if the rows so far span fewer dimensions.
    Raises InvalidInputError: all rows are zero.
    """
    kept, s = stream.kept, stream.planes.count
    if not len(kept.rows):
        msg = f"no row of the {stream.n_rows} so far has positive height: are all rows zero?"
        raise InvalidInputError(msg)
    holders = kept.holders[:, :s]
    candidates = np.unique(holders)
    scaled = ratios(kept.rows)[0]
    chosen = candidates[successive_projection(scaled[candidates], n_anchors)]
    own = np.array([int((holders == row).any(axis=0).sum()) for row in chosen], dtype=np.int64)
    return certify(
        kept.numbers[chosen],
        votes.count_votes(*kept.numbers[holders]),
        s,  # all planes are pointed: all ones is in the interior of the dual cone of non-negative rows
        own=own,
        curve=votes.coverage_curve(_shortfalls(stream, scaled, chosen)),
        row_counts=stream.row_counts,
        sample=kept.sample,
        rows=kept.rows[chosen],
    )


def _shortfalls(stream: AnchorStream, scaled: Floats, chosen: Numbers) -> Floats:
    """Shortfalls of the chosen rows on the fresh planes, with heights measured from the sample's mean."""
    directions = stream.planes.directions()[stream.planes.count :]
    both = np.concatenate([directions, -directions])
    places = _integer_positions(scaled.copy())
    middle = places[: len(stream.kept.sample)].mean(axis=0)
    heights = stream.kept.best.keys[:, stream.planes.count :].ravel() - (both * middle).sum(axis=1)
    return votes.shortfalls(places[chosen] - middle, both, heights, _POSITION_TOL * 2.0**_POSITION_BITS)


def can_stream(model: Any) -> bool:
    """Check that no parameter of a model needs all data at once, and return True.

    Raises InvalidParameterError: one does, such as a number of anchors that is "auto".
    """
    if model.n_components == "auto":
        msg = "the planes of a stream are fixed before its first row: pass an integer instead of n_components='auto'"
        raise InvalidParameterError(msg)
    if model.known is not None:
        msg = "known anchors are for fit(X) alone; a stream takes known=None"
        raise InvalidParameterError(msg)
    for name, allowed in (("basis", ("rows",)), ("ensemble", ("auto", "gaussian")), ("selection", ("auto",))):
        value = getattr(model, name)
        if value not in allowed:
            msg = f"{name}={value!r} is for fit(X) alone; a stream takes {name}={allowed[0]!r}"
            raise InvalidParameterError(msg)
    return has_stream(model)


def check_stream(model: Any) -> int:
    """Check the parameters of a stream, and return the number of anchors.

    Raises InvalidParameterError: it is not a number, or a parameter needs all data at once.
    """
    can_stream(model)
    return check_integer("n_components", model.n_components, 1)


def check_same_stream(model: Any, other: Any) -> None:
    """Check that two models can be merged.

    Raises InvalidParameterError: one has no stream, or their planes, features or numbers of anchors differ.
    """
    for part in (model, other):
        if not hasattr(part, "stream_rows_"):
            msg = "models that were fitted by fit(X) keep no extreme rows: fit both by partial_fit(X), then merge them"
            raise InvalidParameterError(msg)
    same = {"stream_seed_": "random_state, an integer", "feature_names_in_": "columns, in one order"}
    for name in ("n_components", "n_features_in_", "n_subproblems_", *same):
        own, foreign = getattr(model, name, None), getattr(other, name, None)
        if own is not None is not foreign and not np.array_equal(own, foreign):
            what = same.get(name, name.rstrip("_"))
            msg = f"the models differ in {name}: {own} and {foreign}; fit both by partial_fit with the same {what}"
            raise InvalidParameterError(msg)


def keep_features_of(model: Any, earlier: Any) -> None:
    """Copy the features of an earlier model, which further data must have."""
    for name in COMMON.keys() - {"n_passes_"}:
        if hasattr(earlier, name):
            setattr(model, name, getattr(earlier, name))


def stream_of(earlier: Any, settings: Settings, n_components: int, n_features: int) -> AnchorStream:
    """Return the stream of an earlier model, or a new one if that is None.

    A model of `fit` has no stream; its anchors represent the rows that it was fitted on.
    Raises ModelFileError: the model was loaded, and its stream is damaged.
    """
    if hasattr(earlier, "stream_rows_"):
        return _of_attributes(earlier)
    stream = begin_stream(settings.seed >> 2, settings.n_subproblems, n_components, n_features)
    if earlier is None:
        return stream
    rows = earlier.components_.astype(np.float64)
    kept = ExtremeRows.of_rows(rows, ratios(rows)[0], earlier.anchor_indices_, stream.planes)
    return AnchorStream(stream.planes, kept, earlier.n_samples_seen_, _row_counts_of(earlier))


def _of_attributes(earlier: Any) -> AnchorStream:
    count, holders = int(earlier.n_subproblems_), earlier.stream_extremes_
    fresh = holders.shape[1] - count
    if fresh < 1 or holders.max() >= len(earlier.stream_rows_):
        msg = f"the stream of the model, {holders.shape[1]} planes and {len(earlier.stream_rows_)} rows, is damaged"
        raise ModelFileError(msg)
    planes = FixedPlanes(int(earlier.stream_seed_), count, fresh, earlier.n_features_in_)
    kept = ExtremeRows.restored(earlier.stream_rows_, earlier.stream_numbers_, holders, planes)
    return AnchorStream(planes, kept, earlier.n_samples_seen_, _row_counts_of(earlier))


def _row_counts_of(earlier: Any) -> RowCounts:
    return RowCounts(earlier.n_zero_rows_, 0, earlier.n_clipped_entries_)


def keep_stream(model: Any, stream: AnchorStream) -> None:
    """Store a stream in fitted attributes, so that a saved model can be continued."""
    model.n_samples_seen_, model.stream_seed_ = stream.n_rows, stream.planes.seed
    model.stream_rows_, model.stream_numbers_ = stream.kept.rows, stream.kept.numbers
    model.stream_extremes_ = stream.kept.holders
