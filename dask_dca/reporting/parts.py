"""What a report says, whatever shows it: sections of sentences, figures and tables; caveats, numbers in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "DASH",
    "MINUS",
    "Bar",
    "Caveat",
    "Fact",
    "Figure",
    "Gallery",
    "Report",
    "Section",
    "Table",
    "counted",
    "feature_names",
    "figure_of",
    "listed",
    "percent",
    "shortened",
]

MINUS: Final = "\N{MINUS SIGN}"
DASH: Final = "\N{EN DASH}"
_LONG: Final = 120  # characters after which a name is cut wherever it is shown
_NUMERIC: Final = frozenset(f"0123456789.,+-% \N{NO-BREAK SPACE}e{MINUS}{DASH}")


def figure_of(value: float, digits: int = 3) -> str:
    """Write a number with that many significant digits.

    Returns its text; a dash for what is not finite.
    """
    if not np.isfinite(value):
        return DASH
    value += 0.0  # -0 is 0
    text = f"{value:.{digits}g}" if abs(value) < 1000 or value != int(value) or abs(value) >= 1e6 else f"{value:,.0f}"
    return text.replace("-", MINUS) if text.startswith("-") else text


def percent(share: float, digits: int = 1) -> str:
    r"""Write a share in percent.

    Returns its text; a dash for what is not finite.
    """
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%".replace("-", MINUS) if np.isfinite(share) else DASH


def counted(number: int, name: str, several: str | None = None) -> str:
    """Write how many of something there are.

    several: what several are called; by default with an s.
    """
    return f"{number:,} {name if number == 1 else several or name + 's'}"


def listed(items: Sequence[Any] | NDArray[Any], most: int = 8) -> str:
    """Write a list in words.

    most: how many are named; of the others only the number is. Returns names with commas and "and".
    """
    named = [str(item) for item in items[:most]]
    if len(items) > most:
        named.append(f"{len(items) - most} more")
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def sequences_of(lengths: Sequence[int]) -> str:
    """Say how many sequences frames are read as."""
    return "one sequence" if len(lengths) == 1 else f"{len(lengths):,} sequences"


def shortened(name: Any, most: int = _LONG) -> str:
    """Cut a long name.

    Returns the name without control characters, with dots where it was cut.
    """
    text = "".join(char if char.isprintable() else " " for char in str(name)[: most + 1])
    return text if len(text) <= most else text[: most - 1] + "…"


def feature_names(model: Any) -> list[str]:
    """Name the features of a model.

    Returns the names of the fit, or "feature 0", "feature 1",.
    """
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return [f"feature {i}" for i in range(model.n_features_in_)]
    return [shortened(name) for name in names]


@dataclass(frozen=True)
class Fact:
    """A number that is worth being large, what it is, and what it means."""

    value: str
    name: str
    meaning: str


@dataclass(frozen=True)
class Figure:
    """A picture of `plotting`: how it is drawn, what it shows for readers who don't see it, a title, and a caption."""

    title: str
    label: str
    draw: Callable[..., Any]  # of axes: draw(ax=...)
    caption: str = ""
    height: float = 240.0  # where 340 is the width of a phone's screen, and letters are 12 high
    wide: bool = False
    kind: ClassVar[str] = "figure"


@dataclass(frozen=True)
class Gallery:
    """Small figures side by side, and what is left out of them."""

    figures: tuple[Figure, ...]
    note: str = ""
    kind: ClassVar[str] = "gallery"


@dataclass(frozen=True)
class Bar:
    """A share as a bar for a table's cell, with the ends of its interval; the number stands in another cell."""

    share: float
    bounds: tuple[float, float] | None = None
    anchor: bool = False

    @property
    def ends(self) -> list[float]:
        """Length of the bar, and where the interval begins and ends; in percent of the cell."""
        given = (self.share, *(self.bounds or ()))
        return [round(100.0 * float(np.clip(np.nan_to_num(value), 0.0, 1.0)), 1) for value in given]


@dataclass(frozen=True)
class Table:
    """A table whose first cell of each row is the row's name; cells are text, or bars."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str | Bar, ...], ...]
    note: str = ""
    kind: ClassVar[str] = "table"

    @property
    def columns(self) -> list[str]:
        """What is in each column."""
        return [_kind(column) for column in zip(*self.rows, strict=True)]


def _kind(cells: tuple[str | Bar, ...]) -> str:
    if any(isinstance(cell, Bar) for cell in cells):
        return "drawn"
    return "number" if all(set(str(cell)) <= _NUMERIC for cell in cells) else "text"


@dataclass(frozen=True)
class Section:
    """A heading, a few sentences, and figures or tables."""

    title: str
    lead: tuple[str, ...] = ()
    parts: tuple[Figure | Gallery | Table, ...] = ()


@dataclass(frozen=True)
class Caveat:
    """A statement of the certificate, and a sentence of how to read it."""

    statement: str
    how: str


@dataclass(frozen=True)
class Report:
    """All that is said of a model beyond how it was made; pages, notebooks and terminals show it."""

    headline: str
    facts: tuple[Fact, ...]
    sections: tuple[Section, ...]
    readings: tuple[Caveat, ...]
    warnings: tuple[str, ...] = field(default=())
