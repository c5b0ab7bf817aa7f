"""What fitted clusters are and do, however they were found: labels, anchors, words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from dask_dca.engine.blockwise import map_rows
from dask_dca.engine.cone_extremes import label_block
from dask_dca.engine.coordinates import unit_rows
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.kernels.cluster_rule import ClusterRule
from dask_dca.kernels.subspaces import Bases
from dask_dca.models.attributes import CLUSTERS
from dask_dca.models.base import AnchorModel
from dask_dca.models.describe_clusters import describe_clusters
from dask_dca.models.subspace_paper import cone_block

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows

    Labels = NDArray[np.int64]

__all__ = ["ConeClusters"]


class ConeClusters(ClusterMixin, AnchorModel):
    """Base of models whose clusters are cones spanned by anchors; not for direct use."""

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
    _count: ClassVar = "n_clusters"
    _per_row: ClassVar = "predict"

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

    def _predict(self, rows: Rows) -> Any:
        if self.sketch_.shape[1]:
            bases = Bases(self.bases_, self.axes_)
            rule = ClusterRule(bases, self.landmarks_, self.nodes_, self.centres_, self.ridge_)
            found = map_rows(rows, label_block, (self.sketch_, rule), None)
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

    def _keep_anchors(self, indices: Labels, clusters: Labels, votes: Labels, sizes: Labels, n_planes: int) -> None:
        self.anchor_indices_, self.anchor_clusters_ = indices, clusters
        self.votes_, self.vote_share_, self.vote_confidence_ = votes, votes / n_planes, wilson_bounds(votes, n_planes)
        self.cluster_sizes_, self.n_zero_rows_ = sizes[:-1], int(sizes[-1])
        self.n_clusters_, self.n_components_, self.n_subproblems_ = len(sizes) - 1, len(indices), n_planes

    def _facts(self) -> dict[str, Any]:
        coverage = [float(value) if np.isfinite(value) else None for value in self.coverage_by_cluster_]
        return super()._facts() | {
            "n_clusters": self.n_clusters_,
            "cluster_sizes": self.cluster_sizes_.tolist(),
            "n_subproblems": self.n_subproblems_,
            "n_zero_rows": self.n_zero_rows_,
            "coverage_by_cluster": coverage,
            "anchors_by_cluster": [rows.tolist() for rows in self.anchors_by_cluster_],
        }

    def _describe(self) -> list[str]:
        return describe_clusters(self)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in super().__getstate__().items() if key != "_labels"}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
