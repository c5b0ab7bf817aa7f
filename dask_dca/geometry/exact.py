"""Exact sums over rows, and matrix products in which the bits of a row do not depend on the other rows.

A value is rounded once, to a multiple of a unit, a power of two, and written in digits of base 2**20. Sums of digits,
and of products of digits, stay below 2**53, where float64 adds integers exactly; larger sums are carried. A sum over
all rows therefore has the same bits for any chunking, order of merging and number of threads. Matrix products are
computed in pieces of a fixed number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dask_dca.geometry.arrays import Floats

Weights = Floats | NDArray[np.bool_]

EXACT_LIMIT: Final = 2.0**52  # sums of integers up to this are exact
_DIGIT_BITS: Final = 20  # bits of a digit
_BASE: Final = 2.0**_DIGIT_BITS
_MAX_DIGITS: Final = 4  # digits of an integer below 2**53, with a carry
_WEIGHT_BITS: Final = 24  # weights are rounded to multiples of 2**-24
_WEIGHTED_BITS: Final = 33  # bits of a weight and of the number of rows; with 19 of a digit: 52
_PRODUCT_ROWS: Final = 2**14  # rows in a sum of products of digits: 14 bits, and 19 of each digit: 52
_HALF_BITS: Final = 26  # bits of the lower half of an integer in a running sum


@dataclass(frozen=True)
class Total:
    """An exact sum, or array of sums, merged by `+` in any order; up to 2**31 totals can be added.

    parts (levels, ...): integers, those of level l in multiples of 2**(20 l) units; unit: a power of two, or an array
    of them.
    """

    parts: Floats
    unit: float | Floats

    def __add__(self, other: Total) -> Total:
        longer, shorter = (self, other) if len(self.parts) >= len(other.parts) else (other, self)
        parts = longer.parts.copy()
        parts[: len(shorter.parts)] += shorter.parts
        return Total(parts, self.unit)

    def value(self) -> Floats:
        """Return the sum in floating point, within a few units in the last place; the same for any order of adding."""
        carry, low = np.zeros(self.parts.shape[1:]), []
        for part in self.parts[:-1]:
            whole = part + carry
            carry = np.floor(whole / _BASE)
            low.append(whole - carry * _BASE)
        result = self.parts[-1] + carry
        for digit in reversed(low):
            result = result * _BASE + digit
        return result * self.unit


class RunningTotal:
    """An exact sum to which arrays of integers are added in place, at most 2**20 times."""

    def __init__(self, shape: tuple[int, ...], unit: float | Floats) -> None:
        self._now, self._most = np.zeros(shape), 0.0  # integers, and a bound on their magnitude
        self._high, self._low = np.zeros(shape), np.zeros(shape)
        self._more = Total(np.zeros((1, *shape)), unit)

    def add(self, whole: Floats, most: float) -> bool:
        """Add integers, in units, of magnitude at most `most`; if that is too large, add nothing and return false."""
        if not most < EXACT_LIMIT:
            return False
        if self._most + most >= EXACT_LIMIT:
            self._carry()
        self._now += whole
        self._most += most
        return True

    def _carry(self) -> None:
        high = np.rint(self._now * 2.0**-_HALF_BITS)
        self._high += high
        self._low += self._now - high * 2.0**_HALF_BITS
        self._now[...], self._most = 0.0, 0.0

    def add_total(self, total: Total, where: int | slice = slice(None)) -> None:
        """Add an exact sum in the same units to some of the entries."""
        levels = max(len(total.parts), len(self._more.parts))
        parts = np.zeros((levels, *self._low.shape))
        parts[: len(self._more.parts)] = self._more.parts
        parts[: len(total.parts), where] += total.parts
        self._more = Total(parts, self._more.unit)

    def total(self) -> Total:
        """Return the sum so far."""
        self._carry()
        parts: list[Floats] = []
        _add_digits(parts, 0, self._low)
        _add_digits(parts, 1, self._high * 2.0 ** (_HALF_BITS - _DIGIT_BITS))
        return _make_total(parts, self._low.shape, self._more.unit) + self._more


def power_of_two(scale: ArrayLike) -> Floats:
    """Return the least power of two that is at least the scale; 1 where the scale is zero."""
    mantissa, exponent = np.frexp(np.asarray(scale, dtype=np.float64))
    return np.where(mantissa > 0.0, np.ldexp(1.0, exponent - (mantissa == 0.5)), 1.0)


def digits(values: Floats, unit: float | Floats) -> list[Floats]:
    """Round values to multiples of a unit and write them in base 2**20.

    unit: a power of two, or an array of them that broadcasts against the values. Returns at least one array of integers
    in [-2**19, 2**19], least significant digit first.
    Raises ValueError: a value is not finite, or overflows in these units.
    """
    return _digits(*_rounded(values, unit))


def _rounded(values: Floats, unit: float | Floats) -> tuple[Floats, float]:
    """Values in units, rounded to integers, and their greatest magnitude."""
    with np.errstate(over="ignore"):
        rest = np.asarray(values / unit)
    np.rint(rest, out=rest)
    top = float(max(rest.max(), -rest.min())) if rest.size else 0.0
    if not np.isfinite(top):
        msg = "values to be summed must be finite, and not too large for their unit"
        raise ValueError(msg)
    return rest, top


def _digits(rest: Floats, top: float) -> list[Floats]:
    """Write integers of magnitude at most `top` in base 2**20; overwrites them."""
    found = []
    while top > _BASE / 2:
        high = np.rint(rest * (1.0 / _BASE))
        rest -= high * _BASE
        found.append(rest)
        rest, top = high, float(np.rint(top / _BASE))
    return [*found, rest]


def plain_total(values: Floats, unit: float | Floats) -> Total:
    """Sum rows exactly.

    values (n, ...): finite rows; unit (...): power of two to multiples of which they are rounded.
    """
    parts: list[Floats] = []
    rest, top = _rounded(values, unit)
    for level, digit in enumerate([rest] if top * len(values) < EXACT_LIMIT else _digits(rest, top)):
        for some in _runs(len(values), 2**31):
            _add_digits(parts, level, digit[some].sum(axis=0))
    return _make_total(parts, values.shape[1:], unit)


def weighted_total(weights: Weights, values: Floats, unit: float | Floats, weight_bits: int = _WEIGHT_BITS) -> Total:
    """Sum weighted rows exactly.

    weights (n, k): in [-1, 1], rounded to multiples of 2**-weight_bits; values (n, p): finite rows; unit (p,): powers
    of two to multiples of which values are rounded; weight_bits: at most 33; use 0 for weights that are -1, 0 and 1,
    whose sums take three quarters of the time.
    """
    left = np.multiply(weights, 2.0**weight_bits)
    if weight_bits:
        np.rint(left, out=left)
    parts: list[Floats] = []
    for level, digit in enumerate(digits(values, unit)):
        for some in _runs(len(values), 2 ** (_WEIGHTED_BITS - weight_bits)):
            _add_digits(parts, level, left[some].T @ digit[some])
    return _make_total(parts, (left.shape[1], values.shape[1]), unit * 2.0**-weight_bits)


def product_total(left: Floats, right: Floats, left_unit: float | Floats, right_unit: float | Floats) -> Total:
    """Sum the outer products of rows exactly.

    left (n, a), right (n, b): finite rows; passing the same array twice saves work; left_unit, right_unit: powers of
    two to multiples of which they are rounded. Returns (a, b): left^T right.
    """
    first = digits(left, left_unit)
    second = first if right is left and right_unit is left_unit else digits(right, right_unit)
    parts: list[Floats] = []
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            if second is first and j < i:
                continue
            for some in _runs(len(left), _PRODUCT_ROWS):
                product = one[some].T @ other[some]
                _add_digits(parts, i + j, product + product.T if second is first and i < j else product)
    return _make_total(parts, (left.shape[1], right.shape[1]), _outer_unit(left, right, left_unit, right_unit))


def scattered_total(weights: Floats, values: Floats, places: NDArray[np.intp], unit: Floats) -> Total:
    """Sum weighted values exactly into the entries of an array (s,).

    weights (c,): multiples of 2**-24, those of one entry sum to at most 1,024; values (c,); places (c,): index of the
    entry to which each is added; unit (s,): powers of two to multiples of which the values of each entry are rounded.
    """
    parts: list[Floats] = []
    for level, digit in enumerate(digits(values, unit[places])):
        whole = np.bincount(places, weights * 2.0**_WEIGHT_BITS * digit, minlength=len(unit))
        _add_digits(parts, level, whole.astype(np.float64, copy=False))
    return _make_total(parts, unit.shape, unit * 2.0**-_WEIGHT_BITS)


def sparse_product_total(
    values: sparse.csr_array, weights: Floats, value_unit: float, weight_unit: float | Floats
) -> Total:
    """Sum the outer products of sparse rows with weights exactly.

    values (n, p): finite rows; weights (n, k); value_unit, weight_unit: powers of two to multiples of which they are
    rounded. Returns (p, k): values^T weights.
    """
    parts: list[Floats] = []
    second = digits(weights, weight_unit)
    for i, one in enumerate(digits(values.data, value_unit)):
        whole = sparse.csr_array((one, values.indices, values.indptr), shape=values.shape)
        for j, other in enumerate(second):
            for some in _runs(len(weights), _PRODUCT_ROWS):
                _add_digits(parts, i + j, whole[some].T @ other[some])
    return _make_total(parts, (values.shape[1], weights.shape[1]), value_unit * weight_unit)


def _outer_unit(left: Floats, right: Floats, left_unit: float | Floats, right_unit: float | Floats) -> float | Floats:
    """Unit of each product: one number where both units are numbers."""
    if np.ndim(left_unit) == np.ndim(right_unit) == 0:
        return float(left_unit * right_unit)
    return np.multiply.outer(np.broadcast_to(left_unit, left.shape[1]), np.broadcast_to(right_unit, right.shape[1]))


def _runs(n: int, most: int) -> Iterator[slice]:
    """Cut rows into runs of at most `most` rows."""
    for begin in range(0, n, most):
        yield slice(begin, begin + most)


def _add_digits(parts: list[Floats], level: int, whole: Floats) -> None:
    """Add integers below 2**53 to the parts, digit by digit, so that each part grows by less than 2**21."""
    for _ in range(_MAX_DIGITS):
        while len(parts) <= level:
            parts.append(np.zeros_like(whole))
        high = np.rint(whole / _BASE)
        parts[level] += whole - high * _BASE
        if not np.any(high):
            return
        level, whole = level + 1, high
    msg = "weights and values to be summed must be finite"  # the rest is NaN, infinite, or too large
    raise ValueError(msg)


def _make_total(parts: list[Floats], shape: tuple[int, ...], unit: float | Floats) -> Total:
    return Total(np.stack(parts) if parts else np.zeros((1, *shape)), unit)


PIECE_ROWS: Final = 256  # rows of a piece of a matrix product, padded with zeros
# number of columns above which pieces have `_LOW_PIECE_ROWS` rows, as such tiles are lower, too
_WIDE_COLUMNS: Final = 1024
_LOW_PIECE_ROWS: Final = 64  # rows of a piece where rows are wide or few


class Workspace:
    """Named buffers that are reused.

    Workers return free memory to the system at once and then get new memory page by page: allocating an array of a
    megabyte takes longer than most computations on it.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[Any]] = {}

    def array(self, name: str, *shape: int, dtype: Any = np.float64) -> NDArray[Any]:
        """Return the buffer of some name as an array of some shape, with arbitrary content."""
        size = math.prod(shape)
        held = self._buffers.get(name)
        if held is None or held.size < size or held.dtype != dtype:
            held = self._buffers[name] = np.empty(size, dtype)
        return held[:size].reshape(shape)


