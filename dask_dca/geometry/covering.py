"""The general minimum conical hull problem MCH(X, Y) in any dimension: the rows of Y whose cone just covers X."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.cone import few_coefficients, residuals
from dask_dca.geometry.separation import binary_scale

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["COVERING_SOLVERS", "covering_rows", "minimal_hull", "pursue"]

COVERING_SOLVERS: Final = ("lp", "xray")
_TOLERANCE: Final = 1e-7  # distance from a cone, for a row of length one, up to which the row is in it


def minimal_hull(X: ArrayLike, Y: ArrayLike, among: Numbers | None = None) -> Numbers:
    """
    Remove rows of Y, the one at the greatest angle to X first, as long as the others cover as much of X.

    The paper's minimal conical hull: rows of Y whose cone covers X, of which none can be left out, nor exchanged for
    one that is nearer to X. It is what the LP test leaves where X = Y, and in the plane the paper's closed form.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Rows to be covered, of any sign. What the cone of all of Y doesn't cover is of no account.
    Y : array_like, shape (m, d)
        Rows to choose from.
    among : ndarray of int64, shape (c,), optional
        Which rows of Y to begin with; all if None.

    Returns
    -------
    ndarray of int64
        Row numbers of Y, increasing; of scaled copies of a row the first.

    Examples
    --------
    >>> Y = [[5.0, 1.0], [2.0, 1.0], [1.0, 1.0], [1.0, 3.0], [1.0, 9.0]]
    >>> minimal_hull([[1.0, 1.2], [1.0, 2.0]], Y)
    array([2, 3])
    """
    rows, points = _unit(X), _unit(Y)
    left = np.flatnonzero(points.any(axis=1)) if among is None else np.asarray(among)
    left = left[np.lexsort((left, _distances(points[left], rows)))]  # the nearest first
    shares = _shares(rows, points[left])
    covered = _lengths(rows - shares @ points[left]) <= _TOLERANCE
    rows, shares = rows[covered], shares[covered]
    for place in range(len(left) - 1, -1, -1):
        users = np.flatnonzero(shares[:, place] > 0.0)
        others = np.delete(np.arange(len(left)), place)
        without = _shares(rows[users], points[left[others]])
        if (_lengths(rows[users] - without @ points[left[others]]) <= _TOLERANCE).all():
            shares = shares[:, others]
            shares[users] = without
            left = left[others]
    return np.sort(left).astype(np.int64)


def pursue(X: ArrayLike, Y: ArrayLike, n_anchors: int | None = None) -> Numbers:
    """
    Choose rows of Y one by one along residuals of X, as XRAY does, by the paper's rule for X and Y: just beyond X.

    The row of X that is furthest from being covered gives a direction, its residual; of the rows of Y that reach as far
    along it as all of X the nearest is chosen, or the one that reaches furthest where none reaches as far.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Rows to be covered.
    Y : array_like, shape (m, d)
        Rows to choose from.
    n_anchors : int, optional
        Choose at most that many; as many as cover X if None.

    Returns
    -------
    ndarray of int64
        Row numbers of Y, increasing; of fewer than asked for, those that later ones made needless are left out.

    Examples
    --------
    >>> Y = [[5.0, 1.0], [2.0, 1.0], [1.0, 1.0], [1.0, 3.0], [1.0, 9.0]]
    >>> pursue([[1.0, 1.2], [1.0, 2.0]], Y)
    array([2, 3])
    """
    rows, points = _unit(X), _unit(Y)
    chosen: list[int] = []
    while len(chosen) < (len(points) if n_anchors is None else n_anchors):
        residual = residuals(rows, points[np.array(chosen, dtype=np.intp)])
        lengths = _lengths(residual)
        if lengths.max(initial=0.0) <= _TOLERANCE:
            break
        row = int(lengths.argmax())
        reach = points @ residual[row]
        reach[chosen] = -np.inf
        if reach.max(initial=0.0) <= 0.0:  # no row of Y brings it nearer
            rows = np.delete(rows, row, axis=0)
            continue
        beyond = reach >= (rows @ residual[row]).max() - _TOLERANCE
        chosen.append(int(np.where(beyond, reach, np.inf).argmin() if beyond.any() else reach.argmax()))
    found = np.array(sorted(chosen), dtype=np.int64)
    return found if len(found) == n_anchors else minimal_hull(X, Y, found)


def covering_rows(solver: str, X: ArrayLike, Y: ArrayLike) -> Numbers:
    """Solve MCH(X, Y) by the solver of a name.

    solver: one of `COVERING_SOLVERS`: "lp" is `minimal_hull`, "xray" is `pursue`; X, Y: rows to be covered, and rows to
    choose from. Returns row numbers of Y, increasing.
    Raises ValueError: the name is unknown.
    """
    if solver == "lp":
        return minimal_hull(X, Y)
    if solver == "xray":
        return pursue(X, Y)
    msg = f"unknown solver {solver!r} of MCH(X, Y); use one of {', '.join(map(repr, COVERING_SOLVERS))}"
    raise ValueError(msg)


def _unit(rows: ArrayLike) -> Floats:
    scaled = binary_scale(np.asarray(rows, dtype=np.float64))
    lengths = _lengths(scaled)
    return scaled / np.where(lengths > 0.0, lengths, 1.0)[:, None]


def _shares(rows: Floats, generators: Floats) -> Floats:
    return few_coefficients(rows, generators) if len(generators) else np.zeros((len(rows), 0))


def _lengths(rows: Floats) -> Floats:
    return np.asarray(np.linalg.norm(rows, axis=1))


def _distances(points: Floats, rows: Floats) -> Floats:
    """Sine of each point's angle to the cone of the rows, on a grid, so that copies of a point tie."""
    return np.rint(_lengths(points - _shares(points, rows) @ rows) / _TOLERANCE)
