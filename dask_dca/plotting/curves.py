"""Curves that choose or end something: likelihoods of a refinement, spectra, criteria of a number of components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.errors import InvalidInputError
from dask_dca.plotting.canvas import draw_curve, make_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ABOVE: Final = 5.0  # how many times the second the first value is, to be left out of the picture
_BEYOND: Final = 4  # times the number kept: correlations that are drawn


def plot_refinement(model: Any, *, ax: Axes | None = None) -> Axes:
    """
    Draw the mean log likelihood before each step of the refinement and at its end.

    Parameters
    ----------
    model : estimator
        A fitted model with `log_likelihoods_`: a mixture, a hidden Markov model, a Kalman filter.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    DCAError
        Matplotlib is missing, or the model has no likelihoods.
    """
    values = _held(model, "log_likelihoods_")
    ax = make_axes(ax)
    draw_curve(ax, values, ("steps", "log likelihood"), first=0)
    ax.set_title("Refinement")
    return ax


def plot_criterion(model: Any, *, ax: Axes | None = None) -> Axes:
    """
    Draw the criterion (BIC) of the numbers of components that were tried: least at the one that was chosen.

    Parameters
    ----------
    model : GaussianMixture
        A mixture whose number of components was "auto".
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    DCAError
        Matplotlib is missing, or no numbers were tried.
    """
    tried = _held(model, "bic_curve_")
    ax = make_axes(ax)
    draw_curve(ax, tried[:, 1], ("number of components", "BIC"), first=0)
    step = -(-len(tried) // 12)
    ax.set_xticks(np.arange(len(tried))[::step], [f"{int(k)}" for k in tried[::step, 0]])
    ax.set_title("Why this many components")
    return ax


def plot_spectrum(model: Any, *, ax: Axes | None = None) -> Axes:
    """
    Draw the values by which dimensions were kept; a dashed upright line parts those that were from the others.

    Parameters
    ----------
    model : SubspaceClustering, LatentDirichletAllocation or KalmanFilter
        A fitted model: eigenvalues of the graph of rows or of the words' co-occurrence, or the canonical correlations
        of past and future. A first eigenvalue that is more than five times the second is above the picture.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    DCAError
        Matplotlib is missing, or the model has no spectrum.
    """
    ax = make_axes(ax)
    if hasattr(model, "canonical_correlations_"):
        k = model.n_dim_state_
        values = _held(model, "canonical_correlations_")[: _BEYOND * (k + 1)]
        draw_curve(ax, values, ("dimension of the state", "correlation"), after=k)
        ax.set_title("Past and future")
        return ax
    values, edge = _held(model, "spectrum_"), float(getattr(model, "noise_edge_", np.nan))
    k = model.n_clusters_ if hasattr(model, "n_clusters_") else model.n_components_
    skipped = int(len(values) > 1 and values[0] > _ABOVE * values[1])
    seen = np.isfinite(edge) and edge <= values[skipped]
    level = (edge, "noise ends here") if seen else None
    draw_curve(ax, values[skipped:], ("number", "eigenvalue"), first=1 + skipped, after=k - skipped, level=level)
    ax.set_title("Directions that stand out from noise" if hasattr(model, "noise_edge_") else "The graph's eigenvalues")
    return ax


def _held(model: Any, name: str) -> Any:
    """An attribute with something in it."""
    found = np.asarray(getattr(model, name, ()))
    if not len(found):
        msg = f"this {type(model).__name__} has no {name}, so there is no such picture of it"
        raise InvalidInputError(msg)
    return found
