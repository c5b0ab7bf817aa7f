"""The co-occurrence of words as an operator: one pass over the documents for each product, nothing of words x words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from dask_dca.engine.document_sample import DocumentSample, Draw
from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sparse_rows import counts_of_block
from dask_dca.geometry.exact import Total
from dask_dca.kernels.documents import (
    Documents,
    cooccurrence_sums,
    exact_product,
    product_units,
    take_documents,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]

__all__ = ["Census", "Cooccurrence", "cooccurrence_of", "documents_of", "sampled", "take_census"]

_NO_DRAW: Final = Draw()
_INVERSE_BITS: Final = np.array([26.0, 40.0])  # of 1 / (m - 1) and 1 / (m (m - 1))


@dataclass(frozen=True)
class Census:
    """
    What one look at all documents counts, over those with a pair of words.

    Attributes
    ----------
    words : ndarray of float64, shape (V,)
        Occurrences of each word.
    documents : ndarray of float64, shape (V,)
        Documents that hold each word.
    selves : Total of shape (V, 2)
        Pairs of a word with itself: sums of X_ij / (m_i - 1) and of X_ij / (m_i (m_i - 1)).
    n_used, n_short, n_empty, n_scaled : int
        Documents with a pair of words, with one word, with none; and those whose weights were scaled.
    squares : float
        Sum of m_i^2, rounded each.
    sample : DocumentSample
        Some of the documents, if any were drawn.
    """

    words: Floats
    documents: Floats
    selves: Total
    n_used: int
    n_short: int
    n_empty: int
    n_scaled: int
    squares: float
    sample: DocumentSample

    def __add__(self, other: Census) -> Census:
        return Census(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


@dataclass(frozen=True)
class Cooccurrence:
    """
    The co-occurrence Q (V, V) of the documents' words, by its products.

    Attributes
    ----------
    rows : Rows
        The documents.
    run : Run
        How passes are run.
    census : Census
        What was counted.
    by_length : bool
        Whether a document counts by its length, or as one.
    """

    rows: Rows
    run: Run
    census: Census
    by_length: bool = True

    @property
    def total(self) -> float:
        """
        Sum of all entries before division.

        Returns
        -------
        float
            Words, or documents.
        """
        return float(self.census.words.sum()) if self.by_length else float(self.census.n_used)

    def sums(self, columns: Floats) -> Floats:
        """
        Multiply the pairs of words by some columns, in one pass.

        Parameters
        ----------
        columns : ndarray of float64, shape (V, b)
            Columns B.

        Returns
        -------
        ndarray of float64, shape (V, b)
            In the paper n Xbar^T Xbar B: a word's pairs with itself are still in.
        """
        fractional = self.census.n_scaled > 0
        units = product_units(columns, float(self.census.words.max()), fractional=fractional)
        state = _Columns(columns, units, self.by_length)
        job: Pass[Floats] = Pass("cooccur", _product_block, add_parts)
        return run_pass(self.rows, job, state, self.run)

    def __matmul__(self, columns: Floats) -> Floats:
        """Multiply Q by some columns."""
        selves = self.census.selves.value()[:, 0 if self.by_length else 1]
        return (self.sums(columns) - selves[:, None] * columns) / self.total


@dataclass(frozen=True)
class _Columns:
    columns: Floats
    units: Floats
    by_length: bool


def documents_of(columns: Sequence[Any], start: int) -> Documents:
    """
    Take a block as documents.

    Parameters
    ----------
    columns : sequence of ndarray or sparse matrix or array, each of shape (n, p_j)
        The block's column chunks.
    start : int
        Row number of its first row.

    Returns
    -------
    Documents
        The documents.

    Raises
    ------
    InvalidInputError
        An entry is negative, not finite, or above 2**31.
    """
    return take_documents(counts_of_block(columns, start))


def take_census(rows: Rows, run: Run, draw: Draw = _NO_DRAW) -> Census:
    """
    Check and count all documents, in one pass.

    Parameters
    ----------
    rows : Rows
        The documents.
    run : Run
        How passes are run.
    draw : Draw, optional
        Which documents to take along.

    Returns
    -------
    Census
        The counts.

    Raises
    ------
    InvalidInputError
        An entry is negative, not finite, or above 2**31.
    """
    job: Pass[Census] = Pass("census", _census_block, add_parts)
    census = run_pass(rows, job, draw, run)
    return replace(census, sample=census.sample.trimmed())


def cooccurrence_of(rows: Rows, run: Run, draw: Draw = _NO_DRAW) -> Cooccurrence:
    """
    Prepare the co-occurrence of documents that count by their lengths.

    Parameters
    ----------
    rows : Rows
        The documents.
    run : Run
        How passes are run.
    draw : Draw, optional
        Which documents the census takes along.

    Returns
    -------
    Cooccurrence
        The operator; one pass has been run.
    """
    return Cooccurrence(rows, run, take_census(rows, run, draw))


def sampled(operator: Cooccurrence) -> Cooccurrence:
    """
    Prepare the co-occurrence of the documents that a census took along.

    Parameters
    ----------
    operator : Cooccurrence
        That of all documents.

    Returns
    -------
    Cooccurrence
        The same object if none were drawn, or none that holds a pair of words.
    """
    counts = operator.census.sample.counts
    if not counts.shape[0]:
        return operator
    few = cooccurrence_of(as_rows(counts), operator.run)
    return few if few.census.n_used else operator


def _census_block(draw: Draw, start: int, *columns: Any) -> Census:
    documents = documents_of(columns, start)
    X, used = documents.counts, documents.used
    m = documents.lengths[:, None]
    corrected = (used & ~documents.scaled)[:, None]
    inverses = np.hstack([m - 1.0, m * (m - 1.0)])
    inverses = np.where(corrected, np.rint(2.0**_INVERSE_BITS / np.where(corrected, inverses, 1.0)), 0.0)
    whole = _with_data(X, np.floor(X.data)) if documents.scaled.any() else X  # scaled ones are not counted anyway
    selves = exact_product(whole, inverses)
    present = _with_data(X, np.ones_like(X.data))
    lengths = np.where(used, documents.lengths, 0.0)
    return Census(
        words=X.T @ used.astype(np.float64),
        documents=present.T @ used.astype(np.float64),
        selves=Total(selves.parts, 2.0**-_INVERSE_BITS),
        n_used=int(used.sum()),
        n_short=int((~used & (documents.lengths > 0)).sum()),
        n_empty=int((documents.lengths == 0).sum()),
        n_scaled=int((used & documents.scaled).sum()),
        squares=float(np.rint(lengths**2).sum()),
        sample=draw.take(X, start),
    )


def _with_data(X: sparse.csr_array, data: Floats) -> sparse.csr_array:
    return sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)


def _product_block(state: _Columns, start: int, *columns: Any) -> Floats:
    documents = documents_of(columns, start)
    return cooccurrence_sums(documents, state.columns, state.units, by_length=state.by_length)
