"""The graph of landmarks that codes make, its leading eigenvectors, and rows embedded by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from dask_dca.kernels.landmarks import quantise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.kernels.codes import Codes

    Floats = NDArray[np.float64]

__all__ = ["Spectrum", "by_eigen_gap", "embed", "graph_of", "spectrum_of"]

_DENSE: Final = 600  # landmarks up to which all eigenvectors are computed at once


@dataclass(frozen=True)
class Spectrum:
    """Leading eigenvalues of a normalised graph, decreasing, and what its nodes say of rows."""

    values: Floats  # (m,), at most one
    nodes: Floats  # (K, m), eigenvectors over the square root of the degree


def graph_of(codes: Codes, own: Codes, count: int) -> sparse.csr_array:
    """
    Join landmarks that occur in the same codes, and landmarks with those in their own code.

    With H the codes of n rows and C those of the K landmarks, W = (K / n) H^T H + (C + C^T) / 2.

    Parameters
    ----------
    codes : Codes
        Of the rows.
    own : Codes
        Of the landmarks themselves.
    count : int
        Number of landmarks K.

    Returns
    -------
    scipy.sparse.csr_array, shape (K, K)
        Weights of the edges: symmetric, not negative.
    """
    rows, direct = codes.matrix(count), own.matrix(count)
    shared = (rows.T @ rows) * (count / max(rows.shape[0], 1))
    return sparse.csr_array(shared + (direct + direct.T) * 0.5)


def spectrum_of(graph: sparse.csr_array, count: int) -> Spectrum:
    """
    Compute the leading eigenvectors of a graph's normalised adjacency D^{-1/2} W D^{-1/2}.

    Ng, Jordan and Weiss, On spectral clustering, NIPS 2001: the paper's last step.

    Parameters
    ----------
    graph : scipy.sparse.csr_array, shape (K, K)
        Weights of the edges.
    count : int
        How many eigenvectors m; at most K.

    Returns
    -------
    Spectrum
        Of an isolated node, the value is one.
    """
    degree = np.asarray(graph.sum(axis=0)).ravel()
    half = 1.0 / np.sqrt(np.where(degree > 0.0, degree, 1.0))
    scaled = sparse.csr_array(sparse.diags_array(half) @ graph @ sparse.diags_array(half))
    values, vectors = _leading_by_part(scaled, min(count, len(degree)))
    return Spectrum(values, vectors * half[:, None])


def _leading_by_part(matrix: sparse.csr_array, count: int) -> tuple[Floats, Floats]:
    """Leading eigenpairs, found part by part: Lanczos' method misses the copies of an eigenvalue that parts share."""
    n_parts, part_of = csgraph.connected_components(matrix, directed=False)
    found_values, found_vectors = [], []
    for part in range(n_parts):
        places = np.flatnonzero(part_of == part)
        values, vectors = _leading(matrix[places][:, places], min(count, len(places)))
        whole = np.zeros((matrix.shape[0], len(values)))
        whole[places] = vectors
        found_values.append(values)
        found_vectors.append(whole)
    values = np.concatenate(found_values)
    order = np.argsort(-values, kind="stable")[:count]
    return values[order], np.concatenate(found_vectors, axis=1)[:, order]


def _leading(matrix: sparse.csr_array, count: int) -> tuple[Floats, Floats]:
    """Leading eigenpairs of one connected part, values decreasing."""
    n = matrix.shape[0]
    if n > _DENSE and 4 * count < n:
        start = np.ones(n) + np.sin(np.arange(n))
        try:
            values, vectors = eigsh(matrix, count, which="LA", v0=start, ncv=min(n, max(3 * count, 40)), tol=1e-8)
            order = np.argsort(-values, kind="stable")
            return values[order], vectors[:, order]
        except ArpackNoConvergence:
            pass
    values, vectors = linalg.eigh(matrix.toarray(), subset_by_index=(n - count, n - 1))
    return values[::-1], vectors[:, ::-1]


def embed(codes: Codes, nodes: Floats) -> Floats:
    """
    Place rows where the eigenvectors put the landmarks of their codes.

    Parameters
    ----------
    codes : Codes
        Of n rows.
    nodes : ndarray of float64, shape (K, m)
        As in `Spectrum`.

    Returns
    -------
    ndarray of float64, shape (n, m)
        Quantised vectors of unit length; zeros for a row without code.
    """
    found = codes.combine(nodes)
    length = np.sqrt((found**2).sum(axis=1, keepdims=True))
    return quantise(found / np.where(length > 0.0, length, 1.0))


def by_eigen_gap(values: Floats) -> int:
    """
    Choose a number of clusters by the largest gap between successive eigenvalues.

    Parameters
    ----------
    values : ndarray of float64, shape (m,)
        Leading eigenvalues, decreasing.

    Returns
    -------
    int
        Number of eigenvalues before the gap: at least 2, or 1 where there is a single one.

    Examples
    --------
    >>> by_eigen_gap(np.array([1.0, 0.98, 0.97, 0.6, 0.55]))
    3
    """
    if len(values) < 3:
        return len(values)
    gaps = values[1:-1] - values[2:]
    return 2 + int(gaps.argmax())
