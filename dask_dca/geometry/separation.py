"""A cone made ready to tell points inside from points outside: its axis, planes that bound it, and proofs.

A proof that x is outside is a vector u with u . g >= 0 for every generator g and u . x < 0. Products are compared
with a bound on their rounding errors, so that a proof holds for the numbers as they are stored, not only roughly.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.spatial import ConvexHull, QhullError
from scipy.special import ndtri

from dask_dca.geometry.cone import simplex_coefficients
from dask_dca.geometry.planes import child_seeds, uniforms

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

__all__ = ["Cone", "binary_scale", "face_normals", "is_proof", "prepare_cone", "prove"]

_CENTRAL: Final = 0.05  # cosine to all generators that makes their mean a good axis
_POINTED: Final = 1e-8  # least cosine to an axis below which a cone counts as not pointed
_OFF: Final = 1e-11  # cosine that a face may be off by: of cones that are nearly flat not all faces are found well
_LOOSE: Final = 64.0  # units of rounding that a proof may miss by where there is no axis to lean on
_FEW_DIMENSIONS: Final = 6
_FEW_FACES: Final = 4096


@dataclass(frozen=True)
class Cone:
    """Generators of a cone, and all that does not depend on the points to be tested.

    generators (k, p); lengths (k,); axis (p,); basis (p, r); stretch (r,); even (k, r); normals (m, p).
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
        """Tell whether there is an axis, so that the cone holds no line.

        Returns true where the margin is positive.
        """
        return self.margin > 0


def prepare_cone(generators: ArrayLike, n_planes: int | None = None, seed: int = 0) -> Cone:
    """Prepare a cone for tests of membership.

    generators (k, p): rows that span the cone; they may be of any sign, dependent, repeated or zero; n_planes: number
    of random planes s, each of which gives two normals. By default 4 k, and none where all faces of the cone are known:
    the generators are independent, span at most six dimensions, or have few faces.
    Raises ValueError: not a matrix, or entries are not finite.
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
    """Scale each row by a power of two to a greatest magnitude between one half and one; zero rows stay.

    rows (n, p): finite rows. Returns (n, p): the rows, without rounding (entries 2**1000 times smaller than their row's
    greatest may vanish).
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
    """Make proofs of vectors that are nearly ones.

    X (n, p): points; vectors (n, p): one vector a point; zero where there is none; allowed (n,): distance from the cone
    up to which a point counts as inside. Returns proven (n,): where the vector, corrected, proves that the point is
    further away than that; proofs (n, p): the corrected vectors, of length one.
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


def face_normals(generators: Floats, axis: Floats) -> Floats | None:
    """Find the normals of all faces of a pointed cone.

    generators (k, r): generators that span all r dimensions, as orthonormal columns; axis (r,): A vector with positive
    products with all generators. Returns (m, r): vectors with non-negative products with all generators, up to
    rounding, not scaled; None where they are more than 4,096, or might be: dependent generators in more than six
    dimensions.
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
