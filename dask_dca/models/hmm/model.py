"""Gaussian states of a Markov chain: densities of complete and incomplete frames, their sums, and the M-steps.

Frames are standardised by a centre and a scale. A state whose deviations are tiny relative to its distance from the
centre is *far*: squares about the centre would lose digits, so they are taken about its mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import power_of_two
from dask_dca.models.gaussians import (
    GaussianMoments,
    Gaussians,
    covariance_parameters,
    log_peak,
    mean_and_covariance,
    moments_of_partition,
    prepare_gaussians,
    rests_on_floor,
    variances_of,
)
from dask_dca.models.hmm.expectation import ExpectedCounts
from dask_dca.models.hmm.recursions import Markov, smoothed_chain
from dask_dca.models.hmm.shrinkage import MIN_FRAMES, shrink_covariances
from dask_dca.models.incomplete_gaussians import CompletedRows, completed_rows, observed_log_densities, typicality
from dask_dca.models.kmeans import label_counts

_MIN_DEVIATION: Final = 2.0**-40  # minimum scale of rounding of moments about a mean, in standard units


@dataclass(frozen=True)
class FrameFeatures:
    """Features of frames whose weighted sums are moments: standardised values, their squares, and ones.

    kind: form of the covariances, "full" if entries are missing (NaN); centre, units (p,): frames are standardised as
    (x - centre) / units.
    """

    kind: str
    centre: Floats
    units: Floats

    def __call__(self, values: Floats) -> Floats:
        """Compute features (q, L, m) of frames (p, L, m), with squares for "diag", and their sum for "spherical"."""
        p, shape = len(values), (-1, *[1] * (values.ndim - 1))
        squares = {"diag": p, "spherical": 1}.get(self.kind, 0)
        found = np.empty((p + squares + 1, *values.shape[1:]))
        own = found[:p]
        np.subtract(values, self.centre.reshape(shape), out=own)
        own *= (1.0 / self.units).reshape(shape)
        if self.kind == "diag":
            np.multiply(own, own, out=found[p:-1])
        elif self.kind == "spherical":
            found[p] = (own * own).sum(axis=0)
        found[-1] = 1.0
        return found


@dataclass(frozen=True)
class GaussianStates:
    """Densities and sums of k Gaussian states.

    gaussians: about zero; log_scale: subtracted from log densities; origins (k, p): of the moments, zero or a mean.
    """

    gaussians: Gaussians
    log_scale: float
    origins: Floats

    @property
    def kind(self) -> str:
        """Form of the covariances."""
        return self.gaussians.covariance_type

    @property
    def means(self) -> Floats:
        """Means of the states (k, p)."""
        return self.gaussians.means

    @property
    def factors(self) -> Floats:
        """Factors P of the inverse covariances P P', or reciprocal standard deviations."""
        return self.gaussians.precisions_cholesky

    @property
    def constants(self) -> Floats:
        """Log densities at the means (k,)."""
        return self.gaussians.log_determinants + log_peak(self.means.shape[1], np.inf) - self.log_scale

    def log_densities(self, features: Floats) -> Floats:
        """Evaluate the log densities (k, n) of features (q, n) from `FrameFeatures`."""
        p = self.means.shape[1]
        found: Floats
        if self.kind == "full":
            found = np.stack([self._log_density_about_mean(features[:p], j) for j in range(len(self.means))])
        else:
            found = self._linear_form() @ features
            if self.kind == "tied":
                found -= 0.5 * ((self.factors.T @ features[:p]) ** 2).sum(axis=0)
            for j in np.flatnonzero(self.gaussians.far).tolist():
                found[j] = self._log_density_about_mean(features[:p], j)
        return found

    def _linear_form(self) -> Floats:
        """Coefficients (k, q) of the log densities as a linear form in the features."""
        if self.kind == "tied":
            linear, squares = self.means @ self.factors @ self.factors.T, np.zeros((len(self.means), 0))
        else:
            precisions = self.factors.reshape(len(self.means), -1) ** 2
            linear, squares = self.means * precisions, -0.5 * precisions
        constants = self.constants - 0.5 * (self.means * linear).sum(axis=1)
        return np.hstack([linear, squares, constants[:, None]])

    def _log_density_about_mean(self, values: Floats, j: int) -> Floats:
        """Log densities (n,) of one state, from deviations from its mean."""
        centred = values - self.means[j][:, None]
        if self.kind in ("full", "tied"):
            seen = (self.factors[j] if self.kind == "full" else self.factors).T @ centred
        else:
            seen = centred * self.factors[j].reshape(-1, 1)
        return self.constants[j] - 0.5 * (seen * seen).sum(axis=0)

    def sums(self, weights: Floats, features: Floats) -> Floats:
        """Sum the moments of each state about its origin.

        weights (k, n); features (q, n). Returns counts (k,), first (k, p) and second moments, in one vector.
        """
        (k, p), own = self.means.shape, np.asarray(self.origins.any(axis=1))
        found = weights @ features.T
        first, second = found[:, :p].copy(), found[:, p:-1].copy()
        if self.kind in ("full", "tied"):
            second = np.zeros((k if self.kind == "full" else 1, p, p))
            if self.kind == "tied":
                scaled = features[:p] * np.sqrt(weights[~own].sum(axis=0))
                second[0] = scaled @ scaled.T
        for j in np.flatnonzero(own | (self.kind == "full")).tolist():
            centred = features[:p] - self.origins[j][:, None]
            first[j] = centred @ weights[j]
            if self.kind in ("full", "tied"):
                scaled = centred * np.sqrt(weights[j])
                second[j if self.kind == "full" else 0] += scaled @ scaled.T
            else:
                squares = (centred * centred) @ weights[j]
                second[j] = squares if self.kind == "diag" else squares.sum()
        return np.concatenate([found[:, -1], first.ravel(), second.ravel()])

    def scales(self) -> Floats:
        """Return the scales of these sums, powers of two in the same vector, relative to which they are rounded."""
        (k, p), own = self.means.shape, np.asarray(self.origins.any(axis=1))
        near = np.minimum(power_of_two(np.maximum(self.gaussians.deviations, _MIN_DEVIATION)), 1.0)
        scales = np.where(own[:, None], np.broadcast_to(near, (k, p)), 1.0)
        if self.kind == "spherical":
            second = scales.min(axis=1) ** 2
        elif self.kind == "diag":
            second = scales**2
        else:
            least = scales if self.kind == "full" else scales.min(axis=0, keepdims=True)
            second = least[:, :, None] * least[:, None]
        return np.concatenate([np.ones(k), scales.ravel(), second.ravel()])


