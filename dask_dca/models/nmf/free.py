"""Factorization with a free basis in memory: from anchors to a minimum of the squared error or of the divergence.

X (n, p) is about W H, with component j in column j of W (n, k) and row j of H (k, p). Coordinate descent stores W
transposed, so that its sweeps run along contiguous memory. Coefficients of given components solve non-negative least
squares: a few steps that all rows take together guess which coefficients are zero. The others then solve one linear
system; or, where fewer are zero, the multipliers mu of the zeros do: the constrained minimum is P (c + mu), with P the
inverse of the Gram matrix and c the products of the row with the components.

Coordinate descent does not leave a minimum in which two components share one part of the data and another part has
none. As long as the residual has more structure than noise, the least useful components are removed, the others
refitted, and as many new ones added along the residual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from scipy import sparse

from dask_dca.geometry.arrays import Floats, Mask
from dask_dca.geometry.exact import piecewise_matmul
from dask_dca.geometry.nnls import SupportPredictor, nonnegative_from_gram, solve_on_support

_SWEEPS: Final = 4  # sweeps over one factor before the other one's turn
_EXTRAPOLATION: Final = 0.5  # first extrapolation factor, which is raised while the loss falls and cut when it rises
_RAISE: Final = 1.05  # the extrapolation factor is multiplied by this when the loss falls
_RAISE_MAX: Final = 1.01  # the bound of the extrapolation factor is multiplied by this when the loss falls
_CUT: Final = 1.5  # the extrapolation factor is divided by this when the loss rises
_SLAB_TERMS: Final = 2**15  # terms of rates that are computed at once, to stay in the cache
_MAX_COUNT_STEPS: Final = 400  # maximum number of steps of a factorization of counts
_WINDOW: Final = 10  # steps over which the decrease of the loss is measured
_COEFFICIENT_STEPS: Final = 60  # multiplicative steps for the coefficients of given components
_MEAN_SHARE: Final = 0.7  # share of the mean row in the first components of counts, so that no rate is zero
_UNIFORM_SHARE: Final = 1e-3  # share of equal rates in that mean row, for features that a sample lacks
_MIN_RATE: Final = 2.0**-40  # minimum rate that counts are divided by
_TINY: Final = 1e-300  # avoids division by zero, and logarithms of it


@dataclass(frozen=True)
class Penalty:
    """A penalty added to half the squared error: l1 times the sum of a factor, plus l2 / 2 times its sum of squares."""

    l1: float = 0.0
    l2: float = 0.0

    def of(self, factor: Floats) -> float:
        """Return the penalty of a factor."""
        return float(self.by_row(factor).sum()) if self.l1 or self.l2 else 0.0

    def by_row(self, factor: Floats) -> Floats:
        """Return the penalty of each row of a factor."""
        return self.l1 * factor.sum(axis=1) + 0.5 * self.l2 * (factor**2).sum(axis=1)

    def in_gram(self, gram: Floats) -> Floats:
        """Add the penalty on squares to a Gram matrix."""
        return gram + self.l2 * np.eye(len(gram))


NO_PENALTY: Final = Penalty()


@dataclass(frozen=True)
class Factors:
    """Factors W (k, n) and H (k, p); after each step, half the squared error plus penalties; whether that settled."""

    W: Floats
    H: Floats
    losses: list[float]
    settled: bool


def sweeps(factor: Floats, gram: Floats, products: Floats, n_sweeps: int, penalty: Penalty = NO_PENALTY) -> Floats:
    """Minimise over one component after the other: sweeps of hierarchical alternating least squares (HALS).

    factor (k, m): start; gram (k, k): inner products of the other factor's components; products (k, m): of these with
    the data. Returns (k, m), non-negative; components that are zero in the other factor stay as they are.
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
    """Alternate HALS sweeps between both factors, with extrapolation beyond what the sweeps found.

    penalties: of W and of H; tol: the steps end when ten of them lower the loss by less than this share.
    A. Ang, N. Gillis, "Accelerating nonnegative matrix factorization algorithms using extrapolation", Neural
    Computation 31, 2019. Here the loss is that of the factors that are returned, so it never rises.
    """
    energy, losses, before = float(np.vdot(X, X)), [], np.inf
    best, ahead, factor, bound = (W, H), (W, H), _EXTRAPOLATION, 1.0
    for _ in range(max_iter):
        swept_W = sweeps(ahead[0], ahead[1] @ ahead[1].T, ahead[1] @ X.T, _SWEEPS, penalties[0])
        new_W = np.maximum(swept_W + factor * (swept_W - best[0]), 0.0)
        gram, products = new_W @ new_W.T, new_W @ X
        new_H = sweeps(ahead[1], gram, products, _SWEEPS, penalties[1])
        loss = 0.5 * energy - float(np.vdot(products, new_H)) + 0.5 * float(np.vdot(gram, new_H @ new_H.T))
        loss += penalties[0].of(new_W) + penalties[1].of(new_H)
        if loss > before:  # restart from the best factors, with less extrapolation
            ahead, bound, factor = best, factor, factor / _CUT
        else:
            ahead = (new_W, np.maximum(new_H + factor * (new_H - best[1]), 0.0))
            best, before = (new_W, new_H), loss
            factor, bound = min(bound, _RAISE * factor), min(1.0, _RAISE_MAX * bound)
        losses.append(before)
        if len(losses) > _WINDOW and losses[-1 - _WINDOW] - losses[-1] <= tol * losses[-1 - _WINDOW]:
            return Factors(*best, losses, settled=True)
    return Factors(*best, losses, settled=False)


