"""What every model that takes missing entries says of them, and what it leaves out for them."""

import dask.array as da
import numpy as np
import pytest
from scipy import sparse

import dask_dca as dca
from dask_dca._registry import MODELS
from dask_dca.errors import (
    FewEntriesWarning,
    InvalidParameterError,
    MissingEntriesError,
    MissingEntriesWarning,
    NotFiniteError,
)
from dask_dca.models.describe import describe, model_facts

RNG = np.random.default_rng(0)
PATHS = RNG.standard_normal((240, 5)).cumsum(axis=0) / 9.0
CLOUDS = RNG.standard_normal((240, 5)) + np.repeat(np.eye(5)[:3] * 6.0, 80, axis=0)
CONES = np.vstack([np.eye(3), RNG.dirichlet(np.ones(3), 237)]) @ RNG.random((3, 5))
TAKING = {
    "NMF": (lambda: dca.NMF(3), CONES),
    "GaussianMixture": (lambda: dca.GaussianMixture(3, max_iter=2), CLOUDS),
    "GaussianHMM": (lambda: dca.GaussianHMM(3, max_iter=2), CLOUDS),
    "KalmanFilter": (lambda: dca.KalmanFilter(2, max_iter=1), PATHS),
    "SubspaceClustering": (lambda: dca.SubspaceClustering(2, subspace_dim=2), CONES),
}
quiet = pytest.mark.filterwarnings("ignore::dask_dca.errors.MissingEntriesWarning")


def lacking(X, n):
    """The rows with that many missing entries, of which one row has two."""
    X = X.copy()
    X[np.arange(n - 1) * 7 + 3, np.arange(n - 1) % 5] = np.nan
    X[3, 1] = np.nan
    return X


def test_the_list_has_every_model_that_takes_missing_entries():
    takes = {name for name in MODELS if getattr(dca, name)().__sklearn_tags__().input_tags.allow_nan}
    assert takes == set(TAKING)
    assert all("n_missing_entries_" in getattr(dca, name)._fitted for name in TAKING)


@pytest.mark.parametrize("name", TAKING)
def test_the_papers_method_unknown_marks_and_infinity_are_refused(name):
    make, X = TAKING[name]
    with pytest.raises(MissingEntriesError, match="row"):
        make().set_params(method="paper").fit(lacking(X, 12))
    if name != "KalmanFilter":  # which takes NaN alone
        with pytest.raises(InvalidParameterError, match="missing must be"):
            make().set_params(missing="nan").fit(X)
    infinite = lacking(X, 12)
    infinite[11, 2] = np.inf
    with pytest.raises(NotFiniteError, match="infinity: row 11, column 2"):
        make().fit(infinite)
    model = make().fit(X)
    with pytest.raises(NotFiniteError, match="infinity: row 11, column 2"):
        getattr(model, model._per_row)(infinite)


@quiet
@pytest.mark.parametrize("name", TAKING)
def test_missing_entries_are_counted_told_and_saved(name, tmp_path):
    make, X = TAKING[name]
    whole = make().fit(X)
    assert whole.n_missing_entries_ == 0
    assert "missing" not in describe(whole)
    for given in (lacking(X, 12), da.from_array(lacking(X, 12), chunks=(70, 2))):
        model = make().fit(given)
        assert model.n_missing_entries_ == 12
    assert type(model.n_missing_entries_) is int
    assert model_facts(model)["n_missing_entries"] == 12
    assert "12 entries of the rows of the fit are missing." in describe(model)
    assert "12 entries of the rows of the fit are missing." in " ".join(dca.report(model, form="text").split())
    assert "entries of the rows of the fit" not in dca.report(whole, form="text")
    model.save(str(tmp_path / "model.zarr"))
    assert dca.load_model(str(tmp_path / "model.zarr")).n_missing_entries_ == 12
    assert "n_missing_entries_ :" in type(model).__doc__


def test_anchors_and_streams_count_them_too():
    assert dca.find_anchors(lacking(CLOUDS + 9.0, 12), 3).n_missing_entries == 12
    assert dca.find_anchors(CLOUDS + 9.0, 3).n_missing_entries == 0
    model = dca.KalmanFilter(2, max_iter=1).fit(lacking(PATHS, 12))
    other = dca.KalmanFilter(2, max_iter=1).fit(lacking(PATHS, 12))
    model.partial_fit(lacking(PATHS, 5))
    other.partial_fit(PATHS)
    assert (model.n_missing_entries_, other.n_missing_entries_) == (17, 12)
    assert dca.merge(model, other).n_missing_entries_ == 17
    init = dca.KalmanFilter(init=model, max_iter=1).fit(lacking(PATHS, 5))
    assert init.n_missing_entries_ == 5


def test_one_missing_entry_is_no_silent_change_of_the_mixture():
    """Components of heavy tails: with one entry missing they are normal ones, and whoever fits them is told."""
    rng = np.random.default_rng(0)
    means, far = 3 * rng.standard_normal((3, 6)), np.sqrt(4 / rng.chisquare(4, (1000, 1)))
    X = means[rng.integers(3, size=1000)] + far * rng.standard_normal((1000, 6))
    assert np.isfinite(dca.GaussianMixture(3).fit(X).degrees_of_freedom_)
    X[7, 3] = np.nan
    told = (
        r"^1 entry of 1 row is missing, so that heavy tails and noise rows were not looked for; if such rows are few, "
    )
    with pytest.warns(MissingEntriesWarning, match=told + r"leave them out: X = X\[np.isfinite\(X\).all\(axis=1\)\]$"):
        model = dca.GaussianMixture(3).fit(X)
    assert np.isinf(model.degrees_of_freedom_)
    assert "Heavy tails and noise rows were not looked for" in describe(model)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "heavy tails and noise rows were not looked for;"),
        ({"tails": "normal"}, "so that noise rows were not looked for;"),
        ({"covariance_type": "diag"}, "so that noise rows were not looked for;"),
    ],
)
def test_the_mixture_names_what_it_would_have_tried(given, told):
    with pytest.warns(MissingEntriesWarning, match=f"12 entries of 11 rows are missing, .*{told}"):
        dca.GaussianMixture(3, max_iter=0, **given).fit(lacking(CLOUDS, 12))


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewEntriesWarning")
def test_wide_rows_are_told_that_covariances_are_diagonal():
    X = np.random.default_rng(0).standard_normal((200, 130))
    X[0] = np.nan
    X[5, :3] = np.nan
    told = r"133 entries of 2 rows are missing, .* and covariance_type='auto' is 'diag' above 128 features; if"
    with pytest.warns(MissingEntriesWarning, match=told):
        dca.GaussianMixture(2, max_iter=0).fit(X)
    with pytest.warns(MissingEntriesWarning, match=r"lambda X: X\.tocsr|X = X\.tocsr"):
        dca.GaussianMixture(2, max_iter=0).fit(sparse.csr_array(X))


def test_nothing_is_told_where_nothing_was_left_out():
    """A start, or one floor for all variances: no search for tails or noise, of complete rows either."""
    holes = lacking(CLOUDS, 12)
    dca.GaussianMixture(3, "full", reg_covar=1e-6, max_iter=1).fit(holes)  # a warning would be an error
    dca.GaussianMixture(3, "diag", init={"means": CLOUDS[::80]}, max_iter=1).fit(holes)
    assert not issubclass(MissingEntriesWarning, FewEntriesWarning)
