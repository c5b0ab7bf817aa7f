"""The recipe of mixtures: a sample, the divide pass, a search on the sample, passes of expectation-maximisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.held import call
from dask_dca.errors import FewerAnchorsWarning, warn
from dask_dca.geometry.votes import count_votes
from dask_dca.models.em import expectation_maximisation
from dask_dca.models.gaussians import prepare_gaussians, rests_on_floor, variances_of, warn_of_floor
from dask_dca.models.kmeans import cluster_means, lloyd, squared_distances, within_variances
from dask_dca.models.mixture.em import improve, maximization, mixture_of_labels, regularization, split_and_merge
from dask_dca.models.mixture.passes import e_step_pass
from dask_dca.models.mixture.signatures import find_signatures
from dask_dca.models.mixture.start import choose_anchors, choose_count, divide, start_partition, take_sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.em import Refined
    from dask_dca.models.kmeans import Partition
    from dask_dca.models.mixture.em import Mixture, Regularization
    from dask_dca.models.mixture.passes import MixtureStatistics, TailMeans
    from dask_dca.models.mixture.settings import MixtureSettings
    from dask_dca.models.mixture.signatures import Signatures
    from dask_dca.models.mixture.start import RowSample, SampledRows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["MixtureFit", "fit_mixture", "look_at", "refine"]

_WIDEST_MOVES: Final = 256  # features up to which full covariances are split and merged
_MOVE_ENTRIES: Final = 2 * 10**6  # of the sample that is split and merged
_SAMPLE_PASSES: Final = 30  # of expectation-maximisation on the sample where nothing is split and merged
_LLOYD_SWEEPS: Final = 3
_ROUNDING: Final = 1e-9  # variance, as a share of the feature's, up to which rounding may be all there is
_BIASED: Final = 1e-2  # and as a share of the floor
_SHAPED: Final = 5  # rows from which on a component has a shape of its own
_MOST_AUTO: Final = 24  # components that n_components="auto" considers
_ROWS_EACH: Final = 10  # and it wants that many rows for each


def refine(
    rows: Rows, mixture: Mixture, sample: SampledRows, regular: Regularization, settings: MixtureSettings, run: Run
) -> Refined[Mixture, MixtureStatistics]:
    """Run passes of expectation-maximisation over all rows; the last one only looks.

    mixture: where to start, means less the sample's centre; sample: centre and scale of the data; regular: floor and
    prior of the covariances; settings: at most how many passes, and the tolerance. Returns the same bits for any
    chunking or number of workers.
    """

    def _look(now: Mixture) -> tuple[MixtureStatistics, float]:
        seen = look_at(rows, now, sample, run)
        return seen, seen.log_likelihood / rows.n_rows

    def _step(now: Mixture, seen: MixtureStatistics) -> Mixture:
        return maximization(seen.moments, now.covariance_type, regular, now.means)

    return expectation_maximisation(mixture, _look, _step, max_iter=settings.max_iter, tol=settings.tol)


def look_at(rows: Rows, mixture: Mixture, sample: SampledRows, run: Run) -> MixtureStatistics:
    """Sum over all rows what one step of expectation-maximisation needs.

    mixture: the mixture, means less the sample's centre; sample: centre and scale of the data. Returns moments, log
    likelihood, and the row nearest each component.
    """
    means = mixture.means + sample.centre
    gaussians = prepare_gaussians(means, mixture.covariances, mixture.covariance_type, sample.centre)
    return e_step_pass(rows, gaussians, mixture.weights, sample.deviations, run)


@dataclass(frozen=True)
class MixtureFit:
    """A fitted mixture and its certificate.

    centre (p,); anchors (k,); extremes (k,); votes (k,); candidates, candidate_votes (c,); signature_axes (2, p);
    count_scores (m, 2).
    """

    refined: Refined[Mixture, MixtureStatistics]
    centre: Floats
    anchors: Numbers
    extremes: Numbers
    votes: Numbers
    candidates: Numbers
    candidate_votes: Numbers
    n_subproblems: int
    signature_axes: Floats
    count_scores: Floats


def fit_mixture(rows: Rows, n_components: int | None, settings: MixtureSettings, run: Run) -> MixtureFit:
    """Fit a mixture with checked parameters.

    n_components: number of components k; None chooses by BIC.
    """
    sample = take_sample(rows, n_components or _MOST_AUTO, run)
    k = _affordable_count(sample, n_components)
    scaled = settings.covariance_type not in ("spherical", "tied-spherical")
    signatures = find_signatures(sample, k, scaled=scaled, run=run)
    tails = divide(rows, sample, signatures, k, settings.anchoring, run)
    auto = n_components is None
    start = call(run, "start", _start, sample.held, signatures, tails.means(), k, settings, auto)
    refined = refine(rows, start.mixture, sample, start.regular, settings, run)
    if settings.reg_covar is None:
        resting = _resting(refined.model, sample, start.regular, rows.n_rows)
        warn_of_floor(resting, refined.model.covariances, settings.covariance_type, "components", "reg_covar")
    return _certified(refined, tails, signatures, sample, start.count_scores)


@dataclass(frozen=True)
class _Start:
    """A mixture that is good on the sample, its floors, and the scores of all numbers of components that were tried."""

    mixture: Mixture
    regular: Regularization
    count_scores: Floats


def _start(
    sample: RowSample, signatures: Signatures, candidates: Floats, k: int, settings: MixtureSettings, auto: bool
) -> _Start:
    """The whole search on the sample; with `auto`, also for the number of components, of which k are the most."""
    scores, places = np.zeros((0, 2)), signatures.places(sample)
    if auto:
        few = _every(sample)
        k, scores = choose_count(sample.rows[few], places[few], candidates, k, settings, sample.variances)
    moves = _has_moves(settings.covariance_type, k, sample.rows.shape[1])
    partition = start_partition(places, choose_anchors(candidates, k), settings.anchoring.seed, alone=not moves)
    within = within_variances(sample.rows, partition.labels, k)
    regular = regularization(sample.variances, settings.reg_covar, within)
    return _Start(_improved(sample, partition, settings, regular), regular, scores)


def _resting(mixture: Mixture, sample: SampledRows, regular: Regularization, n_rows: int) -> NDArray[np.bool_]:
    """Which components have the floor for a covariance rather than their rows'."""
    round_ = mixture.covariance_type.endswith("spherical")
    floor = np.full_like(regular.floor, regular.floor.mean()) if round_ else regular.floor
    own = np.broadcast_to(variances_of(mixture.covariances, mixture.covariance_type), mixture.means.shape) - floor
    rounding = np.minimum(_ROUNDING * sample.variances, _BIASED * floor)
    return rests_on_floor(own, floor, rounding) & (n_rows * mixture.weights >= _SHAPED)


