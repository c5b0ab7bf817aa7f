"""Least squares over a cone or a simplex for many rows at once, by active-set methods.

*Block pivoting* on the Gram matrix exchanges all infeasible variables of all rows at once; a few rounds solve nearly
every row. Rows whose optimality conditions do not bound their error (cycles, ill-conditioned or dependent columns) go
on with *Lawson and Hanson's* method, which exchanges one variable per row at a time and is slower, but finite: on the
Gram matrix first, then by QR factorisations, which are accurate.

Generators G and rows X are reduced to `root` (r, k) and targets z (n, r) with r <= k, such that
|z_i - root f|^2 = |x_i - f G|^2 + const, by orthogonal factors of G or the square root of its Gram matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from scipy.optimize import nnls

from dask_dca.geometry.arrays import Floats, Mask
from dask_dca.geometry.exact import piecewise_matmul

Indices = NDArray[np.intp]
Projection = Callable[["Problem", Floats, Mask], tuple[Floats, Floats]]

_SLAB_BYTES: Final = 2**25  # approximate temporary memory of one slab of rows
_SPLITTING_STEPS: Final = 12  # Douglas-Rachford steps that predict which coefficients are zero
_RELAXATION: Final = 1.8  # over-relaxation of the Douglas-Rachford steps
_MAX_PIVOTING_ROUNDS: Final = 20  # rounds of block pivoting; rows that need more are in a cycle
_COEFFICIENT_TOL: Final = 1e-10  # error of a coefficient up to which the result of block pivoting is accepted
_MULTIPLIER_TOL: Final = 1e-14  # relative size of a multiplier up to which it counts as zero
_PIVOT_TOL: Final = 1e-6  # relative QR pivot from which columns count as independent enough for their Gram matrix
_SPAN_TOL: Final = 1e-12  # distance from a span up to which a column counts as dependent
_TIE_TOL: Final = 1e-9  # relative difference of two gains up to which the lower column wins
_BLOCK_EXCHANGES: Final = 8  # rounds of `exchange_supports` in which many generators may join at once
_SINGLE_EXCHANGES: Final = 12  # further rounds in which one generator may join, so that cycles end
_SLAB_ENTRIES: Final = 2**20  # entries of the matrices that are factorised together
_RELATIVE_RIDGE: Final = 2.0**-44  # ridge relative to the diagonal, so that dependent columns have a solution, too
_SLOPE_TOL: Final = 2.0**-44  # gradient, relative to the point's length, up to which it counts as zero


@dataclass(frozen=True)
class SupportPredictor:
    """Predictor of which coefficients are zero at the minimum of `f H f - 2 c f` over f >= 0."""

    inverse: Floats  # (k, k) of the Gram matrix H
    damped: Floats  # (k, k) inverse of H plus its median eigenvalue times the identity
    median: float  # median eigenvalue of H

    @classmethod
    def of(cls, gram: Floats) -> Self:
        """Prepare the predictor; gram (k, k): H, with a diagonal of about one."""
        median = float(np.median(np.linalg.eigvalsh(gram))) if len(gram) else 0.0
        return cls(_symmetric_inverse(gram), _symmetric_inverse(gram + median * np.eye(len(gram))), median)

    def zeros(self, products: Floats, unconstrained: Floats) -> Mask:
        """Predict which coefficients are zero by Douglas-Rachford splitting with relaxation.

        products (n, k): rows c; unconstrained (n, k): these times the inverse of H.
        J. Eckstein, D. Bertsekas, "On the Douglas-Rachford splitting method and the proximal point algorithm for
        maximal monotone operators", Mathematical Programming 55, 1992. The positive part of `near` are coefficients,
        the negative part multipliers divided by the median eigenvalue.
        """
        zero = unconstrained <= 0.0
        some = np.flatnonzero(zero.any(axis=1))  # the other rows need no prediction
        base = piecewise_matmul(products[some], _RELAXATION * self.damped)
        step = _RELAXATION * (self.median * self.damped - 0.5 * np.eye(len(self.damped)))
        near = unconstrained[some]
        for _ in range(_SPLITTING_STEPS):
            near = base + (1.0 - 0.5 * _RELAXATION) * near + piecewise_matmul(np.abs(near), step)
        zero[some] = near <= 0.0
        return zero


def _symmetric_inverse(matrix: Floats) -> Floats:
    """Invert a symmetric matrix, and symmetrise the result."""
    found = np.linalg.inv(matrix)
    return 0.5 * (found + found.T)


@dataclass(frozen=True)
class Problem:
    """Minimise |z - root f|^2 over f >= 0 and, if `affine`, sum f = 1."""

    root: Floats  # (r, k), columns of length about one
    affine: bool
    gram: Floats  # (k, k) inner products of the columns; if `affine`, lifted by a coordinate that is one
    free: Mask  # (k,) independent columns; block pivoting uses these only
    tolerance: float  # violation of the optimality conditions that bounds errors by `_COEFFICIENT_TOL`
    predictor: SupportPredictor  # for the free columns


def prepare_problem(root: Floats, *, affine: bool) -> Problem:
    """Prepare what does not depend on the targets of `minimise`.

    root (r, k): generators (vertices, if `affine`) as columns, the longest of length about one, perhaps dependent;
    affine: whether the coefficients sum to one.
    """
    lifted = np.vstack([root, np.ones(root.shape[1])]) if affine else root
    triangle, order = linalg.qr(lifted, mode="r", pivoting=True)
    pivots = np.abs(np.diagonal(triangle))
    free = np.zeros(root.shape[1], dtype=bool)
    free[order[: np.count_nonzero(pivots > _PIVOT_TOL * pivots.max())]] = True
    curvature = linalg.svdvals(lifted).min() ** 2 if free.all() else 0.0
    gram = lifted.T @ lifted
    return Problem(
        root, affine, gram, free, _COEFFICIENT_TOL * curvature, SupportPredictor.of(gram[np.ix_(free, free)])
    )


def minimise(problem: Problem, targets: Floats) -> Floats:
    """Minimise |z_i - root f_i|^2 over the cone or simplex for every target z_i.

    targets (n, r): finite. Returns coefficients F (n, k); the bits of a row do not depend on the other rows.
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
    for project in (_project_by_gram, _project_by_qr):
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
    """Exchange all infeasible free variables at once until there are none; returns feasible coefficients (n, k)."""
    products = piecewise_matmul(targets, problem.root)
    rounding = _MULTIPLIER_TOL * _rounding_scale(targets)
    support = _likely_support(problem, products)
    F = np.zeros_like(products)
    rows = np.arange(len(F))
    for _ in range(_MAX_PIVOTING_ROUNDS):
        F[rows] = trial = _minimise_on_support(problem, products[rows], support[rows])
        slopes = _slopes(problem, targets[rows], trial)
        wrong = np.where(support[rows], trial < 0, problem.free & (slopes > rounding[rows]))
        support[rows] ^= wrong
        rows = rows[wrong.any(axis=1)]
        if not len(rows):
            break
    F = F.clip(min=0.0)
    return F / F.sum(axis=1, keepdims=True) if problem.affine else F


