"""What runs on blocks of rows for a mixture: the rows furthest out, exact sums of the E-step, densities and labels.

Sums in several digits are about the centre, or about own means of components that are far, or whose rows lack entries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import even_tiles, require_squares, tiles
from dask_dca.engine.types import Summed, add_parts
from dask_dca.geometry.exact import Total, plain_total, power_of_two, product_total, scattered_total, weighted_total
from dask_dca.geometry.votes import ArgBest
from dask_dca.models.gaussians import ROUND, GaussianMoments, balanced, damping, log_densities, prepare_gaussians
from dask_dca.models.incomplete_gaussians import completed_rows, observed_log_densities, typicality
from dask_dca.models.mixture.e_step import EStep, FurthestRows, component_sums, moments_of_sums, resolving, sums_height
from dask_dca.models.mixture.em import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.models.gaussians import Gaussians
    from dask_dca.models.incomplete_gaussians import Uncertain
    from dask_dca.models.mixture.e_step import TailDirections
    from dask_dca.models.mixture.family import CovarianceSubspace

_VALUE: Final = 2.0**-30  # standard deviations
_SQUARE: Final = 2.0**-32  # variances: squares up to 128 of them take two digits
_TOTALS: Final = {"full": 2, "tied": 2}  # sums about an origin: of outer products too
_UNCERTAIN: Final = 2.0**-40  # of a variance, or product of deviations: what missing entries may add
_LEAST_SHARE: Final = 2.0**-25  # rounded, a smaller share is none
_LEAST_DEVIATION: Final = 2.0**-40  # of a feature's own: units of sums about an origin are not finer
_WHOLE: Final = 2.0**24  # of a share


def component_totals(
    gaussians: Gaussians, deviations: Floats, shares: Floats, centred: Floats, *, every: bool = True
) -> Iterator[Total]:
    """Sum moments about the centre; each component's about its own mean if it is far from it, or may become narrow.

    deviations (p,): standard deviations of the features, none of them zero, that sums are rounded by; shares (n, k):
    how much of each row belongs to each component; centred (n, p): the rows less the centre; every: whether the shares
    of each row sum to one.
    """
    if gaussians.far.any() or gaussians.covariance_type == "full":
        return totals_about_means(gaussians, deviations, shares, (centred - mean for mean in gaussians.means))
    return _about(gaussians.covariance_type, shares, centred, resolving(gaussians, deviations), every=every)


def totals_about_means(
    gaussians: Gaussians,
    deviations: Floats,
    shares: Floats,
    away: Iterable[Floats],
    holes: Iterable[list[Uncertain]] = repeat([]),
) -> Iterator[Total]:
    """Sum each component's moments about its own mean, and what missing entries may add to them.

    away: for each component the rows (n, p) less its mean, missing entries filled; holes: what these may hold. Returns
    two or three for each component.
    """
    form, own = gaussians.covariance_type, np.maximum(gaussians.deviations, _LEAST_DEVIATION * deviations)
    for part, rows, more, spread in zip(shares.T, away, holes, own, strict=False):
        some, scale = part > _LEAST_SHARE, power_of_two(spread)  # far rows would cost many digits
        yield from _about(form, part[some, None], rows[some], spread, every=False)
        units = np.multiply.outer(scale, scale).ravel() if form in _TOTALS else scale**2
        yield _uncertain(more, np.where(some, part, 0.0), _UNCERTAIN * units)


def joined_moments(gaussians: Gaussians, totals: Sequence[Floats]) -> GaussianMoments:
    """Put the sums of either over all rows together."""
    (k, p), form = gaussians.means.shape, gaussians.covariance_type
    width = _TOTALS.get(form, 1)
    if len(totals) == width:
        return _as_moments(form, totals)
    own = [_as_moments(form, totals[i : i + width]) for i in range(0, len(totals), width + 1)]
    added = np.stack(totals[width :: width + 1])
    added = added.sum(axis=1, keepdims=True) if form in ROUND else added
    second = np.stack([one.second.ravel() for one in own]) + added
    if form in _TOTALS:
        second = second.reshape(k, p, p) if form == "full" else second.sum(axis=0).reshape(p, p)
    second = second[:, 0] if form in ROUND else second
    counts, first = (np.concatenate(parts) for parts in zip(*((one.counts, one.first) for one in own), strict=True))
    return GaussianMoments(counts, first, second, gaussians.means)


def _as_moments(form: str, totals: Sequence[Floats]) -> GaussianMoments:
    linear, *products = totals
    p = linear.shape[1] - 1 if products else (linear.shape[1] - 1) // 2 if form == "diag" else linear.shape[1] - 2
    counts, first, second = np.split(linear, [1, 1 + p], axis=1)
    if form != "diag":
        second = products[0] if products else second[:, 0]
    return GaussianMoments(counts[:, 0], first, second)


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


def _uncertain(holes: list[Uncertain], shares: Floats, unit: Floats) -> Total:
    """What missing entries are expected to add, in the places of variances, or of the entries of covariances."""
    whole = np.rint(shares * _WHOLE) / _WHOLE
    parts = [one.weighted(whole) for one in holes] or [(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.intp))]
    weights, values, places = (np.concatenate(some) for some in zip(*parts, strict=True))
    return scattered_total(weights, values, places, unit)


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


_NATS: Final = 2.0**-20
_FEW: Final = 4096  # rows: with more, multiples of 2**-16 are off by less than 1e-7 on the mean


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
    furthest out along the directions, then against them, with their places, where they were looked for;
    n_unobserved_rows, n_observed, n_incomplete_rows: of rows with missing entries: those without any entry, entries
    that were observed, and rows that lack some.
    """

    moments: GaussianMoments
    log_likelihood: float
    n_outliers: int
    nearest: Numbers
    furthest: ArgBest | None = None
    n_unobserved_rows: int = 0
    n_observed: int = 0
    n_incomplete_rows: int = 0


