"""Folders to write in: the leftovers of killed writers go, those of living ones stay."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dask_dca.engine import files as scratch
from dask_dca.engine.files import is_scratch, remove_leftovers, scratch_folder
from dask_dca.output import atomic_output
from dask_dca.store import load_model


def left_by_a_killed_writer(target: Path, *, old: bool = False) -> Path:
    """As a killed process leaves it: the lock file is there, and no process holds the lock."""
    with scratch_folder(target) as folder:
        name = folder.name
    folder = target.with_name(name)
    folder.mkdir()
    (folder / "lock").touch()
    (folder / "new").mkdir()
    (folder / "new" / "zarr.json").write_text("half")
    if old:
        (folder / "old").write_text("whole")
    return folder


def test_leftovers_of_the_same_place_go_and_no_others(tmp_path):
    target = tmp_path / "model[1].zarr"
    left = left_by_a_killed_writer(target)
    other = left_by_a_killed_writer(tmp_path / "model1.zarr")
    user = tmp_path / ".model[1].zarr.notes.partial"
    user.mkdir()
    with scratch_folder(target) as folder:
        assert not left.exists()
        assert folder.parent == tmp_path
        assert is_scratch(folder.name)
    assert sorted(tmp_path.iterdir()) == sorted([other, user])


def test_folders_of_other_machines_stay(tmp_path, monkeypatch):
    left = left_by_a_killed_writer(tmp_path / "x")
    monkeypatch.setattr(scratch.socket, "gethostname", lambda: "elsewhere")
    with scratch_folder(tmp_path / "x"):
        assert left.exists()


def test_a_living_writer_is_not_disturbed_in_threads(tmp_path):
    target, entered, done = tmp_path / "x", threading.Barrier(2), threading.Barrier(2)
    found = []

    def write(text, overwrite):
        with atomic_output(target, overwrite=overwrite) as place:
            Path(place).mkdir()
            Path(place, "zarr.json").write_text(text)
            entered.wait(20)
            remove_leftovers(target)
            done.wait(20)
            found.append(Path(place, "zarr.json").read_text())
            if text == "two":
                threads[0].join(30)

    threads = [threading.Thread(target=write, args=(text, True)) for text in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == ["one", "two"]
    assert (target / "zarr.json").read_text() == "two"
    assert list(tmp_path.iterdir()) == [target]


def test_a_living_writer_is_not_disturbed_by_another_process(tmp_path):
    code = "import sys, pathlib; from dask_dca.engine.files import remove_leftovers as r; r(pathlib.Path(sys.argv[1]))"
    dead = left_by_a_killed_writer(tmp_path / "x")
    with atomic_output(tmp_path / "x") as place:
        dead.mkdir()
        (dead / "lock").touch()
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "x")], check=True, timeout=120)
        assert not dead.exists()
        Path(place).write_text("whole")
    assert (tmp_path / "x").read_text() == "whole"


def test_a_folder_that_is_just_being_made_costs_a_second_try(tmp_path, monkeypatch):
    real, cleaned = os.open, []

    def slow(path, *args, **kwargs):
        if not cleaned:
            cleaned.append(path)
            remove_leftovers(tmp_path / "x")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(scratch.os, "open", slow)
    with scratch_folder(tmp_path / "x") as folder:
        assert folder.is_dir()
    assert len(cleaned) == 1


def test_a_folder_that_is_taken_for_a_leftover_before_it_is_locked_costs_one_as_well(tmp_path, monkeypatch):
    real, taken = scratch._try_lock, []

    def slow(lock):
        if not taken:
            taken.append(lock)
            remove_leftovers(tmp_path / "x")
        return real(lock)

    monkeypatch.setattr(scratch, "_try_lock", slow)
    with scratch_folder(tmp_path / "x") as folder:
        assert folder.is_dir()


def test_where_there_are_no_locks_nothing_is_removed(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(37, "No locks available")

    left = left_by_a_killed_writer(tmp_path / "x")
    monkeypatch.setattr(scratch.fcntl, "flock", refuse)
    with atomic_output(tmp_path / "x") as place:
        Path(place).write_text("whole")
    assert sorted(tmp_path.iterdir()) == sorted([left, tmp_path / "x"])


@pytest.mark.parametrize("there", [False, True])
def test_what_a_killed_writer_was_replacing_comes_back(tmp_path, there):
    target = tmp_path / "x"
    left_by_a_killed_writer(target, old=True)
    if there:
        target.write_text("newer")
    remove_leftovers(target)
    assert target.read_text() == ("newer" if there else "whole")
    assert list(tmp_path.iterdir()) == [target]


WRITERS = """
import json, os, pathlib, signal
import fsspec.implementations.local, zarr, zarr.storage, scipy.io
import numpy as np
import dask_dca as dca
from dask_dca.convert import convert_documents
from dask_dca.engine.checkpoint import open_checkpoint
from dask_dca.reporting.page import write_page

def die(*args, **more):
    os.kill(os.getpid(), signal.SIGKILL)

model = dca.NMF(2).fit(np.eye(3)[[0, 1, 0]] + 0.0)
pathlib.Path("docword.txt").write_text("2\\n3\\n3\\n1 1 2\\n1 3 1\\n2 2 5\\n")
kept = open_checkpoint("kept", {"data": {"rows": 3}})
writers = {
    "model.zarr": lambda: model.save("model.zarr", overwrite=True),
    "page.html": lambda: write_page("page.html", "<!doctype html>", overwrite=True),
    "docs.zarr": lambda: convert_documents("docword.txt", "docs.zarr", overwrite=True),
    "kept": lambda: kept.value("gram", 0, lambda: 1),
}
for deadly in (True, True, False):  # twice killed: the second writer removes what the first has left
    for write in writers.values():
        child = os.fork()
        if not child:
            if deadly:
                pathlib.Path.rename = pathlib.Path.replace = os.replace = os.link = die
            write()
            os._exit(0)
        os.waitpid(child, 0)
    print(json.dumps([sorted(os.listdir()), sorted(path.suffix for path in pathlib.Path("kept").iterdir())]))
"""


def test_a_writer_that_is_killed_leaves_one_folder_that_the_next_one_removes(tmp_path):
    places = ["docs.zarr", "model.zarr", "page.html"]
    words = [sys.executable, "-c", WRITERS]
    told = subprocess.run(words, cwd=tmp_path, timeout=120, check=True, stdout=subprocess.PIPE).stdout
    *killed, whole = map(json.loads, told.splitlines())
    for found, kept in killed:
        assert [name.rsplit(".", 3)[0] for name in found if is_scratch(name)] == [f".{name}" for name in places]
        assert [name for name in found if not is_scratch(name)] == ["docword.txt", "kept"]
        assert kept == [".json", ".partial"]
    assert whole == [sorted([*places, "docword.txt", "kept"]), [".json", ".npz"]]
    assert load_model(tmp_path / "model.zarr").n_components_ == 2
