"""The sums of Baum and Welch's E-step over tiles are the textbook's over whole sequences, for any chunking."""

import itertools

import dask
import dask.array as da
import numpy as np
import pytest

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sequences import as_edges
from dask_dca.models.gaussians import log_densities, prepare_gaussians
from dask_dca.models.hmm.expectation import Layout, lay_out
from dask_dca.models.hmm.model import FrameFeatures, hmm_moments, prepare_states
from dask_dca.models.hmm.passes import e_step_pass
from dask_dca.models.hmm.recursions import Markov
from tests.models.hmm.test_recursions import textbook

RNG = np.random.default_rng(0)
MARKOV = Markov(np.array([0.6, 0.3, 0.1]), np.array([[0.7, 0.2, 0.1], [0.3, 0.5, 0.2], [0.25, 0.25, 0.5]]))
MEANS = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
X = RNG.integers(-1, 4, (300, 2)).astype(np.float64)  # whole numbers: most frames are there several times
LENGTHS = ([300], [100, 1, 199], [1] * 40 + [260], [24, 24, 252])
CENTRE, UNITS = np.array([1.0, 1.0]), np.array([1.5, 1.5])
FULL = np.array([[[1.0, 0.5], [0.5, 2.0]], [[1.0, 0.0], [0.0, 1.0]], [[0.7, -0.2], [-0.2, 0.5]]])
COVARIANCES = {
    "diag": np.diagonal(FULL, axis1=1, axis2=2),
    "full": FULL,
    "tied": FULL[0],
    "spherical": np.array([1.0, 0.5, 2.0]),
}
CLOSE = {"atol": 1e-3, "rtol": 1e-5}


def sums(kind, layout, rows, means=MEANS, covariances=None):
    covariances = COVARIANCES[kind] if covariances is None else covariances
    states = prepare_states((means - CENTRE) / UNITS, covariances / 1.5**2, kind, np.log(UNITS).sum())
    found, nearest = e_step_pass(rows, layout, states, MARKOV, FrameFeatures(kind, CENTRE, UNITS), Run())
    return found, nearest, states.origins


def second(kind, weights, away):
    """Weighted second moments (k, ...) of frames (n, k, p) about each state's origin."""
    products = np.einsum("nk,nki,nkj->kij", weights, away, away)
    squares = np.diagonal(products, axis1=1, axis2=2)
    return {"full": products, "tied": products.sum(axis=0), "diag": squares, "spherical": squares.sum(axis=1)}[kind]


@pytest.mark.parametrize("lengths", LENGTHS, ids=["one", "three", "short ones", "whole pieces"])
@pytest.mark.parametrize("kind", COVARIANCES)
def test_sums_over_tiles_are_the_textbooks(kind, lengths):
    edges, logs = as_edges(lengths, 300), log_densities(prepare_gaussians(MEANS, COVARIANCES[kind], kind), X)
    layout = Layout(edges, 24, 24, 3)
    found, nearest, origins = sums(kind, layout, as_rows(X))
    parts = [textbook(MARKOV, logs[a:b]) for a, b in itertools.pairwise(edges)]
    posteriors = np.concatenate([part[1] for part in parts])
    assert found.log_likelihood == pytest.approx(sum(part[0] for part in parts), abs=1e-3)
    np.testing.assert_allclose(found.starts, sum(part[1][0] for part in parts), **CLOSE)
    np.testing.assert_allclose(found.transitions, sum(part[2] for part in parts), **CLOSE)
    np.testing.assert_allclose(found.counts, posteriors.sum(axis=0), **CLOSE)
    moments, away = hmm_moments(found, kind), ((X - CENTRE) / UNITS)[:, None] - origins
    np.testing.assert_allclose(moments.first, np.einsum("nk,nkp->kp", posteriors, away), **CLOSE)
    np.testing.assert_allclose(moments.second, second(kind, posteriors, away), **CLOSE)
    np.testing.assert_array_equal(nearest, logs.argmax(axis=0))  # the first of equal frames
    for chunks in (64, (7, 0, 200, 93)):
        with dask.config.set(scheduler="synchronous"):
            again, same, _ = sums(kind, layout, as_rows(da.from_array(X, chunks=(chunks, 1))))
        np.testing.assert_array_equal(again.vector, found.vector)
        np.testing.assert_array_equal(same, nearest)


@pytest.mark.parametrize("kind", COVARIANCES)
def test_states_whose_spread_is_tiny_keep_their_digits(kind):
    """A thousandth of a millionth of the distance between them: moments are about the states' own means."""
    rng, apart = np.random.default_rng(1), 1e9
    noise, labels = rng.standard_normal((300, 2)), np.arange(300) // 100
    means = MEANS * apart
    rows = as_rows(noise + means[labels])
    unit = np.eye(2) if kind in ("full", "tied") else 1.0
    covariances = np.zeros_like(COVARIANCES[kind]) + unit
    found, _, origins = sums(kind, lay_out(as_edges(None, 300), 8), rows, means, covariances)
    moments = hmm_moments(found, kind)
    exact = (rows.source.astype(np.longdouble) - CENTRE) / UNITS - origins[labels]
    squares = np.stack([(exact[labels == j] ** 2).sum(axis=0) for j in range(3)]).astype(float)
    assert (np.abs(origins[1:]).max(axis=1) > 1e8).all()
    matrices = kind in ("full", "tied")
    seen = np.diagonal(moments.second, axis1=-2, axis2=-1) if matrices else moments.second
    expected = squares.sum(axis=0) if kind == "tied" else squares.sum(axis=1) if kind == "spherical" else squares
    np.testing.assert_allclose(seen, expected, rtol=1e-5)


def test_a_product_does_not_depend_on_a_columns_place():
    """What bits rest on, observed and not documented: of float64 matrices."""
    rng = np.random.default_rng(2)
    for k, q, n in ((3, 5, 600), (10, 21, 8448), (20, 101, 1152)):
        left, right = rng.standard_normal((k, q)), rng.standard_normal((q, n))
        order = rng.permutation(n)
        np.testing.assert_array_equal(left @ np.ascontiguousarray(right[:, order]), (left @ right)[:, order])
