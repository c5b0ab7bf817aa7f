"""Robust moments of rows, summed exactly, the subspace fitted to them, and the exact position of each row in it.

Sums over rows are sums of integers below 2**53, which float64 adds exactly in any order, so that chunking, the number
of threads and the BLAS change no bit of the result.

Features are weighted by their residual variance given the other features, and eigenvalues are shrunk as in Gavish and
Donoho, Optimal shrinkage of singular values, IEEE Transactions on Information Theory 63, 2017. Scaled rows, basis and
directions are rounded to integers whose products stay below 2**53, so that the position of a row does not depend on
its tile or on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from dask_dca.geometry.arrays import Floats
from dask_dca.geometry.exact import EXACT_LIMIT

_SUM_BITS: Final = 52  # bits of an exact sum of integers
_MIN_ENERGY: Final = 2.0**-900  # least squared Huber radius: its inverse can be squared
ENTRY_BITS: Final = 22  # the Huber radius becomes about 2**22; rows up to 16 times as far are still exact
BASIS_BITS: Final = 26  # entries of the basis are rounded to multiples of 2**-26
_MAX_LENGTH_BITS: Final = 32  # positions longer than 2**32 are shortened to that length
MIN_HEIGHT: Final = 1e-280  # rows whose height is below this, or above its inverse, are rescaled before the division
POSITION_BITS: Final = 4  # binary digits of a position after the point
# factor on the noise variance in the Wiener filter where heights are uneven, and where they are even: rows then have
# the same noise, and the filter acts on outliers only. Measured over the regimes of benchmarks/quality/regimes.py
_NOISE_FACTORS: Final = (5.0, 10.0)


@dataclass(frozen=True)
class Moments:
    """Exact second moments of weighted rows, augmented by the weight itself as the last coordinate."""

    gram: Floats  # (p + 1, p + 1)
    n_rows: int

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.gram + other.gram, self.n_rows + other.n_rows)


@dataclass(frozen=True)
class PowerSums:
    """The weighted covariance times some columns, and its trace, both exact."""

    product: Floats  # (p, m)
    trace: float
    n_rows: int

    def __add__(self, other: PowerSums) -> PowerSums:
        return PowerSums(self.product + other.product, self.trace + other.trace, self.n_rows + other.n_rows)


def robust_center(scaled: Floats) -> tuple[Floats, float]:
    """Compute the mean of a sample of rows and the squared Huber radius, beyond which rows lose weight.

    scaled (n, p): usable rows of the sample, as `ratios` returns them. Returns mean (p,); energy: three times the
    median squared distance from the mean, positive.
    """
    mean = scaled.mean(axis=0)
    squares = scaled - mean
    distances = np.square(squares, out=squares).sum(axis=1)
    energy = 3.0 * float(np.median(distances))
    if energy <= 0.0:  # more than half of the rows are equal
        energy = 3.0 * float(distances.mean())
    return mean, energy if energy > _MIN_ENERGY else 1.0


def moments(scaled: Floats, mean: Floats, energy: float, n_total: int) -> Moments:
    """Accumulate exact second moments of rows with Huber weights.

    scaled (n, p): usable rows, as `ratios` returns them; mean (p,), energy: from `robust_center`; n_total: number of
    rows of all calls together, at most 2**26, which decides how finely rows are rounded. The Gram matrix consists of
    integers over a power of two, so that moments can be merged in any order.
    """
    weighted = np.empty((len(scaled), len(mean) + 1))
    centred = np.subtract(scaled, mean, out=weighted[:, :-1])
    weights = huber_weights(centred, energy)
    scale = 2.0 ** (_factor_bits(n_total) - length_exponent(energy))
    centred *= (weights * scale)[:, None]
    weighted[:, -1] = weights * (scale * np.sqrt(energy))
    np.rint(weighted, out=weighted)
    return Moments(weighted.T @ weighted / scale**2, len(scaled))


def huber_weights(centred: Floats, energy: float) -> Floats:
    """Compute Huber weights min(1, radius / distance), shape (n,).

    centred (n, p): rows less the centre; energy: squared radius.
    """
    distances = np.vecdot(centred, centred)
    return np.sqrt(np.minimum(1.0, energy / np.maximum(distances, energy * 2.0**-60)))


def _factor_bits(n_total: int) -> int:
    """Number of bits that each of two factors may have so that the sum of n_total products is exact."""
    return (_SUM_BITS - int(np.ceil(np.log2(max(n_total, 1))))) // 2


def power_sums(scaled: Floats, mean: Floats, energy: float, gain: Floats, basis: Floats, n_total: int) -> PowerSums:
    """Multiply the weighted covariance of rows by a basis without forming it: one step of a power iteration.

    scaled (n, p): usable rows; mean (p,), energy: centre and squared radius of the Huber weights; gain (p,): feature
    weights, at most one; basis (p, m): orthonormal columns; n_total: number of rows of all calls together. Returns
    exact sums over these rows.
    """
    centred = scaled - mean
    centred *= huber_weights(centred, energy)[:, None]
    centred *= gain
    unit = length_exponent(energy)
    fine = np.rint(centred * 2.0 ** (26 - unit))
    coarse_scale = 2.0 ** (_factor_bits(n_total) - unit)
    coarse = np.rint(centred * coarse_scale)
    seen = fine @ np.rint(basis * 2.0**26)
    seen = np.rint(seen * (coarse_scale * 2.0 ** (unit - 52)))
    return PowerSums(coarse.T @ seen / coarse_scale**2, float((coarse**2).sum() / coarse_scale**2), len(scaled))


def length_exponent(energy: float) -> int:
    """Return the binary exponent e of a length: sqrt(energy) is in [2**(e-1), 2**e)."""
    return int(np.frexp(np.sqrt(energy))[1])


SPARE_EIGENPAIRS: Final = 10  # eigenpairs that are computed beyond the number of anchors
_EDGE_SCATTER: Final = 1.02  # multiple of the noise edge above which an eigenvalue counts as signal


@dataclass(frozen=True)
class Subspace:
    """The subspace fitted to moments: centre, feature weights, leading eigenvectors and their shrinkage factors."""

    mean: Floats  # (p,)
    feature_weights: Floats  # (p,) in (0, 1]
    vectors: Floats  # (p, m) leading eigenvectors of the weighted covariance
    spectrum: Floats  # (m,) their eigenvalues
    shrinkage: Floats  # (r,) factors in (0, 1] of the first r eigenvectors, those above the noise edge
    scales: Floats  # (r,) standard deviation along each after shrinkage
    dim: int  # d <= r, the first d directions contain the anchors
    noise: float  # noise variance per coordinate
    rank: int  # number of eigenvalues above the noise edge, which is estimated from all others

    @property
    def basis(self) -> Floats:
        """Eigenvectors above the noise edge, shape (p, r)."""
        return self.vectors[:, : len(self.shrinkage)]


def top_eigenpairs(matrix: Floats, count: int, *, check_finite: bool = True) -> tuple[Floats, Floats]:
    """Compute the greatest eigenvalues of a symmetric matrix, increasing, and their eigenvectors.

    matrix (p, p): symmetric. Returns (count,) and (p, count). LAPACK's default driver fails on some matrices with equal
    eigenvalues, such as the identity; divide and conquer then computes all pairs.
    """
    p = len(matrix)
    try:
        found = linalg.eigh(matrix, subset_by_index=(p - count, p - 1), check_finite=check_finite)
    except linalg.LinAlgError:
        found = [part[..., p - count :] for part in linalg.eigh(matrix, driver="evd", check_finite=check_finite)]
    return found[0], found[1]


def subspace(total: Moments, mean: Floats, energy: float, n_components: int) -> Subspace:
    """Compute the shrunken subspace that contains the anchors from the moments of all usable rows.

    mean (p,), energy: centre and squared radius of the moments; n_components: number of anchors k. The subspace has at
    most k - 1 dimensions: in them the cone of k anchors is a polytope of k vertices.
    """
    n, p = total.n_rows, len(mean)
    shift = total.gram[-1, :-1] / np.sqrt(energy)
    mass = total.gram[-1, -1] / energy
    covariance = (total.gram[:-1, :-1] - np.outer(shift, shift) / mass) / n
    weights = _feature_weights(covariance, n)
    covariance *= np.outer(weights, weights)
    rank = min(n_components + SPARE_EIGENPAIRS, p, max(n - 1, 1))
    spectrum, vectors = top_eigenpairs(covariance, rank, check_finite=False)
    return _shrunken_subspace(
        mean + shift / mass, weights, spectrum[::-1], vectors[:, ::-1], np.trace(covariance), n, n_components
    )


def subspace_of_rows(scaled: Floats, mean: Floats, energy: float, n_components: int) -> Subspace:
    """Compute the same subspace from n x n inner products of rows instead of p x p moments.

    scaled (n, p): usable rows, n at most slightly above p; mean (p,), energy: centre and squared Huber radius.
    """
    n, p = scaled.shape
    centred = scaled - mean
    huber = huber_weights(centred, energy)
    shift = (huber**2) @ centred / (huber @ huber)
    centred -= shift
    centred *= huber[:, None]
    weights = _row_feature_weights(centred, float(np.einsum("ij,ij->", centred, centred)) / (n * p))
    centred *= weights
    products = centred @ centred.T / n
    rank = min(n_components + SPARE_EIGENPAIRS, max(n - 1, 1), p)
    spectrum, left = top_eigenpairs(products, rank, check_finite=False)
    spectrum, left = np.maximum(spectrum[::-1], 0.0), left[:, ::-1]
    there = spectrum > 1e-13 * max(float(spectrum[0]), 1e-300)
    vectors = centred.T @ (left / np.sqrt(np.where(there, n * spectrum, np.inf)))
    return _shrunken_subspace(mean + shift, weights, spectrum, vectors, np.trace(products), n, n_components)


def orthonormal(columns: Floats) -> Floats:
    """Return an orthonormal basis (p, m) of the span of columns (p, m), m <= p."""
    return linalg.qr(columns, mode="economic", check_finite=False)[0]


def subspace_of_power(start: Subspace, basis: Floats, sums: PowerSums, n_components: int) -> Subspace:
    """Compute the subspace of the Ritz values and vectors of a power iteration over all rows, shrunken.

    start: the subspace of a sample, whose centre and feature weights are kept; basis (p, m): orthonormal columns that
    the covariance was multiplied by.
    """
    product = sums.product / sums.n_rows
    inner = basis.T @ product
    spectrum, turn = linalg.eigh((inner + inner.T) / 2.0)
    spectrum, turn = np.maximum(spectrum[::-1], 0.0), turn[:, ::-1]
    vectors = orthonormal(product @ turn)
    return _shrunken_subspace(
        start.mean,
        start.feature_weights,
        spectrum,
        vectors,
        sums.trace / sums.n_rows,
        sums.n_rows,
        n_components,
    )


def _shrunken_subspace(
    mean: Floats, weights: Floats, spectrum: Floats, vectors: Floats, trace: float, n: int, n_components: int
) -> Subspace:
    """Estimate noise and dimension from decreasing eigenvalues, shrink these, and fix the signs of the vectors."""
    p = len(mean)
    spectrum = np.maximum(spectrum, 0.0)
    noise = _noise_variance(float(trace), spectrum, n, p)
    factors = shrinkage(spectrum, noise, p / n)
    d = max(1, min(n_components - 1, int((factors > 0).sum())))
    rank = _signal_rank(float(trace), spectrum, n, p)
    wide = max(d, min(rank, len(spectrum)))
    factors = np.where(factors > 0, factors, 1.0)[:wide]
    scales = np.maximum(factors * np.sqrt(spectrum[:wide]), 1e-12 * np.sqrt(max(spectrum[0], 1e-300)))
    peaks = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    vectors = vectors * np.where(peaks < 0, -1.0, 1.0)
    return Subspace(mean, weights, vectors, spectrum, factors, scales, d, noise, rank)


def _feature_weights(covariance: Floats, n: int) -> Floats:
    """Weights min(1, sqrt(median(v) / v_j)), where v_j is the variance of feature j given the other features."""
    p = len(covariance)
    level = float(np.trace(covariance)) / p
    if level <= 0.0 or p < 2:
        return np.ones(p)
    ridge = level * (0.001 if n > 2 * p else 0.1)
    # the entries of scaled rows sum to one, so the covariance is singular along all ones unless a constant is added
    lifted = covariance + level
    lifted[np.diag_indices(p)] += ridge
    factor, _ = linalg.lapack.dpotrf(lifted, lower=1, overwrite_a=1)
    inverse, _ = linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    return _weights_from_noise(1.0 / np.diag(inverse), level)


def _weights_from_noise(noise: Floats, level: float) -> Floats:
    typical = float(np.median(noise)) + 1e-6 * level
    return np.minimum(1.0, np.sqrt(typical / noise))


def _row_feature_weights(rows: Floats, level: float) -> Floats:
    """Compute `_feature_weights` from few rows (n, p) by the matrix inversion lemma."""
    n, p = rows.shape
    if level <= 0.0:
        return np.ones(p)
    ridge = level * (0.001 if n > 2 * p else 0.1)
    lifted = np.full((n + 1, p), np.sqrt(level))
    np.divide(rows, np.sqrt(n), out=lifted[:-1])
    inner = lifted @ lifted.T
    inner[np.diag_indices(n + 1)] += ridge
    factor = linalg.cholesky(inner, lower=True, check_finite=False, overwrite_a=True)
    half = linalg.blas.dtrsm(1.0, factor, lifted.T, side=1, lower=1, trans_a=1, overwrite_b=1).T  # in place
    return _weights_from_noise(ridge / np.maximum(1.0 - np.einsum("ij,ij->j", half, half), 1e-12), level)


def _noise_variance(trace: float, leading: Floats, n: int, p: int) -> float:
    """Noise variance per coordinate, from the energy outside the leading eigenvectors."""
    rank = len(leading)
    left = max(trace - float(leading.sum()), 0.0)
    return left / (p * (1.0 - rank / p) * (1.0 - rank / n)) if rank < min(n, p) else 0.0


def _signal_rank(trace: float, spectrum: Floats, n: int, p: int) -> int:
    """Number of eigenvalues above the noise edge estimated from all others: a fixed point from above."""
    rank = min(len(spectrum), max(1, 2 * min(n, p) // 3))  # the last directions may be null, not noise
    while True:
        edge = _noise_variance(trace, spectrum[:rank], n, p) * (1.0 + np.sqrt(p / n)) ** 2
        above = int((spectrum[:rank] > max(_EDGE_SCATTER * edge, 1e-9 * float(spectrum[0]))).sum())
        if above == rank:
            return rank
        rank = above


def shrinkage(spectrum: Floats, noise: float, aspect: float) -> Floats:
    """Shrinkage factor of each coordinate, zero at and below the noise edge; aspect = p / n."""
    floor = max(noise, 1e-14 * float(spectrum[0]), 1e-300)
    y = spectrum / floor
    inside = (y - aspect - 1.0) ** 2 - 4.0 * aspect
    above = (np.sqrt(y) > 1.0 + np.sqrt(aspect)) & (inside > 0.0)
    return np.where(above, np.sqrt(np.where(above, inside, 0.0)) / np.maximum(y, 1e-300), 0.0)


@dataclass(frozen=True)
class Evenness:
    """The level of heights that are equal up to noise, and the band about it that noise explains."""

    level: float = 0.0
    band: float = 0.0  # zero where heights differ by more than noise

    def divisors(self, height: Floats) -> Floats:
        """Return what rows are divided by: their heights, moved towards the level by at most the band."""
        return height - np.clip(height - self.level, -self.band, self.band) if self.band else height


UNEVEN: Final = Evenness()


@dataclass(frozen=True)
class SubspaceCoordinates:
    """A coordinate frame: everything that turns a row into its integer position in the subspace."""

    axis: Floats | None  # (p,) reference axis, None for all ones
    offset: Floats  # (p,)
    gain: Floats  # (p,)
    basis: Floats  # (p, r) integers
    shrinkage: Floats  # (r,)
    dim: int  # d: the first d coordinates contain the anchors, the others show what these miss
    unit: float  # integer length that corresponds to a length of one
    even: Evenness = UNEVEN


def ratios(rows: ArrayLike, axis: Floats | None = None, even: Evenness = UNEVEN) -> tuple[Floats, NDArray[np.bool_]]:
    """Scale rows to height one along the reference axis.

    rows (n, p): any real dtype; axis (p,): reference axis a, all ones if None. Returns
    scaled (n, p): x / (x . a); rows that can't be scaled are zero; usable (n,): false where x . a is not positive (an
    all-zero row, a row behind the axis) or not finite.
    """
    scaled = np.array(rows, dtype=np.float64, order="C")
    usable = scale_in_place(scaled, axis, even)
    scaled[~usable] = 0.0
    return scaled, usable


def scale_in_place(rows: Floats, axis: Floats | None = None, even: Evenness = UNEVEN) -> NDArray[np.bool_]:
    """Scale rows to height one along the reference axis, in place.

    rows (n, p): C-contiguous; those that can't be scaled are unchanged, up to a power of two; axis (p,): reference axis
    a, all ones if None. Returns (n,): which rows were scaled, as for `ratios`.
    """
    height = heights(rows, axis)
    extreme = ~((height > MIN_HEIGHT) & (height < 1.0 / MIN_HEIGHT))
    divisors = even.divisors(height)
    if extreme.any():
        peaks = np.abs(rows[extreme]).max(axis=1, initial=0.0)
        peaks[~np.isfinite(peaks)] = 0.0
        rows[extreme] = np.ldexp(rows[extreme], -np.frexp(peaks)[1][:, None])
        height[extreme] = divisors[extreme] = heights(rows[extreme], axis)
    usable = np.isfinite(height) & (height > 0)
    rows /= np.where(usable, divisors, 1.0)[:, None]
    return usable


def heights(rows: Floats, axis: Floats | None) -> Floats:
    """Compute the heights X . a of rows along the reference axis; a row's does not depend on the other rows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return rows.sum(axis=1) if axis is None else (rows * axis).sum(axis=1)


