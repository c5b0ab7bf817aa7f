"""Drawings in two dimensions: matrices, the unit circle, planes of rows and components, pictures of rows."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.reporting.drawing import AxisScale, drawn, element, line_path, text
from dask_dca.reporting.parts import MINUS, figure_of, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["circle", "heat", "picture", "plane"]

_WRITTEN: Final = 10  # rows of a matrix up to which its numbers are written in the cells


def heat(
    matrix: Any, label: str, rows: Sequence[str], columns: Sequence[str], axes: tuple[str, str] = ("", "")
) -> Markup:
    """Draw a matrix as cells: the larger a number, the stronger its cell; negative ones have a minus.

    matrix (a, b): the numbers; label: what it shows, for readers who don't see it; axes: what rows and columns are.
    """
    values = np.nan_to_num(np.asarray(matrix, dtype=np.float64))
    high = max(float(np.abs(values).max(initial=0.0)), 1e-300)
    left = 30.0 + 6.4 * min(max(len(name) for name in rows), 17)
    side = (354.0 - left) / values.shape[1]
    tall = min(max(side, 6.0), 40.0) if len(rows) <= 40 else 6.0
    parts = []
    for i, line in enumerate(values):
        at = 40.0 + tall * i
        if tall >= 11.0 or i % 5 == 0:
            parts.append(text(shortened(rows[i], 17), left - 6.0, at + tall / 2 + 4.0, anchor="end", kind="name"))
        for j, value in enumerate(line):
            size: dict[str, Any] = {"x": left + side * j, "y": at, "width": side - 1.0, "height": tall - 1.0}
            parts.append(_cell(value, high, size, written=len(columns) <= _WRITTEN and tall >= 16.0))
    step = 1 if side >= 20.0 else 5
    parts += [
        text(shortened(columns[j], 6), left + side * (j + 0.5), 34.0, anchor="middle", kind="name")
        for j in range(0, len(columns), step)
    ]
    parts += [text(axes[1], (left + 354.0) / 2, 14.0, anchor="middle"), text(axes[0], 4.0, 34.0)]
    return drawn(360.0, 44.0 + tall * len(rows), label, parts)


def _cell(value: float, high: float, size: dict[str, Any], *, written: bool) -> Markup:
    strength = 0.5 * abs(value) / high  # at most so strong that ink on it is readable
    kind = "anchor" if value < 0.0 else "fill"
    cell = element("rect", class_=f"{kind} cell", fill_opacity=f"{strength:.2f}", **size)
    number = f"{value:.2f}".replace("-", MINUS) if written else MINUS if value < 0.0 and strength > 0.05 else ""
    if not number or min(size["width"], size["height"]) < 8.0:
        return cell
    middle, base = size["x"] + size["width"] / 2, size["y"] + size["height"] / 2 + 4.0
    return cell + text(number, middle, base, anchor="middle", kind="in-cell")


def circle(values: Any, label: str, *, enlarged: bool = False, numbered: bool = True) -> Markup:
    """Draw eigenvalues in the unit circle, numbered.

    values (k,): the eigenvalues; label: what it shows, for readers who don't see it; enlarged: draw only the part of
    the circle in which they are; numbered: write their numbers beside them.
    """
    found = np.asarray(values, dtype=np.complex128)
    middle, reach = 0.0, 1.12 * max(1.0, float(np.abs(found).max(initial=1.0)))
    if enlarged:
        middle = float(found.real.min() + found.real.max()) / 2.0
        reach = 1.3 * max(float(np.ptp(found.real)) / 2.0, float(np.abs(found.imag).max()), 1e-6)
    across, up = AxisScale(middle - reach, middle + reach, 20.0, 340.0), AxisScale(-reach, reach, 340.0, 20.0)
    centre = float(across(0.0))
    parts = [
        element("path", d="M20 180H340" + ("" if enlarged else f"M{centre:.1f} 20V340"), class_="grid"),
        element("circle", cx=centre, cy=180.0, r=160.0 / reach, class_="line outline"),
        text("real", 22.0, 194.0),
    ]
    if not enlarged:
        parts.append(text("imaginary", centre + 6.0, 30.0))
    places = [(float(across(value.real)), float(up(value.imag))) for value in found]
    parts += [element("circle", cx=x, cy=y, r=5.0, class_="fill dot") for x, y in places]
    parts += _numbers(places) if numbered else []
    if enlarged:
        parts.append(text(f"{figure_of(middle - reach)} to {figure_of(middle + reach)}", 338.0, 332.0, anchor="end"))
    return drawn(360.0, 360.0, label, parts, "chart clipped" if enlarged else "chart")


def _numbers(places: Sequence[tuple[float, float]]) -> list[Markup]:
    """Number points, each on the side on which most room is left; where there is none, not at all."""
    taken, parts = list(places), []
    for i, (x, y) in enumerate(places):
        sides = [(x + 13.0, y - 8.0), (x - 13.0, y - 8.0), (x + 13.0, y + 10.0), (x - 13.0, y + 10.0), (x, y - 14.0)]
        others = [place for place in taken if place != (x, y)]
        room = [min(((a - u) ** 2 + (b - v) ** 2 for u, v in others), default=1e9) for a, b in sides]
        best = int(np.argmax(room))
        if room[best] >= 81.0:
            taken.append(sides[best])
            parts.append(text(str(i + 1), sides[best][0], sides[best][1] + 4.0, anchor="middle", kind="name"))
    return parts


def plane(
    label: str,
    axes: tuple[str, str],
    *,
    rows: Floats | None = None,
    anchors: Floats | None = None,
    outlines: Sequence[Floats] = (),
    names: Sequence[tuple[str, Floats]] = (),
) -> Markup:
    """Draw rows as dots, anchors as diamonds, components as outlines, in two coordinates.

    label: what it shows, for readers who don't see it; rows, anchors (m, 2): where they are; outlines (m, 2): closed
    lines; names (2,): what is written where.
    """
    given = [part for part in (rows, anchors, *outlines) if part is not None and len(part)]
    every = np.concatenate(given) if given else np.zeros((1, 2))
    low, high = every.min(axis=0), every.max(axis=0)
    across, up = AxisScale(low[0], high[0], 14.0, 346.0), AxisScale(low[1], high[1], 246.0, 24.0)
    parts = [element("rect", x=4, y=4, width=352, height=252, class_="frame")]
    if rows is not None:
        dots = zip(across(rows[:, 0]), up(rows[:, 1]), strict=True)
        parts.append(element("path", d="".join(f"M{x:.0f} {y:.0f}h0" for x, y in dots), class_="rows"))
    parts += [
        element("path", d=line_path(across(line[:, 0]), up(line[:, 1])) + "Z", class_="line fill-line")
        for line in outlines
    ]
    for x, y in np.zeros((0, 2)) if anchors is None else anchors:
        a, b = float(across(x)), float(up(y))
        parts.append(element("path", d=f"M{a:.1f} {b - 6:.1f}l6 6l-6 6l-6 -6Z", class_="anchor dot"))
    parts += [
        text(name, float(across(x)), float(up(y)) - 9.0, anchor="middle", kind="strong halo") for name, (x, y) in names
    ]
    parts += [text(axes[0], 356.0, 271.0, anchor="end"), text(f"up: {axes[1]}", 4.0, 271.0)]
    return drawn(360.0, 276.0, label, parts)


def picture(values: Any, label: str, bounds: tuple[float, float], shape: tuple[int, int]) -> Markup:
    """Draw a row as a picture in shades of grey: the least value black, the greatest white.

    values (p,): the row; label: what it is, for readers who don't see it; bounds: values that are black and white;
    shape: lines and columns; their product is p. Returns an img element that holds a PNG file.
    """
    scale = AxisScale(*bounds, 0.0, 255.0)
    shades = np.clip(scale(np.asarray(values, dtype=np.float64)), 0.0, 255.0).astype(np.uint8).reshape(shape)
    lines = b"".join(b"\0" + line.tobytes() for line in shades)
    head = struct.pack(">IIBBBBB", shape[1], shape[0], 8, 0, 0, 0, 0)
    content = (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(lines, 9)) + _chunk(b"IEND", b"")
    )
    source = "data:image/png;base64," + base64.b64encode(content).decode()
    # a void element: no end tag
    made = element(
        "img",
        src=source,
        alt=f"{label}; values {figure_of(bounds[0])} to {figure_of(bounds[1])}",
        width=shape[1],
        height=shape[0],
    )
    return type(made)(made.removesuffix("</img>"))


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
