"""Leading eigenvectors of a symmetric operator that is only known by its products, from a block Krylov space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import linalg
from scipy.special import ndtri

from dask_dca.geometry.planes import child_seeds, uniforms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["block_krylov", "rayleigh_ritz"]

_DEPENDENT: Final = 1e-7  # singular value, relative to the first, from which a direction of the space is dropped


def block_krylov(
    multiply: Callable[[Floats], Floats], n: int, width: int, seed: int, n_blocks: int = 4
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
    block = ndtri(uniforms(child_seeds(seed, np.arange(n)), width))
    block = np.linalg.qr(multiply(np.linalg.qr(block)[0]))[0]
    blocks, products = [block], [multiply(block)]
    while len(blocks) < n_blocks and len(blocks) * width < n:
        blocks.append(np.linalg.qr(products[-1])[0])
        products.append(multiply(blocks[-1]))
    return rayleigh_ritz(blocks, products)


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
    left, sizes, right = linalg.svd(columns, full_matrices=False, lapack_driver="gesdd")
    kept = sizes > _DEPENDENT * sizes[0]
    basis, mix = left[:, kept], right[kept].T / sizes[kept]
    inner = basis.T @ (images @ mix)
    values, rotation = np.linalg.eigh((inner + inner.T) / 2.0)
    return values[::-1], basis @ rotation[:, ::-1]
