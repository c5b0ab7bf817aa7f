"""Factors of a non-negative matrix by coordinate descent, and least squares for many rows.

X (n, p) is about W^T H with W (k, n) and H (k, p): both factors hold a component in a row, so that a sweep runs along
contiguous memory.

Which coefficients of a row are zero is guessed by a few steps that all rows take together. Those that are not solve one
system; or, where zeros are fewer: from the unconstrained minimum P c, P the inverse of the Gram matrix, the constraints
lead away by P mu, with a multiplier mu for each zero, and these come from one system in the zeros alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from dask_dca.geometry.exact import times
from dask_dca.geometry.nnls import Guess, nonnegative_from_gram, solve_on_support

if TYPE_CHECKING:
    from dask_dca.geometry.arrays import Floats, Mask


_INNER: Final = 4  # sweeps of a factor while its products stay
_EVERY: Final = 10  # steps over which the fall of the loss is judged
_EXTRAPOLATION: Final = 0.5  # its first factor; raised while the loss falls, cut where it rises
_RAISE, _RAISE_MOST, _CUT = 1.05, 1.01, 1.5


@dataclass(frozen=True)
class Penalty:
    """What is added to half the squared error: l1 times the sum of a factor's entries, l2 / 2 times that of squares."""

    l1: float = 0.0
    l2: float = 0.0

    def of(self, factor: Floats) -> float:
        """Return what a factor costs."""
        return float(self.by_row(factor).sum()) if self.l1 or self.l2 else 0.0

    def by_row(self, factor: Floats) -> Floats:
        """Return what each row of a factor costs."""
        return self.l1 * factor.sum(axis=1) + 0.5 * self.l2 * (factor**2).sum(axis=1)

    def in_gram(self, gram: Floats) -> Floats:
        """Return a Gram matrix with the penalty on squares in it."""
        return gram + self.l2 * np.eye(len(gram))


NO_PENALTY: Final = Penalty()


@dataclass(frozen=True)
class Factors:
    """Factors W (k, n) and H (k, p), and half the squared error with penalties after each step."""

    W: Floats
    H: Floats
    losses: list[float]
    settled: bool


def sweeps(factor: Floats, gram: Floats, products: Floats, n_sweeps: int, penalty: Penalty = NO_PENALTY) -> Floats:
    """Minimise over one component after the other, hierarchical alternating least squares.

    factor (k, m): where to start; gram (k, k): inner products of the other factor's components; products (k, m): of
    these with the data. Returns (k, m): non-negative; a component that the other factor lacks stays as it is.
    A. Cichocki, A. Phan, "Fast local algorithms for large scale nonnegative matrix and tensor factorizations", IEICE
    Transactions on Fundamentals E92-A, 2009.
    """
    found, step = factor.copy(), np.empty(factor.shape[1])
    divisors = gram.diagonal() + penalty.l2
    for _ in range(n_sweeps):
        for j in np.flatnonzero(divisors > 0.0):
            np.matmul(gram[j], found, out=step)
            np.subtract(products[j], step, out=step)
            if penalty.l1 or penalty.l2:
                step -= penalty.l1 + penalty.l2 * found[j]
            step /= divisors[j]
            step += found[j]
            np.maximum(step, 0.0, out=found[j])
    return found


def extrapolated_hals(
    X: Floats,
    W: Floats,
    H: Floats,
    penalties: tuple[Penalty, Penalty] = (NO_PENALTY, NO_PENALTY),
    *,
    max_iter: int,
    tol: float,
) -> Factors:
    """Alternate between both factors, each time going on beyond what the sweeps found while that pays.

    penalties: of W and of H; max_iter: steps at most; tol: they end where ten lower the loss by less than this share.
    A. Ang, N. Gillis, "Accelerating nonnegative matrix factorization algorithms using extrapolation", Neural
    Computation 31, 2019; here what was judged is what is kept, so that the loss never rises.
    """
    energy, losses, before = float(np.vdot(X, X)), [], np.inf
    kept, ahead, factor, most = (W, H), (W, H), _EXTRAPOLATION, 1.0
    for _ in range(max_iter):
        new_W = sweeps(ahead[0], ahead[1] @ ahead[1].T, ahead[1] @ X.T, _INNER, penalties[0])
        further = np.maximum(new_W + factor * (new_W - kept[0]), 0.0)
        gram, products = further @ further.T, further @ X
        new_H = sweeps(ahead[1], gram, products, _INNER, penalties[1])
        loss = 0.5 * energy - float(np.vdot(products, new_H)) + 0.5 * float(np.vdot(gram, new_H @ new_H.T))
        loss += penalties[0].of(further) + penalties[1].of(new_H)
        if loss > before:
            ahead, most, factor = kept, factor, factor / _CUT
        else:
            ahead = (further, np.maximum(new_H + factor * (new_H - kept[1]), 0.0))
            kept, before = (further, new_H), loss
            factor, most = min(most, _RAISE * factor), min(1.0, _RAISE_MOST * most)
        losses.append(before)
        if len(losses) > _EVERY and losses[-1 - _EVERY] - losses[-1] <= tol * losses[-1 - _EVERY]:
            return Factors(*kept, losses, settled=True)
    return Factors(*kept, losses, settled=False)


