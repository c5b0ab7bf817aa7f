"""Square-root Kalman filter and smoother, run over many pieces of sequences at once.

Observations are the reduced frames y = F s + N(0, I) of `reduce_frames`. A covariance P is stored as a root L with
P = L L^T, so that it is positive semidefinite by construction, and small variances beside huge ones keep their digits
(Kaminski, Bryson and Schmidt, Discrete square root filtering, IEEE Transactions on Automatic Control 16, 1971).

Arrays are (steps, pieces, k), so that step t of a recursion is one matrix product over all pieces. For complete frames
the covariances do not depend on the data: `start_gains` tabulates the gains of the first frames of a sequence until
they converge, and pieces that begin inside a sequence use the steady gains. With missing entries each piece has
covariances of its own; a step outside the sequence is a frame whose entries are all missing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.arrays import Floats, Mask
from dask_dca.models.kalman.system import (
    LOG_2_PI,
    LinearSystem,
    covariance_root,
    prepare_observer,
    reduce_incomplete,
    regularised,
    split_reduced,
)

_RICCATI_RTOL: Final = 1e-13  # convergence of covariances: change relative to the states' standard deviations
_MAX_RICCATI_STEPS: Final = 4096  # maximum number of frames in a table of gains
_DIVERGED: Final = 1e100  # an error growing beyond this is never forgotten; its square is still finite
MAX_DEVIATION: Final = 1e50  # cap on standard deviations of unobserved states; its fourth power is still finite


@dataclass(frozen=True)
class Update:
    """Measurement update of a predicted covariance P = L L^T, of innovation covariance S = F P F^T + I.

    All (..., k, k): root_update: L root_update is the root of the filtered covariance; root: this root; gain:
    P F^T S^{-1}; complement: I - gain F; weight: S^{-1} F; whitener: S^{-1/2}, since squares of whitened innovations
    keep digits that products with S^{-1} lose. log_determinant (...): log det S.
    """

    root_update: Floats
    root: Floats
    gain: Floats
    complement: Floats
    weight: Floats
    whitener: Floats
    log_determinant: Floats

    @property
    def filtered(self) -> Floats:
        """Filtered covariance (..., k, k)."""
        return covariance_of_root(self.root)


@dataclass(frozen=True)
class Gains:
    """Covariances and gains of the first m frames of a sequence, if they are complete.

    root (m, k, k): of the predicted covariances; update: the measurement updates, of shapes (m, k, k) and (m,);
    closed_loop (m, k, k): (I - gain F) T, which maps the filtered mean of a frame to the next one.
    """

    root: Floats
    update: Update
    closed_loop: Floats

    @property
    def predicted(self) -> Floats:
        """Predicted covariances (m, k, k)."""
        return covariance_of_root(self.root)

    def __len__(self) -> int:
        return len(self.root)


def update_covariance(root: Floats, factor: Floats) -> Update:
    """Compute the measurement update P (I + F^T F P)^{-1} by the SVD of F L, without a subtraction.

    root (..., k, k): L of the predicted covariance; factor (..., k, k): F.
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


def root_of_sum(one: Floats, other: Floats) -> Floats:
    """Compute a root of the sum of two covariances from their roots, all (..., k, k)."""
    both = np.concatenate(np.broadcast_arrays(one, other), axis=-1)
    found: Floats = np.asarray(np.linalg.qr(both.swapaxes(-1, -2), mode="r"), dtype=np.float64)
    return found.swapaxes(-1, -2)


def covariance_of_root(root: Floats) -> Floats:
    """Form the covariances L L^T of roots L (..., k, k)."""
    return root @ root.swapaxes(-1, -2)


