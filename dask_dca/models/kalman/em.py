"""Expectation-maximisation: the M-step from sums over smoothed states, and accelerated EM on a sample.

EM converges slowly where noise is small or memory long. Anderson acceleration extrapolates the last few steps to their
fixed point (Iterative procedures for nonlinear integral equations, Journal of the ACM 12, 1965).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dask_dca.geometry.arrays import Floats
from dask_dca.models.kalman.system import LinearSystem, limit_eigenvalues, positive_part, symmetric

EStep = Callable[[LinearSystem], tuple["StateSums", float]]

_NOISE_FLOOR: Final = 1e-8  # minimum noise variance, relative to the variance of the channel or the state
_SINGULAR_RTOL: Final = 1e-12  # relative cutoff below which singular values are rounding error


@dataclass(frozen=True)
class StateSums:
    """Expected sums over the smoothed states of all sequences.

    every (k + 1, k + 1): E[u u^T], u = (s, 1); pairs (k, k): E[s_t s_{t-1}^T]; before, after (k, k): second moments of
    these s_{t-1} and s_t; starts (k, k), start_means (k,): moments of first states; cross (p, k + 1): E[x u^T];
    second (p, p) or (p,): x x^T, or its diagonal; sequences (1,): their number; seen: with missing entries, `every`
    over observed frames: (k + 1, k + 1) if these are complete, (p, k + 1, k + 1) over those of each channel if not.
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
    def observed(self) -> Floats:
        """`every` over observed frames, (k + 1, k + 1) or (p, k + 1, k + 1)."""
        return self.every if self.seen is None else self.seen

    @property
    def counts(self) -> Floats:
        """Number of observed frames, or those of each channel (p,)."""
        return self.observed[..., -1, -1]

    @property
    def n_pairs(self) -> float:
        """Number of pairs of successive frames."""
        return max(self.n_frames - self.n_sequences, 1.0)


def corrected_sums(whole: StateSums, before: StateSums, after: StateSums) -> StateSums:
    """Estimate the sums over all frames under another system from the change of the sample's sums.

    whole, before: sums over all frames and over the sample under the present system; after: over the sample under the
    other one. Changes are scaled by the numbers of frames, of pairs and of sequences.
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

    basis (k, k): columns are the new unit vectors, in the present basis.
    """
    inverse, k = np.asarray(np.linalg.inv(basis), dtype=np.float64), len(basis)
    lifted = np.eye(k + 1)
    lifted[:k, :k] = inverse

    def _changed_basis(matrix: Floats, left: Floats) -> Floats:
        return left @ matrix @ left.T

    return replace(
        sums,
        every=_changed_basis(sums.every, lifted),
        pairs=_changed_basis(sums.pairs, inverse),
        before=_changed_basis(sums.before, inverse),
        after=_changed_basis(sums.after, inverse),
        starts=_changed_basis(sums.starts, inverse),
        start_means=inverse @ sums.start_means,
        cross=sums.cross @ lifted.T,
        seen=None if sums.seen is None else _changed_basis(sums.seen, lifted),
    )


def expected_log_density(system: LinearSystem, sums: StateSums) -> float:
    """Evaluate the M-step's objective: the expected log likelihood given first states, up to a constant."""
    noise = system.observation_covariance
    dynamics = _gaussian_log_density(system.transition_covariance, estimate_q(sums, system.transition), sums.n_pairs)
    left = estimate_r(sums, np.column_stack([system.observation, system.offset]))
    if noise.ndim == 2:
        return dynamics + _gaussian_log_density(noise, left, float(sums.counts))
    return dynamics - 0.5 * float((sums.counts * (np.log(noise) + left / noise)).sum())


def _gaussian_log_density(covariance: Floats, left: Floats, n: float) -> float:
    """Log density of n Gaussian vectors of second moment left (k, k), up to a constant."""
    least = 1e-14 * float(np.trace(covariance)) / len(covariance) + 1e-300  # Q of a constant state is singular
    covariance = covariance + least * np.eye(len(covariance))
    return -0.5 * n * float(np.linalg.slogdet(covariance)[1] + np.trace(np.linalg.solve(covariance, left)))


def m_step(sums: StateSums) -> LinearSystem:
    """Maximise the expected log likelihood.

    sums: from the E-step. R is diagonal where only the diagonal of `second` is given. Mean and covariance of the first
    state are shrunk towards those of all states, since few sequences say little about them.
    """
    k = len(sums.pairs)
    coefficients, noise = _fit_observation(sums)
    transition, noise_covariance = _fit_dynamics(sums)
    share = sums.n_sequences / (sums.n_sequences + k + 2.0)
    mean = share * sums.start_means / sums.n_sequences
    pooled = share * sums.starts / sums.n_sequences + (1.0 - share) * sums.every[:k, :k] / sums.n_frames
    start = positive_part(pooled - np.multiply.outer(mean, mean))
    return LinearSystem(
        transition, coefficients[:, :k].copy(), noise_covariance, noise, mean, start, coefficients[:, k].copy()
    )


