"""Drawings of a page: SVG whose colours are classes of its style sheet; bars, curves, profiles and tracks."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from markupsafe import Markup, escape

from dask_dca.reporting.parts import MINUS, figure_of, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "AxisScale",
    "bar",
    "bars",
    "curve",
    "drawn",
    "element",
    "lanes",
    "line_path",
    "nice_ticks",
    "profile",
    "text",
    "tick_names",
    "tracks",
]

_LABEL: Final = 12  # size of letters, in the units of all drawings
_WIDTH: Final = 360.0
_MOST_POINTS: Final = 240  # points of a line; of longer ones least and greatest of each stretch
_SIZES: Final = ((720.0, "chart wide"), (360.0, "chart narrow"))  # the style sheet shows one of the two
_NAME: Final = 17  # letters of a name beside a bar


class AxisScale:
    """Places of values along a stretch of a drawing.

    low, high: values at its ends; equal ones are pulled apart; start, end: where the ends are drawn.
    """

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        gap = high - low
        self.low, self.high = (low, high) if gap > 0.0 else (low - 0.5, high + 0.5)
        self.start, self.end = start, end

    def __call__(self, value: Any) -> Any:
        """Place values.

        value: the values; NaN is placed at the start.
        """
        share = (np.asarray(value, dtype=np.float64) - self.low) / (self.high - self.low)
        return self.start + np.nan_to_num(share) * (self.end - self.start)


def element(name: str, content: Iterable[str] | str = "", **attributes: Any) -> Markup:
    """Make an element.

    content: what is in it; text that isn't Markup is escaped; **attributes: its attributes: numbers are rounded,
    `class_` is class, underscores are hyphens; None is left out.
    """
    inner = escape(content) if isinstance(content, str) else Markup("").join(content)
    given = [
        Markup('{}="{}"').format(key.rstrip("_").replace("_", "-"), _plain(value))
        for key, value in attributes.items()
        if value is not None
    ]
    head = Markup(" ").join([Markup(name), *given])
    return Markup("<{}>{}</{}>").format(head, inner, Markup(name))


def _plain(value: Any) -> str:
    if not isinstance(value, float | np.floating):
        return str(value)
    return f"{round(float(value), 1) + 0.0:.1f}".removesuffix(".0")


def text(content: str, x: float, y: float, *, anchor: str = "start", kind: str = "tick") -> Markup:
    """Write in a drawing.

    anchor: which part of it is there; kind: class of the style sheet.
    """
    return element("text", content, x=x, y=y, text_anchor=None if anchor == "start" else anchor, class_=kind)


def drawn(width: float, height: float, label: str, content: Iterable[str], kind: str = "chart") -> Markup:
    """Make a drawing.

    width, height: its size, in units in which letters are 12 high; label: what it shows, for readers who don't see it;
    kind: class of the style sheet.
    """
    return element(
        "svg",
        content,
        viewBox=f"0 0 {width:g} {height:g}",
        class_=kind,
        role="img",
        aria_label=label,
        font_size=_LABEL,
    )


def line_path(x: Sequence[float] | Floats, y: Sequence[float] | Floats) -> str:
    """Join points by lines."""
    pairs = zip(np.asarray(x, dtype=float), np.asarray(y, dtype=float), strict=True)
    return "M" + "L".join(f"{a:.1f} {b:.1f}".replace(".0 ", " ").removesuffix(".0") for a, b in pairs)


def nice_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Choose round numbers in a range.

    most: how many steps it has at most. Returns multiples of 1, 2 or 5 times a power of ten.
    """
    gap = high - low
    if not (np.isfinite(gap) and gap > 0.0):
        return [float(low)] if np.isfinite(low) else []
    power = 10.0 ** np.floor(np.log10(gap / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if gap / (power * factor) <= most)
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    return [float(round(step * i, 12)) + 0.0 for i in np.arange(first, last + 1)]


def tick_names(ticks: Sequence[float]) -> list[str]:
    """Write ticks with as many digits as tell them apart.

    ticks: multiples of a round number.
    """
    if len(ticks) < 2 or max(map(abs, ticks)) >= 1e5 or ticks[1] - ticks[0] < 1e-4:
        return [figure_of(tick) for tick in ticks]
    digits = max(0, int(-np.floor(np.log10(ticks[1] - ticks[0]) + 1e-9)))
    return [f"{tick:,.{digits}f}".replace("-", MINUS) for tick in ticks]


def bar(share: float, bounds: tuple[float, float] | None = None, *, anchor: bool = False) -> Markup:
    """Draw a share as a bar for a table's cell; the number stands in another cell.

    share: length of the bar, 1 is the whole width; bounds: ends of its interval, drawn as a line; anchor: whether it is
    an anchor's. Returns an svg element that is hidden from screen readers.
    """
    sizes = [100.0 * float(np.clip(np.nan_to_num(value), 0.0, 1.0)) for value in (share, *(bounds or ()))]
    parts = [element("rect", x=0, y=1, width=sizes[0], height=8, class_="anchor" if anchor else "fill")]
    if bounds is not None:
        parts.append(element("path", d=f"M{sizes[1]:.1f} 5H{sizes[2]:.1f}", class_="interval"))
    return element(
        "svg",
        parts,
        viewBox="0 0 100 10",
        class_="bar",
        aria_hidden="true",
        preserveAspectRatio="none",
    )


def thinned(values: Floats) -> tuple[Floats, Floats]:
    """Thin a long line out so that it looks the same: least and greatest value of each stretch.

    values (p,): the line. Returns places, kept: places in the line, and the values there.
    """
    if len(values) <= _MOST_POINTS:
        return np.arange(len(values), dtype=np.float64), values
    edges = np.arange(_MOST_POINTS // 2 + 1) * len(values) // (_MOST_POINTS // 2)
    places = []
    for begin, end in itertools.pairwise(edges):
        stretch = values[begin:end]
        places += sorted({begin + int(np.argmin(stretch)), begin + int(np.argmax(stretch))})
    return np.array(places, dtype=np.float64), values[places]


def profile(
    values: Any, label: str, bounds: tuple[float, float], names: Sequence[str], *, anchor: bool = True
) -> Markup:
    """Draw a row as a line over the features.

    values (p,): the row; label: what it is, for readers who don't see it; bounds: least and greatest value that the
    drawing holds; names (p,): names of the features; the first and the last are written; anchor: whether it is a real
    row.
    """
    x, y = thinned(np.nan_to_num(np.asarray(values, dtype=np.float64)))
    low, high = min(bounds[0], 0.0), max(bounds[1], 0.0)
    across, up = AxisScale(0.0, max(float(len(values)) - 1.0, 1.0), 46.0, 350.0), AxisScale(low, high, 104.0, 10.0)
    line, floor = line_path(across(x), up(y)), float(up(0.0))
    ends = f"L{float(across(x[-1])):.1f} {floor:.1f}L{float(across(x[0])):.1f} {floor:.1f}Z"
    kind = "anchor" if anchor else "fill"
    parts = [
        *_grid(low, high, up, most=3),
        element("path", d=line + ends, class_=f"{kind} area"),
        element("path", d=line, class_=f"line {kind}-line"),
        text(shortened(names[0], 22), 46.0, 122.0),
        text(shortened(names[-1], 22), 350.0, 122.0, anchor="end"),
    ]
    return drawn(_WIDTH, 128.0, label, parts)


def _grid(
    low: float, high: float, up: AxisScale, left: float = 46.0, right: float = 350.0, most: int = 4
) -> list[Markup]:
    """Horizontal lines at round numbers."""
    parts, ticks = [], nice_ticks(low, high, most)
    for tick, name in zip(ticks, tick_names(ticks), strict=True):
        height = float(up(tick))
        parts.append(element("path", d=f"M{left:g} {height:.1f}H{right:g}", class_="axis" if tick == 0.0 else "grid"))
        parts.append(text(name, left - 6.0, height + 4.0, anchor="end"))
    return parts


def bars(values: Any, label: str, bounds: tuple[float, float], names: Sequence[str], *, anchor: bool = True) -> Markup:
    """Draw a row as one bar a feature.

    values (p,): the row; label: what it is, for readers who don't see it; bounds: least and greatest value that the
    drawing holds; names (p,): names of the features; anchor: whether it is a real row.
    """
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float64))
    across = AxisScale(min(bounds[0], 0.0), max(bounds[1], 0.0), 120.0, 305.0)
    zero, parts = float(across(0.0)), []
    for i, value in enumerate(numbers):
        at, end = 6.0 + 18.0 * i, float(across(value))
        parts.append(text(shortened(names[i], _NAME), 112.0, at + 11.0, anchor="end", kind="name"))
        size: dict[str, Any] = {"x": min(zero, end), "width": max(abs(end - zero), 0.8)}
        parts.append(element("rect", y=at + 1.0, height=12.0, class_="anchor" if anchor else "fill", **size))
        parts.append(text(figure_of(value), 354.0, at + 11.0, anchor="end"))
    bottom = 8.0 + 18.0 * len(numbers)
    parts.append(element("path", d=f"M{zero:.1f} 3V{bottom - 2:.1f}", class_="axis"))
    return drawn(_WIDTH, bottom, label, parts)