def next_state(system: LinearSystem, before: tuple[Floats, Floats] | None, frame: Floats) -> tuple[Floats, Floats]:
    """Filter one frame.

    before: filtered mean (k,) and covariance (k, k) at the previous frame; None at the beginning of a sequence; frame
    (p,): NaN where an entry is missing. Returns the filtered mean and covariance.
    """
    if before is None:
        mean, covariance = system.initial_mean, system.initial_covariance
    else:
        mean = system.transition @ before[0]
        covariance = system.transition @ before[1] @ system.transition.T + system.transition_covariance
    observer = prepare_observer(regularised(system))
    y, _, factor = (part[0] for part in split_reduced(reduce_incomplete(observer, frame[None]), len(mean)))
    update = update_covariance(covariance_root(covariance), factor)
    return mean + update.gain @ (y - factor @ mean), update.filtered


def start_gains(
    system: LinearSystem, factor: Floats, max_steps: int = _MAX_RICCATI_STEPS, rtol: float = _RICCATI_RTOL
) -> Gains:
    """Iterate the Riccati recursion from the initial covariance until it converges.

    factor (k, k): F of complete frames; max_steps: maximum number of frames; rtol: convergence threshold, relative to
    the states' standard deviations. Returns gains of the first frames; the last ones hold for all later frames.
    """
    root, noise_root = covariance_root(system.initial_covariance), covariance_root(system.transition_covariance)
    before = []
    for _ in range(max_steps):
        before.append(root)
        _, sizes, right = np.linalg.svd(factor @ root)
        later = root_of_sum(system.transition @ ((root @ right.T) / np.sqrt(1.0 + sizes**2)), noise_root)
        _refuse_growth(system, later, len(before))
        if _has_converged(covariance_of_root(root), covariance_of_root(later), rtol):
            break
        root = later
    found = update_covariance(np.stack(before), factor)
    return Gains(np.stack(before), found, found.complement @ system.transition)


def _refuse_growth(system: LinearSystem, root: Floats, n_frames: int) -> None:
    """Raise InvalidParameterError if the covariance of an unobserved state grows without bound."""
    if np.abs(root).max(initial=0.0) <= MAX_DEVIATION:
        return
    size = float(np.abs(np.linalg.eigvals(system.transition)).max())
    msg = (
        f"a growing state is not observed: after {n_frames} frames its standard deviation is above {MAX_DEVIATION:g}, "
        f"since transition_matrices has an eigenvalue of size {size:.6g}; pass transition_matrices / {size:.6g}, or "
        "observation_matrices by which some channel observes it"
    )
    raise InvalidParameterError(msg)


def _has_converged(before: Floats, after: Floats, share: float) -> bool:
    scale = np.sqrt(np.diagonal(before))
    return bool((np.abs(after - before) <= share * np.multiply.outer(scale, scale)).all())


def steady_gains(start: Gains) -> Gains:
    """Take the last gains of the table, the steady state."""
    update = Update(*(getattr(start.update, field.name)[-1:] for field in fields(Update)))
    return Gains(start.root[-1:], update, start.closed_loop[-1:])


def memory_length(steady: Gains, tolerance: float) -> float:
    """Compute the number of frames after which the filter has forgotten its initial state.

    tolerance: remaining share of an initial error, in standard deviations of the predicted states. Returns infinity if
    the filter never forgets.
    """
    closed_loop = in_state_units(steady.closed_loop[-1], steady.root[-1])
    power, frames = closed_loop, 1.0
    scale = max(1.0, float(np.linalg.norm(closed_loop, 2)))
    steps = [closed_loop]
    while np.linalg.norm(power, 2) > tolerance * scale:  # powers 1, 2, 4, ...; a transient growth counts
        if frames > 2.0**40 or np.abs(power).max() > _DIVERGED:
            return float("inf")
        power, frames = power @ power, 2.0 * frames
        steps.append(power)
    found, reached = 0.0, np.eye(len(closed_loop))
    for i in range(len(steps) - 2, -1, -1):  # the greatest number of frames that is not enough, bit by bit
        trial = reached @ steps[i]
        if np.linalg.norm(trial, 2) > tolerance * scale:
            reached, found = trial, found + 2.0**i
    return found + 1.0


