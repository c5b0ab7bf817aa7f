"""Averages of rays in strong noise: scaling rows by heights that differ by noise alone would hide the pure ones."""

import numpy as np
import pytest

import dask_dca as dca
from dask_dca.anchoring import preprocess
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.geometry import evenness
from dask_dca.geometry.moments import UNEVEN

K, COPIES, SEEDS = 20, 3, range(20)


def averages(seed):
    """Rows, and which of them are pure, by ray."""
    rng = np.random.default_rng(seed)
    shares = np.vstack([np.repeat(np.eye(K), COPIES, axis=0), rng.dirichlet(np.full(K, 0.05), 300 - COPIES * K)])
    clean = shares @ rng.random((K, 500))
    noise = rng.standard_normal(clean.shape)
    order = rng.permutation(len(clean))
    X = clean + noise * (1.2 * np.linalg.norm(clean) / np.linalg.norm(noise))
    return X[order], shares[order]


def share_found(seed):
    X, shares = averages(seed)
    found = dca.find_anchors(X, K, random_state=seed).indices
    return (shares[found] > 0.98).any(axis=0).mean()


def test_more_rays_are_found_where_rows_are_averages(monkeypatch):
    found = np.mean([share_found(seed) for seed in SEEDS])
    monkeypatch.setattr(evenness, "find_level", lambda *_: UNEVEN)
    scaled = np.mean([share_found(seed) for seed in SEEDS])
    assert found > scaled + 0.03, (found, scaled)


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_uneven_brightness_are_scaled(seed):
    X, _ = averages(seed)
    bright = np.random.default_rng(seed).lognormal(sigma=0.5, size=(len(X), 1))
    for rows, is_even in ((X, True), (X * bright, False)):
        view = preprocess.prepare_subspaces(as_rows(rows), Run(), nonnegative=False, n_anchors=K).view
        assert bool(view.reading.even.band) is is_even
        kept = preprocess.prepare_subspaces(as_rows(rows), Run(), nonnegative=False, n_anchors=K, level=False).view
        assert kept.reading.even == UNEVEN
