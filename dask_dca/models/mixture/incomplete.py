"""The recipe of mixtures of rows with missing entries: the search on completed rows, passes on what was observed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from dask_dca.anchoring.completion import complete_rows, completed_sample
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import call, hold_rows
from dask_dca.engine.tiles import even_tiles, require_size, require_squares, tile_height, tiles
from dask_dca.engine.types import Run, add_parts
from dask_dca.errors import UNWEIGHTED, InvalidInputError, InvalidParameterError, MissingEntriesError
from dask_dca.geometry import planes
from dask_dca.geometry.exact import Total, plain_total, power_of_two, product_total, scattered_total, weighted_total
from dask_dca.geometry.extremes import ArgBest
from dask_dca.geometry.low_rank import LowRank, structured
from dask_dca.models.em import expectation_maximisation
from dask_dca.models.gaussians import ROUND, GaussianMoments, Gaussians, prepare_gaussians
from dask_dca.models.incomplete_gaussians import completed_rows, drawn_rows, typicality
from dask_dca.models.kmeans import distinct_count
from dask_dca.models.mixture.e_step import FurthestRows, TailDirections
from dask_dca.models.mixture.em import normalise, prepared
from dask_dca.models.mixture.family import maximization
from dask_dca.models.mixture.fit import (
    MOST_AUTO,
    MixtureFit,
    SampledRows,
    affordable_count,
    certified,
    fit_mixture,
    sample_numbers,
)
from dask_dca.models.mixture.given import learn_given
from dask_dca.models.mixture.learning import WIDEST, RowSample, learn, spreads_of
from dask_dca.models.mixture.passes import MixtureStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.models.em import Refined
    from dask_dca.models.incomplete_gaussians import CompletedRows
    from dask_dca.models.mixture.family import Mixture
    from dask_dca.models.mixture.learning import Learnt, MixtureStart
    from dask_dca.models.mixture.settings import MixtureSettings


_VALUE: Final = 2.0**-30  # of a component's standard deviation
_SQUARE: Final = 2.0**-32  # of its variance
_UNCERTAIN: Final = 2.0**-40
_LEAST_SHARE: Final = 2.0**-25  # rounded, a smaller share is none
_LEAST_DEVIATION: Final = 2.0**-40  # of a feature's own
_NATS: Final = 2.0**-20
_WHOLE: Final = 2.0**24  # of a share
_DRAFTS: Final = ((15, 1e-3), (15, 1e-3), (40, 1e-4))  # passes on what was observed of the sample: after each search


@dataclass(frozen=True)
class Observed:
    """A fit, the rows as it saw them (their holes filled, if there are any), and how much of them was observed."""

    fit: MixtureFit
    rows: Rows
    n_unobserved_rows: int = 0
    n_observed: int | None = None  # None: all
    in_blocks: bool = False


def fit_observed(
    rows: Rows, n_components: int | None, settings: MixtureSettings, run: Run, given: Mapping[str, Floats]
) -> Observed:
    """Fit a mixture, of rows with holes if there are any; parameters are those of `fit_mixture`."""
    try:
        return Observed(fit_mixture(rows, n_components, settings, run, given), rows)
    except MissingEntriesError:
        return _fit_incomplete(rows, n_components, settings, run, given)


@dataclass(frozen=True)
class _IncompleteSample(RowSample):
    """Rows with an observed entry, completed; and as they were, NaN in their holes: both less the centre."""

    observed: Floats
    numbers: Numbers
    model: LowRank


def _fit_incomplete(
    rows: Rows, n_components: int | None, settings: MixtureSettings, run: Run, given: Mapping[str, Floats]
) -> Observed:
    if rows.weights is not None:
        raise InvalidInputError(UNWEIGHTED)
    if settings.tails == "heavy":
        msg = "tails='heavy' needs rows without missing entries; use tails='normal', or fill them"
        raise InvalidParameterError(msg)
    settings = replace(settings, tails="normal")
    if settings.covariance_type == "auto" and rows.n_features > WIDEST:
        settings = replace(settings, covariance_type="diag")
    sample, model, in_blocks = _take_sample(rows, n_components or MOST_AUTO, run)
    if given:
        learnt = call(run, "start", learn_given, sample.held, given, settings)
    else:
        k = affordable_count(sample, n_components)
        learnt = call(run, "start", _learn, sample.held, k, settings, n_components is None, sample.deviations)
    filled = complete_rows(rows, model)
    directions = TailDirections(sample.centre, learnt.coordinates, learnt.axes)
    furthest = run_pass(
        filled, Pass("divide", _furthest_block, add_parts), (directions, tile_height(rows.n_rows, rows.n_features)), run
    )
    if run.reads is not None:
        run.reads.full += 1  # the rows were read, if as others
    refined = _refine(rows, learnt.start, sample.centre, sample.deviations, (settings.max_iter, settings.tol), run)
    seen = refined.seen
    plain: Refined[Mixture, MixtureStatistics] = cast("Any", refined)  # a refinement of its parts is one of the whole
    fit = MixtureFit(plain, learnt.start, sample.centre, certified(plain, learnt, furthest, sample))
    return Observed(fit, filled, seen.n_unobserved_rows, seen.n_observed, in_blocks)


def _furthest_block(state: tuple[TailDirections, int], start: int, *columns: Any) -> ArgBest:
    directions, height = state
    found = FurthestRows(directions)
    for numbers, tile in even_tiles(columns, start, height):
        require_squares(tile, numbers)
        found.add(tile, numbers)
    return found.total()


def _take_sample(rows: Rows, n_components: int, run: Run) -> tuple[SampledRows, LowRank, bool]:
    numbers = sample_numbers(rows, n_components, run)
    every = np.arange(rows.n_rows) if numbers is None else numbers
    held = hold_rows(rows, numbers, run, partial(_completed, every, n_components), holes=True)
    known, model, in_blocks = call(run, "describe", _described, held)
    return SampledRows(cast("Any", held), *known), model, in_blocks


def _completed(numbers: Numbers, n_components: int, rows: Floats) -> _IncompleteSample:
    require_squares(rows, numbers, missing=True)
    require_size(rows, numbers)
    some = ~np.isnan(rows).all(axis=1)
    rows, numbers = rows[some], numbers[some]
    filled, model = completed_sample(rows, n_components)
    centre = np.median(filled, axis=0)
    return _IncompleteSample(filled - centre, centre, rows - centre, numbers, model)


def _described(sample: _IncompleteSample) -> tuple[tuple[Any, ...], LowRank, bool]:
    variances = (sample.rows**2).mean(axis=0)
    known = (sample.numbers, distinct_count(sample.rows), sample.centre, variances, spreads_of(sample.rows))
    return known, sample.model, structured(~np.isnan(sample.observed))


def _learn(sample: _IncompleteSample, k: int, settings: MixtureSettings, auto: bool, deviations: Floats) -> Learnt:
    """Search on the completed sample, then go on with what was observed of it; no rows are set aside.

    Completed by means at first, which vary too little for the pulls of covariances, then by draws from what was found.
    """
    centre, raw = np.zeros(len(deviations)), as_rows(sample.observed)
    for number, passes in enumerate(_DRAFTS):
        learnt = learn(sample, k, settings, auto)
        start = replace(learnt.start, least=-np.inf)
        mixture = _refine(raw, start, centre, deviations, passes, Run()).model
        found = replace(learnt, start=replace(start, mixture=mixture), isolated=np.zeros(0, dtype=np.intp))
        if number < len(_DRAFTS) - 1:
            sample = replace(sample, rows=_drawn(sample, mixture, settings.anchoring.seed))
    return found


def _drawn(sample: _IncompleteSample, mixture: Mixture, seed: int) -> Floats:
    """Complete the sample by draws from a mixture of it."""
    mask = ~np.isnan(sample.observed)
    rows = np.where(mask, sample.observed, 0.0)
    gaussians = prepared(mixture)
    joint = np.stack([one.log_densities for one in completed_rows(gaussians, rows, mask)], axis=1)
    shares = normalise(joint + np.log(mixture.weights))[0]
    uniforms = planes.uniforms(planes.child_seeds(seed, sample.numbers), rows.shape[1] + 1)
    return drawn_rows(gaussians, shares, rows, mask, uniforms)


@dataclass(frozen=True)
class _Statistics(MixtureStatistics):
    n_unobserved_rows: int = 0
    n_observed: int = 0


def _refine(
    rows: Rows, start: MixtureStart, centre: Floats, deviations: Floats, passes: tuple[int, float], run: Run
) -> Refined[Mixture, _Statistics]:
    """Run passes of expectation-maximisation on what was observed; the last one only looks."""

    def _look(now: Mixture) -> tuple[_Statistics, float]:
        gaussians = prepare_gaussians(now.means + centre, now.covariances, now.covariance_type, centre)
        seen = _e_step_pass(rows, gaussians, np.log(now.weights), deviations, run)
        return seen, seen.log_likelihood

    def _step(now: Mixture, seen: _Statistics) -> Mixture:
        evidence = start.evidence * seen.moments.counts
        return maximization(seen.moments, now.covariance_type, start.shrinkage, evidence, now.means)

    return expectation_maximisation(start.mixture, _look, _step, max_iter=passes[0], tol=passes[1])


@dataclass(frozen=True)
class _State:
    gaussians: Gaussians
    log_weights: Floats
    scales: Floats  # (k, p): powers of two that sums are rounded in proportion to

    @property
    def matrices(self) -> bool:
        """Whether covariances are matrices."""
        return self.gaussians.covariance_type in ("full", "tied")


@dataclass(frozen=True)
class _Sums:
    totals: list[Total]  # of each component; log likelihood beside the number of rows that count
    nearest: ArgBest  # (k,)
    n_observed: int

    def __add__(self, other: _Sums) -> _Sums:
        totals = add_parts([self.totals, other.totals])
        return _Sums(totals, self.nearest + other.nearest, self.n_observed + other.n_observed)


def _e_step_pass(rows: Rows, gaussians: Gaussians, log_weights: Floats, deviations: Floats, run: Run) -> _Statistics:
    """Sum what a step needs over all rows; the same bits for any chunking."""
    own = np.clip(gaussians.deviations, _LEAST_DEVIATION * deviations, deviations)
    state = _State(gaussians, log_weights, power_of_two(own))
    sums = run_pass(rows, Pass("refine", _refine_block, add_parts), state, run)
    *parts, (log_likelihood, counted) = (total.value() for total in sums.totals)
    mean = float(log_likelihood) / max(float(counted), 1.0)
    unobserved = rows.n_rows - int(counted)
    return _Statistics(_moments(state, parts), mean, 0, sums.nearest.rows, None, unobserved, sums.n_observed)


def _moments(state: _State, parts: list[Floats]) -> GaussianMoments:
    """Put the sums of all components together; they are about the means."""
    (k, p), kind = state.gaussians.means.shape, state.gaussians.covariance_type
    linear, squares, uncertain = (np.stack(parts[i::3]) for i in range(3))
    second = (squares + uncertain).reshape(k, p, -1)
    if not state.matrices:
        second = second[:, :, 0].sum(axis=1) if kind in ROUND else second[:, :, 0]
    elif kind == "tied":
        second = second.sum(axis=0)
    return GaussianMoments(linear[:, 0], linear[:, 1:], second, state.gaussians.means)


def _refine_block(state: _State, start: int, *columns: Any) -> _Sums:
    p = len(state.gaussians.centre)
    found = [_sums(state, np.zeros(0, dtype=np.int64), np.zeros((0, p)))]
    for numbers, tile in tiles(columns, start, copy=False):
        require_squares(tile, numbers, missing=True)
        some = ~np.isnan(tile).all(axis=1)
        found.append(_sums(state, numbers[some], tile[some]))
    return add_parts(found)


def _sums(state: _State, numbers: Numbers, rows: Floats) -> _Sums:
    """Sums over rows that each have an observed entry."""
    mask = ~np.isnan(rows)
    seen = list(completed_rows(state.gaussians, np.where(mask, rows, 0.0), mask))
    joint = np.stack([one.log_densities for one in seen], axis=1) + state.log_weights
    shares, log_likelihoods = normalise(joint) if len(rows) else (joint, joint[:, 0])
    pairs = enumerate(zip(seen, shares.T, strict=True))
    totals = [total for j, (one, own) in pairs for total in _of_component(state, j, one, own)]
    totals.append(plain_total(np.stack([log_likelihoods, np.ones(len(rows))], axis=1), _NATS))
    if not len(rows):
        return _Sums(totals, ArgBest.nobody(len(seen)), 0)
    keys = np.stack([typicality(one, mask) for one in seen], axis=1)
    return _Sums(totals, ArgBest.of_rows(keys, numbers), int(mask.sum()))


def _of_component(state: _State, j: int, seen: CompletedRows, shares: Floats) -> list[Total]:
    """Counts and weighted rows, their squares or products, and those that holes may add, about the mean."""
    own, scale = shares > _LEAST_SHARE, state.scales[j]  # far rows would cost many digits
    away, weights = seen.away[own], shares[own, None]
    linear = weighted_total(weights, np.hstack([np.ones((len(away), 1)), away]), np.append(1.0, _VALUE * scale))
    squares = np.multiply.outer(scale, scale).ravel() if state.matrices else scale**2
    if state.matrices:
        part = away * np.sqrt(weights)
        products = product_total(part, part, _VALUE * scale, _VALUE * scale)
        second = Total(products.parts.reshape(len(products.parts), -1), np.ravel(products.unit))
    else:
        second = _first_row(weighted_total(weights, away**2, _SQUARE * squares))
    kept = np.where(own, np.rint(shares * _WHOLE) / _WHOLE, 0.0)
    parts = [one.weighted(kept) for one in seen.uncertain] or [(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.intp))]
    counts, values, places = (np.concatenate(some) for some in zip(*parts, strict=True))
    return [_first_row(linear), second, scattered_total(counts, values, places, _UNCERTAIN * squares)]


def _first_row(total: Total) -> Total:
    """The sums of a single column of weights."""
    return Total(total.parts[:, 0], total.unit)
