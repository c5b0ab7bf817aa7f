"""Pictures of models and of what certifies them. Needs matplotlib: `pip install "dask-dca[plot]"`."""

from __future__ import annotations

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
from dask_dca.plotting.rows import plot_coefficients, plot_images, plot_row, plot_rows, plot_spectra
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
from dask_dca.plotting.summary import plot_summary
from dask_dca.plotting.topics import plot_coherence, plot_topic, plot_topic_map, plot_topics

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
