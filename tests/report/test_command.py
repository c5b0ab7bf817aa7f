"""`dask dca report`: a whole page or none, exit codes 0 and 2, nothing replaced that isn't a page."""

import errno
import os
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import dask_dca as dca
from dask_dca.cli.main import main
from dask_dca.errors import ModelFileError
from dask_dca.reporting import page as files
from tests.report.conftest import example, page, page_without_data


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with models, data and things that are neither; the working directory."""
    monkeypatch.chdir(tmp_path)
    model, X = example("nmf")
    model.save("model.zarr")
    mixture, wine = example("mixture")
    mixture.save("wine.zarr")
    zarr.create_array("X.zarr", data=X, chunks=(500, 64))
    np.save("X.npy", X)
    np.save("narrow.npy", X[:, :5])
    wine.to_csv("wine.csv", index=False)
    wine[wine.columns[::-1]].to_csv("reversed.csv", index=False)
    Path("notes.txt").write_text("not a page")
    Path("old.html").write_text("<!DOCTYPE html><title>old</title>")
    Path("folder").mkdir()
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def test_a_report_is_written(place):
    found = run("model.zarr", "-o", "report.html")
    assert found.exit_code == 0, found.output
    assert found.stderr == ""
    assert Path("report.html").read_text(encoding="utf-8") == page_without_data("nmf")
    assert found.stdout == f"Report of {os.path.getsize('report.html'):,} bytes written to report.html\n"
    assert not [name for name in os.listdir() if name.startswith(".")]


@pytest.mark.parametrize("data", ["X.zarr", "X.npy"])
def test_data_shape_title_and_date(place, data):
    options = ("--data", data, "--shape", "8x8", "--title", "Digits & such", "--date", "a Saturday")
    found = run("model.zarr", "-o", "report.html", *options)
    assert found.exit_code == 0, found.output
    model, X = example("nmf")
    assert Path("report.html").read_text(encoding="utf-8") == dca.report(
        model, data=X, shape=(8, 8), title="Digits & such", date="a Saturday"
    )


def test_data_with_names(place):
    found = run("wine.zarr", "-o", "report.html", "--data", "wine.csv")
    assert found.exit_code == 0, found.output
    assert Path("report.html").read_text(encoding="utf-8") == page("mixture")


BAD = {
    "no model": (["gone.zarr"], "no model at 'gone.zarr'"),
    "not a model": (["X.zarr"], "X.zarr"),
    "output exists": (["model.zarr", "-o", "old.html"], "--overwrite"),
    "overwrite of a file that is no page": (["model.zarr", "-o", "notes.txt", "--overwrite"], "not an HTML page"),
    "overwrite of data": (["model.zarr", "-o", "X.npy", "--overwrite"], "not an HTML page"),
    "overwrite of a folder": (["model.zarr", "-o", "folder", "--overwrite"], "not an HTML page"),
    "into the model": (["model.zarr", "-o", "model.zarr/report.html"], "overlap"),
    "over its data": (["model.zarr", "-o", "X.npy", "--data", "X.npy"], "overlap"),
    "no folder": (["model.zarr", "-o", "no/such/report.html"], "mkdir -p"),
    "no data": (["model.zarr", "--data", "gone.npy"], "nothing at 'gone.npy'"),
    "other data": (["model.zarr", "--data", "narrow.npy"], "5 features"),
    "other columns": (["wine.zarr", "--data", "reversed.csv"], "ordered.csv"),
    "shape of words": (["model.zarr", "--shape", "wide"], "received 'wide'"),
    "shape of another size": (["model.zarr", "--shape", "5x5"], "holds 25 values"),
    "shape of nothing": (["model.zarr", "--shape", "0x64"], "holds 0 values"),
    "unknown option": (["model.zarr", "--color", "red"], "No such option"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(place, case):
    arguments, reason = BAD[case]
    if "-o" not in arguments:
        arguments = [*arguments, "-o", "report.html"]
    before = {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}
    found = run(*arguments)
    assert found.exit_code == 2
    assert reason in found.stderr
    assert found.stderr.count("\n") == 1
    assert found.stdout == ""
    assert {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()} == before


def test_without_an_output_nothing_is_written(place):
    before = sorted(os.listdir(place))
    found = run("model.zarr", "--data", "X.npy")
    assert found.exit_code == 0
    assert found.stdout.startswith("Non-negative matrix factorization")
    assert sorted(os.listdir(place)) == before


def test_overwrite_replaces_a_page(place):
    found = run("model.zarr", "-o", "old.html", "--overwrite")
    assert found.exit_code == 0, found.output
    assert Path("old.html").read_text(encoding="utf-8") == page_without_data("nmf")


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_page_that_cannot_be_written_leaves_nothing(place, monkeypatch, overwrite):
    def full(self, content):
        with open(self, "wb") as file:
            file.write(content[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.Path if hasattr(files, "Path") else Path, "write_bytes", full)
    output = "old.html" if overwrite else "report.html"
    before = sorted(os.listdir())
    with pytest.raises(ModelFileError, match="No space left on device"):
        dca.report(example("nmf")[0], output, overwrite=overwrite)
    assert sorted(os.listdir()) == before
    assert "old" in Path("old.html").read_text()


@pytest.mark.parametrize("links", [True, False])
def test_what_came_into_being_meanwhile_stays(place, monkeypatch, links):
    """A file that another process wrote between the check and the move is not replaced, with or without hard links."""

    def refuse(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(files, "check_page", lambda *_, **__: None)
    files.write_page("new.html", "<!doctype html>")
    assert Path("new.html").read_text() == "<!doctype html>"
    Path("report.html").write_text("of someone else")
    with pytest.raises(ModelFileError, match="meanwhile"):
        files.write_page("report.html", "<!doctype html>")
    assert Path("report.html").read_text() == "of someone else"
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ModelFileError, match="nothing of it was left behind"):
        files.write_page("third.html", "<!doctype html>")
    assert not Path("third.html").exists()
    assert not [name for name in os.listdir() if name.startswith(".")]


def test_pages_go_to_urls_too(place):
    dca.report(example("nmf")[0], "memory://pages/report.html")
    store = fsspec.filesystem("memory")
    assert store.cat_file("/pages/report.html").decode() == page_without_data("nmf")
    with pytest.raises(ModelFileError, match="exists"):
        dca.report(example("nmf")[0], "memory://pages/report.html")
    dca.report(example("nmf")[0], "memory://pages/report.html", title="New", overwrite=True)
    assert b"<title>New</title>" in store.cat_file("/pages/report.html")


def test_a_link_is_replaced_not_followed(place):
    os.symlink("old.html", "link.html")
    dca.report(example("nmf")[0], "link.html", overwrite=True)
    assert "old" in Path("old.html").read_text()
    assert not os.path.islink("link.html")
