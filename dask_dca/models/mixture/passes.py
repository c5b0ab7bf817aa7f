"""What runs on blocks of rows for a mixture: the rows furthest out, exact sums of the E-step, densities and labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import even_tiles, require_squares
from dask_dca.engine.types import add_parts
from dask_dca.geometry.exact import Total, plain_total, power_of_two, product_total, weighted_total
from dask_dca.geometry.extremes import ArgBest
from dask_dca.models.gaussians import (
    GaussianMoments,
    Gaussians,
    about_origins,
    balanced,
    damping,
    log_densities,
    prepare_gaussians,
)
from dask_dca.models.incomplete_gaussians import observed_log_densities
from dask_dca.models.mixture.e_step import EStep, FurthestRows, component_sums, moments_of_sums, sums_height
from dask_dca.models.mixture.em import normalise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.models.mixture.e_step import TailDirections
    from dask_dca.models.mixture.subspace import CovarianceSubspace


def joint_of_observed(densities: Densities, tile: Floats) -> Floats:
    """Evaluate the logarithms of weight times density of what was observed.

    tile (n, p): NaN where an entry is missing. Returns (n, k): rows without any observed entry have density one.
    """
    if densities.subspace is None:
        found: Floats = observed_log_densities(densities.gaussians, tile) + densities.log_weights
        return found
    holes = np.asarray(np.isnan(tile).any(axis=1))
    found = np.empty((len(tile), len(densities.log_weights)))
    found[holes] = observed_log_densities(_whole(densities.gaussians, densities.subspace), tile[holes])
    places, across = densities.subspace.split(np.where(holes[:, None], densities.subspace.origin, tile))
    found[~holes] = (observed_log_densities(densities.gaussians, places) + across[:, None])[~holes]
    return found + densities.log_weights


def _whole(inside: Gaussians, space: CovarianceSubspace) -> Gaussians:
    """Components in a subspace as those of all features, with full covariances; heavy tails are then of all."""
    factors = inside.precisions_cholesky
    within = np.linalg.inv(factors @ factors.swapaxes(1, 2))
    across = space.noise * (np.eye(len(space.axes)) - space.axes @ space.axes.T)
    covariances = space.axes @ within @ space.axes.T + across
    means = space.points(inside.means + inside.centre)
    return prepare_gaussians(means, covariances, "full", space.origin, inside.degrees)


_VALUE: Final = 2.0**-30  # standard deviations
_SQUARE: Final = 2.0**-32  # variances: squares up to 128 of them take two digits
_TOTALS: Final = {"full": 2, "tied": 2}  # sums about an origin: of outer products too
_LEAST_SHARE: Final = 2.0**-25  # rounded, a smaller share is none
_LEAST_DEVIATION: Final = 2.0**-40  # of a feature's own: units of sums about an origin are not finer
_NATS: Final = 2.0**-20
_FEW: Final = 4096  # rows: with more, multiples of 2**-16 are off by less than 1e-7 on the mean


@dataclass(frozen=True)
class Scales:
    """Standard deviations that sums are rounded by.

    features (p,): of the features, none of them zero; far (p,): of the features in each component that is far from the
    centre.
    """

    features: Floats
    far: dict[int, Floats]


def scales_of(gaussians: Gaussians, deviations: Floats) -> Scales:
    """Find what sums over rows are rounded by.

    deviations (p,): standard deviations of the features. Returns of the features, and within far components.
    """
    far = np.flatnonzero(gaussians.far).tolist()
    own = gaussians.deviations if far else deviations[None]
    return Scales(deviations, {j: np.maximum(own[j], _LEAST_DEVIATION * deviations) for j in far})


def joined_moments(gaussians: Gaussians, scales: Scales, totals: Sequence[Floats]) -> GaussianMoments:
    """Put the sums of `component_totals` over all rows together."""
    form, width = gaussians.covariance_type, _TOTALS.get(gaussians.covariance_type, 1)
    near, *rest = (_as_moments(form, totals[i : i + width]) for i in range(0, len(totals), width))
    return about_origins(near, dict(zip(scales.far, rest, strict=True)), gaussians.origins, form)


def _as_moments(form: str, totals: Sequence[Floats]) -> GaussianMoments:
    linear, *products = totals
    p = linear.shape[1] - 1 if products else (linear.shape[1] - 1) // 2 if form == "diag" else linear.shape[1] - 2
    counts, first, second = np.split(linear, [1, 1 + p], axis=1)
    if form != "diag":
        second = products[0] if products else second[:, 0]
    return GaussianMoments(counts[:, 0], first, second)


def component_totals(
    gaussians: Gaussians, scales: Scales, shares: Floats, centred: Floats, *, every: bool = True
) -> Iterator[Total]:
    """Sum moments about the centre, then those of each far component about its own mean.

    gaussians, scales: components, and what sums are rounded by; shares (n, k): how much of each row belongs to each
    component; centred (n, p): the rows less the centre; every: whether the shares of each row sum to one. Returns one
    or two for the centre and for each far component.
    """
    form, far = gaussians.covariance_type, gaussians.far
    near, every = (np.where(far, 0.0, shares), False) if far.any() else (shares, every)
    yield from _about(form, near, centred, scales.features, every=every)
    for j, deviations in scales.far.items():
        own = shares[:, j] > _LEAST_SHARE  # far rows would cost many digits
        yield from _about(form, shares[own, j : j + 1], centred[own] - gaussians.means[j], deviations, every=False)


def _about(form: str, shares: Floats, centred: Floats, deviations: Floats, *, every: bool) -> Iterator[Total]:
    """Counts, weighted sums and sums of squares beside each other; sums of outer products where a form has them."""
    ones, scale = np.ones((len(centred), 1)), power_of_two(deviations)
    columns, units = [ones, centred], [np.ones(1), _VALUE * scale]
    if form == "diag":
        columns.append(centred**2)
        units.append(_SQUARE * scale**2)
    elif form in ("spherical", "tied-spherical"):
        columns.append((centred**2).sum(axis=1, keepdims=True))
        units.append(np.atleast_1d(_SQUARE * power_of_two((deviations**2).sum())))
    yield weighted_total(shares, np.hstack(columns), np.concatenate(units))
    if form in ("full", "tied"):
        yield _products(form, shares, centred, _VALUE * scale, every=every)


def _products(form: str, shares: Floats, centred: Floats, unit: Floats, *, every: bool) -> Total:
    """Sums of outer products: for each component, or together; `every` says that shares sum to one."""
    if form == "tied":
        rows = centred if every else centred * np.sqrt(shares.sum(axis=1))[:, None]
        return product_total(rows, rows, unit, unit)
    weighted = (centred * root[:, None] for root in np.sqrt(shares).T)
    return _stacked([product_total(part, part, unit, unit) for part in weighted])


def _stacked(totals: list[Total]) -> Total:
    levels = max(len(total.parts) for total in totals)
    parts = np.zeros((levels, len(totals), *totals[0].parts.shape[1:]))
    for j, total in enumerate(totals):
        parts[: len(total.parts), j] = total.parts
    return Total(parts, totals[0].unit)


@dataclass(frozen=True)
class Densities:
    """A mixture, ready for blocks of rows.

    gaussians: of rows, or of their coordinates in a subspace; log_weights (k,): logarithms of their shares.
    """

    gaussians: Gaussians
    log_weights: Floats
    height: int
    subspace: CovarianceSubspace | None = None


@dataclass(frozen=True)
class MixtureStatistics:
    """What a pass saw.

    moments: weighted sums over the rows, less the centre; those of far components are about their means;
    log_likelihood: mean of the rows' log densities; n_outliers: rows of too low a density to count in either; nearest
    (k,): for each component the row of greatest density under it, the first one among equals; furthest (2 s,): the rows
    furthest out along the directions, then against them, with their places, where they were looked for.
    """

    moments: GaussianMoments
    log_likelihood: float
    n_outliers: int
    nearest: Numbers
    furthest: ArgBest | None = None


@dataclass(frozen=True)
class _State:
    densities: Densities
    deviations: Floats
    least: float
    directions: TailDirections | None
    most: float | None  # that a row weighs, where rows have weights
    few: bool  # so that rounding of responsibilities would show

    @property
    def careful(self) -> bool:
        """Whether sums are taken in many digits: of weights, or about the means of components far from the centre."""
        gaussians = self.densities.gaussians
        far = gaussians.covariance_type != "full" and bool(gaussians.far.any())
        return far or self.few or self.most is not None


@dataclass(frozen=True)
class _Sums:
    totals: list[Total]  # of moments
    nats: Total  # log likelihood
    counted: float  # rows that have weight, or what they weigh
    nearest: ArgBest  # (k,), by density
    furthest: ArgBest | None = None  # (2 s,), by height

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(
            add_parts([self.totals, other.totals]),
            self.nats + other.nats,
            self.counted + other.counted,
            self.nearest + other.nearest,
            None if self.furthest is None or other.furthest is None else self.furthest + other.furthest,
        )


def e_step_pass(
    rows: Rows,
    densities: Densities,
    deviations: Floats,
    run: Run,
    least: float = -np.inf,
    directions: TailDirections | None = None,
) -> MixtureStatistics:
    """Sum what a step of expectation-maximisation needs over all rows.

    deviations (p,): standard deviations of the features, or coordinates, none of them zero: values are rounded by them;
    least: rows of a lower log density are noise, and have no weight; directions: where to look, in the same sweep, for
    the rows furthest out: the divide step. Returns the same bits for any chunking, merge order or number of workers.
    """
    most = None if rows.weights is None else rows.weights.most
    state, unit = _State(densities, deviations, least, directions, most, rows.n_copies <= _FEW), most or 1.0
    sums = run_pass(rows, Pass("refine", _refine_block, add_parts, weighted=True), state, run)
    values, gaussians = [unit * total.value() for total in sums.totals], densities.gaussians
    scales = scales_of(gaussians, deviations)
    moments = joined_moments(gaussians, scales, values) if state.careful else moments_of_sums(gaussians, values)
    moments = balanced(moments, gaussians)
    mean = float(sums.nats.value()) / max(sums.counted, _NATS)
    n_outliers = round(rows.total_weight - unit * sums.counted)
    return MixtureStatistics(moments, mean, n_outliers, sums.nearest.rows, sums.furthest)


def joint_blocks(
    densities: Densities, start: int, columns: Sequence[Any], *, holes: bool = False
) -> Iterator[tuple[Numbers, Floats, Floats]]:
    """Evaluate a mixture on a block of rows, tile by tile.

    start: row number of the block's first row; holes: entries may be missing, and densities are of the others. Returns
    numbers (n,): row numbers; centred (n, p): the rows less the centre, or their coordinates in the subspace (as they
    are, where entries are missing); joint (h, k): logarithms of weight times density; its rows beyond n are no rows of
    the data.
    """
    for numbers, tile in even_tiles(columns, start, densities.height):
        require_squares(tile, numbers, missing=holes)
        if holes and np.isnan(tile).any():
            yield numbers, tile[: len(numbers)], joint_of_observed(densities, tile)
            continue
        places, logs, across = _seen(densities, tile)
        logs += densities.log_weights + across
        yield numbers, places[: len(numbers)] - densities.gaussians.centre, logs


def _seen(densities: Densities, tile: Floats) -> tuple[Floats, Floats, Floats]:
    """Coordinates of a tile's rows; log densities there (h, k); and across the subspace, where there is one (h, 1)."""
    places, across = (tile, np.zeros(1)) if densities.subspace is None else densities.subspace.split(tile)
    return places, log_densities(densities.gaussians, places), across[:, None]


