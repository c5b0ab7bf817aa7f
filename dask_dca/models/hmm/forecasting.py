"""Chains that look back only: the states given the frames so far, and those of the frames that follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dask_dca.models.hmm.recursions import log_filtered, log_sum_exp, near_underflow, safe_log

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.models.hmm.recursions import Chains, Markov

    Floats = NDArray[np.float64]

__all__ = ["filtered", "mixed_moments", "next_filtered", "states_ahead"]


def filtered(markov: Markov, chains: Chains) -> Floats:
    """Run the forward recursion alone.

    chains: what follows them has no influence. Returns (steps, k, m): probabilities of the states given each chain's
    frames so far; the bits of a chain do not depend on the others where m is a multiple of 64.
    """
    logs = chains.log_emissions
    log_sums, onward = np.empty((len(logs), logs.shape[2])), np.ascontiguousarray(markov.transmat.T)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = np.exp(logs - logs.max(axis=1)[:, None])
        for t, message in enumerate(found):
            before = onward @ found[t - 1] if t else np.exp(chains.log_entry)
            if t == chains.restart:
                before[:, chains.first] = markov.startprob[:, None]
            message *= before
            total = message.sum(axis=0)
            message /= total
            np.log(total, out=log_sums[t])
    lost = np.flatnonzero(near_underflow(log_sums))
    if len(lost):
        restarts = np.where(chains.first[lost], chains.restart, -1)
        found[:, :, lost] = np.exp(log_filtered(markov, logs[:, :, lost], chains.log_entry[:, lost], restarts)[1])
    return found


def next_filtered(markov: Markov, before: Floats | None, log_densities: Floats) -> Floats:
    """Take one more frame in.

    before (k,): probabilities of the states at the frame before; None where a sequence begins; log_densities (k,): of
    the frame; zeros if it is missing. Returns (k,): the prediction itself where no state can explain the frame.
    """
    predicted = markov.startprob if before is None else before @ markov.transmat
    logs = safe_log(predicted) + log_densities
    total = log_sum_exp(logs, 0)
    found: Floats = np.exp(logs - total) if np.isfinite(total) else predicted
    return found


def states_ahead(last: Floats, transmat: Floats, n_steps: int) -> Floats:
    """Predict the states of the frames that follow.

    last (k,): probabilities at the last frame. Returns (n_steps, k).
    """
    found = np.empty((n_steps, len(last)))
    for step in range(n_steps):
        last = last @ transmat
        found[step] = last / last.sum()
    return found


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
