"""Weights: a whole number is so many copies of the row, whatever the chunks of data and weights."""

import pickle

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import dask_dca as dca
from dask_dca.engine import passes
from dask_dca.engine.checkpoint import open_checkpoint
from dask_dca.engine.graphs import with_weights
from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import spread_rows
from dask_dca.engine.types import add_parts
from dask_dca.engine.weights import draw_rows, weigh_rows
from dask_dca.errors import CheckpointError, InvalidInputError, InvalidParameterError
from dask_dca.models.nmf import fit as recipe
from tests.contract.entries import fitted_bytes
from tests.strategies import chunkings

BASES = ("rows", "rays", "free")


def mixtures(n=200, p=9, k=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.dirichlet(np.full(k, 0.5), n) @ rng.random((k, p)) + 0.01 * rng.random((n, p))
    return X, rng.integers(0, 4, n)


def fitted(X, weights=None, basis="rows", **options):
    return dca.NMF(4, basis=basis, **options).fit(X, sample_weight=weights)


def pairs(one, other):
    """Arrays of one model beside those of another, except those that count or number rows."""
    names = ("components_", "coverage_curve_", "votes_", "vote_share_", "explained_variance_ratio_")
    return [(getattr(one, name), getattr(other, name)) for name in names]


@pytest.mark.parametrize("n", [200, 3000])
@pytest.mark.parametrize("basis", [*BASES, "auto"])
def test_whole_weights_are_copies(basis, n, monkeypatch):
    monkeypatch.setattr(recipe, "_MAX_WHOLE_ENTRIES", 2000 * 9)  # a basis learns on 2,048 of 4,500 copies
    X, weights = mixtures(n)
    one, copied = fitted(X, weights, basis), fitted(np.repeat(X, weights, axis=0), None, basis)
    assert one.anchor_indices_.tolist() == np.repeat(np.arange(n), weights)[copied.anchor_indices_].tolist()
    assert one.n_zero_rows_ == (weights == 0).sum()
    for own, other in pairs(one, copied):
        np.testing.assert_allclose(own, other, rtol=1e-6, atol=2.0**-18)  # coefficients are rounded to 2**-19
    assert one.n_samples_seen_ == n
    if one.basis_ != "rows":
        np.testing.assert_allclose(one.reconstruction_err_, copied.reconstruction_err_, rtol=1e-6)
        assert abs(one.components_ - fitted(X, None, basis).components_).max() > 1e-3  # which weights do change


@pytest.mark.parametrize("n", [200, 3000])
def test_whole_weights_are_copies_of_counts(n, monkeypatch):
    monkeypatch.setattr(recipe, "_MAX_WHOLE_ENTRIES", 2000 * 9)
    X, weights = mixtures(n)
    X, options = np.rint(40 * X), {"basis": "free", "beta_loss": "kullback-leibler"}
    one, copied = fitted(X, weights, **options), fitted(np.repeat(X, weights, axis=0), **options)
    np.testing.assert_allclose(one.components_, copied.components_, rtol=1e-5, atol=2.0**-18)
    np.testing.assert_allclose(one.reconstruction_err_, copied.reconstruction_err_, rtol=1e-6)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_weights_times_a_constant_give_the_same_components(loss):
    """What sums are rounded to goes with the weights: by powers of four to the bit."""
    X, _ = mixtures()
    X, weights = np.rint(40 * X), 0.1 + 3.0 * np.random.default_rng(1).random(200)
    one = fitted(X, weights, "free", beta_loss=loss)
    for factor in (2.0**-8, 2.0**20):
        assert (fitted(X, factor * weights, "free", beta_loss=loss).components_ == one.components_).all()
    for factor in (0.003, 1e7):
        other = fitted(X, factor * weights, "free", beta_loss=loss)
        np.testing.assert_allclose(other.components_, one.components_, rtol=1e-5, atol=1e-4)  # of about 40
        np.testing.assert_allclose(other.reconstruction_err_, np.sqrt(factor) * one.reconstruction_err_, rtol=1e-5)


@given(st.data())
@settings(max_examples=8)
def test_any_chunks_of_data_and_weights_give_the_same_bits(data):
    X, whole = mixtures(120)
    weights = data.draw(st.sampled_from([whole.astype(float), 0.25 + whole / 3.0, 2.0 * (whole > 0)]))[:120]
    basis = data.draw(st.sampled_from(["rows", "free"]))
    expected = fitted_bytes(fitted(X, weights, basis))
    chunked = da.from_array(X, chunks=(data.draw(chunkings(120)), data.draw(chunkings(9, most=3, empty=False))))
    of_weights = da.from_array(weights, chunks=(data.draw(chunkings(120, empty=False)),))
    some = data.draw(st.sampled_from([weights, of_weights]))
    assert fitted_bytes(fitted(chunked, some, basis)) == expected


def test_sparse_rows_are_those_of_dense_ones():
    X, weights = mixtures()
    X[X < 0.2] = 0.0
    expected = fitted_bytes(fitted(X, weights, "free"))
    assert fitted_bytes(fitted(sparse.csr_array(X), weights, "free")) == expected
    blocks = da.from_array(X, chunks=(70, 9)).map_blocks(sparse.csr_array, dtype=X.dtype, meta=sparse.csr_array((0, 0)))
    assert fitted_bytes(fitted(blocks, weights, "free")) == expected


def test_rows_without_weight_may_hold_anything():
    X, weights = mixtures()
    broken = X.copy()
    broken[weights == 0] = np.nan
    broken[np.flatnonzero(weights == 0)[0]] = -1e9
    assert fitted_bytes(fitted(broken, weights)) == fitted_bytes(fitted(X, weights))


def test_weights_of_one_change_nothing():
    X, _ = mixtures()
    assert fitted_bytes(fitted(X, np.ones(200), "free")) == fitted_bytes(fitted(X, None, "free"))


@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize("cut", [(1000,), (17, 500, 483)])
def test_samples_are_drawn_among_copies(cut, scale):
    weights = np.random.default_rng(0).integers(0, 5, 1000)
    copies = np.repeat(np.arange(1000), weights)
    rows = as_rows(da.zeros((1000, 2), chunks=(cut, 2)) if len(cut) > 1 else np.zeros((1000, 2)))
    found = draw_rows(weigh_rows(rows, scale * weights, Run()), 8, 40, Run())
    if scale == 1.0:  # the very copies that would be drawn of data in which they stand
        assert found.tolist() == copies[spread_rows(len(copies), 8, 40)].tolist()
    else:  # one for each row on average, in proportion to its weight
        every = draw_rows(weigh_rows(rows, scale * weights, Run()), 1, 1000, Run())
        drawn = np.bincount(every, minlength=1000)
        assert drawn.sum() == 1000
        assert abs(drawn - weights * 1000 / weights.sum()).max() <= 1.0
        assert np.isin(found, every).all()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(199), "one number for each of the 200 rows"),
        (np.ones((200, 1)), r"shape \(200, 1\)"),
        (np.full(200, "1"), "dtype <U1"),
        (np.where(np.arange(200) == 7, -1.0, 1.0), "received -1 for row 7"),
        (np.where(np.arange(200) == 7, np.nan, 1.0), "received nan for row 7"),
        (np.zeros(200), "at least one row must count"),
        (np.full(200, 1e15), r"2\*\*53 rows in all"),
    ],
)
def test_what_is_no_weight_is_refused(weights, message):
    X, _ = mixtures()
    for some in (weights, da.from_array(weights, chunks=50)):
        with pytest.raises(InvalidInputError, match=message):
            fitted(da.from_array(X, chunks=(60, 9)), some)


