"""Anchors of rows that arrive in batches: fixed planes, on each the best rows so far, and a choice among these.

What is kept is the same for any cut of the rows, in any order: a row's place and its heights are integers below 2**53,
and among rows of one height a hash of their content decides, so that no number, batch or order of arrival has a say.
Fitted attributes hold it, so that a saved model goes on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.anchoring.completion import count_observed, fit_batch_completion
from dask_dca.anchoring.parameters import certify, check_integer
from dask_dca.engine.fingerprint import hash_of_contents
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import RowCensus, clip_rounding, count_unusable, tiles
from dask_dca.engine.types import Reads, Summed, add_parts
from dask_dca.errors import InvalidInputError, InvalidParameterError, MissingEntriesError, ModelFileError
from dask_dca.geometry import planes, votes
from dask_dca.geometry.moments import ratios, scale_in_place
from dask_dca.geometry.solvers import successive_projection
from dask_dca.geometry.votes import NO_ROW, ArgBest, integer_directions
from dask_dca.models.attributes import COMMON, completion_of
from dask_dca.models.nmf.fit import filled_rows_of
from dask_dca.models.nmf.passes import Filling
from dask_dca.models.stream import rows_from

if TYPE_CHECKING:
    from dask_dca.anchoring.parameters import AnchorResult, Settings
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.geometry.low_rank import LowRank

_PLACE_BITS: Final = 31  # of the height of a row; directions have a length of 2**20, and products stay below 2**52
_TOGETHER: Final = 512  # rows whose heights are held at once
_SAMPLE: Final = 128  # rows of least hash, which are kept to judge a model by


@dataclass(frozen=True)
class FixedPlanes:
    """Planes of all ones and Gaussian directions in feature space: what regenerates them anywhere."""

    seed: int
    count: int  # planes that vote
    fresh: int  # further ones, which only tell what the anchors reach
    n_features: int

    def directions(self) -> Floats:
        """Return the integer directions, shape (count + fresh, p): made once a process."""
        return _directions(self.seed, self.count + self.fresh, self.n_features)


@lru_cache(maxsize=2)
def _directions(seed: int, count: int, n_features: int) -> Floats:
    found = planes.directions("gaussian", seed, np.arange(count), np.ones(n_features))
    return integer_directions(found)


def _places_of(scaled: Floats) -> Floats:
    """Round rows of sum one to integers, in place, so that their heights are exact.

    scaled (n, p): non-negative rows, as `ratios` returns them; overwritten. Returns (n, p): the same array.
    """
    scaled *= 2.0**_PLACE_BITS
    return np.rint(scaled, out=scaled)


@dataclass(frozen=True)
class KeptRows:
    """The extreme rows of fixed planes, and those of least hash: the sum of two is that of both sets of rows."""

    best: ArgBest  # (2, t) greatest heights along each direction and against it, and the hashes of their rows
    hashes: Numbers  # (c,) of the rows' contents, increasing
    rows: Floats  # (c, p) as they were read
    numbers: Numbers  # (c,) the lowest number of a row of this content

    @classmethod
    def none(cls, planes_: FixedPlanes) -> KeptRows:
        """Return the neutral element of the sum."""
        empty = np.zeros(0, dtype=np.int64)
        best = ArgBest.empty((2, planes_.count + planes_.fresh))
        return cls(best, empty, np.zeros((0, planes_.n_features)), empty)

    @classmethod
    def of_rows(cls, rows: Floats, scaled: Floats, numbers: Numbers, planes_: FixedPlanes) -> KeptRows:
        """Keep what counts of some rows.

        rows (n, p): non-negative rows; scaled (n, p): the same, of sum one; overwritten; numbers (n,): their numbers.
        """
        hashes = hash_of_contents(rows)
        order = np.argsort(hashes, kind="stable")
        best = _extremes(_places_of(scaled)[order], hashes[order], planes_.directions())
        return cls(best, hashes, rows, numbers)._reduced()

    @classmethod
    def again(cls, rows: Floats, numbers: Numbers, holders: Numbers, planes_: FixedPlanes) -> KeptRows:
        """Make kept rows of what was saved of them.

        holders (2, t): which of the rows is extreme; -1 for none.
        """
        places, directions, hashes = _places_of(ratios(rows)[0]), planes_.directions(), hash_of_contents(rows)
        heights = np.stack([np.einsum("tp,tp->t", directions, places[of]) for of in holders])
        heights[1] *= -1.0
        there = holders >= 0
        best = ArgBest(np.where(there, heights, -np.inf), np.where(there, hashes[holders], NO_ROW), _nothing(heights))
        return cls(best, hashes, rows, numbers)

    def __add__(self, other: KeptRows) -> KeptRows:
        return KeptRows(
            self.best + other.best,
            np.concatenate([self.hashes, other.hashes]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.numbers, other.numbers]),
        )._reduced()

    @property
    def holders(self) -> Numbers:
        """Which of the rows is extreme on each signed direction, shape (2, t); -1 for none."""
        at = np.searchsorted(self.hashes, self.best.rows)
        return np.where(self.best.rows == NO_ROW, -1, at)

    @property
    def sample(self) -> Floats:
        """At most 128 rows, drawn without regard to anything but a hash of their content."""
        return self.rows[:_SAMPLE]

    def _reduced(self) -> KeptRows:
        """The rows that count, each content once, in the order of their hashes."""
        order = np.lexsort((self.numbers, self.hashes))
        hashes = self.hashes[order]
        order = order[np.diff(hashes, prepend=-1) > 0]
        hashes = self.hashes[order]
        counts = np.isin(hashes, self.best.rows)
        counts[:_SAMPLE] = True
        order = order[counts]
        return KeptRows(self.best, self.hashes[order], self.rows[order], self.numbers[order])


def _extremes(places: Floats, hashes: Numbers, directions: Floats) -> ArgBest:
    """The greatest heights of rows, which are in the order of their hashes: the first of equal ones wins."""
    found, every = ArgBest.empty((2, len(directions))), np.arange(len(directions))
    for start in range(0, len(places), _TOGETHER):
        heights, here = directions @ places[start : start + _TOGETHER].T, hashes[start : start + _TOGETHER]
        most, least = heights.argmax(axis=1), heights.argmin(axis=1)
        keys = np.stack([heights[every, most], -heights[every, least]])
        found += ArgBest(keys, np.stack([here[most], here[least]]), _nothing(keys))
    return found


def _nothing(keys: Floats) -> Floats:
    return np.zeros((*keys.shape, 0))


_PLANES_PER_ANCHOR: Final = 20.0  # s = 20 k ln k: these planes see all features, not a subspace
_LEAST_PLANES: Final = 256
_FRESH: Final = 128  # planes kept out of the choice, for the certificate
_SAME: Final = 2.0**-26  # of a row's height: places nearer than this are the same


@dataclass(frozen=True)
class AnchorStream:
    """What is known of the rows so far."""

    planes: FixedPlanes
    kept: KeptRows
    n_rows: int
    census: RowCensus


@dataclass(frozen=True)
class _Met(Summed):
    """What a block adds."""

    kept: KeptRows
    census: RowCensus


@dataclass(frozen=True)
class _State:
    """The planes, the first row that is new, and the number that the first row of all has in the stream."""

    planes: FixedPlanes
    since: int
    offset: int


def begin(seed: int, n_subproblems: int | None, n_anchors: int, n_features: int) -> AnchorStream:
    """Fix the planes of a stream; no row was met yet.

    seed: below 2**62; n_subproblems: number of planes; ceil(20 k ln k), at least 256, if None.
    """
    count = n_subproblems or max(_LEAST_PLANES, math.ceil(_PLANES_PER_ANCHOR * n_anchors * math.log(n_anchors)))
    planes = FixedPlanes(seed, count, _FRESH, n_features)
    return AnchorStream(planes, KeptRows.none(planes), 0, RowCensus())


def go_on(stream: AnchorStream, rows: Rows, run: Run, *, since: int = 0) -> AnchorStream:
    """Let more non-negative rows compete on the planes.

    since: number of the first row that is new; blocks of rows before it are not read. Returns the stream, with numbers
    in the order of arrival.
    """
    rows = rows.by_chunk() if since else rows
    first = int(np.searchsorted(rows.offsets, since, side="right")) - 1
    blocks = np.arange(first, rows.n_blocks) if since else None
    job: Pass[_Met] = Pass("stream", _stream_block, add_parts)
    met = run_pass(rows, job, _State(stream.planes, since, stream.n_rows - since), run, blocks=blocks)
    n_rows = stream.n_rows + rows.n_rows - since
    return AnchorStream(stream.planes, stream.kept + met.kept, n_rows, stream.census + met.census)


@dataclass(frozen=True)
class Lost:
    """What a stream lacks of the rows that it met, and the low-rank model by which it fills them."""

    n_unobserved_rows: int = 0
    n_missing_entries: int = 0
    completion: LowRank | None = None

    @classmethod
    def of(cls, model: Any) -> Lost:
        """Return what a fitted model lacks."""
        return cls(model.n_unobserved_rows_, model.n_missing_entries_, completion_of(model))

    def __add__(self, other: Lost) -> Lost:
        rows = self.n_unobserved_rows + other.n_unobserved_rows
        entries = self.n_missing_entries + other.n_missing_entries
        return Lost(rows, entries, self.completion or other.completion)


def go_on_with_holes(
    stream: AnchorStream, rows: Rows, run: Run, n_anchors: int, lost: Lost, *, since: int = 0
) -> tuple[AnchorStream, Lost, int]:
    """Let more rows compete, whose missing entries are filled by their posterior means.

    lost: of the rows before; without a model yet one is learnt from these rows, and kept. Complete rows need none, and
    have the bits of a stream without any missing entry. Returns the stream, what it lacks, and how often rows
    were read.
    """
    model, n_passes = lost.completion, 0
    if model is None:
        try:
            return go_on(stream, rows, run, since=since), lost, 1
        except MissingEntriesError:
            n_passes = 1
    rows = rows_from(rows, since) if since else rows
    run = replace(run, reads=Reads(rows.source, n_passes))
    if model is None:
        model, (n_unseen, n_observed) = fit_batch_completion(rows, n_anchors, run)
    else:
        n_unseen, n_observed = count_observed(rows, run)
    rows = filled_rows_of(rows, Filling(model.mean[None], model))
    run = replace(run, reads=Reads(rows.source, run.n_passes))
    found = go_on(stream, rows, run)
    census = replace(found.census, zero_rows=found.census.zero_rows - n_unseen)
    lost += Lost(n_unseen, rows.n_rows * rows.n_features - n_observed, model)
    return replace(found, census=census), lost, run.n_passes


def _stream_block(state: _State, start: int, *columns: Any) -> _Met:
    met = _Met(KeptRows.none(state.planes), RowCensus())
    new = np.arange(max(start, state.since), max(start + columns[0].shape[0], state.since))
    for numbers, tile in tiles(columns, start, new):
        census = RowCensus()
        rows = clip_rounding(tile, numbers, census)
        scaled = rows.copy()
        usable = scale_in_place(scaled)
        if not usable.all():
            count_unusable(rows[~usable], numbers[~usable], census)
        kept = KeptRows.of_rows(rows[usable], scaled[usable], numbers[usable] + state.offset, state.planes)
        met += _Met(kept, census)
    return met


def merge_streams(stream: AnchorStream, other: AnchorStream) -> AnchorStream:
    """Put two streams of the same planes together, as if the rows of the other had arrived after those of the first.

    Raises ValueError: their planes are not the same.
    """
    if stream.planes != other.planes:
        msg = f"the planes differ: {stream.planes} and {other.planes}"
        raise ValueError(msg)
    later = replace(other.kept, numbers=other.kept.numbers + stream.n_rows)
    return AnchorStream(stream.planes, stream.kept + later, stream.n_rows + other.n_rows, stream.census + other.census)


def stream_anchors(stream: AnchorStream, n_anchors: int) -> AnchorResult:
    """Choose anchors among the extreme rows by successive projection, and certify them.

    n_anchors: how many; fewer are found where the rows so far span fewer dimensions.
    Raises InvalidInputError: no row has any height.
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
        s,  # all pointed: all ones lies inside the dual cone of non-negative rows
        own=own,
        curve=votes.coverage_curve(_shortfalls(stream, scaled, chosen)),
        census=stream.census,
        sample=kept.sample,
        rows=kept.rows[chosen],
    )