def prepare_states(means: Floats, covariances: Floats, kind: str, log_scale: float = 0.0) -> GaussianStates:
    """Factor the covariances, once for all frames.

    means (k, p); covariances: in the shape of their form; log_scale: subtracted from log densities, for the units of
    the frames.
    Raises InvalidParameterError: a covariance is not positive definite.
    """
    gaussians = prepare_gaussians(means, covariances, kind, np.zeros(means.shape[1]))
    return GaussianStates(gaussians, log_scale, gaussians.origins)


def hmm_moments(seen: ExpectedCounts, kind: str) -> GaussianMoments:
    """Extract the moments of Gaussian states from the result of an E-step; kind: form of the covariances."""
    assert seen.origins is not None
    k, p = seen.origins.shape
    shape = {"full": (k, p, p), "tied": (p, p), "diag": (k, p), "spherical": (k,)}[kind]
    counts, first, second = np.split(seen.moments, [k, k + k * p])
    return GaussianMoments(counts, first.reshape(k, p), second.reshape(shape), seen.origins)


@dataclass(frozen=True)
class GaussianEmission:
    """Log densities of frames in the states, in the data's units."""

    gaussians: Gaussians

    def __call__(self, tile: Floats) -> Floats:
        """Evaluate the log densities (n, k) of the observed entries of a tile (n, p), NaN where missing."""
        return observed_log_densities(self.gaussians, tile)


_MATRIX_KINDS: Final = ("full", "tied")


