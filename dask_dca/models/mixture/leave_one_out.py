"""Leave-one-out log densities of rows in closed form, by which pulls, starts and forms are chosen.

A row is removed from its most probable component only. Its effect on the component's shrinkage target is removed to
first order: the number of the target's parameters, divided by the rows that they are estimated from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.linalg import eigh

from dask_dca.geometry.arrays import Floats, Labels
from dask_dca.models.gaussians import GaussianMoments, log_densities_at
from dask_dca.models.mixture.em import (
    WeightedRows,
    component_moments,
    joint_log_densities,
    normalise,
    prepare_mixture,
    relative_student_weights,
)
from dask_dca.models.mixture.family import Estimate, Mixture, Shrinkage, estimate

_PULLS: Final = (2.0**-32, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, np.inf)  # tried; the first is none, but not singular
_TUNE_ROWS: Final = 16_000  # maximum number of rows that pulls are chosen by, or of rows x features / 8 if diagonal
_MAX_ROW_SHARE: Final = 0.95  # maximum share of one row in its component
_MIN_LEFT_WEIGHT: Final = 1e-3  # minimum weight of a component without a row, relative to the row's weight
_MIN_DETERMINANT_RATIO: Final = 1e-6  # minimum factor that removing a row leaves of a determinant
_DEGREES: Final = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)  # degrees of freedom that are tried
_SCALE_STEPS: Final = 8  # fixed-point iterations for the scale of Student's t distances
_TINY: Final = float(np.finfo(np.float64).tiny)  # avoids division by zero


def leave_one_out_densities(data: WeightedRows, mixture: Mixture, shrinkage: Shrinkage) -> Floats:
    """Evaluate log densities (n,), the most probable component of each row fitted without it."""
    joint = joint_log_densities(mixture, data.rows)
    responsibilities = normalise(joint)[0]
    labels, every = responsibilities.argmax(axis=1), np.arange(len(data))
    left = _leave_one_out(data, responsibilities, mixture, shrinkage)
    weights = np.maximum(left.counts[labels] - data.counts, _MIN_LEFT_WEIGHT * data.counts) / data.n_rows
    joint[every, labels] = np.log(weights) + left.densities([shrinkage.pull])[0]
    return normalise(joint)[1]


def tune_pull(
    data: WeightedRows, responsibilities: Floats, mixture: Mixture, shrinkage: Shrinkage, targets: Sequence[str]
) -> Shrinkage:
    """Choose target and pull of the covariances by leave-one-out density; of equal `targets` the earlier one."""
    left = _leave_one_out(data, responsibilities, mixture, shrinkage, _thinned(data, mixture.covariance_type))
    best, top = shrinkage, -np.inf
    for target in targets:
        tried = replace(shrinkage, target=target)
        scores = left.scores(tried, _PULLS)
        if scores.max() > top + 1e-9:
            top, best = scores.max(), replace(tried, pull=_PULLS[int(scores.argmax())])
    return best


def tune_degrees(data: WeightedRows, responsibilities: Floats, mixture: Mixture, shrinkage: Shrinkage) -> Shrinkage:
    """Choose the degrees of freedom by the likelihood of the leave-one-out distances of rows from their components."""
    few = _thinned(data, mixture.covariance_type)
    left, counts = _leave_one_out(data, responsibilities, mixture, shrinkage, few), data.counts[few]
    distances = left.distances([shrinkage.pull])[0][0]
    likelihoods = {
        d: float(counts @ _log_densities_at_best_scale(distances, counts, data.rows.shape[1], d)) for d in _DEGREES
    }
    return replace(shrinkage, degrees=max(likelihoods, key=lambda tried: likelihoods[tried]))


def _log_densities_at_best_scale(distances: Floats, counts: Floats, p: int, degrees: float) -> Floats:
    """Log densities (n,) at squared distances, scaled by the factor of greatest likelihood for all of them."""
    scale = float(np.average(distances, weights=counts)) / p
    if scale <= 0.0:
        return np.zeros(len(distances))
    for _ in range(_SCALE_STEPS):
        tail_weights = (degrees + p) / (degrees * scale + distances)
        scale *= float(np.average(tail_weights * distances, weights=counts)) / p
    return log_densities_at(distances / scale, np.array(-0.5 * p * math.log(scale)), p, degrees)


def _thinned(data: WeightedRows, form: str) -> slice:
    """Every how many rows pulls are chosen by, so that the work is bounded."""
    size = len(data) * (1 if form == "full" else data.rows.shape[1] // 8 + 1)
    return slice(None, None, max(1, size // _TUNE_ROWS))


def _leave_one_out(
    data: WeightedRows, responsibilities: Floats, mixture: Mixture, shrinkage: Shrinkage, few: slice = slice(None)
) -> _LeaveOneOut:
    """Prepare to leave out some rows, given the responsibilities of all of them under a mixture."""
    weights, labels = responsibilities * data.counts[:, None], responsibilities.argmax(axis=1)
    gaussians, form, evidence = prepare_mixture(mixture), mixture.covariance_type, responsibilities.sum(axis=0)
    tail_weights = relative_student_weights(weights, gaussians, data.rows)
    moments = component_moments(gaussians, weights * tail_weights, data.rows)
    found = estimate(moments, form, shrinkage, evidence, mixture.means)
    own = tail_weights[np.arange(len(data)), labels]
    return _LeaveOneOut(data[few], labels[few], found, shrinkage, own[few], weights.sum(axis=0), evidence, moments)


@dataclass(frozen=True)
class _LeaveOneOut:
    """Some rows, and the components that they are removed from, one row at a time."""

    some: WeightedRows
    labels: Labels  # (n,): component that each of these rows is removed from
    found: Estimate
    shrinkage: Shrinkage
    tail_weights: Floats  # (n,): Student's t weight of each of these rows in its component, one on average
    counts: Floats  # (k,): number of rows of each component
    evidence: Floats  # (k,): number of distinct rows of each component
    moments: GaussianMoments

    def scores(self, shrinkage: Shrinkage, pulls: Sequence[float]) -> Floats:
        """Sum the leave-one-out log densities of the rows with another shrinkage, for each pull."""
        now = self.found.mixture
        found = estimate(self.moments, now.covariance_type, shrinkage, self.evidence, now.means)
        return np.asarray(replace(self, shrinkage=shrinkage, found=found).densities(pulls) @ self.some.counts)

    def densities(self, pulls: Sequence[float]) -> Floats:
        """Evaluate the log density of each row under its component fitted without it, for each pull: (pulls, n)."""
        distances, log_determinants = self.distances(pulls)
        out = log_densities_at(distances, log_determinants, self.some.rows.shape[1], self.shrinkage.degrees)
        full = self.found.mixture.covariance_type == "full"
        penalties = self._shared_penalty(full) + self._n_own_parameters(full) / np.maximum(self.evidence, 1.0)
        for row, pull in zip(out, pulls, strict=True):
            row -= ((1.0 - self._own_share(pull)) * penalties)[self.labels]
        return out

    def _own_share(self, pull: float) -> Floats:
        """Weight (k,) of each component's own scatter against its target, with one row less."""
        rest = np.maximum(self.evidence - 1.0, 0.0)
        return np.asarray(rest / np.maximum(rest + pull, _TINY))

    def distances(self, pulls: Sequence[float]) -> tuple[Floats, Floats]:
        """Squared distances (pulls, n) of rows from their components fitted without them; half log det precisions."""
        distances, log_determinants = np.empty((2, len(pulls), len(self.some)))
        own_shares = np.array([self._own_share(pull) for pull in pulls])
        full = self.found.mixture.covariance_type == "full"
        without = _full_without if full else _diagonal_without
        for j in np.unique(self.labels).tolist():
            own = np.flatnonzero(self.labels == j)
            away = self.some.rows[own] - self.found.mixture.means[j]
            share = self.some.counts[own] * self.tail_weights[own] / max(self.counts[j], _TINY)
            found = (self.found.scatter[j], self.shrinkage.floor, self.found.targets[j], own_shares[:, j])
            distances[:, own], log_determinants[:, own] = without(away, np.minimum(share, _MAX_ROW_SHARE), *found)
        return distances, log_determinants

    def _shared_penalty(self, full: bool) -> float:
        """First-order effect of a row on the common shape: its free parameters over the number of rows."""
        p, n, pull = self.some.rows.shape[1], float(self.evidence.sum()), self.shrinkage.common_pull
        if self.shrinkage.target == "diagonal":
            return 0.0
        free = n / (n + pull)
        return (p + p * (p - 1) / 2 * free) / n if full else p * free / n

    def _n_own_parameters(self, full: bool) -> float:
        """Number of parameters of the target that are the component's own."""
        p = self.some.rows.shape[1]
        return {"diagonal": p if full else 0, "common": 0, "scaled": 1}[self.shrinkage.target]


