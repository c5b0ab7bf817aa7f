"""Densities of rows under mixtures fitted without them, in closed form: what chooses pulls, starts and forms.

A row leaves its likeliest component only; its part in the target is taken off to first order, as the target's
parameters over the rows behind them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.linalg import eigh

from dask_dca.models.gaussians import log_densities_at
from dask_dca.models.mixture.em import joint_log_densities, moments_under, normalise, prepared, relative_damping
from dask_dca.models.mixture.family import estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dask_dca.geometry.arrays import Floats, Labels
    from dask_dca.models.gaussians import GaussianMoments
    from dask_dca.models.mixture.em import WeightedRows
    from dask_dca.models.mixture.family import Estimate, Mixture, Shrinkage


_PULLS: Final = (2.0**-32, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, np.inf)  # the first: none, but nothing is singular
_TUNE_ENTRIES: Final = 16_000  # rows, or for diagonal covariances eight numbers, that pulls are chosen by
_MOST_SHARE: Final = 0.95  # of a component that one row may be
_LEAST_LEFT: Final = 1e-3  # rows' worth of weight that a component keeps without a row
_LEAST: Final = 1e-6
_DEGREES: Final = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)  # of freedom, of heavy tails
_SCALE_STEPS: Final = 8  # to the likeliest scale of distances
_TINY: Final = float(np.finfo(np.float64).tiny)


def left_out_densities(data: WeightedRows, mixture: Mixture, shrinkage: Shrinkage) -> Floats:
    """Evaluate the log density of each row under the mixture, its likeliest component taken without the row.

    Returns (n,): log densities.
    """
    joint = joint_log_densities(mixture, data.rows)
    responsibilities = normalise(joint)[0]
    labels, every = responsibilities.argmax(axis=1), np.arange(len(data))
    left = _left(data, responsibilities, mixture, shrinkage)
    weights = np.maximum(left.counts[labels] - data.counts, _LEAST_LEFT * data.counts) / data.n_rows
    joint[every, labels] = np.log(weights) + left.densities([shrinkage.pull])[0]
    return normalise(joint)[1]


def tune_own(
    data: WeightedRows, responsibilities: Floats, mixture: Mixture, shrinkage: Shrinkage, targets: Sequence[str]
) -> Shrinkage:
    """Choose target and pull of the components' covariances by the density of rows left out.

    targets: which ones to try; an earlier one is kept among equals.
    """
    left = _left(data, responsibilities, mixture, shrinkage, _few(data, mixture.covariance_type))
    best, top = shrinkage, -np.inf
    for target in targets:
        tried = replace(shrinkage, target=target)
        scores = left.scores(tried, _PULLS)
        if scores.max() > top + 1e-9:
            top, best = scores.max(), replace(tried, pull=_PULLS[int(scores.argmax())])
    return best


def tune_tails(data: WeightedRows, responsibilities: Floats, mixture: Mixture, shrinkage: Shrinkage) -> Shrinkage:
    """Choose the degrees of freedom by how far rows left out are from their components."""
    few = _few(data, mixture.covariance_type)
    left, counts = _left(data, responsibilities, mixture, shrinkage, few), data.counts[few]
    distances = left.distances([shrinkage.pull])[0][0]
    likelihoods = {d: float(counts @ _of_scale(distances, counts, data.rows.shape[1], d)) for d in _DEGREES}
    return replace(shrinkage, degrees=max(likelihoods, key=lambda tried: likelihoods[tried]))


def _of_scale(distances: Floats, counts: Floats, p: int, degrees: float) -> Floats:
    """Log densities at squared distances, of the likeliest scale for all of them."""
    scale = float(np.average(distances, weights=counts)) / p
    if scale <= 0.0:
        return np.zeros(len(distances))
    for _ in range(_SCALE_STEPS):
        pulls = (degrees + p) / (degrees * scale + distances)
        scale *= float(np.average(pulls * distances, weights=counts)) / p
    return log_densities_at(distances / scale, np.array(-0.5 * p * math.log(scale)), p, degrees)


def _few(data: WeightedRows, form: str) -> slice:
    size = len(data) * (1 if form == "full" else data.rows.shape[1] // 8 + 1)
    return slice(None, None, max(1, size // _TUNE_ENTRIES))


def _left(
    data: WeightedRows, responsibilities: Floats, mixture: Mixture, shrinkage: Shrinkage, few: slice = slice(None)
) -> _Left:
    """Take some of the rows, which have these responsibilities under a mixture."""
    weights, labels = responsibilities * data.counts[:, None], responsibilities.argmax(axis=1)
    gaussians, form, evidence = prepared(mixture), mixture.covariance_type, responsibilities.sum(axis=0)
    damping = relative_damping(weights, gaussians, data.rows)
    moments = moments_under(gaussians, weights * damping, data.rows)
    found, own = estimate(moments, form, shrinkage, evidence, mixture.means), damping[np.arange(len(data)), labels]
    return _Left(data[few], labels[few], found, shrinkage, own[few], weights.sum(axis=0), evidence, moments)


@dataclass(frozen=True)
class _Left:
    """Some rows, and the components that they are to be taken out of."""

    some: WeightedRows
    labels: Labels  # of these rows
    found: Estimate
    shrinkage: Shrinkage
    damping: Floats  # (n,): what each of these rows counts for in its component's scatter, on the mean one
    counts: Floats  # (k,): rows of each component
    evidence: Floats  # (k,): those of them that differ
    moments: GaussianMoments

    def scores(self, shrinkage: Shrinkage, pulls: Sequence[float]) -> Floats:
        """Sum the log densities of the rows elsewhere in the family, for each pull there."""
        now = self.found.mixture
        found = estimate(self.moments, now.covariance_type, shrinkage, self.evidence, now.means)
        return np.asarray(replace(self, shrinkage=shrinkage, found=found).densities(pulls) @ self.some.counts)

    def densities(self, pulls: Sequence[float]) -> Floats:
        """Log density of each row under its own component without it, for each pull: (pulls, n)."""
        distances, log_determinants = self.distances(pulls)
        out = log_densities_at(distances, log_determinants, self.some.rows.shape[1], self.shrinkage.degrees)
        full = self.found.mixture.covariance_type == "full"
        prices = self._shared_price(full) + self._own_price(full) / np.maximum(self.evidence, 1.0)
        for row, pull in zip(out, pulls, strict=True):
            row -= ((1.0 - self._kept(pull)) * prices)[self.labels]
        return out

    def _kept(self, pull: float) -> Floats:
        """What is left of each component's own covariance without a row."""
        rest = np.maximum(self.evidence - 1.0, 0.0)
        return np.asarray(rest / np.maximum(rest + pull, _TINY))

    def distances(self, pulls: Sequence[float]) -> tuple[Floats, Floats]:
        """Squared distance of each row from its own component without it, and half the inverse's log determinant."""
        distances, log_determinants = np.empty((2, len(pulls), len(self.some)))
        kept, of = np.array([self._kept(pull) for pull in pulls]), _diagonal_without
        if self.found.mixture.covariance_type == "full":
            of = _full_without
        for j in np.unique(self.labels).tolist():
            own = np.flatnonzero(self.labels == j)
            away = self.some.rows[own] - self.found.mixture.means[j]
            share = self.some.counts[own] * self.damping[own] / max(self.counts[j], _TINY)
            found = (self.found.scatter[j], self.shrinkage.floor, self.found.targets[j], kept[:, j])
            distances[:, own], log_determinants[:, own] = of(away, np.minimum(share, _MOST_SHARE), *found)
        return distances, log_determinants

    def _shared_price(self, full: bool) -> float:
        """Parameters of the common shape over all rows."""
        p, n, pull = self.some.rows.shape[1], float(self.evidence.sum()), self.shrinkage.common_pull
        if self.shrinkage.target == "diagonal":
            return 0.0
        free = n / (n + pull)
        return (p + p * (p - 1) / 2 * free) / n if full else p * free / n

    def _own_price(self, full: bool) -> float:
        """Parameters of a component's own part in its target."""
        p = self.some.rows.shape[1]
        return {"diagonal": p if full else 0, "common": 0, "scaled": 1}[self.shrinkage.target]


