"""Subspaces, anchors of cones, mean shift."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dask_dca.geometry.votes import ArgBest
from dask_dca.models.subspace.clusters import (
    allocate_anchors,
    choose_anchors,
    draw_directions,
    fit_bases,
    k_subspaces,
    measure_cone,
    residuals,
    shrink_bases,
)
from dask_dca.models.subspace.landmarks import quantise
from dask_dca.models.subspace.paper import bandwidth, mode_cells


def lines(n, signs=False, seed=0):
    """Rows of two planes of four dimensions, and which plane."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    rows = np.zeros((n, 4))
    angles = rng.uniform(0.0, np.pi / 2, n) + (np.pi * rng.integers(0, 2, n) if signs else 0.0)
    places = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    rows[labels == 0, :2] = places[labels == 0]
    rows[labels == 1, 2:] = places[labels == 1]
    return quantise(rows), labels


@pytest.mark.parametrize("signs", [False, True])
def test_sweeps_repair_wrong_labels(signs):
    rows, labels = lines(200, signs)
    wrong = labels.copy()
    wrong[:14] = 1 - wrong[:14]
    bases, sweeps = k_subspaces(rows, wrong, 2, 2, 10)
    np.testing.assert_array_equal(residuals(rows, bases).argmin(axis=1), labels)
    assert 1 < sweeps < 10
    assert bases.axes.any() != signs  # rows on both sides of the origin are no cone


def test_a_cluster_that_is_a_cone_has_a_side():
    rows, labels = lines(100)
    bases = fit_bases(rows, labels, 2, 2)
    found = residuals(-rows, bases)
    assert (found.min(axis=1) >= 0.99).all()


def test_few_rows_do_not_make_a_subspace_of_all():
    rows, _ = lines(6)
    bases = fit_bases(rows, np.array([0, 0, 0, 0, 1, 1]), 3, 3)
    assert (np.abs(bases.columns).sum(axis=1) > 0).sum(axis=1).tolist() == [2, 1, 0]