@dataclass(frozen=True)
class _State:
    densities: Densities
    deviations: Floats
    least: float
    directions: TailDirections | None
    most: float | None  # that a row weighs, where rows have weights
    few: bool  # so that rounding of responsibilities would show
    holes: bool

    @property
    def careful(self) -> bool:
        """Whether sums are taken in many digits: of weights, or about the means of components far from the centre."""
        gaussians = self.densities.gaussians
        far = gaussians.covariance_type != "full" and bool(gaussians.far.any())
        return far or self.few or self.holes or self.most is not None


@dataclass(frozen=True)
class _Sums(Summed):
    totals: list[Total]  # of moments
    nats: Total  # log likelihood
    counted: float  # rows that have weight, or what they weigh
    nearest: ArgBest  # (k,), by density
    furthest: ArgBest | None = None  # (2 s,), by height
    n_observed: int = 0
    n_incomplete_rows: int = 0  # with an observed entry


def e_step_pass(
    rows: Rows,
    densities: Densities,
    deviations: Floats,
    run: Run,
    least: float = -np.inf,
    directions: TailDirections | None = None,
    *,
    holes: bool = False,
) -> MixtureStatistics:
    """Sum what a step of expectation-maximisation needs over all rows.

    deviations (p,): standard deviations of the features, or coordinates, none of them zero: values are rounded by them;
    least: rows of a lower log density are noise, and have no weight; directions: where to look, in the same sweep, for
    the rows furthest out: the divide step; holes: entries may be missing; then none of these is, and the step is by
    what was observed. Returns the same bits for any chunking, merge order or number of workers.
    """
    most = None if rows.weights is None else rows.weights.most
    state, unit = _State(densities, deviations, least, directions, most, rows.n_copies <= _FEW, holes), most or 1.0
    sums = run_pass(rows, Pass("refine", _refine_block, add_parts, weighted=True), state, run)
    values, gaussians = [unit * total.value() for total in sums.totals], densities.gaussians
    mean = float(sums.nats.value()) / max(sums.counted, _NATS)
    n_others = round(rows.total_weight - unit * sums.counted)
    moments = joined_moments(gaussians, values) if state.careful else moments_of_sums(gaussians, values)
    if holes:
        counts = n_others, sums.n_observed, n_others + sums.n_incomplete_rows
        return MixtureStatistics(moments, mean, 0, sums.nearest.rows, None, *counts)
    return MixtureStatistics(balanced(moments, gaussians), mean, n_others, sums.nearest.rows, sums.furthest)


