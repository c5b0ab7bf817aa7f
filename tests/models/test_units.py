"""Columns in different units: which models find the same, and which want them divided by their deviations."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import dask_dca as dca

UNIT = np.array([1e-3, 1, 1e3, 1e5, 1, 10, 1e-2, 100.0])


def in_units(make, seed):
    rng = np.random.default_rng(seed)
    rows, truth = make(rng)
    return rows, rows * UNIT, truth


def clusters(rng):
    labels = rng.permutation(np.repeat(np.arange(3), 500))
    return 4 * rng.standard_normal((3, 8))[labels] + rng.standard_normal((1500, 8)), labels


def mixtures(rng):
    parts, shares = rng.random((4, 8)), rng.dirichlet(np.full(4, 0.3), 3000)
    shares[rng.permutation(3000)[:4]] = np.eye(4)
    return (shares @ parts + 0.02 * rng.standard_normal((3000, 8))).clip(0), parts


def off(found, parts):
    """Degrees between the parts and the row that is nearest to each, at most."""
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (found, parts)]
    return np.degrees(np.arccos((unit[0] @ unit[1].T).max(axis=0).clip(-1, 1)).max())


@pytest.mark.parametrize("model", [dca.GaussianMixture(3), dca.GaussianHMM(3)], ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("seed", range(2))
def test_units_change_no_cluster(model, seed):
    plain, scaled, labels = in_units(clusters, seed)
    for rows in (plain, scaled):
        assert adjusted_rand_score(model.fit(rows).predict(rows), labels) > 0.97


def test_divided_by_deviations_parts_are_found_in_any_units():
    without = []
    for seed in range(4):
        _, scaled, parts = in_units(mixtures, seed)
        deviations = scaled.std(axis=0)
        assert off(dca.NMF(4).fit(scaled / deviations).components_ * deviations / UNIT, parts) < 6
        without.append(off(dca.NMF(4).fit(scaled).components_ / UNIT, parts))
    assert max(without) > 12
