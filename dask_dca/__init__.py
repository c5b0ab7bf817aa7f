"""
Latent-variable models of very large matrices by anchors, on Dask.

Names are imported on first use: the `dask` command loads this package on every call.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dask_dca._registry import ELSEWHERE, MODELS

if TYPE_CHECKING:
    from dask_dca.anchoring.anchors import anchor_votes, find_anchors, n_subproblems
    from dask_dca.anchoring.in_cone import in_cone
    from dask_dca.anchoring.parameters import AnchorResult
    from dask_dca.engine.cubes import Cube
    from dask_dca.geometry.votes import VoteHistogram
    from dask_dca.models.categorical.estimator import CategoricalHMM
    from dask_dca.models.hmm.estimator import GaussianHMM
    from dask_dca.models.kalman.estimator import KalmanFilter
    from dask_dca.models.lda.estimator import LatentDirichletAllocation
    from dask_dca.models.mixture.estimator import GaussianMixture
    from dask_dca.models.nmf.estimator import NMF
    from dask_dca.models.stream import merge
    from dask_dca.models.subspace.estimator import SubspaceClustering
    from dask_dca.reporting import report
    from dask_dca.store import load_model

__version__ = "0.1.0.dev0"

__all__ = [
    "NMF",
    "AnchorResult",
    "CategoricalHMM",
    "Cube",
    "GaussianHMM",
    "GaussianMixture",
    "KalmanFilter",
    "LatentDirichletAllocation",
    "SubspaceClustering",
    "VoteHistogram",
    "anchor_votes",
    "find_anchors",
    "in_cone",
    "load_model",
    "merge",
    "n_subproblems",
    "report",
]

_HOMES = {name: model.home for name, model in MODELS.items()} | {
    "AnchorResult": "dask_dca.anchoring.parameters",
    "Cube": "dask_dca.engine.cubes",
    "VoteHistogram": "dask_dca.geometry.votes",
    "anchor_votes": "dask_dca.anchoring.anchors",
    "find_anchors": "dask_dca.anchoring.anchors",
    "in_cone": "dask_dca.anchoring.in_cone",
    "load_model": "dask_dca.store",
    "merge": "dask_dca.models.stream",
    "n_subproblems": "dask_dca.anchoring.anchors",
    "report": "dask_dca.reporting",
}


_MODULES = ("errors", "plotting")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in ELSEWHERE:
        msg = f"{__name__} has no {name}: {ELSEWHERE[name]}"
        raise ImportError(msg)
    msg = f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__", "__doc__"])
