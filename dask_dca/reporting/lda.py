"""The report of a topic model."""

from __future__ import annotations

from functools import partial
from itertools import starmap
from typing import Any, Final

import numpy as np

from dask_dca.geometry.arrays import Floats
from dask_dca.plotting.certificate import plot_spectrum
from dask_dca.plotting.rows import plot_topic, topic_words
from dask_dca.reporting.data import DataSummary, Inputs
from dask_dca.reporting.pictures import (
    MAX_FIGURES,
    MAX_LINES,
    Bar,
    Caveat,
    Fact,
    Figure,
    Gallery,
    Report,
    Section,
    Table,
    counted,
    formatted,
    listed,
    omission,
    percent,
    shortened,
    vote_summary,
    vote_table,
)

_N_WORDS: Final = 10  # number of words that are shown for each topic
_MIN_DISTANCE: Final = 0.25  # total variation below which two topics are reported as alike
_MIN_COHERENCE: Final = 0.0  # coherence below which top words co-occur less than by chance


def build_report(model: Any, inputs: Inputs) -> Report:
    """Write the report of a model; inputs: data, and the shape of images."""
    k = model.n_components_
    names = [shortened(word, 40) for word in model.get_anchor_words()]
    headline = (
        f"{counted(k, 'topic')} in {counted(model.n_documents_, 'document')}, each with an anchor word, which hardly "
        f"occurs in other topics: {listed(names, 12)}."
    )
    facts = [
        Fact(str(k), "topics", "ordered by how much of the text they hold"),
        Fact(f"{model.n_words_:,}", "words", f"in {counted(model.n_documents_, 'document')}"),
        Fact(
            formatted(float(model.topic_distances_.min())),
            "least distance",
            "between two topics: 0 is the same topic twice",
        ),
    ]
    coherence = None if inputs.summary is None else np.asarray(inputs.summary.model.coherence(inputs.summary.matrix))
    sections = (_topics(model), _table(model, names, coherence), _support(model))
    readings = tuple(_readings(model, coherence, inputs.summary))
    return Report(headline, tuple(facts), sections, readings, tuple(_warnings(model, coherence)))


def _topics(model: Any) -> Section:
    count = min(model.n_components_, MAX_FIGURES)
    parts: list[Gallery | Table] = [Gallery(tuple(_bars(model, t) for t in range(count)))]
    if model.n_components_ > count:
        most = min(model.n_components_, MAX_LINES)
        lines = tuple((f"topic {t}", listed(_words(model, t), _N_WORDS)) for t in range(count, most))
        note = omission(model.n_components_, most, "topics", "components_")
        parts.append(Table("Words of further topics", ("topic", "anchor word, then the most probable"), lines, note))
    lead = (
        "The most probable words of each topic below its anchor word. Bars are probabilities within the topic; each "
        "topic has a scale of its own."
    )
    return Section("The topics", (lead,), tuple(parts))


def _words(model: Any, topic: int) -> list[str]:
    named = hasattr(model, "feature_names_in_")
    return [shortened(name, 30) if named else f"column {name}" for name in topic_words(model, topic, _N_WORDS)[1]]


def _bars(model: Any, topic: int) -> Figure:
    words, weight = _words(model, topic), percent(float(model.topic_weights_[topic]))
    label = f"Topic {topic}, {weight} of all words: anchor {words[0]}, then {listed(words[1:], _N_WORDS)}"
    draw = partial(plot_topic, model, topic, n_words=_N_WORDS)
    return Figure(f"Topic {topic}: {words[0]}", label, draw, f"{weight} of all words.", 32.0 + 18.0 * len(words))


