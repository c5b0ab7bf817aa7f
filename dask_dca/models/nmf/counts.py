"""Factors of sparse counts by Kullback and Leibler's divergence: multiplicative steps, in which zeros take no part.

X (n, p) is about W H, with a component in a column of W (n, k) and in a row of H (k, p).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.hals import Penalty

    Floats = NDArray[np.float64]

__all__ = ["CountFit", "coefficients_of_counts", "divergences", "factorize_counts", "quotients", "scaled_step"]

_SLAB: Final = 2**15  # entries whose rates are computed together
_MOST_STEPS: Final = 400
_EVERY: Final = 10  # steps over which the fall of the loss is judged
_INNER: Final = 60  # steps for coefficients alone
_BACKGROUND: Final = 0.7  # share of the mean row in a start, so that no entry is impossible
_UNSEEN: Final = 1e-3  # share of features alike in that: a sample may lack some
_LEAST_RATE: Final = 2.0**-40  # of a count
_LEAST: Final = 1e-300


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
    for _ in range(_MOST_STEPS):
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
    for begin in range(0, X.nnz, _SLAB):
        some = slice(begin, begin + _SLAB)
        rates = (W[rows[some]] * columns[X.indices[some]]).sum(axis=1)
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
