"""MCH(X, Y) against brute force over subsets of Y, the closed form in the plane, and the LP test where X = Y."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dask_dca.geometry.separation import COVERING_SOLVERS, covering_rows, minimal_hull, planar_hull, pursue
from dask_dca.geometry.solvers import backward_removal, cone_distance

SOLVERS = pytest.mark.parametrize("solver", COVERING_SOLVERS)


def covers(X, generators):
    return all(cone_distance(x, generators) < 1e-6 for x in X)


def distance(y, X):
    """Sine of the angle between a row and the cone of X, by brute force over its faces of up to d rays."""
    y = y / np.linalg.norm(y)
    nearest = 1.0
    for size in range(1, X.shape[1] + 1):
        for face in itertools.combinations(X, size):
            G = np.array(face)
            share = np.linalg.lstsq(G.T, y, rcond=None)[0]
            if (share >= -1e-12).all():
                nearest = min(nearest, float(np.linalg.norm(y - share @ G)))
    return nearest


def points(seed, n, d, spread):
    """Rows around one direction; so cones are pointed where the spread is small."""
    rng = np.random.default_rng(seed)
    return np.hstack([np.ones((n, 1)), spread * rng.standard_normal((n, d - 1))]) * np.exp(rng.standard_normal((n, 1)))


@SOLVERS
@pytest.mark.parametrize("d", [2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_found_covers_and_none_of_it_can_be_left_out(solver, d, seed):
    X, Y = points(seed, 6, d, 0.3), points(100 + seed, 14, d, 1.5)
    found = covering_rows(solver, X, Y)
    some = [x for x in X if cone_distance(x, Y) < 1e-9]  # what all of Y covers
    assert covers(some, Y[found])
    for j in found:
        assert not covers(some, Y[found[found != j]])


@pytest.mark.parametrize("d", [3, 4])
@pytest.mark.parametrize("seed", range(8))
def test_no_row_can_be_exchanged_for_a_nearer_one(d, seed):
    """The paper's definition, by brute force: whatever else could replace an anchor is further from X."""
    X, Y = points(seed, 5, d, 0.2), points(200 + seed, 12, d, 1.5)
    assume_covered = covers(X, Y)
    found = minimal_hull(X, Y)
    away = [distance(y, X) for y in Y]
    tried = 0
    for j in found:
        for i in np.setdiff1d(np.arange(len(Y)), found):
            if assume_covered and away[i] < away[j] - 1e-6:
                tried += 1
                assert not covers(X, Y[[*found[found != j], i]])
    assert tried or not assume_covered or len(found) == d


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(-9, 9)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 9), st.integers(-9, 9)), min_size=2, max_size=8),
)
@example([(1, 1)], [(1, -2), (1, -1), (1, 2)])  # both rows on the low side are beyond a right angle
@settings(max_examples=60)
def test_in_the_plane_it_is_the_papers_closed_form(X, Y):
    low, high = planar_hull(X, Y)
    assume(min(low, high) >= 0)
    first, second = np.array(Y)[[low, high]]
    assume(first[0] * second[1] != first[1] * second[0])
    assume(not any(covers(np.array(X, float), np.array([y], float)) for y in (first, second)))  # one would do
    assert minimal_hull(X, Y).tolist() == sorted((low, high))


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_where_x_is_y_it_is_the_lp_test(d, seed):
    X = points(seed, 15, d, 1.0)
    np.testing.assert_array_equal(minimal_hull(X, X), backward_removal(X))
    assert set(pursue(X, X).tolist()) == set(backward_removal(X).tolist())


@SOLVERS
@pytest.mark.parametrize("seed", range(4))
def test_planted_anchors_are_found_among_rows_inside_and_far_out(solver, seed):
    rng = np.random.default_rng(seed)
    rays = np.eye(4) + 0.1 * rng.random((4, 4))
    inside, X = rng.dirichlet(np.ones(4), 20) @ rays, rng.dirichlet(np.full(4, 0.1), 60) @ rays
    X = np.vstack([X, rays])
    beyond = rays - 0.5 * rays.mean(axis=0)
    Y = np.vstack([beyond, inside, rays, -inside])
    found = covering_rows(solver, X, Y)
    assert found.tolist() == [24, 25, 26, 27]


def test_scaled_copies_and_useless_rows():
    Y = [[0.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.0, 3.0], [0.0, 1.0], [-1.0, -1.0]]
    assert minimal_hull([[1.0, 1.0], [0.0, 0.0]], Y).tolist() == [1, 3]
    assert pursue([[1.0, 1.0]], Y, 6).tolist() == [1, 3]
    assert minimal_hull([[2.0, 0.0]], Y).tolist() == pursue([[2.0, 0.0]], Y).tolist() == [1]
    assert pursue([[1.0, 1.0]], Y, 1).tolist() == [1]
    assert minimal_hull([[-5.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]).tolist() == []  # nothing of X can be covered
    assert pursue([[-5.0, -1.0]], [[1.0, 0.0], [0.0, 1.0]], 2).tolist() == []
    with pytest.raises(ValueError, match="unknown solver 'spa' of MCH"):
        covering_rows("spa", Y, Y)
