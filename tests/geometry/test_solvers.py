"""Successive projection against its definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_dca.geometry.solvers import successive_projection


def by_definition(P, k):
    """The row of greatest norm; all rows are projected on its orthogonal complement; again."""
    left, chosen = P.copy(), []
    for _ in range(k):
        norms = np.linalg.norm(left, axis=1)
        if norms.max() <= 1e-6 * np.linalg.norm(P, axis=1).max():
            break
        chosen.append(int(norms.argmax()))
        u = left[chosen[-1]] / norms.max()
        left = left - np.outer(left @ u, u)
    return chosen


@given(seed=st.integers(0, 10**6), n=st.integers(1, 40), d=st.integers(1, 10), k=st.integers(1, 12))
@settings(max_examples=200)
def test_it_is_the_definition(seed, n, d, k):
    P = np.random.default_rng(seed).random((n, d))
    assert successive_projection(P, k).tolist() == by_definition(P, min(k, d))


@given(seed=st.integers(0, 10**6), k=st.integers(2, 8))
@settings(max_examples=100)
def test_it_finds_the_vertices_of_separable_points(seed, k):
    rng = np.random.default_rng(seed)
    F = np.vstack([np.eye(k), rng.dirichlet(np.ones(k), 50)])
    order = rng.permutation(len(F))
    found = successive_projection((F @ rng.random((k, 12)))[order], k)
    assert sorted(order[found]) == list(range(k))


def test_it_stops_where_the_points_end():
    rank_two = np.random.default_rng(0).random((20, 2)) @ np.random.default_rng(1).random((2, 6))
    assert len(successive_projection(rank_two, 5)) == 2
    assert len(successive_projection(np.zeros((4, 3)), 2)) == 0
    assert successive_projection(np.ones((4, 3)), 3).tolist() == [0]


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_the_unit_does_not_matter(scale):
    P = np.random.default_rng(0).random((30, 6))
    assert successive_projection(P * scale, 4).tolist() == successive_projection(P, 4).tolist()
