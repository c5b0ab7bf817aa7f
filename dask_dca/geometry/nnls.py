"""Least squares over a cone or a simplex, for a block of rows at once, by active sets.

*Block pivoting* exchanges all infeasible variables of all rows at a time, on the Gram matrix: a few rounds
settle nearly every row. Rows whose optimality conditions do not bound their error (cycles, ill-conditioned or
dependent columns) go on with *Lawson and Hanson's* method, one variable a row at a time: slower but finite,
on the Gram matrix first, then on orthogonal factors, which are accurate.

Generators G and rows X are reduced to `root` (r, k) and targets z (n, r) with r <= k, such that
|z_i - root f|^2 = |x_i - f G|^2 + const, by orthogonal factors of G or the square root of its Gram matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from scipy import linalg, sparse
from scipy.optimize import nnls

from dask_dca.geometry.exact import piecewise_matmul

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import ArrayLike, NDArray

    from dask_dca.geometry.arrays import Floats, Mask

    Indices = NDArray[np.intp]
    Projection = Callable[["Problem", Floats, Mask], tuple[Floats, Floats]]

_SLAB_BYTES: Final = 2**25  # temporary memory of one slab of rows, about
_STEPS: Final = 12  # that guess which coefficients are zero
_RELAXATION: Final = 1.8  # of these steps
_EXCHANGES: Final = 20  # rounds of block pivoting; rows that need more are in a cycle
_ACCURACY: Final = 1e-10  # error of a coefficient up to which block pivoting is trusted
_ROUNDING: Final = 1e-14  # relative size of a multiplier up to which it counts as zero
_INDEPENDENT: Final = 1e-6  # pivot from which columns have a Gram matrix that can be factorised
_DEPENDENT: Final = 1e-12  # distance from a span up to which a column counts as inside
_TIE: Final = 1e-9  # relative difference of two gains up to which the lower column wins
_MANY: Final = 8  # exchanges of many generators at a time, which may be in a cycle then ...
_SINGLE: Final = 12  # ... and of one
_SLAB: Final = 2**20  # entries of the matrices that are solved together
_RIDGE: Final = 2.0**-44  # share of the diagonal, so that dependent columns have a solution too
_EXCHANGE_ROUNDING: Final = 2.0**-44  # slope, as a share of the point's length, up to which it counts as zero


@dataclass(frozen=True)
class Guess:
    """What guesses which coefficients are zero where `f H f - 2 c f` is least over f >= 0."""

    inverse: Floats  # (k, k) of the Gram matrix H
    damped: Floats  # (k, k) of H with a multiple of one, which is the median eigenvalue
    median: float

    @classmethod
    def of(cls, gram: Floats) -> Self:
        """Prepare what all rows share; gram (k, k): H, with a diagonal of about one."""
        median = float(np.median(np.linalg.eigvalsh(gram))) if len(gram) else 0.0
        return cls(_inverse(gram), _inverse(gram + median * np.eye(len(gram))), median)

    def zeros(self, products: Floats, whole: Floats) -> Mask:
        """Tell which coefficients are zero, most likely.

        products (n, k): rows c; whole (n, k): these times the inverse.
        J. Eckstein, D. Bertsekas, "On the Douglas-Rachford splitting method and the proximal point algorithm for
        maximal monotone operators", Mathematical Programming 55, 1992: alternating directions, with relaxation. What is
        positive of `near` are coefficients, the rest are multipliers over the median eigenvalue.
        """
        zero = whole <= 0.0
        some = np.flatnonzero(zero.any(axis=1))  # the others are settled
        base = piecewise_matmul(products[some], _RELAXATION * self.damped)
        step = _RELAXATION * (self.median * self.damped - 0.5 * np.eye(len(self.damped)))
        near = whole[some]
        for _ in range(_STEPS):
            near = base + (1.0 - 0.5 * _RELAXATION) * near + piecewise_matmul(np.abs(near), step)
        zero[some] = near <= 0.0
        return zero


def _inverse(matrix: Floats) -> Floats:
    found = np.linalg.inv(matrix)
    return 0.5 * (found + found.T)


@dataclass(frozen=True)
class Problem:
    """Minimise |z - root f|^2 over f >= 0 and, if `affine`, sum f = 1."""

    root: Floats  # (r, k), columns of length about one
    affine: bool
    gram: Floats  # (k, k) inner products of the columns; if `affine`, lifted by a coordinate that is one
    free: Mask  # (k,) independent columns: block pivoting moves these only
    tolerance: float  # violation of the optimality conditions that implies an error of _ACCURACY
    guess: Guess  # of the free columns


def prepare(root: Floats, *, affine: bool) -> Problem:
    """Prepare what all targets share.

    root (r, k): generators (vertices, if `affine`) as columns, the longest of length about one. They may be dependent;
    affine: whether the coefficients sum to one. Returns to be passed to `minimise`.
    """
    lifted = np.vstack([root, np.ones(root.shape[1])]) if affine else root
    triangle, order = linalg.qr(lifted, mode="r", pivoting=True)
    pivots = np.abs(np.diagonal(triangle))
    free = np.zeros(root.shape[1], dtype=bool)
    free[order[: np.count_nonzero(pivots > _INDEPENDENT * pivots.max())]] = True
    curvature = linalg.svdvals(lifted).min() ** 2 if free.all() else 0.0
    gram = lifted.T @ lifted
    return Problem(root, affine, gram, free, _ACCURACY * curvature, Guess.of(gram[np.ix_(free, free)]))


def minimise(problem: Problem, targets: Floats) -> Floats:
    """Minimise |z_i - root f_i|^2 over the cone or simplex for every target z_i.

    targets (n, r): finite. Returns (n, k): coefficients F. A row's have the same bits beside any other rows.
    J. Kim, H. Park, "Fast nonnegative matrix factorization: an active-set-like method and comparisons", SIAM Journal on
    Scientific Computing 33, 2011. C. Lawson, R. Hanson, "Solving Least Squares Problems", Prentice-Hall, 1974, chapter
    23.
    """
    F = np.empty((len(targets), problem.root.shape[1]))
    for part in _slabs(len(F), 3 * (F.shape[1] + 3) ** 2):
        F[part] = _minimise(problem, targets[part])
    return F


def _minimise(problem: Problem, targets: Floats) -> Floats:
    lengths = np.linalg.norm(targets, axis=1, keepdims=True)
    scales = np.where((lengths > 0) & (not problem.affine), lengths, 1.0)  # only a cone may be scaled
    targets = targets / scales
    F = _block_pivoting(problem, targets)
    for project in (_on_gram, _on_factors):
        slopes = _slopes(problem, targets, F)
        violation = np.where(F > 0, np.abs(slopes), slopes).max(axis=1, initial=0.0)
        doubtful = np.flatnonzero(violation > problem.tolerance)
        for part in _slabs(len(doubtful), 5 * problem.root.size):
            rows = doubtful[part]
            F[rows] = _active_set(problem, project, targets[rows], F[rows])
    return F * scales


def _slabs(n: int, floats_a_row: int) -> Iterator[slice]:
    step = max(1, _SLAB_BYTES // (8 * floats_a_row))
    return (slice(start, start + step) for start in range(0, n, step))


def _block_pivoting(problem: Problem, targets: Floats) -> Floats:
    """Exchange all infeasible free variables at once until none is left; (n, k), feasible."""
    products = piecewise_matmul(targets, problem.root)
    rounding = _ROUNDING * _size(targets)
    support = _likely_support(problem, products)
    F = np.zeros_like(products)
    rows = np.arange(len(F))
    for _ in range(_EXCHANGES):
        F[rows] = trial = _stationary(problem, products[rows], support[rows])
        slopes = _slopes(problem, targets[rows], trial)
        wrong = np.where(support[rows], trial < 0, problem.free & (slopes > rounding[rows]))
        support[rows] ^= wrong
        rows = rows[wrong.any(axis=1)]
        if not len(rows):
            break
    F = F.clip(min=0.0)
    return F / F.sum(axis=1, keepdims=True) if problem.affine else F


def _size(targets: Floats) -> Floats:
    """Scale of the rounding errors of targets and columns; (n, 1)."""
    return 1.0 + np.linalg.norm(targets, axis=1, keepdims=True)


def _slopes(problem: Problem, targets: Floats, F: Floats) -> Floats:
    """Multipliers: the rates at which the objective falls along each variable; (n, k)."""
    slopes = piecewise_matmul(targets - piecewise_matmul(F, problem.root.T), problem.root)
    return slopes - (F * slopes).sum(axis=1, keepdims=True) if problem.affine else slopes


def _likely_support(problem: Problem, products: Floats) -> Mask:
    """Which free variables are positive, most likely; if `affine`, of the lifted columns, and at least one."""
    some, support = np.flatnonzero(problem.free), np.zeros(products.shape, dtype=np.bool_)
    lifted = products[:, some] + float(problem.affine)
    support[:, some] = ~problem.guess.zeros(lifted, piecewise_matmul(lifted, problem.guess.inverse))
    if problem.affine:
        none = np.flatnonzero(~support.any(axis=1))
        support[none, some[lifted[none].argmax(axis=1)]] = True
    return support


def _stationary(problem: Problem, products: Floats, support: Mask) -> Floats:
    """Minimise over the variables of each row's support, whatever their signs."""
    if not problem.affine:
        return solve_on_support(problem.gram, products, support)
    F = np.zeros_like(products)
    for rows, columns in rows_by_size(support):
        right = np.take_along_axis(products[rows], columns, axis=1)[..., None]
        right = np.concatenate([right, np.ones_like(right)], axis=2)
        values, ones = np.moveaxis(np.linalg.solve(problem.gram[columns[:, :, None], columns[:, None, :]], right), 2, 0)
        # a multiple of H^-1 1 brings the sum to one
        values += ones * ((1.0 - values.sum(axis=1)) / ones.sum(axis=1))[:, None]
        values[:, 0] = 1.0 - values[:, 1:].sum(axis=1)  # however far the target, one is positive
        F[rows[:, None], columns] = values
    return F


