"""Figures, axes, colours and samples for the plots."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dask_dca.anchoring.completion import complete_sample
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import Rows, as_rows, mark_missing
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.engine.tiles import require_finite
from dask_dca.errors import DCAError, InvalidInputError
from dask_dca.geometry.arrays import Floats
from dask_dca.models.labelled import check_features, cube_of

# Okabe and Ito's colours, distinct for colour-blind readers
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES: Final = ("-", "--", ":", "-.")
ANCHOR: Final = "#D55E00"
CONE: Final = "#0072B2"
GREY: Final = "#9A9A9A"
INK: Final = "#333333"
MAX_DOTS: Final = 5000  # number of points above which they are rasterized in vector graphics
_MIN_RELATIVE_RANGE: Final = 1e-3  # minimum range of the vertical axis of a curve, relative to its values
_MAX_NUMBERED_COLUMNS: Final = 10  # maximum number of columns of a heat map with numbers in its cells
_MAX_OPACITY: Final = 0.5  # opacity of the strongest cell, on which text is readable in light and dark themes
_MAX_TICKS: Final = 25  # maximum number of tick labels along an axis of a heat map
_DRAWN_PARTS: Final = 2  # number of parts that missing entries of drawn rows are filled by
_SAMPLE_RUNS: Final = (64, 64)  # number and length of the runs of rows that are drawn


def line_style(i: int) -> dict[str, str]:
    """Return colour and style of the i-th line."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": _STYLES[i // len(COLOURS) % len(_STYLES)]}


def make_figure(size: tuple[float, float]) -> Any:
    """Make a figure outside pyplot's global state.

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


def check_pixels(shape: tuple[int, int], count: int, what: str) -> None:
    """Check that an image has the right number of pixels.

    shape: lines and columns; count: number of values; what: description of the values, for the message.
    Raises InvalidInputError: lines times columns is another number.
    """
    if shape[0] * shape[1] != count:
        msg = f"shape {tuple(shape)} holds {shape[0] * shape[1]} pixels; {what}"
        raise InvalidInputError(msg)


def require(model: Any, *names: str) -> None:
    """Check that a model has the attributes or methods that a plot needs.

    Raises NotFittedError: the model is not fitted yet; InvalidInputError: one of them is missing or empty.
    """
    for name in names:
        found = getattr(model, name, getattr(model, name.removesuffix("_"), None))
        if found is None or (isinstance(found, np.ndarray | list) and not len(found)):
            if hasattr(model, "fit"):
                check_is_fitted(model)
            lacks = f"this {type(model).__name__} has no {name}, so there is no such picture of it"
            msg = f"{lacks}; plot_summary(model) draws what there is"
            raise InvalidInputError(msg)


P = ParamSpec("P")
R = TypeVar("R")
_DRAWN_ON: Final = """\
{} : {}, optional
    Axes to draw on; by default those of a new figure.
"""
_RESULT: Final = """
Returns
-------
matplotlib.{0}.{1}
    The {0}.

Raises
------
"""
_NOT_FITTED: Final = """\
NotFittedError
    The model is not fitted yet.
"""
_UNSUITED: Final = """\
DCAError
    Matplotlib is missing, or the {} not suit this plot.
"""


def picture(*needs: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that draws, so that `ax=None` means the axes of a new figure.

    needs: what the model, its first argument, must have. The docstring, which ends with the other parameters, is
    completed.
    """

    def _decorate(draw: Callable[P, R]) -> Callable[P, R]:
        names = inspect.signature(draw).parameters

        @functools.wraps(draw)
        def _plot(*args: Any, **given: Any) -> R:
            if needs:
                require(args[0] if args else given.get("model"), *needs)
            if "ax" in names and given.get("ax") is None:
                given["ax"] = make_figure((6.4, 4.4)).subplots()
            return draw(*args, **given)

        of_model, part = "model" in names, "axes" if "ax" in names else "figure"
        places = {"ax": "matplotlib.axes.Axes", "figure": "matplotlib.figure.Figure or SubFigure"}
        parts = [_DRAWN_ON.format(name, kind) for name, kind in places.items() if name in names]
        parts += [_RESULT.format(part, part.title()), _NOT_FITTED * of_model]
        what = "model or the data do" if of_model else "data do"
        _plot.__doc__ = "".join(["\n", inspect.cleandoc(draw.__doc__ or ""), "\n", *parts, _UNSUITED.format(what)])
        return _plot

    return _decorate


def value_of(model: Any, name: str) -> Any:
    """Return an attribute of an `AnchorResult`, or the one with a trailing underscore of a fitted model."""
    return getattr(model, f"{name}_") if hasattr(model, f"{name}_") else getattr(model, name)


def short(name: Any, most: int = 17) -> str:
    """Truncate a long name, replace control characters, and escape matplotlib's math text."""
    text = "".join(char if char.isprintable() else " " for char in str(name)).replace("$", r"\$")
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def legend_below(ax: Any, columns: int = 3) -> None:
    """Place the legend below the axes."""
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=columns, fontsize="small",
                     frameon=False)  # fmt: skip


