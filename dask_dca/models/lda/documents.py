"""Documents as rows of word counts: tiles of documents of similar length, mixtures, and exact sums.

A document is padded to a length that depends on its own length only, so that its products have the same shape, and the
same bits, beside any other documents. All sums over documents are sums of integers below 2**53, which float64 adds
exactly in any order.

Topics enter as *rates* (V, k): a word's probability in each topic over its probability in the whole corpus. The
mixtures are the same as with probabilities, and the rate of a word that a mixture explains well is near one, which
bounds all sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import Total, Workspace, digits, power_of_two
from dask_dca.geometry.planes import child_seeds, uniforms

Reals = NDArray[np.floating]

_TILE_ENTRIES: Final = 2**18  # maximum number of entries of a tile times topics
_PRODUCT_ENTRIES: Final = 2**13  # maximum size of one product, for which BLAS uses a single thread
_TILE_ARRAYS: Final = ("at", "held", "columns", "words", "padded")  # names of a tile's arrays in the workspace
_RUN_MULTIPLE: Final = 8  # runs of words are padded to multiples of this
_SLICE_ENTRIES: Final = 2**12  # entries of a slice: 32 KB of float64
COUNT_UNIT: Final = 2.0**-13  # counts of scaled documents are multiples of this
_SCALED_LENGTH: Final = 128.0  # documents with counts that are not integers are scaled to this length
_KEY_SEED: Final = 1  # seed of the words' random numbers that make documents' keys
_MIN_LENGTH: Final = 2.0**-960  # shorter documents are scaled in two steps, to avoid overflow
_MAX_EXACT: Final = 2.0**52  # sums of integers up to this are exact
OVERLONG_SHARE: Final = 0.125  # documents beyond the maximum length count for this share of it
_N_SIZES: Final = 64  # number of powers of two in histograms of lengths
_MAX_CORPUS_SHARE: Final = 0.02  # maximum share of all words that one document may count for
_MAX_MEAN_LENGTHS: Final = 8.0  # maximum length of a document in mean lengths, if that is more
_MIN_SHARE: Final = 1e-12  # minimum share of a topic after an over-relaxed step
_MIN_MIXED_RATE: Final = 1e-20  # minimum rate that counts are divided by
_MIN_COUNTED_RATE: Final = 2.0**-10  # minimum rate that expected counts are divided by, which bounds their sums
_MIXTURE_BITS: Final = 16  # mixtures are rounded to multiples of 2**-16
_COUNT_BITS: Final = 36  # bits of a word's total count: with 16 of mixtures and 10 of rates, sums are below 2**62
_MAX_SCALE_BITS: Final = 24  # maximum number of bits below one that counts keep, so that most sums fit float64
_MAX_FLOAT_INTEGER: Final = 2.0**53  # float64 holds all integers up to this


@dataclass(frozen=True)
class DocumentTile:
    """Some documents, each as s runs of l words.

    documents (d,): their indices; entries (d, s, l): indices of their entries, the last one repeated for padding;
    counts (d, s, l): zero for padding; rates (d, s, l, k): rates of the entries' words; space: workspace for results.
    """

    documents: NDArray[np.int64]
    entries: NDArray[np.int64]
    counts: Reals
    rates: Reals
    space: Workspace

    def mix_rates(self, mixtures: Reals) -> Reals:
        """Return the rate (d, s, l) of each word in its document's mixture (d, k); valid until the next call."""
        mixed: Reals = self.space.array("mixed", *self.counts.shape, dtype=self.rates.dtype)
        np.matmul(self.rates, mixtures[:, None, :, None], out=mixed[..., None])
        return mixed

    def sum_rates(self, weights: Reals) -> Reals:
        """Sum the rates of each document's words, times weights (d, s, l): returns (d, k)."""
        parts: Reals = np.matmul(weights[:, :, None, :], self.rates)[:, :, 0, :]
        return parts.sum(axis=1) if parts.shape[1] > 1 else parts[:, 0]

    def leave_out(self, occurrences: Reals, shares: Reals) -> Reals:
        """Subtract from the rates what each document itself contributed to the topics.

        occurrences (d, s, l): of the words, over their rates and probabilities; shares (d, k): of each topic's words,
        those of the document. Returns (d, s, l, k): what was subtracted, to be added again afterwards.
        """
        own: Reals = self.space.array("own", *self.rates.shape, dtype=self.rates.dtype)
        np.multiply(occurrences[..., None], shares[:, None, None, :], out=own)
        np.minimum(own, 1.0, out=own)
        np.multiply(own, self.rates, out=own)
        np.subtract(self.rates, own, out=self.rates)
        return own


