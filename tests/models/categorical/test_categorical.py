"""Hidden Markov models of symbols: planted truth, hmmlearn's numbers, any chunking, and what users may pass."""

import dask
import dask.array as da
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import dask_dca as dca
from dask_dca.errors import InvalidInputError, InvalidParameterError

FITTED = ("startprob_", "transmat_", "emissionprob_", "anchor_symbols_", "log_likelihoods_", "start_scores_")


def planted(k, v, n, seed, stay=0.8):
    """Symbols of a random chain, its states, and its parameters."""
    rng = np.random.default_rng(seed)
    transmat = (1.0 - stay) * rng.dirichlet(np.ones(k), k) + stay * np.eye(k)
    emissions = rng.dirichlet(np.full(v, 0.3), k)
    steps, draws = transmat.cumsum(axis=1), rng.random((n, 2))
    states = np.zeros(n, dtype=np.int64)
    for t in range(1, n):
        states[t] = min(np.searchsorted(steps[states[t - 1]], draws[t, 0]), k - 1)
    symbols = (draws[:, [1]] >= emissions.cumsum(axis=1)[states]).sum(axis=1).clip(max=v - 1)
    return symbols[:, None], states, transmat, emissions


def truth(transmat, emissions):
    model = dca.CategoricalHMM(len(transmat))
    model.startprob_ = np.full(len(transmat), 1 / len(transmat))
    model.transmat_, model.emissionprob_ = transmat, emissions
    return model


def fitted_bits(model):
    return {name: np.asarray(getattr(model, name)).tobytes() for name in FITTED}


@pytest.mark.parametrize(("k", "v", "n", "seed"), [(2, 4, 3000, 0), (2, 4, 3000, 1), (3, 8, 6000, 2), (3, 8, 6000, 3)])
def test_planted_chains_are_found(k, v, n, seed):
    X, states, transmat, emissions = planted(k, v, n, seed)
    model = dca.CategoricalHMM(k).fit(X)
    assert model.score(X) > truth(transmat, emissions).score(X)
    apart = np.abs(model.emissionprob_[:, None] - emissions).sum(axis=2)
    i, j = linear_sum_assignment(apart)
    assert apart[i, j].mean() < 0.12
    own = np.bincount(states[model.predict(X) == i[np.argsort(j)[0]]], minlength=k)
    assert own.argmax() == 0


def test_symbols_of_one_state_alone_are_anchors():
    """With one start, the anchored one: nothing else tells states apart."""
    rng = np.random.default_rng(0)
    states = rng.permutation(np.repeat(np.arange(3), 500))
    states = np.repeat(states, rng.integers(3, 9, size=1500))
    symbols = np.where(rng.random(len(states)) < 0.3, states, rng.integers(3, 12, size=len(states)))
    model = dca.CategoricalHMM(3, n_starts=1, max_iter=0).fit(symbols[:, None])
    assert sorted(model.anchor_symbols_.tolist()) == [0, 1, 2]
    own = model.emissionprob_[:, model.anchor_symbols_]
    assert (own.argmax(axis=0) == np.arange(3)).all()
    assert (np.diagonal(own) > 0.2).all()


def test_likelihoods_paths_and_posteriors_are_hmmlearns():
    hmm = pytest.importorskip("hmmlearn.hmm")
    X, _, transmat, emissions = planted(3, 6, 200, 1)
    peer = hmm.CategoricalHMM(3)
    model = truth(transmat, emissions)
    peer.startprob_, peer.transmat_, peer.emissionprob_ = model.startprob_, transmat, emissions
    peer.n_features = 6
    assert model.score(X, lengths=[80, 120]) == pytest.approx(peer.score(X, lengths=[80, 120]), rel=1e-12)
    np.testing.assert_allclose(model.predict_proba(X), peer.predict_proba(X), atol=1e-10)
    np.testing.assert_array_equal(model.predict(X), peer.predict(X))
    for criterion in ("aic", "bic"):
        assert getattr(model, criterion)(X, [80, 120]) == pytest.approx(getattr(peer, criterion)(X, [80, 120]))


def test_the_likelihood_is_that_of_all_paths_written_out():
    transmat, emissions = np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
    total = sum(
        0.5 * emissions[a, 0] * transmat[a, b] * emissions[b, 2] * transmat[b, c] * emissions[c, 1]
        for a in (0, 1)
        for b in (0, 1)
        for c in (0, 1)
    )
    assert truth(transmat, emissions).score(np.array([[0], [2], [1]])) == pytest.approx(np.log(total), rel=1e-12)


