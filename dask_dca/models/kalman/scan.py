"""The E-step on a sample in memory, and sums of the smoother's covariances: recursions over time by doubling.

The recursion s_t = L s_{t-1} + u_t has the solution u_t + L u_{t-1} + L^2 u_{t-2} + ..., whose sum over 2^j terms
follows from that over 2^(j-1). A few products of whole arrays thus replace a step per frame. Only the first frames of
a sequence, before the gains converge, are processed one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.models.kalman.em import StateSums
from dask_dca.models.kalman.filter import Gains, memory_length, start_gains, steady_gains
from dask_dca.models.kalman.system import LOG_2_PI, LinearSystem, Observer, prepare_observer, regularised, symmetric

_RICCATI_RTOL: Final = 1e-5  # convergence of covariances: change relative to the states' standard deviations
_MAX_RICCATI_STEPS: Final = 400  # maximum number of frames with gains of their own
_NEGLIGIBLE_POWER: Final = 1e-17  # powers of L whose entries are all smaller are neglected


def scan(step: Floats, values: Floats, ages: Numbers) -> Floats:
    """Solve s_t = step s_{t-1} + values_t by doubling.

    values (n, k); ages (n,): number of previous terms of each frame; at age 0 the recursion restarts.
    """
    states, power, reach = values.copy(), step, 1
    most = int(ages.max(initial=0))
    while reach <= most and np.abs(power).max() > _NEGLIGIBLE_POWER:
        states[reach:] += np.where(ages[reach:, None] >= reach, states[:-reach] @ power.T, 0.0)
        power, reach = power @ power, 2 * reach
    return states


def frame_ages(edges: Numbers) -> Numbers:
    """Number the frames within each sequence, from 0 on.

    edges (m + 1,): first frame of each sequence, and the number of frames.
    """
    return np.arange(edges[-1]) - np.repeat(edges[:-1], np.diff(edges))


def e_step(system: LinearSystem, frames: Floats, edges: Numbers, second: Floats) -> tuple[StateSums, float]:
    """Compute the M-step's sums over the smoothed states of a sample, and its log likelihood.

    frames (n, p): complete; edges (m + 1,): first frame of each sequence, and the number of frames; second (p, p) or
    (p,): sum of the products of channels, or of their squares.
    """
    observer = prepare_observer(regularised(system))
    system, factor, ages = observer.system, observer.factor, frame_ages(edges)
    lengths, counts = np.unique(np.diff(edges), return_counts=True)
    gains = start_gains(system, factor, int(min(lengths[-1], _MAX_RICCATI_STEPS)), _RICCATI_RTOL)
    y = (frames - system.offset) @ observer.projection.T
    predicted = _predicted_means(system, gains, y, edges, ages)
    innovations = y - predicted @ factor.T
    means, density = _smoothed_means(system, gains, predicted, innovations, edges, ages)
    memory = int(min(memory_length(steady_gains(gains), _RICCATI_RTOL), _MAX_RICCATI_STEPS))
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
    return sums, density + _remainder_log_density(observer, len(frames), second, cross[:, -1], float((y**2).sum()))


def _longest_first(edges: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """First frames of the sequences, the longest first; and the number of sequences longer than 0, 1, ..., most - 1."""
    lengths = np.diff(edges)
    order = np.argsort(-lengths, kind="stable")
    return edges[order], np.searchsorted(-lengths[order], -np.arange(most))


def _predicted_means(system: LinearSystem, gains: Gains, y: Floats, edges: Numbers, ages: Numbers) -> Floats:
    """Predicted means (n, k) of the states."""
    last = len(gains) - 1
    taken, closed = system.transition @ gains.update.gain, system.transition @ gains.update.complement
    found = np.zeros_like(y)
    found[1:] = y[:-1] @ taken[-1].T
    found[edges[:-1]] = system.initial_mean
    begins, alive = _longest_first(edges, last + 1)
    for i in range(last):
        now = begins[: alive[i + 1]] + i
        found[now + 1] = found[now] @ closed[i].T + y[now] @ taken[i].T
    return scan(closed[-1], found, np.maximum(ages - last, 0))


def _smoothed_means(
    system: LinearSystem, gains: Gains, predicted: Floats, innovations: Floats, edges: Numbers, ages: Numbers
) -> tuple[Floats, float]:
    """Smoothed means by de Jong's recursion, and the log density of the innovations."""
    last, closed, update = len(gains) - 1, system.transition @ gains.update.complement, gains.update
    following = np.repeat(np.diff(edges), np.diff(edges)) - 1 - ages
    white = innovations @ update.whitener[-1].T
    logs = update.log_determinant[np.minimum(ages, last)].sum() + innovations.size * LOG_2_PI
    later = scan(closed[-1].T, (innovations @ update.weight[-1])[::-1], following[::-1])[::-1]
    means, spread = predicted + later @ gains.predicted[-1], gains.predicted
    begins, alive = _longest_first(edges, last + 1)
    for i in range(last - 1, -1, -1):
        now, followed = begins[: alive[i]] + i, begins[: alive[i + 1]] + i
        white[now] = innovations[now] @ update.whitener[i].T
        later[now] = innovations[now] @ update.weight[i]
        later[followed] += later[followed + 1] @ closed[i]
        means[now] = predicted[now] + later[now] @ spread[i]
    return means, -0.5 * float((white**2).sum() + logs)


