"""Plots of mixtures and clusters: components, embeddings, anchors as images, and the graph of anchors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.engine.rows import as_rows
from dask_dca.geometry.arrays import Floats
from dask_dca.models.gaussians import project_covariance
from dask_dca.models.subspace.passes import placed_tiles, unit_rows
from dask_dca.plotting.canvas import (
    ANCHOR,
    CONE,
    GREY,
    MAX_DOTS,
    check_pixels,
    legend_below,
    legend_beside,
    line_style,
    make_figure,
    picture,
    sample_of,
    short,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_LABEL_OFFSET: Final = 9.0  # offset of a label from a mean, away from the anchor, in points
_ELLIPSE_POINTS: Final = 100  # number of vertices of an ellipse


@picture("signature_axes_")
def plot_components(
    model: Any, X: Any = None, *, labels: Sequence[str] | None = None, anchors: bool = True, ax: Any = None
) -> Axes:
    """
    Draw rows and components in the two leading signature coordinates, with the anchors.

    Ellipses contain half of a component's probability.

    Parameters
    ----------
    model : GaussianMixture
        A fitted model.
    X : array-like of shape (n, p), optional
        The data; a sample of at most 4,096 rows is read, missing entries filled.
    labels : sequence of str, optional
        Names of the components; by default their numbers.
    anchors : bool, default True
        Mark the anchors.
    """
    axes = model.signature_axes_.T
    means, marks = model.means_ @ axes, model.anchors_ @ axes
    if X is not None:
        sample = sample_of(model, X)
        components, points = model.predict(as_rows(sample)), sample @ axes
    degrees = getattr(model, "degrees_of_freedom_", np.inf)
    for j, mean in enumerate(means):
        if X is not None:
            look = {"color": line_style(j)["color"], "alpha": 0.6, "rasterized": len(points) > MAX_DOTS}
            ax.scatter(*points[components == j].T, s=5, linewidths=0, **look)
        ax.plot(*_ellipse(mean, _projected(model, j, axes), degrees).T, linewidth=1.4, **line_style(j))
        name = short(labels[j] if labels is not None else str(j))
        beside = 0 if not anchors else _LABEL_OFFSET if marks[j, 1] <= mean[1] else -_LABEL_OFFSET
        ax.annotate(name, mean, (0, beside), textcoords="offset points", ha="center", va="center", fontsize="small",
                    fontweight="bold", zorder=5)  # fmt: skip
    if anchors:
        ax.scatter(
            *marks.T, s=42, marker="D", color=ANCHOR, edgecolors="white", linewidths=0.8, zorder=4, label="anchors"
        )
        legend_below(ax)
    ax.set(xlabel="first signature coordinate", ylabel="second signature coordinate")
    ax.set_title("Components, and the rows that stand for them")
    return ax


def _projected(model: Any, j: int, axes: Floats) -> Floats:
    """Covariance of a component in the two coordinates."""
    space, noise = getattr(model, "subspace_", None), float(getattr(model, "noise_variance_", 0.0))
    return project_covariance(axes, j, model.covariances_, model.covariance_type_, space, noise)


def _ellipse(mean: Floats, covariance: Floats, degrees: float) -> Floats:
    """Ellipse that contains half of a component's probability in the plane."""
    values, vectors = np.linalg.eigh(covariance)
    turn = np.linspace(0.0, 2.0 * np.pi, _ELLIPSE_POINTS)
    half = 2.0 * np.log(2.0) if np.isinf(degrees) else degrees * (2.0 ** (2.0 / degrees) - 1.0)
    radii = np.sqrt(half * np.maximum(values, 0.0))
    return np.asarray(mean + (np.column_stack([np.cos(turn), np.sin(turn)]) * radii) @ vectors.T)