def spread_over(deviations, n, d, noise, seed=0):
    """Rows of unit length: normal along as many coordinates as there are deviations, in noise."""
    rng = np.random.default_rng(seed)
    rows = noise * rng.standard_normal((n, d))
    rows[:, : len(deviations)] += np.asarray(deviations) * rng.standard_normal((n, len(deviations)))
    return quantise(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def test_directions_of_noise_count_for_nothing():
    parts = [spread_over([1.0, 0.3], 400, 40, 0.1), np.roll(spread_over([1.0, 0.02], 400, 40, 0.1, seed=1), 5, axis=1)]
    rows, labels = np.vstack(parts), np.repeat([0, 1], 400)
    bases = fit_bases(rows, labels, 3, 6)  # the third one has no rows
    shrunk = shrink_bases(bases, rows, labels)
    factors = (shrunk.columns**2).sum(axis=1)
    assert (factors[[0, 0, 1], [0, 1, 0]] > 0.8).all()
    assert (factors[0, 2:] < 0.4).all()
    assert (factors[1, 1:] < 0.4).all()
    assert not factors[2].any()
    np.testing.assert_array_equal(shrunk.axes, bases.axes)


@pytest.mark.parametrize("noise", [0.02, 0.4])
def test_the_noise_of_a_cluster_is_partly_that_of_all(noise):
    """What stands out of a quiet cluster's own noise, but not of that of the others, counts little."""
    parts = [spread_over([1.0, 0.02], 400, 40, 0.02), spread_over([1.0], 400, 40, noise, seed=1)]
    rows, labels = np.vstack(parts), np.repeat([0, 1], 400)
    factors = (shrink_bases(fit_bases(rows, labels, 2, 3), rows, labels).columns ** 2).sum(axis=1)
    assert (factors[0, 1] > 0.3) == (noise == 0.02)
    assert factors[0, 0] > 0.9


def test_subspaces_without_noise_are_whole():
    rows, labels = lines(200, signs=True)
    shrunk = shrink_bases(fit_bases(rows, labels, 2, 3), rows, labels)
    np.testing.assert_allclose((shrunk.columns**2).sum(axis=1), [[1, 1, 0], [1, 1, 0]], atol=1e-4)


def test_sweeps_of_noisy_rows_do_not_fit_their_noise():
    """Whole subspaces of twelve dimensions, where three are true, leave a third of the rows where they don't belong."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        parts = [np.roll(spread_over([1, 1, 1], 200, 40, 0.15, seed=seed * 2 + j), 3 * j, axis=1) for j in (0, 1)]
        rows, labels = np.vstack(parts), np.repeat([0, 1], 200)
        start = np.where(rng.random(400) < 0.3, 1 - labels, labels)
        bases, _ = k_subspaces(rows, start, 2, 12, 10)
        assert (residuals(rows, bases).argmin(axis=1) == labels).mean() > 0.95


def test_anchors_of_a_cone_are_its_rays():
    rng = np.random.default_rng(0)
    rays = np.abs(rng.standard_normal((4, 6))) + 0.1
    rows = np.vstack([rays, rng.dirichlet(np.ones(4), 300) @ rays])
    rows = quantise(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    cone = measure_cone(rows, fit_bases(rows, np.zeros(304, dtype=int), 1, 4).columns[0])
    drawn = draw_directions(cone, "mixed", 0, 160)
    ratios = (rows @ cone.frame / (rows @ cone.axis)[:, None]) @ drawn.T
    at = np.concatenate([ratios.argmax(axis=0), ratios.argmin(axis=0)])
    heights = np.concatenate([ratios.max(axis=0), -ratios.min(axis=0)])
    found = ArgBest(heights, at, (rows @ cone.frame)[at] / (rows @ cone.axis)[at, None])
    chosen = choose_anchors(cone, found, drawn, 40, 4)
    assert sorted(chosen.rows) == [0, 1, 2, 3]
    assert chosen.curve[-1] > 0.99
    assert (np.diff(chosen.curve) >= -1e-12).all()
    assert chosen.votes.sum() == 2 * 120


def test_a_cone_without_rows_has_no_anchors():
    cone = measure_cone(np.zeros((0, 3)), np.zeros((3, 2)))
    nothing = ArgBest(np.full(20, -np.inf), np.full(20, np.iinfo(np.int64).max), np.zeros((20, 2)))
    assert len(choose_anchors(cone, nothing, draw_directions(cone, "gaussian", 0, 10), 4, 3).rows) == 0


def test_anchors_are_shared_out_by_what_they_add():
    gains = [np.array([0.9, 0.05, 0.01]), np.array([0.4, 0.3, 0.2]), np.zeros(0)]
    assert allocate_anchors(gains, 4) == [1, 3, 0]
    assert allocate_anchors(gains, 1) == [1, 1, 0]  # one each
    assert allocate_anchors(gains, 99) == [3, 3, 0]


@given(arrays(np.int64, st.integers(1, 60), elements=st.integers(0, 30)))
@settings(max_examples=100)
def test_cells_are_intervals_and_number_the_modes(counts):
    cells = mode_cells(counts)
    assert cells[0] == 0
    assert set(np.diff(cells)) <= {0, 1}
    assert (mode_cells(counts * 8) >= 0).all()


def test_mean_shift_splits_what_is_apart_and_only_that():
    rng = np.random.default_rng(0)
    one = np.bincount(np.clip(rng.normal(250, 30, 5000), 0, 511).astype(int), minlength=512)
    two = one + np.bincount(np.clip(rng.normal(420, 20, 5000), 0, 511).astype(int), minlength=512)
    assert len(set(mode_cells(one)[200:300])) == 1
    cells = mode_cells(two)
    assert cells[250] != cells[420]
    assert cells[230] == cells[270]


def test_bandwidth_is_silvermans():
    rng = np.random.default_rng(0)
    values = np.clip(rng.normal(250, 30, 100_000), 0, 511).astype(int)
    assert bandwidth(np.bincount(values, minlength=512)) == pytest.approx(0.9 * 30 * 1e5**-0.2, rel=0.05)
    assert bandwidth(np.zeros(5, dtype=np.int64)) == 0.5
