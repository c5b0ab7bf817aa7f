"""The passes that find where a mixture's means lie: products between views, signatures, tails of directions.

A view is a group of features. Given the component, noise is independent between views; so what two views have in
common lies in the span of the means. All sums over rows are exact: their bits don't depend on blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.held import call
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import tile_height
from dask_dca.engine.types import add_parts
from dask_dca.geometry.exact import Total, power_of_two, product_total
from dask_dca.models.kmeans import kmeans_plusplus, lloyd, squared_distances
from dask_dca.models.mixture.passes import Scaling, scaled_tiles
from dask_dca.models.mixture.start import spreads_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.mixture.start import RowSample, SampledRows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Signatures", "cross_moments", "find_signatures", "label_moments", "power_moments", "signature_moments"]

_FINE: Final = 2.0**-14  # standard deviations; values up to 32 of them take one digit
_WHOLE: Final = 2.0**-19  # what lies in [-1, 1] takes one digit
_SPARE: Final = 10  # columns beyond twice the number of components
_RESUBSTITUTIONS: Final = 2


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
    """Multiply every view by bounded random functions of the others.

    weights (p, v m): random combinations of features, m for each view, none of its own features in them; spreads (v
    m,): standard deviations of the combinations. Returns sum of y_i^T tanh(g / std g) for each view.
    """
    state = _Products(scaling, views, _height(rows), weights, spreads)
    return _run_products(rows, Pass("cross", _cross_block, add_parts), state, run)


def power_moments(
    rows: Rows, scaling: Scaling, views: tuple[Numbers, ...], bases: Floats, spreads: Floats, run: Run
) -> list[Floats]:
    """Multiply every view by what the other views' bases see: a power step between views.

    bases (p, v m): bases of the views, side by side, zero outside their own features; spreads (v m,): standard
    deviations of the rows' coordinates. Returns sum of y_i^T [y_j U_j / std] over the other views j.
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
    """Multiply every view by soft assignments of the rows that the other views make.

    bases (p, c): bases of the views, side by side; centres (k, c): centres of the clusters in the bases' coordinates;
    others (v, c): one where a coordinate belongs to another view than the row's; precision: one over the variance of a
    coordinate inside a cluster. Returns sum of y_i^T q for each view, q the assignments.
    """
    spreads = np.ones(bases.shape[1])
    state = _Labelled(scaling, views, _height(rows), bases, spreads, centres, others, precision)
    return _run_products(rows, Pass("label", _label_block, add_parts), state, run)


