"""The E-step on blocks of rows: exact sums of moments, and the rows furthest out.

There is a fast path, which sums integers of one digit (`e_step`), and one that sums in several digits: about the
centre, or about each component's own mean where a component is far from the centre or rows lack entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Final

import numpy as np

from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import Rows
from dask_dca.engine.tiles import even_tiles, require_squares, tiles
from dask_dca.engine.types import Summed, add_parts
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import Total, plain_total, power_of_two, product_total, scattered_total, weighted_total
from dask_dca.geometry.votes import ArgBest
from dask_dca.models.gaussians import (
    SPHERICAL_TYPES,
    GaussianMoments,
    Gaussians,
    rescale_student_moments,
    student_weights,
)
from dask_dca.models.incomplete_gaussians import ConditionalCovariances, completed_rows, typicality
from dask_dca.models.mixture.densities import Densities, tile_log_densities
from dask_dca.models.mixture.e_step import (
    LOG_UNIT,
    EStep,
    component_sums,
    e_step_tile_height,
    moments_of_sums,
    rounding_scales,
)
from dask_dca.models.mixture.em import normalise
from dask_dca.models.mixture.furthest import FurthestRows, TailDirections

_VALUE_UNIT: Final = 2.0**-30  # values are rounded to multiples of this many standard deviations
_SQUARE_UNIT: Final = 2.0**-32  # squares are rounded to multiples of this many variances; up to 128 take two digits
_MATRIX_FORMS: Final = ("full", "tied")  # forms that need sums of outer products beside those of values
_UNCERTAIN_UNIT: Final = 2.0**-40  # unit of what missing entries add, relative to a product of two deviations
_MIN_SHARE: Final = 2.0**-25  # smaller responsibilities are rounded to zero
_MIN_SCALE_RATIO: Final = 2.0**-40  # minimum scale of sums about a mean, relative to the feature's standard deviation
_MAX_SCALE_RATIO: Final = 2.0**14  # maximum scale of those sums, as a start that is far too broad would have
_SHARE_UNITS: Final = 2.0**24  # responsibilities are rounded to multiples of one over this


def moment_totals(
    gaussians: Gaussians, deviations: Floats, shares: Floats, centred: Floats, *, normalised: bool = True
) -> Iterator[Total]:
    """Sum moments about the centre, or about each component's mean if one is far or covariances are full.

    deviations (p,): standard deviations of the features, none of them zero, which sums are rounded by; shares (n, k):
    responsibilities; centred (n, p): rows less the centre; normalised: whether the shares of each row sum to one.
    """
    if gaussians.far.any() or gaussians.covariance_type == "full":
        return moment_totals_about_means(gaussians, deviations, shares, (centred - mean for mean in gaussians.means))
    return _sums_about(
        gaussians.covariance_type, shares, centred, rounding_scales(gaussians, deviations), normalised=normalised
    )


def moment_totals_about_means(
    gaussians: Gaussians,
    deviations: Floats,
    shares: Floats,
    away: Iterable[Floats],
    conditional: Iterable[list[ConditionalCovariances]] = repeat([]),
) -> Iterator[Total]:
    """Sum each component's moments about its own mean, and the conditional covariances of missing entries.

    away: for each component the rows (n, p) less its mean, missing entries filled by their means; conditional: the
    conditional covariances. Yields two totals for each component, three where there are outer products.
    """
    form, own = gaussians.covariance_type, gaussians.deviations
    own = np.clip(own, _MIN_SCALE_RATIO * deviations, _MAX_SCALE_RATIO * deviations)
    for share, rows, missing, spread in zip(shares.T, away, conditional, own, strict=False):
        some, scale = share > _MIN_SHARE, power_of_two(spread)  # others, very far out, would take many digits
        yield from _sums_about(form, share[some, None], rows[some], spread, normalised=False)
        units = np.multiply.outer(scale, scale).ravel() if form in _MATRIX_FORMS else scale**2
        yield _missing_covariances(missing, np.where(some, share, 0.0), _UNCERTAIN_UNIT * units)


def moments_of_totals(gaussians: Gaussians, totals: Sequence[Floats]) -> GaussianMoments:
    """Convert sums over all rows, about the centre or about the means, into moments."""
    (k, p), form = gaussians.means.shape, gaussians.covariance_type
    width = 2 if form in _MATRIX_FORMS else 1
    if len(totals) == width:
        return _as_moments(form, totals)
    own = [_as_moments(form, totals[i : i + width]) for i in range(0, len(totals), width + 1)]
    missing = np.stack(totals[width :: width + 1])
    missing = missing.sum(axis=1, keepdims=True) if form in SPHERICAL_TYPES else missing
    second = np.stack([one.second.ravel() for one in own]) + missing
    if form in _MATRIX_FORMS:
        second = second.reshape(k, p, p) if form == "full" else second.sum(axis=0).reshape(p, p)
    second = second[:, 0] if form in SPHERICAL_TYPES else second
    counts, first = (np.concatenate(parts) for parts in zip(*((one.counts, one.first) for one in own), strict=True))
    return GaussianMoments(counts, first, second, gaussians.means)


def _as_moments(form: str, totals: Sequence[Floats]) -> GaussianMoments:
    linear, *products = totals
    p = linear.shape[1] - 1 if products else (linear.shape[1] - 1) // 2 if form == "diag" else linear.shape[1] - 2
    counts, first, second = np.split(linear, [1, 1 + p], axis=1)
    if form != "diag":
        second = products[0] if products else second[:, 0]
    return GaussianMoments(counts[:, 0], first, second)


def _sums_about(form: str, shares: Floats, centred: Floats, deviations: Floats, *, normalised: bool) -> Iterator[Total]:
    """One total of counts, weighted sums and sums of squares; another of outer products for "full" and "tied"."""
    ones, scale = np.ones((len(centred), 1)), power_of_two(deviations)
    columns, units = [ones, centred], [np.ones(1), _VALUE_UNIT * scale]
    if form == "diag":
        columns.append(centred**2)
        units.append(_SQUARE_UNIT * scale**2)
    elif form in ("spherical", "tied-spherical"):
        columns.append((centred**2).sum(axis=1, keepdims=True))
        units.append(np.atleast_1d(_SQUARE_UNIT * power_of_two((deviations**2).sum())))
    yield weighted_total(shares, np.hstack(columns), np.concatenate(units))
    if form in _MATRIX_FORMS:
        yield _outer_products(form, shares, centred, _VALUE_UNIT * scale, normalised=normalised)


def _outer_products(form: str, shares: Floats, centred: Floats, unit: Floats, *, normalised: bool) -> Total:
    """Weighted sums of outer products, by component or, if "tied", over all of them."""
    if form == "tied":
        rows = centred if normalised else centred * np.sqrt(shares.sum(axis=1))[:, None]
        return product_total(rows, rows, unit, unit)
    weighted = (centred * root[:, None] for root in np.sqrt(shares).T)
    return _stacked([product_total(part, part, unit, unit) for part in weighted])


def _stacked(totals: list[Total]) -> Total:
    levels = max(len(total.parts) for total in totals)
    parts = np.zeros((levels, len(totals), *totals[0].parts.shape[1:]))
    for j, total in enumerate(totals):
        parts[: len(total.parts), j] = total.parts
    return Total(parts, totals[0].unit)


def _missing_covariances(conditional: list[ConditionalCovariances], shares: Floats, unit: Floats) -> Total:
    """Weighted sum of missing entries' conditional covariances, by feature or, flattened, by pair of features."""
    rounded = np.rint(shares * _SHARE_UNITS) / _SHARE_UNITS
    parts = [one.weighted(rounded) for one in conditional] or [(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.intp))]
    weights, values, places = (np.concatenate(some) for some in zip(*parts, strict=True))
    return scattered_total(weights, values, places, unit)


