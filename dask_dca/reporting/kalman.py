"""The report of a Kalman filter."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.engine.sequences import pair_mask
from dask_dca.models.kalman.estimator import CORRELATED, noises_look_correlated
from dask_dca.plotting.certificate import plot_spectrum
from dask_dca.plotting.sequences import plot_eigenvalues, plot_loadings, plot_predictions
from dask_dca.reporting.data import DataSummary, Inputs
from dask_dca.reporting.pictures import (
    DASH,
    MAX_LINES,
    Caveat,
    Fact,
    Figure,
    Report,
    Section,
    Table,
    counted,
    feature_names,
    formatted,
    listed,
    omission,
    percent,
    row_figures,
    sequences_of,
    vote_summary,
    vote_table,
)

_MIN_EXPLAINED: Final = 0.1  # share of predicted variance below which a warning is given
_RISING_SHARE: Final = 1e-3  # gain of the last step, relative to the log likelihood, above which a warning is given
_MAX_LOADINGS: Final = 40  # maximum number of features whose loadings are drawn as a matrix
_MAX_DIMENSIONS: Final = 24  # maximum number of state dimensions whose loadings are drawn as a matrix
_MIN_ANGLE: Final = 1e-9  # minimum angle of an eigenvalue of an oscillating mode
_CROWDED_WIDTH: Final = 0.6  # range of the eigenvalues below which an enlarged figure is added
_MAX_FRAMES: Final = 200  # maximum number of frames that are drawn


def build_report(model: Any, inputs: Inputs) -> Report:
    """Write the report of a model; inputs: data, and the shape of images."""
    k, values = model.n_dim_state_, _modes(model)
    lasting = formatted(float(_memory(values[0])))
    turning = int((values.imag > _MIN_ANGLE).sum())
    headline = (
        f"{counted(model.n_features_in_, 'channel')} follow a hidden state of {counted(k, 'dimension')}, whose "
        "slowest mode "
        f"is remembered for {lasting} frames; {counted(turning, 'pair')} of modes "
        f"{'oscillates' if turning == 1 else 'oscillate'}."
    )
    facts = [
        Fact(str(k), "state dimensions", f"behind {counted(model.n_features_in_, 'channel')}"),
        Fact(lasting, "frames of memory", "after which the slowest mode has fallen to 1/e"),
    ]
    if hasattr(model, "explained_variance_ratio_"):
        facts.append(
            Fact(percent(model.explained_variance_ratio_), "predicted", "of a channel's variance, one frame ahead")
        )
    sections = [_dynamics(model, values), *_loadings(model, inputs.shape)]
    if inputs.summary is not None:
        sections.insert(1, _path(inputs.summary, feature_names(model)))
    if hasattr(model, "votes_"):
        sections.append(_support(model))
    return Report(
        headline, tuple(facts), tuple(sections), tuple(_readings(model, values)), tuple(_warnings(model, values))
    )


def _modes(model: Any) -> NDArray[np.complex128]:
    """Eigenvalues of the transition matrix, the slowest first, conjugate pairs adjacent."""
    values = np.linalg.eigvals(model.transition_matrices_)
    return np.array(sorted(values, key=lambda value: (-abs(value), -value.imag)), dtype=np.complex128)


def _memory(value: complex) -> float:
    size = abs(value)
    return float("inf") if size >= 1.0 else -1.0 / np.log(max(size, 1e-300))


def _dynamics(model: Any, values: NDArray[np.complex128]) -> Section:
    lines = []
    for i, value in enumerate(values[:MAX_LINES]):
        turn, memory = abs(float(np.angle(value))), _memory(value)
        lasts = formatted(memory) if np.isfinite(memory) else "forever"
        period = formatted(2.0 * np.pi / turn) if turn > _MIN_ANGLE else DASH
        lines.append((f"{i}", formatted(abs(value), 4), lasts, period))
    head = ("mode", "size", "memory in frames", "period in frames")
    note = omission(len(values), len(lines), "modes", "transition_matrices_")
    label = (
        f"{counted(len(values), 'eigenvalue')} of the transition in the unit circle, sizes "
        f"{formatted(abs(values[-1]))} to {formatted(abs(values[0]))}"
    )
    crowded = len(values) > 1 and max(float(np.ptp(values.real)), float(np.ptp(values.imag))) < _CROWDED_WIDTH
    caption = (
        "Near the circle is what lasts; off the real axis what oscillates; at the centre what is forgotten at once."
    )
    lead = "The memory of a mode is the number of frames after which it has fallen to 1/e, some 37\N{NO-BREAK SPACE}%."
    parts: list[Figure | Table] = [
        Figure("Eigenvalues in the unit circle", label, partial(plot_eigenvalues, model), caption, 330.0)
    ]
    if crowded:
        close = partial(plot_eigenvalues, model, enlarged=True)
        part = "The part of the circle in which they are."
        parts.append(Figure("The same, enlarged", f"Enlarged: {label}", close, part, 330.0))
    parts.append(Table("Modes and their times", head, tuple(lines), note))
    return Section("The dynamics", (lead,), tuple(parts))


def _path(summary: DataSummary, names: list[str]) -> Section:
    frames = summary.first_rows()
    lengths = summary.first_lengths()
    pairs = np.flatnonzero(pair_mask(np.cumsum([0, *lengths]), 0, len(frames), 1))
    lead = f"The first {counted(len(frames), 'frame')}, read as {sequences_of(lengths)}."
    if not len(pairs):
        return Section("Observed and predicted", (f"{lead} None follows another.",), ())
    observed = frames[pairs + 1]
    varied = np.flatnonzero(np.fmin.reduce(observed) < np.fmax.reduce(observed))
    if not len(varied):
        return Section("Observed and predicted", (f"{lead} No channel varies in them.",), ())
    predicted = np.asarray(summary.model.predict(frames, lengths=lengths))[np.ix_(pairs, varied)]
    observed, names = observed[:, varied], [names[i] for i in varied]
    left = np.nanmean((observed - predicted) ** 2, axis=0)
    skill = 1.0 - left / np.nanvar(observed, axis=0)
    best = int(np.argmax(skill))
    label = (
        f"{names[best]}: observed as points, predicted as a line, {counted(min(len(observed), _MAX_FRAMES), 'frame')}"
    )
    draw = partial(plot_predictions, observed[:_MAX_FRAMES, best], predicted[:_MAX_FRAMES, best], label=names[best])
    caption = (
        "Points are observed, the line was predicted one frame before: the channel that is predicted best "
        f"({percent(float(skill[best]))})."
    )
    order = np.argsort(-skill, kind="stable")
    chosen = order if len(order) <= 12 else np.concatenate([order[:6], order[-6:]])
    lines = tuple((names[i], percent(float(skill[i])), formatted(float(np.sqrt(left[i])))) for i in chosen)
    note = "" if len(order) <= 12 else f"The six best and the six worst of {len(order):,} channels."
    table = Table("Predicted one frame ahead", ("channel", "of its variance", "typical error"), lines, note)
    return Section("Observed and predicted", (lead,), (Figure("One channel", label, draw, caption, wide=True), table))


def _loadings(model: Any, shape: tuple[int, int] | None) -> list[Section]:
    names, weights = feature_names(model), np.asarray(model.observation_matrices_)
    k = weights.shape[1]
    anchors = getattr(model, "anchor_indices_", np.full(k, -1))
    titles = [f"Axis {j}" + (f": frame {row}" if row >= 0 else "") for j, row in enumerate(anchors)]
    lead = "How each state dimension shows in the channels."
    if (anchors >= 0).any():
        lead += (
            " An axis is the deviation of one real frame, the anchor, from the expected frame at state zero, "
            "without noise."
        )
    if len(weights) > _MAX_LOADINGS or shape is not None or k > _MAX_DIMENSIONS:
        figures = row_figures(model, weights.T, titles, what="axes", where="observation_matrices_", shape=shape)
        return [Section("The loadings", (lead,), figures)]
    label = (
        f"Loadings of {counted(len(weights), 'channel')} on {counted(k, 'state dimension')}, up to "
        f"{formatted(float(np.abs(weights).max()))} in size"
    )
    shown = ", ".join(f"{j} is frame {row}" for j, row in enumerate(anchors) if row >= 0)
    caption = f"Strong cells are large loadings, orange ones are negative. {f'Axis {shown}.' if shown else ''}".strip()
    draw = partial(plot_loadings, model, names=names)
    return [Section("The loadings", (lead,), (Figure("Loadings", label, draw, caption, 60.0 + 17.0 * len(weights)),))]


def _support(model: Any) -> Section:
    parts: list[Figure | Table] = []
    if len(getattr(model, "canonical_correlations_", ())):
        values = np.asarray(model.canonical_correlations_)[: 4 * model.n_dim_state_ + 4]
        label = (
            f"{len(values)} canonical correlations of past and future, from {formatted(values[0])} down to "
            f"{formatted(values[-1])}"
        )
        caption = (
            "How well each dimension predicts the future; the model keeps those left of the dashed line "
            f"({model.n_dim_state_})."
        )
        parts.append(Figure("Past and future", label, partial(plot_spectrum, model), caption))
    numbers = [f"axis {j}" for j in range(model.n_dim_state_)]
    parts.append(vote_table(model, "axis", numbers, "frame", "directions"))
    lead = "An axis gets a vote on each direction on which its frame is an extreme one."
    return Section("Evidence for the axes", (lead,), tuple(parts))


def _readings(model: Any, values: NDArray[np.complex128]) -> list[Caveat]:
    found = []
    if hasattr(model, "explained_variance_ratio_"):
        how = (
            "The mean over channels. 0 % is no better than the channel's mean; noise that can't be predicted "
            "keeps it below 100 %."
        )
        found.append(
            Caveat(
                f"{percent(model.explained_variance_ratio_)} of a channel's variance is predicted one frame ahead.", how
            )
        )
        first, last = (formatted(float(model.log_likelihoods_[i]), 5) for i in (0, -1))
        how = "It compares models of the same data only."
        steps = counted(model.n_iter_, "step")
        found.append(Caveat(f"The log likelihood is {last} per frame after {steps}, {first} before.", how))
    stable = "stable: left alone, it comes to rest." if abs(values[0]) < 1.0 else "not stable."
    how = "The size of the largest eigenvalue; below 1 forecasts return to the mean, at 1 and above they don't."
    found.append(Caveat(f"The system is {stable} Its slowest mode has size {formatted(abs(values[0]), 4)}.", how))
    if hasattr(model, "votes_"):
        found.append(
            vote_summary(
                model,
                "of the directions for each axis",
                "Axes are coordinates of one state: another choice of frames describes the same system.",
            )
        )
    return found


def _warnings(model: Any, values: NDArray[np.complex128]) -> list[str]:
    found = []
    if abs(values[0]) >= 1.0:
        found.append(
            f"A mode has size {formatted(abs(values[0]), 5)}: the system is not stable, and forecasts grow "
            "without bound."
        )
    nowhere = np.flatnonzero(np.asarray(getattr(model, "anchor_indices_", [])) < 0)
    if len(nowhere):
        found.append(f"No frame corresponds to axis {listed(nowhere)} of the state.")
    if not hasattr(model, "explained_variance_ratio_"):
        return (
            [*found, "The parameters were given, not learnt from data: there is no certificate."]
            if not hasattr(model, "votes_")
            else found
        )
    if model.explained_variance_ratio_ < _MIN_EXPLAINED:
        found.append(
            f"Little can be predicted ({percent(model.explained_variance_ratio_)} of a channel's variance): mostly "
            "noise, or no linear dynamics."
        )
    gains = np.diff(model.log_likelihoods_)
    if len(gains) > 1 and gains[-1] > _RISING_SHARE * max(1.0, abs(float(model.log_likelihoods_[-1]))):
        found.append("The last step still raised the likelihood: a larger max_iter fits a little better.")
    if noises_look_correlated(model):
        found.append(CORRELATED.format(model.n_dim_state_ + model.n_features_in_))
    return found
