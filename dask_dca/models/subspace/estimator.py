"""Subspace clustering X = F X_A with block-diagonal F: clusters as cones, each spanned by real rows of the data."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from dask_dca.anchoring.completion import complete_rows, fit_completion, warn_of_few_entries
from dask_dca.anchoring.parameters import Settings
from dask_dca.engine.passes import Reads, Run, map_rows
from dask_dca.engine.rows import Rows, check_missing
from dask_dca.engine.sampling import fetch_rows
from dask_dca.engine.weights import weigh_rows
from dask_dca.errors import (
    UNWEIGHTED,
    FewerAnchorsWarning,
    InvalidInputError,
    InvalidParameterError,
    MissingEntriesError,
    warn,
)
from dask_dca.models.attributes import CLUSTERS, completion_of, keep_completion, vote_attributes
from dask_dca.models.base import AnchorModel, whole_fit
from dask_dca.models.subspace.clusters import Bases, ClusterRule, ConeFit
from dask_dca.models.subspace.fit import ClusterSettings, anchor_cones, check_clustering, find_clusters
from dask_dca.models.subspace.paper import cone_block, fit_paper_cones
from dask_dca.models.subspace.passes import observed_label_block, unit_rows

Labels = NDArray[np.int64]

_MAX_COMPLETION_RANK: Final = 32  # largest rank of the model that imputes missing entries
_MAX_LISTED_ANCHORS: Final = 6  # most anchors of a cluster in the description
_ENSEMBLES: Final = ("mixed", "row-space", "whitened", "gaussian")  # those of method="robust"


class SubspaceClustering(ClusterMixin, AnchorModel):
    """
    Cluster rows by the cones, and the linear subspaces, that they lie in.

    Parameters
    ----------
    n_clusters : int or "auto", default "auto"
        Number of clusters k; "auto" takes the largest gap between eigenvalues of the graph of codes: by the ratio of
        their distances from one if the graph has clear parts, else by their difference.
    n_components : int, optional
        Number of anchors over all clusters, at least one for each; a cluster gets more where they add more coverage.
        By default 10 k.
    sketch_dim : int or "auto", default "auto"
        Dimension d of the sketch in which clusters are found; by default the greater of 48 and 6 k. It should be at
        least the sum of the dimensions of the subspaces, if that is known.
    n_landmarks : int or "auto", default "auto"
        Number K of rows on which all others are coded; by default 2,000, or all if there are fewer.
    subspace_dim : int or "auto", default "auto"
        Dimension of a cluster's subspace; by default 12, or half of the sketch's if that is less. Too high a
        dimension costs little accuracy, too low a dimension much. It is halved if a cluster loses all of its rows
        otherwise; `subspace_dim_` is the dimension that was used.
    damping : float or "auto", default "auto"
        Directions of the sketch are divided by this power of their energy: 0 for none, 0.25 for images of the same
        objects under changing light. "auto" is 0, and 0.05 with codes on more landmarks if the graph of codes has no
        k clear parts: if its k-th eigenvalue is below 0.85.
    max_iter : int, default 10
        Maximum number of sweeps in which rows of the sample are assigned to the nearest subspace; with 0 labels are
        those of spectral clustering of the codes.
    method : {"robust", "paper"}, default "robust"
        The default, or the paper's algorithm: mean shift of the rows' angles on random planes, extreme rows of its
        cells as anchors, spectral clustering of how often anchors share a cell.
    n_subproblems : int or "auto", default "auto"
        Number of random planes s of each cone, by default 10 k_i ln k_i for k_i anchors; with method "paper" the
        number of all planes, by default 5 K ln K for K anchors in all.
    ensemble : str, default "auto"
        Distribution of the planes' directions: "mixed", "row-space", "whitened" or "gaussian"; with method "paper"
        "gaussian", "sparse", "unit" or "data".
    missing : float or "implicit", optional
        What stands for a missing entry beside NaN and masked entries: a number, or "implicit" for what sparse rows
        don't store.
    random_state : int, Generator, RandomState or None, default 0
        Seed. An integer gives the same model on every fit; None draws a new seed each time.
    retries : int, default 3
        How often a failing task is tried again on a cluster.
    checkpoint : str, optional
        Path or URL where finished passes over chunked data are kept: a fit that was killed, begun again with the
        same data and parameters, repeats only the pass that was not finished, and ends bit for bit the same.
    verbose : bool, default False
        Show the passes' progress on standard error.

    Attributes
    ----------
    labels_ : ndarray of int64, shape (n,)
        Cluster of each row of the data of `fit`, -1 for rows of zeros or without weight. Only for data in memory, and
        not saved: `predict` gives the labels, lazily for chunked data.
    n_clusters_ : int
        Number of clusters found.
    cluster_sizes_ : ndarray of int64, shape (k,)
        Rows of each cluster, over all rows; of rows with weights the sum of these, rounded.
    anchor_indices_ : ndarray of int64, shape (m,)
        Row numbers of the anchors, by cluster and within a cluster in the order of their choice.
    anchor_clusters_ : ndarray of int64, shape (m,)
        Clusters of the anchors.
    anchors_by_cluster_ : list of ndarray of int64
        The row numbers of each cluster's anchors.
    components_ : ndarray of shape (m, p)
        The anchors X_A: rows of the data.
    votes_, vote_share_ : ndarray of shape (m,)
        Number and share of the planes of its cone on which each anchor is extreme.
    vote_confidence_ : ndarray of float64, shape (m, 2)
        Wilson's 95 % bounds on that share.
    coverage_by_cluster_ : ndarray of float64, shape (k,)
        Share of each cone's extent that its anchors cover, on planes that were not used to choose them; nan with
        method "paper".
    spectrum_ : ndarray of float64
        Leading eigenvalues of the graph of codes, decreasing; as many are close to one as there are clear clusters.
    n_components_, n_subproblems_, n_zero_rows_, n_iter_ : int
        Number of anchors, of planes of each cone, of rows of zeros, and of sweeps.
    n_unobserved_rows_ : int
        Number of rows without an observed entry, whose label is -1.
    n_missing_entries_ : int
        Number of missing entries.
    completion_mean_, completion_loadings_, completion_spread_, completion_noise_ : ndarray of float64
        After a fit on rows with missing entries: the low-rank model that imputes them, as in `NMF`.
    sketch_ : ndarray of float64, shape (p, d)
        Directions of the sketch.
    sketch_energies_ : ndarray of float64, shape (d,)
        Mean squares of unit rows along these directions, before damping.
    bases_, axes_, landmarks_, nodes_, centres_ : ndarray of float64
        The rule for labels, in coordinates of the sketch: a basis (d, r) of each cluster's subspace, whose columns
        have the square root of their shrinkage factor as length, and the mean directions of clusters that are cones;
        with `max_iter` 0 the landmarks, weighted eigenvectors at them, and the centre of each cluster in these.
    sketch_dim_, subspace_dim_, n_landmarks_, n_vectors_ : int
        Dimensions of the sketch and of subspaces, numbers of landmarks and of eigenvectors.
    ridge_ : float
        Ridge penalty of the codes' least squares: 0.1, or 0.3 if `damping` is "auto" and there are no k clear parts.
    n_features_in_, n_passes_ : int
        Number of features p, and how often the fit read all rows (samples of them are not counted).
    feature_names_in_ : ndarray of str, shape (p,)
        Names of the features, where the input had them.

    See Also
    --------
    sklearn.cluster.SpectralClustering : Spectral clustering of an n x n affinity matrix.
    dask_dca.NMF : Anchors of a single cone.

    Notes
    -----
    The model is X = F X_A with F block diagonal: in cluster i, X_i = F_i X_{A_i} (the paper's section on subspace
    clustering). Only the directions of rows count, not their lengths. Clusters are found in a sample of at most 16,384
    rows, in two passes over it; one pass over all rows finds the anchors. No n x n matrix is formed.

    Examples
    --------
    >>> import dask_dca as dca
    >>> rng = np.random.default_rng(0)
    >>> cones = [rng.random((100, 3)) @ rng.standard_normal((3, 20)) for _ in range(2)]
    >>> model = dca.SubspaceClustering(2, n_components=6).fit(np.vstack(cones))
    >>> [len(set(model.labels_[part])) for part in (slice(0, 100), slice(100, 200))]
    [1, 1]
    >>> model.cluster_sizes_
    array([100, 100])
    """

    _fitted: ClassVar = CLUSTERS
    _sizes: ClassVar = {
        "features": "n_features_in_",
        "parts": "n_components_",
        "cluster": "n_clusters_",
        "sketch_axis": "sketch_dim_",
        "direction": "subspace_dim_",
        "landmark": "n_landmarks_",
        "vector": "n_vectors_",
    }
    _told: ClassVar = ("n_clusters", "cluster_sizes", "n_subproblems", "n_zero_rows", "coverage_by_cluster",
                       "anchors_by_cluster")  # fmt: skip
    _count: ClassVar = "n_clusters"
    _per_row: ClassVar = "predict"

    def __init__(
        self,
        n_clusters: int | str = "auto",
        n_components: Any = None,
        *,
        sketch_dim: int | str = "auto",
        n_landmarks: int | str = "auto",
        subspace_dim: int | str = "auto",
        damping: float | str = "auto",
        max_iter: int = 10,
        method: str = "robust",
        n_subproblems: int | str = "auto",
        ensemble: str = "auto",
        missing: float | str | None = None,
        random_state: Any = 0,
        retries: int = 3,
        checkpoint: str | None = None,
        verbose: bool = False,
    ) -> None:
        self._take(locals())

    @whole_fit
    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """
        Find clusters and their anchors.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data of any sign: NumPy, SciPy sparse, Dask array or DataFrame, xarray, zarr array or its path.
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), optional
            How often each row counts: NumPy, or a Dask array in any chunks. A whole number is so many copies of the
            row; a row of weight zero takes no part. Weights decide which rows the sample that clusters are found from
            has, and what its directions are; there copies of a row count once.

        Returns
        -------
        SubspaceClustering
            The fitted model.

        Raises
        ------
        DCAError
            Infinite or empty data, or unusable parameters; the message says what to do.

        Notes
        -----
        Entries that are missing are NaN, masked, or what `missing` says. Then rows are clustered with missing
        entries filled by their posterior means in a Bayesian low-rank model, in which badly observed rows shrink
        towards the mean. A `FewEntriesWarning` says where too few were observed.
        """
        rows = self._rows(X, reset=True)
        settings, wanted = self._checked(rows)
        rows = weigh_rows(rows, sample_weight, self._run())
        if rows.weights is not None and self.method == "paper":
            msg = "method='paper' has no weights: pass sample_weight=None"
            raise InvalidParameterError(msg)
        self.n_unobserved_rows_ = self.n_missing_entries_ = 0
        lacks = False
        if self.method == "paper":
            self._fit_paper(rows, wanted, settings, self._run(rows))
        else:
            try:
                self._fit_robust(rows, wanted, settings, self._run(rows))
            except MissingEntriesError:
                lacks = True
        if lacks:  # outside of the handler: the error would keep the sample, whose other tasks would go on and fail
            gc.collect()
            self._fit_incomplete(rows, wanted, settings)
        self._labels = self._predict(rows) if rows.kind == "memory" else None
        return self

    def _checked(self, rows: Any) -> tuple[Settings, ClusterSettings]:
        """Parameters of anchoring, and of clustering."""
        settings = self._anchoring()
        wanted = check_clustering(self, rows)
        if self.method == "robust" and settings.ensemble not in _ENSEMBLES:
            msg = f"ensemble {self.ensemble!r} is for method='paper'; use one of {', '.join(map(repr, _ENSEMBLES))}"
            raise InvalidParameterError(msg)
        return settings, wanted

    def _check_parameters(self, rows: Any) -> None:
        self._checked(rows)
        check_missing(self.missing)

    def fit_predict(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Any:
        """
        Fit, and label the same rows.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), optional
            Weights, as for `fit`; a row of weight zero is in no cluster.

        Returns
        -------
        ndarray or dask.array.Array of int64, shape (n,)
            Labels; lazy for chunked input.

        Raises
        ------
        DCAError
            As for `fit`.
        """
        self.fit(X, sample_weight=sample_weight)
        if self._labels is not None:
            return self._labels
        return self._predict(weigh_rows(self._rows(X, reset=False), sample_weight, self._run()))

    def predict(self, X: Any) -> Any:
        """
        Label rows by the clusters that were found.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Data, as for `fit`.

        Returns
        -------
        ndarray or dask.array.Array of int64, shape (n,)
            Numbers of clusters, -1 for rows of zeros; lazy for chunked input. A row's label does not depend on the
            rows beside it.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        check_is_fitted(self)
        return self._predict(self._rows(X, reset=False))

    @property
    def labels_(self) -> Labels:
        """
        Labels of the data of `fit`, where they were in memory.

        Returns
        -------
        ndarray of int64, shape (n,)
            The labels.

        Raises
        ------
        AttributeError
            The data were chunked, or the model was loaded.
        """
        labels = self.__dict__.get("_labels")
        if labels is None:
            msg = "labels_ are kept for data in memory only, and not saved with the model; use predict(X), lazy on Dask"
            raise AttributeError(msg)
        return np.asarray(labels)

    @property
    def anchors_by_cluster_(self) -> list[Labels]:
        """
        Row numbers of each cluster's anchors.

        Returns
        -------
        list of ndarray of int64
            One array a cluster, most useful first.
        """
        check_is_fitted(self)
        return [self.anchor_indices_[self.anchor_clusters_ == i] for i in range(self.n_clusters_)]

    def _fit_incomplete(self, rows: Rows, wanted: ClusterSettings, settings: Settings) -> None:
        """Fit rows whose missing entries are filled by their posterior means in a low-rank model."""
        if rows.weights is not None:
            raise InvalidInputError(UNWEIGHTED)
        run = self._run(rows)
        rank = max(1, min(wanted.sketch_dim, rows.n_features - 1, _MAX_COMPLETION_RANK))
        completion, k, in_blocks, (self.n_unobserved_rows_, n_observed) = fit_completion(rows, rank, run)
        self.n_missing_entries_ = rows.n_rows * rows.n_features - n_observed
        filled = complete_rows(rows, completion, fill_unobserved_rows=False)
        self._fit_robust(filled, wanted, settings, replace(run, reads=Reads(filled.source, run.n_passes)))
        keep_completion(self, completion)
        n, p = rows.n_rows - self.n_unobserved_rows_, rows.n_features
        remedy = "leave out the rows and features that lack most"
        warn_of_few_entries(n_observed, n * p, k * max(n + p - k, 1), in_blocks=in_blocks, remedy=remedy)

    def _fit_robust(self, rows: Rows, wanted: ClusterSettings, settings: Settings, run: Run) -> None:
        sketch, clusters = find_clusters(rows, wanted, settings.seed, run)
        k = len(clusters.rule.centres)
        found = anchor_cones(rows, sketch, clusters, wanted, settings, run)
        if k < clusters.n_wanted:
            warn(
                f"found only {k} of the {clusters.n_wanted} clusters asked for: directions of rows tell no "
                f"more apart; use n_clusters={k}",
                FewerAnchorsWarning,
            )
        self._keep_rule(sketch.basis, clusters.rule)
        self.sketch_energies_, self.n_iter_ = sketch.energies, clusters.n_sweeps
        self._keep(rows, found, run)

    def _fit_paper(self, rows: Rows, wanted: ClusterSettings, settings: Settings, run: Run) -> None:
        found = fit_paper_cones(rows, wanted, settings, run)
        k, nothing = len(found.coverage), np.zeros((0, 0))
        bases = Bases(np.zeros((k, 0, 0)), np.zeros((k, 0)))
        self._keep_rule(np.zeros((rows.n_features, 0)), ClusterRule(bases, nothing, nothing, np.zeros((k, 0))))
        self.n_iter_ = 0
        self._keep(rows, found, run)

    def _predict(self, rows: Rows) -> Any:
        if self.sketch_.shape[1]:
            bases = Bases(self.bases_, self.axes_)
            rule = ClusterRule(bases, self.landmarks_, self.nodes_, self.centres_, self.ridge_)
            found = map_rows(
                rows,
                observed_label_block,
                (self.sketch_, rule, completion_of(self) or getattr(self, "sketch_energies_", None)),
                None,
            )
        else:
            rays = unit_rows(self.components_.astype(np.float64))
            found = map_rows(rows, cone_block, (rays, self.anchor_clusters_), None)
        return found.astype(np.int64)

    def _keep_rule(self, sketch: NDArray[np.float64], rule: ClusterRule) -> None:
        self.sketch_, self.centres_, self.ridge_ = sketch, rule.centres, rule.ridge
        self.bases_, self.axes_ = rule.bases.columns, rule.bases.axes
        used = slice(None) if not self.bases_.shape[2] else slice(0, 0)  # subspaces need no landmarks
        self.landmarks_, self.nodes_ = rule.landmarks[used], rule.nodes[used]
        self.sketch_dim_, self.n_landmarks_ = sketch.shape[1], len(self.landmarks_)
        self.subspace_dim_, self.n_vectors_ = self.bases_.shape[2], rule.nodes.shape[1]

    def _keep(self, rows: Rows, found: ConeFit, run: Run) -> None:
        self.__dict__.update(vote_attributes(found.votes, found.n_planes))
        self.anchor_indices_, self.anchor_clusters_ = found.indices, found.clusters
        self.coverage_by_cluster_, self.spectrum_ = found.coverage, found.spectrum
        sizes = np.rint(found.sizes).astype(np.int64)
        self.cluster_sizes_, self.n_zero_rows_ = sizes[:-1], int(sizes[-1])
        self.n_clusters_, self.n_components_ = len(found.coverage), len(found.indices)
        unique, where = np.unique(found.indices, return_inverse=True)  # cones may share an anchor
        self.components_ = fetch_rows(rows, unique, run)[where].astype(rows.output_dtype)
        self.n_passes_ = run.n_passes

    def _describe(self) -> list[str]:
        """Set clusters and their anchors in a table, and say how far the anchors reach."""
        found = f"{self.n_clusters_} clusters, {self.n_components_} anchors of {self.n_features_in_} features"
        head = f"{'cluster':>7} {'rows':>10} {'anchors':>7} {'coverage':>8}   rows of the anchors"
        lines = [f"SubspaceClustering: {found}", head]
        reach = self.coverage_by_cluster_
        for i, rows in enumerate(self.anchors_by_cluster_):
            named = " ".join(map(str, rows[:_MAX_LISTED_ANCHORS])) + (" ..." if len(rows) > _MAX_LISTED_ANCHORS else "")
            shown = f"{reach[i]:.3f}" if np.isfinite(reach[i]) else "-"
            lines.append(f"{i:>7} {self.cluster_sizes_[i]:>10} {len(rows):>7} {shown:>8}   {named}")
        if np.isfinite(reach).any():
            share = f"{100 * float(np.nanmean(reach)):.1f} %"
            lines.append(
                f"On planes that took no part in choosing them, the anchors reach {share} of their cones' extent."
            )
        lines.append(self._gap())
        if self.n_zero_rows_:
            lines.append(f"{self.n_zero_rows_} rows are all zero: they have no cluster (label -1).")
        return lines

    def _gap(self) -> str:
        values, k = self.spectrum_, self.n_clusters_
        if len(values) <= k:
            return "The graph has no eigenvalue beyond the clusters."
        return (
            f"The graph's eigenvalue {k} is {values[k - 1]:.3f}, the next one {values[k]:.3f}: the closer the first is "
            "to one and the wider the gap, the clearer the clusters."
        )
