"""Plots of models and of their certificates. Needs matplotlib: `pip install "dask-dca[plot]"`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dask_dca.engine.cubes import Cube
from dask_dca.models.labelled import cube_of
from dask_dca.plotting.canvas import make_figure, picture
from dask_dca.plotting.certificate import (
    plot_corners,
    plot_coverage,
    plot_criterion,
    plot_plane,
    plot_refinement,
    plot_spectrum,
    plot_success,
    plot_votes,
)
from dask_dca.plotting.clusters import (
    plot_anchor_graph,
    plot_anchor_images,
    plot_cluster_anchors,
    plot_clusters,
    plot_components,
)
from dask_dca.plotting.rows import (
    plot_coefficients,
    plot_coherence,
    plot_images,
    plot_row,
    plot_rows,
    plot_spectra,
    plot_topic,
    plot_topic_map,
    plot_topics,
)
from dask_dca.plotting.sequences import (
    plot_eigenvalues,
    plot_emissions,
    plot_lanes,
    plot_loadings,
    plot_path,
    plot_predictions,
    plot_states,
    plot_transitions,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "plot_anchor_graph",
    "plot_anchor_images",
    "plot_cluster_anchors",
    "plot_clusters",
    "plot_coefficients",
    "plot_coherence",
    "plot_components",
    "plot_corners",
    "plot_coverage",
    "plot_criterion",
    "plot_eigenvalues",
    "plot_emissions",
    "plot_images",
    "plot_lanes",
    "plot_loadings",
    "plot_path",
    "plot_plane",
    "plot_predictions",
    "plot_refinement",
    "plot_row",
    "plot_rows",
    "plot_spectra",
    "plot_spectrum",
    "plot_states",
    "plot_success",
    "plot_summary",
    "plot_topic",
    "plot_topic_map",
    "plot_topics",
    "plot_transitions",
    "plot_votes",
]


@picture()
def plot_summary(
    model: Any,
    X: Any = None,
    *,
    shape: tuple[int, int] | None = None,
    feature_axis: Any = None,
    feature_label: str | None = None,
    labels: Sequence[str] | None = None,
) -> Figure:
    """
    Draw a summary of a model: its components, their position in the data, and its certificate.

    Parameters
    ----------
    model : estimator
        A fitted model of any kind.
    X : array-like of shape (n, p), optional
        The data, as for the model; plots that need them are omitted if None.
    shape : tuple of int, optional
        Lines and columns of the pixel grid, if the rows of a factorization are pixels; those of a cube are known.
    feature_axis : array-like of shape (p,), optional
        Positions of the features of a factorization, such as wavelengths; by default as in `plot_spectra`.
    feature_label : str, optional
        Label of this axis.
    labels : sequence of str, optional
        Names of the anchors; by default their row numbers.
    """
    if hasattr(model, "fit"):
        check_is_fitted(model)
    axis = {"feature_axis": feature_axis, "label": feature_label}
    X = cube_of(model, X)  # whose transform gives maps
    if isinstance(X, Cube) and len(X.labels.sizes) == 2:
        shape = X.labels.sizes
    drawings = _drawings(model, X, labels, axis)
    images = shape is not None and X is not None and hasattr(model, "basis_")
    lines = -(-len(drawings) // 2)
    figure = make_figure((12, 3.7 * (lines + images)))
    parts = figure.subfigures(lines + images, 1, squeeze=False).ravel()
    if images:
        names = labels if labels is not None else [f"row {i}" for i in model.anchor_indices_]
        plot_coefficients(model.transform(X), shape, labels=names, figure=parts[1])
    for part, pair in zip(np.delete(parts, 1) if images else parts, range(lines), strict=True):
        for ax, draw in zip(
            part.subplots(1, 2, width_ratios=[1.3, 1]), [*drawings[2 * pair : 2 * pair + 2], None][:2], strict=True
        ):
            if draw is None:
                ax.set_axis_off()
            else:
                draw(ax=ax)
    return figure


def _drawings(model: Any, X: Any, labels: Sequence[str] | None, axis: dict[str, Any]) -> list[Callable[..., Axes]]:
    """List the plots for a model, the most informative first."""
    own: list[Callable[..., Axes]] = []
    seen = X is not None
    frames = X.matrix if isinstance(X, Cube) else X
    if hasattr(model, "basis_"):
        own = [partial(plot_spectra, model, labels=labels, **axis)]
        own += [partial(plot_plane, model, X, labels=labels)] if seen and model.basis_ == "rows" else []
    elif hasattr(model, "signature_axes_") and hasattr(model, "weights_"):
        own = [partial(plot_components, model, X), partial(plot_rows, model.means_)]
    elif hasattr(model, "transmat_"):
        own = [partial(plot_transitions, model)]
        own += [partial(plot_emissions, model)] if hasattr(model, "emissionprob_") else []
        own += [partial(plot_lanes, np.asarray(model.predict(frames[:2000])))] if seen else []
    elif hasattr(model, "transition_matrices_"):
        own = [partial(plot_eigenvalues, model), partial(plot_loadings, model)]
    elif hasattr(model, "topic_weights_"):
        own = [partial(plot_topic_map, model)]
    elif hasattr(model, "n_clusters_"):
        own = [partial(plot_clusters, model, X)] if seen else [partial(plot_anchor_graph, model)]
    own += [partial(plot_votes, model, labels=labels)] if hasattr(model, "votes_") else []
    curves = {"coverage_curve_": plot_coverage, "log_likelihoods_": plot_refinement}
    curves |= {"canonical_correlations_": plot_spectrum, "spectrum_": plot_spectrum}
    return own + [partial(draw, model) for name, draw in curves.items() if len(getattr(model, name, ()))]
