"""Expectation-maximisation of Gaussian mixtures in memory, and steps on a sample corrected by sums over all rows.

After a pass over all rows with mixture m, the sample is used to solve

    m' = M(sums of the sample for m' + (sums of all rows for m - sums of the sample for m)),

with all sums divided by their number of rows, without reading the data again. Each pass multiplies the remaining gain
by about (number of parameters) / (rows of the sample), however slowly expectation-maximisation itself converges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from dask_dca.geometry.arrays import Floats, Labels
from dask_dca.models.gaussians import (
    GaussianMoments,
    Gaussians,
    add_multiple,
    covariance_parameters,
    expected_log_density,
    gaussian_moments,
    log_densities,
    moments_of_partition,
    prepare_gaussians,
    shifted_moments,
    student_weights,
    variances_of,
)
from dask_dca.models.mixture.e_step import e_step_in_memory
from dask_dca.models.mixture.family import Estimate, Mixture, Shrinkage, estimate, maximization


@dataclass(frozen=True)
class WeightedRows:
    """Distinct rows (n, p), less the centre of the data, and how often each occurs: counts (n,)."""

    rows: Floats
    counts: Floats

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, some: slice | Labels) -> WeightedRows:
        return WeightedRows(self.rows[some], self.counts[some])

    @property
    def n_rows(self) -> float:
        """Number of rows of the data, repetitions included."""
        return float(self.counts.sum())


def prepare_mixture(mixture: Mixture) -> Gaussians:
    """Factor a mixture's covariances, to evaluate it on rows less the centre."""
    centre = np.zeros(mixture.means.shape[1])
    return prepare_gaussians(mixture.means, mixture.covariances, mixture.covariance_type, centre, mixture.degrees)


def joint_log_densities(mixture: Mixture, rows: Floats) -> Floats:
    """Evaluate log weight plus log density (n, k), for every row and component; rows (n, p) are less the centre."""
    found = log_densities(prepare_mixture(mixture), rows)
    found += np.log(mixture.weights)
    return found


def normalise(joint: Floats) -> tuple[Floats, Floats]:
    """Turn joint log densities (n, k) into responsibilities (n, k), and the log density of each row (n,)."""
    top = joint.max(axis=1, keepdims=True)
    shares = np.exp(joint - top)
    total = shares.sum(axis=1, keepdims=True)
    shares /= total
    return shares, (top + np.log(total))[:, 0]


def expectation(mixture: Mixture, rows: Floats) -> tuple[Floats, Floats]:
    """Run the E-step on rows (n, p) less the centre: responsibilities (n, k), and the log density of each row (n,)."""
    return normalise(joint_log_densities(mixture, rows))


def estimate_from_responsibilities(
    data: WeightedRows, responsibilities: Floats, before: Mixture, shrinkage: Shrinkage
) -> Estimate:
    """Run the M-step from responsibilities (n, k), and return what the covariances were shrunk to beside the mixture.

    before: the mixture that the responsibilities were computed with.
    """
    form, gaussians = before.covariance_type, prepare_mixture(before)
    weights = student_weighted(responsibilities * data.counts[:, None], gaussians, data.rows)
    moments = component_moments(gaussians, weights, data.rows)
    return estimate(moments, form, shrinkage, responsibilities.sum(axis=0), before.means)


def component_moments(gaussians: Gaussians, weights: Floats, rows: Floats) -> GaussianMoments:
    """Sum weighted rows and their products about origins that lose no digits to cancellation.

    With full covariances these are the means: a component can shrink so much in one step that its covariance, computed
    from squares about the centre, would not be positive definite. weights (n, k); rows (n, p): less the centre.
    """
    form = gaussians.covariance_type
    return gaussian_moments(weights, rows, form, gaussians.means if form == "full" else gaussians.origins)


def student_weighted(weights: Floats, gaussians: Gaussians, rows: Floats, densities: Floats | None = None) -> Floats:
    """Multiply weights (n, k) by Student's t weights, scaled so that their sums over rows stay the same.

    weights: responsibilities times counts of rows; densities (n, k): log densities of the rows, if known already.
    """
    if math.isinf(gaussians.degrees):
        return weights
    return weights * relative_student_weights(weights, gaussians, rows, densities)