def _refine_block(state: _State, start: int, *columns: Any, weights: Floats | None = None) -> _Sums:
    return _careful_block(state, start, columns, weights) if state.careful else _quick_block(state, start, columns)


def _quick_block(state: _State, start: int, columns: Sequence[Any]) -> _Sums:
    gaussians, space = state.densities.gaussians, state.densities.subspace
    k, p = gaussians.means.shape
    height = sums_height(gaussians.covariance_type, k, p, state.densities.height)
    sums = component_sums(gaussians, state.densities.log_weights, state.deviations, height)
    step = EStep(sums, gaussians, state.densities.log_weights, state.least)
    furthest = None if state.directions is None else FurthestRows(state.directions)
    for numbers, tile in even_tiles(columns, start, height):
        if furthest is not None:
            require_squares(tile, numbers)
            furthest.add(tile, numbers)
        with np.errstate(all="ignore"):
            places, across = (tile, 0.0) if space is None else space.split(tile)
        if not step.add(places, numbers, across):
            require_squares(tile, numbers)
            step.add_carefully()
    best = None if furthest is None else furthest.total()
    return _Sums(step.totals(), step.nats, step.n_counted, step.nearest, best)


def _careful_block(state: _State, start: int, columns: Sequence[Any], weights: Floats | None) -> _Sums:
    k, p = state.densities.gaussians.means.shape
    found = [_careful_sums(state, np.zeros(0, dtype=np.int64), np.zeros((0, p)), np.zeros((0, k)), None)]
    gaussians = state.densities.gaussians
    for numbers, tile in even_tiles(columns, start, state.densities.height):
        require_squares(tile, numbers)
        places, logs, across = _seen(state.densities, tile)
        damped = damping(gaussians, logs)[: len(numbers)] if np.isfinite(gaussians.degrees) else None
        logs += state.densities.log_weights + across
        own = None if weights is None else weights[numbers - start]
        found.append(_careful_sums(state, numbers, places[: len(numbers)] - gaussians.centre, logs, own, damped))
    whole = add_parts(found)
    if state.directions is None:
        return whole
    furthest = FurthestRows(state.directions)
    for numbers, tile in even_tiles(columns, start, state.densities.height):
        furthest.add(tile, numbers, None if weights is None else weights[numbers - start] > 0.0)
    return replace(whole, furthest=furthest.total())


