"""Variational Bayesian PCA of rows with missing entries: x = mean + W z + noise.

Automatic relevance determination prunes directions that the data do not support, and the posterior mean of z is shrunk
the more, the fewer entries of a row are observed, so that poorly observed rows do not become false extremes.
Ilin and Raiko, Practical approaches to principal component analysis in the presence of missing values, JMLR 11, 2010.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.geometry import planes
from dask_dca.geometry.arrays import Floats, Mask
from dask_dca.geometry.exact import Workspace, piecewise_matmul, power_of_two
from dask_dca.geometry.moments import top_eigenpairs

_MAX_ITER: Final = 15  # steps of expectation maximization
_TOL: Final = 1e-4  # change of the log noise variance at which the steps end
_FACTOR_ITERATIONS: Final = 5  # of principal factor analysis, for the initial model
_MIN_NOISE: Final = 1e-8  # least noise variance, relative to the mean square of the entries
_TILE_ENTRIES: Final = 2**18  # entries of the rows that are processed together
_TILE_ROWS: Final = (64, 1024)  # least and greatest number of rows of a tile
_MIN_PAIRS: Final = 2  # least number of rows with both features, else their covariance is taken to be zero
_HELD_OUT_SHARE: Final = 0.05  # share of the observed entries that is held out to choose the rank
_MAX_ERROR_RATIO: Final = 0.81  # a further direction must lower the held-out squared error to this share
_PATIENCE: Final = 2  # ranks that are tried without sufficient improvement
# share of the squared mean outside the span of the loadings above which the mean counts as a further direction
_MEAN_OUTSIDE_TOL: Final = 1e-2
# mean squared correlation of the masks of two features above which entries count as missing in blocks
_MASK_CORRELATION: Final = 0.01


@dataclass(frozen=True)
class LowRank:
    """The model: mean, loadings W, the covariance of each feature's loadings, and the variance of the noise."""

    mean: Floats  # (p,)
    loadings: Floats  # (p, r)
    spread: Floats  # (p, r, r) posterior covariance of each feature's loadings
    noise: float

    @cached_property
    def packed(self) -> Floats:
        """Upper triangles of E[w w^T] of each feature, shape (p, r (r + 1) / 2)."""
        second = self.loadings[:, :, None] * self.loadings[:, None, :] + self.spread
        upper = np.triu_indices(self.loadings.shape[1])
        return second[:, upper[0], upper[1]]

    def complete(self, places: Floats) -> Floats:
        """Return the complete rows (n, p) that posterior means (n, r) of z predict."""
        found = piecewise_matmul(places, np.ascontiguousarray(self.loadings.T))
        found += self.mean
        return found


