"""Plots of rows as bars, lines, images or heat maps; of coefficients as images; and of topics."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.engine.stores import is_a
from dask_dca.errors import InvalidInputError
from dask_dca.geometry.arrays import Floats
from dask_dca.models.labelled import feature_labels
from dask_dca.plotting.canvas import (
    ANCHOR,
    CONE,
    GREY,
    check_pixels,
    draw_heat,
    legend_beside,
    line_style,
    make_figure,
    picture,
    short,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MAX_BARS: Final = 24  # maximum number of features that are drawn as bars
_MAX_POINTS: Final = 240  # maximum number of points of a line, and of columns of a heat map
_TOPICS_PER_LINE = 4  # number of topics side by side


def feature_positions(names: Any) -> Floats:
    """Positions of features (p,): their names if these are increasing numbers, such as wavelengths; else 0, 1, ..."""
    try:
        places = np.array([float(name) for name in names])
    except ValueError:
        return np.arange(len(names), dtype=np.float64)
    return places if (np.diff(places) > 0.0).all() else np.arange(len(names), dtype=np.float64)


@picture()
def plot_row(
    row: Any,
    *,
    names: Sequence[str] | None = None,
    bounds: tuple[float, float] | None = None,
    anchor: bool = True,
    ax: Any = None,
) -> Axes:
    """
    Draw one row: as a bar per feature if there are few, else as a line over the features.

    Parameters
    ----------
    row : array-like of shape (p,)
        The row.
    names : sequence of str, optional
        Names of the features; increasing numbers are positions on the axis.
    bounds : tuple of float, optional
        Range of the axis, for the comparison of rows; by default that of the row.
    anchor : bool, default True
        Whether it is a row of the data, drawn orange; else blue.
    """
    values = np.nan_to_num(np.asarray(row, dtype=np.float64))
    low, high = bounds if bounds is not None else (float(values.min()), float(values.max()))
    ends = (min(low, 0.0), max(high, 0.0) if max(high, -low) > 0.0 else 1.0)
    labels = [f"feature {i}" for i in range(len(values))] if names is None else list(names)
    (_bars if len(values) <= MAX_BARS else _line)(ax, values, labels, ends, ANCHOR if anchor else CONE)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _bars(ax: Any, values: Floats, names: Sequence[str], ends: tuple[float, float], colour: str) -> None:
    places, room = np.arange(len(values)), 0.3 * (ends[1] - ends[0])
    drawn = ax.barh(places, values, color=colour, height=0.7)
    written = [f"{value:.3g}".replace("-", "\N{MINUS SIGN}") for value in values]
    ax.bar_label(drawn, written, padding=3, fontsize="small")
    ax.set_yticks(places, [short(name) for name in names], fontsize="small")
    ax.set(xlim=(ends[0] - (room if ends[0] < 0.0 else 0.0), ends[1] + room), ylim=(len(values) - 0.4, -0.6))
    ax.axvline(0.0, color=GREY, linewidth=0.8)
    ax.locator_params(axis="x", nbins=5)


def _line(ax: Any, values: Floats, names: Sequence[str], ends: tuple[float, float], colour: str) -> None:
    places = feature_positions(names)
    kept = _extremes(np.abs(values)[None], _MAX_POINTS // 2)
    kept = np.unique(np.r_[0, kept, _extremes(-values[None], _MAX_POINTS // 2), len(values) - 1])
    ax.fill_between(places[kept], values[kept], color=colour, alpha=0.16, linewidth=0)
    ax.plot(places[kept], values[kept], color=colour, linewidth=1.5)
    ax.set(xlim=(places[0], places[-1]), ylim=(ends[0] * 1.04, ends[1] * 1.04))
    ax.locator_params(axis="y", nbins=4)
    if places[-1] == len(values) - 1.0:
        ax.set_xticks([places[0], places[-1]], [short(names[0], 20), short(names[-1], 20)], fontsize="small")
        for tick, side in zip(ax.get_xticklabels(), ("left", "right"), strict=True):
            tick.set_horizontalalignment(side)


def _extremes(sizes: Floats, most: int) -> NDArray[np.int64]:
    """Select columns to draw: the one of greatest absolute value in each interval."""
    width = sizes.shape[1]
    edges = np.unique(np.arange(most + 1) * width // most)
    greatest = sizes.max(axis=0)
    return np.array([a + greatest[a:b].argmax() for a, b in itertools.pairwise(edges)], dtype=np.int64)


@picture()
def plot_rows(
    rows: Any, *, labels: Sequence[str] | None = None, names: Sequence[str] | None = None, ax: Any = None
) -> Axes:
    """
    Draw many rows as a heat map.

    Parameters
    ----------
    rows : array-like of shape (k, p)
        The rows; for more than 240 features the one of greatest absolute value in each interval is drawn.
    labels : sequence of str, optional
        Names of the rows; by default their numbers.
    names : sequence of str, optional
        Names of the features; by default their numbers.
    """
    values = np.nan_to_num(np.asarray(rows, dtype=np.float64))
    kept = _extremes(np.abs(values), _MAX_POINTS) if values.shape[1] > _MAX_POINTS else np.arange(values.shape[1])
    columns = [str(i) for i in kept] if names is None else [names[i] for i in kept]
    draw_heat(ax, values[:, kept], [str(i) for i in range(len(values))] if labels is None else labels, columns)
    return ax


@picture()
def plot_images(
    rows: Any, shape: tuple[int, int], *, titles: Sequence[str] | None = None, columns: int = 6, ax: Any = None
) -> Axes:
    """
    Draw rows as images side by side on one pair of axes, in shades of grey on one scale.

    Parameters
    ----------
    rows : array-like of shape (k, p)
        The rows.
    shape : tuple of int
        Lines and columns of an image; their product is p.
    titles : sequence of str, optional
        Titles; by default the numbers of the rows.
    columns : int, default 6
        Images side by side.
    """
    images = np.asarray(rows, dtype=np.float64)
    check_pixels(shape, images.shape[1], f"the rows have {images.shape[1]} features")
    names = [str(i) for i in range(len(images))] if titles is None else titles
    across = min(columns, len(images))
    width, height = shape[1] / max(shape), shape[0] / max(shape)
    finite = images[np.isfinite(images)]
    scale: dict[str, Any] = {"vmin": finite.min(initial=np.inf), "vmax": finite.max(initial=-np.inf)}
    for i, image in enumerate(images):
        x, y = (i % across) * (width + 0.12), -(i // across) * (height + 0.32)
        place = (x, x + width, y - height, y)
        ax.imshow(image.reshape(shape), cmap="gray", extent=place, interpolation="none", **scale)
        ax.text(x, y + 0.03, short(names[i]), ha="left", va="bottom", fontsize="small")
    down = -(-len(images) // across)
    ax.set(xlim=(-0.02, across * (width + 0.12)), ylim=(-(down * (height + 0.32)) + 0.3, 0.3), aspect="equal")
    ax.set_axis_off()
    return ax


_MAX_PIXELS: Final = 2**16  # maximum number of pixels of a coefficient image


@picture("components_", "basis_")
def plot_spectra(
    model: Any,
    *,
    feature_axis: Any = None,
    label: str | None = None,
    value_label: str = "value",
    labels: Sequence[str] | None = None,
    ax: Any = None,
) -> Axes:
    """
    Draw the anchors as lines over the features.

    Parameters
    ----------
    model : NMF
        A fitted model.
    feature_axis : array-like of shape (p,), optional
        Positions of the features, such as wavelengths; by default their names or coordinates in the fit if these are
        increasing numbers, else 0, 1, ...
    label : str, optional
        Label of the feature axis, with unit; by default the features' dimension in the fit, or "feature".
    value_label : str, default "value"
        Label of the value axis, with unit.
    labels : sequence of str, optional
        Names of the anchors; by default their row numbers.
    """
    dimension, named = feature_labels(model)
    named = range(model.n_features_in_) if named is None else named
    places = feature_positions(named) if feature_axis is None else np.asarray(feature_axis)
    for i, row in enumerate(model.components_):
        name = labels[i] if labels is not None else f"row {model.anchor_indices_[i]}"
        ax.plot(places, row, linewidth=1.3, label=short(name, 24), **line_style(i))
    ax.set(
        xlabel=dimension if label is None else label,
        ylabel=value_label,
        xlim=(places.min(), places.max()) if len(places) > 1 else None,
    )
    ax.set_title("The anchors: rows of the data" if model.basis_ == "rows" else "The components")
    legend_beside(ax)
    return ax


@picture()
def plot_coefficients(
    F: Any,
    shape: tuple[int, int] | None = None,
    *,
    labels: Sequence[str] | None = None,
    columns: int = 5,
    figure: Any = None,
) -> Figure:
    """
    Draw every column of F as an image.

    Parameters
    ----------
    F : array-like of shape (n, k), or maps of shape (lines, columns, k)
        Coefficients of the pixels, line by line; for Dask arrays only the drawn pixels are computed.
    shape : tuple of int, optional
        Lines and columns of the image, unless F are maps; their product is n. Large images are thinned.
    labels : sequence of str, optional
        Titles of the images.
    columns : int, default 5
        Images in a row.
    """
    F = F.data if is_a(F, "xarray", "DataArray") else F
    if F.ndim == 3:
        shape, F = F.shape[:2], F.reshape(-1, F.shape[2])
    if shape is None:
        msg = f"coefficients of shape {F.shape} are no maps; pass shape=(lines, columns), whose product is {len(F)}"
        raise InvalidInputError(msg)
    n, k = F.shape
    check_pixels(shape, n, f"the coefficients have {n} rows")
    step = int(np.ceil(np.sqrt(n / _MAX_PIXELS))) if n > _MAX_PIXELS else 1
    grid = np.arange(n).reshape(shape)[::step, ::step]
    images = np.asarray(F[grid.ravel()] if step > 1 else F).reshape(*grid.shape, k)
    figure = make_figure((2.1 * min(columns, k), 2.3 * -(-k // columns))) if figure is None else figure
    brightest = max(1e-300, float(np.quantile(images, 0.995)))
    axes = figure.subplots(-(-k // columns), min(columns, k), squeeze=False).ravel()
    for i, ax in enumerate(axes):
        ax.set_axis_off()
        if i < k:
            drawn = ax.imshow(images[:, :, i], cmap="cividis", vmin=0, vmax=brightest)
            ax.set_title(labels[i] if labels is not None else f"coefficient {i}", fontsize="small")
    figure.colorbar(drawn, ax=list(axes), shrink=0.7, label="coefficient")
    return figure


@picture("anchor_words_")
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
        Number of words of a topic, including its anchor.
    topics : sequence of int, optional
        Topics to draw; the first twelve by default.
    feature_names : sequence of str, optional
        Names of the columns; by default those of the fit.
    """
    chosen = list(range(min(model.n_components_, 12))) if topics is None else list(topics)
    columns = min(_TOPICS_PER_LINE, len(chosen))
    lines = -(-len(chosen) // columns)
    figure = make_figure((2.6 * columns, (0.5 + 0.22 * n_words) * lines))
    panels = np.asarray(figure.subplots(lines, columns, squeeze=False)).ravel()
    for t, ax in zip(chosen, panels, strict=False):
        plot_topic(model, t, n_words=n_words, feature_names=feature_names, ax=ax)
    for ax in panels[len(chosen) :]:
        ax.set_axis_off()
    return figure


@picture("anchor_words_")
def plot_topic(
    model: Any, topic: int, *, n_words: int = 8, feature_names: Sequence[str] | None = None, ax: Any = None
) -> Axes:
    """
    Draw the most probable words of a topic as bars, the anchor word on top.

    Parameters
    ----------
    model : LatentDirichletAllocation
        A fitted model.
    topic : int
        Number of the topic, from 0.
    n_words : int, default 8
        Number of words, including the anchor.
    feature_names : sequence of str, optional
        Names of the columns; by default those of the fit.
    """
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
    """Return probabilities and names of the leading words of a topic, the anchor word first."""
    row, anchor = model.components_[topic], int(model.anchor_words_[topic])
    order = np.argsort(-row, kind="stable")[:n_words].tolist()
    words = [anchor, *[i for i in order if i != anchor][: n_words - 1]]
    names = getattr(model, "feature_names_in_", None) if feature_names is None else feature_names
    return row[words], [f"{i}" if names is None else str(names[i]) for i in words]


@picture("topic_weights_")
def plot_topic_map(model: Any, *, feature_names: Sequence[str] | None = None, ax: Any = None) -> Axes:
    """
    Draw topics in the plane that best preserves their distances, sized by their share of the words.

    Hellinger distances in two dimensions, by classical scaling.

    Parameters
    ----------
    model : LatentDirichletAllocation
        A fitted model.
    feature_names : sequence of str, optional
        Names of the columns; by default those of the fit.
    """
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


@picture()
def plot_coherence(scores: Mapping[int, Any], *, ax: Any = None) -> Axes:
    """
    Draw coherence against the number of topics: a point for each topic, and a line of means.

    Parameters
    ----------
    scores : mapping of int to array_like
        Number of topics -> the coherences that `LatentDirichletAllocation.coherence` returned.
    """
    numbers = sorted(scores)
    for k in numbers:
        values = np.asarray(scores[k], dtype=float)
        ax.plot(np.full(len(values), k), values, ".", color=GREY, alpha=0.6)
    ax.plot(numbers, [float(np.nanmean(np.asarray(scores[k], dtype=float))) for k in numbers], "o-", color=CONE)
    ax.set(xlabel="topics", ylabel="coherence (NPMI)", title="Coherence of the top words: topics (grey) and mean")
    ax.set_xticks(numbers)
    return ax
