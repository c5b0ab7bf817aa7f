"""Landmarks, sparse codes of rows on them, and the leading eigenvectors of the graph that the codes make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from dask_dca.geometry import planes
from dask_dca.geometry.arrays import Floats
from dask_dca.geometry.moments import top_eigenpairs

Indices = NDArray[np.intp]

_FRACTION_BITS: Final = 24  # scalar products of vectors with so many bits are sums of integers below 2**53: exact
_N_PLANES: Final = 8  # random planes from whose cells up to half of the landmarks are taken
_MAX_NEIGHBOURS: Final = 30  # most landmarks with a coefficient for one row
_MAX_NONZEROS: Final = 10  # most landmarks in the code of one row: those of largest coefficient
DEFAULT_RIDGE: Final = 0.1  # ridge penalty of the codes' least squares for unit rows
_N_SWEEPS: Final = 8  # sweeps of coordinate descent
_DUPLICATE_TOL: Final = 2.0**-44  # squared distance per coordinate up to which rows differ by rounding alone
_DUPLICATE_PRODUCT_GAP: Final = 2.0**-16  # the scalar product of duplicates is at least one less this
_SLAB_ROWS: Final = 1024  # rows whose coefficients are computed together
_ROW_OFFSET: Final = 4.0  # added per landmark, so that the sorted products of all form one increasing sequence
_MAX_DENSE_NODES: Final = 600  # largest component whose eigenvectors are computed by a dense solver
EIGENVALUE_TOL: Final = 1e-3  # distances of eigenvalues from one that are smaller count as equal
MAX_CLEAR_RATIO: Final = 0.25  # largest relative gap (`relative_gaps`) of a graph with clear parts
MAX_AUTO_CLUSTERS: Final = 64  # largest number of clusters that "auto" considers


def quantise(vectors: Floats) -> Floats:
    """Round numbers of magnitude up to one to multiples of 2**-24.

    Scalar products of two such vectors of at most unit length are exact, so they have the same bits whatever the shapes
    of the matrices that they are computed in.
    Returns the rounded numbers, of the same shape.
    """
    return np.ldexp(np.rint(np.ldexp(vectors, _FRACTION_BITS)), -_FRACTION_BITS)


def distinct_rows(coordinates: Floats) -> Indices:
    """Find the first occurrence of each distinct row that is not zero.

    coordinates (n, d): rows. Returns (m,): row numbers, increasing.
    """
    first = np.unique(coordinates, axis=0, return_index=True)[1]
    return np.sort(first[coordinates[first].any(axis=1)])


def choose_landmarks(coordinates: Floats, count: int, seed: int) -> Indices:
    """Choose landmarks: the extreme rows of the cells of eight random planes, then rows drawn at random.

    Rows are sorted by their angle on each plane and cut into cells of equal count; the first and the last row of each
    cell are landmarks. The paper's cells come from mean shift; with equal counts rare clusters have landmarks too.
    coordinates (n, d): rows of unit length or zero (never chosen). Returns (K,): row numbers, increasing.
    """
    pool = distinct_rows(coordinates)
    if len(pool) <= count:
        return pool
    rows = coordinates[pool]
    chosen = np.unique(np.concatenate([_cell_extremes(ratio, count) for ratio in _plane_ratios(rows, seed)]))
    others = np.setdiff1d(np.arange(len(pool)), chosen)
    draws = planes.uniforms(planes.child_seeds(seed, pool[others]), 1)[:, 0]  # by row number, whatever the chunks
    drawn = others[np.argsort(draws, kind="stable")[: max(count - len(chosen), 0)]]
    return pool[np.sort(np.concatenate([chosen, drawn]))]


def _plane_ratios(rows: Floats, seed: int) -> Floats:
    """Tangents of the rows' angles to the mean direction, shape (planes, n); those beyond 90 degrees get large ones."""
    axis = rows.mean(axis=0)
    scales = np.sqrt((rows**2).mean(axis=0)) + np.finfo(float).tiny
    directions = planes.directions("row-space", seed, np.arange(_N_PLANES), scales)
    along = np.maximum(rows @ axis, 1e-3 * np.sqrt((axis**2).sum()) + np.finfo(float).tiny)
    return (directions @ rows.T) / along


