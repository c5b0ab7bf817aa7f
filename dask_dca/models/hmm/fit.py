"""The recipe of hidden Markov models: moments at lags, tails with their context, anchors, Baum-Welch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.held import Held, call, call_each
from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.models.hmm.decoding import Decoder
from dask_dca.models.hmm.lags import tails_in_context
from dask_dca.models.hmm.parameters import WIDEST, FitContext, HMMSettings, count_parameters, prepare, see
from dask_dca.models.hmm.refine import HiddenMarkov, RefinedChain, refine
from dask_dca.models.hmm.sample import take_stretches, with_local_floors
from dask_dca.models.hmm.scan import burn_in_that_forgets
from dask_dca.models.hmm.start import (
    anchor_means,
    fit_coordinates,
    lifted_starts,
    short_cut,
    signed_directions,
    tail_thresholds,
    tails,
)
from dask_dca.models.kmeans import squared_distances, within_variances

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run as Runs
    from dask_dca.engine.rows import Rows
    from dask_dca.models.hmm.lags import LaggedTails
    from dask_dca.models.hmm.passes import Emission
    from dask_dca.models.hmm.recursions import Markov
    from dask_dca.models.hmm.sample import Coordinates, FeatureScale, FrameStretches, SampledFrames
    from dask_dca.models.hmm.start import StateStart

    Floats = NDArray[np.float64]
    Labels = NDArray[np.intp]
    Numbers = NDArray[np.int64]

__all__ = ["HMMFit", "choose_covariances", "choose_states", "fit_hmm"]

# (space, what of the tails is compared, how anchors are chosen, which set of directions)
_PLANS: Final = (
    ("discriminant", "context", "farthest", 0),
    ("discriminant", "both", "simplex", 0),
    ("principal", "present", "farthest", 0),
    ("principal", "both", "simplex", 0),
    ("discriminant", "context", "farthest", 1),
    ("discriminant", "both", "simplex", 1),
    ("principal", "both", "simplex", 1),
    ("discriminant", "both", "simplex", 2),
)
_DIVIDED: Final = ("discriminant", 0)  # where the divide pass looks
_FEW_FRAMES: Final = 5000  # below this all starts are tried, and in the frames themselves
_STARTS: Final = 5  # from this many frames on
_ROUNDS: Final = (3, 3, 4)  # passes of Baum-Welch before each halving of the starts
_FORGET: Final = 128  # frames of the stretches on which it is measured how soon the chain forgets
_FORGET_STRETCHES: Final = 64
_MOST_SIGNALS: Final = 30
_WORSE: Final = 2  # numbers of states in a row that must be worse before the search ends
_FARTHEST: Final = 8  # states above the number that the spectrum shows
_HELD_OUT: Final = 0.2
_TRIAL: Final = {"max_iter": 3, "n_starts": 2}


@dataclass(frozen=True)
class HMMFit:
    """A model and its certificate."""

    refined: RefinedChain
    start_scores: list[float]  # log likelihood per frame of the starts, in the last round each took part in
    votes: NDArray[np.int64]  # (k,): tails nearest to each state
    n_tails: int
    confidence: Floats  # (k, 2)
    burn_in: int
    converged: bool
    n_range: tuple[int, int]
    n_distinct: int | None = None  # frames of the sample


def fit_hmm(rows: Rows, edges: Numbers, k: int, settings: HMMSettings, run: Run) -> HMMFit:
    """Fit a hidden Markov model.

    edges (m + 1,): ends of sequences.
    """
    with one_blas_thread():
        sample = take_stretches(rows, edges, run)
        if sample.whole:  # nothing is left to read in passes
            return call(run, "fit", _fit_in_memory, sample.held, replace(sample, held=Held(None)), k, settings)
        return _fit(rows, edges, sample, k, settings, run)


def _fit_in_memory(frames: FrameStretches, known: SampledFrames, k: int, settings: HMMSettings) -> HMMFit:
    return _fit(frames.rows, frames.edges, replace(known, held=Held(frames)), k, settings, Run())


def _fit(rows: Rows, edges: Numbers, sample: SampledFrames, k: int, settings: HMMSettings, run: Run) -> HMMFit:
    if sample.n_distinct == 1:
        k = 1
    ready = prepare(rows, edges, sample, k, settings, run)
    found = _divide(ready, k, settings, run)
    starts = _starts(ready, found, k, settings, run)
    ready = _with_local_floors(ready, starts, settings)
    model, scores = _best(ready, starts, k, settings, run)
    refined = _refine_all(ready, model, k, settings, run)
    votes, count = _votes(ready, found, refined.model, k), len(found.counts)
    burn_in = call(run, "forget", _burn_in, sample.held, refined.model, ready.frame.centre)
    history = refined.log_likelihoods
    converged = len(history) > 1 and history[-1] - history[-2] < settings.tol / rows.n_rows
    bounds, distinct = wilson_bounds(votes, count), sample.n_distinct
    return HMMFit(refined, scores, votes, count, bounds, burn_in, converged, (k, k), distinct)


def _divide(ready: FitContext, k: int, settings: HMMSettings, run: Run) -> LaggedTails:
    """The divide pass: over all frames, with thresholds from the sample."""
    axes = ready.coordinates.discriminant
    directions = signed_directions(k, axes.shape[1], settings.n_directions, settings.seed)
    known = ready.frame, ready.coordinates, directions, k
    thresholds = call(run, "thresholds", _thresholds, ready.sample.held, *known)
    return tails_in_context(ready.rows, ready.edges, ready.frame.centre, axes, directions, thresholds, run)


def _thresholds(
    sample: FrameStretches, frame: FeatureScale, coordinates: Coordinates, directions: Floats, k: int
) -> Floats:
    return tail_thresholds(see(sample, frame, coordinates).places, directions, k)


@dataclass(frozen=True)
class _Candidate:
    """A start, and the coordinates that it is a model of."""

    space: str
    axes: Floats  # (p, d)
    start: StateStart
    within: Floats  # (p,), rough variances of the features within its states

    def model(self, centre: Floats) -> tuple[Emission, Markov]:
        """The start as a model of frames."""
        return self.start.emission(centre, self.axes), self.start.markov


def _starts(ready: FitContext, found: LaggedTails, k: int, settings: HMMSettings, run: Run) -> list[_Candidate]:
    """Fits in coordinates of the sample, from anchors chosen in several ways; two kinds of coordinates."""
    few = ready.sample.n_frames < _FEW_FRAMES
    count = settings.n_starts or (len(_PLANS) if few or k - 1 > ready.rows.n_features else _STARTS)
    groups: dict[tuple[str, int], list[int]] = {}  # plans that look at the same tails
    for i, (space, _, _, which) in enumerate(_PLANS[:count]):
        name = "discriminant" if ready.coordinates.principal is None else space
        groups.setdefault((name, which), []).append(i)
    each = [
        (ready.frame, ready.coordinates, name, which, plans, found if (name, which) == _DIVIDED else None, k, settings)
        for (name, which), plans in groups.items()
    ]
    lists = call_each(run, "starts", _starts_of, ready.sample.held, each)
    made = {
        i: one for plans, some in zip(groups.values(), lists, strict=True) for i, one in zip(plans, some, strict=True)
    }
    return [made[i] for i in range(len(made))]


def _starts_of(
    sample: FrameStretches,
    frame: FeatureScale,
    coordinates: Coordinates,
    space: str,
    which: int,
    plans: list[int],
    found: LaggedTails | None,
    k: int,
    settings: HMMSettings,
) -> list[_Candidate]:
    """Starts that look at the same tails: those of the divide pass, or of the sample."""
    ready, axes = see(sample, frame, coordinates), coordinates.discriminant
    seen = ready.places
    if space == "principal":
        assert coordinates.principal is not None
        axes = coordinates.principal[:, : axes.shape[1]]
        seen = np.ascontiguousarray(ready.centred @ axes)
    if found is None:
        directions = signed_directions(k, seen.shape[1], settings.n_directions, settings.seed + which)
        found = tails(seen, ready.edges, directions, k)
    starts = []
    for _, what, rule, _ in (_PLANS[i] for i in plans):
        start = fit_coordinates(seen, ready.edges, anchor_means(found, what, rule, k))
        frames = ready.frames[:: _every(seen)]
        labels = start.labels((frames - frame.centre) @ axes)
        starts.append(_Candidate(space, axes, start, within_variances(frames, labels, k)))
    return starts


def _every(seen: Floats) -> int:
    return max(1, len(seen) // _FEW_FRAMES)


def _with_local_floors(ready: FitContext, starts: list[_Candidate], settings: HMMSettings) -> FitContext:
    """Lower floors where nearly all variance is between states that are far apart, or that of a few far frames."""
    if settings.min_covar is not None:
        return ready
    return replace(ready, frame=with_local_floors(ready.frame, np.min([one.within for one in starts], axis=0)))


def _best(
    ready: FitContext, starts: list[_Candidate], k: int, settings: HMMSettings, run: Run
) -> tuple[tuple[Emission, Markov] | HiddenMarkov, list[float]]:
    """Compare starts by the likelihood of the sample: some passes of Baum-Welch for each, then half of them, again."""
    centre, kind = ready.frame.centre, settings.covariance_type
    if settings.n_starts == 1:
        return starts[0].model(centre), []
    if ready.sample.n_frames >= _FEW_FRAMES:  # likelihoods compare within one kind of coordinates only
        best: dict[str, _Candidate] = {}
        for one in sorted(starts, key=lambda one: one.start.log_likelihood):
            best[one.space] = one
        starts = list(best.values())
    running: list[Any] = [one.model(centre) for one in starts]
    running += lifted_starts(ready, k, settings, run)
    scores: list[float] = []
    for passes in _ROUNDS:
        each = [(model, ready.frame, k, kind, passes) for model in running]
        found = call_each(run, "compare", _compared, ready.sample.held, each)
        found.sort(key=lambda one: -one.log_likelihoods[-1])
        keep = max(1, len(found) // 2)
        scores = [one.log_likelihoods[-1] for one in found[keep:]] + scores
        running = [one.model for one in found[:keep]]
        top = found[0].log_likelihoods[-1]
        if keep == 1:
            break
    return running[0], [top, *scores]


def _compared(
    sample: FrameStretches,
    model: tuple[Emission, Markov] | HiddenMarkov,
    frame: FeatureScale,
    k: int,
    kind: str,
    passes: int,
) -> RefinedChain:
    """A start after some passes over the sample."""
    cut = short_cut(sample.edges, k + 2 * sample.rows.n_features)
    return refine(sample.rows, cut, model, frame, kind, passes, -np.inf, Run())


def _refine_all(
    ready: FitContext, model: tuple[Emission, Markov] | HiddenMarkov, k: int, settings: HMMSettings, run: Run
) -> RefinedChain:
    """The passes over all frames; a model of coordinates takes one more, which turns it into one of frames."""
    passes = settings.max_iter + (not isinstance(model, HiddenMarkov))
    cut = short_cut(ready.edges, k + 2 * ready.rows.n_features)
    tol = settings.tol / ready.rows.n_rows
    return refine(ready.rows, cut, model, ready.frame, settings.covariance_type, max(passes, 1), tol, run)


def _burn_in(sample: FrameStretches, model: HiddenMarkov, centre: Floats) -> int:
    """After how many frames the chain forgets, measured on stretches of the sample."""
    edges = sample.edges
    begins = np.concatenate([np.arange(begin, end - _FORGET + 1, _FORGET) for begin, end in _pairs(edges)])
    if not len(begins):
        return 0
    begins = begins[:: max(1, len(begins) // _FORGET_STRETCHES)]
    stretches = sample.frames[begins[:, None] + np.arange(_FORGET)]
    densities = model.emission(centre)(stretches.reshape(-1, stretches.shape[2]))
    return burn_in_that_forgets(model.markov.transmat, densities.reshape(*stretches.shape[:2], -1))


def _pairs(edges: Numbers) -> Iterator[tuple[int, int]]:
    return itertools.pairwise(edges.tolist())


def _votes(ready: FitContext, found: LaggedTails, model: HiddenMarkov, k: int) -> NDArray[np.int64]:
    """How many tails are nearest to each state, in discriminant coordinates."""
    means = (model.means - ready.frame.centre) @ ready.coordinates.discriminant
    return np.bincount(squared_distances(found.present, means).argmin(axis=1), minlength=k).astype(np.int64)


def choose_states(rows: Rows, edges: Numbers, settings: HMMSettings, run: Runs) -> tuple[int, tuple[int, int]]:
    """Choose the number of states on a sample of frames.

    Returns count: the number of least BIC, from the one that the covariances at lags show upwards; bounds: least and
    greatest of the two rules' numbers.
    """
    return call(run, "count", _count_states, take_stretches(rows, edges, run).held, settings)


def _count_states(sample: FrameStretches, settings: HMMSettings) -> tuple[int, tuple[int, int]]:
    rows, edges = sample.rows, sample.edges
    trial = replace(settings, max_iter=_TRIAL["max_iter"], n_starts=_TRIAL["n_starts"])
    most = min(_MOST_SIGNALS, rows.n_rows)
    seen = prepare(rows, edges, take_stretches(rows, edges, Run()), most, trial, Run())
    shown = min(seen.coordinates.n_signals + 1, most)
    criteria: dict[int, float] = {}
    for k in range(max(shown - 1, 1), min(shown + _FARTHEST, most) + 1):
        found = fit_hmm(rows, edges, k, trial, Run())
        likelihood = found.refined.log_likelihoods[-1] * rows.n_rows
        penalty = count_parameters(settings.covariance_type, k, rows.n_features) * np.log(rows.n_rows)
        criteria[k] = penalty - 2.0 * likelihood
        best = min(criteria, key=lambda count: criteria[count])
        if k - best >= _WORSE:
            break
    return best, (min(best, shown), max(best, shown))


def choose_covariances(rows: Rows, edges: Numbers, k: int, settings: HMMSettings, run: Runs) -> str:
    """Choose between diagonal and shared full covariances, by the likelihood of frames that were held out.

    Returns the form under which the last fifth of a sample is more likely: "tied" where noise is correlated.
    """
    if rows.n_features > WIDEST:
        return "diag"
    sample = take_stretches(rows, edges, run)
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
    model = fit_hmm(parts[0], ends[0], k, settings, Run()).refined.model
    return Decoder(parts[1], ends[1], model.emission(), model.markov, 0, Run()).log_likelihood()
