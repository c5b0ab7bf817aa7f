"""Where a hidden Markov model starts: a sample, coordinates in which states differ, and anchors among tails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.anchoring.completion import complete_sample
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import call, hold_rows, spread_rows
from dask_dca.engine.sequences import run_edges
from dask_dca.engine.tiles import MIN_PEAK, require_size, require_squares
from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.geometry.solvers import successive_projection
from dask_dca.models.hmm.model import model_of_labels
from dask_dca.models.kmeans import distinct_count, lloyd, within_variances
from dask_dca.models.neighbours import discriminant_coordinates, fix_signs, lag_moments

if TYPE_CHECKING:
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.sampling import Held
    from dask_dca.geometry.arrays import Floats, Labels, Numbers
    from dask_dca.models.hmm.model import HiddenMarkov
    from dask_dca.models.neighbours import LagMoments

_STRETCH: Final = 256  # frames of each stretch of the sample
_SAMPLE_FRAMES: Final = 65_536
_SAMPLE_ENTRIES: Final = 4_000_000
_LEAST_STRETCHES: Final = 8
_PARTS: Final = 10  # of the model that fills missing entries, where states are not yet known
_LEAST_VARIANCE: Final = 1e-6  # share of a feature's own
_LEAST_WITHIN: Final = 1e-2  # and at most as a share of its variance within the states of the starts
_LOCAL: Final = 1e-14  # share of a feature's own below which no floor is


@dataclass(frozen=True)
class FrameStretches:
    """Frames in memory: all of them, or stretches of successive ones.

    rows: as they were given; edges: ends of the stretches, and of sequences within them; filled (n, p): where entries
    are missing, the frames with their missing entries filled.
    """

    rows: Rows
    edges: Numbers
    filled: Floats | None = None

    @property
    def frames(self) -> Floats:
        """All of them as one matrix.

        Returns (n, p): the frames, NaN where an entry is missing.
        """
        return np.asarray(self.rows.source, dtype=np.float64)

    @property
    def whole(self) -> Floats:
        """The frames without missing entries.

        Returns (n, p): with missing entries filled by their posterior means in a low-rank model.
        """
        return self.frames if self.filled is None else self.filled


@dataclass(frozen=True)
class SampledFrames:
    """Stretches that stay where the data are, and what is known of them."""

    held: Held[FrameStretches]
    whole: bool
    n_frames: int
    n_distinct: int  # frames that differ
    centre: Floats  # (p,), means
    spreads: Floats  # (p,), standard deviations


@dataclass(frozen=True)
class FeatureScale:
    """The scale of frames: a centre, standard deviations and least variances, all (p,).

    units (p,): what frames are divided by, none zero: their deviations, or the greatest of them for spherical states.
    """

    centre: Floats
    spreads: Floats
    floors: Floats
    units: Floats

    def standard(self, frames: Floats) -> Floats:
        """Take frames (n, p) to standard units."""
        found: Floats = (frames - self.centre) / self.units
        return found

    @property
    def least(self) -> Floats:
        """Least variances in standard units.

        Returns (p,).
        """
        found: Floats = self.floors / self.units**2
        return found

    @property
    def log_scale(self) -> float:
        """What densities per frame are lower by in the data's units.

        Returns the sum of the units' logarithms.
        """
        return float(np.log(self.units).sum())


def take_stretches(rows: Rows, edges: Numbers, run: Run, *, holes: bool = False) -> SampledFrames:
    """Take a sample of successive frames, by the number of frames alone.

    edges (m + 1,): ends of sequences; holes: whether entries may be missing. Returns all frames where they are few;
    else stretches of 256, which end where a sequence ends.
    Raises NotFiniteError: one of the frames is not finite; InvalidInputError: squares are out of the range of
    floating-point numbers.
    """
    groups = max(min(_SAMPLE_FRAMES, _SAMPLE_ENTRIES // rows.n_features) // _STRETCH, _LEAST_STRETCHES)
    numbers = spread_rows(rows.n_rows, groups, _STRETCH)
    every = np.arange(rows.n_rows) if numbers is None else numbers
    held = hold_rows(rows, numbers, run, partial(_stretches, every, run_edges(numbers, edges), holes), holes=holes)
    return SampledFrames(held, numbers is None, len(every), *call(run, "describe", _described, held))


def _stretches(numbers: Numbers, edges: Numbers, holes: bool, frames: Floats) -> FrameStretches:
    require_squares(frames, numbers, missing=holes)
    require_size(frames, numbers)
    return FrameStretches(as_rows(frames), edges, complete_sample(frames, _PARTS)[0] if holes else None)


def _described(sample: FrameStretches) -> tuple[int, Floats, Floats]:
    frames = sample.whole
    return distinct_count(frames), frames.mean(axis=0), frames.std(axis=0)


def feature_scale(sample: SampledFrames, min_covar: float | None, kind: str) -> FeatureScale:
    """Measure the scale of frames on a sample.

    min_covar: least variance of a state; a millionth of each feature's own if None; kind: form of the covariances.
    Returns the scale. A feature that is constant except for rounding has a standard deviation of zero.
    """
    centre, spreads = sample.centre, sample.spreads
    spreads = np.where(spreads > np.maximum(1e-12 * np.abs(centre), MIN_PEAK), spreads, 0.0)
    typical = float(spreads.max()) or float(np.abs(centre).max()) or 1.0
    units = np.full(len(spreads), typical) if kind == "spherical" else np.where(spreads > 0.0, spreads, typical)
    floors = _LEAST_VARIANCE * np.where(spreads > 0.0, spreads, typical) ** 2
    floors = np.maximum(floors, np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
    return FeatureScale(centre, spreads, floors if min_covar is None else np.full(len(floors), min_covar), units)


def with_local_floors(frame: FeatureScale, within: Floats) -> FeatureScale:
    """Lower the least variances where they would be large beside those within states.

    frame: the scale, with least variances in proportion to the features' own; within (p,): rough variances of the
    features within states. Returns the same, with least variances of a hundredth of those within states where these are
    less.
    """
    local = np.maximum(_LEAST_WITHIN * within, _LOCAL * frame.spreads**2)
    return replace(frame, floors=np.where((frame.spreads > 0.0) & (local < frame.floors), local, frame.floors))


_SPARE: Final = 10  # columns beyond those that are wanted, where directions are sketched
_POWERS: Final = 4
_WIDE: Final = 256  # features above which directions are sketched


def count_signals(moments: LagMoments) -> int:
    """Count the singular values above those of a random matrix: two columns of p, four products side by side."""
    p, n = len(moments.mean), moments.n_frames
    noise = (np.sqrt(p) + np.sqrt(4 * p)) / np.sqrt(n)
    return int((discriminant_coordinates(moments, 1)[1] > 1.1 * noise).sum())


def principal_coordinates(frames: Floats, n_coordinates: int) -> Floats:
    """Place frames along the directions of greatest variance, scaled to unit variance.

    frames (n, p). Returns (n, d): at most p of them; of wide frames by a randomized decomposition, always the same one.
    """
    centred = frames - frames.mean(axis=0)
    n, p = centred.shape
    d = min(n_coordinates, p)
    if p <= _WIDE:
        basis = np.eye(p)
    else:
        basis = np.random.default_rng(0).standard_normal((p, min(d + _SPARE, p)))
        for _ in range(_POWERS):
            basis = np.linalg.qr(centred.T @ (centred @ basis))[0]
    seen = centred @ basis
    variances, axes = np.linalg.eigh(seen.T @ seen / n)
    top = np.argsort(variances)[::-1][:d]
    scale = np.sqrt(np.maximum(variances[top], 1e-12 * max(float(variances[top[0]]), 1e-300)))
    return np.ascontiguousarray(seen @ (fix_signs(axes[:, top]) / scale))


_SWEEPS: Final = 6  # of Lloyd's algorithm from the anchors
_REACH: Final = 4  # frames on either side over which lifted features are averaged
_LIFTED: Final = 8  # principal coordinates that are lifted, with all their products
_LIFTED_FEATURES: Final = 32  # features that are lifted themselves where covariances are diagonal: squares only
_LOOKED_AT: Final = 8192  # frames among which tails are looked for


def anchored_starts(
    frames: Floats, edges: Numbers, k: int, kind: str, floors: Floats, seed: int, count: int | None
) -> tuple[list[HiddenMarkov], Floats, Floats]:
    """Start from anchors of the frames, and of lifted features.

    frames (n, p): in standard units; count: of directions; by the number of states if None. Returns the two starts, the
    least variances of features within their states (p,), and the means of the frames' tails (2 s, p).
    """
    places = principal_coordinates(frames, max(k - 1, 1))
    found = tail_means(places, frames, k, seed, count)
    lifted = _lifted(frames, edges, k, kind)
    each = [_partition(frames, found, k), _partition(lifted, tail_means(lifted, lifted, k, seed, count), k)]
    within = np.minimum(*(within_variances(frames, labels, k) for labels in each))
    return [model_of_labels(frames, edges, labels, k, kind, floors) for labels in each], within, found


def _partition(rows: Floats, tails: Floats, k: int) -> Labels:
    return lloyd(rows, tails[_select_anchors(tails, k)], _SWEEPS).labels


def _lifted(frames: Floats, edges: Numbers, k: int, kind: str) -> Floats:
    """Discriminant coordinates of lifted features, averaged over time."""
    whole = kind == "full"
    few = frames if not whole and frames.shape[1] <= _LIFTED_FEATURES else principal_coordinates(frames, _LIFTED)
    features = moving_average(lifted_features(few, products=whole), edges, _REACH)
    moments = lag_moments(features, edges)
    axes = discriminant_coordinates(moments, max(1, min(k - 1, features.shape[1])))[0]
    return np.ascontiguousarray((features - moments.mean) @ axes)


def lifted_features(whitened: Floats, *, products: bool) -> Floats:
    """Lift frames to features whose means show covariances.

    whitened (n, q): frames of about zero mean and unit variance; products: products of all pairs of coordinates;
    squares only if False. Returns (n, r): the coordinates, their products damped by the frame's length, and the
    logarithm of that length, each of zero mean and unit variance.
    """
    q = whitened.shape[1]
    squares = (whitened**2).sum(axis=1, keepdims=True)
    left, right = np.triu_indices(q) if products else (np.arange(q), np.arange(q))
    damped = whitened[:, left] * whitened[:, right] / (1.0 + squares / q)
    features = np.hstack([whitened, damped, np.log(q / 10.0 + squares)])
    features -= features.mean(axis=0)
    spreads = features.std(axis=0)
    return features / np.where(spreads > 1e-9, spreads, 1.0)


def moving_average(values: Floats, edges: Numbers, reach: int) -> Floats:
    """Average each row with its neighbours in time.

    values (n, r): rows in the order of time; edges (m + 1,): ends of sequences, which are not averaged across; reach:
    how many rows on either side. Returns (n, r): the averages.
    """
    number = np.arange(len(values))
    which = np.searchsorted(edges, number, side="right") - 1
    low, high = np.maximum(number - reach, edges[which]), np.minimum(number + reach + 1, edges[which + 1])
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    found: Floats = (sums[high] - sums[low]) / (high - low)[:, None]
    return found


# --- anchors ---


def tail_means(places: Floats, rows: Floats, k: int, seed: int, count: int | None) -> Floats:
    """Average the rows furthest out along directions: the sub-problems.

    places (n, d): where directions look; rows (n, p): what is averaged; k: number of states, which decides how many
    rows make a tail; count: of directions s; 6 k ln(k + 1) if None. Returns (2 s, p).
    """
    every = max(1, len(rows) // _LOOKED_AT)
    places, rows = places[::every], rows[::every]
    n = len(rows)
    size = int(np.clip(round(_tail_share(k, n) * n), 1, n))
    heights = _signed_directions(k, places.shape[1], count, seed) @ places.T
    least = np.partition(heights, n - size, axis=1)[:, [n - size]]
    beyond = (heights >= least).astype(np.float64)
    found: Floats = (beyond @ rows) / beyond.sum(axis=1, keepdims=True)
    return found


def _tail_share(k: int, n: int) -> float:
    """How many rows make a tail: 4 %, but 30 rows at least, and at most half of a state's."""
    most = 0.5 / k
    return max(min(most, 0.04), min(most, 30 / n))


