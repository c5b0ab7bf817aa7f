"""A Bayesian low-rank model of rows with missing entries: x = mean + W z + noise, W learnt with its uncertainty.

Directions that the data don't speak for are pruned by their priors (automatic relevance), and the posterior mean of
a row's place shrinks as far as the row was not observed: so badly observed rows do not become false extremes.
Ilin and Raiko, Practical approaches to principal component analysis in the presence of missing values, JMLR 11, 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.geometry import planes
from dask_dca.geometry.exact import Workspace, piecewise_matmul, power_of_two
from dask_dca.geometry.moments import top_eigenpairs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Mask


_PASSES: Final = 15
_SETTLED: Final = 1e-4  # change of the logarithm of the noise at which passes end
_START_ROUNDS: Final = 5
_LEAST_NOISE: Final = 1e-8  # of the mean square
_TOGETHER: Final = 2**18  # entries of rows that are looked at together
_HEIGHTS: Final = (64, 1024)  # of such tiles, at least and at most
_LEAST_PAIRS: Final = 2  # rows that a moment of two features is taken from, else it is 0
_HIDDEN: Final = 0.05  # of the entries, to choose the number of directions by
_BETTER: Final = 0.81  # of the squared error that another direction has to leave at most
_PATIENCE: Final = 2  # directions in a row that bring less
_ASIDE: Final = 1e-2  # of the squared mean, that lies outside the other directions where it is one of its own
_DEPENDENT: Final = 0.01  # mean squared correlation of two features' masks from which missing entries come in blocks


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
        found = piecewise_matmul(places, np.ascontiguousarray(self.loadings.T))
        found += self.mean
        return found


def observed(rows: NDArray[Any], space: Workspace, unit: float = 1.0) -> Iterator[tuple[slice, Floats, Mask]]:
    """Cut rows (n, p), NaN where an entry is missing, into tiles of one array, which the next one overwrites.

    unit: a power of two that rows are divided by. Yields which rows; rows (m, p) with zeros in their missing entries;
    the mask.
    """
    step = int(np.clip(_TOGETHER // rows.shape[1], *_HEIGHTS))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        tile = space.array("rows", *rows[part].shape)
        np.divide(rows[part], unit, out=tile)
        mask = ~np.isnan(tile)
        np.putmask(tile, ~mask, 0.0)
        yield part, tile, mask


def places(model: LowRank, rows: NDArray[Any]) -> Floats:
    """Find the posterior means (n, r) of the places of rows (n, p), NaN where an entry is missing."""
    found, space = np.empty((len(rows), model.loadings.shape[1])), Workspace()
    for part, tile, mask in observed(rows, space):
        found[part] = places_of_observed(model, tile, mask, space)
    return found


def places_of_observed(model: LowRank, rows: Floats, mask: Mask, space: Workspace) -> Floats:
    """Find the posterior means (n, r) of rows' places; a row's has the same bits beside any others.

    rows (n, p): zeros at missing entries; mask (n, p): true where an entry was observed.
    """
    return _posteriors(model, _centred(model.mean, rows, mask, space), mask, space)[0]


def _centred(mean: Floats, rows: Floats, mask: Mask, space: Workspace) -> Floats:
    """Rows less the mean, zeros at missing entries."""
    found = np.multiply(mask, mean, out=space.array("centred", *rows.shape))
    return np.subtract(rows, found, out=found)


def _posteriors(
    model: LowRank, centred: Floats, mask: Mask, space: Workspace
) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Find the posteriors of rows' places.

    Returns places (n, r): their means; (u, r, r): inverse covariances times the noise, one for each pattern of missing
    entries; which (n,): each row's pattern.
    """
    patterns, which = patterns_of(mask)
    (n, p), u, r = centred.shape, len(patterns), model.loadings.shape[1]
    seen = space.array("seen", u, p)
    seen[...] = patterns
    packed = piecewise_matmul(seen, model.packed, low=True, out=space.array("packed", u, model.packed.shape[1]))
    precisions = space.array("precisions", u, r * r)
    np.take(packed, _square(r).ravel(), axis=1, out=precisions, mode="clip")
    precisions[:, :: r + 1] += model.noise
    own = precisions
    if u < n:
        own = np.take(precisions, which, axis=0, out=space.array("own", n, r * r), mode="clip")
    right = piecewise_matmul(centred, model.loadings)
    found = np.asarray(np.linalg.solve(own.reshape(n, r, r), right[:, :, None])[:, :, 0], dtype=np.float64)
    return found, precisions.reshape(u, r, r), which


def patterns_of(mask: Mask) -> tuple[Mask, NDArray[np.intp]]:
    """The different rows of a mask, and which of them each row is; the mask itself, where they all differ."""
    bits = np.packbits(mask, axis=1)
    words = np.ascontiguousarray(bits).view(np.dtype((np.void, bits.shape[1])))[:, 0]
    _, first, which = np.unique(words, return_index=True, return_inverse=True)
    return (mask, np.arange(len(mask))) if len(first) == len(mask) else (mask[first], which)