def _shortfalls(stream: AnchorStream, scaled: Floats, chosen: Numbers) -> Floats:
    """How far the chosen rows fall short on the fresh planes, seen from the mean of the sample."""
    directions = stream.planes.directions()[stream.planes.count :]
    both = np.concatenate([directions, -directions])
    places = _places_of(scaled.copy())
    middle = places[: len(stream.kept.sample)].mean(axis=0)
    heights = stream.kept.best.keys[:, stream.planes.count :].ravel() - (both * middle).sum(axis=1)
    return votes.shortfalls(places[chosen] - middle, both, heights, _SAME * 2.0**_PLACE_BITS)


def can_stream(model: Any) -> bool:
    """Tell that a model's planes can be fixed beforehand.

    Raises InvalidParameterError: the number of anchors is "auto", or the method is the paper's.
    """
    if model.n_components == "auto":
        msg = "the planes of a stream are fixed before its first row: pass an integer instead of n_components='auto'"
        raise InvalidParameterError(msg)
    if model.method != "robust":
        msg = f"method={model.method!r} is for fit(X) alone; a stream takes method='robust'"
        raise InvalidParameterError(msg)
    return True


def check_stream(model: Any) -> int:
    """Refuse parameters that a stream has no use for.

    Returns the number of anchors.
    Raises InvalidParameterError: it is "auto", or planes are asked for that depend on the data.
    """
    can_stream(model)
    if model.known is not None:
        msg = "known anchors are for fit(X) alone; a stream takes known=None"
        raise InvalidParameterError(msg)
    for name, allowed in (("basis", ("rows",)), ("ensemble", ("auto", "gaussian")), ("selection", ("auto",))):
        value = getattr(model, name)
        if value not in allowed:
            msg = f"{name}={value!r} is for fit(X) alone; a stream takes {name}={allowed[0]!r}"
            raise InvalidParameterError(msg)
    return check_integer("n_components", model.n_components, 1)


