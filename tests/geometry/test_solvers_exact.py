"""XRAY, the LP test and greedy cover against brute force, and what the paper says of the problem."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from dask_dca.geometry import solvers
from dask_dca.geometry.solvers import (
    SOLVERS,
    XRAY_RULES,
    backward_removal,
    cone_distance,
    cover,
    covered_energy,
    greedy_cover,
    solve,
    xray,
)

SLICE = st.integers(0, 10**6)


def small_cone(seed, n, d):
    """Rows (1, y), y on a small grid: many lie in each other's cone, and many are equal."""
    rng = np.random.default_rng(seed)
    return np.hstack([np.ones((n, 1)), rng.integers(-3, 4, (n, d - 1)).astype(float)])


def covers(P, chosen):
    """Whether all rows are in the cone of some, by linear programs."""
    return all(linprog(np.zeros(len(chosen)), A_eq=P[chosen].T, b_eq=x, method="highs").status == 0 for x in P)


def least_hull(P):
    """The minimum conical hull by trying all sets of rows, smallest first; the first of equal rows."""
    distinct = sorted(np.unique(P, axis=0, return_index=True)[1].tolist())
    for size in range(1, len(distinct) + 1):
        for chosen in combinations(distinct, size):
            if covers(P, list(chosen)):
                return list(chosen)
    raise AssertionError


def separable(seed, n, k, p, alpha=1.0):
    rng = np.random.default_rng(seed)
    F = np.vstack([np.eye(k), rng.dirichlet(np.full(k, alpha), n - k)])
    order = rng.permutation(n)
    return (F @ rng.random((k, p)))[order], np.sort(np.argsort(order)[:k])


@given(seed=SLICE, n=st.integers(1, 7), d=st.integers(2, 4), planes=st.booleans())
@settings(max_examples=15)
def test_backward_removal_is_the_least_hull(seed, n, d, planes):
    P = small_cone(seed, n, d)
    assert backward_removal(P, planes=planes).tolist() == least_hull(P)


@given(seed=SLICE, n=st.integers(1, 7), d=st.integers(2, 3))
@settings(max_examples=12)
def test_greedy_cover_ends_with_the_least_hull(seed, n, d):
    P = small_cone(seed, n, d)
    found = greedy_cover(P)
    assert cover(P, found) == n
    assert np.array_equal(np.unique(P[found], axis=0), np.unique(P[least_hull(P)], axis=0))


@given(seed=SLICE, n=st.integers(2, 30), d=st.integers(2, 6), planes=st.booleans())
@settings(max_examples=10)
def test_what_is_left_is_simplicial_and_spans_the_cone(seed, n, d, planes):
    """The paper's definition, for rows of any sign, also where the cone holds lines."""
    P = np.random.default_rng(seed).standard_normal((n, d))
    found = backward_removal(P, planes=planes)
    assert cover(P, found, tolerance=1e-6) == n
    assert all(cone_distance(P[i], P[found[found != i]]) > 1e-8 for i in found)


@pytest.mark.parametrize("rule", XRAY_RULES)
@pytest.mark.parametrize("seed", range(5))
def test_xray_finds_the_rays_of_separable_rows(rule, seed):
    X, anchors = separable(seed, 120, 6, 20)
    assert sorted(xray(X, 6, rule=rule, seed=seed)) == anchors.tolist()


@pytest.mark.parametrize("rule", XRAY_RULES)
def test_xray_finds_more_rays_than_dimensions_and_stops(rule):
    angles = np.linspace(0, 2 * np.pi, 9)[:-1]
    circle = np.column_stack([np.ones(8), np.cos(angles), np.sin(angles)])
    rng = np.random.default_rng(0)
    P = np.vstack([rng.dirichlet(np.ones(8), 40) @ circle, circle])
    assert sorted(xray(P, 20, rule=rule, heights=P[:, 0])) == list(range(40, 48))


def test_the_rules_of_xray_differ():
    X, _ = separable(3, 200, 8, 30)
    X = X + 0.05 * np.random.default_rng(1).standard_normal(X.shape)
    assert len({tuple(xray(X, 8, rule=rule)) for rule in XRAY_RULES}) == 3
    assert xray(X, 8, rule="rand", seed=1).tolist() == xray(X, 8, rule="rand", seed=1).tolist()
    assert xray(X, 8, rule="rand", seed=1).tolist() != xray(X, 8, rule="rand", seed=2).tolist()
    with pytest.raises(ValueError, match="unknown rule 'min'"):
        xray(X, 8, rule="min")


def test_dist_is_its_definition(monkeypatch):
    """The row whose residual has the greatest positive products with all rows, whatever the slabs."""
    X, _ = separable(4, 60, 5, 12)
    first = int((np.maximum(X @ X.T, 0) ** 2).sum(axis=1).argmax())
    expected = int(((X @ X[first]) / X.sum(axis=1)).argmax())
    assert xray(X, 1, rule="dist").tolist() == [expected]
    whole = xray(X, 5, rule="dist").tolist()
    monkeypatch.setattr(solvers, "_SLAB_ENTRIES", 100)
    assert xray(X, 5, rule="dist").tolist() == whole


@pytest.mark.parametrize("seed", range(4))
def test_every_solver_finds_the_anchors_of_separable_rows(seed):
    X, anchors = separable(seed, 80, 5, 5)
    axis = np.linalg.lstsq(X[anchors], np.ones(5), rcond=None)[0]
    turn = np.linalg.qr(np.column_stack([axis, np.eye(5)[:, :4]]))[0]
    turn[:, 0] = axis
    points = X @ turn
    assert (points[:, 0] > 0).all()
    for name in SOLVERS:
        assert sorted(solve(name, points, 5, seed)) == anchors.tolist(), name