def _remainder_log_density(observer: Observer, n: int, second: Floats, totals: Floats, squares: float) -> float:
    """Log density of the part of the frames that is independent of the states, from sums over frames.

    totals (p,): sum of the frames; squares: sum of the squares of y.
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
    """Sums of smoothed covariances over complete sequences.

    every (k, k): over all states; pairs (k, k): of Cov(s_t, s_{t-1}) over all pairs; first, last (k, k): over the first
    and the last states of sequences.
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
    """Sum the smoothed covariances over all frames of complete sequences.

    Backward recursion of de Jong (Biometrika 76, 1989), without the inverse of a covariance. With steady gains the
    covariance depends only on the number of later frames.
    factor (k, k): F of complete frames; memory: frames after which the filter has forgotten its initial state; lengths,
    counts (u,): distinct lengths of sequences, and numbers of sequences of these lengths.
    """
    weight, first, after = counts.astype(np.float64), len(start) - 1, start.update.filtered
    seen, left, before = factor.T @ start.update.weight, start.update.complement, start.predicted
    steady = np.maximum(lengths - first, 0)
    hats = _steady_information(system, start, seen[-1], int(min(memory + 2, steady.max() + 1)))
    own, tilde = after[-1] - after[-1] @ hats @ after[-1], seen[-1] + left[-1].T @ hats @ left[-1]
    coming, most = np.eye(len(factor)) - before[-1] @ tilde, np.minimum(steady, len(hats))
    every = np.tensordot(_count_followed(weight, steady, len(hats)), own, 1)
    pairs = np.tensordot(_count_followed(weight, steady - 1, len(hats)), coming, 1) @ system.transition @ after[-1]
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
    """Information on a state in 0, 1, 2, ... later frames with steady gains, (most, k, k), by doubling."""
    step, total = start.closed_loop[-1], system.transition.T @ seen @ system.transition
    found = np.zeros((1, *step.shape))
    while len(found) < most:
        found = np.concatenate([found, total + step.T @ found @ step])
        total, step = total + step.T @ total @ step, step @ step
    return found[:most]


def _count_followed(weight: Floats, kept: NDArray[np.int64], n: int) -> Floats:
    """Count sequences with a frame followed by 0, 1, ..., n - 1 others; the last count includes all earlier frames."""
    found = weight @ (kept[:, None] > np.arange(n))
    found[-1] += weight @ np.maximum(kept - n, 0)
    return np.asarray(found, dtype=np.float64)
