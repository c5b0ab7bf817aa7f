"""Rays that no row is on: a simplex around rows of height one.

First the smallest around extreme rows; then, where no row is pure, the likeliest around rows of a sample, near it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.simplex import add_ones, enclosing_simplex, likely_simplex

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats


GROWN: Final = 1.1  # growth of the simplex beyond the anchors' own from which they are not the rays

_SLACK: Final = 1.25  # of the noise's deviation, by which extreme rows may stick out
_FOREIGN: Final = 4.0  # of the noise's energy outside the subspace, from which a row is no mixture
_ROUNDING: Final = 1e-12
_MOST: Final = 2**13  # rows that the likeliest simplex is sought around
_CHANCE: Final = 3.0  # times what chance explains of heights, an axis must explain
_CLEAR: Final = 2.5  # deviations of the noise, that rows differ by in any direction, if heights on it are to say much
_UNEVEN: Final = 4.0  # between rows, of heights on it over those on ones, from which an axis is none of shares


@dataclass(frozen=True)
class Level:
    """Where rows lie that are divided by their height on an axis (p,).

    mean (p,), leading directions (r, p), the noise's deviation, and the mean height.
    """

    axis: Floats
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


def find_subspace(X: Floats, anchors: Floats) -> Level:
    """Find the axis that rows are divided by, the directions that they then lead in, as many as anchors (k, p) span."""
    flat = _level(X, np.ones(X.shape[1]), len(anchors) - 1)
    return _level(X, _even_axis(X, anchors, flat), len(anchors) - 1)


def _level(X: Floats, axis: Floats, n_directions: int) -> Level:
    heights = X @ axis
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
    return Level(axis, mean, directions, noise, float(heights.mean()))


def _even_axis(X: Floats, anchors: Floats, flat: Level) -> Floats:
    """Find the axis on which rows are most nearly of one height, as far as chance would not bring that.

    Where shares sum to one rays are of one height on it, and shares keep their distribution.
    """
    places, native = _places(X, flat)
    heights = X[native] @ flat.axis / flat.height
    points = add_ones(places[native])
    n, k = points.shape
    if n <= k or places[native].std(axis=0).min() < _CLEAR * flat.noise:
        return flat.axis
    lines, flattest = points * heights[:, None], np.eye(k)[0] * heights.sum() / (heights**2).sum()
    even = np.linalg.lstsq(lines, np.ones(n))[0]
    left, uneven = (float(((lines @ part - 1.0) ** 2).sum()) for part in (even, flattest))
    chance = left * (k - 1) / ((n - k) * max(uneven - left, np.finfo(np.float64).tiny))
    changes = np.vstack([points, add_ones(_places(anchors, flat)[0])]) @ even
    if changes.max() > _UNEVEN * changes.min():
        return flat.axis
    share = max(1.0 - _CHANCE * chance, 0.0)
    line = flattest + share * (even - flattest)
    return line[0] * flat.axis + line[1:] @ (flat.directions - np.outer(flat.directions @ flat.mean, flat.axis))


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
    heights = X @ level.axis
    usable = np.flatnonzero(heights > 0.0)
    usable = usable[:: -(-len(usable) // _MOST)]
    places, native = _places(X[usable], level)
    noise = level.noise * level.height / heights[usable]
    start = _places(found.rays, level)[0]
    vertices = likely_simplex(places[native], noise[native], start) if found.growth > GROWN else None
    return found if vertices is None else replace(found, rays=_at_height(vertices, level))


def _at_height(vertices: Floats, level: Level) -> Floats:
    return np.maximum(vertices @ level.directions + level.mean, 0.0) * level.height


def _places(rows: Floats, level: Level) -> tuple[Floats, NDArray[np.bool_]]:
    """Places of rows of height one, and which of them are no further outside the subspace than noise."""
    heights = rows @ level.axis
    left = rows / np.where(heights > 0.0, heights, np.inf)[:, None] - level.mean
    places, energy = left @ level.directions.T, (left**2).sum(axis=1)
    most = _FOREIGN * level.noise**2 * (left.shape[1] - places.shape[1]) + _ROUNDING * energy
    return places, (energy - (places**2).sum(axis=1) <= most) & (heights > 0.0)
