"""The estimator: scikit-learn's conventions, and what the numbers it reports mean."""

import inspect
import pickle

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.optimize import nnls
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import check_estimator

import dask_dca as dca
from tests.conftest import bits, planted, raise_if_dask_computes

X, ANCHORS = planted(300, 12, 4)
NOISY, _ = planted(300, 12, 4, noise=0.05)
METHODS = pytest.mark.parametrize("method", ["robust", "paper"])

WEIGHTS = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("model", [dca.NMF(), dca.NMF(2), dca.NMF(2, method="paper")], ids=str)
def test_scikit_learns_own_checks_pass(model):
    expected = {}
    if model.n_components == 2:
        expected |= dict.fromkeys(WEIGHTS, "weighted rows are shuffled there, and two anchors stand in the rows' order")
    if model.method == "paper":
        expected["check_estimators_nan_inf"] = "only the fit refuses NaN; transform takes missing entries"
    results = check_estimator(model, expected_failed_checks=expected, on_fail=None)
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}
    assert not failed
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == expected.keys()  # no more than said
    assert sum(r["status"] == "passed" for r in results) > 35


@METHODS
def test_components_are_rows_of_the_data(method):
    model = dca.NMF(4, method=method).fit(NOISY)
    np.testing.assert_array_equal(model.components_, NOISY[model.anchor_indices_])
    assert len(set(model.anchor_indices_.tolist())) == 4
    assert model.anchor_indices_.dtype == np.int64


@METHODS
def test_the_planted_factorization_is_found(method):
    model = dca.NMF(4, method=method).fit(X)
    assert sorted(model.anchor_indices_) == ANCHORS.tolist()
    F = model.transform(X)
    np.testing.assert_allclose(F @ model.components_, X, atol=1e-12)
    assert (F >= 0).all()
    np.testing.assert_allclose(F[model.anchor_indices_], np.eye(4), atol=1e-9)
    assert model.reconstruction_err(X) < 1e-10


def test_coefficients_are_the_non_negative_least_squares():
    model = dca.NMF(4).fit(NOISY)
    exact = np.array([nnls(model.components_.T, row)[0] for row in NOISY])
    np.testing.assert_allclose(model.transform(NOISY), exact, atol=1e-8)
    error = np.linalg.norm(NOISY - exact @ model.components_)
    for given in (NOISY, sparse.csr_array(NOISY), da.from_array(NOISY, chunks=(77, 5))):
        assert model.reconstruction_err(given) == pytest.approx(error, rel=1e-9)
    np.testing.assert_allclose(model.inverse_transform(exact), exact @ model.components_)


@METHODS
@pytest.mark.parametrize(
    "given", [NOISY, NOISY.astype(np.float32), da.from_array(NOISY, chunks=(77, 5))], ids=["f8", "f4", "dask"]
)
def test_fit_then_transform_is_fit_transform_exactly(method, given):
    """Reported as scikit-learn #18663 and scikit-learn #15144."""
    apart = np.asarray(dca.NMF(4, method=method).fit(given).transform(given))
    together = np.asarray(dca.NMF(4, method=method).fit_transform(given))
    assert apart.tobytes() == together.tobytes()


@METHODS
def test_fitting_again_gives_the_same_bits_and_keeps_nothing_of_before(method):
    model = dca.NMF(4, method=method).fit(NOISY)
    first = bits(model)
    assert bits(model.fit(NOISY)) == first
    model.fit(pd.DataFrame(NOISY[:, :7], columns=list("abcdefg")))
    assert bits(model) == bits(dca.NMF(4, method=method).fit(NOISY[:, :7]))
    assert model.feature_names_in_.tolist() == list("abcdefg")
    for given in (NOISY, da.from_array(NOISY, chunks=77), NOISY.tolist()):
        model.fit(pd.DataFrame(NOISY, columns=list("abcdefghijkl")))
        assert bits(model.fit(given)) == first
        assert not hasattr(model, "feature_names_in_")


def test_the_input_is_never_written_to():
    for Z in (NOISY, np.asfortranarray(NOISY), NOISY.astype(np.float32)):
        kept = Z.copy()
        kept.flags.writeable = False
        dca.NMF(4).fit(kept).transform(kept)
        dca.NMF(4, method="paper").fit(kept)
        assert np.array_equal(kept, Z)
    Z = sparse.csr_array(NOISY)
    kept = Z.copy()
    dca.NMF(4).fit_transform(Z)
    assert not (kept != Z).nnz


