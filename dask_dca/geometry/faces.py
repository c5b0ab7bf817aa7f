"""All faces of a cone, where they are few."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.spatial import ConvexHull, QhullError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["face_normals"]

_FEW_DIMENSIONS: Final = 6
_FEW_FACES: Final = 4096


def face_normals(generators: Floats, axis: Floats) -> Floats | None:
    """
    Find the normals of all faces of a pointed cone.

    Parameters
    ----------
    generators : ndarray of float64, shape (k, r)
        Generators that span all r dimensions, as orthonormal columns.
    axis : ndarray of float64, shape (r,)
        A vector with positive products with all generators.

    Returns
    -------
    ndarray of float64, shape (m, r) or None
        Vectors with non-negative products with all generators, up to rounding, not scaled; None where they are more
        than 4,096, or might be: dependent generators in more than six dimensions.

    Examples
    --------
    >>> face_normals(np.eye(2), np.ones(2))
    array([[1., 0.],
           [0., 1.]])
    """
    k, r = generators.shape
    if k == r:  # a square matrix of orthonormal columns: each row is the normal of the face of the others
        return generators
    if r == 1:
        return axis[None, :]
    if r > _FEW_DIMENSIONS and _most_faces(k, r) > _FEW_FACES:
        return None
    places = generators / (generators @ axis)[:, None]  # a slice of the cone, of one dimension less
    middle = places.mean(axis=0)
    across = np.linalg.svd(places - middle, full_matrices=False)[2][: r - 1]
    equations = _hull((places - middle) @ across.T)
    if equations is None or len(equations) > _FEW_FACES:
        return None
    # n . y + c <= 0 for all places y = (x - middle) across at height one
    sides, offsets = equations[:, :-1] @ across, equations[:, -1]
    normals: Floats = np.outer(sides @ middle - offsets, axis) - sides
    return normals


def _most_faces(k: int, r: int) -> int:
    """McMullen, The maximum numbers of faces of a convex polytope, Mathematika 17, 1970, for a slice of the cone."""
    half, odd = divmod(r - 1, 2)
    return 2 * comb(k - half - 1, half) if odd else k * comb(k - half, half) // (k - half)


def _hull(points: Floats) -> Floats | None:
    """Normals and offsets of the sides of a convex hull."""
    if points.shape[1] == 1:
        return np.array([[1.0, -points.max()], [-1.0, points.min()]])
    try:
        equations: Floats = ConvexHull(points).equations
    except QhullError:  # flat up to rounding
        return None
    return equations
