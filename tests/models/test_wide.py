"""Wide data: no model forms a matrix of features by features where its form has none."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import dask_dca as dca
from dask_dca.errors import InvalidParameterError

FEATURES = 8_000
MOST = 200_000_000  # bytes: two fifths of what p x p numbers take
MODELS = {
    "nmf": lambda: dca.NMF(2),
    "lda": lambda: dca.LatentDirichletAllocation(2),
    "subspace": lambda: dca.SubspaceClustering(2),
    "kalman": lambda: dca.KalmanFilter(1, max_iter=1),
    "hmm-diag": lambda: dca.GaussianHMM(2, "diag", max_iter=1),
    "hmm-auto": lambda: dca.GaussianHMM(2, "auto", max_iter=1),
    "hmm-spherical": lambda: dca.GaussianHMM(2, "spherical", max_iter=1),
    "mixture-auto": lambda: dca.GaussianMixture(2, max_iter=1),
    "mixture-diag": lambda: dca.GaussianMixture(2, "diag", max_iter=1),
    "mixture-spherical": lambda: dca.GaussianMixture(2, "spherical", max_iter=1),
    "mixture-tied-spherical": lambda: dca.GaussianMixture(2, "tied-spherical", max_iter=1),
    "hmm-means": lambda: dca.GaussianHMM(2, init={"means": np.outer([0.0, 3.0], np.ones(FEATURES))}, max_iter=1),
    "hmm-paper": lambda: dca.GaussianHMM(2, method="paper", n_subproblems=20),
    "mixture-paper": lambda: dca.GaussianMixture(2, method="paper", n_subproblems=20),
    "kalman-matrices": lambda: dca.KalmanFilter(init=known_filter(), max_iter=1),
}


def known_filter() -> dca.KalmanFilter:
    return dca.KalmanFilter.from_parameters([[0.5]], np.ones((FEATURES, 1)), [[1.0]], np.ones(FEATURES))


def wide(name: str, features: int = FEATURES) -> Any:
    rng = np.random.default_rng(0)
    if name == "lda":
        return rng.poisson(0.2, (40, features))
    X = rng.standard_normal((40, features))
    X[:, : features // 2] += 3.0 * np.repeat([0, 1, 0, 1], 10)[:, None]
    return np.abs(X) if name in ("nmf", "subspace") else X


@pytest.mark.parametrize("name", MODELS)
def test_wide_data_need_no_matrix_of_features_by_features(name: str) -> None:
    X = wide(name)
    tracemalloc.start()
    try:
        model: Any = MODELS[name]().fit(X)
        for method, given in (("transform", X), ("predict", X), ("score", X), ("sample", 3)):
            if hasattr(model, method) and not name.startswith("kalman"):
                getattr(model, method)(given)
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", ["full", "tied"])
def test_forms_with_such_a_matrix_refuse_wide_data(form: str) -> None:
    for model in (dca.GaussianMixture(2, form), dca.GaussianHMM(2, form)):
        with pytest.raises(InvalidParameterError, match="covariance_type='diag'"):
            model.fit(wide("hmm", 20_000))
