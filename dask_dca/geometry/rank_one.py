"""Planes in the space of outer products, spanned by axes of rank one: a row's coordinates need no outer product.

The coordinate of vec(x (x) y) on the axis a (x) b is (x . a)(y . b). Axes are drawn view by view; all coordinates
are products of exact numbers, so that they do not depend on how the rows are cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.geometry.angles import integer_pairs
from dask_dca.geometry.planes import child_seeds, plane_pairs, uniforms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["cosine_keys", "draw_axes", "draw_weights", "inner_products", "pointed_planes", "whole_axes"]

_BITS: Final = 26
_KEY_BITS: Final = 24  # cosines are compared on a grid, as in geometry.angles
_FIRST, _SECOND, _WEIGHTS = range(3)  # children of the seed that draw the axes of two views, and the weights


def draw_axes(
    ensemble: str,
    seed: int,
    count: int,
    widths: tuple[int, int],
    sample: tuple[Floats, Floats] | None = None,
) -> tuple[Floats | Numbers, Floats | Numbers]:
    """
    Draw the axes of planes: two of the form a (x) b for each plane.

    Parameters
    ----------
    ensemble : str
        "gaussian", "sparse", "data" (a and b are the two views of one row), or "unit": single features, so that all
        planes together see a random set of feature pairs, the paper's Omega.
    seed : int
        Root seed of the planes.
    count : int
        Number of planes s.
    widths : tuple of int
        Numbers of features of the two views, p1 and p2.
    sample : tuple of ndarray of float64, shapes (m, p1) and (m, p2), optional
        Both views of some rows, for the ensemble "data".

    Returns
    -------
    first, second : ndarray
        The vectors a and b: whole numbers in float64, shapes (2, s, p1) and (2, s, p2); for the ensemble "unit" the
        numbers of the features, int64, both of shape (2, s).

    Examples
    --------
    >>> draw_axes("gaussian", 0, 5, (7, 4))[1].shape
    (2, 5, 4)
    >>> draw_axes("unit", 0, 5, (7, 4))[0].shape
    (2, 5)
    """
    roots = [int(root) for root in child_seeds(seed, np.array([_FIRST, _SECOND]))]
    if ensemble == "data":
        roots[1] = roots[0]  # the same rows
    drawn: list[Floats | Numbers] = []
    for view, root in enumerate(roots):
        if ensemble == "unit":
            own = child_seeds(root, np.arange(2 * count))
            drawn.append((uniforms(own, 1)[:, 0] * widths[view]).astype(np.int64).reshape(count, 2).T)
            continue
        rows = None if sample is None else _scaled(sample[view])
        drawn.append(integer_pairs(plane_pairs(ensemble, root, np.arange(count), widths[view], rows)))
    return drawn[0], drawn[1]


def whole_axes(vectors: Floats) -> Floats:
    """
    Round vectors to whole numbers, as axes of their own directions.

    Parameters
    ----------
    vectors : ndarray of float64, shape (s, p)
        Vectors; zero ones stay zero.

    Returns
    -------
    ndarray of float64, shape (1, s, p)
        Whole numbers along the unit vectors.
    """
    scaled = _scaled(vectors)
    norms = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
    return integer_pairs(scaled / np.where(norms > 0, norms, 1.0))[None]


def draw_weights(seed: int, count: int, width: int) -> Floats:
    """
    Draw the paper's eta: vectors from the unit sphere, whose products with the third view weigh the rows.

    Parameters
    ----------
    seed : int
        Root seed of the planes.
    count : int
        How many.
    width : int
        Number of features p3 of the third view.

    Returns
    -------
    ndarray of float64, shape (1, count, p3)
        Whole numbers along unit vectors.
    """
    root = int(child_seeds(seed, _WEIGHTS))
    return whole_axes(ndtri(uniforms(child_seeds(root, np.arange(count)), width)))


def inner_products(view: Floats, axes: Floats | Numbers) -> tuple[Floats, NDArray[np.int32]]:
    """
    Inner products of the rows of one view with axes, exact up to the rounding of each row.

    Parameters
    ----------
    view : ndarray of float64, shape (n, p)
        One view of some rows. Their products do not depend on the other rows.
    axes : ndarray, shape (l, s, p) or (l, s)
        Whole vectors, or the numbers of single features.

    Returns
    -------
    products : ndarray of float64, shape (n, l, s)
        Products, each row in a unit of its own.
    exponents : ndarray of int, shape (n,)
        The units: a row's products times 2**exponent are its products with unit vectors.

    Examples
    --------
    >>> products, exponents = inner_products(np.array([[3.0, 5.0]]), np.array([[1, 0]]))
    >>> np.ldexp(products, exponents[:, None, None])
    array([[[5., 3.]]])
    """
    exponents = np.frexp(np.abs(view).max(axis=1, initial=0.0))[1]
    if axes.ndim == 2:
        return np.ldexp(view, -exponents[:, None])[:, axes], exponents
    exponents = exponents + int(np.ceil(np.log2(view.shape[1]) / 2))
    whole = np.rint(np.ldexp(view, _BITS - exponents[:, None]))
    levels, count, width = axes.shape
    products = whole @ axes.reshape(levels * count, width).T
    return products.reshape(len(view), levels, count), exponents - 2 * _BITS


def cosine_keys(coordinates: Floats) -> Floats:
    """
    Cosine of the angle to the second axis of each plane, the paper's axis phi, on a grid.

    Parameters
    ----------
    coordinates : ndarray of float64, shape (n, 2, s)
        Coordinates in each plane, each row in any unit.

    Returns
    -------
    ndarray of float64, shape (n, s)
        Cosines times 2**24, rounded; nan at the origin.

    Examples
    --------
    >>> cosine_keys(np.array([[[3.0], [4.0]], [[0.0], [0.0]]])) / 2**24
    array([[0.80000001],
           [       nan]])
    """
    across, along = coordinates[:, 0], coordinates[:, 1]
    with np.errstate(invalid="ignore"):
        return np.rint(along / np.sqrt(across**2 + along**2) * 2.0**_KEY_BITS)


def pointed_planes(coordinates: Floats) -> NDArray[np.bool_]:
    """
    Tell on which planes some points leave a gap of more than half a turn.

    Parameters
    ----------
    coordinates : ndarray of float64, shape (n, 2, s)
        Coordinates in each plane; points at the origin are left out.

    Returns
    -------
    ndarray of bool, shape (s,)
        False also where all points are at the origin.

    Examples
    --------
    >>> pointed_planes(np.array([[[1.0, 1.0], [0.0, 0.0]], [[0.0, -1.0], [1.0, 0.0]]]))
    array([ True, False])
    """
    there = coordinates.any(axis=1)
    angles = np.arctan2(coordinates[:, 1], coordinates[:, 0])
    one = np.take_along_axis(angles, there.argmax(axis=0)[None], axis=0)  # in place of points at the origin
    angles = np.sort(np.where(there, angles, one), axis=0)
    gaps = np.diff(angles, axis=0, append=angles[:1] + 2.0 * np.pi)
    return np.asarray(there.any(axis=0) & (gaps.max(axis=0) > np.pi))


def _scaled(vectors: Floats) -> Floats:
    """Scale rows by powers of two: squares of huge and of tiny entries are out of range."""
    exponents = np.frexp(np.abs(vectors).max(axis=1, initial=0.0))[1]
    return np.ldexp(vectors, -exponents[:, None])
