"""Drawings of vectors and curves: profiles, bars, curves with axes, tracks over time."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from markupsafe import Markup

from dask_dca.reporting.drawing import Scale, drawn, element, line_path, nice_ticks, text, tick_names
from dask_dca.reporting.wording import figure_of, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["bars", "curve", "lanes", "profile", "tracks"]

_WIDTH: Final = 360.0
_MOST_POINTS: Final = 240  # points of a line; of longer ones least and greatest of each stretch
_SIZES: Final = ((720.0, "chart wide"), (360.0, "chart narrow"))  # the style sheet shows one of the two
_NAME: Final = 17  # letters of a name beside a bar


def thinned(values: Floats) -> tuple[Floats, Floats]:
    """
    Thin a long line out so that it looks the same: least and greatest value of each stretch.

    Parameters
    ----------
    values : ndarray of float64, shape (p,)
        The line.

    Returns
    -------
    places, kept : ndarray of float64
        Places in the line, and the values there.
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
    """
    Draw a row as a line over the features.

    Parameters
    ----------
    values : array_like, shape (p,)
        The row.
    label : str
        What it is, for readers who don't see it.
    bounds : tuple of float
        Least and greatest value that the drawing holds.
    names : sequence of str, shape (p,)
        Names of the features; the first and the last are written.
    anchor : bool, default True
        Whether it is a real row.

    Returns
    -------
    Markup
        An svg element.
    """
    x, y = thinned(np.nan_to_num(np.asarray(values, dtype=np.float64)))
    low, high = min(bounds[0], 0.0), max(bounds[1], 0.0)
    across, up = Scale(0.0, max(float(len(values)) - 1.0, 1.0), 46.0, 350.0), Scale(low, high, 104.0, 10.0)
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


def _grid(low: float, high: float, up: Scale, left: float = 46.0, right: float = 350.0, most: int = 4) -> list[Markup]:
    """Horizontal lines at round numbers."""
    parts, ticks = [], nice_ticks(low, high, most)
    for tick, name in zip(ticks, tick_names(ticks), strict=True):
        height = float(up(tick))
        parts.append(element("path", d=f"M{left:g} {height:.1f}H{right:g}", class_="axis" if tick == 0.0 else "grid"))
        parts.append(text(name, left - 6.0, height + 4.0, anchor="end"))
    return parts


def bars(values: Any, label: str, bounds: tuple[float, float], names: Sequence[str], *, anchor: bool = True) -> Markup:
    """
    Draw a row as one bar a feature.

    Parameters
    ----------
    values : array_like, shape (p,)
        The row.
    label : str
        What it is, for readers who don't see it.
    bounds : tuple of float
        Least and greatest value that the drawing holds.
    names : sequence of str, shape (p,)
        Names of the features.
    anchor : bool, default True
        Whether it is a real row.

    Returns
    -------
    Markup
        An svg element.
    """
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float64))
    across = Scale(min(bounds[0], 0.0), max(bounds[1], 0.0), 120.0, 305.0)
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
    """
    Draw a curve over 1, 2, ...

    Parameters
    ----------
    values : array_like, shape (m,)
        Its values.
    label : str
        What it shows, for readers who don't see it.
    axes : tuple of str
        What the two axes are.
    bounds : tuple of float, optional
        Range of the upright axis; by default that of the values.
    first : int, default 1
        Number of the first value.
    level : tuple of float and str, optional
        A dashed line at a height, and its name.
    after : int, optional
        A dashed upright line after so many values.

    Returns
    -------
    Markup
        An svg element.
    """
    y = np.asarray(values, dtype=np.float64)
    low, high = bounds if bounds is not None else (float(np.nanmin(y)), float(np.nanmax(y)))
    x = np.arange(first, first + len(y), dtype=np.float64)
    across, up = Scale(x[0], max(x[-1], x[0] + 1.0), 58.0, 344.0), Scale(low, high, 158.0, 22.0)
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
    """
    Draw which state each frame is in, one lane a state: once for wide screens, once for narrow ones.

    Parameters
    ----------
    states : array_like of int, shape (n,)
        The states; negative ones are in no lane.
    count : int
        Number of states.
    label : str
        What it shows, for readers who don't see it.
    names : sequence of str
        Names of the states.

    Returns
    -------
    Markup
        Two svg elements, of which the style sheet shows one.
    """
    found = np.asarray(states, dtype=np.int64)
    edges = [0, *(np.flatnonzero(np.diff(found)) + 1).tolist(), len(found)]
    runs = [(begin, end, int(found[begin])) for begin, end in itertools.pairwise(edges) if found[begin] >= 0]
    return Markup("").join(_lanes(runs, len(found), count, label, names, *size) for size in _SIZES)


def _lanes(
    runs: Sequence[tuple[int, int, int]], n: int, count: int, label: str, names: Sequence[str], width: float, kind: str
) -> Markup:
    across, parts = Scale(0.0, float(n), 64.0, width - 8.0), []
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


def _frames(count: int, across: Scale, bottom: float) -> list[Markup]:
    most = 8 if across.end > 400.0 else 4
    ticks = [tick for tick in nice_ticks(0.0, float(count), most) if tick == int(tick)]
    marks = [text(f"{int(tick):,}", float(across(tick)), bottom + 14.0, anchor="middle") for tick in ticks]
    return [*marks, text("frame", (across.start + across.end) / 2.0, bottom + 31.0, anchor="middle")]


def tracks(observed: Any, predicted: Any, label: str, name: str) -> Markup:
    """
    Draw what was observed as points, and what was predicted one frame before as a line.

    Parameters
    ----------
    observed, predicted : array_like, shape (n,)
        A channel.
    label : str
        What it shows, for readers who don't see it.
    name : str
        Name of the channel.

    Returns
    -------
    Markup
        Two svg elements, for wide and for narrow screens, of which the style sheet shows one.
    """
    seen, told = (np.asarray(part, dtype=np.float64) for part in (observed, predicted))
    both = np.concatenate([seen, told])
    up = Scale(float(np.nanmin(both)), float(np.nanmax(both)), 176.0, 22.0)
    real, drawings = np.flatnonzero(np.isfinite(seen)), []
    for width, kind in _SIZES:
        across = Scale(0.0, float(max(len(seen) - 1, 1)), 58.0, width - 8.0)
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
