"""Documents as rows of word counts: tiles of documents of like length, and exact sums of co-occurrence.

A document is padded to a length that depends on its own length alone, so that its products have the same shape, and
the same bits, in any company.

All sums over documents are sums of integers below 2**53, which float64 adds exactly in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from dask_dca.geometry.exact import Total, digits, power_of_two
from dask_dca.geometry.planes import child_seeds, uniforms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats

    Reals = NDArray[np.floating]

_TILE_ENTRIES: Final = 2**18  # numbers of a tile: its entries times topics
_PRODUCT_ENTRIES: Final = 2**13  # of one product, below what BLAS begins to cut up for its threads
_GRAIN: Final = 8  # runs of words are padded to multiples of this
_SLICE: Final = 2**12  # entries of a slice: 32 KB of float64
FRACTION: Final = 2.0**-13  # weights that are no whole numbers are rounded to multiples of this
_SCALED_LENGTH: Final = 128.0  # and their documents are scaled to this length
_KEY: Final = 1  # seed of words, from which documents have their keys
_LEAST_LENGTH: Final = 2.0**-960  # shorter ones are made longer first
_EXACT: Final = 2.0**52
OUTWEIGHING: Final = 0.125  # of the greatest length, that documents beyond it count for
_SIZES: Final = 64  # powers of two that lengths are sorted by
_MOST_OF_ALL, _MOST_OF_MEAN = 0.02, 8.0  # of all words, and of the mean length, that one document may count for


@dataclass(frozen=True)
class DocumentTile:
    """Some documents, each as s runs of l words.

    documents (d,): which ones; entries (d, s, l): where their counts are stored; padding repeats the last one; counts
    (d, s, l): the counts; zero for padding; rates (d, s, l, k): rows of the rates of their words.
    """

    documents: NDArray[np.int64]
    entries: NDArray[np.int64]
    counts: Reals
    rates: Reals

    def mixed(self, mixtures: Reals) -> Reals:
        """Mix the rates of each word.

        mixtures (d, k): one for each document. Returns (d, s, l): its rate in the document's mixture.
        """
        mixed: Reals = np.matmul(self.rates, mixtures[:, None, :, None])[..., 0]
        return mixed

    def gathered(self, weights: Reals) -> Reals:
        """Add up the rates of each document's words.

        weights (d, s, l): what they are multiplied by. Returns (d, k): the sums.
        """
        parts: Reals = np.matmul(weights[:, :, None, :], self.rates)[:, :, 0, :]
        return parts.sum(axis=1) if parts.shape[1] > 1 else parts[:, 0]


def document_tiles(counts: sparse.csr_array, rates: Reals) -> Iterator[DocumentTile]:
    """Lay out documents in tiles.

    counts (n, V): word counts; rates (V, k): A row for each word; its dtype is that of all products. Returns small
    enough for the cache, and good until the next one: their rates share memory, as fresh memory costs more than what is
    computed in it. Documents without words are in none.
    """
    k, space = rates.shape[1], np.empty(0, dtype=rates.dtype)
    rates = np.require(rates, requirements=["C", "ALIGNED"])  # else, as after a network, each `take` would copy all
    first, sizes = counts.indptr[:-1].astype(np.int64), np.diff(counts.indptr).astype(np.int64)
    longest = max(_PRODUCT_ENTRIES // k // _GRAIN, 1) * _GRAIN
    runs = -(-sizes // longest)
    lengths = -(-sizes // (_GRAIN * np.maximum(runs, 1))) * _GRAIN
    order = np.lexsort((lengths, runs))
    changes = np.flatnonzero(np.diff(runs[order]) | np.diff(lengths[order])) + 1
    for alike in np.split(order, changes):
        shape = (int(runs[alike[0]]), int(lengths[alike[0]])) if len(alike) else (0, 0)
        size = shape[0] * shape[1]
        most = max(1, _TILE_ENTRIES // max(size * k, 1))
        for begin in range(0, len(alike) if size else 0, most):
            documents = alike[begin : begin + most]
            steps = np.arange(size)
            entries = first[documents, None] + np.minimum(steps, sizes[documents, None] - 1)
            padded = counts.data[entries].astype(rates.dtype, copy=False)
            padded *= steps < sizes[documents, None]
            within = (len(documents), *shape)
            if entries.size * k > space.size:
                space = np.empty(entries.size * k, dtype=rates.dtype)
            near = space[: entries.size * k].reshape(-1, k)
            rates.take(counts.indices[entries.ravel()], axis=0, out=near, mode="clip")
            yield DocumentTile(
                documents,
                entries.reshape(within),
                padded.reshape(within),
                near.reshape(*within, k),
            )


def entry_slices(n_entries: int) -> Iterator[slice]:
    """Cut entries into slices, so that what is computed of one stays in the cache and needs no memory of its own.

    Returns of 4,096 entries, the last one of fewer.
    """
    for begin in range(0, n_entries, _SLICE):
        yield slice(begin, min(begin + _SLICE, n_entries))


@dataclass(frozen=True)
class Documents:
    """Documents of one block.

    counts (n, V): word counts; documents of other weights are scaled to one length; lengths (n,): in the paper m;
    scaled (n,): documents whose counts are no whole numbers; weights (n,): how often each document counts.
    """

    counts: sparse.csr_array
    lengths: Floats
    scaled: NDArray[np.bool_]
    weights: Floats

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which documents hold a pair of words.

        Returns (n,): lengths of two and more.
        """
        return self.lengths >= 2.0


