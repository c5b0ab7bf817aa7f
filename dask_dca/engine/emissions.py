"""Densities of frames in hidden states, and the recursions over a batch of pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dask_dca.kernels.chains import Markov, stationary_distribution
from dask_dca.kernels.gaussian import Gaussians, log_densities
from dask_dca.kernels.markov import Chains, Messages, Scratch, forward_backward
from dask_dca.kernels.markov_logs import safe_log

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.sequences import Batch, Cut

    Floats = NDArray[np.float64]

__all__ = ["Emission", "piece_messages", "steps_first"]


@dataclass(frozen=True)
class Emission:
    """Densities of frames in the states: of their coordinates (x - centre) @ coordinates, or of the frames as such."""

    gaussians: Gaussians
    centre: Floats | None = None  # (p,)
    coordinates: Floats | None = None  # (p, d)

    def __call__(self, tile: Floats) -> Floats:
        """
        Evaluate the densities.

        Parameters
        ----------
        tile : ndarray of float64, shape (n, p)
            Frames.

        Returns
        -------
        ndarray of float64, shape (n, k)
            Log densities.
        """
        if self.centre is None or self.coordinates is None:
            return log_densities(self.gaussians, tile)
        return log_densities(self.gaussians, (tile - self.centre) @ self.coordinates)


def piece_messages(cut: Cut, markov: Markov, batch: Batch, k: int, scratch: Scratch | None = None) -> Messages:
    """
    Run the recursions over a batch of pieces, entered from the long-run distribution a burn-in early.

    Parameters
    ----------
    cut : Cut
        How sequences are cut.
    markov : Markov
        The Markov chain.
    batch : Batch
        Its first k values a frame are log densities.
    k : int
        Number of states.
    scratch : Scratch, optional
        Memory of the batch before.

    Returns
    -------
    Messages
        Of all steps; those of the burn-in are approximate.
    """
    entry = np.repeat(stationary_distribution(markov.transmat)[:, None], cut.chains, axis=1)
    logs = steps_first(batch, slice(0, k))
    chains = Chains(logs, safe_log(entry), np.zeros_like(entry), batch.first, cut.burn_in)
    return forward_backward(markov, chains, scratch)


def steps_first(batch: Batch, columns: slice) -> Floats:
    """
    Arrange values of a batch as the kernels take them.

    Parameters
    ----------
    batch : Batch
        The batch.
    columns : slice
        Which of its values a frame.

    Returns
    -------
    ndarray of float64, shape (steps, width, chains)
        Zero where there is no frame.
    """
    return np.ascontiguousarray(batch.values[:, columns][batch.index].transpose(0, 2, 1))
