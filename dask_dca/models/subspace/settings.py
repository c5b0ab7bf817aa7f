"""Checks of the parameters of subspace clustering, and their measured defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.anchoring.parameters import check_count, check_integer, is_auto
from dask_dca.errors import InvalidParameterError

if TYPE_CHECKING:
    from dask_dca.engine.rows import Rows

__all__ = ["ClusterSettings", "check_clustering"]

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
    msg = f"damping must be 'auto', or a power from 0 (none) to below 1 (.25 for changing light); received {value!r}"
    raise InvalidParameterError(msg)
