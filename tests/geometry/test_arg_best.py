"""The rule of which row is best: any parts, in any order, give what all rows give at once."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_dca.geometry.votes import NO_ROW, ArgBest

KEYS = st.sampled_from([0.0, 1.0, 2.0, -np.inf, np.nan])  # few values: many ties


def bits(found):
    return [part.tobytes() for part in (found.keys, found.rows, found.values)]


@given(st.data())
def test_any_parts_in_any_order_are_all_rows_at_once(data):
    n, s = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    keys = np.array(data.draw(st.lists(KEYS, min_size=n * s, max_size=n * s))).reshape(n, s)
    numbers = 3 + 2 * np.arange(n)
    values = np.random.default_rng(0).random((n, 2))
    edges = sorted({0, n, *data.draw(st.lists(st.integers(0, n), max_size=4))})
    parts = [ArgBest.empty(s, 2)]
    for begin, end in pairwise(edges):
        parts.append(ArgBest.of_rows(keys[begin:end], numbers[begin:end], values[begin:end]))
    parts = data.draw(st.permutations(parts))
    whole = ArgBest.empty(s, 2) + ArgBest.of_rows(keys, numbers, values)
    assert bits(sum(parts[1:], parts[0])) == bits(whole)
    for j in range(s):
        known = {number: key for number, key in zip(numbers, keys[:, j], strict=True) if key > -np.inf}
        best = [number for number, key in known.items() if key == max(known.values())]
        assert whole.found[j] == (min(best) if best else -1)


def test_no_row_is_found_in_an_empty_one():
    empty = ArgBest.empty((2, 3))
    assert (empty.rows == NO_ROW).all()
    assert (empty.found == -1).all()
    assert bits(empty + empty) == bits(empty)
