"""Screening: approximate places with a proven margin, rows that may be extremes, rows outside the subspace.

What few rows hold, all in one place of the data, a sample may miss; the subspace then does not hold it, and the rows
that do stand outside. Noise, outliers and sensors that fail stand outside too: noise agrees on no direction, outliers
on none either, and a failing sensor is one of few features.

A sum of p products has, in any order of adding, a relative error of at most about p u of the sum of magnitudes, where
u is the unit roundoff; Cauchy's inequality bounds that sum by lengths, which are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.geometry.exact import Workspace
from dask_dca.geometry.moments import (
    BASIS_BITS,
    ENTRY_BITS,
    EXACT,
    LEAST_HEIGHT,
    POSITION_BITS,
    distrust,
    heights,
    held_directions,
    outside,
    ratios,
    rounding_outside,
    scale_in_place,
    trusted,
)
from dask_dca.geometry.votes import LONGEST, rising

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.geometry.moments import SubspaceCoordinates
    from dask_dca.geometry.votes import ArgBest

    Singles = NDArray[np.float32]

MOST: Final = 64  # rows that are kept
_LEAD: Final = 0.3  # of their residuals of length one, along one direction; or half of this, if
_AHEAD: Final = 2.5  # times what the next direction has: noise has about the same along both
_ONE_SIDED: Final = 6.0  # deviations by which their sum is longer than that of rows that may as well be turned round
_ALONG: Final = 0.5  # of a row's residual, squared, along the leading direction: it is one of those that agree
_FEATURES: Final = 4.0  # that a material moves rows in, at least; a failing sensor is one
_LEAST: Final = 8  # rows that can agree


@dataclass(frozen=True)
class Outlying:
    """The rows of greatest score; the sum of two is those of both."""

    scores: Floats  # (c,) falling, ties by rising number
    numbers: Numbers  # (c,)
    rows: NDArray[Any]  # (c, p) as they were read

    @classmethod
    def nobody(cls, n_features: int, dtype: Any = np.float64) -> Outlying:
        """Return the neutral element of the sum."""
        return cls(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros((0, n_features), dtype))

    @property
    def bar(self) -> float:
        """The score that a row must exceed, or reach with a lower number."""
        return float(self.scores[-1]) if len(self.scores) == MOST else 0.0

    def without(self, numbers: Numbers) -> Outlying:
        """Leave out the rows of some numbers."""
        others = ~np.isin(self.numbers, numbers)
        return Outlying(self.scores[others], self.numbers[others], self.rows[others])

    def __add__(self, other: Outlying) -> Outlying:
        scores, numbers = np.concatenate([self.scores, other.scores]), np.concatenate([self.numbers, other.numbers])
        order = np.lexsort((numbers, -scores))
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = np.diff(numbers[order]) != 0  # a row has one score: its copies are neighbours
        order = order[new][:MOST]
        rows = self.rows if len(other.rows) == 0 else np.concatenate([self.rows, other.rows])
        return Outlying(scores[order], numbers[order], rows[order])


def credence(height: Floats, energy: Floats, typical: float) -> Floats:
    """Weight of a row's residual: what makes rows stand out without saying anything.

    height (n,): of the raw rows; energy (n,): their squared distances from the centre, in the frame's units; typical: a
    typical height. Returns (n,): squared: a low row's noise is magnified by scaling, and what is much further out than
    the others is an outlier.
    """
    near = np.minimum(1.0, 2.0 ** (2 * ENTRY_BITS) / np.maximum(energy, 1.0))
    return np.minimum(1.0, np.maximum(height, 0.0) / typical) ** 2 * near**2


def standing_outside(
    rows: NDArray[Any], numbers: Numbers, frame: SubspaceCoordinates, typical: float, dtype: Any
) -> Outlying:
    """Score rows by how far they stand outside the subspace, one feature of each left out: it may be a failing sensor.

    rows (n, p): as they were read; numbers (n,): their row numbers. Returns those of positive score: a row's is the
    same beside any others. What rounding may leave is none.
    """
    residuals, energy, height = _residuals(rows.astype(np.float64), frame)
    weight = credence(height, energy, typical)
    squares = residuals**2
    whole = squares.sum(axis=1)
    scores = np.where(whole > _nothing(frame), whole - squares.max(axis=1), 0.0) * weight
    there = np.flatnonzero(scores > 0.0)
    return Outlying.nobody(rows.shape[1], dtype) + Outlying(scores[there], numbers[there], rows[there].astype(dtype))


def _nothing(frame: SubspaceCoordinates) -> float:
    """The squared length of a residual up to which it may be that of rounding, in bounds too."""
    return (2.0 * rounding_outside(frame)) ** 2


def _residuals(rows: Floats, frame: SubspaceCoordinates) -> tuple[Floats, Floats, Floats]:
    """Residuals (n, p), exact, whole squared lengths (n,), and heights (n,), zero if unusable; overwrites the rows."""
    height = heights(rows, frame.axis)
    usable = scale_in_place(rows, frame.axis, frame.even) & (height < np.inf)
    rows[~usable] = 0.0
    return *outside(rows, frame), np.where(usable, height, 0.0)


def agreed_direction(found: Outlying, frame: SubspaceCoordinates) -> Floats | None:
    """Find the direction of several features in which rows stand out, as those that hold a material do.

    found: rows that stand furthest outside the frame's subspace. Returns (p,): of length one; None if they don't agree.
    """
    if len(found.numbers) < _LEAST:
        return None
    residuals, _, _ = _residuals(found.rows.astype(np.float64), frame)
    unit = residuals / np.linalg.norm(residuals, axis=1, keepdims=True)
    _, leads, directions = np.linalg.svd(unit, full_matrices=False)
    along = (unit @ directions[0]) ** 2 > _ALONG
    lead = _LEAD * len(unit) * (0.5 if leads[0] ** 2 > _AHEAD * leads[1] ** 2 else 1.0)
    if leads[0] ** 2 <= lead or not along.any() or not _is_one_sided(unit, leads):
        return None
    scaled, _ = ratios(found.rows[along], frame.axis, frame.even)
    shift = (scaled * frame.gain - frame.offset).mean(axis=0)
    several = min(_extent(directions[0]), _extent(shift)) >= _FEATURES
    return directions[0] if several else None


def _is_one_sided(unit: Floats, leads: Floats) -> bool:
    """Whether rows (n, p) of length one point one way: what they hold more of; noise points both ways."""
    n, squared = len(unit), float((unit.sum(axis=0) ** 2).sum())
    return squared > n**2 / 2 or squared - n > _ONE_SIDED * float(np.sqrt(2.0 * (leads**4).sum()))


def _extent(direction: Floats) -> float:
    """How many features a direction extends over."""
    return float((direction**2).sum() ** 2 / (direction**4).sum())


_TILE_ENTRIES: Final = 2**18
_LEAST_HEIGHT: Final = {np.dtype(np.float32): 2.0**-30, np.dtype(np.float64): 2.0**-464}  # squares don't vanish
_FLUSHED: Final = {np.dtype(np.float32): 2.0**-66, np.dtype(np.float64): 2.0**-90}  # what vanishes, over its square
_TOO_ROUGH: Final = 1 / 16  # of half the Huber radius: a margin with which single precision would not pay
_COLUMNS: Final = 8  # of the table, and multiples: what products are fast with
_ODD: Final = 2.0**16  # rows of other magnitudes than this are looked at in a unit of their own
_TILE: Final = 256  # rows, and
_GROUP: Final = 1024  # directions, whose heights are held at once
_FEW: Final = 0.25  # of the rows are tall enough for half of the directions: it pays to look at few of these at a time
_SHARES: Final = (
    1 / 8,
    1 / 2,
    1.0,
)  # of the directions, up to the end of each group: products of few directions are slow
_ODD_MARGIN: Final = 4.0  # times the median margin: a row with more is looked at, so that the others have a small one


@dataclass(frozen=True)
class Screen:
    """A frame's tables in the precision of a glance, and the lengths that bound its errors."""

    frame: SubspaceCoordinates
    unit: float  # power of two that the tables' entries are multiplied by to be those of the frame
    table: NDArray[Any]  # (p, at least r + 2): centred basis, offset, axis, zeros
    squares: NDArray[Any]  # (p,) squared gain
    offset: float  # length of the frame's offset
    width: float  # Frobenius norm of the centred basis, in the frame's unit of gain
    upright: float  # length of the axis in that unit
    skew: Floats  # (r, r) by how much the products of the rounded basis differ from those of orthonormal vectors
    astray: float  # of a row's length inside, that the exact residual may take for the centre's
    center: Floats  # (r,) of the frame, inside


