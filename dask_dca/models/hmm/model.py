"""A Markov chain with Gaussian states in standard units, and the M-step that makes one of expected counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.models.gaussians import (
    GaussianMoments,
    mean_and_covariance,
    moments_of_parts,
    rests_on_floor,
    variances_of,
)
from dask_dca.models.hmm.emission import prepare_states
from dask_dca.models.hmm.recursions import smoothed_chain
from dask_dca.models.kmeans import label_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.models.hmm.emission import GaussianStates
    from dask_dca.models.hmm.recursions import Markov

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["HiddenMarkov", "floored", "in_data_units", "m_step", "model_of_labels"]

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
