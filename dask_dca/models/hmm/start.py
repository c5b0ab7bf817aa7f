"""The start of a hidden Markov model: a sample, coordinates that separate the states, and anchors among tails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from scipy.special import ndtri

from dask_dca.anchoring.completion import complete_sample
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import Held, call, hold_rows, spread_rows
from dask_dca.engine.sequences import run_edges
from dask_dca.engine.tiles import MIN_PEAK, require_size, require_squares
from dask_dca.geometry.arrays import Floats, Labels, Numbers
from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.models.hmm.model import HiddenMarkov, labelled_model
from dask_dca.models.kmeans import distinct_count, lloyd, spread_points, within_variances
from dask_dca.models.neighbours import LagMoments, discriminant_coordinates, fix_signs, lag_moments

_STRETCH_FRAMES: Final = 256  # length of each stretch of the sample, in frames
_MAX_SAMPLE_FRAMES: Final = 65_536  # maximum number of frames of the sample
_MAX_SAMPLE_ENTRIES: Final = 4_000_000  # maximum number of entries of the sample
_MIN_STRETCHES: Final = 8  # minimum number of stretches of the sample
_COMPLETION_RANK: Final = 10  # number of components of the model that fills missing entries before the start
_VARIANCE_FLOOR: Final = 1e-6  # minimum variance of a state, relative to the variance of the feature
_WITHIN_FLOOR: Final = 1e-2  # maximum of this floor, relative to the feature's variance within the start's states
_MIN_FLOOR: Final = 1e-14  # lower bound of the floor, relative to the variance of the feature


@dataclass(frozen=True)
class FrameStretches:
    """Frames in memory: all of them, or stretches of successive ones.

    edges: ends of the stretches, and of sequences within them; filled (n, p): with missing entries filled in, if any
    are missing.
    """

    rows: Rows
    edges: Numbers
    filled: Floats | None = None

    @property
    def frames(self) -> Floats:
        """The frames (n, p), NaN where an entry is missing."""
        return np.asarray(self.rows.source, dtype=np.float64)

    @property
    def completed(self) -> Floats:
        """The frames (n, p), with missing entries filled by their posterior means in a low-rank model."""
        return self.frames if self.filled is None else self.filled


@dataclass(frozen=True)
class SampledFrames:
    """A sample that stays on a worker, and its summary."""

    held: Held[FrameStretches]
    is_all: bool
    n_frames: int
    n_distinct: int  # number of distinct frames
    centre: Floats  # (p,), means
    spreads: Floats  # (p,), standard deviations


@dataclass(frozen=True)
class FeatureScale:
    """The scale of frames: centre, standard deviations, minimum variances and units, all (p,).

    units: positive divisors of the features: the standard deviations, or their maximum for spherical states.
    """

    centre: Floats
    spreads: Floats
    floors: Floats
    units: Floats

    def transform(self, frames: Floats) -> Floats:
        """Standardise frames (n, p)."""
        return (frames - self.centre) / self.units

    @property
    def unit_floors(self) -> Floats:
        """Minimum variances in standard units (p,)."""
        return self.floors / self.units**2

    @property
    def log_scale(self) -> float:
        """Sum of the log units, subtracted from log densities per frame in the data's units."""
        return float(np.log(self.units).sum())


