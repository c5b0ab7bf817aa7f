"""
Latent-variable models of very large matrices by anchors, on Dask.

Names are imported on first use: the `dask` command loads this package on every call.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_dca.geometry.votes import VoteHistogram
    from dask_dca.models.anchors import anchor_votes, find_anchors, n_subproblems
    from dask_dca.models.hmm import GaussianHMM
    from dask_dca.models.kalman import KalmanFilter
    from dask_dca.models.lda import LatentDirichletAllocation
    from dask_dca.models.membership import in_cone
    from dask_dca.models.mixture import GaussianMixture
    from dask_dca.models.nmf import NMF
    from dask_dca.models.result import AnchorResult
    from dask_dca.models.subspace import SubspaceClustering
    from dask_dca.reporting import report
    from dask_dca.store import load_model

__version__ = "0.1.0.dev0"

__all__ = [
    "NMF",
    "AnchorResult",
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
    "n_subproblems",
    "report",
]

_HOMES = {
    "AnchorResult": "dask_dca.models.result",
    "GaussianHMM": "dask_dca.models.hmm",
    "GaussianMixture": "dask_dca.models.mixture",
    "KalmanFilter": "dask_dca.models.kalman",
    "LatentDirichletAllocation": "dask_dca.models.lda",
    "NMF": "dask_dca.models.nmf",
    "SubspaceClustering": "dask_dca.models.subspace",
    "VoteHistogram": "dask_dca.geometry.votes",
    "anchor_votes": "dask_dca.models.anchors",
    "find_anchors": "dask_dca.models.anchors",
    "in_cone": "dask_dca.models.membership",
    "load_model": "dask_dca.store",
    "n_subproblems": "dask_dca.models.anchors",
    "report": "dask_dca.reporting",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
