"""The report of a hidden Markov model."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from dask_dca.models.gaussians import deviations_of
from dask_dca.plotting.certificate import plot_refinement
from dask_dca.plotting.sequences import plot_lanes, plot_transitions
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
    sequences_of,
    vote_summary,
    vote_table,
)

_MIN_FRAMES: Final = 0.5  # expected number of frames below which a state counts as unused
_MIN_DURATION: Final = 1.5  # mean duration in frames below which a state is reported as single frames
_MAX_CELLS: Final = 40  # maximum number of states whose transitions are drawn
_MAX_LANES: Final = 24  # maximum number of states with a lane
_FLAT_SHARE: Final = 0.02  # maximum share of the last step in the total gain of a flat curve


def build_report(model: Any, inputs: Inputs) -> Report:
    """Write the report of a model; inputs: data, and the shape of images."""
    k, last = model.n_components_, durations(model)
    middle = formatted(float(np.median(last)))
    headline = (
        f"The sequence moves between {counted(k, 'state')}; a state lasts {middle} frames in the median. "
        "For each state one real frame, the anchor, is the most typical of it."
    )
    facts = (
        Fact(str(k), "states", f"Gaussian, with {model.covariance_type_} covariances"),
        Fact(middle, "frames", "a state lasts, on average, in the median of the states"),
        Fact(formatted(float(model.log_likelihoods_[-1]), 4), "log likelihood", "per frame"),
    )
    sections = [_states(model), transition_section(model), _means(model, inputs.shape), _spread(model), _support(model)]
    if inputs.summary is not None:
        sections.insert(1, path_section(model, inputs.summary))
    return Report(headline, facts, tuple(sections), tuple(_readings(model)), tuple(_warnings(model)))


def durations(model: Any) -> Any:
    """Mean duration of a visit to each state, in frames."""
    return 1.0 / np.maximum(1.0 - np.diagonal(model.transmat_), 1e-12)


def state_names(model: Any) -> list[str]:
    """List names of the states, by their numbers."""
    return [f"state {j}" for j in range(model.n_components_)]


def _states(model: Any) -> Section:
    total, last = max(float(model.state_counts_.sum()), 1e-300), durations(model)
    lines: list[tuple[str | Bar, ...]] = []
    shares = model.state_counts_ / total
    for j in range(min(model.n_components_, MAX_LINES)):
        lasts = formatted(float(last[j])) if last[j] < 1e6 else "forever"
        row = (f"state {j}", percent(float(shares[j])), lasts, f"{int(model.anchor_indices_[j])}")
        lines.append((*row, Bar(float(shares[j] / shares.max()))))
    head = ("state", "of all frames", "frames it lasts", "typical frame", "share, drawn")
    note = omission(model.n_components_, len(lines), "states", "state_counts_")
    lead = "How much of the time the sequence is in each state, and how long a visit lasts on average."
    return Section("The states", (lead,), (Table("States", head, tuple(lines), note),))


def path_section(model: Any, summary: DataSummary) -> Section:
    """Show the most probable path through the first frames of the data."""
    frames = summary.first_rows()
    lengths = summary.first_lengths()
    states = np.asarray(summary.model.predict(frames, lengths))
    names = state_names(model)[:_MAX_LANES]
    entered = np.diff(states, prepend=-1) != 0
    entered[np.cumsum(lengths)[:-1]] = True
    visits = int(entered.sum())
    label = (
        f"States of the first {counted(len(frames), 'frame')}: {counted(visits, 'visit')} to "
        f"{counted(len(set(states)), 'state')}"
    )
    caption = (
        f"One lane a state: the most probable path through the first {counted(len(frames), 'frame')}, read as "
        f"{sequences_of(lengths)}."
    )
    draw = partial(plot_lanes, states, names=names)
    return Section(
        "The path", (), (Figure("States over time", label, draw, caption, 70.0 + 20.0 * len(names), wide=True),)
    )


def transition_section(model: Any) -> Section:
    """Show the transitions."""
    k = min(model.n_components_, _MAX_CELLS)
    matrix = np.asarray(model.transmat_)[:k, :k]
    ways = [(float(matrix[i, j]), i, j) for i in range(k) for j in range(k) if i != j]
    ways.sort(key=lambda way: (-way[0], way[1:]))
    label = (
        f"Transition probabilities of {counted(k, 'state')}; they stay with "
        f"{percent(float(np.diagonal(matrix).min()))} to {percent(float(np.diagonal(matrix).max()))}"
    )
    caption = "The probability of the next state (column), given the present one (row)."
    note = omission(model.n_components_, k, "states", "transmat_")
    lines = tuple((f"{i} → {j}", percent(share)) for share, i, j in ways[:10] if share > 0.0005)
    draw = partial(plot_transitions, model)
    parts: list[Figure | Table] = [Figure("Transition probabilities", label, draw, f"{caption} {note}".strip(), 280.0)]
    if lines:
        parts.append(Table("Most likely changes of state", ("change", "probability in a frame"), lines))
    return Section("The transitions", (), tuple(parts))


def _means(model: Any, shape: tuple[int, int] | None) -> Section:
    titles = [f"State {j}, typical frame {row}" for j, row in enumerate(model.anchor_indices_)]
    weights = model.state_counts_ / max(float(model.state_counts_.sum()), 1e-300)
    figures = row_figures(
        model,
        model.means_,
        titles,
        what="means",
        where="means_",
        shape=shape,
        anchor=False,
        baseline=weights @ model.means_,
    )
    return Section("The means", ("What is observed in each state, on average. All are drawn on one scale.",), figures)


def _spread(model: Any) -> Section:
    spread = deviations_of(model.covariances_, model.covariance_type_, model.means_.shape)
    names, lines = feature_names(model), []
    for j in range(min(model.n_components_, MAX_LINES)):
        most = int(spread[j].argmax())
        ends = f"{formatted(float(spread[j, most]))} ({names[most]})"
        lines.append((f"state {j}", formatted(float(np.median(spread[j]))), ends))
    lead = "Standard deviations of the features within each state."
    note = omission(model.n_components_, len(lines), "states", "covariances_")
    table = Table("Deviations of features", ("state", "median", "greatest"), tuple(lines), note)
    return Section("The covariances", (lead,), (table,))


def _support(model: Any) -> Section:
    parts: list[Figure | Table] = [*refinement(model)]
    parts.append(vote_table(model, "state", state_names(model), "typical frame", "directions"))
    lead = "A state has a vote on each end of a direction to which it is the nearest state."
    return Section("Evidence for the states", (lead,), tuple(parts))


def refinement(model: Any) -> list[Figure]:
    """Draw the log likelihoods over the steps, if there were any."""
    values = model.log_likelihoods_
    if len(values) < 2:
        return []
    label = (
        f"Log likelihood per frame over {counted(len(values) - 1, 'step')}, from {formatted(values[0], 5)} to "
        f"{formatted(values[-1], 5)}"
    )
    return [Figure("Refinement", label, partial(plot_refinement, model), _convergence_caption(values))]


def _convergence_caption(values: Any) -> str:
    last, whole = float(values[-1] - values[-2]), float(np.ptp(values))
    if last <= _FLAT_SHARE * whole:
        return "Flat at the end: further steps would gain little."
    return "Still rising at the end: a larger max_iter would gain more."


def likelihood_caveat(model: Any) -> Caveat:
    """State the log likelihood, and whether the fit converged."""
    last, steps = formatted(float(model.log_likelihoods_[-1]), 5), counted(model.n_iter_, "step")
    ends = "it has converged" if model.converged_ else "a larger max_iter gains a little"
    how = f"After {steps} over all frames; {ends}. It compares models of the same data only."
    return Caveat(f"The log likelihood is {last} per frame.", how)


def _readings(model: Any) -> list[Caveat]:
    found = [likelihood_caveat(model)]
    found.append(
        vote_summary(
            model,
            "of the ends of directions for each state",
            "A state with few votes lies between others; nothing is wrong with that.",
        )
    )
    if model.n_components == "auto":
        least, most = model.n_components_range_
        how = "Rules that choose the number of states from the data. A wide range means that the data leave it open."
        found.append(Caveat(f"The number of states could be {least} to {most}.", how))
    return found


def _warnings(model: Any) -> list[str]:
    found = []
    if not model.converged_:
        found.append("The refinement had not converged: a larger max_iter gains a little.")
    unused = np.flatnonzero(model.state_counts_ < _MIN_FRAMES)
    if len(unused):
        found.append(f"State {listed(unused)} is in no frame: fit again with fewer states.")
    brief = np.flatnonzero((durations(model) < _MIN_DURATION) & (model.state_counts_ >= _MIN_FRAMES))
    if len(brief):
        found.append(f"State {listed(brief)} is left at once: single frames that stand out, rather than a state.")
    return found
