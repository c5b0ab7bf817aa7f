"""What a report says, whatever shows it: sections of sentences, figures and tables; pictures as SVG."""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from markupsafe import Markup

from dask_dca.models.describe import indices_of
from dask_dca.plotting.canvas import COLOURS, GREY, INK, make_figure
from dask_dca.plotting.rows import FEW, plot_images, plot_row, plot_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats

MINUS: Final = "\N{MINUS SIGN}"
DASH: Final = "\N{EN DASH}"
_LONG: Final = 120  # characters after which a name is cut wherever it is shown
_NUMERIC: Final = frozenset(f"0123456789.,+-% \N{NO-BREAK SPACE}e{MINUS}{DASH}")
MOST_FIGURES: Final = 12  # beside each other: on a phone they stand below each other
MOST_IMAGES: Final = 24
MOST_LINES: Final = 50
_ACROSS: Final = 4  # images side by side


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

    Returns the names of the fit, or "feature 0", "feature 1" and so on.
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


def left_out(total: int, shown: int, what: str, where: str, *, first: bool = True) -> str:
    """Say what is left out.

    total, shown: how many there are, and how many are shown; what: their name in the plural; where: the attribute that
    holds them all; first: whether the first of them are shown. Returns a sentence, empty if nothing is left out.
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

    model: a fitted model with votes; what: what each anchor stands for: the first column's name; numbers (k,): the
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

    model: a fitted model with votes; share: what it is the share of, and of what. Returns range of the vote shares.
    """
    low, high = float(model.vote_share_.min()), float(model.vote_share_.max())
    return Caveat(f"Votes: {percent(low)} to {percent(high)} {share}.", how)
