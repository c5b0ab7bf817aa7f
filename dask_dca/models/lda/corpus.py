"""Statistics of all documents (the census), a sample of them, and the co-occurrence of their words as an operator.

On a cluster the parts of the sample stay on the workers that drew them. Only the keys and sizes of the documents are
collected, so that a sample that is too large is cut to the same documents for any chunking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import KeepRule, run_and_keep
from dask_dca.engine.tiles import counts_of_block
from dask_dca.engine.types import Summed, add_parts
from dask_dca.errors import warn
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import Total
from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.models.lda.documents import (
    OVERLONG_SHARE,
    Documents,
    choose_max_length,
    cooccurrence_sums,
    document_keys,
    exact_product,
    length_histogram,
    product_units,
    take_documents,
    with_data,
)

_MAX_SAMPLE_ENTRIES: Final = 2**23  # maximum number of entries of a sample: 100 MB
_PIECE_DOCUMENTS: Final = 4096  # minimum number of documents per piece of a sample, so that sums over words are cheap
_INVERSE_BITS: Final = np.array([26.0, 40.0])  # bits of 1 / (m - 1) and of 1 / (m (m - 1))


@dataclass(frozen=True)
class Draw:
    """A random draw of a share of the documents."""

    share: float
    seed: int = 0

    def take(self, counts: sparse.csr_array, start: int, weights: Floats | float = 1.0) -> DocumentSample:
        """Draw documents of a block, with several copies of those of great weight.

        counts (n, V): the block's documents; start: row number of the first one; weights (n,): how often each counts.
        """
        numbers = np.arange(start, start + counts.shape[0])
        keys = uniforms(child_seeds(self.seed, numbers), 1)[:, 0]
        copies = np.maximum(np.ceil(self.share * weights - keys), 0.0).astype(np.int64)
        drawn = np.repeat(np.arange(len(keys)), copies)
        return sample_of(keys[drawn], numbers[drawn], counts[drawn])


@dataclass(frozen=True)
class DocumentSizes:
    """Sizes of the documents of a sample.

    keys (m,): random number of each document; numbers (m,): row numbers; words (m,): number of distinct words of each.
    """

    keys: Floats
    numbers: Numbers
    words: Numbers


@dataclass(frozen=True)
class DocumentSample:
    """A sample of documents; samples of different blocks are merged by `+`, in any order.

    keys (m,): random number of each document; numbers (m,): row numbers; data, indices, indptr: word counts in CSR
    form.
    """

    keys: Floats
    numbers: Numbers
    data: Floats
    indices: NDArray[np.integer]
    indptr: NDArray[np.integer]
    n_words: int

    @property
    def counts(self) -> sparse.csr_array:
        """The documents (m, V), without copying."""
        return sparse.csr_array((self.data, self.indices, self.indptr), shape=(len(self.keys), self.n_words))

    def __add__(self, other: DocumentSample) -> DocumentSample:
        keys = np.concatenate([self.keys, other.keys])
        numbers = np.concatenate([self.numbers, other.numbers])
        counts = sparse.csr_array(sparse.vstack([self.counts, other.counts], format="csr"))
        both = sample_of(keys, numbers, counts)
        return both if counts.nnz <= _MAX_SAMPLE_ENTRIES else both.trimmed(beyond=True)

    def trimmed(self, max_entries: int = _MAX_SAMPLE_ENTRIES, *, beyond: bool = False) -> DocumentSample:
        """Keep the documents of smallest keys, in their order, with at most `max_entries` entries in all.

        Documents dropped from a part would be dropped from the whole as well, so parts can be trimmed before they are
        merged if they keep the first document that doesn't fit (`beyond`): else later ones might fit in its place.
        """
        order = np.lexsort((self.numbers, self.keys))
        sizes = np.diff(self.indptr)[order]
        kept = order[np.cumsum(sizes) - sizes * beyond <= max_entries]
        return sample_of(self.keys[kept], self.numbers[kept], self.counts[kept])

    def sizes(self) -> DocumentSizes:
        """Return the sizes of the documents."""
        return DocumentSizes(self.keys, self.numbers, np.diff(self.indptr).astype(np.int64))

    def up_to(self, last: tuple[float, int]) -> sparse.csr_array:
        """Return the documents (m, V) up to the last one that is kept, given by key and number."""
        key, number = last
        return self.counts[(self.keys < key) | ((self.keys == key) & (self.numbers <= number))]


def last_kept(parts: Sequence[DocumentSizes], max_entries: int = _MAX_SAMPLE_ENTRIES) -> tuple[float, int]:
    """Find the last document, in the order of the keys, up to which a sample has at most `max_entries` entries.

    Returns its key and number; the key is infinite if all documents are kept, -1 if none is.
    """
    keys, numbers, words = (np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0]))
    order = np.lexsort((numbers, keys))
    n_kept = int((np.cumsum(words[order]) <= max_entries).sum())
    if n_kept == len(order):
        return np.inf, 0
    return (float(keys[order[n_kept - 1]]), int(numbers[order[n_kept - 1]])) if n_kept else (-1.0, 0)


def sample_of(keys: Floats, numbers: Numbers, counts: sparse.csr_array) -> DocumentSample:
    """Make a sample from documents (m, V) with their keys (m,) and row numbers (m,)."""
    return DocumentSample(keys, numbers, counts.data, counts.indices, counts.indptr, counts.shape[1])


@dataclass(frozen=True)
class DocumentCensus(Summed):
    """Statistics of all documents that have a pair of words.

    words (V,): occurrences of each word; documents (V,): number of documents that contain it; self_pairs (V, 2): pairs
    of a word with itself: sums of X_ij / (m_i - 1) and of X_ij / (m_i (m_i - 1)); n_used, n_short, n_empty, n_scaled:
    number of documents with a pair of words, with a single word, with none, and that were scaled; squares: sum of
    rounded m_i^2; sizes (2, 64): from `length_histogram`.
    """

    words: Floats
    documents: Floats
    self_pairs: Total
    n_used: float
    n_short: float
    n_empty: float
    n_scaled: int
    squares: float
    sizes: Floats


def documents_of(
    columns: Sequence[Any], start: int, max_length: float = np.inf, weights: Floats | None = None
) -> Documents:
    """Convert a block to documents; arguments as for `take_documents`.

    columns (n, p_j): the block's column chunks; start: row number of its first row.
    Raises InvalidInputError: an entry is negative, not finite, or above 2**31.
    """
    return take_documents(counts_of_block(columns, start), max_length, weights)


def take_census(rows: Rows, run: Run, max_length: float = np.inf) -> DocumentCensus:
    """Check all documents, and compute their statistics, in one pass.

    Raises InvalidInputError: an entry is negative, not finite, or above 2**31.
    """
    job: Pass[DocumentCensus] = Pass("census", _census_block, add_parts, weighted=True)
    return run_pass(rows, job, max_length, run)


def take_census_and_draw(
    rows: Rows, run: Run, draw: Draw, max_length: float = np.inf
) -> tuple[DocumentCensus, Rows | None]:
    """Check all documents, compute their statistics, and draw a sample, in one pass.

    Returns the census, and the documents drawn, if any; these stay on the workers (with a checkpoint, which contains
    them too, in this process).
    Raises InvalidInputError: an entry is negative, not finite, or above 2**31.
    """
    job: Pass[tuple[DocumentCensus, DocumentSample]] = Pass("census", _draw_block, add_parts, weighted=True)
    if rows.kind == "memory" or run.checkpoint is not None:
        census, sample = run_pass(rows, job, (draw, max_length), run)
        counts = sample.trimmed().counts
        return census, as_rows(counts) if counts.shape[0] else None
    n_pieces = -(-int(draw.share * rows.total_weight) // _PIECE_DOCUMENTS)
    return run_and_keep(
        rows, job, KeepRule(DocumentSample.sizes, last_kept, DocumentSample.up_to, n_pieces), (draw, max_length), run
    )


def _census_block(max_length: float, start: int, *columns: Any, weights: Floats | None = None) -> DocumentCensus:
    return _census(documents_of(columns, start, max_length, weights))


def _draw_block(
    state: tuple[Draw, float], start: int, *columns: Any, weights: Floats | None = None
) -> tuple[DocumentCensus, DocumentSample]:
    draw, max_length = state
    documents = documents_of(columns, start, max_length, weights)
    return _census(documents), draw.take(documents.counts, start, documents.weights)


def _census(documents: Documents) -> DocumentCensus:
    X, used, weights = documents.counts, documents.used, documents.weights
    m = documents.lengths[:, None]
    corrected = (used & ~documents.scaled)[:, None]
    inverses = np.hstack([m - 1.0, m * (m - 1.0)])
    inverses = np.where(corrected, np.rint(2.0**_INVERSE_BITS / np.where(corrected, inverses, 1.0)), 0.0)
    inverses = np.rint(inverses * weights[:, None])
    whole = with_data(X, np.floor(X.data)) if documents.scaled.any() else X  # scaled documents have zero inverses
    self_pairs = exact_product(whole, inverses)
    present = with_data(X, np.ones_like(X.data))
    lengths = np.where(used, documents.lengths, 0.0)
    return DocumentCensus(
        words=X.T @ (used * weights),
        documents=present.T @ (used * weights),
        self_pairs=Total(self_pairs.parts, 2.0**-_INVERSE_BITS),
        n_used=float(weights[used].sum()),
        n_short=float(weights[~used & (documents.lengths > 0)].sum()),
        n_empty=float(weights[documents.lengths == 0].sum()),
        n_scaled=int((used & documents.scaled).sum()),
        squares=float((np.rint(lengths**2) * weights).sum()),
        sizes=length_histogram(lengths, weights),
    )


@dataclass(frozen=True)
class Cooccurrence:
    """The co-occurrence Q (V, V) of the documents' words, as an operator.

    by_length: whether documents count by their length, or equally; max_length: longer documents count for an eighth of
    this; drawn: a sample of the documents, if one was drawn; held: whether workers hold the documents in memory.
    """

    rows: Rows
    run: Run
    census: DocumentCensus
    by_length: bool = True
    max_length: float = np.inf
    drawn: Rows | None = None
    held: bool = False

    @property
    def total(self) -> float:
        """Sum of all entries, by which Q is normalised."""
        return float(self.census.words.sum()) if self.by_length else float(self.census.n_used)

    @property
    def products(self) -> Products:
        """Return what products with Q need beside the documents."""
        census = self.census
        self_pairs = census.self_pairs.value()[:, 0 if self.by_length else 1]
        largest, fractional = float(census.words.max()), census.n_scaled > 0
        return Products(self_pairs, self.total, largest, fractional, self.by_length, self.max_length)

    def sums(self, columns: Floats) -> Floats:
        """Multiply the pairs of words by columns B (V, b), in one pass: the paper's n Xbar^T Xbar B.

        Pairs of a word with itself are still included.
        """
        return run_pass(self.rows, product_pass(), self.products.columns(columns), self.run)

    def __matmul__(self, columns: Floats) -> Floats:
        """Multiply Q by columns (V, b), in one pass."""
        return self.products.from_sums(columns, self.sums(columns))


@dataclass(frozen=True)
class Columns:
    """Columns (V, b) to multiply by, the units (b,) that the documents' terms are rounded to, and how documents count.

    by_length, max_length: as for `Cooccurrence`.
    """

    columns: Floats
    units: Floats
    by_length: bool
    max_length: float


@dataclass(frozen=True)
class Products:
    """What products with the co-occurrence need beside the documents.

    self_pairs (V,): pairs of each word with itself; total: sum of all entries; largest: greatest total count of a word;
    fractional: whether counts are multiples of 1/8192; by_length, max_length: as for `Cooccurrence`.
    """

    self_pairs: Floats
    total: float
    largest: float
    fractional: bool
    by_length: bool
    max_length: float

    def columns(self, columns: Floats) -> Columns:
        """Prepare a pass that multiplies by columns (V, b)."""
        units = product_units(columns, self.largest, fractional=self.fractional)
        return Columns(columns, units, self.by_length, self.max_length)

    def from_sums(self, columns: Floats, sums: Floats) -> Floats:
        """Return the product Q B from columns B (V, b) and the sums of a pass (V, b), without self-pairs."""
        return (sums - self.self_pairs[:, None] * columns) / self.total


def product_pass() -> Pass[Floats]:
    """Return the pass that multiplies the pairs of words by columns."""
    return Pass("cooccur", _product_block, add_parts, weighted=True)


def fetch_documents(operator: Cooccurrence, n_documents: int, n_entries: int) -> sparse.csr_array:
    """Fetch some documents (m, V), in the order of their keys, the same for any chunking.

    n_documents, n_entries: approximate maximum of their number and of their entries.
    """
    census = operator.census
    share = min(n_documents / census.n_used, n_entries / max(float(census.documents.sum()), 1.0))
    job: Pass[DocumentSample] = Pass("fetch", _keyed_block, add_parts, weighted=True)
    return run_pass(operator.rows, job, (share, operator.max_length), operator.run).trimmed().counts


def _keyed_block(
    state: tuple[float, float], start: int, *columns: Any, weights: Floats | None = None
) -> DocumentSample:
    share, max_length = state
    documents = documents_of(columns, start, max_length, weights)
    keys = document_keys(documents.counts)
    copies = np.where(documents.used & (keys < share), np.rint(documents.weights), 0.0).astype(np.int64)
    drawn = np.repeat(np.arange(len(keys)), copies)
    return sample_of(keys[drawn], start + drawn, documents.counts[drawn])


def cooccurrence_of(rows: Rows, run: Run, draw: Draw | None = None) -> Cooccurrence:
    """Prepare the co-occurrence of documents that count by their lengths, by one pass for the census.

    draw: a sample to draw in this pass. If a document outweighs the others, there is a second pass.
    """
    census, drawn = _census_pass(rows, run, draw)
    max_length = choose_max_length(census.sizes)
    if np.isfinite(max_length):
        _warn_of_outweighing(census, max_length)
        census, drawn = _census_pass(rows, run, draw, max_length)
    return Cooccurrence(rows, run, census, max_length=max_length, drawn=drawn)


def _census_pass(
    rows: Rows, run: Run, draw: Draw | None, max_length: float = np.inf
) -> tuple[DocumentCensus, Rows | None]:
    if draw is None:
        return take_census(rows, run, max_length), None
    return take_census_and_draw(rows, run, draw, max_length)


def _warn_of_outweighing(census: DocumentCensus, max_length: float) -> None:
    n = int(census.sizes[0, np.exp2(np.arange(census.sizes.shape[1])) > max_length].sum())
    counted = f"count for {max_length * OVERLONG_SHARE:g} words each"
    longer = f"X.sum(axis=1) >= {max_length:g}"
    warn(f"{n} of the documents outweigh all others, and {counted}; leave them out if you can: {longer}", UserWarning)


def cooccurrence_of_sample(operator: Cooccurrence) -> Cooccurrence:
    """Prepare the co-occurrence of the sample that was drawn; of all documents if there is none, or it has no pairs."""
    if operator.drawn is None:
        return operator
    few = replace(cooccurrence_of(operator.drawn, operator.run), held=operator.drawn.kind == "dask")
    return few if few.census.n_used else operator


def _product_block(state: Columns, start: int, *columns: Any, weights: Floats | None = None) -> Floats:
    documents = documents_of(columns, start, state.max_length, weights)
    return cooccurrence_sums(documents, state.columns, state.units, by_length=state.by_length)