@picture("means_", "anchors_")
def plot_anchor_images(
    model: Any, shape: tuple[int, int], *, labels: Sequence[str] | None = None, figure: Any = None
) -> Figure:
    """
    Draw the anchors of the components as images, above the means.

    Parameters
    ----------
    model : GaussianMixture
        A mixture of images.
    shape : tuple of int
        Lines and columns of an image; their product is p.
    labels : sequence of str, optional
        Titles; by default weights and row numbers.
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


@picture("sketch_", "predict")
def plot_clusters(model: Any, X: Any, *, ax: Any = None) -> Axes:
    """
    Draw rows in two leading coordinates, coloured by cluster, with the anchors.

    Parameters
    ----------
    model : SubspaceClustering
        A fitted model.
    X : array-like of shape (n, p)
        Data, as for `fit`; of large data some 4,000 rows are drawn, missing entries filled.
    """
    sample = sample_of(model, X)
    labels = model.predict(as_rows(sample))
    placed, anchors = _coordinates(model, sample), _coordinates(model, model.components_)
    middle = placed.mean(axis=0)
    turn = np.linalg.svd(placed - middle, full_matrices=False)[2][:2].T
    turn = np.pad(turn, ((0, 0), (0, 2 - turn.shape[1])))
    placed, anchors = (placed - middle) @ turn, (anchors - middle) @ turn
    for i in range(model.n_clusters_):
        own = labels == i
        colour = line_style(i)["color"]
        ax.scatter(*placed[own].T, s=6, alpha=0.5, color=colour, linewidths=0, label=f"cluster {i}")
        ax.scatter(*anchors[model.anchor_clusters_ == i].T, s=36, facecolors="none", edgecolors=colour, linewidths=1.2)
    ax.set(xlabel="first coordinate", ylabel="second coordinate")
    ax.set_title("Clusters, and the anchors of their cones (rings)")
    legend_beside(ax)
    return ax


@picture("n_clusters_", "components_")
def plot_cluster_anchors(
    model: Any, shape: tuple[int, int] | None = None, *, most: int = 8, figure: Any = None
) -> Figure:
    """
    Draw the anchors of each cone, one line per cluster: as images, or as curves over the features.

    Parameters
    ----------
    model : SubspaceClustering
        A fitted model.
    shape : tuple of int, optional
        Lines and columns of an image; their product is the number of features. Curves if None.
    most : int, default 8
        Maximum number of anchors per cluster.
    """
    p = model.n_features_in_
    if shape is not None:
        check_pixels(shape, p, f"the anchors have {p} features")
    k = model.n_clusters_
    columns = min(most, int(np.bincount(model.anchor_clusters_).max()))
    figure = make_figure((1.2 * columns + 0.8, 1.3 * k)) if figure is None else figure
    axes = figure.subplots(k, columns, squeeze=False)
    for i in range(k):
        for j, ax in enumerate(axes[i]):
            ax.set_axis_off()
            own = np.flatnonzero(model.anchor_clusters_ == i)
            if j < len(own):
                _draw_anchor(ax, model.components_[own[j]], shape, line_style(i)["color"])
                ax.set_title(f"{i}: row {model.anchor_indices_[own[j]]}", fontsize="x-small")
    return figure


@picture("anchor_clusters_", "components_")
def plot_anchor_graph(model: Any, *, labels: Sequence[str] | None = None, ax: Any = None) -> Axes:
    """
    Draw the anchors as nodes on a circle, with edges weighted by the cosine of their angle.

    Parameters
    ----------
    model : SubspaceClustering
        A fitted model.
    labels : sequence of str, optional
        Names of the anchors; by default their row numbers.
    """
    count = model.n_components_
    turn = 2.0 * np.pi * np.arange(count) / count
    places = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    unit = unit_rows(np.asarray(model.components_, dtype=np.float64))
    alike = np.clip(unit @ unit.T, 0.0, 1.0)
    first, second = np.triu_indices(count, 1)
    strength = alike[first, second]
    low, high = (np.quantile(strength, share) for share in (0.5, 0.99)) if len(strength) else (0.0, 1.0)
    for a, b, value in zip(first, second, strength, strict=True):
        if value > low:
            together = model.anchor_clusters_[a] == model.anchor_clusters_[b]
            colour = line_style(int(model.anchor_clusters_[a]))["color"] if together else GREY
            shade = min(1.0, (value - low) / max(high - low, 1e-12))
            ax.plot(*places[[a, b]].T, color=colour, alpha=0.6 * shade, linewidth=0.8, zorder=1)
    for i in range(model.n_clusters_):
        own = model.anchor_clusters_ == i
        ax.scatter(*places[own].T, s=30, color=line_style(i)["color"], label=f"cluster {i}", zorder=2)
    for i, (x, y) in enumerate(places):
        name = labels[i] if labels is not None else str(model.anchor_indices_[i])
        ax.annotate(name, (1.1 * x, 1.1 * y), ha="center", va="center", fontsize="xx-small")
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.set_title("Anchors, joined by similarity")
    legend_beside(ax)
    return ax


def _coordinates(model: Any, rows: NDArray[Any]) -> Floats:
    """Coordinates of rows in the sketch of the model, or unit rows if it has none."""
    if not model.sketch_.shape[1]:
        return unit_rows(rows.astype(np.float64))
    return np.concatenate([placed for _, placed in placed_tiles([rows], 0, model.sketch_)])


def _draw_anchor(ax: Any, row: NDArray[Any], shape: tuple[int, int] | None, colour: str) -> None:
    if shape is None:
        ax.plot(np.arange(len(row)), row, color=colour, linewidth=1.0)
    else:
        ax.imshow(row.reshape(shape), cmap="gray")
