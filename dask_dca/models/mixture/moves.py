"""Moves that re-partition components of a mixture, kept if the leave-one-out log density rises.

A move splits one component and merges two others; or it splits the rows of two components again, at another place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from dask_dca.geometry.arrays import Floats, Labels
from dask_dca.models.kmeans import squared_distances
from dask_dca.models.mixture.em import (
    WeightedRows,
    estimate_from_responsibilities,
    expectation,
    mixture_of_labels,
    run_em,
)
from dask_dca.models.mixture.family import Estimate, Mixture, Shrinkage
from dask_dca.models.mixture.leave_one_out import leave_one_out_densities

_MAX_ROUNDS: Final = 30  # maximum number of rounds of moves
_MOVE_PASSES: Final = 6  # passes of expectation-maximisation after moves
_TRIAL_PASSES: Final = 3  # passes on a component's rows after each way to split them
_SPLIT_PASSES: Final = 5  # further passes after the best way to split them
_SPLIT_ROWS: Final = 1000  # rows of a component that its split is tried on, about
_MIN_HALF_ROWS: Final = 3  # minimum number of rows of either half of a split
_SAME_ROWS: Final = 0.9  # a split stays valid while this share of the component's rows stays the same
_MIN_RISE: Final = 1.0  # minimum rise of the leave-one-out log density, over all rows
_MIN_PATIENCE: Final = 6  # minimum number of single moves that may fail before the search ends
_PATIENCE_PER_COMPONENT: Final = 0.25  # moves that may fail for each component, where that is more
_MIN_OVERLAP: Final = 1e-3  # minimum cosine of the responsibilities of two components that are split again together
_POWER_STEPS: Final = 8  # power iterations for the leading principal direction
_TINY: Final = float(np.finfo(np.float64).tiny)  # avoids division by zero


_Cut = tuple[int, ...]  # components whose rows are split in two: one component, or two together


@dataclass(frozen=True)
class _Split:
    """The best split found for the rows of one or two components, and the log likelihood that it gains."""

    gain: float
    members: Labels
    halves: Mixture | None


@dataclass(frozen=True)
class _Move:
    """Split one component and merge two others; or split two components together again, and merge none."""

    cut: _Cut
    merged: _Cut = ()

    @property
    def touched(self) -> set[int]:
        return {*self.cut, *self.merged}


@dataclass
class _Search:
    """State of the search: the best mixture so far, splits that are still valid, and moves that failed."""

    data: WeightedRows
    shrinkage: Shrinkage
    mixture: Mixture
    score: float
    splits: dict[_Cut, _Split] = field(default_factory=dict)
    tabu: set[_Move] = field(default_factory=set)
    failures: int = 0


def split_and_merge(data: WeightedRows, start: Mixture, shrinkage: Shrinkage) -> Mixture:
    """Improve a mixture of form "diag" or "full" by split-and-merge moves.

    Ueda, Nakano, Ghahramani and Hinton, SMEM algorithm for mixture models, Neural Computation 12, 2000. Here many
    disjoint moves are made at once; if they don't raise the leave-one-out density, the better half of them is tried.
    """
    k = len(start.weights)
    if k < 2:
        return start
    search = _Search(data, shrinkage, start, _score(data, start, shrinkage))
    for _ in range(_MAX_ROUNDS):
        moves = _propose_moves(search)
        if not moves:
            break
        _try_moves(search, moves)
        if search.failures >= max(_MIN_PATIENCE, _PATIENCE_PER_COMPONENT * k):
            break
    return search.mixture


def _score(data: WeightedRows, mixture: Mixture, shrinkage: Shrinkage) -> float:
    return float(data.counts @ leave_one_out_densities(data, mixture, shrinkage))


def _try_moves(search: _Search, moves: list[_Move]) -> None:
    """Make all moves at once; while they fail, the more promising half of them; record what comes of it."""
    while True:
        mixture, _ = run_em(search.data, _apply_moves(search, moves), search.shrinkage, _MOVE_PASSES)
        score = _score(search.data, mixture, search.shrinkage)
        if score - search.score > _MIN_RISE:
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


def _propose_moves(search: _Search) -> list[_Move]:
    """The most promising disjoint moves, best first."""
    responsibilities = expectation(search.mixture, search.data.rows)[0]
    found = estimate_from_responsibilities(search.data, responsibilities, search.mixture, search.shrinkage)
    pairs, resplit = _candidate_pairs(found, search.mixture, responsibilities)
    _refresh_splits(search, resplit, responsibilities.argmax(axis=1), replace(search.shrinkage, shape=found.shape))
    losses = np.array([_merge_loss(search.mixture, search.data.n_rows, i, j) for i, j in pairs])
    chosen: list[_Move] = []
    used: set[int] = set()
    for move in _ranked_moves(search, pairs, losses, resplit):
        if not move.touched & used:
            chosen.append(move)
            used |= move.touched
            if len(chosen) >= max(1, len(search.mixture.weights) // 3):
                break
    return chosen


def _ranked_moves(search: _Search, pairs: list[_Cut], losses: Floats, resplit: list[_Cut]) -> Iterator[_Move]:
    """Moves by decreasing predicted gain, as long as it is positive; failed ones are left out."""
    ones = [(a,) for a in range(len(search.mixture.weights))]
    moves = [_Move(cut, pair) for cut in ones for pair in pairs] + [_Move(pair) for pair in resplit]
    gains = np.array([search.splits[cut].gain for cut in ones])
    with np.errstate(invalid="ignore"):  # of a component that can't be split, and a pair whose covariance is singular
        change = gains[:, None] - losses
    predicted = np.append(change.ravel(), [search.splits[pair].gain for pair in resplit])
    for place in np.argsort(-predicted, kind="stable"):
        if not predicted[place] > 0.0:
            return
        move = moves[place]
        if len(move.touched) == len(move.cut) + len(move.merged) and move not in search.tabu:
            yield move


def _apply_moves(search: _Search, moves: list[_Move]) -> Mixture:
    """The mixture after some moves: the second half of a split takes the place of a merged pair's second component."""
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


