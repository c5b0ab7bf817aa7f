"""The Kalman filter and smoother of many pieces at once; covariances as square roots.

Where all frames are complete these come from a short table: the first frames of a sequence, until nothing changes any
more. Frames are what `frame_numbers` makes of them: y = F s + N(0, I). A covariance P is carried as L with P = L L^T,
so that it is never negative, and small variances beside huge ones keep their digits (Kaminski, Bryson and Schmidt,
Discrete square root filtering, IEEE Transactions on Automatic Control 16, 1971).

Arrays are (steps, pieces, k): step t of the recursion is one product of (pieces, k) numbers. Gains are known
beforehand (`start_gains`): they depend on no data. Pieces that begin a sequence take theirs from the table, all others
the steady ones. Where entries are missing each piece has covariances of its own, by the textbook recursions; a frame
outside the sequence is one all of whose entries are missing.
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


def start_gains(system: LinearSystem, factor: Floats, most: int = _MOST_STEPS, settled: float = _SETTLED) -> Gains:
    """Work out the first frames of a sequence, until nothing changes any more.

    factor (k, k): F of complete frames; most: at most that many frames; settled: change of a covariance, as a share of
    its states' own scales, that is none. Returns the last entry holds for all later frames, if it settled in time.
    """
    root, kicks = covariance_root(system.initial_covariance), covariance_root(system.transition_covariance)
    before = []
    for _ in range(most):
        before.append(root)
        _, sizes, right = np.linalg.svd(factor @ root)
        later = joint_root(system.transition @ ((root @ right.T) / np.sqrt(1.0 + sizes**2)), kicks)
        _refuse_growth(system, later, len(before))
        if _unchanged(square(root), square(later), settled):
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


def _unchanged(before: Floats, after: Floats, share: float) -> bool:
    scale = np.sqrt(np.diagonal(before))
    return bool((np.abs(after - before) <= share * np.multiply.outer(scale, scale)).all())


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

    means (steps, pieces, k): mean of the state after its frame is seen; predicted (steps, pieces, k): and before;
    surprise (steps, pieces, k): y - F s of the predicted state; zero where there is no frame; log_density (steps,
    pieces): of y given the frames before.
    """

    means: Floats
    predicted: Floats
    surprise: Floats
    log_density: Floats


def filter_pieces(
    system: LinearSystem,
    factor: Floats,
    gains: tuple[Gains, Gains],
    y: Floats,
    inside: Mask,
    first: Mask,
    begin: int,
) -> Filtered:
    """Filter pieces.

    factor (k, k): F; y (steps, pieces, k): observations, from `frame_numbers`; inside (steps, pieces): where there is a
    frame; first (pieces,): pieces whose sequence begins at step `begin`; the others begin amid a sequence, at step 0.
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


def smooth_pieces(
    system: LinearSystem, gains: tuple[Gains, Gains], filtered: Filtered, first: Mask, begin: int
) -> Floats:
    """Smooth chains: what later frames add to the filter's means.

    The recursion of de Jong, which needs no inverse of a covariance.
    first (pieces,): as `filter_pieces` takes it. Returns (steps, pieces, k): mean of each state given all frames of its
    piece.
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
class FilteredStates(Filtered):
    """What the filter found, with covariances.

    roots (steps, pieces, k, k): of the covariances after frames are seen; remembered (steps, pieces): what is left
    of an error at the beginning.
    """

    roots: Floats
    remembered: Floats

    @property
    def covariances(self) -> Floats:
        """Covariances after frames are seen.

        Returns (steps, pieces, k, k): L L^T.
        """
        return square(self.roots)


def filter_states(
    system: LinearSystem,
    y: Floats,
    factors: Floats,
    first: Mask,
    begin: int,
    steady: Floats,
) -> FilteredStates:
    """Filter pieces.

    y (steps, pieces, k): observations, from `frame_numbers`; zero where there is no frame; factors (steps, pieces, k,
    k): F; zero where there is no frame; first (pieces,): pieces whose sequence begins at step `begin`; the others begin
    amid a sequence, at step 0; steady (k, k): root of the covariance of the predicted state amid a sequence.
    """
    steps, chains, k = y.shape
    kicks, start = covariance_root(system.transition_covariance), covariance_root(system.initial_covariance)
    mean, root = np.zeros((chains, k)), np.broadcast_to(steady, (chains, k, k))
    found, error = [], np.broadcast_to(np.eye(k), (chains, k, k))
    for t in range(steps):
        if t:
            mean, root = _times(system.transition, mean), joint_root(system.transition @ root, kicks)
            mean, root = _bounded(mean), _bounded(root)
        if t == begin:
            mean = np.where(first[:, None], system.initial_mean, mean)
            root = np.where(first[:, None, None], start, root)
        update = update_covariance(root, factors[t])
        surprise = y[t] - _times(factors[t], mean)
        after, root = mean + _times(update.gain, surprise), update.root
        squares = (_times(update.whitener, surprise) ** 2).sum(axis=-1)
        density = -0.5 * (squares + update.log_determinant + k * _LOG_2_PI)
        error = _bounded(update.left @ (system.transition @ error if t % (steps - begin) else np.eye(k)))
        remembered = np.abs(in_own_units(error, steady)).max(axis=(1, 2))
        found.append((after, mean, surprise, density, root, remembered))
        mean = after
    return FilteredStates(*(np.stack(column) for column in zip(*found, strict=True)))


