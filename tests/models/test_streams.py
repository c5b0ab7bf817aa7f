"""Models that go on by sums: batches, saved models, arrays that grew, sites that can't share rows."""

from copy import deepcopy
from functools import cache

import dask.array as da
import numpy as np
import pytest
import zarr

import dask_dca as dca
from dask_dca.errors import DCAError, InvalidInputError, InvalidParameterError
from tests.contract.entries import fitted_bytes

LENGTH = 20  # frames of each sequence


def clusters(n, seed=0):
    rng = np.random.default_rng(seed)
    return (4.0 * np.eye(3, 4))[rng.integers(3, size=n)] + rng.standard_normal((n, 4))


def frames(n, seed=0):
    rng = np.random.default_rng(seed)
    states = np.repeat(rng.integers(3, size=-(-n // 5)), 5)[:n]
    return (4.0 * np.eye(3, 4))[states] + rng.standard_normal((n, 4))


def symbols(n, seed=0):
    return (np.abs(frames(n, seed)).argmax(axis=1) % 4)[:, None]


def motion(n, seed=0):
    T, O = 0.9 * np.array([[0.9, 0.3], [-0.3, 0.9]]), np.arange(8.0).reshape(4, 2) / 3.0 - 1.0
    model = dca.KalmanFilter.from_parameters(T, O, 0.2 * np.eye(2), 0.1 * np.eye(4))
    return np.concatenate([model.sample(LENGTH, random_state=1000 * seed + i)[1] for i in range(n // LENGTH)])


def documents(n, seed=0):
    rng = np.random.default_rng(seed)
    topics = np.kron(np.eye(3), np.full(8, 0.1)) + 0.2 / 24
    return rng.poisson(40.0 * rng.dirichlet(np.full(3, 0.3), n) @ (topics / topics.sum(axis=1)[0])).astype(float)


# name -> how to make it, its data, whether these are sequences, what its parameters are
MODELS = {
    **{
        form: (lambda form=form: dca.GaussianMixture(3, form), clusters, False, ("means_", "covariances_", "weights_"))
        for form in ("full", "diag", "tied", "spherical", "tied-spherical")
    },
    "hmm": (lambda: dca.GaussianHMM(3), frames, True, ("means_", "covariances_", "transmat_", "startprob_")),
    "hmm-full": (lambda: dca.GaussianHMM(3, "full"), frames, True, ("means_", "covariances_", "transmat_")),
    "hmm-tied": (lambda: dca.GaussianHMM(3, "tied"), frames, True, ("means_", "covariances_", "transmat_")),
    "categorical": (lambda: dca.CategoricalHMM(3, n_features=4), symbols, True, ("emissionprob_", "transmat_")),
    "kalman": (lambda: dca.KalmanFilter(2), motion, True, ("transition_matrices_", "observation_matrices_")),
    "lda": (lambda: dca.LatentDirichletAllocation(3), documents, False, ("components_", "topic_weights_")),
}
SOME = ("full", "hmm", "categorical", "kalman", "lda")
EVERY = pytest.mark.parametrize("name", MODELS)
EACH = pytest.mark.parametrize("name", SOME)


def lengths(name, X):
    return {"lengths": [LENGTH] * (len(X) // LENGTH)} if MODELS[name][2] else {}


def batch(name, seed, n=200):
    return MODELS[name][1](n, seed)


def see(model, name, X, **options):
    return model.partial_fit(X, **lengths(name, X), **options)


@cache
def _streamed(name, n_batches):
    return see(streamed(name, n_batches - 1), name, batch(name, n_batches - 1)) if n_batches else MODELS[name][0]()


def streamed(name, n_batches):
    """A model of its own that has seen so many batches."""
    return deepcopy(_streamed(name, n_batches))


def score(model, name, X):
    found = model.score(X, **lengths(name, X))
    return found / len(X) if MODELS[name][2] else found


@EVERY
def test_the_first_batch_is_a_fit_and_chunks_of_later_ones_change_no_bit(name):
    make, _, _, _ = MODELS[name]
    X = batch(name, 0)
    model = see(make(), name, X)
    assert fitted_bytes(model) == fitted_bytes(make().fit(X, **lengths(name, X)))
    assert model.n_samples_seen_ == 200
    more = batch(name, 1)
    chunked = see(deepcopy(model), name, da.from_array(more, chunks=((37, 0, 100, 63), -1)))
    assert fitted_bytes(chunked) == fitted_bytes(see(model, name, more))
    passes = {"lda": 2, "categorical": 5}.get(name, 1)
    assert (model.n_samples_seen_, model.n_passes_) == (400, passes)
    assert len(model.log_likelihoods_) == model.n_iter_ + 1


@pytest.mark.parametrize("name", ["full", "tied", "hmm", "categorical", "kalman", "lda"])
def test_a_stream_comes_as_far_as_a_fit(name):
    X = np.concatenate([batch(name, seed) for seed in range(6)])
    whole = MODELS[name][0]().fit(X, **lengths(name, X))
    model, new = streamed(name, 6), batch(name, 99)
    first = score(streamed(name, 1), name, new)
    reached, possible = score(model, name, new), score(whole, name, new)
    assert reached > possible - 0.03
    assert reached > first - 0.01
    if MODELS[name][2]:
        assert model.n_sequences_ == 60


@EACH
def test_a_saved_model_goes_on_with_the_same_bits(name, tmp_path):
    model = MODELS[name][0]()
    for seed in range(3):
        see(model, name, batch(name, seed)).save(str(tmp_path / f"{seed}.zarr"))
        model = dca.load_model(str(tmp_path / f"{seed}.zarr"))
    assert fitted_bytes(model) == fitted_bytes(streamed(name, 3))


@EACH
def test_an_array_that_grew_is_read_from_where_it_ended(name, tmp_path):
    X = np.concatenate([batch(name, 0), batch(name, 1)])
    path = tmp_path / "x.zarr"
    array = zarr.create_array(str(path), shape=(200, X.shape[1]), chunks=(50, X.shape[1]), dtype="f8")
    array[:] = X[:200]
    early = see(MODELS[name][0](), name, X[:200])
    array.append(X[200:].astype(float))
    for chunk in (path / "c").glob("[0-3]"):
        for file in chunk.iterdir():
            file.write_bytes(b"damaged")  # whoever reads an old chunk fails
    expected = fitted_bytes(see(deepcopy(early), name, X[200:]))
    for data in (str(path), X, da.from_array(X, chunks=(70, -1))):
        late = MODELS[name][0]().fit(data, **lengths(name, X), resume=early)
        assert fitted_bytes(late) == expected
    assert early.n_samples_seen_ == 200
    with pytest.raises(InvalidInputError, match="200 rows, and the model to be resumed"):
        MODELS[name][0]().fit(X[:200], **lengths(name, X[:200]), resume=early)


@EACH
def test_errors_in_an_array_that_grew_name_its_own_rows(name):
    X = np.concatenate([batch(name, 0), batch(name, 1)]).astype(float)
    early = see(MODELS[name][0](), name, X[:200])
    X[333, 0] = np.inf
    for data in (X, da.from_array(X, chunks=(70, -1))):
        with pytest.raises(DCAError, match=r"row 333\b"):
            MODELS[name][0]().fit(data, **lengths(name, X), resume=early)


@pytest.mark.parametrize("wrong", [-5.0, np.inf])
@pytest.mark.parametrize("missing", [[], [350]])
def test_so_do_those_of_streams_of_anchors(wrong, missing):
    X = np.abs(batch("full", 0, 400))
    early = dca.NMF(3).partial_fit(X[:200])
    X[333, 1], X[missing, 0] = wrong, np.nan
    for data in (X, da.from_array(X, chunks=(70, -1))):
        with pytest.raises(DCAError, match=r"row 333\b"):
            dca.NMF(3).fit(data, resume=early)


def test_a_sequence_that_grew_is_none_of_its_own():
    X = frames(60)
    early = dca.GaussianHMM(2).fit(X[:30])
    with pytest.raises(InvalidInputError, match=r"lengths=\[\.\.\., 30\]"):
        dca.GaussianHMM(2).fit(X, resume=early)
    assert dca.GaussianHMM(2).fit(X, lengths=[30, 30], resume=early).n_sequences_ == 2


@EVERY
def test_two_sites_that_went_on_from_one_model_are_one(name):
    start, parts = streamed(name, 1), [batch(name, seed) for seed in (1, 2)]
    here, there = (see(deepcopy(start), name, part) for part in parts)
    if hasattr(here, "burn_in_"):
        here.burn_in_, there.burn_in_ = 16, 64
    before = fitted_bytes(here), fitted_bytes(there)
    both = dca.merge(here, there)
    assert getattr(both, "burn_in_", 64) == 64
    together = see(deepcopy(start), name, np.concatenate(parts))
    for parameter in MODELS[name][3]:
        atol = 1e-5 if name == "categorical" else 1e-7  # whose sites have looked again with parameters of their own
        np.testing.assert_allclose(getattr(both, parameter), getattr(together, parameter), rtol=1e-5, atol=atol)
        assert np.array_equal(getattr(both, parameter), getattr(dca.merge(there, here), parameter))
    assert both.n_samples_seen_ == together.n_samples_seen_ == 600
    if MODELS[name][2]:
        assert both.n_sequences_ == together.n_sequences_
    assert len(both.log_likelihoods_) == both.n_iter_ + 1 == start.n_iter_ + 3
    assert getattr(both, "lower_bound_", both.log_likelihoods_[-1]) == both.log_likelihoods_[-1]
    assert (fitted_bytes(here), fitted_bytes(there)) == before
    assert see(both, name, parts[0]).n_samples_seen_ == 800  # it goes on
    assert dca.merge(start, here).n_samples_seen_ == 400


@EACH
def test_models_of_two_fits_are_not_merged(name):
    make = MODELS[name][0]
    here, there = (make().fit(X, **lengths(name, X)) for X in (batch(name, 0), batch(name, 1)))
    with pytest.raises(InvalidParameterError, match="come from different fits"):
        dca.merge(here, there)
    start = streamed(name, 1)
    forgetful = see(deepcopy(start), name, batch(name, 1), forget=0.5)
    with pytest.raises(InvalidParameterError, match="same forget="):
        dca.merge(see(start, name, batch(name, 2)), forgetful)


@EACH
def test_what_is_forgotten_counts_no_more(name):
    """Of two pasts, both forgotten, the same model with the same parameters would be left; sums tell it exactly."""
    model = see(streamed(name, 1), name, batch(name, 1), forget=0.0)
    sums = {key: getattr(model, f"first_{key}_", None) for key in (part.rstrip("?") for part in model._sums)}
    assert not any(np.any(value) for value in sums.values() if value is not None)
    half = see(streamed(name, 1), name, batch(name, 1), forget=0.5)
    for key, value in sums.items():
        if value is not None:
            assert np.array_equal(getattr(half, f"first_{key}_"), 0.5 * getattr(streamed(name, 1), f"first_{key}_"))


@pytest.mark.parametrize("forget", [-0.1, 1.1, np.nan, "half", None])
@pytest.mark.parametrize("name", ["diag", "hmm"])
def test_what_can_not_be_forgotten_by_is_refused(name, forget):
    model = streamed(name, 1)
    before = fitted_bytes(model)
    for some in (model, MODELS[name][0]()):
        with pytest.raises(InvalidParameterError, match="forget must be a number from 0 to 1"):
            see(some, name, batch(name, 1), forget=forget)
    assert fitted_bytes(model) == before


def test_a_model_follows_data_that_drift():
    model, kept = streamed("diag", 1), streamed("diag", 1)
    for seed in range(1, 9):
        moved = batch("diag", seed) + 0.3 * seed
        model.partial_fit(moved, forget=0.3)
        kept.partial_fit(moved)
    new = batch("diag", 50) + 2.4
    assert model.score(new) > kept.score(new) + 0.3


@EACH
def test_a_batch_that_is_refused_leaves_the_model_as_it_was(name):
    model, X = streamed(name, 1), batch(name, 1).astype(float)
    before = fitted_bytes(model)
    X[7, 0] = np.inf
    with pytest.raises(DCAError):
        see(model, name, X)
    with pytest.raises((InvalidInputError, ValueError), match="features"):
        see(model, name, np.hstack([batch(name, 1)] * 2))
    assert fitted_bytes(model) == before


def test_models_without_sums_are_refused():
    X = clusters(60)
    known = dca.KalmanFilter.from_parameters([[0.9]], [[1.0]], [[1.0]], [[1.0]])
    with pytest.raises(InvalidParameterError, match="has no sums to continue from"):
        known.partial_fit(X[:, :1])
    with pytest.raises(AttributeError) as error:
        dca.GaussianMixture(2, method="paper").fit(X).partial_fit(X)
    assert "method='paper' is for fit(X) alone" in str(error.value.__cause__)
    with pytest.raises(InvalidParameterError, match="resume must be a fitted GaussianMixture"):
        dca.GaussianMixture(2).fit(X, resume=dca.GaussianHMM(2).fit(X))


def test_words_that_come_later_join():
    early, late = documents(200), documents(200, 1)
    early[:, np.arange(24) % 8 >= 5] = 0.0  # three words of each topic
    model = dca.LatentDirichletAllocation(3).partial_fit(early)
    assert model.n_words_ == 15
    for seed in range(2, 8):
        model.partial_fit(documents(200, seed))
    assert model.n_words_ == 24
    assert model.perplexity(late) < 1.1 * streamed("lda", 6).perplexity(late)
    assert np.allclose(model.components_.sum(axis=1), 1.0)


def test_a_batch_after_which_no_word_is_in_enough_documents_is_refused():
    words = np.kron(np.eye(2), np.full((20, 5), 3.0))  # five words, then five others
    early, late = words[:20], words[20:]
    model = dca.LatentDirichletAllocation(1, min_df=0.6).partial_fit(early)
    with pytest.raises(InvalidInputError, match="no word is in 24 documents or more"):
        model.partial_fit(late)
    assert model.n_samples_seen_ == 20


def test_the_least_share_of_documents_is_of_those_not_forgotten():
    model = dca.LatentDirichletAllocation(3, min_df=0.3)
    for seed in range(10):
        model.partial_fit(documents(200, seed), forget=0.5)
    assert model.n_words_ == 24


def test_entries_may_begin_to_be_missing(tmp_path):
    X, new = motion(400), motion(200, 9)
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    model = see(dca.KalmanFilter(2), "kalman", X[:200])
    start, frames = deepcopy(model), np.where(np.arange(400)[:, None] % 5 == 0, np.nan, X)
    see(model, "kalman", frames[200:])
    assert model.observation_covariance_.ndim == 2  # frames are missing as a whole
    gaps = deepcopy(model)
    see(model, "kalman", holes[200:])
    assert model.observation_covariance_.ndim == 1
    assert score(model, "kalman", new) > score(start, "kalman", new) - 0.05
    see(model, "kalman", X[200:])  # complete again
    other = see(deepcopy(start), "kalman", X[:200])
    for one in (see(deepcopy(start), "kalman", holes[200:]), see(deepcopy(start), "kalman", frames[200:])):
        assert dca.merge(one, other).n_samples_seen_ == 600
    merged = dca.merge(gaps, see(deepcopy(start), "kalman", holes[200:]))
    merged.save(str(tmp_path / "m.zarr"))
    assert dca.load_model(str(tmp_path / "m.zarr")).first_seen_.shape == (4, 3, 3)
    gaps.save(str(tmp_path / "g.zarr"))
    assert dca.load_model(str(tmp_path / "g.zarr")).first_seen_.shape == (3, 3)


def test_a_subspace_stays():
    rng = np.random.default_rng(0)
    X = 3.0 * rng.standard_normal((4, 200))[rng.integers(4, size=1200)] + rng.standard_normal((1200, 200))
    X[:, :6] *= 6.0
    model = dca.GaussianMixture(4).fit(X[:600])
    assert model.covariance_type_ == "subspace"
    space, before = model.subspace_.copy(), model.score(X[600:])
    model.partial_fit(X[600:])
    assert np.array_equal(model.subspace_, space)
    assert model.score(X[600:]) > before
    across = (model.means_ - model.means_.mean(axis=0)) @ (np.eye(200) - space.T @ space)
    assert abs(across).max() < 1e-9  # means stay in it


def test_a_stream_of_symbols_comes_near_the_fit_of_all():
    """States of which one symbol tells little: with one look at each batch the stream is .016 behind."""
    rng = np.random.default_rng(6)
    emissions = rng.dirichlet(np.full(12, 0.3), 5).cumsum(axis=1)

    def drawn(n):
        stays, states = rng.random(n) < 0.9, rng.integers(5, size=n)
        states = states[np.maximum.accumulate(np.where(stays, 0, np.arange(n)))]
        return np.minimum((rng.random(n)[:, None] >= emissions[states]).sum(axis=1), 11)[:, None]

    X, new = drawn(10_000), drawn(10_000)
    whole, model = dca.CategoricalHMM(5, n_features=12).fit(X), dca.CategoricalHMM(5, n_features=12)
    for one in np.split(X, 10):
        model.partial_fit(one)
    one = {"lengths": [10_000]}
    assert (whole.score(new, **one) - model.score(new, **one)) / 10_000 < 0.01
