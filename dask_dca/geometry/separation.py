"""Minimal conical hulls MCH(X, Y), and cones prepared for tests of membership.

A proof that x is outside a cone is a vector u with u . g >= 0 for every generator g and u . x < 0. Products are
compared with bounds on their rounding errors, so that proofs hold exactly for the stored numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import ConvexHull, QhullError
from scipy.special import ndtri

from dask_dca.geometry.arrays import Floats, Mask, Numbers
from dask_dca.geometry.nnls import coefficients_row_by_row, cone_residuals, simplex_coefficients
from dask_dca.geometry.planes import binary_scale, child_seeds, uniforms

_MIN_MEAN_COSINE: Final = 0.05  # least cosine of the mean generator to all generators at which it serves as the axis
_MIN_MARGIN: Final = 1e-8  # least cosine of the axis to a generator up to which a cone counts as not pointed
# error of a face, as a cosine, up to which all faces count as known; nearly flat cones exceed it
_FACE_TOL: Final = 1e-11
_MAX_ROUNDING_UNITS: Final = 64.0  # rounding errors that a proof may violate where there is no axis to correct it with
_MAX_HULL_DIMENSIONS: Final = 6  # dimension up to which faces of any generators are computed
_MAX_FACES: Final = 4096  # greatest number of faces that are kept


@dataclass(frozen=True)
class Cone:
    """Generators of a cone, and everything else that does not depend on the points to be tested.

    generators (k, p); lengths (k,); axis (p,) inside the dual cone, and its least cosine to a generator, the margin;
    basis (p, r), singular_values (r,), whitened (k, r): singular value decomposition of the unit generators; normals
    (m, p) of half-spaces that contain the cone; complete: whether these are all its faces; rounding: error bound of
    the product of a unit vector and a unit generator.
    """

    generators: Floats
    lengths: Floats
    axis: Floats
    margin: float
    basis: Floats
    singular_values: Floats
    whitened: Floats
    normals: Floats
    complete: bool
    rounding: float

    @property
    def is_pointed(self) -> bool:
        """Whether there is an axis, so that the cone contains no line."""
        return self.margin > 0


def prepare_cone(generators: ArrayLike, n_planes: int | None = None, seed: int = 0) -> Cone:
    """Prepare a cone for tests of membership.

    generators (k, p): rows that span the cone, of any sign, perhaps dependent, repeated or zero; n_planes: number of
    random planes, each of which gives two normals. By default 4 k, or none where all faces of the cone are known: the
    generators are independent, span at most six dimensions, or have few faces.
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
    rounding = 2.0**-52 * (np.sqrt(r) * p + r + 8.0)
    spans = right[:r].T, values[:r], left[:, :r]
    bare = Cone(vectors, lengths, *_axis(units), *spans, np.zeros((0, p)), complete=False, rounding=rounding)
    normals, complete = _normals(bare, n_planes, seed)
    return Cone(**{**vars(bare), "normals": normals, "complete": complete})


def _axis(units: Floats) -> tuple[Floats, float]:
    """A unit vector inside the dual cone, and its least product with a generator; zeros if there is none.

    The point of the convex hull of the unit generators that is nearest to the origin maximises that product.
    """
    p = units.shape[1]
    if not len(units):
        return np.zeros(p), 1.0  # the cone {0}: any vector is a proof
    axis = units.mean(axis=0)
    axis /= max(float(np.sqrt(axis @ axis)), 1e-300)
    if (units @ axis).min() < _MIN_MEAN_COSINE:
        axis = (simplex_coefficients(np.zeros((1, p)), units) @ units)[0]
        axis /= max(float(np.sqrt(axis @ axis)), 1e-300)
    margin = float((units @ axis).min())
    return (axis, margin) if margin > _MIN_MARGIN else (np.zeros(p), 0.0)