def rows_by_size(support: Mask) -> Iterator[tuple[Indices, Indices]]:
    """Group rows by the size of their supports.

    support (n, k): which columns are in the support of each row. Returns rows (m,): rows whose supports have the same
    size; columns (m, size): the columns of each.
    """
    sizes = support.sum(axis=1)
    order = np.argsort(sizes, kind="stable")
    edges = np.searchsorted(sizes, np.arange(support.shape[1] + 2), sorter=order).tolist()
    for size, (begin, end) in enumerate(pairwise(edges)):
        if end > begin:
            rows = order[begin:end]
            yield rows, np.nonzero(support[rows])[1].reshape(len(rows), size)


def _active_set(problem: Problem, project: Projection, targets: Floats, start: Floats) -> Floats:
    """Lawson and Hanson's method, from feasible rows whose supports are independent."""
    F = start.copy()
    support = F > 0
    rows = np.arange(len(F))
    for _ in range(5 * F.shape[1] + 20):  # 2 k are usual; the limit guards against cycles of rounding errors
        trial, gains = project(problem, targets[rows], support[rows])
        blocking = support[rows] & (trial < 0)
        blocked = blocking.any(axis=1)
        F[rows] = moved = _step(F[rows], trial, blocking)
        support[rows[blocked]] &= moved[blocked] > 0
        best = gains.max(axis=1)
        entering = (gains >= (1.0 - _TIE) * best[:, None]).argmax(axis=1)
        growing = ~blocked & (best > 0)
        support[rows[growing], entering[growing]] = True
        rows = rows[blocked | growing]
        if not len(rows):
            break
    return F


