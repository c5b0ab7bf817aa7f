"""A report as plain text, for terminals and logs."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from dask_dca.reporting.parts import Bar, Figure, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dask_dca.reporting.parts import Gallery, Report

__all__ = ["as_text"]

_WIDTH: Final = 100
_BAR: Final = 20  # letters of a full bar


def as_text(title: str, story: Report, tables: Sequence[Table], made: str) -> str:
    """Write a report as lines of at most 100 letters, wider tables excepted.

    title: its heading; tables: how the model was made; made: the call that makes such a model.
    """
    lines = [title, "=" * len(title), *_wrapped(story.headline), ""]
    lines += [f"{fact.value} {fact.name}: {fact.meaning}" for fact in story.facts]
    if story.warnings:
        lines += [*_heading("What to mind"), *(line for text in story.warnings for line in _wrapped(text, "- "))]
    for section in story.sections:
        lines += [*_heading(section.title), *(line for text in section.lead for line in _wrapped(text))]
        for part in section.parts:
            lines += _part(part)
    lines += _heading("The certificate")
    for reading in story.readings:
        lines += _wrapped(f"{reading.statement} {reading.how}", "- ")
    lines += [*_heading("How it was made"), *_wrapped(made)]
    for table in tables:
        lines += _part(table)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _wrapped(text: str, bullet: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet))


def _heading(name: str) -> list[str]:
    return ["", name, "-" * len(name)]


def _part(part: Figure | Gallery | Table) -> list[str]:
    if isinstance(part, Table):
        return ["", f"{part.caption}:", *_columns(part), *_wrapped(part.note)]
    if isinstance(part, Figure):
        return _wrapped(f"[{part.title}: {part.label}] {part.caption}")
    return [*(line for figure in part.figures for line in _part(figure)), *_wrapped(part.note)]


def _columns(table: Table) -> list[str]:
    cells = [[_cell(cell) for cell in row] for row in (table.head, *table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.head))]
    right = [kind == "number" for kind in table.columns] if table.rows else [False] * len(widths)
    return [
        "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True))
        for row in cells
    ]


def _cell(cell: str | Bar) -> str:
    return "#" * round(_BAR * cell.ends[0] / 100.0) if isinstance(cell, Bar) else cell