def _bounded(values: Floats) -> Floats:
    """Keep pieces finite where they grow through frames that are missing: nothing is known there beyond some size."""
    axes = tuple(range(1, values.ndim))
    most = np.abs(values).max(axis=axes, keepdims=True)
    return values if (most <= LOST).all() else values * (LOST / np.maximum(most, LOST))


def filtered_covariances(gains: tuple[Gains, Gains], first: Mask, begin: int, steps: int) -> Floats:
    """Covariances that go with `filter_pieces`.

    first (pieces,): as `filter_pieces` takes it; begin, steps: likewise, and the number of steps. Returns (steps,
    pieces, k, k): covariances of the filtered states.
    """
    return np.where(
        first[:, None, None],
        gains[0].update.filtered[_places(gains[0], begin, steps), None],
        gains[1].update.filtered[0],
    )


def smoothed_complete(
    system: LinearSystem,
    factor: Floats,
    gains: tuple[Gains, Gains],
    filtered: Filtered,
    first: Mask,
    ends: NDArray[np.int64],
    begin: int,
) -> tuple[Floats, Floats]:
    """Smooth pieces of complete frames, with covariances.

    factor (k, k): F; first (pieces,): as `filter_pieces` takes it; ends (pieces,): step after the last frame of each
    piece. Returns means (steps, pieces, k): means of the states given all frames of their pieces; of no meaning after a
    piece's end; covariances (steps, pieces, k, k): likewise.
    """
    kinds, which = np.unique(np.stack([first, ends], axis=1), axis=0, return_inverse=True)
    steps, starts = len(filtered.means), gains[0].update.root[_places(gains[0], begin, len(filtered.means)), None]
    roots = np.where(kinds[:, 0, None, None] > 0, starts, gains[1].update.root[0])
    factors = factor * (np.arange(steps)[:, None] < kinds[:, 1])[:, :, None, None]
    found = smooth_kinds(system, filtered, roots, factors, which.ravel())
    return found.means, found.covariances


def _places(start: Gains, begin: int, steps: int) -> NDArray[np.int64]:
    """Entry of the table for each step of a piece that begins a sequence."""
    return np.clip(np.arange(steps) - begin, 0, len(start) - 1)


def _step_back(
    system: LinearSystem, kicks: Floats, information: Floats, factor: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Go one frame back: the square-root information filter, whose update is the filter's with T turned round.

    What later frames say of a state s is w = C^T s + N(0, I). kicks (k, k): root of Q; information (..., k, k): C of
    the next state; factor (..., k, k): F of its frame. Returns C; carry and take: w is carry w' + take y, of what the
    next state's w' and y say; and T^T (I + X Q)^{-1}, X the information of the next frame and those after it.
    """
    k = len(kicks)
    left, right = np.linalg.qr(np.concatenate([information.swapaxes(-1, -2), factor], axis=-2))
    update = update_covariance(right.swapaxes(-1, -2), kicks.T)
    found = update.turn.swapaxes(-1, -2) @ left.swapaxes(-1, -2)
    back = system.transition.T
    return back @ update.root, found[..., :k], found[..., k:], back @ update.left


@dataclass(frozen=True)
class SmoothedStates:
    """What the smoother found.

    means (steps, pieces, k): mean of each state given all frames of its piece; covariances (steps, pieces, k, k): its
    covariance; lag_one (steps, kinds, k, k): cov(s_t, s_{t-1}); zeros at step 0.
    """

    means: Floats
    covariances: Floats
    lag_one: Floats


def smooth_kinds(
    system: LinearSystem, filtered: Filtered, roots: Floats, factors: Floats, which: NDArray[np.int64] | slice
) -> SmoothedStates:
    """Smooth pieces, of which those of a kind have the same covariances: what later frames add.

    Their information C C^T is run backwards and met with the filter's covariance: no inverse of a covariance is needed,
    so that states without noise do no harm, and nothing is taken off, so that no variance is negative.
    roots, factors (steps, kinds, k, k): of the filter's covariances, and F; zero where there is no frame; which
    (pieces,): kind of each piece.
    """
    steps, chains, k = filtered.means.shape
    kicks = covariance_root(system.transition_covariance)
    later, information = (
        np.zeros((chains, k)),
        np.zeros(roots.shape[1:]),
    )  # w of the state less its filtered mean, and C
    means, covariances = np.empty((steps, chains, k)), np.empty((steps, chains, k, k))
    lag_one, back = np.zeros(roots.shape), information
    for t in range(steps - 1, -1, -1):
        update = update_covariance(roots[t], information.swapaxes(1, 2))
        known = update.filtered
        means[t], covariances[t] = filtered.means[t] + _times(update.gain[which], later), known[which]
        if t + 1 < steps:
            lag_one[t + 1] = back.swapaxes(1, 2) @ known
        later = later + _times(information.swapaxes(1, 2)[which], filtered.means[t] - filtered.predicted[t])
        information, carry, take, back = _step_back(system, kicks, information, factors[t])
        later = _times(carry[which], later) + _times(take[which], filtered.surprise[t])
    return SmoothedStates(means, covariances, lag_one)


def _times(matrices: Floats, vectors: Floats) -> Floats:
    """Multiply vectors, piece by piece: the bits of a piece do not depend on the others."""
    found: Floats = (matrices @ vectors[..., None])[..., 0]
    return found
