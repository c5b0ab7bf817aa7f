"""Minimal conical hulls in the plane: the paper's closed form by angles to an axis, and signed extremes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = ["axis_angles", "planar_hull", "pointed_extent"]


def axis_angles(points: ArrayLike, axis: ArrayLike = (0.0, 1.0)) -> Floats:
    """
    Angle between each point and an axis: whether it lies to the left or to the right is not seen.

    Parameters
    ----------
    points : array_like, shape (n, 2)
        Points in the plane, any real dtype.
    axis : array_like, shape (2,), optional
        Direction phi of the axis; the vertical one by default.

    Returns
    -------
    ndarray of float64, shape (n,)
        Angles in [0, pi], NaN for points at the origin. They are taken from sine and cosine, which keeps the
        digits that the cosine alone loses near 0 and pi, and makes integer points on one ray tie exactly.

    Raises
    ------
    ValueError
        Shapes do not match, or the axis is zero.

    Examples
    --------
    >>> np.degrees(axis_angles([[0, 2], [1, 1], [-1, 1], [0, -3], [0, 0]]))
    array([  0.,  45.,  45., 180.,  nan])
    """
    plane = _planar(points)
    direction = np.asarray(axis, dtype=np.float64)
    if direction.shape != (2,) or not direction.any():
        msg = f"axis must be a non-zero vector of two coordinates, got {axis!r}"
        raise ValueError(msg)
    angles: Floats = np.arctan2(np.abs(_cross(direction, plane)), plane @ direction)
    return np.where(plane.any(axis=1), angles, np.nan)


def planar_hull(X: ArrayLike, Y: ArrayLike | None = None, axis: ArrayLike = (0.0, 1.0)) -> tuple[int, int]:
    """
    Find the two rows of Y that span the minimal conical hull of X in the plane, by their angles to an axis.

    Of the rows of Y whose angle is at most the least of X, the one of greatest angle is `low`; of those whose
    angle is at least the greatest of X, the one of least angle is `high`. For Y = X these are the rows of
    least and of greatest angle.

    Parameters
    ----------
    X : array_like, shape (n, 2)
        Projected rows to be covered.
    Y : array_like, shape (m, 2), optional
        Projected rows to choose from; X by default.
    axis : array_like, shape (2,), optional
        The axis phi.

    Returns
    -------
    low : int
        Row of Y (of X, if Y is None) on the side of the axis, -1 if none qualifies.
    high : int
        Row on the other side, likewise. Ties go to the lower row number; rows at the origin are neither covered
        nor chosen.

    Raises
    ------
    ValueError
        Shapes do not match, or the axis is zero.

    See Also
    --------
    pointed_extent : The extremes that no choice of axis can spoil.

    Notes
    -----
    This is the paper's equation (equ:2Danchor), to the letter. Its angles have no sign, so it gives the
    minimal conical hull only if all rows of X and Y lie on one side of the line through the axis: there the
    angle increases along the half-plane. Otherwise points left and right of the axis are folded onto each
    other. A plane whose reference axis a has x . a > 0 for all rows meets the condition, with phi
    perpendicular to a.

    References
    ----------
    .. [1] T. Zhou, J. Bilmes, C. Guestrin, "Divide-and-Conquer Learning by Anchoring a Conical Hull",
       NIPS 2014, "Anchoring on 2D Plane".

    Examples
    --------
    >>> points = [[1.0, 5.0], [2.0, 1.0], [1.0, 1.0], [3.0, 1.0]]
    >>> planar_hull(points)
    (0, 3)
    >>> planar_hull([[1.0, 1.0], [2.0, 1.9]], Y=points)
    (2, 1)
    """
    covered = axis_angles(X, axis)
    if Y is None:
        return _least(covered), _least(-covered)
    angles = axis_angles(Y, axis)
    covered = covered[~np.isnan(covered)]
    if not len(covered):
        return -1, -1
    return _least(_positive_part(covered.min() - angles)), _least(_positive_part(angles - covered.max()))


def pointed_extent(points: ArrayLike) -> tuple[int, int, bool]:
    """
    Find the two extreme rays of points in the plane, and whether their cone is pointed.

    Parameters
    ----------
    points : array_like, shape (n, 2)
        Points in the plane, any real dtype; those at the origin are ignored.

    Returns
    -------
    low : int
        Row on the first ray, counter-clockwise; -1 if the cone is not pointed. Ties go to the lower row number.
    high : int
        Row on the last ray, likewise.
    pointed : bool
        Whether all points lie in an open half-plane, that is, leave a gap of more than pi between
        neighbouring angles. False if there are no points.

    Raises
    ------
    ValueError
        The points are not planar.

    Examples
    --------
    >>> pointed_extent([[1, 1], [-1, 2], [3, 1], [6, 2]])
    (2, 1, True)
    >>> pointed_extent([[1, 0], [-1, 1], [-1, -1]])
    (-1, -1, False)
    """
    plane = _planar(points) + 0.0  # -0.0 becomes 0.0: arctan2 sees its sign
    rows = np.flatnonzero(plane.any(axis=1))
    if not len(rows):
        return -1, -1, False
    angles = np.arctan2(plane[rows, 1], plane[rows, 0])
    ordered = np.sort(angles)
    widest = int(np.argmax(np.diff(ordered, append=ordered[0] + 2.0 * np.pi)))
    low = int(rows[np.argmax(angles == ordered[(widest + 1) % len(rows)])])
    high = int(rows[np.argmax(angles == ordered[widest])])
    turn = float(_cross(plane[low], plane[high]))  # decides gaps of about pi without rounded angles
    if turn > 0 or (turn == 0 and plane[low] @ plane[high] > 0):
        return low, high, True
    return -1, -1, False


def _planar(points: ArrayLike) -> Floats:
    plane = np.asarray(points, dtype=np.float64)
    if plane.ndim != 2 or plane.shape[1] != 2:
        msg = f"expected points of shape (n, 2), got {plane.shape}"
        raise ValueError(msg)
    return plane


def _cross(first: Floats, second: Floats) -> Floats:
    """Sine of the angle from `first` to `second`, times both lengths."""
    return np.asarray(first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0])


def _positive_part(values: Floats) -> Floats:
    """In the paper this is (x)_+: x where x >= 0, else infinity."""
    return np.where(values >= 0, values, np.inf)


def _least(values: Floats) -> int:
    """Return the first row of least value, -1 if none is finite."""
    usable = np.where(np.isfinite(values), values, np.inf)
    return int(usable.argmin()) if np.isfinite(usable).any() else -1
