"""Models of sequences remember that they were fitted to several, and say so where lengths are not given."""

import warnings

import dask.array as da
import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dask_dca as dca
from dask_dca.errors import InvalidInputError, SequenceWarning

rng = np.random.default_rng(0)
STATES = np.repeat(rng.integers(2, size=60), 5)
X = np.array([[0.0, 0.0], [2.0, 2.0]])[STATES] + rng.standard_normal((300, 2))
LENGTHS = [5] * 60
HMM, KALMAN = dca.GaussianHMM(2).fit(X, lengths=LENGTHS), dca.KalmanFilter(1).fit(X, lengths=LENGTHS)
METHODS = {
    "hmm score": HMM.score,
    "hmm score_samples": HMM.score_samples,
    "hmm predict": HMM.predict,
    "hmm predict by map": dca.GaussianHMM(2, algorithm="map").fit(X, lengths=LENGTHS).predict,
    "hmm filter": HMM.filter,
    "hmm forecast": HMM.forecast,
    "hmm predict_proba": HMM.predict_proba,
    "hmm decode": HMM.decode,
    "hmm aic": HMM.aic,
    "hmm bic": HMM.bic,
    "kalman filter": KALMAN.filter,
    "kalman smooth": KALMAN.smooth,
    "kalman predict": KALMAN.predict,
    "kalman forecast": KALMAN.forecast,
    "kalman loglikelihood": KALMAN.loglikelihood,
    "report of hmm": lambda X, lengths=None: dca.report(HMM, data=X, lengths=lengths),
    "report of kalman": lambda X, lengths=None: dca.report(KALMAN, data=X, lengths=lengths),
}
EACH_METHOD = pytest.mark.parametrize("name", METHODS)


@EACH_METHOD
@pytest.mark.parametrize("given", [X, da.from_array(X, chunks=(70, 2))], ids=["memory", "dask"])
def test_without_lengths_one_warning_at_the_callers_line(name, given):
    with pytest.warns(SequenceWarning, match=r"fitted to 60 sequences, and X is taken for one of 300 frames") as caught:
        METHODS[name](given)
    assert [warning.filename for warning in caught if warning.category is SequenceWarning] == [__file__]


@EACH_METHOD
@pytest.mark.parametrize("lengths", [LENGTHS, [300]], ids=["several", "one"])
def test_with_lengths_none(name, lengths):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        METHODS[name](X, lengths=lengths)


@pytest.mark.parametrize("model", [dca.GaussianHMM(2), dca.KalmanFilter(1)])
@pytest.mark.parametrize("method", ["robust", "paper"])
def test_the_number_of_sequences_is_that_of_the_last_fit(model, method, tmp_path):
    model = model.set_params(method=method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dca.errors.FewerAnchorsWarning)
        assert model.fit(X, lengths=[100, 0, 200]).n_sequences_ == 2  # those without frames are none
        model.save(str(tmp_path / "several"))
        assert model.fit(X).n_sequences_ == 1
    model.save(str(tmp_path / "one"))
    assert isinstance(dca.load_model(str(tmp_path / "several")).n_sequences_, int)
    with pytest.warns(SequenceWarning, match="fitted to 2 sequences"):
        dca.load_model(str(tmp_path / "several")).predict(X)
    np.testing.assert_array_equal(dca.load_model(str(tmp_path / "one")).predict(X), model.predict(X))


def test_filters_of_known_parameters_ask_for_nothing(tmp_path):
    model = dca.KalmanFilter.from_parameters([[0.9]], np.ones((2, 1)), [[1.0]], np.eye(2))
    model.smooth(X)
    model.save(str(tmp_path / "m"))
    assert dca.load_model(str(tmp_path / "m")).n_sequences_ == 1