def _step(F: Floats, trial: Floats, blocking: Mask) -> Floats:
    """Go from F to `trial`, or until the first of the row's blocking variables is zero."""
    lengths = np.ones_like(F)
    np.divide(F, F - trial, out=lengths, where=blocking)
    shortest = lengths.min(axis=1, keepdims=True)
    stopped = blocking & (lengths == shortest)
    return np.where(stopped, 0.0, (1.0 - shortest) * F + shortest * trial).clip(min=0.0)


def _on_gram(problem: Problem, targets: Floats, support: Mask) -> tuple[Floats, Floats]:
    """
    Project each target on the span (the affine hull) of its support, quickly.

    Returns the coefficients and the gains, both (m, k). The gain of a column that may enter is its
    multiplier: where that is clearly positive, the column is far from the span.
    """
    coefficients = _stationary(problem, piecewise_matmul(targets, problem.root), support)
    slopes = _slopes(problem, targets, coefficients)
    clear = slopes > _INDEPENDENT * _size(targets)
    return coefficients, np.where(clear & ~support, slopes, 0.0)


def _on_factors(problem: Problem, targets: Floats, support: Mask) -> tuple[Floats, Floats]:
    """
    Project each target on the span (the affine hull) of its support, accurately.

    The gain is the multiplier over the column's distance from the span, zero where that is rounding error:
    the squared distance to the target falls by the gain's square if the column enters.
    """
    coefficients = np.zeros(support.shape)
    gains = np.zeros(support.shape)
    for rows, columns in rows_by_size(support):
        spanning = problem.root.T[columns]  # (m, size, r)
        origin = spanning[:, :1] if problem.affine else np.zeros((1, 1, len(problem.root)))
        Q, T = np.linalg.qr((spanning[:, int(problem.affine) :] - origin).mT)
        target = (targets[rows, None] - origin).mT  # (m, r, 1)
        values = np.linalg.solve(T, Q.mT @ target)[..., 0]
        coefficients[rows[:, None], columns[:, int(problem.affine) :]] = values
        if problem.affine:
            coefficients[rows, columns[:, 0]] = 1.0 - values.sum(axis=1)
        outside = _outside(Q, (problem.root.T - origin).mT)  # (m, r, k)
        distances = np.linalg.norm(outside, axis=1)
        multipliers = (_outside(Q, target).mT @ outside)[:, 0]
        certain = multipliers > _ROUNDING * _size(targets[rows]) * distances
        entering = certain & (distances > _DEPENDENT) & ~support[rows]
        gains[rows] = np.divide(multipliers, distances, out=np.zeros_like(distances), where=entering)
    return coefficients, gains