def legend_beside(ax: Any) -> None:
    """Place the legend to the right of the axes."""
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize="small", frameon=False)


def observed_rows(model: Any, X: Any) -> Rows:
    """Open data as rows with the features of a model, if it has any, and NaN for what it takes as missing."""
    rows = as_rows(cube_of(model, X))
    if hasattr(model, "n_features_in_"):
        check_features(model, rows)
    return mark_missing(rows, getattr(model, "missing", None))


def sample_of(model: Any, X: Any, first: NDArray[np.int64] | None = None) -> Floats:
    """Fetch the rows to be drawn: those with the numbers `first`; then all, or evenly spread runs of large data.

    Missing entries are filled by a low-rank model of these rows, and rows without any other entry are left out.
    """
    rows = observed_rows(model, X)
    numbers = spread_rows(rows.n_rows, *_SAMPLE_RUNS)
    found = fetch_rows(rows, numbers, Run(), missing=True)
    require_finite(found, np.arange(rows.n_rows) if numbers is None else numbers, missing=True)
    found = found[~np.isnan(found).all(axis=1)]
    if first is not None and first.max() >= rows.n_rows:
        msg = f"X has {rows.n_rows} rows, and row {first.max()} is an anchor; pass the data of the fit"
        raise InvalidInputError(msg)
    if first is not None:
        found = np.vstack([fetch_rows(rows, first, Run(), missing=True), found])
    return complete_sample(found, _DRAWN_PARTS)[0] if np.isnan(found).any() else found


def draw_curve(
    ax: Any,
    values: Any,
    labels: tuple[str, str],
    *,
    first: int = 1,
    after: int | None = None,
    level: tuple[float, str] | None = None,
) -> None:
    """Draw a curve over integers.

    values (m,); labels: of the axes; first: number of the first value; after: number of values before a dashed vertical
    line; level: height and name of a dashed horizontal line.
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
    room = 0.08 * max(high - low, _MIN_RELATIVE_RANGE * max(abs(low), abs(high)), 1e-12)
    middle, half = (low + high) / 2.0, max((high - low) / 2.0, 4.0 * room)
    ax.set(xlabel=labels[0], ylabel=labels[1], xlim=(first - 0.5, first + len(y) - 0.5))
    ax.set_ylim(middle - half - room, middle + half + 2.0 * room)
    ax.ticklabel_format(axis="y", useOffset=False, style="plain" if 1e-4 < max(abs(low), abs(high)) < 1e6 else "")
    ax.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    ax.grid(axis="y", linewidth=0.6, alpha=0.5)
    if level is not None:
        ax.legend(loc="best", fontsize="small", frameon=False)  # away from the curve


def draw_heat(ax: Any, matrix: NDArray[Any], rows: Sequence[str], columns: Sequence[str]) -> None:
    """Draw a heat map, blue above zero and orange below, with numbers if it is small; rows, columns: labels."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    ends = [(0.0, (*to_rgb(ANCHOR), _MAX_OPACITY)), (0.5, (*to_rgb(ANCHOR), 0.0))]
    ends += [(0.5, (*to_rgb(CONE), 0.0)), (1.0, (*to_rgb(CONE), _MAX_OPACITY))]
    most = max(float(np.nanmax(np.abs(matrix), initial=0.0)), 1e-300)
    shades = LinearSegmentedColormap.from_list("signed", ends)
    ax.imshow(matrix, cmap=shades, vmin=-most, vmax=most, aspect="auto", interpolation="none")
    if matrix.shape[1] <= _MAX_NUMBERED_COLUMNS and matrix.shape[0] <= _MAX_TICKS:
        for i, j in np.ndindex(*matrix.shape):
            ax.text(j, i, _cell_text(float(matrix[i, j])), ha="center", va="center", fontsize="small")
    for axis, names in ((ax.yaxis, rows), (ax.xaxis, columns)):
        steps = range(0, len(names), max(1, -(-len(names) // _MAX_TICKS)))
        axis.set_ticks(steps, [short(names[i]) for i in steps], fontsize="small")
    if max((len(str(name)) for name in columns), default=0) > 2:
        ax.tick_params(axis="x", labelrotation=90)


def _cell_text(value: float) -> str:
    return f"{value:.2f}".replace("-", "\N{MINUS SIGN}")