def subspace_frame(sub: Subspace, axis: Floats | None, energy: float, even: Evenness = UNEVEN) -> SubspaceCoordinates:
    """Prepare the integer coordinate frame of a subspace.

    axis (p,): reference axis, all ones if None; energy: squared Huber radius, which sets the unit of length.
    """
    unit = 2.0 ** (ENTRY_BITS - length_exponent(energy))
    gain, basis = sub.feature_weights * unit, np.rint(sub.basis * 2.0**BASIS_BITS)
    return SubspaceCoordinates(axis, sub.mean * gain, gain, basis, sub.shrinkage, sub.dim, unit, even)


def coordinates(scaled: Floats, frame: SubspaceCoordinates) -> Floats:
    """Compute the positions of scaled rows in the subspace, shrunk towards the mean by their noise.

    scaled (n, p): usable rows, as `ratios` returns them; overwritten. Returns (n, r): integers below 2**32 in
    magnitude; those of a row are the same in any tile.
    """
    inside, energy = _project(scaled, frame)
    leading, near = (inside[:, : frame.dim] ** 2).sum(axis=1), (inside**2).sum(axis=1)
    return np.rint(shrink_positions(inside, energy, frame, leading, near))


def feature_offsets(places: Floats, frame: SubspaceCoordinates) -> Floats:
    """Map positions (n, r) from `coordinates` to offsets (n, p) from the mean in weighted features."""
    unit = 2.0 ** (POSITION_BITS + BASIS_BITS) * frame.unit
    return places @ frame.basis.T / unit


