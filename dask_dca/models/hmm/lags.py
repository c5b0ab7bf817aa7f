"""Frames and their neighbours in memory: covariances at lags, coordinates in which states differ.

Neighbouring frames are independent given the states, so what they share lies in the span of the states' means: the
noise is gone from covariances at lags, and whitening by the covariance at lag zero makes their singular vectors the
discriminant directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.sequences import pair_mask

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["LagMoments", "count_signals", "discriminant_coordinates", "lag_moments", "principal_coordinates"]

_RIDGE: Final = 1e-3  # share of each variance that is added before whitening
_RIDGE_FEW: Final = 0.1  # with fewer than ten frames a feature
_FEW: Final = 10
_LAGS: Final = (1, 2)
_SPARE: Final = 10  # columns beyond those that are wanted, where directions are sketched
_POWERS: Final = 4
_WIDE: Final = 256  # features above which directions are sketched


@dataclass(frozen=True)
class LagMoments:
    """Moments of n frames: mean (p,), covariance (p, p), and covariances with the next frame and the one after it."""

    n_frames: int
    mean: Floats
    covariance: Floats
    lag_one: Floats
    lag_two: Floats


def lag_moments(frames: Floats, edges: Numbers) -> LagMoments:
    """Compute moments of frames and their successors.

    frames (n, p); edges (m + 1,): ends of sequences.
    """
    n = len(frames)
    mean = frames.mean(axis=0)
    centred = frames - mean
    lagged = []
    for lag in _LAGS:
        there = pair_mask(edges, 0, n, lag)[: max(n - lag, 0)]
        lagged.append((centred[: n - lag] * there[:, None]).T @ centred[lag:] / max(int(there.sum()), 1))
    return LagMoments(n, mean, centred.T @ centred / n, lagged[0], lagged[1])


def discriminant_coordinates(moments: LagMoments, n_coordinates: int) -> tuple[Floats, Floats]:
    """Find the directions along which neighbouring frames agree most, relative to all variance.

    Returns coordinates (p, d): W: a frame has coordinates z = (x - mean) @ W, uncorrelated and of about unit variance;
    strengths (p,): singular values of the whitened covariances at lags: how much neighbouring frames share.
    """
    whitener = _whitener(moments)
    lagged = [whitener.T @ lag @ whitener for lag in (moments.lag_one, moments.lag_two)]
    whole = np.hstack([lagged[0], lagged[0].T, lagged[1], lagged[1].T])
    left, strengths, _ = np.linalg.svd(whole, full_matrices=False)
    return whitener @ _with_signs(left[:, :n_coordinates]), strengths


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
    return np.ascontiguousarray(seen @ (_with_signs(axes[:, top]) / scale))


def _whitener(moments: LagMoments) -> Floats:
    """H (p, p) with H^T S H about one: features are scaled first, so that constant ones have no part."""
    p = len(moments.mean)
    scale = _scales(np.diagonal(moments.covariance))
    ridge = _RIDGE if moments.n_frames >= _FEW * p else _RIDGE_FEW
    variances, axes = np.linalg.eigh(moments.covariance * np.outer(scale, scale) + ridge * np.eye(p))
    roots = axes / np.sqrt(np.maximum(variances, ridge / 2))
    whitener: Floats = scale[:, None] * (roots @ axes.T)
    return whitener


def _scales(variances: Floats) -> Floats:
    """Reciprocal standard deviations; zero for features that are constant except for rounding."""
    usable = variances > 1e-14 * variances.max(initial=0.0)
    return np.where(usable, 1.0 / np.sqrt(np.where(usable, variances, 1.0)), 0.0)


def _with_signs(axes: Floats) -> Floats:
    """Columns whose entry of greatest magnitude is positive: decompositions leave the sign open."""
    peaks = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    return axes * np.where(peaks < 0.0, -1.0, 1.0)
