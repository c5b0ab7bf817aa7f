"""Pictures of `plotting` as SVG for a page: real text, the page's own colours, the same bytes every time."""

from __future__ import annotations

import io
import re
import warnings
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from dask_dca.plotting.canvas import COLOURS, GREY, INK, make_figure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dask_dca.reporting.parts import Figure

__all__ = ["MISSING", "can_draw", "svg_of"]

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
    tag = re.sub(r"#[0-9a-f]{6}", lambda colour: _variable(colour[0]), tag)
    if tag.startswith("<image"):
        return re.sub(r"\s*\n\s*", "", tag)  # within its data
    return re.sub(r"(\d\.\d\d)\d+", r"\1", tag)


def _variable(colour: str) -> str:
    return f"var(--{_VARIABLES[colour]})" if colour in _VARIABLES else colour


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