def _fit_dynamics(sums: StateSums) -> tuple[Floats, Floats]:
    """Estimate T and Q."""
    transition = limit_eigenvalues(solve_normal_equations(sums.before, sums.pairs.T).T)
    every = float(np.trace(sums.every)) - sums.every[-1, -1]
    least = _NOISE_FLOOR * every / (len(transition) * sums.n_frames)
    return transition, positive_part(estimate_q(sums, transition), least)


def _fit_observation(sums: StateSums) -> tuple[Floats, Floats]:
    """Estimate O, with the offset as its last column, and R."""
    if sums.observed.ndim == 2:
        coefficients = solve_normal_equations(sums.observed, sums.cross.T).T
    else:
        coefficients = _fit_each_channel(sums.observed, sums.cross)
    noise = estimate_r(sums, coefficients)
    if noise.ndim == 1:
        return coefficients, np.maximum(noise, _noise_floors(sums.second / np.maximum(sums.counts, 1.0)))
    n = max(float(sums.counts), 1.0)
    least = _noise_floors(np.diagonal(sums.second) / n)
    roots = np.sqrt(np.maximum(np.diagonal(noise), least))
    correlations = shrink_correlations(noise / np.multiply.outer(roots, roots), n)
    return coefficients, positive_part(correlations * np.multiply.outer(roots, roots), float(least.min()))


def estimate_q(sums: StateSums, transition: Floats) -> Floats:
    """Compute the covariance (k, k) of s_t - T s_{t-1}."""
    moved = transition @ sums.pairs.T
    return (sums.after - moved - moved.T + transition @ sums.before @ transition.T) / sums.n_pairs


def estimate_r(sums: StateSums, coefficients: Floats) -> Floats:
    """Compute the covariance (p, p) of x - O s - offset, or its diagonal (p,)."""
    if sums.second.ndim == 1:
        every = sums.observed
        middle = coefficients @ every if every.ndim == 2 else np.matmul(coefficients[:, None], every)[:, 0]
        left = sums.second - 2.0 * (sums.cross * coefficients).sum(axis=1) + (middle * coefficients).sum(axis=1)
        return left / np.maximum(sums.counts, 1.0)
    outer = sums.cross @ coefficients.T
    left = symmetric(sums.second - outer - outer.T + coefficients @ sums.observed @ coefficients.T)
    return left / np.maximum(sums.counts, 1.0)


def _fit_each_channel(seen: Floats, cross: Floats) -> Floats:
    """Regress each channel on the states over the frames in which it is observed: O and the offset."""
    size = np.trace(seen, axis1=1, axis2=2)
    ridge = _SINGULAR_RTOL * np.where(size > 0.0, size, 1.0)
    solved = np.linalg.solve(seen + ridge[:, None, None] * np.eye(seen.shape[1]), cross[:, :, None])
    return np.asarray(solved[..., 0], dtype=np.float64)


def shrink_correlations(correlations: Floats, n: float) -> Floats:
    """Shrink correlations towards zero by their estimated sampling noise.

    Schaefer and Strimmer, A shrinkage approach to large-scale covariance matrix estimation, Statistical Applications in
    Genetics and Molecular Biology 4, 2005, with the variance of a sample correlation of Gaussian variables.
    correlations (p, p); n: number of frames. Returns (p, p), which rounding may leave singular.
    """
    found = correlations.copy()
    np.fill_diagonal(found, 0.0)
    squares, p = float((found**2).sum()), len(found)
    chance = (float(((1.0 - np.minimum(found**2, 1.0)) ** 2).sum()) - p) / n
    found *= 1.0 - min(1.0, chance / squares) if squares > 0.0 else 1.0
    np.fill_diagonal(found, 1.0)
    return found


def _noise_floors(variances: Floats) -> Floats:
    """Minimum noise variance of each channel (p,); constant channels take the mean of the others'."""
    least = _NOISE_FLOOR * variances
    return np.where(least > 0.0, least, _NOISE_FLOOR * (float(variances.mean()) or 1.0))


def solve_normal_equations(matrix: Floats, right: Floats) -> Floats:
    """Solve a positive semidefinite system by Cholesky; if it is singular, by least squares of minimum norm."""
    scale = np.sqrt(np.maximum(np.diagonal(matrix), 1e-300))
    scaled, right = matrix / np.multiply.outer(scale, scale), right / scale[:, None]
    try:
        found: Floats = cho_solve(cho_factor(scaled), right)
    except np.linalg.LinAlgError:
        found = np.asarray(np.linalg.lstsq(scaled, right, rcond=_SINGULAR_RTOL)[0], dtype=np.float64)
    return found / scale[:, None]


_ANDERSON_MEMORY: Final = 10  # number of past steps from which the next one is extrapolated
_ANDERSON_RIDGE: Final = 1e-6  # ridge of the extrapolation, as a ratio of singular values
_STALLED_RISE: Final = 0.1  # nats: a smaller change of the log likelihood counts as a stalled step
_MAX_STALLED_STEPS: Final = 3  # consecutive stalled steps after which the search ends
_MAX_EIGENVALUE: Final = 0.9999  # maximum absolute eigenvalue of an extrapolated transition matrix


