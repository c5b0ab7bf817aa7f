"""Projections on planes of every ensemble: exact, of a row alone, and cheap where the planes have few features."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from dask_dca.geometry.planes import cosine_keys, inner_products, integer_pairs, plane_pairs, signed_angles

ENSEMBLES = ["gaussian", "sparse", "unit", "data"]


def drawn(ensemble, count, width, seed=0):
    rows = np.random.default_rng(1).standard_normal((9, width)) if ensemble == "data" else None
    return integer_pairs(plane_pairs(ensemble, seed, np.arange(count), width, rows))


def dense(pairs, width):
    if sparse.issparse(pairs):
        return pairs.toarray().reshape(2, -1, width)
    return pairs if pairs.ndim == 3 else np.eye(width)[pairs]


@given(
    seed=st.integers(0, 10**6),
    ensemble=st.sampled_from(ENSEMBLES),
    width=st.integers(1, 300),
    exponent=st.integers(-400, 400),
)
@settings(max_examples=60)
def test_products_are_exact_and_of_a_row_alone(seed, ensemble, width, exponent):
    rng = np.random.default_rng(seed)
    rows = np.ldexp(rng.standard_normal((12, width)) * 10.0 ** rng.uniform(-6, 6, (12, 1)), exponent)
    pairs = drawn(ensemble, 7, width, seed)
    together, units = inner_products(rows, pairs)
    assert together.shape == (12, 2, 7)
    apart = [inner_products(rows[i : i + 1], pairs) for i in range(12)]
    np.testing.assert_array_equal(np.concatenate([products for products, _ in apart]), together)
    np.testing.assert_array_equal(np.concatenate([unit for _, unit in apart]), units)
    unit_vectors = dense(pairs, width) / (1.0 if ensemble == "unit" else 2.0**26)
    expected = np.einsum("np,lsp->nls", rows, unit_vectors)
    lengths = np.linalg.norm(np.ldexp(rows, -exponent), axis=1)[:, None, None]
    error = np.ldexp(together, units[:, None, None] - exponent) - np.ldexp(expected, -exponent)
    assert np.abs(error / lengths).max() < 2e-6


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_keys_and_angles_are_those_of_the_projected_rows(ensemble):
    rng = np.random.default_rng(0)
    rows, middle = rng.standard_normal((40, 30)), rng.standard_normal(30)
    rows[5] = 0.0
    pairs = drawn(ensemble, 25, 30)
    a, b = dense(pairs, 30)
    places, centre = inner_products(rows, pairs)[0], inner_products(middle[None], pairs)[0][0]
    across, along = rows @ a.T, rows @ b.T
    with np.errstate(invalid="ignore"):
        cosines = along / np.hypot(across, along)
    np.testing.assert_allclose(cosine_keys(places) / 2.0**24, cosines, atol=1e-5)
    turned = np.arctan2(across, along) - np.arctan2(middle @ a.T, middle @ b.T)
    found = signed_angles(places, centre)
    assert np.isnan(found[5]).all()
    away = np.angle(np.exp(1j * (found - turned)))
    np.testing.assert_allclose(np.delete(away, 5, axis=0), 0.0, atol=1e-5)


def test_entries_near_nothing_have_an_angle_or_none():
    """Squares of tiny entries vanish: no angle, and no warning."""
    rows = np.array([[1.0, 1e-200, 0.0]])
    keys = cosine_keys(inner_products(rows, np.array([[0, 1, 1], [1, 1, 2]]))[0])
    assert keys[0, 0] == 0.0
    assert np.isnan(keys[0, 1:]).all()


def test_planes_of_few_features_cost_less_than_dense_ones():
    rows = np.random.default_rng(0).random((800, 4000))
    seconds = {}
    for ensemble in ("gaussian", "sparse", "unit"):
        spent = []
        for _ in range(3):
            begun = time.process_time()
            inner_products(rows, drawn(ensemble, 115, 4000))
            spent.append(time.process_time() - begun)
        seconds[ensemble] = min(spent)
    assert seconds["unit"] < 0.4 * seconds["gaussian"]
    assert seconds["sparse"] < 0.9 * seconds["gaussian"]