def test_holes_and_streams_take_no_weights():
    X, weights = mixtures()
    with pytest.raises(InvalidParameterError, match="with resume"):
        dca.NMF(4).fit(X, sample_weight=weights, resume=dca.NMF(4).partial_fit(X[:50]))
    X[np.flatnonzero(weights)[0], 0] = np.nan
    with pytest.raises(InvalidInputError, match="take no sample_weight"):
        fitted(X, weights)


def test_what_a_block_is_worked_on_by_holds_no_weights():
    data, weights = da.zeros((100_000, 2), chunks=(10_000, 2)), np.arange(100_000.0)
    rows = weigh_rows(as_rows(data), weights, Run())
    _, job = with_weights(rows, Pass("refine", len, add_parts, weighted=True))
    assert len(pickle.dumps(job)) < 2_000


def _weighted_sum(_, start, rows, *, weights):
    return weights @ rows


def test_a_kept_pass_is_that_of_its_weights(tmp_path):
    """Also where nothing else of the pass depends on them."""
    X, _ = mixtures()
    data, job = da.from_array(X, chunks=(40, -1)), Pass("refine", _weighted_sum, add_parts, weighted=True)
    weights = np.arange(1.0, len(X) + 1.0)
    for own in (weights, weights[::-1], weights):
        rows = weigh_rows(as_rows(data), own, Run())
        point = open_checkpoint(str(tmp_path / "kept"), {"data": {"rows": len(X)}}, rows.source)
        np.testing.assert_allclose(run_pass(rows, job, None, Run(checkpoint=point)), own @ X)


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("basis", ["rows", "free"])
def test_a_checkpoint_goes_with_its_weights(basis, least, tmp_path, monkeypatch):
    """The same weights go on from it; under others nothing of it is taken for theirs."""
    X, _ = mixtures()
    data, rng = da.from_array(X, chunks=(40, -1)), np.random.default_rng(1)
    weights, others = (rng.integers(least, 4, len(X)) for _ in range(2))
    path, names, real = str(tmp_path / "kept"), [], passes._run_graph
    monkeypatch.setattr(passes, "_run_graph", lambda *args: names.append(args[1].name) or real(*args))
    for resumed in (False, True):
        names.clear()
        kept = fitted(data, weights, basis, checkpoint=path)
        assert resumed == ("verify" in names) != bool({"divide", "refine"} & set(names))
        np.testing.assert_array_equal(kept.components_, fitted(data, weights, basis).components_)
    if least:
        kept = fitted(data, others, basis, checkpoint=path)
        np.testing.assert_array_equal(kept.components_, fitted(data, others, basis).components_)
    else:  # rows of weight zero are not the data's
        with pytest.raises(
            CheckpointError, match=r"data changed .*or of a sample_weight that left out other rows.*another path"
        ):
            fitted(data, others, basis, checkpoint=path)


def test_anchors_of_weighted_rows_are_those_of_copies():
    X, weights = mixtures()
    for data in (X, da.from_array(X, chunks=(37, 4)), sparse.csr_array(X)):
        found = dca.find_anchors(data, 4, sample_weight=weights)
        copied = dca.find_anchors(np.repeat(X, weights, axis=0), 4)
        assert found.indices.tolist() == np.repeat(np.arange(200), weights)[copied.indices].tolist()
        np.testing.assert_array_equal(found.votes, copied.votes)
        np.testing.assert_array_equal(found.rows, X[found.indices])
    assert not set(np.flatnonzero(weights == 0)) & set(dca.find_anchors(X, 4, sample_weight=weights).candidates)


@pytest.mark.parametrize(
    "options", [{"method": "paper"}, {"compute": False}, {"solver": "spa", "dim": 3}, {"Y": np.eye(9)}]
)
def test_weights_that_anchors_do_not_take_are_refused(options):
    X, weights = mixtures()
    with pytest.raises(InvalidParameterError, match="sample_weight is for the rows of X by method='robust'"):
        dca.find_anchors(X, 4, sample_weight=weights, **options)
