"""Leading eigenvectors of a symmetric operator that is only known by its products, from a block Krylov space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from scipy.special import ndtri

from dask_dca.geometry.planes import child_seeds, uniforms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["block_krylov", "call", "orthonormalising", "rayleigh_ritz"]

_DEPENDENT: Final = 1e-6  # singular value, relative to the first, from which a direction of the space is dropped

T = TypeVar("T")


def call(function: Callable[..., T], *args: Any) -> T:
    """
    Call a function.

    Parameters
    ----------
    function : callable
        The function.
    *args : object
        Its arguments.

    Returns
    -------
    object
        What it returns.
    """
    return function(*args)


def block_krylov(
    multiply: Callable[[Floats], Floats],
    n: int,
    width: int,
    seed: int,
    n_blocks: int = 4,
    do: Callable[..., Any] = call,
) -> tuple[Floats, Floats]:
    """
    Find the eigenpairs of a symmetric operator in the space of its powers, by `n_blocks` + 1 products.

    Parameters
    ----------
    multiply : callable
        Maps an array of shape (n, width) to the operator times it.
    n : int
        Order of the operator.
    width : int
        Columns of a block, at most n.
    seed : int
        Seed of the first block.
    n_blocks : int, default 4
        Powers of the operator that span the space.
    do : callable, optional
        Calls a function with its arguments, at once or later: then blocks are what it returns, for `multiply` too.

    Returns
    -------
    values : ndarray of float64, shape (m,)
        Ritz values, the greatest first; m <= n_blocks * width.
    vectors : ndarray of float64, shape (n, m)
        Ritz vectors as orthonormal columns.

    References
    ----------
    .. [1] C. Musco, C. Musco, "Randomized block Krylov methods for stronger and faster approximate singular value
       decomposition", NIPS 2015.

    Examples
    --------
    >>> values, vectors = block_krylov(lambda B: np.diag([3.0, 2.0, -1.0, 0.0]) @ B, 4, 2, 0)
    >>> values[:2].round(9)
    array([3., 2.])
    """
    block = do(_orthonormal, multiply(do(_first_block, n, width, seed)))
    blocks, products = [block], [multiply(block)]
    while len(blocks) < n_blocks and len(blocks) * width < n:
        blocks.append(do(_orthonormal, products[-1]))
        products.append(multiply(blocks[-1]))
    found: tuple[Floats, Floats] = do(rayleigh_ritz, blocks, products)
    return found


def _first_block(n: int, width: int, seed: int) -> Floats:
    return _orthonormal(ndtri(uniforms(child_seeds(seed, np.arange(n)), width)))


def rayleigh_ritz(blocks: Sequence[Floats], products: Sequence[Floats]) -> tuple[Floats, Floats]:
    """
    Find the Ritz pairs of a symmetric operator in the span of some columns.

    Parameters
    ----------
    blocks : sequence of ndarray of float64, each of shape (n, width)
        Columns, which may be nearly dependent.
    products : sequence of ndarray of float64, each of shape (n, width)
        The operator times each of them.

    Returns
    -------
    values : ndarray of float64, shape (m,)
        Ritz values, the greatest first.
    vectors : ndarray of float64, shape (n, m)
        Ritz vectors as orthonormal columns.

    Examples
    --------
    >>> operator = np.diag([1.0, 5.0])
    >>> rayleigh_ritz([np.eye(2)], [operator])[0]
    array([5., 1.])
    """
    columns, images = np.hstack(blocks), np.hstack(products)
    mix = orthonormalising(columns)
    basis = columns @ mix
    inner = basis.T @ (images @ mix)
    values, rotation = np.linalg.eigh((inner + inner.T) / 2.0)
    return values[::-1], basis @ rotation[:, ::-1]


def orthonormalising(columns: Floats) -> Floats:
    """
    Find the combinations of columns that are an orthonormal basis of their span.

    By the eigenvectors of their Gram matrix, twice: for tall columns this is many times as fast as a singular value
    decomposition of the columns.

    Parameters
    ----------
    columns : ndarray of float64, shape (n, m)
        Columns, which may be nearly dependent.

    Returns
    -------
    ndarray of float64, shape (m, r)
        `columns` times this has orthonormal columns; directions of less than 1e-6 of the greatest singular value are
        left out.

    Examples
    --------
    >>> columns = np.array([[3.0, 3.0], [0.0, 0.0], [4.0, 4.0]])
    >>> np.abs(columns @ orthonormalising(columns)).round(6)
    array([[0.6],
           [0. ],
           [0.8]])
    """
    first = _whitening(columns.T @ columns)
    basis = columns @ first
    mix: Floats = first @ _whitening(basis.T @ basis)
    return mix


def _orthonormal(columns: Floats) -> Floats:
    return columns @ orthonormalising(columns)


def _whitening(gram: Floats) -> Floats:
    """The combinations W with W^T G W = 1, of all but the least eigenvalues."""
    squares, vectors = np.linalg.eigh(gram)
    kept = squares > _DEPENDENT**2 * squares[-1]
    whitening: Floats = vectors[:, kept] / np.sqrt(squares[kept])
    return whitening
