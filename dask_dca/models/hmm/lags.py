"""Frames and their neighbours: covariances at lags, coordinates in which states differ, tails with their context.

Neighbouring frames are independent given the states, so what they share lies in the span of the states' means: the
noise is gone from covariances at lags, and whitening by the covariance at lag zero makes their singular vectors the
discriminant directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.checks import require_squares
from dask_dca.engine.halo import Halo
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.sequences import pair_mask
from dask_dca.engine.tiles import even_tiles, tile_height
from dask_dca.engine.types import add_parts
from dask_dca.geometry.exact import Total, plain_total, power_of_two, product_total, weighted_total

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.halo import Window
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]
    Mask = NDArray[np.bool_]

__all__ = [
    "LagMoments",
    "LagSketch",
    "LaggedTails",
    "discriminant_coordinates",
    "lag_moments",
    "lag_sketch",
    "principal_coordinates",
    "sketched_coordinates",
    "tails_in_context",
]

_RIDGE: Final = 1e-3  # share of each variance that is added before whitening
_RIDGE_FEW: Final = 0.1  # with fewer than ten frames a feature
_FEW: Final = 10
_FINE: Final = 2.0**-14  # standard deviations: what frames are rounded to before they are multiplied
_LAGS: Final = (1, 2)
_REACH: Final = 2


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
    """Find the directions along which neighbouring frames agree most, relative to all variance.

    Returns coordinates (p, d): W: a frame has coordinates z = (x - mean) @ W, uncorrelated and of about unit variance;
    strengths (p,): singular values of the whitened covariances at lags: how much neighbouring frames share.
    """
    whitener = _whitener(moments)
    lagged = [whitener.T @ lag @ whitener for lag in (moments.lag_one, moments.lag_two)]
    whole = np.hstack([lagged[0], lagged[0].T, lagged[1], lagged[1].T])
    left, strengths, _ = np.linalg.svd(whole, full_matrices=False)
    return whitener @ _with_signs(left[:, :n_coordinates]), strengths


def principal_coordinates(moments: LagMoments, n_coordinates: int) -> Floats:
    """Find the directions of greatest variance among scaled features.

    Returns (p, d): as `discriminant_coordinates` has them.
    """
    scale = _scales(np.diagonal(moments.covariance))
    variances, axes = np.linalg.eigh(moments.covariance * np.outer(scale, scale) + 1e-12 * np.eye(len(scale)))
    top = np.argsort(variances)[::-1][:n_coordinates]
    deviations = np.sqrt(np.maximum(variances[top], 1e-12))
    return scale[:, None] * _with_signs(axes[:, top]) / deviations


def sketched_coordinates(sketch: LagSketch, n_coordinates: int) -> Floats:
    """Find discriminant directions of wide data, whose features are whitened one by one.

    Returns (p, d): as `discriminant_coordinates` has them, except for correlations.
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
    """Reciprocal standard deviations; zero for features that are constant except for rounding."""
    usable = variances > 1e-14 * variances.max(initial=0.0)
    return np.where(usable, 1.0 / np.sqrt(np.where(usable, variances, 1.0)), 0.0)


def _with_signs(axes: Floats) -> Floats:
    """Columns whose entry of greatest magnitude is positive: decompositions leave the sign open."""
    peaks = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    return axes * np.where(peaks < 0.0, -1.0, 1.0)


@dataclass(frozen=True)
class _Lagged:
    """Frames about a centre, and what they are rounded to."""

    edges: Numbers
    centre: Floats  # (p,)
    units: Floats  # (p,)
    height: int
    basis: Floats | None = None  # (p, m): neighbours are seen through these columns alone
    basis_units: Floats | None = None  # (m,)


@dataclass(frozen=True)
class LaggedTails:
    """The frames furthest out along signed directions, averaged.

    counts (2 s,): frames in each tail; present (2 s, d): their mean; context (2 s, 2 d): mean of their predecessors and
    of their successors; zero where there is none.
    """

    counts: Floats
    present: Floats
    context: Floats


