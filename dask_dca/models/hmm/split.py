"""Baum-Welch on a sample in memory, with moves that split one state and merge two while the likelihood rises.

A split is a chain of two states fitted to the visits of one: the two may differ in location or in the length of their
visits. The cost of a merger is estimated from the covariances and from the code length of the transitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from dask_dca.geometry.arrays import Floats, Labels, Mask, Numbers
from dask_dca.geometry.exact import Workspace
from dask_dca.models.gaussians import variances_of
from dask_dca.models.hmm.expectation import (
    ExpectedCounts,
    Layout,
    Tile,
    expectation,
    lay_out,
    lay_out_tile,
    most_likely_states,
)
from dask_dca.models.hmm.model import FrameFeatures, HiddenMarkov, IncompleteStates, hmm_moments, labelled_model, m_step
from dask_dca.models.hmm.recursions import Markov, stationary_distribution

Move = tuple[int, int, int]  # the state that is split, and the two that become one

_MIN_KEPT_SHARE: Final = 0.2  # minimum share of a sample's count, or of a variance, that a correction must leave
_MAX_ROUNDS: Final = 40  # maximum number of rounds of moves
_MIN_RISE: Final = 1.0  # nats by which moves must raise the log likelihood to be kept
_SAME_FRAMES_SHARE: Final = 0.9  # minimum share of common frames for which a state's previous split is reused
_MAX_SPLIT_FRAMES: Final = 1000  # maximum number of frames to which a split is fitted
_MAX_RUN_FRAMES: Final = 64  # maximum length of the runs of these frames
_SPLIT_LAYOUT: Final = (16, 8)  # length and burn-in of a piece for splits, which need only be approximate
_SCREEN_STEPS: Final = 2  # EM steps from each candidate of a split
_SETTLE_STEPS: Final = 5  # further EM steps of the best candidate; also EM steps before the first round
_TRIAL_STEPS: Final = (3, 12)  # minimum and maximum EM steps after a move
_MAX_LOSING_MOVES: Final = 4  # tries of moves without expected gain since the last kept move
_POWER_STEPS: Final = 8  # steps of the power method
_MIN_COUNT: Final = 0.01  # pseudo-count after moves, so that no start or transition is impossible


@dataclass(frozen=True)
class StandardFrames:
    """Standardised frames, laid out for the recursions once."""

    frames: Floats  # (n, p)
    edges: Numbers
    kind: str
    floors: Floats  # (p,), minimum variances
    layout: Layout
    tiles: list[Tile]
    missing: bool = False  # whether entries are missing
    scratch: Workspace = field(default_factory=Workspace)

    def __len__(self) -> int:
        return len(self.frames)


@dataclass(frozen=True)
class EStepResult:
    """Result of an E-step: expected counts, and the most likely state of each frame."""

    expected: ExpectedCounts
    labels: Labels

    @property
    def log_likelihood(self) -> float:
        """Log likelihood of all sequences."""
        return self.expected.log_likelihood


def standard_frames(
    frames: Floats, edges: Numbers, kind: str, floors: Floats, piece: tuple[int, int] | None = None
) -> StandardFrames:
    """Lay out frames for the recursions.

    frames (n, p): in standard units, NaN where an entry is missing; edges (m + 1,): ends of sequences; floors (p,):
    minimum variances; piece: length and burn-in of a piece, chosen by the number of frames if None.
    """
    p = frames.shape[1]
    layout = lay_out(edges, 4 * p, *(piece or ()))
    missing = bool(np.isnan(frames).any())
    features = FrameFeatures("full" if missing else kind, np.zeros(p), np.ones(p))
    tiles = [lay_out_tile(layout, begin, frames, 0, features) for begin in range(0, len(frames), layout.n_frames)]
    return StandardFrames(frames, edges, kind, floors, layout, tiles, missing)


def e_step(model: HiddenMarkov, sample: StandardFrames, origins: Floats | None = None) -> EStepResult:
    """Run the E-step; origins (k, p): of the moments, chosen by `prepare_states` if None."""
    states, labels, lines = model.states(origins=origins), [], []
    emissions = IncompleteStates(states, np.zeros(len(sample.floors))) if sample.missing else states
    for tile in sample.tiles:
        found = expectation(sample.layout, tile, emissions, model.markov, sample.scratch)
        lines.append(found.sums)
        labels.append(most_likely_states(sample.layout, found.posteriors))
    expected = ExpectedCounts(np.sum(lines, axis=0), len(model.means), states.origins)
    return EStepResult(expected, np.concatenate(labels)[: len(sample)])


def next_model(found: ExpectedCounts, model: HiddenMarkov, sample: StandardFrames) -> HiddenMarkov:
    """Run the M-step."""
    return m_step(found.starts, found.transitions, hmm_moments(found, sample.kind), sample.kind, sample.floors, model)


def baum_welch(
    model: HiddenMarkov, sample: StandardFrames, steps: int, tol: float = -np.inf
) -> tuple[HiddenMarkov, EStepResult]:
    """Run at most this number of EM steps, until the log likelihood rises by less than tol."""
    seen = e_step(model, sample)
    for _ in range(steps):
        model, last = next_model(seen.expected, model, sample), seen.log_likelihood
        seen = e_step(model, sample)
        if seen.log_likelihood - last < tol:
            break
    return model, seen


def corrected_steps(
    model: HiddenMarkov, sample: StandardFrames, full: ExpectedCounts, ratio: float, steps: int
) -> HiddenMarkov:
    """Run the M-step, and EM steps on a sample whose sums are corrected by those over all frames.

    full: sums of this model over all frames; ratio: of the number of all frames to that of the sample. The difference
    full - ratio * sample is added to later sums. If it empties a state, or shrinks a variance too much, only the M-step
    is taken.
    """
    k, kind = len(model.means), sample.kind
    plain = next_model(full, model, sample)
    difference, found = full.vector - ratio * e_step(model, sample, full.origins).expected.vector, plain
    for _ in range(steps):
        vector = ratio * e_step(found, sample, full.origins).expected.vector
        least, vector = _MIN_KEPT_SHARE * vector, vector + difference
        vector[: 1 + k + k * k] = np.maximum(vector, least)[: 1 + k + k * k]
        vector[1 : 1 + k] = full.starts
        seen = replace(full, vector=vector)
        if not (seen.counts > 0.0).all():
            return plain
        moved = next_model(seen, found, sample)
        if (variances_of(moved.covariances, kind) < _MIN_KEPT_SHARE * variances_of(plain.covariances, kind)).any():
            return plain
        found = moved
    return found


@dataclass(frozen=True)
class _Split:
    """A split: two states for one, the gain of log likelihood, and the frames of the one."""

    gain: float
    two: HiddenMarkov | None
    members: Labels


def split_and_merge(model: HiddenMarkov, sample: StandardFrames) -> HiddenMarkov:
    """Split and merge states as long as the log likelihood rises by `_MIN_RISE`."""
    model, seen = baum_welch(model, sample, _SETTLE_STEPS)
    splits: dict[int, _Split] = {}
    failed: set[Move] = set()
    losing = 0
    for _ in range(_MAX_ROUNDS if len(model.means) > 2 else 0):
        _update_splits(splits, seen.labels, sample, len(model.means))
        moves, promising = _choose_moves(model, seen, splits, failed, losing < _MAX_LOSING_MOVES)
        losing += not promising
        while moves:
            goal = seen.log_likelihood + _MIN_RISE
            found, there = _try_moves(_apply_moves(model, seen, splits, moves), sample, goal)
            if there.log_likelihood > goal:
                touched = {state for move in moves for state in move}
                splits = {a: split for a, split in splits.items() if a not in touched}
                failed = {move for move in failed if not touched & set(move)}
                model, seen, losing = found, there, 0
                break
            if len(moves) == 1:
                failed.add(moves[0])
                break
            moves = moves[: len(moves) // 2]
        if not moves or len(failed) > 2 * len(model.means) + 4:
            break
    return model


def _try_moves(model: HiddenMarkov, sample: StandardFrames, goal: float) -> tuple[HiddenMarkov, EStepResult]:
    """Run EM steps while the goal is reachable at the rate of the last step."""
    least, most = _TRIAL_STEPS
    model, seen = baum_welch(model, sample, least - 1)
    for left in range(most - least + 1, 0, -1):
        last = seen.log_likelihood
        model = next_model(seen.expected, model, sample)
        seen = e_step(model, sample)
        if seen.log_likelihood > goal or seen.log_likelihood + (left - 1) * (seen.log_likelihood - last) < goal:
            break
    return model, seen


def _choose_moves(
    model: HiddenMarkov, seen: EStepResult, splits: dict[int, _Split], failed: set[Move], may_lose: bool
) -> tuple[list[Move], bool]:
    """Choose disjoint moves of greatest expected gain, at most k / 3; or the best one, if none gains and `may_lose`."""
    k = len(model.means)
    losses = _merge_losses(model, seen)
    i, j = np.triu_indices(k, 1)
    promise = np.array([splits[a].gain for a in range(k)])[:, None] - losses[i, j]
    chosen: list[Move] = []
    used: set[int] = set()
    for at in np.argsort(-promise, axis=None, kind="stable")[: 50 * k].tolist():
        a, pair = divmod(at, len(i))
        move = (a, int(i[pair]), int(j[pair]))
        gains = bool(promise[a, pair] > 0.0)
        if not np.isfinite(promise[a, pair]) or (not gains and (chosen or not may_lose)):
            break
        if a in move[1:] or move in failed or used & set(move):
            continue
        chosen.append(move)
        used |= set(move)
        if not gains:
            return chosen, False
        if len(chosen) >= max(1, k // 3):
            break
    return chosen, True


# --- what a merger costs ---


def _merge_losses(model: HiddenMarkov, seen: EStepResult) -> Floats:
    """Estimate the losses (k, k) of log likelihood by merging states i < j, for hard labels."""
    k = len(model.means)
    found = np.full((k, k), np.inf)
    code = _transition_savings(seen.expected.transitions)
    for i in range(k - 1):
        others = np.arange(i + 1, k)
        found[i, others] = _volume_losses(model, seen.expected.counts, i, others) - code[i, others]
    return found


def _volume_losses(model: HiddenMarkov, counts: Floats, i: int, others: Labels) -> Floats:
    """Losses by the growth of the log determinants of the covariances."""
    both = _merge(model, counts, i, others)[1]
    kind, p = model.covariance_type, model.means.shape[1]
    own = _log_determinants(model.covariances, kind, p)
    grown = (counts[i] + counts[others]) * _log_determinants(both, kind, p)
    if kind == "tied":  # the one covariance grows for all states
        return 0.5 * counts.sum() * (_log_determinants(both, kind, p) - own)
    return 0.5 * (grown - counts[i] * own[i] - counts[others] * own[others])


def _log_determinants(covariances: Floats, kind: str, p: int) -> Floats:
    if kind == "diag":
        return np.asarray(np.log(covariances).sum(axis=-1))
    return np.asarray(p * np.log(covariances) if kind == "spherical" else np.linalg.slogdet(covariances)[1])


def _merge(model: HiddenMarkov, counts: Floats, i: int, others: Labels) -> tuple[Floats, Floats]:
    """Means and covariances of state i merged with each of some others; the tied covariance for "tied"."""
    kind, away = model.covariance_type, model.means[i] - model.means[others]
    total = counts[i] + counts[others] + 2e-9
    left, right = (counts[i] + 1e-9) / total, (counts[others] + 1e-9) / total
    means = left[:, None] * model.means[i] + right[:, None] * model.means[others]
    between = away[:, :, None] * away[:, None] if kind in ("full", "tied") else away**2
    between = between.mean(axis=1) if kind == "spherical" else between
    shape = (-1, *[1] * (between.ndim - 1))
    if kind == "tied":
        share = left * right * total / max(float(counts.sum()), 1e-300)
        return means, model.covariances + share.reshape(shape) * between
    own = left.reshape(shape) * model.covariances[i] + right.reshape(shape) * model.covariances[others]
    return means, own + (left * right).reshape(shape) * between


def _transition_savings(transitions: Floats) -> Floats:
    """Reduction (k, k) of the code length of the transitions by merging two states."""
    T, rows = transitions, transitions.sum(axis=1)
    k = len(T)
    found = np.zeros((k, k))
    for i in range(k - 1):
        j = np.arange(i + 1, k)
        outside = np.ones((len(j), k), dtype=bool)
        outside[:, i] = outside[np.arange(len(j)), j] = False
        onward = np.where(outside, _xlogx(T[i] + T[j]) - _xlogx(T[i]) - _xlogx(T[j]), 0.0).sum(axis=1)
        back = np.where(outside, _xlogx(T[:, i] + T[:, j].T) - _xlogx(T[:, i]) - _xlogx(T[:, j].T), 0.0).sum(axis=1)
        own = (T[i, i], T[i, j], T[j, i], T[j, j])
        inner = _xlogx(np.asarray(sum(own))) - sum(_xlogx(np.asarray(part)) for part in own)
        whole = _xlogx(rows[i] + rows[j]) - _xlogx(rows[i]) - _xlogx(rows[j])
        found[i, j] = onward + back + inner - whole
    return found


def _xlogx(values: Floats) -> Floats:
    return np.asarray(values * np.log(np.maximum(values, 1e-300)))


# --- what a split gains ---


def _update_splits(splits: dict[int, _Split], labels: Labels, sample: StandardFrames, k: int) -> None:
    """Update the split of each state, unless it was fitted to nearly the same frames."""
    for a in range(k):
        members, before = np.flatnonzero(labels == a), splits.get(a)
        if before is not None:
            shared = len(np.intersect1d(before.members, members, assume_unique=True))
            if shared >= _SAME_FRAMES_SHARE * max(len(members), len(before.members)):
                continue
        splits[a] = _split(members, sample)


def _split(members: Labels, sample: StandardFrames) -> _Split:
    """Fit a chain of two states to the visits of one."""
    kind, p = sample.kind, sample.frames.shape[1]
    if len(members) < 2 * (p if kind in ("full", "tied") else 4) + 4:
        return _Split(-np.inf, None, members)
    begins = np.flatnonzero(np.diff(members, prepend=-2) > 1)
    visits = np.union1d(begins, np.searchsorted(members, sample.edges))
    rows, ends = _subsample_visits(visits)
    own = standard_frames(sample.frames[members[rows]], ends, kind, sample.floors, _SPLIT_LAYOUT)
    one = labelled_model(own.frames, ends, np.zeros(len(rows), dtype=np.intp), 1, kind, own.floors)
    found = [baum_welch(labelled_model(own.frames, ends, side.astype(np.intp), 2, kind, own.floors), own, _SCREEN_STEPS)
             for side in _candidate_sides(own, one)]  # fmt: skip
    if not found:
        return _Split(-np.inf, None, members)
    best = max(found, key=lambda each: each[1].log_likelihood)[0]
    two, seen = baum_welch(best, own, _SETTLE_STEPS)
    gain = (seen.log_likelihood - e_step(one, own).log_likelihood) * len(members) / len(rows)
    return _Split(gain, two, members)


def _subsample_visits(visits: Numbers) -> tuple[Labels, Numbers]:
    """Select evenly spread visits, long ones in runs; returns the rows, and the ends of visits."""
    counts = -(-np.diff(visits) // _MAX_RUN_FRAMES)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = np.repeat(visits[:-1], counts) + within * _MAX_RUN_FRAMES
    ends = np.append(begins[1:], visits[-1])
    if visits[-1] > _MAX_SPLIT_FRAMES:
        step = visits[-1] / _MAX_SPLIT_FRAMES
        kept = (np.arange(max(int(len(begins) / step), 1)) * step).astype(np.int64)
        begins, ends = begins[kept], ends[kept]
    else:
        begins, ends = visits[:-1], visits[1:]
    rows = np.concatenate([np.arange(a, b) for a, b in zip(begins.tolist(), ends.tolist(), strict=True)])
    return rows, np.concatenate([[0], np.cumsum(ends - begins)])


def _candidate_sides(sample: StandardFrames, one: HiddenMarkov) -> list[Mask]:
    """Candidate bipartitions of the frames of a state: by location or radius, of frames or of the means of visits."""
    counts = np.diff(sample.edges)
    deviations = np.sqrt(np.diagonal(np.atleast_2d(np.cov(sample.frames.T, bias=True))))
    frames = (sample.frames - one.means[0]) / np.where(deviations > 0.0, deviations, 1.0)
    means = np.add.reduceat(frames, sample.edges[:-1], axis=0) / counts[:, None]
    radii = (frames**2).sum(axis=1)
    sides = [
        frames[:, (frames**4).mean(axis=0).argmin()] > 0.0,
        frames @ _main_direction(frames) > 0.0,
        radii > np.median(radii),
    ]
    if len(counts) > 4:  # whole visits on one side
        ranges = np.add.reduceat(radii, sample.edges[:-1]) / counts
        by_visit = [means @ _main_direction(means * np.sqrt(counts)[:, None]) > 0.0, ranges > np.median(ranges)]
        sides += [np.repeat(side, counts) for side in by_visit]
    return [side for side in sides if 2 <= side.sum() <= len(side) - 2]


def _main_direction(rows: Floats) -> Floats:
    found = np.ones(rows.shape[1]) + np.arange(rows.shape[1]) / rows.shape[1]
    for _ in range(_POWER_STEPS):
        found = rows.T @ (rows @ found)
        found /= max(float(np.linalg.norm(found)), 1e-300)
    return found


# --- moves ---


def _apply_moves(model: HiddenMarkov, seen: EStepResult, splits: dict[int, _Split], moves: list[Move]) -> HiddenMarkov:
    """Apply moves (a, i, j): merge states i and j to state i, and split state a to states a and j."""
    expected, k = seen.expected, len(model.means)
    means, covariances = model.means.copy(), model.covariances.copy()
    starts, transitions = expected.starts.copy(), expected.transitions.copy()
    for a, i, j in moves:
        two = splits[a].two
        assert two is not None
        joined = _merge(model, expected.counts, i, np.array([j]))
        means[i], means[a], means[j] = joined[0][0], *two.means
        if model.covariance_type != "tied":
            covariances[i], covariances[a], covariances[j] = joined[1][0], *two.covariances
        _move_counts(starts, transitions, (a, i, j), two.markov)
    starts, rows = starts + _MIN_COUNT, transitions + _MIN_COUNT / k
    chain = Markov(starts / starts.sum(), rows / rows.sum(axis=1, keepdims=True))
    return replace(model, markov=chain, means=means, covariances=covariances)


def _move_counts(starts: Floats, transitions: Floats, move: Move, chain: Markov) -> None:
    """Apply a move to expected counts, in place; visits enter and leave split states by the stationary distribution."""
    a, i, j = move
    transitions[i] += transitions[j]
    transitions[:, i] += transitions[:, j]
    starts[i] += starts[j]
    share, new = stationary_distribution(chain.transmat), [a, j]
    within, onward, back = float(transitions[a, a]), transitions[a].copy(), transitions[:, a].copy()
    transitions[new] = share[:, None] * onward
    transitions[:, new] = back[:, None] * share
    transitions[np.ix_(new, new)] = within * share[:, None] * chain.transmat
    starts[new] = starts[a] * share
