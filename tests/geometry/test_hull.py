"""Planar hulls against hand-made examples and exact brute force on integer points."""

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from dask_dca.geometry.separation import axis_angles, planar_hull, pointed_extent

THOROUGH = settings(max_examples=150, deadline=None)
COORDINATES = st.integers(-6, 6)
POINTS = st.lists(st.tuples(COORDINATES, COORDINATES), min_size=1, max_size=7)
# to the right of the vertical axis: angles to it increase clockwise
RIGHT = st.lists(st.tuples(st.integers(1, 9), COORDINATES), min_size=1, max_size=6)


def cross(a, b):
    return a[0] * b[1] - a[1] * b[0]


def dot(a, b):
    return a[0] * b[0] + a[1] * b[1]


def between(x, a, b):
    """Whether x is in cone({a, b}), exactly, for points in an open half-plane."""
    turn = cross(a, b)
    return cross(a, x) == 0 if turn == 0 else turn * cross(a, x) >= 0 and turn * cross(x, b) >= 0


def covers(pair, Y, X):
    return all(between(x, Y[pair[0]], Y[pair[1]]) for x in X)


def is_minimal_hull(X, Y, A):
    """
    The paper's definition for two anchors: Y_A covers X, and every other row that could replace an anchor is
    further in angle from all rows of X. (Replacements that leave rows of X uncovered must not count, or else
    even the extremes of X = Y violate the definition.) Rows parallel to the anchor are the same generator.
    """
    return covers(A, Y, X) and all(
        further(x, Y[i], Y[j])
        for j, kept in (A, A[::-1])
        for i in range(len(Y))
        if cross(Y[i], Y[j]) != 0 and covers((i, kept), Y, X)
        for x in X
    )


def further(x, a, b):
    """Whether the angle from x to a exceeds that from x to b, all in an open half-plane."""

    def tangent(v):
        return np.arctan2(abs(cross(x, v)), dot(x, v))

    return tangent(a) > tangent(b)


def first_parallel(Y, i):
    """The lowest row on the ray of row i."""
    return next(j for j, y in enumerate(Y) if any(y) and cross(y, Y[i]) == 0 and dot(y, Y[i]) > 0)


class TestAxisAngles:
    def test_known_angles(self):
        points = [[1.0, 0.0], [1.0, 1.0], [0.0, 2.0], [-3.0, 0.0], [1.0, -1.0]]
        np.testing.assert_allclose(np.degrees(axis_angles(points, (1.0, 0.0))), [0, 45, 90, 180, 45])
        np.testing.assert_allclose(np.degrees(axis_angles(points)), [90, 45, 0, 90, 135])

    def test_points_at_the_origin_are_nan(self):
        assert np.isnan(axis_angles([[0.0, 0.0], [-0.0, 0.0]])).all()
        assert axis_angles(np.empty((0, 2))).shape == (0,)

    def test_small_angles_keep_their_digits(self):
        points = np.array([[1e-9, 1.0], [2e-9, 1.0], [1e-9, -1.0]])
        np.testing.assert_allclose(axis_angles(points), [1e-9, 2e-9, np.pi - 1e-9], rtol=1e-14)

    @THOROUGH
    @given(POINTS, st.tuples(COORDINATES, COORDINATES).filter(any))
    def test_cosine_is_the_papers(self, points, axis):
        points = np.array([p for p in points if any(p)], dtype=np.float32).reshape(-1, 2)
        angles = axis_angles(points, axis)
        assert angles.dtype == np.float64
        assert ((angles >= 0) & (angles <= np.pi)).all()
        cosines = points @ np.array(axis) / np.linalg.norm(points, axis=1) / np.linalg.norm(axis)
        np.testing.assert_allclose(np.cos(angles), cosines, atol=1e-6)

    @pytest.mark.parametrize("axis", [(0.0, 0.0), (1.0, 0.0, 0.0), 3.0])
    def test_bad_axis(self, axis):
        with pytest.raises(ValueError, match="axis must be a non-zero vector"):
            axis_angles([[1.0, 2.0]], axis)

    @pytest.mark.parametrize("points", [[1.0, 2.0], [[1.0, 2.0, 3.0]]])
    def test_bad_points(self, points):
        for function in (axis_angles, planar_hull, pointed_extent):
            with pytest.raises(ValueError, match=r"expected points of shape \(n, 2\)"):
                function(points)


