"""Expectation-maximisation: parameters from sums over smoothed states, and an accelerated climb on a sample.

Steps of EM are short where noise is small or memory long. From the last few of them least squares extrapolates to where
they would end (Anderson, Iterative procedures for nonlinear integral equations, Journal of the ACM 12, 1965).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dask_dca.models.kalman.system import LinearSystem, positive_part, symmetric, without_growth

if TYPE_CHECKING:
    from collections.abc import Callable

    from dask_dca.geometry.arrays import Floats

    Look = Callable[[LinearSystem], tuple["StateSums", float]]

_LEAST_NOISE: Final = 1e-8  # of a channel's variance, of a state's variance
_NOTHING: Final = 1e-12  # share of a matrix's scale that is rounding


@dataclass(frozen=True)
class StateSums:
    """Expected sums over the smoothed states of all sequences.

    n_sequences (1,); every (k + 1, k + 1): E[u u^T], u = (s, 1); pairs (k, k): of s_t s_{t-1}^T; before, after (k, k):
    second moments of those s_{t-1} and s_t; starts (k, k), start_means (k,): of the first states; cross (p, k + 1);
    second (p, p) or (p,); seen (p, k + 1, k + 1): `every` over the frames of each channel, where entries are missing.
    """

    every: Floats
    pairs: Floats
    before: Floats
    after: Floats
    starts: Floats
    start_means: Floats
    cross: Floats
    second: Floats
    sequences: Floats
    seen: Floats | None = None

    @property
    def n_sequences(self) -> float:
        """Number of sequences."""
        return float(self.sequences[0])

    @property
    def n_frames(self) -> float:
        """Number of frames."""
        return float(self.every[-1, -1])

    @property
    def counts(self) -> Floats | float:
        """Number of frames of each channel."""
        return self.n_frames if self.seen is None else self.seen[:, -1, -1]

    @property
    def n_pairs(self) -> float:
        """Number of pairs of successive frames."""
        return max(self.n_frames - self.n_sequences, 1.0)


def corrected_sums(whole: StateSums, before: StateSums, after: StateSums) -> StateSums:
    """Sums of all frames, if another system changes them as it changes those of a sample, per frame.

    whole, before: of all frames and of the sample, with one system; after: of the sample, with the other.
    """

    def _changed(names: tuple[str, ...], factor: float) -> dict[str, Any]:
        parts = {name: [getattr(sums, name) for sums in (whole, after, before)] for name in names}
        return {name: own + factor * (now - then) for name, (own, now, then) in parts.items() if own is not None}

    return replace(
        whole,
        **_changed(("every", "cross", "second", "seen"), whole.n_frames / after.n_frames),
        **_changed(("pairs", "before", "after"), whole.n_pairs / after.n_pairs),
        **_changed(("starts", "start_means"), whole.n_sequences / after.n_sequences),
    )


def change_sums_basis(sums: StateSums, basis: Floats) -> StateSums:
    """Express sums over states in another basis.

    basis (k, k): columns are states, in the present basis, that become the unit vectors.
    """
    inverse, k = np.asarray(np.linalg.inv(basis), dtype=np.float64), len(basis)
    lifted = np.eye(k + 1)
    lifted[:k, :k] = inverse

    def _turned(matrix: Floats, left: Floats) -> Floats:
        found: Floats = left @ matrix @ left.T
        return found

    return replace(
        sums,
        every=_turned(sums.every, lifted),
        pairs=_turned(sums.pairs, inverse),
        before=_turned(sums.before, inverse),
        after=_turned(sums.after, inverse),
        starts=_turned(sums.starts, inverse),
        start_means=inverse @ sums.start_means,
        cross=sums.cross @ lifted.T,
        seen=None if sums.seen is None else _turned(sums.seen, lifted),
    )


def expected_log_density(system: LinearSystem, sums: StateSums) -> float:
    """Expected log density of states and frames given the first states, without constants: the M-step's objective."""
    noise = system.observation_covariance
    dynamics = _gaussian(system.transition_covariance, left_of_states(sums, system.transition), sums.n_pairs)
    left = left_of_channels(sums, np.column_stack([system.observation, system.offset]))
    if noise.ndim == 2:
        return dynamics + _gaussian(noise, left, sums.n_frames)
    return dynamics - 0.5 * float((sums.counts * (np.log(noise) + left / noise)).sum())


def _gaussian(covariance: Floats, left: Floats, n: float) -> float:
    """Log density of n Gaussian vectors without constants; left (k, k): the mean of their products."""
    least = 1e-14 * float(np.trace(covariance)) / len(covariance) + 1e-300  # states that stand still have no noise
    covariance = covariance + least * np.eye(len(covariance))
    return -0.5 * n * float(np.linalg.slogdet(covariance)[1] + np.trace(np.linalg.solve(covariance, left)))


