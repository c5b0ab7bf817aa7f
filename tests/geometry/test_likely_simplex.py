"""The likeliest simplex: planted ones under noise, whatever rows crowd at; and when there is none."""

import numpy as np
import pytest

from dask_dca.geometry.simplex import enclosing_simplex, likely_simplex

TRIANGLE = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])


def cloud(concentration=1.0, noise=0.03, n=4000, seed=0):
    """Points of a triangle, none of them near a corner, and the simplex that the outermost ones say."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(3, concentration), 3 * n)
    points = shares[shares.max(axis=1) < 0.85][:n] @ TRIANGLE
    points += noise * rng.standard_normal(points.shape)
    return points, enclosing_simplex(points, 0.8 * TRIANGLE + 0.2 * TRIANGLE.mean(axis=0), 1.25 * noise).vertices


def error(found):
    return np.linalg.norm(found[:, None] - TRIANGLE, axis=2).min(axis=0).max()


@pytest.mark.parametrize("concentration", [1.0, 0.5, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_nearer_than_the_smallest_around_the_outermost(concentration, seed):
    points, start = cloud(concentration, seed=seed)
    found = likely_simplex(points, np.full(len(points), 0.03), start)
    assert error(found) < 0.06


def test_without_noise_it_is_exact():
    points, start = cloud(noise=0.0)
    assert error(likely_simplex(points, np.zeros(len(points)), start)) < 4e-3


def test_points_of_more_noise_weigh_less():
    rng = np.random.default_rng(1)
    points, start = cloud()
    noise = np.full(len(points), 0.03)
    some = rng.choice(len(points), len(points) // 2, replace=False)
    points[some] += 0.3 * rng.standard_normal((len(some), 2))
    alike = likely_simplex(points, noise, start)
    noise[some] = np.hypot(0.03, 0.3)
    assert error(likely_simplex(points, noise, start)) < 0.06
    assert alike is None or error(alike) > 0.06


@pytest.mark.parametrize("seed", range(2))
def test_points_near_a_vertex_may_be_lacking(seed):
    """Faces then have fewer points than their size says, as if shares were scarce at all of them."""
    corners = np.vstack([np.zeros(4), np.eye(4)])
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(5), 20_000)
    points = shares[shares.max(axis=1) < 0.6][:4000] @ corners
    points += 0.008 * rng.standard_normal(points.shape)
    found = likely_simplex(points, np.full(4000, 0.008), 1.1 * corners)
    assert np.linalg.norm(found[:, None] - corners, axis=2).min(axis=0).max() < 0.03


def test_few_points_that_are_no_mixtures_move_it_little():
    points, start = cloud()
    noise = np.full(len(points), 0.03)
    clean = likely_simplex(points, noise, start)
    points[:3] = [[3.0, 3.0], [-3.0, 1.0], [1.0, -4.0]]
    np.testing.assert_allclose(likely_simplex(points, noise, start), clean, atol=0.1)


def test_units_do_not_matter():
    points, start = cloud()
    noise = np.full(len(points), 0.03)
    scaled = likely_simplex(2.0**-30 * points, 2.0**-30 * noise, 2.0**-30 * start)
    np.testing.assert_allclose(2.0**30 * scaled, likely_simplex(points, noise, start), atol=1e-4)


def test_there_is_none_where_noise_is_as_great():
    corners = np.vstack([np.zeros(9), np.eye(9)])
    rng = np.random.default_rng(0)
    points = rng.dirichlet(np.ones(10), 2000) @ corners + 0.2 * rng.standard_normal((2000, 9))
    assert likely_simplex(points, np.full(2000, 0.2), corners) is None


def test_there_is_none_around_points_that_are_few_or_in_a_line():
    points, start = cloud(n=100)
    assert likely_simplex(points[:3], np.full(3, 0.03), start) is None
    assert likely_simplex(points * [1.0, 0.0], np.full(100, 0.03), start) is None