def shrink_positions(
    inside: Floats, energy: Floats, frame: SubspaceCoordinates, leading: Floats, near: Floats
) -> Floats:
    """Shrink coordinates by the subspace's factors and, row by row, by a Wiener filter.

    inside (n, r): coordinates, overwritten; energy (n,): squared distances of the rows from the centre; leading, near
    (n,): squared lengths of the first d coordinates, and of all. Returns (n, r): positions before rounding.
    """
    d, r = frame.dim, inside.shape[1]
    inside *= (frame.shrinkage * 2.0**POSITION_BITS).astype(inside.dtype)
    inside[:, :d] *= _wiener_factor(leading, energy, noise_weight(frame, d)).astype(inside.dtype)[:, None]
    if d < r:
        inside[:, d:] *= _wiener_factor(near, energy, noise_weight(frame, r)).astype(inside.dtype)[:, None]
    limit = 2.0**_MAX_LENGTH_BITS - 2.0**8
    if (np.vecdot(inside, inside) > limit**2 / 2.0).any():
        length = np.sqrt((inside**2).sum(axis=1))
        inside *= np.minimum(1.0, limit / np.maximum(length, 1.0)).astype(inside.dtype)[:, None]
    return inside


def _wiener_factor(near: Floats, energy: Floats, noise: float) -> Floats:
    """Estimate the share of each row's energy inside that is signal, from its energy outside."""
    return near / (near + np.maximum(energy - near, 0.0) * noise + 1.0)


