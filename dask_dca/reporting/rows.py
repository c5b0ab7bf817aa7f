"""Rows as figures: images, bars or lines, or one map of many; and the tables of their votes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.models.describe import indices_of
from dask_dca.plotting.rows import FEW, plot_images, plot_row, plot_rows
from dask_dca.reporting.pictures import (
    DASH,
    Bar,
    Caveat,
    Figure,
    Gallery,
    Table,
    feature_names,
    figure_of,
    listed,
    percent,
    shortened,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dask_dca.geometry.arrays import Floats


MOST_FIGURES: Final = 12  # beside each other: on a phone they stand below each other
MOST_IMAGES: Final = 24
MOST_LINES: Final = 50
_ACROSS: Final = 4  # images side by side


def left_out(total: int, shown: int, what: str, where: str, *, first: bool = True) -> str:
    """Say what is left out.

    total, shown: how many there are, and how many are shown; what: their name in the plural; where: the attribute that
    holds them all; first: whether the first of them are shown. Returns A sentence, empty if nothing is left out.
    """
    if total <= shown:
        return ""
    return f"{'The first ' if first else ''}{shown} of {total:,} {what} are shown; model.{where} has them all."


def leading(values: Any, names: Sequence[str], most: int = 4) -> str:
    """Name the features of greatest size in a row.

    values (p,): the row; names (p,): names of the features.
    """
    order = np.argsort(-np.abs(np.asarray(values, dtype=np.float64)), kind="stable")[:most]
    return f"Greatest: {listed([shortened(names[i], 40) for i in order], most)}."


def row_figures(
    model: Any,
    rows: Any,
    titles: Sequence[str],
    *,
    what: str,
    where: str,
    shape: tuple[int, int] | None = None,
    anchor: bool = True,
    baseline: Any = None,
) -> tuple[Figure | Gallery | Table, ...]:
    """Draw rows on one scale: as images where they are, a figure each where they are few, else as one map.

    rows (k, p): the rows; titles (k,): their titles; what: what they are, in the plural; where: the attribute that
    holds them all; shape: lines and columns, where rows are pictures; anchor: whether they are real rows; baseline
    (p,): what a row is compared with where its greatest features are named; by default zero.
    """
    values, names = np.asarray(rows, dtype=np.float64), feature_names(model)
    finite = values[np.isfinite(values)]
    bounds = (float(finite.min(initial=0.0)), float(finite.max(initial=0.0)))
    span = f"{counted_features(model)} between {figure_of(bounds[0])} and {figure_of(bounds[1])}"
    if shape is not None:
        return (_images(values, titles, what, where, shape, span),)
    apart = values if baseline is None else values - np.asarray(baseline)
    captions = [""] * len(values)
    if hasattr(model, "feature_names_in_") and values.shape[1] > FEW:
        captions = [leading(row, names) for row in apart[:MOST_LINES]]
    if len(values) > MOST_FIGURES:
        return _map(values, titles, names, captions, what, where, span)
    tall = 40.0 + 18.0 * len(names) if len(names) <= FEW else 132.0
    figures = [
        Figure(
            title,
            f"{title}: {counted_features(model)} between {figure_of(row.min())} and {figure_of(row.max())}",
            partial(plot_row, row, names=names, bounds=bounds, anchor=anchor),
            caption,
            tall,
        )
        for row, title, caption in zip(values, titles, captions, strict=True)
    ]
    return (Gallery(tuple(figures)),)


def _images(values: Floats, titles: Sequence[str], what: str, where: str, shape: tuple[int, int], span: str) -> Figure:
    shown = values[:MOST_IMAGES]
    across = min(_ACROSS, len(shown))
    unit = 336.0 / (across * (shape[1] / max(shape) + 0.12))  # as plot_images sets them
    height = -(-len(shown) // across) * unit * (shape[0] / max(shape) + 0.32) + 6.0
    draw = partial(plot_images, shown, shape, titles=[_short_title(title) for title in titles], columns=across)
    label = f"{len(shown)} {what} as images of {shape[0]} x {shape[1]}: {span}"
    caption = f"The least value is black, the greatest white. {left_out(len(values), len(shown), what, where)}"
    return Figure(what[0].upper() + what[1:], label, draw, caption.strip(), height)


def _short_title(title: str) -> str:
    """What is written above a small image: "3: row 117" of "Anchor 3: row 117"."""
    return title.partition(" ")[2].replace("nearest to ", "").replace("typical frame", "frame") or title


def _map(
    values: Floats,
    titles: Sequence[str],
    names: Sequence[str],
    captions: Sequence[str],
    what: str,
    where: str,
    span: str,
) -> tuple[Figure | Table, ...]:
    shown = values[:MOST_LINES]
    draw = partial(plot_rows, shown, labels=[_short_title(title) for title in titles[: len(shown)]], names=names)
    label = f"{len(shown)} {what} as lines of cells: {span}"
    note = left_out(len(values), len(shown), what, where)
    caption = f"A line of cells for each; the stronger a cell, the larger its value. {note}".strip()
    figure = Figure(what[0].upper() + what[1:], label, draw, caption, 90.0 + 11.0 * len(shown), wide=True)
    if not captions[0]:
        return (figure,)
    lines = tuple((title, text) for title, text in zip(titles, captions, strict=False))
    return figure, Table("Greatest features", ("which", "features"), lines, note)


def counted_features(model: Any) -> str:
    """Say how many features a model has."""
    return f"{model.n_features_in_:,} feature{'s' * (model.n_features_in_ != 1)}"


def vote_table(
    model: Any,
    what: str,
    numbers: Sequence[str],
    standing: str = "row",
    where: str = "planes",
    chosen: Sequence[int] | None = None,
) -> Table:
    """Set anchors and their votes in a table.

    model: A fitted model with votes; what: what each anchor stands for: the first column's name; numbers (k,): the
    first column; where: what votes are counted on; chosen: which anchors; by default the first.
    """
    most = max(float(model.vote_confidence_[:, 1].max(initial=0.0)), 1e-9)
    anchors = indices_of(model)
    lines: list[tuple[str | Bar, ...]] = []
    for i in list(range(len(anchors)) if chosen is None else chosen)[:MOST_LINES]:
        row = anchors[i]
        low, high = (float(value) for value in model.vote_confidence_[i])
        share = float(model.vote_share_[i])
        drawing = Bar(share / most, (low / most, high / most), anchor=True)
        named = f"{int(row)}" if row >= 0 else "none"
        lines.append((numbers[i], named, percent(share), f"{percent(low)} {DASH} {percent(high)}", drawing))
    head = (what, standing, "votes", "95 % bounds", f"of {model.n_subproblems_:,} {where}")
    note = left_out(len(anchors), len(lines), "anchors", "vote_share_", first=chosen is None)
    return Table("Votes", head, tuple(lines), note)


def vote_reading(model: Any, share: str, how: str) -> Caveat:
    """Sum up the votes.

    model: A fitted model with votes; share: what it is the share of, and of what. Returns range of the vote shares.
    """
    low, high = float(model.vote_share_.min()), float(model.vote_share_.max())
    return Caveat(f"Votes: {percent(low)} to {percent(high)} {share}.", how)
