"""Approximate places of rows, with a proven margin: to tell which rows can't be extreme, in few sweeps over memory.

A sum of p products has, in any order of adding, a relative error of at most about p u of the sum of magnitudes, where
u is the unit roundoff; Cauchy's inequality bounds that sum by lengths, which are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.geometry.frame import BASIS_BITS, ENTRY_BITS, EXACT, POSITION_BITS, distrust, trusted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.frame import Frame

    Floats = NDArray[np.float64]

__all__ = ["Sight", "glance", "sight"]

_TILE_ENTRIES: Final = 2**18
_LEAST_HEIGHT: Final = {np.dtype(np.float32): 2.0**-30, np.dtype(np.float64): 2.0**-464}  # squares don't vanish
_FLUSHED: Final = {np.dtype(np.float32): 2.0**-66, np.dtype(np.float64): 2.0**-90}  # what vanishes, over its square
_TOO_ROUGH: Final = 1 / 16  # of half the Huber radius: a margin with which single precision would not pay
_ODD: Final = 2.0**16  # rows of other magnitudes than this are looked at in a unit of their own


@dataclass(frozen=True)
class Sight:
    """A frame's tables in the precision of a glance, and the lengths that bound its errors."""

    frame: Frame
    unit: float  # power of two that the tables' entries are multiplied by to be those of the frame
    table: NDArray[Any]  # (p, r + 2): centred basis, offset, axis
    squares: NDArray[Any]  # (p,) squared gain
    offset: float  # length of the frame's offset
    width: float  # Frobenius norm of the centred basis, in the frame's unit of gain
    upright: float  # length of the axis in that unit


def sight(frame: Frame, dtype: type[np.floating[Any]] | None = None) -> Sight:
    """
    Prepare glances at rows.

    Parameters
    ----------
    frame : Frame
        The subspace.
    dtype : type, optional
        Precision; single where its margin is small against the data's spread, else double.

    Returns
    -------
    Sight
        For `glance`.
    """
    r = frame.basis.shape[1]
    axis = np.ones(len(frame.gain)) if frame.axis is None else frame.axis
    unit = float(2.0 ** np.frexp(frame.gain.max())[1])
    gain, offset = frame.gain / unit, frame.offset / unit
    table = np.empty((len(gain), r + 2))
    center = offset @ frame.basis * 2.0**-BASIS_BITS
    table[:, :r] = frame.basis * (gain * 2.0**-BASIS_BITS)[:, None] - axis[:, None] * center
    table[:, r], table[:, r + 1] = gain * offset, axis
    width = float(np.sqrt(np.square(table[:, :r] / gain[:, None]).sum()))
    upright = float(np.sqrt(np.square(axis / frame.gain).sum()))
    length = float(np.sqrt(frame.offset @ frame.offset))
    found = Sight(frame, unit, table, gain**2, length, width, upright)
    if dtype is None:
        dtype = np.float64 if _is_rough(found) else np.float32
    return Sight(frame, unit, table.astype(dtype), found.squares.astype(dtype), length, width, upright)


def _is_rough(found: Sight) -> bool:
    """Whether single precision has too large a margin for a row of usual length."""
    near = np.array([2.0 ** (2 * ENTRY_BITS - 2)])
    raw = near + found.offset**2
    _, margin = _bounds(found, np.dtype(np.float32), np.sqrt(raw), near, near, near)
    return not bool(margin[0] <= _TOO_ROUGH * np.sqrt(near[0]))


