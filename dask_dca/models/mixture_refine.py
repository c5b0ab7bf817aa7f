"""Refinement of a mixture by a few passes of expectation-maximisation over all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dask_dca.engine.mixture_passes import mixture_pass
from dask_dca.kernels.gaussian import prepare_gaussians
from dask_dca.kernels.mixture_em import maximization

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.mixture_passes import Seen
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.kernels.mixture_em import Mixture, Regularization
    from dask_dca.models.mixture_sample import Sampled
    from dask_dca.models.mixture_settings import MixtureSettings

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Refined", "look_at", "refine"]


@dataclass(frozen=True)
class Refined:
    """
    A refined mixture, and what the last pass saw of it.

    Attributes
    ----------
    mixture : Mixture
        Parameters, means less the sample's centre.
    log_likelihood : float
        Mean log density of all rows.
    n_iter : int
        Number of passes after which parameters were changed.
    converged : bool
        Whether the last change moved the log likelihood by less than the tolerance.
    nearest : ndarray of int64, shape (k,)
        For each component the row of greatest density under it.
    """

    mixture: Mixture
    log_likelihood: float
    n_iter: int
    converged: bool
    nearest: Numbers


def refine(
    rows: Rows, mixture: Mixture, sample: Sampled, regular: Regularization, settings: MixtureSettings, run: Run
) -> Refined:
    """
    Run passes of expectation-maximisation over all rows; the last one only looks.

    Parameters
    ----------
    rows : Rows
        The data.
    mixture : Mixture
        Where to start, means less the sample's centre.
    sample : Sampled
        Centre and scale of the data.
    regular : Regularization
        Floor and prior of the covariances.
    settings : MixtureSettings
        At most how many passes, and the tolerance.
    run : Run
        How passes are run.

    Returns
    -------
    Refined
        The same bits for any chunking or number of workers.
    """
    before, n_iter = -np.inf, 0
    while True:
        seen = look_at(rows, mixture, sample, run)
        now = seen.log_likelihood / rows.n_rows
        converged = abs(now - before) < settings.tol
        if converged or n_iter == settings.max_iter:
            return Refined(mixture, now, n_iter, converged, seen.nearest)
        mixture = maximization(seen.moments, mixture.covariance_type, regular, mixture.means)
        before, n_iter = now, n_iter + 1


def look_at(rows: Rows, mixture: Mixture, sample: Sampled, run: Run) -> Seen:
    """
    Sum over all rows what one step of expectation-maximisation needs.

    Parameters
    ----------
    rows : Rows
        The data.
    mixture : Mixture
        The mixture, means less the sample's centre.
    sample : Sampled
        Centre and scale of the data.
    run : Run
        How passes are run.

    Returns
    -------
    Seen
        Moments, log likelihood, and the row nearest each component.
    """
    means = mixture.means + sample.centre
    gaussians = prepare_gaussians(means, mixture.covariances, mixture.covariance_type, sample.centre)
    return mixture_pass(rows, gaussians, mixture.weights, sample.deviations, run)
