"""Ensembles of random planes.

A plane is spanned by a reference axis and a random direction. All randomness is a counter-based hash: the
numbers of plane *t* are a function of the seed and *t* alone, so any worker regenerates any plane, and no
plane is ever sent over the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import numpy as np
from scipy import sparse
from scipy.special import ndtri

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]
    Pairs: TypeAlias = Floats | Numbers | sparse.csr_array

__all__ = ["ENSEMBLES", "Ensemble", "check_ensemble", "child_seeds", "directions", "plane_pairs", "uniforms"]

Ensemble = Literal["mixed", "row-space", "whitened", "gaussian", "sparse", "unit", "data"]
ENSEMBLES: Final[tuple[str, ...]] = get_args(Ensemble)

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_NONZERO_SHARE: Final = 1 / 3  # of the entries of a sparse direction: Achlioptas' database-friendly signs


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finalise 64-bit words as SplitMix64 does (Steele, Lea and Flood, OOPSLA 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def child_seeds(seed: int, index: NDArray[np.integer] | int) -> NDArray[np.uint64]:
    """Return the child seeds of a seed, one for each index.

    seed: the root seed, 0 <= seed < 2**64; index: the numbers of the children (of sub-problems, of rows), in any order.
    Returns the seeds, of the shape of `index`.
    """
    counter = np.asarray(index).astype(np.uint64) + np.uint64(1)
    with np.errstate(over="ignore"):
        return _mix(np.uint64(seed) + counter * _GOLDEN)


def uniforms(seeds: NDArray[np.uint64], width: int) -> Floats:
    """Draw a row of uniform numbers from each seed.

    seeds (s,): one seed a row, as `child_seeds` returns them; width: how many numbers a row has. Returns (s, width):
    numbers inside (0, 1), on the grid (i + 1/2) / 2**53.
    """
    counter = np.arange(1, width + 1, dtype=np.uint64) * _GOLDEN
    with np.errstate(over="ignore"):
        words = _mix(seeds[:, None] + counter[None, :])
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def check_ensemble(ensemble: str) -> str:
    """Return the name of an ensemble after checking it.

    ensemble: one of `ENSEMBLES`, or "auto" for the measured default, "mixed".
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

    The mixture that is the default, "mixed", takes half of its directions from the row space of the data, a quarter
    isotropic, a quarter whitened: no pure ensemble finds the rays of every kind of data.
    index (s,); scales (d,); features (p, d). Returns (s, d).
    Raises ValueError: the ensemble needs `features` and there are none.
    """
    seeds = child_seeds(seed, index)
    if ensemble in ("sparse", "unit", "data"):
        return _unit(_feature_weights(ensemble, seeds, _required(features, ensemble)))
    normals = ndtri(uniforms(seeds, len(scales)))
    scales = np.ldexp(scales, -np.frexp(scales.max())[1])  # of no unit: tiny ones have no reciprocal
    powers = {"row-space": 1.0, "gaussian": 0.0, "whitened": -1.0}
    if ensemble in powers:
        return _unit(normals * scales ** powers[ensemble])
    quarter = np.asarray(index) % 4
    exponent = np.where(quarter < 2, 1.0, np.where(quarter == 2, 0.0, -1.0))
    return _unit(normals * scales[None, :] ** exponent[:, None])


def plane_pairs(
    ensemble: str, seed: int, index: NDArray[np.integer], n_features: int, rows: Floats | None = None
) -> Pairs:
    """Regenerate planes as the paper has them: two independent directions in feature space.

    In the paper the matrix of one plane is Phi (p x 2), drawn from the random ensemble M of Algorithm 1.
    index (s,); rows (m, p). Returns first and second direction of each plane: unit vectors, float64 of shape (2, s, p);
    for "sparse" in sparse rows, the s first directions above the s second ones, shape (2 s, p); for "unit" the
    features' numbers, int64 of shape (2, s).
    Raises ValueError: the ensemble is "data" without `rows`, or lives inside a subspace only.
    """
    if ensemble in ("mixed", "row-space", "whitened"):
        msg = f"ensemble {ensemble!r} needs a subspace; with method='paper' use 'gaussian', 'sparse', 'unit' or 'data'"
        raise ValueError(msg)
    both = np.stack([2 * np.asarray(index), 2 * np.asarray(index) + 1]).ravel()
    seeds = child_seeds(seed, both)
    if ensemble == "unit":
        return _two_picks(seeds, n_features)
    if ensemble == "sparse":
        return _sparse_signs(seeds, n_features)
    if ensemble == "gaussian":
        pairs = ndtri(uniforms(seeds, n_features))
    else:
        vectors = _required(rows, ensemble)
        pairs = vectors[_two_picks(seeds, len(vectors)).ravel()]
    return _unit(pairs).reshape(2, -1, n_features)


def _picks(seeds: NDArray[np.uint64], count: int) -> Numbers:
    """One of `count` numbers for each seed."""
    return (uniforms(seeds, 1)[:, 0] * count).astype(np.int64)


def _two_picks(seeds: NDArray[np.uint64], count: int) -> Numbers:
    """Two different numbers, if there are two, for each plane: the same one twice spans no plane."""
    one, other = np.split(seeds, 2)
    first, second = _picks(one, count), _picks(other, max(count - 1, 1))
    return np.stack([first, np.where((second >= first) & (count > 1), second + 1, second)])


def _sparse_signs(seeds: NDArray[np.uint64], width: int) -> sparse.csr_array:
    """Draw sqrt(p) features with replacement, and a sign for each of the different ones; unit vectors."""
    drawn = (uniforms(seeds, int(np.ceil(np.sqrt(width)))) * (2 * width)).astype(np.int64)
    drawn = np.take_along_axis(drawn, np.argsort(drawn >> 1, axis=1, kind="stable"), axis=1)
    kept = np.diff(drawn >> 1, axis=1, prepend=-1) > 0  # of a feature drawn twice, the first sign
    counts = kept.sum(axis=1)
    signs = (1.0 - 2.0 * (drawn & 1)) / np.sqrt(counts)[:, None]
    ends = np.concatenate([[0], np.cumsum(counts)])
    return sparse.csr_array((signs[kept], (drawn >> 1)[kept], ends), shape=(len(seeds), width))


def _required(features: Floats | None, ensemble: str) -> Floats:
    if features is None:
        msg = f"ensemble {ensemble!r} needs the vectors to draw from: pass them as the last argument"
        raise ValueError(msg)
    return features


def _feature_weights(ensemble: str, seeds: NDArray[np.uint64], vectors: Floats) -> Floats:
    """Combine `vectors` (p, d) by sparse signs, or pick one of them for each seed."""
    if ensemble == "sparse":
        u = uniforms(seeds, len(vectors))
        signs = np.where(u < _NONZERO_SHARE / 2, -1.0, np.where(u < _NONZERO_SHARE, 1.0, 0.0))
        # integers, whose sums are exact: the same direction in any set of planes and on any processor
        return signs @ np.rint(np.ldexp(vectors, 34 - np.frexp(np.abs(vectors).max(initial=0.0))[1]))
    return vectors[_picks(seeds, len(vectors))]


def _unit(vectors: Floats) -> Floats:
    """Scale rows to unit length; a row of zeros (a sparse draw of nothing) becomes the first axis."""
    sizes = np.frexp(np.abs(vectors).max(axis=1, keepdims=True, initial=0.0))[1]
    vectors = np.ldexp(vectors.astype(np.float64, copy=False), -sizes)  # whose squares are in range; no bit changes
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    first = np.zeros(vectors.shape[1])
    first[:1] = 1.0
    return np.where(norms > 0, vectors / np.where(norms > 0, norms, 1.0), first)
