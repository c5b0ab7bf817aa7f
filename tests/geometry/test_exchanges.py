"""Least squares over a cone from supports that are nearly right, and the faces that a cone may have."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from dask_dca.geometry.exact import PIECE_ROWS, padded
from dask_dca.geometry.membership import points_in_cone
from dask_dca.geometry.nnls import exchange_supports
from dask_dca.geometry.separation import face_normals, is_proof, prepare_cone


def columns(k, r, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((k, r)))[0]


def guesses(x, E, seed, wrong):
    """The right supports, with some of their entries left out and others added."""
    rng = np.random.default_rng(seed)
    F = np.array([nnls(E.T, point)[0] for point in x])
    return np.where(rng.random(F.shape) < wrong, np.where(F > 0, 0.0, rng.random(F.shape)), F)


@given(seed=st.integers(0, 10**6), r=st.integers(1, 9), more=st.integers(0, 12), wrong=st.sampled_from([0.0, 0.1]))
@example(seed=531, r=7, more=1, wrong=0.0)  # coefficients above a thousand
@settings(max_examples=60)
def test_exchanges_reach_the_least_squares(seed, r, more, wrong):
    E = columns(r + more, r, seed)
    x = np.random.default_rng(seed).standard_normal((60, r))
    found = exchange_supports(x, guesses(x, E, seed, wrong), E)
    left = np.sqrt(((x - found @ E) ** 2).sum(axis=1))
    least = np.array([nnls(E.T, point)[1] for point in x])
    assert (found >= 0.0).all()
    rounding = 1e-8 * max(1.0, found.max())
    assert (left >= least - rounding).all()
    assert (left <= least + rounding).mean() > (0.8 if wrong else 0.9)  # the few others are in a cycle


def test_a_point_has_the_same_bits_in_any_company():
    E = columns(24, 11, 0)
    x = np.random.default_rng(1).standard_normal((PIECE_ROWS + 90, 11))
    start = guesses(x, E, 2, 0.3)
    whole = exchange_supports(x, start, E)
    for count in (1, 2, 7, 70):
        some = np.random.default_rng(count).permutation(len(x))[:count]
        assert exchange_supports(x[some], start[some], E).tobytes() == whole[some].tobytes()
    assert exchange_supports(x[:0], start[:0], E).shape == (0, 24)
    assert padded(x[:3].astype(np.float32)).dtype == np.float32


def test_repeated_generators_share_their_part():
    E = np.repeat(columns(6, 3, 4), 2, axis=0) / np.sqrt(2.0)
    x = np.random.default_rng(5).dirichlet(np.ones(12), 50) @ E
    found = exchange_supports(x, np.ones((50, 12)), E)
    assert (np.abs(found @ E - x).max(axis=1) < 1e-9).mean() > 0.9


@pytest.mark.parametrize(("k", "r", "exactly"), [(8, 8, 8), (9, 8, None), (20, 10, None), (24, 10, 0), (50, 25, 0)])
def test_faces_are_found_where_they_are_few(k, r, exactly):
    G = np.random.default_rng(k).random((k, r))
    cone = prepare_cone(G)
    faces = face_normals(cone.whitened, (cone.axis @ cone.basis) * cone.singular_values)
    assert cone.complete == (faces is not None) == (exactly != 0)
    if exactly:
        assert len(faces) == exactly
    if faces is not None:  # each holds as many independent generators as a face has dimensions
        heights = (faces / np.linalg.norm(faces, axis=1)[:, None]) @ cone.whitened.T
        assert heights.min() > -1e-12
        assert ((heights < 1e-12).sum(axis=1) >= r - 1).all()


@pytest.mark.parametrize("shape", [(14, 7), (20, 10), (30, 14)])
@pytest.mark.parametrize("exact", [False, True])
def test_points_on_faces_and_just_outside(shape, exact):
    """Combinations of few rays, and points turned away from them by a tenth of a degree."""
    rng = np.random.default_rng(0)
    G = rng.random(shape)
    cone = prepare_cone(G)
    few = rng.random((300, shape[0])) * (rng.random((300, shape[0])) < 0.2)
    assert points_in_cone(few @ G, cone, exact=exact).all()
    far = rng.dirichlet(np.full(shape[0], 0.5), 200) @ G + 0.3 * rng.standard_normal((200, shape[1]))
    foot = np.array([nnls(G.T, x)[0] for x in far]) @ G
    sizes = np.linalg.norm(foot, axis=1)
    clear = (np.linalg.norm(far - foot, axis=1) > 1e-3) & (sizes > 1e-3)
    away = (far - foot)[clear] / np.linalg.norm(far - foot, axis=1)[clear, None]
    X = foot[clear] + np.tan(np.deg2rad(0.1)) * sizes[clear, None] * away
    proofs = np.zeros_like(X)
    inside = points_in_cone(X, cone, exact=exact, proofs=proofs)
    assert is_proof(proofs[~inside], X[~inside], G).all()
    if exact or cone.complete:
        assert not inside.any()
