"""A topic as a figure: its anchor word, and its most probable words as bars."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_dca.reporting.drawing import Scale, drawn, element, text
from dask_dca.reporting.parts import Figure
from dask_dca.reporting.wording import feature_names, listed, percent, shortened

__all__ = ["word_bars"]


def word_bars(model: Any, topic: int, n_words: int) -> Figure:
    """
    Draw the leading words of a topic, the anchor word on top.

    Parameters
    ----------
    model : LatentDirichletAllocation
        A fitted model.
    topic : int
        Which topic.
    n_words : int
        How many words, with the anchor.

    Returns
    -------
    Figure
        Bars of probabilities.
    """
    row, anchor = model.components_[topic], int(model.anchor_words_[topic])
    order = np.argsort(-row, kind="stable")[:n_words]
    words = [anchor, *[int(i) for i in order if i != anchor and row[i] > 0.0][: n_words - 1]]
    named = feature_names(model) if hasattr(model, "feature_names_in_") else None
    names = [named[i] if named is not None else f"column {i}" for i in words]
    across, parts = Scale(0.0, float(row[words].max()), 118.0, 310.0), []
    for i, word in enumerate(words):
        at = 6.0 + 19.0 * i
        kind = "anchor" if word == anchor else "fill"
        parts.append(
            text(shortened(names[i], 16), 110.0, at + 11.0, anchor="end", kind="strong" if word == anchor else "name")
        )
        width = max(float(across(row[word])) - 118.0, 0.8)
        parts.append(element("rect", x=118.0, y=at, width=width, height=13.0, class_=kind))
        parts.append(text(percent(float(row[word])), 124.0 + width, at + 11.0))
        if word == anchor:
            parts.append(element("path", d=f"M10 {at + 16.5:.1f}H350", class_="grid"))
    weight = percent(float(model.topic_weights_[topic]))
    label = f"Topic {topic + 1}, {weight} of all words: anchor {names[0]}, then {listed(names[1:], n_words)}"
    title = f"Topic {topic + 1}: {shortened(names[0], 30)}"
    return Figure(title, drawn(360.0, 10.0 + 19.0 * len(words), label, parts), f"{weight} of all words.")
