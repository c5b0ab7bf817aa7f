"""Shrinkage of the states' covariances towards each other, so that states of few frames stay well-conditioned."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.special import digamma, zeta

from dask_dca.geometry.arrays import Floats
from dask_dca.models.gaussians import variances_of

_MAX_PSEUDO_FRAMES: Final = 10.0  # maximum weight of the pooled covariance, in frames
_PSEUDO_FRAMES_SCALE: Final = 5000.0  # this over the number of frames is the weight, which is one from 5,000 frames on
_NEWTON_STEPS: Final = 8  # steps of Newton's method for the degrees of freedom
_MIN_LOG_SPREAD: Final = 1e-3  # minimum variance of the log variances of states
MIN_FRAMES: Final = 1e-3  # expected number of frames below which a state counts as empty


def shrink_covariances(covariances: Floats, counts: Floats, visits: Floats, floors: Floats, kind: str) -> Floats:
    """Shrink covariances towards the pooled one, at a scale of their own where the states' scales differ.

    covariances (k, ...): maximum likelihood estimates; counts, visits (k,): expected numbers of frames in each state,
    and of entries into it; floors (p,): minimum variances. The pooled covariance counts as 1 to 10 frames of each
    state.
    """
    total = max(float(counts.sum()), 1e-300)
    pseudo_frames = float(np.clip(_PSEUDO_FRAMES_SCALE / max(total, 1.0), 1.0, _MAX_PSEUDO_FRAMES))
    each = counts.reshape(-1, *[1] * (covariances.ndim - 1))
    pooled = (each * covariances).sum(axis=0) / total
    own = variances_of(covariances, kind).reshape(len(counts), -1)
    own = np.maximum(own, floors.mean() if kind == "spherical" else floors)
    frames = np.maximum(counts, MIN_FRAMES)[:, None]
    prior, strength = prior_variances(own, frames, np.maximum(visits - 1.0, 1.0)[:, None], pseudo_frames)
    # `target` is chosen so that the shrunk variances are (frames * own + strength * prior) / (frames + strength)
    target = (pseudo_frames - strength) * frames * own + (frames + pseudo_frames) * strength * prior
    target /= pseudo_frames * (frames + strength)
    scales = np.sqrt(target / ((frames * own).sum(axis=0) / frames.sum()))
    spread = scales[:, :, None] * scales[:, None, :] if kind == "full" else (scales**2).reshape(covariances.shape)
    return (each * covariances + pseudo_frames * pooled * spread) / (each + pseudo_frames)


def prior_variances(own: Floats, counts: Floats, visits: Floats, most: float) -> tuple[Floats, float]:
    """Fit scaled inverse chi-squared distributions to the variances of the states, feature by feature.

    own (k, p): variances; counts, visits (k, 1): numbers of frames, and of visits, which are the degrees of freedom of
    a variance since frames of one visit are alike; most: maximum prior degrees of freedom. Returns the prior scale of
    each feature (p,), and the prior degrees of freedom (Smyth, Statistical Applications in Genetics and Molecular
    Biology 3, 2004, section 6.2).
    """
    weights, logs = counts / counts.sum(), np.log(own)
    middle = (weights * logs).sum(axis=0)
    spread = float((weights * (logs - middle) ** 2).sum(axis=0).mean()) / max(1.0 - float((weights**2).sum()), 1e-12)
    spread -= float((weights * zeta(2.0, visits / 2.0)).sum())  # expected spread of log variances by sampling noise
    spread = max(spread, _MIN_LOG_SPREAD)
    half = 0.5 + 1.0 / spread
    for _ in range(_NEWTON_STEPS):
        slope = float(zeta(2.0, half))  # trigamma; zeta(3) below gives its derivative
        half -= slope * (1.0 - slope / spread) / (2.0 * float(zeta(3.0, half)))
    return np.exp(middle + digamma(half) - np.log(half)), min(2.0 * half, most)
