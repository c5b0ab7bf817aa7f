"""A Markov chain with Gaussian states, and the M-steps that make one of expected counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.models.gaussians import (
    GaussianMoments,
    mean_and_covariance,
    moments_of_parts,
    prepare_gaussians,
    rests_on_floor,
    variances_of,
)
from dask_dca.models.hmm.emission import GaussianEmission, moments_of, prepare_states
from dask_dca.models.hmm.recursions import Markov, smoothed_chain
from dask_dca.models.kmeans import label_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.models.hmm.emission import GaussianStates
    from dask_dca.models.hmm.expectation import Expected

_BORROWED: Final = 10.0  # frames that a state's covariance borrows from all states together, where there are few,
_ENOUGH: Final = 5000.0  # and fewer where there are many: one from 5,000 on
_BIASED: Final = 0.125  # of the least variance: down to here the rounding of sums may be all there is
_SHAPED: Final = 5.0  # frames from which on a state has a shape of its own
_DEFINITE: Final = 1e-13  # of the greatest variance along an axis: what has less in another can't be factored
_VISITED: Final = 1e-3  # frames below which a state keeps the mean it had


@dataclass(frozen=True)
class HiddenMarkov:
    """A Markov chain and Gaussian emissions."""

    markov: Markov
    means: Floats  # (k, p)
    covariances: Floats  # in the shape of their type
    covariance_type: str
    resting: NDArray[np.bool_]  # (k,): states whose variances are least ones rather than their frames'

    def states(self, log_scale: float = 0.0, origins: Floats | None = None) -> GaussianStates:
        """Prepare the densities.

        log_scale: what log densities are lower by; origins (k, p): what moments are taken about.
        """
        found = prepare_states(self.means, self.covariances, self.covariance_type, log_scale)
        return found if origins is None else replace(found, origins=origins)

    def emission(self) -> GaussianEmission:
        """Prepare the densities of frames in the data's units."""
        return GaussianEmission(prepare_gaussians(self.means, self.covariances, self.covariance_type))


def m_step(
    starts: Floats,
    transitions: Floats,
    moments: GaussianMoments,
    kind: str,
    floors: Floats,
    before: HiddenMarkov | None = None,
) -> HiddenMarkov:
    """Turn expected counts and moments into parameters.

    starts (k,), transitions (k, k); kind: form of the covariances; floors (p,): least variances; before: a state that
    no frame is in keeps its mean. Covariances are drawn a little to those of all states together.
    """
    means, covariances = mean_and_covariance(moments, kind, 0.0)
    total = float(moments.counts.sum())
    if kind != "tied":
        counts = moments.counts.reshape(-1, *[1] * (covariances.ndim - 1))
        pooled = (counts * covariances).sum(axis=0) / max(total, 1e-300)
        borrowed = float(np.clip(_ENOUGH / max(total, 1.0), 1.0, _BORROWED))
        covariances = (counts * covariances + borrowed * pooled) / (counts + borrowed)
    own = np.broadcast_to(variances_of(covariances, kind), means.shape)
    resting = rests_on_floor(own, floors, _BIASED * floors) & (moments.counts >= _SHAPED)
    if before is not None:
        means = np.where(moments.counts[:, None] > _VISITED, means, before.means)
    return HiddenMarkov(smoothed_chain(starts, transitions), means, floored(covariances, floors, kind), kind, resting)


def floored(covariances: Floats, floors: Floats, kind: str) -> Floats:
    """Raise variances to the floor, in every direction.

    floors (p,): least variances.
    """
    if kind == "diag":
        return np.maximum(covariances, floors)
    if kind == "spherical":
        return np.maximum(covariances, floors.mean())
    roots = np.sqrt(floors)
    scale = np.multiply.outer(roots, roots)
    variances, axes = np.linalg.eigh((covariances + covariances.swapaxes(-1, -2)) / (2 * scale))
    least = np.maximum(1.0, _DEFINITE * variances[..., -1:])
    low = (variances[..., 0] < least[..., 0])[..., None, None]
    if not low.any():
        return covariances
    raised = (axes * np.maximum(variances, least)[..., None, :]) @ axes.swapaxes(-1, -2)
    return np.where(low, raised * scale, covariances)


