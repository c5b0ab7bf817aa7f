"""A mixture that goes on: sums about fixed points, and the M-step that its fit used."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.models.gaussians import SUBSPACE, GaussianMoments, moved_moments, prepare_gaussians, variances_of
from dask_dca.models.mixture.family import Shrinkage, as_full, maximization
from dask_dca.models.mixture.passes import e_step_pass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.mixture.fit import MixtureFit
    from dask_dca.models.mixture.passes import Densities, MixtureStatistics

    Floats = NDArray[np.float64]
    Sums = dict[str, Floats]

__all__ = ["begin_mixture", "see_batch", "step_mixture"]


def _form(model: Any) -> str:
    return "full" if model.covariance_type_ == SUBSPACE else str(model.covariance_type_)


def _named(moments: GaussianMoments, origins: Floats, form: str) -> Sums:
    found = moved_moments(moments, origins, form)
    return {"counts": found.counts, "sums": found.first, "products": found.second}


def begin_mixture(model: Any, found: MixtureFit) -> Sums:
    """Keep what the M-step of a fitted mixture needs.

    model: the mixture; its parameters are set. Returns the sums that its fit ended with, about its means.
    """
    start, mixture, moments = found.start, found.refined.model, found.refined.seen.moments
    form = _form(model)
    if form != mixture.covariance_type:  # diagonal in the subspace
        mixture = as_full(mixture)
        moments = replace(moments, second=moments.second[:, :, None] * np.eye(moments.second.shape[1]))
    model.stream_origins_, model.stream_floor_ = model.means_.copy(), start.shrinkage.floor
    model.stream_evidence_, model.stream_least_ = start.evidence, float(start.least)
    return _named(moments, mixture.means, form)


def see_batch(model: Any, rows: Rows, densities: Densities, run: Run) -> tuple[Sums, MixtureStatistics]:
    """Run the E-step over a batch."""
    form, space, gaussians = _form(model), densities.subspace, densities.gaussians
    origins = model.stream_origins_ - (gaussians.centre if space is None else 0.0)
    if space is not None:
        origins = (origins - space.origin) @ space.axes - gaussians.centre
    spread = np.broadcast_to(variances_of(model.covariances_, form), gaussians.means.shape)
    middle = model.weights_ @ gaussians.means
    deviations = np.sqrt(model.weights_ @ (spread + (gaussians.means - middle) ** 2))
    seen = e_step_pass(rows, densities, deviations, run, model.stream_least_)
    return _named(seen.moments, origins, form), seen


def step_mixture(model: Any, sums: Sums) -> None:
    """Run the M-step: set the parameters of the mixture."""
    form, space = _form(model), model._subspace()
    origins, means = model.stream_origins_, model.means_
    if space is not None:
        origins, means = ((points - space.origin) @ space.axes for points in (origins, means))
    pull, common_pull = model.pulls_.tolist()
    shrinkage = Shrinkage(
        model.stream_floor_, pull, common_pull, model.shrinkage_target_, plain=model.reg_covar != "auto"
    )
    moments = GaussianMoments(sums["counts"], sums["sums"], sums["products"], origins)
    mixture = maximization(moments, form, shrinkage, model.stream_evidence_ * moments.counts, means)
    model.weights_, model.covariances_ = mixture.weights, mixture.covariances[()]
    model.precisions_cholesky_ = prepare_gaussians(mixture.means, mixture.covariances, form).precisions_cholesky
    model.means_ = mixture.means if space is None else space.points(mixture.means)
