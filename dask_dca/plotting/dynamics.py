"""What a Kalman filter found: paths of channels with bounds, and eigenvalues in the unit circle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.plotting.canvas import ANCHOR, CONE, GREY, make_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_eigenvalues", "plot_path"]


def plot_path(
    model: Any, X: Any, channel: int = 0, *, smooth: bool = True, lengths: Any = None, ax: Axes | None = None
) -> Axes:
    """
    Draw a channel as it was observed and as the model sees it, with 95 % bounds of its noiseless value.

    Parameters
    ----------
    model : KalmanFilter
        A filter with parameters.
    X : array-like of shape (n, p)
        Frames to draw, in memory or small enough to be.
    channel : int, default 0
        Which channel.
    smooth : bool, default True
        Given all frames; False: given the frames up to each.
    lengths : array-like of int, optional
        Frames of each sequence.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    DCAError
        Matplotlib is missing, or unusable data.
    """
    ax = make_axes(ax)
    means, covariances = (np.asarray(part) for part in (model.smooth if smooth else model.filter)(X, lengths))
    row = model.observation_matrices_[channel]
    path = model.observation_offsets_[channel] + means @ row
    half = 1.96 * np.sqrt(np.maximum(np.einsum("tij,i,j->t", covariances, row, row), 0.0))
    time = np.arange(len(path))
    seen = np.ma.filled(np.ma.asarray(X[:, channel], dtype=np.float64), np.nan)
    ax.plot(time, seen, ".", markersize=3, color=GREY, label="observed")
    ax.fill_between(time, path - half, path + half, color=CONE, alpha=0.25, linewidth=0, label="95 % bounds")
    ax.plot(time, path, color=CONE, linewidth=1.2, label="smoothed" if smooth else "filtered")
    anchors = getattr(model, "anchor_indices_", np.zeros(0, dtype=np.int64))
    shown = anchors[(anchors >= 0) & (anchors < len(path))]
    ax.plot(shown, path[shown], "o", markersize=5, color=ANCHOR, label="anchors", linestyle="none")
    ax.set(xlabel="frame", ylabel=f"channel {channel}", xlim=(-0.5, len(path) - 0.5))
    ax.legend(fontsize="small")
    return ax


def plot_eigenvalues(model: Any, *, ax: Axes | None = None) -> Axes:
    """
    Draw the eigenvalues of the transition in the unit circle: near it what lasts, off the real axis what oscillates.

    Parameters
    ----------
    model : KalmanFilter
        A filter with parameters.
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
    values = np.linalg.eigvals(model.transition_matrices_)
    angle = np.linspace(0.0, 2.0 * np.pi, 361)
    ax.plot(np.cos(angle), np.sin(angle), color=GREY, linewidth=0.8)
    ax.plot([-1, 1], [0, 0], color=GREY, linewidth=0.4)
    ax.plot([0, 0], [-1, 1], color=GREY, linewidth=0.4)
    ax.plot(values.real, values.imag, "o", color=ANCHOR, label="eigenvalues")
    ax.set(xlabel="real part", ylabel="imaginary part", aspect="equal", xlim=(-1.08, 1.08), ylim=(-1.08, 1.08))
    ax.set_title("Eigenvalues of the transition")
    return ax
