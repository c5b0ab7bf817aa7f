"""Densities of rows under mixtures fitted without them, in closed form: what chooses pulls, starts and forms.

A row leaves its likeliest component only; its part in the target is taken off to first order, as the target's
parameters over the rows behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.gaussians import gaussian_moments
from dask_dca.models.mixture.em import joint_log_densities, maximized, normalise, prepared
from dask_dca.models.mixture.family import estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.models.mixture.em import WeightedRows
    from dask_dca.models.mixture.family import Estimate, Mixture, Shrinkage

    Floats = NDArray[np.float64]
    Labels = NDArray[np.intp]

__all__ = ["left_out_densities", "tune_common", "tune_own"]

_PULLS: Final = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, np.inf)
_TUNE_ENTRIES: Final = 16_000  # rows, or for diagonal covariances eight numbers, that pulls are chosen by
_MOST_SHARE: Final = 0.95  # of a component that one row may be
_LEAST_LEFT: Final = 1e-3  # rows' worth of weight that a component keeps without a row
_LEAST: Final = 1e-6
_TINY: Final = float(np.finfo(np.float64).tiny)


def left_out_densities(data: WeightedRows, mixture: Mixture, shrinkage: Shrinkage) -> Floats:
    """Evaluate the log density of each row under the mixture, its likeliest component taken without the row.

    Returns (n,): log densities.
    """
    joint = joint_log_densities(mixture, data.rows)
    responsibilities = normalise(joint)[0]
    labels, every = responsibilities.argmax(axis=1), np.arange(len(data))
    found = maximized(data, responsibilities, mixture, shrinkage)
    left = _Left(data, labels, found, responsibilities, shrinkage)
    weights = np.maximum(left.counts[labels] - data.counts, _LEAST_LEFT * data.counts) / data.n_rows
    joint[every, labels] = np.log(weights) + left.densities([shrinkage.pull])[0]
    return normalise(joint)[1]


def tune_own(
    data: WeightedRows, responsibilities: Floats, mixture: Mixture, shrinkage: Shrinkage, targets: Sequence[str]
) -> Shrinkage:
    """Choose target and pull of the components' covariances by the density of rows left out.

    targets: which ones to try; an earlier one is kept among equals.
    """
    form = mixture.covariance_type
    weights = responsibilities * data.counts[:, None]
    moments = gaussian_moments(weights, data.rows, form, prepared(mixture).origins)
    evidence, few = responsibilities.sum(axis=0), _few(data, form)
    labels, best, top = responsibilities.argmax(axis=1)[few], shrinkage, -np.inf
    pulls = _PULLS if form == "full" else (0.0, *_PULLS)  # variances may be of very unlike size
    for target in targets:
        tried = replace(shrinkage, target=target)
        found = estimate(moments, form, tried, evidence, mixture.means)
        left = _Left(data[few], labels, found, responsibilities, tried, data)
        scores = left.densities(pulls) @ data.counts[few]
        if scores.max() > top + 1e-9:
            top, best = scores.max(), replace(tried, pull=pulls[int(scores.argmax())])
    return best


def _few(data: WeightedRows, form: str) -> slice:
    size = len(data) * (1 if form == "full" else data.rows.shape[1] // 8 + 1)
    return slice(None, None, max(1, size // _TUNE_ENTRIES))


@dataclass(frozen=True)
class _Left:
    """Some rows, and the components that they are to be taken out of."""

    some: WeightedRows
    labels: Labels  # of these rows
    found: Estimate
    responsibilities: Floats  # of all rows
    shrinkage: Shrinkage
    whole: WeightedRows | None = None

    @property
    def evidence(self) -> Floats:
        return self.responsibilities.sum(axis=0)

    @property
    def counts(self) -> Floats:
        whole = self.some if self.whole is None else self.whole
        counts: Floats = whole.counts @ self.responsibilities
        return counts

    def densities(self, pulls: Sequence[float]) -> Floats:
        """Log density of each row under its own component without it, for each pull: (pulls, n)."""
        out = np.empty((len(pulls), len(self.some)))
        counts, evidence, full = self.counts, self.evidence, self.found.mixture.covariance_type == "full"
        shared, floor = self._shared_price(full), self.shrinkage.floor
        for j in np.unique(self.labels).tolist():
            own = np.flatnonzero(self.labels == j)
            away = self.some.rows[own] - self.found.mixture.means[j]
            share = np.minimum(self.some.counts[own] / max(counts[j], _TINY), _MOST_SHARE)
            rest = max(evidence[j] - 1.0, 0.0)
            kept = [rest / max(rest + pull, _TINY) for pull in pulls]
            of = _full_without if full else _diagonal_without
            found = of(away, share, self.found.scatter[j], floor, self.found.targets[j], kept)
            price = shared + self._own_price(full) / max(evidence[j], 1.0)
            out[:, own] = found - (1.0 - np.array(kept))[:, None] * price
        return out

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
    away: Floats, share: Floats, scatter: Floats, floor: Floats, target: Floats, kept: Sequence[float]
) -> Floats:
    """Diagonal covariances without a row: away (n, p) from the mean, of which it is a share."""
    left = 1.0 - share[:, None]
    variances = np.maximum(scatter - share[:, None] / left * away**2, 0.0) / left + floor
    squares = (away / left) ** 2
    out = np.empty((len(kept), len(away)))
    for i, part in enumerate(kept):
        own = np.maximum((1.0 - part) * target + part * variances, _TINY)
        out[i] = -0.5 * (squares / own + np.log(own)).sum(axis=1)
    return out - 0.5 * away.shape[1] * np.log(2.0 * np.pi)


def _full_without(
    away: Floats, share: Floats, scatter: Floats, floor: Floats, target: Floats, kept: Sequence[float]
) -> Floats:
    """Full covariances without a row: all pulls are diagonal in eigenvectors relative to the target.

    The row itself leaves by Sherman and Morrison.
    """
    lower = np.linalg.cholesky(target)
    inverse = np.linalg.inv(lower)
    values, axes = np.linalg.eigh(inverse @ (scatter + np.diag(floor)) @ inverse.T)
    values, squares = np.maximum(values, 0.0), (away @ (inverse.T @ axes)) ** 2
    log_det, left = 2.0 * np.log(np.diagonal(lower)).sum(), 1.0 - share
    even = bool(np.ptp(share) < 1e-12)
    out = np.empty((len(kept), len(away)))
    for i, part in enumerate(kept):
        own = np.maximum((1.0 - part) + part * values / (left[:1] if even else left)[:, None], _TINY)
        lengths = (squares / own).sum(axis=1)
        short = np.maximum(1.0 - part * share / left**2 * lengths, _LEAST)
        out[i] = -0.5 * (lengths / left**2 / short + log_det + np.log(own).sum(axis=1) + np.log(short))
    return out - 0.5 * away.shape[1] * np.log(2.0 * np.pi)


def tune_common(data: WeightedRows, responsibilities: Floats, mixture: Mixture, shrinkage: Shrinkage) -> Shrinkage:
    """Choose the pull of the common shape by the density of residuals left out."""
    few = _few(data, mixture.covariance_type)
    labels = responsibilities.argmax(axis=1)[few]
    weights = (responsibilities * data.counts[:, None]).T
    means = weights @ data.rows / np.maximum(weights.sum(axis=1), _TINY)[:, None]
    away, n = data.rows[few] - means[labels], len(labels)
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
    for pull in (0.0, *_PULLS):
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
