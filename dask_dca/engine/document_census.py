"""One look at all documents: what they hold is checked and counted, and some of them may be taken along."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from dask_dca.engine.document_sample import DocumentSample, last_kept
from dask_dca.engine.keeping import Keep, run_and_keep
from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sparse_rows import counts_of_block
from dask_dca.geometry.exact import Total
from dask_dca.kernels.documents import Documents, exact_product, size_counts, take_documents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.document_sample import Draw
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]

__all__ = ["Census", "documents_of", "take_census", "take_census_and_draw"]

_PIECE: Final = 4096  # documents of a piece of a sample, at least: of fewer, sums over words are most of the work
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
    sizes : ndarray of float64, shape (2, 64)
        How long documents are, from `size_counts`.
    """

    words: Floats
    documents: Floats
    selves: Total
    n_used: int
    n_short: int
    n_empty: int
    n_scaled: int
    squares: float
    sizes: Floats

    def __add__(self, other: Census) -> Census:
        return Census(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def documents_of(columns: Sequence[Any], start: int, longest: float = np.inf) -> Documents:
    """
    Take a block as documents.

    Parameters
    ----------
    columns : sequence of ndarray or sparse matrix or array, each of shape (n, p_j)
        The block's column chunks.
    start : int
        Row number of its first row.
    longest : float, optional
        Documents beyond this length are scaled to an eighth of it.

    Returns
    -------
    Documents
        The documents.

    Raises
    ------
    InvalidInputError
        An entry is negative, not finite, or above 2**31.
    """
    return take_documents(counts_of_block(columns, start), longest)


def take_census(rows: Rows, run: Run, longest: float = np.inf) -> Census:
    """
    Check and count all documents, in one pass.

    Parameters
    ----------
    rows : Rows
        The documents.
    run : Run
        How passes are run.
    longest : float, optional
        Documents beyond this length count for an eighth of it.

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
    return run_pass(rows, job, longest, run)


def take_census_and_draw(rows: Rows, run: Run, draw: Draw, longest: float = np.inf) -> tuple[Census, Rows | None]:
    """
    Check and count all documents, and take some of them along, in one pass.

    Parameters
    ----------
    rows : Rows
        The documents.
    run : Run
        How passes are run.
    draw : Draw
        Which documents to take along.
    longest : float, optional
        Documents beyond this length count for an eighth of it.

    Returns
    -------
    census : Census
        The counts.
    drawn : Rows or None
        The documents drawn, if any; on the cluster where the others are (in this process with a checkpoint, which
        holds them too).

    Raises
    ------
    InvalidInputError
        An entry is negative, not finite, or above 2**31.
    """
    job: Pass[tuple[Census, DocumentSample]] = Pass("census", _draw_block, add_parts)
    if rows.kind == "memory" or run.checkpoint is not None:
        census, sample = run_pass(rows, job, (draw, longest), run)
        counts = sample.trimmed().counts
        return census, as_rows(counts) if counts.shape[0] else None
    most = -(-int(draw.share * rows.n_rows) // _PIECE)
    return run_and_keep(
        rows, job, Keep(DocumentSample.sizes, last_kept, DocumentSample.up_to, most), (draw, longest), run
    )


def _census_block(longest: float, start: int, *columns: Any) -> Census:
    return _census(documents_of(columns, start, longest))


def _draw_block(state: tuple[Draw, float], start: int, *columns: Any) -> tuple[Census, DocumentSample]:
    draw, longest = state
    documents = documents_of(columns, start, longest)
    return _census(documents), draw.take(documents.counts, start)


def _census(documents: Documents) -> Census:
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
        sizes=size_counts(lengths),
    )


def _with_data(X: sparse.csr_array, data: Floats) -> sparse.csr_array:
    return sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)