@pytest.mark.parametrize("recursion", ["scan", "segments"])
@pytest.mark.parametrize("place", [0, 150, 299])
def test_a_symbol_that_no_state_emits_is_impossible_where_it_is_and_nowhere_else(recursion, place):
    model = truth(np.array([[0.7, 0.3], [0.3, 0.7]]), np.array([[0.7, 0.3, 0.0], [0.3, 0.7, 0.0]]))
    model.set_params(recursion=recursion).burn_in_ = 32
    usual = np.random.default_rng(0).integers(2, size=(300, 1))
    X = np.where(np.arange(300)[:, None] == place, 2, usual)
    assert model.score(X) == model.decode(X)[0] == model.score(X, lengths=[100, 200]) == -np.inf
    for method in (model.predict_proba, model.filter):
        np.testing.assert_allclose(method(X).sum(axis=1), 1.0)
        far = np.abs(np.arange(300) - place) > 128
        np.testing.assert_allclose(method(X)[far], method(usual)[far], atol=1e-12)


def test_pairs_end_with_sequences():
    X = np.array([0, 1, 0, 1, 2, 2])[:, None]
    whole = dca.CategoricalHMM(1, n_starts=1, max_iter=0)
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import as_rows
    from dask_dca.models.categorical.passes import count_pairs

    for data in (X, da.from_array(X, chunks=((1, 0, 3, 2), 1))):
        with dask.config.set(scheduler="synchronous"):
            found = count_pairs(as_rows(data), np.array([0, 4, 6]), 3, Run())
        np.testing.assert_array_equal(found, [[0, 2, 0], [1, 0, 0], [0, 0, 1]])
    assert whole.fit(X, lengths=[4, 2]).n_sequences_ == 2


def test_a_notebook_and_a_report_of_one_state():
    model = dca.CategoricalHMM(1).fit(np.array([[0], [1], [0]]))
    assert "CategoricalHMM" in model._repr_html_()
    assert "Hidden Markov model of symbols" in dca.report(model)


def test_samples_are_of_the_model():
    _, _, transmat, emissions = planted(3, 5, 10, 2)
    model = truth(transmat, emissions)
    X, states = model.sample(30_000, random_state=0)
    for j in range(3):
        shares = np.bincount(X[states == j, 0], minlength=5) / (states == j).sum()
        np.testing.assert_allclose(shares, emissions[j], atol=0.02)


@pytest.mark.parametrize(
    ("X", "options", "words"),
    [
        (np.array([[0.5], [1.0]]), {}, r"symbols are integers from 0 on; received 0.5 in row 0"),
        (np.array([[0.0], [1e300]]), {}, r"symbols are integers from 0 on; received 1e\+300 in row 1"),
        (np.array([[2**63]] * 2, dtype="u8"), {}, r"symbols are integers from 0 on; received 9.22337e\+18 in row 0"),
        (np.array([[1], [-1]]), {}, r"received -1 in row 1"),
        (np.array([[1], [3]]), {"n_features": 3}, "below n_features=3; received 3"),
        (np.ones((4, 2), dtype=int), {}, "one column, and X has 2"),
        (np.array([[0], [9000]]), {}, "9001 symbols"),
    ],
)
def test_what_is_no_symbol_is_refused(X, options, words):
    with pytest.raises(InvalidInputError, match=words):
        dca.CategoricalHMM(1, **options).fit(X)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_iter": -1}, "max_iter"),
        ({"n_starts": 0}, "n_starts"),
        ({"tol": -1.0}, "tol must be"),
        ({"n_components": "auto"}, "no rule"),
    ],
)
def test_unusable_parameters_are_refused(options, words):
    with pytest.raises(InvalidParameterError, match=words):
        dca.CategoricalHMM(**{"n_components": 2} | options).fit(np.array([[0], [1], [0], [1]]))


def test_more_states_than_symbols():
    X = np.random.default_rng(0).integers(2, size=(300, 1))
    model = dca.CategoricalHMM(3).fit(X)
    assert model.emissionprob_.shape == (3, 2)
    assert (model.anchor_symbols_ == -1).sum() == 1
    assert np.isfinite(model.score(X))


def test_sequences_of_one_symbol_tell_nothing_of_a_chain():
    with pytest.raises(ValueError, match=r"no sequence has two of them \(n_samples = 6\)"):
        dca.CategoricalHMM(2).fit(np.array([[0], [1], [2], [0], [1], [2]]), lengths=[1] * 6)