def _square(r: int) -> NDArray[np.intp]:
    """Where each entry of a symmetric matrix stands in its packed upper triangle."""
    found = np.zeros((r, r), dtype=np.intp)
    found[np.triu_indices(r)] = np.arange(r * (r + 1) // 2)
    return np.maximum(found, found.T)


def fit_low_rank(sample: Floats, rank: int) -> LowRank:
    """Learn the model from some rows by expectation maximization.

    sample (n, p): rows of any precision, NaN where an entry is missing; rank: number of directions r.
    """
    space, squares, count = Workspace(), 0.0, 0
    for _, rows, mask in observed(sample, space):
        squares, count = squares + float(np.vdot(rows, rows)), count + int(mask.sum())
    unit = float(power_of_two(np.sqrt(squares / max(count, 1))))
    model = _start(sample, unit, min(rank, *sample.shape), space)
    for _ in range(_PASSES):
        before, model = model.noise, _pass(model, sample, unit, space)
        if abs(np.log(model.noise / before)) < _SETTLED:
            break
    return LowRank(model.mean * unit, model.loadings * unit, model.spread * unit**2, model.noise * unit**2)


def _start(sample: Floats, unit: float, rank: int, space: Workspace) -> LowRank:
    """Leading directions of the moments of pairs of features, each from the rows that have both."""
    p = sample.shape[1]
    counts, mean = np.zeros(p), np.zeros(p)
    pairs, covariance = np.zeros((p, p)), np.zeros((p, p))
    for _, rows, mask in observed(sample, space, unit):
        counts, mean = counts + mask.sum(axis=0), mean + rows.sum(axis=0)
    mean /= np.maximum(counts, 1.0)
    for _, rows, mask in observed(sample, space, unit):
        centred, seen = _centred(mean, rows, mask, space), space.array("seen", *mask.shape)
        seen[...] = mask
        pairs += seen.T @ seen
        covariance += centred.T @ centred
    covariance = np.where(pairs >= _LEAST_PAIRS, covariance / np.maximum(pairs, 1.0), 0.0)
    own = np.diag(covariance).copy()
    for _ in range(_START_ROUNDS):  # what is the noise's own stands on the diagonal alone
        spectrum, vectors = top_eigenpairs(covariance, rank)
        loadings = vectors * np.sqrt(np.maximum(spectrum, 0.0))
        common = (loadings**2).sum(axis=1)
        covariance[np.diag_indices(p)] = common
    noise = max(float((own - common).mean()), _LEAST_NOISE * float(own.mean() + (mean**2).mean()))
    return LowRank(mean, loadings, np.zeros((p, rank, rank)), noise)


@dataclass
class _Sums:
    """Of each feature, over the rows that have it; and over all rows."""

    second: Floats  # (p, r (r + 1) / 2) second moments of places
    cross: Floats  # (p, r) centred entries times places
    places: Floats  # (p, r)
    rest: Floats  # (p,) centred entries
    counts: Floats  # (p,) rows
    squares: float = 0.0  # of the centred entries
    whole: float = 0.0  # squares of the entries


def _sums(model: LowRank, sample: Floats, unit: float, space: Workspace) -> _Sums:
    p, r = model.loadings.shape
    first, second = np.triu_indices(r)
    sums = _Sums(np.zeros((p, len(first))), np.zeros((p, r)), np.zeros((p, r)), np.zeros(p), np.zeros(p))
    for _, rows, mask in observed(sample, space, unit):
        centred = _centred(model.mean, rows, mask, space)
        z, precisions, which = _posteriors(model, centred, mask, space)
        spread = model.noise * np.linalg.inv(precisions)[:, first, second]
        seen = space.array("seen", *mask.shape)
        seen[...] = mask
        sums.second += seen.T @ (z[:, first] * z[:, second] + spread[which])
        sums.cross += centred.T @ z
        sums.places += seen.T @ z
        sums.rest += centred.sum(axis=0)
        sums.counts += mask.sum(axis=0)
        sums.squares += float(np.vdot(centred, centred))
        sums.whole += float(np.vdot(rows, rows))
    return sums


def _pass(model: LowRank, sample: Floats, unit: float, space: Workspace) -> LowRank:
    """One step: posteriors of all rows, then of all features, then the noise."""
    sums = _sums(model, sample, unit, space)
    r, counts, second, rest = model.loadings.shape[1], sums.counts, sums.second, sums.rest
    alpha = len(counts) / np.maximum((model.loadings**2).sum(axis=0) + np.einsum("jcc->c", model.spread), 1e-300)
    inverse = np.asarray(np.linalg.inv(second[:, _square(r)] + model.noise * np.diag(alpha)), dtype=np.float64)
    loadings = (inverse @ sums.cross[:, :, None])[:, :, 0]
    shift = (rest - (sums.places * loadings).sum(axis=1)) / np.maximum(counts, 1)
    found = LowRank(model.mean + shift, loadings, model.noise * inverse, model.noise)
    cross = sums.cross - shift[:, None] * sums.places
    squares = sums.squares - float((shift * (2.0 * rest - shift * counts)).sum())
    twice = 2.0 - np.eye(r)[np.triu_indices(r)]  # entries off the diagonal count for two
    left = squares - 2.0 * float((cross * loadings).sum()) + float((found.packed * second * twice).sum())
    return LowRank(found.mean, loadings, found.spread, max(left, _LEAST_NOISE * sums.whole) / float(counts.sum()))


def structured(mask: Mask) -> bool:
    """Tell whether missing entries come in blocks: whether the masks of two features depend on each other.

    mask (n, p): true where an entry was observed.
    """
    n, means = len(mask), mask.mean(axis=0)
    some = (means > 0.0) & (means < 1.0)
    p = int(some.sum())
    if p < 2:
        return False
    pairs = np.zeros((p, p))
    for start in range(0, n, _HEIGHTS[1]):
        seen = mask[start : start + _HEIGHTS[1], some].astype(np.float32)  # which counts exactly
        pairs += seen.T @ seen
    means = means[some]
    spread = np.sqrt(means * (1.0 - means))
    correlations = (pairs / n - means[:, None] * means) / (spread[:, None] * spread)
    return (float((correlations**2).sum()) - p) / (p * (p - 1)) > _DEPENDENT + 2.0 / n


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
        whole = model.complete(places(model, shown))
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
