"""Where a hidden Markov model starts: anchors among tails of frames, and of features whose means show covariances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.geometry.solvers import successive_projection
from dask_dca.models.hmm.lags import discriminant_coordinates, lag_moments, principal_coordinates
from dask_dca.models.hmm.model import model_of_labels
from dask_dca.models.kmeans import lloyd, within_variances

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.models.hmm.model import HiddenMarkov

    Floats = NDArray[np.float64]
    Labels = NDArray[np.intp]
    Numbers = NDArray[np.int64]

__all__ = ["FEW_FRAMES", "ChainStart", "anchored_starts", "lifted_features", "moving_average", "tail_means"]

FEW_FRAMES: Final = 5000  # below this more starts are compared
_SWEEPS: Final = 6  # of Lloyd's algorithm from the anchors
_REACHES: Final = (4, 0)  # frames on either side over which lifted features are averaged; the last where frames are few
_LIFTED: Final = 8  # principal coordinates that are lifted, with all their products
_LIFTED_FEATURES: Final = 32  # features that are lifted themselves where covariances are diagonal: squares only
_LOOKED_AT: Final = 8192  # frames among which tails are looked for


@dataclass(frozen=True)
class ChainStart:
    """A model of labelled frames, and the variances of features within its states."""

    model: HiddenMarkov
    within: Floats  # (p,)


def anchored_starts(
    frames: Floats, edges: Numbers, k: int, kind: str, floors: Floats, seed: int, count: int | None
) -> tuple[list[ChainStart], Floats]:
    """Start from anchors of the frames, and of lifted features.

    frames (n, p): in standard units; count: of directions; by the number of states if None. Returns the starts, and the
    means of the frames' tails (2 s, p).
    """
    places = principal_coordinates(frames, max(k - 1, 1))
    found = tail_means(places, frames, k, seed, count)
    labels = [_partition(frames, found, k)]
    for reach in _REACHES if len(frames) < FEW_FRAMES else _REACHES[:1]:
        lifted = _lifted(frames, edges, k, kind, reach)
        labels.append(_partition(lifted, tail_means(lifted, lifted, k, seed, count), k))
    return [_start(frames, edges, each, k, kind, floors) for each in labels], found


def _start(frames: Floats, edges: Numbers, labels: Labels, k: int, kind: str, floors: Floats) -> ChainStart:
    within = within_variances(frames, labels, k)
    return ChainStart(model_of_labels(frames, edges, labels, k, kind, floors), within)


def _partition(rows: Floats, tails: Floats, k: int) -> Labels:
    return lloyd(rows, tails[_select_anchors(tails, k)], _SWEEPS).labels


def _lifted(frames: Floats, edges: Numbers, k: int, kind: str, reach: int) -> Floats:
    """Discriminant coordinates of lifted features, averaged over time."""
    whole = kind == "full"
    few = frames if not whole and frames.shape[1] <= _LIFTED_FEATURES else principal_coordinates(frames, _LIFTED)
    features = moving_average(lifted_features(few, products=whole), edges, reach)
    moments = lag_moments(features, edges)
    axes = discriminant_coordinates(moments, max(1, min(k - 1, features.shape[1])))[0]
    return np.ascontiguousarray((features - moments.mean) @ axes)


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


def moving_average(values: Floats, edges: Numbers, reach: int) -> Floats:
    """Average each row with its neighbours in time.

    values (n, r): rows in the order of time; edges (m + 1,): ends of sequences, which are not averaged across; reach:
    how many rows on either side. Returns (n, r): the averages.
    """
    if reach == 0:
        return values
    number = np.arange(len(values))
    which = np.searchsorted(edges, number, side="right") - 1
    low, high = np.maximum(number - reach, edges[which]), np.minimum(number + reach + 1, edges[which + 1])
    sums = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    found: Floats = (sums[high] - sums[low]) / (high - low)[:, None]
    return found


# --- anchors ---


def tail_means(places: Floats, rows: Floats, k: int, seed: int, count: int | None) -> Floats:
    """Average the rows furthest out along directions: the sub-problems.

    places (n, d): where directions look; rows (n, p): what is averaged; k: number of states, which decides how many
    rows make a tail; count: of directions s; 6 k ln(k + 1) if None. Returns (2 s, p).
    """
    every = max(1, len(rows) // _LOOKED_AT)
    places, rows = places[::every], rows[::every]
    n = len(rows)
    size = int(np.clip(round(_tail_share(k, n) * n), 1, n))
    heights = _signed_directions(k, places.shape[1], count, seed) @ places.T
    least = np.partition(heights, n - size, axis=1)[:, [n - size]]
    beyond = (heights >= least).astype(np.float64)
    found: Floats = (beyond @ rows) / beyond.sum(axis=1, keepdims=True)
    return found


def _tail_share(k: int, n: int) -> float:
    """How many rows make a tail: 4 %, but 30 rows at least, and at most half of a state's."""
    most = 0.5 / k
    return max(min(most, 0.04), min(most, 30 / n))


def _signed_directions(k: int, d: int, count: int | None, seed: int) -> Floats:
    """Directions (2 s, d), each both ways; there is but one along a line."""
    if d == 1:
        return np.array([[1.0], [-1.0]])
    s = count or int(np.ceil(6 * k * np.log(k + 1)))
    drawn = ndtri(uniforms(child_seeds(seed, np.arange(s)), d))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return np.concatenate([drawn, -drawn])


def _select_anchors(points: Floats, k: int) -> Labels:
    """The tails that are anchors: the conquer step; some twice where there are fewer than k.

    By successive projection; by farthest points where there are more states than dimensions allow.
    """
    centred = points - points.mean(axis=0)
    squares = (centred**2).sum(axis=1)
    height = max(float(np.sqrt(squares.mean())), 1e-300)
    chosen = successive_projection(np.column_stack([np.full(len(points), height), centred]), k)
    if len(chosen) >= k:
        return chosen.astype(np.intp)
    found = [int(squares.argmax())]
    distances = ((centred - centred[found[0]]) ** 2).sum(axis=1)
    while len(found) < k:
        found.append(int(distances.argmax()))
        distances = np.minimum(distances, ((centred - centred[found[-1]]) ** 2).sum(axis=1))
    return np.array(found, dtype=np.intp)
