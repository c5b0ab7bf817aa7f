"""Chains of frames with missing entries."""

import dask.array as da
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import dask_dca as dca
from dask_dca.errors import FewEntriesWarning
from dask_dca.models.hmm.model import FrameFeatures, IncompleteStates, prepare_states
from tests.contract.entries import as_bytes, fitted_bytes

FORMS = ("diag", "full", "tied", "spherical")


def planted(seed, n=800, p=5, k=3, share=0.3):
    """Frames of correlated states, the same with holes, and the states."""
    rng = np.random.default_rng(seed)
    states = np.zeros(n, dtype=int)
    for t in range(1, n):
        states[t] = states[t - 1] if rng.random() < 0.9 else rng.integers(k)
    roots = rng.standard_normal((k, p, p)) / np.sqrt(p) + 0.4 * np.eye(p)
    X = 1.5 * rng.standard_normal((k, p))[states] + np.einsum("nij,nj->ni", roots[states], rng.standard_normal((n, p)))
    holes = np.where(rng.random(X.shape) < share, np.nan, X)
    holes[n // 2 : n // 2 + 5] = np.nan
    return X, holes, states


def by_hand(model, X):
    """Log densities of what was observed (n, k), by SciPy."""
    found = np.zeros((len(X), model.n_components_))
    for t, row in enumerate(X):
        seen = ~np.isnan(row)
        for j in range(model.n_components_) if seen.any() else ():
            marginal = multivariate_normal(model.means_[j][seen], model.covars_[j][np.ix_(seen, seen)])
            found[t, j] = marginal.logpdf(row[seen])
    return found


@pytest.mark.parametrize("form", FORMS)
def test_scores_and_paths_are_those_of_the_recursions_by_hand(form):
    X, holes, _ = planted(0, n=200)
    model = dca.GaussianHMM(3, form, max_iter=1).fit(X)
    logs, chain = by_hand(model, holes), np.log(model.transmat_)
    forward = best = np.log(model.startprob_) + logs[0]
    for row in logs[1:]:
        forward = logsumexp(forward[:, None] + chain, axis=0) + row
        best = (best[:, None] + chain).max(axis=0) + row
    assert model.score(holes) == pytest.approx(logsumexp(forward), rel=1e-9)
    log_probability, path = model.decode(holes)
    assert log_probability == pytest.approx(best.max(), rel=1e-9)
    steps = np.log(model.startprob_)[path[0]] + chain[path[:-1], path[1:]].sum()
    assert steps + logs[np.arange(200), path].sum() == pytest.approx(best.max(), rel=1e-9)
    assert (model.predict(holes) == path).all()


@pytest.mark.parametrize("form", FORMS)
def test_sums_without_holes_are_those_of_complete_states(form):
    rng = np.random.default_rng(0)
    k, p = 3, 4
    roots = rng.standard_normal((k, p, p)) + np.eye(p)
    full = roots @ roots.swapaxes(1, 2)
    shapes = {
        "full": full,
        "tied": full[0],
        "diag": np.diagonal(full, axis1=1, axis2=2),
        "spherical": np.arange(1.0, 4),
    }
    states = prepare_states(rng.standard_normal((k, p)), shapes[form], form)
    values, weights = rng.standard_normal((p, 6, 5)), rng.random((k, 30))
    zero, one = np.zeros(p), np.ones(p)
    whole = FrameFeatures(form, zero, one)(values).reshape(-1, 30)
    holes = FrameFeatures("full", zero, one)(values).reshape(-1, 30)
    observed = IncompleteStates(states, zero)
    np.testing.assert_allclose(observed.log_densities(holes), states.log_densities(whole), atol=1e-10)
    np.testing.assert_allclose(observed.sums(weights, holes), states.sums(weights, whole), atol=1e-9)
    np.testing.assert_array_equal(observed.scales(), states.scales())


@pytest.mark.parametrize("form", ["diag", "full"])
def test_what_is_lost_is_little_and_far_less_than_by_filling_in_means(form):
    """New frames, in nats for each observed entry: complete fit, fit with holes, fit of filled frames."""
    for seed in range(2):
        X, holes, _ = planted(seed, n=3500)
        new, filled = holes[2500:], np.where(np.isnan(holes), np.nanmean(holes, axis=0), holes)
        each = 1.0 / (~np.isnan(new)).sum()
        complete, ours, means = (
            each * dca.GaussianHMM(3, form).fit(rows[:2500]).score(new) for rows in (X, holes, filled)
        )
        assert ours > complete - 0.015
        assert means < complete - 0.03


def test_steps_over_all_frames_raise_the_likelihood_of_what_was_observed():
    _, holes, _ = planted(1, n=1500)
    model = dca.GaussianHMM(3, "full", max_iter=4, tol=-1.0).fit(holes)
    assert (np.diff(model.log_likelihoods_) > -1e-4).all()  # covariances borrow from each other: not quite monotone
    assert model.log_likelihoods_[-1] * len(holes) == pytest.approx(model.score(holes), rel=1e-4)
    assert model.n_unobserved_rows_ == np.isnan(holes).all(axis=1).sum() >= 5
    assert not np.isnan(holes[model.anchor_indices_]).all(axis=1).any()  # none of the frames without any entry


@pytest.mark.parametrize("form", ["diag", "full"])
def test_any_chunking_gives_the_same_bits(form, monkeypatch):
    monkeypatch.setattr("dask_dca.models.hmm.start._MAX_SAMPLE_FRAMES", 512)
    monkeypatch.setattr("dask_dca.models.hmm.start._STRETCH_FRAMES", 64)
    _, holes, _ = planted(2, n=1100)
    whole = dca.GaussianHMM(3, form, max_iter=1).fit(holes, lengths=[400, 700])
    chunked = da.from_array(holes, chunks=((300, 77, 723), 2))
    parts = dca.GaussianHMM(3, form, max_iter=1).fit(chunked, lengths=[400, 700])
    assert fitted_bytes(parts) == fitted_bytes(whole)
    for name in ("predict", "predict_proba", "decode", "score_samples"):
        one, other = (getattr(whole, name)(X, lengths=[400, 700]) for X in (holes, chunked))
        assert as_bytes(one) == as_bytes(other)


def test_holes_that_only_a_pass_over_all_frames_meets(monkeypatch):
    monkeypatch.setattr("dask_dca.models.hmm.start._MAX_SAMPLE_FRAMES", 512)
    monkeypatch.setattr("dask_dca.models.hmm.start._STRETCH_FRAMES", 64)
    X, _, _ = planted(3, n=1500)
    for row in (30, 700, 1499):
        holes = X.copy()
        holes[row, 2] = np.nan
        model = dca.GaussianHMM(3, max_iter=1).fit(holes)
        assert np.isfinite(model.log_likelihoods_).all()
        assert model.score(holes) == pytest.approx(dca.GaussianHMM(3, max_iter=1).fit(X).score(holes), rel=1e-3)


def test_numbers_of_states_and_forms_are_chosen_with_holes():
    _, holes, _ = planted(0, n=400, share=0.2)
    model = dca.GaussianHMM("auto", "auto", max_iter=1).fit(holes)
    assert 2 <= model.n_components_ <= 5
    assert model.covariance_type_ in ("diag", "tied")


def test_a_number_marks_missing_entries_and_few_entries_are_warned_of():
    _, holes, _ = planted(0, n=200)
    marked = dca.GaussianHMM(2, missing=-9.0).fit(np.where(np.isnan(holes), -9.0, holes))
    assert fitted_bytes(marked) == fitted_bytes(dca.GaussianHMM(2).fit(holes))
    with pytest.warns(FewEntriesWarning, match=r"entries were observed, .* of the 68 parameters"):
        dca.GaussianHMM(3, "full").fit(holes[:30])
