"""The recipe of hidden Markov models: moments at lags, tails with their context, anchors, Baum-Welch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.decoding import burn_in_that_forgets
from dask_dca.engine.lagged import tails_in_context
from dask_dca.engine.markov_passes import Statistics
from dask_dca.engine.threads import one_blas_thread
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.kernels.discriminant import discriminant_coordinates
from dask_dca.kernels.gaussian_moments import gaussian_moments
from dask_dca.kernels.lifted import lifted_features, moving_average
from dask_dca.kernels.lloyd import lloyd, squared_distances
from dask_dca.models.hmm_frames import describe_frames, find_coordinates, moments_in_memory, take_stretches
from dask_dca.models.hmm_refine import HiddenMarkov, Refined, maximise, refine
from dask_dca.models.hmm_start import (
    fit_coordinates,
    label_counts,
    select_anchors,
    short_cut,
    signed_directions,
    tail_thresholds,
    tails,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.engine.lagged import Tails
    from dask_dca.engine.markov_passes import Emission
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.kernels.markov import Markov
    from dask_dca.models.hmm_frames import Coordinates, Frame, Stretches
    from dask_dca.models.hmm_start import Start

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Fitted", "HMMSettings", "fit_hmm", "prepare"]

# (space, what of the tails is compared, how anchors are chosen, which set of directions)
_PLANS: Final = (
    ("discriminant", "context", "farthest", 0),
    ("discriminant", "both", "simplex", 0),
    ("principal", "present", "farthest", 0),
    ("discriminant", "context", "farthest", 1),
    ("discriminant", "both", "simplex", 1),
    ("principal", "both", "simplex", 1),
    ("principal", "both", "simplex", 0),
    ("discriminant", "both", "simplex", 2),
)
_FEW_FRAMES: Final = 5000  # below this all starts are tried, and in the frames themselves
_STARTS: Final = 4  # from this many frames on
_FINALISTS: Final = 2
_ROUNDS: Final = (3, 3, 4)  # passes of Baum-Welch before each halving of the starts
_REACHES: Final = (0, 4, 12)  # frames on either side over which lifted features are averaged
_FORGET: Final = 128  # frames of the stretches on which it is measured how soon the chain forgets
_FORGET_STRETCHES: Final = 64
_LIFTED: Final = 8  # principal coordinates that are lifted, with all their products
_LIFTED_FEATURES: Final = 32  # features that are lifted themselves where covariances are diagonal: squares only


@dataclass(frozen=True)
class HMMSettings:
    """Checked parameters of a hidden Markov model."""

    covariance_type: str
    max_iter: int
    tol: float
    min_covar: float | None
    n_starts: int | None
    n_directions: int | None
    seed: int


@dataclass(frozen=True)
class Prepared:
    """What all starts share."""

    rows: Rows  # in memory where the sample is all
    edges: Numbers
    sample: Stretches
    frame: Frame
    coordinates: Coordinates
    seen: Floats  # (n, d): discriminant coordinates of the sample


@dataclass(frozen=True)
class Fitted:
    """A model and its certificate."""

    refined: Refined
    start_scores: list[float]  # log likelihood a frame of the starts, in the last round each took part in
    votes: NDArray[np.int64]  # (k,): tails nearest to each state
    n_tails: int
    confidence: Floats  # (k, 2)
    burn_in: int
    converged: bool
    n_range: tuple[int, int]


def prepare(rows: Rows, edges: Numbers, k: int, settings: HMMSettings, run: Run) -> Prepared:
    """
    Sample the frames and find their coordinates: the moment pass.

    Parameters
    ----------
    rows, edges, k, settings, run : object
        As `fit_hmm` takes them.

    Returns
    -------
    Prepared
        What all starts share.
    """
    sample = take_stretches(rows, edges, run)
    frame = describe_frames(sample, settings.min_covar)
    rows = sample.rows if sample.whole else rows
    whole = settings.covariance_type in ("full", "tied")
    coordinates, frame = find_coordinates(rows, edges, sample, frame, k, settings.seed, run, whole_covariance=whole)
    seen = np.ascontiguousarray((sample.frames - frame.centre) @ coordinates.discriminant)
    return Prepared(rows, edges, sample, frame, coordinates, seen)


def fit_hmm(rows: Rows, edges: Numbers, k: int, settings: HMMSettings, run: Run) -> Fitted:
    """
    Fit a hidden Markov model.

    Parameters
    ----------
    rows : Rows
        The data.
    edges : ndarray of int64, shape (m + 1,)
        Ends of sequences.
    k : int
        Number of states.
    settings : HMMSettings
        How.
    run : Run
        How passes are run.

    Returns
    -------
    Fitted
        The model.
    """
    with one_blas_thread():
        ready = prepare(rows, edges, k, settings, run)
        found = _divide(ready, k, settings, run)
        starts = _starts(ready, found, k, settings)
        model, scores = _best(ready, starts, k, settings, run)
        refined = _refine_all(ready, model, k, settings, run)
        votes, count = _votes(ready, found, refined.model, k), len(found.counts)
        burn_in = _burn_in(ready, refined.model)
    history = refined.log_likelihoods
    converged = len(history) > 1 and history[-1] - history[-2] < settings.tol / rows.n_rows
    return Fitted(refined, scores, votes, count, wilson_bounds(votes, count), burn_in, converged, (k, k))


def _divide(ready: Prepared, k: int, settings: HMMSettings, run: Run) -> Tails:
    """The divide pass: over all frames, with thresholds from the sample."""
    directions = signed_directions(k, ready.seen.shape[1], settings.n_directions, settings.seed)
    thresholds = tail_thresholds(ready.seen, directions, k)
    axes = ready.coordinates.discriminant
    return tails_in_context(ready.rows, ready.edges, ready.frame.centre, axes, directions, thresholds, run)


def _starts(ready: Prepared, found: Tails, k: int, settings: HMMSettings) -> list[Start]:
    """Fits in the discriminant coordinates of the sample, from anchors chosen in several ways."""
    few = len(ready.seen) < _FEW_FRAMES
    count = settings.n_starts or (len(_PLANS) if few or k - 1 > ready.rows.n_features else _STARTS)
    spaces = {"discriminant": ready.seen}
    if ready.coordinates.principal is not None:
        spaces["principal"] = np.ascontiguousarray(
            (ready.sample.frames - ready.frame.centre) @ ready.coordinates.principal[:, : ready.seen.shape[1]]
        )
    known = {("discriminant", 0): found}
    starts = []
    for space, what, rule, which in _PLANS[:count]:
        seen = spaces.get(space, ready.seen)
        if (space, which) not in known:
            directions = signed_directions(k, seen.shape[1], settings.n_directions, settings.seed + which)
            known[space, which] = tails(seen, ready.sample.edges, directions, k)
        anchors = _anchors(known[space, which], what, rule, k)
        if space == "principal":
            anchors = _moved(lloyd(seen, anchors, 2).labels, ready.seen, k)
        starts.append(fit_coordinates(ready.seen, ready.sample.edges, anchors))
    return starts


def _anchors(found: Tails, what: str, rule: str, k: int) -> Floats:
    """Mean coordinates (k, d) of the tails that are anchors."""
    points = {"present": found.present, "context": found.context, "both": np.hstack([found.present, found.context])}
    anchors: Floats = found.present[select_anchors(points[what], k, rule)]
    return anchors


def _moved(labels: NDArray[np.intp], seen: Floats, k: int) -> Floats:
    """Means of labelled frames in other coordinates."""
    hot = np.eye(k)[labels]
    moved: Floats = (hot.T @ seen) / np.maximum(hot.sum(axis=0), 1.0)[:, None]
    return moved


def _best(
    ready: Prepared, starts: list[Start], k: int, settings: HMMSettings, run: Run
) -> tuple[tuple[Emission, Markov] | HiddenMarkov, list[float]]:
    """Compare starts by the likelihood of the sample: some passes of Baum-Welch for each, then half of them, again."""
    axes, centre, kind = ready.coordinates.discriminant, ready.frame.centre, settings.covariance_type
    if settings.n_starts == 1:
        only = starts[0]
        return (only.emission(centre, axes), only.markov), []
    starts = sorted(starts, key=lambda start: -start.log_likelihood)
    if len(ready.seen) >= _FEW_FRAMES:
        starts = starts[:_FINALISTS]
    running: list[Any] = [(start.emission(centre, axes), start.markov) for start in starts]
    running += _lifted_starts(ready, k, settings)
    cut, scores = short_cut(ready.sample.edges, k + 2 * ready.rows.n_features), []
    for passes in _ROUNDS:
        found = [refine(ready.sample.rows, cut, model, ready.frame, kind, passes, -np.inf, run) for model in running]
        found.sort(key=lambda one: -one.log_likelihoods[-1])
        keep = max(1, len(found) // 2)
        scores = [one.log_likelihoods[-1] for one in found[keep:]] + scores
        running = [one.model for one in found[:keep]]
        best = found[0].log_likelihoods[-1]
        if keep == 1:
            break
    return running[0], [best, *scores]


def _lifted_starts(ready: Prepared, k: int, settings: HMMSettings) -> list[HiddenMarkov]:
    """Starts for states that differ in covariance: from lifted features of a few coordinates, averaged over time."""
    kind, principal = settings.covariance_type, ready.coordinates.principal
    if kind == "tied" or principal is None or k == 1:
        return []
    centred = ready.sample.frames - ready.frame.centre
    few = centred @ principal[:, :_LIFTED]
    if kind != "full" and centred.shape[1] <= _LIFTED_FEATURES:
        few = centred / np.where(ready.frame.spreads > 0.0, ready.frame.spreads, 1.0)
    features = lifted_features(few, products=kind == "full")
    return [_lifted_start(ready, features, centred, reach, k, settings) for reach in _REACHES]


def _lifted_start(
    ready: Prepared, features: Floats, centred: Floats, reach: int, k: int, settings: HMMSettings
) -> HiddenMarkov:
    edges, kind = ready.sample.edges, settings.covariance_type
    seen = moving_average(features, edges, reach) if reach else features
    axes = discriminant_coordinates(moments_in_memory(seen, edges), max(1, min(k - 1, seen.shape[1])))[0]
    lifted = np.ascontiguousarray((seen - seen.mean(axis=0)) @ axes)
    directions = signed_directions(k, lifted.shape[1], settings.n_directions, settings.seed)
    anchors = _anchors(tails(lifted, edges, directions, k), "both", "simplex", k)
    labels = fit_coordinates(lifted, edges, anchors).labels(lifted)
    hot = np.eye(k)[labels]
    moments = gaussian_moments(hot, centred, kind)
    starts, transitions = label_counts(labels, edges, k)
    nobody = np.zeros(k, dtype=np.int64)
    found = Statistics(0.0, starts, transitions, moments.counts, moments.first, moments.second, nobody)
    return maximise(found, ready.frame, kind)


def _refine_all(
    ready: Prepared, model: tuple[Emission, Markov] | HiddenMarkov, k: int, settings: HMMSettings, run: Run
) -> Refined:
    """The passes over all frames; a model of coordinates takes one more, which turns it into one of frames."""
    passes = settings.max_iter + (not isinstance(model, HiddenMarkov))
    cut = short_cut(ready.edges, k + 2 * ready.rows.n_features)
    tol = settings.tol / ready.rows.n_rows
    return refine(ready.rows, cut, model, ready.frame, settings.covariance_type, max(passes, 1), tol, run)


def _burn_in(ready: Prepared, model: HiddenMarkov) -> int:
    """After how many frames the chain forgets, measured on stretches of the sample."""
    edges = ready.sample.edges
    begins = np.concatenate([np.arange(begin, end - _FORGET + 1, _FORGET) for begin, end in _pairs(edges)])
    if not len(begins):
        return 0
    begins = begins[:: max(1, len(begins) // _FORGET_STRETCHES)]
    stretches = ready.sample.frames[begins[:, None] + np.arange(_FORGET)]
    return burn_in_that_forgets(model.emission(ready.frame.centre), model.markov, stretches)


def _pairs(edges: Numbers) -> Iterator[tuple[int, int]]:
    return itertools.pairwise(edges.tolist())


def _votes(ready: Prepared, found: Tails, model: HiddenMarkov, k: int) -> NDArray[np.int64]:
    """How many tails are nearest to each state, in discriminant coordinates."""
    means = (model.means - ready.frame.centre) @ ready.coordinates.discriminant
    return np.bincount(squared_distances(found.present, means).argmin(axis=1), minlength=k).astype(np.int64)
