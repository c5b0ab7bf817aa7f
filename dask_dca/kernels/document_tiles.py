"""Documents of like length side by side: tiles in which one product serves each document's words at once.

A document is padded to a length that depends on its own length alone, so that its products have the same shape, and
the same bits, in any company.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from scipy import sparse

    Reals = NDArray[np.floating]

__all__ = ["Tile", "document_tiles", "entry_slices"]

_TILE_ENTRIES: Final = 2**17  # numbers of a tile: its entries times topics
_PRODUCT_ENTRIES: Final = 2**13  # of one product, below what BLAS begins to cut up for its threads
_GRAIN: Final = 8  # runs of words are padded to multiples of this
_SLICE: Final = 2**12  # entries of a slice: 32 KB of float64


@dataclass(frozen=True)
class Tile:
    """
    Some documents, each as s runs of l words.

    Attributes
    ----------
    documents : ndarray of int64, shape (d,)
        Which ones.
    entries : ndarray of int64, shape (d, s, l)
        Where their counts are stored; padding repeats the last one.
    counts : ndarray of float, shape (d, s, l)
        The counts; zero for padding.
    rates : ndarray of float, shape (d, s, l, k)
        Rows of the rates of their words.
    """

    documents: NDArray[np.int64]
    entries: NDArray[np.int64]
    counts: Reals
    rates: Reals

    def mixed(self, mixtures: Reals) -> Reals:
        """
        Mix the rates of each word.

        Parameters
        ----------
        mixtures : ndarray of float, shape (d, k)
            One for each document.

        Returns
        -------
        ndarray of float, shape (d, s, l)
            Its rate in the document's mixture.
        """
        mixed: Reals = np.matmul(self.rates, mixtures[:, None, :, None])[..., 0]
        return mixed

    def gathered(self, weights: Reals) -> Reals:
        """
        Add up the rates of each document's words.

        Parameters
        ----------
        weights : ndarray of float, shape (d, s, l)
            What they are multiplied by.

        Returns
        -------
        ndarray of float, shape (d, k)
            The sums.
        """
        parts: Reals = np.matmul(weights[:, :, None, :], self.rates)[:, :, 0, :]
        return parts.sum(axis=1) if parts.shape[1] > 1 else parts[:, 0]


def document_tiles(counts: sparse.csr_array, rates: Reals) -> Iterator[Tile]:
    """
    Lay out documents in tiles.

    Parameters
    ----------
    counts : scipy.sparse.csr_array of float64, shape (n, V)
        Word counts.
    rates : ndarray of float, shape (V, k)
        A row for each word; its dtype is that of all products.

    Yields
    ------
    Tile
        Small enough for the cache, and good until the next one: their rates share memory, as fresh memory costs more
        than what is computed in it. Documents without words are in none.
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
            yield Tile(
                documents,
                entries.reshape(within),
                padded.reshape(within),
                near.reshape(*within, k),
            )


def entry_slices(n_entries: int) -> Iterator[slice]:
    """
    Cut entries into slices, so that what is computed of one stays in the cache and needs no memory of its own.

    Parameters
    ----------
    n_entries : int
        How many there are.

    Yields
    ------
    slice
        Of 4,096 entries, the last one of fewer.

    Examples
    --------
    >>> list(entry_slices(5000))
    [slice(0, 4096, None), slice(4096, 5000, None)]
    """
    for begin in range(0, n_entries, _SLICE):
        yield slice(begin, min(begin + _SLICE, n_entries))
