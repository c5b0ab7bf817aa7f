"""The paper's mixture: means are k rows of the data, found as anchors of the moments of three views."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from dask_dca.anchoring.views import ColumnViews, paper_mixture, split_views
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import Rows
from dask_dca.engine.sampling import call, fetch_rows
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.arrays import Floats
from dask_dca.models.attributes import vote_attributes
from dask_dca.models.gaussians import equal_covariances
from dask_dca.models.kmeans import squared_distances
from dask_dca.models.mixture.family import Mixture, Shrinkage, maximization
from dask_dca.models.mixture.fit import MixtureFit, leading_axes, prepare_densities, refine, take_sample
from dask_dca.models.mixture.given import MixtureSettings
from dask_dca.models.mixture.learning import MixtureStart, RowSample, rounding_variances
from dask_dca.models.mixture.passes import e_step_pass

_PULL: Final = 4.0  # weight, in rows, of the common covariance that those of the components are shrunk to


def fit_paper_mixture(rows: Rows, n_components: int | None, settings: MixtureSettings, run: Run) -> MixtureFit:
    """Fit a mixture by the paper's algorithm, which recovers means and weights.

    Covariances, which the paper leaves open, come from an E-step with spherical components of equal weight at these
    means. `max_iter` passes of refinement follow if asked for.
    Raises InvalidParameterError: the number of components is None, or there are too few features for three views.
    """
    if n_components is None:
        msg = "method='paper' needs the number of components: pass an integer instead of 'auto'"
        raise InvalidParameterError(msg)
    if settings.views is None and rows.n_features < 3:
        msg = f"method='paper' needs three views, and there are {rows.n_features} features; use method='robust'"
        raise InvalidParameterError(msg)
    views = settings.views or split_views(rows.n_features, settings.anchoring.seed)
    sample = take_sample(rows, n_components, run)  # before the views: it checks the range of the values
    found = paper_mixture(rows, ColumnViews(views), n_components, settings.anchoring, run)
    means = fetch_rows(rows, found.anchors.indices, run) - sample.centre
    start = call(run, "spreads", _spherical_start, sample.held, means, settings)
    seen = e_step_pass(rows, prepare_densities(rows, start.mixture, start, sample.centre), sample.deviations, run)
    refitted = maximization(
        seen.moments, start.mixture.covariance_type, start.shrinkage, seen.moments.counts, start.mixture.means
    )
    weights = np.maximum(found.weights, np.finfo(np.float64).eps)
    start = replace(start, mixture=replace(refitted, weights=weights / weights.sum(), means=means))
    anchors = found.anchors
    certificate = {
        **vote_attributes(anchors.votes, anchors.n_subproblems),
        "anchor_indices_": anchors.indices,
        "extreme_indices_": anchors.indices,
        "candidates_": anchors.candidates,
        "candidate_votes_": anchors.candidate_votes,
        "signature_axes_": leading_axes(np.linalg.svd(means - means.mean(axis=0), full_matrices=False)[2].T),
        "bic_curve_": np.zeros((0, 2)),
        "outliers_": np.zeros(0, dtype=np.int64),
    }
    return MixtureFit(
        refine(rows, start, sample, (settings.max_iter, settings.tol), run)[0], start, sample.centre, certificate
    )


def _spherical_start(sample: RowSample, means: Floats, settings: MixtureSettings) -> MixtureStart:
    """Components of equal weight and equal spherical variance: that of the sample about the nearest means."""
    (k, p), form = means.shape, "diag" if settings.covariance_type == "auto" else settings.covariance_type
    variance = float(squared_distances(sample.rows, means).min(axis=1).mean()) / p
    variance = variance if variance > 0.0 else float((sample.rows**2).mean()) or 1.0
    floor, pulls = rounding_variances(sample.rows), (_PULL, _PULL if form in ("full", "tied") else 0.0)
    if settings.reg_covar is not None:
        floor, pulls = np.full(p, settings.reg_covar), (0.0, 0.0)
    return MixtureStart(
        Mixture(form, np.full(k, 1.0 / k), means, equal_covariances(variance, form, k, p)),
        Shrinkage(floor, *pulls, "common", plain=True),
        evidence=np.ones(k),
    )
