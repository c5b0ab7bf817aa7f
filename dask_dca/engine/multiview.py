"""The passes that find where a mixture's means lie: products between views, signatures, tails of directions.

A view is a group of features. Given the component, noise is independent between views; so what two views have in
common lies in the span of the means. All sums over rows are exact: their bits don't depend on blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.scaling import scaled_tiles
from dask_dca.engine.tiles import tile_height
from dask_dca.geometry.exact import Total, power_of_two, product_total
from dask_dca.kernels.lloyd import squared_distances

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.scaling import Scaling

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = [
    "cross_moments",
    "label_moments",
    "power_moments",
    "signature_moments",
]

_FINE: Final = 2.0**-14  # standard deviations; values up to 32 of them take one digit
_WHOLE: Final = 2.0**-19  # what lies in [-1, 1] takes one digit


@dataclass(frozen=True)
class _Products:
    """What a pass of products between views needs."""

    scaling: Scaling
    views: tuple[Numbers, ...]
    height: int
    weights: Floats  # (p, c): scaled rows are seen through these
    spreads: Floats  # (c,): standard deviations of what is seen


@dataclass(frozen=True)
class _Labelled(_Products):
    """The same, for soft assignments of rows to centres, from the other views."""

    centres: Floats  # (k, c)
    others: Floats  # (views, c): which columns each view's assignments come from
    precision: float


def cross_moments(
    rows: Rows, scaling: Scaling, views: tuple[Numbers, ...], weights: Floats, spreads: Floats, run: Run
) -> list[Floats]:
    """
    Multiply every view by bounded random functions of the others.

    Parameters
    ----------
    rows : Rows
        The data.
    scaling : Scaling
        How rows are scaled.
    views : tuple of ndarray of int64
        Features of each view.
    weights : ndarray of float64, shape (p, v m)
        Random combinations of features, m for each view, none of its own features in them.
    spreads : ndarray of float64, shape (v m,)
        Standard deviations of the combinations.
    run : Run
        How passes are run.

    Returns
    -------
    list of ndarray of float64, shapes (p_i, m)
        Sum of y_i^T tanh(g / std g) for each view.
    """
    state = _Products(scaling, views, _height(rows), weights, spreads)
    return _run_products(rows, Pass("cross", _cross_block, add_parts), state, run)


def power_moments(
    rows: Rows, scaling: Scaling, views: tuple[Numbers, ...], bases: Floats, spreads: Floats, run: Run
) -> list[Floats]:
    """
    Multiply every view by what the other views' bases see: a power step between views.

    Parameters
    ----------
    rows : Rows
        The data.
    scaling : Scaling
        How rows are scaled.
    views : tuple of ndarray of int64
        Features of each view.
    bases : ndarray of float64, shape (p, v m)
        Bases of the views, side by side, zero outside their own features.
    spreads : ndarray of float64, shape (v m,)
        Standard deviations of the rows' coordinates.
    run : Run
        How passes are run.

    Returns
    -------
    list of ndarray of float64, shapes (p_i, (v - 1) m)
        Sum of y_i^T [y_j U_j / std] over the other views j.
    """
    state = _Products(scaling, views, _height(rows), bases, spreads)
    return _run_products(rows, Pass("power", _power_block, add_parts), state, run)


def label_moments(
    rows: Rows,
    scaling: Scaling,
    views: tuple[Numbers, ...],
    bases: Floats,
    centres: Floats,
    others: Floats,
    precision: float,
    run: Run,
) -> list[Floats]:
    """
    Multiply every view by soft assignments of the rows that the other views make.

    Parameters
    ----------
    rows : Rows
        The data.
    scaling : Scaling
        How rows are scaled.
    views : tuple of ndarray of int64
        Features of each view.
    bases : ndarray of float64, shape (p, c)
        Bases of the views, side by side.
    centres : ndarray of float64, shape (k, c)
        Centres of the clusters in the bases' coordinates.
    others : ndarray of float64, shape (v, c)
        One where a coordinate belongs to another view than the row's.
    precision : float
        One over the variance of a coordinate inside a cluster.
    run : Run
        How passes are run.

    Returns
    -------
    list of ndarray of float64, shapes (p_i, k)
        Sum of y_i^T q for each view, q the assignments.
    """
    spreads = np.ones(bases.shape[1])
    state = _Labelled(scaling, views, _height(rows), bases, spreads, centres, others, precision)
    return _run_products(rows, Pass("label", _label_block, add_parts), state, run)


def signature_moments(rows: Rows, scaling: Scaling, bases: Floats, spreads: Floats, run: Run) -> tuple[Floats, Floats]:
    """
    Sum the coordinates of rows and their products.

    Parameters
    ----------
    rows : Rows
        The data.
    scaling : Scaling
        How rows are scaled.
    bases : ndarray of float64, shape (p, c)
        Bases of the views, side by side.
    spreads : ndarray of float64, shape (c,)
        Standard deviations of the coordinates.
    run : Run
        How passes are run.

    Returns
    -------
    mean : ndarray of float64, shape (c,)
        Mean coordinates.
    covariance : ndarray of float64, shape (c, c)
        Their covariance.
    """
    state = _Products(scaling, (), _height(rows), bases, spreads)
    job = Pass("signature", _signature_block, add_parts)
    (total,) = run_pass(rows, job, state, run)
    sums = total.value()
    mean = sums[-1, :-1] / sums[-1, -1]
    covariance = sums[:-1, :-1] / sums[-1, -1] - np.outer(mean, mean)
    return mean * spreads, covariance * np.outer(spreads, spreads)


def _height(rows: Rows) -> int:
    return tile_height(rows.n_rows, rows.n_features)


def _run_products(rows: Rows, job: Pass[list[Total]], state: _Products, run: Run) -> list[Floats]:
    return [total.value() for total in run_pass(rows, job, state, run)]


def _view_products(
    state: _Products, start: int, columns: Sequence[Any], factors: Callable[[Floats], list[Floats]], unit: float
) -> list[Total]:
    """Exact sums of view times factors over the rows of a block, for every view."""
    units = [_FINE * power_of_two(state.scaling.deviations[view]) for view in state.views]
    found: list[list[Total]] = []
    for numbers, tile in scaled_tiles(state.scaling, state.height, start, columns):
        n, right = len(numbers), factors(tile)
        found.append(
            [
                product_total(np.ascontiguousarray(tile[:n, view]), factor[:n], own, np.full(factor.shape[1], unit))
                for view, factor, own in zip(state.views, right, units, strict=True)
            ]
        )
    if not found:
        nothing = factors(np.zeros((state.height, len(state.weights))))
        found = [
            [
                product_total(np.zeros((0, len(view))), factor[:0], own, np.full(factor.shape[1], unit))
                for view, factor, own in zip(state.views, nothing, units, strict=True)
            ]
        ]
    return add_parts(found)


def _cross_block(state: _Products, start: int, *columns: Any) -> list[Total]:
    def factors(tile: Floats) -> list[Floats]:
        seen = np.tanh((tile @ state.weights) / state.spreads)
        return np.split(seen, len(state.views), axis=1)

    return _view_products(state, start, columns, factors, _WHOLE)


def _power_block(state: _Products, start: int, *columns: Any) -> list[Total]:
    def factors(tile: Floats) -> list[Floats]:
        parts = np.split((tile @ state.weights) / state.spreads, len(state.views), axis=1)
        return [np.hstack(parts[:i] + parts[i + 1 :]) for i in range(len(parts))]

    return _view_products(state, start, columns, factors, _FINE)


def _label_block(state: _Labelled, start: int, *columns: Any) -> list[Total]:
    def factors(tile: Floats) -> list[Floats]:
        seen = tile @ state.weights
        return [_assignments(seen * other, state.centres * other, state.precision) for other in state.others]

    return _view_products(state, start, columns, factors, _WHOLE)


def _assignments(seen: Floats, centres: Floats, precision: float) -> Floats:
    """Posterior of spherical components of equal weight."""
    scores = squared_distances(seen, centres) * (-0.5 * precision)
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def _signature_block(state: _Products, start: int, *columns: Any) -> list[Total]:
    width = state.weights.shape[1] + 1
    found = [[product_total(np.zeros((0, width)), np.zeros((0, width)), _FINE, _FINE)]]
    for numbers, tile in scaled_tiles(state.scaling, state.height, start, columns):
        lifted = np.ones((len(numbers), width))
        lifted[:, :-1] = ((tile @ state.weights) / state.spreads)[: len(numbers)]
        found.append([product_total(lifted, lifted, _FINE, _FINE)])
    return add_parts(found)
