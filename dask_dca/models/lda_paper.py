"""The paper's recipe for topics as it stands: Gaussian planes in word space, top-k votes, the cone's coefficients."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.engine.threads import one_blas_thread
from dask_dca.errors import FewerAnchorsWarning, warn
from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.geometry.votes import count_votes, select_votes
from dask_dca.kernels.dirichlet import dirichlet_of_moment
from dask_dca.kernels.recovery import conical_topics
from dask_dca.models.lda_checks import check_topics
from dask_dca.models.lda_fit import Found

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.cooccurrence import Cooccurrence

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["paper_topics"]

_PLANES_PER_TOPIC: Final = 5.0  # s = 5 k ln k
_PASS_ENTRIES: Final = 2**23  # words x columns of one pass


class _PaperQ:
    """The paper's Q, in which a document counts as one; words that take no part are left out."""

    def __init__(self, operator: Cooccurrence, known: NDArray[np.bool_]) -> None:
        self.operator = replace(operator, by_length=False)
        self.known = known[:, None].astype(np.float64)

    def __matmul__(self, columns: Floats) -> Floats:
        return self.known * (self.operator @ (self.known * columns))


def paper_topics(
    operator: Cooccurrence, known: NDArray[np.bool_], n_topics: int, n_planes: int | None, seed: int
) -> Found:
    """
    Find topics by the paper's text: A = DCA(Q, Q, k), X = F X_A, columns of F normalised.

    Parameters
    ----------
    operator : Cooccurrence
        The documents.
    known : ndarray of bool, shape (V,)
        Words that take part.
    n_topics : int
        Number of topics k.
    n_planes : int or None
        Number of planes s; 5 k ln k by default.
    seed : int
        Seed of the planes.

    Returns
    -------
    Found
        The topics; without a spectrum.

    Raises
    ------
    InvalidParameterError
        There are fewer words than topics.
    """
    check_topics(n_topics, known)
    Q = _PaperQ(operator, known)
    s = n_planes or max(1, math.ceil(_PLANES_PER_TOPIC * n_topics * math.log(max(n_topics, 2))))
    with one_blas_thread():
        candidates, votes = count_votes(*_extremes(Q, len(known), s, seed))
        anchors = select_votes(candidates, votes, n_topics)
        if len(anchors) < n_topics:
            warn(f"only {len(anchors)} words have votes on {s} planes, of {n_topics} asked for", FewerAnchorsWarning)
        picked = np.zeros((len(known), len(anchors)))
        picked[anchors, np.arange(len(anchors))] = 1.0
        rows = Q @ picked
        topics = conical_topics(Q @ rows, anchors)
        moments: Floats = np.asarray(np.linalg.pinv(topics), dtype=np.float64)
        E = moments @ (Q @ moments.T)
        weights = np.maximum(E.sum(axis=1), 1e-9)
    own = votes[np.searchsorted(candidates, anchors)]
    certificate = (anchors, own, candidates, votes, s, np.zeros(0), float("nan"))
    return Found(topics, weights / weights.sum(), dirichlet_of_moment(E), *certificate)


def _extremes(Q: _PaperQ, n_words: int, n_planes: int, seed: int) -> tuple[Numbers, Numbers]:
    """Words of least and of greatest angle to the vertical axis in each plane Q Phi, in few passes."""
    low, high = np.empty(n_planes, dtype=np.int64), np.empty(n_planes, dtype=np.int64)
    step = max(1, _PASS_ENTRIES // (2 * n_words))
    for begin in range(0, n_planes, step):
        part = np.arange(begin, min(begin + step, n_planes))
        seeds = child_seeds(seed, np.concatenate([2 * part, 2 * part + 1]))
        across, along = np.split(Q @ ndtri(uniforms(seeds, n_words)).T, 2, axis=1)
        angles = np.arctan2(np.abs(across), along)
        somewhere = (across != 0.0) | (along != 0.0)
        low[part] = np.where(somewhere, angles, np.inf).argmin(axis=0)
        high[part] = np.where(somewhere, angles, -np.inf).argmax(axis=0)
    return low, high
