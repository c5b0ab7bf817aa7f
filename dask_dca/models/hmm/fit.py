"""The recipe of hidden Markov models: anchored starts, split and merge on a sample, passes that are corrected by it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.anchoring.parameters import check_number, check_option, is_auto
from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import Held, call, call_each
from dask_dca.errors import FewerAnchorsWarning, FloorWarning, InvalidParameterError, warn
from dask_dca.geometry.low_rank import is_missing_in_blocks
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.models.em import expectation_maximisation, max_steps
from dask_dca.models.gaussians import COVARIANCE_TYPES, variances_of
from dask_dca.models.hmm.decoding import Decoder
from dask_dca.models.hmm.expectation import lay_out
from dask_dca.models.hmm.model import FrameFeatures, HiddenMarkov, IncompleteStates, count_parameters, in_data_units
from dask_dca.models.hmm.passes import e_step_pass
from dask_dca.models.hmm.recursions import burn_in_that_forgets
from dask_dca.models.hmm.split import climb, corrected_steps, split_and_merge, standard_frames
from dask_dca.models.hmm.start import (
    anchored_starts,
    count_signals,
    feature_scale,
    principal_coordinates,
    take_stretches,
    with_local_floors,
)
from dask_dca.models.kmeans import squared_distances
from dask_dca.models.neighbours import lag_moments

if TYPE_CHECKING:
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Mask, Numbers
    from dask_dca.models.em import Refined
    from dask_dca.models.hmm.expectation import Expected
    from dask_dca.models.hmm.start import FeatureScale, FrameStretches, SampledFrames

_TELLING: Final = 2  # frames per parameter below which a likelihood does not tell better states from over-fitted ones
_WARM: Final = 5  # steps before starts are compared
_MOVED: Final = 20_480  # frames on which states are split and merged
_STEPS: Final = (40, 12)  # then at most on these frames, or where entries are missing; and on the whole sample
_SETTLED: Final = 0.05  # rise of the log likelihood of a sample that ends these
_INNER: Final = (4, 2)  # steps on the sample after a pass; where it is a tenth of all frames or less
_FORGET: Final = 128  # frames of the stretches on which it is measured how soon the chain forgets
_FORGET_STRETCHES: Final = 64
_MOST_SIGNALS: Final = 30
_WIDE: Final = 256  # features above which signals are counted among principal coordinates
_WORSE: Final = 2  # numbers of states in a row that must be worse before the search ends
_FARTHEST: Final = 8  # states above the number that the spectrum shows
_HELD_OUT: Final = 0.2
WIDEST: Final = 2000  # features up to which covariances of p x p are formed


@dataclass(frozen=True)
class HMMSettings:
    """Checked parameters of a hidden Markov model."""

    covariance_type: str
    max_iter: int
    tol: float
    min_covar: float | None
    n_directions: int | None
    seed: int
    holes: bool = False  # whether entries of frames are missing


def check_hmm(model: Any, n_features: int) -> HMMSettings:
    """Check the parameters of a model before a fit.

    Returns the same, checked and resolved.
    Raises InvalidParameterError: one of them is unknown or out of range.
    """
    anchoring = model._anchoring()
    kind = check_option("covariance_type", model.covariance_type, (*COVARIANCE_TYPES, "auto"))
    kind = "diag" if kind == "auto" else kind
    if kind in ("full", "tied") and n_features > WIDEST:
        msg = (
            f"covariance_type={kind!r} forms matrices of {n_features} x {n_features}; above {WIDEST} features use "
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

    refined: with what the last pass saw: sums, and the frame of greatest density in each state (k,); scale: what frames
    were learnt from in; None by the paper's method, which has no last look.
    """

    model: HiddenMarkov
    refined: Refined[HiddenMarkov, tuple[Expected, Numbers]]
    start_scores: list[float]  # log likelihood per frame of the starts, best first
    votes: Numbers  # (k,): tails nearest to each state
    n_tails: int
    confidence: Floats  # (k, 2)
    burn_in: int
    n_range: tuple[int, int]
    n_distinct: int | None = None  # frames of the sample
    scale: FeatureScale | None = None
    in_blocks: bool = False  # whether entries are missing in blocks


@dataclass(frozen=True)
class _Learned:
    """A model of the sample, in standard units."""

    model: HiddenMarkov
    scale: FeatureScale
    start_scores: list[float]
    tails: Floats  # (2 s, p)


def fit_hmm(rows: Rows, edges: Numbers, k: int, settings: HMMSettings, run: Run) -> HMMFit:
    """Fit a hidden Markov model.

    edges (m + 1,): ends of sequences.
    """
    with one_blas_thread():
        sample = take_stretches(rows, edges, run, holes=settings.holes)
        if sample.whole:  # nothing is left to read in passes
            return call(run, "fit", _fit_in_memory, sample.held, replace(sample, held=Held(None)), k, settings)
        return _fit(rows, edges, sample, k, settings, run)


def _fit_in_memory(frames: FrameStretches, known: SampledFrames, k: int, settings: HMMSettings) -> HMMFit:
    return _fit(frames.rows, frames.edges, replace(known, held=Held(frames)), k, settings, Run())


