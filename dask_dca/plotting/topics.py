"""Pictures of topics: their words, where they lie, and how coherence depends on their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.plotting.canvas import ANCHOR, CONE, GREY, make_axes, make_figure, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_COLUMNS = 4


def plot_topics(
    model: Any, *, n_words: int = 8, topics: Sequence[int] | None = None, feature_names: Sequence[str] | None = None
) -> Figure:
    """
    Draw each topic's most probable words as bars, the anchor word on top.

    Parameters
    ----------
    model : LatentDirichletAllocation
        A fitted model.
    n_words : int, default 8
        Words of a topic, with its anchor.
    topics : sequence of int, optional
        Which topics; the first twelve by default.
    feature_names : sequence of str, optional
        Names of the columns; by default those of the fit.

    Returns
    -------
    matplotlib.figure.Figure
        One panel a topic.

    Raises
    ------
    DCAError
        Matplotlib is missing.
    """
    chosen = list(range(min(model.n_components_, 12))) if topics is None else list(topics)
    columns = min(_COLUMNS, len(chosen))
    lines = -(-len(chosen) // columns)
    figure = make_figure((2.6 * columns, (0.5 + 0.22 * n_words) * lines))
    panels = np.asarray(figure.subplots(lines, columns, squeeze=False)).ravel()
    for t, ax in zip(chosen, panels, strict=False):
        plot_topic(model, t, n_words=n_words, feature_names=feature_names, ax=ax)
    for ax in panels[len(chosen) :]:
        ax.set_axis_off()
    return figure


def plot_topic(
    model: Any, topic: int, *, n_words: int = 8, feature_names: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """
    Draw the most probable words of a topic as bars, the anchor word on top.

    Parameters
    ----------
    model : LatentDirichletAllocation
        A fitted model.
    topic : int
        Which topic, from 0.
    n_words : int, default 8
        Words, with the anchor.
    feature_names : sequence of str, optional
        Names of the columns; by default those of the fit.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    DCAError
        Matplotlib is missing.
    """
    ax = make_axes(ax)
    sizes, names = topic_words(model, topic, n_words, feature_names)
    places = np.arange(len(sizes))
    ax.barh(places, sizes, color=[ANCHOR, *[CONE] * (len(sizes) - 1)])
    ax.set_yticks(places, [short(name) for name in names], fontsize="small")
    ax.invert_yaxis()
    ax.tick_params(axis="x", labelsize="small")
    ax.locator_params(axis="x", nbins=4)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(f"topic {topic}: {100 * model.topic_weights_[topic]:.1f} %", fontsize="small")
    return ax


def topic_words(
    model: Any, topic: int, n_words: int, feature_names: Sequence[str] | None = None
) -> tuple[NDArray[np.float64], list[str]]:
    """Take the leading words of a topic, the anchor word first.

    Returns their probabilities, and their names.
    """
    row, anchor = model.components_[topic], int(model.anchor_words_[topic])
    order = np.argsort(-row, kind="stable")[:n_words].tolist()
    words = [anchor, *[i for i in order if i != anchor][: n_words - 1]]
    names = getattr(model, "feature_names_in_", None) if feature_names is None else feature_names
    return row[words], [f"{i}" if names is None else str(names[i]) for i in words]


def plot_topic_map(model: Any, *, feature_names: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """
    Draw topics in the plane that best keeps their distances, sized by their share of the words.

    Parameters
    ----------
    model : LatentDirichletAllocation
        A fitted model.
    feature_names : sequence of str, optional
        Names of the columns; by default those of the fit.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. Distances are Hellinger's, scaled down to two dimensions (classical scaling).

    Raises
    ------
    DCAError
        Matplotlib is missing.
    """
    ax = make_axes(ax)
    roots = np.sqrt(model.components_)
    centred = roots - roots.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(roots), 2))
    places[:, : min(2, len(sizes))] = (left * sizes)[:, :2]
    ax.scatter(*places.T, s=3000 * model.topic_weights_, color=CONE, alpha=0.35, edgecolor=CONE)
    for place, anchor in zip(places, model.get_anchor_words(feature_names), strict=True):
        ax.annotate(short(anchor), place, ha="center", va="center", fontsize="small")
    shown = float((sizes[:2] ** 2).sum() / max(float((sizes**2).sum()), 1e-300))
    ax.set(xticks=[], yticks=[], title=f"Topics by their anchor words ({100 * shown:.0f} % of their spread)")
    ax.margins(0.15)
    return ax


def plot_coherence(scores: Mapping[int, Any], *, ax: Axes | None = None) -> Axes:
    """
    Draw coherence against the number of topics.

    Parameters
    ----------
    scores : mapping of int to array_like
        Number of topics -> the coherences that `LatentDirichletAllocation.coherence` returned.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes: a point for each topic, and a line of means.

    Raises
    ------
    DCAError
        Matplotlib is missing.
    """
    ax = make_axes(ax)
    numbers = sorted(scores)
    for k in numbers:
        values = np.asarray(scores[k], dtype=float)
        ax.plot(np.full(len(values), k), values, ".", color=GREY, alpha=0.6)
    ax.plot(numbers, [float(np.nanmean(np.asarray(scores[k], dtype=float))) for k in numbers], "o-", color=CONE)
    ax.set(xlabel="topics", ylabel="coherence (NPMI)", title="Coherence of the top words: topics (grey) and mean")
    ax.set_xticks(numbers)
    return ax
