"""The recipe of mixtures: a sample, a search on it, passes of expectation-maximisation over all rows.

The first of these passes is also the divide step: it finds the rows furthest out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import numpy as np

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import Rows
from dask_dca.engine.sampling import Held, call, hold_rows
from dask_dca.engine.tiles import require_size, require_squares, tile_height
from dask_dca.engine.weights import draw_rows
from dask_dca.errors import FewerAnchorsWarning, warn
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.votes import ArgBest, count_votes
from dask_dca.models.attributes import vote_attributes
from dask_dca.models.em import Refined, corrected_maximisation, expectation_maximisation
from dask_dca.models.gaussians import GaussianMoments, prepare_gaussians
from dask_dca.models.kmeans import distinct_count, squared_distances
from dask_dca.models.mixture.densities import Densities
from dask_dca.models.mixture.em import CorrectedStep, SampleEM, corrected_step, prepare_mixture
from dask_dca.models.mixture.family import Mixture, maximization, split_rows
from dask_dca.models.mixture.furthest import TailDirections
from dask_dca.models.mixture.given import MixtureSettings, start_from_parameters
from dask_dca.models.mixture.learning import MixtureStart, RowSample, SampleFit, fit_sample, robust_scales
from dask_dca.models.mixture.passes import MixtureStatistics, e_step_pass

_SAMPLE_ROWS: Final = 65_536  # maximum number of rows of the sample, unless 20 for each component are more
_SAMPLE_ENTRIES: Final = 2 * 10**7  # maximum number of entries of the sample, with the same exception
_RUN_ROWS: Final = 20  # the sample is drawn in runs of this many consecutive rows


@dataclass(frozen=True)
class SampleHandle:
    """A sample of rows held on a worker, and the statistics of it that the driver needs.

    numbers (n,): row numbers; n_distinct: number of distinct rows; centre, deviations (p,): median of each feature, and
    a robust scale of its values about it, never zero.
    """

    held: Held[RowSample]
    numbers: Numbers
    n_distinct: int
    centre: Floats
    deviations: Floats


def take_sample(rows: Rows, n_components: int, run: Run) -> SampleHandle:
    """Draw a sample of rows, at least 20 for each component if there are so many, and hold it on a worker.

    Raises InvalidInputError: squares are out of the range of floating-point numbers.
    """
    numbers = sample_numbers(rows, n_components, run)
    every = np.arange(rows.n_rows) if numbers is None else numbers
    held = hold_rows(rows, numbers, run, partial(_centre_sample, every))
    return SampleHandle(held, every, *call(run, "describe", _describe_sample, held))


def sample_numbers(rows: Rows, n_components: int, run: Run) -> Numbers | None:
    """Choose the sample's rows, which depend on the shape of the data and their weights only; None means all rows."""
    wanted = max(min(_SAMPLE_ROWS, _SAMPLE_ENTRIES // rows.n_features), 20 * n_components)
    return draw_rows(rows, -(-wanted // _RUN_ROWS), _RUN_ROWS, run)


def _centre_sample(numbers: Numbers, rows: Floats) -> RowSample:
    require_squares(rows, numbers)
    require_size(rows, numbers)
    centre = np.median(rows, axis=0)
    return RowSample(rows - centre, centre)


def _describe_sample(sample: RowSample) -> tuple[int, Floats, Floats]:
    return distinct_count(sample.rows), sample.centre, robust_scales(sample.rows)


MAX_AUTO_COMPONENTS: Final = 24  # maximum number of components that n_components="auto" tries
_ROWS_PER_COMPONENT: Final = 10  # minimum number of rows for each component that n_components="auto" tries


@dataclass(frozen=True)
class MixtureFit:
    """A fitted mixture.

    refined: parameters after the last pass, and statistics; centre (p,): origin of the means; certificate: anchors,
    votes and other fitted attributes, by name.
    """

    refined: Refined[Mixture, MixtureStatistics]
    start: MixtureStart
    centre: Floats
    certificate: dict[str, Any]


def fit_mixture(
    rows: Rows, n_components: int | None, settings: MixtureSettings, run: Run, given: Mapping[str, Floats] | None = None
) -> MixtureFit:
    """Fit a mixture with checked parameters.

    n_components: number of components k, None to choose it by BIC; given: parameters to start from instead of anchors.
    """
    sample = take_sample(rows, n_components or MAX_AUTO_COMPONENTS, run)
    if given:
        sample_fit = call(run, "start", start_from_parameters, sample.held, given, settings)
    else:
        k = affordable_count(sample, n_components)
        sample_fit = call(run, "start", fit_sample, sample.held, k, settings, n_components is None)
    directions = TailDirections(sample.centre, sample_fit.coordinates, sample_fit.axes)
    refined, furthest = refine(rows, sample_fit.start, sample, (settings.max_iter, settings.tol), run, directions)
    return MixtureFit(
        refined, sample_fit.start, sample.centre, certificate_of(refined, sample_fit, cast("ArgBest", furthest), sample)
    )


def affordable_count(sample: SampleHandle, n_components: int | None) -> int:
    """Limit the number of components to that of distinct rows; for "auto" (None), find the greatest one to try."""
    distinct = sample.n_distinct
    if n_components is None:
        return min(MAX_AUTO_COMPONENTS, max(1, len(sample.numbers) // _ROWS_PER_COMPONENT), distinct)
    if distinct < n_components:
        msg = f"the data have {distinct} distinct rows, fewer than n_components={n_components}: that many are fitted"
        warn(msg, FewerAnchorsWarning)
    return min(distinct, n_components)


def refine(
    rows: Rows,
    start: MixtureStart,
    sample: SampleHandle,
    passes: tuple[int, float],
    run: Run,
    directions: TailDirections | None = None,
) -> tuple[Refined[Mixture, MixtureStatistics], ArgBest | None]:
    """Run passes of expectation-maximisation over all rows, each followed by corrected steps on the sample.

    start: mixture, shrinkage and noise threshold; passes: maximum number, and tolerance; directions: for the divide
    step of the first pass. Returns the mixture, the same for any chunking or number of workers, and the rows furthest
    out.
    """
    (most, tol), deviations = passes, sample.deviations if start.deviations is None else start.deviations
    furthest: list[ArgBest | None] = []

    def _look(now: Mixture) -> tuple[MixtureStatistics, float]:
        densities, wanted = prepare_densities(rows, now, start, sample.centre), None if furthest else directions
        seen = e_step_pass(rows, densities, deviations, run, start.noise_threshold, wanted)
        furthest.append(seen.furthest)
        return seen, seen.log_likelihood

    def _correct(now: Mixture, seen: MixtureStatistics) -> CorrectedStep:
        n_rows = rows.total_weight - seen.n_outliers
        return call(run, "correct", _corrected, sample.held, start, deviations, now, seen.moments, n_rows, tol)

    # the sample corrects nothing where it is all rows, where sums about the centre would cancel, and in plain EM
    far = bool(prepare_mixture(start.mixture).far.any())
    if len(sample.numbers) < rows.n_copies and not (far or start.shrinkage.plain):
        refined = corrected_maximisation(start.mixture, _look, _correct, max_iter=most, tol=tol)
    else:
        refined = expectation_maximisation(start.mixture, _look, partial(next_mixture, start), max_iter=most, tol=tol)
    return refined, furthest[0]


def next_mixture(start: MixtureStart, now: Mixture, seen: MixtureStatistics) -> Mixture:
    """Run the M-step, with the start's shrinkage and ratio of distinct rows."""
    evidence = start.evidence * seen.moments.counts
    return maximization(seen.moments, now.covariance_type, start.shrinkage, evidence, now.means)


def _corrected(
    sample: RowSample,
    start: MixtureStart,
    deviations: Floats,
    now: Mixture,
    moments: GaussianMoments,
    n_rows: float,
    tol: float,
) -> CorrectedStep:
    """Follow a pass by corrected steps on the sample."""
    rows, residual_logs = split_rows(sample.rows, start.subspace)
    sample_em = SampleEM(rows, residual_logs, start.noise_threshold, deviations, start.evidence, start.shrinkage)
    return corrected_step(sample_em, now, moments, n_rows, tol)


def prepare_densities(rows: Rows, mixture: Mixture, start: MixtureStart, centre: Floats) -> Densities:
    """Prepare a mixture, whose means are less the centre (p,) or in the subspace, for passes over the rows."""
    space = start.subspace
    middle = centre if space is None else np.zeros(mixture.means.shape[1])
    gaussians = prepare_gaussians(
        mixture.means + middle, mixture.covariances, mixture.covariance_type, middle, mixture.degrees
    )
    shifted = None if space is None else space.shifted(centre)
    return Densities(gaussians, np.log(mixture.weights), tile_height(rows.n_rows, rows.n_features), shifted)


def certificate_of(
    refined: Refined[Mixture, MixtureStatistics], sample_fit: SampleFit, furthest: ArgBest, sample: SampleHandle
) -> dict[str, Any]:
    """Collect the attributes that certify a fit.

    Rows furthest out along some direction, and the votes of the directions, go to the component of the nearest mean.
    """
    k, s = len(refined.model.weights), len(furthest.rows) // 2
    means = (
        refined.model.means
        if sample_fit.start.subspace is None
        else sample_fit.start.subspace.to_features(refined.model.means)
    )
    candidates, counts = count_votes(furthest.rows[:s], furthest.rows[s:])
    first = dict(zip(furthest.rows.tolist(), furthest.values, strict=True))
    places = np.array([first[row] for row in candidates.tolist()])
    owner = squared_distances(places, means @ sample_fit.coordinates).argmin(axis=1)
    extremes = np.full(k, -1, dtype=np.int64)
    for j in np.unique(owner):
        own = np.flatnonzero(owner == j)
        extremes[j] = candidates[own[counts[own].argmax()]]
    ends = owner[np.searchsorted(candidates, furthest.rows)]
    voted, planes = count_votes(ends[:s], ends[s:])  # a component with both extremes of a direction has one vote
    return {
        **vote_attributes(np.bincount(voted, weights=planes, minlength=k).astype(np.int64), s),
        "anchor_indices_": refined.seen.nearest,
        "extreme_indices_": extremes,
        "candidates_": candidates,
        "candidate_votes_": counts,
        "signature_axes_": leading_axes(sample_fit.coordinates),
        "bic_curve_": sample_fit.scores,
        "outliers_": np.unique(sample.numbers[sample_fit.isolated]),  # weighted samples may repeat rows
    }


def leading_axes(coordinates: Floats) -> Floats:
    """Take the first two columns of (p, d) coordinates as rows (2, p); the second is zero where there is only one."""
    axes = np.zeros((2, len(coordinates)))
    axes[: min(2, coordinates.shape[1])] = coordinates[:, :2].T
    return axes