def _diagonal_without(
    away: Floats, share: Floats, scatter: Floats, floor: Floats, target: Floats, kept: Floats
) -> tuple[Floats, Floats]:
    """Diagonal covariances without a row: away (n, p) from the mean, of which it is a share."""
    left = 1.0 - share[:, None]
    variances = np.maximum(scatter - share[:, None] / left * away**2, 0.0) / left + floor
    squares = (away / left) ** 2
    distances, log_determinants = np.empty((2, len(kept), len(away)))
    for i, part in enumerate(kept):
        own = np.maximum((1.0 - part) * target + part * variances, _TINY)
        distances[i], log_determinants[i] = (squares / own).sum(axis=1), -0.5 * np.log(own).sum(axis=1)
    return distances, log_determinants


def _full_without(
    away: Floats, share: Floats, scatter: Floats, floor: Floats, target: Floats, kept: Floats
) -> tuple[Floats, Floats]:
    """Full covariances without a row: all pulls are diagonal in eigenvectors relative to the target.

    The row itself leaves by Sherman and Morrison.
    """
    values, axes = eigh(scatter + np.diag(floor), target)
    values, squares = np.maximum(values, 0.0), (away @ axes) ** 2
    log_det, left = np.linalg.slogdet(target)[1], 1.0 - share
    even = bool(np.ptp(share) < 1e-12)
    distances, log_determinants = np.empty((2, len(kept), len(away)))
    for i, part in enumerate(kept):
        own = np.maximum((1.0 - part) + part * values / (left[:1] if even else left)[:, None], _TINY)
        lengths = (squares / own).sum(axis=1)
        short = np.maximum(1.0 - part * share / left**2 * lengths, _LEAST)
        distances[i] = lengths / left**2 / short
        log_determinants[i] = -0.5 * (log_det + np.log(own).sum(axis=1) + np.log(short))
    return distances, log_determinants


