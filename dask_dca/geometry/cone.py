"""Batched non-negative and simplex least squares: the coefficients F in X = F Y_A, a block of rows at once.

Generators G and rows X are reduced to `root` (r, k) and targets z (n, r) with r <= k, such that
|z_i - root f|^2 = |x_i - f G|^2 + const, by orthogonal factors of G or the square root of its Gram matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse
from scipy.optimize import nnls

from dask_dca.geometry.active_set import minimise, prepare
from dask_dca.geometry.pieces import times

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "few_coefficients",
    "nonnegative_coefficients",
    "nonnegative_from_gram",
    "residuals",
    "simplex_coefficients",
    "simplex_from_gram",
]

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
    return _solve(X, root, basis, np.zeros(len(root)), affine=False) / lengths


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
    return _solve(products, root, inverse / lengths[:, None], np.zeros(len(root)), affine=False) / lengths


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
    return _solve(X, root, basis / size, centre @ basis / size, affine=True)


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
    return _solve(products, root, inverse / size**2, means @ inverse / size**2, affine=True)


def _solve(rows: Any, root: Floats, left: Floats, shift: Floats, *, affine: bool) -> Floats:
    """Solve for the targets `rows @ left - shift`."""
    dense = not sparse.issparse(rows)
    rows = np.asarray(rows) if dense else rows.tocsr()
    if rows.ndim != 2 or rows.shape[1] != len(left):
        msg = f"expected rows of {len(left)} columns, got an array of shape {rows.shape}"
        raise ValueError(msg)
    with np.errstate(invalid="ignore", over="ignore"):
        whole = rows.astype(np.float64, copy=False)
        targets = (times(whole, left) if dense else whole @ left) - shift
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
