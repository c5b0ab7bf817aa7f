"""Columns of O T that belong to columns of O: one order and lengths make E[h (x) h] symmetric and positive."""

import itertools

import numpy as np
import pytest

from dask_dca.models.kalman.paper import common_length, pair_columns


def planted(k, seed):
    """A positive D, and its columns in another order and of other lengths."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((k, k + 1))
    D = root @ root.T
    lengths, order = np.exp(rng.standard_normal(k)), rng.permutation(k)
    cross = np.empty((k, k))
    cross[:, order] = D * lengths
    return cross, D, order, lengths


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7, 8, 12])
@pytest.mark.parametrize("seed", range(6))
def test_the_planted_order_and_lengths_are_found(k, seed):
    cross, D, order, lengths = planted(k, seed)
    found, scales, moment = pair_columns(cross)
    np.testing.assert_array_equal(found, order)
    np.testing.assert_allclose(scales / scales[0], lengths / lengths[0], rtol=1e-5)
    np.testing.assert_allclose(moment / moment[0, 0], D / D[0, 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moment, cross[:, found] / scales)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_order_makes_a_positive_matrix(seed):
    """Brute force over orders and, for two columns, all ratios of lengths: only the planted order is positive."""
    cross, _, order, _ = planted(2, seed)
    for one in itertools.permutations(range(2)):
        columns = cross[:, list(one)]
        ratio = columns[1, 0] / columns[0, 1]  # the one that makes it symmetric
        D = columns * [1.0, ratio]
        positive = ratio > 0 and np.linalg.eigvalsh(D)[0] > 0
        assert positive == (list(one) == order.tolist())


@pytest.mark.parametrize("seed", range(5))
def test_a_little_noise_changes_a_little(seed):
    cross, D, order, _ = planted(4, seed)
    noise = 1e-4 * np.abs(cross).min() * np.random.default_rng(seed).standard_normal(cross.shape)
    found, _, moment = pair_columns(cross + noise)
    np.testing.assert_array_equal(found, order)
    np.testing.assert_allclose(moment / np.linalg.norm(moment), D / np.linalg.norm(D), atol=1e-3)


def test_lengths_that_nothing_fixes_stay_those_of_the_columns():
    order, lengths, moment = pair_columns(np.array([[0.0, 2.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 5.0]]))
    assert order.tolist() == [1, 0, 2]
    np.testing.assert_allclose(lengths, 1.0)
    np.testing.assert_allclose(moment, np.diag([2.0, 3.0, 5.0]))


def test_useless_matrices_give_finite_lengths():
    for cross in (np.zeros((3, 3)), -np.eye(3), np.ones((9, 9)), np.diag([1.0, 0.0, 1e-200])):
        order, lengths, moment = pair_columns(cross)
        assert sorted(order.tolist()) == list(range(len(cross)))
        assert np.isfinite(lengths).all()
        assert (lengths > 0).all()
        assert np.isfinite(moment).all()


@pytest.mark.parametrize("seed", range(3))
def test_moments_two_steps_apart_give_the_common_length(seed):
    rng = np.random.default_rng(seed)
    T, D = rng.standard_normal((3, 3)), np.diag([1.0, 2.0, 3.0])
    assert common_length(D @ T.T, D @ T.T @ T.T, T / 7.0) == pytest.approx(7.0)
    assert common_length(D @ T.T, -D @ T.T @ T.T, T) == 1.0
    assert common_length(np.zeros((2, 2)), np.zeros((2, 2)), np.eye(2)) == 1.0
