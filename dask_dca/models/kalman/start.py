"""The start of a fit from a sample of frames: coordinates, canonical states and noises, in closed form.

Subspace methods learn the innovations form of a system, s_{t+1} = T s_t + K e_t and x_t = mu + O s_t + e_t, where one
noise e ~ N(0, V) moves states and frames. A Kalman filter has two that don't depend on each other, w ~ N(0, Q) and
v ~ N(0, R). Its steady state is an innovations form too: with P, what is not known of a state before its frame is seen,
K V = T P O^T and V = O P O^T + R. So K and V give P O^T, and what of V is not noise.

Canonical variate analysis (Larimore, 1990; van Overschee and de Moor, Subspace identification, 1996): the state is what
the past tells of the future. How deep a past it takes to see a state depends on the system; the likelihood says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.models.kalman.em import shrink_correlations
from dask_dca.models.kalman.scan import ages_of, scan
from dask_dca.models.kalman.system import LinearSystem, positive_part, stationary_covariance, symmetric, without_growth
from dask_dca.models.neighbours import LAGS, discriminant_coordinates, lag_moments, pairs_at

if TYPE_CHECKING:
    from dask_dca.geometry.arrays import Floats, Numbers

_KNOWN: Final = (0.02, 0.9)  # shares of an innovation's variance that may be the state's


@dataclass(frozen=True)
class Innovations:
    """A system in innovations form.

    transition (k, k): T; observation (p, k): O; shared (k, p): K V, the covariance of what is new in the next state and
    in a frame; covariance (p, p) or (p,): V, or its diagonal.
    """

    transition: Floats
    observation: Floats
    shared: Floats
    covariance: Floats


def independent_noises(form: Innovations) -> tuple[Floats, Floats]:
    """Find Q and R whose steady filter is near an innovations form, with its T and O.

    Returns Q (k, k) and R, of the shape of V: a start for expectation-maximisation.
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
    noise, seen = _split(form.transition, factor, gain)
    less = np.eye(len(seen)) - seen  # of the innovations, what the state's is
    if whole.ndim == 1:
        return noise, whole * np.maximum(1.0 - ((left @ less) * left).sum(axis=1), 0.0)
    known = lower @ left
    return noise, symmetric(whole - known @ less @ known.T)


def _split(transition: Floats, factor: Floats, gain: Floats) -> tuple[Floats, Floats]:
    """Where V = I: P F^T = T^-1 K, with what it has of the innovations clipped; and Q, R from P; Q <= I."""
    shared = np.linalg.lstsq(transition, gain, rcond=1e-3)[0]
    values, vectors = np.linalg.eigh(symmetric(factor @ shared))
    values = np.clip(values, *_KNOWN)
    own = shared @ vectors
    predicted = (own / values) @ own.T
    ahead = predicted @ factor.T
    noise = predicted - transition @ (predicted - ahead @ ahead.T) @ transition.T
    least = min(1e-3 * float((gain**2).sum()) / len(gain), 1.0)
    return positive_part(noise, least, 1.0), np.eye(len(factor)) - (vectors * values) @ vectors.T


_LEAST: Final = 1e-10  # of a covariance's greatest eigenvalue: less is nothing
WIDEST: Final = 1024  # channels up to which covariances of p x p are formed
_DEPTHS: Final = (2, 3, 5, 8, 12, 18, 27, 40)  # frames of past and of future, L
_WIDEST_PAST: Final = 400  # numbers of a past, L d
_COUNTING_DEPTH: Final = 8
_MOST_DIRECTIONS: Final = 12  # coordinates that an unknown number of states is looked for in
_STABLE: Final = 0.999
_OWN: Final = 0.05  # share of a noise that states and frames do not have together, where they have one
_FORGETS: Final = 0.9999  # eigenvalue of T - K O above which a predictor does not forget


def _coordinates(frames: Floats, edges: Numbers, d: int) -> Floats:
    """The directions (p, d) of frames that neighbours tell of: S^{-1} O spans what R^{-1} O does, all that matters."""
    if frames.shape[1] <= WIDEST:
        return np.ascontiguousarray(discriminant_coordinates(lag_moments(frames, edges), d, ridge=1e-6)[0])
    return _wide_coordinates(frames, edges, d)


def _wide_coordinates(frames: Floats, edges: Numbers, d: int) -> Floats:
    """The same with the variances alone for a metric, and neighbours seen through a few random columns."""
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
    return (vectors * np.where(values > _LEAST * values[-1], values, np.inf) ** -0.5) @ vectors.T


