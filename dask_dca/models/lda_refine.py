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

_POWERS: Final = (3.0, 2.0, 1.0)  # of the steps of inference: as good as eight plain ones
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
    """

    probability: Floats
    scales: Floats
    doc_prior: float
    word_prior: float

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
    for _ in range(n_passes):
        rates = topics * setting.inverse[:, None]
        model = Model(rates.astype(np.float32), setting.probability, setting.doc_prior, _POWERS)
        seen = refine(rows, model, setting.scales, run)
        counts = rates * seen.counts * (_MIXTURE_UNIT / setting.scales)[:, None]
        counts += (setting.word_prior * (setting.probability > 0.0))[:, None]
        likelihoods.append(seen.mean)
        weights = counts.sum(axis=0)
        topics = counts / weights
    return found.with_topics(topics, weights / weights.sum()), likelihoods
