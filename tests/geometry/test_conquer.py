"""The steps of the conquer stage that look beyond votes: XRAY on rows, and widening the simplex of the anchors."""

import itertools

import numpy as np
import pytest

from dask_dca.geometry.solvers import successive_projection, xray
from dask_dca.geometry.votes import widen_simplex


def planted(seed, n=60, p=12, k=5):
    rng = np.random.default_rng(seed)
    rays = rng.random((k, p))
    rows = np.vstack([rays, rng.dirichlet(np.ones(k), n) @ rays])
    order = rng.permutation(len(rows))
    return rows[order], set(np.argsort(order)[:k].tolist())


@pytest.mark.parametrize("seed", range(8))
def test_xray_finds_the_rays_of_noiseless_data_whatever_the_scale_of_each_row(seed):
    rows, anchors = planted(seed)
    scales = np.exp(np.random.default_rng(seed).normal(size=len(rows)))[:, None]
    assert set(xray(rows, 5).tolist()) == anchors
    assert set(xray(rows * scales, 5).tolist()) == anchors


def test_xray_stops_when_the_cone_covers_all_rows():
    rows, anchors = planted(0, k=3)
    assert set(xray(rows, 7).tolist()) == anchors


def test_xray_keeps_equal_noise_equal_where_scaling_rows_does_not():
    """Pure rows among many noisy ones, n < p: unscaled residuals find more of them than rows scaled to sum one."""
    found = {"xray": 0, "spa": 0}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rays = rng.random((10, 400))
        rows = np.vstack([rays, rng.dirichlet(np.ones(10), 190) @ rays])
        rows += rng.normal(size=rows.shape) * np.linalg.norm(rows) / np.sqrt(rows.size)
        order = rng.permutation(200)
        anchors = set(np.argsort(order)[:10].tolist())
        rows = rows[order]
        found["xray"] += len(anchors & set(xray(rows, 10).tolist()))
        found["spa"] += len(anchors & set(successive_projection(rows / rows.sum(axis=1, keepdims=True), 10).tolist()))
    assert found["xray"] > found["spa"] + 5


def volume(points):
    return abs(np.linalg.det(np.hstack([np.ones((len(points), 1)), points])))


@pytest.mark.parametrize("seed", range(10))
def test_widening_ends_where_no_single_swap_doubles_the_volume(seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(15, 3))
    start = rng.choice(15, 4, replace=False)
    ends = widen_simplex(points, start)
    assert volume(points[ends]) >= volume(points[start])
    for place, candidate in itertools.product(range(4), range(15)):
        swapped = ends.copy()
        swapped[place] = candidate
        assert volume(points[swapped]) < 2 * volume(points[ends]) * (1 + 1e-9)


def test_widening_replaces_a_near_duplicate_by_the_ray_that_was_missed():
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.98, 0.01], [0.0, 0.05]])
    assert set(widen_simplex(corners, np.array([0, 1, 2])).tolist()) == {0, 1, 3}


def test_widening_does_not_depend_on_the_coordinates():
    rng = np.random.default_rng(3)
    points = rng.normal(size=(20, 4))
    start = np.arange(5)
    skewed = points @ (rng.normal(size=(4, 4)) + 3 * np.eye(4)) + rng.normal(size=4)
    np.testing.assert_array_equal(widen_simplex(points, start), widen_simplex(skewed, start))


def test_widening_leaves_anchors_alone_that_do_not_span_the_subspace():
    points = np.random.default_rng(0).normal(size=(9, 4))
    np.testing.assert_array_equal(widen_simplex(points, np.array([3, 1])), [3, 1])
