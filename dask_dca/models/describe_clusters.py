"""What a model of clusters says of itself in lines of text."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

__all__ = ["describe_clusters"]

_SHOWN: Final = 6  # anchors of a cluster that are named


def describe_clusters(model: Any) -> list[str]:
    """
    Set clusters and their anchors in a table, and say how far the anchors reach.

    Parameters
    ----------
    model : SubspaceClustering
        A fitted model.

    Returns
    -------
    list of str
        Lines of text.
    """
    found = f"{model.n_clusters_} clusters, {model.n_components_} anchors of {model.n_features_in_} features"
    head = f"{'cluster':>7} {'rows':>10} {'anchors':>7} {'coverage':>8}   rows of the anchors"
    lines = [f"SubspaceClustering: {found}", head]
    reach = model.coverage_by_cluster_
    for i, rows in enumerate(model.anchors_by_cluster_):
        named = " ".join(map(str, rows[:_SHOWN])) + (" ..." if len(rows) > _SHOWN else "")
        shown = f"{reach[i]:.3f}" if np.isfinite(reach[i]) else "-"
        lines.append(f"{i:>7} {model.cluster_sizes_[i]:>10} {len(rows):>7} {shown:>8}   {named}")
    if np.isfinite(reach).any():
        share = f"{100 * float(np.nanmean(reach)):.1f} %"
        lines.append(f"On planes that took no part in choosing them, the anchors reach {share} of their cones' height.")
    lines.append(_gap(model))
    if model.n_zero_rows_:
        lines.append(f"{model.n_zero_rows_} rows are all zero: they have no cluster (label -1).")
    return lines


def _gap(model: Any) -> str:
    values, k = model.spectrum_, model.n_clusters_
    if len(values) <= k:
        return "The graph has no eigenvalue beyond the clusters."
    return (
        f"The graph's eigenvalue {k} is {values[k - 1]:.3f}, the next one {values[k]:.3f}: the closer the first is to "
        "one and the wider the gap, the clearer the clusters."
    )