def _careful_sums(
    state: _State,
    numbers: Numbers,
    centred: Floats,
    joint: Floats,
    weights: Floats | None,
    damped: Floats | None = None,
) -> _Sums:
    (n, k), gaussians = (len(numbers), joint.shape[1]), state.densities.gaussians
    shares, logs = (part[:n] for part in normalise(joint)) if n else (joint, joint[:, 0])
    every, counted = weights is None and not np.isfinite(state.least), (logs >= state.least).astype(np.float64)
    if weights is not None:
        counted *= weights / (state.most or 1.0)  # at most one, as sums need it
        joint[:n][weights == 0.0] = -np.inf
    shares = shares * counted[:, None]
    if damped is not None:
        shares *= damped
    moments = component_totals(gaussians, scales_of(gaussians, state.deviations), shares, centred, every=every)
    nearest = ArgBest.of_rows(joint[:n], numbers) if n else ArgBest.nobody(k)
    nats = plain_total(np.where(counted > 0.0, logs, 0.0) * counted, _NATS)
    return _Sums([*moments], nats, float(counted.sum()), nearest)


def log_likelihood(rows: Rows, densities: Densities, run: Run) -> float:
    """Sum the log densities of all rows.

    Returns the sum, the same for any chunking.
    """
    job = Pass("score", _score_block, add_parts)
    return float(run_pass(rows, job, densities, run).value())