def test_clones_have_the_parameters_and_not_the_fit():
    model = dca.NMF(
        4, method="paper", n_subproblems=77, ensemble="sparse", selection="votes", random_state=3, retries=1
    )
    copy = clone(model.fit(X))
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "components_")
    assert set(model.get_params()) == set(inspect.signature(dca.NMF).parameters)


def test_an_integer_seed_gives_the_same_model_every_time():
    """The default is deterministic (hmmlearn #46, hmmlearn #119)."""
    assert dca.NMF().random_state == 0
    assert bits(dca.NMF(4).fit(NOISY)) == bits(dca.NMF(4).fit(NOISY))
    assert bits(dca.NMF(4, random_state=1).fit(NOISY)) != bits(dca.NMF(4).fit(NOISY))


@pytest.mark.parametrize("generator", [np.random.default_rng, np.random.RandomState])
def test_a_generator_is_advanced_by_each_fit(generator):
    """As scikit-learn has it; clones of an unused one begin alike (scikit-learn #26148)."""
    model = dca.NMF(4, random_state=generator(5))
    copy = clone(model)
    first, second = bits(model.fit(NOISY)), bits(model.fit(NOISY))
    assert first != second
    assert bits(copy.fit(NOISY)) == first
    assert bits(dca.NMF(4, random_state=generator(5)).fit(NOISY)) == first


def test_no_seed_draws_a_new_one_each_time():
    assert bits(dca.NMF(4, random_state=None).fit(NOISY)) != bits(dca.NMF(4, random_state=None).fit(NOISY))
    spawned = [np.random.SeedSequence(7) for _ in range(2)]
    first, again = (bits(dca.NMF(4, random_state=seed).fit(NOISY)) for seed in spawned)
    assert first == again


def test_pipelines_and_searches_take_it():
    chain = make_pipeline(MaxAbsScaler(), dca.NMF(4), KMeans(2, n_init=1, random_state=0))
    assert set(chain.fit_predict(NOISY)) == {0, 1}

    def score(model, Z, y=None):
        return -model.reconstruction_err(Z)

    search = GridSearchCV(dca.NMF(), {"n_components": [2, 4]}, scoring=score, cv=2).fit(NOISY)
    assert search.best_params_ == {"n_components": 4}


def test_set_output_gives_named_columns_and_rows():
    frame = pd.DataFrame(NOISY, columns=[f"band {j}" for j in range(12)], index=np.arange(300) + 1000)
    found = dca.NMF(4).set_output(transform="pandas").fit_transform(frame)
    assert found.columns.tolist() == [f"component_{j}" for j in range(4)]
    assert found.index.equals(frame.index)
    np.testing.assert_array_equal(found.to_numpy(), dca.NMF(4).fit_transform(NOISY))


def test_feature_names_are_checked_at_transform():
    frame = pd.DataFrame(NOISY, columns=[f"band {j}" for j in range(12)])
    model = dca.NMF(4).fit(frame)
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame[frame.columns[::-1]])
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.transform(NOISY)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_outputs_have_the_precision_of_the_input(dtype):
    """Reported as hmmlearn #2 and scikit-learn #11000."""
    Z = NOISY.astype(dtype)
    for given in (Z, da.from_array(Z, chunks=(77, 5))):
        model = dca.NMF(4).fit(given)
        assert model.components_.dtype == dtype
        found = np.promote_types(dtype, np.float32)  # coefficients of half precision would say little
        assert model.transform(given).dtype == found
        assert np.asarray(model.inverse_transform(model.transform(given))).dtype == found