def noise_weight(frame: SubspaceCoordinates, dim: int) -> float:
    """Return the noise energy in the first `dim` directions as a multiple of the energy outside them."""
    return _NOISE_FACTORS[frame.even.band > 0.0] * dim / max(len(frame.basis) - dim, 1)


def residual_energy(scaled: Floats, frame: SubspaceCoordinates) -> Floats:
    """Compute the squared distance of each row from the directions that contain the anchors.

    scaled (n, p): usable rows, as `ratios` returns them. Returns (n,), in the frame's unit, squared.
    """
    inside, energy = _project(scaled.copy(), frame)
    return np.maximum(energy - (inside[:, : frame.dim] ** 2).sum(axis=1), 0.0)


def subspace_residuals(scaled: Floats, frame: SubspaceCoordinates) -> tuple[Floats, Floats]:
    """Compute the residuals of rows outside the subspace and the direction of their centre.

    A spike in one feature changes the height, and so moves the scaled row along the centre.
    scaled (n, p): usable rows, as `ratios` returns them; overwritten. Returns residuals (n, p): integers in the frame's
    unit, zero for rows so far out that products are not exact; energy (n,): squared distances from the centre.
    """
    known = basis_and_centre(frame)
    scaled *= frame.gain
    scaled -= frame.offset
    np.rint(scaled, out=scaled)
    energy = np.einsum("ij,ij->i", scaled, scaled)
    scaled[~(energy <= EXACT_LIMIT)] = 0.0
    inside = np.rint(np.ldexp(scaled @ known, -BASIS_BITS))  # both products are sums below 2**53
    scaled -= np.ldexp(inside @ known.T, -BASIS_BITS)
    return np.rint(scaled, out=scaled), energy


