"""Where pictures are drawn, in which colours, and what they take from a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.errors import DCAError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats

# Okabe and Ito's colours, distinct for colour-blind readers
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES: Final = ("-", "--", ":", "-.")
ANCHOR: Final = "#D55E00"
CONE: Final = "#0072B2"
GREY: Final = "#9A9A9A"
INK: Final = "#333333"
VECTORS: Final = 5000  # dots up to which each is a shape of its own in a vector graphic
_FLAT: Final = 1e-3  # of its size: the least range that the upright axis of a curve shows
_WRITTEN: Final = 10  # columns of a matrix up to which numbers stand in its cells
_STRONG: Final = 0.5  # how opaque the strongest cell is: ink on it is readable on light and dark paper
_MOST_TICKS: Final = 25  # names along a matrix
_SAMPLE: Final = (64, 64)  # runs of rows, and rows a run, that are drawn


def line_style(i: int) -> dict[str, str]:
    """Give the i-th line a look of its own."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": _STYLES[i // len(COLOURS) % len(_STYLES)]}


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


def require(model: Any, *names: str) -> None:
    """Refuse a model that lacks what a picture shows: results, by name, or methods.

    Raises NotFittedError: the model is not fitted yet; InvalidInputError: it has no such thing, or it is empty.
    """
    for name in names:
        found = getattr(model, name, getattr(model, name.removesuffix("_"), None))
        if found is None or (isinstance(found, np.ndarray | list) and not len(found)):
            if hasattr(model, "fit"):
                check_is_fitted(model)
            msg = f"this {type(model).__name__} has no {name}, so there is no such picture of it"
            raise InvalidInputError(msg)


def value_of(model: Any, name: str) -> Any:
    """Take a value of a fitted model or of an `AnchorResult`.

    name: the result's name of it, which the model's ends in one underscore more.
    """
    return getattr(model, f"{name}_") if hasattr(model, f"{name}_") else getattr(model, name)


def short(name: Any, most: int = 17) -> str:
    """Cut a long name, and leave out what can't be printed; what matplotlib would read as a formula stays a text."""
    text = "".join(char if char.isprintable() else " " for char in str(name)).replace("$", r"\$")
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def legend_below(ax: Any, columns: int = 3) -> None:
    """Set the legend below the axes, where it covers no data."""
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=columns, fontsize="small",
                     frameon=False)  # fmt: skip


def legend_beside(ax: Any) -> None:
    """Set the legend to the right of the axes."""
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize="small", frameon=False)


def sample_of(X: Any) -> Floats:
    """Bring rows that are drawn to this process: all, or runs that are spread over large data."""
    rows = as_rows(X)
    return fetch_rows(rows, spread_rows(rows.n_rows, *_SAMPLE), Run())


def draw_curve(
    ax: Any,
    values: Any,
    labels: tuple[str, str],
    *,
    first: int = 1,
    after: int | None = None,
    level: tuple[float, str] | None = None,
) -> None:
    """Draw a curve over whole numbers.

    values (m,): its values; labels: what the axes are; first: number of the first value; after: a dashed upright line
    after that many values; level: a dashed line at a height, and its name.
    """
    y = np.asarray(values, dtype=np.float64)
    x = np.arange(first, first + len(y))
    ax.plot(x, y, color=CONE, linewidth=1.6, marker="o" if len(y) <= 60 else None, markersize=4.5)
    low, high = float(np.nanmin(y)), float(np.nanmax(y))
    if level is not None:
        low, high = min(low, level[0]), max(high, level[0])
        ax.axhline(level[0], color=INK, linewidth=1.2, linestyle="--", label=level[1])
    if after is not None:
        ax.axvline(first + after - 0.5, color=INK, linewidth=1.2, linestyle="--")
    room = 0.08 * max(high - low, _FLAT * max(abs(low), abs(high)), 1e-12)
    middle, half = (low + high) / 2.0, max((high - low) / 2.0, 4.0 * room)
    ax.set(xlabel=labels[0], ylabel=labels[1], xlim=(first - 0.5, first + len(y) - 0.5))
    ax.set_ylim(middle - half - room, middle + half + 2.0 * room)
    ax.ticklabel_format(axis="y", useOffset=False, style="plain" if 1e-4 < max(abs(low), abs(high)) < 1e6 else "")
    ax.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    ax.grid(axis="y", linewidth=0.6, alpha=0.5)
    if level is not None:
        ax.legend(loc="best", fontsize="small", frameon=False)  # where the curve leaves room


def draw_heat(ax: Any, matrix: NDArray[Any], rows: Sequence[str], columns: Sequence[str]) -> None:
    """Draw a matrix as cells, blue above zero and orange below, the larger the stronger; numbers where there is room.

    matrix (a, b): the numbers; rows, columns: their names.
    """
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    ends = [(0.0, (*to_rgb(ANCHOR), _STRONG)), (0.5, (*to_rgb(ANCHOR), 0.0))]
    ends += [(0.5, (*to_rgb(CONE), 0.0)), (1.0, (*to_rgb(CONE), _STRONG))]
    most = max(float(np.nanmax(np.abs(matrix), initial=0.0)), 1e-300)
    shades = LinearSegmentedColormap.from_list("signed", ends)
    ax.imshow(matrix, cmap=shades, vmin=-most, vmax=most, aspect="auto", interpolation="none")
    if matrix.shape[1] <= _WRITTEN and matrix.shape[0] <= _MOST_TICKS:
        for i, j in np.ndindex(*matrix.shape):
            ax.text(j, i, _in_cell(float(matrix[i, j])), ha="center", va="center", fontsize="small")
    for axis, names in ((ax.yaxis, rows), (ax.xaxis, columns)):
        steps = range(0, len(names), max(1, -(-len(names) // _MOST_TICKS)))
        axis.set_ticks(steps, [short(names[i]) for i in steps], fontsize="small")
    if max((len(str(name)) for name in columns), default=0) > 2:
        ax.tick_params(axis="x", labelrotation=90)


def _in_cell(value: float) -> str:
    return f"{value:.2f}".replace("-", "\N{MINUS SIGN}")
