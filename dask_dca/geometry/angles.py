"""Angles of projected rows to an axis, as the paper's 2-D anchors need them, decided exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.planes import Pairs

    Floats = NDArray[np.float64]

__all__ = ["cosine_keys", "inner_products", "integer_pairs", "signed_angles"]

_BITS: Final = 26
_KEY_BITS: Final = 24  # cosines are compared on a grid, so that scaled copies of a row mostly tie
_WHOLE: Final = 2.0**_BITS - 2.0**8  # length of a unit vector in whole numbers


def integer_pairs(pairs: Pairs) -> Pairs:
    """Round the two unit directions of each plane to integers, so that projections are exact.

    Returns the same in whole numbers, float64; numbers of single features, which are exact, as they are.
    """
    if not isinstance(pairs, np.ndarray):
        return sparse.csr_array((np.rint(pairs.data * _WHOLE), pairs.indices, pairs.indptr), shape=pairs.shape)
    return pairs if pairs.dtype.kind == "i" else np.rint(pairs * _WHOLE)


def inner_products(rows: Floats, pairs: Pairs) -> tuple[Floats, NDArray[np.int32]]:
    """Inner products of rows with the directions of planes, exact up to the rounding of each row.

    rows (n, p): rows; a row's products do not depend on the others. Returns products (n, l, s): products, each row in a
    unit of its own; l = 2 directions a plane, or as many as a dense array has; exponents (n,): the units: a row's
    products times 2**exponent are its products with unit vectors.
    """
    size = np.maximum(rows.max(axis=1, initial=0.0), -rows.min(axis=1, initial=0.0))
    exponents = np.frexp(size)[1]
    if pairs.dtype.kind == "i":
        return np.ldexp(rows[:, pairs], -exponents[:, None, None]), exponents
    exponents = exponents + int(np.ceil(np.log2(rows.shape[1]) / 2))
    whole = np.rint(np.ldexp(rows, _BITS - exponents[:, None]))
    if not isinstance(pairs, np.ndarray):
        products = (pairs @ whole.T).reshape(2, -1, len(rows)).transpose(2, 0, 1)
    else:
        levels, count, width = pairs.shape
        products = (whole @ pairs.reshape(levels * count, width).T).reshape(len(rows), levels, count)
    return products, exponents - 2 * _BITS


def cosine_keys(coordinates: Floats) -> Floats:
    """Cosine of the angle to the second direction of each plane, the paper's axis phi, on a grid.

    coordinates (n, 2, s): coordinates in each plane, as `inner_products` returns them, each row in any unit. Returns
    (n, s): cosines times 2**24, rounded; nan at the origin.
    """
    across, along = coordinates[:, 0], coordinates[:, 1]
    length = np.sqrt(across**2 + along**2)
    return np.rint(np.divide(along, np.where(length > 0.0, length, np.nan)) * 2.0**_KEY_BITS)


def signed_angles(coordinates: Floats, middle: Floats) -> Floats:
    """Signed angle of each projected row from a projected middle direction.

    coordinates (n, 2, s): coordinates in each plane, as `inner_products` returns them; middle (2, s): those of a vector
    inside the cone, such as the mean direction: a plane is pointed iff all signed angles from it fit into less than
    half a turn. Returns (n, s): radians in (-pi, pi]; nan for rows whose projection is zero.
    """
    across, along = coordinates[:, 0], coordinates[:, 1]
    x, y = middle
    angle = np.arctan2(y * across - x * along, x * across + y * along)
    return np.where((across == 0.0) & (along == 0.0), np.nan, angle)
