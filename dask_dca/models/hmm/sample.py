"""What a hidden Markov model is told about the frames before it has states: a sample, their scale, coordinates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.engine.checks import LEAST, require_size, require_squares
from dask_dca.engine.held import call
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import hold_rows, spread_rows
from dask_dca.engine.sequences import pair_mask
from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.models.hmm.lags import (
    LagMoments,
    discriminant_coordinates,
    lag_moments,
    lag_sketch,
    principal_coordinates,
    sketched_coordinates,
)
from dask_dca.models.kmeans import distinct_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.held import Held
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = [
    "Coordinates",
    "FeatureScale",
    "FrameStretches",
    "SampledFrames",
    "feature_scale",
    "find_coordinates",
    "moments_in_memory",
    "take_stretches",
    "with_local_floors",
]

_STRETCH: Final = 256  # frames of each stretch of the sample
_SAMPLE_FRAMES: Final = 20_480
_SAMPLE_ENTRIES: Final = 10_000_000
_LEAST_STRETCHES: Final = 8
_PRINCIPAL: Final = 8  # principal coordinates that are kept at least
_WIDE: Final = 512  # features above which moments of p x p are not formed, unless covariances are
_LEAST_VARIANCE: Final = 1e-6  # share of a feature's own
_LEAST_WITHIN: Final = 1e-2  # and at most as a share of its variance within the states of the starts
_LOCAL: Final = 1e-14  # share of a feature's own below which no floor is


@dataclass(frozen=True)
class FrameStretches:
    """Frames in memory: all of them, or stretches of successive ones."""

    rows: Rows
    edges: Numbers  # ends of the stretches, and of sequences within them

    @property
    def frames(self) -> Floats:
        """All of them as one matrix.

        Returns (n, p): the frames.
        """
        return np.asarray(self.rows.source, dtype=np.float64)


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
    """The scale of frames: a centre, standard deviations, least variances (p,), and perhaps their covariance."""

    centre: Floats
    spreads: Floats
    floors: Floats
    covariance: Floats | None = None  # (p, p), about the centre


@dataclass(frozen=True)
class Coordinates:
    """Directions in which frames are seen."""

    discriminant: Floats  # (p, d)
    principal: Floats | None  # (p, at least d); not of wide data
    n_signals: int  # discriminant directions above what noise would show


def take_stretches(rows: Rows, edges: Numbers, run: Run) -> SampledFrames:
    """Take a sample of successive frames, by the number of frames alone.

    edges (m + 1,): ends of sequences. Returns all frames where they are few; else stretches of 256, which end where a
    sequence ends.
    Raises NotFiniteError: one of the frames is not finite; InvalidInputError: squares are out of the range of
    floating-point numbers.
    """
    groups = max(min(_SAMPLE_FRAMES, _SAMPLE_ENTRIES // rows.n_features) // _STRETCH, _LEAST_STRETCHES)
    numbers = spread_rows(rows.n_rows, groups, _STRETCH)
    every, ends = np.arange(rows.n_rows) if numbers is None else numbers, edges
    if numbers is not None:
        breaks = np.searchsorted(numbers, edges[1:-1])
        ends = np.unique(np.concatenate([np.arange(0, len(numbers) + 1, _STRETCH), breaks]))
    held = hold_rows(rows, numbers, run, partial(_stretches, every, ends))
    return SampledFrames(held, numbers is None, len(every), *call(run, "describe", _described, held))


def _stretches(numbers: Numbers, edges: Numbers, frames: Floats) -> FrameStretches:
    require_squares(frames, numbers)
    require_size(frames, numbers)
    return FrameStretches(as_rows(frames), edges)


def _described(sample: FrameStretches) -> tuple[int, Floats, Floats]:
    frames = sample.frames
    return distinct_count(frames), frames.mean(axis=0), frames.std(axis=0)


def feature_scale(sample: SampledFrames, min_covar: float | None) -> FeatureScale:
    """Measure the scale of frames on a sample.

    min_covar: least variance of a state; a millionth of each feature's own if None. Returns the scale. A feature that
    is constant except for rounding has a standard deviation of zero.
    """
    centre, spreads = sample.centre, sample.spreads
    spreads = np.where(spreads > np.maximum(1e-12 * np.abs(centre), LEAST), spreads, 0.0)
    typical = float(spreads.max()) or float(np.abs(centre).max()) or 1.0
    floors = _LEAST_VARIANCE * np.where(spreads > 0.0, spreads, typical) ** 2
    floors = np.maximum(floors, np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
    return FeatureScale(centre, spreads, floors if min_covar is None else np.full(len(floors), min_covar))


def with_local_floors(frame: FeatureScale, within: Floats) -> FeatureScale:
    """Lower the least variances where they would be large beside those within states.

    frame: the scale, with least variances in proportion to the features' own; within (p,): rough variances of the
    features within states. Returns the same, with least variances of a hundredth of those within states where these are
    less.
    """
    local = np.maximum(_LEAST_WITHIN * within, _LOCAL * frame.spreads**2)
    return replace(frame, floors=np.where((frame.spreads > 0.0) & (local < frame.floors), local, frame.floors))


def find_coordinates(
    rows: Rows,
    edges: Numbers,
    sample: SampledFrames,
    frame: FeatureScale,
    k: int,
    seed: int,
    run: Run,
    *,
    whole_covariance: bool,
) -> tuple[Coordinates, FeatureScale]:
    """Find the coordinates in which states differ most: the moment pass.

    rows, edges, sample, frame, run: the data, a sample of them, and their scale; k: number of states; there are at most
    k - 1 coordinates; seed: seed of the sketch of wide data; whole_covariance: form matrices of p x p also of wide
    data, since the model will. Returns coordinates: A frame has the coordinates (x - centre) @ discriminant, of about
    unit variance; frame: with the exact mean as its centre, and with the covariance where it was formed.
    """
    d = max(1, min(k - 1, rows.n_features))
    if rows.n_features <= _WIDE or whole_covariance:
        moments = lag_moments(rows, edges, frame.centre, frame.spreads, run)
        frame = replace(frame, centre=moments.mean, covariance=moments.covariance)
        axes, strengths = discriminant_coordinates(moments, d)
        principal = principal_coordinates(moments, min(max(d, _PRINCIPAL), rows.n_features))
        return Coordinates(axes, principal, _signals(strengths, moments)), frame
    m = min(2 * k + 10, rows.n_features)
    guess = ndtri(uniforms(child_seeds(seed, np.arange(m)), rows.n_features)).T
    guess *= np.where(frame.spreads > 0.0, 1.0 / np.where(frame.spreads > 0.0, frame.spreads, 1.0), 0.0)[:, None]
    better = call(run, "sketch", _sketched, sample.held, frame, guess)
    sketch = lag_sketch(rows, edges, frame.centre, frame.spreads, better, run)
    frame = replace(frame, centre=sketch.mean)
    axes = sketched_coordinates(sketch, d)
    return Coordinates(call(run, "whiten", _whitened, sample.held, axes, frame.centre), None, d), frame


def _sketched(sample: FrameStretches, frame: FeatureScale, guess: Floats) -> Floats:
    sketch = lag_sketch(sample.rows, sample.edges, frame.centre, frame.spreads, guess, Run())
    return sketched_coordinates(sketch, guess.shape[1])


def moments_in_memory(frames: Floats, edges: Numbers) -> LagMoments:
    """Compute moments of frames in memory, which need not be exact.

    frames (n, p): frames; edges (m + 1,): ends of sequences. Returns mean, covariance, and covariances at lags one and
    two.
    """
    n = len(frames)
    mean = frames.mean(axis=0)
    centred = frames - mean
    lagged = []
    for lag in (1, 2):
        there = pair_mask(edges, 0, n, lag)[: n - lag]
        lagged.append((centred[: n - lag] * there[:, None]).T @ centred[lag:] / max(int(there.sum()), 1))
    return LagMoments(n, mean, centred.T @ centred / n, lagged[0], lagged[1])


def _signals(strengths: Floats, moments: LagMoments) -> int:
    """How many singular values are above those of a random matrix: two columns of p, four products side by side."""
    p, n = len(moments.mean), moments.n_frames
    noise = (np.sqrt(p) + np.sqrt(4 * p)) / np.sqrt(n)
    return int((strengths > 1.1 * noise).sum())


def _whitened(sample: FrameStretches, axes: Floats, centre: Floats) -> Floats:
    """Axes along which the sample is uncorrelated and of unit variance."""
    seen = (sample.frames - centre) @ axes
    variances, turn = np.linalg.eigh(seen.T @ seen / len(seen))
    usable = variances > 1e-12 * max(float(variances.max()), 1e-300)
    scale = np.where(usable, 1.0 / np.sqrt(np.where(usable, variances, 1.0)), 0.0)
    whitened: Floats = axes @ ((turn * scale) @ turn.T)
    return whitened
