"""Files that lie: one clear error, no code that runs, no memory of the size that they claim."""

import contextlib
import gzip
import io
import json
import os
import pickle
import shutil
import tracemalloc
import zipfile

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_dca as dca
from dask_dca.convert import convert_documents
from dask_dca.engine.checkpoint import from_bytes, open_checkpoint, to_bytes
from dask_dca.engine.rows import as_rows
from dask_dca.errors import CheckpointError, CheckpointWarning, DCAError, InvalidInputError, ModelFileError
from dask_dca.inputs import open_data
from dask_dca.store import load_model
from tests.conftest import planted

X, _ = planted(60, 6, 3)
DEEP = "[" * 100_000 + "]" * 100_000
HUGE = 10**13
SMALL = 50 * 2**20  # bytes that reading a hostile file may take


@contextlib.contextmanager
def little_memory():
    """Fail where more is allocated than any of these files is worth, touched or not."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < SMALL
    finally:
        tracemalloc.stop()


class Trap:
    """What runs when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "model.zarr"
    dca.NMF(3).fit(X).save(str(path))
    return path


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "x.zarr"
    zarr.create_array(path, data=X, chunks=(20, 6))
    return path


def test_a_model_that_claims_a_huge_array_takes_no_memory(saved, tmp_path):
    target = tmp_path / "model.zarr"
    for size in (HUGE, 2**31):  # beyond all memory, and within it
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(saved, target)
        own, head = target / "coverage_curve_" / "zarr.json", target / "zarr.json"
        claimed, record = json.loads(own.read_text()), json.loads(head.read_text())
        claimed["shape"] = claimed["chunk_grid"]["configuration"]["chunk_shape"] = [size]
        record["attributes"]["dask_dca"]["arrays"]["coverage_curve_"]["shape"] = [size]
        own.write_text(json.dumps(claimed))
        head.write_text(json.dumps(record))
        with little_memory(), pytest.raises(ModelFileError, match="incomplete"):
            load_model(target)


def test_a_chunk_that_is_a_hole_takes_no_memory(saved, tmp_path):
    target, size = tmp_path / "model.zarr", 2**31
    shutil.copytree(saved, target)
    own, head = target / "coverage_curve_" / "zarr.json", target / "zarr.json"
    claimed, record = json.loads(own.read_text()), json.loads(head.read_text())
    claimed["shape"] = claimed["chunk_grid"]["configuration"]["chunk_shape"] = [size]
    record["attributes"]["dask_dca"]["arrays"]["coverage_curve_"]["shape"] = [size]
    own.write_text(json.dumps(claimed))
    head.write_text(json.dumps(record))
    os.truncate(target / "coverage_curve_" / "c" / "0", 8 * size)
    with little_memory(), pytest.raises(ModelFileError, match="holds almost none"):
        load_model(target)


@pytest.mark.parametrize("name", ["components_", "votes_"])
def test_an_array_of_another_size_than_the_model_says_is_never_opened(saved, tmp_path, name):
    target = tmp_path / "model.zarr"
    shutil.copytree(saved, target)
    record = json.loads((target / "zarr.json").read_text())
    record["attributes"]["dask_dca"]["arrays"][name]["shape"] = [HUGE] * (1 + (name == "components_"))
    (target / "zarr.json").write_text(json.dumps(record))
    shutil.rmtree(target / name)
    with little_memory(), pytest.raises(ModelFileError, match="has shape"):
        load_model(target)


