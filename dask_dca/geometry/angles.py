"""Angles of projected rows to an axis, as the paper's 2-D anchors need them, decided exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["cosine_keys", "integer_pairs", "signed_angles"]

_BITS: Final = 26
_KEY_BITS: Final = 24  # cosines are compared on a grid, so that scaled copies of a row mostly tie


def integer_pairs(pairs: Floats) -> Floats:
    """
    Round the two unit directions of each plane to integers, so that projections are exact.

    Parameters
    ----------
    pairs : ndarray of float64, shape (2, s, p)
        As `plane_pairs` returns them.

    Returns
    -------
    ndarray of float64, shape (2, s, p)
        Integers.
    """
    return np.rint(pairs * (2.0**_BITS - 2.0**8))


def _project(rows: Floats, pairs: Floats) -> tuple[Floats, Floats]:
    """Exact coordinates (n, s) of rows on both directions of each plane, each row in a unit of its own."""
    exponents = np.frexp(np.abs(rows).max(axis=1, initial=0.0))[1] + int(np.ceil(np.log2(rows.shape[1]) / 2))
    whole = np.rint(np.ldexp(rows, _BITS - exponents[:, None]))
    return whole @ pairs[0].T, whole @ pairs[1].T


def cosine_keys(rows: Floats, pairs: Floats) -> Floats:
    """
    Cosine of each row's angle to the second direction of each plane: the paper's axis phi.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, p)
        Rows; a row's keys do not depend on the others.
    pairs : ndarray of float64, shape (2, s, p)
        As `integer_pairs` returns them.

    Returns
    -------
    ndarray of float64, shape (n, s)
        Cosines times 2**24, rounded; nan for rows whose projection is zero.

    Examples
    --------
    >>> plane = integer_pairs(np.array([[[1.0, 0.0]], [[0.0, 1.0]]]))
    >>> cosine_keys(np.array([[0.0, 2.0], [3.0, 0.0]]), plane) / 2**24
    array([[1.],
           [0.]])
    """
    across, along = _project(rows, pairs)
    length = np.sqrt(across**2 + along**2)
    with np.errstate(invalid="ignore"):
        return np.rint(along / length * 2.0**_KEY_BITS)


def signed_angles(rows: Floats, pairs: Floats, middle: Floats) -> Floats:
    """
    Signed angle of each projected row from a projected middle direction.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, p)
        Rows.
    pairs : ndarray of float64, shape (2, s, p)
        As `integer_pairs` returns them.
    middle : ndarray of float64, shape (p,)
        A vector inside the cone, such as the mean direction: a plane is pointed iff all signed angles from it fit
        into less than half a turn.

    Returns
    -------
    ndarray of float64, shape (n, s)
        Radians in (-pi, pi]; nan for rows whose projection is zero.
    """
    across, along = _project(rows, pairs)
    x, y = _project(middle[None, :], pairs)
    with np.errstate(invalid="ignore"):
        angle = np.arctan2(y * across - x * along, x * across + y * along)
    angle[(across == 0.0) & (along == 0.0)] = np.nan
    return angle
