"""Rows as small figures: pictures, bars or lines; and the tables of their votes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.models.describe import indices_of
from dask_dca.reporting.drawing import bar, bars, profile
from dask_dca.reporting.maps import picture
from dask_dca.reporting.parts import (
    DASH,
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

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["MOST_FIGURES", "MOST_LINES", "leading", "left_out", "row_gallery", "vote_reading", "vote_table"]

MOST_FIGURES: Final = 24
MOST_LINES: Final = 50
_FEW: Final = 24  # features up to which each has a bar


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


def row_gallery(
    model: Any,
    rows: Any,
    titles: Sequence[str],
    *,
    what: str,
    where: str,
    shape: tuple[int, int] | None = None,
    anchor: bool = True,
    baseline: Any = None,
) -> Gallery:
    """Draw rows side by side on one scale.

    rows (k, p): the rows; titles (k,): their titles; what: what they are, in the plural; where: the attribute that
    holds them all; shape: lines and columns, where rows are pictures; anchor: whether they are real rows; baseline
    (p,): what a row is compared with where its greatest features are named; by default zero.
    """
    shown = np.asarray(rows[:MOST_FIGURES], dtype=np.float64)
    names, named = feature_names(model), hasattr(model, "feature_names_in_")
    finite = shown[np.isfinite(shown)]
    bounds = (float(finite.min(initial=0.0)), float(finite.max(initial=0.0)))
    if shape is not None:
        bounds = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    figures = []
    for row, title in zip(shown, titles, strict=False):
        label = f"{title}: {counted_features(model)} between {figure_of(row.min())} and {figure_of(row.max())}"
        if shape is not None:
            drawing = picture(row, label, bounds, shape)
        else:
            drawing = (bars if len(row) <= _FEW else profile)(row, label, bounds, names, anchor=anchor)
        apart = row if baseline is None else row - np.asarray(baseline)
        caption = leading(apart, names) if named and len(row) > _FEW else ""
        figures.append(Figure(title, drawing, caption))
    return Gallery(tuple(figures), left_out(len(rows), len(shown), what, where), pictures=shape is not None)


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
    lines, anchors = [], indices_of(model)
    for i in list(range(len(anchors)) if chosen is None else chosen)[:MOST_LINES]:
        row = anchors[i]
        low, high = (float(value) for value in model.vote_confidence_[i])
        share = float(model.vote_share_[i])
        drawing = bar(share / most, (low / most, high / most), anchor=True)
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
