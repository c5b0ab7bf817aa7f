"""A free basis of counts, by Kullback and Leibler's divergence."""

import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from sklearn import decomposition

import dask_dca as dca
from dask_dca.geometry.exact import sparse_product_total
from dask_dca.models.nmf import fit as recipe
from dask_dca.models.nmf.free import Penalty, coefficients_of_counts, divergences, quotients, scaled_step
from tests.models.nmf.test_free_basis import bits


def counts(n=300, p=80, k=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.poisson(60.0 * rng.dirichlet(np.full(k, 0.5), n) @ rng.dirichlet(np.full(p, 0.1), k)).astype(float)


def fitted(**given):
    return dca.NMF(4, basis="free", beta_loss="kullback-leibler", **given)


def test_the_step_and_the_divergence_by_hand():
    X, W, H = sparse.csr_array([[2.0, 0.0]]), np.array([[1.0, 1.0]]), np.array([[1.0, 3.0], [3.0, 1.0]])
    ratio = quotients(X, W, H)  # 2 / (1 + 3), and no entry for the zero
    assert ratio.toarray().tolist() == [[0.5, 0.0]]
    np.testing.assert_allclose(divergences(X, ratio, W, H), [2.0 * np.log(0.5) - 2.0 + 8.0])
    # .5 x 1 and .5 x 3, over sums 4 and 4; with l1 = 1 and l2 = 3 over 8
    np.testing.assert_allclose(scaled_step(W, ratio @ H.T, H.sum(axis=1), Penalty()), [[0.125, 0.375]])
    np.testing.assert_allclose(scaled_step(W, ratio @ H.T, H.sum(axis=1), Penalty(1.0, 3.0)), [[0.0625, 0.1875]])


def test_sparse_sums_are_exact():
    rng = np.random.default_rng(0)
    values = sparse.random_array((500, 20), density=0.2, format="csr", rng=rng) * 1e5
    weights = rng.random((500, 3))
    whole = sparse_product_total(values, weights, 2.0**-18, 2.0**-19)
    cuts = [slice(i, i + 70) for i in range(0, 500, 70)]
    parts = [sparse_product_total(values[cut], weights[cut], 2.0**-18, 2.0**-19) for cut in cuts]
    np.testing.assert_array_equal(sum(parts[:0:-1], parts[0]).value(), whole.value())
    np.testing.assert_allclose(whole.value(), values.T @ weights, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(3))
def test_counts_are_fitted_as_well_as_by_a_peer(seed):
    X = counts(seed=seed)
    model = fitted(max_iter=3).fit(X)
    peers = [
        decomposition.NMF(4, solver="mu", beta_loss="kullback-leibler", init="random", random_state=i).fit(X)
        for i in range(3)
    ]
    assert model.reconstruction_err_ <= 1.001 * min(peer.reconstruction_err_ for peer in peers)
    rates = model.transform(X) @ model.components_
    there = X > 0
    divergence = (X[there] * np.log(X[there] / rates[there])).sum() - X.sum() + rates.sum()
    left = np.sqrt(2.0 * divergence)  # of the last components, at refitted coefficients
    before = fitted(max_iter=0).fit(X).reconstruction_err_  # of those that the first step began with
    assert left <= fitted(max_iter=1).fit(X).reconstruction_err_ < before - 0.4 * (before - left)
    squares = dca.NMF(4, basis="free").fit(X)
    other = squares.transform(X) @ squares.components_ + 1e-6
    assert divergence < (X[there] * np.log(X[there] / other[there])).sum() - X.sum() + other.sum()


@pytest.mark.parametrize("whole", [True, False])
def test_any_chunking_and_form_gives_the_same_bits(whole, monkeypatch):
    if not whole:
        for name, value in {
            "_MAX_WHOLE_ENTRIES": 1,
            "_SAMPLE_RUNS": 4,
            "_COUNT_SAMPLE_ROWS": 40,
            "_SAMPLE_ROWS_PER_COMPONENT": 10,
        }.items():
            monkeypatch.setattr(recipe, name, value)
    X = counts()
    model = fitted(max_iter=2, alpha_W=1e-4)
    expected = bits(model.fit(X))
    F = model.transform(X)
    for chunks in ((80, -1), ((1, 0, 149, 150), (33, 47))):
        chunked = da.from_array(X, chunks=chunks)
        assert bits(model.fit(chunked)) == expected
        np.testing.assert_array_equal(model.transform(chunked).compute(), F)
    assert bits(model.fit(sparse.csr_array(X))) == expected
    assert bits(model.fit(da.from_array(X, chunks=(70, -1)).map_blocks(sparse.csr_array))) == expected


def test_sparse_rows_are_never_made_dense_by_the_steps():
    X = sparse.csr_array(counts(50))
    W = coefficients_of_counts(X, np.random.default_rng(0).random((4, 80)), Penalty())
    assert quotients(X, W, np.ones((4, 80))).nnz == X.nnz


def test_saved_and_loaded(tmp_path):
    X = counts()
    model = fitted().fit(X)
    model.save(str(tmp_path / "m.zarr"))
    again = dca.load_model(str(tmp_path / "m.zarr"))
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


@pytest.mark.parametrize("k", [1, 2, 7, 33])
def test_quotients_of_rows_have_the_same_bits_beside_any_others(k):
    rng = np.random.default_rng(k)
    X = sparse.random_array((60, 211), density=0.4, rng=rng, format="csr")
    W, H = rng.random((60, k)), rng.random((k, 211))
    whole = quotients(X, W, H)
    np.testing.assert_allclose(whole.toarray(), X.toarray() / (W @ H), rtol=1e-12)
    for some in (slice(0, 1), slice(3, 20), slice(41, 60)):
        np.testing.assert_array_equal(quotients(X[some], W[some], H).data, whole[some].data)


@pytest.mark.parametrize("scale", [1e-13, 1e-20, 1e-300])
def test_numbers_far_too_small_for_counts_are_refused(scale):
    """Components became zero: rates have a least one."""
    with pytest.raises(dca.errors.InvalidInputError, match="multiply X first, for example X = X / "):
        fitted().fit(counts() * scale)
    assert fitted().fit(counts() * 1e-9).components_.any(axis=1).all()
