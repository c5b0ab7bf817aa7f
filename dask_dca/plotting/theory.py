"""Measured success of the vote against the paper's bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.geometry import theory
from dask_dca.plotting.canvas import line_style, make_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

__all__ = ["plot_success"]


def plot_success(
    places: ArrayLike,
    anchors: ArrayLike,
    *,
    Y: ArrayLike | None = None,
    n_planes: int = 20_000,
    trials: int = 300,
    seed: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """
    Draw how often votes find all anchors, and the theorem's bound, against the number of sub-problems.

    Parameters
    ----------
    places : array_like, shape (n, d)
        Rows in a slice of the cone: rows of height one, or their coordinates.
    anchors : array_like of int, shape (k,)
        Which rows (of Y where given) are the anchors.
    Y : array_like, shape (m, d), optional
        Rows that anchors are chosen from.
    n_planes : int, default 20000
        Planes that the probabilities are measured on.
    trials : int, default 300
        Trials for each number of sub-problems.
    seed : int, default 0
        Seed of planes and trials.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    DCAError
        Matplotlib is missing.
    """
    ax = make_axes(ax)
    true = np.asarray(anchors, dtype=np.int64)
    choices = theory.simulate_votes(places, n_planes, Y=Y, seed=seed)
    shares = np.bincount(choices[choices >= 0], minlength=int(true.max()) + 1) / n_planes
    c = theory.separation(shares[true], np.delete(shares, true))
    k = len(true)
    enough = max(16.0, 3.0 * k / max(c, 0.05) * np.log(100.0 * k))
    counts = np.unique(np.geomspace(1, 1.3 * enough, 40).astype(int))
    measured = theory.measured_success(choices, true, counts.tolist(), trials=trials, seed=seed)
    bound = [theory.success_bound(int(s), k, c) for s in counts]
    _line(ax, counts, measured, 0, "measured")
    _line(ax, counts, bound, 1, "1 - k exp(-c s / 3 k)")
    ax.set(xscale="log", xlabel="sub-problems s", ylabel="all anchors found", ylim=(-0.03, 1.03))
    ax.set_title(f"{k} anchors, c = {c:.2f}")
    ax.legend(loc="lower right", frameon=False)
    return ax


def _line(ax: Any, x: Any, y: Any, number: int, label: str) -> None:
    ax.plot(x, y, label=label, **line_style(number))