def joint_blocks(densities: Densities, start: int, columns: Sequence[Any]) -> Iterator[tuple[Numbers, Floats, Floats]]:
    """Evaluate a mixture on a block of rows, tile by tile; where entries are missing, densities are of the others.

    start: row number of the block's first row. Returns
    numbers (n,): row numbers; centred (n, p): the rows less the centre, or their coordinates in the subspace (as they
    are, where entries are missing); joint (h, k): logarithms of weight times density; its rows beyond n are no rows of
    the data.
    """
    for numbers, tile in even_tiles(columns, start, densities.height):
        require_squares(tile, numbers, missing=True)
        if np.isnan(tile).any():
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
    if state.holes:
        return _observed_block(state, start, columns)
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
    furthest = None if state.directions is None else FurthestRows(state.directions)
    for numbers, tile in even_tiles(columns, start, state.densities.height):
        require_squares(tile, numbers)
        own = None if weights is None else weights[numbers - start]
        if furthest is not None:
            furthest.add(tile, numbers, None if own is None else own > 0.0)
        places, logs, across = _seen(state.densities, tile)
        damped = damping(gaussians, logs)[: len(numbers)] if np.isfinite(gaussians.degrees) else None
        logs += state.densities.log_weights + across
        found.append(_careful_sums(state, numbers, places[: len(numbers)] - gaussians.centre, logs, own, damped))
    return replace(add_parts(found), furthest=None if furthest is None else furthest.total())


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
    moments = component_totals(gaussians, state.deviations, shares, centred, every=every)
    nearest = ArgBest.of_rows(joint[:n], numbers) if n else ArgBest.empty(k)
    nats = plain_total(np.where(counted > 0.0, logs, 0.0) * counted, _NATS)
    return _Sums([*moments], nats, float(counted.sum()), nearest)


def _observed_block(state: _State, start: int, columns: Sequence[Any]) -> _Sums:
    found = [_observed_sums(state, np.zeros(0, dtype=np.int64), np.zeros((0, len(state.deviations))))]
    for numbers, tile in tiles(columns, start, copy=False):
        require_squares(tile, numbers, missing=True)
        some = ~np.isnan(tile).all(axis=1)
        found.append(_observed_sums(state, numbers[some], tile[some]))
    return add_parts(found)


def _observed_sums(state: _State, numbers: Numbers, rows: Floats) -> _Sums:
    """Sums over rows that each have an observed entry."""
    gaussians, mask = state.densities.gaussians, ~np.isnan(rows)
    seen = list(completed_rows(gaussians, np.where(mask, rows, 0.0), mask))
    joint = np.stack([one.log_densities for one in seen], axis=1) + state.densities.log_weights
    shares, logs = normalise(joint) if len(rows) else (joint, joint[:, 0])
    away, more = (one.away for one in seen), (one.uncertain for one in seen)
    totals = [*totals_about_means(gaussians, state.deviations, shares, away, more)]
    nearest = ArgBest.empty(len(seen))
    if len(rows):
        nearest = ArgBest.of_rows(np.stack([typicality(one, mask) for one in seen], axis=1), numbers)
    return _Sums(
        totals,
        plain_total(logs, _NATS),
        float(len(rows)),
        nearest,
        None,
        int(mask.sum()),
        int((~mask.all(axis=1)).sum()),
    )


def log_likelihood(rows: Rows, densities: Densities, run: Run) -> float:
    """Sum the log densities of all rows.

    Returns the sum, the same for any chunking.
    """
    job = Pass("score", _score_block, add_parts)
    return float(run_pass(rows, job, densities, run).value())


def _score_block(densities: Densities, start: int, *columns: Any) -> Total:
    found = [plain_total(np.zeros(0), _NATS)]
    for numbers, _, joint in joint_blocks(densities, start, columns):
        found.append(plain_total(normalise(joint)[1][: len(numbers)], _NATS))
    return add_parts(found)


def label_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """Find the most probable component of each row of a block.

    start: row number of the block's first row. Returns (n, 1): component numbers.
    """
    joints = joint_blocks(densities, start, columns)
    found = [joint[: len(numbers)].argmax(axis=1) for numbers, _, joint in joints]
    return np.concatenate([np.zeros(0), *found])[:, None]


def posterior_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """Find the probability of each component for each row of a block.

    Returns (n, k): the probabilities.
    """
    joints = joint_blocks(densities, start, columns)
    found = [normalise(joint)[0][: len(numbers)] for numbers, _, joint in joints]
    return np.concatenate([np.zeros((0, len(densities.log_weights))), *found])


def density_block(densities: Densities, start: int, *columns: Any) -> Floats:
    """Evaluate the log density of each row of a block.

    Returns (n, 1): the log densities.
    """
    joints = joint_blocks(densities, start, columns)
    found = [normalise(joint)[1][: len(numbers)] for numbers, _, joint in joints]
    return np.concatenate([np.zeros(0), *found])[:, None]
