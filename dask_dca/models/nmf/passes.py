"""Coefficients of rows on given components, block by block; residuals, and the sums that update components.

Rows with missing entries get coefficients by their observed entries, and missing entries are filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Final, Self

import numpy as np
from scipy.optimize import nnls

from dask_dca.anchoring.completion import fill_rows, has_missing_entries, read_incomplete
from dask_dca.engine.tiles import (
    RowCounts,
    clip_rounding,
    counts_of_block,
    even_tiles,
    require_squares,
    tile_height,
)
from dask_dca.engine.types import Summed
from dask_dca.geometry.arrays import Floats, Mask, Numbers
from dask_dca.geometry.exact import Total, piecewise_matmul, plain_total, product_total, sparse_product_total
from dask_dca.geometry.low_rank import LowRank
from dask_dca.geometry.nnls import nonnegative_coefficients
from dask_dca.geometry.votes import ArgBest
from dask_dca.models.nmf.free import NO_PENALTY, GramProblem, Penalty, coefficients_of_counts, divergences, quotients

_TYPICAL_ROWS: Final = 2**20  # number of rows that tile heights are chosen for, the same for any data
_MAX_PLAIN_EXPONENT: Final = 64  # data with binary exponents below this are summed without a unit
_MAX_SAFE_EXPONENT: Final = 200  # entries with binary exponents up to this, in the unit, need no check of their range
_MAX_EXPONENT: Final = 1023  # binary exponent of the greatest power of two in float64
_QUOTIENT_UNIT: Final = 2.0**-18  # quotients of counts and rates are rounded to multiples of this
_SQUARE_UNIT: Final = 2.0**-200  # squared residuals are rounded to multiples of this, far below rounding errors


def exponent(components: Floats) -> int:
    """Return the binary exponent of the greatest entry of components (k, p), not all zero.

    Least squares are solved in this unit, in which squares neither overflow nor underflow.
    """
    return int(np.frexp(float(np.abs(components).max()))[1])


def working_unit(components: Floats) -> int:
    """Return the binary exponent of the unit of other sums: 0 if squares are in range without one."""
    found = exponent(components)
    return 0 if abs(found) < _MAX_PLAIN_EXPONENT else found


def _max_entry(unit: int) -> float:
    """Maximum entry whose squares, in a unit of this binary exponent, can be summed in multiples of `_SQUARE_UNIT`."""
    return 2.0 ** (unit + 400) if unit + 400 <= _MAX_EXPONENT else np.inf


@dataclass(frozen=True)
class Basis:
    """Components (k, p), in a unit, with the penalty of the coefficients of rows."""

    components: Floats
    unit: int  # binary exponent, from `working_unit`
    penalty: Penalty  # of coefficients, in this unit

    @classmethod
    def of_rays(cls, components: Floats) -> Self:
        """Prepare components (k, p) without a penalty."""
        unit = working_unit(components)
        return cls(np.ldexp(components.astype(np.float64), -unit), unit, NO_PENALTY)

    def problem(self) -> GramProblem:
        """Return the least squares problem that all rows share."""
        return GramProblem.of(self.penalty.in_gram(self.components @ self.components.T))

    def coefficients(self, problem: GramProblem, tile: Floats, products: Floats) -> Floats:
        """Find the coefficients of rows, given their products with the components.

        If these are nearly dependent, least squares are solved on the rows themselves.
        """
        if problem.inverse is None and self.penalty == NO_PENALTY:
            return nonnegative_coefficients(tile, self.components)
        return problem.solve(products - self.penalty.l1)

    def tiles(self, start: int, columns: Sequence[Any]) -> Iterator[tuple[Numbers, Floats, Floats]]:
        """Yield tiles of a block: row numbers (n,), rows (n, p) in the unit, and their products with the components."""
        bound = 2.0 ** min(_MAX_SAFE_EXPONENT + self.unit, _MAX_EXPONENT)
        for numbers, filled in even_tiles(columns, start, tile_height(_TYPICAL_ROWS, self.components.shape[1])):
            tile = filled[: len(numbers)]
            if not (tile.min() >= 0.0 and tile.max() <= bound):  # also if there are NaN or infinity
                require_squares(tile, numbers, most=_max_entry(self.unit))
                tile = clip_rounding(tile, numbers, RowCounts())
            tile = np.ldexp(tile, -self.unit) if self.unit else tile
            yield numbers, tile, piecewise_matmul(tile, self.components.T)


@dataclass(frozen=True)
class BasisSums(Summed):
    """Sums of a pass with a basis."""

    gram: Total  # (k, k): W^T W
    products: Total  # (k, p): W^T X
    left: Total  # sum of the squares of X - W H
    nearest: ArgBest  # (k,): row of least angle to each component

    def fall(self, H: Floats, moved: Floats) -> float:
        """Return the decrease of the squared error if components move from H, with the coefficients fixed."""
        gram = H @ H.T - moved @ moved.T
        return float(np.vdot(self.gram.value(), gram) - 2.0 * np.vdot(self.products.value(), H - moved))


def basis_sums_block(
    state: tuple[Basis, Floats, Floats], start: int, *columns: Any, weights: Floats | None = None
) -> BasisSums:
    """Sum over a block what the next components depend on.

    state: the basis; units of entries (p,) and of coefficients (k,) in exact sums; weights (n,): of the rows, if any.
    """
    basis, entry_unit, units = state
    k, p = basis.components.shape
    problem, lengths = basis.problem(), np.sqrt((basis.components**2).sum(axis=1))
    seen = BasisSums(
        product_total(np.zeros((0, k)), np.zeros((0, k)), units, units),
        product_total(np.zeros((0, k)), np.zeros((0, p)), units, entry_unit),
        plain_total(np.zeros(0), _SQUARE_UNIT),
        ArgBest.empty(k),
    )
    for numbers, tile, products in basis.tiles(start, columns):
        W = basis.coefficients(problem, tile, products)
        cosines = _cosines(products, (tile**2).sum(axis=1), lengths)
        if weights is not None:  # after the angles: rows without weight are zero, and have none
            roots = np.sqrt(weights[numbers - start])[:, None]
            W, tile = W * roots, tile * roots
        seen += BasisSums(
            product_total(W, W, units, units),
            product_total(W, tile, units, entry_unit),
            plain_total(((tile - piecewise_matmul(W, basis.components)) ** 2).sum(axis=1), _SQUARE_UNIT),
            ArgBest.of_rows(cosines, numbers),
        )
    return seen


def _cosines(products: Floats, squares: Floats, lengths: Floats) -> Floats:
    """Cosines (n, k) of the angles between rows and components; NaN where either is zero."""
    sizes = np.sqrt(squares)[:, None] * lengths
    return np.divide(products, sizes, out=np.full_like(products, np.nan), where=sizes > 0.0)


@dataclass(frozen=True)
class CountsSums(Summed):
    """Sums of a pass over counts."""

    products: Total  # (p, k): quotients of counts and rates, times W
    heights: Total  # (k,): sums of W
    left: Total  # sum of divergences
    nearest: ArgBest  # (k,): row of least angle to each component

    def fall(self, H: Floats, moved: Floats) -> float:
        """Return the least decrease of the divergence if components move from H, with the coefficients fixed.

        By Jensen's inequality, on which multiplicative steps rest.
        """
        growth = np.log(np.divide(moved, H, out=np.ones_like(H), where=(H > 0.0) & (moved > 0.0)))
        gained = np.vdot(H * self.products.value().T, growth)
        return float(gained - self.heights.value() @ (moved - H).sum(axis=1))


def counts_sums_block(
    state: tuple[Floats, Penalty, Floats], start: int, *columns: Any, weights: Floats | None = None
) -> CountsSums:
    """Sum over a block of counts what the next components depend on.

    state: components (k, p), the penalty of coefficients, and their units (k,) in exact sums; weights (n,): of the
    rows, if any.
    """
    H, penalty, units = state
    X = counts_of_block(columns, start)
    W = coefficients_of_counts(X, H, penalty)
    ratio = quotients(X, W, H)
    squares = np.asarray(X.multiply(X) @ np.ones(X.shape[1]))
    cosines = _cosines(X @ np.ascontiguousarray(H.T), squares, np.sqrt((H**2).sum(axis=1)))
    nearest, left = ArgBest.empty(len(H)), divergences(X, ratio, W, H)
    if len(W):
        nearest += ArgBest.of_rows(cosines, np.arange(start, start + len(W)))
    if weights is not None:
        W, left = W * weights[:, None], left * weights
    return CountsSums(
        sparse_product_total(ratio, W, _QUOTIENT_UNIT, units),
        plain_total(W, units),
        plain_total(left, _SQUARE_UNIT),
        nearest,
    )


def counts_block(state: tuple[Floats, Penalty], start: int, *columns: Any) -> Floats:
    """Find the coefficients (n, k) of counts by divergence; state: components (k, p), and the penalty."""
    return coefficients_of_counts(counts_of_block(columns, start), *state)


def take_counts_block(wanted: Numbers | None, start: int, *columns: Any) -> tuple[Numbers, Numbers, Numbers, Floats]:
    """Take rows of counts out of a block, as arrays that can be concatenated.

    wanted: sorted row numbers; all if None. Returns row numbers (m,), the number of entries of each row (m,), and the
    columns and values of the entries.
    """
    n = columns[0].shape[0]
    numbers = np.arange(start, start + n)
    numbers = numbers if wanted is None else wanted[(wanted >= start) & (wanted < start + n)]
    found = counts_of_block(columns, start)[numbers - start]
    return numbers, np.diff(found.indptr).astype(np.int64), found.indices.astype(np.int64), found.data


def basis_block(basis: Basis, start: int, *columns: Any) -> Floats:
    """Find the coefficients (n, k) of the rows of a block, the same bits for a row in any block.

    start: row number of the block's first row.
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
    """Combine components (k, p) by the coefficients of a block: (n, p), the same bits for a row in any block.

    start: row number of the block's first row; *columns: column chunks of the coefficients.
    """
    basis, height = components.astype(np.float64), tile_height(_TYPICAL_ROWS, len(components))
    found = [piecewise_matmul(tile[: len(numbers)], basis) for numbers, tile in even_tiles(columns, start, height)]
    return np.concatenate([np.zeros((0, components.shape[1])), *found])