def observed_tiles(rows: NDArray[Any], space: Workspace, unit: float = 1.0) -> Iterator[tuple[slice, Floats, Mask]]:
    """Cut rows (n, p), NaN where an entry is missing, into tiles; each tile overwrites the one before.

    unit: power of two that rows are divided by. Yields the slice of rows; rows (m, p), zero where entries are missing;
    the mask (m, p) of observed entries.
    """
    step = int(np.clip(_TILE_ENTRIES // rows.shape[1], *_TILE_ROWS))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        tile = space.array("rows", *rows[part].shape)
        np.divide(rows[part], unit, out=tile)
        mask = ~np.isnan(tile)
        np.putmask(tile, ~mask, 0.0)
        yield part, tile, mask


def posterior_means(model: LowRank, rows: NDArray[Any]) -> Floats:
    """Compute the posterior means (n, r) of z for rows (n, p), NaN where an entry is missing."""
    found, space = np.empty((len(rows), model.loadings.shape[1])), Workspace()
    for part, tile, mask in observed_tiles(rows, space):
        found[part] = posterior_means_of_tile(model, tile, mask, space)
    return found


def posterior_means_of_tile(model: LowRank, rows: Floats, mask: Mask, space: Workspace) -> Floats:
    """Compute posterior means (n, r) of z; the bits of a row do not depend on the other rows.

    rows (n, p): zero where entries are missing; mask (n, p): observed entries.
    """
    return _posteriors(model, _centred_rows(model.mean, rows, mask, space), mask, space)[0]


def _centred_rows(mean: Floats, rows: Floats, mask: Mask, space: Workspace) -> Floats:
    """Rows less the mean, zeros at missing entries."""
    found = np.multiply(mask, mean, out=space.array("centred", *rows.shape))
    return np.subtract(rows, found, out=found)


def _posteriors(
    model: LowRank, centred: Floats, mask: Mask, space: Workspace
) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Compute the posteriors of z.

    Returns means (n, r); inverse covariances times the noise variance (u, r, r), one for each pattern of missing
    entries; the pattern (n,) of each row.
    """
    patterns, which = missing_patterns(mask)
    (n, p), u, r = centred.shape, len(patterns), model.loadings.shape[1]
    seen = space.array("seen", u, p)
    seen[...] = patterns
    packed = piecewise_matmul(seen, model.packed, low=True, out=space.array("packed", u, model.packed.shape[1]))
    precisions = space.array("precisions", u, r * r)
    np.take(packed, _triangle_index(r).ravel(), axis=1, out=precisions, mode="clip")
    precisions[:, :: r + 1] += model.noise
    own = precisions
    if u < n:
        own = np.take(precisions, which, axis=0, out=space.array("own", n, r * r), mode="clip")
    right = piecewise_matmul(centred, model.loadings)
    found = np.asarray(np.linalg.solve(own.reshape(n, r, r), right[:, :, None])[:, :, 0], dtype=np.float64)
    return found, precisions.reshape(u, r, r), which


def missing_patterns(mask: Mask) -> tuple[Mask, NDArray[np.intp]]:
    """Find the distinct rows (u, p) of a mask, and which of them each row is, (n,)."""
    bits = np.packbits(mask, axis=1)
    words = np.ascontiguousarray(bits).view(np.dtype((np.void, bits.shape[1])))[:, 0]
    _, first, which = np.unique(words, return_index=True, return_inverse=True)
    return (mask, np.arange(len(mask))) if len(first) == len(mask) else (mask[first], which)


def _triangle_index(r: int) -> NDArray[np.intp]:
    """Index (r, r) of each entry of a symmetric matrix in its packed upper triangle."""
    found = np.zeros((r, r), dtype=np.intp)
    found[np.triu_indices(r)] = np.arange(r * (r + 1) // 2)
    return np.maximum(found, found.T)


def fit_low_rank(sample: Floats, rank: int) -> LowRank:
    """Fit the model to a sample by expectation maximization.

    sample (n, p): rows of any precision, NaN where an entry is missing; rank: number of directions r.
    """
    space, squares, count = Workspace(), 0.0, 0
    for _, rows, mask in observed_tiles(sample, space):
        squares, count = squares + float(np.vdot(rows, rows)), count + int(mask.sum())
    unit = float(power_of_two(np.sqrt(squares / max(count, 1))))
    model = _initial_model(sample, unit, min(rank, *sample.shape), space)
    for _ in range(_MAX_ITER):
        before, model = model.noise, _em_step(model, sample, unit, space)
        if abs(np.log(model.noise / before)) < _TOL:
            break
    return LowRank(model.mean * unit, model.loadings * unit, model.spread * unit**2, model.noise * unit**2)


def _initial_model(sample: Floats, unit: float, rank: int, space: Workspace) -> LowRank:
    """Principal factors of pairwise covariances, each from the rows in which both features are observed."""
    p = sample.shape[1]
    counts, mean = np.zeros(p), np.zeros(p)
    pairs, covariance = np.zeros((p, p)), np.zeros((p, p))
    for _, rows, mask in observed_tiles(sample, space, unit):
        counts, mean = counts + mask.sum(axis=0), mean + rows.sum(axis=0)
    mean /= np.maximum(counts, 1.0)
    for _, rows, mask in observed_tiles(sample, space, unit):
        centred, seen = _centred_rows(mean, rows, mask, space), space.array("seen", *mask.shape)
        seen[...] = mask
        pairs += seen.T @ seen
        covariance += centred.T @ centred
    covariance = np.where(pairs >= _MIN_PAIRS, covariance / np.maximum(pairs, 1.0), 0.0)
    own = np.diag(covariance).copy()
    for _ in range(_FACTOR_ITERATIONS):  # the diagonal is replaced by communalities: it contains the noise, too
        spectrum, vectors = top_eigenpairs(covariance, rank)
        loadings = vectors * np.sqrt(np.maximum(spectrum, 0.0))
        common = (loadings**2).sum(axis=1)
        covariance[np.diag_indices(p)] = common
    noise = max(float((own - common).mean()), _MIN_NOISE * float(own.mean() + (mean**2).mean()))
    return LowRank(mean, loadings, np.zeros((p, rank, rank)), noise)


@dataclass
class _FeatureSums:
    """Sufficient statistics of each feature over the rows in which it is observed, and of all rows."""

    second: Floats  # (p, r (r + 1) / 2) second moments of z
    cross: Floats  # (p, r) sums of centred entries times z
    z: Floats  # (p, r) sums of z
    centred: Floats  # (p,) sums of centred entries
    counts: Floats  # (p,) numbers of rows
    squares: float = 0.0  # sum of squared centred entries
    whole: float = 0.0  # sum of squared entries


def _feature_sums(model: LowRank, sample: Floats, unit: float, space: Workspace) -> _FeatureSums:
    p, r = model.loadings.shape
    first, second = np.triu_indices(r)
    sums = _FeatureSums(np.zeros((p, len(first))), np.zeros((p, r)), np.zeros((p, r)), np.zeros(p), np.zeros(p))
    for _, rows, mask in observed_tiles(sample, space, unit):
        centred = _centred_rows(model.mean, rows, mask, space)
        z, precisions, which = _posteriors(model, centred, mask, space)
        spread = model.noise * np.linalg.inv(precisions)[:, first, second]
        seen = space.array("seen", *mask.shape)
        seen[...] = mask
        sums.second += seen.T @ (z[:, first] * z[:, second] + spread[which])
        sums.cross += centred.T @ z
        sums.z += seen.T @ z
        sums.centred += centred.sum(axis=0)
        sums.counts += mask.sum(axis=0)
        sums.squares += float(np.vdot(centred, centred))
        sums.whole += float(np.vdot(rows, rows))
    return sums


def _em_step(model: LowRank, sample: Floats, unit: float, space: Workspace) -> LowRank:
    """Update the posteriors of z, then of the loadings, then the noise variance."""
    sums = _feature_sums(model, sample, unit, space)
    r, counts, second, rest = model.loadings.shape[1], sums.counts, sums.second, sums.centred
    # precisions of the prior of the loadings, one per direction: automatic relevance determination
    alpha = len(counts) / np.maximum((model.loadings**2).sum(axis=0) + np.einsum("jcc->c", model.spread), 1e-300)
    inverse = np.asarray(np.linalg.inv(second[:, _triangle_index(r)] + model.noise * np.diag(alpha)), dtype=np.float64)
    loadings = (inverse @ sums.cross[:, :, None])[:, :, 0]
    shift = (rest - (sums.z * loadings).sum(axis=1)) / np.maximum(counts, 1)
    found = LowRank(model.mean + shift, loadings, model.noise * inverse, model.noise)
    cross = sums.cross - shift[:, None] * sums.z
    squares = sums.squares - float((shift * (2.0 * rest - shift * counts)).sum())
    twice = 2.0 - np.eye(r)[np.triu_indices(r)]  # entries off the diagonal count twice
    left = squares - 2.0 * float((cross * loadings).sum()) + float((found.packed * second * twice).sum())
    return LowRank(found.mean, loadings, found.spread, max(left, _MIN_NOISE * sums.whole) / float(counts.sum()))


def is_missing_in_blocks(mask: Mask) -> bool:
    """Whether entries are missing in blocks, that is, whether the masks of features are correlated.

    mask (n, p): observed entries.
    """
    n, means = len(mask), mask.mean(axis=0)
    some = (means > 0.0) & (means < 1.0)
    p = int(some.sum())
    if p < 2:
        return False
    pairs = np.zeros((p, p))
    for start in range(0, n, _TILE_ROWS[1]):
        seen = mask[start : start + _TILE_ROWS[1], some].astype(np.float32)  # counts are exact in float32
        pairs += seen.T @ seen
    means = means[some]
    spread = np.sqrt(means * (1.0 - means))
    correlations = (pairs / n - means[:, None] * means) / (spread[:, None] * spread)
    return (float((correlations**2).sum()) - p) / (p * (p - 1)) > _MASK_CORRELATION + 2.0 / n


def choose_n_anchors(sample: Floats, most: int) -> int:
    """Choose the number of anchors by the held-out error of models of increasing rank.

    sample (n, p): rows, NaN where an entry is missing; most: greatest number.
    """
    draws = planes.uniforms(planes.child_seeds(0, np.arange(len(sample))), sample.shape[1])
    hidden = ~np.isnan(sample) & (draws < _HELD_OUT_SHARE)
    shown = np.where(hidden, np.nan, sample)
    mean = np.nansum(shown, axis=0) / np.maximum((~np.isnan(shown)).sum(axis=0), 1)
    best, found, tried = float(((sample - mean)[hidden] ** 2).sum()), 1, 0
    for rank in range(1, min(most, *sample.shape) + 1):
        model = fit_low_rank(shown, rank)
        whole = model.complete(posterior_means(model, shown))
        error, tried = float(((sample - whole)[hidden] ** 2).sum()), tried + 1
        if error < _MAX_ERROR_RATIO * best:
            best, found, tried = error, min(_n_directions(model), most), 0
        if tried == _PATIENCE:
            break
    return found


def _n_directions(model: LowRank) -> int:
    """Dimension of the span of mean and loadings; the mean adds one where rows have about the same height."""
    basis = np.linalg.qr(model.loadings)[0]
    aside = model.mean - basis @ (basis.T @ model.mean)
    return model.loadings.shape[1] + int((aside**2).sum() > _MEAN_OUTSIDE_TOL * (model.mean**2).sum())