def accelerated_em(system: LinearSystem, run_e_step: EStep, max_e_steps: int) -> LinearSystem:
    """Maximise the likelihood by EM with Anderson acceleration.

    run_e_step: from a system to its sums and log likelihood; max_e_steps: with one this is a plain EM step. An
    extrapolation that lowers the log likelihood is rejected, and the memory is cleared.
    """
    sums, value = run_e_step(system)
    image = m_step(sums)
    points, images, n_e_steps, n_stalled = [_pack(system)], [_pack(image)], 1, 0
    while n_e_steps < max_e_steps and n_stalled < _MAX_STALLED_STEPS:
        found = None
        if len(points) > 1:
            found, n_e_steps = _try_extrapolation(points, images, image, run_e_step, value), n_e_steps + 1
            if found is None:
                points, images = [], []
        if found is None:
            found, n_e_steps = (image, *run_e_step(image)), n_e_steps + 1
        n_stalled = n_stalled + 1 if abs(found[2] - value) < _STALLED_RISE else 0
        system, sums, value = found
        image = m_step(sums)
        points, images = (
            [*points, _pack(system)][-_ANDERSON_MEMORY - 1 :],
            [*images, _pack(image)][-_ANDERSON_MEMORY - 1 :],
        )
    return image


def corrected_e_step(run_e_step: EStep, whole: StateSums, system: LinearSystem) -> EStep:
    """Make an E-step on a sample that approximates that on all frames.

    whole: sums over all frames under this system. The difference from the sample's sums is added to the result, so that
    EM converges to the fixed point of all frames as far as both change alike between the system and that point.
    """
    before = run_e_step(system)[0]
    factor = whole.n_frames / before.n_frames

    def _corrected(other: LinearSystem) -> tuple[StateSums, float]:
        after, value = run_e_step(other)
        sums = corrected_sums(whole, before, after)
        own = expected_log_density(other, sums) - factor * expected_log_density(other, after)
        return sums, factor * value + own

    return _corrected


def _try_extrapolation(
    points: list[Floats], images: list[Floats], like: LinearSystem, run_e_step: EStep, value: float
) -> tuple[LinearSystem, StateSums, float] | None:
    """Extrapolate; return None if the result is not a valid system, or has a lower log likelihood."""
    with np.errstate(all="ignore"):
        try:
            system = _unpack(_anderson_extrapolation(np.array(points), np.array(images)), like)
            sums, reached = run_e_step(system)
        except np.linalg.LinAlgError:
            return None
    return (system, sums, reached) if reached >= value else None


def _anderson_extrapolation(points: Floats, images: Floats) -> Floats:
    """Combine images (m, d) of points (m, d) so that the combined residual image - point is least, with a ridge."""
    steps = images - points
    changes, moves = np.diff(steps, axis=0).T, np.diff(images, axis=0).T
    size = np.linalg.norm(changes, axis=0)
    size = np.where(size > 0.0, size, 1.0)
    left, values, right = np.linalg.svd(changes / size, full_matrices=False)
    weights = right.T @ (values / (values**2 + _ANDERSON_RIDGE * values[0] ** 2 + 1e-300) * (left.T @ steps[-1])) / size
    return np.asarray(images[-1] - moves @ weights, dtype=np.float64)


def _pack(system: LinearSystem) -> Floats:
    """Flatten all parameters except those of first states, covariances as Cholesky factors."""
    noise = system.observation_covariance
    seen = np.sqrt(noise) if noise.ndim == 1 else _factor_entries(noise)
    parts = (system.transition, system.observation, system.offset, _factor_entries(system.transition_covariance), seen)
    return np.concatenate([part.ravel() for part in parts])


def _factor_entries(covariance: Floats) -> Floats:
    size = float(np.trace(covariance)) / len(covariance)
    lower = np.linalg.cholesky(positive_part(covariance, max(1e-12 * size, 1e-300)))[np.tril_indices(len(covariance))]
    return np.asarray(lower, dtype=np.float64)


def _unpack(vector: Floats, like: LinearSystem) -> LinearSystem:
    """Undo `_pack`; the distribution of first states is copied from `like`."""
    k, p, full = like.n_dim_state, like.n_dim_obs, like.observation_covariance.ndim == 2
    sizes = np.cumsum([k * k, p * k, p, k * (k + 1) // 2])
    transition, observation, offset, *lower = np.split(vector, sizes)
    return replace(
        like,
        transition=limit_eigenvalues(transition.reshape(k, k), _MAX_EIGENVALUE),
        observation=observation.reshape(p, k).copy(),
        transition_covariance=_from_factor_entries(lower[0], k),
        observation_covariance=_from_factor_entries(lower[1], p) if full else lower[1] ** 2,
        offset=offset.copy(),
    )


def _from_factor_entries(lower: Floats, size: int) -> Floats:
    root = np.zeros((size, size))
    root[np.tril_indices(size)] = lower
    return root @ root.T
