"""Robust moments of rows, summed exactly, the subspace that they give, and each row's exact place in it.

Every sum over rows that decides something is a sum of integers below 2**53: float64 adds them exactly, in any
order, so no chunking, thread count or BLAS changes a bit of the result.

Features are weighted by their noise given the others, eigenvalues shrunk as Gavish and Donoho do (Optimal
shrinkage of singular values, IEEE Transactions on Information Theory 63, 2017). Scaled rows, basis and directions are
rounded to integers whose products stay below 2**53: a row has the same place in any tile, on any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import linalg

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from dask_dca.geometry.arrays import Floats

_EXACT_BITS: Final = 52
_LEAST_ENERGY: Final = 2.0**-900  # of rows of height one that differ at all: its inverse can be squared
ENTRY_BITS: Final = 22  # the square root of the Huber radius becomes 2**22: rows 16 times as far are still exact
BASIS_BITS: Final = 26
EXACT: Final = 2.0**52  # a sum of squares up to here had no rounding
_FAR_BITS: Final = 32  # rows further out than 2**32 are drawn in to there
LEAST_HEIGHT: Final = 1e-280  # of a row that is scaled as it is, and the inverse of the greatest
POSITION_BITS: Final = 4  # binary digits of a row's place after the point
# noise inside the subspace counts five times, or ten where all rows have the same, so that it only tells foreign ones:
# measured over the regimes of benchmarks/quality/regimes.py
_DISTRUST: Final = (5.0, 10.0)


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
    """Return the mean of a sample of rows and the radius beyond which rows lose weight.

    scaled (n, p): usable rows of the sample, as `ratios` returns them. Returns mean (p,): their mean; energy: three
    times the median squared distance from the mean; never zero.
    """
    mean = scaled.mean(axis=0)
    squares = scaled - mean
    distances = np.square(squares, out=squares).sum(axis=1)
    energy = 3.0 * float(np.median(distances))
    if energy <= 0.0:  # more than half of the rows are equal
        energy = 3.0 * float(distances.mean())
    return mean, energy if energy > _LEAST_ENERGY else 1.0


def moments(scaled: Floats, mean: Floats, energy: float, n_total: int) -> Moments:
    """Accumulate exact second moments of rows with Huber weights.

    scaled (n, p): usable rows, as `ratios` returns them; mean, energy (p,): what `robust_center` returned: gross
    outliers can't steer the subspace; n_total: how many rows all calls together will see, at most 2**26; it decides how
    finely rows are rounded. Returns its Gram matrix is a matrix of integers over a power of two, so merging has no
    order.
    """
    weighted = np.empty((len(scaled), len(mean) + 1))
    centred = np.subtract(scaled, mean, out=weighted[:, :-1])
    weights = huber_weights(centred, energy)
    scale = 2.0 ** (_row_bits(n_total) - length_exponent(energy))
    centred *= (weights * scale)[:, None]
    weighted[:, -1] = weights * (scale * np.sqrt(energy))
    np.rint(weighted, out=weighted)
    return Moments(weighted.T @ weighted / scale**2, len(scaled))


def huber_weights(centred: Floats, energy: float) -> Floats:
    """Weigh rows by their distance from the centre.

    centred (n, p): rows less the centre; energy: squared radius within which a row weighs one. Returns (n,): min(1,
    radius / distance).
    """
    distances = np.vecdot(centred, centred)
    return np.sqrt(np.minimum(1.0, energy / np.maximum(distances, energy * 2.0**-60)))


def _row_bits(n_total: int) -> int:
    """How many bits two rounded factors may have each, so that n_total of their products add up exactly."""
    return (_EXACT_BITS - int(np.ceil(np.log2(max(n_total, 1))))) // 2


def power_sums(scaled: Floats, mean: Floats, energy: float, gain: Floats, basis: Floats, n_total: int) -> PowerSums:
    """Multiply the weighted covariance of rows by a basis without forming it: one step of a power iteration.

    scaled (n, p): usable rows; mean, energy (p,): centre and radius of the Huber weights; gain (p,): feature weights,
    at most one; basis (p, m): orthonormal columns; n_total: how many rows all calls together will see. Returns sums
    over these rows, exact, to be added in any order.
    """
    centred = scaled - mean
    centred *= huber_weights(centred, energy)[:, None]
    centred *= gain
    unit = length_exponent(energy)
    fine = np.rint(centred * 2.0 ** (26 - unit))
    coarse_scale = 2.0 ** (_row_bits(n_total) - unit)
    coarse = np.rint(centred * coarse_scale)
    seen = fine @ np.rint(basis * 2.0**26)
    seen = np.rint(seen * (coarse_scale * 2.0 ** (unit - 52)))
    return PowerSums(coarse.T @ seen / coarse_scale**2, float((coarse**2).sum() / coarse_scale**2), len(scaled))


def length_exponent(energy: float) -> int:
    """Return the binary exponent of a length.

    Returns the e with sqrt(energy) in [2**(e-1), 2**e).
    """
    return int(np.frexp(np.sqrt(energy))[1])


SPARE: Final = 10  # eigenpairs beyond the number of anchors
_EDGE_SCATTER: Final = 1.02  # eigenvalues of noise scatter about the edge


@dataclass(frozen=True)
class Subspace:
    """What the moments say: centre, feature weights, leading directions, and how far to shrink along each."""

    mean: Floats  # (p,)
    feature_weights: Floats  # (p,), g in (0, 1]
    vectors: Floats  # (p, m) leading eigenvectors of the weighted covariance
    spectrum: Floats  # (m,) their eigenvalues
    shrinkage: Floats  # (r,) factors f in (0, 1] of the first r, which stand out from the noise
    scales: Floats  # (r,) standard deviation along each after shrinkage
    dim: int  # d <= r, the first d hold the anchors
    noise: float  # noise variance a coordinate
    rank: int  # eigenvalues above the edge of the noise, which is measured on all others

    @property
    def basis(self) -> Floats:
        """Directions that stand out from the noise, V, shape (p, r)."""
        return self.vectors[:, : len(self.shrinkage)]


def top_eigenpairs(matrix: Floats, count: int, *, check_finite: bool = True) -> tuple[Floats, Floats]:
    """Find the greatest eigenvalues of a symmetric matrix, increasing, and their vectors.

    matrix (p, p): symmetric; LAPACK's quick driver gives up on some whose eigenvalues are equal, as those of an
    identity are, and all pairs are then worked out by another. Returns (count,) and (p, count).
    """
    p = len(matrix)
    try:
        found = linalg.eigh(matrix, subset_by_index=(p - count, p - 1), check_finite=check_finite)
    except linalg.LinAlgError:
        found = [part[..., p - count :] for part in linalg.eigh(matrix, driver="evd", check_finite=check_finite)]
    return found[0], found[1]


def subspace(total: Moments, mean: Floats, energy: float, n_components: int) -> Subspace:
    """Find the shrunk subspace that holds the anchors, from moments.

    total: moments of all rows that were used; mean, energy (p,): the centre and radius that the moments were taken
    with; n_components: number of anchors k; the subspace has at most k - 1 dimensions. Returns in it the cone of k
    anchors is a polytope of k vertices.
    """
    n, p = total.n_rows, len(mean)
    shift = total.gram[-1, :-1] / np.sqrt(energy)
    mass = total.gram[-1, -1] / energy
    covariance = (total.gram[:-1, :-1] - np.outer(shift, shift) / mass) / n
    weights = _feature_weights(covariance, n)
    covariance *= np.outer(weights, weights)
    rank = min(n_components + SPARE, p, max(n - 1, 1))
    spectrum, vectors = top_eigenpairs(covariance, rank, check_finite=False)
    return _shrunk(
        mean + shift / mass, weights, spectrum[::-1], vectors[:, ::-1], np.trace(covariance), n, n_components
    )


def subspace_of_rows(scaled: Floats, mean: Floats, energy: float, n_components: int) -> Subspace:
    """Find the same subspace from few rows of many features: their n x n products instead of p x p moments.

    scaled (n, p): usable rows, n below p or not much above; mean, energy (p,): centre and radius of the Huber weights.
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
    rank = min(n_components + SPARE, max(n - 1, 1), p)
    spectrum, left = top_eigenpairs(products, rank, check_finite=False)
    spectrum, left = np.maximum(spectrum[::-1], 0.0), left[:, ::-1]
    there = spectrum > 1e-13 * max(float(spectrum[0]), 1e-300)
    vectors = centred.T @ (left / np.sqrt(np.where(there, n * spectrum, np.inf)))
    return _shrunk(mean + shift, weights, spectrum, vectors, np.trace(products), n, n_components)


