"""The paper's hidden Markov model: three successive frames are three views of the state of the middle one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_dca.anchoring.parameters import Settings
from dask_dca.anchoring.views import ColumnViews, fetch_views, paper_anchors_of_views
from dask_dca.engine.passes import Run, map_rows
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.tiles import take_rows
from dask_dca.errors import InvalidInputError
from dask_dca.geometry.arrays import Numbers
from dask_dca.geometry.nnls import simplex_coefficients
from dask_dca.models.em import Refined
from dask_dca.models.gaussians import equal_covariances
from dask_dca.models.hmm.expectation import lay_out
from dask_dca.models.hmm.fit import HMMFit, HMMSettings
from dask_dca.models.hmm.model import FrameFeatures, HiddenMarkov, hmm_moments, in_data_units, m_step
from dask_dca.models.hmm.passes import e_step_pass
from dask_dca.models.hmm.recursions import Markov, stationary_distribution
from dask_dca.models.hmm.start import feature_scale, take_stretches


def triples(rows: Rows, edges: Numbers) -> Any:
    """Concatenate each frame with the two that follow, the paper's X = [X_1, X_2, X_3].

    edges (m + 1,): ends of sequences, which no triple crosses. Returns (n - 2 m, 3 p), lazy for chunked input.
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
    """Return all rows of a block as one dense array."""
    return take_rows(columns, start, np.arange(start, start + columns[0].shape[0]))[1]


def fit_paper_hmm(rows: Rows, edges: Numbers, k: int, settings: HMMSettings, anchoring: Settings, run: Run) -> HMMFit:
    """Fit a hidden Markov model by the paper's method: O = X_{A,2}, and T on the simplex with O T = X_{A,3}.

    The paper estimates neither covariances nor start probabilities. Here covariances are those of one Baum-Welch step,
    whose other results are not used, and the start is the stationary distribution. Typical frames are the middle ones
    of the anchors' triples.
    """
    p, sample = rows.n_features, take_stretches(rows, edges, run)  # first, since it checks the range
    three = as_rows(triples(rows, edges))
    first, middle, last = (np.arange(p, dtype=np.int64) + i * p for i in range(3))
    views = ColumnViews((middle, last, first))
    found = paper_anchors_of_views(three, views, k, anchoring, run)
    means, following, _ = fetch_views(three, views, found.indices, run)
    transmat = simplex_coefficients(following, means)
    transmat /= transmat.sum(axis=1, keepdims=True)
    markov = Markov(stationary_distribution(transmat), transmat)
    kind = "diag" if settings.covariance_type == "tied" else settings.covariance_type
    scale = feature_scale(sample, settings.min_covar, kind)
    unit = equal_covariances(1.0, kind, *means.shape)
    guess = HiddenMarkov(markov, scale.transform(means), unit, kind, np.zeros(len(means), dtype=bool))
    states, features = guess.states(scale.log_scale), FrameFeatures(kind, scale.centre, scale.units)
    seen, _ = e_step_pass(rows, lay_out(edges, 4 * p), states, markov, features, run)
    moments = hmm_moments(seen, kind)
    found_model = in_data_units(
        m_step(seen.starts, seen.transitions, moments, kind, scale.unit_floors), scale.centre, scale.units
    )
    covariances = found_model.covariances
    if settings.covariance_type == "tied":
        covariances = np.diag((seen.counts[:, None] * covariances).sum(axis=0) / seen.counts.sum())
    model = HiddenMarkov(markov, means, covariances, settings.covariance_type, found_model.at_floor)
    refined = Refined(
        model, (seen, _middle_frames(found.indices, edges)), [seen.log_likelihood / rows.n_rows], converged=False
    )
    n_range = (len(means), len(means))
    return HMMFit(model, refined, [], found.votes, 2 * found.n_subproblems, found.confidence, 0, n_range)


def _middle_frames(indices: Numbers, edges: Numbers) -> Numbers:
    """Frame numbers of the middle frames of triples."""
    counts = np.maximum(np.diff(edges) - 2, 0)
    ends = np.cumsum(counts)
    which = np.searchsorted(ends, indices, side="right")
    return edges[which] + (indices - (ends - counts)[which]) + 1
