"""Bad input: one kind of error, one line, that says what was wrong and how to go on; and hard but good input."""

import functools
import warnings

import dask.array as da
import numpy as np
import pytest
import zarr
from scipy import sparse

import dask_dca as dca
from dask_dca.errors import (
    DCAError,
    FewerAnchorsWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingChunksWarning,
    NotFiniteError,
    NotPointedWarning,
)
from tests.conftest import bits, planted

X, ANCHORS = planted(120, 6, 3)
METHODS = pytest.mark.parametrize("method", ["robust", "paper"])
FORMS = {
    "numpy": lambda X, folder: X,
    "csr": lambda X, folder: sparse.csr_array(X),
    "dask": lambda X, folder: da.from_array(X, chunks=(13, 4)),
    "dask of sparse": lambda X, folder: da.from_array(X, chunks=(13, 4)).map_blocks(
        sparse.csr_array, dtype=X.dtype, meta=sparse.csr_array((0, 0))
    ),
    "zarr": lambda X, folder: zarr.create_array(folder / "x.zarr", data=X, chunks=(13, 4)),
}
IN_ANY_FORM = pytest.mark.parametrize("form", FORMS)


def refused(error, match, function, *args, **kwargs):
    with pytest.raises(error, match=match) as caught:
        function(*args, **kwargs)
    assert isinstance(caught.value, DCAError)
    assert isinstance(caught.value, ValueError)
    message = str(caught.value)
    assert "\n" not in message
    assert 20 < len(message) < 250
    return message


@METHODS
@IN_ANY_FORM
def test_fewer_rows_than_anchors(method, form, tmp_path):
    """Reported as NVIDIA/cuml #6643."""
    given = FORMS[form](X[:4], tmp_path)
    refused(
        InvalidParameterError,
        "n_components=5 exceeds .* n_samples = 4; use at most 4",
        dca.NMF(5, method=method).fit,
        given,
    )
    refused(InvalidParameterError, "n_anchors=5 exceeds .* n_samples = 4", dca.find_anchors, given, 5, method=method)


@pytest.mark.parametrize("k", [0, -1, 1.5, 2.0, True, None, "two", np.nan, [3]])
def test_a_number_of_anchors_that_is_none(k):
    refused(
        InvalidParameterError, "n_components must be 'auto' or an integer of at least 1; received", dca.NMF(k).fit, X
    )
    refused(InvalidParameterError, "n_anchors must be 'auto' or an integer of at least 1", dca.find_anchors, X, k)


@pytest.mark.parametrize("k", [np.int32(3), np.uint8(3)])
def test_numpy_integers_are_integers(k):
    assert bits(dca.NMF(k).fit(X)) == bits(dca.NMF(3).fit(X))


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("method", "robuts", "unknown method 'robuts'; use one of 'robust', 'paper'"),
        ("ensemble", "guassian", "unknown ensemble 'guassian'; use 'auto' or one of 'mixed'"),
        ("selection", "best", "unknown selection 'best'; use one of 'auto', 'candidates', 'votes'"),
        ("n_subproblems", 0, "n_subproblems must be 'auto' or an integer of at least 1; received 0"),
        ("n_subproblems", 2.5, "n_subproblems must be"),
        ("random_state", -1, "random_state must be None, a non-negative integer or a NumPy generator"),
        ("random_state", "seed", "random_state must be"),
        ("random_state", 1.0, "random_state must be"),
    ],
)
def test_unknown_or_impossible_parameters(name, value, match):
    refused(InvalidParameterError, match, dca.NMF(3, **{name: value}).fit, X)
    refused(InvalidParameterError, match, dca.find_anchors, X, 3, **{name: value})