def in_state_units(matrices: Floats, root: Floats) -> Floats:
    """Express linear maps of states in units of the states' standard deviations.

    matrices (..., k, k): maps; root (k, k): of the states' covariance. Returns (..., k, k): D^{-1} M D.
    """
    size = np.linalg.norm(root, axis=1)
    size = np.where(size > 0.0, size, 1.0)
    return matrices * (size / size[:, None])


@dataclass(frozen=True)
class Filtered:
    """Filtered means of pieces.

    means, predicted (steps, pieces, k): filtered and predicted means of the states; innovations (steps, pieces, k):
    y - F predicted, zero where there is no frame; log_density (steps, pieces): of y given the previous frames.
    """

    means: Floats
    predicted: Floats
    innovations: Floats
    log_density: Floats


def filter_pieces(
    system: LinearSystem, factor: Floats, gains: tuple[Gains, Gains], y: Floats, inside: Mask, first: Mask, begin: int
) -> Filtered:
    """Filter pieces of complete frames.

    factor (k, k): F; gains: of the first frames of a sequence, and steady ones; y (steps, pieces, k): from
    `reduce_frames`; inside (steps, pieces): where there is a frame; first (pieces,): pieces whose sequence begins at
    step `begin`; the others begin inside a sequence, at step 0.
    """
    start, steady = gains
    corrections = y @ steady.update.gain[0].T
    means = np.empty_like(y)
    closed_loop = np.ascontiguousarray(steady.closed_loop[0].T)
    mean = np.zeros(y.shape[1:])
    for t in range(len(y)):
        i = t - begin
        if 0 <= i < len(start) and first.any():
            before = (
                mean @ start.closed_loop[i].T
                if i
                else np.broadcast_to(start.update.complement[0] @ system.initial_mean, mean.shape)
            )
            own = before + y[t] @ start.update.gain[i].T
            mean = np.where(first[:, None], own, mean @ closed_loop + corrections[t])
        else:
            mean = mean @ closed_loop + corrections[t]
        means[t] = mean
    predicted = np.zeros_like(y)
    predicted[1:] = means[:-1] @ system.transition.T
    predicted[begin, first] = system.initial_mean
    innovations = (y - predicted @ factor.T) * inside[:, :, None]
    return Filtered(means, predicted, innovations, _log_density(gains, innovations, inside, first, begin))


def _log_density(gains: tuple[Gains, Gains], innovations: Floats, inside: Mask, first: Mask, begin: int) -> Floats:
    """Gaussian log density of each innovation, of covariance S."""
    k, (start, steady) = innovations.shape[2], gains
    white = innovations @ steady.update.whitener[0].T
    logs = np.full(innovations.shape[:2], steady.update.log_determinant[0])
    for i in range(min(len(start), len(innovations) - begin) if first.any() else 0):
        own = innovations[begin + i] @ start.update.whitener[i].T
        white[begin + i] = np.where(first[:, None], own, white[begin + i])
        logs[begin + i] = np.where(first, start.update.log_determinant[i], logs[begin + i])
    found = -0.5 * ((white**2).sum(axis=2) + logs + k * LOG_2_PI)
    return np.where(inside, found, 0.0)


def smooth_pieces(
    system: LinearSystem, gains: tuple[Gains, Gains], filtered: Filtered, first: Mask, begin: int
) -> Floats:
    """Smooth the means of pieces of complete frames by de Jong's recursion, which inverts no covariance.

    first (pieces,), begin: as in `filter_pieces`. Returns (steps, pieces, k): smoothed means.
    """
    start, steady = gains
    closed_loop, weight = np.ascontiguousarray(steady.closed_loop[0]), steady.update.weight[0] @ system.transition
    weighted = filtered.innovations @ weight
    means = np.empty_like(weighted)
    later = np.zeros(weighted.shape[1:])  # de Jong's r, the contribution of later frames
    hats = np.empty_like(weighted)
    for t in range(len(weighted) - 1, -1, -1):
        hats[t] = later
        i = t - begin
        if 0 <= i < len(start) and first.any():
            own = later @ start.closed_loop[i] + filtered.innovations[t] @ (start.update.weight[i] @ system.transition)
            later = np.where(first[:, None], own, later @ closed_loop + weighted[t])
        else:
            later = later @ closed_loop + weighted[t]
    means, known = filtered.means + hats @ steady.update.filtered[0], start.update.filtered
    for i in range(min(len(start), len(hats) - begin) if first.any() else 0):
        own = filtered.means[begin + i] + hats[begin + i] @ known[i]
        means[begin + i] = np.where(first[:, None], own, means[begin + i])
    return means


