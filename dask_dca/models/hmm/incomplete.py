"""Gaussian states on frames with missing entries: densities of what was observed, sums of what it says of the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.gaussians import Gaussians
from dask_dca.models.incomplete_gaussians import completed_rows, typicality

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.models.hmm.emission import GaussianStates
    from dask_dca.models.incomplete_gaussians import CompletedRows

    Floats = NDArray[np.float64]

__all__ = ["IncompleteFeatures", "IncompleteStates"]

_MATRICES: Final = ("full", "tied")


@dataclass(frozen=True)
class IncompleteFeatures:
    """The features of frames with holes: values in standard units, NaN where an entry is missing.

    centre, units (p,): what frames are less, and over.
    """

    centre: Floats
    units: Floats

    def __call__(self, values: Floats) -> Floats:
        """List them; values (p, L, m): frames. Returns the same shape."""
        shape = (-1, *[1] * (values.ndim - 1))
        found: Floats = (values - self.centre.reshape(shape)) / self.units.reshape(shape)
        return found


@dataclass(frozen=True)
class IncompleteStates:
    """Densities and sums of Gaussian states, by the observed entries; a frame without any has density one.

    log_units (p,): what log densities are lower by, for each observed entry.
    """

    states: GaussianStates
    log_units: Floats

    def _seen(self, features: Floats) -> Iterator[CompletedRows]:
        states, rows = self.states, np.ascontiguousarray(features.T)
        nothing = np.zeros(len(states.means))
        centre = np.zeros(states.means.shape[1])
        gaussians = Gaussians(states.kind, centre, states.means, states.factors, nothing, states.far)
        mask = ~np.isnan(rows)
        return completed_rows(gaussians, np.where(mask, rows, 0.0), mask)

    def log_densities(self, features: Floats) -> Floats:
        """Evaluate the log densities; features (p, n). Returns (k, n)."""
        mask = ~np.isnan(features)
        lower = (mask * self.log_units[:, None]).sum(axis=0)
        some = mask.any(axis=0)
        return np.where(some, np.stack([one.log_densities for one in self._seen(features)]) - lower, 0.0)

    def typicality(self, features: Floats) -> Floats:
        """Say how typical frames are of states, as greater densities do for complete ones; shapes as above."""
        mask = ~np.isnan(features.T)
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