def _normals(cone: Cone, n_planes: int | None, seed: int) -> tuple[Floats, bool]:
    """The axis, and the faces of the cone if they are few, else two bounds on each random plane; whether complete."""
    if not cone.is_pointed or not len(cone.generators):
        return np.zeros((0, len(cone.axis))), not len(cone.generators)
    faces = face_normals(cone.whitened, (cone.axis @ cone.basis) * cone.singular_values)
    found = [cone.axis[None, :]]
    if faces is not None:
        found.append((faces / cone.singular_values) @ cone.basis.T)
    count = n_planes if n_planes is not None else 4 * len(cone.generators) if faces is None else 0
    if count:
        found.append(_plane_bounds(cone, count, seed))
    normals = np.concatenate(found)
    lengths = np.sqrt((normals**2).sum(axis=1))
    normals = normals[lengths > 0] / lengths[lengths > 0, None]
    normals, short = _move_into_dual(normals, cone)
    return normals, faces is not None and bool(short.max() <= max(_FACE_TOL, 4.0 * cone.rounding))


def _plane_bounds(cone: Cone, count: int, seed: int) -> Floats:
    """Normals (2 count, p) of the bounds on the generators' ratios in random planes that contain the axis."""
    heights = cone.generators @ cone.axis
    places = cone.generators / heights[:, None]
    every = np.arange(count)
    draws = ndtri(uniforms(child_seeds(seed, every), len(places)))
    # directions in the row space, spread as the generators, and isotropic in the whitened coordinates
    inside = draws @ (places - places.mean(axis=0))
    spread = (draws[:, : len(cone.singular_values)] / cone.singular_values) @ cone.basis.T
    directions = np.where((every % 2 == 0)[:, None], inside, spread)
    ratios = places @ directions.T
    low, high = np.outer(ratios.min(axis=0), cone.axis), np.outer(ratios.max(axis=0), cone.axis)
    return np.concatenate([high - directions, directions - low])


def _move_into_dual(vectors: Floats, cone: Cone) -> tuple[Floats, Floats]:
    """Rotate unit vectors towards the axis until their products with all generators exceed rounding errors.

    Returns unit vectors, and by how much each fell short, as a cosine.
    """
    if not len(cone.generators):
        return vectors, np.zeros(len(vectors))
    cosines = (vectors @ cone.generators.T) / cone.lengths
    short = np.maximum(2.0 * cone.rounding - cosines.min(axis=1), 0.0)
    if cone.is_pointed:
        vectors = vectors + np.outer(short / cone.margin, cone.axis)
        vectors /= np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    return vectors, short


def prove_outside(X: Floats, vectors: Floats, cone: Cone, allowed: Floats) -> tuple[Mask, Floats]:
    """Correct vectors that are nearly proofs, and test them.

    X (n, p): points; vectors (n, p): one per point, zero where there is none; allowed (n,): distance from the cone up
    to which a point counts as inside. Returns proven (n,): where the point is proven to be further away; proofs (n, p):
    the corrected unit vectors.
    """
    sizes = np.sqrt((vectors**2).sum(axis=1))
    proofs, short = _move_into_dual(vectors / np.where(sizes > 0, sizes, 1.0)[:, None], cone)
    heights = (X * proofs).sum(axis=1)
    proven = (sizes > 0) & (heights < -(allowed + cone.rounding * np.sqrt((X**2).sum(axis=1))))
    return (proven if cone.is_pointed else proven & (short <= _MAX_ROUNDING_UNITS * cone.rounding)), proofs


def is_proof(proofs: ArrayLike, X: ArrayLike, generators: ArrayLike) -> Mask:
    """
    Check proofs that points are outside a cone, in plain floating-point arithmetic.

    Parameters
    ----------
    proofs : array_like, shape (n, p)
        One vector u per point.
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

    generators (k, r): orthonormal columns; axis (r,): a vector with positive products with all generators. Returns
    (m, r): vectors of any length with non-negative products with all generators, up to rounding; None where they are
    more than 4,096, or might be: dependent generators in more than six dimensions.
    """
    k, r = generators.shape
    if k == r:  # a square matrix of orthonormal columns: each row is the normal of the face of the others
        return generators
    if r == 1:
        return axis[None, :]
    if r > _MAX_HULL_DIMENSIONS and _max_faces(k, r) > _MAX_FACES:
        return None
    places = generators / (generators @ axis)[:, None]  # a slice of the cone, with one dimension less
    middle = places.mean(axis=0)
    across = np.linalg.svd(places - middle, full_matrices=False)[2][: r - 1]
    equations = _hull_equations((places - middle) @ across.T)
    if equations is None or len(equations) > _MAX_FACES:
        return None
    # n . y + c <= 0 for all places y = (x - middle) across at height one
    sides, offsets = equations[:, :-1] @ across, equations[:, -1]
    return np.outer(sides @ middle - offsets, axis) - sides


