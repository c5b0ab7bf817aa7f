"""Plots of certificates: votes, coverage, rows in planes and by proportions, the paper's bound, and fit curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dask_dca.geometry import theory
from dask_dca.geometry.arrays import Floats
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.models.describe import indices_of
from dask_dca.plotting.canvas import (
    ANCHOR,
    CONE,
    GREY,
    INK,
    MAX_DOTS,
    draw_curve,
    legend_below,
    line_style,
    picture,
    require,
    sample_of,
    short,
    value_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_SKIP_RATIO: Final = 5.0  # ratio of the first eigenvalue to the second above which it is omitted
_DRAWN_RATIO: Final = 4  # number of correlations that are drawn, relative to the number that is kept


@picture("vote_share_")
def plot_votes(model: Any, *, top: int = 20, labels: Sequence[str] | None = None, ax: Any = None) -> Axes:
    """
    Draw the vote shares of the leading candidates with Wilson's 95 % bounds, anchors highlighted.

    Parameters
    ----------
    model : estimator or AnchorResult
        A fitted model of any kind; only the anchors are drawn if it has no other candidates.
    top : int, default 20
        Maximum number of other candidates.
    labels : sequence of str, optional
        Names of the anchors; by default their row numbers.
    """
    indices, (numbers, others, bounds) = indices_of(model), _other_candidates(model, top)
    share = np.concatenate([value_of(model, "vote_share"), others])
    ends = np.concatenate([value_of(model, "vote_confidence" if hasattr(model, "votes_") else "confidence"), bounds])
    order = np.argsort(-share, kind="stable")
    reach = np.clip([share - ends[:, 0], ends[:, 1] - share], 0, None)[:, order]
    colours = [ANCHOR if i < len(indices) else GREY for i in order]
    bars = {"linewidth": 0.8, "ecolor": INK}
    ax.bar(np.arange(len(order)), share[order], color=colours, yerr=reach, error_kw=bars)
    names = [*(labels if labels is not None else indices.tolist()), *numbers.tolist()]
    ax.set_xticks(np.arange(len(order)), [short(names[i]) for i in order], rotation=90, fontsize="small")
    ax.set(ylabel="share of votes", xlim=(-0.7, len(order) - 0.3))
    ax.set_ylim(bottom=0)
    ax.set_title("Votes: anchors (orange)" + (" and other candidates" if len(others) else ""))
    return ax


def _other_candidates(model: Any, top: int) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Leading candidates that are not anchors, with vote shares and bounds; empty if components share votes."""
    none = np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, 2))
    if not (hasattr(model, "candidates_") or hasattr(model, "candidates")):
        return none
    numbers, votes, indices = value_of(model, "candidates"), value_of(model, "candidate_votes"), indices_of(model)
    if not np.isin(indices[value_of(model, "votes") > 0], numbers).all():
        return none
    pointed = hasattr(model, "n_pointed") or hasattr(model, "n_pointed_")
    planes = max(1, int(value_of(model, "n_pointed" if pointed else "n_subproblems")))
    free = np.flatnonzero(~np.isin(numbers, indices))
    free = free[np.argsort(-votes[free], kind="stable")][:top]
    return numbers[free], votes[free] / planes, wilson_bounds(votes[free], planes)


@picture("coverage_curve_")
def plot_coverage(model: Any, *, ax: Any = None) -> Axes:
    """
    Draw the coverage of the data by the first anchors, one up to all k, on fresh planes.

    Parameters
    ----------
    model : NMF or AnchorResult
        A fitted model or a result.
    """
    values = np.asarray(value_of(model, "coverage_curve"))
    if len(values):
        draw_curve(ax, values, ("anchors", "coverage"), level=(1.0, "all of the data"))
        ax.set_ylim(bottom=min(0.0, float(values.min())))
    ax.set_title("Coverage of the data on fresh planes")
    return ax


