"""Elements of a report in any format: sections with sentences, figures and tables; figures as SVG."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, ClassVar, Final

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from dask_dca.geometry.arrays import Floats
from dask_dca.models.describe import indices_of
from dask_dca.models.labelled import feature_labels
from dask_dca.plotting.canvas import COLOURS, GREY, INK, make_figure
from dask_dca.plotting.rows import MAX_BARS, plot_images, plot_row, plot_rows

MINUS: Final = "\N{MINUS SIGN}"
DASH: Final = "\N{EN DASH}"
_MAX_NAME: Final = 120  # maximum number of characters of a name
_NUMERIC: Final = frozenset(f"0123456789.,+-% \N{NO-BREAK SPACE}e{MINUS}{DASH}")
MAX_FIGURES: Final = 12  # maximum number of figures of a gallery
MAX_IMAGES: Final = 24  # maximum number of images of a figure
MAX_LINES: Final = 50  # maximum number of rows of a table
_IMAGES_PER_LINE: Final = 4  # number of images side by side


def formatted(value: float, digits: int = 3) -> str:
    """Format a number with this many significant digits; a dash if it is not finite."""
    if not np.isfinite(value):
        return DASH
    value += 0.0  # -0 is 0
    text = f"{value:.{digits}g}"
    if 1000.0 <= abs(float(text)) < 1e6:
        text = f"{value if value == int(value) else float(text):,.0f}"
    return text.replace("-", MINUS) if text.startswith("-") else text


def percent(share: float, digits: int = 1) -> str:
    """Format a share in percent; a dash if it is not finite."""
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%".replace("-", MINUS) if np.isfinite(share) else DASH


def counted(number: int, name: str, several: str | None = None) -> str:
    """Format a count with a noun; several: its plural, by default with an s."""
    return f"{number:,} {name if number == 1 else several or name + 's'}"


def listed(items: Sequence[Any] | NDArray[Any], most: int = 8) -> str:
    """Join items by commas and "and"; most: maximum number of items, of the others only the count is given."""
    named = [str(item) for item in items[:most]]
    if len(items) > most:
        named.append(f"{len(items) - most} more")
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def sequences_of(lengths: Sequence[int]) -> str:
    """Format the number of sequences."""
    return "one sequence" if len(lengths) == 1 else f"{len(lengths):,} sequences"


def shortened(name: Any, most: int = _MAX_NAME) -> str:
    """Truncate a long name with an ellipsis, and replace control characters."""
    text = "".join(char if char.isprintable() else " " for char in str(name)[: most + 1])
    return text if len(text) <= most else text[: most - 1] + "…"


def feature_names(model: Any) -> list[str]:
    """List the feature names or coordinates of a model; by default "feature 0", "feature 1" and so on."""
    names = feature_labels(model)[1]
    if names is None:
        return [f"feature {i}" for i in range(model.n_features_in_)]
    return [shortened(f"{name:.6g}" if isinstance(name, np.floating) else name) for name in names]


@dataclass(frozen=True)
class Fact:
    """A key figure: its value, its name, and its meaning."""

    value: str
    name: str
    meaning: str


@dataclass(frozen=True)
class Figure:
    """A figure: title, alternative text (`label`), function of `plotting` that draws it, and caption."""

    title: str
    label: str
    draw: Callable[..., Any]  # called as draw(ax=...)
    caption: str = ""
    height: float = 240.0  # in pixels, for a width of 340 and text of 12
    wide: bool = False
    kind: ClassVar[str] = "figure"


@dataclass(frozen=True)
class Gallery:
    """Small figures side by side, and a note on omitted ones."""

    figures: tuple[Figure, ...]
    note: str = ""
    kind: ClassVar[str] = "gallery"


@dataclass(frozen=True)
class Bar:
    """A share drawn as a bar in a table cell, with the bounds of its interval."""

    share: float
    bounds: tuple[float, float] | None = None
    anchor: bool = False

    @property
    def ends(self) -> list[float]:
        """Length of the bar, and bounds of the interval, in percent of the cell."""
        inputs = (self.share, *(self.bounds or ()))
        return [round(100.0 * float(np.clip(np.nan_to_num(value), 0.0, 1.0)), 1) for value in inputs]


@dataclass(frozen=True)
class Table:
    """A table of text and bars, whose first column names the rows."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str | Bar, ...], ...]
    note: str = ""
    kind: ClassVar[str] = "table"

    @property
    def columns(self) -> list[str]:
        """Kind of each column: "drawn", "number" or "text"."""
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
    """A statement of the certificate, and a sentence on its interpretation."""

    statement: str
    how: str


@dataclass(frozen=True)
class Report:
    """The content of a report, for pages, notebooks and terminals."""

    headline: str
    facts: tuple[Fact, ...]
    sections: tuple[Section, ...]
    readings: tuple[Caveat, ...]
    warnings: tuple[str, ...] = field(default=())


