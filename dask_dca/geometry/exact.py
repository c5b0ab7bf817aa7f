"""Exact sums over rows, and matrix products whose bits don't depend on which rows stand beside each other.

Numbers that are summed are rounded to a grid, and added without any further rounding, in any order.

A value is rounded to a multiple of a unit, a power of two, and written in digits of base 2**20. Sums of digits, and
of products of digits, stay below 2**53, where float64 adds integers exactly; what grows beyond is carried. So a sum
over all rows has the same bits for any chunking, any order of merging and any number of threads. Matrix products are
made of pieces of one height.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from dask_dca.geometry.arrays import Floats

    Weights = Floats | NDArray[np.bool_]

EXACT: Final = 2.0**52  # sums of integers up to this don't round
_DIGIT_BITS: Final = 20
_BASE: Final = 2.0**_DIGIT_BITS
_MOST_DIGITS: Final = 4  # of integers below 2**53, and of those that rounding carries
_WEIGHT_BITS: Final = 24
_WEIGHTED_BITS: Final = 33  # of a weight and of the number of rows; with 19 of a digit: 52
_PRODUCT_ROWS: Final = 2**14  # 19 bits of a digit, twice, and 14 of these: 52
_HALF_BITS: Final = 26  # of the halves of a running sum's integers


@dataclass(frozen=True)
class Total:
    """An exact sum, or array of sums: merged by `+` in any order.

    parts (levels, ...): integers; level l counts 2**(20 l) units. Up to 2**31 totals can be added; unit: what a one
    stands for.
    """

    parts: Floats
    unit: float | Floats

    def __add__(self, other: Total) -> Total:
        longer, shorter = (self, other) if len(self.parts) >= len(other.parts) else (other, self)
        parts = longer.parts.copy()
        parts[: len(shorter.parts)] += shorter.parts
        return Total(parts, self.unit)

    def value(self) -> Floats:
        """Return the sum as floating-point numbers, the same for all ways of adding up.

        Returns (...): the sum, within a few units in the last place.
        """
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
    """An exact sum that grows in place: arrays of integers are added to it, up to 2**20 times."""

    def __init__(self, shape: tuple[int, ...], unit: float | Floats) -> None:
        self._now, self._most = np.zeros(shape), 0.0  # integers, none of them greater in size than this
        self._high, self._low = np.zeros(shape), np.zeros(shape)
        self._more = Total(np.zeros((1, *shape)), unit)

    def add(self, whole: Floats, most: float) -> bool:
        """Add integers, in units; most: a bound on their size. Returns false, and adds nothing, beyond `EXACT`."""
        if not most < EXACT:
            return False
        if self._most + most >= EXACT:
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
        """Add what was summed in several digits, in the same units."""
        levels = max(len(total.parts), len(self._more.parts))
        parts = np.zeros((levels, *self._low.shape))
        parts[: len(self._more.parts)] = self._more.parts
        parts[: len(total.parts), where] += total.parts
        self._more = Total(parts, self._more.unit)

    def total(self) -> Total:
        """Return the sum, to be merged with others."""
        self._carry()
        parts: list[Floats] = []
        _add(parts, 0, self._low)
        _add(parts, 1, self._high * 2.0 ** (_HALF_BITS - _DIGIT_BITS))
        return _total(parts, self._low.shape, self._more.unit) + self._more


def power_of_two(scale: ArrayLike) -> Floats:
    """Return the power of two at or above a scale.

    Returns of the same shape; 1 where the scale is zero, so that it can be divided by.
    """
    mantissa, exponent = np.frexp(np.asarray(scale, dtype=np.float64))
    return np.where(mantissa > 0.0, np.ldexp(1.0, exponent - (mantissa == 0.5)), 1.0)


def digits(values: Floats, unit: float | Floats) -> list[Floats]:
    """Round values to multiples of a unit and write them in base 2**20.

    unit: A power of two, or an array of them that broadcasts against the values. Returns integers in [-2**19, 2**19],
    least significant digit first; at least one digit.
    Raises ValueError: A value is not finite, or not in units so small.
    """
    return _digits(*_rounded(values, unit))


def _rounded(values: Floats, unit: float | Floats) -> tuple[Floats, float]:
    """Values in units, rounded, and the greatest of them in size."""
    with np.errstate(over="ignore"):
        rest = np.asarray(values / unit)
    np.rint(rest, out=rest)
    top = float(max(rest.max(), -rest.min())) if rest.size else 0.0
    if not np.isfinite(top):
        msg = "values to be summed must be finite, and not too large for their unit"
        raise ValueError(msg)
    return rest, top


def _digits(rest: Floats, top: float) -> list[Floats]:
    """Integers, the greatest of which has size `top`, in base 2**20."""
    found = []
    while top > _BASE / 2:
        high = np.rint(rest * (1.0 / _BASE))
        rest -= high * _BASE
        found.append(rest)
        rest, top = high, float(np.rint(top / _BASE))
    return [*found, rest]


def plain_total(values: Floats, unit: float | Floats) -> Total:
    """Sum rows exactly.

    values (n, ...): finite rows; unit (...): what they are rounded to: a power of two.
    """
    parts: list[Floats] = []
    rest, top = _rounded(values, unit)
    for level, digit in enumerate([rest] if top * len(values) < EXACT else _digits(rest, top)):
        for some in _runs(len(values), 2**31):
            _add(parts, level, digit[some].sum(axis=0))
    return _total(parts, values.shape[1:], unit)


def weighted_total(weights: Weights, values: Floats, unit: float | Floats, weight_bits: int = _WEIGHT_BITS) -> Total:
    """Sum weighted rows exactly.

    weights (n, k): weights in [-1, 1], rounded to 2**-weight_bits; values (n, p): finite rows; unit (p,): what the
    values are rounded to: a power of two; weight_bits: at most 33. With 0, for weights that are -1, 0 and 1, sums take
    three quarters of the time.
    """
    left = np.multiply(weights, 2.0**weight_bits)
    if weight_bits:
        np.rint(left, out=left)
    parts: list[Floats] = []
    for level, digit in enumerate(digits(values, unit)):
        for some in _runs(len(values), 2 ** (_WEIGHTED_BITS - weight_bits)):
            _add(parts, level, left[some].T @ digit[some])
    return _total(parts, (left.shape[1], values.shape[1]), unit * 2.0**-weight_bits)


def product_total(left: Floats, right: Floats, left_unit: float | Floats, right_unit: float | Floats) -> Total:
    """Sum the outer products of rows exactly.

    left, right: finite rows; passing the same array twice saves work; left_unit, right_unit: what they are rounded to:
    powers of two. Returns of shape (a, b): left^T right.
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
                _add(parts, i + j, product + product.T if second is first and i < j else product)
    return _total(parts, (left.shape[1], right.shape[1]), _outer_unit(left, right, left_unit, right_unit))