def _affordable_count(sample: SampledRows, n_components: int | None) -> int:
    """No more components than distinct rows; for "auto", the most that are considered."""
    distinct = sample.n_distinct
    if n_components is None:
        return min(_MOST_AUTO, max(1, sample.n_rows // _ROWS_EACH), distinct)
    if distinct < n_components:
        msg = f"the data have {distinct} distinct rows, fewer than n_components={n_components}: that many are fitted"
        warn(msg, FewerAnchorsWarning)
    return min(distinct, n_components)


def _every(sample: RowSample) -> slice:
    """Which rows of the sample are few enough for many passes."""
    return slice(None, None, max(1, -(-sample.rows.size // _MOVE_ENTRIES)))


def _improved(sample: RowSample, partition: Partition, settings: MixtureSettings, regular: Regularization) -> Mixture:
    """From a partition to a mixture that is good on the sample."""
    few, form, k = _every(sample), settings.covariance_type, len(partition.centres)
    rows = sample.rows[few]
    if form == "tied-spherical":
        labels = lloyd(rows, cluster_means(rows, partition.labels[few], k), _LLOYD_SWEEPS).labels
        return mixture_of_labels(rows, labels, k, form, regular)
    start = mixture_of_labels(rows, partition.labels[few], k, form, regular)
    if _has_moves(form, k, rows.shape[1]):
        return split_and_merge(rows, start, regular)
    return improve(rows, start, regular, _SAMPLE_PASSES)[0]


def _has_moves(form: str, k: int, n_features: int) -> bool:
    """Whether components are split and merged on the sample."""
    return k > 2 and not form.startswith("tied") and (form != "full" or n_features <= _WIDEST_MOVES)


def _certified(
    refined: Refined[Mixture, MixtureStatistics],
    tails: TailMeans,
    signatures: Signatures,
    sample: SampledRows,
    scores: Floats,
) -> MixtureFit:
    """Give every row that is furthest out on some direction to the component whose mean is nearest."""
    k, furthest = len(refined.model.weights), tails.extremes.rows
    s = len(furthest) // 2
    means = signatures.of(refined.model.means + sample.centre)
    candidates, counts = count_votes(furthest[:s], furthest[s:])
    first = dict(zip(furthest.tolist(), tails.extremes.values, strict=True))
    owner = squared_distances(np.array([first[row] for row in candidates.tolist()]), means).argmin(axis=1)
    extremes = np.full(k, -1, dtype=np.int64)
    for j in np.unique(owner):
        own = np.flatnonzero(owner == j)
        extremes[j] = candidates[own[counts[own].argmax()]]
    ends = owner[np.searchsorted(candidates, furthest)]
    voted, planes = count_votes(ends[:s], ends[s:])  # a component at both ends of a plane has one vote there
    return MixtureFit(
        refined,
        sample.centre,
        anchors=refined.seen.nearest,
        extremes=extremes,
        votes=np.bincount(voted, weights=planes, minlength=k).astype(np.int64),
        candidates=candidates,
        candidate_votes=counts,
        n_subproblems=s,
        signature_axes=signatures.leading_axes(),
        count_scores=scores,
    )