def lag_moments(rows: Rows, edges: Numbers, centre: Floats, spreads: Floats, run: Run) -> LagMoments:
    """Sum the products of frames with themselves and with their successors: the moment pass.

    edges (m + 1,): first frame of each sequence, and the number of frames; centre, spreads (p,): A point amid the
    frames, and their rough standard deviations. Returns mean, covariance, and covariances at lags one and two.
    """
    state = _lagged(rows, edges, centre, spreads)
    total = run_pass(rows, Pass("moments", _moment_block, add_parts, Halo(after=_REACH)), state, run).value()
    p, n = len(centre), rows.n_rows
    pairs = [int(np.maximum(np.diff(edges) - lag, 0).sum()) for lag in _LAGS]
    mean = total[p, :p] / n
    covariance = total[:p, :p] / n - np.outer(mean, mean)
    lagged = [total[:p, (1 + i) * p : (2 + i) * p] / max(pairs[i], 1) - np.outer(mean, mean) for i in range(len(_LAGS))]
    return LagMoments(n, centre + mean, covariance, lagged[0], lagged[1])


def lag_sketch(rows: Rows, edges: Numbers, centre: Floats, spreads: Floats, basis: Floats, run: Run) -> LagSketch:
    """Sum the products of frames with what a few columns see of their neighbours: the moment pass of wide data.

    basis (p, m): the columns. Returns mean, variances, and the products.
    """
    seen = np.sqrt(((basis * spreads[:, None]) ** 2).sum(axis=0))
    state = _lagged(rows, edges, centre, spreads, basis, _FINE * power_of_two(seen))
    job: Pass[tuple[Total, Total, Total]] = Pass("moments", _sketch_block, add_parts, Halo(_REACH, _REACH))
    sums, squares, products = run_pass(rows, job, state, run)
    n, mean = rows.n_rows, sums.value() / rows.n_rows
    return LagSketch(n, centre + mean, squares.value() / n - mean**2, products.value() / n)


def _lagged(
    rows: Rows,
    edges: Numbers,
    centre: Floats,
    spreads: Floats,
    basis: Floats | None = None,
    basis_units: Floats | None = None,
) -> _Lagged:
    height = max(tile_height(rows.n_rows, rows.n_features), 64)
    return _Lagged(edges, centre, _FINE * power_of_two(spreads), height, basis, basis_units)


def _stretches(
    state: _Lagged, window: Window, columns: Sequence[Any], before: int
) -> Iterator[tuple[int, int, int, Floats]]:
    """
    Cut a block into tiles that overlap, so that each frame meets its neighbours.

    Yields the number of the first own frame, how many there are, where they begin in the tile, and the tile, which is
    centred, and zero beyond the data.
    """
    own = state.height - before - _REACH
    last = window.first + columns[0].shape[0]
    for begin in range(window.start, window.stop, own):
        count = min(own, window.stop - begin)
        low, high = max(begin - before, window.first), min(begin + count + _REACH, last)
        parts = [part[low - window.first : high - window.first] for part in columns]
        for numbers, tile in even_tiles(parts, low, state.height):
            require_squares(tile[: len(numbers)], numbers)
            centred = tile - state.centre
            centred[len(numbers) :] = 0.0
            yield begin, count, begin - low, centred


def _shifted(state: _Lagged, values: Floats, begin: int, count: int, at: int, lag: int) -> Floats:
    """The frames at a lag of `count` frames; zero where their sequence has none."""
    there = pair_mask(state.edges, begin, begin + count, lag)
    found = np.zeros((count, values.shape[1]))
    low = max(at + lag, 0)
    high = max(min(at + lag + count, len(values)), low)
    if low < at + lag + count:
        found[low - at - lag : high - at - lag] = values[low:high]
    found[~there] = 0.0
    return found


