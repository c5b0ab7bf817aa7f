"""Chains that start where the user says: hmmlearn's steps, zeros that stay zero, parameters that are kept."""

import dask.array as da
import numpy as np
import pytest
from hmmlearn import hmm as hmmlearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import dask_dca as dca
from dask_dca.errors import InvalidParameterError, StartWarning
from dask_dca.models.hmm.passes import expected_pairs
from dask_dca.models.hmm.recursions import Chains, Markov, forward_backward
from tests.contract.entries import fitted_bytes
from tests.models.hmm.test_recursions import textbook
from tests.strategies import chunkings

KINDS = ("diag", "full", "tied", "spherical")
LENGTHS = [150, 1, 199, 250]
RNG = np.random.default_rng(0)
MEANS = np.array([[0.0, 0.0, 0.0], [3.0, 0.0, 1.0], [0.0, 3.0, -1.0]])
FORWARD = np.array([[0.95, 0.05, 0.0], [0.0, 0.95, 0.05], [0.0, 0.0, 1.0]])
STATES = np.repeat(RNG.integers(3, size=60), 10)
X = MEANS[STATES] + RNG.standard_normal((600, 3))


def start(kind, k=3, p=3, seed=0):
    rng = np.random.default_rng(seed)
    square = rng.standard_normal((k, p, p)) / 4
    covariances = square @ square.swapaxes(1, 2) + np.eye(p)
    return {
        "startprob": rng.dirichlet(np.ones(k)),
        "transmat": rng.dirichlet(np.ones(k), k),
        "means": rng.standard_normal((k, p)),
        "covars": {
            "full": covariances,
            "tied": covariances[0],
            "diag": np.diagonal(covariances, axis1=1, axis2=2).copy(),
            "spherical": covariances[:, 0, 0].copy(),
        }[kind],
    }