def test_parameters_that_only_one_of_them_has():
    refused(InvalidParameterError, "retries must be", dca.NMF(3, retries=-1).fit, X)
    refused(InvalidParameterError, "closed form in two dimensions", dca.find_anchors, X, 3, dim=3)
    refused(InvalidParameterError, "robust method", dca.find_anchors, X, 3, solver="lp", method="paper")
    refused(InvalidParameterError, "pass an integer instead of 'auto'", dca.find_anchors, X, "auto", method="paper")
    for ensemble in ("mixed", "row-space", "whitened"):
        refused(InvalidParameterError, "use 'gaussian'", dca.find_anchors, X, 3, method="paper", ensemble=ensemble)
    for bad in ({"k": 0}, {"k": 3, "delta": 0}, {"k": 3, "delta": 1}, {"k": 3, "c": 0}, {"k": 3, "c": np.nan}):
        refused(InvalidParameterError, "need k >= 1, 0 < delta < 1 and c > 0", dca.n_subproblems, **bad)


@METHODS
def test_y_of_another_width(method):
    refused(DCAError, "X has 6 features and Y 5", dca.find_anchors, X, 3, Y=X[:, :5], method=method)


@METHODS
@pytest.mark.parametrize(
    ("given", "match"),
    [
        (X[0], r"Expected 2D array, got 1-D array instead: shape \(6,\).*reshape\(1, -1\)"),
        (X[None], r"Expected 2D array, got 3-D array instead: shape \(1, 120, 6\).*reshape\(-1, 6\)"),
        (np.float64(3.0), r"Expected 2D array, got scalar instead: shape \(\)"),
        (None, "Expected 2D array|real numbers"),
        (da.from_array(X[0], chunks=3), r"Expected 2D array, got 1-D array instead"),
        (da.from_array(X[None], chunks=50), r"Expected 2D array, got 3-D array instead"),
        (zarr.create_array({}, data=X[0]), r"Expected 2D array, got 1-D array instead"),
        (zarr.create_array({}, data=X[None]), r"Expected 2D array, got 3-D array instead"),
        (X.astype(complex), "Complex data not supported: dtype complex128; pass X.real"),
        (da.from_array(X.astype(complex), chunks=50), "Complex data not supported"),
        (X.astype(str), "real numbers; received dtype <U"),
        (X.astype("M8[s]"), "real numbers; received dtype datetime64"),
        (
            np.array([["a", 1], [2, 3]], dtype=object),
            "real numbers; received (an array of Python objects|dtype object, texts)",
        ),
        (
            np.array([[{}, 1], [2, 3]], dtype=object),
            "real numbers; received (an array of Python objects|dtype object, texts)",
        ),
        (da.from_array(X.astype(object), chunks=50), "real numbers; received dtype object"),
        (np.zeros((0, 3)), r"Found array with 0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required"),
        (np.zeros((3, 0)), r"Found array with 0 feature\(s\) \(shape=\(3, 0\)\) while a minimum of 1 is required"),
        (da.zeros((0, 3)), r"Found array with 0 sample\(s\)"),
        (sparse.csr_array((0, 3)), r"Found array with 0 sample\(s\)"),
        (sparse.csr_array((3, 0)), r"Found array with 0 feature\(s\)"),
    ],
)
def test_arrays_that_are_no_matrix_of_numbers(method, given, match):
    refused(InvalidInputError, match, dca.NMF(1, method=method).fit, given)
    refused(InvalidInputError, match, dca.find_anchors, given, 1, method=method)


def test_ragged_lists():
    refused(InvalidInputError, "matrix of real numbers|rows of equal length", dca.find_anchors, [[1, 2], [3]], 1)


@METHODS
@IN_ANY_FORM
@pytest.mark.parametrize(
    ("value", "what", "nonnegative"), [(np.nan, "NaN", True), (np.inf, "infinity", False), (-np.inf, "infinity", True)]
)
def test_entries_that_are_not_finite_are_named_by_row_and_column(method, form, value, what, nonnegative, tmp_path):
    """A check in every block; the place is that of the whole matrix (scikit-learn #8447, scikit-learn #25229)."""
    Z = X.copy()
    Z[77, 5] = value
    fit = dca.NMF(3, method=method).fit if nonnegative else lambda X: dca.find_anchors(X, 3, method=method)
    if np.isnan(value) and method == "robust":  # a missing entry
        fit(FORMS[form](Z, tmp_path))
        return
    refused(NotFiniteError, f"Input X contains {what}: row 77, column 5; drop such rows", fit, FORMS[form](Z, tmp_path))


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_entries_that_are_not_finite_are_found_outside_the_sample_too(value, monkeypatch):
    monkeypatch.setattr("dask_dca.anchoring.preprocess._SAMPLE_RUNS", (2, 2))
    monkeypatch.setattr("dask_dca.anchoring.preprocess._MIN_MOMENT_RUNS", 2)
    monkeypatch.setattr("dask_dca.anchoring.preprocess._MOMENT_ROWS", (8, 1, 8))
    for row in (0, 31, 64, 119):
        Z = X.copy()
        Z[row, 2] = value
        for given in (Z, da.from_array(Z, chunks=(13, 4))):
            refused(NotFiniteError, f"row {row}, column 2", dca.NMF(3).fit, given)
            refused(NotFiniteError, f"row {row}, column 2", dca.find_anchors, given, 3)


