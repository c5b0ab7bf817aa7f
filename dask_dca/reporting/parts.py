"""What a page is made of: sections of figures and tables, readings of the certificate, warnings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from dask_dca.reporting.wording import DASH, MINUS

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Fact", "Figure", "Gallery", "Reading", "Section", "Story", "Table"]

_NUMERIC: Final = frozenset(f"0123456789.,+-% \N{NO-BREAK SPACE}e{MINUS}{DASH}")


@dataclass(frozen=True)
class Fact:
    """A number that is worth being large, what it is, and what it means."""

    value: str
    name: str
    meaning: str


@dataclass(frozen=True)
class Figure:
    """A drawing with its own description for readers who don't see it, a title, and a caption."""

    title: str
    drawing: Markup
    caption: str = ""
    wide: bool = False
    kind: ClassVar[str] = "figure"


@dataclass(frozen=True)
class Gallery:
    """Small figures side by side, and what is left out of them."""

    figures: tuple[Figure, ...]
    note: str = ""
    pictures: bool = False
    kind: ClassVar[str] = "gallery"


@dataclass(frozen=True)
class Table:
    """A table whose first cell of each row is the row's name; cells are text, or drawings."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    kind: ClassVar[str] = "table"

    @property
    def columns(self) -> list[str]:
        """
        What is in each column.

        Returns
        -------
        list of str
            "drawn", "number" or "text".
        """
        return [_kind(column) for column in zip(*self.rows, strict=True)]


def _kind(cells: tuple[str, ...]) -> str:
    if all(hasattr(cell, "__html__") for cell in cells):
        return "drawn"
    return "number" if all(set(cell) <= _NUMERIC for cell in cells) else "text"


@dataclass(frozen=True)
class Section:
    """A heading, a few sentences, and figures or tables."""

    title: str
    lead: tuple[str, ...] = ()
    parts: tuple[Figure | Gallery | Table, ...] = ()


@dataclass(frozen=True)
class Reading:
    """A statement of the certificate, and a sentence of how to read it."""

    statement: str
    how: str


@dataclass(frozen=True)
class Story:
    """All that a page says of a model beyond how it was made."""

    headline: str
    facts: tuple[Fact, ...]
    sections: tuple[Section, ...]
    readings: tuple[Reading, ...]
    warnings: tuple[str, ...] = field(default=())
