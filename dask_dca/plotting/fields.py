"""The parts of a factorization: anchors as lines, coefficients as images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.plotting.canvas import check_pixels, line_style, make_axes, make_figure, short
from dask_dca.plotting.rows import places_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_coefficients", "plot_spectra"]

_MOST_PIXELS: Final = 2**16  # pixels of a coefficient image that are drawn


def plot_spectra(
    model: Any,
    *,
    feature_axis: Any = None,
    label: str = "feature",
    value_label: str = "value",
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """
    Draw the anchors themselves, as lines over the features.

    Parameters
    ----------
    model : NMF
        A fitted model.
    feature_axis : array-like of shape (p,), optional
        Where the features stand, such as wavelengths; by default the names of the fit where
        these are rising numbers, else 0, 1, ...
    label : str, default "feature"
        What that is, with its unit.
    value_label : str, default "value"
        What the values are, with their unit.
    labels : sequence of str, optional
        Names of the anchors; by default their row numbers.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    DCAError
        Matplotlib is missing.
    """
    ax = make_axes(ax)
    named = getattr(model, "feature_names_in_", range(model.n_features_in_))
    places = places_of(named) if feature_axis is None else np.asarray(feature_axis)
    for i, row in enumerate(model.components_):
        name = labels[i] if labels is not None else f"row {model.anchor_indices_[i]}"
        ax.plot(places, row, linewidth=1.3, label=short(name, 24), **line_style(i))
    ax.set(xlabel=label, ylabel=value_label, xlim=(places.min(), places.max()) if len(places) > 1 else None)
    ax.set_title("The anchors: rows of the data" if model.basis_ == "rows" else "The components")
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize="small", frameon=False)
    return ax


def plot_coefficients(
    F: Any, shape: tuple[int, int], *, labels: Sequence[str] | None = None, columns: int = 5, figure: Any = None
) -> Figure:
    """
    Draw every column of F as an image.

    Parameters
    ----------
    F : array-like of shape (n, k)
        Coefficients of the pixels, line by line; of Dask arrays only the pixels that are drawn are computed.
    shape : tuple of int
        Lines and columns of the image; their product is n. Large images are thinned.
    labels : sequence of str, optional
        Titles of the images.
    columns : int, default 5
        Images in a row.
    figure : matplotlib.figure.Figure or SubFigure, optional
        Where to draw.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    DCAError
        Matplotlib is missing, or the shape doesn't hold n pixels.
    """
    n, k = F.shape
    check_pixels(shape, n, f"the coefficients have {n} rows")
    step = int(np.ceil(np.sqrt(n / _MOST_PIXELS))) if n > _MOST_PIXELS else 1
    grid = np.arange(n).reshape(shape)[::step, ::step]
    images = np.asarray(F[grid.ravel()] if step > 1 else F).reshape(*grid.shape, k)
    figure = make_figure((2.1 * min(columns, k), 2.3 * -(-k // columns))) if figure is None else figure
    brightest = max(1e-300, float(np.quantile(images, 0.995)))
    axes = figure.subplots(-(-k // columns), min(columns, k), squeeze=False).ravel()
    for i, ax in enumerate(axes):
        ax.set_axis_off()
        if i < k:
            drawn = ax.imshow(images[:, :, i], cmap="cividis", vmin=0, vmax=brightest)
            ax.set_title(labels[i] if labels is not None else f"coefficient {i}", fontsize="small")
    figure.colorbar(drawn, ax=list(axes), shrink=0.7, label="coefficient")
    return figure
