"""The fit of a Gaussian HMM: anchored starts, split and merge on a sample, and Baum-Welch over all frames."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dask_dca.anchoring.parameters import check_number, check_option, is_auto
from dask_dca.engine.passes import Run
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import Held, call, call_each
from dask_dca.errors import FewerAnchorsWarning, FloorWarning, InvalidParameterError, warn
from dask_dca.geometry.arrays import Floats, Mask, Numbers
from dask_dca.geometry.low_rank import is_missing_in_blocks
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.models.em import Refined, expectation_maximisation, max_steps
from dask_dca.models.gaussians import COVARIANCE_TYPES, variances_of
from dask_dca.models.hmm.decoding import Decoder
from dask_dca.models.hmm.expectation import ExpectedCounts, lay_out
from dask_dca.models.hmm.model import FrameFeatures, HiddenMarkov, IncompleteStates, count_parameters, in_data_units
from dask_dca.models.hmm.passes import e_step_pass
from dask_dca.models.hmm.recursions import forgetting_burn_in
from dask_dca.models.hmm.split import baum_welch, corrected_steps, split_and_merge, standard_frames
from dask_dca.models.hmm.start import (
    FeatureScale,
    FrameStretches,
    SampledFrames,
    anchored_starts,
    count_signals,
    feature_scale,
    principal_coordinates,
    take_stretches,
    with_local_floors,
)
from dask_dca.models.kmeans import squared_distances
from dask_dca.models.neighbours import lag_moments

_MIN_FRAMES_PER_PARAMETER: Final = 2  # below this states are not split and merged, since the likelihood overfits
_START_STEPS: Final = 5  # EM steps before starts are compared
_MAX_MOVE_FRAMES: Final = 20_480  # maximum number of frames on which states are split and merged
_SAMPLE_STEPS: Final = (40, 12)  # maximum EM steps on these frames (or any, if entries are missing); on the sample
_SAMPLE_TOL: Final = 0.05  # nats: EM on the sample ends when its log likelihood rises by less
_CORRECTED_STEPS: Final = (4, 2)  # corrected EM steps after a pass; if the sample is a tenth of all frames or less
_BURN_IN_STRETCH: Final = 128  # length of the stretches on which the burn-in is measured, in frames
_MAX_BURN_IN_STRETCHES: Final = 64  # maximum number of these stretches
_MAX_STATES: Final = 30  # maximum number of states that "auto" considers
_MAX_EXACT_FEATURES: Final = 256  # above this states are counted in principal coordinates
_MAX_WORSE_COUNTS: Final = 2  # consecutive numbers of states of worse BIC that end the search
_MAX_EXTRA_STATES: Final = 8  # maximum number of states beyond the estimate of the lagged covariances
_HELD_OUT_SHARE: Final = 0.2  # held-out share of the sample for choosing the form of covariances
MAX_FEATURES: Final = 2000  # maximum number of features for which p x p covariances are formed


@dataclass(frozen=True)
class HMMSettings:
    """Checked parameters of a hidden Markov model."""

    covariance_type: str
    max_iter: int
    tol: float
    min_covar: float | None
    n_directions: int | None
    seed: int
    missing: bool = False  # whether entries of frames are missing


def check_hmm(model: Any, n_features: int) -> HMMSettings:
    """Check the parameters of a model before a fit.

    Raises InvalidParameterError: a parameter is unknown or out of range.
    """
    anchoring = model._anchoring()
    kind = check_option("covariance_type", model.covariance_type, (*COVARIANCE_TYPES, "auto"))
    kind = "diag" if kind == "auto" else kind
    if kind in ("full", "tied") and n_features > MAX_FEATURES:
        msg = (
            f"covariance_type={kind!r} forms matrices of {n_features} x {n_features}; above {MAX_FEATURES} use "
            "covariance_type='diag', or reduce the data first"
        )
        raise InvalidParameterError(msg)
    check_option("algorithm", model.algorithm, ("viterbi", "map"))
    check_option("recursion", model.recursion, ("auto", "segments", "scan"))
    passes = max_steps(model)
    least = None if is_auto(model.min_covar) else check_number("min_covar", model.min_covar, positive=True, auto=True)
    tol = check_number("tol", model.tol, -np.inf)
    return HMMSettings(kind, passes, tol, least, anchoring.n_subproblems, anchoring.seed)


@dataclass(frozen=True)
class HMMFit:
    """A model in the data's units, and its certificate.

    refined: with the sums of the last pass, and the frame of greatest density in each state (k,); scale: of the frames
    in the fit; None for the paper's method.
    """

    model: HiddenMarkov
    refined: Refined[HiddenMarkov, tuple[ExpectedCounts, Numbers]]
    start_scores: list[float]  # mean log likelihoods per frame of the starts, best first
    votes: Numbers  # (k,): number of tails nearest to each state
    n_tails: int
    confidence: Floats  # (k, 2)
    burn_in: int
    n_range: tuple[int, int]
    n_distinct: int | None = None  # number of distinct frames of the sample
    scale: FeatureScale | None = None
    in_blocks: bool = False  # whether entries are missing in blocks


@dataclass(frozen=True)
class _SampleFit:
    """A model fitted to the sample, in standard units."""

    model: HiddenMarkov
    scale: FeatureScale
    start_scores: list[float]
    tails: Floats  # (2 s, p)


def fit_hmm(rows: Rows, edges: Numbers, k: int, settings: HMMSettings, run: Run) -> HMMFit:
    """Fit a hidden Markov model; edges (m + 1,): ends of sequences."""
    with one_blas_thread():
        sample = take_stretches(rows, edges, run, missing=settings.missing)
        if sample.is_all:  # the whole fit is one task on the sample
            return call(run, "fit", _fit_in_memory, sample.held, replace(sample, held=Held(None)), k, settings)
        return _fit(rows, edges, sample, k, settings, run)


def _fit_in_memory(frames: FrameStretches, known: SampledFrames, k: int, settings: HMMSettings) -> HMMFit:
    return _fit(frames.rows, frames.edges, replace(known, held=Held(frames)), k, settings, Run())


def _fit(rows: Rows, edges: Numbers, sample: SampledFrames, k: int, settings: HMMSettings, run: Run) -> HMMFit:
    k = 1 if sample.n_distinct == 1 else k
    scale = feature_scale(sample, settings.min_covar, settings.covariance_type)
    learned = call(run, "learn", _fit_sample, sample.held, scale, k, settings)
    refined = _refine_all(rows, edges, sample, learned, settings, run)
    model = in_data_units(refined.model, learned.scale.centre, learned.scale.units)
    votes, count = _count_votes(learned.tails, refined.model), len(learned.tails)
    burn_in = call(run, "forget", measure_burn_in, sample.held, model)
    bounds = wilson_bounds(votes, count)
    scores, distinct = learned.start_scores, sample.n_distinct
    in_blocks = settings.missing and call(run, "describe", _missing_in_blocks, sample.held)
    chosen = (k, k)
    return HMMFit(model, refined, scores, votes, count, bounds, burn_in, chosen, distinct, learned.scale, in_blocks)


def _missing_in_blocks(sample: FrameStretches) -> bool:
    return is_missing_in_blocks(~np.isnan(sample.frames))


# --- on the sample ---


def _fit_sample(sample: FrameStretches, scale: FeatureScale, k: int, settings: HMMSettings) -> _SampleFit:
    """Choose the best start, split and merge its states, and run EM, on a part of the sample, then on all of it."""
    every, kind = sample.completed, settings.covariance_type
    frames, edges = _subsample(scale.transform(every), sample.edges)
    starts, within, tails = anchored_starts(
        frames, edges, k, kind, scale.unit_floors, settings.seed, settings.n_directions
    )
    if settings.min_covar is None:
        scale = with_local_floors(scale, within * scale.units**2)
    few = standard_frames(frames, edges, kind, scale.unit_floors)
    compared = sorted(
        (baum_welch(start, few, _START_STEPS) for start in starts), key=lambda found: -found[1].log_likelihood
    )
    scores = [seen.log_likelihood / len(few) - scale.log_scale for _, seen in compared]
    model = compared[0][0]
    if len(few) >= _MIN_FRAMES_PER_PARAMETER * count_parameters(kind, k, every.shape[1]):
        model = split_and_merge(model, few)
    model = baum_welch(model, few, _SAMPLE_STEPS[0], _SAMPLE_TOL)[0]
    if len(few) < len(every) or settings.missing:
        whole = standard_frames(scale.transform(sample.frames), sample.edges, kind, scale.unit_floors)
        model = baum_welch(model, whole, _SAMPLE_STEPS[int(not settings.missing)], _SAMPLE_TOL)[0]
    return _SampleFit(model, scale, scores, tails)


def _subsample(frames: Floats, edges: Numbers) -> tuple[Floats, Numbers]:
    """Select evenly spread whole stretches of the sample."""
    count = len(edges) - 1
    if len(frames) <= _MAX_MOVE_FRAMES or count < 2:
        return frames, edges
    kept = np.unique(np.linspace(0, count - 1, max(1, count * _MAX_MOVE_FRAMES // len(frames))).astype(np.int64))
    parts = [frames[a:b] for a, b in zip(edges[kept].tolist(), edges[kept + 1].tolist(), strict=True)]
    return np.concatenate(parts), np.cumsum([0, *map(len, parts)])


# --- over all frames ---


def _refine_all(
    rows: Rows, edges: Numbers, sample: SampledFrames, learned: _SampleFit, settings: HMMSettings, run: Run
) -> Refined[HiddenMarkov, tuple[ExpectedCounts, Numbers]]:
    """Run EM over all frames; each M-step is followed by EM steps on the sample corrected by all frames."""
    scale, kind = learned.scale, settings.covariance_type
    layout = lay_out(edges, 4 * rows.n_features)
    features = FrameFeatures("full" if settings.missing else kind, scale.centre, scale.units)
    ratio = rows.n_rows / sample.n_frames
    inner = 0 if sample.is_all else _CORRECTED_STEPS[int(ratio >= 10.0)]

    def _e_step(model: HiddenMarkov) -> tuple[tuple[ExpectedCounts, Numbers], float]:
        states = model.states(0.0 if settings.missing else scale.log_scale)
        emissions = IncompleteStates(states, np.log(scale.units)) if settings.missing else states
        seen = e_step_pass(rows, layout, emissions, model.markov, features, run)
        return seen, seen[0].log_likelihood / rows.n_rows

    def _m_step(model: HiddenMarkov, seen: tuple[ExpectedCounts, Numbers]) -> HiddenMarkov:
        return call(run, "correct", _correct, sample.held, scale, kind, model, seen[0], ratio, inner)

    return expectation_maximisation(learned.model, _e_step, _m_step, max_iter=settings.max_iter, tol=settings.tol)


def _correct(
    sample: FrameStretches,
    scale: FeatureScale,
    kind: str,
    model: HiddenMarkov,
    seen: ExpectedCounts,
    ratio: float,
    inner: int,
) -> HiddenMarkov:
    own = standard_frames(scale.transform(sample.frames), sample.edges, kind, scale.unit_floors)
    return corrected_steps(model, own, seen, ratio, inner)


def measure_burn_in(sample: FrameStretches, model: HiddenMarkov) -> int:
    """Measure on stretches of a sample after how many frames messages forget their initial values.

    model: in the data's units. Returns 0 if this takes too long.
    """
    edges = sample.edges
    pairs = itertools.pairwise(edges.tolist())
    begins = np.concatenate([np.arange(begin, end - _BURN_IN_STRETCH + 1, _BURN_IN_STRETCH) for begin, end in pairs])
    if not len(begins):
        return 0
    begins = begins[:: max(1, len(begins) // _MAX_BURN_IN_STRETCHES)]
    stretches = sample.frames[begins[:, None] + np.arange(_BURN_IN_STRETCH)]
    densities = model.emission()(stretches.reshape(-1, stretches.shape[2]))
    return forgetting_burn_in(model.markov.transmat, densities.reshape(*stretches.shape[:2], -1))


def _count_votes(tails: Floats, model: HiddenMarkov) -> Numbers:
    """Count the tails nearest to each state."""
    nearest = squared_distances(tails, model.means).argmin(axis=1)
    return np.bincount(nearest, minlength=len(model.means)).astype(np.int64)


# --- choices ---


def choose_states(rows: Rows, edges: Numbers, settings: HMMSettings, run: Run) -> tuple[int, tuple[int, int]]:
    """Choose the number of states on a sample of frames.

    Returns the number of least BIC, searched upwards from an estimate by the covariances at lags; and the lesser and
    the greater of the two.
    """
    return call(run, "count", _count_states, take_stretches(rows, edges, run, missing=settings.missing).held, settings)


def _count_states(sample: FrameStretches, settings: HMMSettings) -> tuple[int, tuple[int, int]]:
    rows, edges = sample.rows, sample.edges
    most, seen = min(_MAX_STATES, rows.n_rows), sample.completed
    if rows.n_features > _MAX_EXACT_FEATURES:
        seen = principal_coordinates(seen, _MAX_EXACT_FEATURES)
    shown = min(count_signals(lag_moments(seen, edges)) + 1, most)
    criteria: dict[int, float] = {}
    for k in range(max(shown - 1, 1), min(shown + _MAX_EXTRA_STATES, most) + 1):
        found = fit_hmm(rows, edges, k, replace(settings, max_iter=0), Run())
        likelihood = found.refined.log_likelihoods[-1] * rows.n_rows
        penalty = count_parameters(settings.covariance_type, k, rows.n_features) * np.log(rows.n_rows)
        criteria[k] = penalty - 2.0 * likelihood
        best = min(criteria, key=lambda count: criteria[count])
        if k - best >= _MAX_WORSE_COUNTS:
            break
    return best, (min(best, shown), max(best, shown))


def choose_covariances(rows: Rows, edges: Numbers, k: int, settings: HMMSettings, run: Run) -> str:
    """Choose between diagonal and tied covariances by the held-out likelihood of the last fifth of a sample."""
    if rows.n_features > MAX_FEATURES:
        return "diag"
    sample = take_stretches(rows, edges, run, missing=settings.missing)
    cut = int((1.0 - _HELD_OUT_SHARE) * sample.n_frames)
    if cut < 2 * k or cut == sample.n_frames:
        return "diag"
    kinds = ("diag", "tied")
    each = [(cut, k, replace(settings, covariance_type=kind)) for kind in kinds]
    scores = call_each(run, "form", _held_out_likelihood, sample.held, each)
    return kinds[int(np.argmax(scores))]


def _held_out_likelihood(sample: FrameStretches, cut: int, k: int, settings: HMMSettings) -> float:
    """Log likelihood of the frames from `cut` on under a model fitted to the frames before."""
    inner = sample.edges[1:-1]
    ends = [np.concatenate([[0], inner[inner < cut], [cut]]), np.concatenate([[cut], inner[inner > cut]])]
    ends[1] = np.append(ends[1], sample.rows.n_rows) - cut
    parts = [as_rows(sample.frames[:cut]), as_rows(sample.frames[cut:])]
    model = fit_hmm(parts[0], ends[0], k, settings, Run()).model
    return Decoder(parts[1], ends[1], model.emission(), model.markov, 0, Run()).log_likelihood()


# --- warnings ---


def warn_of_floor(at_floor: Mask, covariances: Floats, covariance_type: str) -> None:
    """Warn of states whose variances are at the floor.

    at_floor (k,): mask of these states; covariances: in the shape of their type.
    """
    if not at_floor.any():
        return
    variances = variances_of(covariances, covariance_type)
    least = float((variances[at_floor] if variances.ndim == 2 else variances).max())
    warn(
        f"variances of {int(at_floor.sum())} of {len(at_floor)} states rest on their least value (up to {least:.3g}). "
        "It is in proportion to the variance of all rows, which rows or clusters far from the others raise, and it "
        f"decides what is told apart: take far rows out, or set min_covar below the variances that count",
        FloorWarning,
    )


def warn_of_few_values(distinct: int | None, n_states: int) -> bool:
    """Warn if there are more states than distinct frames.

    distinct: number of distinct frames, if it was counted. Returns whether a warning was issued.
    """
    if distinct is None or distinct >= n_states:
        return False
    alike = "states with the same values differ by their transitions alone"
    then = "one state is fitted" if distinct == 1 else alike
    msg = f"the frames have {distinct} distinct values, fewer than n_components={n_states}: {then}; use {distinct}"
    warn(msg, FewerAnchorsWarning)
    return True
