"""What is learnt on the sample: a mixture, its place in the family, noise, and where to look for anchors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.gaussians import covariance_parameters
from dask_dca.models.mixture.cleaning import distinct_rows, isolated_rows, resolution, spreads_of
from dask_dca.models.mixture.correction import Places
from dask_dca.models.mixture.em import WeightedRows, expectation
from dask_dca.models.mixture.family import Mixture, Shrinkage, simplest_form
from dask_dca.models.mixture.search import Fitted, choose, first_fit, fit_rows
from dask_dca.models.mixture.start import coordinates_of, look_along, start_partition
from dask_dca.models.mixture.subspace import CovarianceSubspace, leading_subspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.models.mixture.settings import MixtureSettings

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.intp]
    Labels = NDArray[np.intp]

__all__ = ["WIDEST", "Learnt", "MixtureStart", "RowSample", "learn", "log_densities"]

_SEARCH_ROWS: Final = (6000, 100)  # rows that the search is made on: at most, but so many for each component,
_SEARCH_ENTRIES: Final = 2 * 10**6  # and so many entries
WIDEST: Final = 128  # features up to which full covariances are tried as they are; beyond in
_DIMENSIONS: Final = 32  # so many principal directions,
_ROWS_EACH: Final = 20  # where there are so many rows for each component
_LAST_PASSES: Final = (30, 1e-5)  # over the whole sample
_PATIENCE: Final = 4  # numbers of components in turn that don't lower the BIC


@dataclass(frozen=True)
class RowSample:
    """Some rows, or all if they are few.

    rows (n, p): the rows less the centre; centre (p,): median of each feature.
    """

    rows: Floats
    centre: Floats


@dataclass(frozen=True)
class MixtureStart:
    """A mixture, and what passes over all rows need to know.

    mixture: means less the centre, or in the coordinates of a subspace; evidence (k,): rows that differ, for each row
    of a component; least: log density below which a row is noise; subspace: where there is one, about the centre;
    deviations (q,): of its coordinates.
    """

    mixture: Mixture
    shrinkage: Shrinkage
    evidence: Floats
    least: float = -np.inf
    subspace: CovarianceSubspace | None = None
    deviations: Floats | None = None


@dataclass(frozen=True)
class Learnt:
    """What the search on the sample found.

    isolated (m,): places of rows in the sample that are noise; coordinates (p, d), axes (s, d): where rows furthest out
    are looked for; scores (m, 2): numbers of components that were tried and their BIC.
    """

    start: MixtureStart
    isolated: Numbers
    coordinates: Floats
    axes: Floats
    scores: Floats


def learn(sample: RowSample, k: int, settings: MixtureSettings, auto: bool) -> Learnt:
    """Learn a mixture on the sample; with `auto`, also the number of components, of which k are the most."""
    plain, seed = settings.reg_covar is not None, settings.anchoring.seed
    data = _distinct(sample.rows, plain=plain)
    few = data[:: _stride(data, k)]
    floor = np.full(data.rows.shape[1], settings.reg_covar) if plain else resolution(few.rows)
    far = np.zeros(len(few), dtype=bool) if plain else isolated_rows(few.rows, 1 if auto else k, seed)
    clean, scores = few[np.flatnonzero(~far)], np.zeros((0, 2))
    if auto:
        k, scores = _choose_count(clean, min(k, len(clean)), settings, floor)
    found, subspace = _search(clean, k, settings, floor)
    least = _least_density(clean.rows, few.rows[far], found.mixture, subspace)
    kept = data[np.flatnonzero(log_densities(data.rows, found.mixture, subspace) >= least)]
    places, across = (sample.rows, np.zeros(len(sample.rows))) if subspace is None else subspace.split(sample.rows)
    spreads = spreads_of(places)
    mixture, evidence = found.mixture, _evidence(_within(kept, subspace), found.mixture)
    if len(clean) < len(data):  # the search saw a part
        mixture = _polished(Places(places, across, least, spreads, evidence, found.shrinkage), found.mixture)
        evidence = _evidence(_within(kept, subspace), mixture)
    coordinates = found.coordinates if subspace is None else subspace.axes @ found.coordinates
    named = _as_named(mixture, found.shrinkage, settings.covariance_type, subspace)
    return Learnt(
        MixtureStart(named, found.shrinkage, evidence, least, subspace, None if subspace is None else spreads),
        np.flatnonzero(log_densities(sample.rows, mixture, subspace) < least),
        coordinates,
        look_along(clean.rows @ coordinates, coordinates, k, settings.anchoring),
        scores,
    )


def _distinct(rows: Floats, *, plain: bool) -> WeightedRows:
    """The rows that differ; all as they are where nothing else than a floor is wanted."""
    if plain:
        return WeightedRows(rows, np.ones(len(rows)))
    first, place = distinct_rows(rows)
    return WeightedRows(rows[first], np.bincount(place).astype(np.float64))


def _stride(data: WeightedRows, k: int) -> int:
    """Every how many rows are few enough for the search."""
    n, p = data.rows.shape
    most = min(max(_SEARCH_ROWS[0], _SEARCH_ROWS[1] * k), max(_SEARCH_ENTRIES // p, _ROWS_EACH * k))
    return max(1, -(-n // most))


def _within(data: WeightedRows, subspace: CovarianceSubspace | None) -> WeightedRows:
    return data if subspace is None else WeightedRows(subspace.split(data.rows)[0], data.counts)


def log_densities(rows: Floats, mixture: Mixture, subspace: CovarianceSubspace | None) -> Floats:
    """Evaluate a mixture, of all features or in a subspace, at rows less the centre: (n,)."""
    if subspace is None:
        return expectation(mixture, rows)[1]
    places, across = subspace.split(rows)
    return expectation(mixture, places)[1] + across


def _search(
    data: WeightedRows, k: int, settings: MixtureSettings, floor: Floats
) -> tuple[Fitted, CovarianceSubspace | None]:
    """Fit all features; or of very many a subspace, where features are correlated."""
    form, plain = settings.covariance_type, settings.reg_covar is not None
    if form != "auto" or data.rows.shape[1] <= WIDEST:
        return fit_rows(data, _starts(data.rows, k, settings, floor), k, form, floor, plain=plain), None
    outside = partial(fit_rows, data, _starts(data.rows, k, settings, floor), k, "diag", floor, plain=plain)
    if len(data) < _ROWS_EACH * k or plain:
        return outside(), None
    subspace = leading_subspace(data.rows, _DIMENSIONS)
    inside = _within(data, subspace)
    own = resolution(inside.rows)
    found = fit_rows(inside, _starts(inside.rows, k, settings, own), k, "auto", own, plain=False)
    if found.mixture.covariance_type == "full":
        return found, subspace
    price = subspace.axes.size / len(data)  # its parameters over the rows behind them
    whole = replace(found, left_out=found.left_out + subspace.split(data.rows)[1] - price)
    best = choose(data, [outside(), whole])
    return (found, subspace) if best is whole else (best, None)


def _starts(rows: Floats, k: int, settings: MixtureSettings, floor: Floats) -> list[tuple[Floats, Labels]]:
    """Partitions from anchors, in raw and in unit coordinates, where they differ."""
    found: list[tuple[Floats, Labels]] = []
    for coordinates in coordinates_of(rows, floor, k):
        labels = start_partition(rows, coordinates, k, settings.anchoring).labels
        if not any(np.array_equal(labels, other) for _, other in found):
            found.append((coordinates, labels))
    return found


def _least_density(clean: Floats, far: Floats, mixture: Mixture, subspace: CovarianceSubspace | None) -> float:
    """Log density that parts isolated rows from the others, of which the search saw a part.

    Halfway between the two; and no further below the others' least than that is below their median, as isolated rows
    that the search did not see may be nearer.
    """
    if not len(far):
        return -np.inf
    ordinary = log_densities(clean, mixture, subspace)
    least, logs = float(ordinary.min()), log_densities(far, mixture, subspace)
    below = logs[logs < least]
    if not len(below):
        return -np.inf
    return max(0.5 * (least + float(below.max())), 2.0 * least - float(np.median(ordinary)))


def _polished(places: Places, mixture: Mixture) -> Mixture:
    """The mixture after passes over the whole sample."""
    (passes, tol), last = _LAST_PASSES, -np.inf
    for _ in range(passes):
        seen, level = places.look(mixture)
        if level - last < tol:
            break
        mixture, last = places.m_step(seen, mixture), level
    return mixture


def _evidence(data: WeightedRows, mixture: Mixture) -> Floats:
    """For each component: rows that differ, for each of its rows."""
    shares = expectation(mixture, data.rows)[0]
    return shares.sum(axis=0) / np.maximum(data.counts @ shares, np.finfo(np.float64).tiny)


def _as_named(mixture: Mixture, shrinkage: Shrinkage, form: str, subspace: CovarianceSubspace | None) -> Mixture:
    """The form that was asked for, or the simplest one that holds what was found."""
    return mixture if subspace is not None or form in ("diag", "full") else simplest_form(mixture, shrinkage)


def _choose_count(data: WeightedRows, most: int, settings: MixtureSettings, floor: Floats) -> tuple[int, Floats]:
    """Choose the number of components by BIC, over one anchored fit for each number.

    Returns count: the number with the least BIC; scores (m, 2): numbers tried and their BIC; the search ends when some
    more components in turn have not helped.
    """
    form = "diag" if settings.covariance_type == "auto" else settings.covariance_type
    scores: list[float] = []
    p = data.rows.shape[1]
    for k in range(1, most + 1):
        starts = _starts(data.rows, k, settings, floor)
        found = first_fit(data, starts, k, form, floor, plain=settings.reg_covar is not None)
        parameters = k * p + k - 1 + covariance_parameters(form, k, p)  # all of them, however they are drawn together
        log_likelihood = float(data.counts @ expectation(found.mixture, data.rows)[1])
        scores.append(parameters * math.log(data.n_rows) - 2.0 * log_likelihood)
        if len(scores) - 1 - int(np.argmin(scores)) >= _PATIENCE:
            break
    return 1 + int(np.argmin(scores)), np.column_stack([np.arange(1, len(scores) + 1), scores])
