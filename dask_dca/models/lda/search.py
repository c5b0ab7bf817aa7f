"""Whether moves of topics pay: a search on some documents, judged by others that take no part in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.lda.corpus import documents_at_hand
from dask_dca.models.lda.inference import damped_counts, token_halves
from dask_dca.models.lda.moves import Corpus, split_and_merge
from dask_dca.models.lda.passes import held_out_sums, refine

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

    from dask_dca.models.lda.corpus import Cooccurrence
    from dask_dca.models.lda.moves import Moved
    from dask_dca.models.lda.refine import Refinement

    Floats = NDArray[np.float64]

__all__ = ["searched_topics"]

_DOCUMENTS: Final = 5000  # that the search is made on and judged by,
_ENTRIES: Final = 2**20  # and different words in all of them
_PARTS: Final = 5  # of which one judges
_LEAST: Final = 50  # documents that judge


@dataclass(frozen=True)
class _Judge:
    """Documents that topics may learn from, others by which they are judged, and how steps are taken."""

    own: sparse.csr_array
    others: sparse.csr_array
    setting: Refinement

    def step(self, topics: Floats, power: float) -> Floats:
        """Take a step from even mixtures."""
        model = self.setting.model(topics, np.inf)
        seen = refine(as_rows(self.own), model, self.setting.scales, Run())
        return self.setting.m_step(topics, seen, power)[0]

    def score(self, topics: Floats) -> float:
        """Score topics as they are after a last, plain step with counts as they are."""
        last = replace(self, setting=replace(self.setting, damped=False))
        likelihood, n_words = held_out_sums(
            self.others, last.setting.model(last.step(topics, 1.0), np.inf), token_halves
        )
        return likelihood / max(n_words, 1)


def searched_topics(
    sample: Cooccurrence, topics: Floats, setting: Refinement, n_steps: int, power: float, n_given: int
) -> Moved | None:
    """Search for better topics by splits and merges.

    sample: the documents; topics (V, k): where steps start from; n_steps, power: the steps that would be taken without
    moves; n_given: topics at the front that stay. Returns topics to go on from; none where steps alone explain
    documents that take no part better, or where there are too few of them to tell.
    """
    documents = documents_at_hand(sample, _DOCUMENTS, _ENTRIES)
    n_others = documents.shape[0] // _PARTS
    if n_others < _LEAST:
        return None
    with one_blas_thread():
        judge = _Judge(documents[n_others:], documents[:n_others], setting)
        plain = topics
        for _ in range(n_steps):
            plain = judge.step(plain, power)
        corpus = Corpus(damped_counts(judge.own), setting.probability, setting.prior, setting.doc_prior)
        return split_and_merge(corpus, topics, judge.score, judge.score(plain), n_given)