def test_an_unknown_solver_is_named():
    with pytest.raises(ValueError, match="unknown solver 'sfo'; use one of 'spa'"):
        solve("sfo", np.ones((2, 2)), 1)


@pytest.mark.parametrize("solver", [backward_removal, greedy_cover])
def test_duplicates_scaled_copies_and_zero_rows(solver):
    X, anchors = separable(0, 30, 4, 6)
    P = np.vstack([np.zeros((2, 6)), X, 2.0 * X, np.zeros((1, 6))])
    found = np.sort(solver(P))
    rays = P[found] / np.linalg.norm(P[found], axis=1)[:, None]
    expected = X[anchors] / np.linalg.norm(X[anchors], axis=1)[:, None]
    np.testing.assert_allclose(rays[np.argsort(rays[:, 0])], expected[np.argsort(expected[:, 0])], atol=1e-12)
    if solver is backward_removal:
        assert found.tolist() == (anchors + 2).tolist()
    assert len(solver(np.zeros((3, 4)))) == 0


def test_backward_removal_keeps_the_furthest_of_noisy_rows():
    X, anchors = separable(1, 60, 4, 10)
    X = X + 1e-3 * np.random.default_rng(0).standard_normal(X.shape)
    assert len(backward_removal(X)) > 20
    assert len(set(backward_removal(X, 4)) & set(anchors)) >= 3
    with pytest.raises(ValueError, match="NaN"):
        backward_removal([[np.nan, 1.0]])


def test_planes_leave_few_rows_to_linear_programs(monkeypatch):
    """DCA as a subroutine: the same rows, and hardly a linear program where one a row was needed."""
    from dask_dca.geometry import solvers as lp

    counted = []
    monkeypatch.setattr(lp, "linprog", lambda *args, **kwargs: counted.append(1) or linprog(*args, **kwargs))
    X, anchors = separable(2, 150, 5, 12)
    assert backward_removal(X, planes=False).tolist() == anchors.tolist()
    assert len(counted) == 150
    counted.clear()
    assert backward_removal(X).tolist() == anchors.tolist()
    assert len(counted) <= 5


def test_cone_distance_is_the_greatest_difference():
    assert cone_distance([3.0, -1.0], [[1.0, 0.0]]) == pytest.approx(1 / 3)
    assert cone_distance([1e200, 1e200], [[1e-200, 1e-200]]) == pytest.approx(0.0, abs=1e-12)
    assert cone_distance([0.0, 0.0], [[1.0, 0.0]]) == 0.0
    assert cone_distance([1.0, 2.0], np.zeros((0, 2))) == pytest.approx(1.0)


# --- what the paper says ---------------------------------------------------------------------------------------


@given(seed=SLICE, p=st.integers(3, 8), k=st.integers(2, 9), d=st.integers(1, 3))
@settings(max_examples=40)
def test_projected_points_stay_in_the_cone_of_some_anchors(seed, p, k, d):
    """Lemma: x in cone(Y_A) gives x Phi in cone of some of the projected anchors, for any Phi."""
    rng = np.random.default_rng(seed)
    anchors, Phi = rng.standard_normal((k, p)), rng.standard_normal((p, d))
    some = backward_removal(anchors @ Phi)
    inside = rng.dirichlet(np.ones(k), 20) @ anchors
    assert cover(np.vstack([anchors[some] @ Phi, inside @ Phi]), np.arange(len(some)), tolerance=1e-6) == len(some) + 20


def increments(P, independent, chosen, extra):
    def f(A):
        return cover(P, [*independent, *A])

    return f([*chosen, extra]) - f(chosen)


@given(seed=SLICE, n=st.integers(4, 6))
@settings(max_examples=5)
def test_the_cover_is_submodular_in_the_plane(seed, n):
    P = np.hstack([np.ones((n, 1)), np.random.default_rng(seed).integers(-9, 10, (n, 1)).astype(float)])
    low, high = np.sort(np.unique(P[:, 1], return_index=True)[1])[[0, -1]]
    for a, b in combinations(range(n), 2):
        for c in range(n):
            assert increments(P, [low, high], [a], c) >= increments(P, [low, high], [a, b], c)


def test_the_cover_is_not_submodular_in_three_dimensions():
    """Two rows cover what lies between them, and neither does so with three independent rows alone."""
    P = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 2, 2], [1, 2, -1], [1, 2, 0.5]], dtype=float)
    independent, a, b = [0, 1, 2], 3, 4
    assert np.linalg.matrix_rank(P[independent]) == 3
    assert increments(P, independent, [], b) == 1
    assert increments(P, independent, [a], b) == 2


def test_independent_rows_to_start_from_are_dropped_where_they_are_of_no_use():
    rng = np.random.default_rng(5)
    angles = np.linspace(0, 2 * np.pi, 7)[:-1]
    circle = np.column_stack([np.ones(6), np.cos(angles), np.sin(angles)])
    P = np.vstack([rng.dirichlet(np.ones(6), 30) @ circle, circle])
    assert sorted(greedy_cover(P, independent=[0, 1, 2])) == list(range(30, 36))


def test_energy_is_covered_in_full_where_all_rows_are():
    X, anchors = separable(6, 40, 4, 8)
    assert cover(X, anchors) == 40
    assert covered_energy(X, anchors) == pytest.approx(1.0)
    assert covered_energy(X, anchors[:2]) < 1.0
    assert covered_energy(X, []) == 0.0