_MAX_MULTIDIGIT_ROWS: Final = 4096  # with more rows, rounding responsibilities to 2**-16 shifts means by less than 1e-7


@dataclass(frozen=True)
class MixtureStatistics:
    """Statistics of a pass over all rows.

    moments: weighted sums; log_likelihood: mean log density per row; n_outliers: rows below the noise threshold, which
    count in neither; nearest (k,): the row of greatest density under each component, the first among equals; furthest
    (2 s,): rows of greatest and least height along the directions, if asked for; n_unobserved_rows, n_observed,
    n_incomplete_rows: where entries are missing: rows without any, observed entries, and rows that lack some.
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
    noise_threshold: float
    directions: TailDirections | None
    max_weight: float | None  # greatest weight of a row; None where rows have none
    few: bool  # so few rows that the rounding of responsibilities would show in the means
    missing: bool

    @property
    def multidigit(self) -> bool:
        """Whether sums are taken in several digits: of weights, of components far from the centre, or far too broad."""
        gaussians = self.densities.gaussians
        unfit = gaussians.far[:, None] & (gaussians.covariance_type != "full")
        if gaussians.covariance_type in _MATRIX_FORMS:  # whitened rows would be rounded to zero
            unfit = unfit | (gaussians.deviations > _MAX_SCALE_RATIO * self.deviations)
        return bool(unfit.any()) or self.few or self.missing or self.max_weight is not None


@dataclass(frozen=True)
class _Sums(Summed):
    totals: list[Total]  # of moments
    log_likelihood: Total
    counted: float  # number of rows that are not noise, or the sum of their weights
    nearest: ArgBest  # (k,): rows of greatest density
    furthest: ArgBest | None = None  # (2 s,): rows of greatest and least height
    n_observed: int = 0
    n_incomplete_rows: int = 0  # rows that lack some entries, but not all


def e_step_pass(
    rows: Rows,
    densities: Densities,
    deviations: Floats,
    run: Run,
    noise_threshold: float = -np.inf,
    directions: TailDirections | None = None,
    *,
    missing: bool = False,
) -> MixtureStatistics:
    """Run the E-step over all rows, bit for bit the same for any chunking, merge order or number of workers.

    deviations (p,): standard deviations of the features or coordinates, none of them zero, which values are rounded by;
    noise_threshold: rows of a lower log density have no weight; directions: the divide step finds the rows furthest out
    along these in the same pass; missing: entries may be missing, and neither threshold nor directions are given.
    """
    max_weight = None if rows.weights is None else rows.weights.most
    few, unit = rows.n_copies <= _MAX_MULTIDIGIT_ROWS, max_weight or 1.0
    state = _State(densities, deviations, noise_threshold, directions, max_weight, few, missing)
    sums = run_pass(rows, Pass("refine", _refine_block, add_parts, weighted=True), state, run)
    values, gaussians = [unit * total.value() for total in sums.totals], densities.gaussians
    mean = float(sums.log_likelihood.value()) / max(sums.counted, LOG_UNIT)
    n_others = round(rows.total_weight - unit * sums.counted)
    moments = moments_of_totals(gaussians, values) if state.multidigit else moments_of_sums(gaussians, values)
    if missing:
        counts = n_others, sums.n_observed, n_others + sums.n_incomplete_rows
        return MixtureStatistics(moments, mean, 0, sums.nearest.rows, None, *counts)
    return MixtureStatistics(
        rescale_student_moments(moments, gaussians), mean, n_others, sums.nearest.rows, sums.furthest
    )


def _refine_block(state: _State, start: int, *columns: Any, weights: Floats | None = None) -> _Sums:
    if state.missing:
        return _observed_block(state, start, columns)
    return _multidigit_block(state, start, columns, weights) if state.multidigit else _fast_block(state, start, columns)


def _fast_block(state: _State, start: int, columns: Sequence[Any]) -> _Sums:
    gaussians, space = state.densities.gaussians, state.densities.subspace
    k, p = gaussians.means.shape
    height = e_step_tile_height(gaussians.covariance_type, k, p, state.densities.height)
    sums = component_sums(gaussians, state.densities.log_weights, state.deviations, height)
    step = EStep(sums, gaussians, state.densities.log_weights, state.noise_threshold)
    furthest = None if state.directions is None else FurthestRows(state.directions)
    for numbers, tile in even_tiles(columns, start, height):
        if furthest is not None:
            require_squares(tile, numbers)
            furthest.add(tile, numbers)
        with np.errstate(all="ignore"):
            places, residual_logs = (tile, 0.0) if space is None else space.split(tile)
        if not step.add(places, numbers, residual_logs):
            require_squares(tile, numbers)
            step.add_multidigit()
    best = None if furthest is None else furthest.total()
    return _Sums(step.totals(), step.log_likelihood, step.n_counted, step.nearest, best)


def _multidigit_block(state: _State, start: int, columns: Sequence[Any], weights: Floats | None) -> _Sums:
    k, p = state.densities.gaussians.means.shape
    found = [_multidigit_sums(state, np.zeros(0, dtype=np.int64), np.zeros((0, p)), np.zeros((0, k)), None)]
    gaussians = state.densities.gaussians
    furthest = None if state.directions is None else FurthestRows(state.directions)
    for numbers, tile in even_tiles(columns, start, state.densities.height):
        require_squares(tile, numbers)
        own = None if weights is None else weights[numbers - start]
        if furthest is not None:
            furthest.add(tile, numbers, None if own is None else own > 0.0)
        places, logs, residual_logs = tile_log_densities(state.densities, tile)
        tail_weights = student_weights(gaussians, logs)[: len(numbers)] if np.isfinite(gaussians.degrees) else None
        logs += state.densities.log_weights + residual_logs
        centred = places[: len(numbers)] - gaussians.centre
        found.append(_multidigit_sums(state, numbers, centred, logs, own, tail_weights))
    return replace(add_parts(found), furthest=None if furthest is None else furthest.total())


def _multidigit_sums(
    state: _State,
    numbers: Numbers,
    centred: Floats,
    joint: Floats,
    weights: Floats | None,
    tail_weights: Floats | None = None,
) -> _Sums:
    (n, k), gaussians = (len(numbers), joint.shape[1]), state.densities.gaussians
    shares, logs = (part[:n] for part in normalise(joint)) if n else (joint, joint[:, 0])
    counted = (logs >= state.noise_threshold).astype(np.float64)
    normalised = weights is None and not np.isfinite(state.noise_threshold)
    if weights is not None:
        counted *= weights / (state.max_weight or 1.0)  # exact sums take weights of at most one
        joint[:n][weights == 0.0] = -np.inf
    shares = shares * counted[:, None]
    if tail_weights is not None:
        shares *= tail_weights
    moments = moment_totals(gaussians, state.deviations, shares, centred, normalised=normalised)
    nearest = ArgBest.of_rows(joint[:n], numbers) if n else ArgBest.empty(k)
    log_likelihood = plain_total(np.where(counted > 0.0, logs, 0.0) * counted, LOG_UNIT)
    return _Sums([*moments], log_likelihood, float(counted.sum()), nearest)


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
    away, missing = (one.away for one in seen), (one.uncertain for one in seen)
    totals = [*moment_totals_about_means(gaussians, state.deviations, shares, away, missing)]
    nearest = ArgBest.empty(len(seen))
    if len(rows):
        nearest = ArgBest.of_rows(np.stack([typicality(one, mask) for one in seen], axis=1), numbers)
    return _Sums(
        totals,
        plain_total(logs, LOG_UNIT),
        float(len(rows)),
        nearest,
        None,
        int(mask.sum()),
        int((~mask.all(axis=1)).sum()),
    )
