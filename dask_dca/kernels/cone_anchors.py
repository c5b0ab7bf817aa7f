"""The anchors of every cluster's cone: planes through its mean direction, and the choice among extreme rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry import planes as ensembles
from dask_dca.geometry import selection, votes
from dask_dca.geometry.arg_best import NOBODY
from dask_dca.kernels.landmarks import quantise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.extremes import Extremes

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Cone", "ConeAnchors", "choose_anchors", "cone_of", "share_out", "tangents"]

_LEAST_HEIGHT: Final = 0.05


@dataclass(frozen=True)
class Cone:
    """What a sample says of the cone of one cluster."""

    axis: Floats  # (d,), mean direction
    frame: Floats  # (d, r), basis of its subspace
    middle: Floats  # (r,), mean place at height one
    scales: Floats  # (r,), spread of places along `turn`
    turn: Floats  # (r, r), their principal directions


@dataclass(frozen=True)
class ConeAnchors:
    """Candidates of one cone in the order of their use, with what the first 1, 2, ... of them reach."""

    rows: Numbers  # (c,)
    votes: Numbers  # (c,)
    curve: Floats  # (c,), coverage on planes that took no part in the choice
    gains: Floats  # (c,), what each adds to the reach on those that did


def cone_of(rows: Floats, frame: Floats) -> Cone:
    """
    Measure the cone of a cluster on some of its rows.

    Parameters
    ----------
    rows : ndarray of float64, shape (m, d)
        Quantised rows of unit length; may be none.
    frame : ndarray of float64, shape (d, r)
        Quantised basis of the cluster's subspace.

    Returns
    -------
    Cone
        Axis, subspace and spread.
    """
    d, r = frame.shape
    mean = rows.sum(axis=0) if len(rows) else np.zeros(d)
    size = np.sqrt((mean**2).sum())
    axis = quantise(mean / size if size > 0.0 else np.eye(1, d)[0])
    along = rows @ axis
    tall = along >= _LEAST_HEIGHT
    places = (rows[tall] @ frame) / along[tall, None]
    middle = places.mean(axis=0) if len(places) else np.zeros(r)
    spread = (places - middle).T @ (places - middle) / max(len(places), 1)
    values, turn = np.linalg.eigh(spread)
    scales = np.sqrt(np.maximum(values[::-1], 1e-12 * max(float(values[-1]), 1e-300)))
    return Cone(axis, frame, middle, scales, turn[:, ::-1])


def tangents(cone: Cone, ensemble: str, seed: int, count: int) -> Floats:
    """
    Draw directions inside the subspace of a cone.

    Parameters
    ----------
    cone : Cone
        The cone.
    ensemble : str
        What they are drawn from, as in `geometry.planes.directions`.
    seed, count : int
        Root seed and number s.

    Returns
    -------
    ndarray of float64, shape (s, r)
        Unit vectors.
    """
    return ensembles.directions(ensemble, seed, np.arange(count), cone.scales) @ cone.turn.T


def choose_anchors(cone: Cone, found: Extremes, drawn: Floats, fresh: int, most: int) -> ConeAnchors:
    """
    Choose anchors among the extreme rows by the reach of their cone.

    Parameters
    ----------
    cone : Cone
        The cone.
    found : Extremes
        Extreme rows on the signed directions.
    drawn : ndarray of float64, shape (s, r)
        The directions.
    fresh : int
        How many of them, the last ones, only test the choice.
    most : int
        How many anchors at most.

    Returns
    -------
    ConeAnchors
        Most useful first.
    """
    signed = np.concatenate([drawn, -drawn])
    heights = found.heights - signed @ cone.middle
    s = len(drawn)
    test = np.arange(2 * s) % s >= s - fresh
    seen = found.rows < NOBODY
    rows, first = np.unique(found.rows[seen & ~test], return_index=True)
    if not len(rows):
        nothing = np.zeros(0, dtype=np.int64)
        return ConeAnchors(nothing, nothing, np.zeros(0), np.zeros(0))
    positions = found.positions[seen & ~test][first] - cone.middle
    use = selection.shortfalls(positions, signed[~test], heights[~test]) ** 2
    order = selection.select_candidates(use, most)
    order = order if len(order) else np.zeros(1, dtype=np.intp)
    half = slice(0, s - fresh)
    voters, counts = votes.count_votes(found.rows[:s][half], found.rows[s:][half])
    own = counts[np.searchsorted(voters, rows[order])]
    judged = selection.shortfalls(positions[order], signed[test], heights[test])
    reach = selection.coverage_curve(use[order])
    return ConeAnchors(rows[order], own, selection.coverage_curve(judged), np.diff(reach, prepend=0.0))


def share_out(gains: Sequence[Floats], total: int) -> list[int]:
    """
    Share anchors out among cones: one each, then wherever the next one adds most.

    Parameters
    ----------
    gains : sequence of ndarray of float64
        What each cone's first, second, ... anchor adds.
    total : int
        How many in all.

    Returns
    -------
    list of int
        Number of anchors of each cone.

    Examples
    --------
    >>> share_out([np.array([0.9, 0.1]), np.array([0.5, 0.3, 0.2])], 4)
    [1, 3]
    """
    counts = [min(1, len(gain)) for gain in gains]
    offers = [(-gain[j], j, i) for i, gain in enumerate(gains) for j in range(1, len(gain))]
    # an anchor comes after those before it in its cone, whose gains may be smaller by a swap
    for _, _, i in sorted(offers)[: max(total - sum(counts), 0)]:
        counts[i] += 1
    return counts
