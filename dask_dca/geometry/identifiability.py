"""The paper's lemma on identifiability: two moments of two views tell the rank-one terms that both are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["identify_rows", "rank_one_terms"]

_RANK: Final = 1e-10  # of the greatest singular value, below which one counts as zero
_APART: Final = 1e-7  # of the greatest ratio of weights, below which two ratios count as the same


def rank_one_terms(first: ArrayLike, second: ArrayLike, n_terms: int | None = None) -> tuple[Floats, Floats]:
    """
    Split two moments O_i Diag(a) O_j^T and O_i Diag(b) O_j^T into their rank-one terms.

    Parameters
    ----------
    first, second : array_like, shape (p_i, p_j)
        The moments, before vectorisation: the paper's X_1 and X_2. Weights a are not zero.
    n_terms : int, optional
        Number of terms k; the rank of the first moment if None.

    Returns
    -------
    left : ndarray of float64, shape (p_i, k)
        Columns of O_i, unit vectors, the term of greatest b / a first.
    right : ndarray of float64, shape (p_j, k)
        Columns of O_j, of such lengths that `left @ right.T` is the first moment: its weights are in them.

    Raises
    ------
    ValueError
        Two terms have the same ratio of weights b / a, so that mixtures of them fit both moments as well; or ratios are
        complex, so that no such terms exist.

    Notes
    -----
    With the singular value decomposition X_1 = U S V^T, the matrix S^-1/2 U^T X_2 V S^-1/2 is W Diag(b / a) W^-1, and
    the terms are the columns of U S^1/2 W and V S^1/2 W^-T. The paper asks for a != b alone; the proof's "unique
    eigendecomposition" needs all ratios to differ, which a random eta brings about with probability one. What it prints
    as W^T is W^-1.

    Examples
    --------
    >>> O_i, O_j = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [1.0, 2.0]])
    >>> left, right = rank_one_terms(O_i @ np.diag([2.0, 1.0]) @ O_j.T, O_i @ np.diag([2.0, 3.0]) @ O_j.T)
    >>> np.outer(left[:, 0], right[:, 0]).round(6).tolist()
    [[0.0, 2.0], [0.0, 2.0]]
    """
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    U, sizes, Vt = np.linalg.svd(one, full_matrices=False)
    k = int((sizes > _RANK * sizes[0]).sum()) if n_terms is None else n_terms
    roots = np.sqrt(sizes[:k])
    U, V = U[:, :k], Vt[:k].T
    ratios, W = np.linalg.eig((U.T @ other @ V) / np.outer(roots, roots))
    order = np.argsort(-ratios.real, kind="stable")
    ratios, W = ratios[order], W[:, order]
    gaps = np.abs(np.diff(ratios))
    if np.abs(ratios.imag).max(initial=0.0) > 0.0 or gaps.min(initial=np.inf) <= _APART * np.abs(ratios).max(
        initial=0.0
    ):
        msg = f"the terms' weights have no {k} different real ratios in the two moments: {ratios}; take another eta"
        raise ValueError(msg)
    left, right = U * roots @ W.real, V * roots @ np.linalg.inv(W.real).T
    norms = np.linalg.norm(left, axis=0)
    return left / norms, right * norms


def identify_rows(first: ArrayLike, second: ArrayLike, left: ArrayLike, right: ArrayLike) -> Numbers:
    """
    Find the rows whose outer products two moments are made of: the anchors of the paper's lemma.

    Parameters
    ----------
    first, second : array_like, shape (p_i, p_j)
        Two moments, sums of outer products of the same k rows with positive weights.
    left, right : array_like, shapes (n, p_i) and (n, p_j)
        Both views of all rows.

    Returns
    -------
    ndarray of int64, shape (k,)
        For each term the row whose outer product is nearest to it in angle; the lower row on a tie.

    Raises
    ------
    ValueError
        The moments don't tell the terms apart.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> left, right = rng.standard_normal((50, 4)), rng.standard_normal((50, 6))
    >>> picked = [7, 30, 11]
    >>> moments = [left[picked].T @ np.diag(weights) @ right[picked] for weights in rng.random((2, 3))]
    >>> sorted(identify_rows(*moments, left, right).tolist())
    [7, 11, 30]
    """
    terms = rank_one_terms(first, second)
    cosines = [
        _cosines(np.asarray(view, dtype=np.float64), own) for view, own in zip((left, right), terms, strict=True)
    ]
    return np.asarray((cosines[0] * cosines[1]).argmax(axis=0), dtype=np.int64)


def _cosines(rows: Floats, columns: Floats) -> Floats:
    lengths = np.outer(np.linalg.norm(rows, axis=1), np.linalg.norm(columns, axis=0))
    return np.divide(rows @ columns, lengths, out=np.zeros_like(lengths), where=lengths > 0.0)
