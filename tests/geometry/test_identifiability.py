"""The paper's lemma: two moments of two views are enough, and one is not."""

import numpy as np
import pytest

from dask_dca.geometry.theory import identify_rows, rank_one_terms


def planted(k, seed, p=(7, 5), n=60):
    rng = np.random.default_rng(seed)
    views = [rng.standard_normal((n, width)) for width in p]
    picked = rng.choice(n, k, replace=False)
    a, b = rng.random((2, k)) + 0.1
    return views, picked, a, b


def moment(views, picked, weights):
    return views[0][picked].T @ np.diag(weights) @ views[1][picked]


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_two_moments_identify_the_rows_and_their_terms(k, seed):
    views, picked, a, b = planted(k, seed)
    moments = moment(views, picked, a), moment(views, picked, b)
    assert sorted(identify_rows(*moments, *views).tolist()) == sorted(picked.tolist())
    left, right = rank_one_terms(*moments)
    order = picked[np.argsort(-b / a)]
    for t, (row, weight) in enumerate(zip(order, a[np.argsort(-b / a)], strict=True)):
        expected = weight * np.outer(views[0][row], views[1][row])
        np.testing.assert_allclose(np.outer(left[:, t], right[:, t]), expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("seed", range(3))
def test_the_moments_of_a_mixture_identify_its_means(seed):
    """E[x1 (x) x2] and E[<eta, x3> x1 (x) x2] of noiseless rows, the means among them."""
    rng = np.random.default_rng(seed)
    means, labels = rng.standard_normal((3, 12)), rng.integers(3, size=500)
    rows = means[labels]
    first, second, third = rows[:, :4], rows[:, 4:9], rows[:, 9:]
    eta = rng.standard_normal(3)
    moments = first.T @ second, first.T @ np.diag(third @ eta) @ second
    found = identify_rows(*moments, first, second)
    assert set(labels[found].tolist()) == {0, 1, 2}
    assert all(row == np.flatnonzero(labels == labels[row])[0] for row in found)


def test_one_moment_or_equal_ratios_of_weights_identify_nothing():
    """Different moments are not enough: another decomposition of both has the same weights."""
    views, picked, a, _ = planted(3, 0)
    for b in (a, 2.0 * a, a * [2.0, 2.0, 3.0]):
        with pytest.raises(ValueError, match="different real ratios"):
            rank_one_terms(moment(views, picked, a), moment(views, picked, b))
    b = a * [2.0, 2.0, 3.0]
    turn = np.eye(3)
    turn[:2, :2] = [[0.6, -0.8], [0.8, 0.6]]
    left, right = views[0][picked].T * np.sqrt(a) @ turn, views[1][picked].T * np.sqrt(a) @ turn
    np.testing.assert_allclose(left @ right.T, moment(views, picked, a))
    np.testing.assert_allclose(left @ np.diag(b / a) @ right.T, moment(views, picked, b))


def test_moments_of_no_such_terms_are_refused():
    with pytest.raises(ValueError, match="take another eta"):
        rank_one_terms(np.eye(2), [[0.0, -1.0], [1.0, 0.0]])