def check_resumed(model: Any, kind: type) -> int:
    """Check the model that a fit shall go on from.

    Returns the number of rows that it saw.
    Raises InvalidParameterError: it is no fitted model of this kind.
    """
    if not isinstance(model, kind) or not hasattr(model, "n_samples_seen_"):
        msg = f"resume must be a fitted {kind.__name__}, of the first rows of X; received {model!r}"
        raise InvalidParameterError(msg)
    return int(model.n_samples_seen_)


def check_same_stream(model: Any, other: Any) -> None:
    """Check that two models can be put together.

    Raises InvalidParameterError: one has no stream, or their planes, features or numbers of anchors differ.
    """
    for part in (model, other):
        if not hasattr(part, "stream_rows_"):
            msg = "models that were fitted by fit(X) keep no extreme rows: fit both by partial_fit(X), then merge them"
            raise InvalidParameterError(msg)
    for name in ("n_components", "n_features_in_", "n_subproblems_", "stream_seed_"):
        own, foreign = getattr(model, name), getattr(other, name)
        if own != foreign:
            what = "random_state, an integer" if name == "stream_seed_" else name.rstrip("_")
            msg = f"the models differ in {name}: {own} and {foreign}; fit both by partial_fit with the same {what}"
            raise InvalidParameterError(msg)