def orthonormal(columns: Floats) -> Floats:
    """Return an orthonormal basis of some columns: the next basis of a power iteration.

    columns (p, m): columns, m <= p. Returns (p, m): the basis.
    """
    return linalg.qr(columns, mode="economic", check_finite=False)[0]


def subspace_of_power(start: Subspace, basis: Floats, sums: PowerSums, n_components: int) -> Subspace:
    """Finish a power iteration over all rows that began with the subspace of a sample.

    start: the sample's subspace, whose centre and feature weights are kept; basis (p, m): orthonormal columns. Returns
    ritz values and vectors, shrunk.
    """
    product = sums.product / sums.n_rows
    inner = basis.T @ product
    spectrum, turn = linalg.eigh((inner + inner.T) / 2.0)
    spectrum, turn = np.maximum(spectrum[::-1], 0.0), turn[:, ::-1]
    vectors = orthonormal(product @ turn)
    return _shrunk(
        start.mean,
        start.feature_weights,
        spectrum,
        vectors,
        sums.trace / sums.n_rows,
        sums.n_rows,
        n_components,
    )


def _shrunk(
    mean: Floats, weights: Floats, spectrum: Floats, vectors: Floats, trace: float, n: int, n_components: int
) -> Subspace:
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
    """Weights min(1, sqrt(b / nu_j)); nu_j is the variance of feature j given the others, b its median."""
    p = len(covariance)
    level = float(np.trace(covariance)) / p
    if level <= 0.0 or p < 2:
        return np.ones(p)
    ridge = level * (0.001 if n > 2 * p else 0.1)
    # scaled rows sum to one, so the covariance is singular along all ones: the constant term lifts it
    lifted = covariance + level
    lifted[np.diag_indices(p)] += ridge
    factor, _ = linalg.lapack.dpotrf(lifted, lower=1, overwrite_a=1)
    inverse, _ = linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    return _weights_from_noise(1.0 / np.diag(inverse), level)