def model_of_labels(
    frames: Floats, edges: Numbers, labels: NDArray[np.intp], k: int, kind: str, floors: Floats
) -> HiddenMarkov:
    """Take each frame for one of the state of its label.

    frames (n, p); edges (m + 1,): ends of sequences; labels (n,); floors (p,): least variances.
    """
    moments = moments_of_parts(np.eye(k)[labels], frames, kind, floors)
    return m_step(*label_counts(labels, edges, k), moments, kind, floors)


def in_data_units(model: HiddenMarkov, centre: Floats, units: Floats) -> HiddenMarkov:
    """Take a model of frames in standard units to the data's.

    centre, units (p,): what frames were taken less, and over.
    """
    kind = model.covariance_type
    factor: Any = np.multiply.outer(units, units) if kind in ("full", "tied") else units**2
    factor = factor[0] if kind == "spherical" else factor
    return replace(model, means=model.means * units + centre, covariances=model.covariances * factor)


def likeliest_chain(starts: Floats, transitions: Floats, before: Markov, learnt: str) -> Markov:
    """Turn expected counts into probabilities; transitions of which there are none stay zero.

    learnt: "s" for start probabilities, "t" for transitions; others are kept, as is the row of a state without counts.
    """
    total = transitions.sum(axis=1, keepdims=True)
    rows = np.where(total > 0.0, transitions / np.where(total > 0.0, total, 1.0), before.transmat)
    return Markov(
        starts / starts.sum() if "s" in learnt else before.startprob, rows if "t" in learnt else before.transmat
    )


def likeliest(found: Expected, before: HiddenMarkov, floors: Floats, learnt: str) -> HiddenMarkov:
    """Take the M-step.

    floors (p,): least variances; learnt: letters of what is learnt, "m" for means and "c" for covariances, as
    `likeliest_chain` has them. A state that no frame is in keeps what it had.
    """
    kind = before.covariance_type
    moments = moments_of(found, kind)
    seen = moments.counts > 0.0
    means, covariances = mean_and_covariance(moments, kind, 0.0)
    means = np.where(seen[:, None], means, before.means)
    if "m" not in learnt:
        covariances = covariances + _beside(means - before.means, moments.counts, kind)
        means = before.means
    if kind != "tied":
        covariances = np.where(seen.reshape(-1, *[1] * (covariances.ndim - 1)), covariances, before.covariances)
    return replace(
        before,
        markov=likeliest_chain(found.starts, found.transitions, before.markov, learnt),
        means=means,
        covariances=floored(covariances, floors, kind) if "c" in learnt else before.covariances,
    )


def _beside(away: Floats, counts: Floats, kind: str) -> Floats:
    """What covariances about other points than the means have more, in the shape of their form."""
    if kind == "full":
        return away[:, :, None] * away[:, None, :]
    if kind == "tied":
        return (away.T * counts) @ away / max(float(counts.sum()), 1e-300)
    found: Floats = away**2 if kind == "diag" else (away**2).mean(axis=1)
    return found


def in_form(whole: Floats, weights: Floats, kind: str) -> Floats:
    """Write covariances in another form.

    whole (k, p, p); weights (k,): by which states are averaged where they share one.
    """
    if kind == "full":
        return whole
    if kind == "tied":
        return np.tensordot(weights / weights.sum(), whole, 1)
    variances = np.ascontiguousarray(np.diagonal(whole, axis1=1, axis2=2))
    return variances if kind == "diag" else variances.mean(axis=1)


def mean_times(markov: Markov, n_steps: int) -> Floats:
    """Tell when states are visited on the average, in the first steps of a chain.

    Returns (k,): by which the states of a chain that only moves on are in order.
    """
    now, times, total = markov.startprob, np.zeros(len(markov.startprob)), np.full(len(markov.startprob), 1e-300)
    for step in range(n_steps):
        times, total = times + step * now, total + now
        now = now @ markov.transmat
    return times / total


def mixed_moments(probabilities: Floats, means: Floats, covariances: Floats) -> tuple[Floats, Floats]:
    """Work out means and covariances of mixtures of states.

    probabilities (n, k); means (k, p); covariances (k, p, p). Returns (n, p) and (n, p, p): what states differ by is in
    the covariances.
    """
    mixed = probabilities @ means
    found = np.tensordot(probabilities, covariances, 1)
    for own, mean, weights in zip(found, mixed, probabilities, strict=True):
        away = (means - mean) * np.sqrt(weights)[:, None]
        own += away.T @ away
    return mixed, found
