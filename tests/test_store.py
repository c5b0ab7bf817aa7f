"""Saved models: exact round trips, atomic writing, and files that lie."""

import contextlib
import json
import os
import re
import shutil
from pathlib import Path

import dask.array as da
import fsspec
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import dask_dca as dca
from dask_dca import output, store
from dask_dca.errors import DCAError, ModelFileError
from dask_dca.store import load_model, save_model


def fitted(dtype=np.float64, **parameters):
    rng = np.random.default_rng(0)
    X = (100 * np.vstack([np.eye(3), rng.dirichlet(np.ones(3), 60)]) @ rng.random((3, 6))).astype(dtype)
    return dca.NMF(3, **parameters).fit(X), X


def values(model):
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


def assert_same(loaded, model):
    assert type(loaded) is type(model)
    assert values(loaded).keys() == values(model).keys()
    for name, value in values(model).items():
        other = getattr(loaded, name)
        assert type(other) is type(value), name
        if isinstance(value, np.ndarray):
            assert (other.dtype, other.shape) == (value.dtype, value.shape), name
            assert other.tolist() == value.tolist() if value.dtype == object else other.tobytes() == value.tobytes()
        else:
            assert other == value or (other != other and value != value), name


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4", np.int16])
def test_round_trip_is_exact(tmp_path, dtype):
    model, X = fitted(dtype, random_state=7, n_subproblems=40)
    model.save(str(tmp_path / "model.zarr"))
    loaded = load_model(tmp_path / "model.zarr")
    assert_same(loaded, model)
    assert loaded.get_params() == model.get_params()
    assert loaded.transform(X).tobytes() == model.transform(X).tobytes()


class Place(os.PathLike):
    """A path of a library's own."""

    def __init__(self, path):
        self.path = str(path)

    def __fspath__(self):
        return self.path


def test_paths_of_any_kind_are_paths(tmp_path):
    X = np.random.default_rng(0).random((30, 4))
    zarr.create_array(str(tmp_path / "X.zarr"), data=X, chunks=(10, 4))
    model = dca.NMF(2).fit(Place(tmp_path / "X.zarr"))
    model.save(Place(tmp_path / "model.zarr"))
    np.testing.assert_array_equal(dca.load_model(Place(tmp_path / "model.zarr")).components_, model.components_)


def test_names_special_values_and_generators(tmp_path):
    model, _ = fitted(random_state=np.random.default_rng(1))
    model.feature_names_in_ = np.array([*"abcdé", "x\ny"], dtype=object)
    model.coverage_ = float("nan")
    model.coverage_curve_ = model.coverage_curve_[:0]
    save_model(model, tmp_path / "model.zarr")
    loaded = load_model(tmp_path / "model.zarr")
    assert_same(loaded, model)
    assert loaded.get_params() == {**model.get_params(), "random_state": None}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_components_range_", (1, (2, float("-inf")))),
        ("votes_", np.array([1, 2])),
        ("components_", np.full((3, 6), np.nan)),
        ("more_", np.float32(1.5)),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(tmp_path, name, value):
    model, _ = fitted()
    setattr(model, name, value)
    with pytest.raises(ModelFileError, match=f"can't be saved.*{name}"):
        model.save(str(tmp_path / "model.zarr"))
    with pytest.raises(ModelFileError, match="can't be saved"):
        save_model(model.set_params(method="none"), tmp_path / "model.zarr")
    assert not os.listdir(tmp_path)


def test_what_belongs_to_a_machine_is_neither_saved_nor_loaded(tmp_path):
    model, X = fitted(checkpoint=str(tmp_path / "kept"), retries=0, verbose=True)
    model.save(str(tmp_path / "model.zarr"))
    assert "kept" not in (tmp_path / "model.zarr" / "zarr.json").read_text()
    chosen = {"checkpoint": str(tmp_path / "chosen"), "retries": 10**9, "verbose": True}
    change = lambda record: record | {"parameters": record["parameters"] | chosen}  # noqa: E731
    for path in (tmp_path / "model.zarr", tampered(tmp_path / "model.zarr", tmp_path / "other.zarr", change)):
        loaded = load_model(path)
        assert (loaded.checkpoint, loaded.retries, loaded.verbose) == (None, 3, False)
        loaded.fit(da.from_array(X, chunks=(30, -1)))
    assert not (tmp_path / "chosen").exists()


