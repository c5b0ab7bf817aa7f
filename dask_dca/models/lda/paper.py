"""The paper's algorithm for topics: Zhou, Bilmes and Guestrin, NIPS 2014, section on latent Dirichlet allocation."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.anchoring.literal import n_planes
from dask_dca.anchoring.parameters import Settings
from dask_dca.engine.process import one_blas_thread
from dask_dca.errors import FewerAnchorsWarning, warn
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.nnls import nonnegative_from_gram
from dask_dca.geometry.planes import plane_pairs
from dask_dca.geometry.votes import count_votes, select_votes
from dask_dca.models.lda.corpus import Cooccurrence
from dask_dca.models.lda.fit import FittedTopics, check_topics
from dask_dca.models.lda.topics import dirichlet_of_moment

_PASS_ENTRIES: Final = 2**23  # maximum number of words times columns in one pass


def conical_topics(products: Floats, anchors: Numbers) -> Floats:
    """Solve Q = F Q_A with F_A = I, F >= 0, and normalise the columns of F to topics (V, k): the paper's O.

    products (V, k): Q Q_A^T, the rows of the co-occurrence times those of the anchor words A (k,).
    """
    F = nonnegative_from_gram(products[anchors], products)
    F[anchors] = np.eye(len(anchors))
    return F / F.sum(axis=0)


class _PaperQ:
    """The paper's Q, in which all documents have equal weight, without words that are left out."""

    def __init__(self, operator: Cooccurrence, known: NDArray[np.bool_]) -> None:
        self.operator = replace(operator, by_length=False)
        self.known = known[:, None].astype(np.float64)

    def __matmul__(self, columns: Floats) -> Floats:
        return self.known * (self.operator @ (self.known * columns))


def paper_topics(operator: Cooccurrence, known: NDArray[np.bool_], n_topics: int, settings: Settings) -> FittedTopics:
    """Find topics by the paper's algorithm: A = DCA(Q, Q, k), Q = F Q_A, columns of F normalised.

    known (V,): words that are not left out; settings: number of planes, ensemble and seed.
    Raises InvalidParameterError: there are fewer words than topics.
    """
    check_topics(n_topics, known)
    Q = _PaperQ(operator, known)
    s = n_planes(n_topics, settings)
    with one_blas_thread():
        candidates, votes = count_votes(*_extremes(Q, s, settings))
        anchors = select_votes(candidates, votes, n_topics)
        if len(anchors) < n_topics:
            msg = (
                f"found only {len(anchors)} of the {n_topics} anchor words asked for: no others have votes ({s} planes)"
            )
            warn(msg, FewerAnchorsWarning)
        rows = Q @ _unit_columns(anchors, len(known))
        topics = conical_topics(Q @ rows, anchors)
        moments: Floats = np.asarray(np.linalg.pinv(topics), dtype=np.float64)
        E = moments @ (Q @ moments.T)
        weights = np.maximum(E.sum(axis=1), 1e-9)
    own = votes[np.searchsorted(candidates, anchors)]
    certificate = (anchors, own, candidates, votes, s, np.zeros(0), float("nan"))
    return FittedTopics(topics, weights / weights.sum(), dirichlet_of_moment(E), *certificate)


def _extremes(Q: _PaperQ, n_planes: int, settings: Settings) -> tuple[Numbers, Numbers]:
    """Words of least and of greatest angle to the vertical axis in each plane Q Phi, several planes in a pass."""
    low, high = np.empty(n_planes, dtype=np.int64), np.empty(n_planes, dtype=np.int64)
    step = max(1, _PASS_ENTRIES // (2 * len(Q.known)))
    for begin in range(0, n_planes, step):
        part = np.arange(begin, min(begin + step, n_planes))
        across, along = np.split(Q @ _directions(Q, settings, part), 2, axis=1)
        angles = np.arctan2(np.abs(across), along)
        nonzero = (across != 0.0) | (along != 0.0)
        low[part] = np.where(nonzero, angles, np.inf).argmin(axis=0)
        high[part] = np.where(nonzero, angles, -np.inf).argmax(axis=0)
    return low, high


def _directions(Q: _PaperQ, settings: Settings, index: Numbers) -> Floats:
    """The two directions of some planes as columns: all first ones, then all second ones."""
    ensemble = "unit" if settings.ensemble == "data" else settings.ensemble
    # directions of few words are drawn from known words only; in Gaussian ones the other entries have no effect
    words = np.arange(len(Q.known)) if ensemble == "gaussian" else np.flatnonzero(Q.known)
    pairs = plane_pairs(ensemble, settings.seed, index, len(words))
    if ensemble == "unit":  # single words, or their rows of Q
        picked = _unit_columns(words[pairs.ravel()], len(Q.known))
        return Q @ picked if settings.ensemble == "data" else picked
    found = np.zeros((len(Q.known), 2 * len(index)))
    found[words] = (pairs if isinstance(pairs, np.ndarray) else pairs.toarray()).reshape(2 * len(index), -1).T
    return found


def _unit_columns(words: Numbers, n_words: int) -> Floats:
    """Unit vectors of some words as columns."""
    columns = np.zeros((n_words, len(words)))
    columns[words, np.arange(len(words))] = 1.0
    return columns
