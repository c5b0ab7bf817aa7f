"""A Bayesian low-rank model of rows with missing entries: x = mean + W z + noise, W learnt with its uncertainty.

Directions that the data don't speak for are pruned by their priors (automatic relevance), and the posterior mean of
a row's place shrinks as far as the row was not observed: so badly observed rows do not become false extremes.
Ilin and Raiko, Practical approaches to principal component analysis in the presence of missing values, JMLR 11, 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import linalg

from dask_dca.geometry import planes
from dask_dca.geometry.exact import power_of_two
from dask_dca.geometry.pieces import times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

__all__ = ["LowRank", "fit_low_rank", "held_out_count", "patterns_of", "places_and_precisions", "structured"]

_PASSES: Final = 15
_SETTLED: Final = 1e-4  # change of the logarithm of the noise at which passes end
_START_ROUNDS: Final = 5
_LEAST_NOISE: Final = 1e-8  # of the mean square
_TOGETHER: Final = 2**22  # entries of the rows' precisions that are held at once
_LEAST_PAIRS: Final = 2  # rows that a moment of two features is taken from, else it is 0
_HIDDEN: Final = 0.05  # of the entries, to choose the number of directions by
_BETTER: Final = 0.81  # of the squared error that another direction has to leave at most
_PATIENCE: Final = 2  # directions in a row that bring less
_ASIDE: Final = 1e-2  # of the squared mean, that lies outside the other directions where it is one of its own
_DEPENDENT: Final = 0.01  # mean squared correlation of two features' masks from which holes come in blocks


@dataclass(frozen=True)
class LowRank:
    """The model: mean, loadings W, the covariance of each feature's loadings, and the variance of the noise."""

    mean: Floats  # (p,)
    loadings: Floats  # (p, r)
    spread: Floats  # (p, r, r)
    noise: float

    @cached_property
    def packed(self) -> Floats:
        """Upper triangles of E[w w^T] of each feature, shape (p, r (r + 1) / 2)."""
        second = self.loadings[:, :, None] * self.loadings[:, None, :] + self.spread
        upper = np.triu_indices(self.loadings.shape[1])
        return second[:, upper[0], upper[1]]

    def complete(self, places: Floats) -> Floats:
        """Return the posterior mean of whole rows, shape (n, p)."""
        return times(places, np.ascontiguousarray(self.loadings.T)) + self.mean