def _outside(Q: Floats, vectors: Floats) -> Floats:
    """What is orthogonal to the columns of Q."""
    return vectors - Q @ (Q.mT @ vectors)


def exchange(points: Floats, start: Floats, columns: Floats) -> Floats:
    """Minimise |x_i - f_i E|^2 over f_i >= 0, most often: from supports that are nearly right.

    Negative coefficients leave a support all at once; if there are none, the generators of steepest descent join, as
    many as there are dimensions left. Points whose supports have the same size are solved together.
    points (n, r); start (n, k); columns (k, r). Returns (n, k).
    """
    dimensions, gram = columns.shape[1], columns @ columns.T
    gram += _RIDGE * np.diag(gram.diagonal())
    products = piecewise_matmul(points, columns.T)
    least = _EXCHANGE_ROUNDING * np.sqrt((points**2).sum(axis=1, keepdims=True))
    found, support = start.copy(), _largest(start, np.full(len(points), dimensions))
    left = np.arange(len(points))
    for step in range(_MANY + _SINGLE):
        room = dimensions - support[left].sum(axis=1)
        found[left] = trial = solve_on_support(gram, products[left], support[left])
        leaving = trial < 0.0
        closed = support[left] | leaving.any(axis=1, keepdims=True)
        gains = np.where(closed, 0.0, products[left] - piecewise_matmul(trial, gram))
        joining = _largest(np.where(gains > least[left], gains, 0.0), np.minimum(room, 1) if step >= _MANY else room)
        support[left] ^= leaving | joining
        left = left[(leaving | joining).any(axis=1)]
        if not len(left):
            break
    return np.maximum(found, 0.0)


def _largest(values: Floats, counts: NDArray[np.intp]) -> Mask:
    """Which entries are positive and among the largest of their row, as many as it may have, or more where they tie."""
    ordered = np.sort(values, axis=1)[:, ::-1]
    least = np.take_along_axis(ordered, np.clip(counts, 1, values.shape[1])[:, None] - 1, axis=1)
    return (values > 0.0) & (values >= least) & (counts[:, None] > 0)