def basis_and_centre(frame: SubspaceCoordinates) -> Floats:
    """Return the integer basis and, as a further column, the direction of the centre outside it; (p, r + 1)."""
    centre = frame.offset - frame.basis @ (frame.basis.T @ frame.offset) * 2.0 ** (-2 * BASIS_BITS)
    length = float(np.sqrt((centre**2).sum()))
    return np.hstack([frame.basis, np.rint(centre * (2.0**BASIS_BITS / max(length, 1.0)))[:, None]])


def residual_rounding(frame: SubspaceCoordinates) -> float:
    """Bound by how much rounding lengthens a residual: entries are rounded twice, coordinates once."""
    p, r = frame.basis.shape
    return float(np.sqrt(p) + 0.51 * np.sqrt(r + 1.0)) + 1.0


def _project(scaled: Floats, frame: SubspaceCoordinates) -> tuple[Floats, Floats]:
    """Compute coordinates (n, r) and squared distances from the centre (n,); overwrites `scaled`."""
    scaled *= frame.gain
    scaled -= frame.offset
    np.rint(scaled, out=scaled)
    energy = np.einsum("ij,ij->i", scaled, scaled)
    shift = np.zeros(len(scaled), dtype=np.int32)
    far = energy > EXACT_LIMIT
    if far.any():
        shift[far] = _excess_bits(scaled[far])
        scaled[far] = np.rint(np.ldexp(scaled[far], -shift[far][:, None]))
        energy[far] = np.ldexp(np.einsum("ij,ij->i", scaled[far], scaled[far]), 2 * shift[far])
    return np.ldexp(scaled @ frame.basis, shift[:, None] - BASIS_BITS), energy


def _excess_bits(rows: Floats) -> NDArray[np.int32]:
    """Number of bits by which each row must be shifted so that its squared length is exact, by its largest entry."""
    exponents = np.frexp(np.abs(rows).max(axis=1))[1]
    length = int(np.ceil(np.log2(rows.shape[1]) / 2))
    return np.maximum(exponents + length - 26, 0).astype(np.int32)
