"""Expectation-maximisation of Gaussian mixtures in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dask_dca.models.gaussians import gaussian_moments, log_densities, moments_of_parts, prepare_gaussians
from dask_dca.models.mixture.family import estimate, maximization

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dask_dca.models.gaussians import Gaussians
    from dask_dca.models.mixture.family import Estimate, Mixture, Shrinkage

    Floats = NDArray[np.float64]
    Labels = NDArray[np.intp]

__all__ = [
    "WeightedRows",
    "expectation",
    "improve",
    "joint_log_densities",
    "maximized",
    "mixture_of_labels",
    "normalise",
    "prepared",
]


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
    return prepare_gaussians(mixture.means, mixture.covariances, mixture.covariance_type, centre)


def joint_log_densities(mixture: Mixture, rows: Floats) -> Floats:
    """Evaluate the log of weight times density, for every row and component.

    rows (n, p): rows, less the centre. Returns (n, k): joint log densities.
    """
    return _joint(prepared(mixture), mixture, rows)


def _joint(gaussians: Gaussians, mixture: Mixture, rows: Floats) -> Floats:
    found = log_densities(gaussians, rows)
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
    form = before.covariance_type
    weights = responsibilities * data.counts[:, None]
    moments = gaussian_moments(weights, data.rows, form, prepared(before).origins)
    return estimate(moments, form, shrinkage, responsibilities.sum(axis=0), before.means)


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
        responsibilities, logs = normalise(_joint(gaussians, mixture, data.rows))
        level = float(data.counts @ logs) / data.n_rows
        if tol and abs(level - last) < tol and step > max(tune_at, default=-1) + 1:
            break
        last = level
        if tune is not None and step in tune_at:
            shrinkage = tune(data, responsibilities, mixture, shrinkage)
        weights = responsibilities * data.counts[:, None]
        moments = gaussian_moments(weights, data.rows, mixture.covariance_type, gaussians.origins)
        mixture = maximization(moments, mixture.covariance_type, shrinkage, responsibilities.sum(axis=0), mixture.means)
    return mixture, shrinkage
