"""What a report says, whatever shows it: sections of sentences, figures and tables; pictures as SVG."""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from markupsafe import Markup

from dask_dca.plotting.canvas import COLOURS, GREY, INK, make_figure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

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


MISSING: Final = 'Pictures are left out, for want of matplotlib: pip install "dask-dca[plot]"'
_WIDTHS: Final = {"narrow": 340.0, "wide": 720.0}
_ROLES: Final = (*(f"series-{i}" for i in range(len(COLOURS) - 1)), "ink")
_MUTED: Final = "#50606f"
_VARIABLES: Final = {
    **dict(zip((colour.lower() for colour in COLOURS), _ROLES, strict=True)),
    GREY.lower(): "rows",
    INK.lower(): "ink",
    _MUTED: "muted",
    "#e3e8ed": "grid",
    "#ffffff": "paper",
}
_SETTINGS: Final = {
    "svg.fonttype": "none",  # text stays text
    "svg.image_inline": True,
    "font.size": 12.0,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _MUTED,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "text.color": INK,
    "grid.color": "#e3e8ed",
    "figure.dpi": 144,
    "savefig.dpi": 144,
    "axes.unicode_minus": True,
}
_NOTHING: Final = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_DOTS: Final = 50  # marks of one kind from which they become points of one line


@cache
def can_draw() -> bool:
    """Tell whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def svg_of(figure: Figure) -> Markup:
    """Draw a figure for a page; a wide one twice, of which the style sheet shows that which fits the screen.

    Returns one or two svg elements; nothing without matplotlib.
    """
    if not can_draw():
        return Markup("")
    kinds = ("wide", "narrow") if figure.wide else ("",)
    return Markup("").join(_drawn(figure, kind) for kind in kinds)


def _drawn(figure: Figure, kind: str) -> Markup:
    from matplotlib import style
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    width = _WIDTHS.get(kind, _WIDTHS["narrow"])
    salt = {"svg.hashsalt": f"{figure.title} {figure.label} {kind}"}  # no name twice on a page
    with style.context(["default", {**_SETTINGS, **salt}]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser's fonts have it
        made = make_figure((width / 72.0, figure.height / 72.0))
        made.get_layout_engine().set(w_pad=0.02, h_pad=0.02)
        ax = made.subplots()
        figure.draw(ax=ax)
        ax.set_title("")  # the page has its own
        written = io.StringIO()
        FigureCanvasSVG(made).print_svg(written, metadata=_NOTHING)  # savefig draws twice
    shown = {"role": "img", "aria-label": figure.label, "class": f"chart {kind}".strip()}
    return _for_page(written.getvalue(), f"0 0 {width:g} {figure.height:g}", shown)


def _for_page(text: str, box: str, attributes: Mapping[str, Any]) -> Markup:
    """Leave out what a page doesn't need of matplotlib's file, and put the page's colours in place of its own."""
    text = text[text.index("<svg") :]
    body = text[text.index(">") + 1 : text.rindex("</svg>")]
    body = re.sub(r"<(metadata|style)\b.*?</\1>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(rf"(<g[^>]*>\s*)?(?:<use [^>]*/>\s*){{{_DOTS},}}", _as_points, body)
    body = re.sub(r"<[^>]+>", _tag, body)
    body = re.sub(r"<defs>\s*</defs>|\s*\n\s*", " ", body)
    named = Markup(" ").join(Markup('{}="{}"').format(key, value) for key, value in attributes.items())
    return Markup('<svg viewBox="{}" {}>{}</svg>').format(box, named, Markup(body))


def _tag(found: re.Match[str]) -> str:
    """One tag as a page has it; what users wrote stands between tags, and stays."""
    tag = re.sub(r'^<g id="[\w.]+"', "<g", found[0]).replace("xlink:href", "href")
    tag = re.sub(r"font(-size)?: ?(?:(bold|[0-9]+) )?([0-9.]+)px[^;\"]*(?:; ?font-family: ?[^;\"]*)?", _own_font, tag)
    tag = re.sub(r"#[0-9a-f]{6}", lambda own: f"var(--{_VARIABLES[own[0]]})" if own[0] in _VARIABLES else own[0], tag)
    if tag.startswith("<image"):
        return re.sub(r"\s*\n\s*", "", tag)  # within its data
    return re.sub(r"(\d\.\d\d)\d+", r"\1", tag)


def _own_font(found: re.Match[str]) -> str:
    weight = f"; font-weight: {found[2]}" if found[2] not in (None, "400") else ""
    return f"font-size: {found[3]}px{weight}"


def _as_points(found: re.Match[str]) -> str:
    """Many equal marks as the points of one path: a tenth of the bytes."""
    places = re.findall(r'x="([\d.-]+)" y="([\d.-]+)"', found[0])
    colour, shade = (re.search(rf"{name}: ([^;\"]+)", found[0]) for name in ("fill", "(?:fill-)?opacity"))
    line = "".join(f"M{float(x):.1f} {float(y):.1f}h0" for x, y in places)
    style = f"fill: none; stroke: {colour[1] if colour else INK}; stroke-width: 3; stroke-linecap: round"
    style += f"; stroke-opacity: {shade[1]}" if shade else ""
    return f'{found[1] or ""}<path d="{line}" style="{style}"/>'