@IN_ANY_FORM
def test_transform_names_bad_entries_too(form, tmp_path):
    model = dca.NMF(3).fit(X)
    for value, match in ((np.inf, "infinity: row 77, column 5"), (-1.0, "row 77, column 5 is -1")):
        Z = X.copy()
        Z[77, 5] = value
        (tmp_path / match[:3]).mkdir()
        given = FORMS[form](Z, tmp_path / match[:3])
        refused(DCAError, match, lambda given=given: np.asarray(model.transform(given)))
        refused(DCAError, match, model.reconstruction_err, given)


@METHODS
@IN_ANY_FORM
def test_negative_data_are_refused_by_models_that_need_none(method, form, tmp_path):
    Z = X.copy()
    Z[77, 5] = -0.5
    refused(
        InvalidInputError,
        "Negative values in data: row 77, column 5 is -0.5, .*clip",
        dca.NMF(3, method=method).fit,
        FORMS[form](Z, tmp_path),
    )


@METHODS
@IN_ANY_FORM
def test_negative_rounding_is_clipped_and_counted(method, form, tmp_path):
    """-1e-18 from interpolation is no reason to refuse a cube (flatironinstitute/CaImAn #959)."""
    Z = X.copy()
    Z[5, 2], Z[77, 5], Z[ANCHORS[0], 1] = -1e-18, -1e-9, -1e-12
    given = FORMS[form](Z, tmp_path)
    model = dca.NMF(3, method=method).fit(given)
    assert model.n_clipped_entries_ == 3
    assert bits(model, ["components_", "anchor_indices_"]) == bits(
        dca.NMF(3, method=method).fit(Z.clip(0)), ["components_", "anchor_indices_"]
    )
    assert (model.components_ >= 0).all()
    assert (np.asarray(model.transform(given)) >= 0).all()


def test_rounding_is_judged_by_the_row_whatever_its_unit():
    """Reported as ziatdinovmax/SciLink #381 via PR #387."""
    for scale in (1e-15, 1e15):
        Z = X * scale
        Z[5, 2] = -1e-9 * scale
        assert dca.NMF(3).fit(Z).n_clipped_entries_ == 1
        Z[5, 2] = -1e-3 * scale
        refused(InvalidInputError, "Negative values in data: row 5, column 2", dca.NMF(3).fit, Z)


def test_a_negative_number_may_mark_missing_entries():
    Z = X.copy()
    Z[5, 2] = -9999
    refused(InvalidInputError, r"is -9999, .* pass missing=-9999\.0 if it marks .*X\.clip\(0\)", dca.NMF(3).fit, Z)
    assert dca.NMF(3, missing=-9999.0).fit(Z).n_missing_entries_ == 1


@METHODS
@IN_ANY_FORM
def test_data_that_are_all_zero(method, form, tmp_path):
    given = FORMS[form](np.zeros((20, 4)), tmp_path)
    warnings.simplefilter("ignore", MissingChunksWarning)  # zarr writes no chunk of zeros
    refused(InvalidInputError, "are all rows zero", dca.NMF(2, method=method).fit, given)
    refused(InvalidInputError, "are all rows zero", dca.find_anchors, given, 2, method=method)


def test_transform_of_other_features_or_before_fit():
    model = dca.NMF(3).fit(X)
    for given in (X[:, :5], da.from_array(X[:, :5], chunks=50), sparse.csr_array(X[:, :5])):
        with pytest.raises(ValueError, match="X has 5 features, but NMF is expecting 6 features as input"):
            model.transform(given)
    with pytest.raises(ValueError, match="not fitted"):
        dca.NMF(3).transform(X)


