"""What neighbouring frames tell of each other: moments at lags, and the directions in which they agree.

Noise is independent between frames, so what neighbours share lies in the span of the states' means, or of O: with
H = S^{-1/2}, S the covariance of frames, the columns of H [C_1, C_1^T, C_2, C_2^T] H lie in that of S^{-1/2} O, and
their singular vectors are the discriminant directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from dask_dca.geometry.arrays import Floats, Mask, Numbers

_RIDGE_FEW: Final = 0.1  # with fewer than ten frames a feature
_FEW: Final = 10
LAGS: Final = (1, 2)


@dataclass(frozen=True)
class LagMoments:
    """Moments of n frames: mean (p,), covariance (p, p), and covariances with the next frame and the one after it."""

    n_frames: int
    mean: Floats
    covariance: Floats
    lagged: list[Floats]


def pairs_at(edges: Numbers, lag: int) -> Mask:
    """Tell of frames 0, ..., n - 1 - lag which are in one sequence with the frame that is so much later."""
    which = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    return np.asarray(which[: len(which) - lag] == which[lag:])


def lag_moments(frames: Floats, edges: Numbers) -> LagMoments:
    """Compute moments of frames and their successors.

    frames (n, p); edges (m + 1,): ends of sequences.
    """
    n = len(frames)
    mean = frames.mean(axis=0)
    centred = frames - mean
    lagged = []
    for lag in LAGS:
        there = pairs_at(edges, lag)
        lagged.append((centred[: n - lag] * there[:, None]).T @ centred[lag:] / max(int(there.sum()), 1))
    return LagMoments(n, mean, centred.T @ centred / n, lagged)


def discriminant_coordinates(moments: LagMoments, n_coordinates: int, ridge: float = 1e-3) -> tuple[Floats, Floats]:
    """Find the directions along which neighbouring frames agree most, relative to all variance.

    ridge: share of each variance that is added before whitening; more where frames are few. Returns coordinates (p, d):
    W: a frame has coordinates z = (x - mean) @ W, uncorrelated and of about unit variance; strengths (p,): singular
    values of the whitened covariances at lags: how much neighbouring frames share.
    """
    whitener = _whitener(moments, ridge)
    lagged = [whitener.T @ lag @ whitener for lag in moments.lagged]
    whole = np.hstack([side for lag in lagged for side in (lag, lag.T)])
    left, strengths, _ = np.linalg.svd(whole, full_matrices=False)
    return whitener @ with_signs(left[:, :n_coordinates]), strengths


def _whitener(moments: LagMoments, ridge: float) -> Floats:
    """H (p, p) with H^T S H about one: features are scaled first, so that constant ones have no part."""
    own, p = np.diagonal(moments.covariance), len(moments.mean)
    usable = own > 1e-14 * own.max(initial=0.0)  # less is rounding
    scale = np.where(usable, 1.0 / np.sqrt(np.where(usable, own, 1.0)), 0.0)
    ridge = ridge if moments.n_frames >= _FEW * p else _RIDGE_FEW
    variances, axes = np.linalg.eigh(moments.covariance * np.outer(scale, scale) + ridge * np.eye(p))
    roots = axes / np.sqrt(np.maximum(variances, ridge / 2))
    whitener: Floats = scale[:, None] * (roots @ axes.T)
    return whitener


def with_signs(axes: Floats) -> Floats:
    """Columns whose entry of greatest magnitude is positive: decompositions leave the sign open."""
    peaks = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    return axes * np.where(peaks < 0.0, -1.0, 1.0)
