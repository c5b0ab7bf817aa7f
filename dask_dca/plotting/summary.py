"""A model on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask_dca.plotting.canvas import make_figure
from dask_dca.plotting.certificate import plot_coverage, plot_votes
from dask_dca.plotting.fields import plot_coefficients, plot_spectra
from dask_dca.plotting.plane import plot_plane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

__all__ = ["plot_summary"]


def plot_summary(
    model: Any,
    X: Any,
    *,
    shape: tuple[int, int] | None = None,
    feature_axis: Any = None,
    feature_label: str = "feature",
    labels: Sequence[str] | None = None,
) -> Figure:
    """
    Draw a model on one page: anchors, their plane, coefficient images, votes and coverage.

    Parameters
    ----------
    model : NMF
        A fitted model.
    X : array-like of shape (n, p)
        The data.
    shape : tuple of int, optional
        Lines and columns of the pixel grid, if the rows are pixels.
    feature_axis : array-like of shape (p,), optional
        Where the features stand, such as wavelengths.
    feature_label : str, default "feature"
        What that is.
    labels : sequence of str, optional
        Names of the anchors; by default their row numbers.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    DCAError
        Matplotlib is missing, or the shape doesn't fit.
    """
    figure = make_figure((12, 11 if shape else 7))
    heights = [1.0, 1.25, 1.0] if shape else [1.0, 1.0]
    parts = figure.subfigures(len(heights), 1, height_ratios=heights)
    left, right = parts[0].subplots(1, 2, width_ratios=[1.25, 1])
    plot_spectra(model, feature_axis=feature_axis, label=feature_label, labels=labels, ax=left)
    plot_plane(model, X, labels=labels, ax=right)
    if shape:
        names = labels if labels is not None else [f"row {i}" for i in model.anchor_indices_]
        plot_coefficients(model.transform(X), shape, labels=names, figure=parts[1])
    left, right = parts[-1].subplots(1, 2, width_ratios=[1.6, 1])
    plot_votes(model, labels=labels, ax=left)
    plot_coverage(model, ax=right)
    return figure
