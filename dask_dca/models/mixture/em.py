"""Expectation-maximisation of Gaussian mixtures in memory, and sums over all rows that correct those of a sample.

After a pass over all rows with mixture m, the sample is used to solve

    m' = M(sums of the sample for m' + (sums of all rows for m - sums of the sample for m)),

all of them per row, without reading anything again. What is left to gain falls by about parameters / rows of the
sample with each pass, however slowly expectation-maximisation itself converges.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from dask_dca.models.gaussians import (
    combination,
    covariance_parameters,
    damping,
    expected_log_density,
    gaussian_moments,
    log_densities,
    moments_of_parts,
    moved_moments,
    prepare_gaussians,
    variances_of,
)
from dask_dca.models.mixture.e_step import look_at_rows
from dask_dca.models.mixture.family import estimate, maximization

if TYPE_CHECKING:
    from collections.abc import Callable

    from dask_dca.geometry.arrays import Floats, Labels
    from dask_dca.models.gaussians import GaussianMoments, Gaussians
    from dask_dca.models.mixture.family import Estimate, Mixture, Shrinkage


@dataclass(frozen=True)
class WeightedRows:
    """Rows that differ, and how often each stands in the data.

    rows (n, p): the rows, less the centre; counts (n,): how often.
    """

    rows: Floats
    counts: Floats

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, some: slice | Labels) -> WeightedRows:
        return WeightedRows(self.rows[some], self.counts[some])

    @property
    def n_rows(self) -> float:
        """How many rows of the data these are."""
        return float(self.counts.sum())


def prepared(mixture: Mixture) -> Gaussians:
    """Factor a mixture's covariances, for rows less the centre."""
    centre = np.zeros(mixture.means.shape[1])
    return prepare_gaussians(mixture.means, mixture.covariances, mixture.covariance_type, centre, mixture.degrees)


def joint_log_densities(mixture: Mixture, rows: Floats) -> Floats:
    """Evaluate the log of weight times density, for every row and component.

    rows (n, p): rows, less the centre. Returns (n, k): joint log densities.
    """
    found = log_densities(prepared(mixture), rows)
    found += np.log(mixture.weights)
    return found


def normalise(joint: Floats) -> tuple[Floats, Floats]:
    """Turn joint log densities into responsibilities, row by row.

    joint (n, k): joint log densities. Returns responsibilities (n, k): probability of each component, given the row;
    log_likelihoods (n,): log density of each row.
    """
    top = joint.max(axis=1, keepdims=True)
    shares = np.exp(joint - top)
    total = shares.sum(axis=1, keepdims=True)
    shares /= total
    return shares, (top + np.log(total))[:, 0]


def expectation(mixture: Mixture, rows: Floats) -> tuple[Floats, Floats]:
    """Find the responsibilities of the components for rows: the E-step.

    rows (n, p): rows, less the centre. Returns responsibilities (n, k): probability of each component, given the row;
    log_likelihoods (n,): log density of each row.
    """
    return normalise(joint_log_densities(mixture, rows))


def maximized(data: WeightedRows, responsibilities: Floats, before: Mixture, shrinkage: Shrinkage) -> Estimate:
    """Find the mixture that responsibilities lead to: the M-step.

    responsibilities (n, k): probability of each component, given the row; before: the mixture that they come from.
    """
    form, gaussians = before.covariance_type, prepared(before)
    weights = damped(responsibilities * data.counts[:, None], gaussians, data.rows)
    moments = moments_under(gaussians, weights, data.rows)
    return estimate(moments, form, shrinkage, responsibilities.sum(axis=0), before.means)


def moments_under(gaussians: Gaussians, weights: Floats, rows: Floats) -> GaussianMoments:
    """Sum weighted rows and their products about points that suit these components.

    Of full covariances the means: a component may become so much smaller in a step that squares about the centre would
    leave it none that is positive definite. weights (n, k): what rows count for in each; rows (n, p): less the centre.
    """
    form = gaussians.covariance_type
    return gaussian_moments(weights, rows, form, gaussians.means if form == "full" else gaussians.origins)