def document_tiles(
    counts: sparse.csr_array, rates: Reals, among: NDArray[np.bool_] | None = None
) -> Iterator[DocumentTile]:
    """Lay out documents in tiles of documents of equal padded length, small enough for the cache.

    counts (n, V); rates (V, k): their dtype is that of all products; among (n,): which documents, all if None. A tile
    is valid until the next one, which uses the same memory: allocating costs more than the computation. Documents
    without words are left out.
    """
    k, space = rates.shape[1], Workspace()
    names, dtypes = _TILE_ARRAYS, (np.intp, counts.data.dtype, counts.indices.dtype, np.intp, rates.dtype)
    rates = np.require(
        rates, requirements=["C", "ALIGNED"]
    )  # arrays received from a network may be unaligned: `take` would copy them each time
    first, sizes = counts.indptr[:-1].astype(np.int64), np.diff(counts.indptr).astype(np.int64)
    run_length = max(_PRODUCT_ENTRIES // k // _RUN_MULTIPLE, 1) * _RUN_MULTIPLE
    runs = -(-sizes // run_length)
    lengths = -(-sizes // (_RUN_MULTIPLE * np.maximum(runs, 1))) * _RUN_MULTIPLE
    some = np.flatnonzero(sizes if among is None else (sizes > 0) & among)
    order = some[np.lexsort((lengths[some], runs[some]))]
    changes = np.flatnonzero(np.diff(runs[order]) | np.diff(lengths[order])) + 1
    for alike in np.split(order, changes) if len(order) else ():
        shape = int(runs[alike[0]]), int(lengths[alike[0]])
        steps = np.arange(shape[0] * shape[1])
        n_documents = max(1, _TILE_ENTRIES // (len(steps) * k))
        for begin in range(0, len(alike), n_documents):
            documents = alike[begin : begin + n_documents]
            within, last = (len(documents), *shape), sizes[documents, None] - 1
            at, held, columns, words, padded = (
                space.array(name, len(documents), len(steps), dtype=dtype)
                for name, dtype in zip(names, dtypes, strict=True)
            )
            np.minimum(steps, last, out=at)
            at += first[documents, None]
            padded[:] = counts.data.take(at, out=held, mode="clip")
            padded *= steps <= last
            words[:] = counts.indices.take(at, out=columns, mode="clip")
            near = space.array("rates", *at.shape, k, dtype=rates.dtype)
            rates.take(words, axis=0, out=near, mode="clip")
            yield DocumentTile(documents, at.reshape(within), padded.reshape(within), near.reshape(*within, k), space)


@dataclass(frozen=True)
class TrainingCounts:
    """Counts behind topics that were fitted to the documents whose mixtures are inferred, in the dtype of the rates.

    probability (V,): word probabilities; words (k,): number of words in each topic, pseudo-words included.
    """

    probability: Reals
    words: Reals

    def occurrences(self, counts: sparse.csr_array, tile: DocumentTile, mixed: Reals) -> Reals:
        """Occurrences (d, s, l) of the words of documents, over their rates and probabilities."""
        p = self.probability.take(counts.indices.take(tile.entries), mode="clip")
        return tile.counts / (np.maximum(mixed, mixed.dtype.type(_MIN_MIXED_RATE)) * np.where(p > 0.0, p, 1.0))


def entry_slices(n_entries: int) -> Iterator[slice]:
    """Yield slices of 4,096 entries, small enough for temporary results to stay in the cache."""
    for begin in range(0, n_entries, _SLICE_ENTRIES):
        yield slice(begin, min(begin + _SLICE_ENTRIES, n_entries))


def entry_values(counts: sparse.csr_array, space: Workspace | None = None) -> Floats:
    """Return an uninitialised array with a number for each entry, in the workspace if there is one."""
    return (space or Workspace()).array("entries", counts.nnz)


@dataclass(frozen=True)
class Documents:
    """Documents of one block.

    counts (n, V): word counts; lengths (n,): the paper's m; scaled (n,): documents that were scaled, as their counts
    are not integers or they are too long; weights (n,): how often each document counts.
    """

    counts: sparse.csr_array
    lengths: Floats
    scaled: NDArray[np.bool_]
    weights: Floats

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which documents (n,) contain a pair of words."""
        return self.lengths >= 2.0


def take_documents(rows: sparse.csr_array, max_length: float = np.inf, weights: Floats | None = None) -> Documents:
    """Convert rows (n, V), non-negative and in canonical form, to documents; the result for a row depends on it alone.

    Rows of integers stay as they are; others (tf-idf, for example) are scaled to length 128 and rounded to 1/8192.
    max_length: longer documents are scaled to an eighth of it; weights (n,): one each if None.
    """
    lengths = rows @ np.ones(rows.shape[1])
    scaled = lengths > max_length
    if scaled.any() or not all(_is_integer(rows.data[part]).all() for part in entry_slices(rows.nnz)):
        number = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        wanted = np.where(scaled, max_length * OVERLONG_SHARE, lengths)
        broken = np.zeros(rows.shape[0], dtype=bool)
        broken[number[~_is_integer(rows.data)]] = True
        wanted[broken], scaled = _SCALED_LENGTH, scaled | broken
        values, small = rows.data, broken & (lengths < _MIN_LENGTH)
        if small.any():  # a single factor would overflow
            larger = np.where(small, 1.0 / _MIN_LENGTH, 1.0)
            values, lengths = values * larger[number], lengths * larger
        gain = np.where(scaled, wanted / np.where(lengths > 0.0, lengths, 1.0), 1.0)
        data = np.rint(values * gain[number] / COUNT_UNIT) * COUNT_UNIT
        rows = with_data(rows, data)
        lengths = rows @ np.ones(rows.shape[1])
    return Documents(rows, lengths, scaled, np.ones(rows.shape[0]) if weights is None else weights)


def with_data(counts: sparse.csr_array, data: NDArray[Any]) -> sparse.csr_array:
    """Return a sparse matrix with the same structure and other values."""
    return sparse.csr_array((data, counts.indices, counts.indptr), shape=counts.shape)


def _is_integer(values: Floats) -> NDArray[np.bool_]:
    return values == np.floor(values)


def document_keys(counts: sparse.csr_array, space: Workspace | None = None) -> Floats:
    """Draw a random number in (0, 1) for each document that depends on its words only: copies have the same one.

    counts (n, V): multiples of 1/8192; space: workspace.
    """
    whole = entry_values(counts, space).view(np.uint64)
    for part in entry_slices(counts.nnz):
        whole[part] = counts.data[part] * (1.0 / COUNT_UNIT)
    words = child_seeds(_KEY_SEED, np.arange(counts.shape[1]))
    totals = with_data(counts, whole) @ words  # modulo 2**64
    return uniforms(totals, 1)[:, 0]


def length_histogram(lengths: Floats, weights: Floats) -> Floats:
    """Compute a histogram of documents, and of their words, by powers of two of the length.

    lengths, weights (n,). Returns (2, 64): in column b the number of lengths in [2**(b - 1), 2**b), and their sum.
    """
    size = np.clip(np.frexp(lengths)[1], 0, _N_SIZES - 1)
    counted = (lengths > 0.0) * weights, np.rint(lengths) * weights
    return np.array([np.bincount(size, weights=each, minlength=_N_SIZES) for each in counted])


def choose_max_length(sizes: Floats) -> float:
    """Choose the maximum length of documents that count in full, so that no document outweighs all others.

    sizes (2, 64): from `length_histogram`. Returns the greatest power of two that is at most a fiftieth of all words,
    or eight mean lengths if that is more, with longer documents cut to it; infinite if there are no longer ones.
    """
    counts, words = sizes
    bounds = np.exp2(np.arange(_N_SIZES))
    beyond = counts.sum() - counts.cumsum()
    total = words.cumsum() + beyond * bounds
    fits = bounds <= total * max(_MAX_CORPUS_SHARE, _MAX_MEAN_LENGTHS / max(float(counts.sum()), 1.0))
    allowed = int(np.flatnonzero(fits).max(initial=0))
    return float(bounds[allowed]) if allowed and beyond[allowed] > 0.0 else np.inf


def pair_weights(documents: Documents, *, by_length: bool) -> Floats:
    """Compute the weights (n,) with which the documents' pairs of words, x x^T, add up to the co-occurrence.

    by_length: documents count by their length m (which has minimum variance if mixtures are equal), with 1 / (m - 1);
    else equally, as in the paper, with 1 / (m (m - 1)). Documents without a pair have weight zero. Scaled documents are
    not samples of words, and need no correction for pairs of a word with itself: 1 / m and 1 / m^2.
    """
    m = documents.lengths
    others = np.where(documents.scaled, m, m - 1.0)
    weights = np.where(documents.used, 1.0 / np.where(documents.used, others, 1.0), 0.0)
    return weights if by_length else weights / np.where(documents.used, m, 1.0)


def product_units(columns: Floats, largest: float, *, fractional: bool) -> Floats:
    """Choose the units (b,), powers of two, of the documents' terms in a product, so that sums need at most 52 bits.

    columns (V, b): what the co-occurrence is multiplied by; largest: greatest total count of a word; fractional:
    whether counts are multiples of 1/8192 rather than integers.
    """
    steps = 1.0 / COUNT_UNIT if fractional else 1.0
    return power_of_two(2.0 * largest * steps * np.abs(columns).max(axis=0, initial=0.0)) / _MAX_EXACT


def cooccurrence_sums(documents: Documents, columns: Floats, units: Floats, *, by_length: bool) -> Floats:
    """Compute sum_i w_i x_i (x_i . B) over documents for columns B (V, b), without a matrix of words x words.

    units (b,): from `product_units`, with which the sums (V, b) are exact and can be added in any order.
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
    """Multiply the transpose of sparse non-negative integers (n, V) by others (n, k), exactly: (V, k), of unit one."""
    peaks = np.zeros(left.shape[0])
    not_empty = np.diff(left.indptr) > 0
    if not_empty.any():
        peaks[not_empty] = np.maximum.reduceat(left.data, left.indptr[:-1][not_empty])
    bounds = np.cumsum(peaks * right.max(axis=1, initial=0.0))
    total = Total(np.zeros((1, left.shape[1], right.shape[1])), 1.0)
    begin = 0
    while begin < left.shape[0]:
        before = bounds[begin - 1] if begin else 0.0
        end = max(begin + 1, int(np.searchsorted(bounds, before + _MAX_EXACT, side="right")))
        some = left if end - begin == left.shape[0] else left[begin:end]
        total = total + Total(np.stack(digits(some.T @ right[begin:end], 1.0)), 1.0)
        begin = end
    return total


def token_halves(counts: sparse.csr_array) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Split the occurrences of each word of a document into two halves; of odd numbers, halves get one more in turn.

    counts (n, V): in canonical form. Returns seen, hidden (n, V), with the same structure and explicit zeros.
    """
    sizes = np.diff(counts.indptr)
    turn = (np.arange(counts.nnz) - np.repeat(counts.indptr[:-1], sizes)) % 2
    seen = np.floor((counts.data + turn) / 2.0)
    return with_data(counts, seen), with_data(counts, counts.data - seen)


def damped_counts(counts: sparse.csr_array) -> sparse.csr_array:
    """Take square roots of counts above one: repetitions of a word carry less information than its first occurrence."""
    return with_data(counts, np.minimum(counts.data, np.sqrt(counts.data)))


COLD_START: Final = (3.0, 3.0, 2.0, 1.0)  # powers of inference steps from equal shares: as good as twelve plain steps


def mixtures_and_rates(
    counts: sparse.csr_array,
    rates: Reals,
    prior: float,
    powers: Sequence[float],
    start: Reals | None = None,
    among: NDArray[np.bool_] | None = None,
    training: TrainingCounts | None = None,
) -> tuple[Reals, Reals]:
    """Infer the topic mixture of each document by EM; return mixtures (n, k), and the rate (nnz,) of each entry.

    prior: pseudo-words of each topic in a document; powers: for each step, of EM's factor on the shares: more than one
    saves steps, a final one corrects overshoot; start (n, k): equal shares if None; among (n,): documents to infer, all
    if None; training: the documents' own part in the topics, which is left out from the second step on. A document's
    mixture has the same bits beside any other documents; rates (V, k) may have any scale per word.
    """
    k, one = rates.shape[1], rates.dtype.type
    theta = np.full((counts.shape[0], k), 1.0 / k, dtype=rates.dtype) if start is None else start.copy()
    mixed = np.zeros(counts.nnz, dtype=rates.dtype)
    for tile in document_tiles(counts, rates, among):
        mixture, own = theta[tile.documents], None
        for i, power in enumerate(powers):
            near = tile.mix_rates(mixture)
            if training is not None and i == 1:
                own = tile.leave_out(training.occurrences(counts, tile, near), mixture / training.words)
                near = tile.mix_rates(mixture)
            np.divide(tile.counts, np.maximum(near, one(_MIN_MIXED_RATE), out=near), out=near)
            explained = tile.sum_rates(near)
            moved = mixture * explained + one(prior)  # not normalised: its sum is the same in all steps
            mixture = moved if power == 1.0 else _over_relaxed(mixture, moved, power)
        mixture /= mixture.sum(axis=1, keepdims=True)
        theta[tile.documents] = mixture
        if own is not None:
            np.add(tile.rates, own, out=tile.rates)
        mixed[tile.entries] = tile.mix_rates(mixture)
    return theta, mixed


def _over_relaxed(mixture: Reals, moved: Reals, power: float) -> Reals:
    """Multiply shares by a power of the factor of an EM step."""
    moved = moved / moved.sum(axis=1, keepdims=True)
    relaxed = mixture * (moved / mixture) ** power
    relaxed /= relaxed.sum(axis=1, keepdims=True)
    return np.maximum(relaxed, mixture.dtype.type(_MIN_SHARE))


def mixture_rates(counts: sparse.csr_array, rates: Reals, theta: Reals) -> Reals:
    """Compute the rate theta_i . rates_j (nnz,) of each entry's word in its document's mixture (n, k)."""
    mixed = np.empty(counts.nnz, dtype=rates.dtype)
    for tile in document_tiles(counts, rates):
        mixed[tile.entries] = tile.mix_rates(theta[tile.documents])
    return mixed


def count_scales(occurrences: Floats) -> Floats:
    """Choose the factors (V,) by which counts are multiplied before rounding, so that sums need at most 62 bits.

    occurrences (V,): upper bounds of each word's occurrences in all documents. The factors are powers of two, smaller
    for more frequent words.
    """
    bits = _COUNT_BITS - np.ceil(np.log2(np.maximum(occurrences, 1.0)))
    return np.asarray(np.exp2(np.minimum(bits, _MAX_SCALE_BITS)))


def expected_counts(
    counts: sparse.csr_array,
    theta: Reals,
    mixed: Reals,
    scales: Floats,
    weights: Floats | None = None,
    space: Workspace | None = None,
) -> Numbers:
    """Compute the E-step's counts of words by topic, exactly, up to the factor `rates`: (X / (theta rates^T))^T theta.

    theta (n, k): mixtures, rounded to 2**-16; mixed (nnz,): from `mixture_rates`, at least 2**-10; scales (V,): from
    `count_scales`; weights (n,): of documents; space: workspace. Returns integers (V, k): times 2**16 and the scales.
    """
    values = entry_values(counts, space)
    for part in entry_slices(counts.nnz):
        near = values[part]
        scales.take(counts.indices[part], out=near, mode="clip")
        near *= counts.data[part]
        near /= np.maximum(mixed[part], mixed.dtype.type(_MIN_COUNTED_RATE))
        np.rint(near, out=near)
    left = with_data(counts, values)
    right = theta.astype(np.float64)
    right *= 2.0**_MIXTURE_BITS
    np.rint(right, out=right)
    if weights is not None:  # integers give the same bits as copies of documents
        right *= weights[:, None]
    return _integer_product(left, np.rint(right, out=right))


def _integer_product(left: sparse.csr_array, right: Floats) -> Numbers:
    """The transpose of `left` times `right`, of non-negative integers, exactly."""
    product = np.asarray(left.T @ right)
    if product.max(initial=0.0) < _MAX_FLOAT_INTEGER:  # partial sums are smaller: none was rounded
        whole, same = product.ravel().view(np.int64), product.ravel()
        for part in entry_slices(len(whole)):  # in place, to save as much memory as all the rest takes
            whole[part] = same[part]
        return whole.reshape(product.shape)
    whole = with_data(left, left.data.astype(np.int64))
    return np.asarray(whole.T @ right.astype(np.int64))  # exact, but slower


def type_halves(counts: sparse.csr_array) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Split each document's distinct words into two halves: the first, third, ..., and the others.

    counts (n, V): in canonical form. Returns seen, hidden (n, V): all occurrences of a word are in one of them, so that
    bursts don't leak from one to the other.
    """
    sizes = np.diff(counts.indptr)
    even = np.repeat(counts.indptr[:-1] % 2 == 1, sizes)
    even[::2] ^= True  # whether the entry and the row's first one have indices of equal parity
    parts = []
    for side, own in enumerate((even, ~even)):
        ends = np.concatenate([[0], np.cumsum((sizes + 1 - side) // 2)])
        parts.append(sparse.csr_array((counts.data[own], counts.indices[own], ends), shape=counts.shape))
    return parts[0], parts[1]
