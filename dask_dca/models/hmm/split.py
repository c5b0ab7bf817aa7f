"""Baum-Welch on a sample in memory, and split and merge: one state becomes two, two one, while the likelihood rises.

A state is split by a chain of two states, fitted to its visits: two states may differ by place, or by how long visits
last. What a merger costs is told from the covariances and from the transitions' code length.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.gaussians import variances_of
from dask_dca.models.hmm.expectation import Expected, expectation, labels_of, lay_out, lay_tile
from dask_dca.models.hmm.model import FrameFeatures, HiddenMarkov, IncompleteStates, m_step, model_of_labels, moments_of
from dask_dca.models.hmm.recursions import Markov, Scratch, stationary_distribution

if TYPE_CHECKING:
    Move = tuple[int, int, int]  # the state that is split, and the two that become one
    from collections.abc import Iterator

    from dask_dca.geometry.arrays import Floats, Labels, Mask, Numbers
    from dask_dca.models.hmm.expectation import Layout, Tile

_LEAST_KEPT: Final = 0.2  # of a transition's sample count, or of a variance, that a correction must leave
_ROUNDS: Final = 40
_RISE: Final = 1.0  # of the log likelihood, from which on moves are kept
_SAME: Final = 0.9  # share of its frames for which a state's split still holds
_MOST: Final = 1000  # frames to which two states are fitted,
_RUN: Final = 64  # in runs of at most that many
_PIECE: Final = (16, 8)  # length and burn-in of a piece: a rough answer will do
_SCREEN: Final = 2  # steps from each side, and
_SETTLE: Final = 5  # more for the best; and before the first round
_TRY: Final = (3, 12)  # steps of a try: at least, and at most
_LOSING: Final = 4  # moves in turn that promise no gain, and are tried
_POWER: Final = 8  # steps of the power method
_SCARCE: Final = 0.01  # of a frame, by which no start or transition is impossible


@dataclass(frozen=True)
class StandardFrames:
    """Frames in standard units, laid out for recursions once."""

    frames: Floats  # (n, p)
    edges: Numbers
    kind: str
    floors: Floats  # (p,), least variances
    layout: Layout
    tiles: list[Tile]
    holes: bool = False  # whether entries are missing
    scratch: Scratch = field(default_factory=Scratch)

    def __len__(self) -> int:
        return len(self.frames)


@dataclass(frozen=True)
class ChainSums:
    """What an E-step sees: sums, and the likeliest state of each frame."""

    expected: Expected
    labels: Labels

    @property
    def log_likelihood(self) -> float:
        """Log likelihood of all sequences.

        Returns that of the model which looked.
        """
        return self.expected.log_likelihood


def standard_frames(
    frames: Floats, edges: Numbers, kind: str, floors: Floats, piece: tuple[int, int] | None = None
) -> StandardFrames:
    """Lay frames out.

    frames (n, p): in standard units, NaN where an entry is missing; edges (m + 1,): ends of sequences; floors (p,):
    least variances; piece: length and burn-in of a piece; by the number of frames if None.
    """
    p = frames.shape[1]
    layout = lay_out(edges, 4 * p) if piece is None else lay_out(edges, 4 * p, *piece)
    holes = bool(np.isnan(frames).any())
    zero, one = np.zeros(p), np.ones(p)
    features = FrameFeatures("full" if holes else kind, zero, one)
    tiles = [lay_tile(layout, begin, frames, 0, features) for begin in range(0, len(frames), layout.frames)]
    return StandardFrames(frames, edges, kind, floors, layout, tiles, holes)


def e_step(model: HiddenMarkov, sample: StandardFrames, origins: Floats | None = None) -> ChainSums:
    """Look at all frames.

    origins (k, p): what moments are taken about; as is best if None.
    """
    states, labels, lines = model.states(origins=origins), [], []
    emissions = IncompleteStates(states, np.zeros(len(sample.floors))) if sample.holes else states
    for tile in sample.tiles:
        found = expectation(sample.layout, tile, emissions, model.markov, sample.scratch)
        lines.append(found.sums)
        labels.append(labels_of(sample.layout, found.posteriors))
    expected = Expected(np.sum(lines, axis=0), len(model.means), states.origins)
    return ChainSums(expected, np.concatenate(labels)[: len(sample)])


def next_model(found: Expected, model: HiddenMarkov, sample: StandardFrames) -> HiddenMarkov:
    """Take the M-step.

    found: what the model saw.
    """
    moments = moments_of(found, sample.kind)
    return m_step(found.starts, found.transitions, moments, sample.kind, sample.floors, model)


def climb(
    model: HiddenMarkov, sample: StandardFrames, steps: int, tol: float = -np.inf
) -> tuple[HiddenMarkov, ChainSums]:
    """Take steps.

    steps: at most; tol: they end where the log likelihood rises by less. Returns the model, and what it sees.
    """
    seen = e_step(model, sample)
    for _ in range(steps):
        model, last = next_model(seen.expected, model, sample), seen.log_likelihood
        seen = e_step(model, sample)
        if seen.log_likelihood - last < tol:
            break
    return model, seen


def corrected_steps(
    model: HiddenMarkov, sample: StandardFrames, full: Expected, ratio: float, steps: int
) -> HiddenMarkov:
    """Go on from sums over all frames by steps on a sample, to whose sums the difference is added.

    full: sums of this model over all frames; ratio: of all frames to the sample's. Returns the model after the M-step
    and some more; starts are those of all frames; where the correction leaves a state nothing, the M-step alone.
    """
    k, kind = len(model.means), sample.kind
    plain = next_model(full, model, sample)
    difference, found = full.line - ratio * e_step(model, sample, full.origins).expected.line, plain
    for _ in range(steps):
        line = ratio * e_step(found, sample, full.origins).expected.line
        least, line = _LEAST_KEPT * line, line + difference
        line[: 1 + k + k * k] = np.maximum(line, least)[: 1 + k + k * k]
        line[1 : 1 + k] = full.starts
        seen = replace(full, line=line)
        if not (seen.counts > 0.0).all():
            return plain
        moved = next_model(seen, found, sample)
        if (variances_of(moved.covariances, kind) < _LEAST_KEPT * variances_of(plain.covariances, kind)).any():
            return plain
        found = moved
    return found


@dataclass(frozen=True)
class _Split:
    """Two states in place of one, what they gain, and the frames that the one had."""

    gain: float
    two: HiddenMarkov | None
    members: Labels


def split_and_merge(model: HiddenMarkov, sample: StandardFrames) -> HiddenMarkov:
    """Move states to where they are worth more, as long as the log likelihood rises by one."""
    model, seen = climb(model, sample, _SETTLE)
    splits: dict[int, _Split] = {}
    failed: set[Move] = set()
    losing = 0
    for _ in range(_ROUNDS if len(model.means) > 2 else 0):
        _update(splits, seen.labels, sample, len(model.means))
        moves, promising = _moves(model, seen, splits, failed, losing < _LOSING)
        losing += not promising
        while moves:
            goal = seen.log_likelihood + _RISE
            found, there = _tried(_moved(model, seen, splits, moves), sample, goal)
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


def _tried(model: HiddenMarkov, sample: StandardFrames, goal: float) -> tuple[HiddenMarkov, ChainSums]:
    """Take steps, as long as the last rise, kept up, would reach the goal."""
    least, most = _TRY
    model, seen = climb(model, sample, least - 1)
    for left in range(most - least + 1, 0, -1):
        last = seen.log_likelihood
        model = next_model(seen.expected, model, sample)
        seen = e_step(model, sample)
        if seen.log_likelihood > goal or seen.log_likelihood + (left - 1) * (seen.log_likelihood - last) < goal:
            break
    return model, seen


def _moves(
    model: HiddenMarkov, seen: ChainSums, splits: dict[int, _Split], failed: set[Move], may_lose: bool
) -> tuple[list[Move], bool]:
    """The moves of greatest promise without a common state, at most a third as many as states; or one that may lose."""
    k = len(model.means)
    losses = _merger_losses(model, seen)
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


def _merger_losses(model: HiddenMarkov, seen: ChainSums) -> Floats:
    """What the log likelihood loses where states i < j become one, labels taken for sure (k, k)."""
    k = len(model.means)
    found = np.full((k, k), np.inf)
    code = _code_savings(seen.expected.transitions)
    for i in range(k - 1):
        others = np.arange(i + 1, k)
        found[i, others] = _volume_losses(model, seen.expected.counts, i, others) - code[i, others]
    return found


def _volume_losses(model: HiddenMarkov, counts: Floats, i: int, others: Labels) -> Floats:
    """Half of what frames times log determinants grow by."""
    both = _merged(model, counts, i, others)[1]
    kind, p = model.covariance_type, model.means.shape[1]
    own = _log_determinants(model.covariances, kind, p)
    grown = (counts[i] + counts[others]) * _log_determinants(both, kind, p)
    if kind == "tied":  # all states share what grows
        return 0.5 * counts.sum() * (_log_determinants(both, kind, p) - own)
    return 0.5 * (grown - counts[i] * own[i] - counts[others] * own[others])


def _log_determinants(covariances: Floats, kind: str, p: int) -> Floats:
    if kind == "diag":
        return np.asarray(np.log(covariances).sum(axis=-1))
    return np.asarray(p * np.log(covariances) if kind == "spherical" else np.linalg.slogdet(covariances)[1])


def _merged(model: HiddenMarkov, counts: Floats, i: int, others: Labels) -> tuple[Floats, Floats]:
    """Means and covariances of state i together with each of some others; of all states for "tied"."""
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


def _code_savings(transitions: Floats) -> Floats:
    """How much shorter the code of the transitions gets where two states are one (k, k)."""
    T, rows = transitions, transitions.sum(axis=1)
    k = len(T)
    found = np.zeros((k, k))
    for i in range(k - 1):
        j = np.arange(i + 1, k)
        outside = np.ones((len(j), k), dtype=bool)
        outside[:, i] = outside[np.arange(len(j)), j] = False
        onward = np.where(outside, _code(T[i] + T[j]) - _code(T[i]) - _code(T[j]), 0.0).sum(axis=1)
        back = np.where(outside, _code(T[:, i] + T[:, j].T) - _code(T[:, i]) - _code(T[:, j].T), 0.0).sum(axis=1)
        own = (T[i, i], T[i, j], T[j, i], T[j, j])
        inner = _code(np.asarray(sum(own))) - sum(_code(np.asarray(part)) for part in own)
        whole = _code(rows[i] + rows[j]) - _code(rows[i]) - _code(rows[j])
        found[i, j] = onward + back + inner - whole
    return found


def _code(values: Floats) -> Floats:
    found: Floats = values * np.log(np.maximum(values, 1e-300))
    return found


# --- what a split gains ---


def _update(splits: dict[int, _Split], labels: Labels, sample: StandardFrames, k: int) -> None:
    """Fit two states to the frames of each state, unless nearly the same frames were split before."""
    for a in range(k):
        members, before = np.flatnonzero(labels == a), splits.get(a)
        if before is not None:
            shared = len(np.intersect1d(before.members, members, assume_unique=True))
            if shared >= _SAME * max(len(members), len(before.members)):
                continue
        splits[a] = _split(members, sample)


def _split(members: Labels, sample: StandardFrames) -> _Split:
    """Fit a chain of two states to the visits of one."""
    kind, p = sample.kind, sample.frames.shape[1]
    if len(members) < 2 * (p if kind in ("full", "tied") else 4) + 4:
        return _Split(-np.inf, None, members)
    begins = np.flatnonzero(np.diff(members, prepend=-2) > 1)
    visits = np.union1d(begins, np.searchsorted(members, sample.edges))
    rows, ends = _spread(visits)
    own = standard_frames(sample.frames[members[rows]], ends, kind, sample.floors, _PIECE)
    one = model_of_labels(own.frames, ends, np.zeros(len(rows), dtype=np.intp), 1, kind, own.floors)
    found = [climb(model_of_labels(own.frames, ends, side.astype(np.intp), 2, kind, own.floors), own, _SCREEN)
             for side in _sides(own, one)]  # fmt: skip
    if not found:
        return _Split(-np.inf, None, members)
    best = max(found, key=lambda each: each[1].log_likelihood)[0]
    two, seen = climb(best, own, _SETTLE)
    gain = (seen.log_likelihood - e_step(one, own).log_likelihood) * len(members) / len(rows)
    return _Split(gain, two, members)


def _spread(visits: Numbers) -> tuple[Labels, Numbers]:
    """Rows of some whole visits spread over time, long ones in parts, and where these end."""
    counts = -(-np.diff(visits) // _RUN)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = np.repeat(visits[:-1], counts) + within * _RUN
    ends = np.append(begins[1:], visits[-1])
    if visits[-1] > _MOST:
        step = visits[-1] / _MOST
        kept = (np.arange(max(int(len(begins) / step), 1)) * step).astype(np.int64)
        begins, ends = begins[kept], ends[kept]
    else:
        begins, ends = visits[:-1], visits[1:]
    rows = np.concatenate([np.arange(a, b) for a, b in zip(begins.tolist(), ends.tolist(), strict=True)])
    return rows, np.concatenate([[0], np.cumsum(ends - begins)])


def _sides(sample: StandardFrames, one: HiddenMarkov) -> Iterator[Mask]:
    """Ways to part the frames of a state in two: by place, by radius, and the same of visits' means."""
    edges = sample.edges
    counts = np.diff(edges)
    deviations = np.sqrt(np.diagonal(np.atleast_2d(np.cov(sample.frames.T, bias=True))))
    frames = (sample.frames - one.means[0]) / np.where(deviations > 0.0, deviations, 1.0)
    means = np.add.reduceat(frames, edges[:-1], axis=0) / counts[:, None]
    radii = (frames**2).sum(axis=1)
    sides = [
        frames[:, (frames**4).mean(axis=0).argmin()] > 0.0,
        frames @ _main_direction(frames) > 0.0,
        radii > np.median(radii),
    ]
    if len(counts) > 4:  # by time: whole visits are of one side
        ranges = np.add.reduceat(radii, edges[:-1]) / counts
        by_visit = [means @ _main_direction(means * np.sqrt(counts)[:, None]) > 0.0, ranges > np.median(ranges)]
        sides += [np.repeat(side, counts) for side in by_visit]
    for side in sides:
        if 2 <= side.sum() <= len(side) - 2:
            yield side