@dataclass(frozen=True)
class Windows:
    """Moments of the windows (z_{t-L}, ..., z_{t+L-1}) of n frames t.

    moment (2 L d, 2 L d): their second moment; cross (p, (L + 1) d): products of x_t with its past and z_t; covariance
    (p, p) or (p,): of these x_t alone, or its diagonal.
    """

    n: int
    depth: int
    moment: Floats
    cross: Floats
    covariance: Floats

    def centre(self, depth: int) -> tuple[Floats, Floats]:
        """Moments of the shorter windows in the middle of these: all, and with x_t."""
        d = len(self.moment) // (2 * self.depth)
        some = slice((self.depth - depth) * d, (self.depth + depth) * d)
        return self.moment[some, some], self.cross[:, some.start :]


def window_moments(frames: Floats, z: Floats, edges: Numbers, depth: int, *, diagonal: bool) -> Windows:
    """Form the moments of all windows that lie in one sequence.

    frames (n, p); z (n, d): their coordinates. A window moved on by a frame has the products of the one before, except
    for those at the ends of the sequences.
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


def _canonical(moment: Floats) -> tuple[Floats, Floats]:
    """Canonical correlations of past and future, decreasing, and maps from pasts to states of unit variance."""
    half = len(moment) // 2
    past, future = _inverse_root(moment[:half, :half]), _inverse_root(moment[half:, half:])
    _, correlations, right = np.linalg.svd(future @ moment[half:, :half] @ past)
    return np.minimum(correlations, 1.0), right @ past


def _innovations_form(windows: Windows, depth: int, k: int, d: int) -> tuple[Innovations, Floats]:
    """The system whose states are canonical variates of that depth, by least squares; and all correlations."""
    moment, cross = windows.centre(depth)
    correlations, states = _canonical(moment)
    half, states = depth * d, states[:k]
    transition = without_growth(states @ moment[d : half + d, :half] @ states.T, _STABLE)
    observation = cross[:, :half] @ states.T
    shared = states @ cross[:, d:].T - transition @ observation.T
    return Innovations(transition, observation, shared, _left(windows, observation)), correlations


def _left(windows: Windows, observation: Floats) -> Floats:
    """What states of unit variance leave of the covariance, without correlations by chance; or of its diagonal."""
    whole = windows.covariance
    own = whole if whole.ndim == 1 else np.diagonal(whole)
    left = np.maximum(own - (observation**2).sum(axis=1), 1e-8 * float(own.mean()) or 1.0)
    if whole.ndim == 1:
        return left
    roots = np.sqrt(left)
    correlations = (whole - observation @ observation.T) / np.multiply.outer(roots, roots)
    return shrink_correlations(correlations, windows.n) * np.multiply.outer(roots, roots)


def _likelihood(form: Innovations, windows: Windows, directions: Floats, z: Floats, edges: Numbers) -> float:
    """Log likelihood of coordinates in innovations form, less constants; minus infinity where it never forgets."""
    own, d = directions.T @ form.observation, z.shape[1]
    left = windows.centre(1)[0][d:, d:] - own @ own.T
    left = positive_part(left, 1e-9 * float(np.trace(left)) or 1.0)
    gain = np.linalg.solve(left, directions.T @ form.shared.T).T
    closed = form.transition - gain @ own
    if np.abs(np.linalg.eigvals(closed)).max() > _FORGETS:
        return -np.inf
    taken = np.zeros((len(z), len(closed)))
    taken[1:] = z[:-1] @ gain.T
    taken[edges[:-1]] = 0.0
    surprise = z - scan(closed, taken, ages_of(edges)) @ own.T
    return -0.5 * len(z) * float(np.linalg.slogdet(surprise.T @ surprise / len(z) + 1e-12 * np.eye(len(own)))[1])


@dataclass(frozen=True)
class SystemStart:
    """Where a fit starts.

    correlations (m,): canonical correlations of past and future, decreasing; directions (p, d): what of a frame its
    neighbours tell of; likelihood: of these coordinates in innovations form, whose noises may be correlated; augmented:
    another start where states are more than channels, p of them the innovations: its noises may be correlated too.
    """

    system: LinearSystem
    correlations: Floats
    directions: Floats
    likelihood: float
    augmented: LinearSystem | None = None


def start_from_frames(frames: Floats, edges: Numbers, n_dim_state: int | None, *, diagonal: bool) -> SystemStart:
    """Learn a linear dynamical system without iterations.

    frames (n, p): frames less their centre, missing entries zero; edges (m + 1,): first frame of each sequence, and the
    number of frames; n_dim_state: number of state dimensions k; None to choose it by Bauer's criterion; diagonal: of R,
    keep the diagonal alone. Returns the system. Its k may be below `n_dim_state` where the frames are too few to tell
    that many apart.
    """
    p = frames.shape[1]
    k, counted = (n_dim_state, None) if n_dim_state else _counted(frames, edges)
    directions = _coordinates(frames, edges, min(p, k))
    z = frames @ directions
    depths = _depths(edges, k, z.shape[1])
    windows = window_moments(frames, z, edges, depths[-1], diagonal=diagonal and p > WIDEST)
    forms = [_innovations_form(windows, depth, min(k, depth * z.shape[1]), z.shape[1]) for depth in depths]
    values = [_likelihood(form, windows, directions, z, edges) for form, _ in forms]
    best = int(np.argmax(values))
    form, correlations = forms[best]
    augmented = None
    if p < len(form.transition):
        less = _innovations_form(windows, depths[best], len(form.transition) - p, z.shape[1])[0]
        augmented = innovations_as_states(less, diagonal=diagonal)
    correlations = correlations if counted is None else counted
    return SystemStart(_system(form, diagonal=diagonal), correlations, directions, max(values), augmented)


def _counted(frames: Floats, edges: Numbers) -> tuple[int, Floats]:
    """How many states there seem to be, and the correlations that say so."""
    directions = _coordinates(frames, edges, min(frames.shape[1], _MOST_DIRECTIONS))
    d = directions.shape[1]
    depth = max([depth for depth in range(1, _COUNTING_DEPTH + 1) if _enough(edges, depth, d)], default=1)
    windows = window_moments(frames, frames @ directions, edges, depth, diagonal=True)
    correlations = _canonical(windows.moment)[0]
    return _choose(correlations, windows.n, d), correlations


def _system(form: Innovations, *, diagonal: bool) -> LinearSystem:
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


def innovations_as_states(form: Innovations, *, diagonal: bool) -> LinearSystem:
    """Make a system of independent noises of an innovations form, whose innovations are states of their own.

    form: of k states and p channels; diagonal: of R, keep the diagonal alone. Returns a system of k + p states, which
    holds any correlation of noises; a little of each noise is the other kind's, so that EM can move it.
    """
    (k, p), whole = form.shared.shape, form.covariance if form.covariance.ndim == 2 else np.diag(form.covariance)
    transition, noise = np.zeros((k + p, k + p)), np.zeros((k + p, k + p))
    gain = np.linalg.solve(whole, form.shared.T).T
    transition[:k] = np.hstack([form.transition, gain])
    noise[k:, k:] = (1.0 - _OWN) * whole
    noise[:k, :k] = positive_part(_OWN * gain @ form.shared.T, 1e-6)
    seen = _OWN * (np.diagonal(whole) if diagonal else whole)
    observation = np.hstack([form.observation, np.eye(p)])
    spread = stationary_covariance(transition, noise)
    return LinearSystem(transition, observation, noise, seen, np.zeros(k + p), spread, np.zeros(p))


def _depths(edges: Numbers, k: int, d: int) -> list[int]:
    """Depths to be tried, increasing: deep enough for k states, and not too deep for the frames."""
    fits = [L for L in _DEPTHS if k < L * d <= _WIDEST_PAST and _enough(edges, L, d)]
    shallow = [L for L in range(1, -(-k // d) + 1) if _enough(edges, L, d)]
    return fits or [max(shallow, default=1)]


def _enough(edges: Numbers, depth: int, d: int) -> bool:
    """Whether there are frames enough, and windows within a sequence, for the width of a past."""
    lengths = np.diff(edges)
    windows, width = np.maximum(lengths - 2 * depth + 1, 0).sum(), depth * d
    return bool(windows >= 4 * width and lengths.sum() >= 6 * width)


def _choose(correlations: Floats, n_windows: int, d: int) -> int:
    """Number of states by Bauer's criterion (Order estimation for subspace methods, Automatica 37, 2001)."""
    penalty = np.log(max(n_windows, 2)) * 2 * d / max(n_windows, 1)
    scores = np.append(correlations, 0.0) ** 2 + penalty * np.arange(len(correlations) + 1)
    return max(1, int(scores.argmin()))
