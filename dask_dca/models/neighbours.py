"""Moments of frames at lags one and two, and the directions in which neighbouring frames are most correlated.

Noise is independent between frames, so the covariances C_1, C_2 at lags are in the span of the states' means, or of the
observation matrix O: with H = S^{-1/2} for the covariance S of frames, the columns of H [C_1, C_1^T, C_2, C_2^T] H are
in the span of S^{-1/2} O, and their singular vectors are the discriminant directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dask_dca.geometry.arrays import Floats, Mask, Numbers

_SMALL_SAMPLE_RIDGE: Final = 0.1  # ridge with few frames per feature
_MIN_FRAMES_PER_FEATURE: Final = 10  # with fewer frames the ridge is that of small samples
LAGS: Final = (1, 2)  # lags at which covariances are computed


@dataclass(frozen=True)
class LagMoments:
    """Moments of frames: mean (p,), covariance (p, p), and covariances (p, p) at each of the lags."""

    n_frames: int
    mean: Floats
    covariance: Floats
    lagged: list[Floats]


def pairs_at(edges: Numbers, lag: int) -> Mask:
    """Find which of the frames 0, ..., n - 1 - lag are in the same sequence as the frame at that lag after them."""
    which = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    return np.asarray(which[: len(which) - lag] == which[lag:])


def lag_moments(frames: Floats, edges: Numbers) -> LagMoments:
    """Compute the moments of frames (n, p) in sequences with boundaries (m + 1,)."""
    n = len(frames)
    mean = frames.mean(axis=0)
    centred = frames - mean
    lagged = []
    for lag in LAGS:
        paired = pairs_at(edges, lag)
        lagged.append((centred[: n - lag] * paired[:, None]).T @ centred[lag:] / max(int(paired.sum()), 1))
    return LagMoments(n, mean, centred.T @ centred / n, lagged)


def discriminant_coordinates(moments: LagMoments, n_coordinates: int, ridge: float = 1e-3) -> tuple[Floats, Floats]:
    """Find the directions in which neighbouring frames are most correlated.

    ridge: share of each variance that is added before whitening, if frames are not few. Returns W (p, d), with which
    z = (x - mean) @ W are uncorrelated coordinates of about unit variance; the singular values (p,) of the whitened
    covariances at lags.
    """
    whitener = _whitener(moments, ridge)
    lagged = [whitener.T @ lag @ whitener for lag in moments.lagged]
    whole = np.hstack([side for lag in lagged for side in (lag, lag.T)])
    left, strengths, _ = np.linalg.svd(whole, full_matrices=False)
    return whitener @ fix_signs(left[:, :n_coordinates]), strengths


def _whitener(moments: LagMoments, ridge: float) -> Floats:
    """H (p, p) with H^T S H close to the identity; constant features get zero."""
    own, p = np.diagonal(moments.covariance), len(moments.mean)
    usable = own > 1e-14 * own.max(initial=0.0)  # smaller variances are rounding errors
    scale = np.where(usable, 1.0 / np.sqrt(np.where(usable, own, 1.0)), 0.0)
    ridge = ridge if moments.n_frames >= _MIN_FRAMES_PER_FEATURE * p else _SMALL_SAMPLE_RIDGE
    variances, axes = np.linalg.eigh(moments.covariance * np.outer(scale, scale) + ridge * np.eye(p))
    roots = axes / np.sqrt(np.maximum(variances, ridge / 2))
    return scale[:, None] * (roots @ axes.T)


def fix_signs(axes: Floats) -> Floats:
    """Fix the signs of columns such that the entry of greatest magnitude is positive."""
    peaks = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    return axes * np.where(peaks < 0.0, -1.0, 1.0)
