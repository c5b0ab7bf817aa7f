"""Scores by completion: the mixture comes from one half of a document's words, and the others alone are scored."""

import dask
import dask.array as da
import numpy as np
import pytest

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.lda.documents import count_scales
from dask_dca.models.lda.passes import ALL_STATISTICS, TopicModel, completion_likelihood, refine

RNG = np.random.default_rng(0)
TOPICS = RNG.dirichlet(np.full(12, 0.3), 3)  # rows on the simplex
PROBABILITY = TOPICS.mean(axis=0)
COUNTS = np.array([RNG.multinomial(40, h @ TOPICS) for h in RNG.dirichlet(np.full(3, 0.2), 50)], dtype=float)
PRIOR, STEPS = 0.4, 30


def by_hand(document):
    """Log likelihood of the second, fourth, ... different word under the mixture of the others; and their number."""
    words = np.flatnonzero(document)
    seen, hidden = words[::2], words[1::2]
    theta = np.full(3, 1 / 3)
    for _ in range(STEPS):
        explained = (document[seen] / (theta @ TOPICS[:, seen])) @ TOPICS[:, seen].T
        theta = theta * explained + PRIOR
        theta /= theta.sum()
    return (document[hidden] * np.log(theta @ TOPICS[:, hidden])).sum(), document[hidden].sum()


@pytest.mark.parametrize("chunks", [(50, 12), (7, 5)])
def test_hidden_words_are_scored_under_the_mixture_of_the_seen_ones(chunks):
    model = TopicModel((TOPICS / PROBABILITY).T, PROBABILITY, PRIOR, (1.0,) * STEPS)
    with dask.config.set(scheduler="synchronous"):
        found, n_words = completion_likelihood(as_rows(da.from_array(COUNTS, chunks=chunks)), model, Run())
    likelihoods, numbers = np.transpose([by_hand(document) for document in COUNTS])
    assert n_words / 2.0**13 == numbers.sum()
    assert found == pytest.approx(likelihoods.sum() / numbers.sum(), abs=1e-5)


@pytest.mark.parametrize("held", [0.0, 0.3])
@pytest.mark.parametrize("chunks", [(50, 12), (7, 5)])
def test_a_pass_that_tells_less_tells_the_same(chunks, held):
    model = TopicModel((TOPICS / PROBABILITY).T, PROBABILITY, PRIOR, (1.0,) * 3, held_out_share=held)
    rows, scales = as_rows(da.from_array(COUNTS, chunks=chunks)), count_scales(COUNTS.sum(axis=0))
    with dask.config.set(scheduler="synchronous"):
        whole = refine(rows, model, scales, Run())
        parts = [refine(rows, model, scales, Run(), [name]) for name in ALL_STATISTICS]
    np.testing.assert_array_equal(parts[0].counts, whole.counts)
    assert (parts[1].likelihood, parts[1].n_words) == (whole.likelihood, whole.n_words)
    assert (parts[2].completion, parts[2].n_completed) == (whole.completion, whole.n_completed)
    assert [part.counts.size > 0 for part in parts] == [True, False, False]
    assert [part.n_words > 0 for part in parts] == [False, True, False]
    assert (whole.n_completed > 0) == (held > 0.0)
    assert whole.n_words / 2.0**13 < COUNTS.sum() or not held
