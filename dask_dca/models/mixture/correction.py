"""Sample-corrected passes: the sums over all rows, for one mixture, correct those of the sample for all others.

After a pass over all rows with mixture m, the sample is used to solve

    m' = M(sums of the sample for m' + (sums of all rows for m - sums of the sample for m)),

all of them per row, without reading anything again. What is left to gain falls by about parameters / rows of the
sample with each pass, however slowly expectation-maximisation itself converges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dask_dca.models.gaussians import (
    about_centre,
    combination,
    covariance_parameters,
    expected_log_density,
    gaussian_moments,
    variances_of,
)
from dask_dca.models.mixture.e_step import look_at_rows
from dask_dca.models.mixture.em import expectation, prepared
from dask_dca.models.mixture.family import maximization

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.models.gaussians import GaussianMoments
    from dask_dca.models.mixture.family import Mixture, Shrinkage

    Floats = NDArray[np.float64]

__all__ = ["Corrected", "Places", "corrected"]

_STEPS: Final = 60  # on the sample, for each pass over all rows
_SETTLED: Final = 0.01  # of the tolerance: steps on the sample end where they gain less, or less than it is wrong by
_DOUBT: Final = 3.0  # standard deviations
_COLLAPSE: Final = 0.2  # of a variance is the least that a step may leave


@dataclass(frozen=True)
class Places:
    """Rows of a sample as densities see them, and what decides which of them count.

    rows (m, p): less the centre, or coordinates in a subspace; across (m,): added to their log densities; least: log
    density below which a row is noise; deviations (p,): of the rows; evidence (k,), shrinkage: as they stay.
    """

    rows: Floats
    across: Floats
    least: float
    deviations: Floats
    evidence: Floats
    shrinkage: Shrinkage

    def look(self, mixture: Mixture) -> tuple[GaussianMoments, float]:
        """Return moments, and the mean log density of rows that count."""
        gaussians, form = prepared(mixture), mixture.covariance_type
        if not gaussians.far.any():
            logs = np.log(mixture.weights)
            return look_at_rows(gaussians, logs, self.deviations, self.rows, self.least, self.across)
        shares, logs = expectation(mixture, self.rows)
        logs += self.across
        own = logs >= self.least
        moments = gaussian_moments(shares * own[:, None], self.rows, form, gaussians.origins)
        return moments, float(logs[own].mean())

    def m_step(self, moments: GaussianMoments, before: Mixture) -> Mixture:
        """Return the mixture that moments lead to."""
        evidence = self.evidence * moments.counts
        return maximization(moments, before.covariance_type, self.shrinkage, evidence, before.means)


class Corrected(NamedTuple):
    """What a pass over all rows has led to.

    gain: predicted rise of the mean log density of a row; left: what another pass may bring.
    """

    mixture: Mixture
    gain: float
    left: float


def corrected(places: Places, now: Mixture, moments: GaussianMoments, n_rows: float, tol: float) -> Corrected:
    """Take the step from sums over all rows, and go on with the sample.

    now: what the moments are of, no component of it far from the centre; moments: over all n_rows rows, as a pass gives
    them. Returns what the plain M-step leads to where the sample does not lead on.
    """
    plain = places.m_step(moments, now)
    bound = _expected(plain, moments, n_rows) - _expected(now, moments, n_rows)
    scale, whole = n_rows / len(places.rows), about_centre(moments)
    seen, first = places.look(now)
    beyond = combination(whole, about_centre(seen), -scale)
    before = first + _expected(now, beyond, n_rows)
    wrong = min(1.0, _parameters(now) / len(places.rows))  # what the sample is wrong by, as a share of the gain
    best, reached, top, settled = now, before, first, False
    for _ in range(_STEPS):
        found = places.m_step(whole, best)
        if best is not now and _collapses(found, best):
            break
        seen, level = places.look(found)
        top, height = max(top, level), level + _expected(found, beyond, n_rows)
        rise, beside = height - reached, height - before - (top - first)
        if rise < -_SETTLED * tol or max(top - level, beside) > _plausible(now, len(places.rows)):
            break
        settled = rise < max(_SETTLED * tol, wrong * (height - before))
        if rise <= 0.0:
            break
        best, reached, whole = found, height, combination(beyond, about_centre(seen), scale)
        if settled or not (whole.counts > 0.0).all():
            break
    if best is now:
        return Corrected(plain, bound, bound)
    gain = max(reached - before, bound)
    return Corrected(best, gain, gain * (wrong if settled else 1.0))


def _expected(mixture: Mixture, moments: GaussianMoments, n_rows: float) -> float:
    return expected_log_density(prepared(mixture), np.log(mixture.weights), about_centre(moments)) / n_rows


def _plausible(mixture: Mixture, n_rows: float) -> float:
    """How much less than at its own best the mean log density of a sample may be, under the true mixture.

    Twice its sum is distributed as chi-squared, with as many degrees of freedom as there are parameters; three
    standard deviations beyond the mean. The correction's gain, which is as great where it is to be trusted, too.
    """
    count = _parameters(mixture)
    return float(count + _DOUBT * np.sqrt(2.0 * count)) / (2.0 * n_rows)


def _collapses(mixture: Mixture, before: Mixture) -> bool:
    form = mixture.covariance_type
    after, least = variances_of(mixture.covariances, form), _COLLAPSE * variances_of(before.covariances, form)
    return not bool((after > least).all())


def _parameters(mixture: Mixture) -> int:
    k, p = mixture.means.shape
    return k - 1 + k * p + covariance_parameters(mixture.covariance_type, k, p)
