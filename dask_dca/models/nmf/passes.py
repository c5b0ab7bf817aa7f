"""Coefficients of rows on given components, block by block, what they leave out, and what better components need.

Of rows with missing entries: coefficients by the entries that were observed, and how missing entries are filled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from scipy.optimize import nnls

from dask_dca.anchoring.completion import fill_rows, has_missing_entries, read_incomplete
from dask_dca.engine.tiles import (
    RowCensus,
    clip_rounding,
    counts_of_block,
    even_tiles,
    require_squares,
    tile_height,
)
from dask_dca.engine.types import Summed
from dask_dca.geometry.exact import piecewise_matmul, plain_total, product_total, sparse_product_total
from dask_dca.geometry.nnls import nonnegative_coefficients
from dask_dca.geometry.votes import ArgBest
from dask_dca.models.nmf.free import NO_PENALTY, GramProblem, coefficients_of_counts, divergences, quotients

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dask_dca.geometry.arrays import Floats, Mask, Numbers
    from dask_dca.geometry.exact import Total
    from dask_dca.geometry.low_rank import LowRank
    from dask_dca.models.nmf.free import Penalty


_ANY_N: Final = 2**20
_PLAIN_BITS: Final = 64  # binary exponents within which data need no unit of their own
_PLAIN_ENTRIES: Final = 200  # binary exponent of entries in units up to which nothing needs a closer look
_GREATEST: Final = 1023  # binary exponent of the greatest power of two
_QUOTIENT: Final = 2.0**-18  # what quotients of counts and rates are rounded to
_LEAST_SQUARE: Final = 2.0**-200  # far below what rounding leaves of a row


def exponent(components: Floats) -> int:
    """Return the unit that least squares are solved in, where squares are in range.

    components (k, p): rays, not all of them zero. Returns binary exponent of their greatest entry.
    """
    return int(np.frexp(float(np.abs(components).max()))[1])


def working_unit(components: Floats) -> int:
    """Return the unit that other sums are computed in: none where squares are in range anyway."""
    found = exponent(components)
    return 0 if abs(found) < _PLAIN_BITS else found


def _most(unit: int) -> float:
    """The greatest entry whose squares, in a unit of this binary exponent, can be summed to `_LEAST_SQUARE`."""
    return 2.0 ** (unit + 400) if unit + 400 <= _GREATEST else np.inf


@dataclass(frozen=True)
class Basis:
    """Components that rows are combinations of, but no rows themselves."""

    components: Floats  # (k, p) in the unit
    unit: int  # its binary exponent, from `working_unit`
    penalty: Penalty  # of coefficients, in that unit

    @classmethod
    def of_rays(cls, components: Floats) -> Self:
        """Take rays (k, p) that rows are expressed in as they are."""
        unit = working_unit(components)
        return cls(np.ldexp(components.astype(np.float64), -unit), unit, NO_PENALTY)

    def problem(self) -> GramProblem:
        """Return what the coefficients of all rows share."""
        return GramProblem.of(self.penalty.in_gram(self.components @ self.components.T))

    def coefficients(self, problem: GramProblem, tile: Floats, products: Floats) -> Floats:
        """Express rows, whose products with the components are known; on these themselves where they are dependent."""
        if problem.inverse is None and self.penalty == NO_PENALTY:
            return nonnegative_coefficients(tile, self.components)
        return problem.solve(products - self.penalty.l1)

    def tiles(self, start: int, columns: Sequence[Any]) -> Iterator[tuple[Numbers, Floats, Floats]]:
        """Cut a block into tiles in the unit; with the numbers of their rows, and products with the components."""
        for numbers, filled in even_tiles(columns, start, tile_height(_ANY_N, self.components.shape[1])):
            tile, most = filled[: len(numbers)], 2.0 ** min(_PLAIN_ENTRIES + self.unit, _GREATEST)  # infinity is more
            if not (tile.min() >= 0.0 and tile.max() <= most):  # NaN is neither
                require_squares(tile, numbers, most=_most(self.unit))
                tile = clip_rounding(tile, numbers, RowCensus())
            tile = np.ldexp(tile, -self.unit) if self.unit else tile
            yield numbers, tile, piecewise_matmul(tile, self.components.T)


@dataclass(frozen=True)
class BasisSums(Summed):
    """What a pass saw of a basis."""

    gram: Total  # (k, k) W^T W
    products: Total  # (k, p) W^T X
    left: Total  # squares of X - W H
    nearest: ArgBest  # (k,) the row of the least angle to each component

    def fall(self, H: Floats, moved: Floats) -> float:
        """Tell by how much the squared error falls from H to others, with these coefficients."""
        gram = H @ H.T - moved @ moved.T
        return float(np.vdot(self.gram.value(), gram) - 2.0 * np.vdot(self.products.value(), H - moved))


def look_block(
    state: tuple[Basis, Floats, Floats], start: int, *columns: Any, weights: Floats | None = None
) -> BasisSums:
    """Sum what the next components are found from.

    state: the basis; what entries of rows (p,) are rounded to, and coefficients (k,); weights (n,): of the rows, if
    they don't count one each.
    """
    basis, entry_unit, units = state
    k, p = basis.components.shape
    problem, lengths = basis.problem(), np.sqrt((basis.components**2).sum(axis=1))
    seen = BasisSums(
        product_total(np.zeros((0, k)), np.zeros((0, k)), units, units),
        product_total(np.zeros((0, k)), np.zeros((0, p)), units, entry_unit),
        plain_total(np.zeros(0), _LEAST_SQUARE),
        ArgBest.empty(k),
    )
    for numbers, tile, products in basis.tiles(start, columns):
        W = basis.coefficients(problem, tile, products)
        cosines = _cosines(products, (tile**2).sum(axis=1), lengths)
        if weights is not None:  # zero rows, which those without weight are, have no angle
            roots = np.sqrt(weights[numbers - start])[:, None]
            W, tile = W * roots, tile * roots
        seen += BasisSums(
            product_total(W, W, units, units),
            product_total(W, tile, units, entry_unit),
            plain_total(((tile - piecewise_matmul(W, basis.components)) ** 2).sum(axis=1), _LEAST_SQUARE),
            ArgBest.of_rows(cosines, numbers),
        )
    return seen


def _cosines(products: Floats, squares: Floats, lengths: Floats) -> Floats:
    """Of the angles between rows and components; none for zero ones."""
    sizes = np.sqrt(squares)[:, None] * lengths
    return np.divide(products, sizes, out=np.full_like(products, np.nan), where=sizes > 0.0)


@dataclass(frozen=True)
class CountsSeen(Summed):
    """What a pass over counts saw of components."""

    products: Total  # (p, k) quotients of counts and rates, times W
    heights: Total  # (k,) sums of W
    left: Total  # divergence
    nearest: ArgBest  # (k,) the row of the least angle to each component


def counts_look_block(
    state: tuple[Floats, Penalty, Floats], start: int, *columns: Any, weights: Floats | None = None
) -> CountsSeen:
    """Sum what the next components are found from, of rows of counts.

    state: components (k, p), the penalty of coefficients, and what these are rounded to, (k,); weights (n,): of the
    rows, if they don't count one each.
    """
    H, penalty, units = state
    X = counts_of_block(columns, start)
    W = coefficients_of_counts(X, H, penalty)
    ratio = quotients(X, W, H)
    squares = np.asarray(X.multiply(X) @ np.ones(X.shape[1]))
    cosines = _cosines(X @ np.ascontiguousarray(H.T), squares, np.sqrt((H**2).sum(axis=1)))
    empty, left = ArgBest.empty(len(H)), divergences(X, ratio, W, H)
    if weights is not None:
        W, left = W * weights[:, None], left * weights
    return CountsSeen(
        sparse_product_total(ratio, W, _QUOTIENT, units),
        plain_total(W, units),
        plain_total(left, _LEAST_SQUARE),
        empty + ArgBest.of_rows(cosines, np.arange(start, start + len(W))) if len(W) else empty,
    )


def counts_block(state: tuple[Floats, Penalty], start: int, *columns: Any) -> Floats:
    """Express counts as non-negative combinations of components, by divergence.

    state: components (k, p), and the penalty of coefficients. Returns (n, k).
    """
    return coefficients_of_counts(counts_of_block(columns, start), *state)


def take_counts_block(wanted: Numbers | None, start: int, *columns: Any) -> tuple[Numbers, Numbers, Numbers, Floats]:
    """Take counts out of a block, as arrays that can be put below each other.

    wanted: sorted row numbers; all if None. Returns numbers (m,) of rows, and how many entries each has, (m,); columns
    and values of the entries.
    """
    n = columns[0].shape[0]
    numbers = np.arange(start, start + n)
    numbers = numbers if wanted is None else wanted[(wanted >= start) & (wanted < start + n)]
    found = counts_of_block(columns, start)[numbers - start]
    return numbers, np.diff(found.indptr).astype(np.int64), found.indices.astype(np.int64), found.data


def basis_block(basis: Basis, start: int, *columns: Any) -> Floats:
    """Express the rows of a block as non-negative combinations of components.

    start: row number of the block's first row. Returns (n, k): the coefficients; a row's have the same bits in any
    block.
    """
    problem, found = basis.problem(), np.empty((columns[0].shape[0], len(basis.components)))
    for numbers, tile, products in basis.tiles(start, columns):
        here = slice(int(numbers[0]) - start, int(numbers[-1]) + 1 - start)
        if problem.inverse is None:
            found[here] = basis.coefficients(problem, tile, products)
        else:
            np.subtract(products, basis.penalty.l1, out=found[here])
    return found if problem.inverse is None else problem.solve(found, out=found)


def combinations_block(components: Floats, start: int, *columns: Any) -> Floats:
    """Combine rays.

    components (k, p): the rays; start: row number of the block's first row; *columns: column chunks of the block's
    coefficients. Returns (n, p): the combinations; a row's have the same bits in any block.
    """
    basis, height = components.astype(np.float64), tile_height(_ANY_N, len(components))
    found = [piecewise_matmul(tile[: len(numbers)], basis) for numbers, tile in even_tiles(columns, start, height)]
    return np.concatenate([np.zeros((0, components.shape[1])), *found])


def residual_block(components: Floats, start: int, *columns: Any) -> Total:
    """Sum the squares that the combinations of rays leave out of a block.

    Returns the sum, exact, in the square of the unit that `exponent` tells.
    """
    basis, total = Basis.of_rays(components), plain_total(np.zeros(0), _LEAST_SQUARE)
    problem, unit = basis.problem(), basis.unit - exponent(components)
    for _, tile, products in basis.tiles(start, columns):
        left = tile - piecewise_matmul(basis.coefficients(problem, tile, products), basis.components)
        total += plain_total(np.ldexp((left**2).sum(axis=1), 2 * unit), _LEAST_SQUARE)
    return total


def coefficients_of_observed(basis: Basis, start: int, *columns: Any) -> Floats:
    """Express the rows of a block as combinations of components, by their observed entries.

    Returns (n, k): NaN for a row without any; a row without missing entries has the bits that it has in a block without
    any.
    Raises MissingEntriesError: there are missing entries, and coefficients have penalties.
    """
    if not has_missing_entries(columns) or basis.penalty != NO_PENALTY:
        return basis_block(basis, start, *columns)
    found, components = [np.zeros((0, len(basis.components)))], np.ldexp(basis.components, basis.unit)
    for number, filled, mask in _filled_by_mixtures(components, start, columns):
        part = basis_block(basis, number, filled)
        part[~mask.any(axis=1)] = np.nan
        found.append(part)
    return np.concatenate(found)


def residual_of_observed(components: Floats, start: int, *columns: Any) -> Total:
    """Sum the squares that combinations of rays leave out of a block's observed entries, as `residual_block` does."""
    if not has_missing_entries(columns):
        return residual_block(components, start, *columns)
    parts = [residual_block(components, start, np.zeros((0, components.shape[1])))]
    parts += [
        residual_block(components, number, filled)
        for number, filled, _ in _filled_by_mixtures(components, start, columns)
    ]
    return reduce(add, parts)


