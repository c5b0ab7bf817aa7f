"""Even tiles: every row's product has the same bits wherever blocks are cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dask_dca.engine.tiles import even_tiles, tile_height


def products(X: np.ndarray, edges: list[int], basis: np.ndarray) -> np.ndarray:
    height, found = tile_height(*X.shape), []
    for begin, end in zip([0, *edges], [*edges, len(X)], strict=True):
        for numbers, tile in even_tiles([X[begin:end]], begin, height):
            assert tile.shape == (height, X.shape[1])
            found.append((tile @ basis)[: len(numbers)])
    return np.vstack(found)


@given(data=st.data(), n=st.integers(1, 700), p=st.integers(1, 40), k=st.integers(1, 12))
def test_products_do_not_depend_on_the_cut(data: st.DataObject, n: int, p: int, k: int) -> None:
    rng = np.random.default_rng(n * p * k)
    X, basis = rng.normal(size=(n, p)), rng.normal(size=(p, k))
    edges = sorted(data.draw(st.lists(st.integers(0, n), max_size=5)))
    np.testing.assert_array_equal(products(X, edges, basis), products(X, [], basis))


@pytest.mark.parametrize("form", [np.float32, "columns", "sparse"])
def test_tiles_hold_the_rows_and_zeros(form: object) -> None:
    X = np.random.default_rng(0).integers(0, 9, size=(150, 6)).astype(np.float64)
    parts = {"columns": [X[:, :2], X[:, 2:]], "sparse": [sparse.csr_array(X)]}
    columns = parts[form] if isinstance(form, str) else [X.astype(np.float32)]
    seen = list(even_tiles(columns, 1000, 64))
    assert [len(numbers) for numbers, _ in seen] == [64, 64, 22]
    assert seen[2][0][0] == 1128
    np.testing.assert_array_equal(np.vstack([tile for _, tile in seen])[:150], X)
    assert not seen[2][1][22:].any()


def test_an_empty_block_has_no_tiles() -> None:
    assert list(even_tiles([np.zeros((0, 3))], 5, 64)) == []
