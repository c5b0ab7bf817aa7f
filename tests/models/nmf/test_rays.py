"""Rays that no row is on: planted ones, properties, any chunking."""

import dask.array as da
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import dask_dca as dca
from dask_dca.geometry.simplex import enclosing_simplex
from tests.models.nmf.test_free_basis import bits, sampled  # noqa: F401

TRIANGLE = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])


def degrees(A, B):
    a, b = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (A, B))
    angles = np.degrees(np.arccos(np.clip(a @ b.T, -1.0, 1.0)))
    return angles[linear_sum_assignment(angles)].mean()


def mixtures(seed=0, n=4000, p=50, k=4, most=0.75, noise=0.0, pure=0):
    """Rows with at most that share of one ray; some pure ones."""
    rng = np.random.default_rng(seed)
    rays, shares = rng.random((k, p)), rng.dirichlet(np.ones(k), 20 * n)
    shares = shares[shares.max(axis=1) <= most][:n]
    shares[: k * pure] = np.repeat(np.eye(k), pure, axis=0)
    X = rng.permutation(shares) @ rays
    return np.maximum(X + noise * rng.standard_normal(X.shape), 0.0), rays


def test_a_triangle_is_found_from_points_on_its_sides():
    shares = np.array([[w, 1.0 - w, 0.0] for w in (0.25, 0.5, 0.75)])
    points = np.concatenate([shares[:, list(order)] @ TRIANGLE for order in [(0, 1, 2), (1, 2, 0), (2, 0, 1)]])
    start = 0.5 * TRIANGLE + 0.5 * TRIANGLE.mean(axis=0)
    found = enclosing_simplex(points, start, 0.0)
    distances = np.linalg.norm(found.vertices[:, None] - TRIANGLE, axis=2)
    assert distances.min(axis=1).max() < 0.01
    assert set(distances.argmin(axis=1)) == {0, 1, 2}
    assert found.growth == pytest.approx(2.0, abs=0.02)  # each side is twice as long
    assert 0.0 <= found.outside < 1e-3


def test_points_may_be_outside_by_the_noise():
    rng = np.random.default_rng(0)
    points = rng.dirichlet(np.ones(3), 2000) @ TRIANGLE + 0.02 * rng.standard_normal((2000, 2))
    tight, loose = (enclosing_simplex(points, TRIANGLE, noise) for noise in (0.0, 0.04))
    assert loose.growth < 1.05 < tight.growth
    assert loose.outside > 0.02 > tight.outside


def test_a_flat_start_is_no_simplex():
    assert enclosing_simplex(np.eye(3)[:, :2], TRIANGLE[[0, 1, 1]], 0.0) is None
    pyramid = np.vstack([np.eye(3), 1 / 3 + 1e-14 * np.ones(3)])  # that only rounding makes one
    assert enclosing_simplex(np.random.default_rng(0).dirichlet(np.ones(3), 50), pyramid, 0.0) is None