def _rounding_scale(targets: Floats) -> Floats:
    """Scale of the rounding errors of products of targets and columns; (n, 1)."""
    return 1.0 + np.linalg.norm(targets, axis=1, keepdims=True)


def _slopes(problem: Problem, targets: Floats, F: Floats) -> Floats:
    """Multipliers: half the negative gradient of the objective in each variable; (n, k)."""
    slopes = piecewise_matmul(targets - piecewise_matmul(F, problem.root.T), problem.root)
    return slopes - (F * slopes).sum(axis=1, keepdims=True) if problem.affine else slopes


def _likely_support(problem: Problem, products: Floats) -> Mask:
    """Predict which free variables are positive; if `affine`, with lifted columns, and at least one."""
    some, support = np.flatnonzero(problem.free), np.zeros(products.shape, dtype=np.bool_)
    lifted = products[:, some] + float(problem.affine)
    support[:, some] = ~problem.predictor.zeros(lifted, piecewise_matmul(lifted, problem.predictor.inverse))
    if problem.affine:
        none = np.flatnonzero(~support.any(axis=1))
        support[none, some[lifted[none].argmax(axis=1)]] = True
    return support


def _minimise_on_support(problem: Problem, products: Floats, support: Mask) -> Floats:
    """Minimise over the variables of each row's support without constraints on their signs."""
    if not problem.affine:
        return solve_on_support(problem.gram, products, support)
    F = np.zeros_like(products)
    for rows, columns in rows_by_size(support):
        right = np.take_along_axis(products[rows], columns, axis=1)[..., None]
        right = np.concatenate([right, np.ones_like(right)], axis=2)
        values, ones = np.moveaxis(np.linalg.solve(problem.gram[columns[:, :, None], columns[:, None, :]], right), 2, 0)
        # a multiple of H^-1 1 brings the sum to one
        values += ones * ((1.0 - values.sum(axis=1)) / ones.sum(axis=1))[:, None]
        values[:, 0] = 1.0 - values[:, 1:].sum(axis=1)  # exactly, so that one is positive for any target
        F[rows[:, None], columns] = values
    return F


