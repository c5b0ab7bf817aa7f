"""Solvers of the minimum conical hull problem in any dimension for arrays in memory, greedy and exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.spatial import ConvexHull, QhullError

from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.membership import points_in_cone
from dask_dca.geometry.nnls import cone_residuals
from dask_dca.geometry.planes import binary_scale
from dask_dca.geometry.separation import prepare_cone, unit_rows

XRAY_RULES: Final = ("max", "dist", "rand")
SOLVERS: Final = ("spa", "xray", "xray-dist", "xray-rand", "lp", "greedy")
_MAX_HULL_DIMENSIONS: Final = 4  # dimension up to which convex hulls are computed; their size grows fast
_SLAB_ENTRIES: Final = 2**22  # entries of a temporary array
_MIN_PLANES: Final = 64  # random planes that prove rows to be extreme, in addition to `_PLANES_PER_DIMENSION`
_PLANES_PER_DIMENSION: Final = 4
_SHORTLIST_ROWS: Final = 8  # candidates whose cover is counted in each step: those of greatest energy gain


def successive_projection(points: ArrayLike, n_anchors: int) -> Numbers:
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
) -> Numbers:
    """
    Choose rows by XRAY.

    Kumar, Sindhwani and Kambadur, Fast conical hull algorithms for near-separable non-negative matrix
    factorization, ICML 2013: the residual of a row outside the current cone is a direction, and the row that reaches
    furthest along it, relative to its height, is chosen.

    Parameters
    ----------
    points : array_like, shape (n, p)
        Rows; they need no scaling, so equal noise stays equal.
    n_anchors : int
        How many rows to choose.
    rule : {"max", "dist", "rand"}, default "max"
        Which row outside the cone gives the direction: that of the greatest residual, that whose residual has the
        greatest sum of squared positive products with all rows (n products per row), or a random one.
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
        outside = _exterior_row(P, residual, size, floor, rule, rng)
        if outside is None:
            break
        reach = (P @ residual[outside]) / mass
        reach[chosen] = -np.inf
        chosen.append(int(reach.argmax()))
        residual = cone_residuals(P, P[chosen])
        size = (residual**2).sum(axis=1)
        size[chosen] = 0.0
    return np.array(chosen, dtype=np.int64)