def curve(
    values: Any,
    label: str,
    axes: tuple[str, str],
    *,
    bounds: tuple[float, float] | None = None,
    first: int = 1,
    level: tuple[float, str] | None = None,
    after: int | None = None,
) -> Markup:
    """Draw a curve over 1, 2, ...

    values (m,): its values; label: what it shows, for readers who don't see it; axes: what the two axes are; bounds:
    range of the upright axis; by default that of the values; first: number of the first value; level: A dashed line at
    a height, and its name; after: A dashed upright line after that many values.
    """
    y = np.asarray(values, dtype=np.float64)
    low, high = bounds if bounds is not None else (float(np.nanmin(y)), float(np.nanmax(y)))
    x = np.arange(first, first + len(y), dtype=np.float64)
    across, up = AxisScale(x[0], max(x[-1], x[0] + 1.0), 58.0, 344.0), AxisScale(low, high, 158.0, 22.0)
    parts = _grid(up.low, up.high, up, 52.0)
    whole = [tick for tick in nice_ticks(x[0], across.high, 6) if tick == int(tick)]
    parts += [text(f"{int(tick)}", float(across(tick)), 174.0, anchor="middle") for tick in whole]
    if level is not None:
        height = float(up(level[0]))
        parts.append(element("path", d=f"M52 {height:.1f}H350", class_="line level"))
        parts.append(text(level[1], 350.0, height - 5.0, anchor="end", kind="name halo"))
    if after is not None:
        place = float(across(first + after - 0.5))
        parts.append(element("path", d=f"M{place:.1f} 18V158", class_="line level"))
    parts.append(element("path", d=line_path(across(x), up(y)), class_="line fill-line"))
    if len(y) <= 60:
        dots = zip(across(x), up(y), strict=True)
        parts += [element("circle", cx=float(a), cy=float(b), r=3.2, class_="fill") for a, b in dots]
    parts += [text(axes[0], 201.0, 192.0, anchor="middle"), text(axes[1], 6.0, 12.0)]
    return drawn(_WIDTH, 198.0, label, parts)


