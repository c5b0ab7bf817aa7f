"""Where a mixture starts: a sample that stays with the data, tails of directions, anchors among them, a partition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.checks import require_size, require_squares
from dask_dca.engine.held import call
from dask_dca.engine.sampling import hold_rows, spread_rows
from dask_dca.geometry.planes import directions
from dask_dca.geometry.solvers import successive_projection
from dask_dca.models.gaussians import covariance_parameters
from dask_dca.models.kmeans import (
    breathing_kmeans,
    distinct_count,
    kmeans_plusplus,
    lloyd,
    squared_distances,
    within_variances,
)
from dask_dca.models.mixture.em import improve, mixture_of_labels, regularization
from dask_dca.models.mixture.passes import tail_means

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.anchoring.parameters import Settings
    from dask_dca.engine.held import Held
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.kmeans import Partition
    from dask_dca.models.mixture.passes import TailMeans
    from dask_dca.models.mixture.settings import MixtureSettings
    from dask_dca.models.mixture.signatures import Signatures

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = [
    "RowSample",
    "SampledRows",
    "choose_anchors",
    "choose_count",
    "divide",
    "planes_for",
    "spreads_of",
    "start_partition",
    "take_sample",
]

_SAMPLE_ROWS: Final = 20_000
_SAMPLE_ENTRIES: Final = 2 * 10**7
_RUN_ROWS: Final = 20  # the sample is taken in runs of that many rows
_LEAST_SPREAD: Final = 1e-3  # of the root mean square: units of exact sums are not finer for features that hardly vary
_PLANES: Final = 5.0  # times k ln (k + 1)
_COUNT_PASSES: Final = 15  # of expectation-maximisation for each number of components that is tried
_PATIENCE: Final = 4
_COARSE: Final = 2.0**-12  # inertia, as a share of all squares, below which distances in float32 are too coarse
_TAIL: Final = (0.02, 0.25)  # share of the rows in a tail: at most, and times 1 / k


@dataclass(frozen=True)
class RowSample:
    """Some rows, or all if they are few.

    rows (n, p): the rows less the centre; centre, variances (p,): mean and variance of each feature.
    """

    rows: Floats
    centre: Floats
    variances: Floats


@dataclass(frozen=True)
class SampledRows:
    """A sample that stays where the data are, and what is known of it.

    n_rows, n_distinct: how many rows, and how many of them differ; centre, variances (p,): mean and variance of each
    feature; deviations (p,): standard deviations, none of them zero.
    """

    held: Held[RowSample]
    n_rows: int
    n_distinct: int
    centre: Floats
    variances: Floats
    deviations: Floats


def take_sample(rows: Rows, n_components: int, run: Run) -> SampledRows:
    """Put some rows together, chosen by row number alone.

    n_components: number of components k; there are at least 20 k rows. Returns the rows, and their first two moments.
    Raises InvalidInputError: squares are out of the range of floating-point numbers.
    """
    wanted = max(min(_SAMPLE_ROWS, _SAMPLE_ENTRIES // rows.n_features), 20 * n_components)
    numbers = spread_rows(rows.n_rows, -(-wanted // _RUN_ROWS), _RUN_ROWS)
    every = np.arange(rows.n_rows) if numbers is None else numbers
    held = hold_rows(rows, numbers, run, partial(_centred, every))
    return SampledRows(held, len(every), *call(run, "describe", _described, held))


def _centred(numbers: Numbers, rows: Floats) -> RowSample:
    require_squares(rows, numbers)
    require_size(rows, numbers)
    centre = rows.mean(axis=0)
    rows -= centre
    return RowSample(rows, centre, (rows**2).mean(axis=0))


def _described(sample: RowSample) -> tuple[int, Floats, Floats, Floats]:
    return distinct_count(sample.rows), sample.centre, sample.variances, spreads_of(sample.rows)


def spreads_of(rows: Floats) -> Floats:
    """Take root mean squares of columns, none of them zero.

    rows (n, d): centred rows. Returns (d,): their spreads.
    """
    squares = (rows**2).mean(axis=0)
    mean = float(squares.mean())
    return np.sqrt(np.maximum(squares, _LEAST_SPREAD**2 * mean if mean > 0.0 else 1.0))


def planes_for(n_components: int) -> int:
    """Choose the number of sub-problems.

    Returns 5 k ln(k + 1), rounded up.
    """
    return math.ceil(_PLANES * n_components * math.log(n_components + 1))


def divide(
    rows: Rows, sample: SampledRows, signatures: Signatures, n_components: int, settings: Settings, run: Run
) -> TailMeans:
    """Look along random directions of the signatures for the rows furthest out.

    settings: number of directions, where they come from, seed. Returns of all rows, on both sides of each direction.
    """
    s = settings.n_subproblems or planes_for(n_components)
    share = min(_TAIL[0], _TAIL[1] / n_components)
    found = call(run, "directions", _directions, sample.held, signatures, settings, s, share)
    return tail_means(rows, signatures.scaling, signatures.coordinates, signatures.offset, *found, run)


def _directions(
    sample: RowSample, signatures: Signatures, settings: Settings, s: int, share: float
) -> tuple[Floats, Floats, Floats, Floats]:
    """Spreads of the coordinates, directions in them, and between which heights all but a share at each end are."""
    places = signatures.places(sample)
    spreads = np.sqrt((places**2).mean(axis=0))
    spreads = np.where(spreads > 0.0, spreads, max(float(spreads.max()), 1e-300))
    axes = directions(settings.ensemble, settings.seed, np.arange(s), spreads, signatures.coordinates)
    low, high = np.quantile(places @ axes.T, [share, 1.0 - share], axis=0)
    return spreads, axes, low, high


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


def start_partition(places: Floats, anchors: Floats, seed: int, *, alone: bool = True) -> Partition:
    """Partition the sample from the anchors.

    places (n, d): signatures of the sample; anchors (k, d): the anchors' signatures; alone: whether no components are
    split and merged afterwards: then centres breathe, and a spread of random rows competes.
    """
    found = _partition(places.astype(np.float32), anchors.astype(np.float32), seed, alone=alone)
    if found.inertia < _COARSE * float((places**2).sum()):
        return _partition(places, anchors, seed, alone=alone)
    return found


def _partition(places: Floats, anchors: Floats, seed: int, *, alone: bool) -> Partition:
    if not alone:
        return lloyd(places, anchors)
    rng = np.random.default_rng(seed)
    starts = [anchors, kmeans_plusplus(places, len(anchors), rng)]
    found = [breathing_kmeans(places, lloyd(places, start), rng) for start in starts]
    return min(found, key=lambda partition: partition.inertia)


def choose_count(
    rows: Floats,
    places: Floats,
    candidates: Floats,
    most: int,
    settings: MixtureSettings,
    variances: Floats,
) -> tuple[int, Floats]:
    """Choose the number of components by BIC, over one anchored fit for each number.

    rows, places: rows of the sample, less the centre, and their signatures; candidates (c, d): means of tails;
    variances (p,): variances of the features. Returns count: the number with the least BIC; scores (m, 2): numbers
    tried and their BIC; the search ends when some more components in turn have not helped.
    """
    (n, p), form = rows.shape, settings.covariance_type
    scores: list[float] = []
    for k in range(1, most + 1):
        partition = start_partition(places, choose_anchors(candidates, k), settings.anchoring.seed)
        within = within_variances(rows, partition.labels, k)
        regular = regularization(variances, settings.reg_covar, within)
        mixture = mixture_of_labels(rows, partition.labels, k, form, regular)
        log_likelihood = improve(rows, mixture, regular, _COUNT_PASSES)[1]
        parameters = k * p + k - 1 + covariance_parameters(form, k, p)
        scores.append(parameters * math.log(n) - 2.0 * n * log_likelihood)
        if len(scores) - 1 - int(np.argmin(scores)) >= _PATIENCE:
            break
    return 1 + int(np.argmin(scores)), np.column_stack([np.arange(1, len(scores) + 1), scores])
