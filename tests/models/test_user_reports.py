"""
What users of neighbouring libraries reported, with the input that triggered it: none of it happens here.

The numbers are those of the project's list of reports; each test names the thread that it comes from. Reports that
other tests already hold: 12, 13, 15, 68, 70, 76, 77 (cluster), 16 (engine/test_passes), 4, 5 (engine/test_rows).
"""

import io
import re
import sys
import tracemalloc
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import dask_dca as dca
from dask_dca.errors import DCAError, FewerAnchorsWarning, NotFiniteError
from tests.conftest import CountingScheduler, bits, planted, raise_if_dask_computes

X, ANCHORS = planted(200, 8, 4)


def sparse_blocks(X, chunks, form=sparse.csr_array):
    return da.from_array(X, chunks=chunks).map_blocks(form, dtype=X.dtype, meta=form((0, 0), dtype=X.dtype))


def random(*shape, chunks):
    return da.from_array(np.random.default_rng(0).random(shape), chunks=chunks)


# --- chunking, unknown sizes, shapes ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["robust", "paper"])
def test_report_1_an_empty_block_is_no_death(method):
    """dask-ml 551: da.random.random((10, 4), chunks=((0, 5, 5), (4,)))."""
    x = random(10, 4, chunks=((0, 5, 5), (4,)))
    assert bits(dca.NMF(3, method=method).fit(x)) == bits(dca.NMF(3, method=method).fit(x.compute()))


def test_report_2_a_short_fat_array_chunked_along_columns_alone():
    """dask-ml 731: da.random.random((100, 1000)).rechunk((-1, 50))."""
    x = random(100, 1000, chunks=(-1, 50))
    model = dca.NMF(5).fit(x)
    assert bits(model) == bits(dca.NMF(5).fit(x.compute()))
    assert model.transform(x).compute().shape == (100, 5)


def test_report_4_rows_chosen_by_a_mask_have_unknown_chunks():
    """dask-ml check_array: X[X[:, 0] > .5]."""
    x = random(1000, 4, chunks=(100, 4))
    x = x[x[:, 0] > 0.5]
    with pytest.warns(UserWarning, match="compute_chunk_sizes"):
        model = dca.NMF(3).fit(x)
    assert bits(model) == bits(dca.NMF(3).fit(x.compute()))
    with pytest.warns(UserWarning, match="compute_chunk_sizes"):
        assert model.transform(x).compute().shape == (len(x.compute()), 3)


def test_reports_5_and_6_a_dask_frame_is_a_matrix_and_no_statistic_is_nan():
    """dask-ml 542, 681: a frame of 4 x 3, and one made of an array of 6 x 2."""
    frame = pd.DataFrame({"a": [1.0, 0, 0, 1], "b": [0.0, 1, 0, 1], "c": [0.0, 0, 1, 1]})
    model = dca.NMF(3).fit(dd.from_pandas(frame, npartitions=1))
    assert sorted(model.anchor_indices_) == [0, 1, 2]
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    model = dca.NMF(2).fit(dd.from_dask_array(random(6, 2, chunks=(3, 2)), columns=["x", "y"]))
    for name in ("vote_share_", "vote_confidence_", "coverage_", "coverage_curve_", "components_"):
        assert np.isfinite(getattr(model, name)).all()


@pytest.mark.parametrize(("shape", "chunks", "k"), [((10, 10), (5, 5), 4), ((10, 20), (5, 5), 10)])
def test_reports_7_and_8_square_chunks_and_wide_arrays(shape, chunks, k):
    """dask 5368, 6620: no rule on how features are chunked."""
    x = random(*shape, chunks=chunks)
    assert bits(dca.find_anchors(x, k)) == bits(dca.find_anchors(x.compute(), k))


def test_report_10_many_blocks_are_merged_by_a_tree():
    """dask 3584: no merge task takes more than eight results, and none waits for all blocks."""
    counter = CountingScheduler()
    with dask.config.set(scheduler=counter):
        dca.find_anchors(random(3000, 5, chunks=(3, 5)), 3)
    for graph in counter.graphs:
        merges = [task for key, task in graph.items() if str(key[0]).startswith(("dca-merge", "dca-conquer"))]
        assert max(len(task.dependencies) for task in merges) <= 8


