"""Subspace clustering: a rule for labels from a sample, and anchors of every cone from one pass over all rows."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from scipy import sparse
from scipy.cluster import hierarchy
from scipy.sparse import csgraph

from dask_dca.anchoring.parameters import Settings, check_count, check_integer, is_auto
from dask_dca.engine.passes import Run
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import sample_rows
from dask_dca.engine.weights import draw_rows
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.geometry.arrays import Floats, Labels
from dask_dca.models.kmeans import cluster_means, lloyd
from dask_dca.models.subspace.clusters import (
    Bases,
    ClusterCone,
    ClusterRule,
    ConeFit,
    allocate_anchors,
    choose_anchors,
    draw_directions,
    fit_bases,
    k_subspaces,
    label_rows,
    measure_cone,
    partition_loss,
    residuals,
)
from dask_dca.models.subspace.landmarks import (
    DEFAULT_RIDGE,
    EIGENVALUE_TOL,
    MAX_AUTO_CLUSTERS,
    MAX_CLEAR_RATIO,
    Codes,
    GraphSpectrum,
    RowCoefficients,
    choose_landmarks,
    count_by_eigengap,
    distinct_rows,
    embed,
    graph_of,
    neighbour_ranks,
    quantise,
    relative_gaps,
    solve_coefficients,
    sparse_codes,
    spectrum_of,
)
from dask_dca.models.subspace.passes import ClusterExtremes, ConePlanes, cone_extremes, coordinates, leading_directions

_MIN_SKETCH_DIM: Final = 48  # least default dimension of the sketch
_SKETCH_DIM_PER_CLUSTER: Final = 6  # default dimensions of the sketch for each cluster
_ASSUMED_CLUSTERS: Final = 10  # number of clusters by which the sketch is sized if n_clusters="auto"
_DEFAULT_LANDMARKS: Final = 2000  # default number of landmarks
_DEFAULT_SUBSPACE_DIM: Final = 12  # default dimension of a cluster's subspace
_ANCHORS_PER_CLUSTER: Final = 10  # default number of anchors, on average
_MAX_SAMPLE_ROWS: Final = 2**14  # largest sample in which clusters are found
_MAX_SAMPLE_ENTRIES: Final = 2**23  # largest number of coordinates of a sample of more than 2,000 rows
_RUN_ROWS: Final = 16  # consecutive rows of a run: the sample consists of runs
_MIN_RELATIVE_ENERGY: Final = 1e-9  # directions of less energy, relative to the first, are damped as if they had this
_EXTRA_EIGENVECTORS: Final = 10  # eigenvectors beyond the number of clusters
_MAX_WARD_ROWS: Final = 4000  # most landmarks that Ward's method merges
_MIN_CLEAR_EIGENVALUE: Final = 0.85  # a graph whose k-th eigenvalue is less has no k clear parts
_DIFFUSE_DAMPING: Final = 0.05  # damping of the codes that are used in that case
_DIFFUSE_RIDGE: Final = 0.3  # ridge penalty of the codes that are used in that case
_RANK_DECAYS: Final = ((16.0, 1), (5.0, 1), (4.0, 2))  # (scale, power) of exp(-(rank / scale) ** power), one a graph
_MIN_DISTANCE: Final = 2.0**-20  # unit rows that are nearer to each other count as equal
_N_TEST_PLANES: Final = 64  # planes of each cone on which only the coverage of its anchors is measured
_PLANES_PER_ANCHOR: Final = 10.0  # a cone of k_i anchors has 10 k_i ln k_i planes


@dataclass(frozen=True)
class ClusterSettings:
    """Checked parameters; "auto" is replaced by a number, except n_clusters and damping: None."""

    n_clusters: int | None
    n_components: int | None
    sketch_dim: int
    n_landmarks: int
    subspace_dim: int
    damping: float | None
    max_iter: int

    def n_anchors(self, n_clusters: int) -> int:
        """Return the number of anchors over all clusters: at least one for each."""
        return max(n_clusters, _ANCHORS_PER_CLUSTER * n_clusters if self.n_components is None else self.n_components)


def check_clustering(model: Any, rows: Rows) -> ClusterSettings:
    """Check the parameters of a model against its data.

    Raises InvalidParameterError: one of them is unknown or out of range.
    """
    k = check_count(model.n_clusters, rows, "n_clusters")
    anchors = None if model.n_components is None else check_count(model.n_components, rows, "n_components")
    if model.n_components is not None and anchors is None:
        msg = "n_components must be None or an integer, the number of anchors over all clusters; received 'auto'"
        raise InvalidParameterError(msg)
    wanted = max(_MIN_SKETCH_DIM, _SKETCH_DIM_PER_CLUSTER * (k or _ASSUMED_CLUSTERS))
    wanted = _or_auto("sketch_dim", model.sketch_dim, wanted)
    d = max(1, min(wanted, rows.n_features, rows.n_rows - 1))
    max_dim = d if model.subspace_dim != "auto" else max(1, d // 2)  # all rows lie in a subspace of d dimensions
    return ClusterSettings(
        k,
        anchors,
        d,
        _or_auto("n_landmarks", model.n_landmarks, _DEFAULT_LANDMARKS),
        min(_or_auto("subspace_dim", model.subspace_dim, _DEFAULT_SUBSPACE_DIM), max_dim),
        _check_damping(model.damping),
        check_integer("max_iter", model.max_iter, 0),
    )


def _or_auto(name: str, value: Any, default: int) -> int:
    return default if is_auto(value) else check_integer(name, value, 1, auto=True)


def _check_damping(value: Any) -> float | None:
    """Exponent of the energy by which directions are divided; None for "auto"."""
    if is_auto(value):
        return None
    if isinstance(value, int | float | np.number) and not isinstance(value, bool) and 0.0 <= float(value) < 1.0:
        return float(value)
    msg = f"damping must be 'auto', or a power from 0 (none) to below 1 (0.25 for changing light); received {value!r}"
    raise InvalidParameterError(msg)


@dataclass(frozen=True)
class Sketch:
    """Directions of the sketch, and the coordinates of the sample in it."""

    basis: Floats  # (p, d)
    placed: Floats  # (m, d), quantised rows of unit length
    is_whole: bool  # the sample is all of the data
    energies: Floats  # (d,), mean squares of unit rows along the directions before damping


@dataclass(frozen=True)
class CodedSample:
    """Distinct rows of the sample, their coefficients on the landmarks, and the spectrum of the graph of codes."""

    rows: Floats  # (m', d)
    chosen: Labels  # (K,), which rows are landmarks
    coefficients: RowCoefficients
    spectrum: GraphSpectrum
    n_wanted: int  # number of clusters asked for, or found by the eigengap
    ridge: float


@dataclass(frozen=True)
class GraphCut:
    """Clusters of the sample's distinct rows by spectral clustering of one graph."""

    nodes: Floats  # (K, m), weighted eigenvectors at the landmarks
    labels: Labels  # (m',)
    centres: Floats  # (k, m)


