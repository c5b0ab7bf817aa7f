"""The E-step's sums: the same bits for any cut of the rows, and near those of plain floating-point numbers."""

import dask.array as da
import numpy as np
import pytest

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.geometry.exact import EXACT_LIMIT, RunningTotal
from dask_dca.models.gaussians import gaussian_moments, log_densities, mean_and_covariance, prepare_gaussians
from dask_dca.models.mixture import e_step
from dask_dca.models.mixture.densities import Densities
from dask_dca.models.mixture.e_step import component_sums, e_step_tile_height, integer_responsibilities
from dask_dca.models.mixture.em import normalise
from dask_dca.models.mixture.passes import e_step_pass
from tests.models.mixture.data import FORMS


def planted(form, n, p, k, seed, spread=4.0):
    rng = np.random.default_rng(seed)
    means, weights = spread * rng.standard_normal((k, p)), rng.dirichlet(np.full(k, 3.0))
    deviations = np.exp(0.3 * rng.standard_normal((k, p)))
    X = 50.0 + means[labels := rng.choice(k, n, p=weights)] + deviations[labels] * rng.standard_normal((n, p))
    squares = deviations**2
    covariances = {
        "diag": squares,
        "full": squares[:, :, None] * np.eye(p) + 0.1,
        "tied": np.diag(squares.mean(axis=0)) + 0.1,
        "spherical": squares.mean(axis=1),
        "tied-spherical": np.array(squares.mean()),
    }[form]
    gaussians = prepare_gaussians(means + 50.0, covariances, form, np.full(p, 50.0))
    return X, Densities(gaussians, np.log(weights), 64)


def look(X, densities, deviations, chunks=None, noise_threshold=-np.inf):
    rows = as_rows(X if chunks is None else da.from_array(X, chunks=(chunks, -1)))
    return e_step_pass(rows, densities, deviations, Run(), noise_threshold)


def bits(seen):
    moments = seen.moments
    parts = (moments.counts, moments.first, moments.second, np.asarray(seen.log_likelihood), seen.nearest)
    return [part.tobytes() for part in parts] + [seen.n_outliers]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1.0, 1e3, 1e6])
def test_any_cut_gives_the_same_bits_however_far_out_rows_are(form, size, monkeypatch):
    X, densities = planted(form, 5000, 5, 4, 0)
    rng, deviations = np.random.default_rng(1), X.std(axis=0)
    X[rng.integers(5000, size=6)] *= size
    careful_tiles = []
    for kind in (e_step._LinearSums, e_step._WhitenedSums):
        careful = kind.add_multidigit
        monkeypatch.setattr(kind, "add_multidigit", lambda *a, c=careful: (careful_tiles.append(1), c(*a)))
    whole = bits(look(X, densities, deviations))
    if size != 1e3:  # in several digits where rows are that far out
        assert bool(careful_tiles) == (size > 1e3)
    for _ in range(4):
        ends = np.unique(rng.integers(1, 5000, size=5))
        assert bits(look(X, densities, deviations, tuple(np.diff([0, *ends, 5000])))) == whole


@pytest.mark.parametrize("form", FORMS)
def test_sums_are_those_of_floating_point_numbers_but_for_the_grids(form):
    X, densities = planted(form, 6000, 6, 5, 2, spread=1.0)
    gaussians = densities.gaussians
    seen = look(X, densities, X.std(axis=0))
    shares, logs = normalise(log_densities(gaussians, X) + densities.log_weights)
    same = gaussian_moments(shares, X - gaussians.centre, form)
    assert seen.log_likelihood == pytest.approx(logs.mean(), abs=2e-6)
    np.testing.assert_allclose(seen.moments.counts, same.counts, rtol=2e-5)  # shares below 2**-17 are none
    for one, other in zip(mean_and_covariance(seen.moments, form), mean_and_covariance(same, form), strict=True):
        np.testing.assert_allclose(one, other, atol=3e-5)
    np.testing.assert_array_equal(seen.nearest, log_densities(gaussians, X).argmax(axis=0))


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_low_density_have_no_weight(form):
    X, densities = planted(form, 5000, 4, 3, 3)
    far = np.vstack([X, X[:5] + 300.0])
    clean, seen = look(X, densities, X.std(axis=0)), look(far, densities, X.std(axis=0), noise_threshold=-500.0)
    assert seen.n_outliers == 5
    assert seen.log_likelihood == pytest.approx(clean.log_likelihood, abs=1e-9)
    np.testing.assert_array_equal(seen.moments.second, clean.moments.second)


def test_full_covariances_keep_their_thinnest_direction():
    """Rows are summed as each component whitens them, so that no unit is coarse beside a small variance."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    scales = np.array([30.0, 1.0, 1e-2, 1e-3])
    X = (rng.standard_normal((5000, 4)) * scales) @ turn.T
    gaussians = prepare_gaussians(np.zeros((1, 4)), ((turn * scales**2) @ turn.T)[None], "full", np.zeros(4))
    seen = look(X, Densities(gaussians, np.zeros(1), 64), X.std(axis=0))
    found = turn.T @ mean_and_covariance(seen.moments, "full")[1][0] @ turn
    np.testing.assert_allclose(np.diagonal(found), ((X @ turn).var(axis=0)), rtol=1e-4)


def test_responsibilities_are_integers_and_no_number_is_subnormal():
    joint = np.array([[0.0, -1.0, -900.0], [-1e5, -1.0, -900.0], [-100.0, -2.0, -901.0]])
    shares, logs = normalise(joint.T.copy())
    with np.errstate(all="raise"):
        weights, found = integer_responsibilities(joint.copy())
    np.testing.assert_array_equal(weights, np.rint(weights))
    np.testing.assert_allclose(weights / 2.0**16, shares.T, atol=2.0**-16)
    np.testing.assert_allclose(found, logs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", ["diag", "full", "tied"])
def test_the_bits_of_a_row_do_not_depend_on_its_place_in_a_tile(form):
    """Observed, not documented: of products in double precision, in tiles of one shape."""
    rng = np.random.default_rng(0)
    for p, k in ((3, 2), (20, 7), (33, 12)):
        X, densities = planted(form, 320, p, k, p)
        sums = component_sums(densities.gaussians, densities.log_weights, X.std(axis=0), 320)
        joint, order = sums.joint(X).copy(), rng.permutation(320)
        np.testing.assert_array_equal(sums.joint(np.ascontiguousarray(X[order])), joint[:, order])
        moved = np.zeros_like(X)
        moved[:50] = X[-50:]
        np.testing.assert_array_equal(sums.joint(moved)[:, :50], joint[:, -50:])


def test_heights_of_tiles_leave_room_for_whitened_rows():
    assert e_step_tile_height("diag", 50, 50, 1024) == e_step_tile_height("full", 2, 5, 1024) == 1024
    assert e_step_tile_height("full", 50, 50, 1024) == 192
    assert e_step_tile_height("full", 500, 500, 1024) == 64


def test_a_running_total_is_exact_and_says_what_it_can_not_hold():
    rng, total, whole = np.random.default_rng(0), RunningTotal((3,), 0.5), [0, 0, 0]
    for _ in range(50):
        part = rng.integers(-(2**51), 2**51, size=3)
        assert total.add(part.astype(np.float64), 2.0**51)
        whole = [one + int(other) for one, other in zip(whole, part, strict=True)]
    assert not total.add(np.ones(3), EXACT_LIMIT)
    assert not total.add(np.ones(3), np.nan)
    assert total.total().value().tolist() == [0.5 * float(one) for one in whole]