_MAX_PIVOTS: Final = 8  # maximum rounds of block pivoting; rows that need more are solved by active sets
_MAX_CONDITION: Final = 1e8  # maximum condition number of the Gram matrix for which its inverse is used
_ROUNDING: Final = 1e-13  # coefficients and multipliers above minus this are not negative, relative to the products
_SLAB_ROWS: Final = 2**12  # rows that are solved at once


@dataclass(frozen=True)
class GramProblem:
    """Non-negative least squares from a Gram matrix H: minimise `f H f - 2 c f` over f >= 0, for any rows c."""

    gram: Floats  # (k, k): H, scaled to unit diagonal
    lengths: Floats  # (k,): what rows and columns of H were divided by
    guess: SupportPredictor | None  # None if H is too ill-conditioned for its inverse

    @property
    def inverse(self) -> Floats | None:
        """Inverse of the Gram matrix; None if it is too ill-conditioned."""
        return None if self.guess is None else self.guess.inverse

    @classmethod
    def of(cls, gram: Floats) -> Self:
        """Prepare the problem of a positive semi-definite Gram matrix (k, k)."""
        lengths = np.sqrt(gram.diagonal())
        lengths = np.where(lengths > 0.0, lengths, 1.0)
        unit = gram / np.outer(lengths, lengths)
        values = np.linalg.eigvalsh(unit)
        return cls(unit, lengths, None if values[0] * _MAX_CONDITION <= values[-1] else SupportPredictor.of(unit))

    def solve(self, products: Floats, out: Floats | None = None) -> Floats:
        """Solve for the coefficients (n, k) of rows, by block pivoting on the coefficients or multipliers, if fewer.

        products (n, k): rows c; out (n, k): where to write the result, if there is an inverse; may be the products. The
        coefficients of a row have the same bits beside any other rows.
        J. Kim, H. Park, "Fast nonnegative matrix factorization: an active-set-like method and comparisons", SIAM
        Journal on Scientific Computing 33, 2011.
        """
        if self.guess is None:
            return nonnegative_from_gram(self.gram, products / self.lengths) / self.lengths
        found = np.empty(products.shape) if out is None else out
        for start in range(0, len(products), _SLAB_ROWS):
            some = slice(start, start + _SLAB_ROWS)
            found[some] = self._pivot(products[some] / self.lengths, self.guess) / self.lengths
        return found

    def _pivot(self, products: Floats, guess: SupportPredictor) -> Floats:
        """Exchange zero and other coefficients until no coefficient and no multiplier of a row is negative."""
        unconstrained = piecewise_matmul(products, guess.inverse)
        zero = guess.zeros(products, unconstrained)
        threshold = -_ROUNDING * np.abs(products).max(axis=1, initial=0.0, keepdims=True)
        found, left = np.empty_like(unconstrained), np.arange(len(unconstrained))
        for _ in range(_MAX_PIVOTS):
            mask = zero[left]
            both = np.empty(mask.shape)  # coefficients, and multipliers where these are zero
            few = 2 * mask.sum(axis=1) <= mask.shape[1]
            for rows, solve in ((few, self._by_multipliers), (~few, self._by_coefficients)):
                at = left[rows]
                both[rows] = solve(products[at], unconstrained[at], mask[rows], guess.inverse)
            found[left] = np.where(mask, 0.0, np.maximum(both, 0.0))
            wrong = both < threshold[left]
            zero[left] = mask ^ wrong
            left = left[wrong.any(axis=1)]
            if not len(left):
                return found
        found[left] = nonnegative_from_gram(self.gram, products[left])
        return found

    def _by_multipliers(self, _: Floats, unconstrained: Floats, zero: Mask, inverse: Floats) -> Floats:
        """Solve for the multipliers of the zero coefficients, which give the other coefficients."""
        multipliers = -solve_on_support(inverse, unconstrained, zero)
        return np.where(zero, multipliers, unconstrained + piecewise_matmul(multipliers, inverse))

    def _by_coefficients(self, products: Floats, _: Floats, zero: Mask, __: Floats) -> Floats:
        """Solve for the coefficients that are not zero, which give the multipliers."""
        values = solve_on_support(self.gram, products, ~zero)
        return np.where(zero, piecewise_matmul(values, self.gram) - products, values)


