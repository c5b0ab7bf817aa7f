"""The columns of the quality tables: dask_dca in its variants, and the baselines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmarks.peers import PEERS, SMALL_PEERS

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

BUDGETS = (1, 2, 5, 10, 20)  # sub-problems in units of k ln k
MAIN = "dask_dca"
LIBRARY = (MAIN, "dca_paper", *(f"dca_s{c}" for c in BUDGETS))
BASELINES = tuple(PEERS)
SMALL = tuple(SMALL_PEERS)
ALL = LIBRARY + BASELINES
# What the requirement of Q1 compares with.
REQUIRED = ("spa", "snpa", "xray_max")


class MissingError(NotImplementedError):
    """A column or a data set that this machine does not have; NotImplementedError is how asv skips a case."""


def find(name: str, X: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Anchors of X by the method `name`: k row indices."""
    if name in LIBRARY:
        return _from_library(name, X, k, seed)
    return (PEERS | SMALL_PEERS)[name](X, k, seed)


def require(name: str) -> None:
    """Raise MissingError if the method `name` can't run here."""
    if name in LIBRARY:
        _find_anchors()


def _from_library(name: str, X: np.ndarray, k: int, seed: int) -> np.ndarray:
    try:
        return _find_anchors()(X, k, random_state=seed, **_options(name, k)).indices
    except ModuleNotFoundError as error:
        raise MissingError(f"{name}: no module {error.name}") from error


def _find_anchors() -> Callable:
    try:
        from dask_dca import find_anchors
    except ImportError as error:
        raise MissingError("the columns of dask_dca: find_anchors can't be imported") from error
    return find_anchors


def _options(name: str, k: int) -> dict:
    if name == "dca_paper":
        return {"method": "paper"}
    if name.startswith("dca_s"):
        return {"n_subproblems": math.ceil(int(name[5:]) * k * math.log(k))}
    return {}
