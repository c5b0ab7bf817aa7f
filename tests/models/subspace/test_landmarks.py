"""Landmarks: distinct, enough of them, from every part of the data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_dca.models.subspace.landmarks import choose_landmarks, distinct_rows, quantise


def unit(n, d, seed=0):
    rows = np.random.default_rng(seed).standard_normal((n, d))
    return quantise(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@given(st.integers(0, 10**6), st.integers(1, 200), st.integers(1, 60), st.integers(1, 8))
@settings(max_examples=50)
def test_as_many_as_asked_for_distinct_and_not_zero(seed, n, count, d):
    rows = unit(n, d, seed)
    rows[::5] = 0.0
    rows[1::7] = rows[0] if rows[0].any() else rows[min(1, n - 1)]
    chosen = choose_landmarks(rows, count, seed)
    different = len(np.unique(rows[rows.any(axis=1)], axis=0))
    assert (np.diff(chosen) > 0).all()
    assert rows[chosen].any(axis=1).all()
    assert len(np.unique(rows[chosen], axis=0)) == len(chosen)
    assert len(chosen) == min(count, different) or (count < 32 and len(chosen) >= min(count, different))


def test_small_parts_of_the_data_have_landmarks():
    rows = np.vstack([unit(2000, 10) * 0.02 + np.eye(1, 10), unit(12, 10, 1) * 0.02 + np.eye(1, 10, 3)])
    rows = quantise(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    assert (choose_landmarks(rows, 100, 0) >= 2000).sum() >= 2


def test_the_first_of_equal_rows_is_kept():
    rows = unit(6, 3)[[4, 1, 4, 4, 2, 1]]
    assert distinct_rows(rows).tolist() == [0, 1, 4]


@pytest.mark.parametrize("shape", [(1, 7), (64, 7), (500, 7)])
def test_products_of_quantised_rows_have_the_same_bits_in_any_shape(shape):
    rows, other = unit(500, 7), unit(30, 7, 1)
    whole = rows @ other.T
    part = rows[: shape[0]] @ other.T
    assert part.tobytes() == np.ascontiguousarray(whole[: shape[0]]).tobytes()
