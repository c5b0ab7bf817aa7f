"""Factors of a non-negative matrix by coordinate descent: sweeps over components, and extrapolated alternation.

X (n, p) is about W^T H with W (k, n) and H (k, p): both factors hold a component in a row, so that a sweep runs along
contiguous memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["NO_PENALTY", "Factors", "Penalty", "extrapolated_hals", "sweeps"]

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
