"""Coordinates of frames in which hidden states differ most, without labels, from covariances at lags.

Neighbouring frames are independent given the states, so what they share lies in the span of the states' means: the
noise is gone from covariances at lags, and whitening by the covariance at lag zero makes their singular vectors the
discriminant directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["LagMoments", "LagSketch", "discriminant_coordinates", "principal_coordinates", "sketched_coordinates"]

_RIDGE: Final = 1e-3  # share of each variance that is added before whitening
_RIDGE_FEW: Final = 0.1  # with fewer than ten frames a feature
_FEW: Final = 10


@dataclass(frozen=True)
class LagMoments:
    """Moments of n frames: mean (p,), covariance (p, p), and covariances with the next frame and the one after it."""

    n_frames: int
    mean: Floats
    covariance: Floats
    lag_one: Floats
    lag_two: Floats


@dataclass(frozen=True)
class LagSketch:
    """The same of wide data: variances (p,), and covariances (p, 4 m) with m projections of four neighbours."""

    n_frames: int
    mean: Floats
    variances: Floats
    products: Floats


def discriminant_coordinates(moments: LagMoments, n_coordinates: int) -> tuple[Floats, Floats]:
    """
    Find the directions along which neighbouring frames agree most, relative to all variance.

    Parameters
    ----------
    moments : LagMoments
        Moments of the frames.
    n_coordinates : int
        How many directions d.

    Returns
    -------
    coordinates : ndarray of float64, shape (p, d)
        W: a frame has coordinates z = (x - mean) @ W, uncorrelated and of about unit variance.
    strengths : ndarray of float64, shape (p,)
        Singular values of the whitened covariances at lags: how much neighbouring frames share.

    Examples
    --------
    >>> eye = np.eye(2)
    >>> moments = LagMoments(1000, np.zeros(2), eye, np.diag([0.0, 0.5]), np.diag([0.0, 0.3]))
    >>> np.abs(discriminant_coordinates(moments, 1)[0][:, 0]).round(2)
    array([0., 1.])
    """
    whitener = _whitener(moments)
    lagged = [whitener.T @ lag @ whitener for lag in (moments.lag_one, moments.lag_two)]
    whole = np.hstack([lagged[0], lagged[0].T, lagged[1], lagged[1].T])
    left, strengths, _ = np.linalg.svd(whole, full_matrices=False)
    return whitener @ _with_signs(left[:, :n_coordinates]), strengths


def principal_coordinates(moments: LagMoments, n_coordinates: int) -> Floats:
    """
    Find the directions of greatest variance among scaled features.

    Parameters
    ----------
    moments : LagMoments
        Moments of the frames.
    n_coordinates : int
        How many directions d.

    Returns
    -------
    ndarray of float64, shape (p, d)
        As `discriminant_coordinates` has them.

    Examples
    --------
    >>> moments = LagMoments(9, np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]), np.eye(2), np.eye(2))
    >>> principal_coordinates(moments, 1).round(3)
    array([[0.577],
           [0.577]])
    """
    scale = _scales(np.diagonal(moments.covariance))
    variances, axes = np.linalg.eigh(moments.covariance * np.outer(scale, scale) + 1e-12 * np.eye(len(scale)))
    top = np.argsort(variances)[::-1][:n_coordinates]
    deviations = np.sqrt(np.maximum(variances[top], 1e-12))
    return scale[:, None] * _with_signs(axes[:, top]) / deviations


def sketched_coordinates(sketch: LagSketch, n_coordinates: int) -> Floats:
    """
    Find discriminant directions of wide data, whose features are whitened one by one.

    Parameters
    ----------
    sketch : LagSketch
        Moments of the frames.
    n_coordinates : int
        How many directions d.

    Returns
    -------
    ndarray of float64, shape (p, d)
        As `discriminant_coordinates` has them, but for correlations.

    Examples
    --------
    >>> sketch = LagSketch(9, np.zeros(2), np.ones(2), np.array([[0.1], [0.5]]))
    >>> sketched_coordinates(sketch, 1).round(2)
    array([[0.2 ],
           [0.98]])
    """
    scale = _scales(sketch.variances)
    left = np.linalg.svd(scale[:, None] * sketch.products, full_matrices=False)[0]
    return scale[:, None] * _with_signs(left[:, :n_coordinates])


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
    """Reciprocal standard deviations; zero for features that are constant but for rounding."""
    usable = variances > 1e-14 * variances.max(initial=0.0)
    return np.where(usable, 1.0 / np.sqrt(np.where(usable, variances, 1.0)), 0.0)


def _with_signs(axes: Floats) -> Floats:
    """Columns whose entry of greatest magnitude is positive: decompositions leave the sign open."""
    peaks = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    return axes * np.where(peaks < 0.0, -1.0, 1.0)
