"""Rows in the coordinates of a sketch: its passes, and the lazy or immediate use of it on blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import linalg
from scipy.special import ndtri

from dask_dca.engine.checks import require_finite
from dask_dca.engine.merges import add_parts, stack_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.threads import one_blas_thread
from dask_dca.engine.tiles import even_tiles, tile_height
from dask_dca.geometry import planes
from dask_dca.geometry.exact import Total, product_total
from dask_dca.kernels.landmarks import quantise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["coordinates", "leading_directions", "placed_tiles", "unit_rows"]

_WIDEST: Final = 1024  # more features than this are sketched by power steps instead of p x p moments
_SPARE: Final = 10  # directions of a power step beyond those that are kept
_STEPS: Final = 2
_UNIT: Final = 2.0**-19  # entries of unit vectors are rounded to this before they are summed exactly: one digit
_FAR: Final = 1e100  # squared lengths above this, or below one over this, are scaled before use
_ANY_N: Final = 2**30  # heights of tiles depend on the features alone, so that a row has one set of coordinates


@dataclass(frozen=True)
class _MomentState:
    """The basis of a power step; None: whole moments."""

    n_features: int
    basis: Floats | None


def unit_rows(tile: Floats) -> Floats:
    """
    Scale rows to unit length.

    Parameters
    ----------
    tile : ndarray of float64, shape (m, p)
        Finite rows of any magnitude.

    Returns
    -------
    ndarray of float64, shape (m, p)
        Rows of length one, or of zeros.

    Examples
    --------
    >>> unit_rows(np.array([[3e200, 4e200], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    exponent = np.frexp(np.abs(tile).max(axis=1, initial=0.0))[1]
    scaled = np.ldexp(tile, -exponent[:, None])
    length = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
    return scaled / np.where(length > 0.0, length, 1.0)


def placed_tiles(columns: Sequence[Any], start: int, basis: Floats | None) -> Iterator[tuple[Numbers, Floats]]:
    """
    Cut a block into tiles of coordinates.

    Parameters
    ----------
    columns, start : sequence and int
        As `tiles` takes them.
    basis : ndarray of float64, shape (p, d), or None
        Directions of the sketch; None if the rows are coordinates already.

    Yields
    ------
    numbers : ndarray of int64, shape (m,)
        Row numbers.
    placed : ndarray of float64, shape (m, d)
        Quantised coordinates of unit length; zeros for a row of zeros or without any part in the sketch.

    Raises
    ------
    NotFiniteError
        A row holds NaN or infinity.
    """
    height = tile_height(_ANY_N, sum(part.shape[1] for part in columns))
    for numbers, tile in even_tiles(columns, start, height):
        count = len(numbers)
        if basis is None:
            yield numbers, tile[:count]
            continue
        require_finite(tile[:count], numbers)
        yield numbers, quantise(unit_rows(_of_usual_size(tile) @ basis))[:count]


def _of_usual_size(tile: Floats) -> Floats:
    """Scale rows whose squares might overflow or vanish; products of the others have the scale of the row."""
    energy = np.einsum("ij,ij->i", tile, tile)
    extreme = np.flatnonzero(~((energy > 1.0 / _FAR) & (energy < _FAR)))
    if not len(extreme):
        return tile
    scaled = tile.copy()
    exponent = np.frexp(np.abs(tile[extreme]).max(axis=1))[1]
    scaled[extreme] = np.ldexp(tile[extreme], -exponent[:, None])
    return scaled


def leading_directions(rows: Rows, count: int, run: Run) -> tuple[Floats, Floats]:
    """
    Find the leading directions of the uncentred second moments of unit rows.

    Sums are exact; wide data are seen through power steps.

    Parameters
    ----------
    rows : Rows
        A sample of the data.
    count : int
        How many directions d, at most p.
    run : Run
        How passes are run.

    Returns
    -------
    directions : ndarray of float64, shape (p, d)
        Orthonormal columns, those of greatest energy first.
    energies : ndarray of float64, shape (d,)
        Mean squared coordinates; not negative.
    """
    p = rows.n_features
    if p <= _WIDEST:
        moments = _moments(rows, None, run)
        with one_blas_thread():
            values, vectors = linalg.eigh(moments, subset_by_index=(p - count, p - 1))
        return vectors[:, ::-1], np.maximum(values[::-1], 0.0) / rows.n_rows
    width = min(p, count + _SPARE)
    basis = ndtri(planes.uniforms(planes.child_seeds(0, np.arange(p)), width))
    for _ in range(_STEPS):
        basis = _moments(rows, _orthonormal(basis), run)
    basis = _orthonormal(basis)
    image = _moments(rows, basis, run)
    with one_blas_thread():
        inner = basis.T @ image
        values, vectors = linalg.eigh((inner + inner.T) / 2.0, subset_by_index=(width - count, width - 1))
        return basis @ vectors[:, ::-1], np.maximum(values[::-1], 0.0) / rows.n_rows


def _orthonormal(vectors: Floats) -> Floats:
    with one_blas_thread():
        return np.ascontiguousarray(np.linalg.qr(vectors)[0])


def _moments(rows: Rows, basis: Floats | None, run: Run) -> Floats:
    """Sum over rows of x x^T, or of x (x B), without rounding errors."""
    job = Pass("sketch", _moment_block, add_parts)
    state = _MomentState(rows.n_features, basis)
    return run_pass(rows, job, state, run).value()


def _moment_block(state: _MomentState, start: int, *columns: Any) -> Total:
    width = state.n_features if state.basis is None else state.basis.shape[1]
    total = Total(np.zeros((1, state.n_features, width)), np.float64(_UNIT**2))
    height = tile_height(_ANY_N, state.n_features)
    for numbers, tile in even_tiles(columns, start, height):
        require_finite(tile[: len(numbers)], numbers)
        unit = unit_rows(tile)
        right = unit if state.basis is None else unit @ state.basis
        total += product_total(unit, right, _UNIT, _UNIT)
    return total


def coordinates(rows: Rows, basis: Floats, run: Run) -> Floats:
    """
    Bring the coordinates of all rows of a sample to the driver.

    Parameters
    ----------
    rows : Rows
        The sample.
    basis : ndarray of float64, shape (p, d)
        Directions of the sketch.
    run : Run
        How passes are run.

    Returns
    -------
    ndarray of float64, shape (n, d)
        Quantised, in the order of the rows.
    """
    job = Pass("place", _place_block, stack_parts)
    return run_pass(rows, job, basis, run)


def _place_block(basis: Floats, start: int, *columns: Any) -> Floats:
    return stack_parts([np.zeros((0, basis.shape[1])), *(placed for _, placed in placed_tiles(columns, start, basis))])