@dataclass(frozen=True)
class Clusters:
    """A rule for labels, and the labels of the sample."""

    rule: ClusterRule
    labels: Labels  # (m,), of the sample
    spectrum: Floats  # leading eigenvalues of the graph
    n_wanted: int
    n_sweeps: int


def find_clusters(rows: Rows, settings: ClusterSettings, seed: int, run: Run) -> tuple[Sketch, Clusters]:
    """Sketch the rows and find clusters among those of a sample.

    If damping is "auto" and the graph of codes has no k clear parts, the sample is coded again with damped leading
    directions and a greater ridge.
    Returns sketch: basis and the sample's coordinates; clusters: by decreasing size in the sample, fewer than asked for
    if rows differ too little. Raises InvalidInputError: all rows of the sample are zero.
    """
    d = settings.sketch_dim
    m = min(_MAX_SAMPLE_ROWS, max(2000, _MAX_SAMPLE_ENTRIES // d))
    numbers = draw_rows(rows, m // _RUN_ROWS, _RUN_ROWS, run)
    part = sample_rows(rows, numbers, run)
    basis, energies = leading_directions(part, d, run)
    if not energies.any():
        msg = f"no row of the sample of {part.n_rows} differs from zero: there is nothing to cluster"
        raise InvalidInputError(msg)
    own = _damp_directions(basis, energies, settings.damping or 0.0)
    sketch = Sketch(own, coordinates(part, own, run), numbers is None, energies)
    coded = _code_sample(sketch.placed, settings, seed, DEFAULT_RIDGE)
    if settings.damping is None and coded.spectrum.values[: coded.n_wanted].min() < _MIN_CLEAR_EIGENVALUE:
        own = _damp_directions(basis, energies, _DIFFUSE_DAMPING)
        sketch = Sketch(own, coordinates(part, own, run), numbers is None, energies)
        coded = _code_sample(sketch.placed, settings, seed, _DIFFUSE_RIDGE)
    return sketch, _cluster_sample(sketch.placed, coded, settings)


def _damp_directions(basis: Floats, energies: Floats, power: float) -> Floats:
    """Divide directions by a power of their relative energy."""
    return np.ascontiguousarray(basis * np.maximum(energies / energies[0], _MIN_RELATIVE_ENERGY) ** -power)


def _code_sample(placed: Floats, settings: ClusterSettings, seed: int, ridge: float) -> CodedSample:
    """Choose landmarks, code rows on them, and compute the spectrum of the graph; copies of a row count once."""
    with one_blas_thread():
        rows = placed[distinct_rows(placed)]
        chosen = choose_landmarks(rows, settings.n_landmarks, seed)
        found = solve_coefficients(rows, rows[chosen], ridge)
        seen = _spectrum_of_codes(sparse_codes(found), chosen, settings.n_clusters or MAX_AUTO_CLUSTERS)
        k = settings.n_clusters or count_by_eigengap(seen.values[: MAX_AUTO_CLUSTERS + 1])
    return CodedSample(rows, chosen, found, seen, k, ridge)


def _spectrum_of_codes(codes: Codes, chosen: Labels, k: int) -> GraphSpectrum:
    own = Codes(codes.landmarks[chosen], codes.weights[chosen])
    return spectrum_of(graph_of(codes, own, len(chosen)), k + _EXTRA_EIGENVECTORS)


def _cluster_sample(placed: Floats, coded: CodedSample, settings: ClusterSettings) -> Clusters:
    """Cut four graphs, or one that has k clear parts, and refine the cut of least loss by k-subspaces.

    Losses are those before the sweeps: sweeps from a wrong cut can fit the noise of its rows.
    """
    with one_blas_thread():
        cuts = [_cut_graph(coded, sparse_codes(coded.coefficients), coded.spectrum, settings)]
        if settings.max_iter and _relative_gap(coded.spectrum.values, coded.n_wanted) > MAX_CLEAR_RATIO:
            ranks = neighbour_ranks(coded.coefficients, coded.rows[coded.chosen])
            for scale, power in _RANK_DECAYS:
                codes = sparse_codes(coded.coefficients, (ranks / scale) ** power)
                cuts.append(_cut_graph(coded, codes, _spectrum_of_codes(codes, coded.chosen, coded.n_wanted), settings))
            cuts.sort(key=lambda cut: partition_loss(coded.rows, cut.labels, len(cut.centres), settings.subspace_dim))
        rule, sweeps = _refine_best_cut(coded, cuts, settings)
        rule, labels = _number_by_size(rule, label_rows(placed, rule))
    return Clusters(rule, labels, coded.spectrum.values, coded.n_wanted, sweeps)


def _relative_gap(values: Floats, k: int) -> float:
    """Relative gap after the k-th eigenvalue; zero for one cluster, or without another eigenvalue."""
    return float(relative_gaps(values)[k - 1]) if 1 < k < len(values) else 0.0


def _cut_graph(coded: CodedSample, codes: Codes, seen: GraphSpectrum, settings: ClusterSettings) -> GraphCut:
    """Cluster the embedded codes by k-means."""
    rows, nodes = coded.rows, _weighted_eigenvectors(seen, coded.n_wanted)
    placed = embed(codes, nodes)
    labels, centres = _k_means_from_ward(placed, coded.chosen, coded.n_wanted)
    if settings.max_iter and len(centres) < min(coded.n_wanted, len(distinct_rows(np.rint(rows / _MIN_DISTANCE)))):
        labels, centres = _k_means_from_ward(rows, coded.chosen, coded.n_wanted)  # codes of very few rows may coincide
        centres = np.stack([placed[labels == j].mean(axis=0) for j in range(len(centres))])
    return GraphCut(nodes, labels, centres)


def _refine_best_cut(coded: CodedSample, cuts: list[GraphCut], settings: ClusterSettings) -> tuple[ClusterRule, int]:
    """Run k-subspaces from one cut after the other, then at half the dimension, until no cluster loses all rows.

    A subspace of too many dimensions can contain the rows of other clusters. Returns the rule, and number of sweeps.
    """
    rows, d = coded.rows, coded.rows.shape[1]
    ranks = [settings.subspace_dim >> i for i in range(settings.subspace_dim.bit_length())]
    for rank, cut in itertools.product(ranks, cuts):
        k, sweeps = len(cut.centres), 0
        bases = Bases(np.zeros((k, d, 0)), np.zeros((k, d)))
        if settings.max_iter:
            bases, sweeps = k_subspaces(rows, cut.labels, k, rank, settings.max_iter)
        if not settings.max_iter or len(np.unique(residuals(rows, bases).argmin(axis=1))) == k:
            break
    return ClusterRule(bases, rows[coded.chosen], cut.nodes, cut.centres, coded.ridge), sweeps


def _weighted_eigenvectors(seen: GraphSpectrum, k: int) -> Floats:
    """Weight k + 10 eigenvectors by their eigenvalue, those beyond k by (1 - value k) / (1 - value) too.

    After a wide gap they get almost no weight, or they would split large clusters; without a gap they add information.
    """
    values = seen.values[: k + _EXTRA_EIGENVECTORS]
    gaps = 1.0 - values + EIGENVALUE_TOL
    weights = np.minimum(1.0, gaps[min(k, len(gaps)) - 1] / gaps) * np.maximum(values, 0.0)
    return seen.nodes[:, : len(values)] * weights


def _k_means_from_ward(rows: Floats, landmarks: Labels, k: int) -> tuple[Labels, Floats]:
    """Run k-means from the clusters that Ward's method finds among landmarks; at most one centre a distinct row."""
    some = rows[landmarks[:: -(-len(landmarks) // _MAX_WARD_ROWS)]]
    if len(distinct_rows(some)) <= k:
        some = rows
    k = min(k, len(distinct_rows(some)))
    best = lloyd(rows, cluster_means(some, _ward_labels(some, k), k))
    return best.labels, quantise(best.centres)


def _ward_labels(rows: Floats, k: int) -> Labels:
    """Cluster rows by the method of Ward, Hierarchical grouping, JASA 58, 1963."""
    n = len(rows)
    merges = hierarchy.linkage(rows, "ward")[: n - k, :2].astype(np.intp) if n > 1 else np.zeros((0, 2), dtype=np.intp)
    made = np.repeat(n + np.arange(len(merges)), 2)
    size = n + len(merges)
    tree = sparse.csr_array((np.ones(len(made)), (made, merges.ravel())), shape=(size, size))
    return csgraph.connected_components(tree, directed=False)[1][:n]


def _number_by_size(rule: ClusterRule, labels: Labels) -> tuple[ClusterRule, Labels]:
    """Number clusters by decreasing size, and drop empty ones."""
    counts = np.bincount(labels[labels >= 0], minlength=len(rule.centres))
    order = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    rank = np.full(len(counts) + 1, -1)
    rank[order] = np.arange(len(order))
    bases = Bases(rule.bases.columns[order], rule.bases.axes[order])
    return replace(rule, bases=bases, centres=rule.centres[order]), rank[labels]


def anchor_cones(
    rows: Rows, sketch: Sketch, clusters: Clusters, wanted: ClusterSettings, settings: Settings, run: Run
) -> ConeFit:
    """Find the anchors of every cluster's cone in one pass over all rows.

    wanted: number of anchors, dimension of subspaces. Returns at least one anchor of each cluster that has rows.
    """
    k, dim = len(clusters.rule.centres), wanted.subspace_dim
    n_anchors = wanted.n_anchors(k)
    max_anchors = max(1, min(n_anchors - k + 1, math.ceil(3 * n_anchors / k)))  # of one cone
    mean_anchors = max(1.0, n_anchors / k)
    s = settings.n_subproblems or max(
        32, math.ceil(_PLANES_PER_ANCHOR * mean_anchors * math.log(max(mean_anchors, 2.0)))
    )
    with one_blas_thread():
        frames = fit_bases(sketch.placed, clusters.labels, k, dim).columns
        cones = [measure_cone(sketch.placed[clusters.labels == i], frames[i]) for i in range(k)]
        count = s + _N_TEST_PLANES
        drawn = [draw_directions(cone, settings.ensemble, settings.seed + i, count) for i, cone in enumerate(cones)]
        found = _cone_extremes(rows, sketch, clusters.rule, cones, drawn, run)
        pairs = zip(cones, found.cones, drawn, strict=True)
        anchors = [choose_anchors(cone, tops, own, _N_TEST_PLANES, max_anchors) for cone, tops, own in pairs]
        counts = allocate_anchors([one.gains for one in anchors], n_anchors)
        pairs = zip(cones, found.cones, drawn, strict=True)
        anchors = [choose_anchors(*one, _N_TEST_PLANES, count) for one, count in zip(pairs, counts, strict=True)]
    return ConeFit(
        np.concatenate([one.rows for one in anchors]),
        np.repeat(np.arange(k), [len(one.rows) for one in anchors]),
        np.concatenate([one.votes for one in anchors]),
        found.sizes,
        clusters.spectrum,
        s,
        np.array([one.curve[-1] if len(one.curve) else np.nan for one in anchors]),
    )


def _cone_extremes(
    rows: Rows, sketch: Sketch, rule: ClusterRule, cones: list[ClusterCone], drawn: list[Floats], run: Run
) -> ClusterExtremes:
    """Run the divide pass; if the sample is all of the data, over its coordinates."""
    directions = np.stack([quantise(own) for own in drawn])
    axes, frames = np.stack([cone.axis for cone in cones]), np.stack([cone.frame for cone in cones])
    basis = None if sketch.is_whole else sketch.basis
    job = ConePlanes(basis, rule, axes, directions, frames)
    return cone_extremes(as_rows(sketch.placed) if sketch.is_whole else rows, job, run)
