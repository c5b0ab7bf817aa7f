"""The Kalman filter and smoother of many pieces at once where all frames are complete; covariances as square roots.

Then they come from a short table: the first frames of a sequence, until nothing changes any more. Frames are what
`lds_observe` makes of them: y = F s + N(0, I). A covariance P is carried as L with P = L L^T, so that it is never
negative, and small variances beside huge ones keep their digits (Kaminski, Bryson and Schmidt, Discrete square root
filtering, IEEE Transactions on Automatic Control 16, 1971).

Arrays are (steps, chains, k): step t of the recursion is one product of (chains, k) numbers. Gains are known
beforehand (`lds_gains`): they depend on no data. Chains that begin a sequence take theirs from the table, all others
the steady ones.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.errors import InvalidParameterError
from dask_dca.models.kalman.system import (
    covariance_root,
    incomplete_numbers,
    prepare_observer,
    safe_system,
    split_numbers,
    symmetric,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Mask
    from dask_dca.models.kalman.system import LinearSystem

_SETTLED: Final = 1e-13  # change of a covariance, as a share of its states' own scales, that is none
_MOST_STEPS: Final = 4096
_GROWN: Final = 1e100  # an error that has become so large is never forgotten; its square can still be formed
LOST: Final = 1e50  # standard deviation of a state of which nothing is known; its fourth power can still be formed
_LOG_2_PI: Final = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class Update:
    """What seeing a frame does to the covariance of the state.

    turn (..., k, k): by what the root L before is multiplied: L turn is the root after; root (..., k, k): L of the
    covariance after; gain (..., k, k): P F^T S^{-1}, with S = F P F^T + I the covariance of the surprise; left (..., k,
    k): I - gain F; weight (..., k, k): S^{-1} F; whitener (..., k, k): S^{-1/2}, by which surprises become independent:
    squares of them keep digits that products with S^{-1} would lose; log_determinant (...): log det S.
    """

    turn: Floats
    root: Floats
    gain: Floats
    left: Floats
    weight: Floats
    whitener: Floats
    log_determinant: Floats

    @property
    def filtered(self) -> Floats:
        """Covariance after.

        Returns (..., k, k): L L^T.
        """
        return square(self.root)


@dataclass(frozen=True)
class Gains:
    """What the filter does to complete frames, by their place.

    root (m, k, k): L of the covariance of the state before its frame is seen; update: what seeing it does; arrays of
    shape (m, k, k) and (m,); closed (m, k, k): (I - gain F) T: what the mean of the frame before is multiplied by.
    """

    root: Floats
    update: Update
    closed: Floats

    @property
    def predicted(self) -> Floats:
        """Covariance of the state before its frame is seen.

        Returns (m, k, k): L L^T.
        """
        return square(self.root)

    def __len__(self) -> int:
        return len(self.root)


def update_covariance(root: Floats, factor: Floats) -> Update:
    """See one frame: P (I + F^T F P)^{-1}, of which no entry is a difference.

    root (..., k, k): L of the covariance before; factor (..., k, k): F. Returns root of the covariance after, and what
    the recursions of the means need.
    """
    left, sizes, right = np.linalg.svd(factor @ root)
    turned, rest = root @ right.swapaxes(-1, -2), 1.0 / (1.0 + sizes**2)
    shrunk = np.sqrt(rest)[..., None, :]
    whitener = shrunk.swapaxes(-1, -2) * left.swapaxes(-1, -2)
    gain = (turned * (sizes * rest)[..., None, :]) @ left.swapaxes(-1, -2)
    return Update(
        right.swapaxes(-1, -2) * shrunk,
        turned * shrunk,
        gain,
        np.eye(root.shape[-1]) - gain @ factor,
        whitener.swapaxes(-1, -2) @ (whitener @ factor),
        whitener,
        np.log1p(sizes**2).sum(axis=-1),
    )


def joint_root(one: Floats, other: Floats) -> Floats:
    """Add two covariances by their roots.

    one, other (..., k, k): roots. Returns (..., k, k): root of the sum.
    """
    both = np.concatenate(np.broadcast_arrays(one, other), axis=-1)
    found: Floats = np.asarray(np.linalg.qr(both.swapaxes(-1, -2), mode="r"), dtype=np.float64)
    return found.swapaxes(-1, -2)


def square(root: Floats) -> Floats:
    """Covariances of roots.

    root (..., k, k): L. Returns (..., k, k): L L^T.
    """
    return root @ root.swapaxes(-1, -2)


def next_state(system: LinearSystem, before: tuple[Floats, Floats] | None, frame: Floats) -> tuple[Floats, Floats]:
    """Filter one frame.

    before: mean (k,) and covariance (k, k) of the state at the frame before; None where a sequence begins; frame (p,):
    NaN where an entry is missing. Returns the mean and the covariance at this one.
    """
    if before is None:
        mean, covariance = system.initial_mean, system.initial_covariance
    else:
        mean = system.transition @ before[0]
        covariance = system.transition @ before[1] @ system.transition.T + system.transition_covariance
    observer = prepare_observer(safe_system(system))
    y, _, factor = (part[0] for part in split_numbers(incomplete_numbers(observer, frame[None]), len(mean)))
    update = update_covariance(covariance_root(covariance), factor)
    return mean + update.gain @ (y - factor @ mean), update.filtered


def start_gains(system: LinearSystem, factor: Floats, most: int = _MOST_STEPS) -> Gains:
    """Work out the first frames of a sequence, until nothing changes any more.

    factor (k, k): F of complete frames; most: at most that many frames. Returns the last entry holds for all later
    frames, if they settled before `most`.
    """
    root, kicks = covariance_root(system.initial_covariance), covariance_root(system.transition_covariance)
    before = []
    for _ in range(most):
        before.append(root)
        _, sizes, right = np.linalg.svd(factor @ root)
        later = joint_root(system.transition @ ((root @ right.T) / np.sqrt(1.0 + sizes**2)), kicks)
        _refuse_growth(system, later, len(before))
        if _settled(square(root), square(later)):
            break
        root = later
    found = update_covariance(np.stack(before), factor)
    return Gains(np.stack(before), found, found.left @ system.transition)


def _refuse_growth(system: LinearSystem, root: Floats, n_frames: int) -> None:
    """Refuse a state that grows and that no channel shows. Raises InvalidParameterError."""
    if np.abs(root).max(initial=0.0) <= LOST:
        return
    size = float(np.abs(np.linalg.eigvals(system.transition)).max())
    msg = (
        f"a state grows that observation_matrices shows in no channel: after {n_frames} frames its standard deviation "
        f"is above {LOST:g}, since transition_matrices has an eigenvalue of size {size:.6g}; pass transition_matrices "
        f"/ {size:.6g}, or observation_matrices in which a channel shows it"
    )
    raise InvalidParameterError(msg)


def _settled(before: Floats, after: Floats) -> bool:
    scale = np.sqrt(np.diagonal(before))
    return bool((np.abs(after - before) <= _SETTLED * np.multiply.outer(scale, scale)).all())


def steady_gains(start: Gains) -> Gains:
    """Give the steady state, that of frames with a long past: where the first frames of a sequence lead."""
    update = Update(*(getattr(start.update, field.name)[-1:] for field in fields(Update)))
    return Gains(start.root[-1:], update, start.closed[-1:])


def memory_of(steady: Gains, tolerance: float) -> float:
    """Number of frames after which the filter has forgotten where it began.

    tolerance: what is left of an error then, in standard deviations of the predicted states. Returns frames; infinity
    where the filter never forgets.
    """
    closed = in_own_units(steady.closed[-1], steady.root[-1])
    power, frames = closed, 1.0
    scale = max(1.0, float(np.linalg.norm(closed, 2)))
    steps = [closed]
    while np.linalg.norm(power, 2) > tolerance * scale:  # powers 1, 2, 4, ... : growth before decay counts too
        if frames > 2.0**40 or np.abs(power).max() > _GROWN:
            return float("inf")
        power, frames = power @ power, 2.0 * frames
        steps.append(power)
    found, reached = 0.0, np.eye(len(closed))
    for i in range(len(steps) - 2, -1, -1):  # the greatest number of frames that does not do yet, by its bits
        trial = reached @ steps[i]
        if np.linalg.norm(trial, 2) > tolerance * scale:
            reached, found = trial, found + 2.0**i
    return found + 1.0


def in_own_units(matrices: Floats, root: Floats) -> Floats:
    """Express maps of states in units of the states' standard deviations.

    matrices (..., k, k): maps of states; root (k, k): root of the states' covariance. Returns (..., k, k): the same
    maps, whatever the units of the states.
    """
    size = np.linalg.norm(root, axis=1)
    size = np.where(size > 0.0, size, 1.0)
    return matrices * (size / size[:, None])


@dataclass(frozen=True)
class Filtered:
    """What the filter found.

    means (steps, chains, k): mean of the state after its frame is seen; predicted (steps, chains, k): and before;
    surprise (steps, chains, k): y - F s of the predicted state; zero where there is no frame; log_density (steps,
    chains): of y given the frames before.
    """

    means: Floats
    predicted: Floats
    surprise: Floats
    log_density: Floats


def filter_chains(
    system: LinearSystem,
    factor: Floats,
    gains: tuple[Gains, Gains],
    y: Floats,
    inside: Mask,
    first: Mask,
    begin: int,
) -> Filtered:
    """Filter chains.

    factor (k, k): F; y (steps, chains, k): observations, from `lds_observe`; inside (steps, chains): where there is a
    frame; first (chains,): chains whose sequence begins at step `begin`; the others begin amid a sequence, at step 0.
    Returns the means and what they surprised with. Its covariances are the gains'.
    """
    start, steady = gains
    kicks = y @ steady.update.gain[0].T
    means = np.empty_like(y)
    closed = np.ascontiguousarray(steady.closed[0].T)
    mean = np.zeros(y.shape[1:])
    for t in range(len(y)):
        i = t - begin
        if 0 <= i < len(start) and first.any():
            before = (
                mean @ start.closed[i].T
                if i
                else np.broadcast_to(start.update.left[0] @ system.initial_mean, mean.shape)
            )
            own = before + y[t] @ start.update.gain[i].T
            mean = np.where(first[:, None], own, mean @ closed + kicks[t])
        else:
            mean = mean @ closed + kicks[t]
        means[t] = mean
    predicted = np.zeros_like(y)
    predicted[1:] = means[:-1] @ system.transition.T
    predicted[begin, first] = system.initial_mean
    surprise = (y - predicted @ factor.T) * inside[:, :, None]
    return Filtered(means, predicted, surprise, _log_density(gains, surprise, inside, first, begin))


def _log_density(gains: tuple[Gains, Gains], surprise: Floats, inside: Mask, first: Mask, begin: int) -> Floats:
    """Of each surprise, Gaussian with covariance S."""
    k, (start, steady) = surprise.shape[2], gains
    white = surprise @ steady.update.whitener[0].T
    logs = np.full(surprise.shape[:2], steady.update.log_determinant[0])
    for i in range(min(len(start), len(surprise) - begin) if first.any() else 0):
        own = surprise[begin + i] @ start.update.whitener[i].T
        white[begin + i] = np.where(first[:, None], own, white[begin + i])
        logs[begin + i] = np.where(first, start.update.log_determinant[i], logs[begin + i])
    found = -0.5 * ((white**2).sum(axis=2) + logs + k * _LOG_2_PI)
    return np.where(inside, found, 0.0)


def smooth_chains(
    system: LinearSystem, gains: tuple[Gains, Gains], filtered: Filtered, first: Mask, begin: int
) -> Floats:
    """Smooth chains: what later frames add to the filter's means.

    The recursion of de Jong, which needs no inverse of a covariance.
    first (chains,): as `filter_chains` takes it. Returns (steps, chains, k): mean of each state given all frames of its
    chain.
    """
    start, steady = gains
    closed, weight = np.ascontiguousarray(steady.closed[0]), steady.update.weight[0] @ system.transition
    pulls = filtered.surprise @ weight
    means = np.empty_like(pulls)
    later = np.zeros(pulls.shape[1:])  # de Jong's r: what later frames say
    hats = np.empty_like(pulls)
    for t in range(len(pulls) - 1, -1, -1):
        hats[t] = later
        i = t - begin
        if 0 <= i < len(start) and first.any():
            own = later @ start.closed[i] + filtered.surprise[t] @ (start.update.weight[i] @ system.transition)
            later = np.where(first[:, None], own, later @ closed + pulls[t])
        else:
            later = later @ closed + pulls[t]
    means, known = filtered.means + hats @ steady.update.filtered[0], start.update.filtered
    for i in range(min(len(start), len(hats) - begin) if first.any() else 0):
        own = filtered.means[begin + i] + hats[begin + i] @ known[i]
        means[begin + i] = np.where(first[:, None], own, means[begin + i])
    return means


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