def test_any_zarr_reader_can_read_it(tmp_path):
    model, _ = fitted()
    model.save(str(tmp_path / "model.zarr"))
    group = zarr.open_group(tmp_path / "model.zarr", mode="r")
    np.testing.assert_array_equal(group["components_"][...], model.components_)


def test_url():
    model, _ = fitted()
    save_model(model, "memory://store/model.zarr")
    assert_same(load_model("memory://store/model.zarr"), model)
    with pytest.raises(ModelFileError, match="exists"):
        save_model(model, "memory://store/model.zarr")
    save_model(model, "memory://store/model.zarr", overwrite=True)
    with pytest.raises(ModelFileError, match="no model"):
        load_model("memory://store/other.zarr")
    with pytest.raises(ModelFileError, match="carrier"):
        load_model("carrier-pigeon://x")


def test_url_is_removed_when_writing_fails(monkeypatch):
    model, _ = fitted()
    files = fsspec.filesystem("memory")
    original = type(files).pipe_file

    def failing(self, path, value, **more):
        if path.endswith("model.zarr/zarr.json"):
            raise KeyboardInterrupt
        return original(self, path, value, **more)

    monkeypatch.setattr(type(files), "pipe_file", failing)
    with pytest.raises(KeyboardInterrupt):
        save_model(model, "memory://failing/model.zarr")
    assert not files.find("/failing")


def test_what_a_killed_writer_left_at_a_url_is_replaced_when_allowed():
    model, _ = fitted()
    files = fsspec.filesystem("memory")
    with output.atomic_output("memory://left/model.zarr"):
        half = {name: files.cat_file(name) for name in files.find("/left")}
    half["/left/model.zarr/components_/c/0/0"] = b"half"
    files.pipe(half)
    with pytest.raises(ModelFileError, match=r"left unfinished by one that was killed.*overwrite=True"):
        save_model(model, "memory://left/model.zarr")
    assert files.find("/left") == sorted(half)
    save_model(model, "memory://left/model.zarr", overwrite=True)
    assert_same(load_model("memory://left/model.zarr"), model)
    assert not files.exists("/left/.model.zarr.partial")


def test_where_it_cannot_be_written(tmp_path, monkeypatch):
    model, _ = fitted()
    (tmp_path / "taken").mkdir()
    with pytest.raises(ModelFileError, match="exists"):
        save_model(model, tmp_path / "taken")
    with pytest.raises(ModelFileError, match="not a zarr group"):
        save_model(model, tmp_path / "taken", overwrite=True)
    with pytest.raises(ModelFileError, match="mkdir -p"):
        save_model(model, tmp_path / "no" / "model.zarr")
    with pytest.raises(ModelFileError, match="could not write"):
        save_model(model, tmp_path / ("long" * 100))
    monkeypatch.setattr(output.os, "access", lambda *_: False)
    with pytest.raises(ModelFileError, match="permission"):
        save_model(model, tmp_path / "model.zarr")
    assert os.listdir(tmp_path) == ["taken"]


def test_a_model_is_replaced_where_it_is_said(tmp_path, monkeypatch):
    model, X = fitted()
    place = str(tmp_path / "model.zarr")
    dca.NMF(2).fit(X).save(place)
    with pytest.raises(ModelFileError, match="overwrite"):
        model.save(place)
    model.save(place, overwrite=True)
    assert load_model(place).n_components_ == model.n_components_ != 2

    read, others = store._read_array, [dca.NMF(2).fit(X)]

    def replaced(*args):
        if others:
            others.pop().save(place, overwrite=True)
        return read(*args)

    monkeypatch.setattr(store, "_read_array", replaced)
    assert load_model(place).n_components_ == 2  # replaced while it was read


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("overwrite", [False, True])
def test_nothing_half_written_is_left(tmp_path, monkeypatch, failure, overwrite):
    model, _ = fitted()
    if overwrite:
        save_model(model, tmp_path / "model.zarr")
    before, written = sorted(os.listdir(tmp_path)), []
    original = Path.write_bytes

    def failing(self, content):
        written.append(self)
        if len(written) == 5:
            raise failure
        return original(self, content)

    monkeypatch.setattr(Path, "write_bytes", failing)
    with pytest.raises(KeyboardInterrupt if isinstance(failure, KeyboardInterrupt) else ModelFileError):
        save_model(model, tmp_path / "model.zarr", overwrite=overwrite)
    assert sorted(os.listdir(tmp_path)) == before
    if overwrite:
        assert_same(load_model(tmp_path / "model.zarr"), model)