def _diagonal_without(
    away: Floats, share: Floats, scatter: Floats, floor: Floats, target: Floats, own_shares: Floats
) -> tuple[Floats, Floats]:
    """Distances (pulls, n) and half log det precisions for diagonal covariances, with one row less.

    away (n, p): rows less the component's mean; share (n,): of each row in the component's weight.
    """
    left = 1.0 - share[:, None]
    variances = np.maximum(scatter - share[:, None] / left * away**2, 0.0) / left + floor
    squares = (away / left) ** 2
    distances, log_determinants = np.empty((2, len(own_shares), len(away)))
    for i, part in enumerate(own_shares):
        own = np.maximum((1.0 - part) * target + part * variances, _TINY)
        distances[i], log_determinants[i] = (squares / own).sum(axis=1), -0.5 * np.log(own).sum(axis=1)
    return distances, log_determinants


def _full_without(
    away: Floats, share: Floats, scatter: Floats, floor: Floats, target: Floats, own_shares: Floats
) -> tuple[Floats, Floats]:
    """The same for full covariances, which are diagonal for every pull in the eigenvectors relative to the target.

    The row's own outer product is removed by the Sherman-Morrison formula.
    """
    values, axes = eigh(scatter + np.diag(floor), target)
    values, squares = np.maximum(values, 0.0), (away @ axes) ** 2
    log_det, left = np.linalg.slogdet(target)[1], 1.0 - share
    even = bool(np.ptp(share) < 1e-12)
    distances, log_determinants = np.empty((2, len(own_shares), len(away)))
    for i, part in enumerate(own_shares):
        own = np.maximum((1.0 - part) + part * values / (left[:1] if even else left)[:, None], _TINY)
        lengths = (squares / own).sum(axis=1)
        short = np.maximum(1.0 - part * share / left**2 * lengths, _MIN_DETERMINANT_RATIO)
        distances[i] = lengths / left**2 / short
        log_determinants[i] = -0.5 * (log_det + np.log(own).sum(axis=1) + np.log(short))
    return distances, log_determinants


