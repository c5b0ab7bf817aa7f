"""CorrectedStep passes: one sweep over all rows leads about as far as plain expectation-maximisation ever gets."""

import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.models.mixture import fit as mixture_sample
from dask_dca.models.mixture.em import SampleEM, corrected_step
from dask_dca.models.mixture.family import Mixture, Shrinkage
from tests.models.mixture.data import planted_mixture

FORMS = ("diag", "full", "tied", "spherical", "tied-spherical")


def overlapping(form, n=40_000, k=4, p=4, seed=0):
    rng = np.random.default_rng(seed)
    means = 1.5 * rng.standard_normal((k, p))
    rows = means[rng.integers(k, size=n)] + rng.standard_normal((n, p))
    covariances = {
        "diag": np.ones((k, p)),
        "full": np.tile(np.eye(p), (k, 1, 1)),
        "tied": np.eye(p),
        "spherical": np.ones(k),
        "tied-spherical": np.array(1.0),
    }[form]
    return rows, Mixture(form, np.full(k, 1 / k), means, covariances)


def places_of(rows, k):
    shrinkage = Shrinkage(np.full(rows.shape[1], 1e-9), 0.0, 0.0, plain=True)
    return SampleEM(rows, np.zeros(len(rows)), -np.inf, rows.std(axis=0), np.ones(k), shrinkage)


def passes(places, mixture, count):
    for _ in range(count):
        mixture = places.m_step(places.e_step(mixture)[0], mixture)
    return mixture


@pytest.mark.parametrize("form", FORMS)
def test_one_corrected_pass_is_worth_several(form):
    rows, truth = overlapping(form, 20_000)
    every, some = places_of(rows, 4), places_of(rows[::8], 4)
    start = passes(some, truth, 150)  # what the sample of 2,500 rows has converged to
    moments, level = every.e_step(start)
    found = corrected_step(some, start, moments, len(rows), 1e-6)
    best, plain = (every.e_step(passes(every, start, count))[1] for count in (60, 2))
    reached = every.e_step(found.mixture)[1]
    assert best - reached < 0.7 * (best - plain)
    assert best - reached < 0.15 * (best - level)
    assert level + found.gain == pytest.approx(reached, abs=0.25 * (best - level))


def test_without_a_sample_to_trust_the_step_is_the_plain_one():
    rows, truth = overlapping("diag")
    every = places_of(rows, 4)
    moments = every.e_step(truth)[0]
    plain = every.m_step(moments, truth)
    alien = places_of(np.tile(50.0 + rows[:50], (2, 1)), 4)  # says nothing of these rows
    found = corrected_step(alien, truth, moments, len(rows), 1e-6)
    assert found.gain >= 0.0
    np.testing.assert_array_equal(found.mixture.means, plain.means)
    assert every.e_step(found.mixture)[1] >= every.e_step(truth)[1] - 1e-6


def test_more_rows_than_the_sample_are_read_once_by_passes(monkeypatch, computes):
    monkeypatch.setattr(mixture_sample, "_SAMPLE_ROWS", 4000)
    X, _, fresh, _ = planted_mixture(12_000, 8, 4, 2.0, 0)
    model = dca.GaussianMixture(4, "diag").fit(da.from_array(X, chunks=(3000, -1)))
    assert computes.passes.count("refine") == computes.passes.count("correct") == model.n_iter_ <= 2
    assert model.converged_
    assert model.lower_bound_ == pytest.approx(model.score(X), abs=1e-3)
    assert len(model.log_likelihoods_) == model.n_iter_ + 1
    monkeypatch.undo()
    assert model.score(fresh) == pytest.approx(dca.GaussianMixture(4, "diag").fit(X).score(fresh), abs=3e-3)


def test_passes_end_at_the_most_that_were_asked_for(monkeypatch):
    monkeypatch.setattr(mixture_sample, "_SAMPLE_ROWS", 500)
    X = planted_mixture(3000, 4, 3, 1.0, 1)[0]
    for most in (0, 1, 3):
        model = dca.GaussianMixture(3, "diag", max_iter=most, tol=0.0).fit(X)
        assert (model.n_iter_, model.converged_) == (most, False)
        assert len(model.log_likelihoods_) == most + 1


def test_components_far_from_the_centre_take_plain_steps(monkeypatch):
    """Predicted likelihoods would lack the digits that a million deviations take."""
    monkeypatch.setattr(mixture_sample, "_SAMPLE_ROWS", 8000)
    rng = np.random.default_rng(0)
    means = np.array([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0], [1e6, 0.0, 0.0], [1e6 + 3.0, 0.0, 0.0]])
    rows = means[rng.integers(4, size=20_000)] + rng.standard_normal((20_000, 3))
    model = dca.GaussianMixture(4, "full").fit(rows)
    assert model.n_outliers_ == 0
    assert model.lower_bound_ == pytest.approx(model.score(rows), abs=2e-6)
    np.testing.assert_allclose(np.sort(model.means_[:, 0]), means[:, 0], atol=0.1)