def _score_block(densities: Densities, start: int, *columns: Any) -> Total:
    found = [plain_total(np.zeros(0), _NATS)]
    for numbers, _, joint in joint_blocks(densities, start, columns, holes=True):
        found.append(plain_total(normalise(joint)[1][: len(numbers)], _NATS))
    return add_parts(found)


def label_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """Find the most probable component of each row of a block.

    start: row number of the block's first row. Returns (n, 1): component numbers.
    """
    joints = joint_blocks(densities, start, columns, holes=True)
    found = [joint[: len(numbers)].argmax(axis=1) for numbers, _, joint in joints]
    return np.concatenate([np.zeros(0), *found])[:, None]


def posterior_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """Find the probability of each component for each row of a block.

    Returns (n, k): the probabilities.
    """
    joints = joint_blocks(densities, start, columns, holes=True)
    found = [normalise(joint)[0][: len(numbers)] for numbers, _, joint in joints]
    return np.concatenate([np.zeros((0, len(densities.log_weights))), *found])


def density_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """Evaluate the log density of each row of a block.

    Returns (n, 1): the log densities.
    """
    joints = joint_blocks(densities, start, columns, holes=True)
    found = [normalise(joint)[1][: len(numbers)] for numbers, _, joint in joints]
    return np.concatenate([np.zeros(0), *found])[:, None]