def test_what_cannot_be_saved(tmp_path):
    model, _ = fitted()
    model.odd_ = object()
    with pytest.raises(ModelFileError, match="odd_"):
        save_model(model, tmp_path / "model.zarr")
    with pytest.raises(ModelFileError, match="can't save a dict"):
        save_model({}, tmp_path / "model.zarr")
    assert not os.listdir(tmp_path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model.zarr"
    fitted()[0].save(str(path))
    return path


def tampered(saved, target, change):
    """A copy of the model whose record was changed."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(saved, target)
    head = json.loads((target / "zarr.json").read_text())
    head["attributes"]["dask_dca"] = change(head["attributes"]["dask_dca"])
    (target / "zarr.json").write_text(json.dumps(head))
    return target


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda r: r | {"format": 2, "version": "9.0"}, "upgrade"),
        (lambda r: r | {"format": None}, "format"),
        (lambda r: r | {"class": "os.system"}, "unknown class"),
        (lambda r: r | {"class": ["NMF"]}, "unknown class"),
        (lambda r: r | {"parameters": {"nonsense": 1}}, "nonsense"),
        (lambda r: r | {"parameters": None}, "damaged"),
        (lambda r: r | {"attributes": r["attributes"] | {"fit_": {"eval": "1"}}}, "fit_"),
        (lambda r: r | {"attributes": r["attributes"] | {"__class__": "x"}}, "__class__"),
        (lambda r: r | {"attributes": r["attributes"] | {"transform": 1}}, "transform"),
        (lambda r: r | {"attributes": r["attributes"] | {"n_components_": 4}}, "shape"),
        (lambda r: r | {"attributes": r["attributes"] | {"n_features_in_": "6"}}, "number of type int"),
        (lambda r: r | {"attributes": r["attributes"] | {"coverage_": "os.system"}}, "number of type float"),
        (lambda r: r | {"attributes": r["attributes"] | {"n_zero_rows_": -3}}, "n_zero_rows_"),
        (lambda r: r | {"format": -1}, "format"),
        (lambda r: r | {"arrays": {k: v for k, v in r["arrays"].items() if k != "components_"}}, "no 'components_'"),
        (lambda r: r | {"arrays": r["arrays"] | {"../../x_": r["arrays"]["votes_"]}}, "not a fitted attribute"),
        (lambda r: r | {"arrays": r["arrays"] | {"votes_": {"dtype": "|O", "shape": [3], "sha256": ""}}}, "votes_"),
        (lambda r: r | {"arrays": r["arrays"] | {"votes_": r["arrays"]["votes_"] | {"shape": [2]}}}, "votes_"),
        (lambda r: "NMF", "not a saved model"),
    ],
)
def test_records_that_lie(saved, tmp_path, change, text):
    with pytest.raises(ModelFileError, match=text) as caught:
        load_model(tampered(saved, tmp_path / "model.zarr", change))
    assert "\n" not in str(caught.value)


OTHERS = {  # what other versions may have saved
    "a parameter": lambda r: r["parameters"].update(tilt=0.5),
    "a value of a parameter": lambda r: r["parameters"].update(basis="curves"),
    "a fitted attribute": lambda r: r["attributes"].update(tilt_=3),
    "a model": lambda r: r.update({"class": "TensorFactorization"}),
    "an attribute fewer": lambda r: r["attributes"].pop("coverage_"),
    "another form of a value": lambda r: r["attributes"].update(coverage_="high"),
}


@pytest.mark.parametrize("version", ["0.0.9", "9.1.0", "1.0.0rc1"])
@pytest.mark.parametrize("kind", OTHERS)
def test_a_model_of_another_version_that_cannot_be_read_says_so(saved, tmp_path, kind, version):
    def change(record):
        OTHERS[kind](record)
        return record | {"version": version}

    path = tampered(saved, tmp_path / "model.zarr", change)
    said = re.escape(f"was saved by dask-dca {version}, and this is {dca.__version__}, which can't read it (")
    with pytest.raises(ModelFileError, match=said) as caught:
        load_model(path)
    assert f"; pip install dask-dca=={version}, or fit and save it again" in str(caught.value)


@pytest.mark.parametrize("version", [dca.__version__, "; rm -rf", "--index-url http://x", None, "9" * 80])
def test_what_is_no_other_version_is_damaged(saved, tmp_path, version):
    path = tampered(saved, tmp_path / "model.zarr", lambda r: r | {"parameters": {"tilt": 1}, "version": version})
    with pytest.raises(ModelFileError, match="is damaged or was changed by something else"):
        load_model(path)


def test_a_model_of_another_version_that_can_be_read_is_read(saved, tmp_path):
    assert load_model(tampered(saved, tmp_path / "model.zarr", lambda r: r | {"version": "0.0.9"})).n_features_in_ == 6


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(["format", "class", "parameters", "attributes", "arrays"]),
    json_values,
    st.sampled_from(["n_components_", "components_", "coverage_", "method", "verbose"]),
    st.booleans(),
)
def test_fuzzed_records_raise_one_error_or_load(saved, tmp_path_factory, part, value, name, inside):
    target = tmp_path_factory.getbasetemp() / "fuzzed.zarr"
    new = (lambda r: r | {part: {**r[part], name: value}}) if inside else (lambda r: r | {part: value})
    if inside and part in ("format", "class"):
        return
    path = tampered(saved, target, new)
    try:
        model = load_model(path)
    except ModelFileError as error:
        message = str(error)
    else:
        message = ""
        with contextlib.suppress(DCAError):
            model.transform(np.ones((2, 6)))
    assert "\n" not in message


@pytest.mark.parametrize("name", ["components_/c/0/0", "components_/zarr.json", "votes_/c/0", "zarr.json"])
@pytest.mark.parametrize("damage", ["removed", "cut", "emptied", "flipped"])
def test_truncated_and_damaged_files(saved, tmp_path, name, damage):
    target = tmp_path / "model.zarr"
    shutil.copytree(saved, target)
    content = bytearray((target / name).read_bytes())
    if damage == "removed":
        (target / name).unlink()
    elif damage == "flipped":
        content[0] ^= 0xFF
        (target / name).write_bytes(content)
    else:
        (target / name).write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises(ModelFileError) as caught:
        load_model(target)
    assert "\n" not in str(caught.value)


def test_compressed_arrays_and_pickles_are_never_decoded(saved, tmp_path):
    target = tmp_path / "model.zarr"
    shutil.copytree(saved, target)
    values = zarr.open_group(target, mode="r")["components_"][...]
    zarr.create_array(target / "components_", data=values, overwrite=True)
    with pytest.raises(ModelFileError, match="components_"):
        load_model(target)
    shutil.rmtree(target)
    zarr.create_group(target, zarr_format=2)
    with pytest.raises(ModelFileError, match="format 3"):
        load_model(target)


def test_what_is_no_model(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    zarr.create_array(tmp_path / "array.zarr", data=np.ones(3))
    zarr.create_group(tmp_path / "group.zarr")
    for name in ("file", "folder", "array.zarr", "group.zarr"):
        with pytest.raises(ModelFileError, match="not a saved model"):
            load_model(tmp_path / name)
    with pytest.raises(ModelFileError, match="no model at"):
        load_model(tmp_path / "gone")


def test_views_come_back_as_slices_and_numbers(tmp_path):
    rng = np.random.default_rng(0)
    X = 4 * np.eye(3, 9)[rng.integers(3, size=90)] + rng.standard_normal((90, 9))
    views = [slice(0, 3), np.arange(3, 6), [6, 7, 8]]
    model = dca.GaussianMixture(3, views=views).fit(X)
    model.save(str(tmp_path / "model.zarr"))
    loaded = load_model(tmp_path / "model.zarr")
    assert loaded.views == [slice(0, 3), [3, 4, 5], [6, 7, 8]]
    assert_same(loaded, model)
    np.testing.assert_array_equal(loaded.fit(X).means_, model.means_)
