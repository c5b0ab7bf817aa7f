"""Rows and anchors on one plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.plotting.canvas import ANCHOR, CONE, GREY, indices_of, make_axes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["plot_plane"]

_SAMPLE: Final = (64, 64)  # runs of rows, and rows a run, that are drawn


def plot_plane(
    model: Any,
    X: Any,
    *,
    pair: tuple[int, int] | None = None,
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """
    Draw rows on the plane of a reference axis and the direction between two anchors, with the anchors' cone.

    Parameters
    ----------
    model : NMF or AnchorResult
        What was found in X.
    X : array-like of shape (n, p)
        The data; of chunked data a sample of at most 4,096 rows is read.
    pair : tuple of int, optional
        Which two anchors span the direction; by default the two that are furthest apart.
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
        Matplotlib is missing, or the pair is none of the anchors.
    """
    ax = make_axes(ax)
    indices = indices_of(model)
    anchors, sample = _anchors_and_sample(indices, X)
    height, across = _plane(anchors, sample, pair)
    points, marks = (np.column_stack([rows @ height, rows @ across]) for rows in (sample, anchors))
    far = 1.08 * max(points[:, 0].max(), marks[:, 0].max())
    slopes = marks[:, 1] / marks[:, 0]
    edges = slopes[[slopes.argmin(), slopes.argmax()]]
    ax.fill([0, far, far], [0, *(far * edges)], color=CONE, alpha=0.12, linewidth=0, label="cone of the anchors")
    for slope in edges:
        ax.plot([0, far], [0, far * slope], color=CONE, linewidth=1)
    ax.scatter(*points.T, s=5, color=GREY, linewidths=0, label="rows", rasterized=True)
    ax.scatter(*marks.T, s=42, color=ANCHOR, edgecolors="white", linewidths=0.8, zorder=3, label="anchors")
    for i in sorted({int(slopes.argmin()), int(slopes.argmax())}):
        text = labels[i] if labels is not None else f"row {indices[i]}"
        ax.annotate(text, marks[i], xytext=(-6, 9 if slopes[i] > 0 else -9), textcoords="offset points",
                    ha="right", va="center", fontsize="small")  # fmt: skip
    low, high = min(points[:, 1].min(), marks[:, 1].min()), max(points[:, 1].max(), marks[:, 1].max())
    margin = 0.15 * (high - low)
    ax.set(xlabel="height along the reference axis", ylabel="along the direction", xlim=(0, far))
    ax.set_ylim(min(low, 0) - margin, max(high, 0) + margin)
    ax.set_title("Rows and anchors on one plane")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, fontsize="small", frameon=False)
    return ax


def _anchors_and_sample(indices: NDArray[np.int64], X: Any) -> tuple[Floats, Floats]:
    rows = as_rows(X)
    numbers = spread_rows(rows.n_rows, *_SAMPLE)
    return fetch_rows(rows, indices, Run()), fetch_rows(rows, numbers, Run())


def _plane(anchors: Floats, sample: Floats, pair: tuple[int, int] | None) -> tuple[Floats, Floats]:
    """Reference axis, and the direction between two anchors at right angles to it, both of length one."""
    axis = np.ones(anchors.shape[1])
    if (anchors.sum(axis=1) <= 0).any():
        axis = sample.mean(axis=0)
    axis = axis / np.linalg.norm(axis)
    scaled = anchors / (anchors @ axis)[:, None]
    distances = np.linalg.norm(scaled[:, None] - scaled[None], axis=2)
    first, second = pair if pair is not None else np.unravel_index(distances.argmax(), distances.shape)
    across = scaled[second] - scaled[first]
    length = np.linalg.norm(across)
    return axis, across / length if length > 0 else across
