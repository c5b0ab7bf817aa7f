"""Densities of what was observed, and what it says of the rest, against SciPy and the textbook's formulas."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dask_dca.models.gaussians import log_densities, prepare_gaussians
from dask_dca.models.incomplete_gaussians import completed_rows, drawn_rows, observed_log_densities, typicality

K, P, N = 3, 5, 60
RNG = np.random.default_rng(0)
MEANS = 3.0 * RNG.standard_normal((K, P))
ROOTS = RNG.standard_normal((K, P, P))
FULL = ROOTS @ ROOTS.swapaxes(1, 2) + 0.5 * np.eye(P)
VARIANCES = np.diagonal(FULL, axis1=1, axis2=2)
FORMS = {  # form -> covariances, and each component's as a matrix
    "full": (FULL, FULL),
    "tied": (FULL[0], np.tile(FULL[0], (K, 1, 1))),
    "diag": (VARIANCES, VARIANCES[:, :, None] * np.eye(P)),
    "spherical": (VARIANCES[:, 0], VARIANCES[:, :1, None] * np.eye(P)),
    "tied-spherical": (np.asarray(2.0), np.tile(2.0 * np.eye(P), (K, 1, 1))),
}
ROWS = 2.0 * RNG.standard_normal((N, P))
HOLES = np.where(RNG.random((N, P)) < 0.4, np.nan, ROWS)
HOLES[7] = np.nan
MASK = ~np.isnan(HOLES)
EVERY = pytest.mark.parametrize("form", FORMS)


@EVERY
def test_densities_are_those_of_the_marginal_distribution(form):
    covariances, whole = FORMS[form]
    found = observed_log_densities(prepare_gaussians(MEANS, covariances, form), HOLES)
    for i, seen in enumerate(MASK):
        for j in range(K):
            if seen.any():
                marginal = multivariate_normal(MEANS[j][seen], whole[j][np.ix_(seen, seen)])
                assert found[i, j] == pytest.approx(marginal.logpdf(ROWS[i, seen]), abs=1e-9)
            else:
                assert found[i, j] == 0.0


@EVERY
def test_holes_have_conditional_means_and_covariances(form):
    covariances, whole = FORMS[form]
    for j, found in enumerate(completed_rows(prepare_gaussians(MEANS, covariances, form), ROWS, MASK)):
        wanted, seen_by_form = np.zeros((N, P, P)), np.zeros((N, P, P))
        for i, seen in enumerate(MASK):
            gain = whole[j][np.ix_(~seen, seen)] @ np.linalg.inv(whole[j][np.ix_(seen, seen)])
            np.testing.assert_allclose(found.away[i, ~seen], gain @ (ROWS[i] - MEANS[j])[seen], atol=1e-10)
            wanted[i][np.ix_(~seen, ~seen)] = whole[j][np.ix_(~seen, ~seen)] - gain @ whole[j][np.ix_(seen, ~seen)]
        matrices = form in ("full", "tied")
        for part in found.uncertain:
            for row, pattern in zip(part.rows, part.pattern, strict=True):
                into = seen_by_form[row].reshape(-1) if matrices else np.zeros(P)
                into[part.places[pattern]] = part.values[pattern]
                if not matrices:
                    seen_by_form[row] = np.diag(into)
        np.testing.assert_allclose(seen_by_form, wanted, atol=1e-9)


@EVERY
def test_a_row_has_the_same_bits_beside_any_others(form):
    gaussians = prepare_gaussians(MEANS, FORMS[form][0], form)
    whole = [observed.log_densities for observed in completed_rows(gaussians, ROWS, MASK)]
    for some in (slice(0, 1), slice(5, 38), RNG.permutation(N)[:17]):
        parts = [observed.log_densities for observed in completed_rows(gaussians, ROWS[some], MASK[some])]
        assert all(part.tobytes() == one[some].tobytes() for part, one in zip(parts, whole, strict=True))


@EVERY
def test_rows_without_holes_have_the_bits_of_complete_ones(form):
    gaussians = prepare_gaussians(MEANS, FORMS[form][0], form)
    mixed = np.where(np.arange(N)[:, None] % 3 == 0, HOLES, ROWS)
    complete = ~np.isnan(mixed).any(axis=1)
    assert (observed_log_densities(gaussians, mixed) == log_densities(gaussians, ROWS))[complete].all()


def test_a_row_is_not_typical_for_its_holes():
    """By density a row of holes would beat all others; by what is expected of it, it is like an average one."""
    gaussians = prepare_gaussians(MEANS, FULL, "full")
    found = next(completed_rows(gaussians, ROWS, MASK))
    assert typicality(found, MASK)[7] == -P
    assert found.log_densities[7] == pytest.approx(0.0, abs=1e-12)
    assert found.log_densities.argmax() == 7


@pytest.mark.parametrize("form", ["full", "diag"])
def test_draws_vary_as_holes_do(form):
    gaussians = prepare_gaussians(MEANS, FORMS[form][0], form)
    seen = np.array([True, False, True, False, False])
    rows = np.tile(ROWS[0], (20_000, 1))
    shares = np.tile([0.0, 1.0, 0.0], (20_000, 1))
    mask = np.tile(seen, (20_000, 1))
    drawn = drawn_rows(gaussians, shares, rows, mask, np.random.default_rng(1).random((20_000, P + 1)))
    assert (drawn[:, seen] == ROWS[0, seen]).all()
    whole = FORMS[form][1][1]
    gain = whole[np.ix_(~seen, seen)] @ np.linalg.inv(whole[np.ix_(seen, seen)])
    spread = whole[np.ix_(~seen, ~seen)] - gain @ whole[np.ix_(seen, ~seen)]
    np.testing.assert_allclose(np.cov(drawn[:, ~seen].T), spread, atol=0.05 * spread.max())
    mean = MEANS[1, ~seen] + gain @ (ROWS[0] - MEANS[1])[seen]
    np.testing.assert_allclose(drawn[:, ~seen].mean(axis=0), mean, atol=0.05)