@picture("components_", "anchor_indices_")
def plot_corners(model: Any, X: Any = None, *, labels: Sequence[str] | None = None, ax: Any = None) -> Axes:
    """
    Draw rows and anchors by their proportions, in the plane in which the anchors differ most.

    Parameters
    ----------
    model : NMF
        A fitted model.
    X : array-like of shape (n, p), optional
        Data; a sample of at most 4,096 rows is read, missing entries filled.
    labels : sequence of str, optional
        Names of the anchors; by default their numbers, which start at 0.
    """
    anchors = _proportions(model.components_)
    centre = anchors.mean(axis=0)
    axes = np.linalg.svd(anchors - centre, full_matrices=False)[2][:2].T
    axes = np.hstack([axes, np.zeros((len(axes), 2 - axes.shape[1]))])
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0.0, -1.0, 1.0)  # the same sign everywhere
    if X is not None:
        points = (_proportions(np.maximum(sample_of(model, X), 0.0)) - centre) @ axes
        ax.scatter(*points.T, s=5, color=GREY, alpha=0.5, linewidths=0, label="rows", rasterized=len(points) > MAX_DOTS)
    marks = (anchors - centre) @ axes
    ax.scatter(*marks.T, s=36, marker="D", color=ANCHOR, edgecolors="white", linewidths=0.8, label="anchors")
    names = [str(i) for i in range(len(marks))] if labels is None else labels
    for name, place in zip(names, marks, strict=True):
        ax.annotate(short(name), place, xytext=(0, 6), textcoords="offset points", ha="center", fontsize="small")
    ax.margins(0.08)
    ax.set(xticks=[], yticks=[], xlabel="first direction", ylabel="second direction")
    ax.set_title("Rows (dots) and anchors (diamonds) by their proportions")
    return ax


def _proportions(rows: Any) -> Floats:
    values = np.asarray(rows, dtype=np.float64)
    return np.asarray(values / np.maximum(values.sum(axis=1, keepdims=True), 1e-300))


@picture()
def plot_plane(
    model: Any,
    X: Any,
    *,
    pair: tuple[int, int] | None = None,
    labels: Sequence[str] | None = None,
    ax: Any = None,
) -> Axes:
    """
    Draw rows on the plane of a reference axis and the direction between two anchors, with the anchors' cone.

    Parameters
    ----------
    model : NMF or AnchorResult
        A model or a result of X.
    X : array-like of shape (n, p)
        The data; a sample of at most 4,096 rows is read, missing entries filled.
    pair : tuple of int, optional
        The two anchors that define the direction; by default those furthest apart.
    labels : sequence of str, optional
        Names of the anchors; by default their row numbers.
    """
    require(model, "indices" if hasattr(model, "indices") else "anchor_indices_")
    indices = indices_of(model)
    anchors, sample = np.split(sample_of(model, X, indices), [len(indices)])
    height, across = _plane(anchors, sample, pair)
    points, marks = (np.column_stack([rows @ height, rows @ across]) for rows in (sample, anchors))
    far = 1.08 * max(points[:, 0].max(), marks[:, 0].max())
    slopes = marks[:, 1] / marks[:, 0]
    edges = slopes[[slopes.argmin(), slopes.argmax()]]
    ax.fill([0, far, far], [0, *(far * edges)], color=CONE, alpha=0.12, linewidth=0, label="cone of the anchors")
    for slope in edges:
        ax.plot([0, far], [0, far * slope], color=CONE, linewidth=1)
    ax.scatter(*points.T, s=5, color=GREY, alpha=0.5, linewidths=0, label="rows", rasterized=len(points) > MAX_DOTS)
    ax.scatter(*marks.T, s=42, color=ANCHOR, edgecolors="white", linewidths=0.8, zorder=3, label="anchors")
    for i in sorted({int(slopes.argmin()), int(slopes.argmax())}):
        text = labels[i] if labels is not None else f"row {indices[i]}"
        ax.annotate(text, marks[i], xytext=(-6, 9 if slopes[i] > 0 else -9), textcoords="offset points",
                    ha="right", va="center", fontsize="small")  # fmt: skip
    low, high = min(points[:, 1].min(), marks[:, 1].min()), max(points[:, 1].max(), marks[:, 1].max())
    margin = 0.15 * (high - low)
    ax.set(xlabel="height along the reference axis", ylabel="along the direction", xlim=(0, far))
    ax.set_ylim(min(low, 0) - margin, max(high, 0) + margin)
    ax.set_title("Rows and anchors on one plane")
    legend_below(ax)
    return ax


def _plane(anchors: Floats, sample: Floats, pair: tuple[int, int] | None) -> tuple[Floats, Floats]:
    """Reference axis, and the direction between two anchors orthogonal to it, both unit vectors."""
    axis = np.ones(anchors.shape[1])
    if (anchors.sum(axis=1) <= 0).any():
        axis = sample.mean(axis=0)
    axis = axis / np.linalg.norm(axis)
    scaled = anchors / (anchors @ axis)[:, None]
    distances = np.linalg.norm(scaled[:, None] - scaled[None], axis=2)
    first, second = pair if pair is not None else np.unravel_index(distances.argmax(), distances.shape)
    across = scaled[second] - scaled[first]
    length = np.linalg.norm(across)
    return axis, across / length if length > 0 else across