def rows_by_size(support: Mask) -> Iterator[tuple[Indices, Indices]]:
    """Group rows by the size of their supports.

    support (n, k): which columns are in the support of each row. Yields rows (m,) with supports of one size, and the
    columns (m, size) of their supports.
    """
    sizes = support.sum(axis=1)
    order = np.argsort(sizes, kind="stable")
    edges = np.searchsorted(sizes, np.arange(support.shape[1] + 2), sorter=order).tolist()
    for size, (begin, end) in enumerate(pairwise(edges)):
        if end > begin:
            rows = order[begin:end]
            yield rows, np.nonzero(support[rows])[1].reshape(len(rows), size)


def _active_set(problem: Problem, project: Projection, targets: Floats, start: Floats) -> Floats:
    """Lawson and Hanson's method, from feasible coefficients with independent supports."""
    F = start.copy()
    support = F > 0
    rows = np.arange(len(F))
    for _ in range(5 * F.shape[1] + 20):  # 2 k rounds are usual; the limit ends cycles due to rounding errors
        trial, gains = project(problem, targets[rows], support[rows])
        blocking = support[rows] & (trial < 0)
        blocked = blocking.any(axis=1)
        F[rows] = moved = _step_to_boundary(F[rows], trial, blocking)
        support[rows[blocked]] &= moved[blocked] > 0
        best = gains.max(axis=1)
        entering = (gains >= (1.0 - _TIE_TOL) * best[:, None]).argmax(axis=1)
        growing = ~blocked & (best > 0)
        support[rows[growing], entering[growing]] = True
        rows = rows[blocked | growing]
        if not len(rows):
            break
    return F


def _step_to_boundary(F: Floats, trial: Floats, blocking: Mask) -> Floats:
    """Move from F to `trial`, or in its direction until the first of a row's blocking variables is zero."""
    lengths = np.ones_like(F)
    np.divide(F, F - trial, out=lengths, where=blocking)
    shortest = lengths.min(axis=1, keepdims=True)
    stopped = blocking & (lengths == shortest)
    return np.where(stopped, 0.0, (1.0 - shortest) * F + shortest * trial).clip(min=0.0)


def _project_by_gram(problem: Problem, targets: Floats, support: Mask) -> tuple[Floats, Floats]:
    """Project each target onto the span (affine hull) of its support by the Gram matrix: fast.

    Returns coefficients and gains, both (m, k). The gain of a column that may enter is its multiplier, if that is
    clearly positive: then the column is far from the span.
    """
    coefficients = _minimise_on_support(problem, piecewise_matmul(targets, problem.root), support)
    slopes = _slopes(problem, targets, coefficients)
    clear = slopes > _PIVOT_TOL * _rounding_scale(targets)
    return coefficients, np.where(clear & ~support, slopes, 0.0)


