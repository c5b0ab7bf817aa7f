"""Where pictures are drawn, in which colours, and what they take from a model."""

from __future__ import annotations

from typing import Any, Final

from dask_dca.errors import DCAError, InvalidInputError

__all__ = [
    "ANCHOR",
    "CONE",
    "GREY",
    "check_pixels",
    "line_style",
    "make_axes",
    "make_figure",
    "value_of",
]

# Okabe and Ito's colours, distinct for colour-blind readers
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES: Final = ("-", "--", ":", "-.")
ANCHOR: Final = "#D55E00"
CONE: Final = "#0072B2"
GREY: Final = "#9A9A9A"


def line_style(i: int) -> dict[str, str]:
    """Give the i-th line a look of its own."""
    return {"color": _COLOURS[i % len(_COLOURS)], "linestyle": _STYLES[i // len(_COLOURS) % len(_STYLES)]}


def make_figure(size: tuple[float, float]) -> Any:
    """Make a figure that no global state keeps alive.

    size: width and height in inches.
    Raises DCAError: matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        msg = 'pictures need matplotlib, which is not installed: pip install "dask-dca[plot]"'
        raise DCAError(msg) from error
    figure = Figure(figsize=size, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
    return figure


def make_axes(ax: Any) -> Any:
    """Return axes to draw on.

    ax: given ones; None makes a figure of their own.
    """
    return make_figure((6.4, 4.4)).subplots() if ax is None else ax


def check_pixels(shape: tuple[int, int], count: int, what: str) -> None:
    """Refuse an image of another size.

    shape: lines and columns of the image; count: how many numbers it shall hold; what: what these are, for the message.
    Raises InvalidInputError: lines times columns is another number.
    """
    if shape[0] * shape[1] != count:
        msg = f"shape {tuple(shape)} holds {shape[0] * shape[1]} pixels; {what}"
        raise InvalidInputError(msg)


def value_of(model: Any, name: str) -> Any:
    """Take a value of a fitted model or of an `AnchorResult`.

    name: the result's name of it, which the model's ends in one underscore more.
    """
    return getattr(model, f"{name}_") if hasattr(model, f"{name}_") else getattr(model, name)