@dataclass(frozen=True)
class FilteredStates(Filtered):
    """Filtered means and covariances of pieces.

    roots (steps, pieces, k, k): of the filtered covariances; initial_error (steps, pieces): remaining share of an
    error in the initial state.
    """

    roots: Floats
    initial_error: Floats

    @property
    def covariances(self) -> Floats:
        """Filtered covariances (steps, pieces, k, k)."""
        return covariance_of_root(self.roots)


def filter_states(
    system: LinearSystem, y: Floats, factors: Floats, first: Mask, begin: int, steady: Floats
) -> FilteredStates:
    """Filter pieces of frames with missing entries.

    y (steps, pieces, k), factors (steps, pieces, k, k): observations and F, from `reduce_incomplete`; zero where
    there is no frame; first (pieces,): pieces whose sequence begins at step `begin`; the others begin inside a
    sequence, at step 0; steady (k, k): root of the predicted covariance there.
    """
    steps, n_pieces, k = y.shape
    noise_root, start = covariance_root(system.transition_covariance), covariance_root(system.initial_covariance)
    mean, root = np.zeros((n_pieces, k)), np.broadcast_to(steady, (n_pieces, k, k))
    found, error = [], np.broadcast_to(np.eye(k), (n_pieces, k, k))
    for t in range(steps):
        if t:
            mean, root = _multiply_vectors(system.transition, mean), root_of_sum(system.transition @ root, noise_root)
            mean, root = _bounded(mean), _bounded(root)
        if t == begin:
            mean = np.where(first[:, None], system.initial_mean, mean)
            root = np.where(first[:, None, None], start, root)
        update = update_covariance(root, factors[t])
        innovations = y[t] - _multiply_vectors(factors[t], mean)
        after, root = mean + _multiply_vectors(update.gain, innovations), update.root
        squares = (_multiply_vectors(update.whitener, innovations) ** 2).sum(axis=-1)
        density = -0.5 * (squares + update.log_determinant + k * LOG_2_PI)
        error = _bounded(update.complement @ (system.transition @ error if t % (steps - begin) else np.eye(k)))
        initial_error = np.abs(in_state_units(error, steady)).max(axis=(1, 2))
        found.append((after, mean, innovations, density, root, initial_error))
        mean = after
    return FilteredStates(*(np.stack(column) for column in zip(*found, strict=True)))


def _bounded(values: Floats) -> Floats:
    """Scale down pieces that grow beyond MAX_DEVIATION over missing frames, so that they stay finite."""
    axes = tuple(range(1, values.ndim))
    most = np.abs(values).max(axis=axes, keepdims=True)
    return values if (most <= MAX_DEVIATION).all() else values * (MAX_DEVIATION / np.maximum(most, MAX_DEVIATION))