def residual_block(components: Floats, start: int, *columns: Any) -> Total:
    """Sum the squared residuals of the rows of a block, exactly, in the square of the unit 2**`exponent`."""
    basis, total = Basis.of_rays(components), plain_total(np.zeros(0), _SQUARE_UNIT)
    problem, unit = basis.problem(), basis.unit - exponent(components)
    for _, tile, products in basis.tiles(start, columns):
        left = tile - piecewise_matmul(basis.coefficients(problem, tile, products), basis.components)
        total += plain_total(np.ldexp((left**2).sum(axis=1), 2 * unit), _SQUARE_UNIT)
    return total


@dataclass(frozen=True)
class Filling:
    """What missing entries are filled from: the low-rank model of a fit with missing entries, else the components."""

    components: Floats
    model: LowRank | None

    def tiles(self, start: int, columns: Sequence[Any]) -> Iterator[tuple[int, Floats, Mask]]:
        """Yield tiles of a block: the first row's number, filled rows (m, p), and the mask (m, p) of observed entries.

        Entries are filled by posterior means, else by the combination of components nearest to the observed entries, by
        which least squares has the same coefficients as on these alone.
        """
        for numbers, rows, mask in read_incomplete(columns, start, nonnegative=True, row_counts=RowCounts()):
            if self.model is None:
                yield int(numbers[0]), _fill_by_combinations(self.components, rows, mask), mask
            else:
                yield int(numbers[0]), fill_rows(self.model, np.where(mask, rows, np.nan), nonnegative=True), mask