@dataclass(frozen=True)
class IncompleteStates:
    """Densities and sums of Gaussian states for the observed entries; a frame without any has density one.

    log_units (p,): subtracted from log densities for each observed entry.
    """

    states: GaussianStates
    log_units: Floats

    @property
    def origins(self) -> Floats:
        """Origins of the moments (k, p)."""
        return self.states.origins

    def _seen(self, features: Floats) -> Iterator[CompletedRows]:
        rows = np.ascontiguousarray(features[:-1].T)
        mask = ~np.isnan(rows)
        return completed_rows(self.states.gaussians, np.where(mask, rows, 0.0), mask)

    def log_densities(self, features: Floats) -> Floats:
        """Evaluate the log densities (k, n); features (p + 1, n): values, and ones."""
        mask = ~np.isnan(features[:-1])
        lower = (mask * self.log_units[:, None]).sum(axis=0)
        some = mask.any(axis=0)
        return np.where(some, np.stack([one.log_densities for one in self._seen(features)]) - lower, 0.0)

    def typicality(self, features: Floats) -> Floats:
        """Measure how typical frames are of states, comparable across patterns of missing entries; (k, n)."""
        mask = ~np.isnan(features[:-1].T)
        return np.stack([typicality(one, mask) for one in self._seen(features)])

    def sums(self, weights: Floats, features: Floats) -> Floats:
        """Sum the moments of each state about its origin, as `GaussianStates.sums`; weights (k, n)."""
        (k, p), matrices = self.states.means.shape, self.states.kind in _MATRIX_KINDS
        first, second = np.zeros((k, p)), np.zeros((k, p * p if matrices else p))
        for j, one in enumerate(self._seen(features)):
            centred = one.away + (self.states.means[j] - self.states.origins[j])
            first[j] = weights[j] @ centred
            second[j] = ((centred.T * weights[j]) @ centred).ravel() if matrices else weights[j] @ centred**2
            for part in one.uncertain:
                counts, values, places = part.weighted(weights[j])
                second[j] += np.bincount(places, counts * values, minlength=second.shape[1])
        if self.states.kind == "tied":
            second = second.sum(axis=0)
        elif self.states.kind == "spherical":
            second = second.sum(axis=1)
        return np.concatenate([weights.sum(axis=1), first.ravel(), second.ravel()])

    def scales(self) -> Floats:
        """Return the scales of these sums, relative to which they are rounded."""
        return self.states.scales()


_ROUNDING_SHARE: Final = 0.125  # variances below this share of the floor are rounding error
_MIN_SHAPED_FRAMES: Final = 5.0  # expected frames from which on a state's variances are compared with the floor
_DEFINITE_RTOL: Final = 1e-13  # minimum ratio of eigenvalues of a covariance that can be factored


@dataclass(frozen=True)
class HiddenMarkov:
    """A Markov chain and Gaussian emissions."""

    markov: Markov
    means: Floats  # (k, p)
    covariances: Floats  # in the shape of their type
    covariance_type: str
    at_floor: NDArray[np.bool_]  # (k,): states whose variances are at the floor

    def states(self, log_scale: float = 0.0, origins: Floats | None = None) -> GaussianStates:
        """Prepare the densities; log_scale: subtracted from log densities; origins (k, p): of the moments."""
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
    """Estimate the parameters from expected counts and moments.

    starts (k,), transitions (k, k); kind: form of the covariances; floors (p,): minimum variances; before: empty states
    keep its means. Covariances are shrunk a little towards the pooled one.
    """
    means, covariances = mean_and_covariance(moments, kind)
    if kind != "tied":
        visits = starts + transitions.sum(axis=0) - transitions.diagonal()
        covariances = shrink_covariances(covariances, moments.counts, visits, floors, kind)
    own = np.broadcast_to(variances_of(covariances, kind), means.shape)
    at_floor = rests_on_floor(own, floors, _ROUNDING_SHARE * floors) & (moments.counts >= _MIN_SHAPED_FRAMES)
    if before is not None:
        means = np.where(moments.counts[:, None] > MIN_FRAMES, means, before.means)
    return HiddenMarkov(smoothed_chain(starts, transitions), means, floored(covariances, floors, kind), kind, at_floor)


def floored(covariances: Floats, floors: Floats, kind: str) -> Floats:
    """Raise variances to the floor (p,), in every direction."""
    if kind == "diag":
        return np.maximum(covariances, floors)
    if kind == "spherical":
        return np.maximum(covariances, floors.mean())
    roots = np.sqrt(floors)
    scale = np.multiply.outer(roots, roots)
    variances, axes = np.linalg.eigh((covariances + covariances.swapaxes(-1, -2)) / (2 * scale))
    least = np.maximum(1.0, _DEFINITE_RTOL * variances[..., -1:])
    low = (variances[..., 0] < least[..., 0])[..., None, None]
    if not low.any():
        return covariances
    raised = (axes * np.maximum(variances, least)[..., None, :]) @ axes.swapaxes(-1, -2)
    return np.where(low, raised * scale, covariances)


def labelled_model(
    frames: Floats, edges: Numbers, labels: NDArray[np.intp], k: int, kind: str, floors: Floats
) -> HiddenMarkov:
    """Estimate the parameters from known states.

    frames (n, p); edges (m + 1,): ends of sequences; labels (n,): the states; floors (p,): minimum variances.
    """
    moments = moments_of_partition(np.eye(k)[labels], frames, kind, floors)
    return m_step(*label_counts(labels, edges, k), moments, kind, floors)


