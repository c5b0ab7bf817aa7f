"""A free basis on rows that are at hand: from anchors to a minimum of the squared error, or of the divergence.

X (n, p) is about W H, with a component in a column of W (n, k) and in a row of H (k, p). Coordinate descent holds it in
a row of both, so that a sweep runs along contiguous memory. Which coefficients of a row are zero is guessed by a few
steps that all rows take together. Those that are not solve one system; or, where zeros are fewer: from the
unconstrained minimum P c, P the inverse of the Gram matrix, the constraints lead away by P mu, with a multiplier mu for
each zero, and these come from one system in the zeros alone.

Components that share what one could hold, where another one is missing, are no matter of more steps. As long as the
residual holds more than noise, components that are missed least are taken away, and once the others have moved into
their places, as many are added along the residual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from scipy import sparse

from dask_dca.geometry.exact import piecewise_matmul
from dask_dca.geometry.nnls import SupportPredictor, nonnegative_from_gram, solve_on_support

if TYPE_CHECKING:
    from dask_dca.geometry.arrays import Floats, Mask

_SWEEPS: Final = 4  # sweeps of a factor while its products stay
_EXTRAPOLATION: Final = 0.5  # its first factor; raised while the loss falls, cut where it rises
_RAISE, _RAISE_MOST, _CUT = 1.05, 1.01, 1.5
_TERMS: Final = 2**15  # of rates that are computed together, while they are in the cache
_MOST_KL_STEPS: Final = 400
_EVERY: Final = 10  # steps over which the fall of the loss is judged
_INNER: Final = 60  # steps for coefficients alone
_BACKGROUND: Final = 0.7  # share of the mean row in a start, so that no entry is impossible
_UNSEEN: Final = 1e-3  # share of features alike in that: a sample may lack some
_LEAST_RATE: Final = 2.0**-40  # of a count
_LEAST: Final = 1e-300


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
        new_W = sweeps(ahead[0], ahead[1] @ ahead[1].T, ahead[1] @ X.T, _SWEEPS, penalties[0])
        further = np.maximum(new_W + factor * (new_W - kept[0]), 0.0)
        gram, products = further @ further.T, further @ X
        new_H = sweeps(ahead[1], gram, products, _SWEEPS, penalties[1])
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
    guess: SupportPredictor | None  # None where an inverse is not accurate

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
        return cls(unit, lengths, None if values[0] * _CONDITION <= values[-1] else SupportPredictor.of(unit))

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

    def _exchanged(self, products: Floats, guess: SupportPredictor) -> Floats:
        """Coefficients, by exchanges between zeros and others until every row's are right."""
        whole = piecewise_matmul(products, guess.inverse)
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
        return np.where(zero, multipliers, whole + piecewise_matmul(multipliers, inverse))

    def _from_others(self, products: Floats, _: Floats, zero: Mask, __: Floats) -> Floats:
        """From the coefficients that are not zero."""
        values = solve_on_support(self.gram, products, ~zero)
        return np.where(zero, piecewise_matmul(values, self.gram) - products, values)


@dataclass(frozen=True)
class CountFit:
    """Components (k, p), the loss that they began with, and whether it settled."""

    components: Floats
    first: float
    settled: bool


def factorize_counts(X: sparse.csr_array, start: Floats, penalties: tuple[Penalty, Penalty], tol: float) -> CountFit:
    """Factorize counts until the loss settles.

    start (k, p): rows of counts; the mean row is mixed in; penalties: of W and of H; tol: share of the loss that ten
    steps lower it by when it has settled.
    D. Lee, H. Seung, "Algorithms for non-negative matrix factorization", NIPS 2000.
    """
    mean = (1.0 - _UNSEEN) * X.sum(axis=0) / max(X.sum(), _LEAST) + _UNSEEN / X.shape[1]
    heights = start.sum(axis=1, keepdims=True)
    H = (1.0 - _BACKGROUND) * start + _BACKGROUND * heights * mean
    W, losses = _even(X, H), []
    for _ in range(_MOST_KL_STEPS):
        W = scaled_step(W, quotients(X, W, H) @ H.T, H.sum(axis=1), penalties[0])
        ratio = quotients(X, W, H)
        loss = float(divergences(X, ratio, W, H).sum()) + penalties[0].of(W) + penalties[1].of(H)
        losses.append(loss)
        if len(losses) > _EVERY and losses[-1 - _EVERY] - loss <= tol * losses[-1 - _EVERY]:
            return CountFit(H, losses[0], settled=True)
        H = scaled_step(H, (ratio.T @ W).T, W.sum(axis=0)[:, None], penalties[1])
    return CountFit(H, losses[0], settled=False)


