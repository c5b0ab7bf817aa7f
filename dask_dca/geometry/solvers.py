"""Solvers of the minimum conical hull problem in any dimension, on arrays in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from dask_dca.geometry.cover import cover, covered_energy, greedy_cover
from dask_dca.geometry.lp import backward_removal, cone_distance
from dask_dca.geometry.nonnegative import residuals

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "SOLVERS",
    "XRAY_RULES",
    "backward_removal",
    "cone_distance",
    "cover",
    "covered_energy",
    "greedy_cover",
    "hull_rows",
    "solve",
    "successive_projection",
    "xray",
]

XRAY_RULES: Final = ("max", "dist", "rand")
SOLVERS: Final = ("spa", "xray", "xray-dist", "xray-rand", "lp", "greedy")
_HULL_DIMENSIONS: Final = 4  # convex hulls grow fast with the dimension
_SLAB: Final = 2**22  # entries of a temporary array


def successive_projection(points: ArrayLike, n_anchors: int) -> NDArray[np.int64]:
    """
    Choose rows by successive projection (SPA).

    Araujo et al., The successive projections algorithm for variable selection, Chemometrics and Intelligent
    Laboratory Systems 57, 2001. One of the solvers that the paper compares with.

    Parameters
    ----------
    points : array_like, shape (n, d)
        Points whose convex hull is sought, such as rows scaled to sum one.
    n_anchors : int
        How many rows to choose.

    Returns
    -------
    ndarray of int64, shape (m,)
        Row numbers in the order of choice; m < n_anchors where the points span fewer dimensions.

    Examples
    --------
    >>> successive_projection([[1.0, 0.0], [0.5, 0.5], [0.0, 2.0]], 2)
    array([2, 0])
    """
    P = np.asarray(points, dtype=np.float64)
    left = (P**2).sum(axis=1)
    floor = 1e-12 * left.max(initial=0.0)
    basis = np.zeros((min(n_anchors, P.shape[1]), P.shape[1]))
    chosen: list[int] = []
    for step in range(min(len(basis), len(P))):
        best = int(left.argmax())
        if left[best] <= floor:
            break
        chosen.append(best)
        u = P[best] - (basis[:step] @ P[best]) @ basis[:step]
        basis[step] = u / np.linalg.norm(u)
        left = np.maximum(left - (P @ basis[step]) ** 2, 0.0)
        left[best] = 0.0
    return np.array(chosen, dtype=np.int64)


def xray(
    points: ArrayLike, n_anchors: int, *, rule: str = "max", heights: ArrayLike | None = None, seed: int = 0
) -> NDArray[np.int64]:
    """
    Choose rows by XRAY.

    Kumar, Sindhwani and Kambadur, Fast conical hull algorithms for near-separable non-negative matrix
    factorization, ICML 2013: a row outside the cone so far gives a direction, its residual, and the row that
    reaches furthest along it, relative to its height, is chosen.

    Parameters
    ----------
    points : array_like, shape (n, p)
        Rows; they need no scaling, so equal noise stays equal.
    n_anchors : int
        How many rows to choose.
    rule : {"max", "dist", "rand"}, default "max"
        Which row outside gives the direction: that of the greatest residual; the one whose residual has the
        greatest positive products with all rows (n products a row); or any.
    heights : array_like, shape (n,), optional
        Products of the rows with a vector inside the dual cone, all positive. By default the sums of the rows,
        which have to be positive then.
    seed : int, default 0
        Seed of the rule "rand".

    Returns
    -------
    ndarray of int64, shape (m,)
        Row numbers in the order of choice; fewer than n_anchors where the cone covers all rows.

    Raises
    ------
    ValueError
        The rule is unknown.

    Examples
    --------
    >>> sorted(xray([[1.0, 0.0], [0.5, 0.5], [0.0, 2.0]], 2).tolist())
    [0, 2]
    """
    if rule not in XRAY_RULES:
        msg = f"unknown rule {rule!r} of XRAY; use one of {', '.join(map(repr, XRAY_RULES))}"
        raise ValueError(msg)
    P = np.asarray(points, dtype=np.float64)
    mass = np.maximum(P.sum(axis=1) if heights is None else np.asarray(heights, dtype=np.float64), 1e-300)
    rng = np.random.default_rng(seed)
    residual, size = P, (P**2).sum(axis=1)
    floor = 1e-20 * size.max(initial=0.0)
    chosen: list[int] = []
    while len(chosen) < min(n_anchors, len(P)):
        outside = _exterior(P, residual, size, floor, rule, rng)
        if outside is None:
            break
        reach = (P @ residual[outside]) / mass
        reach[chosen] = -np.inf
        chosen.append(int(reach.argmax()))
        residual = residuals(P, P[chosen])
        size = (residual**2).sum(axis=1)
        size[chosen] = 0.0
    return np.array(chosen, dtype=np.int64)


def _exterior(
    P: Floats, residual: Floats, size: Floats, floor: float, rule: str, rng: np.random.Generator
) -> int | None:
    """The row outside the cone whose residual is followed; None if there is none."""
    outside = np.flatnonzero(size > floor)
    if not len(outside):
        return None
    if rule == "max":
        return int(size.argmax())
    if rule == "rand":
        return int(rng.choice(outside))
    step = max(1, _SLAB // len(P))
    parts = [outside[i : i + step] for i in range(0, len(outside), step)]
    reaches = [(np.maximum(residual[part] @ P.T, 0.0) ** 2).sum(axis=1) for part in parts]
    return int(outside[np.concatenate(reaches).argmax()])


def hull_rows(points: Floats) -> NDArray[np.int64]:
    """
    Find the rows that a solver can choose, in few dimensions: those on the convex hull.

    Rows of height one inside the hull of others lie in their cone. SPA, XRAY by its rule "max" and the LP test never
    choose one, nor look at one, so that leaving them out loses nothing; greedy cover and the other rules then judge
    by the rows on the hull alone.

    Parameters
    ----------
    points : ndarray of float64, shape (n, d)
        Rows whose first coordinate, the height, is one.

    Returns
    -------
    ndarray of int64, shape (m,)
        Row numbers, increasing, the first of equal rows; all distinct rows where d > 5 or the hull is flat.

    Examples
    --------
    >>> hull_rows(np.array([[1.0, 0.0], [1.0, 0.5], [1.0, 1.0], [1.0, 1.0]]))
    array([0, 2])
    """
    distinct = np.sort(np.unique(points, axis=0, return_index=True)[1]).astype(np.int64)
    places = points[distinct, 1:]
    if places.shape[1] == 1:
        return distinct[np.unique([places.argmin(), places.argmax()])]
    if len(distinct) <= places.shape[1] + 1 or places.shape[1] > _HULL_DIMENSIONS:
        return distinct
    try:
        return distinct[np.sort(ConvexHull(places).vertices)]
    except QhullError:
        return distinct


def solve(solver: str, points: Floats, n_anchors: int, seed: int = 0) -> NDArray[np.int64]:
    """
    Solve a minimum conical hull problem by the solver of a name.

    Parameters
    ----------
    solver : str
        One of `SOLVERS`.
    points : ndarray of float64, shape (n, d)
        Rows whose first coordinate is their height, positive.
    n_anchors : int
        How many rows to choose, at most.
    seed : int, default 0
        Seed of solvers that draw.

    Returns
    -------
    ndarray of int64, shape (m,)
        Row numbers. "spa" finds at most d.

    Raises
    ------
    ValueError
        The name is unknown.

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0], [1.0, 0.5], [1.0, 1.0], [1.0, 0.2]])
    >>> [sorted(solve(name, rows, 2).tolist()) for name in ("spa", "xray", "lp", "greedy")]
    [[0, 2], [0, 2], [0, 2], [0, 2]]
    """
    if solver == "spa":
        return successive_projection(points, n_anchors)
    if solver.startswith("xray") and solver in SOLVERS:
        return xray(points, n_anchors, rule=solver[5:] or "max", heights=points[:, 0], seed=seed)
    if solver == "lp":
        return backward_removal(points, n_anchors)
    if solver == "greedy":
        return greedy_cover(points, n_anchors)
    msg = f"unknown solver {solver!r}; use one of {', '.join(map(repr, SOLVERS))}"
    raise ValueError(msg)
