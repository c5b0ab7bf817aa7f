"""Forward and backward recursions of hidden Markov models over many pieces of sequences side by side.

Arrays are (steps, states, chains): one step is one product (k, k) x (k, chains), whatever the number of frames. The
forward recursion and the backward one run in the same products. Arithmetic is scaled: each message sums to one, and
the logarithms of the sums add up to the likelihood. Chains whose messages come near underflow, which can only happen
where transitions are all but impossible, are computed again in logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.kernels.markov_logs import log_messages, near_underflow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.kernels.chains import Markov

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

__all__ = ["Chains", "Messages", "Scratch", "forward_backward", "transition_counts"]

_LEAST: Final = 1e-250  # sums of products of messages below this are near underflow


@dataclass(frozen=True)
class Chains:
    """
    Pieces of sequences side by side.

    Attributes
    ----------
    log_emissions : ndarray of float64, shape (steps, k, m)
        Log density of each frame in each state; zero where there is no frame.
    log_entry : ndarray of float64, shape (k, m)
        Logarithm of the distribution of the state at step 0, before its frame is seen.
    log_exit : ndarray of float64, shape (k, m)
        Log likelihood of all that follows the last step, given the state there, up to a constant; zeros for nothing.
    first : ndarray of bool, shape (m,)
        Chains on which a sequence begins at step `restart`.
    restart : int
        That step.
    """

    log_emissions: Floats
    log_entry: Floats
    log_exit: Floats
    first: Mask
    restart: int


@dataclass(frozen=True)
class Messages:
    """
    What the recursions found.

    Attributes
    ----------
    log_likelihoods : ndarray of float64, shape (steps, m)
        Log likelihood of each frame, given the earlier ones.
    posteriors : ndarray of float64, shape (steps, k, m)
        Probabilities of the states, given all frames.
    filtered : ndarray of float64, shape (steps, k, m)
        Probabilities of the states, given the frames so far.
    ahead : ndarray of float64, shape (steps, k, m)
        Likelihood of this frame and all later ones given the state, over its mean under the prediction: pairs of
        states have the probabilities filtered[t, i] transmat[i, j] ahead[t + 1, j].
    lost : ndarray of intp, shape (l,)
        Chains of which these two factors are out of range.
    pairs : ndarray of float64, shape (steps - 1, k, k, l) or (0,)
        Their probabilities of pairs of states.
    """

    log_likelihoods: Floats
    posteriors: Floats
    filtered: Floats
    ahead: Floats
    lost: NDArray[np.intp]
    pairs: Floats


class Scratch:
    """Arrays that are used again by later calls, so that the system need not clear memory for each."""

    def __init__(self) -> None:
        self._arrays: dict[str, Floats] = {}

    def array(self, name: str, shape: tuple[int, ...]) -> Floats:
        """
        Return an array of any content.

        Parameters
        ----------
        name : str
            Its name; the next array of this name takes its memory.
        shape : tuple of int
            Its shape.

        Returns
        -------
        ndarray of float64
            C-contiguous.
        """
        size = int(np.prod(shape))
        if name not in self._arrays or self._arrays[name].size < size:
            self._arrays[name] = np.empty(size)
        return self._arrays[name][:size].reshape(shape)


def forward_backward(markov: Markov, chains: Chains, scratch: Scratch | None = None) -> Messages:
    """
    Run both recursions on all chains.

    Parameters
    ----------
    markov : Markov
        Rows of its transition matrix sum to one.
    chains : Chains
        The emissions and the ends.
    scratch : Scratch, optional
        Memory of an earlier call, whose messages are lost.

    Returns
    -------
    Messages
        Those of a chain do not depend on the others (bit for bit where m is a multiple of 64).

    Examples
    --------
    >>> from dask_dca.kernels.chains import Markov
    >>> markov = Markov(np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.1, 0.9]]))
    >>> emissions = np.log([[[0.8], [0.2]], [[0.8], [0.2]]])
    >>> ends = np.log(np.full((2, 1), 0.5)), np.zeros((2, 1))
    >>> found = forward_backward(markov, Chains(emissions, *ends, np.array([True]), 0))
    >>> found.posteriors[1, :, 0].round(3)
    array([0.919, 0.081])
    """
    scratch = Scratch() if scratch is None else scratch
    peaks = chains.log_emissions.max(axis=1)
    predicted, messages, sums = _recursions(markov, chains, peaks, scratch)
    filtered, behind = messages[:, 0], messages[::-1, 1]
    shape = filtered.shape
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_sums = np.log(sums)
        posteriors = np.multiply(filtered, predicted[::-1, 1], out=scratch.array("posteriors", shape))
        totals = posteriors.sum(axis=1)
        posteriors /= totals[:, None]
        ahead = np.multiply(predicted[:, 0], behind, out=scratch.array("ahead", shape))
        ahead_totals = ahead.sum(axis=1)
        np.divide(behind, ahead_totals[:, None], out=ahead)
        safe = np.minimum(totals, ahead_totals).min(axis=0) > _LEAST
    likelihoods = log_sums[:, 0] + peaks
    lost = np.flatnonzero(near_underflow(log_sums).any(axis=0) | ~safe)
    pairs = np.zeros(0)
    if len(lost):
        likelihoods[:, lost], posteriors[:, :, lost], pairs = log_messages(
            markov.startprob,
            markov.transmat,
            chains.log_emissions[:, :, lost],
            (chains.log_entry[:, lost], chains.log_exit[:, lost]),
            np.where(chains.first[lost], chains.restart, -1),
        )
    return Messages(likelihoods, posteriors, filtered, ahead, lost, pairs)


def _recursions(markov: Markov, chains: Chains, peaks: Floats, scratch: Scratch) -> tuple[Floats, Floats, Floats]:
    """
    Both recursions at once.

    Entry 0 of the second axis runs forward, entry 1 runs backward from the last step.
    """
    steps, k, m = chains.log_emissions.shape
    both, predicted = scratch.array("both", (steps, 2, k, m)), scratch.array("predicted", (steps, 2, k, m))
    sums = scratch.array("sums", (steps, 2, m))
    np.subtract(chains.log_emissions, peaks[:, None], out=both[:, 0])
    np.exp(both[:, 0], out=both[:, 0])
    both[:, 1] = both[::-1, 0]
    predicted[0, 0] = np.exp(chains.log_entry)
    predicted[0, 1] = np.exp(chains.log_exit - chains.log_exit.max(axis=0))
    matrices = np.stack([markov.transmat.T, markov.transmat])
    restarts = bool(chains.first.any())
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for t in range(steps):
            message, before, total = both[t], predicted[t], sums[t]
            if t:
                np.matmul(matrices, both[t - 1], out=before)
            if restarts and t == chains.restart:
                before[0][:, chains.first] = markov.startprob[:, None]
            np.multiply(message, before, out=message)
            np.add.reduce(message, axis=1, out=total)
            np.divide(message, total[:, None], out=message)
    return predicted, both, sums


def transition_counts(markov: Markov, found: Messages, pairs: Mask) -> Floats:
    """
    Sum the probabilities of pairs of successive states.

    Parameters
    ----------
    markov : Markov
        The chain.
    found : Messages
        From `forward_backward`.
    pairs : ndarray of bool, shape (steps, m)
        True where the pair of steps (t, t + 1) counts; the first m chains are summed.

    Returns
    -------
    ndarray of float64, shape (m, k, k)
        Expected number of transitions from state i to state j on each chain.

    Examples
    --------
    >>> from dask_dca.kernels.chains import Markov
    >>> markov = Markov(np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.1, 0.9]]))
    >>> ends = np.log(np.full((2, 1), 0.5)), np.zeros((2, 1))
    >>> chains = Chains(np.zeros((3, 2, 1)), *ends, np.array([True]), 0)
    >>> transition_counts(markov, forward_backward(markov, chains), np.array([[True], [True], [False]]))
    array([[[0.9, 0.1],
            [0.1, 0.9]]])
    """
    m = pairs.shape[1]
    left = (found.filtered[:-1, :, :m] * pairs[:-1, None]).transpose(2, 1, 0)
    right = found.ahead[1:, :, :m].transpose(2, 0, 1)
    with np.errstate(invalid="ignore", over="ignore"):
        counts: Floats = np.matmul(np.ascontiguousarray(left), np.ascontiguousarray(right))
        counts *= markov.transmat
    for i, chain in enumerate(found.lost):
        if chain < m:
            counts[chain] = (found.pairs[..., i] * pairs[:-1, chain, None, None]).sum(axis=0)
    return counts
