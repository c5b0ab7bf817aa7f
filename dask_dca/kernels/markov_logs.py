"""The recursions of hidden Markov models in logarithms: slower than scaled ones, and never out of range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["log_messages", "log_sum_exp", "log_transfers", "near_underflow", "safe_log"]

_SMALL: Final = np.log(1e-4)  # steps on which the sum of a scaled message falls below this are counted
_MOST_LOST: Final = 450.0  # natural logarithms that such steps may lose in all before underflow is near


def near_underflow(log_sums: Floats) -> NDArray[np.bool_]:
    """
    Tell which scaled recursions may have rounded a state to zero that could come back.

    Parameters
    ----------
    log_sums : ndarray of float64, shape (steps, ...)
        Logarithms of the sums by which messages were scaled, step by step.

    Returns
    -------
    ndarray of bool, shape (...)
        True where unlikely steps lost too much in all, or a message was zero.

    Examples
    --------
    >>> near_underflow(np.array([[-1.0, -300.0], [-1.0, -300.0]]))
    array([False,  True])
    """
    found: NDArray[np.bool_] = ~(np.where(log_sums < _SMALL, -log_sums, 0.0).sum(axis=0) < _MOST_LOST)
    return found


def safe_log(values: Floats) -> Floats:
    """
    Return logarithms, minus infinity for zero.

    Parameters
    ----------
    values : ndarray of float64
        Non-negative numbers.

    Returns
    -------
    ndarray of float64
        Their logarithms.

    Examples
    --------
    >>> safe_log(np.array([1.0, 0.0]))
    array([  0., -inf])
    """
    with np.errstate(divide="ignore"):
        found: Floats = np.log(values)
    return found


def log_sum_exp(values: Floats, axis: int) -> Floats:
    """
    Return the logarithm of a sum of exponentials.

    Parameters
    ----------
    values : ndarray of float64
        Logarithms; minus infinity stands for zero.
    axis : int
        To be summed over.

    Returns
    -------
    ndarray of float64
        Without that axis; minus infinity where all are.

    Examples
    --------
    >>> float(log_sum_exp(np.array([0.0, 0.0]), 0)) == float(np.log(2.0))
    True
    """
    peak = values.max(axis=axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    return safe_log(np.exp(values - peak).sum(axis=axis)) + peak.squeeze(axis)


def log_messages(
    startprob: Floats,
    transmat: Floats,
    log_emissions: Floats,
    ends: tuple[Floats, Floats],
    restarts: NDArray[np.int64],
) -> tuple[Floats, Floats, Floats]:
    """
    Run the forward and backward recursions in logarithms.

    Parameters
    ----------
    startprob, transmat : ndarray of float64, shapes (k,) and (k, k)
        The Markov chain.
    log_emissions : ndarray of float64, shape (steps, k, m)
        Log densities.
    ends : tuple of two ndarrays of float64, shape (k, m)
        Log entry and log exit, as `Chains` has them.
    restarts : ndarray of int64, shape (m,)
        Step at which a sequence begins; negative for none.

    Returns
    -------
    log_likelihoods : ndarray of float64, shape (steps, m)
        Of each frame, given the earlier ones.
    posteriors : ndarray of float64, shape (steps, k, m)
        As `Messages` has them; a frame that no state can explain leaves the prediction as it is.
    pairs : ndarray of float64, shape (steps - 1, k, k, m)
        Probabilities of pairs of successive states.
    """
    steps = len(log_emissions)
    log_start, log_transmat = safe_log(startprob), safe_log(transmat)
    predicted, filtered = np.empty_like(log_emissions), np.empty_like(log_emissions)
    behind, beyond = np.empty_like(log_emissions), np.empty_like(log_emissions)
    for t in range(steps):
        before = ends[0] if t == 0 else _through(filtered[t - 1], log_transmat)
        predicted[t] = np.where(restarts == t, log_start[:, None], before)
        filtered[t] = _normalised(predicted[t] + log_emissions[t], predicted[t])
    for t in range(steps - 1, -1, -1):
        beyond[t] = ends[1] if t == steps - 1 else _through(behind[t + 1], log_transmat.T)
        behind[t] = _normalised(beyond[t] + log_emissions[t], beyond[t])
    likelihoods = log_sum_exp(predicted + log_emissions, 1)
    posteriors = np.exp(_normalised(filtered + beyond, filtered))
    ahead = behind[1:] - log_sum_exp(predicted[1:] + behind[1:], 1)[:, None]
    pairs = np.exp(filtered[:-1, :, None] + log_transmat[:, :, None] + ahead[:, None])
    return likelihoods, posteriors, pairs


def log_transfers(transmat: Floats, log_emissions: Floats) -> Floats:
    """
    Compute what each chain does to a message, in logarithms.

    Parameters
    ----------
    transmat : ndarray of float64, shape (k, k)
        Transition matrix.
    log_emissions : ndarray of float64, shape (steps, k, m)
        Log densities.

    Returns
    -------
    ndarray of float64, shape (k, k, m)
        Entry (i, j) is the log likelihood of all frames together with state j right after them, given state i at
        the first.
    """
    _, k, m = log_emissions.shape
    log_transmat = safe_log(transmat)
    found = np.full((k, k, m), -np.inf)
    found[np.arange(k), np.arange(k)] = 0.0
    for emission in log_emissions:
        seen = found + emission
        for j in range(k):
            found[:, j] = log_sum_exp(seen + log_transmat[:, j, None], 1)
    return found


def _through(logs: Floats, log_matrix: Floats) -> Floats:
    """Propagate log messages (k, m) by a log matrix (k, k): sums over its first index."""
    return log_sum_exp(logs[:, None, :] + log_matrix[:, :, None], 0)


def _normalised(logs: Floats, otherwise: Floats) -> Floats:
    """Logarithms (..., k, m) whose exponentials sum to one; `otherwise` where all are minus infinity."""
    total = log_sum_exp(logs, -2)[..., None, :]
    return np.where(np.isfinite(total), logs - np.where(np.isfinite(total), total, 0.0), otherwise)