def _max_faces(k: int, r: int) -> int:
    """Upper bound on the number of faces of a slice of the cone.

    P. McMullen, The maximum numbers of faces of a convex polytope, Mathematika 17, 1970.
    """
    half, odd = divmod(r - 1, 2)
    return 2 * comb(k - half - 1, half) if odd else k * comb(k - half, half) // (k - half)


def _hull_equations(points: Floats) -> Floats | None:
    """Normals and offsets (m, r) of the facets of a convex hull; None if it is flat."""
    if points.shape[1] == 1:
        return np.array([[1.0, -points.max()], [-1.0, points.min()]])
    try:
        equations: Floats = ConvexHull(points).equations
    except QhullError:  # flat up to rounding
        return None
    return equations


COVERING_SOLVERS: Final = ("lp", "xray")
_COVER_TOL: Final = 1e-7  # distance from a cone up to which a unit row counts as covered


def minimal_hull(X: ArrayLike, Y: ArrayLike, among: Numbers | None = None) -> Numbers:
    """
    Remove rows of Y, the one at the greatest angle to X first, as long as the others cover as much of X.

    The paper's minimal conical hull: rows of Y whose cone covers X, of which none can be left out, nor exchanged for
    one that is nearer to X. It is what the LP test leaves where X = Y, and in the plane the paper's closed form.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Rows to be covered, of any sign. Rows that the cone of Y does not cover are ignored.
    Y : array_like, shape (m, d)
        Rows to choose from.
    among : ndarray of int64, shape (c,), optional
        Rows of Y to start from; all if None.

    Returns
    -------
    ndarray of int64
        Row numbers of Y, increasing; only the first of scaled copies of a row.

    Examples
    --------
    >>> Y = [[5.0, 1.0], [2.0, 1.0], [1.0, 1.0], [1.0, 3.0], [1.0, 9.0]]
    >>> minimal_hull([[1.0, 1.2], [1.0, 2.0]], Y)
    array([2, 3])
    """
    rows, points = unit_rows(X), unit_rows(Y)
    left = np.flatnonzero(points.any(axis=1)) if among is None else np.asarray(among)
    left = left[np.lexsort((left, _angular_distances(points[left], rows)))]  # the nearest first
    shares = _coefficients(rows, points[left])
    covered = _lengths(rows - shares @ points[left]) <= _COVER_TOL
    rows, shares = rows[covered], shares[covered]
    for place in range(len(left) - 1, -1, -1):
        users = np.flatnonzero(shares[:, place] > 0.0)
        others = np.delete(np.arange(len(left)), place)
        without = _coefficients(rows[users], points[left[others]])
        if (_lengths(rows[users] - without @ points[left[others]]) <= _COVER_TOL).all():
            shares = shares[:, others]
            shares[users] = without
            left = left[others]
    return np.sort(left).astype(np.int64)