def test_a_failed_fit_does_not_pretend_to_be_fitted():
    model = dca.NMF(3)
    with pytest.raises(DCAError):
        model.fit(-X)
    with pytest.raises(ValueError, match="not fitted"):
        model.transform(X)


# --- hard, but good ------------------------------------------------------------------------------------------


@METHODS
@pytest.mark.parametrize(
    "given", [[[2.0]], [[1.0, 2.0, 3.0]], [[1.0], [2.0], [5.0]], np.ones((7, 4)), [[0.0, 1.0], [0.0, 0.0]]]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_one_anchor_of_least_data(method, given, dtype):
    given = np.array(given, dtype=dtype)
    model = dca.NMF(1, method=method).fit(given)
    assert model.anchor_indices_.tolist() == [0]  # of equal rays the first
    F = model.transform(given)
    np.testing.assert_allclose(F @ model.components_, given, atol=1e-6)
    assert bits(model) == bits(dca.NMF(1, method=method).fit(da.from_array(given, chunks=1)))


@METHODS
@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_all_rows_are_anchors_of_themselves(method, k):
    Z = np.random.default_rng(k).random((k, 6))
    found = dca.find_anchors(Z, k, method=method, n_subproblems=100)
    assert sorted(found.indices) == list(range(k))
    assert sorted(dca.find_anchors(np.eye(k), k, method=method, n_subproblems=100).indices) == list(range(k))


@METHODS
@pytest.mark.parametrize(
    ("given", "distinct"),
    [
        (np.repeat(np.eye(3, 4), 300, axis=0), 3),
        (np.tile(np.eye(4)[:2], (50, 1)) * np.arange(1, 101)[:, None], 2),
        (np.ones((30, 5)), 1),
        (np.vstack([np.eye(3), np.zeros((9, 3))]), 3),
    ],
)
def test_fewer_rays_than_anchors_are_found_once_each_with_a_warning(method, given, distinct):
    """No duplicate components, no NaN, and the caller is told, at his own line (scikit-learn #10059)."""
    order = np.random.default_rng(0).permutation(len(given))
    with pytest.warns(FewerAnchorsWarning, match=f"only {distinct} ") as caught:
        model = dca.NMF(5 if distinct < 5 else 6, method=method).fit(given[order])
    assert [warning.filename for warning in caught] == [__file__]
    rays = model.components_ / model.components_.max(axis=1, keepdims=True)
    assert len(np.unique(rays, axis=0)) == len(rays) == distinct == model.n_components_
    assert model.transform(given[order]).shape == (len(given), distinct)
    assert model.get_feature_names_out().tolist() == [f"component_{i}" for i in range(distinct)]
    assert model.reconstruction_err(given[order]) < 1e-6


@METHODS
@pytest.mark.parametrize("column", [0, 3])
def test_constant_and_zero_columns_leave_finite_results(method, column):
    """Reported as dylkot/cNMF #116 and dylkot/cNMF #1."""
    Z = X.copy()
    Z[:, column] = 0.0
    Z[:, column - 1] = 7.0
    Z[10:20] = 0.0
    model = dca.NMF(3, method=method).fit(Z)
    for name in ("components_", "vote_share_", "vote_confidence_", "coverage_curve_"):
        assert np.isfinite(getattr(model, name)).all()
    assert np.isfinite(model.transform(Z)).all()


@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e-30, 1e30, 1e300])
def test_numbers_near_the_ends_of_float64(scale):
    found = dca.NMF(3).fit(X * scale)
    assert sorted(found.anchor_indices_) == ANCHORS.tolist()
    assert np.isfinite(found.transform(X * scale)).all()


def test_rows_of_very_different_size_count_by_their_rays():
    scales = 10.0 ** np.random.default_rng(0).integers(-150, 150, len(X))
    for method in ("robust", "paper"):
        assert sorted(dca.find_anchors(X * scales[:, None], 3, method=method).indices) == ANCHORS.tolist()