def coefficients_of_counts(X: sparse.csr_array, H: Floats, penalty: Penalty) -> Floats:
    """Find the coefficients of rows, by a fixed number of steps: a row's have the same bits beside any other rows."""
    W = _even(X, H)
    for _ in range(_INNER):
        W = scaled_step(W, quotients(X, W, H) @ H.T, H.sum(axis=1), penalty)
    return W


def quotients(X: sparse.csr_array, W: Floats, H: Floats) -> sparse.csr_array:
    """Divide counts by their rates W H; only where there are any."""
    found, columns = np.empty(X.nnz), np.ascontiguousarray(H.T)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    step = -(-_TERMS // W.shape[1])
    for begin in range(0, X.nnz, step):
        some = slice(begin, begin + step)
        rates = np.vecdot(W.take(rows[some], axis=0), columns.take(X.indices[some], axis=0))
        found[some] = X.data[some] / np.maximum(rates, _LEAST_RATE)
    return sparse.csr_array((found, X.indices, X.indptr), shape=X.shape)


def divergences(X: sparse.csr_array, ratio: sparse.csr_array, W: Floats, H: Floats) -> Floats:
    """Measure the divergence of each row from its rates.

    ratio: from `quotients`. Returns (n,).
    """
    logs = X.data * np.log(np.maximum(ratio.data, _LEAST)) - X.data
    entries = sparse.csr_array((logs, X.indices, X.indptr), shape=X.shape)
    return np.asarray(entries @ np.ones(X.shape[1])) + (W * H.sum(axis=1)).sum(axis=1)


def scaled_step(factor: Floats, found: Floats, heights: Floats, penalty: Penalty) -> Floats:
    """Move a factor by one multiplicative step.

    found: quotients times the other factor; heights: sums of the other factor.
    """
    costs = heights + penalty.l1 + penalty.l2 * factor
    return factor * np.divide(found, costs, out=np.zeros_like(factor), where=costs > 0.0)


def _even(X: sparse.csr_array, H: Floats) -> Floats:
    """All components alike in a row."""
    heights = np.maximum(H.sum(axis=1), _LEAST)
    return np.outer(X @ np.ones(X.shape[1]), 1.0 / (len(H) * heights))


_MOST_STEPS: Final = 300
_BREATHS: Final = (4, 1)  # components that are taken away in turn; trials end where none of these gains
_MOST_BREATHS: Final = 6
_BREATH_STEPS: Final = (8, 60)  # with fewer components, and with as many as before
_ROUGH: Final = 1e-3  # fall of the loss in ten steps up to which a trial goes on
_GAIN: Final = 2e-4  # share of the loss that a trial must lower it by
_CHEAP: Final = 2**20  # entries up to which it is tried, whatever the residual looks like
_ABOVE_NOISE: Final = 1.0  # energy of a residual's component, in those that noise has at most
_POWER_STEPS: Final = 8
_RIDGE: Final = 1e-10  # share of a Gram matrix that is added to it, so that it has an inverse
_STEP_SWEEPS: Final = 20  # of components between two passes

Pair = tuple["Penalty", "Penalty"]


@dataclass(frozen=True)
class RefinedBasis:
    """Components (k, p), the loss that they began with, and whether it settled."""

    components: Floats
    first: float
    settled: bool


def factorize_sample(
    X: Floats, start: Floats, n_components: int, penalties: Pair, tol: float, thorough: bool
) -> RefinedBasis:
    """Factorize rows from given components until the loss settles.

    start (m, p): anchors, of which there may be fewer than components; tol: share of the loss that ten steps lower it
    by when it has settled; thorough: look for better minima of few rows even where the residual looks like noise.
    """
    W, H, thorough = *_at_start(X, start, penalties[0]), thorough and X.size <= _CHEAP
    if len(H) < n_components:
        W, H = _grown(X, W, H, n_components - len(H))
    found = extrapolated_hals(X, W, H, penalties, max_iter=_MOST_STEPS, tol=max(tol, _ROUGH))
    first, rough, failed = found.losses[0], tol < _ROUGH, 0
    for i in range(_MOST_BREATHS):
        if failed == len(_BREATHS) or len(found.H) < 2 or not (thorough or _is_structured(X, found)):
            break
        tried = _breath(X, found, _BREATHS[i % len(_BREATHS)], penalties, max(tol, _ROUGH))
        if len(tried.H) == len(found.H) and tried.losses[-1] <= (1.0 - _GAIN) * found.losses[-1]:
            found, rough, failed = tried, True, 0
        else:
            failed += 1
    if rough:
        found = extrapolated_hals(X, found.W, found.H, penalties, max_iter=_MOST_STEPS, tol=tol)
    return RefinedBasis(found.H, first, found.settled)


def component_step(H: Floats, gram: Floats, products: Floats, penalty: Penalty) -> Floats:
    """Move components by what a pass summed, coefficients as they are.

    gram (k, k): W^T W; products (k, p): W^T X.
    """
    return sweeps(H, gram, products, _STEP_SWEEPS, penalty)


def _at_start(X: Floats, start: Floats, penalty: Penalty) -> tuple[Floats, Floats]:
    W = GramProblem.of(penalty.in_gram(start @ start.T)).solve(X @ start.T - penalty.l1)
    return np.ascontiguousarray(W.T), start.copy()


def _breath(X: Floats, found: Factors, n: int, penalties: Pair, tol: float) -> Factors:
    """Take components away, go on without them, add as many of what is missing then, go on."""
    W, H = found.W, found.H
    for _ in range(min(n, len(H) - 1)):
        W, H = _without_least(W, H)
    fewer = extrapolated_hals(X, W, H, penalties, max_iter=_BREATH_STEPS[0], tol=tol)
    W, H = _grown(X, fewer.W, fewer.H, len(found.H) - len(H))
    return extrapolated_hals(X, W, H, penalties, max_iter=_BREATH_STEPS[1], tol=tol)


def _is_structured(X: Floats, found: Factors) -> bool:
    """Whether the residual's leading component has more energy than one of noise of the same size."""
    left = X - found.W.T @ found.H
    w, v = _leading(left)
    n, p = X.shape
    edge = float(np.vdot(left, left)) * (np.sqrt(n) + np.sqrt(p)) ** 2 / (n * p)
    return float(np.vdot(w, w) * np.vdot(v, v)) > _ABOVE_NOISE * edge


def _grown(X: Floats, W: Floats, H: Floats, n: int) -> tuple[Floats, Floats]:
    """Add components of the residual, one after the other, as long as anything is left."""
    left = X - W.T @ H
    for _ in range(n):
        w, v = _leading(left)
        if not (w.any() and v.any()):
            break
        left -= np.outer(w, v)
        W, H = np.vstack([W, w]), np.vstack([H, v])
    return W, H


def _leading(left: Floats) -> tuple[Floats, Floats]:
    """Non-negative w and v of a residual, from the row in which most is missing."""
    v = np.maximum(left[(np.maximum(left, 0.0) ** 2).sum(axis=1).argmax()], 0.0)
    for _ in range(_POWER_STEPS):
        w = np.maximum(left @ v, 0.0) / max(float(v @ v), _LEAST)
        v = np.maximum(w @ left, 0.0) / max(float(w @ w), _LEAST)
    return w, v


def _without_least(W: Floats, H: Floats) -> tuple[Floats, Floats]:
    """Take the component away without which the others do best, were they free to be negative, and let them."""
    gram = H @ H.T
    inverse = np.linalg.inv(gram + (_RIDGE * gram.trace() or 1.0) * np.eye(len(H)))
    j = ((W**2).sum(axis=1) / inverse.diagonal()).argmin()
    kept = np.arange(len(H)) != j
    return np.maximum(W[kept] - np.outer(inverse[kept, j] / inverse[j, j], W[j]), 0.0), H[kept]
