"""What is said of clusters that are cones."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.plotting.certificate import plot_spectrum
from dask_dca.reporting.pictures import (
    MOST_IMAGES,
    MOST_LINES,
    Bar,
    Caveat,
    Fact,
    Figure,
    Report,
    Section,
    Table,
    counted,
    figure_of,
    left_out,
    listed,
    percent,
    row_figures,
    vote_reading,
    vote_table,
)

if TYPE_CHECKING:
    from dask_dca.reporting.data import Given


_GAP: Final = 0.02  # distance of the eigenvalues at the cut, below which it is not clear
_CLEAR: Final = 0.5  # eigenvalue below which a cluster hardly hangs together
_LOW: Final = 0.8
_SMALL: Final = 0.01


def tell(model: Any, given: Given) -> Report:
    """Tell what a subspace clustering found.

    given: data, and the shape of pictures.
    """
    k, sizes = model.n_clusters_, model.cluster_sizes_
    headline = (
        f"{counted(int(sizes.sum()), 'row')} fall into {counted(k, 'cluster')}, each a cone of its own; "
        f"{counted(model.n_components_, 'real row')}, the anchors, are the edges of these cones."
    )
    facts = [
        Fact(str(k), "clusters", f"of {int(sizes.min()):,} to {int(sizes.max()):,} rows"),
        Fact(str(model.n_components_), "anchors", "real rows, over all clusters"),
    ]
    gap = _gap(model)
    if gap is not None:
        facts.append(Fact(figure_of(gap), "eigengap", "the wider, the clearer is the number of clusters"))
    sections = (_clusters(model), _anchors(model, given.shape), _support(model))
    return Report(headline, tuple(facts), sections, tuple(_readings(model)), tuple(_warnings(model)))


def _gap(model: Any) -> float | None:
    values, k = model.spectrum_, model.n_clusters_
    return float(values[k - 1] - values[k]) if len(values) > k else None


def _clusters(model: Any) -> Section:
    sizes = np.asarray(model.cluster_sizes_)
    lines: list[tuple[str | Bar, ...]] = []
    for j in range(min(model.n_clusters_, MOST_LINES)):
        reach = percent(float(model.coverage_by_cluster_[j]))
        number = len(model.anchors_by_cluster_[j])
        share = float(sizes[j] / max(sizes.sum(), 1))
        lines.append(
            (f"cluster {j}", f"{sizes[j]:,}", percent(share), f"{number}", reach, Bar(float(sizes[j] / sizes.max())))
        )
    head = ("cluster", "rows", "of all", "anchors", "coverage", "size, drawn")
    note = left_out(model.n_clusters_, len(lines), "clusters", "cluster_sizes_")
    lead = (
        "Coverage is the share of a cone's extent that its anchors reach, on planes that took no part in choosing them."
    )
    return Section("The clusters", (lead,), (Table("Sizes of clusters", head, tuple(lines), note),))


def _anchors(model: Any, shape: tuple[int, int] | None) -> Section:
    chosen, each = _chosen(model)
    titles = [f"Cluster {model.anchor_clusters_[i]}: row {model.anchor_indices_[i]}" for i in chosen]
    figures = row_figures(model, model.components_[chosen], titles, what="anchors", where="components_", shape=shape)
    shown = len(chosen)
    note = left_out(model.n_components_, shown, "anchors", "components_", first=False)
    lines = []
    for j, rows in list(enumerate(model.anchors_by_cluster_))[:MOST_LINES]:
        lines.append((f"cluster {j}", listed(list(rows), 10)))
    table = Table("Rows of the anchors", ("cluster", "rows, most useful first"), tuple(lines))
    lead = (
        "The anchors of each cone, the most useful "
        f"first{', at most ' + str(each) + ' of a cluster' if shown < model.n_components_ else ''}. All are "
        "drawn on one scale."
    )
    return Section("The anchors", (lead, note) if note else (lead,), (*figures, table))


def _chosen(model: Any) -> tuple[list[int], int]:
    """The first anchors of each cluster, and how many there are of each at most."""
    each = int(np.clip(MOST_IMAGES // max(model.n_clusters_, 1), 1, 6))
    return [int(i) for j in range(model.n_clusters_) for i in np.flatnonzero(model.anchor_clusters_ == j)[:each]], each


def _support(model: Any) -> Section:
    parts: list[Figure | Table] = []
    if len(model.spectrum_) > 1:
        values, k = np.asarray(model.spectrum_), model.n_clusters_
        label = (
            f"{len(values)} leading eigenvalues of the graph of rows; the {k}th is {figure_of(values[k - 1])}"
            if len(values) >= k
            else "Eigenvalues of the graph of rows"
        )
        caption = "As many near one as there are clear clusters. The dashed line is where the clusters were cut."
        parts.append(Figure("The graph's eigenvalues", label, partial(plot_spectrum, model), caption))
    numbers = [f"cluster {j}" for j in model.anchor_clusters_]
    parts.append(vote_table(model, "of", numbers, "row", "planes of a cone", chosen=_chosen(model)[0]))
    lead = "An anchor gets a vote on each random plane of its cone on which it is an extreme row."
    return Section("What the clusters rest on", (lead,), tuple(parts))


def _readings(model: Any) -> list[Caveat]:
    found, gap, reach = [], _gap(model), np.asarray(model.coverage_by_cluster_)
    if gap is not None:
        k = model.n_clusters_
        one, next_one = (figure_of(float(value)) for value in model.spectrum_[k - 1 : k + 1])
        how = "The closer the first is to one, and the wider the gap, the clearer the clusters."
        found.append(Caveat(f"The graph's eigenvalue {k} is {one}, the next one {next_one}.", how))
    if np.isfinite(reach).any():
        how = (
            "Near 100 % the anchors say all of a cone; lower, more anchors (n_components) describe it better. "
            "Labels don't depend on it."
        )
        found.append(Caveat(f"The anchors reach {percent(float(np.nanmean(reach)))} of their cones' extent.", how))
    found.append(
        vote_reading(
            model,
            "of its cone's planes for each anchor",
            "Near-duplicates share the votes of one ray, so a low share is no fault.",
        )
    )
    return found


def _warnings(model: Any) -> list[str]:
    found, gap, k = [], _gap(model), model.n_clusters_
    if gap is not None and gap < _GAP:
        found.append(
            f"The eigenvalues hardly differ where the clusters were cut (by {figure_of(gap)}): another number of "
            "clusters would do as well."
        )
    if len(model.spectrum_) >= k and model.spectrum_[k - 1] < _CLEAR:
        found.append(
            f"Eigenvalue {k} is only {figure_of(float(model.spectrum_[k - 1]))}: the clusters hang together with "
            "each other."
        )
    reach = np.asarray(model.coverage_by_cluster_)
    low = np.flatnonzero(reach < _LOW)
    if len(low):
        found.append(f"The anchors of cluster {listed(low)} leave out a part of its cone: ask for more anchors.")
    sizes = np.asarray(model.cluster_sizes_)
    small = np.flatnonzero(sizes < _SMALL * sizes.sum())
    if len(small):
        found.append(f"Cluster {listed(small)} holds less than {percent(_SMALL, 0)} of the rows.")
    if isinstance(model.n_clusters, int) and k < model.n_clusters:
        found.append(f"{model.n_clusters} clusters were asked for, but only {k} were found.")
    if model.n_zero_rows_:
        found.append(f"{counted(model.n_zero_rows_, 'row is', 'rows are')} all zero and in no cluster (label -1).")
    return found
