"""One small fit of each model on real data, and the data; pages of them."""

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, load_wine

import dask_dca as dca
from tests.models.lda.data import planted_documents

ROOT = Path(__file__).parents[2]
NAMES = ("nmf", "mixture", "hmm", "categorical", "kalman", "lda", "subspace")


def recording():
    """The joint angles of the motion-capture example, with names of the channels."""
    with np.load(ROOT / "examples" / "motion_capture.npz") as file:
        return pd.DataFrame(file["frames"].astype(float), columns=[str(name) for name in file["channels"]])


@cache
def example(name):
    """A fitted model and its data."""
    if name == "nmf":
        X = load_digits().data
        return dca.NMF(8).fit(X), X
    if name == "mixture":
        X = load_wine(as_frame=True).data
        X = (X - X.mean()) / X.std()
        return dca.GaussianMixture(3).fit(X), X
    if name == "hmm":
        X = recording()
        return dca.GaussianHMM(4).fit(X), X
    if name == "categorical":
        rng = np.random.default_rng(0)
        X = (3 * np.repeat(rng.integers(3, size=200), 20) + rng.integers(4, size=4000))[:, None]
        return dca.CategoricalHMM(3).fit(X), X
    if name == "kalman":
        X = recording()
        return dca.KalmanFilter(4).fit(X), X
    if name == "lda":
        X = planted_documents()[0]
        model = dca.LatentDirichletAllocation(5).fit(X)
        model.feature_names_in_ = np.array([f"word{i}" for i in range(X.shape[1])], dtype=object)
        return model, X
    digits = load_digits()
    X = digits.data[np.isin(digits.target, [0, 1, 6])]
    return dca.SubspaceClustering(3).fit(X), X


SHAPES = {"subspace": (8, 8)}


@cache
def page(name):
    """The page of a model and its data."""
    model, X = example(name)
    return dca.report(model, data=X, shape=SHAPES.get(name))


@cache
def page_without_data(name):
    return dca.report(example(name)[0], shape=SHAPES.get(name))


@pytest.fixture(params=NAMES, scope="module")
def name(request):
    return request.param


if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
