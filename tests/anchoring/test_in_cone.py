"""`in_cone` on data of any kind: chunks, containers, bad input, and that it works on the cone of a fit."""

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import dask_dca as dca
from dask_dca.anchoring.in_cone import in_cone
from dask_dca.errors import InvalidInputError, InvalidParameterError, NotFiniteError
from dask_dca.geometry.separation import is_proof
from tests.conftest import planted, raise_if_dask_computes
from tests.strategies import chunkings

SHAPES = [(5, 12), (9, 4), (24, 9)]  # independent rays, all faces known, neither


def cases(k, p, n=200, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    G = rng.random((k, p))
    inside = rng.dirichlet(np.full(k, 0.5), n) @ G
    noise = 0.02 * rng.standard_normal((n, p)) * (rng.random((n, 1)) < 0.5)
    outside = G.mean(axis=0) + 2.0 * (inside - G.mean(axis=0)) + noise
    return np.vstack([inside, outside])[rng.permutation(2 * n)].astype(dtype), G.astype(dtype)


@given(
    data=st.data(),
    shape=st.sampled_from(SHAPES),
    exact=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
@settings(max_examples=30)
def test_any_chunking_gives_the_same_bits(data, shape, exact, dtype):
    X, G = cases(*shape, n=40, seed=data.draw(st.integers(0, 1000)), dtype=dtype)
    chunks = (data.draw(chunkings(len(X))), data.draw(chunkings(shape[1], most=3, empty=False)))
    inside, proofs = in_cone(X, G, exact=exact, return_proofs=True)
    with dask.config.set(scheduler="synchronous"):
        parts = in_cone(da.from_array(X, chunks=chunks), G, exact=exact, return_proofs=True)
        found = dask.compute(*parts)
    assert found[0].tobytes() == inside.tobytes()
    assert found[1].tobytes() == proofs.tobytes()
    np.testing.assert_array_equal(in_cone(X, G, exact=exact), inside)


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_lazy_on_chunked_data(shape):
    X, G = cases(*shape)
    with raise_if_dask_computes():
        inside, proofs = in_cone(da.from_array(X, chunks=(70, -1)), G, exact=True, return_proofs=True)
    assert inside.dtype == bool
    assert inside.shape == (400,)
    assert proofs.shape == X.shape
    assert proofs.dtype == np.float64
    np.testing.assert_array_equal(inside.compute(), in_cone(X, G, exact=True))
    assert is_proof(proofs.compute()[~inside.compute()], X[~inside.compute()], G).all()


def test_containers_agree(tmp_path):
    X, G = cases(24, 9)
    X[X < 0.3] = 0.0
    expected = in_cone(X, G, exact=True)
    assert 20 < expected.sum() < 380
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(33, 9))
    blocks = da.from_array(X, chunks=(90, 9)).map_blocks(sparse.csr_array, dtype=X.dtype, meta=sparse.csr_array((0, 0)))
    for form in (sparse.csr_array(X), sparse.csc_matrix(X), stored, str(tmp_path / "x.zarr"), blocks, X.tolist()):
        np.testing.assert_array_equal(np.asarray(in_cone(form, G, exact=True)), expected)
    for rays in (sparse.csr_array(G), da.from_array(G, chunks=5), G.tolist()):
        np.testing.assert_array_equal(in_cone(X, rays, exact=True), expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_computed_in_their_own_precision_are_inside(shape, dtype):
    """A combination rounded to the data's dtype lies off the cone by its rounding; this is not called outside."""
    rng = np.random.default_rng(1)
    G = rng.random(shape).astype(dtype)
    X = (rng.dirichlet(np.full(shape[0], 0.3), 300).astype(dtype) @ G).astype(dtype)
    for exact in (False, True):
        assert in_cone(X, G, exact=exact).all()
    assert in_cone((10 * rng.random((50, shape[0]))).astype(int) @ (100 * G).astype(int), (100 * G).astype(int)).all()


def test_tolerance_is_a_distance_as_a_share_of_the_length():
    G = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    X = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1e-3], [1.0, -1e-3, 0.0], [1.0, 1.0, 1e-11]]) * [[1e-8], [1], [1e9], [3]]
    assert in_cone(X, G).tolist() == [True, False, False, True]
    assert in_cone(X, G, tolerance=2e-3).all()
    assert in_cone(X, G, tolerance=0.0).tolist() == [True, False, False, False]


def test_rows_of_the_data_lie_in_the_cone_of_the_anchors():
    """What a certificate of a fit may ask: which rows does the model cover?"""
    X, anchors = planted(2000, 30, 6, seed=2)
    model = dca.NMF(6).fit(X)
    assert in_cone(X, model.components_, exact=True).all()
    fewer = in_cone(X, model.components_[:5], exact=True)
    assert 5 <= fewer.sum() < 100
    assert fewer[anchors].sum() == 5


def test_the_seed_and_the_number_of_planes():
    X, G = cases(24, 9, n=300)
    exact = in_cone(X, G, exact=True)
    for seed in (0, 1, None, np.random.default_rng(3)):
        found = in_cone(X, G, n_subproblems=50, random_state=seed)
        assert (found | ~exact).all()
        np.testing.assert_array_equal(in_cone(X, G, n_subproblems=50, exact=True, random_state=seed), exact)


def test_cones_without_an_axis():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    space = np.vstack([np.eye(4), -np.eye(4)])
    assert in_cone(X, space).all()
    half = np.vstack([np.eye(4)[:3], -np.eye(4)[:3], np.eye(4)[3:]])
    inside, proofs = in_cone(X, half, return_proofs=True)
    np.testing.assert_array_equal(inside, X[:, 3] >= 0)
    np.testing.assert_allclose(proofs[~inside], np.tile([0.0, 0.0, 0.0, 1.0], ((~inside).sum(), 1)), atol=1e-9)
    assert in_cone(np.zeros((3, 4)), np.zeros((2, 4))).all()
    assert not in_cone(X, np.zeros((2, 4))).any()


def test_unusable_input_says_what_and_where():
    X, G = cases(5, 12)
    bad = X.copy()
    bad[7, 3] = np.nan
    with pytest.raises(NotFiniteError, match="row 7, column 3"):
        in_cone(bad, G)
    with pytest.raises(NotFiniteError, match="row 7, column 3"):
        in_cone(da.from_array(bad, chunks=(5, -1)), G).compute(scheduler="synchronous")
    wrong = G.copy()
    wrong[2, 1] = np.inf
    with pytest.raises(
        NotFiniteError, match=r"Input generators contains infinity: row 2, column 1; drop .* generators\["
    ):
        in_cone(X, wrong)
    with pytest.raises(InvalidInputError, match="12 features and generators 5"):
        in_cone(X, G[:, :5])
    with pytest.raises(InvalidInputError, match="0 sample"):
        in_cone(X, G[:0])
    with pytest.raises(InvalidParameterError, match="tolerance must be"):
        in_cone(X, G, tolerance=-1.0)
    with pytest.raises(InvalidParameterError, match="n_subproblems must be"):
        in_cone(X, G, n_subproblems=0)
    with pytest.raises(InvalidParameterError, match="use exact=True"):
        in_cone(X, G, n_subproblems=10_001)
    with pytest.raises(InvalidParameterError, match="random_state"):
        in_cone(X, G, random_state="x")
