"""The recipe of mixtures: a sample, a search on it, passes of expectation-maximisation; the first divides, too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from dask_dca.engine.sampling import call, hold_rows
from dask_dca.engine.tiles import require_size, require_squares, tile_height
from dask_dca.engine.weights import draw_rows
from dask_dca.errors import FewerAnchorsWarning, warn
from dask_dca.geometry.votes import count_votes
from dask_dca.models.attributes import vote_attributes
from dask_dca.models.em import corrected_maximisation, expectation_maximisation
from dask_dca.models.gaussians import prepare_gaussians
from dask_dca.models.kmeans import distinct_count, squared_distances
from dask_dca.models.mixture.e_step import TailDirections
from dask_dca.models.mixture.em import Places, corrected, prepared
from dask_dca.models.mixture.family import maximization
from dask_dca.models.mixture.given import learn_given
from dask_dca.models.mixture.learning import RowSample, learn, spreads_of
from dask_dca.models.mixture.passes import Densities, e_step_pass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.sampling import Held
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.geometry.votes import ArgBest
    from dask_dca.models.em import Refined
    from dask_dca.models.gaussians import GaussianMoments
    from dask_dca.models.mixture.em import Corrected
    from dask_dca.models.mixture.family import Mixture
    from dask_dca.models.mixture.given import MixtureSettings
    from dask_dca.models.mixture.learning import Learnt, MixtureStart
    from dask_dca.models.mixture.passes import MixtureStatistics


_SAMPLE_ROWS: Final = 65_536
_SAMPLE_ENTRIES: Final = 2 * 10**7
_RUN_ROWS: Final = 20  # the sample is taken in runs of that many rows


@dataclass(frozen=True)
class SampledRows:
    """A sample that stays where the data are, and what is known of it.

    numbers (n,): row numbers; n_distinct: how many of the rows differ; centre, deviations (p,): median of each feature,
    and spread of ordinary values about it, none of them zero.
    """

    held: Held[RowSample]
    numbers: Numbers
    n_distinct: int
    centre: Floats
    deviations: Floats


def take_sample(rows: Rows, n_components: int, run: Run) -> SampledRows:
    """Put some rows together.

    n_components: number of components k; there are at least 20 k rows. Returns the rows, and what is known of them.
    Raises InvalidInputError: squares are out of the range of floating-point numbers.
    """
    numbers = sample_numbers(rows, n_components, run)
    every = np.arange(rows.n_rows) if numbers is None else numbers
    held = hold_rows(rows, numbers, run, partial(_centred, every))
    return SampledRows(held, every, *call(run, "describe", _described, held))


def sample_numbers(rows: Rows, n_components: int, run: Run) -> Numbers | None:
    """Choose rows for the sample, by the shape of the data and their weights alone; None means all."""
    wanted = max(min(_SAMPLE_ROWS, _SAMPLE_ENTRIES // rows.n_features), 20 * n_components)
    return draw_rows(rows, -(-wanted // _RUN_ROWS), _RUN_ROWS, run)


def _centred(numbers: Numbers, rows: Floats) -> RowSample:
    require_squares(rows, numbers)
    require_size(rows, numbers)
    centre = np.median(rows, axis=0)
    rows -= centre
    return RowSample(rows, centre)


def _described(sample: RowSample) -> tuple[int, Floats, Floats]:
    return distinct_count(sample.rows), sample.centre, spreads_of(sample.rows)


MOST_AUTO: Final = 24  # components that n_components="auto" considers
_ROWS_EACH: Final = 10  # and it wants that many rows for each


@dataclass(frozen=True)
class MixtureFit:
    """A fitted mixture, and what it rests on.

    centre (p,): what its means are relative to; certificate: fitted attributes, by name.
    """

    refined: Refined[Mixture, MixtureStatistics]
    start: MixtureStart
    centre: Floats
    certificate: dict[str, Any]


def fit_mixture(
    rows: Rows, n_components: int | None, settings: MixtureSettings, run: Run, given: Mapping[str, Floats] | None = None
) -> MixtureFit:
    """Fit a mixture with checked parameters.

    n_components: number of components k; None chooses by BIC; given: where to start, instead of from anchors.
    """
    sample = take_sample(rows, n_components or MOST_AUTO, run)
    if given:
        learnt = call(run, "start", learn_given, sample.held, given, settings)
    else:
        k = affordable_count(sample, n_components)
        learnt = call(run, "start", learn, sample.held, k, settings, n_components is None)
    directions = TailDirections(sample.centre, learnt.coordinates, learnt.axes)
    refined, furthest = refine(rows, learnt.start, sample, (settings.max_iter, settings.tol), run, directions)
    return MixtureFit(
        refined, learnt.start, sample.centre, certified(refined, learnt, cast("ArgBest", furthest), sample)
    )


def affordable_count(sample: SampledRows, n_components: int | None) -> int:
    """No more components than distinct rows; for "auto", the most that are considered."""
    distinct = sample.n_distinct
    if n_components is None:
        return min(MOST_AUTO, max(1, len(sample.numbers) // _ROWS_EACH), distinct)
    if distinct < n_components:
        msg = f"the data have {distinct} distinct rows, fewer than n_components={n_components}: that many are fitted"
        warn(msg, FewerAnchorsWarning)
    return min(distinct, n_components)


def refine(
    rows: Rows,
    start: MixtureStart,
    sample: SampledRows,
    passes: tuple[int, float],
    run: Run,
    directions: TailDirections | None = None,
) -> tuple[Refined[Mixture, MixtureStatistics], ArgBest | None]:
    """Run passes of expectation-maximisation over all rows, corrected by the sample where it isn't all of them.

    start: where to start, and floor, pulls and noise as they stay; sample: centre and scale of the data; passes: at
    most how many, and the tolerance; directions: where the first pass looks for the rows furthest out. Returns the same
    bits for any chunking or number of workers, and these rows.
    """
    (most, tol), deviations = passes, sample.deviations if start.deviations is None else start.deviations
    furthest: list[ArgBest | None] = []

    def _look(now: Mixture) -> tuple[MixtureStatistics, float]:
        densities, wanted = densities_of(rows, now, start, sample.centre), None if furthest else directions
        seen = e_step_pass(rows, densities, deviations, run, start.least, wanted)
        furthest.append(seen.furthest)
        return seen, seen.log_likelihood

    def _correct(now: Mixture, seen: MixtureStatistics) -> Corrected:
        n_rows = rows.total_weight - seen.n_outliers
        return call(run, "correct", _corrected, sample.held, start, deviations, now, seen.moments, n_rows, tol)

    far = bool(prepared(start.mixture).far.any())  # then the sums of the sample lack the digits to go on with
    if len(sample.numbers) < rows.n_copies and not (far or start.shrinkage.plain):  # plain: steps are scikit-learn's
        refined = corrected_maximisation(start.mixture, _look, _correct, max_iter=most, tol=tol)
    else:
        refined = expectation_maximisation(start.mixture, _look, partial(next_mixture, start), max_iter=most, tol=tol)
    return refined, furthest[0]


def next_mixture(start: MixtureStart, now: Mixture, seen: MixtureStatistics) -> Mixture:
    """Run the M-step: evidence and pulls are as they were at the start."""
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
) -> Corrected:
    """Go on from a pass with the rows of the sample that count."""
    rows, across = sample.rows, np.zeros(len(sample.rows))
    if start.subspace is not None:
        rows, across = start.subspace.split(rows)
    places = Places(rows, across, start.least, deviations, start.evidence, start.shrinkage)
    return corrected(places, now, moments, n_rows, tol)


def densities_of(rows: Rows, mixture: Mixture, start: MixtureStart, centre: Floats) -> Densities:
    """Prepare a mixture for passes.

    mixture: means less the centre (p,), or in the subspace.
    """
    space = start.subspace
    middle = centre if space is None else np.zeros(mixture.means.shape[1])
    gaussians = prepare_gaussians(
        mixture.means + middle, mixture.covariances, mixture.covariance_type, middle, mixture.degrees
    )
    around = None if space is None else space.moved(centre)
    return Densities(gaussians, np.log(mixture.weights), tile_height(rows.n_rows, rows.n_features), around)


def certified(
    refined: Refined[Mixture, MixtureStatistics], learnt: Learnt, furthest: ArgBest, sample: SampledRows
) -> dict[str, Any]:
    """Give every row that is furthest out on some direction to the component whose mean is nearest."""
    k, s = len(refined.model.weights), len(furthest.rows) // 2
    means = refined.model.means if learnt.start.subspace is None else learnt.start.subspace.points(refined.model.means)
    candidates, counts = count_votes(furthest.rows[:s], furthest.rows[s:])
    first = dict(zip(furthest.rows.tolist(), furthest.values, strict=True))
    places = np.array([first[row] for row in candidates.tolist()])
    owner = squared_distances(places, means @ learnt.coordinates).argmin(axis=1)
    extremes = np.full(k, -1, dtype=np.int64)
    for j in np.unique(owner):
        own = np.flatnonzero(owner == j)
        extremes[j] = candidates[own[counts[own].argmax()]]
    ends = owner[np.searchsorted(candidates, furthest.rows)]
    voted, planes = count_votes(ends[:s], ends[s:])  # a component at both ends of a plane has one vote there
    return {
        **vote_attributes(np.bincount(voted, weights=planes, minlength=k).astype(np.int64), s),
        "anchor_indices_": refined.seen.nearest,
        "extreme_indices_": extremes,
        "candidates_": candidates,
        "candidate_votes_": counts,
        "signature_axes_": two_axes(learnt.coordinates),
        "bic_curve_": learnt.scores,
        "outliers_": np.unique(sample.numbers[learnt.isolated]),  # some repeat, where rows have weights
    }


def two_axes(coordinates: Floats) -> Floats:
    """Take the first two coordinates as directions in features.

    coordinates (p, d). Returns (2, p): the second is zero where there is one.
    """
    axes = np.zeros((2, len(coordinates)))
    axes[: min(2, coordinates.shape[1])] = coordinates[:, :2].T
    return axes