def scattered_total(weights: Floats, values: Floats, places: NDArray[np.intp], unit: Floats) -> Total:
    """Sum weighted values exactly, each in a place of its own.

    weights (c,): whole multiples of 2**-24; those of one place add up to at most 1,024; values (c,); places (c,): where
    each is added; unit (s,): what values are rounded to in each place, powers of two. Returns of shape (s,).
    """
    parts: list[Floats] = []
    for level, digit in enumerate(digits(values, unit[places])):
        whole = np.bincount(places, weights * 2.0**_WEIGHT_BITS * digit, minlength=len(unit))
        _add(parts, level, whole.astype(np.float64, copy=False))
    return _total(parts, unit.shape, unit * 2.0**-_WEIGHT_BITS)


def sparse_product_total(
    values: sparse.csr_array, weights: Floats, value_unit: float, weight_unit: float | Floats
) -> Total:
    """Sum the outer products of sparse rows with weights exactly.

    values (n, p): finite rows; weights (n, k); value_unit, weight_unit: what they are rounded to: powers of two.
    Returns of shape (p, k): values^T weights.
    """
    parts: list[Floats] = []
    second = digits(weights, weight_unit)
    for i, one in enumerate(digits(values.data, value_unit)):
        whole = sparse.csr_array((one, values.indices, values.indptr), shape=values.shape)
        for j, other in enumerate(second):
            for some in _runs(len(weights), _PRODUCT_ROWS):
                _add(parts, i + j, whole[some].T @ other[some])
    return _total(parts, (values.shape[1], weights.shape[1]), value_unit * weight_unit)