def signature_moments(rows: Rows, scaling: Scaling, bases: Floats, spreads: Floats, run: Run) -> tuple[Floats, Floats]:
    """Sum the coordinates of rows and their products.

    bases (p, c): bases of the views, side by side; spreads (c,): standard deviations of the coordinates. Returns mean
    (c,): mean coordinates; covariance (c, c): their covariance.
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


@dataclass(frozen=True)
class Signatures:
    """A linear map from rows to signatures.

    scaling: how rows are centred and scaled first; coordinates, offset: A scaled row y has the signature y @
    coordinates - offset.
    """

    scaling: Scaling
    coordinates: Floats
    offset: Floats

    def places(self, sample: RowSample) -> Floats:
        """Find the signatures of a sample.

        Returns (n, d): their signatures.
        """
        return (sample.rows * self.scaling.factor) @ self.coordinates - self.offset

    def of(self, rows: Floats) -> Floats:
        """Find the signatures of rows.

        rows (n, p): rows. Returns (n, d): their signatures.
        """
        return self.scaling.apply(rows) @ self.coordinates - self.offset

    def leading_axes(self) -> Floats:
        """Find the first two coordinates as directions in features.

        Returns (2, p): rows times these are signatures, but for a constant; the second is zero where there is one
        coordinate.
        """
        axes = np.zeros((2, len(self.scaling.factor)))
        found = (self.coordinates[:, :2] * self.scaling.factor[:, None]).T
        axes[: len(found)] = found
        return axes


def find_signatures(
    rows: Rows,
    sample: SampledRows,
    views: tuple[Numbers, ...] | None,
    n_components: int,
    *,
    given: bool,
    scaled: bool,
    seed: int,
    run: Run,
) -> Signatures:
    """Find the coordinates in which the means differ.

    views: features of each view; None where they are too few for views; given: whether the user gave the views, so that
    they are independent given the component; scaled: whether features are brought to similar variances.
    """
    scaling = _scaling(sample, scaled=scaled)
    if views is None:
        return call(run, "axes", _principal, sample.held, scaling, n_components)
    p, m = rows.n_features, min(2 * n_components + _SPARE, *(len(view) for view in views))

    def _spreads(along: Floats) -> Floats:
        return call(run, "spreads", _spreads_along, sample.held, scaling, along)

    weights = _random_weights(p, views, m, seed)
    products = cross_moments(rows, scaling, views, weights, _spreads(weights), run)
    bases = _leading(products, views, p, m)
    products = power_moments(rows, scaling, views, bases, _spreads(bases), run)
    width = m
    bases = _leading(products, views, p, min(n_components, m) if given else m)
    if given:
        width = max(1, n_components - 1)
        for _ in range(_RESUBSTITUTIONS):
            soft = call(run, "labels", _soft_labels, sample.held, scaling, len(views), bases, n_components, seed)
            bases = _resubstituted(rows, scaling, views, bases, soft, run)
    mean, covariance = signature_moments(rows, scaling, bases, _spreads(bases), run)
    axes = _cross_view_axes(covariance, len(views), width)
    return Signatures(scaling, bases @ axes, mean @ axes)


def _spreads_along(sample: RowSample, scaling: Scaling, along: Floats) -> Floats:
    """Root mean squares of combinations of the scaled features."""
    return spreads_of((sample.rows * scaling.factor) @ along)


def _scaling(sample: SampledRows, *, scaled: bool) -> Scaling:
    mean = float(sample.variances.mean())
    factor = np.ones(len(sample.centre))
    if scaled and mean > 0.0:
        factor = 1.0 / np.sqrt(sample.variances + mean)
    return Scaling(sample.centre, factor, sample.deviations * factor)


def _principal(sample: RowSample, scaling: Scaling, n_components: int) -> Signatures:
    """The scaled features themselves, or their leading principal directions."""
    y = sample.rows * scaling.factor
    n, p = y.shape
    if p <= 2 * n_components + _SPARE:
        return Signatures(scaling, np.eye(p), np.zeros(p))
    vectors = np.linalg.eigh(y.T @ y / n)[1][:, ::-1][:, : 2 * n_components + _SPARE]
    return Signatures(scaling, np.ascontiguousarray(vectors), np.zeros(vectors.shape[1]))


def _random_weights(n_features: int, views: tuple[Numbers, ...], m: int, seed: int) -> Floats:
    """For each view, m random combinations of the features of the others."""
    normals = np.random.default_rng(seed).standard_normal((n_features, len(views), m))
    used = np.concatenate(views)
    weights = np.zeros_like(normals)
    weights[used] = normals[used]
    for i, view in enumerate(views):
        weights[view, i] = 0.0
    return weights.reshape(n_features, -1)


def _leading(products: list[Floats], views: tuple[Numbers, ...], n_features: int, m: int) -> Floats:
    """Leading left singular vectors of each view's products, side by side."""
    bases = np.zeros((n_features, len(views), m))
    for i, (view, product) in enumerate(zip(views, products, strict=True)):
        vectors = np.linalg.svd(product, full_matrices=False)[0][:, :m]
        bases[view, i, : vectors.shape[1]] = vectors
    return bases.reshape(n_features, -1)


def _cross_view_axes(covariance: Floats, n_views: int, width: int) -> Floats:
    """Leading directions of what views have in common: noise is in the blocks within views, which count for nothing."""
    m = len(covariance) // n_views
    view = np.repeat(np.arange(n_views), m)
    between = np.where(view[:, None] == view, 0.0, covariance)
    return np.linalg.eigh(between)[1][:, ::-1][:, :width]


@dataclass(frozen=True)
class _SoftLabels:
    """Clusters that bases show: their centres (k, c) in these, sizes (k,), and the mean square within them."""

    centres: Floats
    counts: Floats
    within: float


def _soft_labels(
    sample: RowSample, scaling: Scaling, n_views: int, bases: Floats, n_components: int, seed: int
) -> _SoftLabels:
    y = sample.rows * scaling.factor
    seen = y @ bases
    seen -= seen.mean(axis=0)
    places = seen @ _cross_view_axes(seen.T @ seen / len(seen), n_views, max(1, n_components - 1))
    labels = lloyd(places, kmeans_plusplus(places, n_components, np.random.default_rng(seed))).labels
    seen = y @ bases
    members = np.eye(n_components)[labels]
    counts = np.maximum(members.sum(axis=0), 1.0)
    centres = (members.T @ seen) / counts[:, None]
    return _SoftLabels(centres, counts, float(((seen - centres[labels]) ** 2).mean()))


def _resubstituted(
    rows: Rows, scaling: Scaling, views: tuple[Numbers, ...], bases: Floats, soft: _SoftLabels, run: Run
) -> Floats:
    """Bases from the clusters that the present bases show: each view by the assignments that the others make."""
    owner = np.repeat(np.arange(len(views)), bases.shape[1] // len(views))
    others = (owner != np.arange(len(views))[:, None]).astype(np.float64)
    precision = 1.0 / soft.within if soft.within > 0.0 else 0.0
    products = label_moments(rows, scaling, views, bases, soft.centres, others, precision, run)
    shares = soft.counts / soft.counts.sum()
    scale = np.sqrt(np.sqrt(np.maximum(shares * (1.0 - shares), 1e-12)))
    products = [(product - product.sum(axis=1, keepdims=True) * shares) / scale for product in products]
    width = max(1, len(shares) - 1)
    return _leading(products, views, len(bases), min(width, *(len(view) for view in views)))
