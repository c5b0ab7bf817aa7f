"""The E-step on a sample in memory, and sums of the smoother's covariances: recursions over time by doubling.

A filter forgets: s_t = L s_{t-1} + u_t is u_t + L u_{t-1} + L^2 u_{t-2} + ..., and the sum over 2^j frames is the sum
over half as many, twice. So a few products of whole arrays stand in for a step per frame. Only the first frames of a
sequence, whose gains still change, are gone through one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.kalman.em import StateSums
from dask_dca.models.kalman.filter import memory_of, start_gains, steady_gains
from dask_dca.models.kalman.system import prepare_observer, safe_system, symmetric

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.models.kalman.filter import Gains
    from dask_dca.models.kalman.system import LinearSystem, Observer

_SETTLED: Final = 1e-5  # change of a covariance, as a share of its states' own scales, that is none
_MOST_STEPS: Final = 400
_FORGOTTEN: Final = 1e-17
_LOG_2_PI: Final = float(np.log(2.0 * np.pi))


def scan(step: Floats, values: Floats, ages: Numbers) -> Floats:
    """Run s_t = step s_{t-1} + values_t, by doubling.

    values (n, k); ages (n,): how many frames before a frame count; at a frame of age 0 the recursion begins anew.
    """
    states, power, reach = values.copy(), step, 1
    most = int(ages.max(initial=0))
    while reach <= most and np.abs(power).max() > _FORGOTTEN:
        states[reach:] += np.where(ages[reach:, None] >= reach, states[:-reach] @ power.T, 0.0)
        power, reach = power @ power, 2 * reach
    return states


def ages_of(edges: Numbers) -> Numbers:
    """Number the frames of each sequence from 0 on.

    edges (m + 1,): first frame of each sequence, and the number of frames.
    """
    return np.arange(edges[-1]) - np.repeat(edges[:-1], np.diff(edges))


def e_step(system: LinearSystem, frames: Floats, edges: Numbers, second: Floats) -> tuple[StateSums, float]:
    """Sum what the M-step needs over the smoothed states of a sample, and its log likelihood.

    frames (n, p): complete; edges (m + 1,): first frame of each sequence, and the number of frames; second (p, p) or
    (p,): sum of the products of channels, or of their squares.
    """
    observer = prepare_observer(safe_system(system))
    system, factor, ages = observer.system, observer.factor, ages_of(edges)
    lengths, counts = np.unique(np.diff(edges), return_counts=True)
    gains = start_gains(system, factor, int(min(lengths[-1], _MOST_STEPS)), _SETTLED)
    y = (frames - system.offset) @ observer.projection.T
    predicted = _predicted(system, gains, y, edges, ages)
    surprise = y - predicted @ factor.T
    means, density = _smoothed(system, gains, predicted, surprise, edges, ages)
    memory = int(min(memory_of(steady_gains(gains), _SETTLED), _MOST_STEPS))
    own = smoothed_sums(system, factor, gains, memory, lengths, counts)
    every = np.hstack([means, np.ones((len(means), 1))])
    products, cross, (starts, ends) = every.T @ every, frames.T @ every, (means[edges[:-1]], means[edges[1:] - 1])
    k = len(factor)
    products[:k, :k] += own.every
    first, last = own.first + starts.T @ starts, own.last + ends.T @ ends
    later = np.flatnonzero(ages > 0)
    sums = StateSums(
        every=products,
        pairs=own.pairs + means[later].T @ means[later - 1],
        before=products[:k, :k] - last,
        after=products[:k, :k] - first,
        starts=first,
        start_means=starts.sum(axis=0),
        cross=cross,
        second=second,
        sequences=np.array([len(edges) - 1.0]),
    )
    return sums, density + _rest(observer, len(frames), second, cross[:, -1], float((y**2).sum()))


def _alive(edges: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """First frames of the sequences, the longest first; and how many sequences have a frame 0, 1, ..., most - 1."""
    lengths = np.diff(edges)
    order = np.argsort(-lengths, kind="stable")
    return edges[order], np.searchsorted(-lengths[order], -np.arange(most))


def _predicted(system: LinearSystem, gains: Gains, y: Floats, edges: Numbers, ages: Numbers) -> Floats:
    """Means of the states before their frames are seen."""
    last = len(gains) - 1
    taken, closed = system.transition @ gains.update.gain, system.transition @ gains.update.left
    found = np.zeros_like(y)
    found[1:] = y[:-1] @ taken[-1].T
    found[edges[:-1]] = system.initial_mean
    begins, alive = _alive(edges, last + 1)
    for i in range(last):
        now = begins[: alive[i + 1]] + i
        found[now + 1] = found[now] @ closed[i].T + y[now] @ taken[i].T
    return scan(closed[-1], found, np.maximum(ages - last, 0))


def _smoothed(
    system: LinearSystem, gains: Gains, predicted: Floats, surprise: Floats, edges: Numbers, ages: Numbers
) -> tuple[Floats, float]:
    """Means of the states given all frames of their sequences (de Jong's recursion), and the density of surprises."""
    last, closed, update = len(gains) - 1, system.transition @ gains.update.left, gains.update
    following = np.repeat(np.diff(edges), np.diff(edges)) - 1 - ages
    white = surprise @ update.whitener[-1].T
    logs = update.log_determinant[np.minimum(ages, last)].sum() + surprise.size * _LOG_2_PI
    later = scan(closed[-1].T, (surprise @ update.weight[-1])[::-1], following[::-1])[::-1]
    means, spread = predicted + later @ gains.predicted[-1], gains.predicted
    begins, alive = _alive(edges, last + 1)
    for i in range(last - 1, -1, -1):
        now, followed = begins[: alive[i]] + i, begins[: alive[i + 1]] + i
        white[now] = surprise[now] @ update.whitener[i].T
        later[now] = surprise[now] @ update.weight[i]
        later[followed] += later[followed + 1] @ closed[i]
        means[now] = predicted[now] + later[now] @ spread[i]
    return means, -0.5 * float((white**2).sum() + logs)


def _rest(observer: Observer, n: int, second: Floats, totals: Floats, squares: float) -> float:
    """Log density of what tells nothing of the states, from sums over frames.

    totals (p,): sum of the frames; squares: of all numbers y.
    """
    offset, whitener = observer.system.offset, observer.whitener
    if whitener.ndim == 1:
        own = second if second.ndim == 1 else np.diagonal(second)
        white = float(((own - 2.0 * offset * totals + n * offset**2) * whitener**2).sum())
    else:
        shifted = np.multiply.outer(offset, totals)
        centred = second - shifted - shifted.T + n * np.multiply.outer(offset, offset)
        white = float((whitener @ centred * whitener).sum())
    return n * observer.log_constant - 0.5 * (white - squares)


@dataclass(frozen=True)
class SmoothedSums:
    """Sums of the smoother's covariances over all frames of complete sequences.

    every (k, k): of all states; pairs (k, k): of Cov(s_t, s_{t-1}), over all pairs; first, last (k, k): of the first
    and the last states of the sequences alone.
    """

    every: Floats
    pairs: Floats
    first: Floats
    last: Floats


def smoothed_sums(
    system: LinearSystem,
    factor: Floats,
    start: Gains,
    memory: int,
    lengths: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> SmoothedSums:
    """Sum the smoother's covariances over all frames of complete sequences.

    The information that later frames add is run backwards as de Jong (Biometrika 76, 1989) has it, without the inverse
    of a covariance. Frames with steady gains differ by how many frames follow them alone.
    factor (k, k): F of complete frames; memory: frames after which the filter has forgotten where it began; lengths,
    counts (u,): different lengths of sequences, and how many sequences have them.
    """
    weight, first, after = counts.astype(np.float64), len(start) - 1, start.update.filtered
    seen, left, before = factor.T @ start.update.weight, start.update.left, start.predicted
    steady = np.maximum(lengths - first, 0)
    hats = _steady_information(system, start, seen[-1], int(min(memory + 2, steady.max() + 1)))
    own, tilde = after[-1] - after[-1] @ hats @ after[-1], seen[-1] + left[-1].T @ hats @ left[-1]
    coming, most = np.eye(len(factor)) - before[-1] @ tilde, np.minimum(steady, len(hats))
    every = np.tensordot(_repeats(weight, steady, len(hats)), own, 1)
    pairs = np.tensordot(_repeats(weight, steady - 1, len(hats)), coming, 1) @ system.transition @ after[-1]
    hat, own, coming = hats[np.minimum(steady, len(hats) - 1)], own[most - 1], coming[most - 1]
    for t in range(min(first, int(lengths.max())) - 1, -1, -1):
        there, follow = weight * (t < lengths), weight * (t + 1 < lengths)
        own = after[t] - after[t] @ hat @ after[t]
        every += (there[:, None, None] * own).sum(axis=0)
        pairs += (follow[:, None, None] * coming).sum(axis=0) @ system.transition @ after[t]
        tilde = (seen[t] + left[t].T @ hat @ left[t]) * (there > 0.0)[:, None, None]
        coming = np.eye(len(factor)) - before[t] @ tilde
        hat = system.transition.T @ tilde @ system.transition
    last = after[np.minimum(lengths, len(start)) - 1]
    sums = (every, pairs, np.tensordot(weight, own, 1), np.tensordot(weight, last, 1))
    return SmoothedSums(symmetric(sums[0]), sums[1], symmetric(sums[2]), sums[3])


def _steady_information(system: LinearSystem, start: Gains, seen: Floats, most: int) -> Floats:
    """What 0, 1, 2, ... later frames with steady gains say of a state, (most, k, k), by doubling."""
    step, total = start.closed[-1], system.transition.T @ seen @ system.transition
    found = np.zeros((1, *step.shape))
    while len(found) < most:
        found = np.concatenate([found, total + step.T @ found @ step])
        total, step = total + step.T @ total @ step, step @ step
    return found[:most]


def _repeats(weight: Floats, kept: NDArray[np.int64], n: int) -> Floats:
    """How many sequences have a frame that 0, 1, ..., n - 1 frames follow; the last stands for all earlier ones."""
    found = weight @ (kept[:, None] > np.arange(n))
    found[-1] += weight @ np.maximum(kept - n, 0)
    return np.asarray(found, dtype=np.float64)
