"""Votes: counting, bounds, and the selection of anchors, against SciPy and brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

import dask_dca as dca
from dask_dca.geometry.votes import (
    count_votes,
    coverage_curve,
    merge_votes,
    select_candidates,
    select_votes,
    shortfalls,
    wilson_bounds,
)

ROWS = arrays(np.int64, st.integers(0, 40), elements=st.integers(-1, 12))


@st.composite
def extremes(draw):
    low = draw(ROWS)
    return low, draw(arrays(np.int64, len(low), elements=st.integers(-1, 12)))


@given(extremes())
@settings(max_examples=200)
def test_votes_are_planes_in_which_a_row_is_extreme(case):
    low, high = case
    rows, votes = count_votes(low, high)
    by_hand = {row: sum(row in pair for pair in zip(low, high, strict=True)) for row in {*low, *high} - {-1}}
    assert dict(zip(rows.tolist(), votes.tolist(), strict=True)) == by_hand
    assert (np.diff(rows) > 0).all()


@given(extremes(), st.integers(0, 40))
@settings(max_examples=100)
def test_histograms_of_parts_add_up(case, cut):
    low, high = case
    merged = merge_votes([count_votes(low[cut:], high[cut:]), count_votes(low[:cut], high[:cut])])
    for found, whole in zip(merged, count_votes(low, high), strict=True):
        np.testing.assert_array_equal(found, whole)
        assert found.dtype == np.int64


@given(n=st.integers(1, 5000), data=st.data())
@settings(max_examples=100)
def test_bounds_are_wilsons(n, data):
    votes = data.draw(st.integers(0, n))
    low, high = wilson_bounds(np.array([votes]), n)[0]
    exact = stats.binomtest(votes, n).proportion_ci(method="wilson")
    np.testing.assert_allclose([low, high], [exact.low, exact.high], atol=1e-9)


def test_bounds_hold_as_often_as_they_say():
    rng = np.random.default_rng(0)
    for p in (0.02, 0.1, 0.5):
        low, high = wilson_bounds(rng.binomial(300, p, 4000), 300).T
        assert 0.93 < ((low <= p) & (p <= high)).mean() < 0.98


def test_top_votes_with_ties_to_the_lower_row():
    rows, votes = np.array([1, 4, 6, 8, 9]), np.array([2, 5, 5, 1, 5])
    assert select_votes(rows, votes, 3).tolist() == [4, 6, 9]
    assert select_votes(rows, votes, 4).tolist() == [4, 6, 9, 1]
    assert sorted(select_votes(rows, votes, 9)) == rows.tolist()


@given(arrays(np.float64, (6, 2), elements=st.floats(-5, 5)))
@settings(max_examples=100)
def test_shortfalls_are_shares_of_the_height(positions):
    angle = np.linspace(0, 2 * np.pi, 9)
    around = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    heights = (around @ positions.T).max(axis=1)
    short = shortfalls(positions, around, heights)
    assert ((short >= 0) & (short <= 1)).all()
    for j in np.flatnonzero(heights > 1e-3):
        expected = np.clip((heights[j] - positions @ around[j]) / heights[j], 0, 1)
        np.testing.assert_allclose(short[:, j], expected, atol=2e-6)
        assert short[:, j].min() == 0
    assert not short[:, heights <= 0].any()


def missed(short, chosen):
    return short[list(chosen)].min(axis=0).sum() if len(chosen) else float(short.shape[1])


@given(
    short=arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 12)), elements=st.floats(0, 1)),
    k=st.integers(1, 4),
)
@settings(max_examples=300)
def test_selection_is_near_the_best_of_all_subsets(short, k):
    """Gain: what is reached. Greedy has 1 - 1/e of the best gain, and swaps make it no worse."""
    greedy = select_candidates(short, k, sweeps=0)
    chosen = select_candidates(short, k)
    every = short.shape[1]
    best = every - min(missed(short, subset) for subset in combinations(range(len(short)), min(k, len(short))))
    assert every - missed(short, greedy) >= (1 - 1 / np.e) * best - 1e-5
    assert missed(short, chosen) <= missed(short, greedy) + 1e-5
    assert len(set(chosen.tolist())) == len(chosen) <= k
    if len(chosen) < min(k, len(short)):  # stopped early: no candidate lowers the shortfall
        assert min(missed(short, [*chosen, i]) for i in range(len(short))) > missed(short, chosen) - 1e-5


def test_swaps_mend_what_greedy_can_not():
    """The first choice, good in all directions and best in none, becomes redundant."""
    short = np.array([[0.4, 0.4, 0.4, 0.4], [0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    assert sorted(select_candidates(short, 2, sweeps=0)) != [1, 2]
    assert sorted(select_candidates(short, 2)) == [1, 2]


def test_near_duplicates_do_not_split_a_ray():
    """Fifty copies of each of three rays, each a little worse: one of each is chosen, the best."""
    rng = np.random.default_rng(0)
    best = 1.0 - np.eye(3).repeat(40, axis=1)
    copies = np.clip(best.repeat(50, axis=0) + 0.01 * rng.random((150, 120)), 0, 1)
    short = np.vstack([copies, best])
    assert sorted(select_candidates(short, 3)) == [150, 151, 152]


@given(arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(0, 9)), elements=st.floats(0, 1)))
@settings(max_examples=100)
def test_coverage_never_falls_and_counts_prefixes(short):
    curve = coverage_curve(short)
    assert (np.diff(curve) >= 0).all()
    for j in range(len(short)):
        expected = 1.0 - short[: j + 1].min(axis=0).mean() if short.shape[1] else 1.0
        assert curve[j] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("k", "delta", "c", "s"),
    [
        (1, 0.01, 1.0, 14),  # 3 ln 100 = 13.8
        (10, 0.01, 1.0, 208),  # 30 ln 1000 = 207.2
        (20, 0.01, 1.0, 457),  # 60 ln 2000 = 456.05
        (20, 0.05, 2.0, 180),  # 30 ln 400 = 179.7
        (5, 0.5, 0.5, 70),  # 30 ln 10 = 69.08
    ],
)
def test_the_number_of_sub_problems_is_the_papers_corollary(k, delta, c, s):
    """In the paper s = (3 k / c) log(k / delta)."""
    assert dca.n_subproblems(k, delta=delta, c=c) == s
