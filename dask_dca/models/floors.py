"""Warnings where least variances, or too few distinct frames, decide a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dask_dca.errors import FewerAnchorsWarning, FloorWarning, warn
from dask_dca.kernels.gaussian_forms import variances_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["warn_of_few_values", "warn_of_floor"]


def warn_of_floor(
    resting: NDArray[np.bool_], covariances: NDArray[np.float64], covariance_type: str, parts: str, parameter: str
) -> None:
    """
    Warn of components or states whose variances rest on their least value.

    Parameters
    ----------
    resting : ndarray of bool, shape (k,)
        Which ones do.
    covariances : ndarray of float64
        Covariances, in the shape of their type.
    covariance_type : str
        Their form.
    parts, parameter : str
        What they are called, and the parameter that sets the least variance.
    """
    if not resting.any():
        return
    variances = variances_of(covariances, covariance_type)
    least = float(variances[resting].max() if len(variances) == len(resting) else variances.max())
    warn(
        f"variances of {int(resting.sum())} of {len(resting)} {parts} rest on their least value (up to {least:.3g}). "
        "It is in proportion to the variance of all rows, which rows or clusters far from the others raise, and it "
        f"decides what is told apart: take far rows out, or set {parameter} below the variances that count",
        FloorWarning,
    )


def warn_of_few_values(distinct: int | None, n_states: int) -> bool:
    """
    Warn of more states than the frames have values.

    Parameters
    ----------
    distinct : int or None
        Number of distinct frames, if it was counted.
    n_states : int
        Number of states.

    Returns
    -------
    bool
        Whether there was a warning.
    """
    if distinct is None or distinct >= n_states:
        return False
    alike = "states with the same values differ by their transitions alone"
    then = "one state is fitted" if distinct == 1 else alike
    msg = f"the frames have {distinct} distinct values, fewer than n_components={n_states}: {then}; use {distinct}"
    warn(msg, FewerAnchorsWarning)
    return True
