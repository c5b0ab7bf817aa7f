"""The sums of Baum and Welch's E-step over pieces of sequences are the textbook's over whole ones."""

import itertools

import dask
import dask.array as da
import numpy as np
import pytest

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sequences import as_edges, cut_sequences
from dask_dca.models.gaussians import log_densities, prepare_gaussians
from dask_dca.models.hmm.passes import Emission, Origins, e_step_pass
from dask_dca.models.hmm.recursions import Markov
from tests.models.hmm.test_recursions import textbook

RNG = np.random.default_rng(0)
MARKOV = Markov(np.array([0.6, 0.3, 0.1]), np.array([[0.7, 0.2, 0.1], [0.3, 0.5, 0.2], [0.25, 0.25, 0.5]]))
GAUSSIANS = prepare_gaussians([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]], np.ones((3, 2)), "diag")
X = RNG.integers(-1, 4, (300, 2)).astype(np.float64)  # whole numbers: most frames are there several times
LENGTHS = ([300], [100, 1, 199], [1] * 40 + [260])


@pytest.mark.parametrize("chunk", [300, 64, 23])
@pytest.mark.parametrize("lengths", LENGTHS, ids=["one", "three", "short ones"])
def test_sums_over_pieces_are_the_textbooks(lengths, chunk):
    edges, logs, centre = as_edges(lengths, 300), log_densities(GAUSSIANS, X), np.array([1.0, 1.0])
    cut = cut_sequences(edges, length=32, burn_in=32, width=5)
    assert cut.length < max(lengths)
    rows = as_rows(da.from_array(X, chunks=(chunk, -1)))
    with dask.config.set(scheduler="synchronous"):
        found = e_step_pass(rows, cut, Emission(GAUSSIANS), MARKOV, Origins(centre, np.full(2, 1.5)), "diag", Run())
    parts = [textbook(MARKOV, logs[a:b]) for a, b in itertools.pairwise(edges)]
    posteriors, close = np.concatenate([part[1] for part in parts]), {"atol": 1e-3, "rtol": 1e-5}
    assert found.log_likelihood == pytest.approx(sum(part[0] for part in parts), abs=1e-3)
    np.testing.assert_allclose(found.starts, sum(part[1][0] for part in parts), **close)
    np.testing.assert_allclose(found.transitions, sum(part[2] for part in parts), **close)
    np.testing.assert_allclose(found.counts, posteriors.sum(axis=0), **close)
    np.testing.assert_allclose(found.first, posteriors.T @ (X - centre), **close)
    np.testing.assert_allclose(found.second, posteriors.T @ (X - centre) ** 2, **close)
    np.testing.assert_array_equal(found.nearest, logs.argmax(axis=0))  # the first of equal frames
