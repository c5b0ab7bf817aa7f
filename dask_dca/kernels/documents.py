"""Documents as rows of word counts: lengths, the co-occurrence of their words as an operator, exact sums.

All sums over documents are sums of integers below 2**53, which float64 adds exactly in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import sparse

from dask_dca.geometry.exact import Total, digits, power_of_two
from dask_dca.kernels.document_tiles import entry_slices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "FRACTION",
    "OUTWEIGHING",
    "Documents",
    "cooccurrence_sums",
    "exact_product",
    "longest_length",
    "pair_weights",
    "product_units",
    "size_counts",
    "take_documents",
]

FRACTION: Final = 2.0**-13  # weights that are no whole numbers are rounded to multiples of this
_SCALED_LENGTH: Final = 128.0  # and their documents are scaled to this length
_LEAST_LENGTH: Final = 2.0**-960  # shorter ones are made longer first
_EXACT: Final = 2.0**52
OUTWEIGHING: Final = 0.125  # of the greatest length, that documents beyond it count for
_SIZES: Final = 64  # powers of two that lengths are sorted by
_MOST_OF_ALL, _MOST_OF_MEAN = 0.02, 8.0  # of all words, and of the mean length, that one document may count for


@dataclass(frozen=True)
class Documents:
    """
    Documents of one block.

    Attributes
    ----------
    counts : scipy.sparse.csr_array of float64, shape (n, V)
        Word counts; documents of other weights are scaled to one length.
    lengths : ndarray of float64, shape (n,)
        In the paper m.
    scaled : ndarray of bool, shape (n,)
        Documents whose weights are no whole numbers.
    """

    counts: sparse.csr_array
    lengths: Floats
    scaled: NDArray[np.bool_]

    @property
    def used(self) -> NDArray[np.bool_]:
        """
        Which documents hold a pair of words.

        Returns
        -------
        ndarray of bool, shape (n,)
            Lengths of two and more.
        """
        return self.lengths >= 2.0


def take_documents(rows: sparse.csr_array, longest: float = np.inf) -> Documents:
    """
    Take rows as documents; a row's result depends on that row alone.

    Parameters
    ----------
    rows : scipy.sparse.csr_array of float64, shape (n, V)
        Non-negative, in canonical form.
    longest : float, optional
        Documents beyond this length are scaled to an eighth of it.

    Returns
    -------
    Documents
        Rows of whole numbers as they are; others (tf-idf, say) scaled to length 128 and rounded to 1/8192.

    Examples
    --------
    >>> found = take_documents(sparse.csr_array([[1.0, 2.0], [0.1, 0.3]]))
    >>> found.lengths, found.scaled
    (array([  3., 128.]), array([False,  True]))
    """
    lengths = rows @ np.ones(rows.shape[1])
    scaled = lengths > longest
    if scaled.any() or not all(_whole(rows.data[part]).all() for part in entry_slices(rows.nnz)):
        number = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        wanted = np.where(scaled, longest * OUTWEIGHING, lengths)
        broken = np.zeros(rows.shape[0], dtype=bool)
        broken[number[~_whole(rows.data)]] = True
        wanted[broken], scaled = _SCALED_LENGTH, scaled | broken
        values, small = rows.data, broken & (lengths < _LEAST_LENGTH)
        if small.any():  # one gain would be out of range
            larger = np.where(small, 1.0 / _LEAST_LENGTH, 1.0)
            values, lengths = values * larger[number], lengths * larger
        gain = np.where(scaled, wanted / np.where(lengths > 0.0, lengths, 1.0), 1.0)
        data = np.rint(values * gain[number] / FRACTION) * FRACTION
        rows = sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
        lengths = rows @ np.ones(rows.shape[1])
    return Documents(rows, lengths, scaled)


def _whole(values: Floats) -> NDArray[np.bool_]:
    return values == np.floor(values)


def size_counts(lengths: Floats) -> Floats:
    """
    Count documents, and their words, by the size of their length.

    Parameters
    ----------
    lengths : ndarray of float64, shape (n,)
        Lengths.

    Returns
    -------
    ndarray of float64, shape (2, 64)
        In column b: how many lengths are in [2**(b - 1), 2**b), and their sum, rounded each.

    Examples
    --------
    >>> size_counts(np.array([3.0, 2.0, 8.0]))[:, :5]
    array([[0., 0., 2., 0., 1.],
           [0., 0., 5., 0., 8.]])
    """
    size = np.clip(np.frexp(lengths)[1], 0, _SIZES - 1)
    weights = (lengths > 0.0).astype(np.float64), np.rint(lengths)
    return np.array([np.bincount(size, weights=each, minlength=_SIZES) for each in weights])


def longest_length(sizes: Floats) -> float:
    """
    Choose the length up to which documents count in full, so that none outweighs all others.

    Parameters
    ----------
    sizes : ndarray of float64, shape (2, 64)
        From `size_counts`.

    Returns
    -------
    float
        The greatest power of two that is no more than a fiftieth of all words, or eight times the mean length, where
        no document counts for more; infinite if all documents are within.

    Examples
    --------
    >>> longest_length(size_counts(np.full(200, 60.0)))
    inf
    >>> longest_length(size_counts(np.append(np.full(200, 60.0), 1e9)))
    256.0
    """
    counts, words = sizes
    bounds = np.exp2(np.arange(_SIZES))
    beyond = counts.sum() - counts.cumsum()
    total = words.cumsum() + beyond * bounds
    fits = bounds <= total * max(_MOST_OF_ALL, _MOST_OF_MEAN / max(float(counts.sum()), 1.0))
    allowed = int(np.flatnonzero(fits).max(initial=0))
    return float(bounds[allowed]) if allowed and beyond[allowed] > 0.0 else np.inf


def pair_weights(documents: Documents, *, by_length: bool) -> Floats:
    """
    Weigh documents so that their pairs of words add up to the co-occurrence.

    Parameters
    ----------
    documents : Documents
        The documents.
    by_length : bool
        Whether a document counts by its length (the variance of the sum is least for topics alike in all), or as one,
        as in the paper.

    Returns
    -------
    ndarray of float64, shape (n,)
        What x x^T is multiplied by: 1 / (m - 1) or 1 / (m (m - 1)); zero for documents without a pair. Scaled
        documents are no samples of words, and need no correction for pairs of a word with itself: 1 / m and 1 / m^2.
    """
    m = documents.lengths
    others = np.where(documents.scaled, m, m - 1.0)
    weights = np.where(documents.used, 1.0 / np.where(documents.used, others, 1.0), 0.0)
    return weights if by_length else weights / np.where(documents.used, m, 1.0)


def product_units(columns: Floats, largest: float, *, fractional: bool) -> Floats:
    """
    Choose what the documents' share in a product is rounded to, so that no sum needs more than 52 bits.

    Parameters
    ----------
    columns : ndarray of float64, shape (V, b)
        Columns B that the co-occurrence is multiplied by.
    largest : float
        The greatest total count of a word.
    fractional : bool
        Whether counts are multiples of 1/8192.

    Returns
    -------
    ndarray of float64, shape (b,)
        Powers of two.

    Examples
    --------
    >>> product_units(np.ones((2, 1)), 8.0, fractional=False).tolist() == [2.0**-48]
    True
    """
    steps = 1.0 / FRACTION if fractional else 1.0
    return power_of_two(2.0 * largest * steps * np.abs(columns).max(axis=0, initial=0.0)) / _EXACT


def cooccurrence_sums(documents: Documents, columns: Floats, units: Floats, *, by_length: bool) -> Floats:
    """
    Multiply the documents' pairs of words by some columns; no matrix of words x words is formed.

    Parameters
    ----------
    documents : Documents
        The documents.
    columns : ndarray of float64, shape (V, b)
        Columns B.
    units : ndarray of float64, shape (b,)
        From `product_units`.
    by_length : bool
        As for `pair_weights`.

    Returns
    -------
    ndarray of float64, shape (V, b)
        sum_i w_i x_i (x_i . B), exact: parts may be added in any order.

    Examples
    --------
    >>> documents = take_documents(sparse.csr_array([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]]))
    >>> cooccurrence_sums(documents, np.ones((3, 1)), np.array([2.0**-40]), by_length=True).ravel().round(6)
    array([2.      , 4.666667, 2.666667])
    """
    weights = pair_weights(documents, by_length=by_length)
    seen = np.asarray(documents.counts @ columns)
    seen *= weights[:, None]
    seen /= units
    sums = np.asarray(documents.counts.T @ np.rint(seen, out=seen))
    sums *= units
    return sums


def exact_product(left: sparse.csr_array, right: Floats) -> Total:
    """
    Multiply the transpose of sparse integers by integers, exactly.

    Parameters
    ----------
    left : scipy.sparse.csr_array of float64, shape (n, V)
        Non-negative integers.
    right : ndarray of float64, shape (n, k)
        Non-negative integers.

    Returns
    -------
    Total
        Of shape (V, k) and unit one.

    Examples
    --------
    >>> exact_product(sparse.csr_array([[1.0, 2.0]]), np.array([[3.0]])).value()
    array([[3.],
           [6.]])
    """
    peaks = np.zeros(left.shape[0])
    there = np.diff(left.indptr) > 0
    if there.any():
        peaks[there] = np.maximum.reduceat(left.data, left.indptr[:-1][there])
    bounds = np.cumsum(peaks * right.max(axis=1, initial=0.0))
    total = Total(np.zeros((1, left.shape[1], right.shape[1])), 1.0)
    begin = 0
    while begin < left.shape[0]:
        before = bounds[begin - 1] if begin else 0.0
        end = max(begin + 1, int(np.searchsorted(bounds, before + _EXACT, side="right")))
        some = left if end - begin == left.shape[0] else left[begin:end]
        total = total + Total(np.stack(digits(some.T @ right[begin:end], 1.0)), 1.0)
        begin = end
    return total
