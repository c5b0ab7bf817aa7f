"""The paper's hidden Markov model as it stands: three successive frames are three views of the middle one's state."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.anchoring.views import ColumnViews, fetch_views, paper_anchors_of_views
from dask_dca.engine.map import map_rows
from dask_dca.engine.rows import as_rows
from dask_dca.engine.tiles import take_rows
from dask_dca.errors import InvalidInputError
from dask_dca.geometry.cone import simplex_coefficients
from dask_dca.models.gaussians import prepare_gaussians
from dask_dca.models.hmm.fit import HMMFit
from dask_dca.models.hmm.passes import Emission
from dask_dca.models.hmm.recursions import Markov, stationary_distribution
from dask_dca.models.hmm.refine import HiddenMarkov, RefinedChain, moment_pass
from dask_dca.models.hmm.sample import feature_scale, take_stretches
from dask_dca.models.hmm.start import short_cut

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.anchoring.parameters import Settings
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.hmm.parameters import HMMSettings

    Numbers = NDArray[np.int64]

__all__ = ["fit_paper_hmm", "triples"]


def triples(rows: Rows, edges: Numbers) -> Any:
    """Put each frame beside the two that follow it, the paper's X = [X_1, X_2, X_3].

    edges (m + 1,): ends of sequences; no triple crosses one. Returns (n - 2 m, 3 p): the triples; lazy for chunked
    input.
    Raises InvalidInputError: no sequence has three frames.
    """
    spans = [(int(a), int(b)) for a, b in itertools.pairwise(edges) if b - a > 2]
    if not spans:
        msg = "method='paper' looks at three successive frames, and no sequence has that many; use method='robust'"
        raise InvalidInputError(msg)
    X = map_rows(replace(rows, labels=None), _whole, None, rows.n_features)
    if rows.kind == "memory":
        return np.concatenate([np.hstack([X[a : b - 2], X[a + 1 : b - 1], X[a + 2 : b]]) for a, b in spans])
    import dask.array as da

    parts = [da.concatenate([X[a : b - 2], X[a + 1 : b - 1], X[a + 2 : b]], axis=1) for a, b in spans]
    return da.concatenate(parts)


def _whole(_: None, start: int, *columns: Any) -> NDArray[np.float64]:
    """All of a block's rows as one dense array."""
    return take_rows(columns, start, np.arange(start, start + columns[0].shape[0]))[1]


def fit_paper_hmm(
    rows: Rows, edges: Numbers, k: int, settings: HMMSettings, anchoring: Settings, run: Run
) -> tuple[HMMFit, NDArray[np.int64]]:
    """Learn a hidden Markov model as the paper does: O = X_{A,2}, and T on the simplex with O T = X_{A,3}.

    Returns fitted: the model. The paper recovers neither covariances nor start probabilities: covariances are those of
    one pass of Baum-Welch whose other results are dropped, the start is the long-run distribution; anchors (k,): the
    middle frames of the anchors' triples.
    """
    p, sample = rows.n_features, take_stretches(rows, edges, run)  # first: it checks the range
    three = as_rows(triples(rows, edges))
    first, middle, last = (np.arange(p, dtype=np.int64) + i * p for i in range(3))
    views = ColumnViews((middle, last, first))
    found = paper_anchors_of_views(three, views, k, anchoring, run)
    means, following, _ = fetch_views(three, views, found.indices, run)
    transmat = simplex_coefficients(following, means)
    transmat /= transmat.sum(axis=1, keepdims=True)
    markov = Markov(stationary_distribution(transmat), transmat)
    frame = feature_scale(sample, settings.min_covar)
    variances = np.maximum(frame.spreads**2, frame.floors)
    emission = Emission(prepare_gaussians(means, np.repeat(variances[None], len(means), axis=0), "diag"))
    cut = short_cut(edges, len(means) + 2 * p)
    kind = "diag" if settings.covariance_type == "tied" else settings.covariance_type
    sums, model = moment_pass(rows, cut, (emission, markov), frame, kind, run)
    covariances = model.covariances
    if settings.covariance_type == "tied":
        covariances = np.diag((sums.counts[:, None] * covariances).sum(axis=0) / sums.counts.sum())
    model = HiddenMarkov(markov, means, covariances, settings.covariance_type, model.resting)
    refined = RefinedChain(model, [sums.log_likelihood / rows.n_rows], sums.nearest, sums.counts)
    anchors = _middle_frames(found.indices, edges)
    k_found = len(means)
    fitted = HMMFit(refined, [], found.votes, 2 * found.n_subproblems, found.confidence, 0, False, (k_found, k_found))
    return fitted, anchors


def _middle_frames(indices: Numbers, edges: Numbers) -> Numbers:
    """Frame numbers of the middle of triples."""
    counts = np.maximum(np.diff(edges) - 2, 0)
    ends = np.cumsum(counts)
    which = np.searchsorted(ends, indices, side="right")
    middles: Numbers = edges[which] + (indices - (ends - counts)[which]) + 1
    return middles