def of_hmmlearn(kind, begin, letters="stmc", n_iter=4):
    other = hmmlearn.GaussianHMM(
        3, kind, n_iter=n_iter, tol=-np.inf, init_params="", params=letters, covars_prior=0, min_covar=0
    )
    other.startprob_, other.transmat_ = begin["startprob"], begin["transmat"]
    other.means_, other.covars_ = begin["means"], begin["covars"]
    return other


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("letters", ["stmc", "tmc", "m", "st"])
def test_steps_are_hmmlearns(kind, letters):
    begin = start(kind)
    if letters == "st":
        begin["transmat"] = FORWARD[::-1, ::-1] if kind == "diag" else begin["transmat"]
    own = dca.GaussianHMM(3, kind, max_iter=4, tol=-np.inf, init=begin, params=letters).fit(X, lengths=LENGTHS)
    other = of_hmmlearn(kind, begin, letters).fit(X, LENGTHS)
    assert own.n_iter_ == 4
    np.testing.assert_allclose(own.log_likelihoods_[:4] * len(X), other.monitor_.history, rtol=1e-8)
    for name in ("startprob_", "transmat_", "means_"):
        np.testing.assert_allclose(getattr(own, name), getattr(other, name), rtol=1e-5, atol=1e-7, err_msg=name)
    covariances = other.covars_[:: len(other.covars_) // 3]  # of spherical states one per feature
    np.testing.assert_allclose(own.covars_, covariances, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(own.log_likelihoods_[-1] * len(X), other.score(X, LENGTHS), rtol=1e-8)
    np.testing.assert_array_equal(own.anchor_indices_.shape, (3,))


@pytest.mark.parametrize("kind", KINDS)
def test_covariances_about_means_that_are_kept(kind):
    """hmmlearn's are about zero there; by hand: one state, whose covariance about a given point is the data's."""
    begin = {"means": [[1.0, 2.0, 3.0]]}
    model = dca.GaussianHMM(1, kind, max_iter=1, init=begin, params="c").fit(X)
    away = X - begin["means"][0]
    whole = away.T @ away / len(X)
    wanted = {"diag": np.diag(np.diag(whole)), "spherical": np.eye(3) * np.trace(whole) / 3}.get(kind, whole)
    np.testing.assert_allclose(model.covars_[0], wanted, rtol=1e-9)
    np.testing.assert_array_equal(model.means_, begin["means"])


def test_steps_on_symbols_are_hmmlearns():
    symbols, rng = (2 * STATES + RNG.integers(2, size=600))[:, None], np.random.default_rng(1)
    begin = {"startprob": [1.0, 0, 0], "transmat": FORWARD[[0, 1, 1]], "emissionprob": rng.dirichlet(np.ones(6), 3)}
    for letters in ("ste", "e"):
        own = dca.CategoricalHMM(3, max_iter=4, tol=0, init=begin, params=letters).fit(symbols, lengths=LENGTHS)
        other = hmmlearn.CategoricalHMM(3, n_iter=4, tol=-np.inf, init_params="", params=letters)
        other.startprob_, other.transmat_, other.emissionprob_ = map(np.asarray, begin.values())
        other.n_features = 6
        other.fit(symbols, LENGTHS)
        np.testing.assert_allclose(own.log_likelihoods_[:4] * 600, other.monitor_.history, rtol=1e-8)
        np.testing.assert_allclose(own.transmat_, other.transmat_, atol=1e-7)
        np.testing.assert_allclose(own.emissionprob_, other.emissionprob_, atol=1e-7)


def sequences(n=12, seed=3):
    """Recordings that go through three phases, once."""
    rng = np.random.default_rng(seed)
    parts = [MEANS[np.repeat([0, 1, 2], rng.integers(5, 60, 3))] for _ in range(n)]
    frames = np.concatenate(parts)
    return frames + rng.standard_normal(frames.shape), [len(part) for part in parts]


def test_a_chain_that_only_moves_on_stays_one():
    frames, lengths = sequences()
    model = dca.GaussianHMM(init={"startprob": [1, 0, 0], "transmat": FORWARD}, max_iter=20).fit(
        frames, lengths=lengths
    )
    assert model.n_components_ == 3
    np.testing.assert_array_equal(model.startprob_, [1, 0, 0])
    assert (model.transmat_[FORWARD == 0] == 0).all()
    np.testing.assert_allclose(model.means_, MEANS, atol=0.4)  # in the order of time, whatever anchors were found first
    path = model.predict(frames, lengths=lengths)
    for begin, end in zip(np.cumsum([0, *lengths[:-1]]), np.cumsum(lengths), strict=True):
        assert (np.diff(path[begin:end]) >= 0).all()


def test_frames_that_are_next_to_impossible_are_counted_as_hmmlearn_does():
    """The data go back again and again, and the chain must not: predicted probabilities leave the range of numbers."""
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(3, size=100), 20)
    frames = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])[states] + rng.standard_normal((2000, 2))
    begin = {
        "startprob": np.full(3, 1 / 3),
        "transmat": np.triu(np.ones((3, 3))) / np.array([[3.0], [2.0], [1.0]]),
        "means": np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]]),
        "covars": np.ones((3, 2)),
    }
    own = dca.GaussianHMM(3, "diag", max_iter=3, tol=-np.inf, init=begin).fit(frames)
    other = of_hmmlearn("diag", begin, n_iter=3).fit(frames)
    np.testing.assert_allclose(own.log_likelihoods_[:3] * len(frames), other.monitor_.history, rtol=1e-6)
    np.testing.assert_allclose(own.transmat_, other.transmat_, atol=1e-5)
    assert (own.transmat_[np.tril_indices(3, -1)] == 0.0).all()


def test_a_fitted_model_is_a_start_and_goes_on():
    first = dca.GaussianHMM(3, max_iter=1).fit(X, lengths=LENGTHS)
    more = dca.GaussianHMM(init=first, max_iter=3, tol=0).fit(X, lengths=LENGTHS)
    assert more.log_likelihoods_[0] == pytest.approx(first.log_likelihoods_[-1], rel=1e-9)
    assert (np.diff(more.log_likelihoods_) > 0).all()
    kept = dca.GaussianHMM(3, "full", init=first, max_iter=0).fit(X, lengths=LENGTHS)
    np.testing.assert_allclose(kept.means_, first.means_)
    np.testing.assert_allclose(kept.covars_, first.covars_)
    assert np.isfinite(cross_val_score(more, X, cv=3)).all()  # clones keep their start
    assert clone(more).init is first


@given(data=st.data())
@settings(max_examples=6)
@pytest.mark.parametrize("kind", ["diag", "full"])
def test_the_same_bits_for_any_chunking(kind, data):
    begin = start(kind) | {"transmat": FORWARD, "startprob": [1.0, 0, 0]}
    make = lambda: dca.GaussianHMM(3, kind, init=begin, max_iter=2)  # noqa: E731
    cut = da.from_array(X, chunks=(data.draw(chunkings(len(X))), data.draw(chunkings(3, most=2, empty=False))))
    assert fitted_bytes(make().fit(X, lengths=LENGTHS)) == fitted_bytes(make().fit(cut, lengths=LENGTHS))


