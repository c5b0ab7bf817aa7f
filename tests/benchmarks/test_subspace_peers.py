"""The peers of subspace clustering, on data where each has to succeed."""

import numpy as np
import pytest

from benchmarks.subspace_peers import PEERS, noise_level
from benchmarks.subspaces import accuracy

LABELS = np.repeat([0, 1, 2], 40)


def subspaces(seed, noise=0.05):
    rng = np.random.default_rng(seed)
    rows = np.vstack([rng.standard_normal((40, 3)) @ np.linalg.qr(rng.standard_normal((30, 3)))[0].T for _ in range(3)])
    return rows + noise * rng.standard_normal(rows.shape)


@pytest.mark.parametrize("name", [name for name in PEERS if name not in {"k-means", "spectral"}])
def test_methods_for_subspaces_find_them(name):
    """k-means is near chance here: rows lie on both sides of the origin."""
    noise = 0.0 if name.startswith("SSC-OMP") else 0.05  # ten steps of a pursuit would follow the noise
    assert accuracy(LABELS, PEERS[name](subspaces(0, noise), 3, 0)) >= 0.9


@pytest.mark.parametrize("name", ["k-means", "spectral"])
def test_methods_for_groups_find_them(name):
    rng = np.random.default_rng(0)
    X = np.repeat(10 * rng.standard_normal((3, 30)), 40, axis=0) + rng.standard_normal((120, 30))
    assert accuracy(LABELS, PEERS[name](X, 3, 0)) == 1.0


def test_noise_is_told_from_singular_values():
    clean = subspaces(0, 0.0)
    clean /= np.linalg.norm(clean, axis=1, keepdims=True)
    noise = 0.2 * np.random.default_rng(1).standard_normal(clean.shape) / np.sqrt(30)
    assert noise_level(clean + noise) == pytest.approx(0.2, rel=0.25)
