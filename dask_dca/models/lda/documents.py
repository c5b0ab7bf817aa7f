"""Documents as rows of word counts: tiles of documents of like length, and exact sums of co-occurrence.

A document is padded to a length that depends on its own length alone, so that its products have the same shape, and
the same bits, in any company.

All sums over documents are sums of integers below 2**53, which float64 adds exactly in any order.

As mixtures of given topics, these enter as *rates* (V, k): a word's probability in each topic over its probability in
the whole corpus. Mixing proportions do not change, and a word that a mixture explains has a rate near one, which bounds
all sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from dask_dca.geometry.exact import Total, Workspace, digits, power_of_two
from dask_dca.geometry.planes import child_seeds, uniforms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Numbers

    Reals = NDArray[np.floating]

_TILE_ENTRIES: Final = 2**18  # numbers of a tile: its entries times topics
_PRODUCT_ENTRIES: Final = 2**13  # of one product, below what BLAS begins to cut up for its threads
_LAID_OUT: Final = ("at", "held", "columns", "words", "padded")  # arrays of a tile
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
_LEAST_SHARE: Final = 1e-12
_NOTHING: Final = 1e-20  # rate of a word that is in no topic
_LEAST_RATE: Final = 2.0**-10  # a word counts as no rarer than this, relative to the corpus, in any document
_MIXTURE_BITS: Final = 16
_COUNT_BITS: Final = 36  # 36 + 16 + 10 bits: sums stay below 2**62
_MOST_SCALE: Final = 24  # bits of a count that are kept of any word: then few sums need more than float64 has
_ROUNDED: Final = 2.0**53


@dataclass(frozen=True)
class DocumentTile:
    """Some documents, each as s runs of l words.

    documents (d,): which ones; entries (d, s, l): where their counts are stored; padding repeats the last one; counts
    (d, s, l): the counts; zero for padding; rates (d, s, l, k): rows of the rates of their words; space: for results.
    """

    documents: NDArray[np.int64]
    entries: NDArray[np.int64]
    counts: Reals
    rates: Reals
    space: Workspace

    def mixed(self, mixtures: Reals) -> Reals:
        """Mix the rates of each word.

        mixtures (d, k): one for each document. Returns (d, s, l): its rate in the document's mixture; good until the
        next ones.
        """
        mixed: Reals = self.space.array("mixed", *self.counts.shape, dtype=self.rates.dtype)
        np.matmul(self.rates, mixtures[:, None, :, None], out=mixed[..., None])
        return mixed

    def gathered(self, weights: Reals) -> Reals:
        """Add up the rates of each document's words.

        weights (d, s, l): what they are multiplied by. Returns (d, k): the sums.
        """
        parts: Reals = np.matmul(weights[:, :, None, :], self.rates)[:, :, 0, :]
        return parts.sum(axis=1) if parts.shape[1] > 1 else parts[:, 0]

    def leave_out(self, occurrences: Reals, shares: Reals) -> Reals:
        """Take out of the rates what topics have of each document itself.

        occurrences (d, s, l): of the words, over what they are expected by; shares (d, k): part of each topic that is
        the document's. Returns (d, s, l, k): what was taken out, to be added again before the tile is left.
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
    """Lay out documents in tiles.

    counts (n, V): word counts; rates (V, k): A row for each word; its dtype is that of all products; among (n,): which
    documents; all if None. Returns small enough for the cache, and good until the next one: they share memory, as fresh
    memory costs more than what is computed in it. Documents without words are in none.
    """
    k, space = rates.shape[1], Workspace()
    names, dtypes = _LAID_OUT, (np.intp, counts.data.dtype, counts.indices.dtype, np.intp, rates.dtype)
    rates = np.require(rates, requirements=["C", "ALIGNED"])  # else, as after a network, each `take` would copy all
    first, sizes = counts.indptr[:-1].astype(np.int64), np.diff(counts.indptr).astype(np.int64)
    longest = max(_PRODUCT_ENTRIES // k // _GRAIN, 1) * _GRAIN
    runs = -(-sizes // longest)
    lengths = -(-sizes // (_GRAIN * np.maximum(runs, 1))) * _GRAIN
    some = np.flatnonzero(sizes if among is None else (sizes > 0) & among)
    order = some[np.lexsort((lengths[some], runs[some]))]
    changes = np.flatnonzero(np.diff(runs[order]) | np.diff(lengths[order])) + 1
    for alike in np.split(order, changes) if len(order) else ():
        shape = int(runs[alike[0]]), int(lengths[alike[0]])
        steps = np.arange(shape[0] * shape[1])
        most = max(1, _TILE_ENTRIES // (len(steps) * k))
        for begin in range(0, len(alike), most):
            documents = alike[begin : begin + most]
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
class LearntFrom:
    """What topics were learnt from: the documents whose mixtures are inferred.

    probability (V,): word probabilities; words (k,): words in each topic, those of priors among them. In the dtype of
    the rates.
    """

    probability: Reals
    words: Reals

    def occurrences(self, counts: sparse.csr_array, tile: DocumentTile, mixed: Reals) -> Reals:
        """How often words of documents occur, over their rates and probabilities (d, s, l)."""
        p = self.probability.take(counts.indices.take(tile.entries), mode="clip")
        return tile.counts / (np.maximum(mixed, mixed.dtype.type(_NOTHING)) * np.where(p > 0.0, p, 1.0))


def entry_slices(n_entries: int) -> Iterator[slice]:
    """Cut entries into slices, so that what is computed of one stays in the cache and needs no memory of its own.

    Returns of 4,096 entries, the last one of fewer.
    """
    for begin in range(0, n_entries, _SLICE):
        yield slice(begin, min(begin + _SLICE, n_entries))


def entry_values(counts: sparse.csr_array, space: Workspace | None = None) -> Floats:
    """Return an array of a number for each entry, in a space where there is one: good until the next such."""
    return (space or Workspace()).array("entries", counts.nnz)


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


def document_keys(counts: sparse.csr_array, space: Workspace | None = None) -> Floats:
    """Draw a number for each document from its words alone: copies have the same one, wherever they stand.

    counts (n, V): multiples of 1/8192; space: for values of entries. Returns (n,): inside (0, 1).
    """
    whole = entry_values(counts, space).view(np.uint64)
    for part in entry_slices(counts.nnz):
        whole[part] = counts.data[part] * (1.0 / FRACTION)
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


def token_halves(counts: sparse.csr_array) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Split the occurrences of each of a document's words in two; of an odd number one half has one more, in turn.

    counts (n, V): word counts, in canonical form. Returns seen, hidden (n, V): with the same places, zeros among them.
    """
    sizes = np.diff(counts.indptr)
    turn = (np.arange(counts.nnz) - np.repeat(counts.indptr[:-1], sizes)) % 2
    seen = np.floor((counts.data + turn) / 2.0)
    return with_data(counts, seen), with_data(counts, counts.data - seen)


def damped_counts(counts: sparse.csr_array) -> sparse.csr_array:
    """Take square roots of counts above one: a word that comes again tells less than one that comes first.

    counts (n, V): word counts. Returns (n, V): not a copy of where they are.
    """
    return with_data(counts, np.minimum(counts.data, np.sqrt(counts.data)))


COLD: Final = (3.0, 3.0, 2.0, 1.0)  # steps of inference from even mixtures: as good as a dozen plain ones


def infer_mixtures(counts: sparse.csr_array, rates: Reals, prior: float, n_steps: int) -> Reals:
    """Infer the topic mixture of each document by EM on the mixtures alone.

    counts (n, V): word counts; rates (V, k): topics over word probabilities (any scale a word will do); prior:
    pseudo-words of each topic that a document begins with; n_steps: steps from the even mixture. Returns (n, k): in the
    paper h: rows on the simplex. A row depends on its document alone, to the bit.
    """
    return mixtures_and_rates(counts, rates, prior, (1.0,) * n_steps)[0]


def mixtures_and_rates(
    counts: sparse.csr_array,
    rates: Reals,
    prior: float,
    powers: Sequence[float],
    start: Reals | None = None,
    among: NDArray[np.bool_] | None = None,
    learnt: LearntFrom | None = None,
) -> tuple[Reals, Reals]:
    """Infer mixtures as `infer_mixtures` does, and the rate of each entry's word in its document's mixture.

    counts (n, V): word counts; rates (V, k): topics over word probabilities; prior: pseudo-words of each topic that a
    document begins with; powers: one for each step: by which power of EM's own factor the shares change. Two saves
    steps, one in the end takes back what went too far; start (n, k): mixtures to begin with, else even ones; among
    (n,): documents to infer, all if None; mixtures of others stay as they are, and their rates are zero; learnt: what
    the topics have of these documents, which is left out from the second step on: a document is then explained by what
    others say of its words. Returns theta (n, k): mixtures; mixed (nnz,): theta_i . rates_j, in the order of
    the entries, with nothing left out.
    """
    k, one = rates.shape[1], rates.dtype.type
    theta = np.full((counts.shape[0], k), 1.0 / k, dtype=rates.dtype) if start is None else start.copy()
    mixed = np.zeros(counts.nnz, dtype=rates.dtype)
    for tile in document_tiles(counts, rates, among):
        mixture, own = theta[tile.documents], None
        for i, power in enumerate(powers):
            near = tile.mixed(mixture)
            if learnt is not None and i == 1:
                own = tile.leave_out(learnt.occurrences(counts, tile, near), mixture / learnt.words)
                near = tile.mixed(mixture)
            np.divide(tile.counts, np.maximum(near, one(_NOTHING), out=near), out=near)
            explained = tile.gathered(near)
            moved = mixture * explained + one(prior)  # of the same sum in all steps, which hence doesn't matter
            mixture = moved if power == 1.0 else _further(mixture, moved, power)
        mixture /= mixture.sum(axis=1, keepdims=True)
        theta[tile.documents] = mixture
        if own is not None:
            np.add(tile.rates, own, out=tile.rates)
        mixed[tile.entries] = tile.mixed(mixture)
    return theta, mixed


def _further(mixture: Reals, moved: Reals, power: float) -> Reals:
    """Move shares by a power of the factor that EM moves them by."""
    moved = moved / moved.sum(axis=1, keepdims=True)
    further = mixture * (moved / mixture) ** power
    further /= further.sum(axis=1, keepdims=True)
    return np.maximum(further, mixture.dtype.type(_LEAST_SHARE))


def mixture_rates(counts: sparse.csr_array, rates: Reals, theta: Reals) -> Reals:
    """Rate of each entry's word in its document's mixture.

    counts (n, V): word counts; rates (V, k): topics over word probabilities; theta (n, k): mixtures. Returns (nnz,):
    theta_i . rates_j, in the order of the entries.
    """
    mixed = np.empty(counts.nnz, dtype=rates.dtype)
    for tile in document_tiles(counts, rates):
        mixed[tile.entries] = tile.mixed(theta[tile.documents])
    return mixed


def count_scales(occurrences: Floats) -> Floats:
    """Choose what counts of each word are multiplied by before they are rounded: no sum then needs more than 62 bits.

    occurrences (V,): the most occurrences of each word, in all documents together. Returns (V,): powers of two: the
    more frequent a word, the fewer bits its counts keep.
    """
    bits = _COUNT_BITS - np.ceil(np.log2(np.maximum(occurrences, 1.0)))
    return np.asarray(np.exp2(np.minimum(bits, _MOST_SCALE)))


def expected_counts(
    counts: sparse.csr_array,
    theta: Reals,
    mixed: Reals,
    scales: Floats,
    weights: Floats | None = None,
    space: Workspace | None = None,
) -> Numbers:
    """Count how many of each word's occurrences belong to each topic, except for the factor `rates`, exactly.

    counts (n, V): word counts; theta (n, k): mixtures, rounded here to 2**-16; mixed (nnz,): from `mixture_rates`; less
    than 2**-10 counts as 2**-10; scales (V,): from `count_scales`; weights (n,): how often documents count; space: for
    values of entries. Returns (V, k): (X / (theta rates^T))^T theta times 2**16 and the scales: a whole number, the
    same in any order of documents.
    """
    values = entry_values(counts, space)
    for part in entry_slices(counts.nnz):
        near = values[part]
        scales.take(counts.indices[part], out=near, mode="clip")
        near *= counts.data[part]
        near /= np.maximum(mixed[part], mixed.dtype.type(_LEAST_RATE))
        np.rint(near, out=near)
    left = with_data(counts, values)
    right = theta.astype(np.float64)
    right *= 2.0**_MIXTURE_BITS
    np.rint(right, out=right)
    if weights is not None:  # whole ones have the sums of copies, to the bit
        right *= weights[:, None]
    return _whole_product(left, np.rint(right, out=right))


def _whole_product(left: sparse.csr_array, right: Floats) -> Numbers:
    """The transpose of `left` times `right`, of whole numbers that are not negative, exactly."""
    product = np.asarray(left.T @ right)
    if product.max(initial=0.0) < _ROUNDED:  # sums only rise, so none of them was rounded
        whole, same = product.ravel().view(np.int64), product.ravel()
        for part in entry_slices(len(whole)):  # where they are: this is as much memory as all else
            whole[part] = same[part]
        return whole.reshape(product.shape)
    whole = with_data(left, left.data.astype(np.int64))
    return np.asarray(whole.T @ right.astype(np.int64))  # slower


def halves(counts: sparse.csr_array) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Split each document's words in two: its first, third, ... different word, and the others.

    counts (n, V): word counts, in canonical form. Returns seen, hidden (n, V): A word is in one of them with all of its
    occurrences, so that bursts do not leak.
    """
    sizes = np.diff(counts.indptr)
    even = np.repeat(counts.indptr[:-1] % 2 == 1, sizes)
    even[::2] ^= True  # whether entry and beginning are both at even places, or both at odd ones
    parts = []
    for side, own in enumerate((even, ~even)):
        ends = np.concatenate([[0], np.cumsum((sizes + 1 - side) // 2)])
        parts.append(sparse.csr_array((counts.data[own], counts.indices[own], ends), shape=counts.shape))
    return parts[0], parts[1]
