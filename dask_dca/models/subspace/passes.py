"""Passes of subspace clustering: the sketch, coordinates of rows in it, labels, and extremes of every cone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.anchoring.completion import complete_or_zero_block, has_missing_entries
from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import Rows
from dask_dca.engine.tiles import even_tiles, require_finite, tile_height
from dask_dca.engine.types import add_parts, stack_parts
from dask_dca.geometry import planes
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import Total, product_total
from dask_dca.geometry.low_rank import LowRank
from dask_dca.geometry.moments import top_eigenpairs
from dask_dca.geometry.votes import ArgBest
from dask_dca.models.subspace.clusters import MIN_HEIGHT, ClusterRule, label_rows
from dask_dca.models.subspace.landmarks import quantise

_MAX_GRAM_FEATURES: Final = 1024  # most features for which the p x p second moments are summed
_OVERSAMPLING: Final = 10  # directions of a power step beyond those that are kept
_N_POWER_STEPS: Final = 2  # power steps of the sketch of wider data
_ROUNDING_UNIT: Final = 2.0**-19  # entries of unit vectors are rounded to its multiples, whose sums are exact
_MAX_SQUARED_LENGTH: Final = 1e100  # rows of greater squared length, or of less than one over this, are rescaled
_ANY_N_ROWS: Final = 2**30  # number of rows for `tile_height`, so that heights depend on the features alone
_MIN_RELATIVE_NOISE: Final = 1e-6  # least noise variance of the sketch's low-rank model, relative to its first energy
_MIN_SLAB_ROWS: Final = 4096  # tiles are joined up to so many rows before they are labelled


def unit_rows(tile: Floats) -> Floats:
    """Scale rows to unit length.

    tile (m, p): finite rows of any magnitude. Returns (m, p): unit vectors, or zeros for rows of zeros.
    """
    exponent = np.frexp(np.abs(tile).max(axis=1, initial=0.0))[1]
    scaled = np.ldexp(tile, -exponent[:, None])
    length = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
    return scaled / np.where(length > 0.0, length, 1.0)


def placed_tiles(columns: Sequence[Any], start: int, basis: Floats | None) -> Iterator[tuple[Numbers, Floats]]:
    """Cut a block into tiles and project their rows on the sketch.

    basis (p, d): directions of the sketch; None if the rows are coordinates already. Yields numbers (m,): row numbers;
    placed (m, d): quantised coordinates of unit length; zeros for a row of zeros or orthogonal to the sketch.
    Raises NotFiniteError: a row contains NaN or infinity.
    """
    height = tile_height(_ANY_N_ROWS, sum(part.shape[1] for part in columns))
    for numbers, tile in even_tiles(columns, start, height):
        count = len(numbers)
        if basis is None:
            yield numbers, tile[:count]
            continue
        require_finite(tile[:count], numbers)
        yield numbers, quantise(unit_rows(_scale_extreme_rows(tile) @ basis))[:count]


def _scale_extreme_rows(tile: Floats) -> Floats:
    """Scale rows whose squares might overflow or underflow."""
    energy = np.einsum("ij,ij->i", tile, tile)
    extreme = np.flatnonzero(~((energy > 1.0 / _MAX_SQUARED_LENGTH) & (energy < _MAX_SQUARED_LENGTH)))
    if not len(extreme):
        return tile
    scaled = tile.copy()
    exponent = np.frexp(np.abs(tile[extreme]).max(axis=1))[1]
    scaled[extreme] = np.ldexp(tile[extreme], -exponent[:, None])
    return scaled


def leading_directions(rows: Rows, count: int, run: Run) -> tuple[Floats, Floats]:
    """Compute the leading eigenvectors of the uncentred second moments of unit rows.

    Sums are exact; of more than 1,024 features randomised power steps replace the p x p moments.
    rows: a sample of the data; count: number of directions d, at most p. Returns directions (p, d): orthonormal, by
    decreasing energy; energies (d,): mean squared coordinates.
    """
    p = rows.n_features
    if p <= _MAX_GRAM_FEATURES:
        moments = _moments(rows, None, run)
        with one_blas_thread():
            values, vectors = top_eigenpairs(moments, count)
        return vectors[:, ::-1], np.maximum(values[::-1], 0.0) / rows.n_rows
    width = min(p, count + _OVERSAMPLING)
    basis = ndtri(planes.uniforms(planes.child_seeds(0, np.arange(p)), width))
    for _ in range(_N_POWER_STEPS):
        basis = _moments(rows, _orthonormal(basis), run)
    basis = _orthonormal(basis)
    image = _moments(rows, basis, run)
    with one_blas_thread():
        inner = basis.T @ image
        values, vectors = top_eigenpairs((inner + inner.T) / 2.0, count)
        return basis @ vectors[:, ::-1], np.maximum(values[::-1], 0.0) / rows.n_rows


def _orthonormal(vectors: Floats) -> Floats:
    with one_blas_thread():
        return np.ascontiguousarray(np.linalg.qr(vectors)[0])


def _moments(rows: Rows, basis: Floats | None, run: Run) -> Floats:
    """Exact sums of x x^T over unit rows, or of x (x B) for a basis B."""
    return run_pass(rows, Pass("sketch", _moment_block, add_parts), basis, run).value()


def _moment_block(basis: Floats | None, start: int, *columns: Any) -> Total:
    p = sum(part.shape[1] for part in columns)
    total = Total(np.zeros((1, p, p if basis is None else basis.shape[1])), np.float64(_ROUNDING_UNIT**2))
    height = tile_height(_ANY_N_ROWS, p)
    for numbers, tile in even_tiles(columns, start, height):
        require_finite(tile[: len(numbers)], numbers)
        unit = unit_rows(tile)
        right = unit if basis is None else unit @ basis
        total += product_total(unit, right, _ROUNDING_UNIT, _ROUNDING_UNIT)
    return total


def coordinates(rows: Rows, basis: Floats, run: Run) -> Floats:
    """Compute the coordinates of all rows of a sample on the driver.

    basis (p, d): directions of the sketch. Returns (n, d): quantised, in the order of the rows.
    """
    job = Pass("place", _place_block, stack_parts)
    return run_pass(rows, job, basis, run)


def _place_block(basis: Floats, start: int, *columns: Any) -> Floats:
    return stack_parts([np.zeros((0, basis.shape[1])), *(placed for _, placed in placed_tiles(columns, start, basis))])


@dataclass(frozen=True)
class ConePlanes:
    """Random planes of each cluster, in coordinates of the sketch; quantised."""

    basis: Floats | None  # (p, d), directions of the sketch; None if rows are coordinates already
    rule: ClusterRule
    axes: Floats  # (k, d), mean directions of clusters
    directions: Floats  # (k, s, r), directions of the planes in the clusters' frames
    frames: Floats  # (k, d, r), bases of the clusters' subspaces


@dataclass(frozen=True)
class ClusterExtremes:
    """Extreme rows of each cluster by signed direction, and the size of each cluster."""

    cones: list[ArgBest]
    sizes: Floats  # (k + 1,), total weights of clusters, and of zero rows


def cone_extremes(rows: Rows, planes: ConePlanes, run: Run) -> ClusterExtremes:
    """Find the rows of least and greatest ratio on each plane of their own cluster.

    rows: the data, or their coordinates. Comparisons are exact and ties go to the lower row number, whatever the
    chunks are.
    """
    return run_pass(rows, Pass("divide", _divide_block, _merge, weighted=True), planes, run)


def observed_label_block(
    state: tuple[Floats, ClusterRule, LowRank | Floats | None], start: int, *columns: Any
) -> Floats:
    """Impute missing entries of a block and label its rows; a row without an observed entry gets -1.

    state: the sketch, the rule, and the low-rank model that imputes, or the energies of the sketch's directions, of
    which one is made; without either, missing entries are an error. Returns (n, 1), as `label_block` does.
    """
    sketch, rule, model = state
    if model is None or not has_missing_entries(columns):
        return label_block((sketch, rule), start, *columns)
    completion = model if isinstance(model, LowRank) else _low_rank_of_sketch(sketch, model)
    return label_block((sketch, rule), start, complete_or_zero_block(completion, start, *columns))


def _low_rank_of_sketch(sketch: Floats, energies: Floats) -> LowRank:
    """Probabilistic PCA of the sketch: the last energy is the noise variance."""
    (p, d), least = sketch.shape, max(float(energies[-1]), _MIN_RELATIVE_NOISE * float(energies[0]))
    deviations = np.sqrt(np.maximum(energies - least, 0.0) / (sketch**2).sum(axis=0))
    return LowRank(np.zeros(p), sketch * deviations, np.broadcast_to(0.0, (p, d, d)), least)


def label_block(state: tuple[Floats | None, ClusterRule], start: int, *columns: Any) -> Floats:
    """Label the rows of a block.

    state: basis of the sketch, and the rule; start: row number of the first row. Returns (n, 1): labels.
    """
    basis, rule = state
    found = [label_rows(placed, rule).astype(np.float64) for _, placed in placed_tiles(columns, start, basis)]
    return np.concatenate([np.zeros(0), *found])[:, None]


def _no_extremes(planes: ConePlanes) -> ClusterExtremes:
    k, s, r = len(planes.axes), planes.directions.shape[1], planes.frames.shape[2]
    none = ArgBest.empty(2 * s, r)
    return ClusterExtremes([none] * k, np.zeros(k + 1))


def _divide_block(planes: ConePlanes, start: int, *columns: Any, weights: Floats | None = None) -> ClusterExtremes:
    k = len(planes.axes)
    found = _no_extremes(planes)
    cones, sizes = list(found.cones), found.sizes
    for numbers, placed in _slabs(placed_tiles(columns, start, planes.basis)):
        labels = label_rows(placed, planes.rule)
        counts = None if weights is None else weights[numbers - start]  # multiples of one unit: sums are exact
        sizes = sizes + np.bincount(np.where(labels < 0, k, labels), counts, minlength=k + 1)
        for cluster in np.unique(labels[labels >= 0]).tolist():
            own = labels == cluster
            cones[cluster] += _extremes(planes, cluster, numbers[own], placed[own])
    return ClusterExtremes(cones, sizes)


def _slabs(tiles: Iterator[tuple[Numbers, Floats]]) -> Iterator[tuple[Numbers, Floats]]:
    """Join small tiles, to save calls for few rows of each cluster."""
    waiting: list[tuple[Numbers, Floats]] = []
    for tile in tiles:
        waiting.append(tile)
        if sum(len(numbers) for numbers, _ in waiting) >= _MIN_SLAB_ROWS:
            yield tuple(np.concatenate(parts) for parts in zip(*waiting, strict=True))  # type: ignore[misc]
            waiting = []
    if waiting:
        yield tuple(np.concatenate(parts) for parts in zip(*waiting, strict=True))  # type: ignore[misc]


def _extremes(planes: ConePlanes, cluster: int, numbers: Numbers, placed: Floats) -> ArgBest:
    """Extreme rows of one cluster; products of quantised vectors are exact, so bits don't depend on tiles."""
    along = placed @ planes.axes[cluster]
    tall = np.flatnonzero(along >= MIN_HEIGHT)
    if not len(tall):
        return _no_extremes(planes).cones[cluster]
    inside = placed[tall] @ planes.frames[cluster]
    ratios = planes.directions[cluster] @ quantise(inside).T  # one row per direction: contiguous for argmax
    ratios /= along[tall]
    high, low = ratios.argmax(axis=1), ratios.argmin(axis=1)
    every = np.arange(len(ratios))
    heights = np.concatenate([ratios[every, high], -ratios[every, low]])
    best = np.concatenate([high, low])
    at = tall[best]
    return ArgBest(heights, numbers[at], inside[best] / along[at, None])


def _merge(parts: Sequence[ClusterExtremes]) -> ClusterExtremes:
    cones = [add_parts(same) for same in zip(*(part.cones for part in parts), strict=True)]
    return ClusterExtremes(cones, np.sum([part.sizes for part in parts], axis=0))
