"""How soon a hidden Markov model forgets where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.kernels.scan import transfer_logs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["burn_in_that_forgets"]

_ENOUGH: Final = (8, 16, 32, 64)  # frames that are tried; twice as many are taken
_FORGOTTEN: Final = 1e-10  # total variation between messages that came from different states


def burn_in_that_forgets(transmat: Floats, log_densities: Floats) -> int:
    """
    Measure how many frames it takes until messages no longer depend on where they came from.

    Parameters
    ----------
    transmat : ndarray of float64, shape (k, k)
        Transition matrix.
    log_densities : ndarray of float64, shape (m, steps, k)
        Log densities of the frames of m stretches.

    Returns
    -------
    int
        Twice the frames after which messages from different states differ by less than 1e-10 on all stretches,
        forward and backward: 16 to 128; 0 where 64 frames are not enough.

    Examples
    --------
    >>> mixed, frozen = np.full((2, 2), 0.5), np.eye(2)
    >>> [burn_in_that_forgets(transmat, np.zeros((1, 64, 2))) for transmat in (mixed, frozen)]
    [16, 0]
    """
    steps, k = log_densities.shape[1:]
    for enough in _ENOUGH:
        windows = log_densities[:, : steps - steps % enough].reshape(-1, enough, k)
        if len(windows) and _spread(transfer_logs(transmat, windows.transpose(1, 2, 0))) < _FORGOTTEN:
            return 2 * enough
    return 0


def _spread(logs: Floats) -> float:
    """How far messages through (m, k, k) log matrices depend on their first state, and on their last."""
    with np.errstate(invalid="ignore"):
        rows = np.exp(logs - logs.max(axis=2, keepdims=True))
        columns = np.exp(logs - logs.max(axis=1, keepdims=True))
    rows /= rows.sum(axis=2, keepdims=True)
    columns /= columns.sum(axis=1, keepdims=True)
    forward = np.abs(rows - rows[:, :1]).sum(axis=2).max()
    backward = np.abs(columns - columns[:, :, :1]).sum(axis=1).max()
    return float(np.nan_to_num(max(forward, backward), nan=1.0))
