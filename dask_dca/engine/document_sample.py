"""A sample of the documents, taken while they are counted: the same ones for any chunking, by row number alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import sparse

from dask_dca.geometry.planes import child_seeds, uniforms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["DocumentSample", "Draw", "sample_of"]

_MOST_ENTRIES: Final = 2**23  # different words of all documents of a sample together: 100 MB


@dataclass(frozen=True)
class Draw:
    """
    Which documents are drawn.

    Attributes
    ----------
    share : float
        Of all rows; zero for no sample.
    seed : int
        Seed of the draw.
    """

    share: float = 0.0
    seed: int = 0

    def take(self, counts: sparse.csr_array, start: int) -> DocumentSample:
        """
        Draw some documents of a block.

        Parameters
        ----------
        counts : scipy.sparse.csr_array of float64, shape (n, V)
            The block's documents.
        start : int
            Row number of its first row.

        Returns
        -------
        DocumentSample
            A copy of those that are drawn.
        """
        if self.share <= 0.0:
            return sample_of(np.zeros(0), np.zeros(0, dtype=np.int64), counts[:0])
        numbers = np.arange(start, start + counts.shape[0])
        keys = uniforms(child_seeds(self.seed, numbers), 1)[:, 0]
        drawn = keys < self.share
        return sample_of(keys[drawn], numbers[drawn], counts[drawn])


@dataclass(frozen=True)
class DocumentSample:
    """
    Some documents; samples of parts are merged by `+`, in any order.

    Attributes
    ----------
    keys : ndarray of float64, shape (m,)
        A random number of each document, by its row number.
    numbers : ndarray of int64, shape (m,)
        Row numbers.
    data, indices, indptr : ndarray
        The documents in csr form.
    n_words : int
        Number of columns V.
    """

    keys: Floats
    numbers: Numbers
    data: Floats
    indices: NDArray[np.integer]
    indptr: NDArray[np.integer]
    n_words: int

    @property
    def counts(self) -> sparse.csr_array:
        """
        Return the documents.

        Returns
        -------
        scipy.sparse.csr_array of float64, shape (m, V)
            Not a copy.
        """
        return sparse.csr_array((self.data, self.indices, self.indptr), shape=(len(self.keys), self.n_words))

    def __add__(self, other: DocumentSample) -> DocumentSample:
        keys = np.concatenate([self.keys, other.keys])
        numbers = np.concatenate([self.numbers, other.numbers])
        counts = sparse.csr_array(sparse.vstack([self.counts, other.counts], format="csr"))
        both = sample_of(keys, numbers, counts)
        return both if counts.nnz <= _MOST_ENTRIES else both.trimmed()

    def trimmed(self, most: int = _MOST_ENTRIES) -> DocumentSample:
        """
        Keep the documents of the smallest keys, as many as fit in memory, in that order.

        What is left out of a part would be left out of the whole as well, so trimming parts changes nothing.

        Parameters
        ----------
        most : int
            Entries that may be kept.

        Returns
        -------
        DocumentSample
            In the order of the keys.

        Examples
        --------
        >>> sample = Draw(1.0).take(sparse.csr_array(np.ones((9, 4))), 100)
        >>> len(sample.trimmed(20).numbers)
        5
        """
        order = np.lexsort((self.numbers, self.keys))
        kept = order[np.cumsum(np.diff(self.indptr)[order]) <= most]
        return sample_of(self.keys[kept], self.numbers[kept], self.counts[kept])


def sample_of(keys: Floats, numbers: Numbers, counts: sparse.csr_array) -> DocumentSample:
    """
    Make a sample of documents that are at hand.

    Parameters
    ----------
    keys : ndarray of float64, shape (m,)
        A random number of each document.
    numbers : ndarray of int64, shape (m,)
        Row numbers.
    counts : scipy.sparse.csr_array of float64, shape (m, V)
        The documents.

    Returns
    -------
    DocumentSample
        The sample.
    """
    return DocumentSample(keys, numbers, counts.data, counts.indices, counts.indptr, counts.shape[1])
