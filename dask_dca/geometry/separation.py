"""A cone made ready to tell points inside from points outside: its axis, planes that bound it, and proofs.

A proof that x is outside is a vector u with u . g >= 0 for every generator g and u . x < 0. Products are compared
with a bound on their rounding errors, so that a proof holds for the numbers as they are stored, not only roughly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.geometry.cone import simplex_coefficients
from dask_dca.geometry.faces import face_normals
from dask_dca.geometry.planes import child_seeds, uniforms

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

__all__ = ["Cone", "binary_scale", "is_proof", "prepare_cone", "prove"]

_CENTRAL: Final = 0.05  # cosine to all generators that makes their mean a good axis
_POINTED: Final = 1e-8  # least cosine to an axis below which a cone counts as not pointed
_OFF: Final = 1e-11  # cosine that a face may be off by: of cones that are nearly flat not all faces are found well
_LOOSE: Final = 64.0  # units of rounding that a proof may miss by where there is no axis to lean on


@dataclass(frozen=True)
class Cone:
    """
    Generators of a cone, and all that does not depend on the points to be tested.

    Attributes
    ----------
    generators : ndarray of float64, shape (k, p)
        The generators that are not zero, each scaled by a power of two.
    lengths : ndarray of float64, shape (k,)
        Their lengths.
    axis : ndarray of float64, shape (p,)
        Unit vector with positive products with all generators; zero where there is none.
    margin : float
        The least cosine of a generator to the axis; 0 where the cone is not pointed.
    basis : ndarray of float64, shape (p, r)
        Orthonormal basis of the span of the generators.
    stretch : ndarray of float64, shape (r,)
        Singular values: x @ basis / stretch are *even* coordinates, in which the generators are orthonormal columns.
    even : ndarray of float64, shape (k, r)
        Unit generators in even coordinates.
    normals : ndarray of float64, shape (m, p)
        Unit vectors with non-negative products with all generators, proven: the planes to test points by.
    complete : bool
        Whether the normals are all faces of the cone, so that no point outside is missed.
    slack : float
        Bound on the rounding error of a product of two unit vectors, in any of the coordinates.
    """

    generators: Floats
    lengths: Floats
    axis: Floats
    margin: float
    basis: Floats
    stretch: Floats
    even: Floats
    normals: Floats
    complete: bool
    slack: float

    @property
    def is_pointed(self) -> bool:
        """
        Tell whether there is an axis, so that the cone holds no line.

        Returns
        -------
        bool
            True where the margin is positive.
        """
        return self.margin > 0


def prepare_cone(generators: ArrayLike, n_planes: int | None = None, seed: int = 0) -> Cone:
    """
    Prepare a cone for tests of membership.

    Parameters
    ----------
    generators : array_like, shape (k, p)
        Rows that span the cone; they may be of any sign, dependent, repeated or zero.
    n_planes : int, optional
        Number of random planes s, each of which gives two normals. By default 4 k, and none where all faces of the
        cone are known: the generators are independent, span at most six dimensions, or have few faces.
    seed : int, default 0
        Seed of the planes.

    Returns
    -------
    Cone
        For `membership.contained`.

    Raises
    ------
    ValueError
        Not a matrix, or entries are not finite.

    Examples
    --------
    >>> cone = prepare_cone([[1.0, 0.0], [1.0, 1.0]])
    >>> cone.is_pointed, cone.complete
    (True, True)
    >>> prepare_cone([[1.0, 0.0], [-1.0, 0.0]]).is_pointed
    False
    """
    vectors = np.asarray(generators, dtype=np.float64)
    if vectors.ndim != 2 or not vectors.shape[1] or not np.isfinite(vectors).all():
        msg = f"generators must be a matrix of finite numbers, got an array of shape {vectors.shape}"
        raise ValueError(msg)
    vectors = binary_scale(vectors[vectors.any(axis=1)])
    k, p = vectors.shape
    lengths = np.sqrt((vectors**2).sum(axis=1))
    units = vectors / lengths[:, None]
    left, values, right = np.linalg.svd(units, full_matrices=False)
    r = int(np.count_nonzero(values > 8.0 * max(k, p) * np.finfo(np.float64).eps * values.max(initial=0.0)))
    slack = 2.0**-52 * (np.sqrt(r) * p + r + 8.0)
    spans = right[:r].T, values[:r], left[:, :r]
    bare = Cone(vectors, lengths, *_axis(units), *spans, np.zeros((0, p)), complete=False, slack=slack)
    normals, complete = _normals(bare, n_planes, seed)
    return Cone(**{**vars(bare), "normals": normals, "complete": complete})


def binary_scale(rows: Floats) -> Floats:
    """
    Scale each row by a power of two to a greatest magnitude between one half and one; zero rows stay.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, p)
        Finite rows.

    Returns
    -------
    ndarray of float64, shape (n, p)
        The rows, without rounding (entries 2**1000 times smaller than their row's greatest may vanish).

    Examples
    --------
    >>> binary_scale(np.array([[3.0, 1.0], [0.0, 0.0]]))
    array([[0.75, 0.25],
           [0.  , 0.  ]])
    """
    peaks = np.abs(rows).max(axis=1, initial=0.0)
    return np.ldexp(rows, -np.frexp(peaks)[1][:, None])


def _axis(units: Floats) -> tuple[Floats, float]:
    """A unit vector inside the dual cone, and its least product with a generator: the hull's point nearest to zero."""
    p = units.shape[1]
    if not len(units):
        return np.zeros(p), 1.0  # the cone {0}: any vector is a proof as it stands
    axis = units.mean(axis=0)
    axis /= max(float(np.sqrt(axis @ axis)), 1e-300)
    if (units @ axis).min() < _CENTRAL:
        axis = (simplex_coefficients(np.zeros((1, p)), units) @ units)[0]
        axis /= max(float(np.sqrt(axis @ axis)), 1e-300)
    margin = float((units @ axis).min())
    return (axis, margin) if margin > _POINTED else (np.zeros(p), 0.0)


def _normals(cone: Cone, n_planes: int | None, seed: int) -> tuple[Floats, bool]:
    """The axis, the faces of the cone where they are few, and else its two bounds on each random plane."""
    if not cone.is_pointed or not len(cone.generators):
        return np.zeros((0, len(cone.axis))), not len(cone.generators)
    faces = face_normals(cone.even, (cone.axis @ cone.basis) * cone.stretch)
    found = [cone.axis[None, :]]
    if faces is not None:
        found.append((faces / cone.stretch) @ cone.basis.T)
    count = n_planes if n_planes is not None else 4 * len(cone.generators) if faces is None else 0
    if count:
        found.append(_plane_bounds(cone, count, seed))
    normals = np.concatenate(found)
    lengths = np.sqrt((normals**2).sum(axis=1))
    normals = normals[lengths > 0] / lengths[lengths > 0, None]
    normals, short = _lean(normals, cone)
    return normals, faces is not None and bool(short.max() <= max(_OFF, 4.0 * cone.slack))


def _plane_bounds(cone: Cone, count: int, seed: int) -> Floats:
    """On the plane of the axis a and a direction b, generators have ratios between two bounds: (2 count, p)."""
    heights = cone.generators @ cone.axis
    places = cone.generators / heights[:, None]
    every = np.arange(count)
    draws = ndtri(uniforms(child_seeds(seed, every), len(places)))
    inside = draws @ (places - places.mean(axis=0))  # in the row space, as the generators lie
    spread = (draws[:, : len(cone.stretch)] / cone.stretch) @ cone.basis.T  # and alike in all directions of it
    directions = np.where((every % 2 == 0)[:, None], inside, spread)
    ratios = places @ directions.T
    low, high = np.outer(ratios.min(axis=0), cone.axis), np.outer(ratios.max(axis=0), cone.axis)
    return np.concatenate([high - directions, directions - low])


def _lean(vectors: Floats, cone: Cone) -> tuple[Floats, Floats]:
    """
    Lean unit vectors towards the axis until their products with all generators are above rounding errors.

    Returns unit vectors, and by how much each fell short, as a cosine.
    """
    if not len(cone.generators):
        return vectors, np.zeros(len(vectors))
    cosines = (vectors @ cone.generators.T) / cone.lengths
    short = np.maximum(2.0 * cone.slack - cosines.min(axis=1), 0.0)
    if cone.is_pointed:
        vectors = vectors + np.outer(short / cone.margin, cone.axis)
        vectors /= np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    return vectors, short


def prove(X: Floats, vectors: Floats, cone: Cone, allowed: Floats) -> tuple[Mask, Floats]:
    """
    Make proofs of vectors that are nearly ones.

    Parameters
    ----------
    X : ndarray of float64, shape (n, p)
        Points.
    vectors : ndarray of float64, shape (n, p)
        One vector a point; zero where there is none.
    cone : Cone
        The cone.
    allowed : ndarray of float64, shape (n,)
        Distance from the cone up to which a point counts as inside.

    Returns
    -------
    proven : ndarray of bool, shape (n,)
        Where the vector, corrected, proves that the point is further away than that.
    proofs : ndarray of float64, shape (n, p)
        The corrected vectors, of length one.
    """
    sizes = np.sqrt((vectors**2).sum(axis=1))
    proofs, short = _lean(vectors / np.where(sizes > 0, sizes, 1.0)[:, None], cone)
    heights = (X * proofs).sum(axis=1)
    proven = (sizes > 0) & (heights < -(allowed + cone.slack * np.sqrt((X**2).sum(axis=1))))
    return (proven if cone.is_pointed else proven & (short <= _LOOSE * cone.slack)), proofs


def is_proof(proofs: ArrayLike, X: ArrayLike, generators: ArrayLike) -> Mask:
    """
    Check proofs that points are outside a cone, in plain floating-point arithmetic.

    Parameters
    ----------
    proofs : array_like, shape (n, p)
        One vector u a point.
    X : array_like, shape (n, p)
        The points.
    generators : array_like, shape (k, p)
        Generators of the cone.

    Returns
    -------
    ndarray of bool, shape (n,)
        Whether u . g >= 0 for all generators g and u . x < 0.

    Examples
    --------
    >>> is_proof([[0.0, 1.0], [0.0, 1.0]], [[1.0, -1.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]])
    array([ True, False])
    """
    vectors = np.asarray(proofs, dtype=np.float64)
    rays = binary_scale(np.asarray(generators, dtype=np.float64))
    points = binary_scale(np.asarray(X, dtype=np.float64))
    behind: Mask = (vectors * points).sum(axis=1) < 0
    return behind & ((vectors @ rays.T).min(axis=1, initial=0.0) >= -(2.0**-52) * rays.shape[1])
