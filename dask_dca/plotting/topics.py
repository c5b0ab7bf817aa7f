"""Pictures of topics: their words, where they lie, and how coherence depends on their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.plotting.canvas import ANCHOR, CONE, GREY, make_axes, make_figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

__all__ = ["plot_coherence", "plot_topic_map", "plot_topics"]

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
    width = max(len(model.components_[0]), 1)
    ranks = model.top_words(min(n_words, width), feature_names=_numbers(model))
    names = model.top_words(min(n_words, width), feature_names)
    anchors = model.get_anchor_words(feature_names)
    for t, ax in zip(chosen, panels, strict=False):
        anchor = int(model.anchor_words_[t])
        others = [i for i, word in enumerate(ranks[t].tolist()) if word != anchor][: n_words - 1]
        words = [anchor, *ranks[t][others].tolist()]
        labels = [str(anchors[t]), *(str(name) for name in names[t][others])]
        _draw_bars(ax, model.components_[t, words], labels)
        ax.set_title(f"topic {t + 1}: {100 * model.topic_weights_[t]:.1f} %", fontsize="small")
    for ax in panels[len(chosen) :]:
        ax.set_axis_off()
    return figure


def _numbers(model: Any) -> Sequence[str]:
    """Numbers of the columns, in place of their names."""
    return range(model.n_features_in_)  # type: ignore[return-value]


def _draw_bars(ax: Axes, sizes: NDArray[np.float64], labels: list[str]) -> None:
    places = np.arange(len(sizes))
    ax.barh(places, sizes, color=[ANCHOR, *[CONE] * (len(sizes) - 1)])
    ax.set_yticks(places, labels, fontsize="small")
    ax.invert_yaxis()
    ax.tick_params(axis="x", labelsize="x-small")
    ax.spines[["top", "right"]].set_visible(False)


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
        ax.annotate(str(anchor), place, ha="center", va="center", fontsize="small")
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
