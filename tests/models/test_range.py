"""Numbers near the ends of float64: fitted right, or refused by one text that names the entry, in every model."""

from contextlib import suppress

import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import dask_dca as dca
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError

rng = np.random.default_rng(0)
RAYS = np.vstack([np.eye(3), rng.dirichlet(np.ones(3), 117)]) @ rng.random((3, 6))
FRAMES = np.repeat(5.0 * rng.normal(size=(12, 4)), 10, axis=0) + rng.normal(size=(120, 4))
COUNTS = rng.poisson(2.0, size=(120, 30)).astype(float)
MODELS = {
    "NMF": (dca.NMF(3), RAYS),
    "GaussianMixture": (dca.GaussianMixture(2), FRAMES),
    "mixture of the paper": (dca.GaussianMixture(2, method="paper"), FRAMES),
    "GaussianHMM": (dca.GaussianHMM(2), FRAMES),
    "HMM of the paper": (dca.GaussianHMM(2, method="paper"), FRAMES),
    "KalmanFilter": (dca.KalmanFilter(2), FRAMES),
    "Kalman of the paper": (dca.KalmanFilter(2, method="paper"), FRAMES),
    "LatentDirichletAllocation": (dca.LatentDirichletAllocation(3), COUNTS),
    "SubspaceClustering": (dca.SubspaceClustering(2), RAYS),
}
SQUARED = [name for name, (model, _) in MODELS.items() if hasattr(model, "covariance_type")]
FORMS = {"memory": lambda X: X, "dask": lambda X: da.from_array(X, chunks=(50, 3))}
EVERY_MODEL = pytest.mark.parametrize("name", MODELS)
IN_EVERY_FORM = pytest.mark.parametrize("form", FORMS)
pytestmark = pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")


def refused(fit, row, column, value):
    with pytest.raises(InvalidInputError) as caught:
        fit()
    message = str(caught.value)
    assert message.startswith(f"row {row}, column {column} of X is ")
    assert f"{value:.3g}" in message
    if "beside the components" in message:
        assert message.endswith("divide this row by a number first, or leave it out")
    else:
        assert "out of range; divide X or this row by a number first" in message
        assert message.endswith(f"X = X / {abs(value):.0e}")


def fitted(name, X, form="memory"):
    model = clone(MODELS[name][0]).fit(FORMS[form](X))
    for key, value in vars(model).items():
        if key.endswith("_") and isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert np.isfinite(value).all(), key
    return model


@IN_EVERY_FORM
@pytest.mark.parametrize("name", SQUARED)
@pytest.mark.parametrize("factor", [1e-310, 1e-160, 1e160, 1e300])
def test_data_whose_squares_are_out_of_range(name, form, factor):
    X = MODELS[name][1] * factor
    beyond = np.abs(X) > 2.0**504 if factor > 1 else np.abs(X) == np.abs(X).max()
    row, column = np.argwhere(beyond)[0]
    if form == "dask" and factor > 1:  # whichever block is read first
        with pytest.raises(InvalidInputError, match="squares of such numbers are out of range"):
            fitted(name, X, form)
    else:
        refused(lambda: fitted(name, X, form), row, column, X[row, column])


@IN_EVERY_FORM
@pytest.mark.parametrize("name", [*SQUARED, "NMF"])
def test_a_row_far_greater_than_the_others(name, form):
    X = MODELS[name][1].copy()
    X[77] *= 1e160
    refused(lambda: fitted(name, X, form), 77, 0, X[77, 0])


@pytest.mark.parametrize("name", ["GaussianMixture", "GaussianHMM", "KalmanFilter"])
def test_a_row_that_no_sample_holds(name, monkeypatch):
    """The passes over all rows check it too."""
    for module in ("mixture.fit", "hmm.start", "kalman.fit"):
        monkeypatch.setattr(f"dask_dca.models.{module}.require_squares", lambda *_, **__: None)
        monkeypatch.setattr(f"dask_dca.models.{module}.require_size", lambda *_, **__: None)
    X, model = MODELS[name][1].copy(), fitted(name, MODELS[name][1])
    X[77, 1] = -1e160
    apply = {"GaussianMixture": "predict_proba", "GaussianHMM": "score", "KalmanFilter": "smooth"}[name]
    refused(lambda: getattr(model, apply)(X), 77, 1, -1e160)


@pytest.mark.parametrize("factor", [1e-310, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("name", ["NMF", "SubspaceClustering"])
def test_models_of_rays_take_any_unit(name, factor):
    attribute = "anchor_indices_"
    np.testing.assert_array_equal(
        getattr(fitted(name, MODELS[name][1] * factor), attribute), getattr(fitted(name, MODELS[name][1]), attribute)
    )


@pytest.mark.parametrize("factor", [1e-310, 1e-200])
def test_weights_of_words_take_any_small_unit(factor):
    """Documents that are no whole numbers are scaled to one length."""
    whole = rng.integers(0, 3, COUNTS.shape) * 0.5
    expected = dca.LatentDirichletAllocation(3).fit(whole).components_
    np.testing.assert_allclose(dca.LatentDirichletAllocation(3).fit(whole * factor).components_, expected, rtol=0.05)


def test_a_document_of_one_least_weight():
    alone = COUNTS.copy()
    alone[5] = 0.0
    alone[5, 3] = 5e-322
    assert np.isfinite(fitted("LatentDirichletAllocation", sparse.csr_array(alone).toarray()).components_).all()


@pytest.mark.parametrize("name", SQUARED)
@pytest.mark.parametrize("exponent", [-455, 495])
def test_up_to_the_ends_of_the_range_units_do_not_matter(name, exponent):
    X = MODELS[name][1]
    near, usual = fitted(name, np.ldexp(X, exponent)), fitted(name, X)
    attribute = "transition_matrices_" if "alman" in name else "means_"
    unit = 0 if "alman" in name else exponent
    found, expected = np.ldexp(getattr(near, attribute), -unit), getattr(usual, attribute)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


@EVERY_MODEL
@pytest.mark.parametrize(
    ("part", "factor"),
    [
        (np.s_[:, 1], 1e-320),
        (np.s_[:, 1], 1e160),
        (np.s_[50:70], 1e-200),
        (np.s_[50:70], 1e160),
        (np.s_[77, 1], 1e-160),
    ],
)
def test_parts_of_another_size_are_fitted_or_refused_in_one_line(name, part, factor):
    X = MODELS[name][1].copy()
    X[part] *= factor
    if factor < 1.0:
        fitted(name, X)
        return
    with suppress(InvalidInputError):
        fitted(name, X)


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("k", ["auto", 1])
def test_constant_frames_are_called_constant(width, k):
    with pytest.warns(FewerAnchorsWarning, match="since all frames are equal: every prediction is the mean frame"):
        model = dca.KalmanFilter(k).fit(np.full((50, width), 7.0))
    np.testing.assert_allclose(model.forecast(np.full((50, width), 7.0), 3)[0], 7.0)


@pytest.mark.parametrize("ratio", [1e140, 1e150, 1e200, 1e300])
def test_a_row_so_much_greater_than_the_others_that_sums_have_no_place_for_it(ratio):
    Z = np.rint(5.0 * np.abs(np.random.default_rng(0).standard_normal((120, 6)))) / ratio
    Z[7, 2] = 1.0
    with pytest.raises(InvalidInputError, match=r"row 7, column 2 of X is 1, and .*divide this row"):
        dca.NMF(2).fit(Z)
    mixture = dca.GaussianMixture(2, "diag").fit(Z)  # an isolated row
    assert np.isfinite(mixture.means_).all()
