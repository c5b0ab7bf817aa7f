"""The divide pass inside clusters: the extreme rows of every cluster on planes through its own mean direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.coordinates import placed_tiles
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.geometry.extremes import Extremes, merge_extremes, no_extremes
from dask_dca.kernels.cluster_rule import ClusterRule, label_rows
from dask_dca.kernels.landmarks import quantise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["ConePlanes", "Found", "cone_extremes", "label_block"]

_LEAST_HEIGHT: Final = 0.05  # along the mean direction of the cluster: rows nearly across it have no stable ratio
_SLAB: Final = 4096  # rows that are labelled and compared together, about


@dataclass(frozen=True)
class ConePlanes:
    """The planes of each cluster, in the coordinates of the sketch; all vectors are quantised."""

    basis: Floats | None  # (p, d) of the sketch; None: rows are coordinates
    rule: ClusterRule
    axes: Floats  # (k, d), mean direction of each cluster
    directions: Floats  # (k, s, r), in the frame of each cluster
    frames: Floats  # (k, d, r), in which the places of extreme rows are kept


@dataclass(frozen=True)
class Found:
    """Extreme rows of each cluster, by signed direction, and the number of rows of each."""

    cones: list[Extremes]
    sizes: Numbers  # (k + 1,), the last one of zero rows


def cone_extremes(rows: Rows, planes: ConePlanes, run: Run) -> Found:
    """
    Find the rows of least and of greatest ratio on each plane of their own cluster.

    Parameters
    ----------
    rows : Rows
        The data, or their coordinates.
    planes : ConePlanes
        Sketch, labels and planes.
    run : Run
        How passes are run.

    Returns
    -------
    Found
        Exact comparisons, ties to the lower row number: the same for any chunking.
    """
    return run_pass(rows, Pass("divide", _divide_block, _merge), planes, run)


def label_block(state: tuple[Floats | None, ClusterRule], start: int, *columns: Any) -> Floats:
    """
    Label the rows of a block.

    Parameters
    ----------
    state : tuple of ndarray or None, and ClusterRule
        Basis of the sketch, and the rule.
    start : int
        Row number of the block's first row.
    *columns : ndarray or sparse matrix
        Its column chunks.

    Returns
    -------
    ndarray of float64, shape (n, 1)
        Labels.
    """
    basis, rule = state
    found = [label_rows(placed, rule).astype(np.float64) for _, placed in placed_tiles(columns, start, basis)]
    return np.concatenate([np.zeros(0), *found])[:, None]


def _nothing(planes: ConePlanes) -> Found:
    k, s, r = len(planes.axes), planes.directions.shape[1], planes.frames.shape[2]
    none = no_extremes(s, r)
    return Found([none] * k, np.zeros(k + 1, dtype=np.int64))


def _divide_block(planes: ConePlanes, start: int, *columns: Any) -> Found:
    k = len(planes.axes)
    found = _nothing(planes)
    cones, sizes = list(found.cones), found.sizes
    for numbers, placed in _slabs(placed_tiles(columns, start, planes.basis)):
        labels = label_rows(placed, planes.rule)
        sizes = sizes + np.bincount(np.where(labels < 0, k, labels), minlength=k + 1)
        for cluster in np.unique(labels[labels >= 0]).tolist():
            own = labels == cluster
            cones[cluster] = merge_extremes([cones[cluster], _extremes(planes, cluster, numbers[own], placed[own])])
    return Found(cones, sizes)


def _slabs(tiles: Iterator[tuple[Numbers, Floats]]) -> Iterator[tuple[Numbers, Floats]]:
    """Join tiles: of a few rows in each cluster most time would go to calls."""
    waiting: list[tuple[Numbers, Floats]] = []
    for tile in tiles:
        waiting.append(tile)
        if sum(len(numbers) for numbers, _ in waiting) >= _SLAB:
            yield tuple(np.concatenate(parts) for parts in zip(*waiting, strict=True))  # type: ignore[misc]
            waiting = []
    if waiting:
        yield tuple(np.concatenate(parts) for parts in zip(*waiting, strict=True))  # type: ignore[misc]


def _extremes(planes: ConePlanes, cluster: int, numbers: Numbers, placed: Floats) -> Extremes:
    """Extremes of the rows of one cluster; products of quantised vectors are exact, so bits do not depend on tiles."""
    along = placed @ planes.axes[cluster]
    tall = np.flatnonzero(along >= _LEAST_HEIGHT)
    if not len(tall):
        return _nothing(planes).cones[cluster]
    inside = placed[tall] @ planes.frames[cluster]
    ratios = planes.directions[cluster] @ quantise(inside).T  # by direction: the fast way round for extremes
    ratios /= along[tall]
    high, low = ratios.argmax(axis=1), ratios.argmin(axis=1)
    every = np.arange(len(ratios))
    heights = np.concatenate([ratios[every, high], -ratios[every, low]])
    best = np.concatenate([high, low])
    at = tall[best]
    return Extremes(heights, numbers[at], inside[best] / along[at, None])


def _merge(parts: Sequence[Found]) -> Found:
    cones = [merge_extremes(list(same)) for same in zip(*(part.cones for part in parts), strict=True)]
    return Found(cones, np.sum([part.sizes for part in parts], axis=0))
