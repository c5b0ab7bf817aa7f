"""Where a mixture starts: anchors among the tails of random directions, and the partition about them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.planes import directions
from dask_dca.geometry.solvers import successive_projection
from dask_dca.models.kmeans import breathing_kmeans, lloyd, squared_distances
from dask_dca.models.mixture.subspace import leading_directions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.anchoring.parameters import Settings
    from dask_dca.models.kmeans import Partition

    Floats = NDArray[np.float64]

__all__ = [
    "choose_anchors",
    "coordinates_of",
    "look_along",
    "planes_for",
    "start_partition",
    "tail_means",
]

_PLANES: Final = 5.0  # times k ln (k + 1)
_TAIL: Final = (0.02, 0.25)  # share of the rows in a tail: at most, and times 1 / k
_SPARE: Final = 10  # coordinates beyond twice the number of components
_COARSE: Final = 2.0**-12  # inertia, as a share of all squares, below which distances in float32 are too coarse


def planes_for(n_components: int) -> int:
    """Choose the number of sub-problems.

    Returns 5 k ln(k + 1), rounded up.
    """
    return math.ceil(_PLANES * n_components * math.log(n_components + 1))


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
    s = settings.n_subproblems or planes_for(n_components)
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