def places_and_precisions(model: LowRank, rows: Floats, mask: Mask) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Find the posterior of rows' places.

    rows (n, p): what stands at missing entries does not matter; mask (n, p): true where an entry was observed.
    Returns places (n, r): posterior means, a row's the same beside any others; precisions (u, r, r): inverse posterior
    covariances times the noise, one for each pattern of holes; which (n,): each row's pattern.
    """
    patterns, which = patterns_of(mask)
    precisions = times(patterns.astype(np.float64), model.packed)[:, _square(model.loadings.shape[1])]
    precisions += model.noise * np.eye(model.loadings.shape[1])
    right = times(np.where(mask, rows - model.mean, 0.0), model.loadings)
    places = np.asarray(np.linalg.solve(precisions[which], right[:, :, None])[:, :, 0], dtype=np.float64)
    return places, precisions, which


def patterns_of(mask: Mask) -> tuple[Mask, NDArray[np.intp]]:
    """The different rows of a mask, and which of them each row is."""
    bits = np.packbits(mask, axis=1)
    words = np.ascontiguousarray(bits).view(np.dtype((np.void, bits.shape[1])))[:, 0]
    _, first, which = np.unique(words, return_index=True, return_inverse=True)
    return mask[first], which


def _square(r: int) -> NDArray[np.intp]:
    """Where each entry of a symmetric matrix stands in its packed upper triangle."""
    found = np.zeros((r, r), dtype=np.intp)
    found[np.triu_indices(r)] = np.arange(r * (r + 1) // 2)
    return np.maximum(found, found.T)


def fit_low_rank(sample: Floats, rank: int) -> LowRank:
    """Learn the model from some rows by expectation maximization.

    sample (n, p): rows, NaN where an entry is missing; rank: number of directions r.
    """
    mask = ~np.isnan(sample)
    rows = np.where(mask, sample, 0.0)
    unit = float(power_of_two(np.sqrt((rows**2).sum() / max(int(mask.sum()), 1))))
    rows /= unit
    model = _start(rows, mask, min(rank, *rows.shape))
    for _ in range(_PASSES):
        before, model = model.noise, _pass(model, rows, mask)
        if abs(np.log(model.noise / before)) < _SETTLED:
            break
    return LowRank(model.mean * unit, model.loadings * unit, model.spread * unit**2, model.noise * unit**2)


def _start(rows: Floats, mask: Mask, rank: int) -> LowRank:
    """Leading directions of the moments of pairs of features, each from the rows that have both."""
    counts = mask.sum(axis=0)
    mean = rows.sum(axis=0) / np.maximum(counts, 1)
    centred, seen = np.where(mask, rows - mean, 0.0), mask.astype(np.float64)
    pairs = seen.T @ seen
    covariance = np.where(pairs >= _LEAST_PAIRS, centred.T @ centred / np.maximum(pairs, 1.0), 0.0)
    own, last = np.diag(covariance).copy(), len(covariance) - 1
    for _ in range(_START_ROUNDS):  # what is the noise's own stands on the diagonal alone
        spectrum, vectors = linalg.eigh(covariance, subset_by_index=(last + 1 - rank, last))
        loadings = vectors * np.sqrt(np.maximum(spectrum, 0.0))
        common = (loadings**2).sum(axis=1)
        covariance[np.diag_indices(last + 1)] = common
    noise = max(float((own - common).mean()), _LEAST_NOISE * float(own.mean() + (mean**2).mean()))
    return LowRank(mean, loadings, np.zeros((last + 1, rank, rank)), noise)


def _pass(model: LowRank, rows: Floats, mask: Mask) -> LowRank:
    """One step: posteriors of all rows, then of all features, then the noise."""
    r, counts = model.loadings.shape[1], mask.sum(axis=0)
    second, cross, places = _sums(model, rows, mask)
    rest, squares = _of_residuals(model.mean, rows, mask)
    alpha = len(counts) / np.maximum((model.loadings**2).sum(axis=0) + np.einsum("jcc->c", model.spread), 1e-300)
    inverse = np.asarray(np.linalg.inv(second[:, _square(r)] + model.noise * np.diag(alpha)), dtype=np.float64)
    loadings = (inverse @ cross[:, :, None])[:, :, 0]
    shift = (rest - (places * loadings).sum(axis=1)) / np.maximum(counts, 1)
    found = LowRank(model.mean + shift, loadings, model.noise * inverse, model.noise)
    cross, squares = cross - shift[:, None] * places, squares - float((shift * (2.0 * rest - shift * counts)).sum())
    twice = 2.0 - np.eye(r)[np.triu_indices(r)]  # entries off the diagonal count for two
    left = squares - 2.0 * float((cross * loadings).sum()) + float((found.packed * second * twice).sum())
    least = _LEAST_NOISE * float((rows**2).sum())
    return LowRank(found.mean, loadings, found.spread, max(left, least) / int(counts.sum()))


def _sums(model: LowRank, rows: Floats, mask: Mask) -> tuple[Floats, Floats, Floats]:
    """Of each feature, over the rows that have it: second moments of places, products with places, and places."""
    p, r = model.loadings.shape
    upper = np.triu_indices(r)
    second, cross, total = np.zeros((p, len(upper[0]))), np.zeros((p, r)), np.zeros((p, r))
    for part in _slabs(len(rows), r):
        places, precisions, which = places_and_precisions(model, rows[part], mask[part])
        spread = model.noise * np.linalg.inv(precisions)[:, upper[0], upper[1]]
        seen = mask[part].astype(np.float64)
        second += seen.T @ (places[:, upper[0]] * places[:, upper[1]] + spread[which])
        cross += np.where(mask[part], rows[part] - model.mean, 0.0).T @ places
        total += seen.T @ places
    return second, cross, total


def _of_residuals(mean: Floats, rows: Floats, mask: Mask) -> tuple[Floats, float]:
    centred = np.where(mask, rows - mean, 0.0)
    return centred.sum(axis=0), float((centred**2).sum())


def _slabs(n: int, r: int) -> Iterator[slice]:
    step = max(1, _TOGETHER // r**2)
    for start in range(0, n, step):
        yield slice(start, start + step)


def structured(mask: Mask) -> bool:
    """Tell whether holes come in blocks: whether the masks of two features depend on each other.

    mask (n, p): true where an entry was observed.
    """
    spread = mask.std(axis=0)
    some = spread > 0.0
    if some.sum() < 2:
        return False
    scaled = (mask[:, some] - mask[:, some].mean(axis=0)) / spread[some]
    n, p = scaled.shape
    squares = float(((scaled.T @ scaled / n) ** 2).sum()) - p
    return squares / (p * (p - 1)) > _DEPENDENT + 2.0 / n


def held_out_count(sample: Floats, most: int) -> int:
    """Choose a number of anchors by what models of more and more directions say of entries that were hidden from them.

    sample (n, p): rows, NaN where an entry is missing; most: greatest number. Returns how many directions they span.
    """
    draws = planes.uniforms(planes.child_seeds(0, np.arange(len(sample))), sample.shape[1])
    hidden = ~np.isnan(sample) & (draws < _HIDDEN)
    shown = np.where(hidden, np.nan, sample)
    mean = np.nansum(shown, axis=0) / np.maximum((~np.isnan(shown)).sum(axis=0), 1)
    best, found, tried = float(((sample - mean)[hidden] ** 2).sum()), 1, 0
    for rank in range(1, min(most, *sample.shape) + 1):
        model = fit_low_rank(shown, rank)
        whole = model.complete(places_and_precisions(model, shown, ~np.isnan(shown))[0])
        error, tried = float(((sample - whole)[hidden] ** 2).sum()), tried + 1
        if error < _BETTER * best:
            best, found, tried = error, min(_n_directions(model), most), 0
        if tried == _PATIENCE:
            break
    return found


def _n_directions(model: LowRank) -> int:
    """How many directions mean and loadings span: the mean is one more where rows have about the same height."""
    basis = np.linalg.qr(model.loadings)[0]
    aside = model.mean - basis @ (basis.T @ model.mean)
    return model.loadings.shape[1] + int((aside**2).sum() > _ASIDE * (model.mean**2).sum())