def pursue(X: ArrayLike, Y: ArrayLike, n_anchors: int | None = None) -> Numbers:
    """
    Choose rows of Y one by one along residuals of X, as XRAY does, by the paper's rule for X and Y: just beyond X.

    The greatest residual of a row of X is a direction. Of the rows of Y that reach at least as far along it as all of
    X, the nearest is chosen; if there is none, the one that reaches furthest.

    Parameters
    ----------
    X : array_like, shape (n, d)
        Rows to be covered.
    Y : array_like, shape (m, d)
        Rows to choose from.
    n_anchors : int, optional
        Greatest number of rows; as many as cover X if None.

    Returns
    -------
    ndarray of int64
        Row numbers of Y, increasing; if fewer than n_anchors cover X, redundant rows are removed.

    Examples
    --------
    >>> Y = [[5.0, 1.0], [2.0, 1.0], [1.0, 1.0], [1.0, 3.0], [1.0, 9.0]]
    >>> pursue([[1.0, 1.2], [1.0, 2.0]], Y)
    array([2, 3])
    """
    rows, points = unit_rows(X), unit_rows(Y)
    chosen: list[int] = []
    while len(chosen) < (len(points) if n_anchors is None else n_anchors):
        residual = cone_residuals(rows, points[np.array(chosen, dtype=np.intp)])
        lengths = _lengths(residual)
        if lengths.max(initial=0.0) <= _COVER_TOL:
            break
        row = int(lengths.argmax())
        reach = points @ residual[row]
        reach[chosen] = -np.inf
        if reach.max(initial=0.0) <= 0.0:  # no row of Y brings it nearer
            rows = np.delete(rows, row, axis=0)
            continue
        beyond = reach >= (rows @ residual[row]).max() - _COVER_TOL
        chosen.append(int(np.where(beyond, reach, np.inf).argmin() if beyond.any() else reach.argmax()))
    found = np.array(sorted(chosen), dtype=np.int64)
    return found if len(found) == n_anchors else minimal_hull(X, Y, found)


def covering_rows(solver: str, X: ArrayLike, Y: ArrayLike) -> Numbers:
    """Solve MCH(X, Y) by a named solver.

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


def unit_rows(rows: ArrayLike) -> Floats:
    """Scale rows to length one without overflow; zero rows stay zero."""
    scaled = binary_scale(np.asarray(rows, dtype=np.float64))
    lengths = _lengths(scaled)
    return scaled / np.where(lengths > 0.0, lengths, 1.0)[:, None]


def _coefficients(rows: Floats, generators: Floats) -> Floats:
    return coefficients_row_by_row(rows, generators) if len(generators) else np.zeros((len(rows), 0))


def _lengths(rows: Floats) -> Floats:
    return np.asarray(np.linalg.norm(rows, axis=1))


def _angular_distances(points: Floats, rows: Floats) -> Floats:
    """An increasing function of each point's angle to the cone of the rows, on a grid, so that copies of a point tie.

    It is the sine up to a right angle; beyond, where the nearest ray of the cone is one of the rows, 1 - cosine.
    """
    cosines = (points @ rows.T).max(axis=1, initial=-1.0)
    away = np.where(cosines < 0.0, 1.0 - cosines, _lengths(points - _coefficients(points, rows) @ rows))
    return np.rint(away / _COVER_TOL)


def axis_angles(points: ArrayLike, axis: ArrayLike = (0.0, 1.0)) -> Floats:
    """
    Unsigned angle between each point and an axis.

    Parameters
    ----------
    points : array_like, shape (n, 2)
        Points in the plane, any real dtype.
    axis : array_like, shape (2,), optional
        Direction phi of the axis; the vertical one by default.

    Returns
    -------
    ndarray of float64, shape (n,)
        Angles in [0, pi], NaN for points at the origin. They are computed from sine and cosine, because the cosine
        alone is inaccurate near 0 and pi, and integer points on one ray tie exactly.

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
    pointed_extent : The extremes, independent of an axis.

    Notes
    -----
    This is the paper's equation (equ:2Danchor) as printed. Its angles have no sign, so that it gives the minimal
    conical hull only if all rows of X and Y lie on one side of the line through the axis: there the
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
        return _first_least(covered), _first_least(-covered)
    angles = axis_angles(Y, axis)
    covered = covered[~np.isnan(covered)]
    if not len(covered):
        return -1, -1
    return _first_least(_positive_part(covered.min() - angles)), _first_least(_positive_part(angles - covered.max()))


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
    """The paper's (x)_+: x where x >= 0, else infinity."""
    return np.where(values >= 0, values, np.inf)


def _first_least(values: Floats) -> int:
    """Return the first index of the least finite value, -1 if none is finite."""
    usable = np.where(np.isfinite(values), values, np.inf)
    return int(usable.argmin()) if np.isfinite(usable).any() else -1