NO_PLOTS: Final = 'Pictures are left out, for want of matplotlib: pip install "dask-dca[plot]"'
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
_NO_METADATA: Final = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_MIN_POINTS: Final = 50  # number of equal marks from which they are merged to one path


@cache
def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def svg_of(figure: Figure) -> Markup:
    """Draw a figure as svg, a wide one in two widths for the style sheet to choose; empty without matplotlib."""
    if not can_draw():
        return Markup("")
    kinds = ("wide", "narrow") if figure.wide else ("",)
    return Markup("").join(_draw_svg(figure, kind) for kind in kinds)


def _draw_svg(figure: Figure, kind: str) -> Markup:
    from matplotlib import style
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    width = _WIDTHS.get(kind, _WIDTHS["narrow"])
    salt = {"svg.hashsalt": f"{figure.title} {figure.label} {kind}"}  # so that ids are unique on a page
    with style.context(["default", {**_SETTINGS, **salt}]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # browsers have other fonts
        made = make_figure((width / 72.0, figure.height / 72.0))
        made.get_layout_engine().set(w_pad=0.02, h_pad=0.02)
        ax = made.subplots()
        figure.draw(ax=ax)
        ax.set_title("")  # the page shows the title
        written = io.StringIO()
        FigureCanvasSVG(made).print_svg(written, metadata=_NO_METADATA)  # savefig draws twice
    shown = {"role": "img", "aria-label": figure.label, "class": f"chart {kind}".strip()}
    return _adapt_svg(written.getvalue(), f"0 0 {width:g} {figure.height:g}", shown)


def _adapt_svg(text: str, box: str, attributes: Mapping[str, Any]) -> Markup:
    """Remove unneeded parts of matplotlib's SVG, and replace colours by the page's variables."""
    text = text[text.index("<svg") :]
    body = text[text.index(">") + 1 : text.rindex("</svg>")]
    body = re.sub(r"<(metadata|style)\b.*?</\1>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(rf"(<g[^>]*>\s*)?(?:<use [^>]*/>\s*){{{_MIN_POINTS},}}", _merge_points, body)
    body = re.sub(r"<[^>]+>", _adapt_tag, body)
    body = re.sub(r"<defs>\s*</defs>|\s*\n\s*", " ", body)
    named = Markup(" ").join(Markup('{}="{}"').format(key, value) for key, value in attributes.items())
    return Markup('<svg viewBox="{}" {}>{}</svg>').format(box, named, Markup(body))


def _adapt_tag(found: re.Match[str]) -> str:
    """Adapt one tag; text between tags, which may come from users, is not changed."""
    tag = re.sub(r'^<g id="[\w.]+"', "<g", found[0]).replace("xlink:href", "href")
    tag = re.sub(r"font(-size)?: ?(?:(bold|[0-9]+) )?([0-9.]+)px[^;\"]*(?:; ?font-family: ?[^;\"]*)?", _adapt_font, tag)
    tag = re.sub(r"#[0-9a-f]{6}", lambda own: f"var(--{_VARIABLES[own[0]]})" if own[0] in _VARIABLES else own[0], tag)
    if tag.startswith("<image"):
        return re.sub(r"\s*\n\s*", "", tag)  # within its data
    return re.sub(r"(\d\.\d\d)\d+", r"\1", tag)


def _adapt_font(found: re.Match[str]) -> str:
    weight = f"; font-weight: {found[2]}" if found[2] not in (None, "400") else ""
    return f"font-size: {found[3]}px{weight}"


def _merge_points(found: re.Match[str]) -> str:
    """Merge many equal marks to one path, which takes a tenth of the bytes."""
    places = re.findall(r'x="([\d.-]+)" y="([\d.-]+)"', found[0])
    colour, shade = (re.search(rf"{name}: ([^;\"]+)", found[0]) for name in ("fill", "(?:fill-)?opacity"))
    line = "".join(f"M{float(x):.1f} {float(y):.1f}h0" for x, y in places)
    style = f"fill: none; stroke: {colour[1] if colour else INK}; stroke-width: 3; stroke-linecap: round"
    style += f"; stroke-opacity: {shade[1]}" if shade else ""
    return f'{found[1] or ""}<path d="{line}" style="{style}"/>'


def omission(total: int, shown: int, what: str, where: str, *, first: bool = True) -> str:
    """Return a sentence on omitted items, or an empty string if there are none.

    total, shown: numbers of items; what: their plural; where: the attribute that holds all of them; first: whether the
    first items are shown.
    """
    if total <= shown:
        return ""
    return f"{'The first ' if first else ''}{shown} of {total:,} {what} are shown; model.{where} has them all."


def greatest_features(values: Any, names: Sequence[str], most: int = 4) -> str:
    """Return a sentence on the features of greatest absolute value in a row (p,)."""
    order = np.argsort(-np.abs(np.asarray(values, dtype=np.float64)), kind="stable")[:most]
    return f"Largest values: {listed([shortened(names[i], 40) for i in order], most)}."


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
    """Draw rows on a common scale: as images if they have a shape, as figures if they are few, else as a heat map.

    rows (k, p); titles (k,); what: plural name of the rows; where: the attribute that holds all of them; shape: lines
    and columns of images; anchor: whether they are rows of the data; baseline (p,): subtracted before the greatest
    features are listed.
    """
    values, names = np.asarray(rows, dtype=np.float64), feature_names(model)
    finite = values[np.isfinite(values)]
    bounds = (float(finite.min(initial=0.0)), float(finite.max(initial=0.0)))
    span = f"{counted_features(model)} between {formatted(bounds[0])} and {formatted(bounds[1])}"
    if shape is not None:
        return (_images(values, titles, what, where, shape, span),)
    apart = values if baseline is None else values - np.asarray(baseline)
    captions = [""] * len(values)
    if hasattr(model, "feature_names_in_") and values.shape[1] > MAX_BARS:
        captions = [greatest_features(row, names) for row in apart[:MAX_LINES]]
    if len(values) > MAX_FIGURES:
        return _map(values, titles, names, captions, what, where, span)
    tall = 40.0 + 18.0 * len(names) if len(names) <= MAX_BARS else 132.0
    figures = [
        Figure(
            title,
            f"{title}: {counted_features(model)} between {formatted(row.min())} and {formatted(row.max())}",
            partial(plot_row, row, names=names, bounds=bounds, anchor=anchor),
            caption,
            tall,
        )
        for row, title, caption in zip(values, titles, captions, strict=True)
    ]
    return (Gallery(tuple(figures)),)


def _images(values: Floats, titles: Sequence[str], what: str, where: str, shape: tuple[int, int], span: str) -> Figure:
    shown = values[:MAX_IMAGES]
    across = min(_IMAGES_PER_LINE, len(shown))
    unit = 336.0 / (across * (shape[1] / max(shape) + 0.12))  # layout of plot_images
    height = -(-len(shown) // across) * unit * (shape[0] / max(shape) + 0.32) + 6.0
    draw = partial(plot_images, shown, shape, titles=[_short_title(title) for title in titles], columns=across)
    label = f"{len(shown)} {what} as images of {shape[0]} x {shape[1]}: {span}"
    caption = f"The least value is black, the greatest white. {omission(len(values), len(shown), what, where)}"
    return Figure(what[0].upper() + what[1:], label, draw, caption.strip(), height)


def _short_title(title: str) -> str:
    """Shorten "Anchor 3: row 117" to "3: row 117", for small images."""
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
    shown = values[:MAX_LINES]
    draw = partial(plot_rows, shown, labels=[_short_title(title) for title in titles[: len(shown)]], names=names)
    label = f"{len(shown)} {what} as lines of cells: {span}"
    note = omission(len(values), len(shown), what, where)
    caption = f"A line of cells for each; the stronger a cell, the larger its value. {note}".strip()
    figure = Figure(what[0].upper() + what[1:], label, draw, caption, 90.0 + 11.0 * len(shown), wide=True)
    if not captions[0]:
        return (figure,)
    lines = tuple((title, text) for title, text in zip(titles, captions, strict=False))
    return figure, Table("Greatest features", ("which", "features"), lines, note)


def counted_features(model: Any) -> str:
    """Format the number of features of a model."""
    return f"{model.n_features_in_:,} feature{'s' * (model.n_features_in_ != 1)}"


def vote_table(
    model: Any,
    what: str,
    numbers: Sequence[str],
    standing: str = "row",
    where: str = "planes",
    chosen: Sequence[int] | None = None,
) -> Table:
    """Make a table of anchors and their votes.

    what, numbers (k,): name and cells of the first column; standing: name of the column of rows; where: name of the
    sub-problems; chosen: indices of anchors, by default the first ones.
    """
    most = max(float(model.vote_confidence_[:, 1].max(initial=0.0)), 1e-9)
    anchors = indices_of(model)
    lines: list[tuple[str | Bar, ...]] = []
    for i in list(range(len(anchors)) if chosen is None else chosen)[:MAX_LINES]:
        row = anchors[i]
        low, high = (float(value) for value in model.vote_confidence_[i])
        share = float(model.vote_share_[i])
        drawing = Bar(share / most, (low / most, high / most), anchor=True)
        named = f"{int(row)}" if row >= 0 else "none"
        lines.append((numbers[i], named, percent(share), f"{percent(low)} {DASH} {percent(high)}", drawing))
    head = (what, standing, "votes", "95 % bounds", f"of {model.n_subproblems_:,} {where}")
    note = omission(len(anchors), len(lines), "anchors", "vote_share_", first=chosen is None)
    return Table("Votes", head, tuple(lines), note)


def vote_summary(model: Any, share: str, how: str) -> Caveat:
    """Summarise the range of the vote shares; share: what they are shares of."""
    low, high = float(model.vote_share_.min()), float(model.vote_share_.max())
    return Caveat(f"Votes: {percent(low)} to {percent(high)} {share}.", how)
