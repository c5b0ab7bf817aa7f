"""The M-step of greatest likelihood, of which some parameters may be kept; and covariances in another form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dask_dca.models.gaussians import mean_and_covariance
from dask_dca.models.hmm.model import HiddenMarkov, floored
from dask_dca.models.hmm.recursions import Markov

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.models.gaussians import GaussianMoments

    Floats = NDArray[np.float64]

__all__ = ["Counts", "in_form", "likeliest", "likeliest_chain", "mean_times"]


@dataclass(frozen=True)
class Counts:
    """Expected starts (k,), transitions (k, k) and moments."""

    starts: Floats
    transitions: Floats
    moments: GaussianMoments


def likeliest_chain(starts: Floats, transitions: Floats, before: Markov, learnt: str) -> Markov:
    """Turn expected counts into probabilities; transitions of which there are none stay zero.

    learnt: "s" for start probabilities, "t" for transitions; others are kept, as is the row of a state without counts.
    """
    total = transitions.sum(axis=1, keepdims=True)
    rows = np.where(total > 0.0, transitions / np.where(total > 0.0, total, 1.0), before.transmat)
    return Markov(
        starts / starts.sum() if "s" in learnt else before.startprob, rows if "t" in learnt else before.transmat
    )


def likeliest(counts: Counts, before: HiddenMarkov, floors: Floats, learnt: str) -> HiddenMarkov:
    """Take the M-step.

    floors (p,): least variances; learnt: letters of what is learnt, "m" for means and "c" for covariances, as
    `likeliest_chain` has them. A state that no frame is in keeps what it had.
    """
    moments, kind = counts.moments, before.covariance_type
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
        markov=likeliest_chain(counts.starts, counts.transitions, before.markov, learnt),
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