@dataclass(frozen=True)
class BasisOfSample:
    """Components (k, p) found on a sample, the loss after the first step, and whether it settled."""

    components: Floats
    first_loss: float
    settled: bool


def factorize_counts(
    X: sparse.csr_array, start: Floats, penalties: tuple[Penalty, Penalty], tol: float
) -> BasisOfSample:
    """Factorize counts by multiplicative steps until the loss settles.

    start (k, p): rows of counts, into which the mean row is mixed; penalties: of W and of H; tol: the loss has settled
    when ten steps lower it by less than this share.
    D. Lee, H. Seung, "Algorithms for non-negative matrix factorization", NIPS 2000.
    """
    mean = (1.0 - _UNIFORM_SHARE) * X.sum(axis=0) / max(X.sum(), _TINY) + _UNIFORM_SHARE / X.shape[1]
    heights = start.sum(axis=1, keepdims=True)
    H = (1.0 - _MEAN_SHARE) * start + _MEAN_SHARE * heights * mean
    W, losses = _equal_coefficients(X, H), []
    for _ in range(_MAX_COUNT_STEPS):
        W = scaled_step(W, quotients(X, W, H) @ H.T, H.sum(axis=1), penalties[0])
        ratio = quotients(X, W, H)
        loss = float(divergences(X, ratio, W, H).sum()) + penalties[0].of(W) + penalties[1].of(H)
        losses.append(loss)
        if len(losses) > _WINDOW and losses[-1 - _WINDOW] - loss <= tol * losses[-1 - _WINDOW]:
            return BasisOfSample(H, losses[0], settled=True)
        H = scaled_step(H, (ratio.T @ W).T, W.sum(axis=0)[:, None], penalties[1])
    return BasisOfSample(H, losses[0], settled=False)


