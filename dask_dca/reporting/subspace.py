"""The report of a subspace clustering."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from dask_dca.plotting.certificate import plot_spectrum
from dask_dca.reporting.data import Inputs
from dask_dca.reporting.pictures import (
    MAX_IMAGES,
    MAX_LINES,
    Bar,
    Caveat,
    Fact,
    Figure,
    Report,
    Section,
    Table,
    counted,
    formatted,
    listed,
    omission,
    percent,
    row_figures,
    vote_summary,
    vote_table,
)

_MIN_GAP: Final = 0.02  # eigengap below which the number of clusters is reported as unclear
_MIN_EIGENVALUE: Final = 0.5  # k-th eigenvalue below which clusters are reported as connected
_MIN_COVERAGE: Final = 0.8  # coverage of a cone below which more anchors are suggested
_MIN_SIZE: Final = 0.01  # share of rows below which a cluster is reported as small


def build_report(model: Any, inputs: Inputs) -> Report:
    """Write the report of a model; inputs: data, and the shape of images."""
    k, sizes = model.n_clusters_, model.cluster_sizes_
    headline = (
        f"{counted(int(sizes.sum()), 'row')} fall into {counted(k, 'cluster')}, each a cone of its own; "
        f"{counted(model.n_components_, 'real row')}, the anchors, are the edges of these cones."
    )
    facts = [
        Fact(str(k), "clusters", f"of {int(sizes.min()):,} to {int(sizes.max()):,} rows"),
        Fact(str(model.n_components_), "anchors", "real rows, over all clusters"),
    ]
    gap = _eigengap(model)
    if gap is not None:
        facts.append(Fact(formatted(gap), "eigengap", "the wider, the clearer is the number of clusters"))
    sections = (_clusters(model), _anchors(model, inputs.shape), _support(model))
    return Report(headline, tuple(facts), sections, tuple(_readings(model)), tuple(_warnings(model)))


def _eigengap(model: Any) -> float | None:
    values, k = model.spectrum_, model.n_clusters_
    return float(values[k - 1] - values[k]) if len(values) > k else None


def _clusters(model: Any) -> Section:
    sizes = np.asarray(model.cluster_sizes_)
    lines: list[tuple[str | Bar, ...]] = []
    for j in range(min(model.n_clusters_, MAX_LINES)):
        reach = percent(float(model.coverage_by_cluster_[j]))
        number = len(model.anchors_by_cluster_[j])
        share = float(sizes[j] / max(sizes.sum(), 1))
        lines.append(
            (f"cluster {j}", f"{sizes[j]:,}", percent(share), f"{number}", reach, Bar(float(sizes[j] / sizes.max())))
        )
    head = ("cluster", "rows", "of all", "anchors", "coverage", "size, drawn")
    note = omission(model.n_clusters_, len(lines), "clusters", "cluster_sizes_")
    lead = (
        "Coverage is the share of a cone's extent that its anchors reach, on planes that took no part in choosing them."
    )
    return Section("The clusters", (lead,), (Table("Sizes of clusters", head, tuple(lines), note),))


def _anchors(model: Any, shape: tuple[int, int] | None) -> Section:
    chosen, each = _chosen(model)
    titles = [f"Cluster {model.anchor_clusters_[i]}: row {model.anchor_indices_[i]}" for i in chosen]
    figures = row_figures(model, model.components_[chosen], titles, what="anchors", where="components_", shape=shape)
    shown = len(chosen)
    note = omission(model.n_components_, shown, "anchors", "components_", first=False)
    lines = []
    for j, rows in list(enumerate(model.anchors_by_cluster_))[:MAX_LINES]:
        lines.append((f"cluster {j}", listed(list(rows), 10)))
    table = Table("Rows of the anchors", ("cluster", "rows, most useful first"), tuple(lines))
    lead = (
        "The anchors of each cone, the most useful "
        f"first{', at most ' + str(each) + ' of a cluster' if shown < model.n_components_ else ''}. All are "
        "drawn on one scale."
    )
    return Section("The anchors", (lead, note) if note else (lead,), (*figures, table))


def _chosen(model: Any) -> tuple[list[int], int]:
    """Select the first anchors of each cluster; also return their maximum number per cluster."""
    each = int(np.clip(MAX_IMAGES // max(model.n_clusters_, 1), 1, 6))
    return [int(i) for j in range(model.n_clusters_) for i in np.flatnonzero(model.anchor_clusters_ == j)[:each]], each


def _support(model: Any) -> Section:
    parts: list[Figure | Table] = []
    if len(model.spectrum_) > 1:
        values, k = np.asarray(model.spectrum_), model.n_clusters_
        label = (
            f"{len(values)} leading eigenvalues of the graph of rows; the {k}th is {formatted(values[k - 1])}"
            if len(values) >= k
            else "Eigenvalues of the graph of rows"
        )
        caption = "As many near one as there are clear clusters. The dashed line is where the clusters were cut."
        parts.append(Figure("The graph's eigenvalues", label, partial(plot_spectrum, model), caption))
    numbers = [f"cluster {j}" for j in model.anchor_clusters_]
    parts.append(vote_table(model, "of", numbers, "row", "planes of a cone", chosen=_chosen(model)[0]))
    lead = "An anchor gets a vote on each random plane of its cone on which it is an extreme row."
    return Section("Evidence for the clusters", (lead,), tuple(parts))


def _readings(model: Any) -> list[Caveat]:
    found, gap, reach = [], _eigengap(model), np.asarray(model.coverage_by_cluster_)
    if gap is not None:
        k = model.n_clusters_
        one, next_one = (formatted(float(value)) for value in model.spectrum_[k - 1 : k + 1])
        how = "The closer the first is to one, and the wider the gap, the clearer the clusters."
        found.append(Caveat(f"The graph's eigenvalue {k} is {one}, the next one {next_one}.", how))
    if np.isfinite(reach).any():
        how = (
            "Near 100 % the anchors say all of a cone; lower, more anchors (n_components) describe it better. "
            "Labels don't depend on it."
        )
        found.append(Caveat(f"The anchors reach {percent(float(np.nanmean(reach)))} of their cones' extent.", how))
    found.append(
        vote_summary(
            model,
            "of its cone's planes for each anchor",
            "Near-duplicates share the votes of one ray, so a low share is not a problem.",
        )
    )
    return found


def _warnings(model: Any) -> list[str]:
    found, gap, k = [], _eigengap(model), model.n_clusters_
    if gap is not None and gap < _MIN_GAP:
        found.append(
            f"The eigenvalues hardly differ where the clusters were cut (by {formatted(gap)}): another number of "
            "clusters would do as well."
        )
    if len(model.spectrum_) >= k and model.spectrum_[k - 1] < _MIN_EIGENVALUE:
        found.append(
            f"Eigenvalue {k} is only {formatted(float(model.spectrum_[k - 1]))}: the clusters are connected with "
            "each other."
        )
    reach = np.asarray(model.coverage_by_cluster_)
    low = np.flatnonzero(reach < _MIN_COVERAGE)
    if len(low):
        found.append(f"The anchors of cluster {listed(low)} leave out a part of its cone: ask for more anchors.")
    sizes = np.asarray(model.cluster_sizes_)
    small = np.flatnonzero(sizes < _MIN_SIZE * sizes.sum())
    if len(small):
        found.append(f"Cluster {listed(small)} holds less than {percent(_MIN_SIZE, 0)} of the rows.")
    if isinstance(model.n_clusters, int) and k < model.n_clusters:
        found.append(f"{model.n_clusters} clusters were asked for, but only {k} were found.")
    if model.n_zero_rows_:
        found.append(f"{counted(model.n_zero_rows_, 'row is', 'rows are')} all zero and in no cluster (label -1).")
    return found
