"""`dask dca fit library`: known rows by path, with or without names."""

import json

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from dask_dca.cli.main import main
from tests.anchoring.test_library import scene


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with mixtures of five of sixty known rows; which ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    X, library, rows = scene(noise=0.1, offset=0.2)
    zarr.create_array("X.zarr", shape=X.shape, dtype=X.dtype, chunks=(400, 40))[...] = X
    np.save("library.npy", library)
    np.savetxt("plain.csv", library, delimiter=",")
    named = [f'"row, {i}",' + ",".join(map(repr, row.tolist())) for i, row in enumerate(library)]
    (tmp_path / "named.csv").write_text("\n".join(named))
    (tmp_path / "headed.csv").write_text("\n".join(["name," + ",".join(f"b{j}" for j in range(40)), *named]))
    return sorted(rows.tolist())


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize("library", ["named.csv", "headed.csv", "plain.csv", "library.npy"])
def test_rows_of_a_library_are_named(place, library):
    done = run("fit", "library", "X.zarr", "--library", library, "-k", 5, "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert sorted(anchor["row"] for anchor in facts["anchors"]) == place
    word = "row, " if library in ("named.csv", "headed.csv") else "row "
    assert [anchor["name"] for anchor in facts["anchors"]] == [f"{word}{a['row']}" for a in facts["anchors"]]
    assert facts["offset"]
    assert facts["unexplained"] < 0.01


def test_a_table_is_printed(place):
    done = run("fit", "library", "X.zarr", "--library", "named.csv")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("DATA's rows are mixtures of 5 rows of the library:\n")
    assert all(f"row, {row}\n" in done.stdout for row in place)
    assert "A constant offset is mixed in as well." in done.stdout
    assert "Coverage " in done.stdout


@pytest.mark.parametrize(
    ("text", "reason"),
    [("a,1,2\nb,3\n", "differ in length"), ("a,1,2\nb,x,3\n", "row 1 of"), ("a,1,2\nb,3,4\n", "same space")],
)
def test_unusable_libraries_are_told_in_one_line(place, tmp_path, text, reason):
    (tmp_path / "bad.csv").write_text(text)
    done = run("fit", "library", "X.zarr", "--library", "bad.csv")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
