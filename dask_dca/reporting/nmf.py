"""The report of a non-negative matrix factorization."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from dask_dca.geometry.arrays import Floats
from dask_dca.plotting.certificate import plot_corners, plot_coverage
from dask_dca.reporting.data import DataSummary, Inputs
from dask_dca.reporting.pictures import (
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

_LOW_COVERAGE: Final = 0.9  # coverage below which pure rows are probably missing
_MIN_EXPLAINED: Final = 0.5  # share of explained variance below which a warning is given
_RISING_COVERAGE: Final = 0.02  # gain of coverage by the last anchor above which more anchors may help
_FULL_COVERAGE: Final = 0.97  # coverage from which more anchors are not suggested
_WELL_EXPLAINED: Final = 0.95  # share of explained variance from which more anchors are not suggested
_MIN_POINTED: Final = 0.5  # share of pointed planes below which a warning is given
_BASIS_WORDS: Final = {
    "rays": "the rays of the smallest cone around the extreme rows",
    "free": "which leave least of the data",
}


def build_report(model: Any, inputs: Inputs) -> Report:
    """Write the report of a model; inputs: data, and the shape of images."""
    k = model.n_components_
    real = model.basis_ == "rows"
    headline = (
        f"{counted(k, 'row')} of the data, the anchors, stand for all others: every row is taken for a mixture of them."
        if real
        else f"Every row is taken for a mixture of {counted(k, 'component')}, {_BASIS_WORDS[model.basis_]}."
    )
    headline += f" {_reach(model.coverage_)}" if real else ""
    facts = (
        Fact(str(k), "anchors", "real rows that the others are mixtures of")
        if real
        else Fact(str(k), "components", "that rows are mixtures of"),
        Fact(formatted(model.coverage_), "coverage", "1 is all of the data's extent, on planes not used to choose"),
        Fact(percent(model.explained_variance_ratio_), "explained", "of the variance of a sample of the rows"),
    )
    sections = [_anchors(model, inputs.shape), _support(model)]
    if inputs.summary is not None:
        sections.insert(1, _in_data(model, inputs.summary))
    return Report(headline, facts, tuple(sections), tuple(_readings(model)), tuple(_warnings(model)))


def _reach(coverage: float) -> str:
    if not np.isfinite(coverage):
        return "How far they reach was not measured."
    word = "nearly all" if coverage >= _FULL_COVERAGE else "most" if coverage >= _LOW_COVERAGE else "only a part"
    return f"Their cone reaches {word} of the data."


def _anchors(model: Any, shape: tuple[int, int] | None) -> Section:
    real = model.basis_ == "rows"
    form = "Anchor {}: row {}" if real else "Component {}, nearest to row {}"
    titles = [form.format(i, row) for i, row in enumerate(model.anchor_indices_)]
    lead = (
        "Each anchor is a row as it stands in the data, in the order of how much it adds."
        if real
        else "Components are no rows; each is shown with the row of the least angle to it. What is said below of "
        "anchors' coverage is of the rows that the components were found from."
    )
    scale = "All are drawn on one scale."
    what = "anchors" if real else "components"
    figures = row_figures(model, model.components_, titles, what=what, where="components_", shape=shape)
    return Section(f"The {what}", (f"{lead} {scale}",), figures)


def _in_data(model: Any, summary: DataSummary) -> Section:
    sample = summary.sample(model.components_.size)
    if np.isnan(sample).any():
        sample = np.asarray(summary.model.impute(sample))
    sample = np.maximum(sample, 0.0)
    parts = np.asarray(summary.model.transform(sample)) * model.components_.sum(axis=1)
    total = np.maximum(parts.sum(axis=1, keepdims=True), 1e-300)
    shares, greatest = (parts / total).mean(axis=0), parts.argmax(axis=1)
    lines: list[tuple[str | Bar, ...]] = []
    for i in range(min(len(shares), MAX_LINES)):
        led = float((greatest == i).mean())
        lines.append((f"anchor {i}", percent(float(shares[i])), percent(led), Bar(float(shares[i] / shares.max()))))
    head = ("anchor", "mean share", "greatest in", "mean share, drawn")
    note = omission(len(shares), len(lines), "anchors", "transform(X)")
    table = Table(f"How {counted(len(sample), 'row')} are mixed", head, tuple(lines), note)
    lead = f"From {counted(len(sample), 'row')} spread evenly over the data."
    return Section("The anchors in the data", (lead,), (table, _corners(model, sample)))


def _corners(model: Any, sample: Floats) -> Figure:
    label = (
        f"{counted(len(sample), 'row')} as dots and {counted(model.n_components_, 'anchor')} as numbered diamonds, "
        "seen from the tip of the cone"
    )
    caption = "Rows by their proportions, in the plane in which the anchors differ most. Good anchors are the corners."
    return Figure("Rows (dots) and anchors (diamonds)", label, partial(plot_corners, model, sample), caption, 300.0)


def _support(model: Any) -> Section:
    numbers = [f"anchor {i}" for i in range(model.n_components_)]
    parts: list[Figure | Table] = []
    values = np.asarray(model.coverage_curve_)
    if len(values):
        label = (
            f"Coverage of the first 1 to {len(values)} anchors: from {formatted(values[0])} to {formatted(values[-1])}"
        )
        caption = (
            "Where the curve turns flat, further anchors add nothing. To choose their number, compare the "
            "coverage of several fits: it is greatest at the right number, and falls where there are too many."
        )
        parts.append(Figure("How much each further anchor adds", label, partial(plot_coverage, model), caption))
    lead = (
        "An anchor gets a vote on each random plane on which it is an extreme row. Near-duplicates share the votes of "
        "one ray, so a low share is not a problem."
    )
    return Section("Evidence for the anchors", (lead,), (*parts, vote_table(model, "anchor", numbers)))


def _readings(model: Any) -> list[Caveat]:
    found = []
    if np.isfinite(model.coverage_):
        found.append(
            Caveat(
                f"The anchors reach {percent(model.coverage_)} of the extent of the data.",
                "Measured on fresh planes that took no part in choosing them. Near 100 % the rows are mixtures "
                "of the anchors; "
                "well below, rows that are nearly pure are missing in the data.",
            )
        )
    found.append(
        Caveat(
            f"The model explains {percent(model.explained_variance_ratio_)} of the variance of a sample of the rows.",
            "100 % is all, 0 % no more than their mean does. Noise lowers it, and so do rows outside the "
            "anchors' cone.",
        )
    )
    found.append(
        vote_summary(
            model, "of the planes for each anchor", "The bounds in the table hold with 95 % confidence (Wilson's)."
        )
    )
    least, most = model.n_components_range_
    if model.n_components == "auto":
        how = "Rules that choose the number of anchors from the data. A wide range means that the data leave it open."
        found.append(Caveat(f"The number of anchors could be {least} to {most}.", how))
    return found


def _warnings(model: Any) -> list[str]:
    found, values = [], np.asarray(model.coverage_curve_)
    if np.isfinite(model.coverage_) and model.coverage_ < _LOW_COVERAGE:
        text = (
            "noise lowers it, more anchors than the data have do (coverage is greatest at the right number), or no row "
            "is pure"
            if model.explained_variance_ratio_ > _WELL_EXPLAINED
            else "rows that are nearly pure are probably missing, and other factorizations may serve better"
        )
        found.append(f"Coverage is low ({formatted(model.coverage_)}): {text}.")
    if model.explained_variance_ratio_ < _MIN_EXPLAINED:
        found.append(
            f"Less than half of the variance is explained ({percent(model.explained_variance_ratio_)}): noise, or no "
            "mixtures."
        )
    rises = len(values) > 2 and values[-1] < _FULL_COVERAGE and values[-1] - values[-2] > _RISING_COVERAGE
    if rises and model.explained_variance_ratio_ < _WELL_EXPLAINED:
        added = formatted(values[-1] - values[-2])
        found.append(
            f"The last anchor still added {added} of coverage, and not all variance is explained: compare fits with "
            "more anchors; coverage is greatest at the right number."
        )
    least, most = model.n_components_range_
    if model.n_components == "auto" and most > 1.5 * least:
        found.append(f"The data do not determine the number of anchors: rules suggest {least} to {most}.")
    if isinstance(model.n_components, int) and model.n_components_ < model.n_components:
        found.append(f"{model.n_components} anchors were asked for, but the data have only {model.n_components_}.")
    if model.n_pointed_ < _MIN_POINTED * model.n_subproblems_:
        found.append(
            f"Only {model.n_pointed_:,} of {model.n_subproblems_:,} planes could vote: the data fill a wide cone."
        )
    if model.n_zero_rows_:
        found.append(f"{counted(model.n_zero_rows_, 'row is', 'rows are')} all zero; they were left out.")
    if model.n_clipped_entries_:
        found.append(f"{counted(model.n_clipped_entries_, 'entry', 'entries')} below zero by rounding counted as zero.")
    unvoted = np.flatnonzero(np.asarray(model.votes_) == 0)
    if len(unvoted):
        found.append(f"No plane voted for anchor {listed(unvoted)}: no votes support it.")
    return found
