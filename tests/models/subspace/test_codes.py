"""Codes and their graph, against SciPy and by hand."""

import numpy as np
import pytest
from scipy import linalg, sparse
from scipy.optimize import nnls

import dask_dca as dca
from dask_dca.models.subspace.landmarks import (
    code_rows,
    count_by_eigengap,
    embed,
    graph_of,
    nonnegative_ridge,
    quantise,
    spectrum_of,
)

rng = np.random.default_rng(0)


def unit(n, d, seed=0):
    rows = np.abs(np.random.default_rng(seed).standard_normal((n, d)))
    return quantise(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def test_coordinate_descent_reaches_the_ridge_solution():
    A = rng.random((12, 6))
    x = rng.random((12, 20))
    gram = np.repeat((A.T @ A)[:, :, None], 20, axis=2)
    found = nonnegative_ridge(gram, A.T @ x, 0.1, sweeps=500)
    stacked = np.vstack([A, np.sqrt(0.1) * np.eye(6)])
    exact = np.array([nnls(stacked, np.append(column, np.zeros(6)))[0] for column in x.T]).T
    np.testing.assert_allclose(found, exact, atol=1e-6)


def test_codes_are_sparse_shares_and_no_row_is_coded_by_itself():
    rows = unit(300, 8)
    codes = code_rows(rows, rows[:100])
    matrix = codes.matrix(100).toarray()
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
    assert (matrix >= 0).all()
    assert ((matrix > 0).sum(axis=1) <= 10).all()
    assert not matrix[np.arange(100), np.arange(100)].any()


def test_a_scaled_copy_of_a_landmark_is_not_coded_by_it():
    rows = unit(50, 6)
    copy = rows[:1] * 3.0
    copy = quantise(copy / np.linalg.norm(copy))
    assert code_rows(copy, rows).matrix(50)[0, 0] == 0.0


def test_codes_of_a_row_do_not_depend_on_the_others():
    rows = unit(1300, 9)
    whole = code_rows(rows, rows[::10]).matrix(130)
    for part in (slice(0, 1), slice(700, 713), slice(511, 1025)):
        assert (code_rows(rows[part], rows[::10]).matrix(130) != whole[part]).nnz == 0


def test_zero_rows_have_no_code_and_a_lone_landmark_codes_itself():
    codes = code_rows(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0]]))
    assert codes.weights.tolist() == [[0.0], [1.0]]
    assert len(code_rows(np.zeros((0, 2)), np.eye(2)).weights) == 0


def test_rows_of_one_subspace_are_coded_by_rows_of_it():
    """Broken by plain correlations: in subspaces with a common direction the nearest rows are often foreign."""
    bases = [np.linalg.qr(rng.standard_normal((40, 5)))[0] for _ in range(3)]
    common = rng.standard_normal(40)
    rows = np.vstack([rng.standard_normal((150, 5)) @ basis.T + common / np.sqrt(40) for basis in bases])
    rows = quantise(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    labels = np.repeat(np.arange(3), 150)
    matrix = code_rows(rows, rows).matrix(450).toarray()
    inside = matrix[labels[:, None] == labels].sum() / matrix.sum()
    assert inside > 0.9


def test_the_graph_is_what_its_formula_says():
    rows = unit(200, 7)
    codes, own = code_rows(rows, rows[:60]), code_rows(rows[:60], rows[:60])
    H, C = codes.matrix(60).toarray(), own.matrix(60).toarray()
    np.testing.assert_allclose(graph_of(codes, own, 60).toarray(), H.T @ H * 60 / 200 + (C + C.T) / 2, atol=1e-12)


@pytest.mark.parametrize("n", [40, 900])
def test_eigenvectors_are_scipys(n):
    W = sparse.random_array((n, n), density=8 / n, rng=np.random.default_rng(1))
    W = sparse.csr_array(W + W.T + sparse.diags_array(np.full(n - 1, 0.01), offsets=1, shape=(n, n)).maximum(0))
    W = sparse.csr_array((W + W.T) / 2)
    degree = W.sum(axis=0)
    normal = W.toarray() / np.sqrt(np.outer(degree, degree))
    exact = linalg.eigvalsh(normal)[::-1][:5]
    found = spectrum_of(W, 5)
    np.testing.assert_allclose(found.values, exact, atol=1e-7)
    vectors = found.nodes * np.sqrt(degree)[:, None]
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(5), atol=1e-6)
    np.testing.assert_allclose(normal @ vectors, vectors * found.values, atol=1e-5)


def test_equal_parts_of_a_graph_have_an_eigenvalue_each():
    """Lanczos' method alone finds one copy of an eigenvalue, and merges clusters that share no edge."""
    ring = sparse.diags_array([np.ones(699), np.ones(699)], offsets=[1, -1])
    W = sparse.csr_array(sparse.block_diag([ring] * 4))
    found = spectrum_of(W, 6)
    assert (found.values > 1 - 1e-9).sum() == 4
    part = np.repeat(np.arange(4), 700)
    for vector in found.nodes[:, :4].T:
        assert len(set(part[np.abs(vector) > 1e-9])) == 1


def test_isolated_nodes_do_no_harm():
    W = sparse.csr_array(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    found = spectrum_of(W, 3)
    assert np.isfinite(found.nodes).all()
    assert embed(code_rows(np.zeros((2, 2)), np.eye(2)), found.nodes[:2]).tolist() == np.zeros((2, 3)).tolist()


@pytest.mark.parametrize(
    ("values", "k"),
    [
        ([1.0], 1),
        ([1.0, 0.9], 2),
        ([1, 0.99, 0.98, 0.2], 3),
        ([1, 0.9, 0.2], 2),
        ([1, 1, 1, 0.98, 0.96, 0.9, 0.8, 0.5], 3),  # clear parts, whatever is below
        ([1, 0.98, 0.96, 0.93, 0.89, 0.6, 0.5], 5),  # none that are clear
    ],
)
def test_eigen_gap(values, k):
    assert count_by_eigengap(np.array(values, dtype=float)) == k


def test_clear_parts_are_counted_however_few_rows_join_each():
    """In a cone of 100 rows a wave along it is no cluster."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = np.vstack([rng.random((100, 3)) @ rng.standard_normal((3, 20)) for _ in range(3)])
        assert dca.SubspaceClustering().fit(X).n_clusters_ == 3
