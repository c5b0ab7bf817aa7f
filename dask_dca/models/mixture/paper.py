"""The mixture of the paper: means are k rows of the data, found by anchoring the moments of three views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dask_dca.anchoring.views import ColumnViews, paper_mixture, split_views
from dask_dca.engine.held import call
from dask_dca.engine.sampling import fetch_rows
from dask_dca.errors import InvalidParameterError
from dask_dca.models.kmeans import squared_distances, within_variances
from dask_dca.models.mixture.em import Mixture, maximization, regularization
from dask_dca.models.mixture.fit import MixtureFit, look_at, refine
from dask_dca.models.mixture.start import take_sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.mixture.settings import MixtureSettings
    from dask_dca.models.mixture.start import RowSample

    Floats = NDArray[np.float64]

__all__ = ["fit_paper_mixture"]


def fit_paper_mixture(rows: Rows, n_components: int | None, settings: MixtureSettings, run: Run) -> MixtureFit:
    """Learn a mixture as the paper does.

    The paper recovers means and weights. Covariances are those of the rows, shared out by their distance from the
    means; `max_iter` passes of refinement follow where they are asked for, which the paper does not have.
    n_components: number of components k; None is refused.
    Raises InvalidParameterError: there is no number of components, or there are too few features for three views.
    """
    if n_components is None:
        msg = "method='paper' needs the number of components: pass an integer instead of 'auto'"
        raise InvalidParameterError(msg)
    if settings.views is None and rows.n_features < 3:
        msg = f"method='paper' needs three views, and there are {rows.n_features} features; use method='robust'"
        raise InvalidParameterError(msg)
    views = settings.views or split_views(rows.n_features, settings.anchoring.seed)
    sample = take_sample(rows, n_components, run)  # first: it checks the range
    found = paper_mixture(rows, ColumnViews(views), n_components, settings.anchoring, run)
    means = fetch_rows(rows, found.anchors.indices, run) - sample.centre
    within, variance = call(run, "spreads", _spreads_about, sample.held, means)
    regular = regularization(sample.variances, settings.reg_covar, within)
    seen = look_at(rows, _round(means, variance, settings.covariance_type), sample, run)
    shared = maximization(seen.moments, settings.covariance_type, regular, means)
    weights = np.maximum(found.weights, np.finfo(np.float64).eps)
    mixture = Mixture(shared.covariance_type, weights / weights.sum(), means, shared.covariances)
    anchors = found.anchors
    return MixtureFit(
        refine(rows, mixture, sample, regular, settings, run),
        sample.centre,
        anchors=anchors.indices,
        extremes=anchors.indices,
        votes=anchors.votes,
        candidates=anchors.candidates,
        candidate_votes=anchors.candidate_votes,
        n_subproblems=anchors.n_subproblems,
        signature_axes=_leading_axes(means),
        count_scores=np.zeros((0, 2)),
    )


def _leading_axes(means: Floats) -> Floats:
    """The two directions in which the means differ most."""
    axes = np.zeros((2, means.shape[1]))
    found = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)[2][:2]
    axes[: len(found)] = found
    return axes


def _spreads_about(sample: RowSample, means: Floats) -> tuple[Floats, float]:
    """Variances about the nearest means: of each feature, and in every direction."""
    squares = squared_distances(sample.rows, means)
    variance = float(squares.min(axis=1).mean()) / means.shape[1]
    variance = variance if variance > 0.0 else float(sample.variances.mean()) or 1.0
    return within_variances(sample.rows, squares.argmin(axis=1), len(means)), variance


def _round(means: Floats, variance: float, form: str) -> Mixture:
    """Components of equal weight and one variance in every direction: that of the sample around its nearest means."""
    k, p = means.shape
    covariances = {
        "full": np.broadcast_to(variance * np.eye(p), (k, p, p)),
        "tied": variance * np.eye(p),
        "diag": np.full((k, p), variance),
        "spherical": np.full(k, variance),
        "tied-spherical": np.array(variance),
    }
    return Mixture(form, np.full(k, 1.0 / k), means, covariances[form])