def test_report_11_blocks_with_fewer_rows_than_anchors_are_fine():
    """cuml 6643: 10 points in 10 partitions; only more anchors than points in all are refused, at once."""
    x = random(10, 5, chunks=(1, 5))
    assert bits(dca.find_anchors(x, 5)) == bits(dca.find_anchors(x.compute(), 5))
    with (
        raise_if_dask_computes(),
        pytest.raises(DCAError, match="n_anchors=11 exceeds the number of rows, n_samples = 10"),
    ):
        dca.find_anchors(x, 11)


# --- memory, graphs ------------------------------------------------------------------------------------------


def test_report_17_data_are_never_rechunked():
    """dask-ml 151: a chunk is loaded once a pass, and none larger than it."""
    counter = CountingScheduler()
    with dask.config.set(scheduler=counter):
        dca.find_anchors(random(500, 20, chunks=(50, 3)), 3)
    assert not any("rechunk" in str(key) or "concatenate" in str(key) for graph in counter.graphs for key in graph)


def test_report_18_coefficients_take_the_memory_of_a_tile():
    """cNMF 106: an OLS step of 301 GiB. 40 MB of rows, of which no second copy is made."""
    Z = np.random.default_rng(0).random((50_000, 100), dtype=np.float32)
    model = dca.NMF(5).fit(Z[:1000])
    tracemalloc.start()
    model.transform(Z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.9 * Z.nbytes


def test_reports_18_and_49_a_fit_makes_no_second_copy_of_the_data():
    """scikit-learn 11000: float32 is not upcast as a whole."""
    Z = np.random.default_rng(0).random((160_000, 100), dtype=np.float32)
    tracemalloc.start()
    dca.find_anchors(Z, 4, n_subproblems=50)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.7 * Z.nbytes


def test_report_19_sparse_data_are_never_made_dense():
    """scikit-learn 13138: tf-idf of 850,900 x 1,728,098. Here 20,000 x 1,000, dense 160 MB."""
    rng = np.random.default_rng(0)
    F = sparse.random_array((20_000, 5), density=0.3, rng=rng, format="csr")
    W = sparse.random_array((5, 1000), density=0.02, rng=rng, format="csr")
    Z = sparse.csr_array(sparse.vstack([sparse.eye_array(5), F]) @ W)
    tracemalloc.start()
    model = dca.NMF(5).fit(Z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.75 * 8 * Z.shape[0] * Z.shape[1]
    assert model.reconstruction_err(Z) < 1e-9


# --- sparse --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("method", ["robust", "paper"])
def test_reports_24_25_27_28_sparse_blocks(form, method):
    """dask 11880, 5008; scanpy 3594: reductions, concatenation and dask-ml fail on them."""
    Z = np.where(np.median(X) < X, X, 0.0)
    whole = bits(dca.NMF(4, method=method).fit(Z))
    x = sparse_blocks(Z, (60, 8), form)
    assert bits(dca.NMF(4, method=method).fit(x)) == whole
    small = sparse_blocks(np.eye(3), (2, 3), form)
    assert sorted(dca.NMF(3, method=method, n_subproblems=40).fit(small).anchor_indices_) == [0, 1, 2]
    unnamed = da.from_array(Z, chunks=(60, 8)).map_blocks(form)  # a meta of another kind
    assert bits(dca.NMF(4, method=method).fit(unnamed)) == whole


def test_report_28_blocks_of_an_on_disk_csr_store(tmp_path):
    """scanpy 3226, 2578: counts that are stored as csr, read by row ranges."""
    Z = sparse.csr_array(np.random.default_rng(0).poisson(0.4, (500, 30)).astype(np.float32))
    group = zarr.open_group(tmp_path / "counts.zarr", mode="w")
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(Z, name))

    def read(start):
        part = zarr.open_group(tmp_path / "counts.zarr", mode="r")
        at = part["indptr"][start : start + 101]
        span = slice(int(at[0]), int(at[-1]))
        return sparse.csr_array((part["data"][span], part["indices"][span], at - at[0]), shape=(100, 30))

    blocks = [
        da.from_delayed(dask.delayed(read)(start), (100, 30), meta=sparse.csr_array((0, 0), dtype=np.float32))
        for start in range(0, 500, 100)
    ]
    x = da.concatenate(blocks)
    assert bits(dca.NMF(6).fit(x)) == bits(dca.NMF(6).fit(Z.toarray()))


# --- zeros, duplicates, NaN, sign, dtype ---------------------------------------------------------------------


@pytest.mark.parametrize("method", ["robust", "paper"])
@pytest.mark.parametrize("wrap", [np.asarray, sparse.csr_array, lambda Z: da.from_array(Z, chunks=(31, 5))])
def test_reports_30_31_32_34_zero_rows_and_columns(method, wrap):
    """cNMF 83, 116; pyDNMFk 5; fastTopics 15: no abort, no NaN, rows stay aligned, zero rows get zero coefficients."""
    Z = X.copy()
    free = np.setdiff1d(np.arange(200), ANCHORS)
    Z[free[:50]] = 0.0
    Z[:, [2, 7]] = 0.0
    model = dca.NMF(4, method=method).fit(wrap(Z))
    assert sorted(model.anchor_indices_) == ANCHORS.tolist()
    assert model.n_zero_rows_ == 50
    F = np.asarray(model.transform(wrap(Z)))
    assert F.shape == (200, 4)
    assert np.isfinite(F).all()
    assert not F[free[:50]].any()
    np.testing.assert_allclose(F @ model.components_, Z, atol=1e-9)


@pytest.mark.parametrize("method", ["robust", "paper"])
def test_reports_35_36_more_anchors_than_distinct_points(method):
    """scikit-learn 10059: 17 points, 9 unique, k = 10; dask-ml: np.repeat(np.eye(3, 4), 300, 0), k = 5."""
    nine = np.random.default_rng(0).random((9, 20))
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        with pytest.warns(FewerAnchorsWarning, match="only 9 "):
            model = dca.NMF(10, method=method, n_subproblems=600).fit(np.vstack([nine, nine[:8]]))
        assert sorted(model.anchor_indices_) == list(range(9))
        with pytest.warns(FewerAnchorsWarning, match="only 3 "):
            model = dca.NMF(5, method=method).fit(da.from_array(np.repeat(np.eye(3, 4), 300, 0), chunks=(100, 4)))
    assert model.components_.shape == (3, 4)
    assert not out.getvalue()
    assert not err.getvalue()


def test_reports_38_39_missing_entries_are_filled_in():
    """scikit-learn 8447, 25229: incomplete data."""
    Z = X.copy()
    Z[17, 3] = np.nan
    model = dca.NMF(4).fit(Z)
    assert sorted(model.anchor_indices_) == ANCHORS.tolist()
    assert abs(model.impute(Z)[17, 3] - X[17, 3]) < 1e-3 * X.max()


def test_report_41_masked_entries_are_not_silently_read():
    """pykalman 94: a masked array whose masked entries hold nonsense."""
    Z = np.ma.MaskedArray(X.copy(), mask=np.zeros(X.shape, dtype=bool))
    Z.data[17, 3] = 1e30
    Z.mask[17, 3] = True
    for given in (Z, da.from_array(Z, chunks=(50, 8))):
        assert sorted(dca.NMF(4).fit(given).anchor_indices_) == ANCHORS.tolist()
        with pytest.raises(DCAError, match="row 17, column 3"):
            dca.NMF(4, method="paper").fit(given)


def test_report_44_tiny_negatives_are_clipped_and_counted():
    """CaImAn 959: -1e-18 from interpolation."""
    Z = X.copy()
    Z[3, 3] = -1e-18
    model = dca.NMF(4).fit(da.from_array(Z, chunks=(50, 8)))
    assert model.n_clipped_entries_ == 1
    assert (model.transform(Z) >= 0).all()


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_report_45_amperes_and_picoamperes_are_the_same(scale):
    """SciLink 381: all pixels dropped by an absolute threshold."""
    for method in ("robust", "paper"):
        model = dca.NMF(4, method=method).fit(X * scale)
        assert sorted(model.anchor_indices_) == ANCHORS.tolist()
        assert model.n_zero_rows_ == model.n_clipped_entries_ == 0


def test_report_46_bad_pixels_end_with_their_place_and_not_in_an_svd():
    """hypers 90: 'SVD did not converge'."""
    Z = X.copy()
    Z[150, 6] = np.inf
    with pytest.raises(NotFiniteError, match="row 150, column 6"):
        dca.NMF(4).fit(da.from_array(Z, chunks=(40, 3)))


@pytest.mark.parametrize("method", ["robust", "paper"])
def test_reports_48_49_float32_stays_float32_and_finds_the_same(method):
    """hmmlearn 2; scikit-learn 11000."""
    model = dca.NMF(4, method=method).fit(X.astype(np.float32))
    assert sorted(model.anchor_indices_) == ANCHORS.tolist()
    assert model.components_.dtype == model.transform(X.astype(np.float32)).dtype == np.float32


def test_report_51_the_finite_check_costs_no_pass():
    """dask-ml 350: every block is loaded as often as there are passes."""
    counter = CountingScheduler()
    with dask.config.set(scheduler=counter):
        dca.find_anchors(random(300, 5, chunks=(30, 5)), 3)
    assert counter.passes == ["fetch", "gram", "divide", "fetch"]  # the last one reads the anchors


# --- reproducibility -----------------------------------------------------------------------------------------


def test_reports_54_60_the_default_is_deterministic_and_asks_for_no_more_iterations():
    """hmmlearn 46; scikit-learn 16706: no convergence warning, since nothing iterates."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (bits(dca.NMF(4).fit(X)) for _ in range(2))
    assert first == second


def test_reports_62_63_64_neither_threads_nor_chunks_nor_their_order_decide():
    """gensim 113, tomotopy 60, dask 1684."""
    Z, _ = planted(2000, 10, 5, noise=0.1)
    whole = bits(dca.NMF(5).fit(Z))
    for n_threads, chunks in ((1, 250), (3, 2000), (3, 37), (8, 100), (8, 37)):
        with dask.config.set(scheduler="threads", num_workers=n_threads):
            assert bits(dca.NMF(5).fit(da.from_array(Z, chunks=(chunks, 10)))) == whole


def test_report_66_clones_do_not_share_a_generator():
    """scikit-learn 26148: each clone has its own copy, so fitting one does not move the other."""
    model = dca.NMF(4, random_state=np.random.RandomState(0))
    first, second = clone(model), clone(model)
    assert bits(first.fit(X)) == bits(second.fit(X))


def test_report_67_two_seeds_agree_on_the_anchors():
    """Yahoo_LDA 12: half of the topics changed between runs."""
    Z, anchors = planted(2000, 30, 10)
    for seed in range(5):
        assert sorted(dca.find_anchors(Z, 10, random_state=seed).indices) == anchors.tolist()


# --- API, compatibility --------------------------------------------------------------------------------------


def test_report_71_the_estimator_is_one():
    """anchortopics: no clone, no get_params, no transform in a Pipeline, a lambda in its state."""
    chain = make_pipeline(dca.NMF(4))
    np.testing.assert_array_equal(clone(chain).fit(X).transform(X), chain.fit_transform(X))
    assert chain.get_params()["nmf__n_components"] == 4


@pytest.mark.parametrize("chunks", [None, (70, 3)])
def test_report_72_fit_transform_is_fit_then_transform(chunks):
    """scikit-learn 18663: 0.042 apart, of 0.65."""
    given = X if chunks is None else da.from_array(X, chunks=chunks)
    apart = np.asarray(dca.NMF(4).fit(given).transform(given))
    assert np.array_equal(apart, np.asarray(dca.NMF(4).fit_transform(given)))


def test_reports_73_74_only_public_names_of_other_packages_are_imported():
    """dask-ml 1007, RamanSPy 25: private imports break with the next release."""
    private = re.compile(
        r"(?:from|import)\s+(?:dask|distributed|sklearn|scipy|numpy|zarr|xarray|pandas)\b(?:\.\w+)*\.?(?<=\.)_\w+"
        r"|from\s+(?:dask|distributed|sklearn|scipy|numpy|zarr)\b[\w.]*\s+import\s+(?:\w+\s*,\s*)*_\w+"
    )
    assert private.search("from sklearn.utils._mask import x")
    assert private.search("from sklearn.utils import _x")
    for path in Path(dca.__path__[0]).rglob("*.py"):
        assert not private.search(path.read_text()), path


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_report_76_progress_is_shown_on_the_local_schedulers_too(capsys, scheduler):
    """malariagen 612: on standard error, and silent unless asked for."""
    x = da.from_array(X, chunks=(50, 8))
    with dask.config.set(scheduler=scheduler):
        quiet = dca.NMF(4).fit(x)
        assert capsys.readouterr() == ("", "")
        loud = dca.NMF(4, verbose=True).fit(x)
    out, err = capsys.readouterr()
    assert not out
    assert all(f"dca-{name} done in" in err for name in ("fetch", "gram", "divide"))
    assert bits(loud) == bits(quiet)


def test_report_83_a_transposed_matrix_is_told_by_its_shape():
    """anchor-topic 1: as many anchors as rows at most, so 8 x 200 refuses 20."""
    with pytest.raises(DCAError, match="exceeds the number of rows, n_samples = 8"):
        dca.find_anchors(X.T, 20)


def test_nothing_is_printed():
    out = io.StringIO()
    with redirect_stdout(out):
        dca.NMF(4).fit(X).transform(X)
    assert not out.getvalue()
    assert "pytest" in sys.modules
