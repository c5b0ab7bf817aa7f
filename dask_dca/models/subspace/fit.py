"""Subspace clustering: from a sample to a rule for labels, and from one pass to the anchors of every cone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse
from scipy.cluster import hierarchy
from scipy.sparse import csgraph

from dask_dca.anchoring.parameters import check_count, check_integer, is_auto
from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import sample_rows
from dask_dca.engine.weights import draw_rows
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.models.kmeans import cluster_means, lloyd
from dask_dca.models.subspace.clusters import (
    Bases,
    ClusterCone,
    ClusterRule,
    ConeFit,
    choose_anchors,
    cone_of,
    fit_bases,
    label_rows,
    misfit,
    refine,
    residuals,
    share_out,
    tangents,
)
from dask_dca.models.subspace.landmarks import (
    GAP,
    PARTED,
    RIDGE,
    Codes,
    Expansion,
    GraphSpectrum,
    by_eigen_gap,
    choose_landmarks,
    distinct_rows,
    embed,
    expand_rows,
    graph_of,
    neighbour_ranks,
    quantise,
    relative_gaps,
    spectrum_of,
    weigh,
)
from dask_dca.models.subspace.passes import ClusterExtremes, ConePlanes, cone_extremes, coordinates, leading_directions

if TYPE_CHECKING:
    from dask_dca.anchoring.parameters import Settings
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Labels


_SKETCH: Final = (48, 6)  # dimensions of the sketch: at least, for each cluster
_AUTO_CLUSTERS: Final = 10  # what the sketch is made for where the number of clusters is to be found
_LANDMARKS: Final = 2000
_SUBSPACE: Final = 12
_ANCHORS: Final = 10  # anchors of a cluster, on average, where their number is not given


@dataclass(frozen=True)
class ClusterSettings:
    """Checked parameters; numbers are chosen except that of clusters, None for "auto"."""

    n_clusters: int | None
    n_components: int | None
    sketch_dim: int
    n_landmarks: int
    subspace_dim: int
    damping: float | None  # of leading directions; None: chosen from the data
    max_iter: int

    def n_anchors(self, n_clusters: int) -> int:
        """Choose the number of anchors over all clusters.

        Returns at least one for each.
        """
        return max(n_clusters, _ANCHORS * n_clusters if self.n_components is None else self.n_components)


def check_clustering(model: Any, rows: Rows) -> ClusterSettings:
    """Check the parameters of a model against its data.

    Raises InvalidParameterError: one of them is unknown or out of range.
    """
    k = check_count(model.n_clusters, rows, "n_clusters")
    anchors = None if model.n_components is None else check_count(model.n_components, rows, "n_components")
    if model.n_components is not None and anchors is None:
        msg = "n_components must be None or an integer, the number of anchors over all clusters; received 'auto'"
        raise InvalidParameterError(msg)
    wanted = _or_auto("sketch_dim", model.sketch_dim, max(_SKETCH[0], _SKETCH[1] * (k or _AUTO_CLUSTERS)))
    d = max(1, min(wanted, rows.n_features, rows.n_rows - 1))
    widest = d if model.subspace_dim != "auto" else max(1, d // 2)  # a subspace of all coordinates tells nothing
    return ClusterSettings(
        k,
        anchors,
        d,
        _or_auto("n_landmarks", model.n_landmarks, _LANDMARKS),
        min(_or_auto("subspace_dim", model.subspace_dim, _SUBSPACE), widest),
        _damping(model.damping),
        check_integer("max_iter", model.max_iter, 0),
    )


def _or_auto(name: str, value: Any, default: int) -> int:
    return default if is_auto(value) else check_integer(name, value, 1, auto=True)


def _damping(value: Any) -> float | None:
    """The power of their energy that coordinates lose; None where it is chosen from the data."""
    if is_auto(value):
        return None
    if isinstance(value, int | float | np.number) and not isinstance(value, bool) and 0.0 <= float(value) < 1.0:
        return float(value)
    msg = f"damping must be 'auto', or a power from 0 (none) to below 1 (0.25 for changing light); received {value!r}"
    raise InvalidParameterError(msg)


_SAMPLE: Final = 2**14  # rows that clusters are found from, in runs of 16
_SAMPLE_ENTRIES: Final = 2**23  # of their coordinates, at most, beyond 2,000 rows
_RUN: Final = 16
_LEAST_ENERGY: Final = 1e-9  # of a direction, as a share of the first one's, up to which it is damped less than others
_MOST_AUTO: Final = 64  # clusters that "auto" considers
_MORE_VECTORS: Final = 10  # eigenvectors beyond the number of clusters, which count where there is no clear gap
_TREE: Final = 4000  # landmarks that are merged to the start of k-means, at most
_CLEAR: Final = 0.85  # k-th eigenvalue from which the graph falls into k parts
_FAINT: Final = (0.05, 0.3)  # damping and ridge where it does not
_FADINGS: Final = ((16.0, 1), (5.0, 1), (4.0, 2))  # scale and power of the ranks by which neighbours fade
_SAME: Final = 2.0**-20  # unit rows nearer than this are one
_FRESH: Final = 64  # planes of each cone that only test its anchors
_PLANES_PER_ANCHOR: Final = 10.0  # s = 10 k_i ln k_i for a cone of k_i anchors


@dataclass(frozen=True)
class Sketch:
    """Directions of the sketch, and the sample's coordinates."""

    basis: Floats  # (p, d)
    placed: Floats  # (m, d)
    whole: bool  # the sample is all of the data
    energies: Floats  # (d,) mean squares of unit rows along the directions, before these are damped