def take_stretches(rows: Rows, edges: Numbers, run: Run, *, missing: bool = False) -> SampledFrames:
    """Take a sample of stretches of 256 frames, which depend on the number of frames only; all frames if there are few.

    edges (m + 1,): ends of sequences; missing: whether entries may be missing.
    Raises NotFiniteError: one of the frames is not finite; InvalidInputError: squares are out of the range of
    floating-point numbers.
    """
    groups = max(min(_MAX_SAMPLE_FRAMES, _MAX_SAMPLE_ENTRIES // rows.n_features) // _STRETCH_FRAMES, _MIN_STRETCHES)
    numbers = spread_rows(rows.n_rows, groups, _STRETCH_FRAMES)
    every = np.arange(rows.n_rows) if numbers is None else numbers
    held = hold_rows(
        rows, numbers, run, partial(_make_sample, every, run_edges(numbers, edges), missing), missing=missing
    )
    return SampledFrames(held, numbers is None, len(every), *call(run, "describe", _describe_sample, held))


def _make_sample(numbers: Numbers, edges: Numbers, missing: bool, frames: Floats) -> FrameStretches:
    require_squares(frames, numbers, missing=missing)
    require_size(frames, numbers)
    return FrameStretches(as_rows(frames), edges, complete_sample(frames, _COMPLETION_RANK)[0] if missing else None)


def _describe_sample(sample: FrameStretches) -> tuple[int, Floats, Floats]:
    frames = sample.completed
    return distinct_count(frames), frames.mean(axis=0), frames.std(axis=0)


def feature_scale(sample: SampledFrames, min_covar: float | None, kind: str) -> FeatureScale:
    """Estimate the scale of frames from a sample.

    min_covar: minimum variance of a state; a millionth of each feature's variance if None; kind: form of the
    covariances. A feature that is constant except for rounding has a standard deviation of zero.
    """
    centre, spreads = sample.centre, sample.spreads
    spreads = np.where(spreads > np.maximum(1e-12 * np.abs(centre), MIN_PEAK), spreads, 0.0)
    typical = float(spreads.max()) or float(np.abs(centre).max()) or 1.0
    units = np.full(len(spreads), typical) if kind == "spherical" else np.where(spreads > 0.0, spreads, typical)
    floors = _VARIANCE_FLOOR * np.where(spreads > 0.0, spreads, typical) ** 2
    floors = np.maximum(floors, np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
    return FeatureScale(centre, spreads, floors if min_covar is None else np.full(len(floors), min_covar), units)


def with_local_floors(scale: FeatureScale, within: Floats) -> FeatureScale:
    """Lower the minimum variances to a hundredth of those within states where these are less.

    within (p,): approximate variances of the features within states.
    """
    local = np.maximum(_WITHIN_FLOOR * within, _MIN_FLOOR * scale.spreads**2)
    return replace(scale, floors=np.where((scale.spreads > 0.0) & (local < scale.floors), local, scale.floors))


_OVERSAMPLING: Final = 10  # additional columns of a randomized decomposition
_POWER_STEPS: Final = 4  # power iterations of a randomized decomposition
_MAX_EXACT_FEATURES: Final = 256  # maximum number of features for an exact decomposition


def count_signals(moments: LagMoments) -> int:
    """Count singular values of the lagged covariances above the edge of a random matrix of p x 4 p entries."""
    p, n = len(moments.mean), moments.n_frames
    noise = (np.sqrt(p) + np.sqrt(4 * p)) / np.sqrt(n)
    return int((discriminant_coordinates(moments, 1)[1] > 1.1 * noise).sum())


def principal_coordinates(frames: Floats, n_coordinates: int) -> Floats:
    """Compute principal coordinates of unit variance.

    frames (n, p). Returns (n, d), d <= p; for many features by a randomized decomposition with a fixed seed.
    """
    centred = frames - frames.mean(axis=0)
    n, p = centred.shape
    d = min(n_coordinates, p)
    if p <= _MAX_EXACT_FEATURES:
        basis = np.eye(p)
    else:
        basis = np.random.default_rng(0).standard_normal((p, min(d + _OVERSAMPLING, p)))
        for _ in range(_POWER_STEPS):
            basis = np.linalg.qr(centred.T @ (centred @ basis))[0]
    seen = centred @ basis
    variances, axes = np.linalg.eigh(seen.T @ seen / n)
    top = np.argsort(variances)[::-1][:d]
    scale = np.sqrt(np.maximum(variances[top], 1e-12 * max(float(variances[top[0]]), 1e-300)))
    return np.ascontiguousarray(seen @ (fix_signs(axes[:, top]) / scale))


_LLOYD_SWEEPS: Final = 6  # sweeps of Lloyd's algorithm from the anchors
_AVERAGING_REACH: Final = 4  # frames on either side over which lifted features are averaged
_N_LIFTED: Final = 8  # maximum number of principal coordinates that are lifted
_LIFTED_FEATURES: Final = 32  # maximum number of features that are lifted directly, for squares only
_MAX_TAIL_FRAMES: Final = 8192  # maximum number of frames in which tails are searched


def anchored_starts(
    frames: Floats, edges: Numbers, k: int, kind: str, floors: Floats, seed: int, count: int | None
) -> tuple[list[HiddenMarkov], Floats, Floats]:
    """Compute two starts, from anchors of the frames and of lifted features.

    frames (n, p): in standard units; count: number of directions, chosen by the number of states if None. Returns the
    starts, the lesser of the features' variances within their states (p,), and the tail means of the frames (2 s, p).
    """
    places = principal_coordinates(frames, max(k - 1, 1))
    found = tail_means(places, frames, k, seed, count)
    lifted = _lifted_coordinates(frames, edges, k, kind)
    each = [_partition(frames, found, k), _partition(lifted, tail_means(lifted, lifted, k, seed, count), k)]
    within = np.minimum(*(within_variances(frames, labels, k) for labels in each))
    return [labelled_model(frames, edges, labels, k, kind, floors) for labels in each], within, found


def _partition(rows: Floats, tails: Floats, k: int) -> Labels:
    return lloyd(rows, tails[spread_points(tails - tails.mean(axis=0), k)], _LLOYD_SWEEPS).labels


def _lifted_coordinates(frames: Floats, edges: Numbers, k: int, kind: str) -> Floats:
    """Discriminant coordinates of lifted features, averaged over time."""
    whole = kind == "full"
    few = frames if not whole and frames.shape[1] <= _LIFTED_FEATURES else principal_coordinates(frames, _N_LIFTED)
    features = moving_average(lifted_features(few, products=whole), edges, _AVERAGING_REACH)
    moments = lag_moments(features, edges)
    axes = discriminant_coordinates(moments, max(1, min(k - 1, features.shape[1])))[0]
    return np.ascontiguousarray((features - moments.mean) @ axes)


def lifted_features(whitened: Floats, *, products: bool) -> Floats:
    """Lift frames to features whose means depend on the states' covariances.

    whitened (n, q): frames of about zero mean and unit variance; products: include products of all pairs of
    coordinates, not only squares. Returns (n, r): coordinates, products damped by the frame's squared norm, and the log
    of that norm, each of zero mean and unit variance.
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

    values (n, r): rows in the order of time; edges (m + 1,): ends of sequences, across which nothing is averaged;
    reach: number of rows on either side. Returns (n, r).
    """
    number = np.arange(len(values))
    which = np.searchsorted(edges, number, side="right") - 1
    low, high = np.maximum(number - reach, edges[which]), np.minimum(number + reach + 1, edges[which + 1])
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    return (sums[high] - sums[low]) / (high - low)[:, None]


# --- anchors ---


def tail_means(places: Floats, rows: Floats, k: int, seed: int, count: int | None) -> Floats:
    """Average the rows in the tails of random directions: the sub-problems.

    places (n, d): coordinates in which directions are drawn; rows (n, p): averaged; k: number of states, which
    determines the size of a tail; count: number s of directions, 6 k ln(k + 1) if None. Returns (2 s, p).
    """
    every = max(1, len(rows) // _MAX_TAIL_FRAMES)
    places, rows = places[::every], rows[::every]
    n = len(rows)
    size = int(np.clip(round(_tail_share(k, n) * n), 1, n))
    heights = _signed_directions(k, places.shape[1], count, seed) @ places.T
    least = np.partition(heights, n - size, axis=1)[:, [n - size]]
    beyond = (heights >= least).astype(np.float64)
    return (beyond @ rows) / beyond.sum(axis=1, keepdims=True)


def _tail_share(k: int, n: int) -> float:
    """Share of rows in a tail: 4 %, but at least 30 rows, and at most half of a state's."""
    most = 0.5 / k
    return max(min(most, 0.04), min(most, 30 / n))


def _signed_directions(k: int, d: int, count: int | None, seed: int) -> Floats:
    """Draw directions (2 s, d), each with both signs; only one if d = 1."""
    if d == 1:
        return np.array([[1.0], [-1.0]])
    s = count or int(np.ceil(6 * k * np.log(k + 1)))
    drawn = ndtri(uniforms(child_seeds(seed, np.arange(s)), d))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return np.concatenate([drawn, -drawn])
