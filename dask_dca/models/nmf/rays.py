"""Rays that no row is on: the smallest simplex around extreme rows, in the plane of height one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.minimum_volume import enclosing_simplex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Level", "Rays", "find_rays", "find_subspace"]

_SLACK: Final = 1.25  # of the noise's deviation, by which extreme rows may stick out
_FOREIGN: Final = 4.0  # of the noise's energy outside the subspace, from which a row is no mixture
_ROUNDING: Final = 1e-12


@dataclass(frozen=True)
class Level:
    """Where rows of height one lie: mean (p,), leading directions (r, p), the noise's deviation, and a row's height."""

    mean: Floats
    directions: Floats
    noise: float
    height: float


@dataclass(frozen=True)
class Rays:
    """Rays (k, p), how much the simplex grew beyond the anchors' own, and how far rows stick out of it."""

    rays: Floats
    growth: float
    outside: float
    converged: bool


def find_subspace(X: Floats, n_directions: int) -> Level:
    """Find the leading directions of rows of height one, and the noise beside them."""
    heights = X.sum(axis=1)
    usable = heights > 0.0
    scaled = X[usable] / heights[usable, None]
    mean = scaled.mean(axis=0)
    left = scaled - mean
    wide = len(left) < left.shape[1]
    vectors = np.linalg.eigh(left @ left.T if wide else left.T @ left)[1][:, ::-1][:, :n_directions]
    directions = (left.T @ vectors if wide else vectors).T
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    beside = (left**2).sum(axis=1) - ((left @ directions.T) ** 2).sum(axis=1)
    others = max(left.shape[1] - n_directions, 1)
    noise = float(np.sqrt(max(np.median(beside), 0.0) / others))  # the median: rows that are no mixtures don't count
    return Level(mean, directions, noise, float(heights.mean()))


def find_rays(extremes: Floats, anchors: Floats, level: Level) -> Rays | None:
    """Find the smallest simplex that holds extreme rows up to noise.

    extremes (m, p), anchors (k, p): rows of the data. Returns None if the anchors are no simplex.
    """
    corners, points = _places(anchors, level)[0], _places(extremes, level)
    inside = np.concatenate([points[0][points[1]], corners])
    found = enclosing_simplex(inside, corners, _SLACK * level.noise)
    if found is None:
        return None
    rays = np.maximum(found.vertices @ level.directions + level.mean, 0.0) * level.height
    return Rays(rays, found.growth, found.outside, found.converged)


def _places(rows: Floats, level: Level) -> tuple[Floats, NDArray[np.bool_]]:
    """Places of rows of height one, and which of them are no further outside the subspace than noise."""
    left = rows / rows.sum(axis=1, keepdims=True) - level.mean
    places, energy = left @ level.directions.T, (left**2).sum(axis=1)
    most = _FOREIGN * level.noise**2 * (left.shape[1] - places.shape[1]) + _ROUNDING * energy
    return places, energy - (places**2).sum(axis=1) <= most
