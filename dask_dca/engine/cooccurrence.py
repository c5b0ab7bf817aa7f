"""The co-occurrence of words as an operator: one pass over the documents for each product, nothing of words x words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.engine.document_census import documents_of, take_census, take_census_and_draw
from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.errors import warn
from dask_dca.kernels.documents import OUTWEIGHING, cooccurrence_sums, longest_length, product_units

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.document_census import Census
    from dask_dca.engine.document_sample import Draw
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]

__all__ = ["Columns", "Cooccurrence", "Products", "cooccurrence_of", "product_pass", "sampled"]


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
    longest : float
        Documents beyond this length count for an eighth of it.
    drawn : Rows or None
        Some of the documents, if any were drawn.
    kept : bool
        Whether workers hold the documents in memory.
    """

    rows: Rows
    run: Run
    census: Census
    by_length: bool = True
    longest: float = np.inf
    drawn: Rows | None = None
    kept: bool = False

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

    @property
    def products(self) -> Products:
        """
        Return what products need besides the documents.

        Returns
        -------
        Products
            Of size V.
        """
        census = self.census
        selves = census.selves.value()[:, 0 if self.by_length else 1]
        largest, fractional = float(census.words.max()), census.n_scaled > 0
        return Products(selves, self.total, largest, fractional, self.by_length, self.longest)

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
        return run_pass(self.rows, product_pass(), self.products.columns(columns), self.run)

    def __matmul__(self, columns: Floats) -> Floats:
        """Multiply Q by some columns."""
        return self.products.finished(columns, self.sums(columns))


@dataclass(frozen=True)
class Columns:
    """
    What a pass for a product starts from.

    Attributes
    ----------
    columns, units : ndarray of float64, shapes (V, b) and (b,)
        Columns, and what the documents' share in the product is rounded to.
    by_length : bool
        Whether a document counts by its length.
    longest : float
        Documents beyond this length count for an eighth of it.
    """

    columns: Floats
    units: Floats
    by_length: bool
    longest: float


@dataclass(frozen=True)
class Products:
    """
    What products with the co-occurrence need besides the documents.

    Attributes
    ----------
    selves : ndarray of float64, shape (V,)
        Pairs of each word with itself.
    total : float
        Sum of all entries before division.
    largest : float
        The greatest total count of a word.
    fractional : bool
        Whether counts are multiples of 1/8192.
    by_length : bool
        Whether a document counts by its length.
    longest : float
        Documents beyond this length count for an eighth of it.
    """

    selves: Floats
    total: float
    largest: float
    fractional: bool
    by_length: bool
    longest: float

    def columns(self, columns: Floats) -> Columns:
        """
        Prepare a pass.

        Parameters
        ----------
        columns : ndarray of float64, shape (V, b)
            Columns B.

        Returns
        -------
        Columns
            Its state.
        """
        units = product_units(columns, self.largest, fractional=self.fractional)
        return Columns(columns, units, self.by_length, self.longest)

    def finished(self, columns: Floats, sums: Floats) -> Floats:
        """
        Take a word's pairs with itself out of the sums of a pass.

        Parameters
        ----------
        columns, sums : ndarray of float64, shape (V, b)
            Columns B, and what the pass gave.

        Returns
        -------
        ndarray of float64, shape (V, b)
            The product Q B.
        """
        return (sums - self.selves[:, None] * columns) / self.total


def product_pass() -> Pass[Floats]:
    """
    Return the pass that multiplies the pairs of words by some columns.

    Returns
    -------
    Pass
        Its state is `Columns`.
    """
    return Pass("cooccur", _product_block, add_parts)


def cooccurrence_of(rows: Rows, run: Run, draw: Draw | None = None) -> Cooccurrence:
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
        The operator; one pass has been run, and another one where a document outweighs the others.
    """
    census, drawn = _counted(rows, run, draw)
    longest = longest_length(census.sizes)
    if np.isfinite(longest):
        _warn_of_outweighing(census, longest)
        census, drawn = _counted(rows, run, draw, longest)
    return Cooccurrence(rows, run, census, longest=longest, drawn=drawn)


def _counted(rows: Rows, run: Run, draw: Draw | None, longest: float = np.inf) -> tuple[Census, Rows | None]:
    if draw is None:
        return take_census(rows, run, longest), None
    return take_census_and_draw(rows, run, draw, longest)


def _warn_of_outweighing(census: Census, longest: float) -> None:
    n = int(census.sizes[0, np.exp2(np.arange(census.sizes.shape[1])) > longest].sum())
    counted = f"count for {longest * OUTWEIGHING:g} words each"
    warn(f"{n} of the documents outweigh all others, and {counted}; drop them if you can", UserWarning)


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
    if operator.drawn is None:
        return operator
    few = replace(cooccurrence_of(operator.drawn, operator.run), kept=operator.drawn.kind == "dask")
    return few if few.census.n_used else operator


def _product_block(state: Columns, start: int, *columns: Any) -> Floats:
    documents = documents_of(columns, start, state.longest)
    return cooccurrence_sums(documents, state.columns, state.units, by_length=state.by_length)