def _main_direction(rows: Floats) -> Floats:
    found = np.ones(rows.shape[1]) + np.arange(rows.shape[1]) / rows.shape[1]
    for _ in range(_POWER):
        found = rows.T @ (rows @ found)
        found /= max(float(np.linalg.norm(found)), 1e-300)
    return found


# --- moves ---


def _moved(model: HiddenMarkov, seen: ChainSums, splits: dict[int, _Split], moves: list[Move]) -> HiddenMarkov:
    """Let states i and j be one, in place i, and state a two, in places a and j."""
    expected, k = seen.expected, len(model.means)
    means, covariances = model.means.copy(), model.covariances.copy()
    starts, transitions = expected.starts.copy(), expected.transitions.copy()
    for a, i, j in moves:
        two = splits[a].two
        assert two is not None
        joined = _merged(model, expected.counts, i, np.array([j]))
        means[i], means[a], means[j] = joined[0][0], *two.means
        if model.covariance_type != "tied":
            covariances[i], covariances[a], covariances[j] = joined[1][0], *two.covariances
        _relabel(starts, transitions, (a, i, j), two.markov)
    starts, rows = starts + _SCARCE, transitions + _SCARCE / k
    chain = Markov(starts / starts.sum(), rows / rows.sum(axis=1, keepdims=True))
    return replace(model, markov=chain, means=means, covariances=covariances)


def _relabel(starts: Floats, transitions: Floats, move: Move, chain: Markov) -> None:
    """The same of expected counts, in place; visits begin and end in the two states as often as they are in them."""
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