def m_step(sums: StateSums) -> LinearSystem:
    """Return the parameters of greatest expected likelihood.

    sums: from the E-step. R is diagonal where only the diagonal of `second` is given. Returns the parameters. The first
    state's mean and covariance are drawn to those of all states where there are few sequences to learn them from.
    """
    k = len(sums.pairs)
    coefficients, noise = _observation(sums)
    transition, kicks = _dynamics(sums)
    share = sums.n_sequences / (sums.n_sequences + k + 2.0)
    mean = share * sums.start_means / sums.n_sequences
    pooled = share * sums.starts / sums.n_sequences + (1.0 - share) * sums.every[:k, :k] / sums.n_frames
    start = positive_part(pooled - np.multiply.outer(mean, mean))
    return LinearSystem(transition, coefficients[:, :k].copy(), kicks, noise, mean, start, coefficients[:, k].copy())


def _dynamics(sums: StateSums) -> tuple[Floats, Floats]:
    """T and Q."""
    transition = without_growth(solve_moments(sums.before, sums.pairs.T).T)
    every = float(np.trace(sums.every)) - sums.every[-1, -1]
    least = _LEAST_NOISE * every / (len(transition) * sums.n_frames)
    return transition, positive_part(left_of_states(sums, transition), least)


def _observation(sums: StateSums) -> tuple[Floats, Floats]:
    """O with the offset as its last column, and R."""
    if sums.seen is None:
        coefficients = solve_moments(sums.every, sums.cross.T).T
    else:
        coefficients = _channel_by_channel(sums.seen, sums.cross)
    noise = left_of_channels(sums, coefficients)
    if noise.ndim == 1:
        return coefficients, np.maximum(noise, _floor(sums.second / np.maximum(sums.counts, 1.0)))
    own = np.maximum(np.diagonal(noise), _floor(np.diagonal(sums.second) / sums.n_frames))
    roots = np.sqrt(own)
    correlations = shrink_correlations(noise / np.multiply.outer(roots, roots), sums.n_frames)
    return coefficients, correlations * np.multiply.outer(roots, roots)


def left_of_states(sums: StateSums, transition: Floats) -> Floats:
    """Return the covariance of what states hold beyond what the ones before lead to, (k, k)."""
    moved = transition @ sums.pairs.T
    return (sums.after - moved - moved.T + transition @ sums.before @ transition.T) / sums.n_pairs


def left_of_channels(sums: StateSums, coefficients: Floats) -> Floats:
    """Return the covariance of what frames hold beyond states and offset (p, p), or its diagonal (p,)."""
    if sums.second.ndim == 1:
        every = sums.seen
        middle = coefficients @ sums.every if every is None else np.matmul(coefficients[:, None], every)[:, 0]
        left = sums.second - 2.0 * (sums.cross * coefficients).sum(axis=1) + (middle * coefficients).sum(axis=1)
        return left / np.maximum(sums.counts, 1.0)
    outer = sums.cross @ coefficients.T
    return symmetric(sums.second - outer - outer.T + coefficients @ sums.every @ coefficients.T) / sums.n_frames


def _channel_by_channel(seen: Floats, cross: Floats) -> Floats:
    """O with the offset where entries are missing: every channel has its own frames."""
    size = np.trace(seen, axis1=1, axis2=2)
    ridge = _NOTHING * np.where(size > 0.0, size, 1.0)
    solved = np.linalg.solve(seen + ridge[:, None, None] * np.eye(seen.shape[1]), cross[:, :, None])
    return np.asarray(solved[..., 0], dtype=np.float64)


def shrink_correlations(correlations: Floats, n: float) -> Floats:
    """Shrink correlations to zero by as much of them as is mere chance.

    Schaefer and Strimmer, A shrinkage approach to large-scale covariance matrix estimation, Statistical Applications in
    Genetics and Molecular Biology 4, 2005, with the variance that a correlation of Gaussian numbers has.
    correlations (p, p): correlations; n: frames that they come from. Returns (p, p): positive definite.
    """
    found = correlations.copy()
    np.fill_diagonal(found, 0.0)
    squares, p = float((found**2).sum()), len(found)
    chance = (float(((1.0 - np.minimum(found**2, 1.0)) ** 2).sum()) - p) / n
    found *= 1.0 - min(1.0, chance / squares) if squares > 0.0 else 1.0
    np.fill_diagonal(found, 1.0)
    return positive_part(found, _LEAST_NOISE)


def _floor(variances: Floats) -> Floats:
    """Least noise of a channel; constant channels get some of the others'."""
    least = _LEAST_NOISE * variances
    return np.where(least > 0.0, least, _LEAST_NOISE * (float(variances.mean()) or 1.0))


