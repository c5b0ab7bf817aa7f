"""The fit on the sample: noise rows, starts from anchors, the search, and the directions of the divide step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.geometry.arrays import Floats, Labels
from dask_dca.geometry.planes import directions
from dask_dca.models.gaussians import covariance_parameters
from dask_dca.models.kmeans import Partition, breathing_kmeans, distinct_rows, lloyd, spread_points, squared_distances
from dask_dca.models.mixture.em import SampleEM, WeightedRows, expectation
from dask_dca.models.mixture.family import (
    CovarianceSubspace,
    Mixture,
    Shrinkage,
    leading_directions,
    leading_subspace,
    simplest_form,
    split_rows,
)
from dask_dca.models.mixture.search import ScoredMixture, choose_simplest, fit_rows

if TYPE_CHECKING:
    from dask_dca.anchoring.parameters import Settings
    from dask_dca.models.mixture.given import MixtureSettings

    Numbers = NDArray[np.intp]

_GAP_QUANTILE: Final = 0.01  # quantile of the gaps between a feature's values that counts as its resolution
_MIN_FLOOR: Final = 1e-20  # minimum variance floor, relative to the feature's variance
_MAX_REFERENCE_ROWS: Final = 2048  # maximum number of rows to which distances are computed
_MAX_STANDARD_VALUE: Final = 1e100  # standardised values are clipped here, so that distances don't overflow
_NEIGHBOUR_RANK: Final = 3  # a row's isolation is its distance to this nearest neighbour (itself may be the first)
_ISOLATION_FACTOR: Final = 4.0  # isolated rows are this many times as far from their neighbour as ordinary rows
_MAX_ISOLATED_SHARE: Final = 0.02  # maximum share of isolated rows
_MAX_ISOLATED_COMPONENT_SHARE: Final = 0.25  # the same, relative to a component's mean share of the rows
_NORMAL_IQR: Final = 1.35  # interquartile range of the standard normal distribution
_DISTANCE_ROWS: Final = 1024  # rows whose distances are computed at once
_MIN_SCALE_RATIO: Final = 1e-3  # minimum robust scale, relative to the feature's root mean square
_MIN_VARIANCE: Final = 1e-290  # minimum variance of a feature; the units of smaller squares underflow


def rounding_variances(rows: Floats) -> Floats:
    """Find a floor for the variance of each feature: the variance of rounding to its resolution.

    rows (n, p). Returns (p,): gap**2 / 12, for the 1 % quantile of the gaps between a feature's distinct values;
    constant features get the mean variance, so that they don't separate components.
    """
    variances = rows.var(axis=0)
    mean = float(variances.mean())
    gaps = np.diff(np.sort(rows, axis=0), axis=0)
    gaps = np.sort(np.where(gaps > 0.0, gaps, np.inf), axis=0)  # infinite where values are equal
    counts = np.isfinite(gaps).sum(axis=0)
    varies = np.flatnonzero(counts)
    floor = np.full(rows.shape[1], mean if mean > 0.0 else 1.0)
    small = gaps[(_GAP_QUANTILE * (counts[varies] - 1)).astype(np.int64), varies]
    floor[varies] = np.maximum(small**2 / 12.0, _MIN_FLOOR * variances[varies])
    return np.maximum(floor, _MIN_VARIANCE)


def isolated_rows(rows: Floats, n_components: int, seed: int) -> NDArray[np.bool_]:
    """Find rows that are noise: far from all other rows.

    A row is isolated where its third-nearest neighbour, with features scaled by their quartiles, is four times as far
    as that of nearly all rows. If such rows are fewer than k, or a larger share than noise may be, none count: they may
    be components. rows (n, p): distinct rows. Returns (n,).
    """
    n, share = len(rows), min(_MAX_ISOLATED_SHARE, _MAX_ISOLATED_COMPONENT_SHARE / n_components)
    low, middle, high = np.quantile(rows, [0.25, 0.5, 0.75], axis=0)
    scales = np.where(high > low, (high - low) / _NORMAL_IQR, rows.std(axis=0))
    scaled = np.clip(
        (rows - middle) / np.where(scales > 0.0, scales, np.inf), -_MAX_STANDARD_VALUE, _MAX_STANDARD_VALUE
    )
    references = scaled[np.random.default_rng(seed).permutation(n)[:_MAX_REFERENCE_ROWS]]
    rank = min(_NEIGHBOUR_RANK, len(references) - 1)
    nearest = np.empty(n)
    for start in range(0, n, _DISTANCE_ROWS):
        squares = squared_distances(scaled[start : start + _DISTANCE_ROWS], references)
        nearest[start : start + _DISTANCE_ROWS] = np.partition(squares, rank, axis=1)[:, rank]
    far = nearest > _ISOLATION_FACTOR**2 * np.quantile(nearest, 1.0 - share)
    return far if n_components <= far.sum() <= share * n else np.zeros(n, dtype=bool)


def robust_scales(rows: Floats) -> Floats:
    """Find a robust scale (d,) of each column, never zero, by which sums of rows are rounded.

    rows (n, d): centred rows. The scale is the root mean square, or the interquartile range if that is less: a few
    values far out must not coarsen the sums of all others.
    """
    low, high = np.quantile(rows, [0.25, 0.75], axis=0)
    own = (rows**2).mean(axis=0)
    squares = np.where(high > low, np.clip((high - low) ** 2, _MIN_SCALE_RATIO**2 * own, own), own)
    mean = float(squares.mean())
    return np.sqrt(np.where(rows.any(axis=0), np.maximum(squares, _MIN_VARIANCE), mean if mean > 0.0 else 1.0))


_DIRECTIONS_FACTOR: Final = 5.0  # the number of directions is this times k ln(k + 1)
_MAX_TAIL_SHARE: Final = 0.02  # maximum share of the rows in the tail of a direction
_TAIL_COMPONENT_SHARE: Final = 0.25  # share of a component's mean number of rows in a tail, up to that maximum
_EXTRA_COORDINATES: Final = 10  # principal coordinates beyond twice the number of components
_MIN_FLOAT32_INERTIA: Final = 2.0**-12  # relative inertia below which distances in float32 are too inaccurate


def principal_coordinates(rows: Floats, floor: Floats, n_components: int) -> Iterator[Floats]:
    """Find principal coordinates (p, d) of raw features and, if variances differ, of features of unit variance.

    rows (n, p); floor (p,): features with less variance than this are left out of the second. A row times the matrix
    gives its coordinates.
    """
    rows = rows - rows.mean(axis=0)
    yield _principal_directions(rows, n_components)
    variances = rows.var(axis=0)
    factor = np.where(variances > floor, 1.0 / np.sqrt(np.maximum(variances, 1e-300)), 0.0)
    if factor.any() and not np.allclose(factor, factor[0]):
        yield factor[:, None] * _principal_directions(rows * factor, n_components)


def _principal_directions(rows: Floats, n_components: int) -> Floats:
    width = 2 * n_components + _EXTRA_COORDINATES
    return leading_directions(rows, min(width, rows.shape[1]))


def tail_means(places: Floats, axes: Floats, n_components: int) -> Floats:
    """Average the rows furthest out on either side of each direction: the divide step on the sample.

    places (n, m): coordinates of rows; axes (s, d): directions in the first d of them. Returns (2 s, m).
    """
    share = min(_MAX_TAIL_SHARE, _TAIL_COMPONENT_SHARE / n_components)
    heights = places[:, : axes.shape[1]] @ axes.T
    low, high = np.quantile(heights, [share, 1.0 - share], axis=0)
    beyond = np.hstack([heights >= high, heights <= low]).T.astype(np.float64)
    return np.asarray(beyond @ places / beyond.sum(axis=1, keepdims=True))


def draw_directions(places: Floats, axes: Floats, n_components: int, settings: Settings) -> Floats:
    """Draw the directions (s, d) of the sub-problems, in coordinates.

    places (n, d): coordinates of rows; axes (p, d): the coordinates' directions in feature space; settings: number of
    directions, ensemble and seed.
    """
    scales = places.std(axis=0)
    scales = np.where(scales > 0.0, scales, max(float(scales.max()), 1e-300))
    s = settings.n_subproblems or math.ceil(_DIRECTIONS_FACTOR * n_components * math.log(n_components + 1))
    return directions(settings.ensemble, settings.seed, np.arange(s), scales, axes)


def start_partition(rows: Floats, coordinates: Floats, n_components: int, settings: Settings) -> Partition:
    """Partition rows by k-means from anchors: Lloyd's algorithm, then breathing.

    rows (n, p): centred; coordinates (p, d): where distances are computed; settings: number and ensemble of the
    directions, seed.
    """
    places = rows @ coordinates
    places -= places.mean(axis=0)
    places = np.ldexp(places, -int(np.frexp(np.abs(places).max(initial=0.0))[1]))  # scaled into the range of float32
    d = max(1, min(places.shape[1], n_components - 1))
    axes = draw_directions(places[:, :d], coordinates[:, :d], n_components, settings)
    tails = tail_means(places, axes, n_components)
    centres = tails[spread_points(tails, n_components)]
    found = _partition(places.astype(np.float32), centres.astype(np.float32), settings.seed)
    if found.inertia < _MIN_FLOAT32_INERTIA * float((places**2).sum()):
        return _partition(places, centres, settings.seed)
    return found


def _partition(places: Floats, centres: Floats, seed: int) -> Partition:
    return breathing_kmeans(places, lloyd(places, centres), np.random.default_rng(seed))


_SEARCH_ROWS: Final = 6000  # maximum number of rows of the search, up to 60 components
_SEARCH_ROWS_PER_COMPONENT: Final = 100  # maximum number of rows of the search for each component, if there are more
_SEARCH_ENTRIES: Final = 2 * 10**6  # maximum number of entries of the rows of the search
MAX_FULL_FEATURES: Final = 128  # maximum number of features for full covariances of all of them with "auto"
_SUBSPACE_DIMENSIONS: Final = 32  # dimensions of the subspace in which full covariances of more features are tried
_MIN_ROWS_PER_COMPONENT: Final = 20  # minimum number of rows for each component, for the search and for a subspace
_MIN_SUBSPACE_VARIANCE: Final = 1.0 / 64.0  # minimum variance in the subspace, relative to the variance across it
_FINAL_PASSES: Final = 30  # maximum number of passes over the whole sample after the search
_FINAL_TOL: Final = 1e-5  # tolerance of these passes, in mean log density per row
_BIC_PATIENCE: Final = 4  # the choice of k ends after this many numbers in turn that don't lower the BIC
_TRAILING_PATIENCE: Final = 2  # the same for forms of covariances that are not the one of least BIC (Q4-auto)


@dataclass(frozen=True)
class RowSample:
    """A sample of the rows, or all of them: rows (n, p) less the centre (p,), the median of each feature."""

    rows: Floats
    centre: Floats


@dataclass(frozen=True)
class MixtureStart:
    """The mixture that passes over all rows start from, and what stays the same in them.

    mixture: means are less the centre, or in coordinates of the subspace; evidence (k,): distinct rows for each row of
    a component; noise_threshold: rows of a lower log density are noise; subspace: None for all features, its origin
    less the centre; deviations (q,): scales of the coordinates in it.
    """

    mixture: Mixture
    shrinkage: Shrinkage
    evidence: Floats
    noise_threshold: float = -np.inf
    subspace: CovarianceSubspace | None = None
    deviations: Floats | None = None


@dataclass(frozen=True)
class SampleFit:
    """The result of the fit on the sample.

    isolated (m,): indices of the sample's rows that are noise; coordinates (p, d), axes (s, d): directions of the
    divide step; scores (m, 2): numbers of components that were tried, and their BIC.
    """

    start: MixtureStart
    isolated: Numbers
    coordinates: Floats
    axes: Floats
    scores: Floats


def fit_sample(sample: RowSample, k: int, settings: MixtureSettings, auto: bool) -> SampleFit:
    """Fit a mixture of k components to the sample; with `auto`, of up to k components."""
    plain, seed = settings.reg_covar is not None, settings.anchoring.seed
    first, counts = _distinct_with_counts(sample.rows, plain=plain)
    some = slice(None, None, _stride(len(first), sample.rows.shape[1], k))
    few = WeightedRows(sample.rows[first[some]], counts[some])
    floor = np.full(few.rows.shape[1], settings.reg_covar) if plain else rounding_variances(few.rows)
    far = np.zeros(len(few), dtype=bool) if plain else isolated_rows(few.rows, 1 if auto else k, seed)
    clean, scores = few[np.flatnonzero(~far)], np.zeros((0, 2))
    if auto:
        k, scores = _choose_n_components(clean, min(k, len(clean)), settings, floor)
    found, subspace = _search(clean, k, settings, floor)
    noise_threshold = -math.inf  # with heavy tails no row is noise
    if math.isinf(found.mixture.degrees):
        noise_threshold = _noise_threshold(clean.rows, few.rows[far], found.mixture, subspace)
    places, residual_logs = split_rows(sample.rows, subspace)
    scales = robust_scales(places)
    mixture, (shares, logs) = found.mixture, expectation(found.mixture, places)
    kept = (logs + residual_logs)[first] >= noise_threshold
    evidence = _distinct_ratio(shares[first[kept]], counts[kept])
    if len(clean) < len(first):  # the search had a part of the rows
        steps = SampleEM(places, residual_logs, noise_threshold, scales, evidence, found.shrinkage)
        mixture = _run_final_passes(steps, mixture)
        shares, logs = expectation(mixture, places)
        evidence = _distinct_ratio(shares[first[kept]], counts[kept])
    # directions of the divide step, and the simplest form that contains the mixture
    coordinates = found.coordinates if subspace is None else subspace.axes @ found.coordinates
    simplest = mixture
    if subspace is None and settings.covariance_type not in ("diag", "full"):
        simplest = simplest_form(mixture, found.shrinkage)
    return SampleFit(
        MixtureStart(
            simplest, found.shrinkage, evidence, noise_threshold, subspace, None if subspace is None else scales
        ),
        np.flatnonzero(logs + residual_logs < noise_threshold),
        coordinates,
        draw_directions(clean.rows @ coordinates, coordinates, k, settings.anchoring),
        scores,
    )


def _distinct_with_counts(rows: Floats, *, plain: bool) -> tuple[Numbers, Floats]:
    """Indices of the distinct rows, and their counts; of all rows if `plain`, which has no shrinkage that uses them."""
    if plain:
        return np.arange(len(rows)), np.ones(len(rows))
    first, place = distinct_rows(rows)
    return first, np.bincount(place).astype(np.float64)


def _stride(n: int, p: int, k: int) -> int:
    """Step between the rows that the search takes, of n rows of p features."""
    n_search = min(
        max(_SEARCH_ROWS, _SEARCH_ROWS_PER_COMPONENT * k), max(_SEARCH_ENTRIES // p, _MIN_ROWS_PER_COMPONENT * k)
    )
    return max(1, -(-n // n_search))


def log_densities(rows: Floats, mixture: Mixture, subspace: CovarianceSubspace | None) -> Floats:
    """Evaluate the log densities (n,) of rows less the centre under a mixture of all features, or in a subspace."""
    places, residual_logs = split_rows(rows, subspace)
    return expectation(mixture, places)[1] + residual_logs


def _search(
    data: WeightedRows, k: int, settings: MixtureSettings, floor: Floats
) -> tuple[ScoredMixture, CovarianceSubspace | None]:
    """Fit a mixture to all features; with "auto" and very many of them, perhaps to a subspace, returned then."""
    form, plain, tails = settings.covariance_type, settings.reg_covar is not None, settings.tails
    starts = _starts(data.rows, k, settings, floor)
    if form != "auto" or data.rows.shape[1] <= MAX_FULL_FEATURES:
        return fit_rows(data, starts, k, form, floor, plain=plain, tails=tails), None
    outside = partial(fit_rows, data, starts, k, "diag", floor, plain=plain, tails=tails)
    if len(data) < _MIN_ROWS_PER_COMPONENT * k or plain:
        return outside(), None
    subspace = leading_subspace(data.rows, _SUBSPACE_DIMENSIONS)
    places, residual_logs = subspace.split(data.rows)
    inside = WeightedRows(places, data.counts)
    own = np.maximum(rounding_variances(inside.rows), _MIN_SUBSPACE_VARIANCE * subspace.noise)
    found = fit_rows(inside, _starts(inside.rows, k, settings, own), k, "auto", own, plain=False, tails=tails)
    if found.mixture.covariance_type == "full":
        return found, subspace
    # leave-one-out densities in all features: less what fitting the subspace's parameters gains, to first order
    penalty = subspace.axes.size / len(data)
    whole = replace(found, left_out=found.left_out + residual_logs - penalty)
    best = choose_simplest(data, [outside(), whole])
    return (found, subspace) if best is whole else (best, None)


def _starts(rows: Floats, k: int, settings: MixtureSettings, floor: Floats) -> list[tuple[Floats, Labels]]:
    """Partitions from anchors, in coordinates of raw and of unit features: one only, if the labels are equal."""
    found: list[tuple[Floats, Labels]] = []
    for coordinates in principal_coordinates(rows, floor, k):
        labels = start_partition(rows, coordinates, k, settings.anchoring).labels
        if not any(np.array_equal(labels, other) for _, other in found):
            found.append((coordinates, labels))
    return found


def _noise_threshold(clean: Floats, far: Floats, mixture: Mixture, subspace: CovarianceSubspace | None) -> float:
    """Log density below which rows of the whole data are noise: halfway between isolated and ordinary rows.

    It is no further below the minimum of ordinary rows than that is below their median, since isolated rows that the
    search did not see may be nearer.
    """
    if not len(far):
        return -np.inf
    ordinary = log_densities(clean, mixture, subspace)
    lowest, logs = float(ordinary.min()), log_densities(far, mixture, subspace)
    below = logs[logs < lowest]
    if not len(below):
        return -np.inf
    return max(0.5 * (lowest + float(below.max())), 2.0 * lowest - float(np.median(ordinary)))


def _run_final_passes(steps: SampleEM, mixture: Mixture) -> Mixture:
    """Run expectation-maximisation on the whole sample."""
    last = -np.inf
    for _ in range(_FINAL_PASSES):
        moments, level = steps.e_step(mixture)
        if level - last < _FINAL_TOL:
            break
        mixture, last = steps.m_step(moments, mixture), level
    return mixture


def _distinct_ratio(shares: Floats, counts: Floats) -> Floats:
    """Ratio (k,) of distinct rows to rows of each component; shares (m, k): responsibilities of the distinct rows."""
    return shares.sum(axis=0) / np.maximum(counts @ shares, np.finfo(np.float64).tiny)


def _choose_n_components(data: WeightedRows, most: int, settings: MixtureSettings, floor: Floats) -> tuple[int, Floats]:
    """Choose the number of components by BIC, with one anchored fit of each form for each number from 1 up to `most`.

    Returns the number with the minimum BIC; scores (m, 2): numbers tried, and the least BIC of the forms with each. A
    form, and at last the search, ends early when several numbers in turn have not lowered its BIC.
    """
    forms = _forms_to_count(settings.covariance_type, data.rows.shape[1])
    curves: dict[str, list[float]] = {form: [] for form in forms}
    scores: list[float] = []
    for k in range(1, most + 1):
        starts = _starts(data.rows, k, settings, floor)
        for form in forms:
            curves[form].append(_bic(data, starts, k, form, floor, plain=settings.reg_covar is not None))
        scores.append(min(curves[form][-1] for form in forms))
        least = min(scores)
        forms = tuple(form for form in forms if _may_fall(curves[form], least))
        if not _may_fall(scores, least):
            break
    return 1 + int(np.argmin(scores)), np.column_stack([np.arange(1, len(scores) + 1), scores])


def _may_fall(scores: list[float], least: float) -> bool:
    """Whether the scores of a form have fallen lately; least: the least score of all forms."""
    patience = _BIC_PATIENCE if min(scores) <= least else _TRAILING_PATIENCE
    return len(scores) - 1 - int(np.argmin(scores)) < patience


def _forms_to_count(form: str, p: int) -> tuple[str, ...]:
    """Forms whose BIC is compared: with diagonal covariances alone, correlated features look like more components."""
    if form != "auto":
        return (form,)
    return ("diag", "tied", "full") if 1 < p <= MAX_FULL_FEATURES else ("diag",)


def _bic(
    data: WeightedRows, starts: list[tuple[Floats, Labels]], k: int, form: str, floor: Floats, *, plain: bool
) -> float:
    """Evaluate the BIC of a mixture of one form; its parameters are counted as without shrinkage."""
    found = fit_rows(data, starts, k, form, floor, plain=plain, moves=False)
    p = data.rows.shape[1]
    parameters = k * p + k - 1 + covariance_parameters(form, k, p)
    return parameters * math.log(data.n_rows) - 2.0 * float(data.counts @ expectation(found.mixture, data.rows)[1])