def relative_student_weights(
    weights: Floats, gaussians: Gaussians, rows: Floats, densities: Floats | None = None
) -> Floats:
    """Find the Student's t weight (n, k) of each row in each component, relative to the component's mean weight."""
    if math.isinf(gaussians.degrees):
        return np.ones_like(weights)
    found = student_weights(gaussians, log_densities(gaussians, rows) if densities is None else densities)
    mean = (weights * found).sum(axis=0) / np.maximum(weights.sum(axis=0), np.finfo(np.float64).tiny)
    return np.asarray(found / np.maximum(mean, np.finfo(np.float64).tiny))


def mixture_of_labels(data: WeightedRows, labels: Labels, k: int, form: str, shrinkage: Shrinkage) -> Mixture:
    """Fit one component to the rows of each label (n,) in 0, ..., k - 1: an M-step from a partition."""
    responsibilities = np.eye(k)[labels]
    weights = responsibilities * data.counts[:, None]
    moments = moments_of_partition(weights, data.rows, form, shrinkage.floor)
    evidence = responsibilities.sum(axis=0)
    return maximization(moments, form, shrinkage, evidence, np.zeros((k, data.rows.shape[1])))


def run_em(
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

    tune: chooses the shrinkage again before the passes `tune_at`, given rows, responsibilities and the mixture; tol:
    passes end where the mean log density per row changes by less, after the last of these choices.
    """
    last = -np.inf
    for step in range(passes):
        gaussians = prepare_mixture(mixture)
        densities = log_densities(gaussians, data.rows)
        responsibilities, logs = normalise(densities + np.log(mixture.weights))
        level = float(data.counts @ logs) / data.n_rows
        if tol and abs(level - last) < tol and step > max(tune_at, default=-1) + 1:
            break
        last = level
        if tune is not None and step in tune_at:
            shrinkage = tune(data, responsibilities, mixture, shrinkage)
        weights = student_weighted(responsibilities * data.counts[:, None], gaussians, data.rows, densities)
        moments = component_moments(gaussians, weights, data.rows)
        mixture = maximization(moments, mixture.covariance_type, shrinkage, responsibilities.sum(axis=0), mixture.means)
    return mixture, shrinkage


_MAX_SAMPLE_STEPS: Final = 60  # maximum number of steps on the sample after each pass over all rows
_SAMPLE_TOL: Final = 0.01  # tolerance of the steps on the sample, relative to that of the passes
_PLAUSIBLE_DEVIATIONS: Final = 3.0  # an excess of log likelihood is plausible up to this many standard deviations
_MIN_VARIANCE_RATIO: Final = 0.2  # steps on the sample end where a variance falls below this share of the one before


@dataclass(frozen=True)
class SampleEM:
    """E- and M-steps on the rows of a sample.

    rows (m, p): less the centre, or coordinates in a subspace; log_offsets (m,): added to their log densities;
    noise_threshold: rows of a lower log density have no weight; deviations (p,): standard deviations of the rows;
    evidence (k,): distinct rows for each row of a component; it and the shrinkage stay the same in all steps.
    """

    rows: Floats
    log_offsets: Floats
    noise_threshold: float
    deviations: Floats
    evidence: Floats
    shrinkage: Shrinkage

    def e_step(self, mixture: Mixture) -> tuple[GaussianMoments, float]:
        """Return moments, and the mean log density of the rows that have weight."""
        gaussians = prepare_mixture(mixture)
        if not gaussians.far.any():
            logs = np.log(mixture.weights)
            return e_step_in_memory(gaussians, logs, self.deviations, self.rows, self.noise_threshold, self.log_offsets)
        shares, logs = expectation(mixture, self.rows)
        logs += self.log_offsets
        has_weight = logs >= self.noise_threshold
        weights = student_weighted(shares * has_weight[:, None], gaussians, self.rows)
        return component_moments(gaussians, weights, self.rows), float(logs[has_weight].mean())

    def m_step(self, moments: GaussianMoments, before: Mixture) -> Mixture:
        """Return the mixture of greatest likelihood, except for floor and shrinkage, given the moments."""
        evidence = self.evidence * moments.counts
        return maximization(moments, before.covariance_type, self.shrinkage, evidence, before.means)


class CorrectedStep(NamedTuple):
    """The mixture after steps on the sample that sums over all rows corrected.

    gain: predicted rise of the mean log density per row; remaining_gain: what another pass is predicted to add.
    """

    mixture: Mixture
    gain: float
    remaining_gain: float


def corrected_step(
    sample: SampleEM, now: Mixture, moments: GaussianMoments, n_rows: float, tol: float
) -> CorrectedStep:
    """Take an M-step from sums over all rows, and go on with steps on the sample that these sums correct.

    now: the mixture that the pass ran with, none of its components far from the centre; moments: sums over all n_rows
    rows. Returns the plain M-step's mixture where no step on the sample raises the corrected log likelihood.
    """
    plain = sample.m_step(moments, now)
    bound = _mean_expected_log_density(plain, moments, n_rows) - _mean_expected_log_density(now, moments, n_rows)
    form, scale = now.covariance_type, n_rows / len(sample.rows)
    whole = shifted_moments(moments, 0.0, form)
    seen, first = sample.e_step(now)
    # the correction: sums of all rows less those of the sample, scaled to as many rows, both under the mixture `now`
    beyond = add_multiple(whole, shifted_moments(seen, 0.0, form), -scale)
    before = first + _mean_expected_log_density(now, beyond, n_rows)
    relative_error = min(1.0, _n_parameters(now) / len(sample.rows))  # relative error of a gain on the sample
    best, reached, top, settled = now, before, first, False
    for _ in range(_MAX_SAMPLE_STEPS):
        found = sample.m_step(whole, best)
        if best is not now and _collapses(found, best):
            break
        seen, level = sample.e_step(found)
        # the corrected log likelihood per row: that of the sample, and what the correction adds to it
        top, height = max(top, level), level + _mean_expected_log_density(found, beyond, n_rows)
        rise, by_correction = height - reached, height - before - (top - first)
        if rise < -_SAMPLE_TOL * tol or max(top - level, by_correction) > _max_plausible_excess(now, len(sample.rows)):
            break
        settled = rise < max(_SAMPLE_TOL * tol, relative_error * (height - before))
        if rise <= 0.0:
            break
        best, reached, whole = found, height, add_multiple(beyond, shifted_moments(seen, 0.0, form), scale)
        if settled or not (whole.counts > 0.0).all():
            break
    if best is now:
        return CorrectedStep(plain, bound, bound)
    gain = max(reached - before, bound)
    return CorrectedStep(best, gain, gain * (relative_error if settled else 1.0))


def _mean_expected_log_density(mixture: Mixture, moments: GaussianMoments, n_rows: float) -> float:
    """Expected complete-data log density per row, given the moments of rows shared out by responsibilities."""
    centred = shifted_moments(moments, 0.0, mixture.covariance_type)
    return expected_log_density(prepare_mixture(mixture), np.log(mixture.weights), centred) / n_rows


def _max_plausible_excess(mixture: Mixture, n_rows: float) -> float:
    """Upper bound on the mean log density that a sample may gain from fitting its own noise.

    Under the true mixture, twice the summed gain of the best parameters for the sample is chi-squared distributed with
    as many degrees of freedom as there are parameters; the bound is three standard deviations above its mean. The gain
    of the correction term, which is of the same size where it can be trusted, is held to it as well.
    """
    count = _n_parameters(mixture)
    return float(count + _PLAUSIBLE_DEVIATIONS * np.sqrt(2.0 * count)) / (2.0 * n_rows)


def _collapses(mixture: Mixture, before: Mixture) -> bool:
    """Whether some variance falls below a fifth of the one before: a component closes in on a few rows."""
    form = mixture.covariance_type
    floor = _MIN_VARIANCE_RATIO * variances_of(before.covariances, form)
    return not bool((variances_of(mixture.covariances, form) > floor).all())


def _n_parameters(mixture: Mixture) -> int:
    k, p = mixture.means.shape
    return k - 1 + k * p + covariance_parameters(mixture.covariance_type, k, p)
