"""The recipe for mixtures of rows with missing entries: a search on completed rows, passes on observed entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

import numpy as np

from dask_dca.anchoring.completion import complete_rows, complete_sample
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import call, hold_rows
from dask_dca.engine.tiles import even_tiles, require_size, require_squares, tile_height
from dask_dca.engine.types import Run, add_parts
from dask_dca.errors import (
    DROP,
    UNWEIGHTED,
    InvalidInputError,
    InvalidParameterError,
    MissingEntriesError,
    MissingEntriesWarning,
    warn,
)
from dask_dca.geometry import planes
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.low_rank import LowRank, is_missing_in_blocks
from dask_dca.geometry.votes import ArgBest
from dask_dca.models.em import Refined, expectation_maximisation
from dask_dca.models.incomplete_gaussians import completed_rows, drawn_rows
from dask_dca.models.kmeans import distinct_count
from dask_dca.models.mixture.em import normalise, prepare_mixture
from dask_dca.models.mixture.family import Mixture
from dask_dca.models.mixture.fit import (
    MAX_AUTO_COMPONENTS,
    MixtureFit,
    SampleHandle,
    affordable_count,
    certificate_of,
    fit_mixture,
    next_mixture,
    prepare_densities,
    sample_numbers,
)
from dask_dca.models.mixture.furthest import FurthestRows, TailDirections
from dask_dca.models.mixture.given import MixtureSettings, start_from_parameters
from dask_dca.models.mixture.learning import (
    MAX_FULL_FEATURES,
    MixtureStart,
    RowSample,
    SampleFit,
    fit_sample,
    robust_scales,
)
from dask_dca.models.mixture.passes import MixtureStatistics, e_step_pass

_ROUND_PASSES: Final = ((15, 1e-3), (15, 1e-3), (40, 1e-4))  # maximum passes on the sample after each search, and tol


@dataclass(frozen=True)
class Observed:
    """A fit, the rows with missing entries filled in, and counts of what was observed."""

    fit: MixtureFit
    rows: Rows
    n_unobserved_rows: int = 0
    n_observed: int | None = None  # observed entries; None if none is missing
    in_blocks: bool = False  # whether whole blocks of entries are missing, rather than scattered ones
    n_incomplete_rows: int = 0
    left_out: tuple[str, ...] = ()  # what the fit would have tried, were the rows complete

    @property
    def n_missing(self) -> int:
        """Number of missing entries."""
        return 0 if self.n_observed is None else self.rows.n_rows * self.rows.n_features - self.n_observed


def fit_observed(
    rows: Rows, n_components: int | None, settings: MixtureSettings, run: Run, given: Mapping[str, Floats]
) -> Observed:
    """Fit a mixture to rows with or without missing entries; parameters as for `fit_mixture`."""
    try:
        return Observed(fit_mixture(rows, n_components, settings, run, given), rows)
    except MissingEntriesError as error:
        error.with_traceback(None)  # Dask keeps the error until it is collected, and its frames what the cluster holds
        return _fit_incomplete(rows, n_components, settings, run, given)


def warn_of_left_out(rows: Rows, seen: Observed) -> None:
    """Warn if the fit left out steps because entries are missing."""
    if not seen.left_out:
        return
    entries = "1 entry" if seen.n_missing == 1 else f"{seen.n_missing} entries"
    of_rows = "1 row" if seen.n_incomplete_rows == 1 else f"{seen.n_incomplete_rows} rows"
    warn(
        f"{entries} of {of_rows} {'is' if seen.n_missing == 1 else 'are'} missing, so that "
        f"{' and '.join(seen.left_out)}; if such rows are few, leave them out: {rows.form.adapt(DROP)}",
        MissingEntriesWarning,
    )


def _left_out(settings: MixtureSettings, n_features: int, *, given: bool) -> tuple[str, ...]:
    """Describe the steps of a fit that need complete rows."""
    searched = ["heavy tails"] * (settings.tails == "auto") + ["noise rows"] * (settings.reg_covar is None)
    found = [f"{' and '.join(searched)} were not looked for"] * bool(searched)
    if settings.covariance_type == "auto" and n_features > MAX_FULL_FEATURES:
        found.append(f"covariance_type='auto' is 'diag' above {MAX_FULL_FEATURES} features")
    return () if given else tuple(found)


@dataclass(frozen=True)
class _IncompleteSample(RowSample):
    """A sample of rows that have an observed entry, completed; `observed` has NaN where an entry is missing."""

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
    left_out = _left_out(settings, rows.n_features, given=bool(given))
    settings = replace(settings, tails="normal")
    if settings.covariance_type == "auto" and rows.n_features > MAX_FULL_FEATURES:
        settings = replace(settings, covariance_type="diag")
    sample, model, in_blocks = _take_sample(rows, n_components or MAX_AUTO_COMPONENTS, run)
    if given:
        sample_fit = call(run, "start", start_from_parameters, sample.held, given, settings)
    else:
        k = affordable_count(sample, n_components)
        sample_fit = call(
            run, "start", _fit_incomplete_sample, sample.held, k, settings, n_components is None, sample.deviations
        )
    filled = complete_rows(rows, model)
    directions = TailDirections(sample.centre, sample_fit.coordinates, sample_fit.axes)
    furthest = run_pass(
        filled, Pass("divide", _furthest_block, add_parts), (directions, tile_height(rows.n_rows, rows.n_features)), run
    )
    if run.reads is not None:
        run.reads.full += 1  # the filled rows are the same data, read once more
    refined = _refine(rows, sample_fit.start, sample.centre, sample.deviations, (settings.max_iter, settings.tol), run)
    fit = MixtureFit(refined, sample_fit.start, sample.centre, certificate_of(refined, sample_fit, furthest, sample))
    seen = refined.seen
    counts = seen.n_unobserved_rows, seen.n_observed, in_blocks, seen.n_incomplete_rows
    return Observed(fit, filled, *counts, left_out)


def _furthest_block(state: tuple[TailDirections, int], start: int, *columns: Any) -> ArgBest:
    directions, height = state
    found = FurthestRows(directions)
    for numbers, tile in even_tiles(columns, start, height):
        require_squares(tile, numbers)
        found.add(tile, numbers)
    return found.total()


def _take_sample(rows: Rows, n_components: int, run: Run) -> tuple[SampleHandle, LowRank, bool]:
    numbers = sample_numbers(rows, n_components, run)
    every = np.arange(rows.n_rows) if numbers is None else numbers
    held = hold_rows(rows, numbers, run, partial(_complete_sample, every, n_components), missing=True)
    known, model, in_blocks = call(run, "describe", _describe_incomplete, held)
    return SampleHandle(cast("Any", held), *known), model, in_blocks


def _complete_sample(numbers: Numbers, n_components: int, rows: Floats) -> _IncompleteSample:
    require_squares(rows, numbers, missing=True)
    require_size(rows, numbers)
    some = ~np.isnan(rows).all(axis=1)
    rows, numbers = rows[some], numbers[some]
    filled, model = complete_sample(rows, n_components)
    centre = np.median(filled, axis=0)
    return _IncompleteSample(filled - centre, centre, rows - centre, numbers, model)


def _describe_incomplete(sample: _IncompleteSample) -> tuple[tuple[Any, ...], LowRank, bool]:
    known = (sample.numbers, distinct_count(sample.rows), sample.centre, robust_scales(sample.rows))
    return known, sample.model, is_missing_in_blocks(~np.isnan(sample.observed))


def _fit_incomplete_sample(
    sample: _IncompleteSample, k: int, settings: MixtureSettings, auto: bool, deviations: Floats
) -> SampleFit:
    """Search on the completed sample, refine on its observed entries, and repeat; no row counts as noise.

    Missing entries are filled by conditional means first, whose variances are too small to choose pulls by, then by
    draws from the mixture of the round before.
    """
    centre, raw = np.zeros(len(deviations)), as_rows(sample.observed)
    for number, passes in enumerate(_ROUND_PASSES):
        sample_fit = fit_sample(sample, k, settings, auto)
        start = replace(sample_fit.start, noise_threshold=-np.inf)
        mixture = _refine(raw, start, centre, deviations, passes, Run()).model
        found = replace(sample_fit, start=replace(start, mixture=mixture), isolated=np.zeros(0, dtype=np.intp))
        if number < len(_ROUND_PASSES) - 1:
            sample = replace(sample, rows=_complete_by_draws(sample, mixture, settings.anchoring.seed))
    return found


def _complete_by_draws(sample: _IncompleteSample, mixture: Mixture, seed: int) -> Floats:
    """Fill missing entries of the sample by draws from their conditional distribution under a mixture."""
    mask = ~np.isnan(sample.observed)
    rows = np.where(mask, sample.observed, 0.0)
    gaussians = prepare_mixture(mixture)
    joint = np.stack([one.log_densities for one in completed_rows(gaussians, rows, mask)], axis=1)
    shares = normalise(joint + np.log(mixture.weights))[0]
    uniforms = planes.uniforms(planes.child_seeds(seed, sample.numbers), rows.shape[1] + 1)
    return drawn_rows(gaussians, shares, rows, mask, uniforms)


def _refine(
    rows: Rows, start: MixtureStart, centre: Floats, deviations: Floats, passes: tuple[int, float], run: Run
) -> Refined[Mixture, MixtureStatistics]:
    """Run passes of expectation-maximisation on the observed entries."""

    def _look(now: Mixture) -> tuple[MixtureStatistics, float]:
        seen = e_step_pass(rows, prepare_densities(rows, now, start, centre), deviations, run, missing=True)
        return seen, seen.log_likelihood

    return expectation_maximisation(
        start.mixture, _look, partial(next_mixture, start), max_iter=passes[0], tol=passes[1]
    )
