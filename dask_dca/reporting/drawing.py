"""Elements of drawings: SVG whose colours are classes of the page's style sheet, with all text escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from markupsafe import Markup, escape

from dask_dca.reporting.wording import MINUS, figure_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Scale", "bar", "drawn", "element", "line_path", "nice_ticks", "text", "tick_names"]

_LABEL: Final = 12  # size of letters, in the units of all drawings


class Scale:
    """
    Places of values along a stretch of a drawing.

    Parameters
    ----------
    low, high : float
        Values at its ends; equal ones are pulled apart.
    start, end : float
        Where the ends are drawn.
    """

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        gap = high - low
        self.low, self.high = (low, high) if gap > 0.0 else (low - 0.5, high + 0.5)
        self.start, self.end = start, end

    def __call__(self, value: Any) -> Any:
        """
        Place values.

        Parameters
        ----------
        value : array_like
            The values; NaN is placed at the start.

        Returns
        -------
        ndarray of float64
            Where they are drawn.
        """
        share = (np.asarray(value, dtype=np.float64) - self.low) / (self.high - self.low)
        return self.start + np.nan_to_num(share) * (self.end - self.start)


def element(name: str, content: Iterable[str] | str = "", **attributes: Any) -> Markup:
    """
    Make an element.

    Parameters
    ----------
    name : str
        Its name.
    content : str or iterable of str
        What is in it; text that isn't Markup is escaped.
    **attributes : object
        Its attributes: numbers are rounded, `class_` is class, underscores are hyphens; None is left out.

    Returns
    -------
    Markup
        The element.

    Examples
    --------
    >>> element("text", "a < b", x=1.25, class_="tick")
    Markup('<text x="1.2" class="tick">a &lt; b</text>')
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
    """
    Write in a drawing.

    Parameters
    ----------
    content : str
        What to write.
    x, y : float
        Where its baseline is.
    anchor : {"start", "middle", "end"}, default "start"
        Which part of it is there.
    kind : str, default "tick"
        Class of the style sheet.

    Returns
    -------
    Markup
        The element.
    """
    return element("text", content, x=x, y=y, text_anchor=None if anchor == "start" else anchor, class_=kind)


def drawn(width: float, height: float, label: str, content: Iterable[str], kind: str = "chart") -> Markup:
    """
    Make a drawing.

    Parameters
    ----------
    width, height : float
        Its size, in units in which letters are 12 high.
    label : str
        What it shows, for readers who don't see it.
    content : iterable of str
        Its elements.
    kind : str, default "chart"
        Class of the style sheet.

    Returns
    -------
    Markup
        An svg element.
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
    """
    Join points by lines.

    Parameters
    ----------
    x, y : sequence of float
        The points.

    Returns
    -------
    str
        Data of a path.

    Examples
    --------
    >>> line_path([0, 10], [2.04, 3])
    'M0 2L10 3'
    """
    pairs = zip(np.asarray(x, dtype=float), np.asarray(y, dtype=float), strict=True)
    return "M" + "L".join(f"{a:.1f} {b:.1f}".replace(".0 ", " ").removesuffix(".0") for a, b in pairs)


def nice_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """
    Choose round numbers in a range.

    Parameters
    ----------
    low, high : float
        The range.
    most : int, default 4
        How many steps it has at most.

    Returns
    -------
    list of float
        Multiples of 1, 2 or 5 times a power of ten.

    Examples
    --------
    >>> nice_ticks(0.0, 1.0), nice_ticks(-3.0, 12.0)
    ([0.0, 0.5, 1.0], [0.0, 5.0, 10.0])
    """
    gap = high - low
    if not (np.isfinite(gap) and gap > 0.0):
        return [float(low)] if np.isfinite(low) else []
    power = 10.0 ** np.floor(np.log10(gap / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if gap / (power * factor) <= most)
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    return [float(round(step * i, 12)) + 0.0 for i in np.arange(first, last + 1)]


def tick_names(ticks: Sequence[float]) -> list[str]:
    """
    Write ticks with as many digits as tell them apart.

    Parameters
    ----------
    ticks : sequence of float
        Multiples of a round number.

    Returns
    -------
    list of str
        Their texts.

    Examples
    --------
    >>> tick_names([-53.14, -53.12, -53.1])
    ['−53.14', '−53.12', '−53.10']
    """
    if len(ticks) < 2 or max(map(abs, ticks)) >= 1e5 or ticks[1] - ticks[0] < 1e-4:
        return [figure_of(tick) for tick in ticks]
    digits = max(0, int(-np.floor(np.log10(ticks[1] - ticks[0]) + 1e-9)))
    return [f"{tick:,.{digits}f}".replace("-", MINUS) for tick in ticks]


def bar(share: float, bounds: tuple[float, float] | None = None, *, anchor: bool = False) -> Markup:
    """
    Draw a share as a bar for a table's cell; the number stands in another cell.

    Parameters
    ----------
    share : float
        Length of the bar, 1 is the whole width.
    bounds : tuple of float, optional
        Ends of its interval, drawn as a line.
    anchor : bool, default False
        Whether it is an anchor's.

    Returns
    -------
    Markup
        An svg element that is hidden from screen readers.
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
