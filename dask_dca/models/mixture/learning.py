"""What is learnt on the sample: cleaned rows, a start from anchors, a mixture, and where to look for anchors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.planes import directions
from dask_dca.geometry.solvers import successive_projection
from dask_dca.models.gaussians import covariance_parameters
from dask_dca.models.kmeans import breathing_kmeans, distinct_rows, lloyd, squared_distances
from dask_dca.models.mixture.em import Places, WeightedRows, expectation
from dask_dca.models.mixture.family import (
    CovarianceSubspace,
    Mixture,
    Shrinkage,
    leading_directions,
    leading_subspace,
    simplest_form,
)
from dask_dca.models.mixture.search import Fitted, choose, first_fit, fit_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.anchoring.parameters import Settings
    from dask_dca.geometry.arrays import Floats, Labels
    from dask_dca.models.kmeans import Partition
    from dask_dca.models.mixture.given import MixtureSettings

    Numbers = NDArray[np.intp]

_GAP: Final = 0.01  # quantile of the gaps between a feature's values that is taken for its resolution
_LEAST: Final = 1e-20  # of a feature's variance: no floor is lower
_REFERENCES: Final = 2048  # rows that distances are measured to
_FARTHEST: Final = 1e100  # spreads from the middle: distances have squares
_NEIGHBOUR: Final = 3
_TIMES: Final = 4.0  # how much further than ordinary rows' an isolated row's neighbour is
_MOST_ISOLATED: Final = (0.02, 0.25)  # share of the rows: at most, and times 1 / k
_NORMAL_QUARTILES: Final = 1.35  # of a normal distribution are that many standard deviations apart
_PIECE: Final = 1024
_LEAST_SPREAD: Final = 1e-3  # of a feature's root mean square: units of exact sums are not finer
_SMALLEST_SQUARE: Final = 1e-290  # of a feature's spread: units of smaller ones' squares are not floats


def resolution(rows: Floats) -> Floats:
    """Find the least variance that each feature can have: that of rounding to its resolution.

    rows (n, p): rows. Returns (p,): gap**2 / 12, of a gap as small as one in a hundred between a feature's values; of
    features that are constant the mean variance, so that they tell nothing apart.
    """
    variances = rows.var(axis=0)
    mean = float(variances.mean())
    gaps = np.diff(np.sort(rows, axis=0), axis=0)
    gaps = np.sort(np.where(gaps > 0.0, gaps, np.inf), axis=0)  # those between different values first
    counts = np.isfinite(gaps).sum(axis=0)
    varies = np.flatnonzero(counts)
    floor = np.full(rows.shape[1], mean if mean > 0.0 else 1.0)
    small = gaps[(_GAP * (counts[varies] - 1)).astype(np.int64), varies]
    floor[varies] = np.maximum(small**2 / 12.0, _LEAST * variances[varies])
    return np.maximum(floor, np.finfo(np.float64).tiny)


def isolated_rows(rows: Floats, n_components: int, seed: int) -> NDArray[np.bool_]:
    """Find rows far from all others: noise, and no component of a mixture.

    A row is isolated where its third-nearest row, in features of equal quartiles, is four times as far as that of
    nearly all rows. None are where they are fewer than components, which may then be theirs, or more than noise is.
    rows (n, p): rows that differ. Returns (n,): which ones.
    """
    n, share = len(rows), min(_MOST_ISOLATED[0], _MOST_ISOLATED[1] / n_components)
    low, middle, high = np.quantile(rows, [0.25, 0.5, 0.75], axis=0)
    spreads = np.where(high > low, (high - low) / _NORMAL_QUARTILES, rows.std(axis=0))
    scaled = np.clip((rows - middle) / np.where(spreads > 0.0, spreads, np.inf), -_FARTHEST, _FARTHEST)
    references = scaled[np.random.default_rng(seed).permutation(n)[:_REFERENCES]]
    rank = min(_NEIGHBOUR, len(references) - 1)
    nearest = np.empty(n)
    for start in range(0, n, _PIECE):
        squares = squared_distances(scaled[start : start + _PIECE], references)
        nearest[start : start + _PIECE] = np.partition(squares, rank, axis=1)[:, rank]
    far = nearest > _TIMES**2 * np.quantile(nearest, 1.0 - share)
    return far if n_components <= far.sum() <= share * n else np.zeros(n, dtype=bool)


def spreads_of(rows: Floats) -> Floats:
    """Take the spread of ordinary values in columns, none of them zero: what sums of rows are rounded by.

    rows (n, d): centred rows. Returns (d,): root mean squares, or the distance of the quartiles where that is less, as
    far values must not make sums of the others coarse.
    """
    low, high = np.quantile(rows, [0.25, 0.75], axis=0)
    own = (rows**2).mean(axis=0)
    squares = np.where(high > low, np.clip((high - low) ** 2, _LEAST_SPREAD**2 * own, own), own)
    mean = float(squares.mean())
    return np.sqrt(np.where(squares > _SMALLEST_SQUARE, squares, mean if mean > 0.0 else 1.0))


_PLANES: Final = 5.0  # times k ln (k + 1)
_TAIL: Final = (0.02, 0.25)  # share of the rows in a tail: at most, and times 1 / k
_SPARE: Final = 10  # coordinates beyond twice the number of components
_COARSE: Final = 2.0**-12  # inertia, as a share of all squares, below which distances in float32 are too coarse


def coordinates_of(rows: Floats, floor: Floats, n_components: int) -> Iterator[Floats]:
    """Find a few coordinates in which means are looked for: principal directions of raw, and of unit features.

    rows (n, p): rows; floor (p,): variances of no meaning: features that vary less tell nothing. Returns (p, d) each: a
    row times these has its coordinates; of raw features, and, where these are not alike, of features scaled to variance
    one.
    """
    rows = rows - rows.mean(axis=0)
    yield _principal(rows, n_components)
    variances = rows.var(axis=0)
    factor = np.where(variances > floor, 1.0 / np.sqrt(np.maximum(variances, 1e-300)), 0.0)
    if factor.any() and not np.allclose(factor, factor[0]):
        yield factor[:, None] * _principal(rows * factor, n_components)


def _principal(rows: Floats, n_components: int) -> Floats:
    width = 2 * n_components + _SPARE
    return leading_directions(rows, min(width, rows.shape[1]))


def tail_means(places: Floats, axes: Floats, n_components: int) -> Floats:
    """Average the rows furthest out on either side of each direction: the divide step.

    places (n, m): coordinates of rows; axes (s, d): directions in the leading ones. Returns (2 s, m): means of the
    tails.
    """
    share = min(_TAIL[0], _TAIL[1] / n_components)
    heights = places[:, : axes.shape[1]] @ axes.T
    low, high = np.quantile(heights, [share, 1.0 - share], axis=0)
    beyond = np.hstack([heights >= high, heights <= low]).T.astype(np.float64)
    return np.asarray(beyond @ places / beyond.sum(axis=1, keepdims=True))


def choose_anchors(candidates: Floats, n_components: int) -> Floats:
    """Choose k of the candidates: the conquer step.

    candidates (c, d): means of tails. Returns (k, d): by successive projection; by farthest points where there are more
    components than dimensions allow.
    """
    size = float(np.sqrt((candidates**2).sum(axis=1).mean()))
    lifted = np.hstack([np.full((len(candidates), 1), size), candidates])
    chosen = successive_projection(lifted, n_components)
    if len(chosen) < n_components:
        chosen = _farthest_points(candidates, n_components)
    return candidates[chosen]


def _farthest_points(points: Floats, k: int) -> NDArray[np.int64]:
    chosen = [int((points**2).sum(axis=1).argmax())]
    closest = squared_distances(points, points[chosen])[:, 0]
    for _ in range(k - 1):
        chosen.append(int(closest.argmax()))
        closest = np.minimum(closest, squared_distances(points, points[chosen[-1:]])[:, 0])
    return np.array(chosen, dtype=np.int64)


def look_along(places: Floats, axes: Floats, n_components: int, settings: Settings) -> Floats:
    """Draw the directions of the sub-problems.

    places (n, d): coordinates of rows; axes (p, d): what the coordinates are; settings: how many directions, where they
    come from, seed. Returns (s, d): directions in the coordinates.
    """
    spreads = places.std(axis=0)
    spreads = np.where(spreads > 0.0, spreads, max(float(spreads.max()), 1e-300))
    s = settings.n_subproblems or math.ceil(_PLANES * n_components * math.log(n_components + 1))
    return directions(settings.ensemble, settings.seed, np.arange(s), spreads, axes)


def start_partition(rows: Floats, coordinates: Floats, n_components: int, settings: Settings) -> Partition:
    """Partition rows from anchors: Lloyd's algorithm, then breathing.

    rows (n, p): rows, about zero; settings: number and ensemble of the directions, seed.
    """
    places = rows @ coordinates
    places -= places.mean(axis=0)
    places = np.ldexp(places, -int(np.frexp(np.abs(places).max(initial=0.0))[1]))  # in the range of float32
    d = max(1, min(places.shape[1], n_components - 1))
    axes = look_along(places[:, :d], coordinates[:, :d], n_components, settings)
    centres = choose_anchors(tail_means(places, axes, n_components), n_components)
    found = _partition(places.astype(np.float32), centres.astype(np.float32), settings.seed)
    if found.inertia < _COARSE * float((places**2).sum()):
        return _partition(places, centres, settings.seed)
    return found


def _partition(places: Floats, centres: Floats, seed: int) -> Partition:
    return breathing_kmeans(places, lloyd(places, centres), np.random.default_rng(seed))


_SEARCH_ROWS: Final = (6000, 100)  # rows that the search is made on: at most, but so many for each component,
_SEARCH_ENTRIES: Final = 2 * 10**6  # and so many entries
WIDEST: Final = 128  # features up to which full covariances are tried as they are; beyond in
_DIMENSIONS: Final = 32  # so many principal directions,
_ROWS_EACH: Final = 20  # where there are so many rows for each component;
_NOISE_WITHIN: Final = 1.0 / 64.0  # of the variance across them is the least that a component has in each
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
    least = -math.inf  # far rows are in heavy tails
    if math.isinf(found.mixture.degrees):
        least = _least_density(clean.rows, few.rows[far], found.mixture, subspace)
    kept = data[np.flatnonzero(log_densities(data.rows, found.mixture, subspace) >= least)]
    places, across = (sample.rows, np.zeros(len(sample.rows))) if subspace is None else subspace.split(sample.rows)
    spreads = spreads_of(places)
    mixture, evidence = found.mixture, _evidence(_within(kept, subspace), found.mixture)
    if len(clean) < len(data):  # the search saw a part
        mixture = _polished(Places(places, across, least, spreads, evidence, found.shrinkage), found.mixture)
        evidence = _evidence(_within(kept, subspace), mixture)
    coordinates = found.coordinates if subspace is None else subspace.axes @ found.coordinates
    named = mixture
    if subspace is None and settings.covariance_type not in ("diag", "full"):  # the simplest form that holds it
        named = simplest_form(mixture, found.shrinkage)
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
    form, plain, tails = settings.covariance_type, settings.reg_covar is not None, settings.tails
    if form != "auto" or data.rows.shape[1] <= WIDEST:
        return fit_rows(data, _starts(data.rows, k, settings, floor), k, form, floor, plain=plain, tails=tails), None
    starts = _starts(data.rows, k, settings, floor)
    outside = partial(fit_rows, data, starts, k, "diag", floor, plain=plain, tails=tails)
    if len(data) < _ROWS_EACH * k or plain:
        return outside(), None
    subspace = leading_subspace(data.rows, _DIMENSIONS)
    inside = _within(data, subspace)
    own = np.maximum(resolution(inside.rows), _NOISE_WITHIN * subspace.noise)
    found = fit_rows(inside, _starts(inside.rows, k, settings, own), k, "auto", own, plain=False, tails=tails)
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
