"""Documents as data: their census, a sample of them, and the co-occurrence of their words as an operator.

On a cluster its parts stay where they were taken, in pieces: of each only the keys and sizes of its documents are
looked at together, so that a sample that is too large is cut to the same documents anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import KeepRule, run_and_keep
from dask_dca.engine.tiles import counts_of_block
from dask_dca.engine.types import Summed, add_parts
from dask_dca.errors import warn
from dask_dca.geometry.exact import Total
from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.models.lda.documents import (
    OUTWEIGHING,
    Documents,
    cooccurrence_sums,
    document_keys,
    exact_product,
    longest_length,
    product_units,
    size_counts,
    take_documents,
    with_data,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers


_MOST_ENTRIES: Final = 2**23  # different words of all documents of a sample together: 100 MB
_PIECE: Final = 4096  # documents of a piece of a sample, at least: of fewer, sums over words are most of the work
_INVERSE_BITS: Final = np.array([26.0, 40.0])  # of 1 / (m - 1) and 1 / (m (m - 1))


@dataclass(frozen=True)
class Draw:
    """Which documents are drawn."""

    share: float
    seed: int = 0

    def take(self, counts: sparse.csr_array, start: int, weights: Floats | float = 1.0) -> DocumentSample:
        """Draw some documents of a block, several copies of those that count more often.

        counts (n, V): the block's documents; start: row number of its first row; weights (n,): how often each counts.
        Returns A copy of those that are drawn.
        """
        numbers = np.arange(start, start + counts.shape[0])
        keys = uniforms(child_seeds(self.seed, numbers), 1)[:, 0]
        copies = np.maximum(np.ceil(self.share * weights - keys), 0.0).astype(np.int64)
        drawn = np.repeat(np.arange(len(keys)), copies)
        return sample_of(keys[drawn], numbers[drawn], counts[drawn])


@dataclass(frozen=True)
class Sizes:
    """How large the documents of a sample are.

    keys (m,): A random number of each document, by its row number; numbers (m,): row numbers; words (m,): different
    words of each.
    """

    keys: Floats
    numbers: Numbers
    words: Numbers


@dataclass(frozen=True)
class DocumentSample:
    """Some documents; samples of parts are merged by `+`, in any order.

    keys (m,): A random number of each document, by its row number; numbers (m,): row numbers; data, indices, indptr:
    the documents in csr form.
    """

    keys: Floats
    numbers: Numbers
    data: Floats
    indices: NDArray[np.integer]
    indptr: NDArray[np.integer]
    n_words: int

    @property
    def counts(self) -> sparse.csr_array:
        """Return the documents.

        Returns (m, V): not a copy.
        """
        return sparse.csr_array((self.data, self.indices, self.indptr), shape=(len(self.keys), self.n_words))

    def __add__(self, other: DocumentSample) -> DocumentSample:
        keys = np.concatenate([self.keys, other.keys])
        numbers = np.concatenate([self.numbers, other.numbers])
        counts = sparse.csr_array(sparse.vstack([self.counts, other.counts], format="csr"))
        both = sample_of(keys, numbers, counts)
        return both if counts.nnz <= _MOST_ENTRIES else both.trimmed(beyond=True)

    def trimmed(self, most: int = _MOST_ENTRIES, *, beyond: bool = False) -> DocumentSample:
        """Keep the documents of the smallest keys, as many as fit in memory, in that order.

        What is left out of a part would be left out of the whole as well, so trimming parts changes nothing as long as
        these keep the first document that doesn't fit: else those after it might fit in its place.
        most: entries that may be kept; beyond: keep the first document that doesn't fit, too. Returns in the order of
        the keys.
        """
        order = np.lexsort((self.numbers, self.keys))
        sizes = np.diff(self.indptr)[order]
        kept = order[np.cumsum(sizes) - sizes * beyond <= most]
        return sample_of(self.keys[kept], self.numbers[kept], self.counts[kept])

    def sizes(self) -> Sizes:
        """Say how large its documents are."""
        return Sizes(self.keys, self.numbers, np.diff(self.indptr).astype(np.int64))

    def up_to(self, last: tuple[float, int]) -> sparse.csr_array:
        """Return the documents up to the last that is kept.

        Returns (m, V): the documents.
        """
        key, number = last
        return self.counts[(self.keys < key) | ((self.keys == key) & (self.numbers <= number))]


def last_kept(parts: Sequence[Sizes], most: int = _MOST_ENTRIES) -> tuple[float, int]:
    """Tell up to which document the parts of a sample fit in memory, in the order of the keys.

    most: entries that may be kept. Returns key: of the last document that is kept; infinite if all are, -1 if none is.
    """
    keys, numbers, words = (np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0]))
    order = np.lexsort((numbers, keys))
    n_kept = int((np.cumsum(words[order]) <= most).sum())
    if n_kept == len(order):
        return np.inf, 0
    return (float(keys[order[n_kept - 1]]), int(numbers[order[n_kept - 1]])) if n_kept else (-1.0, 0)


def sample_of(keys: Floats, numbers: Numbers, counts: sparse.csr_array) -> DocumentSample:
    """Make a sample of documents that are at hand.

    keys (m,): A random number of each document; numbers (m,): row numbers; counts (m, V): the documents.
    """
    return DocumentSample(keys, numbers, counts.data, counts.indices, counts.indptr, counts.shape[1])


@dataclass(frozen=True)
class DocumentCensus(Summed):
    """What one look at all documents counts, over those with a pair of words.

    words (V,): occurrences of each word; documents (V,): documents that hold each word; selves (V, 2): pairs of a word
    with itself: sums of X_ij / (m_i - 1) and of X_ij / (m_i (m_i - 1)); n_used, n_short, n_empty, n_scaled: documents
    with a pair of words, with one word, with none; and those whose weights were scaled; squares: sum of m_i^2, rounded
    each; sizes (2, 64): how long documents are, from `size_counts`.
    """

    words: Floats
    documents: Floats
    selves: Total
    n_used: float
    n_short: float
    n_empty: float
    n_scaled: int
    squares: float
    sizes: Floats


def documents_of(
    columns: Sequence[Any], start: int, longest: float = np.inf, weights: Floats | None = None
) -> Documents:
    """Take a block as documents.

    columns (n, p_j): the block's column chunks; start: row number of its first row; longest: documents beyond this
    length are scaled to an eighth of it; weights (n,): how often each counts.
    Raises InvalidInputError: an entry is negative, not finite, or above 2**31.
    """
    return take_documents(counts_of_block(columns, start), longest, weights)


def take_census(rows: Rows, run: Run, longest: float = np.inf) -> DocumentCensus:
    """Check and count all documents, in one pass.

    longest: documents beyond this length count for an eighth of it.
    Raises InvalidInputError: an entry is negative, not finite, or above 2**31.
    """
    job: Pass[DocumentCensus] = Pass("census", _census_block, add_parts, weighted=True)
    return run_pass(rows, job, longest, run)


def take_census_and_draw(
    rows: Rows, run: Run, draw: Draw, longest: float = np.inf
) -> tuple[DocumentCensus, Rows | None]:
    """Check and count all documents, and take some of them along, in one pass.

    draw: which documents to take along; longest: documents beyond this length count for an eighth of it. Returns drawn:
    the documents drawn, if any; on the cluster where the others are (in this process with a checkpoint, which holds
    them too).
    Raises InvalidInputError: an entry is negative, not finite, or above 2**31.
    """
    job: Pass[tuple[DocumentCensus, DocumentSample]] = Pass("census", _draw_block, add_parts, weighted=True)
    if rows.kind == "memory" or run.checkpoint is not None:
        census, sample = run_pass(rows, job, (draw, longest), run)
        counts = sample.trimmed().counts
        return census, as_rows(counts) if counts.shape[0] else None
    most = -(-int(draw.share * rows.total_weight) // _PIECE)
    return run_and_keep(
        rows, job, KeepRule(DocumentSample.sizes, last_kept, DocumentSample.up_to, most), (draw, longest), run
    )


def _census_block(longest: float, start: int, *columns: Any, weights: Floats | None = None) -> DocumentCensus:
    return _census(documents_of(columns, start, longest, weights))


def _draw_block(
    state: tuple[Draw, float], start: int, *columns: Any, weights: Floats | None = None
) -> tuple[DocumentCensus, DocumentSample]:
    draw, longest = state
    documents = documents_of(columns, start, longest, weights)
    return _census(documents), draw.take(documents.counts, start, documents.weights)


def _census(documents: Documents) -> DocumentCensus:
    X, used, weights = documents.counts, documents.used, documents.weights
    m = documents.lengths[:, None]
    corrected = (used & ~documents.scaled)[:, None]
    inverses = np.hstack([m - 1.0, m * (m - 1.0)])
    inverses = np.where(corrected, np.rint(2.0**_INVERSE_BITS / np.where(corrected, inverses, 1.0)), 0.0)
    inverses = np.rint(inverses * weights[:, None])
    whole = with_data(X, np.floor(X.data)) if documents.scaled.any() else X  # scaled ones are not counted anyway
    selves = exact_product(whole, inverses)
    present = with_data(X, np.ones_like(X.data))
    lengths = np.where(used, documents.lengths, 0.0)
    return DocumentCensus(
        words=X.T @ (used * weights),
        documents=present.T @ (used * weights),
        selves=Total(selves.parts, 2.0**-_INVERSE_BITS),
        n_used=float(weights[used].sum()),
        n_short=float(weights[~used & (documents.lengths > 0)].sum()),
        n_empty=float(weights[documents.lengths == 0].sum()),
        n_scaled=int((used & documents.scaled).sum()),
        squares=float((np.rint(lengths**2) * weights).sum()),
        sizes=size_counts(lengths, weights),
    )


@dataclass(frozen=True)
class Cooccurrence:
    """The co-occurrence Q (V, V) of the documents' words, by its products.

    by_length: whether a document counts by its length, or as one; longest: documents beyond this length count for an
    eighth of it; drawn: some of the documents, if any were drawn; kept: whether workers hold the documents in memory.
    """

    rows: Rows
    run: Run
    census: DocumentCensus
    by_length: bool = True
    longest: float = np.inf
    drawn: Rows | None = None
    kept: bool = False

    @property
    def total(self) -> float:
        """Sum of all entries before division."""
        return float(self.census.words.sum()) if self.by_length else float(self.census.n_used)

    @property
    def products(self) -> Products:
        """Return what products need besides the documents."""
        census = self.census
        selves = census.selves.value()[:, 0 if self.by_length else 1]
        largest, fractional = float(census.words.max()), census.n_scaled > 0
        return Products(selves, self.total, largest, fractional, self.by_length, self.longest)

    def sums(self, columns: Floats) -> Floats:
        """Multiply the pairs of words by some columns, in one pass.

        columns (V, b): columns B. Returns (V, b): in the paper n Xbar^T Xbar B: a word's pairs with itself are still
        in.
        """
        return run_pass(self.rows, product_pass(), self.products.columns(columns), self.run)

    def __matmul__(self, columns: Floats) -> Floats:
        """Multiply Q by some columns."""
        return self.products.finished(columns, self.sums(columns))


@dataclass(frozen=True)
class Columns:
    """What a pass for a product starts from.

    columns, units: columns, and what the documents' share in the product is rounded to; by_length: whether a document
    counts by its length; longest: documents beyond this length count for an eighth of it.
    """

    columns: Floats
    units: Floats
    by_length: bool
    longest: float


@dataclass(frozen=True)
class Products:
    """What products with the co-occurrence need besides the documents.

    selves (V,): pairs of each word with itself; total: sum of all entries before division; largest: the greatest total
    count of a word; fractional: whether counts are multiples of 1/8192; by_length: whether a document counts by its
    length; longest: documents beyond this length count for an eighth of it.
    """

    selves: Floats
    total: float
    largest: float
    fractional: bool
    by_length: bool
    longest: float

    def columns(self, columns: Floats) -> Columns:
        """Prepare a pass.

        columns (V, b): columns B.
        """
        units = product_units(columns, self.largest, fractional=self.fractional)
        return Columns(columns, units, self.by_length, self.longest)

    def finished(self, columns: Floats, sums: Floats) -> Floats:
        """Take a word's pairs with itself out of the sums of a pass.

        columns, sums (V, b): columns B, and what the pass gave. Returns (V, b): the product Q B.
        """
        return (sums - self.selves[:, None] * columns) / self.total


def product_pass() -> Pass[Floats]:
    """Return the pass that multiplies the pairs of words by some columns."""
    return Pass("cooccur", _product_block, add_parts, weighted=True)


def documents_at_hand(operator: Cooccurrence, n_documents: int, n_entries: int) -> sparse.csr_array:
    """Bring some of the documents to this process, in the order of keys that their words give them.

    n_documents, n_entries: about how many documents, and different words in all of them, at most. Returns (m, V): the
    same for any chunking.
    """
    census = operator.census
    share = min(n_documents / census.n_used, n_entries / max(float(census.documents.sum()), 1.0))
    job: Pass[DocumentSample] = Pass("fetch", _keyed_block, add_parts, weighted=True)
    return run_pass(operator.rows, job, (share, operator.longest), operator.run).trimmed().counts


def _keyed_block(
    state: tuple[float, float], start: int, *columns: Any, weights: Floats | None = None
) -> DocumentSample:
    share, longest = state
    documents = documents_of(columns, start, longest, weights)
    keys = document_keys(documents.counts)
    copies = np.where(documents.used & (keys < share), np.rint(documents.weights), 0.0).astype(np.int64)
    drawn = np.repeat(np.arange(len(keys)), copies)
    return sample_of(keys[drawn], start + drawn, documents.counts[drawn])


def cooccurrence_of(rows: Rows, run: Run, draw: Draw | None = None) -> Cooccurrence:
    """Prepare the co-occurrence of documents that count by their lengths.

    draw: which documents the census takes along. Returns the operator; one pass has been run, and another one where a
    document outweighs the others.
    """
    census, drawn = _counted(rows, run, draw)
    longest = longest_length(census.sizes)
    if np.isfinite(longest):
        _warn_of_outweighing(census, longest)
        census, drawn = _counted(rows, run, draw, longest)
    return Cooccurrence(rows, run, census, longest=longest, drawn=drawn)


def _counted(rows: Rows, run: Run, draw: Draw | None, longest: float = np.inf) -> tuple[DocumentCensus, Rows | None]:
    if draw is None:
        return take_census(rows, run, longest), None
    return take_census_and_draw(rows, run, draw, longest)


def _warn_of_outweighing(census: DocumentCensus, longest: float) -> None:
    n = int(census.sizes[0, np.exp2(np.arange(census.sizes.shape[1])) > longest].sum())
    counted = f"count for {longest * OUTWEIGHING:g} words each"
    warn(f"{n} of the documents outweigh all others, and {counted}; drop them if you can", UserWarning)


def sampled(operator: Cooccurrence) -> Cooccurrence:
    """Prepare the co-occurrence of the documents that a census took along.

    Returns the same object if none were drawn, or none that holds a pair of words.
    """
    if operator.drawn is None:
        return operator
    few = replace(cooccurrence_of(operator.drawn, operator.run), kept=operator.drawn.kind == "dask")
    return few if few.census.n_used else operator


def _product_block(state: Columns, start: int, *columns: Any, weights: Floats | None = None) -> Floats:
    documents = documents_of(columns, start, state.longest, weights)
    return cooccurrence_sums(documents, state.columns, state.units, by_length=state.by_length)
