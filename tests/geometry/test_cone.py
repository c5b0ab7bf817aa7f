"""Non-negative and simplex least squares against SciPy, row by row, and against brute force over supports."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize, nnls

from dask_dca.geometry import nnls as active_set
from dask_dca.geometry.nnls import (
    nonnegative_coefficients,
    nonnegative_from_gram,
    simplex_coefficients,
    simplex_from_gram,
)

THOROUGH = settings(max_examples=150, deadline=None)
FUNCTIONS = [nonnegative_coefficients, nonnegative_from_gram, simplex_coefficients, simplex_from_gram]


def bind(function, X, G):
    """What the function takes as rows, and the function of rows alone."""
    if "gram" in function.__name__:
        return X @ G.T, lambda products: function(G @ G.T, products)
    return X, lambda rows: function(rows, G)


def by_rows(X, G):
    return np.array([nnls(G.T, x, maxiter=1000)[0] for x in X]).reshape(len(X), len(G))


def nearest_by_supports(X, V):
    """The points of conv(V) nearest to X: the best feasible one among the projections on all faces."""
    nearest, best = np.full(X.shape, np.nan), np.full(len(X), np.inf)
    for size in range(1, len(V) + 1):
        for support in map(list, combinations(range(len(V)), size)):
            origin, *others = V[support]
            spanning = np.reshape(others, (size - 1, V.shape[1])) - origin
            inner = (X - origin) @ np.linalg.pinv(spanning)
            B = np.column_stack([1 - inner.sum(axis=1), inner])
            distances = np.where((B >= -1e-12).all(axis=1), np.linalg.norm(X - B @ V[support], axis=1), np.inf)
            closer = distances < best
            nearest[closer], best[closer] = (B @ V[support])[closer], distances[closer]
    return nearest


def conditioned(rng, k, p, condition):
    left = np.linalg.qr(rng.standard_normal((k, k)))[0]
    right = np.linalg.qr(rng.standard_normal((p, k)))[0]
    return left * np.geomspace(1, 1 / condition, k) @ right.T


def separable(rng, n, k, p, noise=0.05, alpha=0.3):
    """Rows in the cone of k generators, with relative noise."""
    G = rng.random((k, p))
    X = rng.dirichlet(np.full(k, alpha), n) @ G
    return X + noise * np.sqrt(np.mean(X**2)) * rng.standard_normal(X.shape), G


@st.composite
def problems(draw):
    """Rows, and generators that may be repeated, zero, dependent, more than the features."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, k, p = draw(st.integers(0, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    kind = draw(st.sampled_from(["integers", "non-negative integers", "normal", "inside"]))
    if kind == "normal":
        return rng.standard_normal((n, p)), rng.standard_normal((k, p))
    G = rng.integers(-2 if kind == "integers" else 0, 3, (k, p)) / 3
    if kind == "inside":
        return rng.integers(0, 2, (n, k)) @ G / k, G
    return rng.integers(-3, 4, (n, p)) / 4, G