def in_data_units(model: HiddenMarkov, centre: Floats, units: Floats) -> HiddenMarkov:
    """Convert a model of (x - centre) / units to one of x; centre, units (p,)."""
    kind = model.covariance_type
    factor: Any = np.multiply.outer(units, units) if kind in ("full", "tied") else units**2
    factor = factor[0] if kind == "spherical" else factor
    return replace(model, means=model.means * units + centre, covariances=model.covariances * factor)


def maximum_likelihood_chain(starts: Floats, transitions: Floats, before: Markov, learnt: str) -> Markov:
    """Estimate a chain by maximum likelihood, so that zero transitions stay zero.

    learnt: "s" for start probabilities, "t" for transitions; others are kept, as are the rows of empty states.
    """
    total = transitions.sum(axis=1, keepdims=True)
    rows = np.where(total > 0.0, transitions / np.where(total > 0.0, total, 1.0), before.transmat)
    return Markov(
        starts / starts.sum() if "s" in learnt else before.startprob, rows if "t" in learnt else before.transmat
    )


def maximum_likelihood_model(found: ExpectedCounts, before: HiddenMarkov, floors: Floats, learnt: str) -> HiddenMarkov:
    """Estimate the parameters by maximum likelihood.

    floors (p,): minimum variances; learnt: letters of the parameters that are learnt, "m" for means, "c" for
    covariances, and those of `maximum_likelihood_chain`. Empty states keep their parameters.
    """
    kind = before.covariance_type
    moments = hmm_moments(found, kind)
    seen = moments.counts > 0.0
    means, covariances = mean_and_covariance(moments, kind)
    means = np.where(seen[:, None], means, before.means)
    if "m" not in learnt:
        covariances = covariances + _mean_shift_covariances(means - before.means, moments.counts, kind)
        means = before.means
    if kind != "tied":
        covariances = np.where(seen.reshape(-1, *[1] * (covariances.ndim - 1)), covariances, before.covariances)
    return replace(
        before,
        markov=maximum_likelihood_chain(found.starts, found.transitions, before.markov, learnt),
        means=means,
        covariances=floored(covariances, floors, kind) if "c" in learnt else before.covariances,
    )


def _mean_shift_covariances(centred: Floats, counts: Floats, kind: str) -> Floats:
    """Second moments minus covariances, for points shifted from the means (k, p), in the shape of their form."""
    if kind == "full":
        return centred[:, :, None] * centred[:, None, :]
    if kind == "tied":
        return (centred.T * counts) @ centred / max(float(counts.sum()), 1e-300)
    return centred**2 if kind == "diag" else (centred**2).mean(axis=1)


def in_form(whole: Floats, weights: Floats, kind: str) -> Floats:
    """Convert full covariances to another form.

    whole (k, p, p); weights (k,): of the states in a tied covariance.
    """
    if kind == "full":
        return whole
    if kind == "tied":
        return np.tensordot(weights / weights.sum(), whole, 1)
    variances = np.ascontiguousarray(np.diagonal(whole, axis1=1, axis2=2))
    return variances if kind == "diag" else variances.mean(axis=1)


def mean_visit_times(markov: Markov, n_steps: int) -> Floats:
    """Compute the mean visit time (k,) of each state in the first steps of a chain."""
    now, times, total = markov.startprob, np.zeros(len(markov.startprob)), np.full(len(markov.startprob), 1e-300)
    for step in range(n_steps):
        times, total = times + step * now, total + now
        now = now @ markov.transmat
    return times / total


def mixed_moments(probabilities: Floats, means: Floats, covariances: Floats) -> tuple[Floats, Floats]:
    """Compute means (n, p) and covariances (n, p, p) of mixtures of states.

    probabilities (n, k); means (k, p); covariances (k, p, p).
    """
    mixed = probabilities @ means
    found = np.tensordot(probabilities, covariances, 1)
    for own, mean, weights in zip(found, mixed, probabilities, strict=True):
        centred = (means - mean) * np.sqrt(weights)[:, None]
        own += centred.T @ centred
    return mixed, found


def as_matrices(covariances: Floats, covariance_type: str, k: int, p: int) -> Floats:
    """Expand covariances to one matrix for each state (k, p, p), as in hmmlearn's `covars_`.

    covariances: in the shape of their type; k, p: numbers of states and of features.
    """
    if covariance_type == "full":
        return covariances.copy()
    if covariance_type == "tied":
        return np.repeat(covariances[None], k, axis=0)
    variances = covariances if covariance_type == "diag" else np.repeat(covariances[:, None], p, axis=1)
    return variances[:, :, None] * np.eye(p)


def count_parameters(covariance_type: str, k: int, p: int) -> int:
    """Count the free parameters of a model of k states and p features."""
    return k - 1 + k * (k - 1) + k * p + covariance_parameters(covariance_type, k, p)