@picture()
def plot_success(
    places: ArrayLike,
    anchors: ArrayLike,
    *,
    Y: ArrayLike | None = None,
    n_planes: int = 20_000,
    trials: int = 300,
    seed: int = 0,
    ax: Any = None,
) -> Axes:
    """
    Draw the success rate of voting, and the theorem's bound, over the number of sub-problems.

    Parameters
    ----------
    places : array_like, shape (n, d)
        Rows in a slice of the cone: rows of height one, or their coordinates.
    anchors : array_like of int, shape (k,)
        Row numbers of the anchors (in Y if given).
    Y : array_like, shape (m, d), optional
        Rows from which anchors are chosen.
    n_planes : int, default 20000
        Number of planes for measuring probabilities.
    trials : int, default 300
        Number of trials for each number of sub-problems.
    seed : int, default 0
        Seed of planes and trials.
    """
    true = np.asarray(anchors, dtype=np.int64)
    choices = theory.simulate_votes(places, n_planes, Y=Y, seed=seed)
    shares = np.bincount(choices[choices >= 0], minlength=int(true.max()) + 1) / n_planes
    c = theory.separation(shares[true], np.delete(shares, true))
    k = len(true)
    enough = max(16.0, 3.0 * k / max(c, 0.05) * np.log(100.0 * k))
    counts = np.unique(np.geomspace(1, 1.3 * enough, 40).astype(int))
    measured = theory.measured_success(choices, true, counts.tolist(), trials=trials, seed=seed)
    bound = [theory.success_bound(int(s), k, c) for s in counts]
    ax.plot(counts, measured, label="measured", **line_style(0))
    ax.plot(counts, bound, label="1 - k exp(-c s / 3 k)", **line_style(1))
    ax.set(xscale="log", xlabel="sub-problems s", ylabel="all anchors found", ylim=(-0.03, 1.03))
    ax.set_title(f"{k} anchors, c = {c:.2f}")
    legend_below(ax)
    return ax


@picture("log_likelihoods_")
def plot_refinement(model: Any, *, ax: Any = None) -> Axes:
    """
    Draw the mean log likelihood before each step of the refinement and at its end.

    Parameters
    ----------
    model : estimator
        A fitted model with `log_likelihoods_`: a mixture, a hidden Markov model, a Kalman filter.
    """
    values = np.asarray(model.log_likelihoods_)
    draw_curve(ax, values, ("steps", "log likelihood"), first=0)
    ax.set_title("Refinement")
    return ax


@picture("bic_curve_")
def plot_criterion(model: Any, *, ax: Any = None) -> Axes:
    """
    Draw the BIC over the numbers of components that were tried.

    Parameters
    ----------
    model : GaussianMixture
        A mixture whose number of components was "auto".
    """
    tried = np.asarray(model.bic_curve_)
    draw_curve(ax, tried[:, 1], ("number of components", "BIC"), first=0)
    step = -(-len(tried) // 12)
    ax.set_xticks(np.arange(len(tried))[::step], [f"{int(k)}" for k in tried[::step, 0]])
    ax.set_title("Why this many components")
    return ax


@picture()
def plot_spectrum(model: Any, *, ax: Any = None) -> Axes:
    """
    Draw the spectrum from which dimensions were selected; a dashed vertical line separates the selected ones.

    Parameters
    ----------
    model : SubspaceClustering, LatentDirichletAllocation or KalmanFilter
        A fitted model: eigenvalues of the graph of rows or of the words' co-occurrence, or the canonical correlations
        of past and future. A first eigenvalue that is more than five times the second is omitted.
    """
    require(model, "canonical_correlations_" if hasattr(model, "canonical_correlations_") else "spectrum_")
    if hasattr(model, "canonical_correlations_"):
        k = model.n_dim_state_
        values = np.asarray(model.canonical_correlations_)[: _DRAWN_RATIO * (k + 1)]
        draw_curve(ax, values, ("dimension of the state", "correlation"), after=k)
        ax.set_title("Past and future")
        return ax
    values, edge = np.asarray(model.spectrum_), float(getattr(model, "noise_edge_", np.nan))
    k = model.n_clusters_ if hasattr(model, "n_clusters_") else model.n_components_
    skipped = int(len(values) > 1 and values[0] > _SKIP_RATIO * values[1])
    seen = np.isfinite(edge) and edge <= values[skipped]
    level = (edge, "noise ends here") if seen else None
    draw_curve(ax, values[skipped:], ("number", "eigenvalue"), first=1 + skipped, after=k - skipped, level=level)
    ax.set_title("Directions that stand out from noise" if hasattr(model, "noise_edge_") else "The graph's eigenvalues")
    return ax
