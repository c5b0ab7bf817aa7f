"""The report of a Gaussian mixture."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from dask_dca.geometry.arrays import Floats
from dask_dca.models.gaussians import deviations_of
from dask_dca.plotting.certificate import plot_criterion
from dask_dca.plotting.clusters import plot_components
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
    feature_names,
    formatted,
    listed,
    omission,
    percent,
    row_figures,
    vote_summary,
    vote_table,
)

_MIN_WEIGHT: Final = 0.01  # weight below which a component is reported as small
_CLEAR_PROBABILITY: Final = 0.9  # probability above which a row clearly belongs to one component


def build_report(model: Any, inputs: Inputs) -> Report:
    """Write the report of a model; inputs: data, and the shape of images."""
    k = model.n_components_
    low, high = float(model.weights_.min()), float(model.weights_.max())
    headline = (
        f"The rows come from {counted(k, 'component')}, of {percent(low)} to {percent(high)} of the data each. "
        "For each component one real row, the anchor, stands nearest to its mean."
    )
    facts = (
        Fact(str(k), "components", f"{_family(model)}, with {model.covariance_type_} covariances"),
        Fact(percent(high), "largest", f"component {int(model.weights_.argmax())}, of {k}"),
        Fact(formatted(model.lower_bound_, 4), "log density", "of a row, on average"),
    )
    sections = [_components(model, inputs.summary), *_anchors(model, inputs.shape), _spread(model), _support(model)]
    return Report(headline, facts, tuple(sections), tuple(_readings(model, inputs.summary)), tuple(_warnings(model)))


def _family(model: Any) -> str:
    degrees = model.degrees_of_freedom_
    return "Gaussian" if np.isinf(degrees) else f"heavy-tailed (Student's t of {degrees:g} degrees)"


def _components(model: Any, summary: DataSummary | None) -> Section:
    most = float(model.weights_.max())
    lines: list[tuple[str | Bar, ...]] = []
    for j in range(min(model.n_components_, MAX_LINES)):
        weight = float(model.weights_[j])
        lines.append((f"component {j}", percent(weight), f"{int(model.anchor_indices_[j])}", Bar(weight / most)))
    head = ("component", "weight", "row at its mean", "weight, drawn")
    note = omission(model.n_components_, len(lines), "components", "weights_")
    table = Table("Weights", head, tuple(lines), note)
    return Section("The components", (), (table, _map(model, summary)))


def _map(model: Any, summary: DataSummary | None) -> Figure:
    label = (
        f"Outlines of {counted(model.n_components_, 'component')} and the real rows that stand for them, in two "
        "coordinates"
    )
    rows = np.zeros((0, 1)) if summary is None else summary.sample()
    rows = rows[np.isfinite(rows).all(axis=1)]
    caption = (
        f"Each outline holds half of its component; diamonds are the anchors.{' Dots are rows.' * (len(rows) > 0)} "
        "Other directions may part what overlaps here."
    )
    draw = partial(plot_components, model, rows if len(rows) else None)
    return Figure("Where the components lie", label, draw, caption, 320.0)


def _anchors(model: Any, shape: tuple[int, int] | None) -> list[Section]:
    overall = model.weights_ @ model.means_
    means = row_figures(
        model,
        model.means_,
        [f"Component {j}" for j in range(model.n_components_)],
        what="means",
        where="means_",
        shape=shape,
        anchor=False,
        baseline=overall,
    )
    anchors = row_figures(
        model,
        model.anchors_,
        [f"Anchor {j}: row {row}" for j, row in enumerate(model.anchor_indices_)],
        what="anchors",
        where="anchors_",
        shape=shape,
        baseline=overall,
    )
    return [
        Section("The means", ("All are drawn on one scale.",), means),
        Section("The anchors", ("Real rows: each is the one nearest to its component's mean.",), anchors),
    ]


def _subspace(model: Any) -> tuple[Floats | None, float]:
    return getattr(model, "subspace_", None), float(getattr(model, "noise_variance_", 0.0))


def _spread(model: Any) -> Section:
    form, shape = model.covariance_type_, model.means_.shape
    spread, names = deviations_of(model.covariances_, form, shape, *_subspace(model)), feature_names(model)
    lines = []
    for j in range(min(model.n_components_, MAX_LINES)):
        least, most = int(spread[j].argmin()), int(spread[j].argmax())
        middle = formatted(float(np.median(spread[j])))
        ends = [f"{formatted(float(spread[j, i]))} ({names[i]})" for i in (least, most)]
        lines.append((f"component {j}", middle, *ends))
    head = ("component", "median", "least", "greatest")
    note = omission(model.n_components_, len(lines), "components", "covariances_")
    lead = "Standard deviations of the features within each component: how wide it is around its mean."
    return Section("The covariances", (lead,), (Table("Deviations of features", head, tuple(lines), note),))


def _support(model: Any) -> Section:
    numbers = [f"component {j}" for j in range(model.n_components_)]
    parts: list[Figure | Table] = [vote_table(model, "component", numbers, "row at its mean", "directions")]
    tried = np.asarray(model.bic_curve_)
    if len(tried) > 1:
        best = int(tried[tried[:, 1].argmin(), 0])
        label = f"BIC of {int(tried[0, 0])} to {int(tried[-1, 0])} components, least at {best}"
        steps = "" if np.all(np.diff(tried[:, 0]) == 1) else " Numbers between those tried are left out."
        caption = f"Least at {best}: fewer components fit worse, more don't earn their parameters.{steps}"
        parts.append(Figure("Why this many components", label, partial(plot_criterion, model), caption))
    lead = "A component has a vote on each direction on one end of which a row of it is furthest out."
    return Section("Evidence for the components", (lead,), tuple(parts))


def _readings(model: Any, summary: DataSummary | None) -> list[Caveat]:
    settled = "the last changed it by less than tol" if model.converged_ else "more passes would raise it further"
    found = [
        Caveat(
            f"The mean log density of a row is {formatted(model.lower_bound_, 5)}.",
            f"After {counted(model.n_iter_, 'pass', 'passes')} of refinement; {settled}. It compares models of "
            "the same data only.",
        ),
        vote_summary(
            model,
            "of the directions for each component",
            "A component without votes lies between others. That is not a problem, but only the likelihood "
            "supports it.",
        ),
    ]
    if summary is not None:
        sample = summary.sample()
        sure = float((np.asarray(summary.model.predict_proba(sample)).max(axis=1) > _CLEAR_PROBABILITY).mean())
        how = "Rows that lie between components belong to several. Many such rows mean that components overlap."
        found.append(
            Caveat(
                f"{percent(sure)} of {counted(len(sample), 'row')} belong to one component with more than "
                f"{percent(_CLEAR_PROBABILITY, 0)}.",
                how,
            )
        )
    return found


def _warnings(model: Any) -> list[str]:
    found = []
    if not model.converged_:
        found.append("The refinement had not converged: a larger max_iter fits a little better.")
    if isinstance(model.n_components, int) and model.n_components_ < model.n_components:
        found.append(f"{model.n_components} components were asked for, but only {model.n_components_} were found.")
    if model.n_outliers_:
        found.append(
            f"{counted(model.n_outliers_, 'row')} far from all others have no weight: they are taken for noise."
        )
    tiny = np.flatnonzero(model.weights_ < _MIN_WEIGHT)
    if len(tiny):
        found.append(
            f"Component {listed(tiny)} holds less than {percent(_MIN_WEIGHT, 0)} of the rows: outliers, perhaps."
        )
    inside = np.flatnonzero(np.asarray(model.votes_) == 0)
    if len(inside):
        found.append(f"Component {listed(inside)} lies between others: no row of it is ever furthest out.")
    return found