_EXCHANGES: Final = 8  # rounds; rows that need more are solved by active sets
_CONDITION: Final = 1e8  # of the Gram matrix, from which its inverse is not accurate enough
_ROUNDING: Final = 1e-13  # share of the greatest product up to which a coefficient or multiplier counts as zero
_SLAB: Final = 2**12  # rows that are solved together


@dataclass(frozen=True)
class GramProblem:
    """Minimise `f H f - 2 c f` over f >= 0, for any number of rows c."""

    gram: Floats  # (k, k) H, of unit diagonal
    lengths: Floats  # (k,) what it was divided by
    guess: Guess | None  # None where an inverse is not accurate

    @property
    def inverse(self) -> Floats | None:
        """Inverse of the Gram matrix; None where that is not accurate."""
        return None if self.guess is None else self.guess.inverse

    @classmethod
    def of(cls, gram: Floats) -> Self:
        """Prepare what all rows share.

        gram (k, k): H, positive semi-definite.
        """
        lengths = np.sqrt(gram.diagonal())
        lengths = np.where(lengths > 0.0, lengths, 1.0)
        unit = gram / np.outer(lengths, lengths)
        values = np.linalg.eigvalsh(unit)
        return cls(unit, lengths, None if values[0] * _CONDITION <= values[-1] else Guess.of(unit))

    def solve(self, products: Floats, out: Floats | None = None) -> Floats:
        """Solve for rows.

        products (n, k): rows c; out (n, k): for the result, the products themselves perhaps, where there is an inverse.
        Returns (n, k): coefficients; a row's have the same bits beside any other rows.
        J. Kim, H. Park, "Fast nonnegative matrix factorization: an active-set-like method and comparisons", SIAM
        Journal on Scientific Computing 33, 2011: block pivoting, on whichever are fewer, coefficients or multipliers.
        """
        if self.guess is None:
            return nonnegative_from_gram(self.gram, products / self.lengths) / self.lengths
        found = np.empty(products.shape) if out is None else out
        for start in range(0, len(products), _SLAB):
            some = slice(start, start + _SLAB)
            found[some] = self._exchanged(products[some] / self.lengths, self.guess) / self.lengths
        return found

    def _exchanged(self, products: Floats, guess: Guess) -> Floats:
        """Coefficients, by exchanges between zeros and others until every row's are right."""
        whole = times(products, guess.inverse)
        zero = guess.zeros(products, whole)
        least = -_ROUNDING * np.abs(products).max(axis=1, initial=0.0, keepdims=True)
        found, left = np.empty_like(whole), np.arange(len(whole))
        for _ in range(_EXCHANGES):
            mask = zero[left]
            both = np.empty(mask.shape)  # coefficients, and multipliers where these are zero
            few = 2 * mask.sum(axis=1) <= mask.shape[1]
            for rows, solve in ((few, self._from_zeros), (~few, self._from_others)):
                at = left[rows]
                both[rows] = solve(products[at], whole[at], mask[rows], guess.inverse)
            found[left] = np.where(mask, 0.0, np.maximum(both, 0.0))
            wrong = both < least[left]
            zero[left] = mask ^ wrong
            left = left[wrong.any(axis=1)]
            if not len(left):
                return found
        found[left] = nonnegative_from_gram(self.gram, products[left])
        return found

    def _from_zeros(self, _: Floats, whole: Floats, zero: Mask, inverse: Floats) -> Floats:
        """From the multipliers that hold each row's zeros down."""
        multipliers = -solve_on_support(inverse, whole, zero)
        return np.where(zero, multipliers, whole + times(multipliers, inverse))

    def _from_others(self, products: Floats, _: Floats, zero: Mask, __: Floats) -> Floats:
        """From the coefficients that are not zero."""
        values = solve_on_support(self.gram, products, ~zero)
        return np.where(zero, times(values, self.gram) - products, values)