@pytest.mark.parametrize("big", [2**63 - 1, 2**64 - 1])
@pytest.mark.parametrize("model", [dca.GaussianHMM(2), dca.KalmanFilter(1)])
def test_lengths_whose_sum_would_wrap(model, big):
    lengths = np.array([big, big, 302] if big < 2**63 else [big, 301], dtype=np.uint64)
    for given in (lengths, lengths.astype(np.int64), lengths.tolist()) if big < 2**63 else (lengths,):
        with pytest.raises(InvalidInputError, match=f"lengths add up to {sum(lengths.tolist())} frames, but X has 300"):
            model.fit(X, lengths=given)


def test_reports_do_not_predict_across_the_ends_of_sequences():
    """Each sequence stands still at its own level: one frame ahead nothing is left to be wrong about."""
    levels = np.repeat(10.0 * rng.standard_normal(60), 5)[:, None]
    model = dca.KalmanFilter.from_parameters([[1.0]], [[1.0]], [[1e-9]], [[1e-9]], [0.0], [[100.0]])
    apart = dca.report(model, data=levels, lengths=LENGTHS)
    assert "read as 60 sequences" in apart
    assert "predicted best (100.0\N{NO-BREAK SPACE}%)" in apart
    assert "predicted best (100.0\N{NO-BREAK SPACE}%)" not in dca.report(model, data=levels)
    assert "None follows another" in dca.report(model, data=levels[:4], lengths=[1, 1, 1, 1])


def test_lengths_are_for_models_of_sequences():
    model = dca.NMF(2).fit(np.abs(X))
    with pytest.raises(dca.errors.InvalidParameterError, match="NMF takes single rows"):
        dca.report(model, data=np.abs(X), lengths=[300])


FITS = [lambda: dca.GaussianHMM(2, max_iter=1), lambda: dca.KalmanFilter(1, max_iter=1)]


def same(one, other):
    names = [name for name in vars(one) if name.endswith("_") and isinstance(getattr(one, name), np.ndarray)]
    assert names
    for name in names:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("make", FITS)
@pytest.mark.parametrize("chunked", [False, True])
def test_sequences_come_in_a_list_or_a_cube(make, chunked):
    cube = X.reshape(60, 5, 2)
    whole = make().fit(X, lengths=LENGTHS)
    form = (lambda values: da.from_array(values, chunks=2)) if chunked else np.asarray
    same(whole, make().fit(form(cube)))
    model = make().fit([form(part) for part in cube])
    same(whole, model)
    assert model.n_sequences_ == 60
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the cube tells its sequences
        np.testing.assert_array_equal(model.predict(cube), model.predict(X, lengths=LENGTHS))


def test_sequences_of_other_channels_are_refused():
    with pytest.raises(InvalidInputError, match="must have the same channels; received 1 and 2 columns"):
        dca.GaussianHMM(2).fit([X, X[:, :1]])


@pytest.mark.parametrize("make", FITS)
def test_lengths_by_position_are_taken_with_a_warning_and_labels_ignored(make):
    with pytest.warns(SequenceWarning, match=r"pass lengths=\[\.\.\.\]"):
        by_position = make().fit(X, LENGTHS)
    same(by_position, make().fit(X, lengths=LENGTHS))
    same(make().fit(X, np.ones(len(X), dtype=int)), make().fit(X))
    with pytest.raises(
        InvalidInputError, match="2 entries, which add up to 200, for 300 rows: neither labels nor lengths"
    ):
        make().fit(X, [100, 100])


def test_pipelines_and_cross_validation_take_sequences():
    pipeline = make_pipeline(StandardScaler(), dca.GaussianHMM(2, max_iter=1))
    pipeline.fit(X, gaussianhmm__lengths=LENGTHS)
    assert pipeline[-1].n_sequences_ == 60
    scores = cross_val_score(dca.GaussianHMM(2, max_iter=1), X, np.ones(len(X), dtype=int), cv=3)
    assert np.isfinite(scores).all()
    assert np.isfinite(cross_val_score(dca.KalmanFilter(1, max_iter=1), X, cv=3)).all()