def test_data_around_the_origin_are_called_not_pointed():
    Z = np.random.default_rng(0).standard_normal((400, 6))
    with pytest.warns(
        NotPointedWarning, match=r"of 400 rows lie behind the reference axis.*X - X.min\(axis=0\)"
    ) as caught:
        found = dca.find_anchors(Z, 3)
    assert [warning.filename for warning in caught] == [__file__]
    assert found.n_behind_rows > 20
    assert sorted(dca.find_anchors(Z - Z.min(axis=0), 3).indices) == sorted(
        dca.find_anchors(da.from_array(Z - Z.min(axis=0), chunks=(90, 6)), 3).indices
    )


@pytest.mark.parametrize("ensemble", ["unit", "sparse", "data", "gaussian"])
def test_planes_on_which_no_row_is_seen_cast_no_vote(ensemble):
    """Single features that are zero in all rows, in the paper's method."""
    Z = np.zeros((60, 12))
    Z[:, :4] = planted(60, 4, 3)[0]
    found = dca.find_anchors(Z, 3, method="paper", ensemble=ensemble, n_subproblems=300)
    assert found.candidates.max() < 60
    assert found.n_pointed <= 300 - (10 if ensemble == "unit" else 0)
    assert bits(found) == bits(
        dca.find_anchors(da.from_array(Z, chunks=(9, 5)), 3, method="paper", ensemble=ensemble, n_subproblems=300)
    )


def test_more_subproblems_than_anyone_needs_are_refused_before_memory_is():
    with pytest.raises(dca.errors.DCAError, match="n_subproblems=1000000000000"):
        dca.find_anchors(np.eye(4), 2, n_subproblems=10**12)


def test_groups_of_several_arrays_name_the_line_that_chooses(tmp_path):
    group = zarr.create_group(tmp_path / "g.zarr")
    for name in ("a", "b"):
        group.create_array(name, data=np.eye(3))
    with pytest.raises(dca.errors.DCAError, match=r"zarr.open_array\(.*path='a'\)"):
        dca.NMF(2).fit(str(tmp_path / "g.zarr"))


def test_other_files_name_the_line_that_reads_them(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    with pytest.raises(dca.errors.DCAError, match=r"numpy.load\(.*mmap_mode='r'\)"):
        dca.NMF(2).fit(str(tmp_path / "x.npy"))


NUMBERS = {
    "NMF": (functools.partial(dca.NMF, 3, basis="free"), ("alpha_W", "alpha_H", "l1_ratio")),
    "GaussianMixture": (functools.partial(dca.GaussianMixture, 2), ("tol", "reg_covar")),
    "GaussianHMM": (functools.partial(dca.GaussianHMM, 2), ("tol", "min_covar")),
    "KalmanFilter": (functools.partial(dca.KalmanFilter, 2), ("tol",)),
    "LatentDirichletAllocation": (
        functools.partial(dca.LatentDirichletAllocation, 2),
        ("tol", "doc_topic_prior", "topic_word_prior"),
    ),
}


@pytest.mark.parametrize("value", ["x", [1.0], True, np.nan, np.inf, 1j])
@pytest.mark.parametrize(("model", "name"), [(model, name) for model, (_, names) in NUMBERS.items() for name in names])
def test_a_parameter_that_is_no_number(model, name, value):
    refused(InvalidParameterError, f"^{name} must be .*; received", NUMBERS[model][0](**{name: value}).fit, X)


def test_auto_is_offered_only_where_it_is_taken():
    """Advice that is followed must help."""
    for make, name in ((dca.NMF, "max_iter"), (dca.GaussianHMM, "max_iter"), (dca.KalmanFilter, "max_iter")):
        refused(InvalidParameterError, f"^{name} must be an integer of at least 0", make(2, **{name: "x"}).fit, X)
    for make, name in (
        (dca.GaussianMixture, "max_iter"),
        (dca.GaussianMixture, "reg_covar"),
        (dca.GaussianHMM, "min_covar"),
    ):
        refused(InvalidParameterError, f"^{name} must be 'auto' or a", make(2, **{name: "x"}).fit, X)
        make(2, **{name: "auto"}).fit(X)
