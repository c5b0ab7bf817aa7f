"""Rays of a cone around the rows that need not pass through any row: vertices of a simplex around scaled rows.

First the smallest simplex around extreme rows; then, if no row is pure, the one of greatest likelihood near it, given
the rows of a sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.geometry.arrays import Floats
from dask_dca.geometry.simplex import add_ones, enclosing_simplex, likely_simplex

MIN_GROWTH: Final = 1.1  # basis="auto" takes rays if the smallest simplex is this much larger than the anchors'

_SLACK: Final = 1.25  # extreme rows may be outside the simplex by this many standard deviations of the noise
_MAX_RESIDUAL: Final = 4.0  # maximum energy of a mixture's residual, relative to the noise outside the subspace
_ROUNDING: Final = 1e-12  # energy of residuals that is rounding, relative to the row
_MAX_LIKELY_ROWS: Final = 2**13  # maximum number of rows that the simplex of greatest likelihood is fitted to
_CHANCE_FACTOR: Final = 3.0  # the axis is shrunk to the even one by this many times what chance explains
_MIN_SPREAD: Final = 2.5  # minimum spread of rows in every direction, in standard deviations of the noise
_MAX_HEIGHT_RATIO: Final = 4.0  # maximum ratio of the factors by which an axis changes the heights of rows


@dataclass(frozen=True)
class Level:
    """The affine subspace of rows that are scaled to height one on an axis.

    axis (p,): a row's height is its product with this; mean (p,), directions (r, p): origin and orthonormal directions
    of the subspace; noise: standard deviation outside it; height: mean height of the rows.
    """

    axis: Floats
    mean: Floats
    directions: Floats
    noise: float
    height: float


@dataclass(frozen=True)
class Rays:
    """Rays (k, p); growth of their simplex over the anchors' own; how far rows are outside; whether it converged."""

    rays: Floats
    growth: float
    outside: float
    converged: bool


def find_rows_level(X: Floats, anchors: Floats) -> Level:
    """Choose the axis that rows are scaled by, and fit a subspace of k - 1 dimensions to them, for k anchors (k, p)."""
    by_sums = _level(X, np.ones(X.shape[1]), len(anchors) - 1)
    return _level(X, _even_axis(X, anchors, by_sums), len(anchors) - 1)


def _level(X: Floats, axis: Floats, n_directions: int) -> Level:
    """Scale rows to height one on an axis, and find their leading principal directions."""
    heights = X @ axis
    usable = heights > 0.0
    scaled = X[usable] / heights[usable, None]
    mean = scaled.mean(axis=0)
    centred = scaled - mean
    wide = len(centred) < centred.shape[1]
    vectors = np.linalg.eigh(centred @ centred.T if wide else centred.T @ centred)[1][:, ::-1][:, :n_directions]
    directions = (centred.T @ vectors if wide else vectors).T
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    residual = (centred**2).sum(axis=1) - ((centred @ directions.T) ** 2).sum(axis=1)
    others = max(centred.shape[1] - n_directions, 1)
    noise = float(np.sqrt(max(np.median(residual), 0.0) / others))  # by the median, robust to rows that are no mixtures
    return Level(axis, mean, directions, noise, float(heights.mean()))


def _even_axis(X: Floats, anchors: Floats, by_sums: Level) -> Floats:
    """Find the axis on which the rows' heights vary least, by a regression shrunk for what chance explains.

    If the shares of the rays in each row sum to one, all rays have the same height on it, and scaling leaves the shares
    as they are.
    """
    places, mixed = _project(X, by_sums)
    heights = X[mixed] @ by_sums.axis / by_sums.height
    points = add_ones(places[mixed])
    n, k = points.shape
    if n <= k or places[mixed].std(axis=0).min() < _MIN_SPREAD * by_sums.noise:
        return by_sums.axis
    # regression of height one on the rows; the coefficients before it are those of the axis of sums
    lines, before = points * heights[:, None], np.eye(k)[0] * heights.sum() / (heights**2).sum()
    even = np.linalg.lstsq(lines, np.ones(n))[0]
    left, left_before = (float(((lines @ part - 1.0) ** 2).sum()) for part in (even, before))
    chance = left * (k - 1) / ((n - k) * max(left_before - left, np.finfo(np.float64).tiny))
    changes = np.vstack([points, add_ones(_project(anchors, by_sums)[0])]) @ even
    if changes.max() > _MAX_HEIGHT_RATIO * changes.min():
        return by_sums.axis
    share = max(1.0 - _CHANCE_FACTOR * chance, 0.0)
    line = before + share * (even - before)
    across = by_sums.directions - np.outer(by_sums.directions @ by_sums.mean, by_sums.axis)
    return line[0] * by_sums.axis + line[1:] @ across


def find_rays(extremes: Floats, anchors: Floats, level: Level) -> Rays | None:
    """Find the smallest simplex that contains the extreme rows (m, p), up to noise, starting from the anchors (k, p).

    Returns None if the anchors don't span a simplex.
    """
    corners, (points, mixed) = _project(anchors, level)[0], _project(extremes, level)
    inside = np.concatenate([points[mixed], corners])
    found = enclosing_simplex(inside, corners, _SLACK * level.noise)
    if found is None:
        return None
    return Rays(_to_features(found.vertices, level), found.growth, found.outside, found.converged)


def likely_rays(X: Floats, found: Rays, level: Level) -> Rays:
    """Find the rays of greatest likelihood near the given ones, which stay if noise is too large or rows are pure.

    X (n, p): rows of a sample, with noise of equal variance in all entries.
    """
    heights = X @ level.axis
    usable = np.flatnonzero(heights > 0.0)
    usable = usable[:: -(-len(usable) // _MAX_LIKELY_ROWS)]
    places, mixed = _project(X[usable], level)
    noise = level.noise * level.height / heights[usable]
    start = _project(found.rays, level)[0]
    vertices = likely_simplex(places[mixed], noise[mixed], start) if found.growth > MIN_GROWTH else None
    return found if vertices is None else replace(found, rays=_to_features(vertices, level))


def _to_features(vertices: Floats, level: Level) -> Floats:
    """Map vertices in the subspace to rays (k, p), at the mean height of the rows."""
    return np.maximum(vertices @ level.directions + level.mean, 0.0) * level.height


def _project(rows: Floats, level: Level) -> tuple[Floats, NDArray[np.bool_]]:
    """Coordinates in the subspace of rows scaled to height one; and which rows are in it up to noise: mixtures."""
    heights = rows @ level.axis
    left = rows / np.where(heights > 0.0, heights, np.inf)[:, None] - level.mean
    places, energy = left @ level.directions.T, (left**2).sum(axis=1)
    bound = _MAX_RESIDUAL * level.noise**2 * (left.shape[1] - places.shape[1]) + _ROUNDING * energy
    return places, (energy - (places**2).sum(axis=1) <= bound) & (heights > 0.0)
