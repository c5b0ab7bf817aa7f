"""Votes and coverage: what the anchors rest on, and how far they reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.geometry.votes import wilson_bounds
from dask_dca.plotting.canvas import ANCHOR, CONE, GREY, indices_of, make_axes, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

__all__ = ["plot_coverage", "plot_votes"]


def plot_votes(model: Any, *, top: int = 20, labels: Sequence[str] | None = None, ax: Axes | None = None) -> Axes:
    """
    Draw the vote shares of the leading candidates with Wilson's 95 % bounds, anchors highlighted.

    Parameters
    ----------
    model : NMF or AnchorResult
        What was found.
    top : int, default 20
        How many candidates besides the anchors are drawn at most.
    labels : sequence of str, optional
        Names of the anchors; by default their row numbers.
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
    indices, planes = indices_of(model), int(value_of(model, "n_pointed"))
    numbers, votes = value_of(model, "candidates"), value_of(model, "candidate_votes")
    own = np.isin(numbers, indices)
    others = np.flatnonzero(~own)
    others = others[np.argsort(-votes[others], kind="stable")][:top]
    shown = np.concatenate([np.flatnonzero(own), others])
    shown = shown[np.argsort(-votes[shown], kind="stable")]
    share, bounds = votes[shown] / planes, wilson_bounds(votes[shown], planes)
    reach = np.clip([share - bounds[:, 0], bounds[:, 1] - share], 0, None)
    colours = [ANCHOR if is_own else GREY for is_own in own[shown]]
    ax.bar(np.arange(len(shown)), share, color=colours, yerr=reach, error_kw={"linewidth": 0.8, "ecolor": "#333333"})
    names = dict(zip(indices.tolist(), labels, strict=True)) if labels is not None else {}
    ticks = [names.get(int(number), str(number)) for number in numbers[shown]]
    ax.set_xticks(np.arange(len(shown)), ticks, rotation=90, fontsize="small")
    ax.set(ylabel="share of planes", xlim=(-0.7, len(shown) - 0.3))
    ax.set_ylim(bottom=0)
    ax.set_title(f"Votes on {planes} planes: anchors (orange) and other candidates")
    return ax


def plot_coverage(model: Any, *, ax: Axes | None = None) -> Axes:
    """
    Draw how much of the data's height the first anchors, one up to all k, reach on fresh planes.

    Parameters
    ----------
    model : NMF or AnchorResult
        What was found.
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
    curve = np.asarray(value_of(model, "coverage_curve"))
    if len(curve):
        ax.plot(np.arange(1, len(curve) + 1), curve, marker="o", markersize=4, color=CONE)
        last = (len(curve), curve[-1])
        ax.annotate(f"{curve[-1]:.3f}", last, xytext=(0, -14), textcoords="offset points", ha="right")
    ax.axhline(1, color=GREY, linewidth=0.8)
    ax.set(xlabel="anchors", ylabel="coverage", ylim=(min(0.0, *curve, 0.0), 1.06))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_title("Coverage of the data on fresh planes")
    return ax