def _cell_extremes(ratio: Floats, count: int) -> Indices:
    """First and last row of each cell of equal count, in the order of the ratios."""
    order = np.argsort(ratio, kind="stable")
    n_cells = max(1, count // (4 * _N_PLANES))
    edges = np.arange(n_cells + 1) * len(order) // n_cells
    return np.concatenate([order[edges[:-1]], order[edges[1:] - 1]])


@dataclass(frozen=True)
class Codes:
    """Sparse codes of rows: landmarks and their weights."""

    landmarks: Indices  # (n, m)
    weights: Floats  # (n, m), of sum one in each row; zeros for a zero row

    def matrix(self, count: int) -> sparse.csr_array:
        """Return the codes as a sparse matrix (n, K) without stored zeros."""
        n, m = self.landmarks.shape
        found = sparse.csr_array(
            (self.weights.ravel(), self.landmarks.ravel(), np.arange(n + 1) * m), shape=(n, count), copy=True
        )
        found.eliminate_zeros()
        return found

    def combine(self, values: Floats) -> Floats:
        """Average values of the landmarks by weight, summed in the same order for every row.

        values (K, m): one row per landmark. Returns (n, m): weighted sums.
        """
        total = np.zeros((len(self.landmarks), values.shape[1]))
        for j in range(self.landmarks.shape[1]):
            total += self.weights[:, j, None] * values[self.landmarks[:, j]]
        return total


def nonnegative_ridge(gram: Floats, products: Floats, ridge: float, sweeps: int = _N_SWEEPS) -> Floats:
    """Minimise f H f - 2 c . f + ridge |f|^2 over f >= 0 by coordinate descent, for many small problems at once.

    gram (m, m, n): matrices H, problems along the last axis; products (m, n): vectors c; ridge: positive, bounds the
    weights of near-duplicates; sweeps: over the coordinates. Returns (m, n): coefficients f. Problems don't affect each
    other's bits.
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
class RowCoefficients:
    """Rows as non-negative combinations of their nearest landmarks, nearest first."""

    landmarks: Indices  # (n, m)
    coefficients: Floats  # (n, m), not negative
    products: Floats  # (n, m), scalar products of row and landmark, negative ones set to 0


def code_rows(coordinates: Floats, landmarks: Floats, ridge: float = DEFAULT_RIDGE) -> Codes:
    """Code rows by their nearest landmarks; a row that is itself a landmark is coded by the others.

    This is the self-expression X = C X of sparse subspace clustering, with columns for the landmarks alone.
    coordinates (n, d); landmarks (K, d). Returns codes of m = min(K, 30) entries; a row's don't depend on other rows.
    """
    return sparse_codes(solve_coefficients(coordinates, landmarks, ridge))


def solve_coefficients(coordinates: Floats, landmarks: Floats, ridge: float) -> RowCoefficients:
    """Solve non-negative ridge regression of each row on the 30 landmarks of greatest scalar product.

    coordinates (n, d); landmarks (K, d). Returns m = min(K, 30) coefficients a row; a row's don't depend on other rows.
    """
    gram = landmarks @ landmarks.T
    starts = range(0, len(coordinates), _SLAB_ROWS)
    parts = [_solve_slab(coordinates[i : i + _SLAB_ROWS], landmarks, gram, ridge) for i in starts]
    m = min(len(landmarks), _MAX_NEIGHBOURS)
    parts = parts or [RowCoefficients(np.zeros((0, m), dtype=np.intp), np.zeros((0, m)), np.zeros((0, m)))]
    names = ("landmarks", "coefficients", "products")
    return RowCoefficients(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _solve_slab(rows: Floats, landmarks: Floats, gram: Floats, ridge: float) -> RowCoefficients:
    products = rows @ landmarks.T
    products[_duplicate_pairs(rows, products, gram.diagonal())] = -np.inf
    count = len(landmarks)
    m = min(count, _MAX_NEIGHBOURS)
    nearest = np.sort(np.argpartition(products, count - m, axis=1)[:, count - m :], axis=1)
    near = np.maximum(np.take_along_axis(products, nearest, axis=1), 0.0)
    order = np.argsort(-near, axis=1, kind="stable")
    nearest, near = (np.take_along_axis(part, order, axis=1) for part in (nearest, near))
    across = np.ascontiguousarray(nearest.T)
    own = gram.ravel().take(across[:, None, :] * count + across[None, :, :])
    found = np.where(near > 0.0, nonnegative_ridge(own, near.T.copy(), ridge).T, 0.0)
    _code_isolated_rows(rows, landmarks, nearest, found)
    return RowCoefficients(nearest, found, near)


def neighbour_ranks(found: RowCoefficients, landmarks: Floats) -> Indices:
    """Compute mutual neighbour ranks of rows and their landmarks, from 0.

    landmarks (K, d): those of the coefficients. Returns (n, m): the greater of two ranks: the landmark's among the
    row's neighbours, and the row's among the landmark's (counted in landmarks).
    """
    count = len(landmarks)
    across = -(landmarks @ landmarks.T)
    np.fill_diagonal(across, 2.0)  # a landmark is not its own neighbour: last
    across.sort(axis=1)
    across += _ROW_OFFSET * np.arange(count)[:, None]
    keys = _ROW_OFFSET * found.landmarks - found.products
    nearer = np.searchsorted(across.ravel(), keys.ravel()).reshape(keys.shape) - count * found.landmarks
    return np.maximum(nearer, np.arange(keys.shape[1]))


def sparse_codes(found: RowCoefficients, decay: Floats | None = None) -> Codes:
    """Turn coefficients into codes: the ten largest are squared and divided by their sum.

    decay (n, m): squared coefficients are multiplied by exp(-decay) first.
    """
    weights = found.coefficients
    if decay is not None:
        least = np.where(weights > 0.0, decay, np.inf).min(axis=1, initial=np.inf, keepdims=True)
        weights = weights * np.exp(-0.5 * np.maximum(decay - least, 0.0))  # relative to the least: no underflow of all
    return Codes(found.landmarks, _squared_shares(weights))


def _duplicate_pairs(rows: Floats, products: Floats, energies: Floats) -> tuple[Indices, Indices]:
    """Rows, and landmarks that equal them up to rounding; only pairs with a scalar product near one are compared."""
    which, where = np.divmod(np.flatnonzero(products > 1.0 - _DUPLICATE_PRODUCT_GAP), products.shape[1])
    gaps = (rows[which] ** 2).sum(axis=1) + energies[where] - 2.0 * products[which, where]
    same = gaps <= rows.shape[1] * _DUPLICATE_TOL
    return which[same], where[same]


def _code_isolated_rows(rows: Floats, landmarks: Floats, nearest: Indices, weights: Floats) -> None:
    """Give rows without a positive coefficient their nearest landmark, which may be the row itself; in place."""
    alone = np.flatnonzero(~weights.any(axis=1) & rows.any(axis=1))
    if len(alone):
        nearest[alone, 0] = (rows[alone] @ landmarks.T).argmax(axis=1)
        weights[alone] = 0.0
        weights[alone, 0] = 1.0


def _squared_shares(weights: Floats) -> Floats:
    """Square the largest weights and divide them by their sum; the others become zero."""
    if weights.shape[1] > _MAX_NONZEROS:
        least = -np.partition(-weights, _MAX_NONZEROS - 1, axis=1)[:, _MAX_NONZEROS - 1 : _MAX_NONZEROS]
        weights = np.where(weights >= least, weights, 0.0)
    largest = weights.max(axis=1, initial=0.0, keepdims=True)
    sharp = (weights / np.where(largest > 0.0, largest, 1.0)) ** 2
    total = np.zeros((len(sharp), 1))
    for j in range(sharp.shape[1]):
        total += sharp[:, j : j + 1]
    return sharp / np.where(total > 0.0, total, 1.0)


@dataclass(frozen=True)
class GraphSpectrum:
    """Leading eigenpairs of a graph's normalised adjacency matrix."""

    values: Floats  # (m,), decreasing, at most one
    nodes: Floats  # (K, m), eigenvectors divided by the square root of the degree


def graph_of(codes: Codes, own: Codes, count: int) -> sparse.csr_array:
    """Build the graph of landmarks W = (K / n) H^T H + (C + C^T) / 2.

    codes: H, of n rows; own: C, of the landmarks themselves; count: number of landmarks K. Landmarks are joined if they
    occur in the same code, or one in the code of the other. Returns (K, K): symmetric, not negative.
    """
    rows, direct = codes.matrix(count), own.matrix(count)
    shared = (rows.T @ rows) * (count / max(rows.shape[0], 1))
    return sparse.csr_array(shared + (direct + direct.T) * 0.5)


def spectrum_of(graph: sparse.csr_array, count: int) -> GraphSpectrum:
    """Compute the leading eigenvectors of a graph's normalised adjacency D^{-1/2} W D^{-1/2}.

    Ng, Jordan and Weiss, On spectral clustering, NIPS 2001: the paper's last step.
    graph (K, K): weights of the edges; count: number of eigenvectors m, at most K. An isolated node has degree one.
    """
    degree = np.asarray(graph.sum(axis=0)).ravel()
    half = 1.0 / np.sqrt(np.where(degree > 0.0, degree, 1.0))
    scaled = sparse.csr_array(sparse.diags_array(half) @ graph @ sparse.diags_array(half))
    values, vectors = _component_eigenpairs(scaled, min(count, len(degree)))
    return GraphSpectrum(values, vectors * half[:, None])


def _component_eigenpairs(matrix: sparse.csr_array, count: int) -> tuple[Floats, Floats]:
    """Leading eigenpairs by connected component: Lanczos' method misses multiple eigenvalues."""
    n_parts, part_of = csgraph.connected_components(matrix, directed=False)
    found_values, found_vectors = [], []
    for part in range(n_parts):
        places = np.flatnonzero(part_of == part)
        values, vectors = _leading_eigenpairs(matrix[places][:, places], min(count, len(places)))
        whole = np.zeros((matrix.shape[0], len(values)))
        whole[places] = vectors
        found_values.append(values)
        found_vectors.append(whole)
    values = np.concatenate(found_values)
    order = np.argsort(-values, kind="stable")[:count]
    return values[order], np.concatenate(found_vectors, axis=1)[:, order]


def _leading_eigenpairs(matrix: sparse.csr_array, count: int) -> tuple[Floats, Floats]:
    """Leading eigenpairs of one connected component, eigenvalues decreasing."""
    n = matrix.shape[0]
    if n > _MAX_DENSE_NODES and 12 * count < n:
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
    """Embed rows: the weighted mean of the nodes in their code, scaled to unit length.

    nodes (K, m): as in `GraphSpectrum`. Returns (n, m): quantised unit vectors; zeros for a row without code.
    """
    found = codes.combine(nodes)
    length = np.sqrt((found**2).sum(axis=1, keepdims=True))
    return quantise(found / np.where(length > 0.0, length, 1.0))


def relative_gaps(values: Floats) -> Floats:
    """Compute (1 - value i) / (1 - value i + 1) of eigenvalues: near zero after the k-th if there are k clear parts.

    values (m,): leading eigenvalues, decreasing. Returns (m - 1,): between 0 and 1.
    """
    rest = 1.0 - values + EIGENVALUE_TOL
    return rest[:-1] / rest[1:]


def count_by_eigengap(values: Floats) -> int:
    """Choose the number of clusters by the largest gap between successive eigenvalues.

    values (m,): leading eigenvalues, decreasing. Gaps are ratios of the distances from one if any shows clear parts,
    whatever gaps there are among lower eigenvalues; else differences. Returns the number of eigenvalues before the gap:
    at least 2, or 1 of a single one.
    """
    if len(values) < 3:
        return len(values)
    gaps = relative_gaps(values)[1:]
    return 2 + int(gaps.argmin() if gaps.min() <= MAX_CLEAR_RATIO else (values[2:] - values[1:-1]).argmin())