def _table(model: Any, anchors: list[str], coherence: Floats | None) -> Section:
    most = float(model.topic_weights_.max())

    def _line(t: int, weight: float) -> tuple[str | Bar, ...]:
        distances = (formatted(float(part[t])) for part in (model.topic_distances_, model.distance_to_corpus_))
        last = () if coherence is None else (formatted(float(coherence[t]), 2),)
        return (f"{t}: {anchors[t]}", percent(weight), *distances, *last, Bar(weight / most))

    lines = tuple(starmap(_line, enumerate(model.topic_weights_[:MAX_LINES].tolist())))
    last = () if coherence is None else ("coherence",)
    head = ("topic", "of all words", "to nearest", "to corpus", *last, "share, drawn")
    table = Table("Topics", head, lines, omission(model.n_components_, len(lines), "topics", "topic_weights_"))
    lead = (
        "“To nearest” is the distance to the topic most like it, “to corpus” that to the corpus's own words: 0 is the "
        "same, 1 has no word in common (total variation)."
    )
    more = "Coherence is how much more often than by chance the top words meet in a document (NPMI, at most 1)."
    return Section("The topics compared", (lead,) if coherence is None else (lead, more), (table,))


def _support(model: Any) -> Section:
    parts: list[Figure | Table] = []
    if len(model.spectrum_) > 1:
        values = np.asarray(model.spectrum_)
        label = (
            f"{len(values)} eigenvalues of the words' co-occurrence, from {formatted(values[0])} to "
            f"{formatted(values[-1])}"
        )
        skipped = values[0] > 5.0 * values[1]
        first = f" The first, {formatted(values[0])}, is above the picture." if skipped else ""
        caption = f"The model keeps what is left of the dashed upright line.{first}"
        parts.append(Figure("Directions that stand out from noise", label, partial(plot_spectrum, model), caption))
    anchors = [shortened(word, 30) for word in model.get_anchor_words()]
    parts.append(vote_table(model, "anchor word", anchors, "column", "directions"))
    lead = "An anchor word gets a vote on each direction on which it is an extreme one."
    return Section("Evidence for the topics", (lead,), tuple(parts))


def _readings(model: Any, coherence: Floats | None, summary: DataSummary | None) -> list[Caveat]:
    found = []
    if len(model.spectrum_):
        above = max(1, int((model.spectrum_ > model.noise_edge_).sum()))
        seen = " or more" if above >= len(model.spectrum_) else ""
        how = "More topics than that can't be told from noise; fewer leave something out, which may be what you want."
        found.append(Caveat(f"{above}{seen} directions of the words' co-occurrence stand out from noise.", how))
    low, high = (formatted(float(value)) for value in (model.topic_distances_.min(), model.topic_distances_.max()))
    how = "0 is a topic that is there twice; above a half, most of what two topics say differs."
    found.append(Caveat(f"Each topic is {low} to {high} away from the one most like it.", how))
    if coherence is not None and summary is not None and np.isfinite(coherence).any():
        middle, documents = formatted(float(np.nanmean(coherence)), 2), counted(summary.rows.n_rows, "document")
        how = (
            "0 is chance; topics that people find clear have around 0.1 and more. It says nothing of topics that "
            "are missing."
        )
        found.append(Caveat(f"The mean coherence is {middle}, measured on {documents}.", how))
    how = (
        "Words that share a topic share its votes, so a low share is not a problem; the bounds in the table hold with "
        "95 % confidence."
    )
    found.append(vote_summary(model, "of the directions for each anchor word", how))
    return found


def _warnings(model: Any, coherence: Floats | None) -> list[str]:
    found = []
    average = model.average_topics()
    if len(average):
        found.append(f"Topic {listed(average)} is close to the corpus average, so of nothing in particular.")
    twins = np.flatnonzero(model.topic_distances_ < _MIN_DISTANCE)
    if len(twins):
        found.append(f"Topics {listed(twins)} are much like another one: try fewer topics.")
    above = int((model.spectrum_ > model.noise_edge_).sum()) if len(model.spectrum_) else model.n_components_
    if above < model.n_components_:
        found.append(f"Only {above} directions stand out from noise, but there are {model.n_components_} topics.")
    if isinstance(model.n_components, int) and model.n_components_ < model.n_components:
        found.append(f"{model.n_components} topics were asked for, but only {model.n_components_} were found.")
    if coherence is not None and (np.asarray(coherence) < _MIN_COHERENCE).any():
        found.append(
            f"The top words of topic {listed(np.flatnonzero(coherence < _MIN_COHERENCE))} rarely co-occur in documents."
        )
    skipped = [(model.n_empty_documents_, "are empty"), (model.n_short_documents_, "have a single word")]
    found += [f"{count:,} documents {what} and do not contribute to topics." for count, what in skipped if count]
    return found