class TestNonnegative:
    @THOROUGH
    @given(problems())
    def test_fits_like_scipy(self, problem):
        X, G = problem
        expected = by_rows(X, G)
        for F in (nonnegative_coefficients(X, G), nonnegative_from_gram(G @ G.T, X @ G.T)):
            assert F.dtype == np.float64
            assert F.shape == expected.shape
            assert (F >= 0).all()
            np.testing.assert_allclose(F @ G, expected @ G, rtol=0, atol=1e-8)

    @pytest.mark.parametrize("noise", [0.0, 1e-6, 0.05, 1.0])
    @pytest.mark.parametrize("condition", [10, 1e3, 1e5])
    def test_coefficients_of_ill_conditioned_generators(self, condition, noise):
        rng = np.random.default_rng(1)
        G = conditioned(rng, 10, 30, condition)
        X = rng.standard_normal((200, 10)).clip(min=0) @ G + noise * rng.standard_normal((200, 30)) / np.sqrt(30)
        np.testing.assert_allclose(nonnegative_coefficients(X, G), by_rows(X, G), rtol=0, atol=1e-8)

    def test_nearly_parallel_generators(self):
        """A generator that differs by 1e-5 from another has a multiplier of 1e-15 where it is needed."""
        G = np.array([[1.0, 0.0, 0.0], [1.0, 1e-5, 0.0], [0.0, 0.0, 1.0]])
        F = np.array([[0.5, 1e-4, 0.1], [0.0, 1e-5, 1.0], [1.0, 1e-6, 0.0]])
        np.testing.assert_allclose(nonnegative_coefficients(F @ G, G), F, rtol=0, atol=1e-10)

    def test_nearly_parallel_and_dependent_generators(self):
        """Only the third column reaches the target, by 5e-10, and its multiplier is 5e-17."""
        problem = active_set.prepare_problem(np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -5e-8]]), affine=False)
        np.testing.assert_array_equal(problem.free, [True, True, False])
        target = np.array([[1.0, -5e-10]])
        np.testing.assert_allclose(active_set.minimise(problem, target) @ problem.root.T, target, rtol=0, atol=1e-14)

    @pytest.mark.parametrize(("k", "p", "noise"), [(20, 60, 0.05), (20, 60, 0.5), (40, 50, 0.2), (60, 20, 0.2)])
    def test_larger_problems(self, k, p, noise):
        X, G = separable(np.random.default_rng(2), 300, k, p, noise)
        F = nonnegative_coefficients(X, G)
        np.testing.assert_allclose(F @ G, by_rows(X, G) @ G, rtol=0, atol=1e-10)

    def test_repeated_and_zero_generators(self):
        X, G = separable(np.random.default_rng(3), 100, 6, 15)
        F = nonnegative_coefficients(X, np.vstack([G[:3], np.zeros((2, 15)), G, G[2:3]]))
        assert (F[:, 3:5] == 0).all()
        merged = F[:, 5:11].copy()
        merged[:, :3] += F[:, :3]
        merged[:, 2] += F[:, 11]
        np.testing.assert_allclose(merged, by_rows(X, G), rtol=0, atol=1e-10)

    def test_zero_rows_and_only_zero_generators(self):
        X = np.array([[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]])
        np.testing.assert_array_equal(nonnegative_coefficients(X, np.eye(2)), X.clip(min=0))
        np.testing.assert_array_equal(nonnegative_coefficients(X, np.zeros((3, 2))), np.zeros((3, 3)))
        np.testing.assert_array_equal(nonnegative_from_gram(np.zeros((3, 3)), np.zeros((2, 3))), np.zeros((2, 3)))

    @pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e30])
    def test_units_do_not_matter(self, scale):
        X, G = separable(np.random.default_rng(4), 50, 5, 9)
        F = nonnegative_coefficients(X, G)
        np.testing.assert_allclose(nonnegative_coefficients(scale * X, G), scale * F, rtol=1e-10, atol=1e-14 * scale)
        np.testing.assert_allclose(nonnegative_coefficients(X, scale * G) * scale, F, rtol=1e-10, atol=1e-14)

    def test_ridge_in_gram_form(self):
        """A multiple of the identity on the Gram matrix is a ridge: extra features, zero in every row."""
        X, G = separable(np.random.default_rng(5), 50, 8, 6)
        ridged = nonnegative_from_gram(G @ G.T + 0.01 * np.eye(8), X @ G.T)
        padded = by_rows(np.hstack([X, np.zeros((50, 8))]), np.hstack([G, 0.1 * np.eye(8)]))
        np.testing.assert_allclose(ridged, padded, rtol=0, atol=1e-10)