def filtered_covariances(gains: tuple[Gains, Gains], first: Mask, begin: int, steps: int) -> Floats:
    """Look up the filtered covariances of pieces of complete frames.

    first (pieces,), begin: as in `filter_pieces`. Returns (steps, pieces, k, k).
    """
    return np.where(
        first[:, None, None],
        gains[0].update.filtered[_table_rows(gains[0], begin, steps), None],
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
    """Smooth means and covariances of pieces of complete frames.

    factor (k, k): F; first (pieces,), begin: as in `filter_pieces`; ends (pieces,): step after the last frame of each
    piece. Returns means (steps, pieces, k) and covariances (steps, pieces, k, k), undefined after a piece's end.
    """
    kinds, which = np.unique(np.stack([first, ends], axis=1), axis=0, return_inverse=True)
    steps, starts = len(filtered.means), gains[0].update.root[_table_rows(gains[0], begin, len(filtered.means)), None]
    roots = np.where(kinds[:, 0, None, None] > 0, starts, gains[1].update.root[0])
    factors = factor * (np.arange(steps)[:, None] < kinds[:, 1])[:, :, None, None]
    found = smooth_by_kind(system, filtered, roots, factors, which.ravel())
    return found.means, found.covariances


def _table_rows(start: Gains, begin: int, steps: int) -> NDArray[np.int64]:
    """Index into the table of gains for each step of a piece that begins a sequence."""
    return np.clip(np.arange(steps) - begin, 0, len(start) - 1)


def _information_step(
    system: LinearSystem, noise_root: Floats, information: Floats, factor: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Take one step back of the square-root information filter, the dual of the measurement update.

    Later frames observe a state s as w = C^T s + N(0, I). noise_root (k, k): root of Q; information (..., k, k): C of
    the next state; factor (..., k, k): F of its frame. Returns C; `carry` and `take`, with w = carry w' + take y for w'
    and y of the next state; and T^T (I + X Q)^{-1}, X the information of the next frame and those after it.
    """
    k = len(noise_root)
    left, right = np.linalg.qr(np.concatenate([information.swapaxes(-1, -2), factor], axis=-2))
    update = update_covariance(right.swapaxes(-1, -2), noise_root.T)
    found = update.root_update.swapaxes(-1, -2) @ left.swapaxes(-1, -2)
    back = system.transition.T
    return back @ update.root, found[..., :k], found[..., k:], back @ update.complement


@dataclass(frozen=True)
class SmoothedStates:
    """Smoothed means and covariances of pieces.

    means (steps, pieces, k), covariances (steps, pieces, k, k); lag_one (steps, kinds, k, k): Cov(s_t, s_{t-1}), zero
    at step 0.
    """

    means: Floats
    covariances: Floats
    lag_one: Floats


def smooth_by_kind(
    system: LinearSystem, filtered: Filtered, roots: Floats, factors: Floats, which: NDArray[np.int64] | slice
) -> SmoothedStates:
    """Smooth pieces, where pieces of one kind have the same covariances.

    The information C C^T of later frames is run backwards and combined with the filtered covariances: states without
    noise are no problem since no covariance is inverted, and variances are never negative since nothing is subtracted.
    roots, factors (steps, kinds, k, k): of the filtered covariances, and F, zero where there is no frame; which
    (pieces,): kind of each piece.
    """
    steps, n_pieces, k = filtered.means.shape
    noise_root = covariance_root(system.transition_covariance)
    # w for the deviation of the state from its filtered mean, and C
    later, information = np.zeros((n_pieces, k)), np.zeros(roots.shape[1:])
    means, covariances = np.empty((steps, n_pieces, k)), np.empty((steps, n_pieces, k, k))
    lag_one, back = np.zeros(roots.shape), information
    for t in range(steps - 1, -1, -1):
        update = update_covariance(roots[t], information.swapaxes(1, 2))
        known = update.filtered
        means[t], covariances[t] = filtered.means[t] + _multiply_vectors(update.gain[which], later), known[which]
        if t + 1 < steps:
            lag_one[t + 1] = back.swapaxes(1, 2) @ known
        later = later + _multiply_vectors(information.swapaxes(1, 2)[which], filtered.means[t] - filtered.predicted[t])
        information, carry, take, back = _information_step(system, noise_root, information, factors[t])
        later = _multiply_vectors(carry[which], later) + _multiply_vectors(take[which], filtered.innovations[t])
    return SmoothedStates(means, covariances, lag_one)


def _multiply_vectors(matrices: Floats, vectors: Floats) -> Floats:
    """Multiply vectors piece by piece, so that the bits of a piece do not depend on the others."""
    return (matrices @ vectors[..., None])[..., 0]
