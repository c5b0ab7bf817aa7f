"""Where a hidden Markov model starts: anchors among tails, fits in coordinates, features for states of equal means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.engine.held import call_each
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sequences import cut_sequences
from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.geometry.solvers import successive_projection
from dask_dca.models.gaussians import log_densities, moments_of_parts, prepare_gaussians
from dask_dca.models.hmm.lags import discriminant_coordinates, tails_in_context
from dask_dca.models.hmm.passes import Emission, Origins, Statistics, e_step_pass
from dask_dca.models.hmm.recursions import Markov, smoothed_chain
from dask_dca.models.hmm.refine import m_step
from dask_dca.models.hmm.sample import moments_in_memory
from dask_dca.models.kmeans import label_counts, lloyd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.sequences import Cut
    from dask_dca.models.hmm.lags import LaggedTails
    from dask_dca.models.hmm.parameters import FitContext, HMMSettings
    from dask_dca.models.hmm.refine import HiddenMarkov
    from dask_dca.models.hmm.sample import Coordinates, FeatureScale, FrameStretches

    Floats = NDArray[np.float64]
    Labels = NDArray[np.intp]
    Numbers = NDArray[np.int64]

__all__ = [
    "StateStart",
    "anchor_means",
    "fit_coordinates",
    "lifted_features",
    "lifted_starts",
    "moving_average",
    "select_anchors",
    "short_cut",
    "signed_directions",
    "tail_thresholds",
    "tails",
]

_SETTLE: Final = 3  # passes of Baum-Welch in the coordinates
_SWEEPS: Final = 2  # of Lloyd's algorithm before them
_FLOOR: Final = 1e-3  # variance in the coordinates, along which frames have about unit variance
_SEEN: Final = 1e-3  # frames below which a state keeps the mean it had
_BURN_IN: Final = 16
_PIECE: Final = (16, 64)  # least and greatest length of the pieces of a fit
_REACHES: Final = (0, 4, 12)  # frames on either side over which lifted features are averaged
_LIFTED: Final = 8  # principal coordinates that are lifted, with all their products
_LIFTED_FEATURES: Final = 32  # features that are lifted themselves where covariances are diagonal: squares only


def lifted_features(whitened: Floats, *, products: bool) -> Floats:
    """Lift frames to features whose means show covariances.

    whitened (n, q): frames of about zero mean and unit variance; products: products of all pairs of coordinates;
    squares only if False. Returns (n, r): the coordinates, their products damped by the frame's length, and the
    logarithm of that length, each of zero mean and unit variance.
    """
    q = whitened.shape[1]
    squares = (whitened**2).sum(axis=1, keepdims=True)
    left, right = np.triu_indices(q) if products else (np.arange(q), np.arange(q))
    damped = whitened[:, left] * whitened[:, right] / (1.0 + squares / q)
    features = np.hstack([whitened, damped, np.log(q / 10.0 + squares)])
    features -= features.mean(axis=0)
    spreads = features.std(axis=0)
    return features / np.where(spreads > 1e-9, spreads, 1.0)


def moving_average(values: Floats, edges: NDArray[np.int64], reach: int) -> Floats:
    """Average each row with its neighbours in time.

    values (n, r): rows in the order of time; edges (m + 1,): ends of sequences, which are not averaged across; reach:
    how many rows on either side. Returns (n, r): the averages.
    """
    number = np.arange(len(values))
    which = np.searchsorted(edges, number, side="right") - 1
    low, high = np.maximum(number - reach, edges[which]), np.minimum(number + reach + 1, edges[which + 1])
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    found: Floats = (sums[high] - sums[low]) / (high - low)[:, None]
    return found


def select_anchors(points: Floats, k: int, rule: str) -> Labels:
    """Choose the tails that are anchors: the conquer step.

    points (c, q): where the tails lie; rule: successive projection on a simplex, or the farthest point again and again.
    Returns (k,): their numbers; some twice where there are fewer than k.
    """
    centred = points - points.mean(axis=0)
    squares = (centred**2).sum(axis=1)
    if rule == "simplex":
        height = max(float(np.sqrt(squares.mean())), 1e-300)
        chosen = successive_projection(np.column_stack([np.full(len(points), height), centred]), k)
        return np.resize(chosen, k).astype(np.intp)
    found = [int(squares.argmax())]
    distances = ((centred - centred[found[0]]) ** 2).sum(axis=1)
    while len(found) < k:
        found.append(int(distances.argmax()))
        distances = np.minimum(distances, ((centred - centred[found[-1]]) ** 2).sum(axis=1))
    return np.array(found, dtype=np.intp)


def anchor_means(found: LaggedTails, what: str, rule: str, k: int) -> Floats:
    """Average the frames of the tails that are anchors.

    what: what of them is compared. Returns (k, d): mean coordinates.
    """
    points = {"present": found.present, "context": found.context, "both": np.hstack([found.present, found.context])}
    anchors: Floats = found.present[select_anchors(points[what], k, rule)]
    return anchors


@dataclass(frozen=True)
class StateStart:
    """A model of coordinates: means (k, d), one covariance (d, d), the Markov chain, and its likelihood."""

    means: Floats
    covariance: Floats
    markov: Markov
    log_likelihood: float

    def emission(self, centre: Floats | None = None, coordinates: Floats | None = None) -> Emission:
        """Prepare the densities.

        centre, coordinates: A frame x has the coordinates (x - centre) @ coordinates; without them coordinates are what
        is evaluated. Returns densities of frames, or of coordinates.
        """
        return Emission(prepare_gaussians(self.means, self.covariance, "tied"), centre, coordinates)

    def labels(self, coordinates: Floats) -> Labels:
        """Find the most likely state of each frame by itself.

        coordinates (n, d): coordinates of frames. Returns (n,): the states.
        """
        found: Labels = log_densities(self.emission().gaussians, coordinates).argmax(axis=1)
        return found


def short_cut(edges: Numbers, width: int) -> Cut:
    """Cut sequences as a fit does: pieces short enough that few frames make many of them.

    edges (m + 1,): ends of sequences; width: numbers per frame, held at once. Returns pieces of 16 to 64 frames,
    with a burn-in of 16.
    """
    length = int(np.clip(int(edges[-1]) // _PIECE[1], *_PIECE))
    return cut_sequences(edges, length=length, burn_in=_BURN_IN, width=width)


def tail_share(k: int, n: int) -> float:
    """Decide how many frames make a tail.

    k, n: number of states, and of frames. Returns share of the frames: 4 %, but 30 frames at least, and at most half of
    a state's.
    """
    most = 0.5 / k
    return max(min(most, 0.04), min(most, 30 / n))


def signed_directions(k: int, d: int, count: int | None, seed: int) -> Floats:
    """Draw directions, each both ways: the sub-problems.

    k, d: number of states, and of coordinates; count: how many; 6 k ln(k + 1) if None. There is but one along a line.
    Returns (2 s, d): unit vectors, then their opposites.
    """
    if d == 1:
        return np.array([[1.0], [-1.0]])
    s = count or int(np.ceil(6 * k * np.log(k + 1)))
    drawn = ndtri(uniforms(child_seeds(seed, np.arange(s)), d))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return np.concatenate([drawn, -drawn])


def tail_thresholds(coordinates: Floats, directions: Floats, k: int) -> Floats:
    """Return the heights from which on a frame is in the tail of each direction.

    coordinates (n, d): coordinates of frames; directions (2 s, d): signed directions; k: number of states: it decides
    how many frames make a tail. Returns (2 s,): the heights.
    """
    n = len(coordinates)
    rank = n - int(np.clip(round(tail_share(k, n) * n), 1, n))
    heights: Floats = np.partition(directions @ coordinates.T, rank, axis=1)[:, rank]
    return heights


def tails(coordinates: Floats, edges: Numbers, directions: Floats, k: int) -> LaggedTails:
    """Average the frames furthest out along directions, and their neighbours, for coordinates in memory.

    coordinates (n, d): coordinates of frames; edges (m + 1,): ends of sequences; directions (2 s, d): signed
    directions.
    """
    d = coordinates.shape[1]
    thresholds = tail_thresholds(coordinates, directions, k)
    return tails_in_context(as_rows(coordinates), edges, np.zeros(d), np.eye(d), directions, thresholds, Run())


def fit_coordinates(coordinates: Floats, edges: Numbers, centres: Floats) -> StateStart:
    """Fit means, one shared covariance and the Markov chain to coordinates of frames.

    coordinates (n, d): coordinates of frames, in memory; edges (m + 1,): ends of sequences; centres (k, d): where the
    states' means are expected. Returns the model after two sweeps of Lloyd's algorithm and three passes of Baum-Welch;
    its likelihood is that before the last M-step.
    """
    k, d = centres.shape
    start = _of_labels(coordinates, edges, lloyd(coordinates, centres, _SWEEPS).labels, k)
    rows, cut, unit = as_rows(coordinates), short_cut(edges, k + d), Origins(np.zeros(d), np.ones(d))
    whole = coordinates.T @ coordinates
    for _ in range(_SETTLE):
        found = e_step_pass(rows, cut, start.emission(), start.markov, unit, "none", Run())
        means = found.first / np.maximum(found.counts, _SEEN)[:, None]
        means = np.where(found.counts[:, None] > _SEEN, means, start.means)
        covariance = _floored((whole - (means.T * found.counts) @ means) / len(coordinates))
        start = StateStart(means, covariance, smoothed_chain(found.starts, found.transitions), found.log_likelihood)
    return start


def _of_labels(coordinates: Floats, edges: Numbers, labels: Labels, k: int) -> StateStart:
    hot = np.eye(k)[labels]
    counts = hot.sum(axis=0)
    means = (hot.T @ coordinates) / np.maximum(counts, 1.0)[:, None]
    residual = coordinates - means[labels]
    chain = smoothed_chain(*label_counts(labels, edges, k))
    return StateStart(means, _floored(residual.T @ residual / len(labels)), chain, -np.inf)


def _floored(covariance: Floats) -> Floats:
    """A covariance without directions of no variance."""
    variances, axes = np.linalg.eigh((covariance + covariance.T) / 2)
    floored: Floats = (axes * np.maximum(variances, _FLOOR)) @ axes.T
    return floored


def lifted_starts(ready: FitContext, k: int, settings: HMMSettings, run: Run) -> list[HiddenMarkov]:
    """Start from lifted features of a few coordinates, averaged over time.

    Returns none where covariances are shared, or data are wide.
    """
    if settings.covariance_type == "tied" or ready.coordinates.principal is None or k == 1:
        return []
    each = [(ready.frame, ready.coordinates, reach, k, settings) for reach in _REACHES]
    return call_each(run, "lifted", _lifted_start, ready.sample.held, each)


def _lifted_start(
    sample: FrameStretches, frame: FeatureScale, coordinates: Coordinates, reach: int, k: int, settings: HMMSettings
) -> HiddenMarkov:
    edges, kind, centred = sample.edges, settings.covariance_type, sample.frames - frame.centre
    assert coordinates.principal is not None
    few = centred @ coordinates.principal[:, :_LIFTED]
    if kind != "full" and centred.shape[1] <= _LIFTED_FEATURES:
        few = centred / np.where(frame.spreads > 0.0, frame.spreads, 1.0)
    features = lifted_features(few, products=kind == "full")
    seen = moving_average(features, edges, reach) if reach else features
    axes = discriminant_coordinates(moments_in_memory(seen, edges), max(1, min(k - 1, seen.shape[1])))[0]
    lifted = np.ascontiguousarray((seen - seen.mean(axis=0)) @ axes)
    directions = signed_directions(k, lifted.shape[1], settings.n_directions, settings.seed)
    anchors = anchor_means(tails(lifted, edges, directions, k), "both", "simplex", k)
    labels = fit_coordinates(lifted, edges, anchors).labels(lifted)
    moments = moments_of_parts(np.eye(k)[labels], centred, kind, frame.floors)
    starts, transitions = label_counts(labels, edges, k)
    nobody = np.zeros(k, dtype=np.int64)
    found = Statistics(0.0, starts, transitions, moments.counts, moments.first, moments.second, nobody, moments.origins)
    return m_step(found, frame, kind)
