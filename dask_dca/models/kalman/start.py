"""The start of a fit from a sample of frames, in closed form, by subspace identification.

Subspace methods estimate the innovations form of a system, s_{t+1} = T s_t + K e_t and x_t = mu + O s_t + e_t, where
one noise e ~ N(0, V) drives states and frames. A Kalman filter has two independent ones, w ~ N(0, Q) and v ~ N(0, R).
Its steady state is an innovations form, too: with the predicted covariance P of the state, K V = T P O^T and
V = O P O^T + R. So K and V determine P O^T, and the share of the states in V.

The states are canonical variates of past and future (Larimore, 1990; van Overschee and de Moor, Subspace
identification, 1996). The window length that they need depends on the system, and is chosen by likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from dask_dca.geometry.arrays import Floats, Mask, Numbers
from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.models.kalman.em import shrink_correlations
from dask_dca.models.kalman.scan import frame_ages, scan
from dask_dca.models.kalman.system import (
    LinearSystem,
    limit_eigenvalues,
    positive_part,
    stationary_covariance,
    symmetric,
)
from dask_dca.models.neighbours import LAGS, discriminant_coordinates, lag_moments, pairs_at

_STATE_SHARE_RANGE: Final = (0.02, 0.9)  # bounds of the states' share in the variance of an innovation


@dataclass(frozen=True)
class InnovationsForm:
    """A system in innovations form.

    transition (k, k): T; observation (p, k): O; shared (k, p): K V, the covariance of the next state
    with the innovation; covariance (p, p) or (p,): V, or its diagonal.
    """

    transition: Floats
    observation: Floats
    shared: Floats
    covariance: Floats


def independent_noises(form: InnovationsForm) -> tuple[Floats, Floats]:
    """Estimate independent noises for the T and O of an innovations form.

    Returns Q (k, k), and R of the shape of V, whose steady filter is near the innovations form.
    """
    whole = form.covariance
    if whole.ndim == 1:
        root = np.sqrt(whole)
        left, factor = np.linalg.qr(form.observation / root[:, None])
        gain = form.shared / root @ left
    else:
        lower = np.linalg.cholesky(whole)
        left, factor = np.linalg.qr(solve_triangular(lower, form.observation, lower=True))
        gain = solve_triangular(lower, form.shared.T, lower=True).T @ left
    noise, seen = _split_whitened(form.transition, factor, gain)
    less = np.eye(len(seen)) - seen  # the states' share in the innovations
    if whole.ndim == 1:
        return noise, whole * np.maximum(1.0 - ((left @ less) * left).sum(axis=1), 0.0)
    known = lower @ left
    return noise, symmetric(whole - known @ less @ known.T)


def _split_whitened(transition: Floats, factor: Floats, gain: Floats) -> tuple[Floats, Floats]:
    """Estimate Q and R where V = I, from P F^T = T^-1 K with the eigenvalues of F P F^T clipped; Q <= I."""
    shared = np.linalg.lstsq(transition, gain, rcond=1e-3)[0]
    values, vectors = np.linalg.eigh(symmetric(factor @ shared))
    values = np.clip(values, *_STATE_SHARE_RANGE)
    own = shared @ vectors
    predicted = (own / values) @ own.T
    ahead = predicted @ factor.T
    noise = predicted - transition @ (predicted - ahead @ ahead.T) @ transition.T
    least = min(1e-3 * float((gain**2).sum()) / len(gain), 1.0)
    return positive_part(noise, least, 1.0), np.eye(len(factor)) - (vectors * values) @ vectors.T


_MIN_NOISE_SHARE: Final = 0.1  # minimum share of the noise that is not due to zeros in place of missing frames
_EIGENVALUE_RTOL: Final = 1e-10  # eigenvalues below this share of the greatest count as zero
MAX_CHANNELS: Final = 1024  # maximum number of channels for which p x p covariances are formed
_WINDOW_DEPTHS: Final = (2, 3, 5, 8, 12, 18, 27, 40)  # candidate lengths L of past and future, in frames
_MAX_PAST_WIDTH: Final = 400  # maximum number L d of coordinates of a past
_MAX_COUNTING_DEPTH: Final = 8  # maximum L for choosing the number of states
_MAX_COUNTING_DIRECTIONS: Final = 12  # maximum d for choosing the number of states
_MAX_EIGENVALUE: Final = 0.999  # maximum absolute eigenvalue of an estimated T
_OWN_NOISE_SHARE: Final = 0.05  # share of the noise that stays independent where innovations become states
_MAX_PREDICTOR_EIGENVALUE: Final = 0.9999  # maximum absolute eigenvalue of T - K O of a stable predictor


def _predictive_directions(frames: Floats, edges: Numbers, d: int) -> Floats:
    """Directions (p, d) of frames that neighbours predict; S^{-1} O spans the same sufficient subspace as R^{-1} O."""
    if frames.shape[1] <= MAX_CHANNELS:
        return np.ascontiguousarray(discriminant_coordinates(lag_moments(frames, edges), d, ridge=1e-6)[0])
    return _wide_predictive_directions(frames, edges, d)


def _wide_predictive_directions(frames: Floats, edges: Numbers, d: int) -> Floats:
    """Approximate these directions for many channels, by a diagonal metric and a random sketch of neighbours."""
    variances = (frames**2).mean(axis=0)
    scale = np.where(variances > 0.0, variances, np.inf) ** -0.5
    draws = ndtri(uniforms(child_seeds(0, np.arange(len(scale))), 2 * d + 10))
    seen = frames @ (draws * scale[:, None])
    sides = []
    for lag in LAGS:
        t = np.flatnonzero(pairs_at(edges, lag))
        sides += [frames[t].T @ seen[t + lag], frames[t + lag].T @ seen[t]]
    left = np.linalg.svd(np.hstack(sides) * scale[:, None], full_matrices=False)[0]
    return left[:, :d] * scale[:, None]


def _inverse_root(covariance: Floats) -> Floats:
    values, vectors = np.linalg.eigh(symmetric(covariance))
    return (vectors * np.where(values > _EIGENVALUE_RTOL * values[-1], values, np.inf) ** -0.5) @ vectors.T


@dataclass(frozen=True)
class Windows:
    """Moments of the windows (z_{t-L}, ..., z_{t+L-1}) of n frames t, with L = depth.

    moment (2 L d, 2 L d): their second moment; cross (p, (L + 1) d): E[x_t (z_{t-L}, ..., z_t)^T]; covariance (p, p) or
    (p,): of these x_t, or its diagonal.
    """

    n: int
    depth: int
    moment: Floats
    cross: Floats
    covariance: Floats

    def centre(self, depth: int) -> tuple[Floats, Floats]:
        """Moments and cross moments of the shorter windows in the middle of these."""
        d = len(self.moment) // (2 * self.depth)
        some = slice((self.depth - depth) * d, (self.depth + depth) * d)
        return self.moment[some, some], self.cross[:, some.start :]


def window_moments(frames: Floats, z: Floats, edges: Numbers, depth: int, *, diagonal: bool) -> Windows:
    """Compute the moments of all windows that lie within one sequence.

    frames (n, p); z (n, d): their coordinates. The moment is block Toeplitz except for the windows at the ends of
    sequences, so that its first block row and corrections suffice.
    """
    d, width = z.shape[1], 2 * depth
    long = np.diff(edges) >= width
    first, last = edges[:-1][long], edges[1:][long] - width + 1
    begins = np.concatenate([np.arange(0), *(np.arange(a, b) for a, b in zip(first, last, strict=True))])
    n, now = max(len(begins), 1), frames[begins + depth]
    ends = [np.hstack([z[at + i] for i in range(width - 1)]) for at in (first, last)]
    moved = ends[1].T @ ends[1] - ends[0].T @ ends[0]
    moment = np.zeros((width * d, width * d))
    moment[:d] = np.hstack([z[begins].T @ z[begins + i] for i in range(width)])
    for i in range(0, (width - 1) * d, d):
        moment[i + d : i + 2 * d, i + d :] = moment[i : i + d, i:-d] + moved[i : i + d, i:]
    moment = np.triu(moment) + np.triu(moment, 1).T
    moment += 1e-9 * float(np.trace(moment)) / len(moment) * np.eye(len(moment))
    cross = np.hstack([now.T @ z[begins + i] for i in range(depth + 1)])
    covariance = (now**2).sum(axis=0) if diagonal else now.T @ now
    return Windows(len(begins), depth, moment / n, cross / n, covariance / n)


def _canonical_variates(moment: Floats) -> tuple[Floats, Floats]:
    """Canonical correlations of past and future, decreasing, and the maps from pasts to unit-variance states."""
    half = len(moment) // 2
    past, future = _inverse_root(moment[:half, :half]), _inverse_root(moment[half:, half:])
    _, correlations, right = np.linalg.svd(future @ moment[half:, :half] @ past)
    return np.minimum(correlations, 1.0), right @ past


def _innovations_form(windows: Windows, depth: int, k: int, d: int) -> tuple[InnovationsForm, Floats]:
    """Estimate the system whose states are canonical variates of this depth, by least squares; and all correlations."""
    moment, cross = windows.centre(depth)
    correlations, states = _canonical_variates(moment)
    half, states = depth * d, states[:k]
    transition = limit_eigenvalues(states @ moment[d : half + d, :half] @ states.T, _MAX_EIGENVALUE)
    observation = cross[:, :half] @ states.T
    shared = states @ cross[:, d:].T - transition @ observation.T
    return InnovationsForm(transition, observation, shared, _innovation_covariance(windows, observation)), correlations


def _innovation_covariance(windows: Windows, observation: Floats) -> Floats:
    """Residual covariance of the frames given states of unit variance, with shrunk correlations; or its diagonal."""
    whole = windows.covariance
    own = whole if whole.ndim == 1 else np.diagonal(whole)
    least = 1e-8 * float(own.mean()) or 1.0
    left = np.maximum(own - (observation**2).sum(axis=1), least)
    if whole.ndim == 1:
        return left
    roots = np.sqrt(left)
    correlations = (whole - observation @ observation.T) / np.multiply.outer(roots, roots)
    return positive_part(shrink_correlations(correlations, windows.n) * np.multiply.outer(roots, roots), least)


def _log_likelihood(form: InnovationsForm, windows: Windows, directions: Floats, z: Floats, edges: Numbers) -> float:
    """Log likelihood of coordinates in innovations form, up to a constant; -inf if the predictor is unstable."""
    own, d = directions.T @ form.observation, z.shape[1]
    left = windows.centre(1)[0][d:, d:] - own @ own.T
    left = positive_part(left, 1e-9 * float(np.trace(left)) or 1.0)
    gain = np.linalg.solve(left, directions.T @ form.shared.T).T
    closed = form.transition - gain @ own
    if np.abs(np.linalg.eigvals(closed)).max() > _MAX_PREDICTOR_EIGENVALUE:
        return -np.inf
    taken = np.zeros((len(z), len(closed)))
    taken[1:] = z[:-1] @ gain.T
    taken[edges[:-1]] = 0.0
    innovations = z - scan(closed, taken, frame_ages(edges)) @ own.T
    return -0.5 * len(z) * float(np.linalg.slogdet(innovations.T @ innovations / len(z) + 1e-12 * np.eye(len(own)))[1])


@dataclass(frozen=True)
class SystemStart:
    """Start of a fit.

    correlations (m,): canonical correlations of past and future, decreasing; directions (p, d): predictable directions
    of frames; likelihood: log likelihood of these coordinates in innovations form, with correlated noises; augmented:
    another start if there are more states than channels, where p states are the innovations: it allows such noises.
    """

    system: LinearSystem
    correlations: Floats
    directions: Floats
    likelihood: float
    augmented: LinearSystem | None = None


def start_from_frames(frames: Floats, edges: Numbers, n_dim_state: int | None, *, diagonal: bool) -> SystemStart:
    """Estimate a linear dynamical system without iterations.

    frames (n, p): centred, missing entries zero; edges (m + 1,): first frame of each sequence, and the number of
    frames; n_dim_state: number of state dimensions k; None to choose it by Bauer's criterion; diagonal: keep only the
    diagonal of R. The system's k may be below `n_dim_state` if there are too few frames.
    """
    p = frames.shape[1]
    k, counted = (n_dim_state, None) if n_dim_state else _count_states(frames, edges)
    directions = _predictive_directions(frames, edges, min(p, k))
    z = frames @ directions
    depths = _candidate_depths(edges, k, z.shape[1])
    windows = window_moments(frames, z, edges, depths[-1], diagonal=diagonal and p > MAX_CHANNELS)
    forms = [_innovations_form(windows, depth, min(k, depth * z.shape[1]), z.shape[1]) for depth in depths]
    values = [_log_likelihood(form, windows, directions, z, edges) for form, _ in forms]
    best = int(np.argmax(values))
    form, correlations = forms[best]
    augmented = None
    if p < len(form.transition):
        less = _innovations_form(windows, depths[best], len(form.transition) - p, z.shape[1])[0]
        augmented = innovations_as_states(less, diagonal=diagonal)
    correlations = correlations if counted is None else counted
    return SystemStart(_independent_system(form, diagonal=diagonal), correlations, directions, max(values), augmented)


def _count_states(frames: Floats, edges: Numbers) -> tuple[int, Floats]:
    """Choose the number of states from canonical correlations; returns both."""
    directions = _predictive_directions(frames, edges, min(frames.shape[1], _MAX_COUNTING_DIRECTIONS))
    d = directions.shape[1]
    depth = max(
        [depth for depth in range(1, _MAX_COUNTING_DEPTH + 1) if _has_enough_frames(edges, depth, d)], default=1
    )
    windows = window_moments(frames, frames @ directions, edges, depth, diagonal=True)
    correlations = _canonical_variates(windows.moment)[0]
    return _choose_order(correlations, windows.n, d), correlations


def _independent_system(form: InnovationsForm, *, diagonal: bool) -> LinearSystem:
    noise, seen = independent_noises(form)
    k, seen = len(noise), np.diagonal(seen).copy() if diagonal and seen.ndim == 2 else seen
    return LinearSystem(
        form.transition,
        form.observation,
        noise,
        seen,
        np.zeros(k),
        stationary_covariance(form.transition, noise),
        np.zeros(len(form.observation)),
    )


def innovations_as_states(form: InnovationsForm, *, diagonal: bool) -> LinearSystem:
    """Convert an innovations form to a system with independent noises, where the innovations are additional states.

    form: of k states and p channels; diagonal: keep only the diagonal of R. Returns a system of k + p states, which can
    represent correlated noises; a small independent share of each noise lets EM change it.
    """
    (k, p), whole = form.shared.shape, form.covariance if form.covariance.ndim == 2 else np.diag(form.covariance)
    transition, noise = np.zeros((k + p, k + p)), np.zeros((k + p, k + p))
    gain = np.linalg.solve(whole, form.shared.T).T
    transition[:k] = np.hstack([form.transition, gain])
    noise[k:, k:] = (1.0 - _OWN_NOISE_SHARE) * whole
    noise[:k, :k] = positive_part(_OWN_NOISE_SHARE * gain @ form.shared.T, 1e-6)
    seen = _OWN_NOISE_SHARE * (np.diagonal(whole) if diagonal else whole)
    observation = np.hstack([form.observation, np.eye(p)])
    spread = stationary_covariance(transition, noise)
    return LinearSystem(transition, observation, noise, seen, np.zeros(k + p), spread, np.zeros(p))


def without_zeros(system: LinearSystem, covariance: Floats, there: Mask) -> LinearSystem:
    """Correct O and a full R for zeros in place of missing frames, which act as white noise.

    covariance (p, p): of these frames; there (n,): which are observed.
    """
    share = max(float(there.mean()), 1.0 / len(there))
    pairs = max(float((there[1:] & there[:-1]).mean()), share**2)  # share of neighbours that are both observed
    lower = np.linalg.cholesky(system.observation_covariance)
    white = solve_triangular(lower, solve_triangular(lower, covariance, lower=True).T, lower=True)
    left = positive_part(np.eye(len(lower)) - (1.0 - pairs / share) * white, _MIN_NOISE_SHARE)
    noise = symmetric(lower @ left @ lower.T) / pairs
    return replace(system, observation=system.observation / np.sqrt(pairs), observation_covariance=noise)


def _candidate_depths(edges: Numbers, k: int, d: int) -> list[int]:
    """Candidate depths, increasing: large enough for k states, and small enough for the number of frames."""
    fits = [L for L in _WINDOW_DEPTHS if k < L * d <= _MAX_PAST_WIDTH and _has_enough_frames(edges, L, d)]
    shallow = [L for L in range(1, -(-k // d) + 1) if _has_enough_frames(edges, L, d)]
    return fits or [max(shallow, default=1)]


def _has_enough_frames(edges: Numbers, depth: int, d: int) -> bool:
    """Whether there are enough frames, and windows within sequences, for the width of a past."""
    lengths = np.diff(edges)
    windows, width = np.maximum(lengths - 2 * depth + 1, 0).sum(), depth * d
    return bool(windows >= 4 * width and lengths.sum() >= 6 * width)


def _choose_order(correlations: Floats, n_windows: int, d: int) -> int:
    """Choose the number of states by Bauer's criterion (Order estimation for subspace methods, Automatica 37, 2001)."""
    penalty = np.log(max(n_windows, 2)) * 2 * d / max(n_windows, 1)
    scores = np.append(correlations, 0.0) ** 2 + penalty * np.arange(len(correlations) + 1)
    return max(1, int(scores.argmin()))
