"""A sample of the documents, taken while they are counted: the same ones for any chunking, by row number alone.

On a cluster its parts stay where they were taken, in pieces: of each only the keys and sizes of its documents are
looked at together, so that a sample that is too large is cut to the same documents anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import sparse

from dask_dca.geometry.planes import child_seeds, uniforms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["DocumentSample", "Draw", "Sizes", "last_kept", "sample_of"]

_MOST_ENTRIES: Final = 2**23  # different words of all documents of a sample together: 100 MB


@dataclass(frozen=True)
class Draw:
    """
    Which documents are drawn.

    Attributes
    ----------
    share : float
        Of all rows.
    seed : int
        Seed of the draw.
    """

    share: float
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
        numbers = np.arange(start, start + counts.shape[0])
        keys = uniforms(child_seeds(self.seed, numbers), 1)[:, 0]
        drawn = keys < self.share
        return sample_of(keys[drawn], numbers[drawn], counts[drawn])


@dataclass(frozen=True)
class Sizes:
    """
    How large the documents of a sample are.

    Attributes
    ----------
    keys : ndarray of float64, shape (m,)
        A random number of each document, by its row number.
    numbers : ndarray of int64, shape (m,)
        Row numbers.
    words : ndarray of int64, shape (m,)
        Different words of each.
    """

    keys: Floats
    numbers: Numbers
    words: Numbers


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
        return both if counts.nnz <= _MOST_ENTRIES else both.trimmed(beyond=True)

    def trimmed(self, most: int = _MOST_ENTRIES, *, beyond: bool = False) -> DocumentSample:
        """
        Keep the documents of the smallest keys, as many as fit in memory, in that order.

        What is left out of a part would be left out of the whole as well, so trimming parts changes nothing as long as
        these keep the first document that doesn't fit: else those after it might fit in its place.

        Parameters
        ----------
        most : int
            Entries that may be kept.
        beyond : bool, default False
            Keep the first document that doesn't fit, too.

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
        sizes = np.diff(self.indptr)[order]
        kept = order[np.cumsum(sizes) - sizes * beyond <= most]
        return sample_of(self.keys[kept], self.numbers[kept], self.counts[kept])

    def sizes(self) -> Sizes:
        """
        Say how large its documents are.

        Returns
        -------
        Sizes
            Without the documents.
        """
        return Sizes(self.keys, self.numbers, np.diff(self.indptr).astype(np.int64))

    def up_to(self, last: tuple[float, int]) -> sparse.csr_array:
        """
        Return the documents up to the last that is kept.

        Parameters
        ----------
        last : tuple of float and int
            From `last_kept`.

        Returns
        -------
        scipy.sparse.csr_array of float64, shape (m, V)
            The documents.
        """
        key, number = last
        return self.counts[(self.keys < key) | ((self.keys == key) & (self.numbers <= number))]


def last_kept(parts: Sequence[Sizes], most: int = _MOST_ENTRIES) -> tuple[float, int]:
    """
    Tell up to which document the parts of a sample fit in memory, in the order of the keys.

    Parameters
    ----------
    parts : sequence of Sizes
        At least one.
    most : int
        Entries that may be kept.

    Returns
    -------
    key : float
        Of the last document that is kept; infinite if all are, -1 if none is.
    number : int
        Its row number.

    Examples
    --------
    >>> part = Sizes(np.array([0.5, 0.2, 0.7]), np.array([3, 4, 5]), np.array([2, 2, 2]))
    >>> last_kept([part], 4), last_kept([part], 6)
    ((0.5, 3), (inf, 0))
    """
    keys, numbers, words = (np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0]))
    order = np.lexsort((numbers, keys))
    n_kept = int((np.cumsum(words[order]) <= most).sum())
    if n_kept == len(order):
        return np.inf, 0
    return (float(keys[order[n_kept - 1]]), int(numbers[order[n_kept - 1]])) if n_kept else (-1.0, 0)


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
