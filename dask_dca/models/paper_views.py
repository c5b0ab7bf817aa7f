"""The paper's general problem X = F Y_A for latent variable models: moments X covered by outer products Y of the data.

Rows have three views. X are the moments E[x1 (x) x2] and E[<eta, x3> x1 (x) x2], Y the outer products x1 (x) x2 of
single rows (the paper's section on latent variable models, and its multi-view mixture model).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.sampling import spread_rows
from dask_dca.engine.view_moments import Planes, moment_coordinates, rows_outside
from dask_dca.engine.views import fetch_views
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry import angles, rank_one
from dask_dca.geometry.cone import nonnegative_from_gram
from dask_dca.geometry.votes import VoteHistogram, count_votes
from dask_dca.models.paper import elect, n_planes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.views import Views
    from dask_dca.models.parameters import Settings
    from dask_dca.models.result import AnchorResult

    Floats = NDArray[np.float64]
    Three = tuple[Floats, Floats, Floats]

__all__ = ["PaperMixture", "paper_anchors_of_views", "paper_mixture"]

_MOST_ENTRIES: Final = 2**25  # of all planes together on a set of feature pairs
_SAMPLE: Final = (32, 8)  # rows that set the units of sums, and that the ensemble "data" draws from


@dataclass(frozen=True)
class PaperMixture:
    """What the paper recovers of a multi-view mixture: means that are rows of the data, and weights."""

    anchors: AnchorResult
    means: Three  # (k, p1), (k, p2), (k, p3): the views of the anchors, the paper's O_1, O_2, O_3 transposed
    weights: Floats  # (k,), their sum one


def paper_anchors_of_views(rows: Rows, views: Views, n_anchors: int, settings: Settings, run: Run) -> AnchorResult:
    """
    Find k rows whose outer products x1 (x) x2 span a cone around the moments: the paper's DCA for mixtures.

    Two passes after a sample: the moments on the planes, and the rows just outside them.

    Parameters
    ----------
    rows : Rows
        The data.
    views : Views
        How its rows are read as three views, for example `ColumnViews`.
    n_anchors : int
        Number of anchors k.
    settings : Settings
        Planes and seed. The ensembles "unit" and "pairs" are the paper's matrix completion: each axis is a feature
        pair of a random set Omega, or lies anywhere in the space of Omega's pairs.
    run : Run
        How passes are run.

    Returns
    -------
    AnchorResult
        Row numbers; n_pointed counts the planes on which the moments fit into less than half a turn.

    Raises
    ------
    InvalidInputError
        No row lies outside the moments on any plane.
    """
    sample = fetch_views(rows, views, spread_rows(rows.n_rows, *_SAMPLE), run)
    s, q = n_planes(n_anchors, settings), min(n_anchors, sample[2].shape[1])
    planes = Planes(
        settings.ensemble, settings.seed, s, 1 + q, sample, n_pairs=_n_pairs(sample, s, n_anchors, settings)
    )
    moments = moment_coordinates(rows, views, planes, run)
    keys = angles.cosine_keys(moments)
    there = ~np.isnan(keys)
    least = np.where(there, keys, np.inf).min(axis=0)
    greatest = np.where(there, keys, -np.inf).max(axis=0)
    extremes = rows_outside(rows, views, planes, (least, greatest), run)
    missing = f"no row's outer product lies outside the moments on any of {s} planes: are all rows of a view zero?"
    rows_voted, counted = count_votes(*extremes)
    return elect(
        VoteHistogram(rows_voted, counted, np.zeros((len(counted), 0)), np.zeros((2, 0)), s),
        n_anchors,
        missing,
        n_pointed=int(rank_one.pointed_planes(moments).sum()),
        sample=np.hstack(sample)[:128],
    )


def _n_pairs(sample: Three, n_planes: int, n_anchors: int, settings: Settings) -> int:
    """Size of the set Omega, after a check that every task can hold its planes."""
    if settings.ensemble != rank_one.PAIRS:
        return 0
    m = rank_one.n_pairs((sample[0].shape[1], sample[1].shape[1]), n_anchors)
    if 2 * n_planes * m > _MOST_ENTRIES:
        msg = (
            f"ensemble='pairs' needs {n_planes} planes of {m:,} feature pairs, more than a task should hold; use "
            "ensemble='unit', which takes a pair for each axis, or 'gaussian', or fewer n_subproblems"
        )
        raise InvalidParameterError(msg)
    return m


def paper_mixture(rows: Rows, views: Views, n_components: int, settings: Settings, run: Run) -> PaperMixture:
    """
    Learn a mixture as the paper does: means are anchors, weights solve E[x1 (x) x2] = sum_s w_s o1_s (x) o2_s.

    Parameters
    ----------
    rows : Rows
        The data.
    views : Views
        How its rows are read as three views.
    n_components : int
        Number of components k.
    settings : Settings
        Planes and seed.
    run : Run
        How passes are run.

    Returns
    -------
    PaperMixture
        Anchors, means and weights. The paper recovers no covariances.
    """
    anchors = paper_anchors_of_views(rows, views, n_components, settings, run)
    means = fetch_views(rows, views, anchors.indices, run)
    return PaperMixture(anchors, means, _weights(rows, views, means, run))


def _weights(rows: Rows, views: Views, means: Three, run: Run) -> Floats:
    """Non-negative least squares in Gram form: the moment is known by its coordinates on the anchors' own axes."""
    axes = (rank_one.whole_axes(means[0]), rank_one.whole_axes(means[1]))
    planes = Planes("given", 0, len(means[0]), 1, means, axes)
    unit = [whole[0] / np.linalg.norm(whole[0], axis=1, keepdims=True) for whole in axes]
    gram = (unit[0] @ unit[0].T) * (unit[1] @ unit[1].T)
    products = moment_coordinates(rows, views, planes, run)[0]
    shares = nonnegative_from_gram(gram, products / np.abs(products).max())[0]
    # shares of unit vectors; a mean of twice the length needs half of the weight
    weights = shares / np.prod([np.linalg.norm(mean, axis=1) for mean in means[:2]], axis=0)
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))