def _outer_unit(left: Floats, right: Floats, left_unit: float | Floats, right_unit: float | Floats) -> float | Floats:
    """Unit of each product; one number where both units are."""
    if np.ndim(left_unit) == np.ndim(right_unit) == 0:
        return float(left_unit * right_unit)
    return np.multiply.outer(np.broadcast_to(left_unit, left.shape[1]), np.broadcast_to(right_unit, right.shape[1]))


def _runs(n: int, most: int) -> Iterator[slice]:
    """Cut rows into runs whose sums of products are below 2**53."""
    for begin in range(0, n, most):
        yield slice(begin, begin + most)


def _add(parts: list[Floats], level: int, whole: Floats) -> None:
    """Add integers below 2**53 to the parts, in digits, so that the parts grow by less than 2**21 each."""
    for _ in range(_MOST_DIGITS):
        while len(parts) <= level:
            parts.append(np.zeros_like(whole))
        high = np.rint(whole / _BASE)
        parts[level] += whole - high * _BASE
        if not np.any(high):
            return
        level, whole = level + 1, high
    msg = "weights and values to be summed must be finite"  # what is left is NaN, infinite, or no such integer
    raise ValueError(msg)


def _total(parts: list[Floats], shape: tuple[int, ...], unit: float | Floats) -> Total:
    return Total(np.stack(parts) if parts else np.zeros((1, *shape)), unit)


PIECE: Final = 256  # rows of a matrix product, filled up with zeros
_WIDE: Final = 1024  # columns from which pieces are lower, as tiles of such rows are
_LOW: Final = 64


class Workspace:
    """Arrays that are used again, by name.

    Workers give memory back to the system as soon as it is free and get it anew page by page: a fresh array of a
    megabyte takes them longer than most of what is computed in it.
    """

    def __init__(self) -> None:
        self._held: dict[str, NDArray[Any]] = {}

    def array(self, name: str, *shape: int, dtype: Any = np.float64) -> NDArray[Any]:
        """Return an array of some shape, which holds what was left in it."""
        size = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.size < size or held.dtype != dtype:
            held = self._held[name] = np.empty(size, dtype)
        return held[:size].reshape(shape)


def padded(rows: NDArray[Any], height: int = PIECE) -> NDArray[Any]:
    """Fill rows up with zeros to the height of a piece.

    rows (n, m): at most that many rows. Returns (height, m): the rows, and zeros, of the same dtype.
    """
    if len(rows) == height:
        return rows
    full = np.zeros((height, rows.shape[1]), dtype=rows.dtype)
    full[: len(rows)] = rows
    return full


def times(rows: Floats, matrix: Floats, *, low: bool = False, out: Floats | None = None) -> Floats:
    """Multiply rows by a matrix, piece by piece.

    Products of another height may take another kernel of the BLAS, which rounds otherwise; and so may those of an array
    in another layout, or of another precision.
    rows (n, m): any number of rows; matrix (m, k): the matrix; low: pieces are lower, for rows that may be few; out:
    what to write in. Returns (n, k): the product; a row's has the same bits beside any others.
    """
    height = _LOW if low or len(matrix) > _WIDE else PIECE
    found = np.empty((len(rows), matrix.shape[1])) if out is None else out
    for start in range(0, len(rows), height):
        part, own = np.ascontiguousarray(rows[start : start + height]), found[start : start + height]
        if len(part) == height:
            np.matmul(part, matrix, out=own)
        else:
            own[:] = (padded(part, height) @ matrix)[: len(part)]
    return found
