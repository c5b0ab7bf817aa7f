"""Robust moments of scaled rows, summed exactly.

Every sum over rows that decides something is a sum of integers below 2**53: float64 adds them exactly, in any
order, so no chunking, thread count or BLAS changes a bit of the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "Moments",
    "PowerSums",
    "huber_weights",
    "length_exponent",
    "moments",
    "power_sums",
    "robust_center",
]

_EXACT_BITS: Final = 52
_LEAST_ENERGY: Final = 2.0**-900  # of rows of height one that differ at all: its inverse can be squared


@dataclass(frozen=True)
class Moments:
    """Exact second moments of weighted rows, augmented by the weight itself as the last coordinate."""

    gram: Floats  # (p + 1, p + 1)
    n_rows: int


@dataclass(frozen=True)
class PowerSums:
    """The weighted covariance times some columns, and its trace, both exact."""

    product: Floats  # (p, m)
    trace: float
    n_rows: int


def robust_center(scaled: Floats) -> tuple[Floats, float]:
    """Return the mean of a sample of rows and the radius beyond which rows lose weight.

    scaled (n, p): usable rows of the sample, as `ratios` returns them. Returns mean (p,): their mean; energy: three
    times the median squared distance from the mean; never zero.
    """
    mean = scaled.mean(axis=0)
    distances = ((scaled - mean) ** 2).sum(axis=1)
    energy = 3.0 * float(np.median(distances))
    if energy <= 0.0:  # more than half of the rows are equal
        energy = 3.0 * float(distances.mean())
    return mean, energy if energy > _LEAST_ENERGY else 1.0


def moments(scaled: Floats, mean: Floats, energy: float, n_total: int) -> Moments:
    """Accumulate exact second moments of rows with Huber weights.

    scaled (n, p): usable rows, as `ratios` returns them; mean, energy (p,): what `robust_center` returned: gross
    outliers can't steer the subspace; n_total: how many rows all calls together will see, at most 2**26; it decides how
    finely rows are rounded. Returns its Gram matrix is a matrix of integers over a power of two, so merging has no
    order.
    """
    weighted = np.empty((len(scaled), len(mean) + 1))
    centred = np.subtract(scaled, mean, out=weighted[:, :-1])
    weights = huber_weights(centred, energy)
    scale = 2.0 ** (_row_bits(n_total) - length_exponent(energy))
    centred *= (weights * scale)[:, None]
    weighted[:, -1] = weights * (scale * np.sqrt(energy))
    np.rint(weighted, out=weighted)
    return Moments(weighted.T @ weighted / scale**2, len(scaled))


def huber_weights(centred: Floats, energy: float) -> Floats:
    """Weigh rows by their distance from the centre.

    centred (n, p): rows less the centre; energy: squared radius within which a row weighs one. Returns (n,): min(1,
    radius / distance).
    """
    distances = np.vecdot(centred, centred)
    return np.sqrt(np.minimum(1.0, energy / np.maximum(distances, energy * 2.0**-60)))


def _row_bits(n_total: int) -> int:
    """How many bits two rounded factors may have each, so that n_total of their products add up exactly."""
    return (_EXACT_BITS - int(np.ceil(np.log2(max(n_total, 1))))) // 2


def power_sums(scaled: Floats, mean: Floats, energy: float, gain: Floats, basis: Floats, n_total: int) -> PowerSums:
    """Multiply the weighted covariance of rows by a basis without forming it: one step of a power iteration.

    scaled (n, p): usable rows; mean, energy (p,): centre and radius of the Huber weights; gain (p,): feature weights,
    at most one; basis (p, m): orthonormal columns; n_total: how many rows all calls together will see. Returns sums
    over these rows, exact, to be added in any order.
    """
    centred = scaled - mean
    centred *= huber_weights(centred, energy)[:, None]
    centred *= gain
    unit = length_exponent(energy)
    fine = np.rint(centred * 2.0 ** (26 - unit))
    coarse_scale = 2.0 ** (_row_bits(n_total) - unit)
    coarse = np.rint(centred * coarse_scale)
    seen = fine @ np.rint(basis * 2.0**26)
    seen = np.rint(seen * (coarse_scale * 2.0 ** (unit - 52)))
    return PowerSums(coarse.T @ seen / coarse_scale**2, float((coarse**2).sum() / coarse_scale**2), len(scaled))


def length_exponent(energy: float) -> int:
    """Return the binary exponent of a length.

    Returns the e with sqrt(energy) in [2**(e-1), 2**e).
    """
    return int(np.frexp(np.sqrt(energy))[1])
