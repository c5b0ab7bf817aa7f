"""The components of a mixture: where they lie, and the rows that stand for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.plotting.canvas import ANCHOR, CONE, GREY, check_pixels, line_style, make_axes, make_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["plot_anchor_images", "plot_components"]

_SAMPLE: Final = (64, 64)  # runs of rows, and rows a run, that are drawn
_CIRCLE: Final = 100  # corners of an ellipse


def plot_components(
    model: Any, X: Any, *, labels: Sequence[str] | None = None, anchors: bool = True, ax: Axes | None = None
) -> Axes:
    """
    Draw rows and components in the two leading signature coordinates, with the rows that stand for components.

    Parameters
    ----------
    model : GaussianMixture
        A fitted model.
    X : array-like of shape (n, p)
        The data; of chunked data a sample of at most 4,096 rows is read.
    labels : sequence of str, optional
        Names of the components; by default their numbers.
    anchors : bool, default True
        Mark the anchors.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. Ellipses hold half of a component's rows.

    Raises
    ------
    DCAError
        Matplotlib is missing.
    """
    ax = make_axes(ax)
    rows = as_rows(X)
    sample = fetch_rows(rows, spread_rows(rows.n_rows, *_SAMPLE), Run())
    components, axes = model.predict(as_rows(sample)), model.signature_axes_.T
    points, means = sample @ axes, model.means_ @ axes
    for j, mean in enumerate(means):
        colour = line_style(j)["color"]
        ax.scatter(*points[components == j].T, s=5, color=colour, alpha=0.5, linewidths=0, rasterized=True)
        ax.plot(*_ellipse(mean, _projected(model, j, axes)).T, linewidth=1.2, **line_style(j))
        name = labels[j] if labels is not None else str(j)
        ax.annotate(name, mean, ha="center", va="center", fontsize="small", fontweight="bold", zorder=5)
    if anchors:
        marks = model.anchors_ @ axes
        ax.scatter(
            *marks.T, s=42, marker="D", color=ANCHOR, edgecolors="white", linewidths=0.8, zorder=4, label="anchors"
        )
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), fontsize="small", frameon=False)
    ax.set(xlabel="first signature coordinate", ylabel="second signature coordinate")
    ax.set_title("Components, and the rows that stand for them")
    return ax


def _projected(model: Any, j: int, axes: Floats) -> Floats:
    """Covariance of a component in the two coordinates."""
    values = model.covariances_
    if model.covariance_type == "full":
        return np.asarray(axes.T @ values[j] @ axes)
    if model.covariance_type == "tied":
        return np.asarray(axes.T @ values @ axes)
    variances = values if model.covariance_type == "tied-spherical" else values[j]
    return np.asarray((axes.T * variances) @ axes)


def _ellipse(mean: Floats, covariance: Floats) -> Floats:
    """Outline that holds half of a Gaussian in the plane."""
    values, vectors = np.linalg.eigh(covariance)
    turn = np.linspace(0.0, 2.0 * np.pi, _CIRCLE)
    radii = np.sqrt(2.0 * np.log(2.0) * np.maximum(values, 0.0))
    return np.asarray(mean + (np.column_stack([np.cos(turn), np.sin(turn)]) * radii) @ vectors.T)


def plot_anchor_images(
    model: Any, shape: tuple[int, int], *, labels: Sequence[str] | None = None, figure: Any = None
) -> Figure:
    """
    Draw the rows that stand for components as images, above the components' means.

    Parameters
    ----------
    model : GaussianMixture
        A mixture of images.
    shape : tuple of int
        Lines and columns of an image; their product is p.
    labels : sequence of str, optional
        Titles; by default weights and row numbers.
    figure : matplotlib.figure.Figure or SubFigure, optional
        Where to draw.

    Returns
    -------
    matplotlib.figure.Figure
        The figure: real rows above, means below.

    Raises
    ------
    DCAError
        Matplotlib is missing, or the shape doesn't hold p pixels.
    """
    k, p = model.means_.shape
    check_pixels(shape, p, f"the model has {p} features")
    figure = make_figure((1.1 * k + 0.8, 3.0)) if figure is None else figure
    rows = (model.anchors_, model.means_)
    low, high = min(float(part.min()) for part in rows), max(float(part.max()) for part in rows)
    axes = figure.subplots(2, k, squeeze=False)
    for line, part in zip(axes, rows, strict=True):
        for ax, image in zip(line, part, strict=True):
            ax.imshow(image.reshape(shape), cmap="gray", vmin=low, vmax=high)
            ax.set(xticks=[], yticks=[])
    for j, ax in enumerate(axes[0]):
        name = labels[j] if labels is not None else f"{100 * model.weights_[j]:.0f} %\nrow {model.anchor_indices_[j]}"
        ax.set_title(name, fontsize="x-small")
    axes[0, 0].set_ylabel("anchor", color=ANCHOR)
    axes[1, 0].set_ylabel("mean", color=CONE)
    for line in axes:
        for ax in line:
            for spine in ax.spines.values():
                spine.set_color(GREY)
    return figure
