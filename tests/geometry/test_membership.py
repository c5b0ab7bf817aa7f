"""Points inside and outside cones: against exact arithmetic, least squares and linear programs."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, nnls

from dask_dca.geometry.membership import points_in_cone
from dask_dca.geometry.separation import is_proof, prepare_cone

COMPLETE, FEW, MANY = (5, 12), (9, 4), (24, 9)  # rays and dimensions: independent, all faces known, neither


def rays(k, p, seed, signed=False):
    rng = np.random.default_rng(seed)
    G = rng.random((k, p))
    return G @ np.linalg.qr(rng.standard_normal((p, p)))[0] if signed else G


def is_inside(x, G):
    """By a linear program, which knows nothing of ours."""
    scale = np.abs(x).max()
    return linprog(np.zeros(len(G)), A_eq=G.T, b_eq=x / scale, method="highs").status == 0 if scale else True


def exactly(vector):
    return [Fraction(float(entry)) for entry in vector]


def dot(left, right):
    return sum(a * b for a, b in zip(left, right, strict=True))


@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 14),
    p=st.integers(1, 9),
    exact=st.booleans(),
    tolerance=st.sampled_from([0.0, 1e-9]),
    signed=st.booleans(),
)
@settings(max_examples=80)
def test_no_point_inside_is_called_outside(seed, k, p, exact, tolerance, signed):
    """Integer combinations of integer rays are inside without any rounding, most of them on a face."""
    rng = np.random.default_rng(seed)
    G = rng.integers(-20 if signed else 0, 21, (k, p)).astype(float)
    F = rng.integers(0, 30, (40, k)) * (rng.random((40, k)) < rng.random())
    X = np.vstack([F @ G, G, 7 * G, G.sum(axis=0)[None]])
    assert points_in_cone(X, prepare_cone(G), exact=exact, tolerance=tolerance).all()


@given(
    seed=st.integers(0, 10**6),
    shape=st.sampled_from([COMPLETE, FEW, MANY, (1, 3), (3, 3)]),
    signed=st.booleans(),
    scale=st.sampled_from([1.0, 1e-200, 1e200]),
)
@settings(max_examples=50)
def test_proofs_hold_in_exact_arithmetic(seed, shape, signed, scale):
    """u . g >= 0 and u . x < 0 for the very numbers that are stored, without rounding."""
    rng = np.random.default_rng(seed)
    G = rays(*shape, seed, signed)
    X = rng.standard_normal((20, shape[1]))
    X[:10] = rng.dirichlet(np.ones(shape[0]), 10) @ G + 10.0 ** rng.integers(-8, 0, (10, 1)) * X[:10]
    proofs = np.full(X.shape, np.nan)
    cone = prepare_cone(G)
    inside = points_in_cone(X * scale, cone, proofs=proofs)
    assert not proofs[inside].any()
    assert is_proof(proofs[~inside], X[~inside], G).all()
    if not cone.is_pointed:  # the proofs hold up to rounding there
        return
    for u, x in zip(map(exactly, proofs[~inside]), map(exactly, X[~inside]), strict=True):
        assert dot(u, x) < 0
        assert all(dot(u, exactly(g)) >= 0 for g in G)


@given(
    seed=st.integers(0, 10**6), k=st.integers(1, 20), p=st.integers(1, 10), signed=st.booleans(), spread=st.booleans()
)
@settings(max_examples=40)
def test_it_agrees_with_a_linear_program(seed, k, p, signed, spread):
    rng = np.random.default_rng(seed)
    G = rng.standard_normal((k, p)) if signed else rng.random((k, p))
    X = rng.dirichlet(np.full(k, 0.3), 12) @ G
    X[6:] += (3.0 if spread else 0.1) * rng.standard_normal((6, p))
    inside = points_in_cone(X, prepare_cone(G))
    # a linear program knows the cone to 1e-7 only: such points are not asked
    clear = [i for i in range(12) if not 1e-12 < nnls(G.T, X[i])[1] < 1e-5]
    assert [bool(inside[i]) for i in clear] == [is_inside(X[i], G) for i in clear]


@pytest.mark.parametrize("shape", [COMPLETE, FEW, MANY, (60, 20)])
@pytest.mark.parametrize("exponent", [-1, -4, -8])
def test_points_just_outside_a_face_are_found(shape, exponent):
    """A point moved out of the cone by a known distance, along the proof that least squares gives."""
    rng = np.random.default_rng(0)
    G = rays(*shape, 3)
    far = rng.dirichlet(np.full(len(G), 0.2), 60) @ G + 0.5 * rng.standard_normal((60, shape[1]))
    F = np.array([nnls(G.T, x)[0] for x in far])
    foot = F @ G
    out = far - foot
    size = np.linalg.norm(out, axis=1)
    keep = size > 1e-3
    X = foot[keep] + (10.0**exponent / size[keep])[:, None] * out[keep] * np.linalg.norm(foot[keep], axis=1)[:, None]
    cone = prepare_cone(G)
    assert not points_in_cone(X, cone).any()
    assert points_in_cone(foot[keep], cone).all()
    assert points_in_cone(X, cone, tolerance=10.0**exponent * 1.1).all()


@pytest.mark.parametrize("shape", [COMPLETE, FEW])
def test_planes_alone_are_exact_where_all_faces_are_known(shape):
    rng = np.random.default_rng(1)
    G = rays(*shape, 5)
    X = G.mean(axis=0) + 2.0 * (rng.dirichlet(np.ones(len(G)), 300) @ G - G.mean(axis=0))
    cone = prepare_cone(G)
    assert cone.complete
    inside = points_in_cone(X, cone, exact=False)
    assert 10 < inside.sum() < 290
    assert inside.tolist() == [is_inside(x, G) for x in X]


def test_without_exact_few_points_outside_are_missed():
    rng = np.random.default_rng(2)
    G = rays(*MANY, 1)
    X = G.mean(axis=0) + 3.0 * (rng.dirichlet(np.ones(len(G)), 400) @ G - G.mean(axis=0))
    cone = prepare_cone(G)
    assert not cone.complete
    quick, exact = points_in_cone(X, cone, exact=False), points_in_cone(X, cone)
    assert (quick | ~exact).all()
    assert (quick & ~exact).sum() < 0.25 * (~exact).sum()


def test_cones_that_hold_lines():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((50, 3))
    everything = np.vstack([np.eye(3), -np.ones((1, 3))])
    assert points_in_cone(X, prepare_cone(everything), exact=False).all()
    halfspace = np.vstack([np.eye(3)[:2], -np.eye(3)[:2], [[0.0, 0.0, 1.0]]])
    assert points_in_cone(X, prepare_cone(halfspace), exact=False).tolist() == (X[:, 2] >= 0).tolist()
    line = np.array([[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]])
    on = np.outer(X[:, 0], line[0])
    assert points_in_cone(np.vstack([on, X]), prepare_cone(line)).tolist() == [True] * 50 + [False] * 50


def test_rows_and_rays_of_no_use():
    G = rays(4, 6, 0)
    doubled = np.vstack([G, np.zeros((2, 6)), 3.0 * G, G[:1]])
    X = np.vstack([np.zeros((1, 6)), G, -G, G[:1] - 1e-3])
    expected = [True] + [True] * 4 + [False] * 5
    for generators in (G, doubled):
        assert points_in_cone(X, prepare_cone(generators)).tolist() == expected
    only_zero = prepare_cone(np.zeros((2, 6)))
    proofs = np.zeros_like(X)
    assert points_in_cone(X, only_zero, proofs=proofs).tolist() == [True] + [False] * 9
    assert ((proofs[1:] * X[1:]).sum(axis=1) < 0).all()
    assert points_in_cone(np.zeros((0, 6)), prepare_cone(G)).shape == (0,)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_lengths_do_not_matter(scale):
    rng = np.random.default_rng(4)
    G = rays(*MANY, 2)
    X = rng.dirichlet(np.ones(len(G)), 60) @ G
    X[30:] += 0.2 * rng.standard_normal((30, 9))
    expected = points_in_cone(X, prepare_cone(G))
    assert 25 < expected.sum() < 55
    assert points_in_cone(X * scale, prepare_cone(G)).tolist() == expected.tolist()
    assert points_in_cone(X, prepare_cone(G * scale)).tolist() == expected.tolist()


def test_more_planes_prove_more():
    rng = np.random.default_rng(5)
    G = rays(*MANY, 7)
    X = G.mean(axis=0) + 3.0 * (rng.dirichlet(np.full(len(G), 0.5), 500) @ G - G.mean(axis=0))
    outside = [((X @ prepare_cone(G, s).normals.T).min(axis=1) < 0).sum() for s in (4, 40, 400)]
    assert outside[0] < outside[1] < outside[2]


def test_generators_must_be_finite():
    with pytest.raises(ValueError, match="finite"):
        prepare_cone([[1.0, np.nan]])
    with pytest.raises(ValueError, match="shape"):
        prepare_cone([1.0, 2.0])


@pytest.mark.parametrize("seed", range(3))
def test_without_exact_points_next_to_faces_of_many_rays_get_a_few_rounds_and_no_more(seed):
    rng = np.random.default_rng(seed)
    G = rng.random((50, 25))
    X = rng.dirichlet(np.full(50, 0.05), 60) @ G + 0.3 * rng.standard_normal((60, 25))
    near = np.array([nnls(G.T, x)[0] @ G for x in X])
    away = (X - near) / np.linalg.norm(X - near, axis=1)[:, None]
    outside = near + np.tan(np.radians(0.1)) * np.linalg.norm(near, axis=1)[:, None] * away
    cone = prepare_cone(G)
    assert cone.is_pointed
    assert not cone.complete
    assert not points_in_cone(outside, cone).any()
    assert points_in_cone(outside, cone, exact=False).mean() > 0.5