def tune_common(data: WeightedRows, responsibilities: Floats, mixture: Mixture, shrinkage: Shrinkage) -> Shrinkage:
    """Choose the pull of the common shape by the density of residuals left out."""
    few = _few(data, mixture.covariance_type)
    labels = responsibilities.argmax(axis=1)[few]
    weights = responsibilities * data.counts[:, None]
    damping = relative_damping(weights, prepared(mixture), data.rows)
    means = (weights * damping).T @ data.rows / np.maximum(weights.sum(axis=0), _TINY)[:, None]
    away, n = data.rows[few] - means[labels], len(labels)
    away *= np.sqrt(damping[few][np.arange(n), labels])[:, None]
    if n < 2:
        return shrinkage
    costs = (_full_costs if mixture.covariance_type == "full" else _diagonal_costs)(away, shrinkage.floor)
    pull = min(costs, key=lambda tried: costs[tried])
    return replace(shrinkage, common_pull=pull * len(data) / n)


def _diagonal_costs(away: Floats, floor: Floats) -> dict[float, float]:
    """Twice what residuals lose under one diagonal covariance without them, for each pull to one variance."""
    n, squares = len(away), away**2
    variances = squares.mean(axis=0) + floor
    without = np.maximum(n * variances - squares * n / (n - 1), 0.0) / (n - 1) + floor
    costs = {}
    for pull in _PULLS:
        share = (n - 1) / (n - 1 + pull)
        own = (1.0 - share) * variances.mean() + share * without
        costs[pull] = float((np.log(own) + squares * (n / (n - 1)) ** 2 / own).sum())
    return costs


def _full_costs(away: Floats, floor: Floats) -> dict[float, float]:
    """The same under one full covariance, for each pull to its diagonal."""
    n = len(away)
    covariance = away.T @ away / n + np.diag(floor)
    deviations = np.sqrt(np.diagonal(covariance))
    values, axes = np.linalg.eigh(covariance / deviations / deviations[:, None])
    values, squares, costs = np.maximum(values, 0.0), ((away / deviations) @ axes) ** 2, {}
    for pull in _PULLS[:-1]:
        share, drawn = (n - 1) / (n - 1 + pull), n / (n - 1)
        own = np.maximum((1.0 - share) + share * drawn * values, _TINY)
        lengths = (squares / own).sum(axis=1)
        short = np.maximum(1.0 - share * n / (n - 1) ** 2 * lengths, _LEAST)
        costs[pull] = float((np.log(short) + lengths * drawn**2 / short).sum() + n * np.log(own).sum())
    return costs