def damped(weights: Floats, gaussians: Gaussians, rows: Floats, densities: Floats | None = None) -> Floats:
    """Shift weights of rows to those near each component where its tails are heavy; their sums stay.

    weights (n, k): responsibilities, times how often rows count; densities (n, k): of the rows, where they are known.
    """
    if math.isinf(gaussians.degrees):
        return weights
    return weights * relative_damping(weights, gaussians, rows, densities)


def relative_damping(weights: Floats, gaussians: Gaussians, rows: Floats, densities: Floats | None = None) -> Floats:
    """Find what each row counts for in each component, by the mean of its rows: (n, k)."""
    if math.isinf(gaussians.degrees):
        return np.ones_like(weights)
    found = damping(gaussians, log_densities(gaussians, rows) if densities is None else densities)
    mean = (weights * found).sum(axis=0) / np.maximum(weights.sum(axis=0), np.finfo(np.float64).tiny)
    return np.asarray(found / np.maximum(mean, np.finfo(np.float64).tiny))


def mixture_of_labels(data: WeightedRows, labels: Labels, k: int, form: str, shrinkage: Shrinkage) -> Mixture:
    """Fit a mixture of any form to a partition.

    labels (n,): component of each row. Returns one component for each label.
    """
    responsibilities = np.eye(k)[labels]
    weights = responsibilities * data.counts[:, None]
    moments = moments_of_parts(weights, data.rows, form, shrinkage.floor)
    evidence = responsibilities.sum(axis=0)
    return maximization(moments, form, shrinkage, evidence, np.zeros((k, data.rows.shape[1])))


def improve(
    data: WeightedRows,
    mixture: Mixture,
    shrinkage: Shrinkage,
    passes: int,
    *,
    tune: Callable[[WeightedRows, Floats, Mixture, Shrinkage], Shrinkage] | None = None,
    tune_at: tuple[int, ...] = (),
    tol: float = 0.0,
) -> tuple[Mixture, Shrinkage]:
    """Run passes of expectation-maximisation.

    tune: chooses pulls anew, given rows, responsibilities and where they come from, before the passes `tune_at`; tol:
    passes end where the mean log density of a row rises by less, after the last choice.
    """
    last = -np.inf
    for step in range(passes):
        gaussians = prepared(mixture)
        densities = log_densities(gaussians, data.rows)
        responsibilities, logs = normalise(densities + np.log(mixture.weights))
        level = float(data.counts @ logs) / data.n_rows
        if tol and abs(level - last) < tol and step > max(tune_at, default=-1) + 1:
            break
        last = level
        if tune is not None and step in tune_at:
            shrinkage = tune(data, responsibilities, mixture, shrinkage)
        weights = damped(responsibilities * data.counts[:, None], gaussians, data.rows, densities)
        moments = moments_under(gaussians, weights, data.rows)
        mixture = maximization(moments, mixture.covariance_type, shrinkage, responsibilities.sum(axis=0), mixture.means)
    return mixture, shrinkage


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
        gaussians = prepared(mixture)
        if not gaussians.far.any():
            logs = np.log(mixture.weights)
            return look_at_rows(gaussians, logs, self.deviations, self.rows, self.least, self.across)
        shares, logs = expectation(mixture, self.rows)
        logs += self.across
        own = logs >= self.least
        weights = damped(shares * own[:, None], gaussians, self.rows)
        return moments_under(gaussians, weights, self.rows), float(logs[own].mean())

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
    form, scale = now.covariance_type, n_rows / len(places.rows)
    whole = moved_moments(moments, 0.0, form)
    seen, first = places.look(now)
    beyond = combination(whole, moved_moments(seen, 0.0, form), -scale)
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
        best, reached, whole = found, height, combination(beyond, moved_moments(seen, 0.0, form), scale)
        if settled or not (whole.counts > 0.0).all():
            break
    if best is now:
        return Corrected(plain, bound, bound)
    gain = max(reached - before, bound)
    return Corrected(best, gain, gain * (wrong if settled else 1.0))


def _expected(mixture: Mixture, moments: GaussianMoments, n_rows: float) -> float:
    centred = moved_moments(moments, 0.0, mixture.covariance_type)
    return expected_log_density(prepared(mixture), np.log(mixture.weights), centred) / n_rows


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