def lanes(states: Any, count: int, label: str, names: Sequence[str]) -> Markup:
    """Draw which state each frame is in, one lane a state: once for wide screens, once for narrow ones.

    states (n,): the states; negative ones are in no lane; label: what it shows, for readers who don't see it. Returns
    two svg elements, of which the style sheet shows one.
    """
    found = np.asarray(states, dtype=np.int64)
    edges = [0, *(np.flatnonzero(np.diff(found)) + 1).tolist(), len(found)]
    runs = [(begin, end, int(found[begin])) for begin, end in itertools.pairwise(edges) if found[begin] >= 0]
    return Markup("").join(_lanes(runs, len(found), count, label, names, *size) for size in _SIZES)


def _lanes(
    runs: Sequence[tuple[int, int, int]], n: int, count: int, label: str, names: Sequence[str], width: float, kind: str
) -> Markup:
    across, parts = AxisScale(0.0, float(n), 64.0, width - 8.0), []
    for j in range(count):
        height = 8.0 + 20.0 * j
        parts.append(text(shortened(names[j], 9), 56.0, height + 11.0, anchor="end", kind="name"))
        parts.append(element("path", d=f"M64 {height + 7.0:g}H{width - 8.0:g}", class_="grid"))
    for begin, end, state in runs:
        left, right = float(across(begin)), float(across(end))
        size: dict[str, Any] = {"x": left, "width": max(right - left, 0.8), "y": 9.0 + 20.0 * state}
        parts.append(element("rect", height=12.0, class_="fill", **size))
    bottom = 8.0 + 20.0 * count
    parts += _frames(n, across, bottom)
    return drawn(width, bottom + 36.0, label, parts, kind)


def _frames(count: int, across: AxisScale, bottom: float) -> list[Markup]:
    most = 8 if across.end > 400.0 else 4
    ticks = [tick for tick in nice_ticks(0.0, float(count), most) if tick == int(tick)]
    marks = [text(f"{int(tick):,}", float(across(tick)), bottom + 14.0, anchor="middle") for tick in ticks]
    return [*marks, text("frame", (across.start + across.end) / 2.0, bottom + 31.0, anchor="middle")]


def tracks(observed: Any, predicted: Any, label: str, name: str) -> Markup:
    """Draw what was observed as points, and what was predicted one frame before as a line.

    observed, predicted (n,): A channel; label: what it shows, for readers who don't see it. Returns two svg elements,
    for wide and for narrow screens, of which the style sheet shows one.
    """
    seen, told = (np.asarray(part, dtype=np.float64) for part in (observed, predicted))
    both = np.concatenate([seen, told])
    up = AxisScale(float(np.nanmin(both)), float(np.nanmax(both)), 176.0, 22.0)
    real, drawings = np.flatnonzero(np.isfinite(seen)), []
    for width, kind in _SIZES:
        across = AxisScale(0.0, float(max(len(seen) - 1, 1)), 58.0, width - 8.0)
        x = across(np.arange(len(seen)))
        dots = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(x[real], up(seen[real]), strict=True))
        parts = [
            *_grid(up.low, up.high, up, 52.0, width - 8.0),
            element("path", d=dots, class_="points"),
            element("path", d=line_path(x, up(told)), class_="line fill-line"),
            *_frames(len(seen) - 1, across, 178.0),
            text(shortened(name, 40), 6.0, 12.0),
        ]
        drawings.append(drawn(width, 214.0, label, parts, kind))
    return Markup("").join(drawings)
