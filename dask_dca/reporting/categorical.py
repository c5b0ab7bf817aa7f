"""The report of a hidden Markov model of symbols."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from dask_dca.plotting.sequences import plot_emissions
from dask_dca.reporting.data import Inputs
from dask_dca.reporting.hmm import durations, likelihood_caveat, path_section, refinement, transition_section
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
    omission,
    percent,
)

_N_SYMBOLS: Final = 5  # maximum number of symbols that are listed for each state
_MAX_CELLS: Final = 40  # maximum number of states and of symbols that are drawn
_MIN_PROBABILITY: Final = 0.005  # minimum probability of a symbol that is listed
_MAX_SAME_DISTANCE: Final = 0.05  # total variation below which two states emit nearly the same symbols


def build_report(model: Any, inputs: Inputs) -> Report:
    """Write the report of a model; inputs: data, and the shape of images."""
    k, v, middle = model.n_components_, model.n_symbols_, formatted(float(np.median(durations(model))))
    headline = (
        f"The sequence moves between {counted(k, 'state')}, each of which shows {counted(v, 'symbol')} with "
        f"probabilities of its own; a state lasts {middle} frames in the median."
    )
    facts = (
        Fact(str(k), "states", f"of {counted(v, 'symbol')}"),
        Fact(middle, "frames", "a state lasts, on average, in the median of the states"),
        Fact(formatted(float(model.log_likelihoods_[-1]), 4), "log likelihood", "per frame"),
    )
    sections = [_states(model), transition_section(model), _emissions(model), _support(model)]
    if inputs.summary is not None:
        sections.insert(1, path_section(model, inputs.summary))
    return Report(headline, facts, tuple(sections), tuple(_readings(model)), tuple(_warnings(model)))


def _states(model: Any) -> Section:
    lines: list[tuple[str | Bar, ...]] = []
    last = durations(model)
    for j, symbols in enumerate(model.emissionprob_[:MAX_LINES]):
        order = [i for i in np.argsort(-symbols, kind="stable")[:_N_SYMBOLS].tolist() if symbols[i] >= _MIN_PROBABILITY]
        shown = ", ".join(f"{i} ({percent(float(symbols[i]))})" for i in order)
        anchor = int(model.anchor_symbols_[j])
        lasts = formatted(float(last[j])) if last[j] < 1e6 else "forever"
        lines.append((f"state {j}", lasts, shown, str(anchor) if anchor >= 0 else "none"))
    head = ("state", "frames it lasts", "most probable symbols", "anchor symbol")
    note = omission(model.n_components_, len(lines), "states", "emissionprob_")
    lead = "How long a visit to each state lasts on average, and what is seen in it."
    return Section("The states", (lead,), (Table("States", head, tuple(lines), note),))


def _emissions(model: Any) -> Section:
    k, v = min(model.n_components_, _MAX_CELLS), min(model.n_symbols_, _MAX_CELLS)
    label = f"Probabilities of {counted(v, 'symbol')} in {counted(k, 'state')}"
    note = omission(model.n_symbols_, v, "symbols", "emissionprob_", first=False)
    caption = f"The probability of a symbol (column) in a state (row). {note}".strip()
    figure = Figure(
        "Probabilities of symbols", label, partial(plot_emissions, model), caption, 60.0 + 26.0 * k, wide=True
    )
    return Section("The symbols", (), (figure,))


def _support(model: Any) -> Section:
    scores = np.asarray(model.start_scores_)[:MAX_LINES]
    lines = tuple((str(i), formatted(float(score), 5)) for i, score in enumerate(scores))
    table = Table("Starts, the best first", ("start", "log likelihood per frame of the sample"), lines)
    lead = "One start is from anchor symbols, the others are random; the best on a sample is followed over all frames."
    return Section("Evidence for the states", (lead,), (*refinement(model), *([table] if len(lines) else [])))


def _readings(model: Any) -> list[Caveat]:
    found = [likelihood_caveat(model)]
    best = np.asarray(model.start_scores_)
    if len(best) > 1:
        how = "Starts that end alike speak for the states; where they differ, a larger n_starts may find better ones."
        found.append(Caveat(f"The best two starts differ by {formatted(float(best[0] - best[1]))} per frame.", how))
    return found


def _warnings(model: Any) -> list[str]:
    found = []
    if not model.converged_:
        found.append("The refinement had not converged: a larger max_iter gains a little.")
    symbols = np.asarray(model.emissionprob_)
    for i in range(min(len(symbols), MAX_LINES)):
        alike = np.flatnonzero(0.5 * np.abs(symbols[i + 1 :] - symbols[i]).sum(axis=1) < _MAX_SAME_DISTANCE) + i + 1
        found += [f"States {i} and {j} show nearly the same symbols: they differ in what follows." for j in alike]
    return found[:MAX_LINES]