def _moment_block(state: _Lagged, window: Window, *columns: Any) -> Total:
    p = len(state.centre)
    units = np.append(state.units, 1.0)
    thrice = np.tile(state.units, 1 + len(_LAGS))
    total = product_total(np.zeros((0, p + 1)), np.zeros((0, len(thrice))), units, thrice)
    for begin, count, at, tile in _stretches(state, window, columns, 0):
        present = tile[at : at + count]
        right = np.hstack([present, *(_shifted(state, tile, begin, count, at, lag) for lag in _LAGS)])
        total += product_total(np.hstack([present, np.ones((count, 1))]), right, units, thrice)
    return total


def _sketch_block(state: _Lagged, window: Window, *columns: Any) -> tuple[Total, Total, Total]:
    assert state.basis is not None
    assert state.basis_units is not None
    p, lags = len(state.centre), (1, -1, 2, -2)
    units, right_units = state.units, np.tile(state.basis_units, len(lags))
    squares_unit = state.units**2
    found = [
        plain_total(np.zeros((0, p)), units),
        plain_total(np.zeros((0, p)), squares_unit),
        product_total(np.zeros((0, p)), np.zeros((0, len(right_units))), units, right_units),
    ]
    for begin, count, at, tile in _stretches(state, window, columns, _REACH):
        present, seen = tile[at : at + count], tile @ state.basis
        right = np.hstack([_shifted(state, seen, begin, count, at, lag) for lag in lags])
        found[0] += plain_total(present, units)
        found[1] += plain_total(present**2, squares_unit)
        found[2] += product_total(present, right, units, right_units)
    return found[0], found[1], found[2]


@dataclass(frozen=True)
class _Directions:
    """Signed directions in the coordinates of frames, and the height from which on a frame is in the tail."""

    frames: _Lagged
    coordinates: Floats  # (p, d)
    directions: Floats  # (2 s, d)
    thresholds: Floats  # (2 s,)


def tails_in_context(
    rows: Rows,
    edges: Numbers,
    centre: Floats,
    coordinates: Floats,
    directions: Floats,
    thresholds: Floats,
    run: Run,
) -> LaggedTails:
    """Average the frames furthest out along signed directions, and their neighbours in time: the divide pass.

    coordinates (p, d): A frame x has coordinates z = (x - centre) @ coordinates, of about unit variance; directions (2
    s, d): signed directions; thresholds (2 s,): heights from which on a frame belongs to a tail.
    """
    frames = _lagged(rows, edges, centre, np.ones(len(centre)))
    state = _Directions(frames, coordinates, directions, thresholds)
    total = run_pass(rows, Pass("divide", _tail_block, add_parts, Halo(1, _REACH)), state, run).value()
    d = coordinates.shape[1]
    counts = np.maximum(total[:, [0, 1 + d, 2 + 2 * d]], 1.0)
    groups = [total[:, 1 : 1 + d], total[:, 2 + d : 2 + 2 * d], total[:, 3 + 2 * d :]]
    means = [group / counts[:, [i]] for i, group in enumerate(groups)]
    return LaggedTails(total[:, 0], means[0], np.hstack(means[1:]))


def _tail_block(state: _Directions, window: Window, *columns: Any) -> Total:
    d, sides = state.coordinates.shape[1], len(state.directions)
    units = np.tile(np.append(1.0, np.full(d, _FINE)), 3)
    total = weighted_total(np.zeros((0, sides)), np.zeros((0, len(units))), units, weight_bits=0)
    for begin, count, at, tile in _stretches(state.frames, window, columns, 1):
        seen = tile @ state.coordinates
        beyond = (seen @ state.directions.T)[at : at + count] >= state.thresholds
        with_ones = np.hstack([np.ones((len(seen), 1)), seen])
        values = [_shifted(state.frames, with_ones, begin, count, at, lag) for lag in (0, -1, 1)]
        total += weighted_total(beyond, np.hstack(values), units, weight_bits=0)
    return total
