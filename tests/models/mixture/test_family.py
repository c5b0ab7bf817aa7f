"""The family of covariances, its limits, and the densities of rows left out, against fits without them."""

from dataclasses import replace

import numpy as np
import pytest

from dask_dca.models.gaussians import gaussian_moments
from dask_dca.models.mixture.em import (
    WeightedRows,
    estimate_from_responsibilities,
    expectation,
    mixture_of_labels,
    run_em,
)
from dask_dca.models.mixture.family import Shrinkage, estimate, maximization, simplest_form
from dask_dca.models.mixture.leave_one_out import leave_one_out_densities, tune_common_pull, tune_pull
from tests.models.mixture.test_em import blobs

FREE = Shrinkage(np.zeros(4), 0.0, 0.0, "common", plain=True)
LIMITS = {  # form, what it is a limit of
    "tied-spherical": ("diag", Shrinkage(np.zeros(4), np.inf, np.inf, "common")),
    "spherical": ("diag", Shrinkage(np.zeros(4), np.inf, np.inf, plain=True)),
    "tied": ("full", Shrinkage(np.zeros(4), np.inf, 0.0, "common")),
}


def parts(seed=0, n=300, k=3):
    X, _ = blobs(k, 4, n, 3.0, seed)
    return X * [1.0, 2.0, 0.5, 3.0], np.random.default_rng(seed).dirichlet(np.ones(k), n)


@pytest.mark.parametrize("form", LIMITS)
def test_every_form_is_a_limit(form):
    X, shares = parts()
    kind, shrinkage = LIMITS[form]
    evidence = shares.sum(axis=0)
    family = estimate(gaussian_moments(shares, X, kind), kind, shrinkage, evidence).mixture
    found = simplest_form(family, shrinkage)
    plain = maximization(gaussian_moments(shares, X, form), form, FREE, evidence, np.zeros((3, 4)))
    assert found.covariance_type == form
    np.testing.assert_allclose(found.covariances, plain.covariances, rtol=1e-9)
    np.testing.assert_allclose(found.means, plain.means, rtol=1e-9)


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_pulls_are_rows_of_the_target(kind):
    """By hand: (n S + nu T) / (n + nu); W is the mean scatter, drawn to a rounder one by its own pull."""
    X, shares = parts()
    evidence = shares.sum(axis=0)
    moments = gaussian_moments(shares, X, kind)
    plain = estimate(moments, kind, FREE, evidence).mixture.covariances
    found = estimate(moments, kind, Shrinkage(np.zeros(4), 50.0, 20.0, "common"), evidence)
    W = np.tensordot(evidence, plain, 1) / 300
    round_ = np.full(4, W.mean()) if kind == "diag" else np.diag(np.diag(W))
    W = (300 * W + 20 * round_) / 320
    n = evidence.reshape(-1, *[1] * W.ndim)
    np.testing.assert_allclose(found.shape, W, rtol=1e-9)
    np.testing.assert_allclose(found.mixture.covariances, (n * plain + 50 * W) / (n + 50), rtol=1e-9)


@pytest.mark.parametrize(("spread", "most"), [(1.0, 0.6), (3.0, 1.02)])
def test_sizes_that_differ_by_noise_only_are_drawn_to_one(spread, most):
    rng, errors = np.random.default_rng(0), []
    deviations, labels = np.geomspace(1.0, spread, 40), np.repeat(np.arange(40), 30)
    for _ in range(5):
        data = WeightedRows(deviations[labels, None] * rng.standard_normal((1200, 4)), np.ones(1200))
        for shrinkage in (Shrinkage(np.zeros(4), np.inf, np.inf), Shrinkage(np.zeros(4), np.inf, np.inf, plain=True)):
            sizes = mixture_of_labels(data, labels, 40, "diag", shrinkage).covariances[:, 0]
            errors.append(np.abs(0.5 * np.log(sizes) - np.log(deviations)).mean())
    assert np.mean(errors[::2]) < most * np.mean(errors[1::2])


def test_copies_of_a_row_are_its_evidence_once():
    X, _ = parts(n=60, k=1)
    few, many = WeightedRows(X, np.ones(60)), WeightedRows(X, np.full(60, 30.0))
    shrinkage = Shrinkage(np.full(4, 0.01), 16.0, 4.0)
    labels = np.zeros(60, np.intp)
    one, other = (mixture_of_labels(data, labels, 1, "full", shrinkage) for data in (few, many))
    np.testing.assert_allclose(one.covariances, other.covariances, rtol=1e-9)