def _candidate_pairs(found: Estimate, mixture: Mixture, responsibilities: Floats) -> tuple[list[_Cut], list[_Cut]]:
    """Pairs to merge: those of greatest overlap and of nearest means; and overlapping pairs to split again."""
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
    resplit = [every[t] for t in by_overlap[: max(1, k // 2)] if shared[t] > _MIN_OVERLAP]
    return [every[t] for t in np.union1d(by_overlap, by_distance)], resplit


def _merged(mixture: Mixture, i: int, j: int) -> tuple[float, Floats, Floats]:
    """Weight, mean and covariance of two components merged into one."""
    w = mixture.weights[[i, j]]
    share = w / w.sum()
    mean = share @ mixture.means[[i, j]]
    apart = mixture.means[i] - mixture.means[j]
    within = np.tensordot(share, mixture.covariances[[i, j]], axes=1)
    between = np.multiply.outer(apart, apart) if mixture.covariance_type == "full" else apart**2
    return float(w.sum()), mean, within + share[0] * share[1] * between


def _merge_loss(mixture: Mixture, n: float, i: int, j: int) -> float:
    """Predicted loss of log likelihood over n rows, with hard assignments, if two components are merged."""
    weight, _, covariance = _merged(mixture, i, j)
    apart = [mixture.weights[t] * (np.log(mixture.weights[t]) - _half_log_det(mixture.covariances[t])) for t in (i, j)]
    return float(n * (sum(apart) - weight * (np.log(weight) - _half_log_det(covariance))))


def _half_log_det(covariance: Floats) -> float:
    if covariance.ndim == 2:
        return 0.5 * float(np.linalg.slogdet(covariance)[1])
    return 0.5 * float(np.log(covariance).sum())


# --- splits ---------------------------------------------------------------------------------------------------


def _refresh_splits(search: _Search, resplit: list[_Cut], labels: Labels, shrinkage: Shrinkage) -> None:
    """Find the best split of every component, and of some pairs, whose rows have changed; the common shape is fixed."""
    for cut in [*((a,) for a in range(len(search.mixture.weights))), *resplit]:
        members = np.flatnonzero(np.isin(labels, cut))
        known = search.splits.get(cut)
        if known is not None:
            same = len(np.intersect1d(known.members, members, assume_unique=True))
            if same >= _SAME_ROWS * max(len(members), len(known.members)):
                continue
        search.splits[cut] = _try_split(search.data, members, _sub_mixture(search.mixture, cut), shrinkage)


def _sub_mixture(mixture: Mixture, cut: _Cut) -> Mixture:
    own = list(cut)
    weights = mixture.weights[own]
    return replace(
        mixture, weights=weights / weights.sum(), means=mixture.means[own], covariances=mixture.covariances[own]
    )


def _try_split(data: WeightedRows, members: Labels, now: Mixture, shrinkage: Shrinkage) -> _Split:
    """Fit two components to the rows of one, or of two together, from a few ways to divide them."""
    form, own = now.covariance_type, data[members[:: max(1, len(members) // _SPLIT_ROWS)]]
    if len(own) < 2 * _MIN_HALF_ROWS:
        return _Split(-np.inf, members, None)
    one = mixture_of_labels(own, np.zeros(len(own), np.intp), 1, form, shrinkage)
    if math.isfinite(one.degrees):  # a single normal component is fitted already
        one, _ = run_em(own, one, shrinkage, _TRIAL_PASSES)
    base = _log_likelihood(own, one if len(now.weights) == 1 else now)
    best: tuple[float, Mixture | None] = (-np.inf, None)
    for side in _bisections(_whiten(own.rows - one.means[0], one, shrinkage.floor)):
        if _MIN_HALF_ROWS <= side.sum() <= len(own) - _MIN_HALF_ROWS:
            start = mixture_of_labels(own, side.astype(np.intp), 2, form, shrinkage)
            halves, _ = run_em(own, start, shrinkage, _TRIAL_PASSES)
            best = max(best, (_log_likelihood(own, halves), halves), key=lambda found: found[0])
    if best[1] is None:
        return _Split(-np.inf, members, None)
    halves, _ = run_em(own, best[1], shrinkage, _SPLIT_PASSES)
    gain = (_log_likelihood(own, halves) - base) * float(data.counts[members].sum()) / own.n_rows
    return _Split(gain, members, halves)


def _log_likelihood(data: WeightedRows, mixture: Mixture) -> float:
    return float(data.counts @ expectation(mixture, data.rows)[1])


def _whiten(away: Floats, mixture: Mixture, floor: Floats) -> Floats:
    """Scale centred rows to unit variance in every feature, or in every direction if covariances are full."""
    if mixture.covariance_type == "full":
        return np.asarray(solve_triangular(np.linalg.cholesky(mixture.covariances[0]), away.T, lower=True).T)
    return np.asarray(away / np.sqrt(np.maximum(away.var(axis=0) + floor, _TINY)))


def _bisections(z: Floats) -> Iterator[NDArray[np.bool_]]:
    """Divide whitened rows by the feature of least kurtosis, along the principal direction, and by radius."""
    yield z[:, (z**4).mean(axis=0).argmin()] > 0.0
    yield z @ _principal_direction(z) > 0.0
    radius = (z**2).sum(axis=1)
    yield radius > np.median(radius)


def _principal_direction(z: Floats) -> Floats:
    """Approximate leading principal direction, by power iteration."""
    direction: Floats = np.random.default_rng(0).standard_normal((z.shape[1], 1))
    for _ in range(_POWER_STEPS):
        direction = z.T @ (z @ direction)
        direction /= max(float(np.sqrt((direction**2).sum())), _TINY)
    return direction[:, 0]
