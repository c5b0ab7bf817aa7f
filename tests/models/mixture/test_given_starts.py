"""Mixtures that start where the user says: scikit-learn's passes from the same start."""

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import dask_dca as dca
from dask_dca.errors import InvalidParameterError
from tests.contract.entries import fitted_bytes
from tests.strategies import chunkings

RNG = np.random.default_rng(0)
MEANS = np.array([[0.0, 0, 0, 0], [3, 0, 1, 0], [0, 3, -1, 0]])
LABELS = RNG.integers(3, size=500)
X = 20.0 + MEANS[LABELS] + RNG.standard_normal((500, 4))
WEIGHTS = np.array([0.2, 0.3, 0.5])
COVARIANCES = {
    "full": np.array([np.eye(4) + 0.3 * j for j in range(3)]),
    "tied": np.eye(4) + 0.3,
    "diag": 1.0 + RNG.random((3, 4)),
    "spherical": np.array([1.0, 2.0, 3.0]),
}
START = X[:3] + 0.5


@pytest.mark.parametrize("kind", COVARIANCES)
def test_passes_are_scikit_learns(kind):
    inverse = np.linalg.inv(COVARIANCES[kind]) if kind in ("full", "tied") else 1.0 / COVARIANCES[kind]
    begin = {"weights": WEIGHTS, "means": START, "covariances": COVARIANCES[kind]}
    own = dca.GaussianMixture(3, kind, init=begin, max_iter=5, tol=0, reg_covar=0).fit(X)
    other = GaussianMixture(
        3, covariance_type=kind, weights_init=WEIGHTS, means_init=START, precisions_init=inverse, reg_covar=0, tol=0
    )
    with pytest.warns(ConvergenceWarning):  # of so few passes
        other.set_params(max_iter=5).fit(X)
    for name in ("weights_", "means_", "covariances_"):
        np.testing.assert_allclose(getattr(own, name), getattr(other, name), rtol=1e-6, atol=1e-9, err_msg=name)
    assert own.score(X) == pytest.approx(other.score(X), abs=1e-6)
    assert own.log_likelihoods_[-2] == pytest.approx(other.lower_bound_, abs=1e-6)
    assert own.n_iter_ == 5
    assert own.votes_.sum() > 0
    assert own.n_outliers_ == 0


def test_means_alone_are_enough():
    model = dca.GaussianMixture(init={"means": START}, max_iter=50).fit(X)
    assert model.covariance_type_ == "full"
    assert model.n_components_ == 3
    assert (np.diff(model.log_likelihoods_) > -1e-12).all()
    untouched = dca.GaussianMixture(init={"means": START}, max_iter=0).fit(X)
    np.testing.assert_allclose(untouched.means_, START, rtol=1e-14)


@pytest.mark.parametrize("kind", [*COVARIANCES, "tied-spherical"])
def test_a_fitted_model_is_a_start_and_goes_on(kind):
    first = dca.GaussianMixture(3, kind, reg_covar=0, max_iter=1).fit(X)
    more = dca.GaussianMixture(init=first, reg_covar=0, max_iter=4, tol=0).fit(X)
    assert more.covariance_type_ == kind
    assert more.log_likelihoods_[0] == pytest.approx(first.log_likelihoods_[-1], abs=1e-6)
    assert (np.diff(more.log_likelihoods_) > -1e-6).all()  # sums round the density of a row
    assert clone(more).init is first
    two, streamed = (dca.GaussianMixture(3, kind, init={"means": START}, max_iter=n, tol=0).fit(X) for n in (2, 1))
    streamed.partial_fit(X)  # the same rows once more: a plain step, too
    np.testing.assert_allclose(streamed.covariances_, two.covariances_, rtol=1e-6)


@given(data=st.data())
@settings(max_examples=6)
def test_the_same_bits_for_any_chunking(data):
    make = lambda: dca.GaussianMixture(3, init={"means": START}, max_iter=2)  # noqa: E731
    cut = da.from_array(X, chunks=(data.draw(chunkings(len(X))), data.draw(chunkings(4, most=2, empty=False))))
    assert fitted_bytes(make().fit(X)) == fitted_bytes(make().fit(cut))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"init": {"weights": WEIGHTS}}, "needs means"),
        (
            {"init": {"means": START, "precisions": 1}},
            "init has no parameter 'precisions'; it takes weights, me",
        ),
        ({"init": {"means": START[:, :3]}}, r"means of init has shape \(3, 3\); it must have \(3, 4\)"),
        ({"init": {"means": START, "weights": 2 * WEIGHTS}}, "weights of init must be positive"),
        ({"init": {"means": START[:2]}}, "n_components=3, and the start has 2; pass n_components=2"),
        ({"init": dca.GaussianMixture(3, "diag").fit(X), "covariance_type": "full"}, "are 'diag', and can't start"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bad_starts_are_refused(given, message):
    with pytest.raises(InvalidParameterError, match=message):
        dca.GaussianMixture(3, **given).fit(X)


@pytest.mark.parametrize("kind", COVARIANCES)
@pytest.mark.parametrize("n", [500, 6_000])
@pytest.mark.parametrize("breadth", [1e12, 1e20])
def test_a_start_that_is_far_too_broad_becomes_one_normal_distribution(kind, n, breadth):
    """All components are alike then. Sums rounded by the start's deviations left nothing of the rows."""
    rows = np.tile(X, (n // 500, 1)) + np.random.default_rng(1).standard_normal((n, 4))
    begin = {"means": START, "covariances": breadth * COVARIANCES[kind]}
    found = dca.GaussianMixture(3, kind, init=begin, max_iter=5).fit(rows)
    one = GaussianMixture(1, covariance_type=kind).fit(rows)
    assert found.log_likelihoods_[-1] == pytest.approx(one.score(rows), abs=1e-3)