def solve_moments(matrix: Floats, right: Floats) -> Floats:
    """Solve for a positive matrix; if it is singular, the solution of least length."""
    scale = np.sqrt(np.maximum(np.diagonal(matrix), 1e-300))
    scaled, right = matrix / np.multiply.outer(scale, scale), right / scale[:, None]
    try:
        found: Floats = cho_solve(cho_factor(scaled), right)
    except np.linalg.LinAlgError:
        found = np.asarray(np.linalg.lstsq(scaled, right, rcond=_NOTHING)[0], dtype=np.float64)
    return found / scale[:, None]


_MEMORY: Final = 10  # steps that are extrapolated from
_RIDGE: Final = 1e-6  # of the greatest singular value, squared: directions of less are not followed
_NATS: Final = 0.1  # a rise that is none; so many
_LEVEL: Final = 3  # of them in a row are the end
_LARGEST: Final = 0.9999  # eigenvalue of an extrapolated transition


def climb(system: LinearSystem, look: Look, n_looks: int) -> LinearSystem:
    """Raise the likelihood as far as so many looks at the sample can.

    look: the E-step: sums of the states, and what is to be raised; n_looks: at most; with one it is a step of EM.
    """
    sums, value = look(system)
    image = m_step(sums)
    points, images, looks, level = [_pack(system)], [_pack(image)], 1, 0
    while looks < n_looks and level < _LEVEL:
        found = None
        if len(points) > 1:
            found, looks = _attempt(points, images, image, look, value), looks + 1
            if found is None:
                points, images = [], []
        if found is None:
            found, looks = (image, *look(image)), looks + 1
        level = level + 1 if abs(found[2] - value) < _NATS else 0
        system, sums, value = found
        image = m_step(sums)
        points, images = [*points, _pack(system)][-_MEMORY - 1 :], [*images, _pack(image)][-_MEMORY - 1 :]
    return image


def corrected(look: Look, whole: StateSums, system: LinearSystem) -> Look:
    """Let a sample stand for all frames: what these have of their own is added to what it says.

    whole: sums over all frames, of this system. Returns a look whose fixed point is that of all frames, except for what
    changes otherwise in the sample between the system and the fixed point.
    """
    before = look(system)[0]
    factor = whole.n_frames / before.n_frames

    def _look(other: LinearSystem) -> tuple[StateSums, float]:
        after, value = look(other)
        sums = corrected_sums(whole, before, after)
        own = expected_log_density(other, sums) - factor * expected_log_density(other, after)
        return sums, factor * value + own

    return _look


def _attempt(
    points: list[Floats], images: list[Floats], like: LinearSystem, look: Look, value: float
) -> tuple[LinearSystem, StateSums, float] | None:
    """Extrapolate; None where that is no system, or a worse one."""
    with np.errstate(all="ignore"):
        try:
            system = _unpack(_extrapolated(np.array(points), np.array(images)), like)
            sums, reached = look(system)
        except np.linalg.LinAlgError:
            return None
    return (system, sums, reached) if reached >= value else None


def _extrapolated(points: Floats, images: Floats) -> Floats:
    steps = images - points
    changes, moves = np.diff(steps, axis=0).T, np.diff(images, axis=0).T
    size = np.linalg.norm(changes, axis=0)
    size = np.where(size > 0.0, size, 1.0)
    left, values, right = np.linalg.svd(changes / size, full_matrices=False)
    weights = right.T @ (values / (values**2 + _RIDGE * values[0] ** 2 + 1e-300) * (left.T @ steps[-1])) / size
    return np.asarray(images[-1] - moves @ weights, dtype=np.float64)


def _pack(system: LinearSystem) -> Floats:
    """All parameters except those of first states, covariances by their factors."""
    noise = system.observation_covariance
    seen = np.sqrt(noise) if noise.ndim == 1 else _lower(noise)
    parts = (system.transition, system.observation, system.offset, _lower(system.transition_covariance), seen)
    return np.concatenate([part.ravel() for part in parts])


def _lower(covariance: Floats) -> Floats:
    size = float(np.trace(covariance)) / len(covariance)
    lower = np.linalg.cholesky(positive_part(covariance, max(1e-12 * size, 1e-300)))[np.tril_indices(len(covariance))]
    return np.asarray(lower, dtype=np.float64)


def _unpack(vector: Floats, like: LinearSystem) -> LinearSystem:
    """The system of these parameters, with the first states of another."""
    k, p, full = like.n_dim_state, like.n_dim_obs, like.observation_covariance.ndim == 2
    sizes = np.cumsum([k * k, p * k, p, k * (k + 1) // 2])
    transition, observation, offset, *lower = np.split(vector, sizes)
    return replace(
        like,
        transition=without_growth(transition.reshape(k, k), _LARGEST),
        observation=observation.reshape(p, k).copy(),
        transition_covariance=_square(lower[0], k),
        observation_covariance=_square(lower[1], p) if full else lower[1] ** 2,
        offset=offset.copy(),
    )


def _square(lower: Floats, size: int) -> Floats:
    root = np.zeros((size, size))
    root[np.tril_indices(size)] = lower
    return root @ root.T