def _fit(rows: Rows, edges: Numbers, sample: SampledFrames, k: int, settings: HMMSettings, run: Run) -> HMMFit:
    k = 1 if sample.n_distinct == 1 else k
    scale = feature_scale(sample, settings.min_covar, settings.covariance_type)
    learned = call(run, "learn", _learn, sample.held, scale, k, settings)
    refined = _refine_all(rows, edges, sample, learned, settings, run)
    model = in_data_units(refined.model, learned.scale.centre, learned.scale.units)
    votes, count = _votes(learned.tails, refined.model), len(learned.tails)
    burn_in = call(run, "forget", burn_in_of, sample.held, model)
    bounds = wilson_bounds(votes, count)
    scores, distinct = learned.start_scores, sample.n_distinct
    in_blocks = settings.holes and call(run, "describe", _in_blocks, sample.held)
    chosen = (k, k)
    return HMMFit(model, refined, scores, votes, count, bounds, burn_in, chosen, distinct, learned.scale, in_blocks)


def _in_blocks(sample: FrameStretches) -> bool:
    return is_missing_in_blocks(~np.isnan(sample.frames))


# --- on the sample ---


def _learn(sample: FrameStretches, scale: FeatureScale, k: int, settings: HMMSettings) -> _Learned:
    """Compare starts, split and merge the states of the best, and climb, first on few frames, then on all of them."""
    every, kind = sample.whole, settings.covariance_type
    frames, edges = _some(scale.standard(every), sample.edges)
    starts, within, tails = anchored_starts(frames, edges, k, kind, scale.least, settings.seed, settings.n_directions)
    if settings.min_covar is None:
        scale = with_local_floors(scale, within * scale.units**2)
    few = standard_frames(frames, edges, kind, scale.least)
    compared = sorted((climb(start, few, _WARM) for start in starts), key=lambda found: -found[1].log_likelihood)
    scores = [seen.log_likelihood / len(few) - scale.log_scale for _, seen in compared]
    model = compared[0][0]
    if len(few) >= _TELLING * count_parameters(kind, k, every.shape[1]):
        model = split_and_merge(model, few)
    model = climb(model, few, _STEPS[0], _SETTLED)[0]
    if len(few) < len(every) or settings.holes:
        whole = standard_frames(scale.standard(sample.frames), sample.edges, kind, scale.least)
        model = climb(model, whole, _STEPS[int(not settings.holes)], _SETTLED)[0]
    return _Learned(model, scale, scores, tails)