def tune_common_pull(data: WeightedRows, responsibilities: Floats, mixture: Mixture, shrinkage: Shrinkage) -> Shrinkage:
    """Choose the pull of the common shape by the leave-one-out density of rows less their components' means."""
    few = _thinned(data, mixture.covariance_type)
    labels = responsibilities.argmax(axis=1)[few]
    weights = responsibilities * data.counts[:, None]
    tail_weights = relative_student_weights(weights, prepare_mixture(mixture), data.rows)
    means = (weights * tail_weights).T @ data.rows / np.maximum(weights.sum(axis=0), _TINY)[:, None]
    away, n = data.rows[few] - means[labels], len(labels)
    away *= np.sqrt(tail_weights[few][np.arange(n), labels])[:, None]
    if n < 2:
        return shrinkage
    if mixture.covariance_type == "full":
        own = np.maximum(weights.sum(axis=0), 2.0)[labels]
        costs = _full_costs(away, shrinkage.floor, own / (own - 1.0))
    else:
        costs = _diagonal_costs(away, shrinkage.floor)
    pull = min(costs, key=lambda tried: costs[tried])
    return replace(shrinkage, common_pull=pull * len(data) / n)


def _diagonal_costs(away: Floats, floor: Floats) -> dict[float, float]:
    """Twice the negative log likelihood of residuals (n, p), each left out, under one diagonal covariance, by pull."""
    n, squares = len(away), away**2
    variances = squares.mean(axis=0) + floor
    without = np.maximum(n * variances - squares * n / (n - 1), 0.0) / (n - 1) + floor
    costs = {}
    for pull in (0.0, *_PULLS[1:]):  # even the smallest pull to a large mean variance swamps tiny ones
        share = (n - 1) / (n - 1 + pull)
        own = (1.0 - share) * variances.mean() + share * without
        costs[pull] = float((np.log(own) + squares * (n / (n - 1)) ** 2 / own).sum())
    return costs


def _full_costs(away: Floats, floor: Floats, moved: Floats) -> dict[float, float]:
    """The same under one full covariance, by the pull towards its diagonal.

    moved (n,): factor by which the residual of a row grows when its component's mean is taken without the row. With
    fewer rows than features, residuals about the full means would make nearly singular covariances look best.
    """
    n = len(away)
    covariance = away.T @ away / n + np.diag(floor)
    deviations = np.sqrt(np.diagonal(covariance))
    values, axes = np.linalg.eigh(covariance / deviations / deviations[:, None])
    values, squares, costs = np.maximum(values, 0.0), ((away / deviations) @ axes) ** 2, {}
    for pull in _PULLS[:-1]:
        share, drawn = (n - 1) / (n - 1 + pull), n / (n - 1)
        own = np.maximum((1.0 - share) + share * drawn * values, _TINY)
        lengths = (squares / own).sum(axis=1)
        short = np.maximum(1.0 - share * moved / (n - 1) * lengths, _MIN_DETERMINANT_RATIO)
        costs[pull] = float((np.log(short) + lengths * moved**2 / short).sum() + n * np.log(own).sum())
    return costs
