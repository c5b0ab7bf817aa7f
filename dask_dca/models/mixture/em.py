"""Expectation-maximisation of Gaussian mixtures in memory, and moves that split one component and merge two others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.gaussians import (
    GaussianMoments,
    Gaussians,
    gaussian_moments,
    log_densities,
    mean_and_covariance,
    moments_of_parts,
    prepare_gaussians,
)
from dask_dca.models.kmeans import squared_distances

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Labels = NDArray[np.intp]

__all__ = [
    "Mixture",
    "Regularization",
    "expectation",
    "improve",
    "joint_log_densities",
    "maximization",
    "mixture_of_labels",
    "normalise",
    "regularization",
    "split_and_merge",
]

_NOTHING: Final = 10 * np.finfo(np.float64).eps  # a component of less weight than this many rows is empty
_SHAPE_ROWS: Final = 3.0  # the prior on the shape of a component weighs as much as that many rows
_FLOOR_OWN: Final = 1e-4  # least variance, as a share of the feature's
_FLOOR_WITHIN: Final = 1e-2  # and at most as a share of the feature's within the clusters of the start
_LOCAL: Final = 1e-10  # share of the feature's variance below which what is within clusters counts no further
_FLOOR_MEAN: Final = 1e-6  # and of the mean variance of the features
_WARM_UP: Final = 10  # passes of EM before the first move
_AFTER_MOVE: Final = 6
_AT_LAST: Final = 30
_MOST_ROUNDS: Final = 40
_SPLIT_ROWS: Final = 1000  # rows of a component that its split is tried on
_SPLIT_PASSES: Final = 8
_STILL_THE_SAME: Final = 0.9  # a split is tried anew once less than this share of a component's rows are left
_LEAST_RISE: Final = 1.0  # nats, over all rows
_POWER_STEPS: Final = 8
_TINY: Final = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Mixture:
    """Parameters of a Gaussian mixture.

    weights (k,): shares of the components; means (k, p): their means, less the centre of the data; covariances: their
    covariances, of scikit-learn's shapes.
    """

    covariance_type: str
    weights: Floats
    means: Floats
    covariances: Floats


@dataclass(frozen=True)
class Regularization:
    """What keeps covariances from collapsing.

    floor (p,): added to the variances; shape_rows: that many rows' worth of pull of each covariance to the shape of the
    mean covariance, at its own size; 0 is none.
    """

    floor: Floats
    shape_rows: float


def regularization(variances: Floats, reg_covar: float | None, within: Floats | None = None) -> Regularization:
    """Choose what keeps covariances from collapsing.

    variances (p,): variances of the features; reg_covar: added to every variance, and nothing else; None for a floor in
    proportion to the variances and a weak prior on the components' shape; within (p,): their variances within the
    clusters of the start: where nearly all variance is between clusters that are far apart, or that of a few far rows,
    the floor is in proportion to these.
    """
    if reg_covar is not None:
        return Regularization(np.full(len(variances), float(reg_covar)), 0.0)
    if within is not None:
        local = np.maximum(_FLOOR_WITHIN / _FLOOR_OWN * within, _LOCAL * variances)
        variances = np.minimum(variances, local)
    mean = float(variances.mean())
    floor = np.maximum(_FLOOR_OWN * variances, _FLOOR_MEAN * (mean if mean > 0.0 else 1.0))
    return Regularization(floor, _SHAPE_ROWS)


def joint_log_densities(mixture: Mixture, rows: Floats) -> Floats:
    """Evaluate the log of weight times density, for every row and component.

    rows (n, p): rows, less the centre. Returns (n, k): joint log densities.
    """
    found = log_densities(_prepared(mixture), rows)
    found += np.log(mixture.weights)
    return found


def _prepared(mixture: Mixture) -> Gaussians:
    centre = np.zeros(mixture.means.shape[1])
    return prepare_gaussians(mixture.means, mixture.covariances, mixture.covariance_type, centre)


def normalise(joint: Floats) -> tuple[Floats, Floats]:
    """Turn joint log densities into responsibilities, row by row.

    joint (n, k): joint log densities. Returns responsibilities (n, k): probability of each component, given the row;
    log_likelihoods (n,): log density of each row.
    """
    top = joint.max(axis=1, keepdims=True)
    shares = np.exp(joint - top)
    total = shares.sum(axis=1, keepdims=True)
    shares /= total
    return shares, (top + np.log(total))[:, 0]


def expectation(mixture: Mixture, rows: Floats) -> tuple[Floats, Floats]:
    """Find the responsibilities of the components for rows: the E-step.

    rows (n, p): rows, less the centre. Returns responsibilities (n, k): probability of each component, given the row;
    log_likelihoods (n,): log density of each row.
    """
    return normalise(joint_log_densities(mixture, rows))


def maximization(
    moments: GaussianMoments, covariance_type: str, regular: Regularization, fallback: Floats | None = None
) -> Mixture:
    """Turn moments into a mixture: the M-step.

    moments: weighted sums over the rows, less the centre; fallback (k, p): means that components without rows keep.
    Returns of greatest likelihood, except for the floor and the prior.
    """
    counts = np.maximum(moments.counts, _NOTHING)
    means, covariances = mean_and_covariance(replace(moments, counts=counts), covariance_type, 0.0)
    empty = moments.counts < _NOTHING
    if fallback is not None:
        means[empty] = fallback[empty]
    if regular.shape_rows and covariance_type in ("diag", "full"):
        covariances = _towards_mean_shape(covariances, counts, regular)
    return Mixture(covariance_type, counts / counts.sum(), means, _add_floor(covariances, covariance_type, regular))


def _towards_mean_shape(covariances: Floats, counts: Floats, regular: Regularization) -> Floats:
    """Pull each covariance to the mean one, scaled to its own size (for full ones, to the mean's diagonal too)."""
    shares = counts / counts.sum()
    mean = np.tensordot(shares, covariances, axes=1)
    full = covariances.ndim == 3
    own = np.diagonal(covariances, axis1=1, axis2=2) if full else covariances
    own = np.maximum(own, 0.0)  # a component of hardly any rows has variances of rounding errors
    common = np.diagonal(mean) if full else mean
    sizes = np.exp(np.mean(np.log((own + regular.floor) / (common + regular.floor)), axis=1))
    pull = regular.shape_rows * sizes
    lead = (slice(None),) + (None,) * (covariances.ndim - 1)
    total: Floats = (counts[lead] * covariances + pull[lead] * mean) / (counts + regular.shape_rows)[lead]
    return total


def _add_floor(covariances: Floats, covariance_type: str, regular: Regularization) -> Floats:
    if covariance_type in ("spherical", "tied-spherical"):
        return np.asarray(covariances + regular.floor.mean())
    if covariance_type == "diag":
        return covariances + regular.floor
    return covariances + np.diag(regular.floor)


def mixture_of_labels(
    rows: Floats, labels: NDArray[np.intp], n_components: int, covariance_type: str, regular: Regularization
) -> Mixture:
    """Fit a mixture to a partition.

    rows (n, p): rows, less the centre; labels (n,): component of each row. Returns one component for each label.
    """
    moments = moments_of_parts(np.eye(n_components)[labels], rows, covariance_type, regular.floor)
    return maximization(moments, covariance_type, regular)


def improve(rows: Floats, mixture: Mixture, regular: Regularization, passes: int) -> tuple[Mixture, float]:
    """Run passes of expectation-maximisation.

    rows (n, p): rows, less the centre. Returns log_likelihood: mean log density of the rows under it.
    """
    form = mixture.covariance_type
    for _ in range(passes):
        responsibilities, _ = expectation(mixture, rows)
        moments = gaussian_moments(responsibilities, rows, form, _prepared(mixture).origins)
        mixture = maximization(moments, form, regular, mixture.means)
    return mixture, float(expectation(mixture, rows)[1].mean())


@dataclass(frozen=True)
class _Split:
    """How a component would be split, and what it would gain."""

    gain: float
    members: Labels
    halves: Mixture | None


@dataclass(frozen=True)
class _Move:
    """Split one component, merge two others."""

    split: int
    left: int
    right: int

    @property
    def touched(self) -> set[int]:
        return {self.split, self.left, self.right}


@dataclass
class _Search:
    """The best mixture so far, and what has been tried from it."""

    mixture: Mixture
    score: float
    splits: dict[int, _Split] = field(default_factory=dict)
    tabu: set[_Move] = field(default_factory=set)


def split_and_merge(rows: Floats, start: Mixture, regular: Regularization) -> Mixture:
    """Improve a mixture by moves that split one component and merge two others.

    Ueda, Nakano, Ghahramani and Hinton, SMEM algorithm for mixture models, Neural Computation 12, 2000. Here many
    disjoint moves are made at once; if together they don't raise the likelihood, half of them are.
    rows (n, p): rows, less the centre; regular: floor and prior of the covariances. Returns after the moves and a last
    run of expectation-maximisation.
    """
    search = _Search(*improve(rows, start, regular, _WARM_UP))
    for _ in range(_MOST_ROUNDS):
        moves = _moves(rows, search, regular)
        if not moves or not _try(rows, search, moves, regular):
            break
    return improve(rows, search.mixture, regular, _AT_LAST)[0]


def _try(rows: Floats, search: _Search, moves: list[_Move], regular: Regularization) -> bool:
    """Make all moves at once, or half of them, and so on; False when nothing is left to try."""
    while moves:
        moved = _moved(rows, search, moves)
        mixture, score = improve(rows, moved, regular, _AFTER_MOVE)
        if (score - search.score) * len(rows) > _LEAST_RISE:
            touched = set().union(*(move.touched for move in moves))
            search.mixture, search.score = mixture, score
            search.splits = {j: split for j, split in search.splits.items() if j not in touched}
            search.tabu = {move for move in search.tabu if not move.touched & touched}
            return True
        if len(moves) == 1:
            search.tabu.add(moves[0])
            return True
        moves = moves[: len(moves) // 2]
    return False


def _moves(rows: Floats, search: _Search, regular: Regularization) -> list[_Move]:
    """The most promising disjoint moves, best first."""
    mixture, k = search.mixture, len(search.mixture.weights)
    responsibilities = expectation(mixture, rows)[0]
    _refresh_splits(rows, responsibilities.argmax(axis=1), search, regular)
    pairs = _pairs(mixture, responsibilities)
    losses = np.array([_merge_loss(mixture, responsibilities.sum(axis=0), i, j) for i, j in pairs])
    chosen: list[_Move] = []
    used: set[int] = set()
    for move in _ranked(search, pairs, losses):
        if not move.touched & used:
            chosen.append(move)
            used |= move.touched
            if len(chosen) >= max(1, k // 3):
                break
    return chosen


def _ranked(search: _Search, pairs: list[tuple[int, int]], losses: Floats) -> Iterator[_Move]:
    """Moves that promise a gain, by promise."""
    gains = np.array([search.splits[a].gain for a in range(len(search.mixture.weights))])
    promise = gains[:, None] - losses
    for place in np.argsort(-promise, axis=None, kind="stable"):
        a, pair = (int(i) for i in np.unravel_index(place, promise.shape))
        if not promise[a, pair] > 0.0:
            return
        move = _Move(a, *pairs[pair])
        if len(move.touched) == 3 and move not in search.tabu:
            yield move


def _moved(rows: Floats, search: _Search, moves: list[_Move]) -> Mixture:
    """The mixture after some moves: the second of a merged pair makes room for the second half of a split."""
    old = search.mixture
    weights, means, covariances = old.weights.copy(), old.means.copy(), old.covariances.copy()
    for move in moves:
        i, j, a = move.left, move.right, move.split
        weights[i], means[i], covariances[i] = _merged(old, i, j)
        halves = search.splits[a].halves
        assert halves is not None
        for place, half in ((a, 0), (j, 1)):
            weights[place] = old.weights[a] * halves.weights[half]
            means[place], covariances[place] = halves.means[half], halves.covariances[half]
    return Mixture(old.covariance_type, weights / weights.sum(), means, covariances)


# --- merges ---------------------------------------------------------------------------------------------------


def _pairs(mixture: Mixture, responsibilities: Floats) -> list[tuple[int, int]]:
    """Pairs of greatest overlap, and of nearest means."""
    k = len(mixture.weights)
    overlap = responsibilities.T @ responsibilities
    norms = np.sqrt(np.maximum(np.diagonal(overlap), np.finfo(np.float64).tiny))
    apart = squared_distances(mixture.means, mixture.means)
    upper = np.triu_indices(k, 1)
    by_overlap = np.argsort(-(overlap / norms / norms[:, None])[upper], kind="stable")[: 2 * k]
    by_distance = np.argsort(apart[upper], kind="stable")[: 2 * k]
    return [(int(upper[0][t]), int(upper[1][t])) for t in np.union1d(by_overlap, by_distance)]


def _merged(mixture: Mixture, i: int, j: int) -> tuple[float, Floats, Floats]:
    """Weight, mean and covariance of two components together."""
    w = mixture.weights[[i, j]]
    share = w / w.sum()
    mean = share @ mixture.means[[i, j]]
    apart = mixture.means[i] - mixture.means[j]
    within = np.tensordot(share, mixture.covariances[[i, j]], axes=1)
    if mixture.covariance_type == "full":
        between = apart[:, None] * apart
    else:
        between = apart**2 if mixture.covariance_type == "diag" else np.mean(apart**2)
    return float(w.sum()), mean, within + share[0] * share[1] * between


def _merge_loss(mixture: Mixture, counts: Floats, i: int, j: int) -> float:
    """What the likelihood of the rows of two components, taken as sure, loses if they become one."""
    weight, _, covariance = _merged(mixture, i, j)
    p = mixture.means.shape[1]
    apart = [counts[t] * (np.log(mixture.weights[t]) - _half_log_det(mixture.covariances[t], p)) for t in (i, j)]
    together = (counts[i] + counts[j]) * (np.log(weight) - _half_log_det(covariance, p))
    return float(sum(apart) - together)


def _half_log_det(covariance: Floats, p: int) -> float:
    if np.ndim(covariance) == 2:
        return 0.5 * float(np.linalg.slogdet(covariance)[1])
    logs = np.log(covariance)
    return 0.5 * float(logs.sum() if np.ndim(covariance) else p * logs)


# --- splits ---------------------------------------------------------------------------------------------------


def _refresh_splits(rows: Floats, labels: Labels, search: _Search, regular: Regularization) -> None:
    """Try the split of every component whose rows have changed."""
    for a in range(len(search.mixture.weights)):
        members = np.flatnonzero(labels == a)
        known = search.splits.get(a)
        if known is not None:
            same = len(np.intersect1d(known.members, members, assume_unique=True))
            if same >= _STILL_THE_SAME * max(len(members), len(known.members)):
                continue
        search.splits[a] = _try_split(rows, members, search.mixture.covariance_type, regular)


def _try_split(rows: Floats, members: Labels, form: str, regular: Regularization) -> _Split:
    """Fit two components to the rows of one, from a few starts."""
    few = members[:: max(1, len(members) // _SPLIT_ROWS)]
    own = rows[few]
    if len(own) < 4:
        return _Split(-np.inf, members, None)
    single, base = improve(own, mixture_of_labels(own, np.zeros(len(own), np.intp), 1, form, regular), regular, 0)
    best: tuple[float, Mixture | None] = (-np.inf, None)
    for side in _sides(own - single.means[0]):
        if 2 <= side.sum() <= len(own) - 2:
            start = mixture_of_labels(own, side.astype(np.intp), 2, form, regular)
            halves, score = improve(own, start, regular, _SPLIT_PASSES)
            best = max(best, (score, halves), key=lambda found: found[0])
    return _Split((best[0] - base) * len(members) if best[1] else -np.inf, members, best[1])


def _sides(centred: Floats) -> Iterator[NDArray[np.bool_]]:
    """Ways to cut rows in two: along the most two-peaked feature, along their main direction, by radius."""
    deviations = np.sqrt((centred**2).mean(axis=0))
    z = centred / np.where(deviations > 0.0, deviations, 1.0)
    yield z[:, (z**4).mean(axis=0).argmin()] > 0.0
    yield z @ _main_direction(z) > 0.0
    radius = (z**2).sum(axis=1)
    yield radius > np.median(radius)


def _main_direction(z: Floats) -> Floats:
    """Leading principal direction, roughly, by a few power steps."""
    direction: Floats = np.random.default_rng(0).standard_normal((z.shape[1], 1))
    for _ in range(_POWER_STEPS):
        direction = z.T @ (z @ direction)
        direction /= max(float(np.sqrt((direction**2).sum())), _TINY)
    return direction[:, 0]
