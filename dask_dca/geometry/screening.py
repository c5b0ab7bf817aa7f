"""Screening of rows: approximate positions with error bounds, and the rows that may be extreme.

A floating-point sum of p products, in any order, has a relative error of at most about p u of the sum of
the magnitudes, where u is the unit roundoff; by the Cauchy-Schwarz inequality that sum is at most a product of norms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.geometry.arrays import Floats
from dask_dca.geometry.exact import EXACT_LIMIT, Workspace
from dask_dca.geometry.moments import (
    BASIS_BITS,
    ENTRY_BITS,
    MIN_HEIGHT,
    POSITION_BITS,
    SubspaceCoordinates,
    basis_and_centre,
    noise_weight,
    residual_rounding,
    shrink_positions,
)
from dask_dca.geometry.outlying import residual_weights, rounding_energy
from dask_dca.geometry.votes import MAX_DIRECTION_LENGTH, ArgBest, groups_by_threshold

Singles = NDArray[np.float32]

_TILE_ENTRIES: Final = 2**18  # entries of the rows that are multiplied at once
# least height of a row that is screened: the squares of its entries do not underflow
_MIN_HEIGHTS: Final = {np.dtype(np.float32): 2.0**-30, np.dtype(np.float64): 2.0**-464}
# bound on what underflow takes from a square, relative to the square of `_MIN_HEIGHTS`
_UNDERFLOW: Final = {np.dtype(np.float32): 2.0**-66, np.dtype(np.float64): 2.0**-90}
# error bound of single precision, as a share of half the Huber radius, above which double precision is used
_MAX_SINGLE_MARGIN: Final = 1 / 16
_COLUMN_MULTIPLE: Final = 8  # the table's number of columns is a multiple of this, for fast matrix products
_MAX_UNSCALED: Final = 2.0**16  # rows of magnitudes outside [1 / this, this] are scaled by a power of two first
_TILE_ROWS: Final = 256  # rows whose heights are computed at once
_GROUP_DIRECTIONS: Final = 1024  # directions along which heights are computed at once
# share of rows that reach the median threshold up to which directions are taken in groups of similar thresholds
_MAX_TALL_SHARE: Final = 0.25
_GROUP_ENDS: Final = (1 / 8, 1 / 2, 1.0)  # end of each group as a share of the directions; small products are slow
# multiple of the median margin above which a row is kept unseen, so that the others have a small common margin
_MAX_MARGIN_RATIO: Final = 4.0


@dataclass(frozen=True)
class Screen:
    """A subspace's tables in the precision of screening, and the norms that bound its errors."""

    frame: SubspaceCoordinates
    unit: float  # power of two by which entries of the table are multiplied to be in the frame's unit
    table: NDArray[Any]  # (p, at least r + 2): centred basis, offset, axis, zeros
    squared_gain: NDArray[Any]  # (p,)
    offset_norm: float  # of the frame's offset
    basis_norm: float  # Frobenius norm of the centred basis, in the frame's unit of gain
    axis_norm: float  # in the frame's unit of gain
    basis_error: Floats  # (r, r) Gram matrix of the rounded basis, less the identity
    centre_overlap: float  # norm of the products of the rounded basis and the rounded direction of the centre
    center: Floats  # (r,) the frame's centre inside the subspace


