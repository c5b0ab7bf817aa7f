"""What states of a hidden Markov model lend each other, so that those that few frames are of stay well-conditioned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import digamma, zeta

from dask_dca.models.gaussians import variances_of

if TYPE_CHECKING:
    from dask_dca.geometry.arrays import Floats

_BORROWED: Final = 10.0  # frames that a state's covariance borrows from all states together, where there are few,
_ENOUGH: Final = 5000.0  # and fewer where there are many: one from 5,000 on
_NEWTON: Final = 8  # steps to degrees of freedom
_ALIKE: Final = 1e-3  # of the logarithms of variances: a spread that is none
VISITED: Final = 1e-3  # frames below which a state counts as one that no frame is in


def lend_covariances(covariances: Floats, counts: Floats, visits: Floats, floors: Floats, kind: str) -> Floats:
    """Let states borrow some frames of all states together: their shape, at a scale of their own where scales differ.

    covariances (k, ...): of the states' own frames; counts, visits (k,): these frames, and the times that a state is
    entered; floors (p,): least variances.
    """
    total = max(float(counts.sum()), 1e-300)
    borrowed = float(np.clip(_ENOUGH / max(total, 1.0), 1.0, _BORROWED))
    each = counts.reshape(-1, *[1] * (covariances.ndim - 1))
    pooled = (each * covariances).sum(axis=0) / total
    own = variances_of(covariances, kind).reshape(len(counts), -1)
    own = np.maximum(own, floors.mean() if kind == "spherical" else floors)
    frames = np.maximum(counts, VISITED)[:, None]
    prior, strength = prior_variances(own, frames, np.maximum(visits - 1.0, 1.0)[:, None], borrowed)
    # so that states are left with (frames * own + strength * prior) / (frames + strength)
    lent = (borrowed - strength) * frames * own + (frames + borrowed) * strength * prior
    lent /= borrowed * (frames + strength)
    scales = np.sqrt(lent / ((frames * own).sum(axis=0) / frames.sum()))
    spread = scales[:, :, None] * scales[:, None, :] if kind == "full" else (scales**2).reshape(covariances.shape)
    return (each * covariances + borrowed * pooled * spread) / (each + borrowed)


def prior_variances(own: Floats, counts: Floats, visits: Floats, most: float) -> tuple[Floats, float]:
    """Learn how variances of states are distributed, feature by feature: as scaled inverse chi squares.

    own (k, p): variances; counts, visits (k, 1): of frames, and of stretches of them, which are alike: so many numbers
    tell of a variance; most: degrees of freedom at most. Returns their scale in each feature (p,), and degrees of
    freedom.
    G. Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004, section 6.2.
    """
    weights, logs = counts / counts.sum(), np.log(own)
    middle = (weights * logs).sum(axis=0)
    spread = float((weights * (logs - middle) ** 2).sum(axis=0).mean()) / max(1.0 - float((weights**2).sum()), 1e-12)
    spread -= float((weights * zeta(2.0, visits / 2.0)).sum())  # what chance makes of variances that are the same
    spread = max(spread, _ALIKE)
    half = 0.5 + 1.0 / spread
    for _ in range(_NEWTON):
        slope = float(zeta(2.0, half))  # of digamma; and the next one
        half -= slope * (1.0 - slope / spread) / (2.0 * float(zeta(3.0, half)))
    return np.exp(middle + digamma(half) - np.log(half)), min(2.0 * half, most)