def glance(rows: NDArray[Any], found: Sight) -> tuple[NDArray[Any], Floats]:
    """
    Place rows approximately.

    Parameters
    ----------
    rows : ndarray of float32 or float64, shape (n, p)
        Rows as they are, not scaled; not overwritten.
    found : Sight
        What `sight` prepared.

    Returns
    -------
    positions : ndarray of float32 or float64, shape (n, r)
        About what `coordinates` gives.
    margins : ndarray of float64, shape (n,)
        Bounds on the length of the difference; infinite where there is none (rows not scalable, not finite, or
        very far).
    """
    frame, d, dtype = found.frame, found.frame.dim, found.table.dtype
    r = frame.basis.shape[1]
    with np.errstate(all="ignore"):
        seen, squares = _look(rows, found)
        height = seen[:, r + 1].astype(np.float64)
        inside = seen[:, :r] * (found.unit / height).astype(dtype)[:, None]
        raw = squares * (found.unit / height) ** 2
        energy = raw - 2.0 * seen[:, r] * (found.unit**2 / height) + found.offset**2
        leading = np.vecdot(inside[:, :d], inside[:, :d]).astype(np.float64)
        near = leading if d == r else leading + np.vecdot(inside[:, d:], inside[:, d:])
        bounded, margins = _bounds(found, dtype, np.sqrt(raw), leading, near, energy)
        bounded &= (energy < EXACT / 4) & (height > _LEAST_HEIGHT[dtype]) & (height < 1e140)
        positions = trusted(inside, energy, frame, leading, near)
    if 64.0 * len(frame.gain) * found.offset**2 > 2.0 ** (55 + ENTRY_BITS):
        bounded[:] = False  # a mean much longer than the spread: the exact stage rounds it
    return positions, np.where(bounded, 2.0**POSITION_BITS * margins, np.inf)


def _look(rows: NDArray[Any], found: Sight) -> tuple[NDArray[Any], Floats]:
    """Rows times the table (n, r + 2), and their squares times the squared gain (n,), up to a power of two a row."""
    dtype, p = found.table.dtype, rows.shape[1]
    step = max(1, min(_TILE_ENTRIES // p, len(rows)))
    seen, squares = np.empty((len(rows), found.table.shape[1]), dtype), np.empty(len(rows), dtype)
    buffer = np.empty((step, p), dtype)
    for begin in range(0, len(rows), step):
        where = slice(begin, begin + step)
        part, work = rows[where], buffer[: len(rows[where])]
        peak = float(np.abs(part[:16]).max())
        if not 1 / _ODD < peak < _ODD and 0.0 < peak < np.inf:
            part = np.ldexp(part, -np.frexp(peak)[1]).astype(dtype)
        elif part.dtype != dtype:
            np.copyto(work, part, casting="same_kind")
            part = work
        np.matmul(part, found.table, out=seen[where])
        np.square(part, out=work)
        np.matmul(work, found.squares, out=squares[where])
    return seen, squares.astype(np.float64)


def _bounds(
    found: Sight, dtype: np.dtype[Any], reach: Floats, leading: Floats, near: Floats, energy: Floats
) -> tuple[NDArray[np.bool_], Floats]:
    """Which rows have a bound on the error of their place, and the bound, before the place is scaled."""
    p, r = len(found.frame.gain), found.frame.basis.shape[1]
    u = 2.0**-24 if dtype == np.float32 else 2.0**-53
    few, every = distrust(found.frame, found.frame.dim), distrust(found.frame, r)
    error = 1.01 * (p + 6) * u
    flushed = p * _FLUSHED[dtype] * found.unit**2
    raw = reach**2 + flushed
    reach = np.sqrt(raw)
    tilt = error * reach * found.upright  # relative error of the height
    length = np.sqrt(near)
    aside = 1.25 * (error * reach * found.width + tilt * length) + (r + 12) * u * length + np.sqrt(flushed * r) * u
    blur = 1.25 * ((error + 2.0 * tilt) * raw + 2.0 * reach * found.offset * (error + tilt)) + 2.0 * flushed
    blur += 2.0**-50 * (reach + found.offset) ** 2
    weight = few * np.sqrt(leading) / _resistance(leading, energy, few)
    if found.frame.dim < r:
        weight = weight + every * length / _resistance(near, energy, every)
    base = 4.0 * np.sqrt(p + 2.0) * max(1.0, every) + 64.0
    margins = base + 1.1 * (2.0 * (1.0 + 2.0 * max(1.0, every)) * aside + weight * blur)
    # what the exact stage itself loses where the entries of a row cancel in its height
    lost = 2.0**-53 * p * reach * found.upright * raw * max(1.0, every)
    return (tilt <= 1 / 16) & (p * u < 0.01) & (lost <= 4.0 * length + 4.0), margins


def _resistance(near: Floats, energy: Floats, doubt: float) -> Floats:
    """Denominator of the share of a row's energy that is trusted."""
    return near + np.maximum(energy - near, 0.0) * doubt + 1.0