def coefficients_of_counts(X: sparse.csr_array, H: Floats, penalty: Penalty) -> Floats:
    """Find the coefficients of rows of counts, by a fixed number of steps: the same bits beside any other rows."""
    W = _equal_coefficients(X, H)
    for _ in range(_COEFFICIENT_STEPS):
        W = scaled_step(W, quotients(X, W, H) @ H.T, H.sum(axis=1), penalty)
    return W


def quotients(X: sparse.csr_array, W: Floats, H: Floats) -> sparse.csr_array:
    """Divide counts by their rates W H, where they are not zero."""
    found, columns = np.empty(X.nnz), np.ascontiguousarray(H.T)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    step = -(-_SLAB_TERMS // W.shape[1])
    for begin in range(0, X.nnz, step):
        some = slice(begin, begin + step)
        rates = np.vecdot(W.take(rows[some], axis=0), columns.take(X.indices[some], axis=0))
        found[some] = X.data[some] / np.maximum(rates, _MIN_RATE)
    return sparse.csr_array((found, X.indices, X.indptr), shape=X.shape)


def divergences(X: sparse.csr_array, ratio: sparse.csr_array, W: Floats, H: Floats) -> Floats:
    """Compute the Kullback-Leibler divergence (n,) of each row from its rates; ratio: from `quotients`."""
    logs = X.data * np.log(np.maximum(ratio.data, _TINY)) - X.data
    entries = sparse.csr_array((logs, X.indices, X.indptr), shape=X.shape)
    return np.asarray(entries @ np.ones(X.shape[1])) + (W * H.sum(axis=1)).sum(axis=1)


def scaled_step(factor: Floats, found: Floats, heights: Floats, penalty: Penalty) -> Floats:
    """Take one multiplicative step of a factor.

    found: quotients times the other factor; heights: sums of the other factor's components.
    """
    costs = heights + penalty.l1 + penalty.l2 * factor
    return factor * np.divide(found, costs, out=np.zeros_like(factor), where=costs > 0.0)


def _equal_coefficients(X: sparse.csr_array, H: Floats) -> Floats:
    """First coefficients of rows: each component has an equal share of a row's sum."""
    heights = np.maximum(H.sum(axis=1), _TINY)
    return np.outer(X @ np.ones(X.shape[1]), 1.0 / (len(H) * heights))


_MAX_STEPS: Final = 300  # maximum number of steps until the loss settles
_REPLACED: Final = (4, 1)  # components that trials replace, in turn; trials end when each of these has failed
_MAX_TRIALS: Final = 6  # maximum number of trials that replace components
_REDUCED_STEPS: Final = 8  # maximum number of steps of a trial with fewer components
_REFILLED_STEPS: Final = 60  # maximum number of steps of a trial with all components again
_TRIAL_TOL: Final = 1e-3  # tolerance of trials and of the steps before them
_MIN_GAIN: Final = 2e-4  # share of the loss by which a trial must lower it to be kept
_MAX_THOROUGH_ENTRIES: Final = 2**20  # maximum number of entries for trials even if the residual looks like noise
_NOISE_EDGE: Final = 1.0  # minimum energy of a structured residual's component, relative to the maximum of noise
_POWER_STEPS: Final = 8  # power iterations for the leading component of a residual
_RIDGE: Final = 1e-10  # added to a Gram matrix's diagonal, relative to its trace, so that it has an inverse

Pair = tuple["Penalty", "Penalty"]


def factorize_sample(
    X: Floats, start: Floats, n_components: int, penalties: Pair, tol: float, thorough: bool
) -> BasisOfSample:
    """Factorize rows from given components until the loss settles.

    start (m, p): anchors, perhaps fewer than the components; tol: the loss has settled when ten steps lower it by less
    than this share; thorough: replace components of few rows even if the residual looks like noise.
    """
    W, H, thorough = *_with_coefficients(X, start, penalties[0]), thorough and X.size <= _MAX_THOROUGH_ENTRIES
    if len(H) < n_components:
        W, H = _add_components(X, W, H, n_components - len(H))
    found = extrapolated_hals(X, W, H, penalties, max_iter=_MAX_STEPS, tol=max(tol, _TRIAL_TOL))
    first, unsettled, failed = found.losses[0], tol < _TRIAL_TOL, 0
    for i in range(_MAX_TRIALS):
        if failed == len(_REPLACED) or len(found.H) < 2 or not (thorough or _is_structured(X, found)):
            break
        tried = _replace_components(X, found, _REPLACED[i % len(_REPLACED)], penalties, max(tol, _TRIAL_TOL))
        if len(tried.H) == len(found.H) and tried.losses[-1] <= (1.0 - _MIN_GAIN) * found.losses[-1]:
            found, unsettled, failed = tried, True, 0
        else:
            failed += 1
    if unsettled:
        found = extrapolated_hals(X, found.W, found.H, penalties, max_iter=_MAX_STEPS, tol=tol)
    return BasisOfSample(found.H, first, found.settled)


def _with_coefficients(X: Floats, start: Floats, penalty: Penalty) -> tuple[Floats, Floats]:
    """Both factors (k, n), (k, p) of a start, with the coefficients that fit its components."""
    W = GramProblem.of(penalty.in_gram(start @ start.T)).solve(X @ start.T - penalty.l1)
    return np.ascontiguousarray(W.T), start.copy()


def _replace_components(X: Floats, found: Factors, n: int, penalties: Pair, tol: float) -> Factors:
    """Remove the n least useful components, refit the others, add as many along the residual, and refit all."""
    W, H = found.W, found.H
    for _ in range(min(n, len(H) - 1)):
        W, H = _remove_least_useful(W, H)
    fewer = extrapolated_hals(X, W, H, penalties, max_iter=_REDUCED_STEPS, tol=tol)
    W, H = _add_components(X, fewer.W, fewer.H, len(found.H) - len(H))
    return extrapolated_hals(X, W, H, penalties, max_iter=_REFILLED_STEPS, tol=tol)


def _is_structured(X: Floats, found: Factors) -> bool:
    """Whether the residual's leading component has more energy than that of white noise of the same energy."""
    left = X - found.W.T @ found.H
    w, v = _leading_component(left)
    n, p = X.shape
    edge = float(np.vdot(left, left)) * (np.sqrt(n) + np.sqrt(p)) ** 2 / (n * p)
    return float(np.vdot(w, w) * np.vdot(v, v)) > _NOISE_EDGE * edge


def _add_components(X: Floats, W: Floats, H: Floats, n: int) -> tuple[Floats, Floats]:
    """Add the leading components of the residual, one after the other, while it has positive entries."""
    left = X - W.T @ H
    for _ in range(n):
        w, v = _leading_component(left)
        if not (w.any() and v.any()):
            break
        left -= np.outer(w, v)
        W, H = np.vstack([W, w]), np.vstack([H, v])
    return W, H


def _leading_component(left: Floats) -> tuple[Floats, Floats]:
    """Leading non-negative component w v^T of a residual, by power iteration from its largest row."""
    v = np.maximum(left[(np.maximum(left, 0.0) ** 2).sum(axis=1).argmax()], 0.0)
    for _ in range(_POWER_STEPS):
        w = np.maximum(left @ v, 0.0) / max(float(v @ v), _TINY)
        v = np.maximum(w @ left, 0.0) / max(float(w @ w), _TINY)
    return w, v


def _remove_least_useful(W: Floats, H: Floats) -> tuple[Floats, Floats]:
    """Remove the component whose loss the others best make up for, by least squares without constraints."""
    gram = H @ H.T
    inverse = np.linalg.inv(gram + (_RIDGE * gram.trace() or 1.0) * np.eye(len(H)))
    j = ((W**2).sum(axis=1) / inverse.diagonal()).argmin()
    kept = np.arange(len(H)) != j
    return np.maximum(W[kept] - np.outer(inverse[kept, j] / inverse[j, j], W[j]), 0.0), H[kept]
