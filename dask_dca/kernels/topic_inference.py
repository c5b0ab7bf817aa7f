"""Documents as mixtures of given topics, and what they say of the topics in turn.

Topics enter as *rates* (V, k): a word's probability in each topic over its probability in the whole corpus. Mixing
proportions do not change, and a word that a mixture explains has a rate near one, which bounds all sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import sparse

from dask_dca.kernels.document_tiles import document_tiles, entry_slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Reals = NDArray[np.floating]
    Numbers = NDArray[np.int64]

__all__ = ["count_scales", "expected_counts", "halves", "infer_mixtures", "mixture_rates", "mixtures_and_rates"]

_LEAST_SHARE: Final = 1e-12
_NOTHING: Final = 1e-20  # rate of a word that is in no topic
_LEAST_RATE: Final = 2.0**-10  # a word counts as no rarer than this, relative to the corpus, in any document
_MIXTURE_BITS: Final = 16
_COUNT_BITS: Final = 36  # 36 + 16 + 10 bits: sums stay below 2**62
_MOST_SCALE: Final = 24  # bits of a count that are kept of any word: then few sums need more than float64 has
_EXACT: Final = 2.0**53


def infer_mixtures(counts: sparse.csr_array, rates: Reals, prior: float, n_steps: int) -> Reals:
    """
    Infer the topic mixture of each document by EM on the mixtures alone.

    Parameters
    ----------
    counts : scipy.sparse.csr_array of float64, shape (n, V)
        Word counts.
    rates : ndarray of float32 or float64, shape (V, k)
        Topics over word probabilities (any scale a word will do).
    prior : float
        Pseudo-words of each topic that a document begins with.
    n_steps : int
        Steps from the even mixture.

    Returns
    -------
    ndarray of the rates' dtype, shape (n, k)
        In the paper h: rows on the simplex. A row depends on its document alone, to the bit.

    Examples
    --------
    >>> infer_mixtures(sparse.csr_array([[9.0, 1.0], [0.0, 0.0]]), np.eye(2), 0.5, 20).round(3)
    array([[0.864, 0.136],
           [0.5  , 0.5  ]])
    """
    return mixtures_and_rates(counts, rates, prior, (1.0,) * n_steps)[0]


def mixtures_and_rates(
    counts: sparse.csr_array, rates: Reals, prior: float, powers: Sequence[float]
) -> tuple[Reals, Reals]:
    """
    Infer mixtures as `infer_mixtures` does, and the rate of each entry's word in its document's mixture.

    Parameters
    ----------
    counts : scipy.sparse.csr_array of float64, shape (n, V)
        Word counts.
    rates : ndarray of float32 or float64, shape (V, k)
        Topics over word probabilities.
    prior : float
        Pseudo-words of each topic that a document begins with.
    powers : sequence of float
        One for each step from the even mixture: by which power of EM's own factor the shares change. Two saves steps,
        one in the end takes back what went too far.

    Returns
    -------
    theta : ndarray of the rates' dtype, shape (n, k)
        Mixtures.
    mixed : ndarray of the rates' dtype, shape (nnz,)
        theta_i . rates_j, in the order of the entries.
    """
    k, one = rates.shape[1], rates.dtype.type
    theta = np.full((counts.shape[0], k), 1.0 / k, dtype=rates.dtype)
    mixed = np.empty(counts.nnz, dtype=rates.dtype)
    for tile in document_tiles(counts, rates):
        mixture = theta[tile.documents]
        for power in powers:
            explained = tile.gathered(tile.counts / np.maximum(tile.mixed(mixture), one(_NOTHING)))
            moved = mixture * explained + one(prior)  # of the same sum in all steps, which hence doesn't matter
            mixture = moved if power == 1.0 else _further(mixture, moved, power)
        mixture /= mixture.sum(axis=1, keepdims=True)
        theta[tile.documents] = mixture
        mixed[tile.entries] = tile.mixed(mixture)
    return theta, mixed


def _further(mixture: Reals, moved: Reals, power: float) -> Reals:
    """Move shares by a power of the factor that EM moves them by."""
    moved = moved / moved.sum(axis=1, keepdims=True)
    further = mixture * (moved / mixture) ** power
    further /= further.sum(axis=1, keepdims=True)
    return np.maximum(further, mixture.dtype.type(_LEAST_SHARE))


def mixture_rates(counts: sparse.csr_array, rates: Reals, theta: Reals) -> Reals:
    """
    Rate of each entry's word in its document's mixture.

    Parameters
    ----------
    counts : scipy.sparse.csr_array of float64, shape (n, V)
        Word counts.
    rates : ndarray of float32 or float64, shape (V, k)
        Topics over word probabilities.
    theta : ndarray of the rates' dtype, shape (n, k)
        Mixtures.

    Returns
    -------
    ndarray of the rates' dtype, shape (nnz,)
        theta_i . rates_j, in the order of the entries.

    Examples
    --------
    >>> mixture_rates(sparse.csr_array([[1.0, 1.0]]), np.eye(2), np.array([[0.25, 0.75]]))
    array([0.25, 0.75])
    """
    mixed = np.empty(counts.nnz, dtype=rates.dtype)
    for tile in document_tiles(counts, rates):
        mixed[tile.entries] = tile.mixed(theta[tile.documents])
    return mixed


def count_scales(occurrences: Floats) -> Floats:
    """
    Choose what counts of each word are multiplied by before they are rounded: no sum then needs more than 62 bits.

    Parameters
    ----------
    occurrences : ndarray of float64, shape (V,)
        The most occurrences of each word, in all documents together.

    Returns
    -------
    ndarray of float64, shape (V,)
        Powers of two: the more frequent a word, the fewer bits its counts keep.

    Examples
    --------
    >>> np.log2(count_scales(np.array([0.0, 1000.0, 1e6])))
    array([24., 24., 16.])
    """
    bits = _COUNT_BITS - np.ceil(np.log2(np.maximum(occurrences, 1.0)))
    return np.asarray(np.exp2(np.minimum(bits, _MOST_SCALE)))


def expected_counts(counts: sparse.csr_array, theta: Reals, mixed: Reals, scales: Floats) -> Numbers:
    """
    Count how many of each word's occurrences belong to each topic, but for the factor `rates`, exactly.

    Parameters
    ----------
    counts : scipy.sparse.csr_array of float64, shape (n, V)
        Word counts.
    theta : ndarray of float32 or float64, shape (n, k)
        Mixtures, rounded here to 2**-16.
    mixed : ndarray of float32 or float64, shape (nnz,)
        From `mixture_rates`; less than 2**-10 counts as 2**-10.
    scales : ndarray of float64, shape (V,)
        From `count_scales`.

    Returns
    -------
    ndarray of int64, shape (V, k)
        (X / (theta rates^T))^T theta times 2**16 and the scales: a whole number, the same in any order of documents.

    Examples
    --------
    >>> X = sparse.csr_array([[2.0, 2.0]])
    >>> expected_counts(X, np.array([[0.5, 0.5]]), np.array([0.5, 1.0]), np.ones(2)) * 2.0**-16
    array([[2., 2.],
           [1., 1.]])
    """
    values = np.empty(counts.nnz)
    for part in entry_slices(counts.nnz):
        near = values[part]
        scales.take(counts.indices[part], out=near, mode="clip")
        near *= counts.data[part]
        near /= np.maximum(mixed[part], mixed.dtype.type(_LEAST_RATE))
        np.rint(near, out=near)
    left = sparse.csr_array((values, counts.indices, counts.indptr), shape=counts.shape)
    right = theta.astype(np.float64)
    right *= 2.0**_MIXTURE_BITS
    return _whole_product(left, np.rint(right, out=right))


def _whole_product(left: sparse.csr_array, right: Floats) -> Numbers:
    """The transpose of `left` times `right`, of whole numbers that are not negative, exactly."""
    product = np.asarray(left.T @ right)
    if product.max(initial=0.0) < _EXACT:  # sums only rise, so none of them was rounded
        return product.astype(np.int64)
    whole = sparse.csr_array((left.data.astype(np.int64), left.indices, left.indptr), shape=left.shape)
    return np.asarray(whole.T @ right.astype(np.int64))  # slower


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