def _fill_by_combinations(components: Floats, rows: Floats, mask: Mask) -> Floats:
    unit = -exponent(components)
    basis, filled = np.ldexp(components.astype(np.float64), unit), rows.copy()
    for i in np.flatnonzero(~mask.all(axis=1)):
        seen = mask[i]
        mixed = nnls(basis[:, seen].T, np.ldexp(rows[i, seen], unit))[0] if seen.any() else np.zeros(len(basis))
        filled[i, ~seen] = np.ldexp(piecewise_matmul(mixed[None], basis)[0, ~seen], -unit)
    return filled


def coefficients_of_observed(
    block: Callable[..., Floats], state: tuple[Any, Filling], start: int, *columns: Any
) -> Floats:
    """Find the coefficients (n, k) of the rows of a block by their observed entries; NaN for a row without any.

    block, state: what finds those of complete rows, its state, and what missing entries are filled from. Rows without
    missing entries have the same bits as in a block without missing entries.
    """
    basis, filling = state
    if not has_missing_entries(columns):
        return block(basis, start, *columns)
    found = [np.zeros((0, len(filling.components)))]
    for number, filled, mask in filling.tiles(start, columns):
        part = block(basis, number, filled)
        part[~mask.any(axis=1)] = np.nan
        found.append(part)
    return np.concatenate(found)


def residual_of_observed(components: Floats, start: int, *columns: Any) -> Total:
    """Sum the squared residuals of the observed entries of a block, as `residual_block` does."""
    if not has_missing_entries(columns):
        return residual_block(components, start, *columns)
    parts = [residual_block(components, start, np.zeros((0, components.shape[1])))]
    filled_tiles = Filling(components, None).tiles(start, columns)
    parts += [residual_block(components, number, filled) for number, filled, _ in filled_tiles]
    return reduce(add, parts)


def imputed_block(state: Filling, start: int, *columns: Any) -> Floats:
    """Fill the missing entries of a block (n, p), by posterior means or by combinations of the components.

    Without a low-rank model a row without any observed entry stays NaN.
    """
    found = [np.zeros((0, state.components.shape[1]))]
    for _, filled, mask in state.tiles(start, columns):
        if state.model is None:
            filled[~mask.any(axis=1)] = np.nan
        found.append(filled)
    return np.concatenate(found)