def keep_features_of(model: Any, earlier: Any) -> None:
    """Keep the features of an earlier model, which the data that follow must have too."""
    for name in COMMON.keys() - {"n_passes_"}:
        if hasattr(earlier, name):
            setattr(model, name, getattr(earlier, name))


def stream_of(earlier: Any, settings: Settings, n_components: int, n_features: int) -> AnchorStream:
    """Take up a stream: of an earlier model, or a new one if that is None.

    Where `fit` made the model, its anchors stand for the rows that it saw.
    Raises ModelFileError: the model was loaded, and what it holds can't be gone on from.
    """
    if hasattr(earlier, "stream_rows_"):
        return _of_attributes(earlier)
    stream = begin(settings.seed >> 2, settings.n_subproblems, n_components, n_features)
    if earlier is None:
        return stream
    rows = earlier.components_.astype(np.float64)
    kept = KeptRows.of_rows(rows, ratios(rows)[0], earlier.anchor_indices_, stream.planes)
    return AnchorStream(stream.planes, kept, earlier.n_samples_seen_, _census_of(earlier))


def _of_attributes(earlier: Any) -> AnchorStream:
    count, holders = int(earlier.n_subproblems_), earlier.stream_extremes_
    fresh = holders.shape[1] - count
    if fresh < 1 or holders.max() >= len(earlier.stream_rows_):
        msg = f"the stream of the model, {holders.shape[1]} planes and {len(earlier.stream_rows_)} rows, is damaged"
        raise ModelFileError(msg)
    planes = FixedPlanes(int(earlier.stream_seed_), count, fresh, earlier.n_features_in_)
    kept = KeptRows.again(earlier.stream_rows_, earlier.stream_numbers_, holders, planes)
    return AnchorStream(planes, kept, earlier.n_samples_seen_, _census_of(earlier))


def _census_of(earlier: Any) -> RowCensus:
    return RowCensus(earlier.n_zero_rows_, 0, earlier.n_clipped_entries_)


def keep_stream(model: Any, stream: AnchorStream) -> None:
    """Keep a stream as fitted attributes, so that a saved model goes on."""
    model.n_samples_seen_, model.stream_seed_ = stream.n_rows, stream.planes.seed
    model.stream_rows_, model.stream_numbers_ = stream.kept.rows, stream.kept.numbers
    model.stream_extremes_ = stream.kept.holders
