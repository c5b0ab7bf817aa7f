"""Landmarks, codes of rows on them, and the graph that codes make with its leading eigenvectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from dask_dca.geometry import planes
from dask_dca.geometry.moments import top_eigenpairs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats

    Places = NDArray[np.intp]

_BITS: Final = 24  # products of two quantised unit vectors are sums of integers below 2**53: exact in any order
_PLANES: Final = 8  # whose cells give half of the landmarks, at most
_NEAREST: Final = 30  # landmarks that a row is a combination of, at most
_KEPT: Final = 10  # of them keep their weight: the largest
RIDGE: Final = 0.1
_SWEEPS: Final = 8
_SAME: Final = 2.0**-44  # squared distance a coordinate, up to which rows are the same except for rounding
_NEAR_ONE: Final = 2.0**-16  # how far from one a product of two vectors that are the same may be
_SLAB: Final = 1024  # rows that are solved at once
_APART: Final = 4.0  # between the products of one landmark and of the next, where all are sorted in one line
_DENSE: Final = 600  # landmarks up to which all eigenvectors are computed at once
GAP: Final = 1e-3  # distance of an eigenvalue from one, below which all are the same
PARTED: Final = 0.25  # relative gap up to which a graph has clear parts


def quantise(vectors: Floats) -> Floats:
    """Round numbers of magnitude up to one to multiples of 2**-24.

    Scalar products of two such vectors of at most unit length are exact, so they have the same bits whatever the shapes
    of the matrices that they are computed in.
    Returns the rounded numbers, of the same shape.
    """
    return np.ldexp(np.rint(np.ldexp(vectors, _BITS)), -_BITS)


def distinct_rows(coordinates: Floats) -> Places:
    """Return the first of all equal rows, zero rows left out.

    coordinates (n, d): rows. Returns (m,): places, increasing.
    """
    first = np.unique(coordinates, axis=0, return_index=True)[1]
    return np.sort(first[coordinates[first].any(axis=1)])


def choose_landmarks(coordinates: Floats, count: int, seed: int) -> Places:
    """Choose landmarks: the extreme rows of the cells of a few planes, filled up with rows drawn by their number.

    Each of eight planes is spanned by the mean direction and a random one; its rows, in the order of their angle, are
    cut into cells of equal count, and the two extreme rows of every cell are landmarks. In the paper cells come from
    mean shift; cells of equal count leave no part of the data without landmarks.
    coordinates (n, d): rows of unit length, or of zeros, which can't be chosen. Returns (K,): places, increasing.
    """
    pool = distinct_rows(coordinates)
    if len(pool) <= count:
        return pool
    rows = coordinates[pool]
    chosen = np.unique(np.concatenate([_cells(ratio, count) for ratio in _ratios(rows, seed)]))
    others = np.setdiff1d(np.arange(len(pool)), chosen)
    draws = planes.uniforms(planes.child_seeds(seed, pool[others]), 1)[:, 0]
    filling = others[np.argsort(draws, kind="stable")[: max(count - len(chosen), 0)]]
    return pool[np.sort(np.concatenate([chosen, filling]))]


def _ratios(rows: Floats, seed: int) -> Floats:
    """Tangents of the rows' angles on each plane, shape (planes, n); rows behind the axis count as far out."""
    axis = rows.mean(axis=0)
    scales = np.sqrt((rows**2).mean(axis=0)) + np.finfo(float).tiny
    directions = planes.directions("row-space", seed, np.arange(_PLANES), scales)
    along = np.maximum(rows @ axis, 1e-3 * np.sqrt((axis**2).sum()) + np.finfo(float).tiny)
    return (directions @ rows.T) / along