def solve_on_support(matrix: Floats, right: Floats, support: Mask) -> Floats:
    """Solve each row's equations on its support.

    matrix (k, k): symmetric; right (n, k): right-hand sides; support (n, k): which unknowns a row has. Returns (n, k):
    the unknowns, zero outside the support; a row's have the same bits beside any others.
    """
    found, k = np.zeros_like(right), len(matrix)
    for rows, columns in rows_by_size(support):
        step = max(1, _SLAB // max(columns.shape[1], 1) ** 2)
        for start in range(0, len(rows), step):
            own = columns[start : start + step]
            at = (rows[start : start + step] * k)[:, None] + own
            matrices = matrix.take((own * k)[:, :, None] + own[:, None, :])
            found.put(at, np.linalg.solve(matrices, right.take(at)[..., None]))
    return found


_FEW: Final = 96  # rows up to which setting up a batch costs more than it saves


def nonnegative_coefficients(X: ArrayLike, generators: ArrayLike) -> Floats:
    """
    Minimise `|x_i - f_i G|^2` over f_i >= 0 for every row x_i.

    Parameters
    ----------
    X : array_like or scipy.sparse matrix, shape (n, p)
        Rows of any real dtype.
    generators : array_like, shape (k, p)
        Rows G that span the cone. They may be dependent, repeated or zero, and k may exceed p: f_i G is
        unique, and one of its f_i is returned.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Coefficients F. A row's have the same bits beside any other rows; a zero generator's are zero.

    Raises
    ------
    ValueError
        Shapes do not match, or entries are NaN, infinite or too large to square.

    See Also
    --------
    nonnegative_from_gram : The same from products.
    scipy.optimize.nnls : One row at a time.

    References
    ----------
    .. [1] C. Lawson, R. Hanson, "Solving Least Squares Problems", Prentice-Hall, 1974, chapter 23.

    Examples
    --------
    >>> nonnegative_coefficients([[2.0, 3.0], [1.0, -1.0]], [[1.0, 0.0], [1.0, 1.0]]).round(12)
    array([[0. , 2.5],
           [1. , 0. ]])
    """
    vectors = _matrix(generators, "generators")
    lengths = _scale(np.linalg.norm(vectors, axis=1))
    basis, root = np.linalg.qr((vectors / lengths[:, None]).T)
    return _solve_targets(X, root, basis, np.zeros(len(root)), affine=False) / lengths


def nonnegative_from_gram(gram: ArrayLike, products: ArrayLike) -> Floats:
    """
    Minimise `f H f - 2 c_i f` over f >= 0 for every row c_i.

    These are `nonnegative_coefficients` when only products are known.

    Parameters
    ----------
    gram : array_like, shape (k, k)
        H = G G^T, positive semi-definite.
    products : array_like or scipy.sparse matrix, shape (n, k)
        Rows c_i = x_i G^T. What lies outside the range of H is ignored.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Coefficients F. H has the square of G's condition number, so digits are lost that
        `nonnegative_coefficients` keeps.

    Raises
    ------
    ValueError
        Shapes do not match, or entries are NaN, infinite or too large to square.

    Examples
    --------
    >>> nonnegative_from_gram([[1.0, 1.0], [1.0, 2.0]], [[2.0, 5.0], [1.0, 0.0]]).round(12)
    array([[0. , 2.5],
           [1. , 0. ]])
    """
    matrix = _square(gram)
    lengths = _scale(np.sqrt(matrix.diagonal().clip(min=0.0)))
    root, inverse = _square_root(matrix / np.outer(lengths, lengths))
    return _solve_targets(products, root, inverse / lengths[:, None], np.zeros(len(root)), affine=False) / lengths


def simplex_coefficients(X: ArrayLike, vertices: ArrayLike) -> Floats:
    """
    Minimise `|x_i - b_i V|^2` over the simplex, b_i >= 0 with sum one, for every row x_i.

    Parameters
    ----------
    X : array_like or scipy.sparse matrix, shape (n, p)
        Rows of any real dtype.
    vertices : array_like, shape (k, p)
        Rows V. They may be affinely dependent or repeated: b_i V is unique, and one of its b_i is
        returned.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Coefficients B: b_i V is the point of the convex hull nearest to x_i.

    Raises
    ------
    ValueError
        Shapes do not match, or entries are NaN, infinite or too large to square.

    See Also
    --------
    simplex_from_gram : The same from products.

    Examples
    --------
    >>> simplex_coefficients([[0.5, 0.25], [2.0, 1.0]], [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).round(12)
    array([[0.25, 0.5 , 0.25],
           [0.  , 1.  , 0.  ]])
    """
    points = _matrix(vertices, "vertices")
    centre = points.mean(axis=0)
    size = _scale(np.linalg.norm(points - centre, axis=1).max())
    basis, root = np.linalg.qr((points - centre).T / size)
    return _solve_targets(X, root, basis / size, centre @ basis / size, affine=True)


def simplex_from_gram(gram: ArrayLike, products: ArrayLike) -> Floats:
    """
    Minimise `b H b - 2 c_i b` over the simplex for every row c_i.

    These are `simplex_coefficients` when only products are known.

    Parameters
    ----------
    gram : array_like, shape (k, k)
        H = V V^T, positive semi-definite.
    products : array_like or scipy.sparse matrix, shape (n, k)
        Rows c_i = x_i V^T.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Coefficients B.

    Raises
    ------
    ValueError
        Shapes do not match, or entries are NaN, infinite or too large to square.

    Examples
    --------
    >>> simplex_from_gram([[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.0], [3.0, 0.0]]).round(12)
    array([[0.75, 0.25],
           [1.  , 0.  ]])
    """
    matrix = _square(gram)
    means = matrix.mean(axis=0)
    centred = matrix - means - means[:, None] + means.mean()
    size = _scale(np.sqrt(centred.diagonal().max().clip(min=0.0)))
    root, inverse = _square_root(centred / size**2)
    inverse -= inverse.mean(axis=0)  # centres the products: their means drop out
    return _solve_targets(products, root, inverse / size**2, means @ inverse / size**2, affine=True)


def _solve_targets(rows: Any, root: Floats, left: Floats, shift: Floats, *, affine: bool) -> Floats:
    """Solve for the targets `rows @ left - shift`."""
    dense = not sparse.issparse(rows)
    rows = np.asarray(rows) if dense else rows.tocsr()
    if rows.ndim != 2 or rows.shape[1] != len(left):
        msg = f"expected rows of {len(left)} columns, got an array of shape {rows.shape}"
        raise ValueError(msg)
    with np.errstate(invalid="ignore", over="ignore"):
        whole = rows.astype(np.float64, copy=False)
        targets = (piecewise_matmul(whole, left) if dense else whole @ left) - shift
        unusable = ~np.isfinite((targets**2).sum(axis=1))
    if unusable.any():
        msg = f"row {unusable.argmax()} has entries that are NaN, infinite or too large to square"
        raise ValueError(msg)
    return minimise(prepare(root, affine=affine), targets)


def _square_root(gram: Floats) -> tuple[Floats, Floats]:
    """R and its pseudo-inverse, with R^T R = gram up to rounding."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > len(values) * np.finfo(np.float64).eps * values.max(initial=0.0)
    roots = np.sqrt(np.where(kept, values, 0.0))
    inverses = np.divide(1.0, roots, out=np.zeros_like(roots), where=kept)
    return roots[:, None] * vectors.T, vectors * inverses


def _scale(lengths: Any) -> Any:
    """Divisors: the lengths, or one where they are zero."""
    return np.where(lengths > 0, lengths, 1.0)


def _matrix(values: ArrayLike, name: str) -> Floats:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or not matrix.size:
        msg = f"{name} must be a matrix with at least one entry, got an array of shape {matrix.shape}"
        raise ValueError(msg)
    if not np.isfinite(matrix).all():
        msg = f"{name} has entries that are NaN or infinite"
        raise ValueError(msg)
    return matrix


def _square(gram: ArrayLike) -> Floats:
    matrix = _matrix(gram, "gram")
    if matrix.shape[0] != matrix.shape[1]:
        msg = f"gram must be square, got an array of shape {matrix.shape}"
        raise ValueError(msg)
    return matrix


def residuals(rows: Floats, generators: Floats) -> Floats:
    """Subtract from each row its nearest point in a cone.

    rows (n, d): finite rows; generators (k, d): rows that span the cone; none is the cone {0}. Returns (n, d): what is
    left of each row.
    """
    if not len(generators):
        return rows
    solve = few_coefficients if len(rows) <= _FEW else nonnegative_coefficients
    return rows - solve(rows, generators) @ generators


def few_coefficients(rows: Floats, generators: Floats) -> Floats:
    """Minimise |x_i - f_i G|^2 over f_i >= 0, one row after the other.

    rows (n, d): finite rows; generators (k, d): rows that span the cone. Returns (n, k): coefficients; a row's do not
    depend on the others.
    """
    found = np.zeros((len(rows), len(generators)))
    for i, row in enumerate(rows):
        try:
            found[i] = nnls(generators.T, row)[0]
        except RuntimeError:  # its limit of iterations
            found[i] = nonnegative_coefficients(row[None, :], generators)[0]
    return found
