"""Ensembles of random planes, angles of rows in them, and planes spanned by outer products.

A plane is spanned by a reference axis and a random direction. Random numbers are counter-based hashes: those of plane
*t* are a function of the seed and *t* alone, so that any worker regenerates any plane, and no plane is sent over the
network.

The coordinate of vec(x (x) y) on the axis a (x) b is (x . a)(y . b). Axes are drawn for each view; all coordinates are
products of exact numbers, so that they do not depend on chunks. Axes of any rank use the entries of the outer product
at a random set of feature pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from dask_dca.geometry.arrays import Floats, Numbers

Pairs: TypeAlias = Floats | Numbers | sparse.csr_array
Axes: TypeAlias = "tuple[Pairs, Pairs] | PairAxes"

Ensemble = Literal["mixed", "row-space", "whitened", "gaussian", "sparse", "unit", "data"]
ENSEMBLES: Final[tuple[str, ...]] = get_args(Ensemble)

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
# share of non-zero entries of a sparse direction, as in Achlioptas' database-friendly projections
_NONZERO_SHARE: Final = 1 / 3


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finalise 64-bit words as SplitMix64 does (Steele, Lea and Flood, OOPSLA 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def child_seeds(seed: int, index: NDArray[np.integer] | int) -> NDArray[np.uint64]:
    """Return one child seed for each index, in the shape of `index`.

    seed: root seed, 0 <= seed < 2**64; index: numbers of the children (of sub-problems, of rows), in any order.
    """
    counter = np.asarray(index).astype(np.uint64) + np.uint64(1)
    with np.errstate(over="ignore"):
        return _mix(np.uint64(seed) + counter * _GOLDEN)


def uniforms(seeds: NDArray[np.uint64], width: int) -> Floats:
    """Draw a row of uniform random numbers from each seed.

    seeds (s,): as `child_seeds` returns them. Returns (s, width): numbers in (0, 1), on the grid (i + 1/2) / 2**53.
    """
    counter = np.arange(1, width + 1, dtype=np.uint64) * _GOLDEN
    with np.errstate(over="ignore"):
        words = _mix(seeds[:, None] + counter[None, :])
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def binary_scale(rows: Floats) -> Floats:
    """Scale each row by a power of two to a greatest magnitude between one half and one; zero rows stay zero.

    rows (n, p): finite. There is no rounding, but entries 2**1000 times smaller than the greatest may underflow.
    """
    peaks = np.abs(rows).max(axis=1, initial=0.0)
    return np.ldexp(rows, -np.frexp(peaks)[1][:, None])


def check_ensemble(ensemble: str) -> str:
    """Check the name of an ensemble and return it.

    ensemble: one of `ENSEMBLES`, or "auto" for the default, "mixed".
    Raises ValueError: the name is unknown.
    """
    name = "mixed" if ensemble == "auto" else ensemble
    if name not in ENSEMBLES:
        msg = f"unknown ensemble {ensemble!r}; use 'auto' or one of {', '.join(map(repr, ENSEMBLES))}"
        raise ValueError(msg)
    return name


def directions(
    ensemble: str, seed: int, index: NDArray[np.integer], scales: Floats, features: Floats | None = None
) -> Floats:
    """Regenerate the directions of some planes inside a subspace.

    The default, "mixed", draws half of its directions from the row space of the data, a quarter isotropic, and a
    quarter whitened: no pure ensemble finds the rays of every kind of data.
    index (s,); scales (d,); features (p, d). Returns (s, d).
    Raises ValueError: the ensemble needs `features` and there are none.
    """
    seeds = child_seeds(seed, index)
    if ensemble in ("sparse", "unit", "data"):
        return _unit(_feature_weights(ensemble, seeds, _require_vectors(features, ensemble)))
    normals = ndtri(uniforms(seeds, len(scales)))
    scales = np.ldexp(scales, -np.frexp(scales.max())[1])  # independent of their unit: tiny ones have no reciprocal
    powers = {"row-space": 1.0, "gaussian": 0.0, "whitened": -1.0}
    if ensemble in powers:
        return _unit(normals * scales ** powers[ensemble])
    quarter = np.asarray(index) % 4
    exponent = np.where(quarter < 2, 1.0, np.where(quarter == 2, 0.0, -1.0))
    return _unit(normals * scales[None, :] ** exponent[:, None])


def plane_pairs(
    ensemble: str, seed: int, index: NDArray[np.integer], n_features: int, rows: Floats | None = None
) -> Pairs:
    """Regenerate the paper's planes, each spanned by two independent directions in feature space.

    In the paper a plane is a matrix Phi (p x 2), drawn from the random ensemble M of Algorithm 1.
    index (s,); rows (m, p). Returns first and second direction of each plane: unit vectors, float64 of shape (2, s, p);
    for "sparse" in sparse rows, the s first directions above the s second ones, shape (2 s, p); for "unit" the
    features' numbers, int64 of shape (2, s).
    Raises ValueError: the ensemble is "data" without `rows`, or is defined inside a subspace only.
    """
    if ensemble in ("mixed", "row-space", "whitened"):
        msg = f"ensemble {ensemble!r} needs a subspace; with method='paper' use 'gaussian', 'sparse', 'unit' or 'data'"
        raise ValueError(msg)
    both = np.stack([2 * np.asarray(index), 2 * np.asarray(index) + 1]).ravel()
    seeds = child_seeds(seed, both)
    if ensemble == "unit":
        return _pick_pairs(seeds, n_features)
    if ensemble == "sparse":
        return _sparse_signs(seeds, n_features)
    if ensemble == "gaussian":
        pairs = ndtri(uniforms(seeds, n_features))
    else:
        vectors = _require_vectors(rows, ensemble)
        pairs = vectors[_pick_pairs(seeds, len(vectors)).ravel()]
    return _unit(pairs).reshape(2, -1, n_features)


def _pick_numbers(seeds: NDArray[np.uint64], count: int) -> Numbers:
    """Draw one of `count` numbers for each seed."""
    return (uniforms(seeds, 1)[:, 0] * count).astype(np.int64)


def _pick_pairs(seeds: NDArray[np.uint64], count: int) -> Numbers:
    """Draw two different numbers, if there are two, for each plane: one direction twice spans no plane."""
    one, other = np.split(seeds, 2)
    first, second = _pick_numbers(one, count), _pick_numbers(other, max(count - 1, 1))
    return np.stack([first, np.where((second >= first) & (count > 1), second + 1, second)])


def _sparse_signs(seeds: NDArray[np.uint64], width: int) -> sparse.csr_array:
    """Draw sqrt(p) features with replacement, and a sign for each of the different ones; unit vectors."""
    drawn = (uniforms(seeds, int(np.ceil(np.sqrt(width)))) * (2 * width)).astype(np.int64)
    drawn = np.take_along_axis(drawn, np.argsort(drawn >> 1, axis=1, kind="stable"), axis=1)
    kept = np.diff(drawn >> 1, axis=1, prepend=-1) > 0  # the first sign of a feature that was drawn twice
    counts = kept.sum(axis=1)
    signs = (1.0 - 2.0 * (drawn & 1)) / np.sqrt(counts)[:, None]
    ends = np.concatenate([[0], np.cumsum(counts)])
    return sparse.csr_array((signs[kept], (drawn >> 1)[kept], ends), shape=(len(seeds), width))


def _require_vectors(features: Floats | None, ensemble: str) -> Floats:
    if features is None:
        msg = f"ensemble {ensemble!r} needs the vectors to draw from: pass them as the last argument"
        raise ValueError(msg)
    return features


def _feature_weights(ensemble: str, seeds: NDArray[np.uint64], vectors: Floats) -> Floats:
    """Combine `vectors` (p, d) by sparse signs, or pick one of them for each seed."""
    if ensemble == "sparse":
        u = uniforms(seeds, len(vectors))
        signs = np.where(u < _NONZERO_SHARE / 2, -1.0, np.where(u < _NONZERO_SHARE, 1.0, 0.0))
        # integers, whose sums are exact, so that a direction has the same bits in any set of planes, on any processor
        return signs @ np.rint(np.ldexp(vectors, 34 - np.frexp(np.abs(vectors).max(initial=0.0))[1]))
    return vectors[_pick_numbers(seeds, len(vectors))]


def _unit(vectors: Floats) -> Floats:
    """Scale rows to unit length; a row of zeros (a sparse draw without entries) becomes the first axis."""
    vectors = binary_scale(vectors.astype(np.float64, copy=False))  # exact; the squares are then in range
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    first = np.zeros(vectors.shape[1])
    first[:1] = 1.0
    return np.where(norms > 0, vectors / np.where(norms > 0, norms, 1.0), first)


_AXIS_BITS: Final = 26  # integer directions have a length of about 2**26
_KEY_BITS: Final = 24  # cosines are compared on a grid, so that scaled copies of a row mostly tie
_AXIS_LENGTH: Final = 2.0**_AXIS_BITS - 2.0**8  # length of a unit vector after rounding to integers


def integer_pairs(pairs: Pairs) -> Pairs:
    """Round the two unit directions of each plane to integers, so that projections are exact.

    Returns integers in float64; numbers of single features, which are exact, are unchanged.
    """
    if not isinstance(pairs, np.ndarray):
        return sparse.csr_array((np.rint(pairs.data * _AXIS_LENGTH), pairs.indices, pairs.indptr), shape=pairs.shape)
    return pairs if pairs.dtype.kind == "i" else np.rint(pairs * _AXIS_LENGTH)


def inner_products(rows: Floats, pairs: Pairs) -> tuple[Floats, NDArray[np.int32]]:
    """Inner products of rows with the directions of planes, exact up to the rounding of each row.

    rows (n, p); the products of a row do not depend on the other rows. Returns products (n, l, s), l = 2 directions per
    plane, or as many as a dense array has; exponents (n,): the products of a row times 2**exponent are those with unit
    vectors.
    """
    size = np.maximum(rows.max(axis=1, initial=0.0), -rows.min(axis=1, initial=0.0))
    exponents = np.frexp(size)[1]
    if pairs.dtype.kind == "i":
        return np.ldexp(rows[:, pairs], -exponents[:, None, None]), exponents
    exponents = exponents + int(np.ceil(np.log2(rows.shape[1]) / 2))
    whole = np.rint(np.ldexp(rows, _AXIS_BITS - exponents[:, None]))
    if not isinstance(pairs, np.ndarray):
        products = (pairs @ whole.T).reshape(2, -1, len(rows)).transpose(2, 0, 1)
    else:
        levels, count, width = pairs.shape
        products = (whole @ pairs.reshape(levels * count, width).T).reshape(len(rows), levels, count)
    return products, exponents - 2 * _AXIS_BITS


def cosine_keys(coordinates: Floats) -> Floats:
    """Cosine of the angle to the second direction of each plane, the paper's axis phi, on a grid.

    coordinates (n, 2, s): as `inner_products` returns them, each row in any unit. Returns (n, s): cosines times 2**24,
    rounded; NaN at the origin.
    """
    across, along = coordinates[:, 0], coordinates[:, 1]
    length = np.sqrt(across**2 + along**2)
    return np.rint(np.divide(along, np.where(length > 0.0, length, np.nan)) * 2.0**_KEY_BITS)


def keys_outside(keys: Floats, least: Floats, greatest: Floats) -> Floats:
    """Rank rows outside the range of angles between two keys by their distance from it: the paper's ()_+.

    keys (n, s): of the rows. Returns (n, 2, s): greater for nearer rows, before and beyond the range; NaN within it.
    """
    # the cosine falls as the angle grows
    return np.stack([np.where(keys >= greatest, -keys, np.nan), np.where(keys <= least, keys, np.nan)], axis=1)


def signed_angles(coordinates: Floats, middle: Floats) -> Floats:
    """Signed angle of each projected row from a projected middle direction.

    coordinates (n, 2, s): as `inner_products` returns them; middle (2, s): those of a vector inside the cone, such as
    the mean direction: a plane is pointed if and only if all signed angles from it lie within an interval shorter than
    pi. Returns (n, s): radians in (-pi, pi], NaN for rows whose projection is zero.
    """
    across, along = coordinates[:, 0], coordinates[:, 1]
    x, y = middle
    angle = np.arctan2(y * across - x * along, x * across + y * along)
    return np.where((across == 0.0) & (along == 0.0), np.nan, angle)


PAIR_ENSEMBLE: Final = "pairs"  # the ensemble of Gaussian planes on a random set of feature pairs

# numbers of the seed's children for the axes of the two views, the weights, and the feature pairs
_FIRST, _SECOND, _WEIGHTS, _OMEGA = range(4)


@dataclass(frozen=True)
class PairAxes:
    """Axes of any rank on a set of feature pairs.

    first, second (m,): the pairs, features of either view; axes (2, s, m): integers from `integer_pairs`.
    """

    first: Numbers
    second: Numbers
    axes: Pairs


def draw_axes(
    ensemble: str,
    seed: int,
    count: int,
    widths: tuple[int, int],
    sample: tuple[Floats, Floats] | None = None,
) -> tuple[Pairs, Pairs]:
    """Draw the axes of planes: two of the form a (x) b for each plane.

    ensemble: "gaussian", "sparse", "data" (a and b are the two views of one row), or "unit": single features, so that
    all planes together use a random set of feature pairs, the paper's Omega; seed: root seed of the planes; widths:
    numbers of features of the two views, p1 and p2; sample: both views of some rows, for the ensemble "data". Returns
    first, second: the vectors a and b, as `integer_pairs` returns them.
    """
    roots = [int(root) for root in child_seeds(seed, np.array([_FIRST, _SECOND]))]
    if ensemble == "data":
        roots[1] = roots[0]  # the same rows
    drawn = []
    for view, root in enumerate(roots):
        rows = None if sample is None else binary_scale(sample[view])
        drawn.append(integer_pairs(plane_pairs(ensemble, root, np.arange(count), widths[view], rows)))
    return drawn[0], drawn[1]


def n_pairs(widths: tuple[int, int], n_anchors: int) -> int:
    """Size of the paper's Omega, the number of feature pairs that suffices by the theory of matrix completion.

    widths: numbers of features of the two views, p1 and p2. Returns m = max(p1, p2) k ln(p1 + p2)^2, rounded up; at
    most p1 p2.
    """
    return min(math.prod(widths), math.ceil(max(widths) * n_anchors * math.log(sum(widths)) ** 2))


def draw_pair_axes(seed: int, count: int, widths: tuple[int, int], size: int) -> PairAxes:
    """Draw a random set of feature pairs, and Gaussian planes in its space.

    seed: root seed of the planes; widths: numbers of features of the two views, p1 and p2. Returns different pairs, and
    the axes.
    """
    every = math.prod(widths)
    root = child_seeds(seed, np.array([_OMEGA]))
    if every <= 4 * size:
        chosen = np.argsort(uniforms(root, every)[0], kind="stable")[:size]
    else:
        drawn = (uniforms(root, 2 * size)[0] * every).astype(np.int64)
        chosen = drawn[np.sort(np.unique(drawn, return_index=True)[1])][:size]
    first, second = np.divmod(chosen, widths[1])
    planes = plane_pairs("gaussian", int(child_seeds(seed, _FIRST)), np.arange(count), len(chosen))
    return PairAxes(first, second, integer_pairs(planes))


def outer_products(first: Floats, second: Floats, axes: Axes) -> tuple[Floats, NDArray[np.int32]]:
    """Coordinates of the outer products of two views on axes, exact up to the rounding of each row.

    first, second: both views of some rows; axes: from `draw_axes` or `draw_pair_axes`. Returns coordinates (n, l, s),
    those of a row do not depend on the other rows; exponents (n,): the coordinates of a row times 2**exponent are those
    on unit vectors.
    """
    if isinstance(axes, PairAxes):
        units = [np.frexp(np.abs(view).max(axis=1, initial=0.0))[1] for view in (first, second)]
        left, right = (np.ldexp(view, -unit[:, None]) for view, unit in zip((first, second), units, strict=True))
        products, exponents = inner_products(left[:, axes.first] * right[:, axes.second], axes.axes)
        return products, exponents + units[0] + units[1]
    (left, one), (right, other) = inner_products(first, axes[0]), inner_products(second, axes[1])
    return left * right, one + other


def integer_axes(vectors: Floats) -> Floats:
    """Round vectors (s, p) to integer axes (1, s, p) along their directions; zero vectors stay zero."""
    scaled = binary_scale(vectors)
    norms = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
    return np.asarray(integer_pairs(scaled / np.where(norms > 0, norms, 1.0)), dtype=np.float64)[None]


def draw_weights(seed: int, count: int, width: int) -> Floats:
    """Draw the paper's eta: unit vectors whose products with the third view are weights of the rows.

    seed: root seed of the planes; width: number of features p3 of the third view. Returns integers (1, count, p3).
    """
    root = int(child_seeds(seed, _WEIGHTS))
    return integer_axes(ndtri(uniforms(child_seeds(root, np.arange(count)), width)))


def pointed_planes(coordinates: Floats) -> NDArray[np.bool_]:
    """Determine in which planes the points leave an angular gap of more than pi.

    coordinates (n, 2, s): in each plane; points at the origin are ignored. Returns (s,); false where all are there.
    """
    there = coordinates.any(axis=1)
    angles = np.arctan2(coordinates[:, 1], coordinates[:, 0])
    one = np.take_along_axis(angles, there.argmax(axis=0)[None], axis=0)  # in place of points at the origin
    angles = np.sort(np.where(there, angles, one), axis=0)
    gaps = np.diff(angles, axis=0, append=angles[:1] + 2.0 * np.pi)
    return np.asarray(there.any(axis=0) & (gaps.max(axis=0) > np.pi))