def _cells(ratio: Floats, count: int) -> Places:
    """First and last row of each cell of equal count."""
    order = np.argsort(ratio, kind="stable")
    n_cells = max(1, count // (4 * _PLANES))
    edges = np.arange(n_cells + 1) * len(order) // n_cells
    return np.concatenate([order[edges[:-1]], order[edges[1:] - 1]])


@dataclass(frozen=True)
class Codes:
    """Sparse codes of rows: which landmarks, with which weights."""

    landmarks: Places  # (n, m)
    weights: Floats  # (n, m), rows of sum one; zeros for a zero row

    def matrix(self, count: int) -> sparse.csr_array:
        """Lay the codes out as a sparse matrix.

        Returns (n, K): without stored zeros.
        """
        n, m = self.landmarks.shape
        found = sparse.csr_array(
            (self.weights.ravel(), self.landmarks.ravel(), np.arange(n + 1) * m), shape=(n, count), copy=True
        )
        found.eliminate_zeros()
        return found

    def combine(self, values: Floats) -> Floats:
        """Sum values at the landmarks by weight, added in one order for every row.

        values (K, m): one row a landmark. Returns (n, m): the sums.
        """
        total = np.zeros((len(self.landmarks), values.shape[1]))
        for j in range(self.landmarks.shape[1]):
            total += self.weights[:, j, None] * values[self.landmarks[:, j]]
        return total


def nonnegative_ridge(gram: Floats, products: Floats, ridge: float, sweeps: int = _SWEEPS) -> Floats:
    """Minimise f H f - 2 c . f + ridge |f|^2 over f >= 0 for many small problems, by coordinate descent.

    gram (m, m, n): matrices H, the problems along the last axis; products (m, n): vectors c; ridge: positive; it bounds
    the weights of near-duplicates; sweeps: how often each coordinate is minimised. Returns (m, n): coefficients f, up
    to the accuracy of that many sweeps. Problems do not affect each other's bits.
    """
    found = np.zeros_like(products)
    left = products.copy()
    for _ in range(sweeps):
        for j in range(len(products)):
            own = gram[j, j]
            moved = np.maximum(left[j] + own * found[j], 0.0) / (own + ridge)
            left -= gram[j] * (moved - found[j])
            found[j] = moved
    return found


@dataclass(frozen=True)
class Expansion:
    """Rows as combinations of their nearest landmarks, which are in the order of their nearness."""

    landmarks: Places  # (n, m)
    coefficients: Floats  # (n, m), not negative
    products: Floats  # (n, m), of the row and the landmark; 0 for negative ones


def code_rows(coordinates: Floats, landmarks: Floats, ridge: float = RIDGE) -> Codes:
    """Code rows by their nearest landmarks; a row that is a landmark is coded by the others.

    It is the self-expression X = C X of subspace clustering, with columns for the landmarks only.
    coordinates (n, d); landmarks (K, d). Returns of m = min(K, 30) landmarks a row; a row's do not depend on the
    others.
    """
    return weigh(expand_rows(coordinates, landmarks, ridge))


def expand_rows(coordinates: Floats, landmarks: Floats, ridge: float) -> Expansion:
    """Solve non-negative least squares on the 30 landmarks of greatest inner product.

    coordinates (n, d); landmarks (K, d). Returns of m = min(K, 30) landmarks a row; a row's do not depend on the
    others.
    """
    gram = landmarks @ landmarks.T
    parts = [_expand(coordinates[i : i + _SLAB], landmarks, gram, ridge) for i in range(0, len(coordinates), _SLAB)]
    m = min(len(landmarks), _NEAREST)
    parts = parts or [Expansion(np.zeros((0, m), dtype=np.intp), np.zeros((0, m)), np.zeros((0, m)))]
    names = ("landmarks", "coefficients", "products")
    return Expansion(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _expand(rows: Floats, landmarks: Floats, gram: Floats, ridge: float) -> Expansion:
    products = rows @ landmarks.T
    products[_same(rows, products, gram.diagonal())] = -np.inf
    count = len(landmarks)
    m = min(count, _NEAREST)
    nearest = np.sort(np.argpartition(products, count - m, axis=1)[:, count - m :], axis=1)
    near = np.maximum(np.take_along_axis(products, nearest, axis=1), 0.0)
    order = np.argsort(-near, axis=1, kind="stable")
    nearest, near = (np.take_along_axis(part, order, axis=1) for part in (nearest, near))
    across = np.ascontiguousarray(nearest.T)
    own = gram.ravel().take(across[:, None, :] * count + across[None, :, :])
    found = np.where(near > 0.0, nonnegative_ridge(own, near.T.copy(), ridge).T, 0.0)
    _fall_back(rows, landmarks, nearest, found)
    return Expansion(nearest, found, near)


def neighbour_ranks(found: Expansion, landmarks: Floats) -> Places:
    """Rank rows and landmarks as each other's neighbours.

    landmarks (K, d): those of the expansion. Returns (n, m): the greater of two numbers: how many landmarks are nearer
    to the row than this one, and how many are nearer to this one than the row.
    """
    count = len(landmarks)
    across = -(landmarks @ landmarks.T)
    np.fill_diagonal(across, 2.0)  # none is its own neighbour
    across.sort(axis=1)
    across += _APART * np.arange(count)[:, None]
    keys = _APART * found.landmarks - found.products
    nearer = np.searchsorted(across.ravel(), keys.ravel()).reshape(keys.shape) - count * found.landmarks
    return np.maximum(nearer, np.arange(keys.shape[1]))


def weigh(found: Expansion, fading: Floats | None = None) -> Codes:
    """Turn coefficients into codes: the ten largest are kept, divided by the largest and squared.

    fading (n, m): the square of a coefficient is multiplied by exp(-fading) before.
    """
    weights = found.coefficients
    if fading is not None:
        least = np.where(weights > 0.0, fading, np.inf).min(axis=1, initial=np.inf, keepdims=True)
        weights = weights * np.exp(-0.5 * np.maximum(fading - least, 0.0))  # one at least keeps all of its weight
    return Codes(found.landmarks, _sharpen(weights))


def _same(rows: Floats, products: Floats, energies: Floats) -> tuple[Places, Places]:
    """Rows, and landmarks that are the same up to rounding: of unit vectors only products near one are looked at."""
    which, where = np.divmod(np.flatnonzero(products > 1.0 - _NEAR_ONE), products.shape[1])
    gaps = (rows[which] ** 2).sum(axis=1) + energies[where] - 2.0 * products[which, where]
    same = gaps <= rows.shape[1] * _SAME
    return which[same], where[same]


def _fall_back(rows: Floats, landmarks: Floats, nearest: Places, weights: Floats) -> None:
    """Rows near to no other landmark are coded by the nearest of all, themselves if need be."""
    alone = np.flatnonzero(~weights.any(axis=1) & rows.any(axis=1))
    if len(alone):
        nearest[alone, 0] = (rows[alone] @ landmarks.T).argmax(axis=1)
        weights[alone] = 0.0
        weights[alone, 0] = 1.0


def _sharpen(weights: Floats) -> Floats:
    """Keep the largest weights, squared, of sum one."""
    if weights.shape[1] > _KEPT:
        least = -np.partition(-weights, _KEPT - 1, axis=1)[:, _KEPT - 1 : _KEPT]
        weights = np.where(weights >= least, weights, 0.0)
    largest = weights.max(axis=1, initial=0.0, keepdims=True)
    sharp = (weights / np.where(largest > 0.0, largest, 1.0)) ** 2
    total = np.zeros((len(sharp), 1))
    for j in range(sharp.shape[1]):
        total += sharp[:, j : j + 1]
    return sharp / np.where(total > 0.0, total, 1.0)


@dataclass(frozen=True)
class GraphSpectrum:
    """Leading eigenvalues of a normalised graph, decreasing, and what its nodes say of rows."""

    values: Floats  # (m,), at most one
    nodes: Floats  # (K, m), eigenvectors over the square root of the degree


def graph_of(codes: Codes, own: Codes, count: int) -> sparse.csr_array:
    """Join landmarks that occur in the same codes, and landmarks with those in their own code.

    With H the codes of n rows and C those of the K landmarks, W = (K / n) H^T H + (C + C^T) / 2.
    Returns (K, K): weights of the edges: symmetric, not negative.
    """
    rows, direct = codes.matrix(count), own.matrix(count)
    shared = (rows.T @ rows) * (count / max(rows.shape[0], 1))
    return sparse.csr_array(shared + (direct + direct.T) * 0.5)


def spectrum_of(graph: sparse.csr_array, count: int) -> GraphSpectrum:
    """Compute the leading eigenvectors of a graph's normalised adjacency D^{-1/2} W D^{-1/2}.

    Ng, Jordan and Weiss, On spectral clustering, NIPS 2001: the paper's last step.
    graph (K, K): weights of the edges; count: how many eigenvectors m; at most K. Returns of an isolated node, the
    value is one.
    """
    degree = np.asarray(graph.sum(axis=0)).ravel()
    half = 1.0 / np.sqrt(np.where(degree > 0.0, degree, 1.0))
    scaled = sparse.csr_array(sparse.diags_array(half) @ graph @ sparse.diags_array(half))
    values, vectors = _leading_by_part(scaled, min(count, len(degree)))
    return GraphSpectrum(values, vectors * half[:, None])


def _leading_by_part(matrix: sparse.csr_array, count: int) -> tuple[Floats, Floats]:
    """Leading eigenpairs, found part by part: Lanczos' method misses the copies of an eigenvalue that parts share."""
    n_parts, part_of = csgraph.connected_components(matrix, directed=False)
    found_values, found_vectors = [], []
    for part in range(n_parts):
        places = np.flatnonzero(part_of == part)
        values, vectors = _leading(matrix[places][:, places], min(count, len(places)))
        whole = np.zeros((matrix.shape[0], len(values)))
        whole[places] = vectors
        found_values.append(values)
        found_vectors.append(whole)
    values = np.concatenate(found_values)
    order = np.argsort(-values, kind="stable")[:count]
    return values[order], np.concatenate(found_vectors, axis=1)[:, order]


def _leading(matrix: sparse.csr_array, count: int) -> tuple[Floats, Floats]:
    """Leading eigenpairs of one connected part, values decreasing."""
    n = matrix.shape[0]
    if n > _DENSE and 12 * count < n:
        start = np.ones(n) + np.sin(np.arange(n))
        try:
            values, vectors = eigsh(matrix, count, which="LA", v0=start, ncv=min(n, max(3 * count, 40)), tol=1e-8)
            order = np.argsort(-values, kind="stable")
            return values[order], vectors[:, order]
        except ArpackNoConvergence:
            pass
    values, vectors = top_eigenpairs(matrix.toarray(), count)
    return values[::-1], vectors[:, ::-1]


def embed(codes: Codes, nodes: Floats) -> Floats:
    """Place rows where the eigenvectors put the landmarks of their codes.

    nodes (K, m): as in `GraphSpectrum`. Returns (n, m): quantised vectors of unit length; zeros for a row without code.
    """
    found = codes.combine(nodes)
    length = np.sqrt((found**2).sum(axis=1, keepdims=True))
    return quantise(found / np.where(length > 0.0, length, 1.0))


def relative_gaps(values: Floats) -> Floats:
    """Compare how far each eigenvalue is from one with the next: near zero after as many as there are clear parts.

    values (m,): leading eigenvalues, decreasing. Returns (m - 1,): between 0 and 1.
    """
    rest = 1.0 - values + GAP
    return rest[:-1] / rest[1:]


def by_eigen_gap(values: Floats) -> int:
    """Choose a number of clusters by the largest gap between successive eigenvalues.

    values (m,): leading eigenvalues, decreasing. Gaps are relative where the graph has clear parts: within these, large
    differences of lower eigenvalues tell nothing. Returns number of eigenvalues before the gap: at least 2, or 1 where
    there is a single one.
    """
    if len(values) < 3:
        return len(values)
    gaps = relative_gaps(values)[1:]
    return 2 + int(gaps.argmin() if gaps.min() <= PARTED else (values[2:] - values[1:-1]).argmin())