def put_pipe(path):
    """A named pipe, whose opening waits for a writer that never comes."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


def in_model(name):
    def read(saved, stored, folder):
        shutil.copytree(saved, folder / "model.zarr")
        put_pipe(folder / "model.zarr" / name)
        load_model(folder / "model.zarr")

    return read


def in_data(name):
    def read(saved, stored, folder):
        shutil.copytree(stored, folder / "x.zarr")
        put_pipe(folder / "x.zarr" / name)
        dca.NMF(2).fit(str(folder / "x.zarr"))

    return read


def as_vocabulary(saved, stored, folder):
    (folder / "d.txt").write_text("2\n3\n1\n1 1 2\n")
    convert_documents(str(folder / "d.txt"), str(folder / "o.zarr"), vocabulary=str(put_pipe(folder / "v.txt")))


def as_head_of_a_checkpoint(saved, stored, folder):
    put_pipe(folder / "fit.json")
    dca.NMF(2, checkpoint=str(folder)).fit(str(stored))


def looped(saved, stored, folder):
    (folder / "loop.zarr").symlink_to(folder / "loop.zarr")
    load_model(folder / "loop.zarr")


READS = {
    "model": lambda saved, stored, folder: load_model(put_pipe(folder / "model.zarr")),
    "head of a model": in_model("zarr.json"),
    "array of a model": in_model("votes_/zarr.json"),
    "chunk of a model": in_model("votes_/c/0"),
    "data": lambda saved, stored, folder: dca.NMF(2).fit(str(put_pipe(folder / "x.zarr"))),
    "npy": lambda saved, stored, folder: open_data(str(put_pipe(folder / "x.npy"))),
    "csv": lambda saved, stored, folder: open_data(str(put_pipe(folder / "x.csv"))),
    "device": lambda saved, stored, folder: open_data("/dev/zero"),
    "head of data": in_data("zarr.json"),
    "chunk of data": in_data("c/0/0"),
    "documents": lambda saved, stored, folder: convert_documents(str(put_pipe(folder / "d.txt")), str(folder / "o")),
    "vocabulary": as_vocabulary,
    "checkpoint": as_head_of_a_checkpoint,
    "loop": looped,
}


@pytest.mark.parametrize("what", READS)
def test_pipes_devices_and_loops_are_refused_at_once(saved, stored, tmp_path, what):
    with pytest.raises(DCAError) as caught:
        READS[what](saved, stored, tmp_path)
    assert "\n" not in str(caught.value)


def test_the_command_line_refuses_pipes_too(tmp_path, capsys):
    from click.testing import CliRunner

    from dask_dca.cli.main import main

    np.save(tmp_path / "x.npy", X)
    pipe = str(put_pipe(tmp_path / "pipe.npy"))
    fit = ["fit", "hmm", str(tmp_path / "x.npy"), "-o", str(tmp_path / "m.zarr")]
    for line in (["info", pipe], [*fit, "--lengths", pipe], [*fit, "--scheduler-file", pipe]):
        done = CliRunner().invoke(main, line)
        assert done.exit_code == 2, done.output


@pytest.mark.parametrize("name", ["zarr.json", "components_/zarr.json"])
@pytest.mark.parametrize("content", [DEEP, '{"a":' * 50_000 + "1" + "}" * 50_000, "9" * 10_000, "\x00", "NaN"])
def test_deep_and_odd_json_is_one_error(saved, tmp_path, name, content):
    target = tmp_path / "model.zarr"
    shutil.copytree(saved, target)
    (target / name).write_text(content)
    with pytest.raises(ModelFileError) as caught:
        load_model(target)
    assert len(str(caught.value)) < 2000
    assert "\n" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from(["|O", "<f8", "../x", ""]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "id", "a"]), inner, max_size=2)
    ),
    max_leaves=6,
)


def spots(tree, path=()):
    """All places in a JSON document."""
    yield path
    for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from spots(part, (*path, key))


def changed(document, path, value):
    tree = json.loads(json.dumps(document))
    if not path:
        return value
    inner = tree
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return tree


@given(st.data())
@settings(max_examples=80)
def test_any_change_of_the_metadata_of_data_is_one_error_or_readable(stored, tmp_path_factory, data):
    target = tmp_path_factory.getbasetemp() / "fuzzed-data.zarr"
    document = json.loads((stored / "zarr.json").read_text())
    where = data.draw(st.sampled_from(list(spots(document))))
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(stored, target)
    (target / "zarr.json").write_text(json.dumps(changed(document, where, data.draw(JSON))))
    with contextlib.suppress(DCAError):
        rows = open_data(str(target)).matrix
        if rows.size < 10**6:
            dca.NMF(2).fit(rows)


@given(st.data())
@settings(max_examples=80)
def test_any_change_of_the_metadata_of_a_model_is_one_error_or_loads(saved, tmp_path_factory, data):
    target = tmp_path_factory.getbasetemp() / "fuzzed-model.zarr"
    name = data.draw(st.sampled_from(["zarr.json", "components_/zarr.json", "votes_/zarr.json"]))
    document = json.loads((saved / name).read_text())
    where = data.draw(st.sampled_from(list(spots(document))))
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(saved, target)
    (target / name).write_text(json.dumps(changed(document, where, data.draw(JSON))))
    try:
        model = load_model(target)
    except ModelFileError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        with contextlib.suppress(DCAError):
            model.transform(X[:2])


PICKLE = {"id": "pickle", "protocol": 5}
TEXT = {"dtype": "|O", "fill_value": ""}


@pytest.mark.parametrize(
    "change",
    [
        {"filters": [PICKLE]},
        {"compressor": PICKLE},
        {"filters": [{"id": "shuffle", "elementsize": 1}, PICKLE]},
        {"dtype": "|O", "filters": [PICKLE], "fill_value": None},
        {"compressor": PICKLE, "filters": [{"id": "vlen-utf8"}], **TEXT},
        {"filters": [{"id": "vlen-utf8"}, PICKLE], **TEXT},
    ],
)
def test_pickles_among_the_codecs_never_run(tmp_path, change):
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=X.shape, zarr_format=2, compressors=None)
    head = tmp_path / "x.zarr" / ".zarray"
    head.write_text(json.dumps(json.loads(head.read_text()) | change))
    (tmp_path / "x.zarr" / "0.0").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    for read in (lambda path: open_data(path).matrix[...], dca.NMF(2).fit):
        with pytest.raises(InvalidInputError) as caught:
            read(str(tmp_path / "x.zarr"))
        if TEXT.items() <= change.items():  # zarr opens these: the refusal is this library's own
            assert "pickles, which can run code" in str(caught.value)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("place", ["var/_index", "X/data", "X/indptr"])
def test_pickles_in_a_sparse_store_never_run(tmp_path, place):
    (tmp_path / "d.txt").write_text("2\n3\n3\n1 1 2\n1 3 1\n2 2 5\n")
    (tmp_path / "v.txt").write_text("a\nb\nc\n")
    store = tmp_path / "d.zarr"
    convert_documents(str(tmp_path / "d.txt"), str(store), vocabulary=str(tmp_path / "v.txt"))
    shutil.rmtree(store / place)
    kind = dict(TEXT) if place == "var/_index" else {"dtype": "<i8"}
    filters = [{"id": "vlen-utf8"}] if place == "var/_index" else None
    size = 4 if place == "X/indptr" else 3
    head = {"zarr_format": 2, "shape": [size], "chunks": [size], "order": "C", "filters": filters, "compressor": PICKLE}
    (store / place).mkdir()
    (store / place / ".zarray").write_text(json.dumps({"fill_value": 0, **head, **kind}))
    (store / place / "0").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises((DCAError, FileNotFoundError)):
        dca.LatentDirichletAllocation(2).fit(str(store))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("shape", [[HUGE, 6], [6, HUGE], [HUGE, HUGE], [-1, 6], [2**62, 1]])
def test_data_of_a_claimed_huge_shape_take_no_memory(stored, tmp_path, shape):
    target = tmp_path / "x.zarr"
    shutil.copytree(stored, target)
    document = json.loads((target / "zarr.json").read_text())
    document["shape"] = shape
    (target / "zarr.json").write_text(json.dumps(document))
    with little_memory(), contextlib.suppress(DCAError):
        as_rows(str(target))


def npz(tree, **arrays):
    held = io.BytesIO()
    np.savez_compressed(held, tree=np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8), **arrays)
    return held.getvalue()


def with_claimed_shape(shape):
    """An npz file with an array of a shape that it does not hold."""
    held, array = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(held, "w") as parts:
        tree = io.BytesIO()
        np.save(tree, np.frombuffer(b'{"array": 0}', dtype=np.uint8))
        parts.writestr("tree.npy", tree.getvalue())
        parts.writestr("a0.npy", array.getvalue() + bytes(16))
    return held.getvalue()


def test_kept_passes_that_unpack_to_more_are_refused():
    bomb = npz({"array": 0}, a0=np.zeros(2 * SMALL // 8))
    assert len(bomb) < SMALL / 100
    for content in (bomb, with_claimed_shape((HUGE, HUGE)), with_claimed_shape((HUGE,))):
        with little_memory(), pytest.raises(ValueError, match="not a result"):
            from_bytes(content)


def test_a_hostile_checkpoint_costs_its_passes_and_runs_nothing(tmp_path):
    import dask.array as da

    place, data = tmp_path / "kept", da.from_array(X, chunks=(20, -1))
    model = dca.NMF(3, checkpoint=str(place)).fit(data)
    paths = sorted(place.glob("*.npz"))
    contents = [pickle.dumps(Trap(tmp_path / "sprung")), npz([[]] * 10), to_bytes(("another key", 1))]
    for i, path in enumerate(paths):
        path.write_bytes(contents[i % len(contents)])
    with pytest.warns(CheckpointWarning, match="computed again"):
        again = dca.NMF(3, checkpoint=str(place)).fit(data)
    np.testing.assert_array_equal(again.components_, model.components_)
    paths[0].write_bytes(paths[1].read_bytes())  # a file of another pass under this one's name
    with pytest.warns(CheckpointWarning, match="of another pass"):
        dca.NMF(3, checkpoint=str(place)).fit(data)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("head", [DEEP, " " * 2**23 + "{}", '{"format": ' + "9" * 5000 + "}"])
def test_a_hostile_head_of_a_checkpoint_is_one_error(tmp_path, head):
    (tmp_path / "fit.json").write_text(head)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(str(tmp_path), {})
    assert len(str(caught.value)) < 1000


MARKET = "%%MatrixMarket matrix "
DOCUMENTS = {
    "rows.mtx": f"{MARKET}coordinate real general\n{HUGE} 5 1\n1 1 1.0\n",
    "entries.mtx": f"{MARKET}coordinate real general\n5 5 {HUGE}\n1 1 1.0\n",
    "dense.mtx": f"{MARKET}array real general\n1000000 1000000\n1.0\n",
    "negative.mtx": f"{MARKET}coordinate real general\n-5 5 1\n1 1 1.0\n",
    "outside.mtx": f"{MARKET}coordinate real general\n2 2 1\n7 7 1.0\n",
    "nothing.mtx": MARKET,
    "rows.txt": f"{HUGE}\n5\n1\n1 1 1\n",
    "some rows.txt": f"{2**31}\n5\n1\n1 1 1\n",
    "entries.txt": f"5\n5\n{HUGE}\n1 1 1\n",
    "long line.txt": "2\n3\n1\n" + "1 " * 10**6,
    "long head.txt": "1" * 10**6,
    "cut.txt.gz": gzip.compress(b"2\n3\n1\n1 1 1\n" * 1000)[:40],
    "noise.txt.gz": b"\x1f\x8b" + bytes(range(200)),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_that_lie_are_one_error(tmp_path, name):
    content = DOCUMENTS[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with little_memory(), pytest.raises(DCAError) as caught:
        convert_documents(str(tmp_path / name), str(tmp_path / "out.zarr"))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert len(str(caught.value)) < 1000


@given(st.binary(max_size=200), st.sampled_from(["", MARKET, "2\n3\n1\n", f"{MARKET}coordinate real general\n"]))
@settings(max_examples=60)
def test_any_bytes_as_documents_are_one_error_or_read(tmp_path_factory, content, head):
    folder = tmp_path_factory.getbasetemp()
    (folder / "fuzzed.txt").write_bytes(head.encode() + content)
    shutil.rmtree(folder / "fuzzed.zarr", ignore_errors=True)
    with contextlib.suppress(DCAError):
        convert_documents(str(folder / "fuzzed.txt"), str(folder / "fuzzed.zarr"))


def test_a_vocabulary_that_is_no_text_is_one_error(tmp_path):
    (tmp_path / "d.txt").write_text("2\n3\n1\n1 1 2\n")
    (tmp_path / "v.txt").write_bytes(b"\xff\xfe\xff")
    for name in ("v.txt", "none.txt"):
        with pytest.raises(InvalidInputError):
            convert_documents(str(tmp_path / "d.txt"), str(tmp_path / "o.zarr"), vocabulary=str(tmp_path / name))


def test_npy_files_that_lie_are_one_error(tmp_path):
    np.save(tmp_path / "object.npy", np.array([Trap(tmp_path / "sprung")], dtype=object), allow_pickle=True)
    with open(tmp_path / "huge.npy", "wb") as held:
        np.lib.format.write_array_header_1_0(held, {"descr": "<f8", "fortran_order": False, "shape": (HUGE, 3)})
    for name in ("object.npy", "huge.npy"):
        with little_memory(), pytest.raises(InvalidInputError):
            open_data(str(tmp_path / name))
    assert not (tmp_path / "sprung").exists()
