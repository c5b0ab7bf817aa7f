"""Passes of EM over documents, from the topics that anchor words gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.topic_passes import Model, refine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.lda_fit import Found

    Floats = NDArray[np.float64]

__all__ = ["Refinement", "refine_topics"]

_POWERS: Final = (3.0, 3.0, 2.0, 1.0)  # of the steps of inference: as good as a dozen plain ones
_TOPIC_POWER: Final = 2.0  # of EM's own factor on topics, while the likelihood rises and further passes follow
_CORPUS_WORDS: Final = 20.0  # pseudo-words in each topic that are as frequent as in the corpus
_LEAST_COUNT: Final = 0.1  # of the prior's, below which no word may be thrown by a long step
_MIXTURE_UNIT: Final = 2.0**-16  # of mixtures, in sums of counts


@dataclass(frozen=True)
class Refinement:
    """
    What stays the same in all passes of EM.

    Attributes
    ----------
    probability : ndarray of float64, shape (V,)
        Word probabilities, zero for words that take no part.
    scales : ndarray of float64, shape (V,)
        From `count_scales`.
    doc_prior, word_prior : float
        Pseudo-words of each topic in a document, and of each word in a topic.
    longest : float
        Documents beyond this length count for an eighth of it.
    """

    probability: Floats
    scales: Floats
    doc_prior: float
    word_prior: float
    longest: float = np.inf

    @property
    def inverse(self) -> Floats:
        """
        Inverse word probabilities.

        Returns
        -------
        ndarray of float64, shape (V,)
            Zero for words that take no part.
        """
        known = self.probability > 0.0
        return np.where(known, 1.0 / np.where(known, self.probability, 1.0), 0.0)


def refine_topics(rows: Rows, found: Found, setting: Refinement, n_passes: int, run: Run) -> tuple[Found, list[float]]:
    """
    Improve topics by passes of EM over documents.

    Parameters
    ----------
    rows : Rows
        The documents, or a sample of them.
    found : Found
        Topics to start from, smoothed.
    setting : Refinement
        What stays the same in all passes.
    n_passes : int
        How many passes.
    run : Run
        How passes are run.

    Returns
    -------
    found : Found
        The topics.
    likelihoods : list of float
        Log-likelihood a word before each pass.
    """
    topics, weights, likelihoods = found.topics, found.weights, []
    prior = setting.word_prior * (setting.probability > 0.0) + _CORPUS_WORDS * setting.probability
    for i in range(n_passes):
        rates = topics * setting.inverse[:, None]
        model = Model(rates.astype(np.float32), setting.probability, setting.doc_prior, _POWERS, setting.longest)
        seen = refine(rows, model, setting.scales, run)
        counts = rates * seen.counts * (_MIXTURE_UNIT / setting.scales)[:, None]
        counts += prior[:, None]
        likelihoods.append(seen.mean)
        weights = counts.sum(axis=0)
        moved = counts / weights
        if i < n_passes - 1 and likelihoods[-1] >= max(likelihoods[:-1], default=-np.inf):
            moved = _further(topics, moved, np.outer(_LEAST_COUNT * prior, 1.0 / weights))
        topics = moved
    return found.with_topics(topics, weights / weights.sum()), likelihoods


def _further(topics: Floats, moved: Floats, least: Floats) -> Floats:
    """Move topics by a power of the factor that EM moves them by: fewer passes are needed."""
    known = topics > 0.0
    factor = np.divide(moved, topics, out=np.ones_like(moved), where=known)
    further = np.maximum(topics * factor**_TOPIC_POWER, least)
    return further / further.sum(axis=0)
