"""Rays that no row is on: a simplex around rows of height one.

First the smallest around extreme rows; then, where no row is pure, the likeliest around rows of a sample, near it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.simplex import enclosing_simplex, likely_simplex, linear_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats


GROWN: Final = 1.1  # growth of the simplex beyond the anchors' own from which they are not the rays

_SLACK: Final = 1.25  # of the noise's deviation, by which extreme rows may stick out
_FOREIGN: Final = 4.0  # of the noise's energy outside the subspace, from which a row is no mixture
_ROUNDING: Final = 1e-12
_MOST: Final = 2**13  # rows that the likeliest simplex is sought around


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
    return Rays(_at_height(found.vertices, level), found.growth, found.outside, found.converged)


def likely_rays(X: Floats, found: Rays, level: Level) -> Rays:
    """Find the likeliest rays of a sample, from those that are found; these, if noise is too great or rows are pure.

    X (n, p): rows of the sample, whose entries are equally noisy.
    """
    heights = X.sum(axis=1)
    usable = np.flatnonzero(heights > 0.0)
    usable = usable[:: -(-len(usable) // _MOST)]
    places, native = _places(X[usable], level)
    noise = level.noise * level.height / heights[usable]
    start = _places(found.rays, level)[0]
    vertices = likely_simplex(places[native], noise[native], start) if found.growth > GROWN else None
    if vertices is None:
        return found
    growth = found.growth * linear_size(vertices) / linear_size(start)
    return replace(found, rays=_at_height(vertices, level), growth=growth)


def _at_height(vertices: Floats, level: Level) -> Floats:
    return np.maximum(vertices @ level.directions + level.mean, 0.0) * level.height


def _places(rows: Floats, level: Level) -> tuple[Floats, NDArray[np.bool_]]:
    """Places of rows of height one, and which of them are no further outside the subspace than noise."""
    left = rows / rows.sum(axis=1, keepdims=True) - level.mean
    places, energy = left @ level.directions.T, (left**2).sum(axis=1)
    most = _FOREIGN * level.noise**2 * (left.shape[1] - places.shape[1]) + _ROUNDING * energy
    return places, energy - (places**2).sum(axis=1) <= most