def _signed_directions(k: int, d: int, count: int | None, seed: int) -> Floats:
    """Directions (2 s, d), each both ways; there is but one along a line."""
    if d == 1:
        return np.array([[1.0], [-1.0]])
    s = count or int(np.ceil(6 * k * np.log(k + 1)))
    drawn = ndtri(uniforms(child_seeds(seed, np.arange(s)), d))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return np.concatenate([drawn, -drawn])


def _select_anchors(points: Floats, k: int) -> Labels:
    """The tails that are anchors: the conquer step; some twice where there are fewer than k.

    By successive projection; by farthest points where there are more states than dimensions allow.
    """
    centred = points - points.mean(axis=0)
    squares = (centred**2).sum(axis=1)
    height = max(float(np.sqrt(squares.mean())), 1e-300)
    chosen = successive_projection(np.column_stack([np.full(len(points), height), centred]), k)
    if len(chosen) >= k:
        return chosen.astype(np.intp)
    found = [int(squares.argmax())]
    distances = ((centred - centred[found[0]]) ** 2).sum(axis=1)
    while len(found) < k:
        found.append(int(distances.argmax()))
        distances = np.minimum(distances, ((centred - centred[found[-1]]) ** 2).sum(axis=1))
    return np.array(found, dtype=np.intp)