def _some(frames: Floats, edges: Numbers) -> tuple[Floats, Numbers]:
    """Whole stretches spread over the sample, and their ends."""
    count = len(edges) - 1
    if len(frames) <= _MOVED or count < 2:
        return frames, edges
    kept = np.unique(np.linspace(0, count - 1, max(1, count * _MOVED // len(frames))).astype(np.int64))
    parts = [frames[a:b] for a, b in zip(edges[kept].tolist(), edges[kept + 1].tolist(), strict=True)]
    return np.concatenate(parts), np.cumsum([0, *map(len, parts)])


# --- over all frames ---


def _refine_all(
    rows: Rows, edges: Numbers, sample: SampledFrames, learned: _Learned, settings: HMMSettings, run: Run
) -> Refined[HiddenMarkov, tuple[Expected, Numbers]]:
    """Steps of Baum-Welch over all frames, each followed by some on the sample with the difference added."""
    scale, kind = learned.scale, settings.covariance_type
    layout = lay_out(edges, 4 * rows.n_features)
    features = FrameFeatures("full" if settings.holes else kind, scale.centre, scale.units)
    ratio = rows.n_rows / sample.n_frames
    inner = 0 if sample.whole else _INNER[int(ratio >= 10.0)]

    def _look(model: HiddenMarkov) -> tuple[tuple[Expected, Numbers], float]:
        states = model.states(0.0 if settings.holes else scale.log_scale)
        emissions = IncompleteStates(states, np.log(scale.units)) if settings.holes else states
        seen = e_step_pass(rows, layout, emissions, model.markov, features, run)
        return seen, seen[0].log_likelihood / rows.n_rows

    def _step(model: HiddenMarkov, seen: tuple[Expected, Numbers]) -> HiddenMarkov:
        return call(run, "correct", _corrected, sample.held, scale, kind, model, seen[0], ratio, inner)

    return expectation_maximisation(learned.model, _look, _step, max_iter=settings.max_iter, tol=settings.tol)


def _corrected(
    sample: FrameStretches,
    scale: FeatureScale,
    kind: str,
    model: HiddenMarkov,
    seen: Expected,
    ratio: float,
    inner: int,
) -> HiddenMarkov:
    own = standard_frames(scale.standard(sample.frames), sample.edges, kind, scale.least)
    return corrected_steps(model, own, seen, ratio, inner)


def burn_in_of(sample: FrameStretches, model: HiddenMarkov) -> int:
    """Measure on stretches of a sample after how many frames a chain forgets.

    model: in the data's units. Returns 0 if it does so too slowly.
    """
    edges = sample.edges
    pairs = itertools.pairwise(edges.tolist())
    begins = np.concatenate([np.arange(begin, end - _FORGET + 1, _FORGET) for begin, end in pairs])
    if not len(begins):
        return 0
    begins = begins[:: max(1, len(begins) // _FORGET_STRETCHES)]
    stretches = sample.frames[begins[:, None] + np.arange(_FORGET)]
    densities = model.emission()(stretches.reshape(-1, stretches.shape[2]))
    return burn_in_that_forgets(model.markov.transmat, densities.reshape(*stretches.shape[:2], -1))


def _votes(tails: Floats, model: HiddenMarkov) -> Numbers:
    """How many tails are nearest to each state."""
    nearest = squared_distances(tails, model.means).argmin(axis=1)
    return np.bincount(nearest, minlength=len(model.means)).astype(np.int64)


# --- choices ---


def choose_states(rows: Rows, edges: Numbers, settings: HMMSettings, run: Run) -> tuple[int, tuple[int, int]]:
    """Choose the number of states on a sample of frames.

    Returns count: the number of least BIC, from the one that the covariances at lags show upwards; bounds: least and
    greatest of the two rules' numbers.
    """
    return call(run, "count", _count_states, take_stretches(rows, edges, run, holes=settings.holes).held, settings)


def _count_states(sample: FrameStretches, settings: HMMSettings) -> tuple[int, tuple[int, int]]:
    rows, edges = sample.rows, sample.edges
    most, seen = min(_MOST_SIGNALS, rows.n_rows), sample.whole
    if rows.n_features > _WIDE:
        seen = principal_coordinates(seen, _WIDE)
    shown = min(count_signals(lag_moments(seen, edges)) + 1, most)
    criteria: dict[int, float] = {}
    for k in range(max(shown - 1, 1), min(shown + _FARTHEST, most) + 1):
        found = fit_hmm(rows, edges, k, replace(settings, max_iter=0), Run())
        likelihood = found.refined.log_likelihoods[-1] * rows.n_rows
        penalty = count_parameters(settings.covariance_type, k, rows.n_features) * np.log(rows.n_rows)
        criteria[k] = penalty - 2.0 * likelihood
        best = min(criteria, key=lambda count: criteria[count])
        if k - best >= _WORSE:
            break
    return best, (min(best, shown), max(best, shown))


def choose_covariances(rows: Rows, edges: Numbers, k: int, settings: HMMSettings, run: Run) -> str:
    """Choose between diagonal and shared full covariances, by the likelihood of frames that were held out.

    Returns the form under which the last fifth of a sample is more likely: "tied" where noise is correlated.
    """
    if rows.n_features > WIDEST:
        return "diag"
    sample = take_stretches(rows, edges, run, holes=settings.holes)
    cut = int((1.0 - _HELD_OUT) * sample.n_frames)
    if cut < 2 * k or cut == sample.n_frames:
        return "diag"
    kinds = ("diag", "tied")
    each = [(cut, k, replace(settings, covariance_type=kind)) for kind in kinds]
    scores = call_each(run, "form", _held_out, sample.held, each)
    return kinds[int(np.argmax(scores))]


def _held_out(sample: FrameStretches, cut: int, k: int, settings: HMMSettings) -> float:
    """The likelihood of frames from `cut` on, of a model of those before it."""
    inner = sample.edges[1:-1]
    ends = [np.concatenate([[0], inner[inner < cut], [cut]]), np.concatenate([[cut], inner[inner > cut]])]
    ends[1] = np.append(ends[1], sample.rows.n_rows) - cut
    parts = [as_rows(sample.frames[:cut]), as_rows(sample.frames[cut:])]
    model = fit_hmm(parts[0], ends[0], k, settings, Run()).model
    return Decoder(parts[1], ends[1], model.emission(), model.markov, 0, Run()).log_likelihood()


# --- warnings ---


def warn_of_floor(resting: Mask, covariances: Floats, covariance_type: str) -> None:
    """Warn of states whose variances rest on their least value.

    resting (k,): which ones do; covariances: in the shape of their type.
    """
    if not resting.any():
        return
    variances = variances_of(covariances, covariance_type)
    least = float(variances[resting].max() if len(variances) == len(resting) else variances.max())
    warn(
        f"variances of {int(resting.sum())} of {len(resting)} states rest on their least value (up to {least:.3g}). "
        "It is in proportion to the variance of all rows, which rows or clusters far from the others raise, and it "
        f"decides what is told apart: take far rows out, or set min_covar below the variances that count",
        FloorWarning,
    )


def warn_of_few_values(distinct: int | None, n_states: int) -> bool:
    """Warn of more states than the frames have values.

    distinct: number of distinct frames, if it was counted. Returns whether there was a warning.
    """
    if distinct is None or distinct >= n_states:
        return False
    alike = "states with the same values differ by their transitions alone"
    then = "one state is fitted" if distinct == 1 else alike
    msg = f"the frames have {distinct} distinct values, fewer than n_components={n_states}: {then}; use {distinct}"
    warn(msg, FewerAnchorsWarning)
    return True