def prepare_screen(frame: SubspaceCoordinates, dtype: type[np.floating[Any]] | None = None) -> Screen:
    """Prepare glances at rows.

    dtype: precision; single where its margin is small against the data's spread, else double.
    """
    r = frame.basis.shape[1]
    axis = np.ones(len(frame.gain)) if frame.axis is None else frame.axis
    unit = float(2.0 ** np.frexp(frame.gain.max())[1])
    gain, offset = frame.gain / unit, frame.offset / unit
    table = np.zeros((len(gain), -(-(r + 2) // _COLUMNS) * _COLUMNS))
    center = offset @ frame.basis * 2.0**-BASIS_BITS
    table[:, :r] = frame.basis * (gain * 2.0**-BASIS_BITS)[:, None] - axis[:, None] * center
    table[:, r], table[:, r + 1] = gain * offset, axis
    width = float(np.sqrt(np.square(table[:, :r] / gain[:, None]).sum()))
    upright = float(np.sqrt(np.square(axis / frame.gain).sum()))
    length = float(np.sqrt(frame.offset @ frame.offset))
    held = held_directions(frame)
    products = held.T @ held * 2.0 ** (-2 * BASIS_BITS)  # exact: sums below 2**53
    skew, astray = products[:r, :r] - np.eye(r), float(np.linalg.norm(products[:r, r]))
    found = Screen(frame, unit, table, gain**2, length, width, upright, skew, astray, center * unit)
    if dtype is None:
        dtype = np.float64 if _is_rough(found) else np.float32
    return replace(found, table=table.astype(dtype), squares=found.squares.astype(dtype))


def _is_rough(found: Screen) -> bool:
    """Whether single precision has too large a margin for a row of usual length."""
    near = np.array([2.0 ** (2 * ENTRY_BITS - 2)])
    raw = near + found.offset**2
    _, margin, *_ = _bounds(found, np.dtype(np.float32), np.sqrt(raw), near, near, near)
    return not bool(margin[0] <= _TOO_ROUGH * np.sqrt(near[0]))


def approximate_positions(
    rows: NDArray[Any], found: Screen, typical: float = 0.0, space: Workspace | None = None
) -> tuple[NDArray[Any], Floats, Floats]:
    """Place rows approximately.

    rows (n, p): rows as they are, not scaled; not overwritten; typical: a typical height, if rows that stand outside
    the subspace are wanted; space: arrays to be used again. Returns positions (n, r): about what `coordinates` gives;
    margins (n,): bounds on the length of the difference; infinite where there is none (rows not scalable, not finite,
    or very far); scores (n,): bounds on what `standing_outside` gives; infinite where there is none; zero if not
    wanted.
    """
    frame, d, dtype = found.frame, found.frame.dim, found.table.dtype
    r = frame.basis.shape[1]
    with np.errstate(all="ignore"):
        seen, squares, units = _look(rows, found, space or Workspace())
        height, inside = seen[:, r + 1].astype(np.float64), seen[:, :r]
        low = height
        if frame.even.band:
            height = np.ldexp(frame.even.divisors(np.ldexp(low, units)), -units)
        inside *= (found.unit / height).astype(dtype)[:, None]
        if frame.even.band:
            inside += ((low / height - 1.0)[:, None] * found.center).astype(dtype)
        raw = squares * (found.unit / height) ** 2
        energy = raw - 2.0 * seen[:, r] * (found.unit**2 / height) + found.offset**2
        leading = np.vecdot(inside[:, :d], inside[:, :d]).astype(np.float64)
        near = leading if d == r else leading + np.vecdot(inside[:, d:], inside[:, d:])
        bounded, margins, slack, longer, tilt = _bounds(found, dtype, np.sqrt(raw), leading, near, energy)
        bounded &= (energy < EXACT / 4) & (np.minimum(low, height) > _LEAST_HEIGHT[dtype]) & (height < 1e140)
        if frame.even.band:
            whole = np.ldexp(low, units)
            bounded &= (whole > 2.0 * LEAST_HEIGHT) & (whole < 0.5 / LEAST_HEIGHT)
        scores = np.zeros(len(rows))
        if typical > 0.0:
            away = np.sqrt(np.maximum(energy - near + _too_much(inside, near, found), 0.0) + slack) + longer
            least = np.maximum(np.sqrt(np.maximum(energy - slack, 0.0)) - longer, 0.0) ** 2
            scores = away**2 * credence(np.ldexp(low + height * (2.0 * tilt), units), least, typical)
            scores[away**2 <= _nothing(frame)] = 0.0
        positions = trusted(inside, energy, frame, leading, near)
    if 64.0 * len(frame.gain) * found.offset**2 > 2.0 ** (55 + ENTRY_BITS):
        bounded[:] = False  # a mean much longer than the spread: the exact stage rounds it
    scores[~bounded] = np.inf if typical > 0.0 else 0.0
    return positions, np.where(bounded, 2.0**POSITION_BITS * margins, np.inf), scores


def _too_much(inside: NDArray[Any], near: Floats, found: Screen) -> Floats:
    """Bound by how much the squared lengths inside count twice what the rounded basis has in common."""
    if inside.dtype == np.float32:  # whose own errors are greater
        return float(np.linalg.norm(found.skew)) * near
    return np.vecdot(inside @ found.skew, inside)


def _look(rows: NDArray[Any], found: Screen, space: Workspace) -> tuple[NDArray[Any], Floats, NDArray[np.int32]]:
    """Rows times the table (n, r + 2), their squares times the squared gain (n,), and the exponents of their units."""
    dtype, p = found.table.dtype, rows.shape[1]
    step = max(1, min(_TILE_ENTRIES // p, len(rows)))
    seen = space.array("seen", len(rows), found.table.shape[1], dtype=dtype)
    squares, units = np.empty(len(rows), dtype), np.zeros(len(rows), dtype=np.int32)
    buffer = space.array("squares", step, p, dtype=dtype)
    other = buffer if rows.dtype == dtype else space.array("part", step, p, dtype=dtype)
    for begin in range(0, len(rows), step):
        where = slice(begin, begin + step)
        part, work = rows[where], buffer[: len(rows[where])]
        peak = float(np.abs(part[:16]).max())
        if not 1 / _ODD < peak < _ODD and 0.0 < peak < np.inf:
            units[where] = np.frexp(peak)[1]
            part = np.ldexp(part, -units[begin]).astype(dtype)
        elif part.dtype != dtype:
            np.copyto(other[: len(part)], part, casting="same_kind")
            part = other[: len(part)]
        np.square(part, out=work)  # first: a sweep that fetches the rows well
        np.matmul(work, found.squares, out=squares[where])
        np.matmul(part, found.table, out=seen[where])
    return seen, squares.astype(np.float64), units


def _bounds(
    found: Screen, dtype: np.dtype[Any], reach: Floats, leading: Floats, near: Floats, energy: Floats
) -> tuple[NDArray[np.bool_], Floats, Floats, Floats, Floats]:
    """Which rows have a bound on the error of their place; the bound, before it is scaled; on energies; on heights.

    Before the last: how much longer than a row's own the exact stage's residual may be.
    """
    p, r = len(found.frame.gain), found.frame.basis.shape[1]
    u = 2.0**-24 if dtype == np.float32 else 2.0**-53
    few, every = distrust(found.frame, found.frame.dim), distrust(found.frame, r)
    error = 1.01 * (p + 6) * u
    flushed = p * _FLUSHED[dtype] * found.unit**2
    raw = reach**2 + flushed
    reach = np.sqrt(raw)
    tilt = error * reach * found.upright  # relative error of the height
    length = np.sqrt(near)
    # where heights are even a place is moved by a part of the centre's, which the height decides
    moved = length + (2.5 * float(np.linalg.norm(found.center)) if found.frame.even.band else 0.0)
    aside = 1.25 * (error * reach * found.width + tilt * moved) + (r + 12) * u * moved + np.sqrt(flushed * r) * u
    blur = 1.25 * ((error + 2.0 * tilt) * raw + 2.0 * reach * found.offset * (error + tilt)) + 2.0 * flushed
    blur += 2.0**-50 * (reach + found.offset) ** 2
    weight = few * np.sqrt(leading) / _resistance(leading, energy, few)
    if found.frame.dim < r:
        weight = weight + every * length / _resistance(near, energy, every)
    base = 4.0 * np.sqrt(p + 2.0) * max(1.0, every) + 64.0
    margins = base + 1.1 * (2.0 * (1.0 + 2.0 * max(1.0, every)) * aside + weight * blur)
    # what the exact stage itself loses where the entries of a row cancel in its height
    shift = 2.0**-53 * p * raw * found.upright
    usual = (tilt <= 1 / 16) & (p * u < 0.01) & (shift * reach * max(1.0, every) <= 4.0 * length + 4.0)
    # of the energy outside: what both energies may be off
    slack = blur + 2.5 * aside * (length + aside)
    longer = rounding_outside(found.frame) + shift + found.astray * (length + aside)
    return usual, margins, slack, longer, tilt


def _resistance(near: Floats, energy: Floats, doubt: float) -> Floats:
    """Denominator of the share of a row's energy that is trusted."""
    return near + np.maximum(energy - near, 0.0) * doubt + 1.0


def surviving_rows(
    found: ArgBest, positions: NDArray[Any], margins: Floats, directions: Singles, space: Workspace | None = None
) -> NDArray[np.intp]:
    """Tell which rows may win or tie, from their approximate places; no other row can.

    positions (n, d): approximate places; margins (n,): bounds on their errors, as lengths; infinite where there is
    none; directions (s, d): the integer directions; space: arrays to be used again. Returns (m,): indices of the rows
    to look at exactly, increasing.
    """
    s, d = directions.shape
    upper, lower = found.keys[:s], found.keys[s:]
    rounding = (d + 8) * 2.0**-23
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.sqrt(np.vecdot(positions, positions).astype(np.float64)) * (1.0 + rounding)
    # not a row that is too short for the lowest bar; nan is
    alive = ~((lengths + margins) * LONGEST < np.minimum(upper, lower).min(initial=np.inf))
    usual = alive & np.isfinite(margins)
    if usual.any():
        usual &= margins <= _ODD_MARGIN * np.median(margins[usual])
    wanted, tried = alive & ~usual, np.flatnonzero(usual)
    if len(tried):
        near = (positions if len(tried) == len(positions) else positions[tried]).astype(np.float32, copy=False)
        reach = lengths[tried]
        # of a height: the error of its place, and that of its sum
        slack = float(margins[tried].max() + reach.max() * rounding) * LONGEST
        wanted[tried[_reaching(near, reach * LONGEST, directions, (upper, lower), slack, space or Workspace())]] = True
    return np.flatnonzero(wanted)


def _reaching(
    near: Singles, reach: Floats, directions: Singles, bars: tuple[Floats, Floats], slack: float, space: Workspace
) -> NDArray[np.bool_]:
    """Rows whose height may be at least that of the highest, or at most that of the lowest, on some direction."""
    (upper, lower), wanted = bars, np.zeros(len(near), dtype=np.bool_)
    for group, bar in _groups(np.minimum(upper, lower) - 2.0 * slack, reach):
        tall = np.flatnonzero(reach >= bar)
        if not len(tall):
            continue
        some, rows = directions[group], near if len(tall) == len(near) else near[tall]
        tops, bottoms = _tile_extremes(rows, some, space)
        # the highest row reaches at least this much, and may seem lower by the slack
        high = np.maximum(upper[group], tops.max(axis=0).astype(np.float64) - slack) - slack
        low = np.maximum(lower[group], -bottoms.min(axis=0).astype(np.float64) - slack) - slack
        for tile, top, bottom in zip(_tiles(len(rows)), tops, bottoms, strict=True):
            high_in, low_in = top >= high, bottom <= -low
            if high_in.any():
                wanted[tall[tile]] |= (rows[tile] @ some[high_in].T >= high[high_in]).any(axis=1)
            if low_in.any():
                wanted[tall[tile]] |= (rows[tile] @ some[low_in].T <= -low[low_in]).any(axis=1)
    return wanted


def _groups(bars: Floats, reach: Floats) -> Iterator[tuple[NDArray[np.intp], float]]:
    """Directions that are looked at together, and the lowest bar among them; by rising bars where that spares rows."""
    spares = (reach >= np.median(bars)).mean() <= _FEW
    for group in rising(bars, _SHARES) if spares else [np.arange(len(bars))]:
        for some in (group[begin : begin + _GROUP] for begin in range(0, len(group), _GROUP)):
            yield some, float(bars[some].min())


def _tile_extremes(near: Singles, directions: Singles, space: Workspace) -> tuple[Singles, Singles]:
    """Greatest and least height of each tile of rows on each direction."""
    count = -(-len(near) // _TILE)
    tops, bottoms = space.array("extremes", 2, count, len(directions), dtype=np.float32)
    heights = space.array("heights", min(_TILE, len(near)), len(directions), dtype=np.float32)
    for i, tile in enumerate(_tiles(len(near))):
        some = near[tile]
        np.matmul(some, directions.T, out=heights[: len(some)])
        np.max(heights[: len(some)], axis=0, out=tops[i])
        np.min(heights[: len(some)], axis=0, out=bottoms[i])
    return tops, bottoms


def _tiles(n: int) -> Iterator[slice]:
    return (slice(begin, min(begin + _TILE, n)) for begin in range(0, n, _TILE))