@dataclass(frozen=True)
class Coded:
    """Distinct rows of the sample, those that are landmarks, rows in terms of these, and what their graph says."""

    rows: Floats  # (m', d)
    chosen: Labels  # (K,)
    expansion: Expansion
    spectrum: GraphSpectrum
    n_wanted: int
    ridge: float


@dataclass(frozen=True)
class GraphCut:
    """Clusters of the sample's distinct rows by one graph."""

    nodes: Floats  # (K, m), what landmarks say of rows
    labels: Labels  # (m',)
    centres: Floats  # (k, m)


@dataclass(frozen=True)
class Clusters:
    """A rule for labels, and what it was found from."""

    rule: ClusterRule
    labels: Labels  # (m,), of the sample
    spectrum: Floats  # leading eigenvalues of the graph
    n_wanted: int
    n_sweeps: int


def find_clusters(rows: Rows, settings: ClusterSettings, seed: int, run: Run) -> tuple[Sketch, Clusters]:
    """Sketch the rows and find clusters among those of a sample.

    The leading directions of unit rows; landmarks, codes on them, the graph that codes make and its leading
    eigenvectors; k-means there. Where damping is "auto" and the graph does not fall into k parts, codes are made again,
    with leading directions damped and a greater ridge. Four graphs, in which far neighbours count less and less, are
    cut so; from the clusters whose subspaces fit best, sweeps move rows to the nearest subspace.
    Returns sketch: basis and the sample's coordinates; clusters: numbered by their size in the sample, largest first;
    fewer than asked for where rows do not differ enough.
    Raises InvalidInputError: all rows of the sample are zero.
    """
    d = settings.sketch_dim
    m = min(_SAMPLE, max(2000, _SAMPLE_ENTRIES // d))
    numbers = draw_rows(rows, m // _RUN, _RUN, run)
    part = sample_rows(rows, numbers, run)
    basis, energies = leading_directions(part, d, run)
    if not energies.any():
        msg = f"no row of the sample of {part.n_rows} differs from zero: there is nothing to cluster"
        raise InvalidInputError(msg)
    own = _damp(basis, energies, settings.damping or 0.0)
    sketch = Sketch(own, coordinates(part, own, run), numbers is None, energies)
    coded = _code_sample(sketch.placed, settings, seed, RIDGE)
    if settings.damping is None and coded.spectrum.values[: coded.n_wanted].min() < _CLEAR:
        own = _damp(basis, energies, _FAINT[0])
        sketch = Sketch(own, coordinates(part, own, run), numbers is None, energies)
        coded = _code_sample(sketch.placed, settings, seed, _FAINT[1])
    return sketch, _cluster_sample(sketch.placed, coded, settings)


def _damp(basis: Floats, energies: Floats, power: float) -> Floats:
    """Divide directions by a power of their energy."""
    return np.ascontiguousarray(basis * np.maximum(energies / energies[0], _LEAST_ENERGY) ** -power)


def _code_sample(placed: Floats, settings: ClusterSettings, seed: int, ridge: float) -> Coded:
    """Landmarks, rows in terms of them, and the spectrum of their graph; copies of a row count once."""
    with one_blas_thread():
        rows = placed[distinct_rows(placed)]
        chosen = choose_landmarks(rows, settings.n_landmarks, seed)
        found = expand_rows(rows, rows[chosen], ridge)
        seen = _spectrum(weigh(found), chosen, settings.n_clusters or _MOST_AUTO)
        k = settings.n_clusters or by_eigen_gap(seen.values[: _MOST_AUTO + 1])
    return Coded(rows, chosen, found, seen, k, ridge)


def _spectrum(codes: Codes, chosen: Labels, k: int) -> GraphSpectrum:
    own = Codes(codes.landmarks[chosen], codes.weights[chosen])
    return spectrum_of(graph_of(codes, own, len(chosen)), k + _MORE_VECTORS)


def _cluster_sample(placed: Floats, coded: Coded, settings: ClusterSettings) -> Clusters:
    """Cut one graph where it has k clear parts, or labels are by codes; else four, for the cut of least loss.

    It is that of the clusters before the sweeps, which can fit the noise of rows that a graph has cut wrongly.
    """
    with one_blas_thread():
        cuts = [_cut(coded, weigh(coded.expansion), coded.spectrum, settings)]
        if settings.max_iter and _gap(coded.spectrum.values, coded.n_wanted) > PARTED:
            ranks = neighbour_ranks(coded.expansion, coded.rows[coded.chosen])
            for scale, power in _FADINGS:
                codes = weigh(coded.expansion, (ranks / scale) ** power)
                cuts.append(_cut(coded, codes, _spectrum(codes, coded.chosen, coded.n_wanted), settings))
            cuts.sort(key=lambda cut: misfit(coded.rows, cut.labels, len(cut.centres), settings.subspace_dim))
        rule, sweeps = _best(coded, cuts, settings)
        rule, labels = _by_size(rule, label_rows(placed, rule))
    return Clusters(rule, labels, coded.spectrum.values, coded.n_wanted, sweeps)


def _best(coded: Coded, cuts: list[GraphCut], settings: ClusterSettings) -> tuple[ClusterRule, int]:
    """Sweep the first cut that leaves no cluster empty, or as few as any: one subspace may hold all rows."""
    tried: list[tuple[int, ClusterRule, int]] = []
    for cut in cuts:
        found, rule, sweeps = _sweep(coded, cut, settings)
        if found == coded.n_wanted:
            return rule, sweeps
        tried.append((found, rule, sweeps))
    return max(tried, key=lambda one: one[0])[1:]


def _gap(values: Floats, k: int) -> float:
    """How far the k-th eigenvalue is from one, relative to the next; zero where there is no other number to compare."""
    return float(relative_gaps(values)[k - 1]) if 1 < k < len(values) else 0.0


def _cut(coded: Coded, codes: Codes, seen: GraphSpectrum, settings: ClusterSettings) -> GraphCut:
    """K-means of the embedded codes."""
    rows = coded.rows
    nodes = _damped(seen, coded.n_wanted)
    labels, centres = _k_means(embed(codes, nodes), coded.chosen, coded.n_wanted)
    if settings.max_iter and len(centres) < min(coded.n_wanted, len(distinct_rows(np.rint(rows / _SAME)))):
        labels, centres = _k_means(rows, coded.chosen, coded.n_wanted)  # so few rows that all codes are alike
    return GraphCut(nodes, labels, centres)


def _sweep(coded: Coded, cut: GraphCut, settings: ClusterSettings) -> tuple[int, ClusterRule, int]:
    """Sweeps from a cut; the rule that both lead to, with its number of clusters that have rows, and of sweeps."""
    rows, k, rank = coded.rows, len(cut.centres), settings.subspace_dim
    bases, sweeps, found = Bases(np.zeros((k, rows.shape[1], 0)), np.zeros((k, rows.shape[1]))), 0, k
    if settings.max_iter:
        bases, sweeps = refine(rows, cut.labels, k, rank, settings.max_iter)
        found = len(np.unique(residuals(rows, bases).argmin(axis=1)))
    return found, ClusterRule(bases, rows[coded.chosen], cut.nodes, cut.centres, coded.ridge), sweeps


def _damped(seen: GraphSpectrum, k: int) -> Floats:
    """
    What landmarks say of rows: k + 10 eigenvectors, those beyond k by how near they are to the first k.

    Where the gap after k is wide they count for nothing, else they would split large clusters; where there is none
    k of them tell less.
    """
    values = seen.values[: k + _MORE_VECTORS]
    rest = 1.0 - values + GAP
    weights = np.minimum(1.0, rest[min(k, len(rest)) - 1] / rest) * np.maximum(values, 0.0)
    return seen.nodes[:, : len(values)] * weights


def _k_means(rows: Floats, landmarks: Labels, k: int) -> tuple[Labels, Floats]:
    """From Ward's tree of the landmarks, which needs no draws; no more centres than distinct rows."""
    some = rows[landmarks[:: -(-len(landmarks) // _TREE)]]
    if len(distinct_rows(some)) <= k:
        some = rows
    k = min(k, len(distinct_rows(some)))
    best = lloyd(rows, cluster_means(some, _ward(some, k), k))
    return best.labels, quantise(best.centres)


def _ward(rows: Floats, k: int) -> Labels:
    """Merge rows as Ward, Hierarchical grouping, JASA 58, 1963, has it, until k clusters are left."""
    n = len(rows)
    merges = hierarchy.linkage(rows, "ward")[: n - k, :2].astype(np.intp) if n > 1 else np.zeros((0, 2), dtype=np.intp)
    made = np.repeat(n + np.arange(len(merges)), 2)
    size = n + len(merges)
    tree = sparse.csr_array((np.ones(len(made)), (made, merges.ravel())), shape=(size, size))
    parts: Labels = csgraph.connected_components(tree, directed=False)[1][:n]
    return parts


def _by_size(rule: ClusterRule, labels: Labels) -> tuple[ClusterRule, Labels]:
    """Number clusters by size, and drop empty ones."""
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

    wanted: number of anchors, and dimension of the subspace in which a cone's planes lie. Returns at least one anchor
    of each cluster, where it has rows.
    """
    k, dim = len(clusters.rule.centres), wanted.subspace_dim
    n_anchors = wanted.n_anchors(k)
    most = max(1, min(n_anchors - k + 1, math.ceil(3 * n_anchors / k)))
    each = max(1.0, n_anchors / k)
    s = settings.n_subproblems or max(32, math.ceil(_PLANES_PER_ANCHOR * each * math.log(max(each, 2.0))))
    with one_blas_thread():
        frames = fit_bases(sketch.placed, clusters.labels, k, dim).columns
        cones = [cone_of(sketch.placed[clusters.labels == i], frames[i]) for i in range(k)]
        drawn = [tangents(cone, settings.ensemble, settings.seed + i, s + _FRESH) for i, cone in enumerate(cones)]
        found = _divide(rows, sketch, clusters.rule, cones, drawn, run)
        pairs = zip(cones, found.cones, drawn, strict=True)
        anchors = [choose_anchors(cone, tops, own, _FRESH, most) for cone, tops, own in pairs]
        counts = share_out([one.gains for one in anchors], n_anchors)
        pairs = zip(cones, found.cones, drawn, strict=True)
        anchors = [choose_anchors(*one, _FRESH, count) for one, count in zip(pairs, counts, strict=True)]
    return ConeFit(
        np.concatenate([one.rows for one in anchors]),
        np.repeat(np.arange(k), [len(one.rows) for one in anchors]),
        np.concatenate([one.votes for one in anchors]),
        found.sizes,
        clusters.spectrum,
        s,
        np.array([one.curve[-1] if len(one.curve) else np.nan for one in anchors]),
    )


def _divide(
    rows: Rows, sketch: Sketch, rule: ClusterRule, cones: list[ClusterCone], drawn: list[Floats], run: Run
) -> ClusterExtremes:
    """The pass; on data that are their own sample, over the coordinates that are there already."""
    directions = np.stack([quantise(own) for own in drawn])
    axes, frames = np.stack([cone.axis for cone in cones]), np.stack([cone.frame for cone in cones])
    basis = None if sketch.whole else sketch.basis
    job = ConePlanes(basis, rule, axes, directions, frames)
    return cone_extremes(as_rows(sketch.placed) if sketch.whole else rows, job, run)
