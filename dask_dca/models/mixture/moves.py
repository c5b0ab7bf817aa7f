"""Moves that cut components of a mixture anew, judged by the density of rows left out.

One component is cut in two and two others become one; or the rows of two components are cut at another place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.kmeans import squared_distances
from dask_dca.models.mixture.em import expectation, improve, maximized, mixture_of_labels
from dask_dca.models.mixture.leave_one_out import left_out_densities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Labels
    from dask_dca.models.mixture.em import WeightedRows
    from dask_dca.models.mixture.family import Estimate, Mixture, Shrinkage


_MOST_ROUNDS: Final = 30
_AFTER_MOVE: Final = 6  # passes of expectation-maximisation
_SPLIT_PASSES: Final = (3, 5)  # of each way to cut, and of the best
_SPLIT_ROWS: Final = 1000  # rows of a component that its split is tried on
_LEAST_ROWS: Final = 3  # of either half
_STILL_THE_SAME: Final = 0.9  # a split is tried anew once less than this share of a component's rows are left
_LEAST_RISE: Final = 1.0  # nats, over all rows
_PATIENCE: Final = (6, 0.25)  # single moves that may fail: at least, and times k
_SHARED: Final = 1e-3  # of their rows, by cosine: two components that have less in common are not cut anew
_POWER_STEPS: Final = 8
_TINY: Final = float(np.finfo(np.float64).tiny)


_Cut = tuple[int, ...]  # components whose rows are cut in two: one, or two together


@dataclass(frozen=True)
class _Split:
    """How the rows of one component, or of two, would be cut in two, and what that would gain."""

    gain: float
    members: Labels
    halves: Mixture | None


@dataclass(frozen=True)
class _Move:
    """Cut one component and merge two others; or cut two together, and merge none."""

    cut: _Cut
    merged: _Cut = ()

    @property
    def touched(self) -> set[int]:
        return {*self.cut, *self.merged}


@dataclass
class _Search:
    """The best mixture so far, and what has been tried from it."""

    data: WeightedRows
    shrinkage: Shrinkage
    mixture: Mixture
    score: float
    splits: dict[_Cut, _Split] = field(default_factory=dict)
    tabu: set[_Move] = field(default_factory=set)
    failures: int = 0


def split_and_merge(data: WeightedRows, start: Mixture, shrinkage: Shrinkage) -> Mixture:
    """Improve a mixture by moves that split one component and merge two others, or cut two together at another place.

    Ueda, Nakano, Ghahramani and Hinton, SMEM algorithm for mixture models, Neural Computation 12, 2000. Here many
    disjoint moves are made at once; if together they don't raise the density of rows left out, half of them are.
    start: of form "diag" or "full".
    """
    k = len(start.weights)
    if k < 2:
        return start
    search = _Search(data, shrinkage, start, _score(data, start, shrinkage))
    for _ in range(_MOST_ROUNDS):
        moves = _moves(search)
        if not moves:
            break
        _try(search, moves)
        if search.failures >= max(_PATIENCE[0], _PATIENCE[1] * k):
            break
    return search.mixture


def _score(data: WeightedRows, mixture: Mixture, shrinkage: Shrinkage) -> float:
    return float(data.counts @ left_out_densities(data, mixture, shrinkage))


def _try(search: _Search, moves: list[_Move]) -> None:
    """Make all moves at once, or half of them, and so on."""
    while True:
        mixture, _ = improve(search.data, _moved(search, moves), search.shrinkage, _AFTER_MOVE)
        score = _score(search.data, mixture, search.shrinkage)
        if score - search.score > _LEAST_RISE:
            touched = set().union(*(move.touched for move in moves))
            search.mixture, search.score = mixture, score
            search.splits = {cut: split for cut, split in search.splits.items() if not touched & set(cut)}
            search.tabu = {move for move in search.tabu if not move.touched & touched}
            return
        if len(moves) == 1:
            search.tabu.add(moves[0])
            search.failures += 1
            return
        moves = moves[: len(moves) // 2]


def _moves(search: _Search) -> list[_Move]:
    """The most promising disjoint moves, best first."""
    responsibilities = expectation(search.mixture, search.data.rows)[0]
    found = maximized(search.data, responsibilities, search.mixture, search.shrinkage)
    pairs, again = _pairs(found, search.mixture, responsibilities)
    _refresh_splits(search, again, responsibilities.argmax(axis=1), replace(search.shrinkage, shape=found.shape))
    losses = np.array([_merge_loss(search.mixture, search.data.n_rows, i, j) for i, j in pairs])
    chosen: list[_Move] = []
    used: set[int] = set()
    for move in _ranked(search, pairs, losses, again):
        if not move.touched & used:
            chosen.append(move)
            used |= move.touched
            if len(chosen) >= max(1, len(search.mixture.weights) // 3):
                break
    return chosen


def _ranked(search: _Search, pairs: list[_Cut], losses: Floats, again: list[_Cut]) -> Iterator[_Move]:
    """Moves that promise a gain, by promise."""
    ones = [(a,) for a in range(len(search.mixture.weights))]
    moves = [_Move(cut, pair) for cut in ones for pair in pairs] + [_Move(pair) for pair in again]
    gains = np.array([search.splits[cut].gain for cut in ones])
    promise = np.append((gains[:, None] - losses).ravel(), [search.splits[pair].gain for pair in again])
    for place in np.argsort(-promise, kind="stable"):
        if not promise[place] > 0.0:
            return
        move = moves[place]
        if len(move.touched) == len(move.cut) + len(move.merged) and move not in search.tabu:
            yield move


def _moved(search: _Search, moves: list[_Move]) -> Mixture:
    """The mixture after some moves: the second of a merged pair makes room for the second half of a split."""
    old = search.mixture
    weights, means, covariances = old.weights.copy(), old.means.copy(), old.covariances.copy()
    for move in moves:
        places, halves = (*move.cut, *move.merged[1:]), search.splits[move.cut].halves
        assert halves is not None
        if move.merged:
            i, j = move.merged
            weights[i], means[i], covariances[i] = _merged(old, i, j)
        whole = old.weights[list(move.cut)].sum()
        for half, place in enumerate(places):
            weights[place] = whole * halves.weights[half]
            means[place], covariances[place] = halves.means[half], halves.covariances[half]
    return replace(old, weights=weights / weights.sum(), means=means, covariances=covariances)


# --- merges ---------------------------------------------------------------------------------------------------


def _pairs(found: Estimate, mixture: Mixture, responsibilities: Floats) -> tuple[list[_Cut], list[_Cut]]:
    """Pairs of greatest overlap, and of nearest means by the common shape; and those that are cut anew."""
    k = len(mixture.weights)
    overlap = responsibilities.T @ responsibilities
    norms = np.sqrt(np.maximum(np.diagonal(overlap), _TINY))
    places = mixture.means / np.sqrt(found.shape if found.shape.ndim == 1 else np.diagonal(found.shape))
    apart = squared_distances(places, places)
    upper = np.triu_indices(k, 1)
    shared = (overlap / norms / norms[:, None])[upper]
    by_overlap = np.argsort(-shared, kind="stable")[: 2 * k]
    by_distance = np.argsort(apart[upper], kind="stable")[: 2 * k]
    every: list[_Cut] = list(zip(*(side.tolist() for side in upper), strict=True))
    again = [every[t] for t in by_overlap[: max(1, k // 2)] if shared[t] > _SHARED]
    return [every[t] for t in np.union1d(by_overlap, by_distance)], again


def _merged(mixture: Mixture, i: int, j: int) -> tuple[float, Floats, Floats]:
    """Weight, mean and covariance of two components together."""
    w = mixture.weights[[i, j]]
    share = w / w.sum()
    mean = share @ mixture.means[[i, j]]
    apart = mixture.means[i] - mixture.means[j]
    within = np.tensordot(share, mixture.covariances[[i, j]], axes=1)
    between = np.multiply.outer(apart, apart) if mixture.covariance_type == "full" else apart**2
    return float(w.sum()), mean, within + share[0] * share[1] * between


def _merge_loss(mixture: Mixture, n: float, i: int, j: int) -> float:
    """What the likelihood of the rows of two components, taken as sure, loses if they become one."""
    weight, _, covariance = _merged(mixture, i, j)
    apart = [mixture.weights[t] * (np.log(mixture.weights[t]) - _half_log_det(mixture.covariances[t])) for t in (i, j)]
    return float(n * (sum(apart) - weight * (np.log(weight) - _half_log_det(covariance))))


def _half_log_det(covariance: Floats) -> float:
    if covariance.ndim == 2:
        return 0.5 * float(np.linalg.slogdet(covariance)[1])
    return 0.5 * float(np.log(covariance).sum())


# --- splits ---------------------------------------------------------------------------------------------------


def _refresh_splits(search: _Search, again: list[_Cut], labels: Labels, shrinkage: Shrinkage) -> None:
    """Try the cut of every component, and of some pairs, whose rows have changed; the common shape is held."""
    for cut in [*((a,) for a in range(len(search.mixture.weights))), *again]:
        members = np.flatnonzero(np.isin(labels, cut))
        known = search.splits.get(cut)
        if known is not None:
            same = len(np.intersect1d(known.members, members, assume_unique=True))
            if same >= _STILL_THE_SAME * max(len(members), len(known.members)):
                continue
        search.splits[cut] = _try_split(search.data, members, _part(search.mixture, cut), shrinkage)


def _part(mixture: Mixture, cut: _Cut) -> Mixture:
    own = list(cut)
    weights = mixture.weights[own]
    return replace(
        mixture, weights=weights / weights.sum(), means=mixture.means[own], covariances=mixture.covariances[own]
    )


def _try_split(data: WeightedRows, members: Labels, now: Mixture, shrinkage: Shrinkage) -> _Split:
    """Fit two components to the rows of one, or of two, from a few starts."""
    form, own = now.covariance_type, data[members[:: max(1, len(members) // _SPLIT_ROWS)]]
    if len(own) < 2 * _LEAST_ROWS:
        return _Split(-np.inf, members, None)
    one = mixture_of_labels(own, np.zeros(len(own), np.intp), 1, form, shrinkage)
    if math.isfinite(one.degrees):
        one, _ = improve(own, one, shrinkage, _SPLIT_PASSES[0])
    base = _log_likelihood(own, one if len(now.weights) == 1 else now)
    best: tuple[float, Mixture | None] = (-np.inf, None)
    for side in _sides(_whitened(own.rows - one.means[0], one, shrinkage.floor)):
        if _LEAST_ROWS <= side.sum() <= len(own) - _LEAST_ROWS:
            start = mixture_of_labels(own, side.astype(np.intp), 2, form, shrinkage)
            halves, _ = improve(own, start, shrinkage, _SPLIT_PASSES[0])
            best = max(best, (_log_likelihood(own, halves), halves), key=lambda found: found[0])
    if best[1] is None:
        return _Split(-np.inf, members, None)
    halves, _ = improve(own, best[1], shrinkage, _SPLIT_PASSES[1])
    gain = (_log_likelihood(own, halves) - base) * float(data.counts[members].sum()) / own.n_rows
    return _Split(gain, members, halves)


def _log_likelihood(data: WeightedRows, mixture: Mixture) -> float:
    return float(data.counts @ expectation(mixture, data.rows)[1])


def _whitened(away: Floats, mixture: Mixture, floor: Floats) -> Floats:
    """Rows about their mean, of variance one in every feature, or every direction where covariances are full."""
    if mixture.covariance_type == "full":
        return np.asarray(np.linalg.solve(np.linalg.cholesky(mixture.covariances[0]), away.T).T)
    return np.asarray(away / np.sqrt(away.var(axis=0) + floor))


def _sides(z: Floats) -> Iterator[NDArray[np.bool_]]:
    """Ways to cut rows in two: along the most two-peaked feature, along their main direction, by radius."""
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
