"""What runs on blocks for subspace clustering: rows in the coordinates of a sketch, labels, extremes of every cone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.anchoring.completion import complete_or_zero_block, has_missing_entries
from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import even_tiles, require_finite, tile_height
from dask_dca.engine.types import add_parts, stack_parts
from dask_dca.geometry import planes
from dask_dca.geometry.exact import Total, product_total
from dask_dca.geometry.low_rank import LowRank
from dask_dca.geometry.moments import top_eigenpairs
from dask_dca.geometry.votes import ArgBest
from dask_dca.models.subspace.clusters import ClusterRule, label_rows
from dask_dca.models.subspace.landmarks import quantise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers


_WIDEST: Final = 1024  # more features than this are sketched by power steps instead of p x p moments
_SPARE: Final = 10  # directions of a power step beyond those that are kept
_STEPS: Final = 2
_UNIT: Final = 2.0**-19  # entries of unit vectors are rounded to this before they are summed exactly: one digit
_FAR: Final = 1e100  # squared lengths above this, or below one over this, are scaled before use
_ANY_N: Final = 2**30  # heights of tiles depend on the features alone, so that a row has one set of coordinates
_LEAST_NOISE: Final = 1e-6  # of the greatest energy along a direction of the sketch, where it fills missing entries
_LEAST_HEIGHT: Final = 0.05  # along the mean direction of the cluster: rows nearly across it have no stable ratio
_SLAB: Final = 4096  # rows that are labelled and compared together, about


@dataclass(frozen=True)
class _MomentState:
    """The basis of a power step; None: whole moments."""

    n_features: int
    basis: Floats | None


def unit_rows(tile: Floats) -> Floats:
    """Scale rows to unit length.

    tile (m, p): finite rows of any magnitude. Returns (m, p): rows of length one, or of zeros.
    """
    exponent = np.frexp(np.abs(tile).max(axis=1, initial=0.0))[1]
    scaled = np.ldexp(tile, -exponent[:, None])
    length = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
    return scaled / np.where(length > 0.0, length, 1.0)


def placed_tiles(columns: Sequence[Any], start: int, basis: Floats | None) -> Iterator[tuple[Numbers, Floats]]:
    """Cut a block into tiles of coordinates.

    basis (p, d): directions of the sketch; None if the rows are coordinates already. Returns numbers (m,): row numbers;
    placed (m, d): quantised coordinates of unit length; zeros for a row of zeros or without any part in the sketch.
    Raises NotFiniteError: A row holds NaN or infinity.
    """
    height = tile_height(_ANY_N, sum(part.shape[1] for part in columns))
    for numbers, tile in even_tiles(columns, start, height):
        count = len(numbers)
        if basis is None:
            yield numbers, tile[:count]
            continue
        require_finite(tile[:count], numbers)
        yield numbers, quantise(unit_rows(_of_usual_size(tile) @ basis))[:count]


def _of_usual_size(tile: Floats) -> Floats:
    """Scale rows whose squares might overflow or vanish; products of the others have the scale of the row."""
    energy = np.einsum("ij,ij->i", tile, tile)
    extreme = np.flatnonzero(~((energy > 1.0 / _FAR) & (energy < _FAR)))
    if not len(extreme):
        return tile
    scaled = tile.copy()
    exponent = np.frexp(np.abs(tile[extreme]).max(axis=1))[1]
    scaled[extreme] = np.ldexp(tile[extreme], -exponent[:, None])
    return scaled


def leading_directions(rows: Rows, count: int, run: Run) -> tuple[Floats, Floats]:
    """Find the leading directions of the uncentred second moments of unit rows.

    Sums are exact; wide data are seen through power steps.
    rows: A sample of the data; count: how many directions d, at most p. Returns directions (p, d): orthonormal columns,
    those of greatest energy first; energies (d,): mean squared coordinates; not negative.
    """
    p = rows.n_features
    if p <= _WIDEST:
        moments = _moments(rows, None, run)
        with one_blas_thread():
            values, vectors = top_eigenpairs(moments, count)
        return vectors[:, ::-1], np.maximum(values[::-1], 0.0) / rows.n_rows
    width = min(p, count + _SPARE)
    basis = ndtri(planes.uniforms(planes.child_seeds(0, np.arange(p)), width))
    for _ in range(_STEPS):
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
    """Sum over rows of x x^T, or of x (x B), without rounding errors."""
    job = Pass("sketch", _moment_block, add_parts)
    state = _MomentState(rows.n_features, basis)
    return run_pass(rows, job, state, run).value()


def _moment_block(state: _MomentState, start: int, *columns: Any) -> Total:
    width = state.n_features if state.basis is None else state.basis.shape[1]
    total = Total(np.zeros((1, state.n_features, width)), np.float64(_UNIT**2))
    height = tile_height(_ANY_N, state.n_features)
    for numbers, tile in even_tiles(columns, start, height):
        require_finite(tile[: len(numbers)], numbers)
        unit = unit_rows(tile)
        right = unit if state.basis is None else unit @ state.basis
        total += product_total(unit, right, _UNIT, _UNIT)
    return total


def coordinates(rows: Rows, basis: Floats, run: Run) -> Floats:
    """Bring the coordinates of all rows of a sample to the driver.

    basis (p, d): directions of the sketch. Returns (n, d): quantised, in the order of the rows.
    """
    job = Pass("place", _place_block, stack_parts)
    return run_pass(rows, job, basis, run)


def _place_block(basis: Floats, start: int, *columns: Any) -> Floats:
    return stack_parts([np.zeros((0, basis.shape[1])), *(placed for _, placed in placed_tiles(columns, start, basis))])


@dataclass(frozen=True)
class ConePlanes:
    """The planes of each cluster, in the coordinates of the sketch; all vectors are quantised."""

    basis: Floats | None  # (p, d) of the sketch; None: rows are coordinates
    rule: ClusterRule
    axes: Floats  # (k, d), mean direction of each cluster
    directions: Floats  # (k, s, r), in the frame of each cluster
    frames: Floats  # (k, d, r), in which the places of extreme rows are kept


@dataclass(frozen=True)
class ClusterExtremes:
    """Extreme rows of each cluster, by signed direction, and the number of rows of each."""

    cones: list[ArgBest]
    sizes: Floats  # (k + 1,), the last one of zero rows; by weight


def cone_extremes(rows: Rows, planes: ConePlanes, run: Run) -> ClusterExtremes:
    """Find the rows of least and of greatest ratio on each plane of their own cluster.

    rows: the data, or their coordinates. Returns exact comparisons, ties to the lower row number: the same for any
    chunking.
    """
    return run_pass(rows, Pass("divide", _divide_block, _merge, weighted=True), planes, run)


def observed_label_block(
    state: tuple[Floats, ClusterRule, LowRank | Floats | None], start: int, *columns: Any
) -> Floats:
    """Label the rows of a block, whose missing entries are filled first; a row without any observed entry has no label.

    state: the sketch, the rule, and the low-rank model that fills missing entries, or the energies of the sketch's
    directions, which are one; with neither, missing entries are an error. Returns (n, 1), as `label_block` does.
    """
    sketch, rule, model = state
    if model is None or not has_missing_entries(columns):
        return label_block((sketch, rule), start, *columns)
    completion = model if isinstance(model, LowRank) else _of_sketch(sketch, model)
    return label_block((sketch, rule), start, complete_or_zero_block(completion, start, *columns))


def _of_sketch(sketch: Floats, energies: Floats) -> LowRank:
    """Rows as normal numbers along the directions, as large as there, and noise as large as along the last."""
    (p, d), least = sketch.shape, max(float(energies[-1]), _LEAST_NOISE * float(energies[0]))
    deviations = np.sqrt(np.maximum(energies - least, 0.0) / (sketch**2).sum(axis=0))
    return LowRank(np.zeros(p), sketch * deviations, np.broadcast_to(0.0, (p, d, d)), least)


def label_block(state: tuple[Floats | None, ClusterRule], start: int, *columns: Any) -> Floats:
    """Label the rows of a block.

    state: basis of the sketch, and the rule; start: row number of the block's first row. Returns (n, 1): labels.
    """
    basis, rule = state
    found = [label_rows(placed, rule).astype(np.float64) for _, placed in placed_tiles(columns, start, basis)]
    return np.concatenate([np.zeros(0), *found])[:, None]


def _nothing(planes: ConePlanes) -> ClusterExtremes:
    k, s, r = len(planes.axes), planes.directions.shape[1], planes.frames.shape[2]
    none = ArgBest.empty(2 * s, r)
    return ClusterExtremes([none] * k, np.zeros(k + 1))


def _divide_block(planes: ConePlanes, start: int, *columns: Any, weights: Floats | None = None) -> ClusterExtremes:
    k = len(planes.axes)
    found = _nothing(planes)
    cones, sizes = list(found.cones), found.sizes
    for numbers, placed in _slabs(placed_tiles(columns, start, planes.basis)):
        labels = label_rows(placed, planes.rule)
        counts = None if weights is None else weights[numbers - start]  # multiples of a unit: any order, same sums
        sizes = sizes + np.bincount(np.where(labels < 0, k, labels), counts, minlength=k + 1)
        for cluster in np.unique(labels[labels >= 0]).tolist():
            own = labels == cluster
            cones[cluster] += _extremes(planes, cluster, numbers[own], placed[own])
    return ClusterExtremes(cones, sizes)


def _slabs(tiles: Iterator[tuple[Numbers, Floats]]) -> Iterator[tuple[Numbers, Floats]]:
    """Join tiles: of a few rows in each cluster most time would go to calls."""
    waiting: list[tuple[Numbers, Floats]] = []
    for tile in tiles:
        waiting.append(tile)
        if sum(len(numbers) for numbers, _ in waiting) >= _SLAB:
            yield tuple(np.concatenate(parts) for parts in zip(*waiting, strict=True))  # type: ignore[misc]
            waiting = []
    if waiting:
        yield tuple(np.concatenate(parts) for parts in zip(*waiting, strict=True))  # type: ignore[misc]


def _extremes(planes: ConePlanes, cluster: int, numbers: Numbers, placed: Floats) -> ArgBest:
    """Extremes of the rows of one cluster; products of quantised vectors are exact, so bits do not depend on tiles."""
    along = placed @ planes.axes[cluster]
    tall = np.flatnonzero(along >= _LEAST_HEIGHT)
    if not len(tall):
        return _nothing(planes).cones[cluster]
    inside = placed[tall] @ planes.frames[cluster]
    ratios = planes.directions[cluster] @ quantise(inside).T  # by direction: the fast way round for extremes
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