def _exterior_row(
    P: Floats, residual: Floats, size: Floats, floor: float, rule: str, rng: np.random.Generator
) -> int | None:
    """Choose the row outside the cone whose residual is the next direction; None if there is none."""
    outside = np.flatnonzero(size > floor)
    if not len(outside):
        return None
    if rule == "max":
        return int(size.argmax())
    if rule == "rand":
        return int(rng.choice(outside))
    step = max(1, _SLAB_ENTRIES // len(P))
    parts = [outside[i : i + step] for i in range(0, len(outside), step)]
    reaches = [(np.maximum(residual[part] @ P.T, 0.0) ** 2).sum(axis=1) for part in parts]
    return int(outside[np.concatenate(reaches).argmax()])


def hull_rows(points: Floats) -> Numbers:
    """
    Find the rows that a solver can choose, in few dimensions: those on the convex hull.

    Rows of height one inside the hull of others lie in their cone. SPA, XRAY with the rule "max" and the LP test never
    choose such rows, and are not affected by them, so that they can be left out; greedy cover and the other rules then
    use the rows on the hull alone.

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
    if len(distinct) <= places.shape[1] + 1 or places.shape[1] > _MAX_HULL_DIMENSIONS:
        return distinct
    try:
        return distinct[np.sort(ConvexHull(places).vertices)]
    except QhullError:
        return distinct


def solve(solver: str, points: Floats, n_anchors: int, seed: int = 0) -> Numbers:
    """Solve a minimum conical hull problem by a named solver.

    points (n, d): rows whose first coordinate is their height, positive; n_anchors: greatest number of rows to choose;
    seed: of solvers that draw random numbers. Returns row numbers (m,); "spa" finds at most d.
    Raises ValueError: the name is unknown.
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


def cone_distance(point: ArrayLike, generators: ArrayLike) -> float:
    """
    Chebyshev distance of a point from the cone of some rows, by a linear program.

    Parameters
    ----------
    point : array_like, shape (d,)
        A point.
    generators : array_like, shape (k, d)
        Rows that span the cone; there may be none.

    Returns
    -------
    float
        min over f >= 0 of `max_j |x - f G|_j`, as a share of the point's greatest magnitude; 0 for the origin.

    Raises
    ------
    ValueError
        The program could not be solved: entries are not finite.

    Examples
    --------
    >>> cone_distance([1.0, 1.0], [[1.0, 0.0], [1.0, 2.0]])
    0.0
    >>> round(cone_distance([0.0, 1.0], [[1.0, 0.0], [1.0, 1.0]]), 6)
    0.5
    """
    x = binary_scale(np.asarray(point, dtype=np.float64)[None, :])[0]
    peak = float(np.abs(x).max(initial=0.0))
    if peak == 0.0:
        return 0.0
    G = binary_scale(np.asarray(generators, dtype=np.float64).reshape(-1, len(x)))
    ones = np.ones((len(x), 1))
    answer = linprog(
        np.append(np.zeros(len(G)), 1.0),
        A_ub=np.block([[G.T, -ones], [-G.T, -ones]]),
        b_ub=np.concatenate([x, -x]),
        method="highs",
    )
    if answer.fun is None:
        msg = f"no distance to the cone was found: {answer.message}"
        raise ValueError(msg)
    return max(0.0, float(answer.fun)) / peak


def backward_removal(
    points: ArrayLike, n_anchors: int | None = None, *, tolerance: float = 1e-7, planes: bool = True
) -> Numbers:
    """
    Remove rows that lie in the cone of those that are left, until none does: the LP test.

    Arora, Ge, Kannan and Moitra, Computing a nonnegative matrix factorization - provably, STOC 2012, Theorem 5.4:
    what is left is *simplicial* (no row in the cone of the others) and spans the same cone, so it solves the
    minimum conical hull problem wherever that cone is pointed. Exact on exact data, and not robust to noise.

    Parameters
    ----------
    points : array_like, shape (n, d)
        Rows of any sign.
    n_anchors : int, optional
        Greatest number of rows to keep; of more, those furthest from the cone of the others are kept.
    tolerance : float, default 1e-7
        Distance from the cone, as a share of the row's greatest magnitude, up to which a row is removed.
    planes : bool, default True
        Decide rows by planes and least squares where possible, and use linear programs for the other rows only: the
        paper's DCA as a subroutine. The result is the same, up to the tolerance.

    Returns
    -------
    ndarray of int64, shape (m,)
        Row numbers, increasing; of equal rows (scaled copies) the first. Zero rows are never among them.

    Raises
    ------
    ValueError
        Entries are not finite.

    Examples
    --------
    >>> rows = [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [2.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    >>> backward_removal(rows)
    array([1, 3, 4])
    """
    P = binary_scale(np.asarray(points, dtype=np.float64))
    if not np.isfinite(P).all():
        msg = "points have entries that are NaN or infinite"
        raise ValueError(msg)
    left = np.flatnonzero(P.any(axis=1))
    extreme = _proven_extremes(P, left, tolerance) if planes else left[:0]
    if len(extreme):
        left = left[np.isin(left, extreme) | ~points_in_cone(P[left], prepare_cone(P[extreme]), tolerance=tolerance)]
    for i in left[::-1]:  # from the last, so that of equal rows the first is left
        others = left[left != i]
        if i not in extreme and cone_distance(P[i], P[others]) <= tolerance:
            left = others
    if n_anchors is None or len(left) <= n_anchors:
        return left.astype(np.int64)
    distances = np.array([cone_distance(P[i], P[left[left != i]]) for i in left])
    return np.sort(left[np.argsort(-distances, kind="stable")[:n_anchors]]).astype(np.int64)


def _proven_extremes(P: Floats, left: Numbers, tolerance: float) -> Numbers:
    """Rows that are the only extreme row in some plane by a clear margin: no combination of the others reaches them."""
    cone = prepare_cone(P[left], n_planes=1)
    if not cone.is_pointed or not len(left):
        return left[:0]
    heights = P[left] @ cone.axis
    places = (P[left] / heights[:, None]) @ cone.basis
    count = _MIN_PLANES + _PLANES_PER_DIMENSION * places.shape[1]
    draws = np.random.default_rng(0).standard_normal((count, places.shape[1]))
    ratios = places @ (draws / cone.singular_values).T
    found: set[int] = set()
    for signed in (ratios, -ratios):
        best = signed.argmax(axis=0)
        if len(signed) > 1:
            first, second = -np.partition(-signed, 1, axis=0)[:2]
            # the lead must exceed what a row within the tolerance of the others' cone could have
            reach = tolerance * np.abs(places).sum(axis=1).max() * np.abs(draws / cone.singular_values).sum(axis=1)
            best = best[first - second > 4.0 * reach / cone.margin]
        found.update(best.tolist())
    return left[np.array(sorted(found), dtype=np.intp)]


def cover(points: ArrayLike, chosen: ArrayLike, *, tolerance: float = 1e-9) -> int:
    """
    Count the rows that lie in the cone of the chosen ones: the paper's cover function.

    Parameters
    ----------
    points : array_like, shape (n, d)
        Rows.
    chosen : array_like of int, shape (m,)
        Numbers of the chosen rows A.
    tolerance : float, default 1e-9
        Distance from the cone, as a share of a row's length, up to which it is covered.

    Returns
    -------
    int
        `cover(X_A) = |{v : X_v = f X_A, f >= 0}|`.

    Notes
    -----
    The minimum conical hull problem is: the fewest rows A with cover(A) = n. The paper calls
    f(A) = cover(A + I), I independent rows, submodular. That is so in the plane. In more dimensions two rows can
    cover together what neither covers with I alone, so that greedy has no guarantee there; a test shows both.

    Examples
    --------
    >>> cover([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], [0, 2])
    3
    """
    P = np.asarray(points, dtype=np.float64)
    return int(points_in_cone(P, prepare_cone(P[np.asarray(chosen, dtype=np.intp)]), tolerance=tolerance).sum())


def covered_energy(points: ArrayLike, chosen: ArrayLike) -> float:
    """
    Mean share of the squared length of rows inside the cone of the chosen rows: a smooth form of the cover.

    Parameters
    ----------
    points : array_like, shape (n, d)
        Rows, not all of them zero.
    chosen : array_like of int, shape (m,)
        Numbers of the chosen rows.

    Returns
    -------
    float
        1 where all rows are covered.

    Examples
    --------
    >>> round(covered_energy([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], [0]), 6)
    0.5
    """
    P = unit_rows(points)
    return float(1.0 - _residuals_and_energy(P, P[np.asarray(chosen, dtype=np.intp)])[1].mean())


def greedy_cover(
    points: ArrayLike,
    n_anchors: int | None = None,
    *,
    independent: Sequence[int] = (),
    sweeps: int = 2,
    tolerance: float = 1e-6,
) -> Numbers:
    """
    Choose rows greedily by how many rows their cone covers.

    Each step adds the row with the greatest cover; among equals, and long before any cone is wide enough to cover
    much, the one with the greatest covered energy. The first choices lie inside the cone, so that each choice is then
    replaced by the best one given the others.

    Parameters
    ----------
    points : array_like, shape (n, d)
        Rows.
    n_anchors : int, optional
        How many to choose; as many as cover all rows if None.
    independent : sequence of int, optional
        Rows I that are chosen from the start, as in the paper's f(A) = cover(A + I). They are part of the result
        unless they become redundant.
    sweeps : int, default 2
        Greatest number of sweeps over all choices.
    tolerance : float, default 1e-6
        Distance from the cone, as a share of a row's length, up to which it is covered.

    Returns
    -------
    ndarray of int64, shape (m,)
        Row numbers in the order of choice; fewer than n_anchors where they cover all rows.

    References
    ----------
    .. [1] L. Wolsey, "An analysis of the greedy algorithm for the submodular set covering problem",
       Combinatorica 2, 1982.

    Examples
    --------
    >>> sorted(greedy_cover([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]], 2).tolist())
    [0, 2]
    """
    P = unit_rows(points)
    usable = np.flatnonzero(P.any(axis=1))
    most = min(len(usable) if n_anchors is None else n_anchors, len(usable))
    chosen = [int(i) for i in independent][:most]
    while len(chosen) < most and _add_best(P[usable], usable, P, chosen, tolerance):
        pass
    for _ in range(sweeps):
        before = sorted(chosen)
        for first in chosen[:]:
            if first in chosen:
                chosen.remove(first)
                _add_best(P[usable], usable, P, chosen, tolerance)
        if sorted(chosen) == before:
            break
    for i in chosen[::-1] if n_anchors is None else []:  # what the others cover is not needed
        rest = [j for j in chosen if j != i]
        if rest and points_in_cone(P[[i]], prepare_cone(P[rest]), tolerance=tolerance).all():
            chosen = rest
    return np.array(chosen, dtype=np.int64)


def _add_best(rows: Floats, numbers: Numbers, P: Floats, chosen: list[int], tolerance: float) -> bool:
    """Add the row that together with the chosen ones covers most; false if all rows are covered."""
    residual, energy = _residuals_and_energy(rows, P[chosen])
    uncovered = energy > tolerance**2
    if not uncovered.any():
        return False
    gains = _energy_gains(residual[uncovered], rows)
    gains[np.isin(numbers, chosen)] = -1.0
    promising = np.argsort(-gains, kind="stable")[:_SHORTLIST_ROWS]
    promising = np.sort(promising[gains[promising] > 0])
    if not len(promising):
        return False
    values = [_cover_value(rows[uncovered], P[[*chosen, numbers[i]]], tolerance) for i in promising]
    best = max(range(len(values)), key=lambda j: (values[j], -j))
    chosen.append(int(numbers[promising[best]]))
    return True


def _energy_gains(residual: Floats, rows: Floats) -> Floats:
    """Energy that each row would cover in addition, with the coefficients of the chosen ones fixed."""
    step = max(1, _SLAB_ENTRIES // len(rows))
    gains = np.zeros(len(rows))
    for start in range(0, len(residual), step):
        gains += (np.maximum(residual[start : start + step] @ rows.T, 0.0) ** 2).sum(axis=0)
    return gains


def _cover_value(rows: Floats, generators: Floats, tolerance: float) -> tuple[int, float]:
    """Number of covered rows, and minus the energy that is not covered."""
    energy = _residuals_and_energy(rows, generators)[1]
    return int((energy <= tolerance**2).sum()), -float(energy.sum())


def _residuals_and_energy(rows: Floats, generators: Floats) -> tuple[Floats, Floats]:
    """Residuals (n, d) of the rows outside the cone, and their squared lengths (n,)."""
    residual = cone_residuals(rows, generators)
    return residual, (residual**2).sum(axis=1)
