"""Plots of models of sequences: states, transitions, paths of channels, and eigenvalues in the unit circle."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.passes import Run
from dask_dca.engine.sampling import fetch_rows
from dask_dca.errors import InvalidInputError
from dask_dca.models.gaussians import variances_of
from dask_dca.plotting.canvas import (
    ANCHOR,
    CONE,
    GREY,
    INK,
    draw_heat,
    legend_below,
    line_style,
    observed_rows,
    picture,
    short,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_FRAMES: Final = 20_000  # maximum number of frames of a signal
_MAX_CHANNELS: Final = 6  # default number of channels of a signal
_MAX_STATES: Final = 40  # maximum number of states and of symbols of a heat map
_MAX_LANES: Final = 24  # maximum number of states with a lane


@picture("transmat_", "means_")
def plot_states(
    model: Any,
    X: Any,
    lengths: Any = None,
    *,
    names: Sequence[str] | None = None,
    channels: Sequence[int] | None = None,
    ax: Any = None,
) -> Axes:
    """
    Draw the signal over bands of its states, and mark the typical frame of each state.

    Parameters
    ----------
    model : GaussianHMM
        A fitted model.
    X : array-like of shape (n, p)
        At most 20,000 frames: those of the fit, or others, in which no frame is marked.
    lengths : array-like of int, shape (m,), optional
        Lengths of the sequences; their ends are drawn.
    names : sequence of str, optional
        Names of the states; by default their numbers.
    channels : sequence of int, optional
        Features to draw; by default the six that differ most between states.
    """
    rows = observed_rows(model, X)
    if rows.n_rows > _MAX_FRAMES:
        msg = f"{rows.n_rows} frames can't be told apart in a picture; pass at most {_MAX_FRAMES}: X[:{_MAX_FRAMES}]"
        raise InvalidInputError(msg)
    frames = fetch_rows(rows, None, Run(), missing=True)
    states = np.asarray(model.predict(rows, lengths))
    labels = [str(j) for j in range(len(model.means_))] if names is None else list(names)
    drawn = _distinguishing_channels(model) if channels is None else list(channels)
    edges = [0, *(np.flatnonzero(np.diff(states)) + 1), len(states)]
    for begin, end in itertools.pairwise(edges):
        ax.axvspan(begin - 0.5, end - 0.5, color=line_style(int(states[begin]))["color"], alpha=0.25, linewidth=0)
    for offset, j in enumerate(drawn):
        low, high = np.fmin.reduce(frames[:, j]), np.fmax.reduce(frames[:, j])  # of the observed entries
        ax.plot((frames[:, j] - low) / max(high - low, 1e-300) - 1.1 * offset, color=INK, linewidth=0.8)
    top = 1.0 + 0.25 * len(drawn)  # room for the names
    for state, frame in enumerate(model.anchor_indices_):
        if frame < len(frames) and states[frame] == state:
            ax.axvline(frame, color=ANCHOR, linewidth=1.2)
            ax.text(frame, top, f"{labels[state]} ", ha="right", va="top", fontsize="small", rotation=90)
    for end in np.cumsum(lengths)[:-1] if lengths is not None else []:
        ax.axvline(end - 0.5, color="black", linewidth=1.0, linestyle=":")
    ax.set(xlabel="frame", xlim=(-0.5, len(frames) - 0.5), ylim=(-1.1 * len(drawn) + 1.0, top), yticks=[])
    ax.set_title("States (bands) and the frame most typical of each (orange)")
    return ax


@picture("transmat_")
def plot_transitions(model: Any, *, names: Sequence[str] | None = None, ax: Any = None) -> Axes:
    """
    Draw the transition matrix of at most the first forty states.

    Parameters
    ----------
    model : GaussianHMM
        A fitted model.
    names : sequence of str, optional
        Names of the states; by default their numbers.
    """
    matrix = np.asarray(model.transmat_)[:_MAX_STATES, :_MAX_STATES]
    labels = [str(j) for j in range(len(matrix))] if names is None else list(names)[:_MAX_STATES]
    draw_heat(ax, matrix, labels, labels)
    ax.set(xlabel="to state", ylabel="from state")
    ax.set_title("Transition probabilities")
    return ax


@picture("emissionprob_")
def plot_emissions(model: Any, *, names: Sequence[str] | None = None, ax: Any = None) -> Axes:
    """
    Draw the probabilities of symbols in each state, for at most forty symbols that differ most between states.

    Parameters
    ----------
    model : CategoricalHMM
        A fitted model.
    names : sequence of str, optional
        Names of the symbols; by default their numbers.
    """
    matrix = np.asarray(model.emissionprob_)[:_MAX_STATES]
    shown = np.sort(np.argsort(-np.ptp(matrix, axis=0), kind="stable")[:_MAX_STATES])
    labels = [str(j) if names is None else str(names[j]) for j in shown.tolist()]
    draw_heat(ax, matrix[:, shown], [str(j) for j in range(len(matrix))], labels)
    ax.set(xlabel="symbol", ylabel="state")
    ax.set_title("Probabilities of symbols")
    return ax


def _distinguishing_channels(model: Any) -> list[int]:
    """Select the features of greatest variance between states relative to that within states."""
    within = np.broadcast_to(variances_of(model.covariances_, model._form), model.means_.shape).mean(axis=0)
    separation = model.means_.var(axis=0) / np.maximum(within, 1e-300)
    return sorted(np.argsort(-separation, kind="stable")[:_MAX_CHANNELS].tolist())


@picture("smooth")
def plot_path(
    model: Any, X: Any, channel: int = 0, *, smooth: bool = True, lengths: Any = None, ax: Any = None
) -> Axes:
    """
    Draw a channel as observed and as estimated by the model, with 95 % bounds of its noiseless value.

    Parameters
    ----------
    model : KalmanFilter
        A filter with parameters.
    X : array-like of shape (n, p)
        Frames to draw, which must fit in memory.
    channel : int, default 0
        Number of the channel.
    smooth : bool, default True
        Condition on all frames; if False, on the frames up to each.
    lengths : array-like of int, optional
        Lengths of the sequences.
    """
    means, covariances = (np.asarray(part) for part in (model.smooth if smooth else model.filter)(X, lengths))
    row = model.observation_matrices_[channel]
    path = model.observation_offsets_[channel] + means @ row
    half = 1.96 * np.sqrt(np.maximum(np.einsum("tij,i,j->t", covariances, row, row), 0.0))
    time = np.arange(len(path))
    frames = fetch_rows(observed_rows(model, X), None, Run(), missing=True)
    ax.plot(time, frames[:, channel], ".", markersize=3, color=GREY, label="observed")
    ax.fill_between(time, path - half, path + half, color=CONE, alpha=0.25, linewidth=0, label="95 % bounds")
    ax.plot(time, path, color=CONE, linewidth=1.2, label="smoothed" if smooth else "filtered")
    anchors = getattr(model, "anchor_indices_", np.zeros(0, dtype=np.int64))
    shown = anchors[(anchors >= 0) & (anchors < len(path))]
    ax.plot(shown, path[shown], "o", markersize=5, color=ANCHOR, label="anchors", linestyle="none")
    ax.set(xlabel="frame", ylabel=short(_channel_names(model)[channel], 40), xlim=(-0.5, len(path) - 0.5))
    legend_below(ax, 4)
    return ax


def _channel_names(model: Any) -> list[str]:
    named = getattr(model, "feature_names_in_", None)
    return [f"channel {i}" for i in range(model.n_features_in_)] if named is None else [str(name) for name in named]


@picture()
def plot_predictions(observed: Any, predicted: Any, *, label: str = "channel", ax: Any = None) -> Axes:
    """
    Draw observations as points, and their predictions as a line.

    Parameters
    ----------
    observed, predicted : array-like of shape (n,)
        Values of a channel; NaN is omitted.
    label : str, default "channel"
        Label of the channel, with unit.
    """
    ax.plot(np.asarray(observed), ".", markersize=4, color=ANCHOR, label="observed")
    ax.plot(np.asarray(predicted), color=CONE, linewidth=1.5, label="predicted")
    ax.set(xlabel="frame", ylabel=short(label, 40), xlim=(-0.5, len(np.asarray(observed)) - 0.5))
    legend_below(ax)
    return ax


@picture()
def plot_lanes(states: Any, *, names: Sequence[str] | None = None, ax: Any = None) -> Axes:
    """
    Draw the state of each frame, with one lane per state.

    Parameters
    ----------
    states : array-like of int, shape (n,)
        The states, as returned by `predict`; at most the first 24 are drawn.
    names : sequence of str, optional
        Names of all states; by default the numbers of those that occur.
    """
    found = np.asarray(states, dtype=np.int64)
    labels = [str(j) for j in range(int(found.max(initial=0)) + 1)] if names is None else list(names)
    lanes = labels[:_MAX_LANES]
    edges = np.r_[0, np.flatnonzero(np.diff(found)) + 1, len(found)]
    for j in range(len(lanes)):
        own = np.flatnonzero(found[edges[:-1]] == j)
        ax.broken_barh(list(zip(edges[own] - 0.5, np.diff(edges)[own], strict=True)), (j - 0.32, 0.64), color=CONE)
    ax.set_yticks(np.arange(len(lanes)), [short(name) for name in lanes], fontsize="small")
    ax.set(xlabel="frame", xlim=(-0.5, len(found) - 0.5), ylim=(len(lanes) - 0.5, -0.5))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.grid(axis="y", linewidth=0.6, alpha=0.5)
    ax.set_axisbelow(True)
    ax.set_title("States over time")
    return ax


@picture("observation_matrices_")
def plot_loadings(model: Any, *, names: Sequence[str] | None = None, ax: Any = None) -> Axes:
    """
    Draw the loadings of the channels on each dimension of the state.

    Parameters
    ----------
    model : KalmanFilter
        A filter with parameters.
    names : sequence of str, optional
        Names of the channels; by default those of the fit.
    """
    weights = np.asarray(model.observation_matrices_)
    draw_heat(ax, weights, _channel_names(model) if names is None else names, [str(j) for j in range(weights.shape[1])])
    ax.set(xlabel="dimension of the state")
    ax.set_title("Loadings")
    return ax


@picture("transition_matrices_")
def plot_eigenvalues(model: Any, *, enlarged: bool = False, ax: Any = None) -> Axes:
    """
    Draw the eigenvalues of the transition matrix in the unit circle.

    Parameters
    ----------
    model : KalmanFilter
        A filter with parameters.
    enlarged : bool, default False
        Draw only the part of the circle that contains the eigenvalues.
    """
    values = np.linalg.eigvals(model.transition_matrices_)
    angle = np.linspace(0.0, 2.0 * np.pi, 721)
    ax.plot(np.cos(angle), np.sin(angle), color=GREY, linewidth=0.8)
    ax.plot([-1, 1], [0, 0], color=GREY, linewidth=0.4)
    ax.plot([0, 0], [-1, 1], color=GREY, linewidth=0.4)
    ax.plot(values.real, values.imag, "o", markersize=5, color=ANCHOR, label="eigenvalues")
    middle, reach = 0.0, 1.08 * max(1.0, float(np.abs(values).max(initial=0.0)))
    if enlarged:
        middle = float(values.real.min() + values.real.max()) / 2.0
        reach = 1.3 * max(float(np.ptp(values.real)) / 2.0, float(np.abs(values.imag).max()), 1e-6)
    ax.set(xlabel="real part", ylabel="imaginary part", aspect="equal", ylim=(-reach, reach))
    ax.set_xlim(middle - reach, middle + reach)
    ax.set_title("Eigenvalues of the transition" + (", enlarged" if enlarged else ""))
    return ax