def _filled_by_mixtures(components: Floats, start: int, columns: Sequence[Any]) -> Iterator[tuple[int, Floats, Mask]]:
    """Tiles with missing entries filled by the combinations nearest to what was observed, which stay nearest."""
    for numbers, rows, mask in read_incomplete(columns, start, nonnegative=True, census=RowCensus()):
        yield int(numbers[0]), _filled_by_mixture(components, rows, mask), mask


def _filled_by_mixture(components: Floats, rows: Floats, mask: Mask) -> Floats:
    unit = -exponent(components)
    basis, filled = np.ldexp(components.astype(np.float64), unit), rows.copy()
    for i in np.flatnonzero(~mask.all(axis=1)):
        seen = mask[i]
        mixed = nnls(basis[:, seen].T, np.ldexp(rows[i, seen], unit))[0] if seen.any() else np.zeros(len(basis))
        filled[i, ~seen] = np.ldexp(piecewise_matmul(mixed[None], basis)[0, ~seen], -unit)
    return filled


@dataclass(frozen=True)
class Filling:
    """What missing entries are filled by: the low-rank model of a fit that met some, else the components alone."""

    components: Floats
    model: LowRank | None


def imputed_block(state: Filling, start: int, *columns: Any) -> Floats:
    """Fill the missing entries of a block.

    Returns (n, p): by posterior means, or by combinations of the components, which for a row without any observed entry
    are not known: it stays NaN.
    """
    found = [np.zeros((0, state.components.shape[1]))]
    for _, rows, mask in read_incomplete(columns, start, nonnegative=True, census=RowCensus()):
        if state.model is not None:
            found.append(fill_rows(state.model, np.where(mask, rows, np.nan), nonnegative=True))
            continue
        filled = _filled_by_mixture(state.components, rows, mask)
        filled[~mask.any(axis=1)] = np.nan
        found.append(filled)
    return np.concatenate(found)
