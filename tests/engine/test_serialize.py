"""Kept results: what comes back is what went in, and hostile files run nothing."""

import contextlib
import io
import json
import pickle
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dask_dca.engine.checkpoint import digest, from_bytes, to_bytes
from dask_dca.engine.tiles import Reading, RowCounts
from dask_dca.geometry.exact import Total

ARRAYS = hnp.arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0),
)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), ARRAYS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.tuples(inner, inner), st.dictionaries(st.text(), inner, max_size=3)
    ),
)


def same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


@given(VALUES)
@settings(max_examples=40)
def test_values_come_back_and_hash_alike(value: object) -> None:
    back = from_bytes(to_bytes(value))
    assert same(value, back)
    assert digest(value) == digest(back)


def test_dataclasses_of_this_library_come_back() -> None:
    total = Total(np.arange(6.0).reshape(2, 3), 0.5)
    value = (total, Reading(None, True), RowCounts(1, 2, 3), np.float64(2.5), np.dtype(np.float32))
    back = from_bytes(to_bytes(value))
    np.testing.assert_array_equal(back[0].value(), total.value())
    assert back[1:] == value[1:]
    assert isinstance(back[3], np.float64)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.arange(3), np.arange(3.0)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        ([1, 2], (1, 2)),
        (1, 1.0),
        ("1", 1),
        (RowCounts(1), RowCounts(2)),
    ],
)
def test_different_values_have_different_hashes(one: object, other: object) -> None:
    assert digest(one) != digest(other)


@dataclass
class Foreign:
    """Not of this library."""

    a: int = 1


@pytest.mark.parametrize("value", [Foreign(), object(), np.array([object()]), {1, 2}, b"bytes", 1j])
def test_other_things_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match="can't keep"):
        to_bytes(value)


def packed(tree: object) -> bytes:
    held = io.BytesIO()
    np.savez(held, tree=np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8))
    return held.getvalue()


HOSTILE = [
    {"class": "os:system", "fields": {"command": "true"}},
    {"class": "subprocess:Popen", "fields": {"args": "true"}},
    {"class": "dask_dca.engine.checkpoint:to_bytes", "fields": {"value": 1}},
    {"class": "dask_dca.engine.checkpoint:importlib", "fields": {}},
    {"class": "dask_dca.engine.rows:np", "fields": {}},
    {"class": "dask_dca.engine.computing:compute_lazy", "fields": {}},
    {"class": "dask_dca.store:load_model", "fields": {"path": "x"}},
    {"class": "dask_dca.engine..os:system", "fields": {}},
    {"dtype": "O"},
    {"array": 7},
    {"float": "__import__('os')"},
    {"what": 1},
]


@pytest.mark.parametrize("tree", HOSTILE)
def test_hostile_trees_are_refused(tree: object) -> None:
    with pytest.raises(ValueError, match="not a result"):
        from_bytes(packed(tree))


def test_no_module_of_a_hostile_file_is_ever_imported(tmp_path, monkeypatch) -> None:
    (tmp_path / "hostile_module.py").write_text(
        "import dataclasses\n@dataclasses.dataclass\nclass Result:\n    a: int = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="not a result"):
        from_bytes(packed({"class": "hostile_module:Result", "fields": {}}))
    assert "hostile_module" not in sys.modules


def test_pickles_are_refused() -> None:
    held = io.BytesIO()
    np.savez(held, tree=np.array([object()]))
    for content in (held.getvalue(), pickle.dumps(1), b"", b"PK\x03\x04", to_bytes((1, np.arange(9)))[:-30]):
        with pytest.raises(ValueError, match="not a result"):
            from_bytes(content)


@given(st.data())
def test_flipped_bytes_give_a_value_error_or_a_value(data: st.DataObject) -> None:
    content = bytearray(to_bytes((Total(np.arange(4.0)[None], 1.0), "x")))
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(ValueError):
        from_bytes(bytes(content))
