"""Planes are functions of seed and number, and distributed as their ensemble says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from dask_dca.geometry import planes
from dask_dca.geometry.planes import ENSEMBLES, check_ensemble, child_seeds, directions, plane_pairs, uniforms

SEEDS = st.integers(0, 2**64 - 1)
FEATURES = np.random.default_rng(0).standard_normal((9, 3))
SCALES = np.array([4.0, 2.0, 0.5])
IN_FEATURE_SPACE = ["gaussian", "sparse", "unit", "data"]


def draw(ensemble, seed, index, scales=SCALES):
    features = FEATURES if ensemble in ("sparse", "unit", "data") else None
    return directions(ensemble, seed, np.asarray(index), scales, features)


@given(seed=SEEDS, index=st.lists(st.integers(0, 10**9), min_size=1, max_size=20), ensemble=st.sampled_from(ENSEMBLES))
@settings(max_examples=200)
def test_a_plane_is_the_same_wherever_it_is_drawn(seed, index, ensemble):
    together = draw(ensemble, seed, index)
    for t, plane in zip(index, together, strict=True):
        assert draw(ensemble, seed, [t]).tobytes() == plane.tobytes()
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0)


def dense(pairs, width):
    """Both directions of each plane as vectors."""
    if sparse.issparse(pairs):
        return pairs.toarray().reshape(2, -1, width)
    return pairs if pairs.ndim == 3 else np.eye(width)[pairs]


@given(
    seed=SEEDS,
    index=st.lists(st.integers(0, 10**6), min_size=1, max_size=9),
    ensemble=st.sampled_from(IN_FEATURE_SPACE),
)
@settings(max_examples=100)
def test_a_pair_is_the_same_wherever_it_is_drawn(seed, index, ensemble):
    rows = FEATURES if ensemble == "data" else None
    together = dense(plane_pairs(ensemble, seed, np.array(index), 3, rows), 3)
    assert together.shape == (2, len(index), 3)
    for i, t in enumerate(index):
        alone = dense(plane_pairs(ensemble, seed, np.array([t]), 3, rows), 3)
        assert alone[:, 0].tobytes() == together[:, i].tobytes()


@given(
    seed=SEEDS,
    exponent=st.integers(-500, 500),
    ensemble=st.sampled_from(["mixed", "row-space", "whitened", "gaussian"]),
)
@settings(max_examples=60)
def test_directions_do_not_depend_on_the_unit_of_the_scales(seed, exponent, ensemble):
    index = np.arange(8)
    assert draw(ensemble, seed, index, np.ldexp(SCALES, exponent)).tobytes() == draw(ensemble, seed, index).tobytes()


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_seeds_and_numbers_tell_planes_apart(ensemble):
    if ensemble in ("unit", "data", "sparse"):  # only that many different ones
        return
    some = draw(ensemble, 0, np.arange(2000))
    assert len(np.unique(some, axis=0)) > 1990
    assert not np.isclose(some, draw(ensemble, 1, np.arange(2000))).all(axis=1).any()


def test_uniforms_are_uniform_and_independent():
    u = uniforms(child_seeds(5, np.arange(4000)), 6)
    assert ((u > 0) & (u < 1)).all()
    for column in u.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
    for row in uniforms(child_seeds(5, np.arange(3)), 4000):
        assert stats.kstest(row, "uniform").pvalue > 1e-4
    assert np.abs(np.corrcoef(u.T) - np.eye(6)).max() < 0.08
    assert abs(np.corrcoef(u[:-1, 0], u[1:, 0])[0, 1]) < 0.08
    assert abs(np.corrcoef(u[:, 0], uniforms(child_seeds(6, np.arange(4000)), 1)[:, 0])[0, 1]) < 0.08


def test_the_numbers_are_those_of_every_machine():
    """Integer arithmetic alone: written down once, and the same for ever."""
    np.testing.assert_array_equal(
        child_seeds(0, np.arange(3)),
        np.array([16294208416658607535, 7960286522194355700, 487617019471545679], dtype=np.uint64),
    )  # the reference outputs of SplitMix64 from zero


@pytest.mark.parametrize(("ensemble", "power"), [("row-space", 1.0), ("gaussian", 0.0), ("whitened", -1.0)])
def test_gaussian_ensembles_have_the_covariance_of_their_name(ensemble, power):
    some = draw(ensemble, 3, np.arange(40_000))
    reference = np.random.default_rng(1).standard_normal((40_000, 3)) * SCALES**power
    reference /= np.linalg.norm(reference, axis=1, keepdims=True)
    np.testing.assert_allclose(some.T @ some / 40_000, reference.T @ reference / 40_000, atol=0.01)
    np.testing.assert_allclose(some.mean(axis=0), 0.0, atol=0.02)


def test_the_mixture_is_half_row_space_a_quarter_isotropic_a_quarter_whitened():
    index = np.arange(400)
    mixed = draw("mixed", 3, index)
    for ensemble, mine in (("row-space", index % 4 < 2), ("gaussian", index % 4 == 2), ("whitened", index % 4 == 3)):
        np.testing.assert_allclose(mixed[mine], draw(ensemble, 3, index)[mine])


@pytest.mark.parametrize("width", [1, 2, 30, 100])
def test_sparse_pairs_have_signs_on_about_the_square_root_of_the_features(width):
    pairs = plane_pairs("sparse", 0, np.arange(3000), width)
    assert pairs.nnz <= 6000 * np.ceil(np.sqrt(width))
    found = dense(pairs, width).reshape(-1, width)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)
    drawn = np.ceil(np.sqrt(width))
    np.testing.assert_allclose((found != 0).mean(), 1 - (1 - 1 / width) ** drawn, atol=0.01)
    np.testing.assert_allclose(np.sign(found).mean(axis=0), 0.0, atol=0.05)
    assert np.abs(np.corrcoef(found.T).reshape(width, width) - np.eye(width)).max() < 0.08
    for direction in found:
        assert len(np.unique(np.abs(direction[direction != 0]).round(12))) == 1


def test_sparse_directions_of_a_subspace_have_signs_on_a_third_of_the_features():
    found = directions("sparse", 0, np.arange(2000), np.ones(30), np.eye(30))
    np.testing.assert_allclose((found != 0).mean(), 1 / 3, atol=0.01)
    np.testing.assert_allclose(np.sign(found).mean(), 0.0, atol=0.01)


@pytest.mark.parametrize("ensemble", ["sparse", "unit"])
def test_planes_of_few_features_take_little_room(ensemble):
    """Not an entry for each feature: 200 planes in ten million features."""
    pairs = plane_pairs(ensemble, 0, np.arange(200), 10**7)
    held = pairs.data.nbytes + pairs.indices.nbytes if sparse.issparse(pairs) else pairs.nbytes
    assert held < 400 * 20 * (np.sqrt(10**7) + 1)


def test_unit_directions_are_single_features_and_data_directions_single_rows():
    picked = plane_pairs("unit", 0, np.arange(3000), 10)
    assert picked.shape == (2, 3000)
    for own in picked:
        assert stats.chisquare(np.bincount(own, minlength=10)).pvalue > 1e-4
    assert (picked[0] != picked[1]).all()  # the same feature twice would span no plane
    assert len(np.unique(picked, axis=1).T) == 90
    assert not plane_pairs("unit", 0, np.arange(5), 1).any()
    rows = FEATURES / np.linalg.norm(FEATURES, axis=1, keepdims=True)
    drawn = plane_pairs("data", 0, np.arange(500), 3, FEATURES).reshape(-1, 3)
    assert np.isclose(drawn[:, None], rows[None]).all(axis=2).any(axis=1).all()
    assert len(np.unique(drawn.round(9), axis=0)) == 9


def test_the_two_directions_of_a_plane_are_independent():
    first, second = plane_pairs("gaussian", 0, np.arange(20_000), 4)
    np.testing.assert_allclose(first.T @ second / 20_000, 0.0, atol=0.01)


def test_a_draw_of_nothing_is_still_a_direction():
    nothing = planes._unit(np.zeros((2, 3)))
    np.testing.assert_array_equal(nothing, [[1, 0, 0], [1, 0, 0]])


def test_unknown_or_incomplete_ensembles_are_refused():
    assert check_ensemble("auto") == "mixed"
    with pytest.raises(ValueError, match="unknown ensemble 'x'; use 'auto' or one of 'mixed', 'row-space'"):
        check_ensemble("x")
    for ensemble in ("sparse", "unit", "data"):
        with pytest.raises(ValueError, match="needs the vectors to draw from"):
            directions(ensemble, 0, np.arange(2), SCALES)
    with pytest.raises(ValueError, match="needs the vectors to draw from"):
        plane_pairs("data", 0, np.arange(2), 3)
    for ensemble in ("mixed", "row-space", "whitened"):
        with pytest.raises(ValueError, match="needs a subspace"):
            plane_pairs(ensemble, 0, np.arange(2), 3)