class TestPlanarHull:
    def test_extremes_of_one_set(self):
        X = [[1.0, 1.0], [0.0, 0.0], [1.0, 8.0], [1.0, -2.0], [1.0, 0.0]]
        assert planar_hull(X) == (2, 3)
        assert planar_hull(X, axis=(0.0, -1.0)) == (3, 2)

    def test_closest_rows_that_cover_the_others(self):
        #    angles to the vertical: 45, 63.4 degrees
        X = [[1.0, 1.0], [0.0, 0.0], [2.0, 1.0]]
        Y = [[1.0, 9.0], [1.0, 2.0], [3.0, 2.0], [0.0, 0.0], [3.0, 1.0], [1.0, -1.0]]
        assert planar_hull(X, Y) == (1, 4)
        assert planar_hull(X, Y[::-1]) == (4, 1)

    def test_a_row_on_the_same_ray_covers(self):
        X = [[1.0, 1.0], [2.0, 1.0]]
        assert planar_hull(X, [[1.0, 9.0], [3.0, 3.0], [4.0, 2.0], [1.0, -1.0]]) == (1, 2)

    def test_no_row_qualifies(self):
        X = [[1.0, 1.0], [2.0, 1.0]]
        assert planar_hull(X, [[3.0, 2.0]]) == (-1, -1)
        assert planar_hull(X, [[3.0, 2.0], [1.0, 5.0]]) == (1, -1)
        assert planar_hull(X, [[3.0, 2.0], [5.0, 1.0]]) == (-1, 1)

    def test_nothing_to_cover_or_to_choose_from(self):
        none, zero, some = np.empty((0, 2)), np.zeros((2, 2)), np.ones((2, 2))
        for empty in (none, zero):
            assert planar_hull(empty) == (-1, -1)
            assert planar_hull(some, empty) == (-1, -1)
            assert planar_hull(empty, some) == (-1, -1)

    def test_ties_go_to_the_lower_row(self):
        X = [[1, 2], [3, 1], [3, 6], [9, 3], [2, 4]]
        assert planar_hull(X) == (0, 1)
        assert planar_hull(X[::-1]) == (0, 1)
        assert planar_hull([[1, 1]], [*X, *X]) == (0, 1)

    def test_unsigned_angles_fold_the_plane(self):
        """On both sides of the axis the paper's formula is not the hull: why planes need a reference axis."""
        X = [(1, 3), (-1, 1), (2, 3)]
        assert planar_hull(X) == (0, 1)  # the extremes are rows 2 and 1
        assert not is_minimal_hull(X, X, planar_hull(X))
        assert planar_hull(X, axis=(1.0, 0.0)) == (2, 1)
        assert is_minimal_hull(X, X, (2, 1))

    @THOROUGH
    @given(RIGHT)
    def test_brute_force_on_one_set(self, X):
        low, high = planar_hull(X)
        assert covers((low, high), X, X)
        assert (low, high) == (first_parallel(X, low), first_parallel(X, high))
        assert cross(X[low], X[high]) <= 0  # `low` is nearer the vertical
        assert is_minimal_hull(X, X, (low, high)) or cross(X[low], X[high]) == 0

    @THOROUGH
    @given(RIGHT, RIGHT)
    @example([(1, 1)], [(1, 1)])
    @example([(1, 1), (2, 1)], [(1, 1), (3, 2), (2, 1), (1, 0)])
    def test_brute_force_over_all_pairs(self, X, Y):
        """The answer is the covering pair that every other covering pair covers, and none if none covers."""
        low, high = planar_hull(X, Y)
        pairs = [pair for pair in product(range(len(Y)), repeat=2) if covers(pair, Y, X)]
        assert bool(pairs) == (min(low, high) >= 0)
        if not pairs:
            return
        assert (low, high) in pairs
        assert all(covers(pair, Y, [Y[low], Y[high]]) for pair in pairs)
        assert (low, high) == (first_parallel(Y, low), first_parallel(Y, high))
        assert cross(Y[low], Y[high]) <= 0

    # most pairs have no hull, or one anchor is enough: they are left out, and others drawn
    @settings(THOROUGH, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
    @given(RIGHT, RIGHT)
    def test_the_papers_definition(self, X, Y):
        low, high = planar_hull(X, Y)
        assume(min(low, high) >= 0)
        # an anchor that covers all of X alone makes the other one arbitrary
        assume(not any(covers((a, a), Y, X) for a in (low, high)))
        assert is_minimal_hull(X, Y, (low, high))
        minimal = {
            tuple(sorted((first_parallel(Y, i), first_parallel(Y, j))))
            for i, j in product(range(len(Y)), repeat=2)
            if is_minimal_hull(X, Y, (i, j))
        }
        assert minimal == {tuple(sorted((low, high)))}

    @THOROUGH
    @given(RIGHT, RIGHT, st.integers(1, 7), st.integers(1, 7))
    def test_lengths_do_not_matter(self, X, Y, s, t):
        scaled = planar_hull(np.array(X) * s, np.array(Y) * t)
        assert scaled == planar_hull(X, Y)


class TestPointedExtent:
    def test_across_the_branch_cut_of_the_angle(self):
        assert pointed_extent([[-1, -1], [-2, 1], [-1, 0]]) == (1, 0, True)
        assert pointed_extent([[-2.0, 0.0], [-1.0, -0.0], [-1.0, 1.0]]) == (2, 0, True)

    def test_one_ray(self):
        assert pointed_extent([[0, 0], [2, 4], [1, 2]]) == (1, 1, True)

    @pytest.mark.parametrize(
        "points",
        [
            np.empty((0, 2)),
            np.zeros((3, 2)),
            [[1, 0], [-1, 0]],
            [[1, 2], [-1, -2], [2, 1]],
            [[1, 0], [0, 1], [-1, 0]],
            [[1, 0], [-1, 2], [-1, -2]],
        ],
        ids=["none", "zero", "line", "line and point", "half-plane", "whole plane"],
    )
    def test_not_pointed(self, points):
        assert pointed_extent(points) == (-1, -1, False)

    @THOROUGH
    @given(POINTS)
    @example([(1, 0), (1, 6), (-6, 1), (-5, 0)])
    def test_brute_force(self, points):
        """Pointed iff some pair, less than a half turn apart, has all others between them; exact integers."""
        rows = [i for i, p in enumerate(points) if any(p)]
        pairs = {
            (first_parallel(points, i), first_parallel(points, j))
            for i, j in product(rows, repeat=2)
            if (cross(points[i], points[j]) > 0 or first_parallel(points, i) == first_parallel(points, j))
            and all(inside(points[m], points[i], points[j]) for m in rows)
        }
        assert len(pairs) <= 1
        low, high, pointed = pointed_extent(points)
        assert pointed == bool(pairs)
        assert (low, high) == (pairs.pop() if pairs else (-1, -1))

    @THOROUGH
    @given(POINTS, st.integers(1, 9), st.integers(0, 6))
    def test_lengths_and_order(self, points, scale, shift):
        low, high, pointed = pointed_extent(points)
        assert pointed_extent(np.array(points).reshape(-1, 2) * scale) == (low, high, pointed)
        moved = points[shift:] + points[:shift]
        assert pointed_extent(moved)[2] == pointed
        if pointed:
            a, b, _ = pointed_extent(moved)
            assert cross(moved[a], points[low]) == cross(moved[b], points[high]) == 0

    @THOROUGH
    @given(RIGHT)
    def test_agrees_with_the_papers_formula_on_one_side(self, points):
        """Counter-clockwise is from the greatest to the least angle to the vertical."""
        low, high = planar_hull(points)
        assert pointed_extent(points) == (high, low, True)


def inside(x, a, b):
    """Whether x lies on the counter-clockwise arc from a to b of less than a half turn, exactly."""
    if cross(a, b) == 0:
        return cross(a, x) == 0 and dot(a, x) > 0
    return cross(a, x) >= 0 and cross(x, b) >= 0