def padded(rows: NDArray[Any], height: int = PIECE_ROWS) -> NDArray[Any]:
    """Pad rows (n, m), n <= height, with rows of zeros to shape (height, m)."""
    if len(rows) == height:
        return rows
    full = np.zeros((height, rows.shape[1]), dtype=rows.dtype)
    full[: len(rows)] = rows
    return full


def piecewise_matmul(rows: Floats, matrix: Floats, *, low: bool = False, out: Floats | None = None) -> Floats:
    """Multiply rows (n, m) by a matrix (m, k) in pieces of a fixed number of rows.

    A BLAS may choose another kernel, with other rounding, for another number of rows, memory layout or precision; in
    pieces, the bits of a row of the product do not depend on the other rows.
    low: use lower pieces, for rows that may be few; out (n, k): array to write to.
    """
    height = _LOW_PIECE_ROWS if low or len(matrix) > _WIDE_COLUMNS else PIECE_ROWS
    found = np.empty((len(rows), matrix.shape[1])) if out is None else out
    for start in range(0, len(rows), height):
        part, own = np.ascontiguousarray(rows[start : start + height]), found[start : start + height]
        if len(part) == height:
            np.matmul(part, matrix, out=own)
        else:
            own[:] = (padded(part, height) @ matrix)[: len(part)]
    return found