def take_documents(rows: sparse.csr_array, longest: float = np.inf, weights: Floats | None = None) -> Documents:
    """Take rows as documents; a row's result depends on that row alone.

    rows (n, V): non-negative, in canonical form; longest: documents beyond this length are scaled to an eighth of it;
    weights (n,): how often each counts; once if None.
    Returns rows of whole numbers as they are; others (tf-idf, say) scaled to length 128 and rounded to 1/8192.
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
        rows = with_data(rows, data)
        lengths = rows @ np.ones(rows.shape[1])
    return Documents(rows, lengths, scaled, np.ones(rows.shape[0]) if weights is None else weights)


def with_data(counts: sparse.csr_array, data: NDArray[Any]) -> sparse.csr_array:
    """Put other numbers in the places of those that documents hold."""
    return sparse.csr_array((data, counts.indices, counts.indptr), shape=counts.shape)


def _whole(values: Floats) -> NDArray[np.bool_]:
    return values == np.floor(values)


def document_keys(counts: sparse.csr_array) -> Floats:
    """Draw a number for each document from its words alone: copies have the same one, wherever they stand.

    counts (n, V): multiples of 1/8192. Returns (n,): inside (0, 1).
    """
    whole = (counts.data * (1.0 / FRACTION)).astype(np.uint64)
    words = child_seeds(_KEY, np.arange(counts.shape[1]))
    totals = with_data(counts, whole) @ words  # modulo 2**64
    return uniforms(totals, 1)[:, 0]


def size_counts(lengths: Floats, weights: Floats) -> Floats:
    """Count documents, and their words, by the size of their length.

    lengths, weights (n,): lengths, and how often each counts. Returns (2, 64): in column b: how many lengths are in
    [2**(b - 1), 2**b), and their sum, rounded each.
    """
    size = np.clip(np.frexp(lengths)[1], 0, _SIZES - 1)
    counted = (lengths > 0.0) * weights, np.rint(lengths) * weights
    return np.array([np.bincount(size, weights=each, minlength=_SIZES) for each in counted])


def longest_length(sizes: Floats) -> float:
    """Choose the length up to which documents count in full, so that none outweighs all others.

    sizes (2, 64): from `size_counts`. Returns the greatest power of two that is no more than a fiftieth of all words,
    or eight times the mean length, where no document counts for more; infinite if all documents are within.
    """
    counts, words = sizes
    bounds = np.exp2(np.arange(_SIZES))
    beyond = counts.sum() - counts.cumsum()
    total = words.cumsum() + beyond * bounds
    fits = bounds <= total * max(_MOST_OF_ALL, _MOST_OF_MEAN / max(float(counts.sum()), 1.0))
    allowed = int(np.flatnonzero(fits).max(initial=0))
    return float(bounds[allowed]) if allowed and beyond[allowed] > 0.0 else np.inf


def pair_weights(documents: Documents, *, by_length: bool) -> Floats:
    """Weigh documents so that their pairs of words add up to the co-occurrence.

    by_length: whether a document counts by its length (the variance of the sum is least for topics alike in all), or as
    one, as in the paper. Returns (n,): what x x^T is multiplied by: 1 / (m - 1) or 1 / (m (m - 1)); zero for documents
    without a pair. Scaled documents are no samples of words, and need no correction for pairs of a word with itself: 1
    / m and 1 / m^2.
    """
    m = documents.lengths
    others = np.where(documents.scaled, m, m - 1.0)
    weights = np.where(documents.used, 1.0 / np.where(documents.used, others, 1.0), 0.0)
    return weights if by_length else weights / np.where(documents.used, m, 1.0)


def product_units(columns: Floats, largest: float, *, fractional: bool) -> Floats:
    """Choose what the documents' share in a product is rounded to, so that no sum needs more than 52 bits.

    columns (V, b): columns B that the co-occurrence is multiplied by; largest: the greatest total count of a word;
    fractional: whether counts are multiples of 1/8192. Returns (b,): powers of two.
    """
    steps = 1.0 / FRACTION if fractional else 1.0
    return power_of_two(2.0 * largest * steps * np.abs(columns).max(axis=0, initial=0.0)) / _EXACT


def cooccurrence_sums(documents: Documents, columns: Floats, units: Floats, *, by_length: bool) -> Floats:
    """Multiply the documents' pairs of words by some columns; no matrix of words x words is formed.

    columns (V, b): columns B; units (b,): from `product_units`. Returns (V, b): sum_i w_i x_i (x_i . B), exact: parts
    may be added in any order.
    """
    weights = pair_weights(documents, by_length=by_length)
    seen = np.asarray(documents.counts @ columns)
    seen *= weights[:, None]
    seen /= units
    np.rint(seen, out=seen)
    seen *= documents.weights[:, None]
    sums = np.asarray(documents.counts.T @ np.rint(seen, out=seen))
    sums *= units
    return sums


def exact_product(left: sparse.csr_array, right: Floats) -> Total:
    """Multiply the transpose of sparse integers by integers, exactly.

    left (n, V): non-negative integers; right (n, k): non-negative integers. Returns of shape (V, k) and unit one.
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
