"""Non-negative least squares whose solutions have few zeros, for very many rows: a system as small as a row's zeros.

From the unconstrained minimum P c, P the inverse of the Gram matrix, the constraints lead away by P mu, with a
multiplier mu for each coefficient that is zero. These come from one system in the zeros alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from dask_dca.geometry.active_set import rows_by_size
from dask_dca.geometry.cone import nonnegative_from_gram
from dask_dca.geometry.hals import sweeps
from dask_dca.geometry.pieces import times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

__all__ = ["DualProblem"]

_GUESS: Final = 2  # sweeps that guess which coefficients are zero
_EXCHANGES: Final = 8  # rounds; rows that need more are solved by active sets
_CONDITION: Final = 1e8  # of the Gram matrix, from which its inverse is not accurate enough
_ROUNDING: Final = 1e-13  # share of the greatest product up to which a coefficient or multiplier counts as zero


@dataclass(frozen=True)
class DualProblem:
    """Minimise `f H f - 2 c f` over f >= 0, for any number of rows c."""

    gram: Floats  # (k, k) H, of unit diagonal
    lengths: Floats  # (k,) what it was divided by
    inverse: Floats | None  # of `gram`; None where that is not accurate

    @classmethod
    def of(cls, gram: Floats) -> Self:
        """Prepare what all rows share.

        gram (k, k): H, positive semi-definite.
        """
        lengths = np.sqrt(gram.diagonal())
        lengths = np.where(lengths > 0.0, lengths, 1.0)
        unit = gram / np.outer(lengths, lengths)
        values = np.linalg.eigvalsh(unit)
        if values[0] * _CONDITION <= values[-1]:
            return cls(unit, lengths, None)
        inverse = np.linalg.inv(unit)
        return cls(unit, lengths, 0.5 * (inverse + inverse.T))

    def solve(self, products: Floats) -> Floats:
        """Solve for rows.

        products (n, k): rows c. Returns (n, k): coefficients; a row's have the same bits beside any other rows.
        J. Kim, H. Park, "Fast nonnegative matrix factorization: an active-set-like method and comparisons", SIAM
        Journal on Scientific Computing 33, 2011: block pivoting, here on the multipliers.
        """
        right = products / self.lengths
        if self.inverse is None:
            return nonnegative_from_gram(self.gram, right) / self.lengths
        found, left = _exchange(self.gram, self.inverse, right)
        if len(left):
            found[left] = nonnegative_from_gram(self.gram, right[left])
        return found / self.lengths


def _exchange(gram: Floats, inverse: Floats, products: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Coefficients, and the rows whose zeros still changed in the last round."""
    whole = times(products, inverse)
    zero = _guess(gram, products, whole)
    least = -_ROUNDING * np.abs(products).max(axis=1, initial=0.0, keepdims=True)
    found, left = np.empty_like(whole), np.arange(len(whole))
    for _ in range(_EXCHANGES):
        mask = zero[left]
        multipliers = _multipliers(inverse, whole[left], mask)
        values = np.where(mask, 0.0, whole[left] + times(multipliers, inverse))
        found[left] = np.maximum(values, 0.0)
        wrong = np.where(mask, multipliers, values) < least[left]
        zero[left] = mask ^ wrong
        left = left[wrong.any(axis=1)]
        if not len(left):
            break
    return found, left


def _guess(gram: Floats, products: Floats, whole: Floats) -> Mask:
    start = np.ascontiguousarray(np.maximum(whole, 0.0).T)
    near = sweeps(start, gram, np.ascontiguousarray(products.T), _GUESS)
    return np.ascontiguousarray(near.T) <= 0.0


def _multipliers(inverse: Floats, whole: Floats, zero: Mask) -> Floats:
    """What holds each row's zeros down; zero elsewhere."""
    found = np.zeros_like(whole)
    for rows, columns in rows_by_size(zero):
        if columns.shape[1]:
            at = rows[:, None]
            matrices = inverse[columns[:, :, None], columns[:, None, :]]
            found[at, columns] = -np.linalg.solve(matrices, whole[at, columns][..., None])[..., 0]
    return found