class TestSimplex:
    @THOROUGH
    @given(problems())
    def test_nearest_point_by_brute_force(self, problem):
        X, V = problem
        expected = nearest_by_supports(X, V)
        for B in (simplex_coefficients(X, V), simplex_from_gram(V @ V.T, X @ V.T)):
            assert B.dtype == np.float64
            assert B.shape == (len(X), len(V))
            assert (B >= 0).all()
            np.testing.assert_allclose(B.sum(axis=1), 1.0, rtol=0, atol=1e-14)
            np.testing.assert_allclose(B @ V, expected, rtol=0, atol=1e-8)

    @pytest.mark.parametrize(("k", "p"), [(20, 60), (20, 19), (40, 10)])
    def test_optimality_conditions(self, k, p):
        """Seen from the row, no vertex lies before the nearest point; those with weight are level with it."""
        X, V = separable(np.random.default_rng(6), 300, k, p, noise=0.5)
        for B in (simplex_coefficients(X, V), simplex_from_gram(V @ V.T, X @ V.T)):
            slopes = (X - B @ V) @ V.T
            slopes -= (B * slopes).sum(axis=1, keepdims=True)
            assert slopes.max() <= 1e-12
            assert np.abs(slopes[B > 0]).max() <= 1e-8

    def test_like_slsqp(self):
        X, V = separable(np.random.default_rng(7), 5, 8, 20, noise=0.5)
        for x, b in zip(X, simplex_coefficients(X, V), strict=True):
            found = minimize(
                lambda c, x=x: ((x - c @ V) ** 2).sum(),
                np.full(8, 1 / 8),
                jac=lambda c, x=x: 2 * V @ (c @ V - x),
                method="SLSQP",
                bounds=[(0, 1)] * 8,
                constraints={"type": "eq", "fun": lambda c: c.sum() - 1, "jac": np.ones_like},
                options={"ftol": 1e-15, "maxiter": 500},
            )
            np.testing.assert_allclose(b, found.x, rtol=0, atol=1e-6)

    def test_affinely_independent_but_linearly_dependent_vertices(self):
        V = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        B = np.random.default_rng(8).dirichlet(np.ones(3), 20)
        np.testing.assert_allclose(simplex_coefficients(B @ V, V), B, rtol=0, atol=1e-13)

    def test_far_from_the_origin_and_far_from_the_vertices(self):
        rng = np.random.default_rng(9)
        V, X = rng.standard_normal((5, 7)), rng.standard_normal((40, 7))
        B = simplex_coefficients(X, V)
        np.testing.assert_allclose(simplex_coefficients(X + 1e4, V + 1e4), B, rtol=0, atol=1e-9)
        gram, products = (V + 100) @ (V + 100).T, (X + 100) @ (V + 100).T
        np.testing.assert_allclose(simplex_from_gram(gram, products), B, rtol=0, atol=1e-9)
        for far in (1e6 * X, 1e18 * X, 1e100 * X):
            extreme = np.eye(5)[(far @ V.T).argmax(axis=1)]
            np.testing.assert_array_equal(simplex_coefficients(far, V), extreme)
            np.testing.assert_array_equal(simplex_from_gram(V @ V.T, far @ V.T), extreme)

    def test_one_vertex_and_equal_vertices(self):
        X = np.array([[1.0, 2.0], [0.0, 0.0]])
        np.testing.assert_array_equal(simplex_coefficients(X, [[3.0, 4.0]]), np.ones((2, 1)))
        np.testing.assert_allclose(simplex_coefficients(X, np.full((3, 2), 0.1)).sum(axis=1), 1.0)
        np.testing.assert_array_equal(simplex_from_gram([[25.0]], [[11.0], [0.0]]), np.ones((2, 1)))