@pytest.mark.parametrize("far", [0.0, 1e6])
def test_pairs_are_the_textbooks(far):
    rng = np.random.default_rng(int(far))
    markov, logs = Markov(np.array([1.0, 0, 0]), FORWARD), 3.0 * rng.standard_normal((40, 3)) - far
    ends = np.full((3, 1), -np.log(3))
    chains = Chains(logs[:, :, None], ends, 0 * ends, np.ones(1, dtype=bool), 0)
    posteriors = forward_backward(markov, chains).posteriors
    found, _ = expected_pairs(FORWARD, forward_backward(markov, chains).filtered, posteriors, np.full((3, 1), -np.inf))
    np.testing.assert_allclose(found[0], textbook(markov, logs)[2], atol=1e-9)


def test_what_was_set_by_hand_is_a_start_or_overwritten_aloud():
    frames, lengths = sequences()
    model = dca.GaussianHMM(3, init_params="mc", params="tmc", max_iter=3)
    model.startprob_, model.transmat_ = [1.0, 0, 0], FORWARD
    model.fit(frames, lengths=lengths)
    assert (model.transmat_[FORWARD == 0] == 0).all()
    np.testing.assert_array_equal(model.startprob_, [1, 0, 0])
    before = model.log_likelihoods_[-1]
    model.set_params(init_params="").fit(frames, lengths=lengths)  # goes on, as hmmlearn's fits do
    assert model.log_likelihoods_[0] == pytest.approx(before, rel=1e-9)
    other = dca.GaussianHMM(3)
    other.means_ = MEANS
    with pytest.warns(StartWarning, match=r"means_ was set by hand, .* pass init_params='stc'"):
        other.fit(X)


def test_params_alone_keep_the_anchors():
    anchored = dca.GaussianHMM(3, max_iter=0).fit(X)
    model = dca.GaussianHMM(3, params="st", max_iter=2).fit(X)
    order = [int(((anchored.means_ - mean) ** 2).sum(axis=1).argmin()) for mean in model.means_]
    np.testing.assert_array_equal(model.means_, anchored.means_[order])


def test_saved_models_leave_their_start_behind(tmp_path):
    model = dca.GaussianHMM(3, init=start("diag"), max_iter=1).fit(X)
    model.save(str(tmp_path / "m"))
    loaded = dca.load_model(str(tmp_path / "m"))
    assert loaded.init is None
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    dca.report(loaded)


def test_checkpoints_know_the_start(tmp_path):
    cut, kept = da.from_array(X, chunks=200), str(tmp_path / "kept")
    make = lambda seed: dca.GaussianHMM(3, init=start("diag", seed=seed), max_iter=1, checkpoint=kept)  # noqa: E731
    make(0).fit(cut)
    with pytest.raises(dca.errors.CheckpointError):
        make(1).fit(cut)


BAD = [
    ({"init": {"mean": 0}}, "init has no parameter 'mean'; it takes startprob, transmat, means, covars"),
    ({"init": dca.GaussianHMM(3)}, "init is a model that is not fitted"),
    ({"init": dca.KalmanFilter(3)}, "init must be a fitted GaussianHMM, or a dict"),
    ({"init": {"means": MEANS[:2]}}, "n_components=3, and the start has 2; pass n_components=2"),
    ({"init": {"means": MEANS[:, :2]}}, r"means of init has shape \(3, 2\); it must have \(3, 3\)"),
    ({"init": {"transmat": 2 * FORWARD}}, "transmat_ must hold probabilities"),
    ({"init_params": "tmc"}, "starts from startprob_, which is not set; set it, or pass init="),
    ({"params": "stmw"}, "params must be letters of 'stmc'"),
    ({"init": start("diag"), "method": "paper"}, "leave init and params out"),
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=lambda value: str(value)[:30])
def test_bad_starts_are_refused(given, message):
    with pytest.raises(InvalidParameterError, match=message):
        dca.GaussianHMM(3, **given).fit(X)


def test_starts_that_make_the_data_impossible_are_refused():
    begin = {"startprob": [1.0, 0.0], "transmat": np.eye(2), "emissionprob": [[1.0, 0.0], [0.0, 1.0]]}
    with pytest.raises(InvalidParameterError, match="makes the data impossible"):
        dca.CategoricalHMM(2, init=begin).fit(np.array([[0], [1], [0]]))
