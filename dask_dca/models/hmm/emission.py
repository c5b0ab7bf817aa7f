"""Gaussian states on tiles: densities of whole and incomplete frames, and the sums for the M-step.

Frames are in standard units: about a centre, over a scale. A state whose spread is tiny beside its distance from the
centre is *far*: squares about the centre would lose the digits that matter, and are taken about its mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.exact import power_of_two
from dask_dca.models.gaussians import GaussianMoments, Gaussians, log_peak, prepare_gaussians
from dask_dca.models.incomplete_gaussians import completed_rows, observed_log_densities, typicality

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dask_dca.geometry.arrays import Floats
    from dask_dca.models.hmm.expectation import Expected
    from dask_dca.models.incomplete_gaussians import CompletedRows

_LEAST_DEVIATION: Final = 2.0**-40  # of a feature's own: moments about a point are not rounded finer


@dataclass(frozen=True)
class FrameFeatures:
    """The features of frames whose weighted sums are moments: values in standard units, their squares, and ones.

    kind: form of the covariances, "full" where entries are missing, which are NaN; centre, units (p,): what frames are
    less, and over.
    """

    kind: str
    centre: Floats
    units: Floats

    def __call__(self, values: Floats) -> Floats:
        """List them.

        values (p, L, m): frames. Returns (q, L, m): with squares where they are "diag", their sum where "spherical".
        """
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

    gaussians: about zero; log_scale: what log densities are lower by; origins (k, p): points that moments are taken
    about, zero or a mean.
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
        """Of the inverse covariances: P with P P' the inverse, or reciprocal deviations."""
        return self.gaussians.precisions_cholesky

    @property
    def constants(self) -> Floats:
        """Log densities at the means (k,)."""
        return self.gaussians.log_determinants + log_peak(self.means.shape[1], np.inf) - self.log_scale

    def log_densities(self, features: Floats) -> Floats:
        """Evaluate the log densities.

        features (q, n): from `FrameFeatures`. Returns (k, n).
        """
        p = self.means.shape[1]
        found: Floats
        if self.kind == "full":
            found = np.stack([self._about_mean(features[:p], j) for j in range(len(self.means))])
        else:
            found = self._linear() @ features
            if self.kind == "tied":
                found -= 0.5 * ((self.factors.T @ features[:p]) ** 2).sum(axis=0)
            for j in np.flatnonzero(self.gaussians.far).tolist():
                found[j] = self._about_mean(features[:p], j)
        return found

    def _linear(self) -> Floats:
        """Log densities as a matrix of features."""
        if self.kind == "tied":
            linear, squares = self.means @ self.factors @ self.factors.T, np.zeros((len(self.means), 0))
        else:
            precisions = self.factors.reshape(len(self.means), -1) ** 2
            linear, squares = self.means * precisions, -0.5 * precisions
        constants = self.constants - 0.5 * (self.means * linear).sum(axis=1)
        return np.hstack([linear, squares, constants[:, None]])

    def _about_mean(self, values: Floats, j: int) -> Floats:
        """Log densities (n,) of one state."""
        away = values - self.means[j][:, None]
        if self.kind in ("full", "tied"):
            seen = (self.factors[j] if self.kind == "full" else self.factors).T @ away
        else:
            seen = away * self.factors[j].reshape(-1, 1)
        found: Floats = self.constants[j] - 0.5 * (seen * seen).sum(axis=0)
        return found

    def sums(self, weights: Floats, features: Floats) -> Floats:
        """Sum moments, each state's about its origin.

        weights (k, n); features (q, n). Returns counts (k,), first moments (k, p) and second ones, in one line.
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
            away = features[:p] - self.origins[j][:, None]
            first[j] = away @ weights[j]
            if self.kind in ("full", "tied"):
                scaled = away * np.sqrt(weights[j])
                second[j if self.kind == "full" else 0] += scaled @ scaled.T
            else:
                squares = (away * away) @ weights[j]
                second[j] = squares if self.kind == "diag" else squares.sum()
        return np.concatenate([found[:, -1], first.ravel(), second.ravel()])

    def scales(self) -> Floats:
        """Say what the sums are to be rounded in proportion to.

        Returns powers of two, in the same line.
        """
        (k, p), own = self.means.shape, np.asarray(self.origins.any(axis=1))
        near = np.minimum(power_of_two(np.maximum(self.gaussians.deviations, _LEAST_DEVIATION)), 1.0)
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

    means (k, p); covariances: in the shape of their form; log_scale: what log densities are lower by, since the units
    of the frames are not those of the data.
    Raises numpy.linalg.LinAlgError: a covariance is not positive definite.
    """
    gaussians = prepare_gaussians(means, covariances, kind, np.zeros(means.shape[1]))
    return GaussianStates(gaussians, log_scale, gaussians.origins)


def moments_of(seen: Expected, kind: str) -> GaussianMoments:
    """Read the moments from what an E-step saw of Gaussian states; kind: form of the covariances."""
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
        """Evaluate the log densities of what was observed: of a tile (n, p), NaN where it was not, shape (n, k)."""
        return observed_log_densities(self.gaussians, tile)


_MATRICES: Final = ("full", "tied")


@dataclass(frozen=True)
class IncompleteStates:
    """Densities and sums of Gaussian states, by the observed entries; a frame without any has density one.

    log_units (p,): what log densities are lower by, for each observed entry.
    """

    states: GaussianStates
    log_units: Floats

    @property
    def origins(self) -> Floats:
        """What moments are about (k, p)."""
        return self.states.origins

    def _seen(self, features: Floats) -> Iterator[CompletedRows]:
        rows = np.ascontiguousarray(features[:-1].T)
        mask = ~np.isnan(rows)
        return completed_rows(self.states.gaussians, np.where(mask, rows, 0.0), mask)

    def log_densities(self, features: Floats) -> Floats:
        """Evaluate the log densities; features (p + 1, n): values, and ones. Returns (k, n)."""
        mask = ~np.isnan(features[:-1])
        lower = (mask * self.log_units[:, None]).sum(axis=0)
        some = mask.any(axis=0)
        return np.where(some, np.stack([one.log_densities for one in self._seen(features)]) - lower, 0.0)

    def typicality(self, features: Floats) -> Floats:
        """Say how typical frames are of states, as greater densities do for complete ones; shapes as above."""
        mask = ~np.isnan(features[:-1].T)
        return np.stack([typicality(one, mask) for one in self._seen(features)])

    def sums(self, weights: Floats, features: Floats) -> Floats:
        """Sum moments, each state's about its origin, as complete states do; weights (k, n)."""
        (k, p), matrices = self.states.means.shape, self.states.kind in _MATRICES
        first, second = np.zeros((k, p)), np.zeros((k, p * p if matrices else p))
        for j, one in enumerate(self._seen(features)):
            away = one.away + (self.states.means[j] - self.states.origins[j])
            first[j] = weights[j] @ away
            second[j] = ((away.T * weights[j]) @ away).ravel() if matrices else weights[j] @ away**2
            for part in one.uncertain:
                counts, values, places = part.weighted(weights[j])
                second[j] += np.bincount(places, counts * values, minlength=second.shape[1])
        if self.states.kind == "tied":
            second = second.sum(axis=0)
        elif self.states.kind == "spherical":
            second = second.sum(axis=1)
        return np.concatenate([weights.sum(axis=1), first.ravel(), second.ravel()])

    def scales(self) -> Floats:
        """Say what the sums are to be rounded in proportion to."""
        return self.states.scales()