class TestBlocks:
    @pytest.mark.parametrize("function", FUNCTIONS)
    @pytest.mark.parametrize(("k", "copies"), [(4, 1), (12, 1), (12, 2), (4, 3)])
    def test_rows_do_not_depend_on_each_other(self, function, k, copies):
        """With repeated rows, or more than features, the minimiser is one of many, but always the same."""
        X, G = separable(np.random.default_rng(10), 60, k, 8, noise=0.3)
        rows, solve = bind(function, X, np.vstack([G] * copies))
        together, order = solve(rows), np.random.default_rng(0).permutation(60)
        np.testing.assert_allclose(solve(rows[order]), together[order], rtol=0, atol=1e-9)
        for size in (1, 7):
            parts = [solve(rows[start : start + size]) for start in range(0, 60, size)]
            np.testing.assert_allclose(np.vstack(parts), together, rtol=0, atol=1e-9)

    @pytest.mark.parametrize("function", FUNCTIONS)
    def test_block_pivoting_settles_well_conditioned_rows(self, function, monkeypatch):
        """The slower method is not called: this is what makes large blocks fast."""
        monkeypatch.setattr("dask_dca.geometry.nnls._active_set", pytest.fail)
        rows, solve = bind(function, *separable(np.random.default_rng(14), 2000, 15, 40))
        assert (solve(rows) >= 0).all()

    @pytest.mark.parametrize("function", FUNCTIONS)
    def test_supports_are_mostly_predicted(self, function, monkeypatch):
        """Each row's equations are solved once, mostly; two and a half times from the unconstrained minimum."""
        rng, solved, whole = np.random.default_rng(0), [], active_set._minimise_on_support
        G = rng.random((50, 300))
        X = rng.dirichlet(np.full(50, 0.1), 1000) @ G + 0.01 * rng.standard_normal((1000, 300))
        rows, solve = bind(function, X, G)
        monkeypatch.setattr(active_set, "_minimise_on_support", lambda *a: solved.append(len(a[1])) or whole(*a))
        assert (solve(rows) >= 0).all()
        assert sum(solved) < 1.3 * len(X)

    def test_more_rows_than_a_slab(self, monkeypatch):
        X, G = separable(np.random.default_rng(11), 500, 6, 9)
        G[5] = G[4]
        expected = nonnegative_coefficients(X, G)
        monkeypatch.setattr("dask_dca.geometry.nnls._SLAB_BYTES", 2**14)
        np.testing.assert_allclose(nonnegative_coefficients(X, G), expected, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, np.float32])
    def test_dtypes_and_sparse_rows(self, dtype):
        rng = np.random.default_rng(12)
        X, G = rng.integers(0, 5, (30, 8)).astype(dtype), rng.integers(0, 5, (4, 8)).astype(dtype)
        wide = X.astype(np.float64), G.astype(np.float64)
        for function in (nonnegative_coefficients, simplex_coefficients):
            expected = function(*wide)
            np.testing.assert_allclose(function(X, G), expected, rtol=0, atol=1e-13)
            if dtype != np.float16:
                np.testing.assert_allclose(function(sparse.csr_array(X), G), expected, rtol=0, atol=1e-13)

    def test_cycles_of_block_pivoting_are_broken(self, monkeypatch):
        """With no round of block pivoting to spare, Lawson and Hanson's method does all the work."""
        X, G = separable(np.random.default_rng(13), 100, 12, 30, noise=0.5)
        expected = nonnegative_coefficients(X, G), simplex_coefficients(X, G)
        monkeypatch.setattr("dask_dca.geometry.nnls._MAX_PIVOTING_ROUNDS", 1)
        np.testing.assert_allclose(nonnegative_coefficients(X, G), expected[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(simplex_coefficients(X, G), expected[1], rtol=0, atol=1e-12)
        np.testing.assert_allclose(expected[0], by_rows(X, G), rtol=0, atol=1e-12)

    @THOROUGH
    @given(problems())
    @example((np.zeros((1, 1)), np.zeros((1, 1))))
    @example((np.ones((2, 3)), np.ones((4, 3))))
    def test_no_row_runs_into_the_limit_of_rounds(self, problem):
        X, G = problem
        projection, rounds = active_set._project_by_qr, 0

        def counted(*args):
            nonlocal rounds
            rounds += 1
            return projection(*args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(active_set, "_project_by_qr", counted)
            for affine in (False, True):
                rounds = 0
                active_set.minimise(active_set.prepare_problem(G.T, affine=affine), X)
                assert rounds <= 3 * len(G) + 3


class TestUnusableInput:
    @pytest.mark.parametrize("function", [nonnegative_coefficients, simplex_coefficients])
    def test_rows(self, function):
        with pytest.raises(ValueError, match=r"expected rows of 2 columns, got an array of shape \(3, 3\)"):
            function(np.eye(3), np.eye(2))
        with pytest.raises(ValueError, match=r"got an array of shape \(2,\)"):
            function(np.ones(2), np.eye(2))
        for value in (np.nan, np.inf, 1e200):
            with pytest.raises(ValueError, match="row 1 has entries that are NaN, infinite or too large"):
                function([[1.0, 2.0], [0.0, value]], np.eye(2))

    @pytest.mark.parametrize("function", [nonnegative_coefficients, simplex_coefficients])
    def test_generators(self, function):
        with pytest.raises(ValueError, match="NaN or infinite"):
            function(np.ones((2, 2)), [[1.0, np.nan]])
        with pytest.raises(ValueError, match="must be a matrix with at least one entry"):
            function(np.ones((2, 2)), np.ones(2))
        with pytest.raises(ValueError, match="must be a matrix with at least one entry"):
            function(np.ones((2, 2)), np.ones((0, 2)))

    @pytest.mark.parametrize("function", [nonnegative_from_gram, simplex_from_gram])
    def test_gram(self, function):
        with pytest.raises(ValueError, match=r"gram must be square, got an array of shape \(2, 3\)"):
            function(np.ones((2, 3)), np.ones((4, 2)))
        with pytest.raises(ValueError, match="gram has entries that are NaN"):
            function([[np.nan]], [[1.0]])
        with pytest.raises(ValueError, match="expected rows of 2 columns"):
            function(np.eye(2), np.ones((4, 3)))