@METHODS
def test_a_fitted_model_pickles_small_and_works(method):
    """As many rows as you like make no larger model (dask/dask-ml #460, NVIDIA/cuml #3140)."""
    sizes = []
    for n in (500, 20_000):
        Z, _ = planted(n, 12, 4)
        model = dca.NMF(4, method=method, n_subproblems=100).fit(da.from_array(Z, chunks=(n // 5, 12)))
        state = pickle.dumps(model)
        sizes.append(len(state))
        np.testing.assert_array_equal(pickle.loads(state).transform(Z), model.transform(Z))
        assert all(not isinstance(value, da.Array) for value in vars(model).values())
    assert max(sizes) < 8 * 4 * 12 + 16 * 200 + 4000
    assert abs(sizes[0] - sizes[1]) < 1000


def test_transform_and_its_inverse_stay_lazy():
    model = dca.NMF(4).fit(NOISY)
    with raise_if_dask_computes():
        F = model.transform(da.from_array(NOISY, chunks=((100, 0, 200), (5, 7))))
        back = model.inverse_transform(F)
    assert F.chunks == ((100, 0, 200), (4,))
    np.testing.assert_allclose(F.compute(), model.transform(NOISY), atol=1e-9)
    np.testing.assert_allclose(back.compute(), model.transform(NOISY) @ model.components_, atol=1e-9)
    assert da.from_array(NOISY, chunks=100).shape[0] == F[:, 0].shape[0]
    np.testing.assert_allclose(F[150:, 1].compute(), model.transform(NOISY)[150:, 1], atol=1e-9)


# --- the certificate ------------------------------------------------------------------------------------------


@METHODS
def test_votes_shares_and_bounds_belong_together(method):
    model = dca.NMF(4, method=method, n_subproblems=150).fit(NOISY)
    assert model.n_subproblems_ == 150
    np.testing.assert_allclose(model.vote_share_, model.votes_ / 150)
    low, high = model.vote_confidence_.T
    assert ((low <= model.vote_share_) & (model.vote_share_ <= high)).all()
    assert 150 <= model.candidate_votes_.sum() <= 300
    for row, votes in zip(model.anchor_indices_, model.votes_, strict=True):
        at = np.flatnonzero(model.candidates_ == row)
        assert votes == (model.candidate_votes_[at[0]] if len(at) else 0)


def test_coverage_is_one_for_separable_data_and_less_for_other():
    full = dca.NMF(4).fit(X)
    assert full.coverage_ == pytest.approx(1.0, abs=1e-6)
    assert (np.diff(full.coverage_curve_) >= 0).all()
    assert full.coverage_ == full.coverage_curve_[-1]
    many = planted(600, 20, 10)[0]
    assert dca.NMF(5).fit(many).coverage_ < 0.95 < dca.NMF(10).fit(many).coverage_


@pytest.mark.parametrize(("Z", "k"), [(X, 2), (X, 3), (np.random.default_rng(0).random((300, 12)), 4)])
def test_the_certificate_tells_that_anchors_are_missing(Z, k):
    """The residual is a tenth of the data and more, so the certificate must not say that all is reached."""
    model = dca.NMF(k).fit(Z)
    assert model.reconstruction_err(Z) > 0.1 * np.linalg.norm(Z)
    assert model.coverage_ < 0.95
    assert model.explained_variance_ratio_ < 0.8


def test_explained_variance_is_what_reconstruction_leaves_of_the_variance():
    model = dca.NMF(4).fit(NOISY[:120])
    Z = NOISY[:120]
    left = model.reconstruction_err(Z) ** 2 / ((Z - Z.mean(axis=0)) ** 2).sum()
    assert model.explained_variance_ratio_ == pytest.approx(1 - left, abs=1e-9)


@pytest.mark.parametrize("k", [2, 3, 5, 8])
def test_auto_finds_the_number_of_clean_anchors(k):
    Z, anchors = planted(400, 20, k, seed=k, noise=0.0)
    model = dca.NMF("auto").fit(Z)
    assert model.n_components_ == k
    assert sorted(model.anchor_indices_) == anchors.tolist()
    assert model.n_components_range_ == (k, k)
    assert bits(model) == bits(dca.NMF().fit(da.from_array(Z, chunks=(90, 7))))


def test_the_order_of_anchors_is_that_of_their_use():
    model = dca.NMF(6).fit(planted(300, 12, 6, noise=0.02)[0])
    gains = np.diff(model.coverage_curve_, prepend=0.0)
    assert gains[0] == gains.max()


@pytest.mark.parametrize("noise", [0.0, 1e-5, 1e-4, 1e-3, 1e-2])
def test_a_little_noise_costs_little_coverage(noise):
    """Directions of pure noise, however narrow, must not count like those between anchors."""
    Z, _ = planted(1000, 20, 4, noise=0.0)
    rng = np.random.default_rng(0)
    model = dca.NMF(4).fit(Z + noise * rng.random(Z.shape))
    assert model.coverage_ > 0.99


def test_half_precision_costs_no_coverage():
    Z, _ = planted(1000, 20, 4, noise=0.0)
    assert dca.NMF(4).fit(Z.astype("f2")).coverage_ > 0.99


@pytest.mark.parametrize("n", [50, 100, 120])
def test_rows_that_are_unit_vectors_are_fitted(n):
    """All eigenvalues of their moments are equal, at which LAPACK's quick driver may give up."""
    model = dca.NMF("auto").fit(np.eye(n))
    chunked = dca.NMF("auto").fit(da.from_array(np.eye(n), chunks=(30, -1)))
    np.testing.assert_array_equal(chunked.anchor_indices_, model.anchor_indices_)
