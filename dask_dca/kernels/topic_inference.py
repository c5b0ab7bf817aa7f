"""Documents as mixtures of given topics, and what they say of the topics in turn.

Topics enter as *rates* (V, k): a word's probability in each topic over its probability in the whole corpus. Mixing
proportions do not change, and a word that a mixture explains has a rate near one, which bounds all sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import sparse

from dask_dca.kernels.documents import exact_product

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.geometry.exact import Total

    Floats = NDArray[np.float64]

__all__ = ["expected_counts", "halves", "infer_mixtures", "mixture_rates"]

_TILE_ENTRIES: Final = 2**18  # numbers of a tile: its entries times topics
_LEAST_RATE: Final = 2.0**-10  # a word counts as no rarer than this, relative to the corpus, in any document
_COUNT_BITS: Final = 16
_MIXTURE_BITS: Final = 16


def infer_mixtures(counts: sparse.csr_array, rates: Floats, prior: float, n_steps: int) -> Floats:
    """
    Infer the topic mixture of each document by EM on the mixtures alone.

    Parameters
    ----------
    counts : scipy.sparse.csr_array of float64, shape (n, V)
        Word counts.
    rates : ndarray of float64, shape (V, k)
        Topics over word probabilities (any scale a word will do).
    prior : float
        Pseudo-words of each topic that a document begins with.
    n_steps : int
        Steps from the even mixture.

    Returns
    -------
    ndarray of float64, shape (n, k)
        In the paper h: rows on the simplex. A row depends on its document alone, to the bit.

    Examples
    --------
    >>> infer_mixtures(sparse.csr_array([[9.0, 1.0], [0.0, 0.0]]), np.eye(2), 0.5, 20).round(3)
    array([[0.864, 0.136],
           [0.5  , 0.5  ]])
    """
    k = rates.shape[1]
    theta = np.full((counts.shape[0], k), 1.0 / k)
    for part, data, columns, ends in _tiles(counts, k):
        own = rates[columns]
        document = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        gather = sparse.csr_array((data, np.arange(len(data)), ends), shape=(len(ends) - 1, len(data)))
        mixture = theta[part]
        for _ in range(n_steps):
            gather.data = data / np.maximum(np.einsum("ij,ij->i", mixture[document], own), 1e-300)
            mixture = mixture * (gather @ own) + prior
            mixture /= mixture.sum(axis=1, keepdims=True)
        theta[part] = mixture
    return theta


def mixture_rates(counts: sparse.csr_array, rates: Floats, theta: Floats) -> Floats:
    """
    Rate of each entry's word in its document's mixture.

    Parameters
    ----------
    counts : scipy.sparse.csr_array of float64, shape (n, V)
        Word counts.
    rates : ndarray of float64, shape (V, k)
        Topics over word probabilities.
    theta : ndarray of float64, shape (n, k)
        Mixtures.

    Returns
    -------
    ndarray of float64, shape (nnz,)
        theta_i . rates_j, in the order of the entries.

    Examples
    --------
    >>> mixture_rates(sparse.csr_array([[1.0, 1.0]]), np.eye(2), np.array([[0.25, 0.75]]))
    array([0.25, 0.75])
    """
    found = np.empty(counts.nnz)
    for part, _, columns, ends in _tiles(counts, rates.shape[1]):
        document = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        first = int(counts.indptr[part.start])
        found[first : first + len(columns)] = np.einsum("ij,ij->i", theta[part][document], rates[columns])
    return found


def expected_counts(counts: sparse.csr_array, theta: Floats, mixed: Floats) -> Total:
    """
    Count how many of each word's occurrences belong to each topic, but for the factor `rates`, exactly.

    Parameters
    ----------
    counts : scipy.sparse.csr_array of float64, shape (n, V)
        Word counts.
    theta : ndarray of float64, shape (n, k)
        Mixtures, rounded here to 2**-16.
    mixed : ndarray of float64, shape (nnz,)
        From `mixture_rates`; less than 2**-10 counts as 2**-10.

    Returns
    -------
    Total
        Of shape (V, k): (X / (theta rates^T))^T theta, in any order of documents.

    Examples
    --------
    >>> X = sparse.csr_array([[2.0, 2.0]])
    >>> expected_counts(X, np.array([[0.5, 0.5]]), np.array([0.5, 1.0])).value()
    array([[2., 2.],
           [1., 1.]])
    """
    values = np.rint(counts.data / np.maximum(mixed, _LEAST_RATE) * 2.0**_COUNT_BITS)
    left = sparse.csr_array((values, counts.indices, counts.indptr), shape=counts.shape)
    total = exact_product(left, np.rint(theta * 2.0**_MIXTURE_BITS))
    return type(total)(total.parts, 2.0 ** -(_COUNT_BITS + _MIXTURE_BITS))


def halves(counts: sparse.csr_array) -> tuple[sparse.csr_array, sparse.csr_array]:
    """
    Split each document's words in two: its first, third, ... different word, and the others.

    Parameters
    ----------
    counts : scipy.sparse.csr_array of float64, shape (n, V)
        Word counts, in canonical form.

    Returns
    -------
    seen, hidden : scipy.sparse.csr_array of float64, shape (n, V)
        A word is in one of them with all of its occurrences, so that bursts do not leak.

    Examples
    --------
    >>> seen, hidden = halves(sparse.csr_array([[1.0, 2.0, 3.0]]))
    >>> seen.toarray(), hidden.toarray()
    (array([[1., 0., 3.]]), array([[0., 2., 0.]]))
    """
    sizes = np.diff(counts.indptr)
    rank = np.arange(counts.nnz) - np.repeat(counts.indptr[:-1], sizes)
    parts = []
    for side in (0, 1):
        own = rank % 2 == side
        ends = np.concatenate([[0], np.cumsum((sizes + 1 - side) // 2)])
        parts.append(sparse.csr_array((counts.data[own], counts.indices[own], ends), shape=counts.shape))
    return parts[0], parts[1]


def _tiles(
    counts: sparse.csr_array, k: int
) -> Iterator[tuple[slice, Floats, NDArray[np.integer], NDArray[np.integer]]]:
    """Runs of documents small enough for the cache: which, their counts, their words, and where each one ends."""
    most = max(_TILE_ENTRIES // k, 1)
    begin, ends = 0, counts.indptr
    while begin < counts.shape[0]:
        end = max(begin + 1, int(np.searchsorted(ends, ends[begin] + most, side="right")) - 1)
        low, high = int(ends[begin]), int(ends[end])
        yield slice(begin, end), counts.data[low:high], counts.indices[low:high], ends[begin : end + 1] - low
        begin = end
