"""Fitted topics in words: facts for programs, a table and plain sentences for people."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["describe_topics", "topic_facts"]


def topic_facts(model: Any) -> dict[str, Any]:
    """
    Collect what a fitted model found.

    Parameters
    ----------
    model : LatentDirichletAllocation
        A fitted model.

    Returns
    -------
    dict
        Names and plain values.
    """
    anchors, top = model.get_anchor_words().tolist(), model.top_words(10).tolist()
    return {
        "n_documents": model.n_documents_,
        "n_words": model.n_words_,
        "n_subproblems": model.n_subproblems_,
        "noise_edge": float(model.noise_edge_) if np.isfinite(model.noise_edge_) else None,
        "log_likelihoods": model.log_likelihoods_.tolist(),
        "topics": [
            {
                "anchor": anchors[t],
                "words": top[t],
                "weight": float(model.topic_weights_[t]),
                "distinctness": float(model.distinctness_[t]),
                "distance_to_corpus": float(model.distance_to_corpus_[t]),
                "vote_share": float(model.vote_share_[t]),
            }
            for t in range(model.n_components_)
        ],
    }


def describe_topics(model: Any) -> list[str]:
    """
    Describe a fitted model in a table and sentences.

    Parameters
    ----------
    model : LatentDirichletAllocation
        A fitted model.

    Returns
    -------
    list of str
        Lines of text.
    """
    size = f"{model.n_words_} words in {model.n_documents_} documents"
    lines = [
        f"LatentDirichletAllocation: {model.n_components_} topics of {size}",
        f"{'topic':>5} {'share':>6} {'votes':>6} {'distinct':>8}  anchor: top words",
    ]
    anchors, top = model.get_anchor_words(), model.top_words(6)
    for t in range(model.n_components_):
        words = " ".join(str(word) for word in top[t])
        numbers = f"{model.topic_weights_[t]:>6.3f} {model.vote_share_[t]:>6.3f} {model.distinctness_[t]:>8.3f}"
        lines.append(f"{t + 1:>5} {numbers}  {anchors[t]}: {words}")
    return [*lines, *_certificate(model)]


def _certificate(model: Any) -> list[str]:
    lines = []
    if len(model.spectrum_):
        above = max(1, int((model.spectrum_ > model.noise_edge_).sum()))
        seen = "or more " if above >= len(model.spectrum_) else ""
        lines.append(f"{above} {seen}directions of the words' co-occurrence stand out from noise.")
    average = model.average_topics()
    if len(average):
        numbers = ", ".join(str(t + 1) for t in average)
        lines.append(f"Close to the corpus average, so of nothing in particular: topic {numbers}.")
    skipped = [(model.n_empty_documents_, "are empty"), (model.n_short_documents_, "have a single word")]
    lines += [f"{count} documents {what} and tell nothing of topics." for count, what in skipped if count]
    return lines
