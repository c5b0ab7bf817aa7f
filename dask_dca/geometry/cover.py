"""Greedy submodular cover: the minimum conical hull problem as a set cover problem, after the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.membership import contained
from dask_dca.geometry.nonnegative import residuals
from dask_dca.geometry.separation import prepare_cone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["cover", "covered_energy", "greedy_cover"]

_SLAB: Final = 2**22  # entries of a temporary array
_SHORTLIST: Final = 8  # rows whose cover is counted in each step: those that promise most energy


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
    return int(contained(P, prepare_cone(P[np.asarray(chosen, dtype=np.intp)]), tolerance=tolerance).sum())


def covered_energy(points: ArrayLike, chosen: ArrayLike) -> float:
    """
    Mean share of a row's squared length that the cone of the chosen rows reaches: a smooth form of the cover.

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
    P = _unit_rows(np.asarray(points, dtype=np.float64))
    return float(1.0 - _left_over(P, P[np.asarray(chosen, dtype=np.intp)])[1].mean())


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
    much, the one with the greatest covered energy. The first choices lie inside the cone, so each choice is then
    exchanged for the best one beside the others.

    Parameters
    ----------
    points : array_like, shape (n, d)
        Rows.
    n_anchors : int, optional
        How many to choose; as many as cover all rows if None.
    independent : sequence of int, optional
        Rows I that are taken to be chosen from the start, as in the paper's f(A) = cover(A + I). They are part of
        the answer where they are of use in it.
    sweeps : int, default 2
        How often every choice is exchanged, at most.
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
    P = _unit_rows(np.asarray(points, dtype=np.float64))
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
        if rest and contained(P[[i]], prepare_cone(P[rest]), tolerance=tolerance).all():
            chosen = rest
    return np.array(chosen, dtype=np.int64)


def _add_best(rows: Floats, numbers: Numbers, P: Floats, chosen: list[int], tolerance: float) -> bool:
    """Add the row that covers most beside the chosen ones; False if all rows are covered."""
    residual, energy = _left_over(rows, P[chosen])
    uncovered = energy > tolerance**2
    if not uncovered.any():
        return False
    gains = _gains(residual[uncovered], rows)
    gains[np.isin(numbers, chosen)] = -1.0
    promising = np.argsort(-gains, kind="stable")[:_SHORTLIST]
    promising = np.sort(promising[gains[promising] > 0])
    if not len(promising):
        return False
    values = [_value(rows[uncovered], P[[*chosen, numbers[i]]], tolerance) for i in promising]
    best = max(range(len(values)), key=lambda j: (values[j], -j))
    chosen.append(int(numbers[promising[best]]))
    return True


def _gains(residual: Floats, rows: Floats) -> Floats:
    """Energy that each row would cover more, the coefficients of the chosen ones left as they are."""
    step = max(1, _SLAB // len(rows))
    gains = np.zeros(len(rows))
    for start in range(0, len(residual), step):
        gains += (np.maximum(residual[start : start + step] @ rows.T, 0.0) ** 2).sum(axis=0)
    return gains


def _value(rows: Floats, generators: Floats, tolerance: float) -> tuple[int, float]:
    """How many rows are covered, and minus the energy that is not."""
    energy = _left_over(rows, generators)[1]
    return int((energy <= tolerance**2).sum()), -float(energy.sum())


def _left_over(rows: Floats, generators: Floats) -> tuple[Floats, Floats]:
    """Residuals of the rows outside the cone, and their squared lengths."""
    residual = residuals(rows, generators)
    return residual, (residual**2).sum(axis=1)


def _unit_rows(P: Floats) -> Floats:
    lengths = np.sqrt((P**2).sum(axis=1, keepdims=True))
    return P / np.where(lengths > 0, lengths, 1.0)
