"""Rows with holes, of a factorization: their coefficients, what is left out of them, and how holes are filled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import nnls

from dask_dca.anchoring.completion import filled_rows, has_holes, read_incomplete
from dask_dca.engine.map import map_rows
from dask_dca.engine.rows import as_rows
from dask_dca.engine.tiles import RowCensus, tiles
from dask_dca.geometry.exact import times
from dask_dca.geometry.hals import NO_PENALTY
from dask_dca.models.nmf.passes import basis_block, exponent, residual_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Mask
    from dask_dca.geometry.exact import Total
    from dask_dca.geometry.low_rank import LowRank
    from dask_dca.models.nmf.passes import Basis


def coefficients_of_observed(basis: Basis, start: int, *columns: Any) -> Floats:
    """Express the rows of a block as combinations of components, by their observed entries.

    Returns (n, k): NaN for a row without any; a row without holes has the bits that it has in a block without any.
    Raises MissingEntriesError: there are holes, and coefficients have penalties.
    """
    if not has_holes(columns) or basis.penalty != NO_PENALTY:
        return basis_block(basis, start, *columns)
    found, components = [np.zeros((0, len(basis.components)))], np.ldexp(basis.components, basis.unit)
    for number, filled, mask in _filled_by_mixtures(components, start, columns):
        part = basis_block(basis, number, filled)
        part[~mask.any(axis=1)] = np.nan
        found.append(part)
    return np.concatenate(found)


def residual_of_observed(components: Floats, start: int, *columns: Any) -> Total:
    """Sum the squares that combinations of rays leave out of a block's observed entries, as `residual_block` does."""
    if not has_holes(columns):
        return residual_block(components, start, *columns)
    parts = [residual_block(components, start, np.zeros((0, components.shape[1])))]
    parts += [
        residual_block(components, number, filled)
        for number, filled, _ in _filled_by_mixtures(components, start, columns)
    ]
    return reduce(add, parts)


def _filled_by_mixtures(components: Floats, start: int, columns: Sequence[Any]) -> Iterator[tuple[int, Floats, Mask]]:
    """Tiles whose holes are filled by the combinations that are nearest to what was observed, which stay nearest."""
    for numbers, rows, mask in read_incomplete(columns, start, nonnegative=True, census=RowCensus()):
        yield int(numbers[0]), _filled_by_mixture(components, rows, mask), mask


def _filled_by_mixture(components: Floats, rows: Floats, mask: Mask) -> Floats:
    unit = -exponent(components)
    basis, filled = np.ldexp(components.astype(np.float64), unit), rows.copy()
    for i in np.flatnonzero(~mask.all(axis=1)):
        seen = mask[i]
        mixed = nnls(basis[:, seen].T, np.ldexp(rows[i, seen], unit))[0] if seen.any() else np.zeros(len(basis))
        filled[i, ~seen] = np.ldexp(times(mixed[None], basis)[0, ~seen], -unit)
    return filled


@dataclass(frozen=True)
class Filling:
    """What holes are filled by: the low-rank model of a fit on rows with holes, or else the components alone."""

    components: Floats
    model: LowRank | None


def filled_rows_of(rows: Rows, state: Filling) -> Rows:
    """Fill the holes of rows, lazily where they are chunked; rows without any entry become zeros: they tell nothing."""
    found = as_rows(map_rows(replace(rows, labels=None), _filled_or_zero_block, state, rows.n_features))
    return replace(found, feature_names=rows.feature_names, labels=rows.labels)


def _filled_or_zero_block(state: Filling, start: int, *columns: Any) -> Floats:
    found = imputed_block(state, start, *columns)
    for numbers, tile in tiles(columns, start, copy=False):
        found[numbers[np.isnan(tile).all(axis=1)] - start] = 0.0
    return found


def imputed_block(state: Filling, start: int, *columns: Any) -> Floats:
    """Fill the holes of a block.

    Returns (n, p): by posterior means, or by combinations of the components, which for a row without any observed entry
    are not known: it stays NaN.
    """
    found = [np.zeros((0, state.components.shape[1]))]
    for _, rows, mask in read_incomplete(columns, start, nonnegative=True, census=RowCensus()):
        if state.model is not None:
            found.append(filled_rows(state.model, np.where(mask, rows, np.nan), nonnegative=True))
            continue
        filled = _filled_by_mixture(state.components, rows, mask)
        filled[~mask.any(axis=1)] = np.nan
        found.append(filled)
    return np.concatenate(found)
