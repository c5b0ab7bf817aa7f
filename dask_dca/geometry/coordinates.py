"""From rows to places: ratios to the reference axis, and each row's exact place in the subspace.

Scaled rows, basis and directions are rounded to integers whose products stay below 2**53, so that matrix products
are exact: a row has the same place in any tile, on any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.moments import length_exponent

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from dask_dca.geometry.arrays import Floats
    from dask_dca.geometry.moments import Subspace


ENTRY_BITS: Final = 22  # the square root of the Huber radius becomes 2**22: rows 16 times as far are still exact
BASIS_BITS: Final = 26
EXACT: Final = 2.0**52  # a sum of squares up to here had no rounding
_FAR_BITS: Final = 32  # rows further out than 2**32 are drawn in to there
POSITION_BITS: Final = 4  # binary digits of a row's place after the point
_DISTRUST: Final = (
    5.0  # noise inside the subspace counts five times: measured over the regimes of benchmarks/quality/regimes.py
)


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


def ratios(rows: ArrayLike, axis: Floats | None = None) -> tuple[Floats, NDArray[np.bool_]]:
    """Scale rows to height one along the reference axis.

    rows (n, p): rows of any real dtype; axis (p,): reference axis a; all ones if None. Returns scaled (n, p): x / (x .
    a); rows that can't be scaled are zero; usable (n,): false where x . a is not positive (an all-zero row, a row
    behind the axis) or not finite.
    """
    scaled = np.array(rows, dtype=np.float64, order="C")
    usable = scale_in_place(scaled, axis)
    scaled[~usable] = 0.0
    return scaled, usable


def scale_in_place(rows: Floats, axis: Floats | None = None) -> NDArray[np.bool_]:
    """Scale rows to height one along the reference axis, in place.

    rows (n, p): C-contiguous rows; those that can't be scaled stay as they are, up to a power of two; axis (p,):
    reference axis a; all ones if None. Returns (n,): which rows were scaled, as for `ratios`.
    """
    height = heights(rows, axis)
    extreme = ~((height > 1e-280) & (height < 1e280))
    if extreme.any():
        peaks = np.abs(rows[extreme]).max(axis=1, initial=0.0)
        peaks[~np.isfinite(peaks)] = 0.0
        rows[extreme] = np.ldexp(rows[extreme], -np.frexp(peaks)[1][:, None])
        height[extreme] = heights(rows[extreme], axis)
    usable = np.isfinite(height) & (height > 0)
    rows /= np.where(usable, height, 1.0)[:, None]
    return usable


def heights(rows: Floats, axis: Floats | None) -> Floats:
    """Measure rows along the reference axis, X . a: the same number wherever the row is computed."""
    with np.errstate(over="ignore", invalid="ignore"):
        return rows.sum(axis=1) if axis is None else (rows * axis).sum(axis=1)


def frame(sub: Subspace, axis: Floats | None, energy: float) -> SubspaceCoordinates:
    """Prepare the integer form of a subspace.

    axis (p,): reference axis; all ones if None; energy: huber radius, squared: the unit of length.
    """
    unit = 2.0 ** (ENTRY_BITS - length_exponent(energy))
    gain, basis = sub.feature_weights * unit, np.rint(sub.basis * 2.0**BASIS_BITS)
    return SubspaceCoordinates(axis, sub.mean * gain, gain, basis, sub.shrinkage, sub.dim, unit)


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
    return _DISTRUST * dim / max(len(frame.basis) - dim, 1)


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
