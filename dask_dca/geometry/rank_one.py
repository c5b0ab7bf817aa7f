"""Planes in the space of outer products, spanned by axes of rank one: a row's coordinates need no outer product.

The coordinate of vec(x (x) y) on the axis a (x) b is (x . a)(y . b). Axes are drawn view by view; all coordinates
are products of exact numbers, so that they do not depend on how the rows are cut. Axes of any rank take a part of the
outer product, that on a random set of feature pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from scipy.special import ndtri

from dask_dca.geometry.angles import inner_products, integer_pairs
from dask_dca.geometry.planes import child_seeds, plane_pairs, uniforms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.planes import Pairs

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]
    Axes: TypeAlias = "tuple[Pairs, Pairs] | PairAxes"

__all__ = [
    "PAIRS",
    "PairAxes",
    "draw_axes",
    "draw_pair_axes",
    "draw_weights",
    "n_pairs",
    "outer_products",
    "pointed_planes",
    "whole_axes",
]

PAIRS: Final = "pairs"  # the ensemble of Gaussian planes on a random set of feature pairs

_FIRST, _SECOND, _WEIGHTS, _OMEGA = range(4)  # children of the seed: axes of two views, weights, feature pairs


@dataclass(frozen=True)
class PairAxes:
    """Axes of any rank, on a set of feature pairs.

    first, second (m,): the pairs: features of either view; axes (2, s, m): whole vectors, as `integer_pairs` returns
    them.
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
    all planes together see a random set of feature pairs, the paper's Omega; seed: root seed of the planes; widths:
    numbers of features of the two views, p1 and p2; sample: both views of some rows, for the ensemble "data". Returns
    first, second: the vectors a and b, as `integer_pairs` returns them.
    """
    roots = [int(root) for root in child_seeds(seed, np.array([_FIRST, _SECOND]))]
    if ensemble == "data":
        roots[1] = roots[0]  # the same rows
    drawn = []
    for view, root in enumerate(roots):
        rows = None if sample is None else _scaled(sample[view])
        drawn.append(integer_pairs(plane_pairs(ensemble, root, np.arange(count), widths[view], rows)))
    return drawn[0], drawn[1]


def n_pairs(widths: tuple[int, int], n_anchors: int) -> int:
    """Size of the paper's Omega, the feature pairs that are enough by the theory of matrix completion.

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

    first, second: both views of some rows. A row's coordinates do not depend on the other rows; axes: as `draw_axes` or
    `draw_pair_axes` returns them. Returns coordinates (n, l, s): coordinates, each row in a unit of its own; exponents
    (n,): the units: a row's coordinates times 2**exponent are those on unit vectors.
    """
    if isinstance(axes, PairAxes):
        units = [np.frexp(np.abs(view).max(axis=1, initial=0.0))[1] for view in (first, second)]
        left, right = (np.ldexp(view, -unit[:, None]) for view, unit in zip((first, second), units, strict=True))
        products, exponents = inner_products(left[:, axes.first] * right[:, axes.second], axes.axes)
        return products, exponents + units[0] + units[1]
    (left, one), (right, other) = inner_products(first, axes[0]), inner_products(second, axes[1])
    return left * right, one + other


def whole_axes(vectors: Floats) -> Floats:
    """Round vectors to whole numbers, as axes of their own directions.

    vectors (s, p): vectors; zero ones stay zero. Returns (1, s, p): whole numbers along the unit vectors.
    """
    scaled = _scaled(vectors)
    norms = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
    return np.asarray(integer_pairs(scaled / np.where(norms > 0, norms, 1.0)), dtype=np.float64)[None]


def draw_weights(seed: int, count: int, width: int) -> Floats:
    """Draw the paper's eta: vectors from the unit sphere, whose products with the third view weigh the rows.

    seed: root seed of the planes; width: number of features p3 of the third view. Returns (1, count, p3): whole numbers
    along unit vectors.
    """
    root = int(child_seeds(seed, _WEIGHTS))
    return whole_axes(ndtri(uniforms(child_seeds(root, np.arange(count)), width)))


def pointed_planes(coordinates: Floats) -> NDArray[np.bool_]:
    """Tell on which planes some points leave a gap of more than half a turn.

    coordinates (n, 2, s): coordinates in each plane; points at the origin are left out. Returns (s,): false also where
    all points are at the origin.
    """
    there = coordinates.any(axis=1)
    angles = np.arctan2(coordinates[:, 1], coordinates[:, 0])
    one = np.take_along_axis(angles, there.argmax(axis=0)[None], axis=0)  # in place of points at the origin
    angles = np.sort(np.where(there, angles, one), axis=0)
    gaps = np.diff(angles, axis=0, append=angles[:1] + 2.0 * np.pi)
    return np.asarray(there.any(axis=0) & (gaps.max(axis=0) > np.pi))


def _scaled(vectors: Floats) -> Floats:
    """Scale rows by powers of two: squares of huge and of tiny entries are out of range."""
    exponents = np.frexp(np.abs(vectors).max(axis=1, initial=0.0))[1]
    return np.ldexp(vectors, -exponents[:, None])