def _project_by_qr(problem: Problem, targets: Floats, support: Mask) -> tuple[Floats, Floats]:
    """Project each target onto the span (affine hull) of its support by a QR factorisation: accurate.

    The gain of a column is its multiplier divided by its distance from the span, zero where that is rounding error: if
    the column enters, the squared distance to the target falls by the square of the gain.
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
        outside = _orthogonal_part(Q, (problem.root.T - origin).mT)  # (m, r, k)
        distances = np.linalg.norm(outside, axis=1)
        multipliers = (_orthogonal_part(Q, target).mT @ outside)[:, 0]
        certain = multipliers > _MULTIPLIER_TOL * _rounding_scale(targets[rows]) * distances
        entering = certain & (distances > _SPAN_TOL) & ~support[rows]
        gains[rows] = np.divide(multipliers, distances, out=np.zeros_like(distances), where=entering)
    return coefficients, gains


def _orthogonal_part(Q: Floats, vectors: Floats) -> Floats:
    """Part of the vectors that is orthogonal to the columns of Q."""
    return vectors - Q @ (Q.mT @ vectors)


def exchange_supports(points: Floats, start: Floats, columns: Floats) -> Floats:
    """Minimise |x_i - f_i E|^2 over f_i >= 0 from nearly optimal supports; not every row need converge.

    Negative coefficients leave a support all at once; if there are none, the generators of steepest descent enter, as
    many as there are dimensions left. Points with supports of one size are solved together.
    points (n, r): x; start (n, k): coefficients to start from; columns (k, r): E. Returns (n, k).
    """
    dimensions, gram = columns.shape[1], columns @ columns.T
    gram += _RELATIVE_RIDGE * np.diag(gram.diagonal())
    products = piecewise_matmul(points, columns.T)
    least = _SLOPE_TOL * np.sqrt((points**2).sum(axis=1, keepdims=True))
    found, support = start.copy(), _largest(start, np.full(len(points), dimensions))
    left = np.arange(len(points))
    for step in range(_BLOCK_EXCHANGES + _SINGLE_EXCHANGES):
        room = dimensions - support[left].sum(axis=1)
        found[left] = trial = solve_on_support(gram, products[left], support[left])
        leaving = trial < 0.0
        closed = support[left] | leaving.any(axis=1, keepdims=True)
        gains = np.where(closed, 0.0, products[left] - piecewise_matmul(trial, gram))
        joining = _largest(
            np.where(gains > least[left], gains, 0.0), np.minimum(room, 1) if step >= _BLOCK_EXCHANGES else room
        )
        support[left] ^= leaving | joining
        left = left[(leaving | joining).any(axis=1)]
        if not len(left):
            break
    return np.maximum(found, 0.0)


def _largest(values: Floats, counts: NDArray[np.intp]) -> Mask:
    """Which entries are positive and among the `counts` largest of their row; ties are all included."""
    ordered = np.sort(values, axis=1)[:, ::-1]
    least = np.take_along_axis(ordered, np.clip(counts, 1, values.shape[1])[:, None] - 1, axis=1)
    return (values > 0.0) & (values >= least) & (counts[:, None] > 0)


def solve_on_support(matrix: Floats, right: Floats, support: Mask) -> Floats:
    """Solve the linear system of each row restricted to its support.

    matrix (k, k): symmetric; right (n, k): right-hand sides; support (n, k): unknowns of each row. Returns (n, k), zero
    outside the support; the bits of a row do not depend on the other rows.
    """
    found, k = np.zeros_like(right), len(matrix)
    for rows, columns in rows_by_size(support):
        step = max(1, _SLAB_ENTRIES // max(columns.shape[1], 1) ** 2)
        for start in range(0, len(rows), step):
            own = columns[start : start + step]
            at = (rows[start : start + step] * k)[:, None] + own
            matrices = matrix.take((own * k)[:, :, None] + own[:, None, :])
            found.put(at, np.linalg.solve(matrices, right.take(at)[..., None]))
    return found


_MAX_SINGLE_ROWS: Final = 96  # rows up to which solving them one by one is faster than a batch


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
        Coefficients F. The bits of a row do not depend on the other rows; the coefficients of a zero generator
        are zero.

    Raises
    ------
    ValueError
        Shapes do not match, or entries are NaN, infinite or too large to square.

    See Also
    --------
    nonnegative_from_gram : The same from inner products.
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
    vectors = _checked_matrix(generators, "generators")
    lengths = _nonzero(np.linalg.norm(vectors, axis=1))
    basis, root = np.linalg.qr((vectors / lengths[:, None]).T)
    return _solve_targets(X, root, basis, np.zeros(len(root)), affine=False) / lengths


def nonnegative_from_gram(gram: ArrayLike, products: ArrayLike) -> Floats:
    """
    Minimise `f H f - 2 c_i f` over f >= 0 for every row c_i.

    These are `nonnegative_coefficients` where only inner products are known.

    Parameters
    ----------
    gram : array_like, shape (k, k)
        H = G G^T, positive semi-definite.
    products : array_like or scipy.sparse matrix, shape (n, k)
        Rows c_i = x_i G^T. What lies outside the range of H is ignored.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Coefficients F. The condition number of H is the square of that of G, so that they have fewer correct
        digits than those of `nonnegative_coefficients`.

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
    matrix = _checked_square(gram)
    lengths = _nonzero(np.sqrt(matrix.diagonal().clip(min=0.0)))
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
    simplex_from_gram : The same from inner products.

    Examples
    --------
    >>> simplex_coefficients([[0.5, 0.25], [2.0, 1.0]], [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).round(12)
    array([[0.25, 0.5 , 0.25],
           [0.  , 1.  , 0.  ]])
    """
    points = _checked_matrix(vertices, "vertices")
    centre = points.mean(axis=0)
    size = _nonzero(np.linalg.norm(points - centre, axis=1).max())
    basis, root = np.linalg.qr((points - centre).T / size)
    return _solve_targets(X, root, basis / size, centre @ basis / size, affine=True)


def simplex_from_gram(gram: ArrayLike, products: ArrayLike) -> Floats:
    """
    Minimise `b H b - 2 c_i b` over the simplex for every row c_i.

    These are `simplex_coefficients` where only inner products are known.

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
    matrix = _checked_square(gram)
    means = matrix.mean(axis=0)
    centred = matrix - means - means[:, None] + means.mean()
    size = _nonzero(np.sqrt(centred.diagonal().max().clip(min=0.0)))
    root, inverse = _square_root(centred / size**2)
    inverse -= inverse.mean(axis=0)  # centres the products, so that their means drop out
    return _solve_targets(products, root, inverse / size**2, means @ inverse / size**2, affine=True)


def _solve_targets(rows: Any, root: Floats, left: Floats, shift: Floats, *, affine: bool) -> Floats:
    """Check rows and minimise for the targets `rows @ left - shift`."""
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
    return minimise(prepare_problem(root, affine=affine), targets)


def _square_root(gram: Floats) -> tuple[Floats, Floats]:
    """R with R^T R = gram up to rounding, and its pseudo-inverse."""
    values, vectors = np.linalg.eigh(gram)
    kept = values > len(values) * np.finfo(np.float64).eps * values.max(initial=0.0)
    roots = np.sqrt(np.where(kept, values, 0.0))
    inverses = np.divide(1.0, roots, out=np.zeros_like(roots), where=kept)
    return roots[:, None] * vectors.T, vectors * inverses


def _nonzero(lengths: Any) -> Any:
    """Replace zero lengths by one, so that they can be divided by."""
    return np.where(lengths > 0, lengths, 1.0)


def _checked_matrix(values: ArrayLike, name: str) -> Floats:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or not matrix.size:
        msg = f"{name} must be a matrix with at least one entry, got an array of shape {matrix.shape}"
        raise ValueError(msg)
    if not np.isfinite(matrix).all():
        msg = f"{name} has entries that are NaN or infinite"
        raise ValueError(msg)
    return matrix


def _checked_square(gram: ArrayLike) -> Floats:
    matrix = _checked_matrix(gram, "gram")
    if matrix.shape[0] != matrix.shape[1]:
        msg = f"gram must be square, got an array of shape {matrix.shape}"
        raise ValueError(msg)
    return matrix


def cone_residuals(rows: Floats, generators: Floats) -> Floats:
    """Subtract from each row its nearest point in a cone.

    rows (n, d): finite; generators (k, d): rows that span the cone, {0} if there are none. Returns residuals (n, d).
    """
    if not len(generators):
        return rows
    solve = coefficients_row_by_row if len(rows) <= _MAX_SINGLE_ROWS else nonnegative_coefficients
    return rows - solve(rows, generators) @ generators


def coefficients_row_by_row(rows: Floats, generators: Floats) -> Floats:
    """Minimise |x_i - f_i G|^2 over f_i >= 0 by SciPy, one row at a time.

    rows (n, d): finite; generators (k, d): rows that span the cone. Returns coefficients (n, k).
    """
    found = np.zeros((len(rows), len(generators)))
    for i, row in enumerate(rows):
        try:
            found[i] = nnls(generators.T, row)[0]
        except RuntimeError:  # SciPy's limit of iterations was reached
            found[i] = nonnegative_coefficients(row[None, :], generators)[0]
    return found