def prepare_screen(frame: SubspaceCoordinates, dtype: type[np.floating[Any]] | None = None) -> Screen:
    """Prepare the tables for `approximate_positions`.

    dtype: precision; by default single where its error bound is small against the spread of the data, else double.
    """
    r = frame.basis.shape[1]
    axis = np.ones(len(frame.gain)) if frame.axis is None else frame.axis
    unit = float(2.0 ** np.frexp(frame.gain.max())[1])
    gain, offset = frame.gain / unit, frame.offset / unit
    table = np.zeros((len(gain), -(-(r + 2) // _COLUMN_MULTIPLE) * _COLUMN_MULTIPLE))
    center = offset @ frame.basis * 2.0**-BASIS_BITS
    table[:, :r] = frame.basis * (gain * 2.0**-BASIS_BITS)[:, None] - axis[:, None] * center
    table[:, r], table[:, r + 1] = gain * offset, axis
    basis_norm = float(np.sqrt(np.square(table[:, :r] / gain[:, None]).sum()))
    axis_norm = float(np.sqrt(np.square(axis / frame.gain).sum()))
    offset_norm = float(np.sqrt(frame.offset @ frame.offset))
    columns = basis_and_centre(frame)
    products = columns.T @ columns * 2.0 ** (-2 * BASIS_BITS)  # exact: sums below 2**53
    error, overlap = products[:r, :r] - np.eye(r), float(np.linalg.norm(products[:r, r]))
    found = Screen(frame, unit, table, gain**2, offset_norm, basis_norm, axis_norm, error, overlap, center * unit)
    if dtype is None:
        dtype = np.float64 if _needs_double(found) else np.float32
    return replace(found, table=table.astype(dtype), squared_gain=found.squared_gain.astype(dtype))


def _needs_double(screen: Screen) -> bool:
    """Whether single precision has too large an error bound for a row of typical length, half the Huber radius."""
    near = np.array([2.0 ** (2 * ENTRY_BITS - 2)])
    raw = near + screen.offset_norm**2
    _, margin, *_ = _error_bounds(screen, np.dtype(np.float32), np.sqrt(raw), near, near, near)
    return not bool(margin[0] <= _MAX_SINGLE_MARGIN * np.sqrt(near[0]))


def approximate_positions(
    rows: NDArray[Any], screen: Screen, typical_height: float = 0.0, space: Workspace | None = None
) -> tuple[NDArray[Any], Floats, Floats]:
    """Compute the positions of rows in the subspace approximately, with error bounds.

    rows (n, p): unscaled rows, not overwritten; typical_height: zero if no scores are wanted; space: reused buffers.
    Returns positions (n, r): approximately those of `coordinates`; margins (n,): bounds on the norm of the difference,
    infinite where there is none (rows that can't be scaled, not finite, or very far); scores (n,): upper bounds on the
    scores of `find_outlying_rows`, infinite where there is none.
    """
    frame, d, dtype = screen.frame, screen.frame.dim, screen.table.dtype
    r = frame.basis.shape[1]
    with np.errstate(all="ignore"):
        products, squares, exponents = _table_products(rows, screen, space or Workspace())
        height, inside = products[:, r + 1].astype(np.float64), products[:, :r]
        divisor = height
        if frame.even.band:
            divisor = np.ldexp(frame.even.divisors(np.ldexp(height, exponents)), -exponents)
        inside *= (screen.unit / divisor).astype(dtype)[:, None]
        if frame.even.band:  # the table subtracts the centre times the height, not the divisor
            inside += ((height / divisor - 1.0)[:, None] * screen.center).astype(dtype)
        # |x / divisor - centre|^2, expanded
        raw = squares * (screen.unit / divisor) ** 2
        energy = raw - 2.0 * products[:, r] * (screen.unit**2 / divisor) + screen.offset_norm**2
        leading = np.vecdot(inside[:, :d], inside[:, :d]).astype(np.float64)
        near = leading if d == r else leading + np.vecdot(inside[:, d:], inside[:, d:])
        bounds = _error_bounds(screen, dtype, np.sqrt(raw), leading, near, energy)
        bounded, margins, energy_slack, length_slack, height_error = bounds
        bounded &= (energy < EXACT_LIMIT / 4) & (np.minimum(height, divisor) > _MIN_HEIGHTS[dtype]) & (divisor < 1e140)
        if frame.even.band:
            whole = np.ldexp(height, exponents)
            bounded &= (whole > 2.0 * MIN_HEIGHT) & (whole < 0.5 / MIN_HEIGHT)
        scores = np.zeros(len(rows))
        if typical_height > 0.0:
            outside = np.maximum(energy - near + _basis_error(inside, near, screen), 0.0)
            longest = np.sqrt(outside + energy_slack) + length_slack
            least = np.maximum(np.sqrt(np.maximum(energy - energy_slack, 0.0)) - length_slack, 0.0) ** 2
            highest = np.ldexp(height + divisor * (2.0 * height_error), exponents)
            scores = longest**2 * residual_weights(highest, least, typical_height)
            scores[longest**2 <= rounding_energy(frame)] = 0.0
        positions = shrink_positions(inside, energy, frame, leading, near)
    if 64.0 * len(frame.gain) * screen.offset_norm**2 > 2.0 ** (55 + ENTRY_BITS):
        bounded[:] = False  # the mean is much longer than the spread, and `coordinates` rounds it
    scores[~bounded] = np.inf if typical_height > 0.0 else 0.0
    return positions, np.where(bounded, 2.0**POSITION_BITS * margins, np.inf), scores


def _basis_error(inside: NDArray[Any], near: Floats, screen: Screen) -> Floats:
    """Bound by how much the squared lengths inside are too large because the rounded basis is not orthonormal."""
    if inside.dtype == np.float32:  # its own errors are greater, so the norm will do
        return float(np.linalg.norm(screen.basis_error)) * near
    return np.vecdot(inside @ screen.basis_error, inside)


def _table_products(
    rows: NDArray[Any], screen: Screen, space: Workspace
) -> tuple[NDArray[Any], Floats, NDArray[np.int32]]:
    """Rows times the table (n, r + 2), their weighted squared lengths (n,), and the exponents of their units (n,)."""
    dtype, p = screen.table.dtype, rows.shape[1]
    step = max(1, min(_TILE_ENTRIES // p, len(rows)))
    products = space.array("products", len(rows), screen.table.shape[1], dtype=dtype)
    squares, exponents = np.empty(len(rows), dtype), np.zeros(len(rows), dtype=np.int32)
    buffer = space.array("squares", step, p, dtype=dtype)
    other = buffer if rows.dtype == dtype else space.array("part", step, p, dtype=dtype)
    for begin in range(0, len(rows), step):
        where = slice(begin, begin + step)
        part, work = rows[where], buffer[: len(rows[where])]
        peak = float(np.abs(part[:16]).max())
        if not 1 / _MAX_UNSCALED < peak < _MAX_UNSCALED and 0.0 < peak < np.inf:
            exponents[where] = np.frexp(peak)[1]
            part = np.ldexp(part, -exponents[begin]).astype(dtype)
        elif part.dtype != dtype:
            np.copyto(other[: len(part)], part, casting="same_kind")
            part = other[: len(part)]
        np.square(part, out=work)  # first, because it reads the rows into the cache
        np.matmul(work, screen.squared_gain, out=squares[where])
        np.matmul(part, screen.table, out=products[where])
    return products, squares.astype(np.float64), exponents


def _error_bounds(
    screen: Screen, dtype: np.dtype[Any], reach: Floats, leading: Floats, near: Floats, energy: Floats
) -> tuple[NDArray[np.bool_], Floats, Floats, Floats, Floats]:
    """Bound the errors of approximate positions.

    reach (n,): norms of the scaled rows; leading, near, energy (n,): squared lengths as in `shrink_positions`. Returns
    which rows have bounds; error bounds of the positions, in units of the frame; of squared lengths; of the length of
    the exact stage's residual; of heights, relative.
    """
    p, r = len(screen.frame.gain), screen.frame.basis.shape[1]
    u = 2.0**-24 if dtype == np.float32 else 2.0**-53
    leading_noise, full_noise = noise_weight(screen.frame, screen.frame.dim), noise_weight(screen.frame, r)
    error = 1.01 * (p + 6) * u
    underflow = p * _UNDERFLOW[dtype] * screen.unit**2
    raw = reach**2 + underflow
    reach = np.sqrt(raw)
    height_error = error * reach * screen.axis_norm  # relative
    length = np.sqrt(near)
    # where heights are even, an error of the height also moves a position by that share of the centre
    moved = length + (2.5 * float(np.linalg.norm(screen.center)) if screen.frame.even.band else 0.0)
    position_error = 1.25 * (error * reach * screen.basis_norm + height_error * moved)
    position_error = position_error + (r + 12) * u * moved + np.sqrt(underflow * r) * u
    energy_error = (error + 2.0 * height_error) * raw + 2.0 * reach * screen.offset_norm * (error + height_error)
    energy_error = 1.25 * energy_error + 2.0 * underflow
    energy_error += 2.0**-50 * (reach + screen.offset_norm) ** 2
    weight = leading_noise * np.sqrt(leading) / _wiener_denominator(leading, energy, leading_noise)
    if screen.frame.dim < r:
        weight = weight + full_noise * length / _wiener_denominator(near, energy, full_noise)
    rounding = 4.0 * np.sqrt(p + 2.0) * max(1.0, full_noise) + 64.0
    slope = 2.0 * (1.0 + 2.0 * max(1.0, full_noise))
    margins = rounding + 1.1 * (slope * position_error + weight * energy_error)
    # what the exact stage itself loses where the entries of a row cancel in its height
    cancelled = 2.0**-53 * p * raw * screen.axis_norm
    small = cancelled * reach * max(1.0, full_noise) <= 4.0 * length + 4.0
    bounded = (height_error <= 1 / 16) & (p * u < 0.01) & small
    # the energy outside is the difference of two energies, and either has an error
    energy_slack = energy_error + 2.5 * position_error * (length + position_error)
    length_slack = residual_rounding(screen.frame) + cancelled + screen.centre_overlap * (length + position_error)
    return bounded, margins, energy_slack, length_slack, height_error


def _wiener_denominator(near: Floats, energy: Floats, noise: float) -> Floats:
    """Denominator of the Wiener factor of a row, as in `moments`."""
    return near + np.maximum(energy - near, 0.0) * noise + 1.0


def surviving_rows(
    found: ArgBest, positions: NDArray[Any], margins: Floats, directions: Singles, space: Workspace | None = None
) -> NDArray[np.intp]:
    """Find the rows that may be extreme in some direction, or tie, by their approximate positions; no other row can.

    found: extremes so far; positions (n, d), margins (n,): from `approximate_positions`; directions (s, d): integers;
    space: reused buffers. Returns (m,): indices of the rows to compare exactly, increasing.
    """
    s, d = directions.shape
    upper, lower = found.keys[:s], found.keys[s:]
    rounding = (d + 8) * 2.0**-23
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.sqrt(np.vecdot(positions, positions).astype(np.float64)) * (1.0 + rounding)
    # negated so that a row whose length is NaN survives
    alive = ~((lengths + margins) * MAX_DIRECTION_LENGTH < np.minimum(upper, lower).min(initial=np.inf))
    usual = alive & np.isfinite(margins)
    if usual.any():
        usual &= margins <= _MAX_MARGIN_RATIO * np.median(margins[usual])
    surviving, tried = alive & ~usual, np.flatnonzero(usual)
    if len(tried):
        near = (positions if len(tried) == len(positions) else positions[tried]).astype(np.float32, copy=False)
        reach = lengths[tried]
        # error of a height: that of the position, and that of the sum of products
        slack = float(margins[tried].max() + reach.max() * rounding) * MAX_DIRECTION_LENGTH
        reach = reach * MAX_DIRECTION_LENGTH
        surviving[tried[_reaching_rows(near, reach, directions, (upper, lower), slack, space or Workspace())]] = True
    return np.flatnonzero(surviving)


def _reaching_rows(
    near: Singles, reach: Floats, directions: Singles, thresholds: tuple[Floats, Floats], slack: float, space: Workspace
) -> NDArray[np.bool_]:
    """Which rows may have a height above the greatest, or below the least, along some direction."""
    (upper, lower), found = thresholds, np.zeros(len(near), dtype=np.bool_)
    for group, threshold in _direction_groups(np.minimum(upper, lower) - 2.0 * slack, reach):
        tall = np.flatnonzero(reach >= threshold)
        if not len(tall):
            continue
        some, rows = directions[group], near if len(tall) == len(near) else near[tall]
        tops, bottoms = _tile_extremes(rows, some, space)
        # the greatest height is at least its approximation less the slack, and so may seem less by twice the slack
        high = np.maximum(upper[group], tops.max(axis=0).astype(np.float64) - slack) - slack
        low = np.maximum(lower[group], -bottoms.min(axis=0).astype(np.float64) - slack) - slack
        for tile, top, bottom in zip(_tiles(len(rows)), tops, bottoms, strict=True):
            high_in, low_in = top >= high, bottom <= -low
            if high_in.any():
                found[tall[tile]] |= (rows[tile] @ some[high_in].T >= high[high_in]).any(axis=1)
            if low_in.any():
                found[tall[tile]] |= (rows[tile] @ some[low_in].T <= -low[low_in]).any(axis=1)
    return found


def _direction_groups(thresholds: Floats, reach: Floats) -> Iterator[tuple[NDArray[np.intp], float]]:
    """Groups of directions, in order of thresholds where this spares rows, and the least threshold of each group."""
    spares = (reach >= np.median(thresholds)).mean() <= _MAX_TALL_SHARE
    for group in groups_by_threshold(thresholds, _GROUP_ENDS) if spares else [np.arange(len(thresholds))]:
        for some in (group[begin : begin + _GROUP_DIRECTIONS] for begin in range(0, len(group), _GROUP_DIRECTIONS)):
            yield some, float(thresholds[some].min())


def _tile_extremes(near: Singles, directions: Singles, space: Workspace) -> tuple[Singles, Singles]:
    """Greatest and least height of each tile of rows along each direction; (tiles, s) each."""
    count = -(-len(near) // _TILE_ROWS)
    tops, bottoms = space.array("extremes", 2, count, len(directions), dtype=np.float32)
    heights = space.array("heights", min(_TILE_ROWS, len(near)), len(directions), dtype=np.float32)
    for i, tile in enumerate(_tiles(len(near))):
        some = near[tile]
        np.matmul(some, directions.T, out=heights[: len(some)])
        np.max(heights[: len(some)], axis=0, out=tops[i])
        np.min(heights[: len(some)], axis=0, out=bottoms[i])
    return tops, bottoms


def _tiles(n: int) -> Iterator[slice]:
    return (slice(begin, min(begin + _TILE_ROWS, n)) for begin in range(0, n, _TILE_ROWS))
