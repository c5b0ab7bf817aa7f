"""The low-rank model of rows with holes as fitted attributes, which all models that have one call the same."""

from __future__ import annotations

from typing import Any

from dask_dca.geometry.low_rank import LowRank


def keep_completion(model: Any, completion: LowRank | None) -> None:
    """Keep the low-rank model of rows with holes as fitted attributes."""
    if completion is None:
        return
    model.completion_mean_, model.completion_loadings_ = completion.mean, completion.loadings
    model.completion_spread_, model.completion_noise_ = completion.spread, completion.noise


def completion_of(model: Any) -> LowRank | None:
    """Return the low-rank model of rows with holes, if the fit made one."""
    if not hasattr(model, "completion_mean_"):
        return None
    return LowRank(
        model.completion_mean_, model.completion_loadings_, model.completion_spread_, float(model.completion_noise_)
    )