# --- rows left out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["diag", "full"])
@pytest.mark.parametrize("pull", [0.0, 4.0, np.inf])
@pytest.mark.parametrize("target", ["common", "scaled", "diagonal"])
def test_densities_left_out_are_those_of_fits_without_the_row(kind, pull, target):
    """One component, hard: the target is the component's own here, so that its price has the most to say."""
    if kind == "diag" and target == "diagonal":
        pytest.skip("diagonal covariances have no other diagonal")
    X, _ = parts(n=80, k=1)
    X -= X.mean(axis=0)
    data, labels = WeightedRows(X, np.ones(80)), np.zeros(80, np.intp)
    shrinkage = Shrinkage(np.full(4, 1e-8), pull, 2.0, target)
    mixture = mixture_of_labels(data, labels, 1, kind, shrinkage)
    found = leave_one_out_densities(data, mixture, shrinkage)
    exact, inside = np.empty(80), expectation(mixture, X)[1]
    for i in range(80):
        rest = np.delete(X, i, axis=0)
        without = mixture_of_labels(WeightedRows(rest, np.ones(79)), labels[:79], 1, kind, shrinkage)
        exact[i] = expectation(without, X[i : i + 1])[1][0]
    weight = np.log(79 / 80)  # a row takes its part of the component's weight along
    if pull == 0.0:
        np.testing.assert_allclose(found, exact + weight, rtol=1e-6)
    assert found.mean() - weight == pytest.approx(exact.mean(), abs=0.2 * (inside.mean() - exact.mean()))
    assert inside.mean() - exact.mean() > 0.02


@pytest.mark.parametrize(("kind", "few"), [("diag", 6), ("full", 6)])
def test_pulls_follow_what_components_share(kind, few):
    """Few rows of equal covariances: all of the pull; many rows of unlike ones: little."""
    rng = np.random.default_rng(0)
    alike = rng.standard_normal((10 * few, 4))
    unlike = rng.standard_normal((5000, 4)) * np.exp(rng.standard_normal((10, 4)))[np.repeat(np.arange(10), 500)]
    pulls = []
    for X, each in ((alike, few), (unlike, 500)):
        data, labels = WeightedRows(X, np.ones(len(X))), np.repeat(np.arange(10), each)
        start = Shrinkage(np.full(4, 1e-9), 4.0, 1.0)
        mixture = mixture_of_labels(data, labels, 10, kind, start)
        pulls.append(tune_pull(data, np.eye(10)[labels], mixture, start, ("scaled", "common")))
    assert pulls[0].pull >= 64
    assert pulls[1].pull <= 16
    assert pulls[0].target == "common" or np.isinf(pulls[0].pull)


def test_the_common_shape_is_drawn_as_far_as_it_is_round():
    rng = np.random.default_rng(1)
    round_, long_ = rng.standard_normal((400, 8)), rng.standard_normal((400, 8)) * np.geomspace(0.1, 10.0, 8)
    A = rng.standard_normal((8, 8))
    found = {}
    for kind, X in (("diag", round_), ("diag", long_), ("full", round_), ("full", long_ @ A)):
        data, labels = WeightedRows(X, np.ones(400)), np.zeros(400, np.intp)
        start = Shrinkage(np.full(8, 1e-9), np.inf, 1.0, "common")
        mixture = mixture_of_labels(data, labels, 1, kind, start)
        found.setdefault(kind, []).append(tune_common_pull(data, np.ones((400, 1)), mixture, start).common_pull)
    assert found["diag"][0] >= 256 > 4 >= found["diag"][1]
    assert found["full"][0] >= 256 > 4 >= found["full"][1]


def test_a_pull_that_is_chosen_is_as_good_on_other_rows_as_the_best():
    """Held-out density of the chosen pull, over draws, against all the others."""
    rng, lost = np.random.default_rng(2), []
    for _ in range(6):
        scales = np.exp(0.3 * rng.standard_normal((6, 5)))
        labels = np.repeat(np.arange(6), 12)
        X, fresh = (scales[some] * rng.standard_normal((len(some), 5)) for some in (labels, np.tile(labels, 20)))
        data, start = WeightedRows(X, np.ones(72)), Shrinkage(np.full(5, 1e-9), 4.0, 4.0)
        mixture = mixture_of_labels(data, labels, 6, "full", start)
        chosen = tune_pull(data, np.eye(6)[labels], mixture, start, ("scaled", "diagonal", "common"))

        def held_out(shrinkage, data=data, labels=labels, fresh=fresh):
            made = mixture_of_labels(data, labels, 6, "full", shrinkage)
            joint = np.stack([
                expectation(replace(made, weights=np.eye(6)[j] + 1e-300), fresh)[1] for j in range(6)
            ], axis=1)  # fmt: skip
            return joint[np.arange(len(fresh)), np.tile(labels, 20)].mean()

        others = [
            held_out(replace(start, pull=pull, target=target))
            for pull in (1.0, 16.0, 256.0, np.inf)
            for target in ("scaled", "diagonal", "common")
        ]
        lost.append((max(others) - held_out(chosen), max(others) - np.median(others)))
    chosen, middling = np.mean(lost, axis=0)
    assert chosen < 0.25 * middling


def test_steps_of_em_rise_with_pulls_held():
    X, _ = parts()
    data, shrinkage = WeightedRows(X, np.ones(300)), Shrinkage(np.full(4, 0.01), 0.0, 0.0, "common")
    mixture = mixture_of_labels(data, np.arange(300) % 3, 3, "diag", shrinkage)
    levels = [expectation(mixture, X)[1].mean()]
    for _ in range(10):
        mixture = run_em(data, mixture, shrinkage, 1)[0]
        levels.append(expectation(mixture, X)[1].mean())
    assert np.diff(levels).min() > -1e-9
    shares = expectation(mixture, X)[0]
    assert estimate_from_responsibilities(data, shares, mixture, shrinkage).mixture.weights.sum() == pytest.approx(1.0)
