"""Passes over words: any number of groups of directions and of blocks of words gives the bits of one."""

import dask
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_dca.engine.passes import Run
from dask_dca.geometry.simplex import SLAB_ROWS, simplex_descent
from dask_dca.models.lda.passes import WordBlocks
from dask_dca.models.lda.topics import WordPoints, word_directions, word_positions
from tests.conftest import CountingScheduler


def some_words(rng, n_words, k):
    """Words of which some are copies of others, and some take no part."""
    T = rng.standard_normal((n_words, k)) * 2.0 ** rng.integers(-4, 4, k)
    T[rng.integers(n_words, size=n_words // 3)] = T[rng.integers(n_words, size=n_words // 3)]
    T[rng.integers(n_words, size=n_words // 8)] = 0.0
    return WordPoints(np.full(n_words, 1.0 / n_words), T, T), np.sort(rng.gamma(0.5, 1.0, k))[::-1]


def histogram_bits(found):
    return [np.asarray(part).tobytes() for part in (found.rows, found.votes, found.places, found.heights)]


def threads(monkeypatch, n):
    for module in ("models.lda.passes", "engine.passes"):
        monkeypatch.setattr(f"dask_dca.{module}.task_threads", lambda: n)


@given(st.data())
@settings(max_examples=10)
def test_any_number_of_groups_and_blocks_is_one(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n_words, k = data.draw(st.sampled_from([6, 2048, 5000, 9000])), data.draw(st.integers(1, 6))
    s, seed = data.draw(st.integers(1, 300)), data.draw(st.integers(0, 9))
    points, values = some_words(rng, n_words, k)
    whole = WordBlocks(n_words, Run()).votes(points, values, s, seed)
    with pytest.MonkeyPatch.context() as patch, dask.config.set(scheduler="synchronous"):
        threads(patch, data.draw(st.integers(1, 9)))
        words = WordBlocks(n_words, Run(), in_memory=False)
        found = words.votes(points, values, s, seed, n_groups=data.draw(st.integers(1, min(s, 7))))
        assert histogram_bits(found) == histogram_bits(whole)
        vertices, start = points.recovery[:k] + 0.1, rng.dirichlet(np.ones(k), n_words)
        for begin in (None, start):
            expected = simplex_descent(points.recovery, vertices, begin, 20)
            assert words.mixtures(points.recovery, vertices, begin, 20).tobytes() == expected.tobytes()
            assert (
                WordBlocks(n_words, Run()).mixtures(points.recovery, vertices, begin, 20).tobytes()
                == expected.tobytes()
            )


def test_blocks_end_where_slabs_do_so_that_descents_begin_anew_together(monkeypatch):
    rng = np.random.default_rng(0)
    targets, vertices = rng.standard_normal((5000, 5)), rng.standard_normal((5, 5))
    threads(monkeypatch, 3)
    words = WordBlocks(5000, Run(), in_memory=False)
    assert np.diff(words.rows.offsets).tolist() == [SLAB_ROWS, SLAB_ROWS, 5000 - 2 * SLAB_ROWS]
    with dask.config.set(scheduler="synchronous"):
        found = words.mixtures(targets, vertices, None, 100)
    assert found.tobytes() == simplex_descent(targets, vertices, None, 100).tobytes()
    apart = np.vstack([simplex_descent(targets[i : i + 1000], vertices, None, 100) for i in range(0, 5000, 1000)])
    assert apart.tobytes() != found.tobytes()  # other slabs are other bits


@pytest.mark.parametrize("seed", range(3))
def test_votes_are_those_of_the_heights_written_out(seed):
    points, values = some_words(np.random.default_rng(seed), 400, 4)
    found = WordBlocks(400, Run()).votes(points, values, 90, seed)
    places = [[int(x) for x in place] for place in word_positions(points)]
    votes = np.zeros(400, dtype=int)
    for direction in word_directions(seed, np.arange(90), values):
        heights = [sum(int(x) * int(d) for x, d in zip(place, direction, strict=True)) for place in places]
        for best in {heights.index(max(heights)), heights.index(min(heights))}:  # of equal ones the first
            votes[best] += 1
    np.testing.assert_array_equal(found.rows, np.flatnonzero(votes))
    np.testing.assert_array_equal(found.votes, votes[votes > 0])
    assert found.n_subproblems == 90


def test_directions_and_places_are_those_of_the_reals_rounded():
    points, values = some_words(np.random.default_rng(0), 300, 5)
    directions = word_directions(7, np.arange(50), values) * values  # undone: what is left is drawn evenly
    cosines = directions / np.linalg.norm(directions, axis=1)[:, None]
    assert np.abs((cosines**2).mean(axis=0) - 0.2).max() < 0.1
    places = word_positions(points)
    gain = 2.0 ** np.rint(np.log2(np.abs(places).max() / np.abs(points.voting).max()))
    assert np.abs(places / gain - points.voting).max() <= 0.5 / gain
    assert (np.linalg.norm(places, axis=1).max() * 2.0**20) < 2.0**52


def test_a_task_is_a_block_of_words_with_a_group_of_directions(monkeypatch):
    points, values = some_words(np.random.default_rng(1), 2 * SLAB_ROWS + 5, 4)
    threads(monkeypatch, 8)
    scheduler = CountingScheduler()
    with dask.config.set(scheduler=scheduler):
        WordBlocks(len(points.voting), Run(), in_memory=False).votes(points, values, 800, 0)
    keys = list(scheduler.graphs[-1])
    names = [str(key[0] if isinstance(key, tuple) else key) for key in keys]
    tasks = [name.rpartition("-")[0] for name in names if name.startswith("dca-divide-") and "pass" not in name]
    assert sorted(tasks) == sorted(3 * ["dca-divide-0-265", "dca-divide-266-532", "dca-divide-533-799"])
    assert sum(name.startswith("dca-votes-") for name in names) == 3
    assert any(name.startswith("dca-conquer-") for name in names)