def _weights_from_noise(noise: Floats, level: float) -> Floats:
    typical = float(np.median(noise)) + 1e-6 * level
    return np.minimum(1.0, np.sqrt(typical / noise))


def _row_feature_weights(rows: Floats, level: float) -> Floats:
    """The same as `_feature_weights` from few rows of many features, by the matrix inversion lemma."""
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
    """Energy outside the leading directions, a coordinate."""
    rank = len(leading)
    left = max(trace - float(leading.sum()), 0.0)
    return left / (p * (1.0 - rank / p) * (1.0 - rank / n)) if rank < min(n, p) else 0.0


def _signal_rank(trace: float, spectrum: Floats, n: int, p: int) -> int:
    """How many eigenvalues exceed the edge of the noise that all others make."""
    rank = min(len(spectrum), max(1, 2 * min(n, p) // 3))  # the last directions may be null, not noise
    while True:
        edge = _noise_variance(trace, spectrum[:rank], n, p) * (1.0 + np.sqrt(p / n)) ** 2
        above = int((spectrum[:rank] > max(_EDGE_SCATTER * edge, 1e-9 * float(spectrum[0]))).sum())
        if above == rank:
            return rank
        rank = above


def shrinkage(spectrum: Floats, noise: float, aspect: float) -> Floats:
    """Factor on each coordinate, 0 at and below the edge of the noise; aspect = p / n."""
    floor = max(noise, 1e-14 * float(spectrum[0]), 1e-300)
    y = spectrum / floor
    inside = (y - aspect - 1.0) ** 2 - 4.0 * aspect
    above = (np.sqrt(y) > 1.0 + np.sqrt(aspect)) & (inside > 0.0)
    return np.where(above, np.sqrt(np.where(above, inside, 0.0)) / np.maximum(y, 1e-300), 0.0)


@dataclass(frozen=True)
class Evenness:
    """A level of heights, and a band about it in which noise moves them."""

    level: float = 0.0
    band: float = 0.0  # zero: heights are what they seem

    def divisors(self, height: Floats) -> Floats:
        """Return what rows are divided by: their heights, drawn towards the level by as much as the band."""
        return height - np.clip(height - self.level, -self.band, self.band) if self.band else height


UNEVEN: Final = Evenness()


@dataclass(frozen=True)
class SubspaceCoordinates:
    """All that turns a row into its place in the subspace, in integer units."""

    axis: Floats | None  # (p,) reference axis, None for all ones
    offset: Floats  # (p,)
    gain: Floats  # (p,)
    basis: Floats  # (p, r) integers
    shrinkage: Floats  # (r,)
    dim: int  # d, the first coordinates, which hold the anchors; the others only tell what these miss
    unit: float  # a length of one
    even: Evenness = UNEVEN


def ratios(rows: ArrayLike, axis: Floats | None = None, even: Evenness = UNEVEN) -> tuple[Floats, NDArray[np.bool_]]:
    """Scale rows to height one along the reference axis.

    rows (n, p): rows of any real dtype; axis (p,): reference axis a; all ones if None; even: of the heights. Returns
    scaled (n, p): x / (x . a); rows that can't be scaled are zero; usable (n,): false where x . a is not positive (an
    all-zero row, a row behind the axis) or not finite.
    """
    scaled = np.array(rows, dtype=np.float64, order="C")
    usable = scale_in_place(scaled, axis, even)
    scaled[~usable] = 0.0
    return scaled, usable


def scale_in_place(rows: Floats, axis: Floats | None = None, even: Evenness = UNEVEN) -> NDArray[np.bool_]:
    """Scale rows to height one along the reference axis, in place.

    rows (n, p): C-contiguous rows; those that can't be scaled stay as they are, up to a power of two; axis (p,):
    reference axis a; all ones if None; even: of the heights. Returns (n,): which rows were scaled, as for `ratios`.
    """
    height = heights(rows, axis)
    extreme = ~((height > LEAST_HEIGHT) & (height < 1.0 / LEAST_HEIGHT))
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
    """Measure rows along the reference axis, X . a: the same number wherever the row is computed."""
    with np.errstate(over="ignore", invalid="ignore"):
        return rows.sum(axis=1) if axis is None else (rows * axis).sum(axis=1)


def frame(sub: Subspace, axis: Floats | None, energy: float, even: Evenness = UNEVEN) -> SubspaceCoordinates:
    """Prepare the integer form of a subspace.

    axis (p,): reference axis; all ones if None; energy: huber radius, squared: the unit of length; even: of heights.
    """
    unit = 2.0 ** (ENTRY_BITS - length_exponent(energy))
    gain, basis = sub.feature_weights * unit, np.rint(sub.basis * 2.0**BASIS_BITS)
    return SubspaceCoordinates(axis, sub.mean * gain, gain, basis, sub.shrinkage, sub.dim, unit, even)


def coordinates(scaled: Floats, frame: SubspaceCoordinates) -> Floats:
    """Place scaled rows in the subspace, each pulled to the mean as far as it is noisy or foreign.

    scaled (n, p): usable rows, as `ratios` returns them; overwritten. Returns (n, r): integers below 2**32 in
    magnitude: a row's numbers are the same in any tile.
    """
    inside, energy = _project(scaled, frame)
    leading, near = (inside[:, : frame.dim] ** 2).sum(axis=1), (inside**2).sum(axis=1)
    return np.rint(trusted(inside, energy, frame, leading, near))


def features(places: Floats, frame: SubspaceCoordinates) -> Floats:
    """Return where places are among the weighted features, from the centre.

    places (n, r): as `coordinates` returns them. Returns (n, p): offsets from the mean, in features times their
    weights.
    """
    unit = 2.0 ** (POSITION_BITS + BASIS_BITS) * frame.unit
    return places @ frame.basis.T / unit


def trusted(inside: Floats, energy: Floats, frame: SubspaceCoordinates, leading: Floats, near: Floats) -> Floats:
    """Shrink coordinates by the subspace's factors, and by what the energy outside says of the noise inside.

    inside (n, r): coordinates; overwritten; energy (n,): whole squared lengths of the rows; leading, near (n,): squared
    lengths of the first d coordinates, and of all. Returns (n, r): places, before they are rounded.
    """
    d, r = frame.dim, inside.shape[1]
    inside *= (frame.shrinkage * 2.0**POSITION_BITS).astype(inside.dtype)
    inside[:, :d] *= _trust(leading, energy, distrust(frame, d)).astype(inside.dtype)[:, None]
    if d < r:
        inside[:, d:] *= _trust(near, energy, distrust(frame, r)).astype(inside.dtype)[:, None]
    limit = 2.0**_FAR_BITS - 2.0**8
    if (np.vecdot(inside, inside) > limit**2 / 2.0).any():
        length = np.sqrt((inside**2).sum(axis=1))
        inside *= np.minimum(1.0, limit / np.maximum(length, 1.0)).astype(inside.dtype)[:, None]
    return inside


def _trust(near: Floats, energy: Floats, doubt: float) -> Floats:
    """Share of a row's energy inside that is not noise: a Wiener filter, row by row."""
    return near / (near + np.maximum(energy - near, 0.0) * doubt + 1.0)


def distrust(frame: SubspaceCoordinates, dim: int) -> float:
    """Return the weight of the noise that the energy outside some directions tells of.

    dim: how many of its directions. Returns energy of the noise inside, as a multiple of the energy outside.
    """
    return _DISTRUST[frame.even.band > 0.0] * dim / max(len(frame.basis) - dim, 1)


def residual_energy(scaled: Floats, frame: SubspaceCoordinates) -> Floats:
    """Measure how much of each row lies outside the directions that hold the anchors.

    scaled (n, p): usable rows, as `ratios` returns them. Returns (n,): squared lengths, in the frame's units.
    """
    inside, energy = _project(scaled.copy(), frame)
    return np.maximum(energy - (inside[:, : frame.dim] ** 2).sum(axis=1), 0.0)


def outside(scaled: Floats, frame: SubspaceCoordinates) -> tuple[Floats, Floats]:
    """Take out of rows what the subspace holds, and their centre's direction: what a spike in one feature moves all by.

    scaled (n, p): usable rows, as `ratios` returns them; overwritten. Returns residuals (n, p): integers, in the
    frame's units, the same in any tile; zero for rows so far out that their products are not exact; energy (n,): whole
    squared lengths of the rows.
    """
    known = held_directions(frame)
    scaled *= frame.gain
    scaled -= frame.offset
    np.rint(scaled, out=scaled)
    energy = np.einsum("ij,ij->i", scaled, scaled)
    scaled[~(energy <= EXACT)] = 0.0
    inside = np.rint(np.ldexp(scaled @ known, -BASIS_BITS))  # both products are sums below 2**53
    scaled -= np.ldexp(inside @ known.T, -BASIS_BITS)
    return np.rint(scaled, out=scaled), energy


def held_directions(frame: SubspaceCoordinates) -> Floats:
    """Return the basis, and beside it the centre's direction outside of it.

    Returns (p, r + 1): integers, as the basis.
    """
    centre = frame.offset - frame.basis @ (frame.basis.T @ frame.offset) * 2.0 ** (-2 * BASIS_BITS)
    length = float(np.sqrt((centre**2).sum()))
    return np.hstack([frame.basis, np.rint(centre * (2.0**BASIS_BITS / max(length, 1.0)))[:, None]])


def rounding_outside(frame: SubspaceCoordinates) -> float:
    """Bound how much longer than a row's residual the rounded one may be: entries are rounded twice, places once."""
    p, r = frame.basis.shape
    return float(np.sqrt(p) + 0.51 * np.sqrt(r + 1.0)) + 1.0


def _project(scaled: Floats, frame: SubspaceCoordinates) -> tuple[Floats, Floats]:
    """Return a row's coordinates (n, r) and its whole energy (n,); overwrites `scaled`."""
    scaled *= frame.gain
    scaled -= frame.offset
    np.rint(scaled, out=scaled)
    energy = np.einsum("ij,ij->i", scaled, scaled)
    shift = np.zeros(len(scaled), dtype=np.int32)
    far = energy > EXACT
    if far.any():
        shift[far] = _excess_bits(scaled[far])
        scaled[far] = np.rint(np.ldexp(scaled[far], -shift[far][:, None]))
        energy[far] = np.ldexp(np.einsum("ij,ij->i", scaled[far], scaled[far]), 2 * shift[far])
    return np.ldexp(scaled @ frame.basis, shift[:, None] - BASIS_BITS), energy


def _excess_bits(rows: Floats) -> NDArray[np.int32]:
    """By how many powers of two a row has to shrink for its energy to be exact, judged by its largest entry."""
    exponents = np.frexp(np.abs(rows).max(axis=1))[1]
    length = int(np.ceil(np.log2(rows.shape[1]) / 2))
    return np.maximum(exponents + length - 26, 0).astype(np.int32)