@pytest.mark.parametrize(("seed", "noise", "most"), [(0, 0.0, 0.1), (1, 0.02, 0.5), (0, 0.06, 1.6), (1, 0.06, 1.6)])
def test_rays_are_found_where_no_row_is_pure(seed, noise, most):
    X, rays = mixtures(seed, noise=noise)
    rows, model, auto = (dca.NMF(4, basis=basis).fit(X) for basis in ("rows", "rays", "auto"))
    assert degrees(model.components_, rays) < most < 6.0 < degrees(rows.components_, rays)
    assert model.simplex_growth_ > 1.2
    assert (model.basis_, auto.basis_) == ("rays", "rays")
    np.testing.assert_array_equal(auto.components_, model.components_)
    np.testing.assert_allclose(model.reconstruction_err_, model.reconstruction_err(X), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_pure_rows_stay_the_basis(seed, noise):
    X, rays = mixtures(seed, noise=noise, pure=10)
    rows, model, auto = (dca.NMF(4, basis=basis).fit(X) for basis in ("rows", "rays", "auto"))
    assert degrees(model.components_, rays) <= degrees(rows.components_, rays) + 0.1  # rays lose nothing either
    assert auto.basis_ == "rows"
    np.testing.assert_array_equal(auto.anchor_indices_, rows.anchor_indices_)
    np.testing.assert_array_equal(auto.components_, rows.components_)
    assert 0.9 < auto.simplex_growth_ < 1.05


def test_brightness_of_rows_does_not_matter():
    X, rays = mixtures()
    bright = X * np.random.default_rng(1).lognormal(0.0, 0.7, (len(X), 1))
    model = dca.NMF(4, basis="rays").fit(bright)
    assert degrees(model.components_, rays) < 1.0
    shares = model.transform(bright)
    assert np.median(shares.sum(axis=1)) == pytest.approx(1.0, rel=0.5)


@pytest.mark.parametrize("seed", range(3))
def test_rays_of_uneven_height_are_found(seed):
    """Shares that sum to one are even on an axis where rays are of one height, and not where entries sum to one."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(4), 20_000)
    rays = np.linspace(0.5, 1.5, 4)[:, None] * rng.random((4, 50))
    X = shares[shares.max(axis=1) <= 0.75][:4000] @ rays
    X = np.maximum(X + 0.02 * rng.standard_normal(X.shape), 0.0)
    model = dca.NMF(4, basis="rays").fit(X)
    assert degrees(model.components_, rays) < 0.6
    np.testing.assert_allclose(
        np.linalg.norm(model.components_, axis=1).max() / np.linalg.norm(rays, axis=1).max(), 1.0, atol=0.05
    )


def test_rows_that_are_no_mixtures_do_not_move_the_rays():
    X, rays = mixtures(noise=0.005)
    X[::500] = np.random.default_rng(2).random((len(X[::500]), X.shape[1])) ** 8
    assert degrees(dca.NMF(4, basis="rays").fit(X).components_, rays) < 2.0


@pytest.mark.parametrize("chunks", [(900, -1), ((1, 0, 1999, 2000), (13, 37))])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_chunking_gives_the_same_bits(chunks, dtype, sampled):  # noqa: F811
    X = mixtures(noise=0.01)[0].astype(dtype)
    model = dca.NMF(4, basis="rays")
    expected = bits(model.fit(X)) | {"growth": model.simplex_growth_, "outside": model.simplex_outside_}
    found = bits(model.fit(da.from_array(X, chunks=chunks)))
    assert found | {"growth": model.simplex_growth_, "outside": model.simplex_outside_} == expected
    assert model.components_.dtype == dtype


def test_saved_and_loaded(tmp_path):
    X, _ = mixtures(n=300)
    model = dca.NMF(4, basis="auto").fit(X)
    model.save(str(tmp_path / "m.zarr"))
    again = dca.load_model(str(tmp_path / "m.zarr"))
    assert bits(again) == bits(model)
    assert again.simplex_growth_ == model.simplex_growth_
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


def test_one_component_is_a_row():
    X, _ = mixtures(n=100)
    model = dca.NMF(1, basis="rays").fit(X)
    assert model.basis_ == "rows"
    np.testing.assert_array_equal(model.components_, X[model.anchor_indices_])


@pytest.mark.parametrize(("basis", "k"), [("auto", 5), ("rays", 4)])
def test_more_anchors_than_rays_keep_rows(basis, k):
    """Without noise they span a simplex of rounding, around which no rays explain the data."""
    rng = np.random.default_rng(0)
    X = rng.dirichlet(np.full(3, 3.0), 2000) @ rng.random((3, 6))
    model = dca.NMF(k, basis=basis).fit(X)
    assert model.basis_ == "rows"
    assert model.explained_variance_ratio_ > 0.99
    assert dca.NMF(3, basis=basis).fit(X).basis_ == "rays"


@pytest.mark.parametrize("basis", ["auto", "rays"])
def test_more_anchors_than_features_keep_rows(basis):
    """Bands of a photograph are three: five rays of these are no corners of a simplex."""
    X = np.random.default_rng(0).random((400, 3))
    for given in (X, da.from_array(X, chunks=(130, 3))):
        for k in (4, 5, 6):
            model = dca.NMF(k, basis=basis).fit(given)
            assert model.basis_ == "rows"
            assert model.n_components_ == k
