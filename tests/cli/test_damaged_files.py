"""Files that are not whole, or hold no real numbers: what is said of each, and that the line which is told works."""

import os
import pathlib
import re
import zlib
from pathlib import Path

import dask
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
import zarr

import dask_dca as dca
from tests.cli import test_supported_inputs as inputs

X, TABLE = inputs.X, inputs.TABLE


def _cut(path, size):
    Path(path).write_bytes(Path(path).read_bytes()[:size])


def _parts(path, other):
    os.mkdir(path)
    TABLE.to_parquet(f"{path}/a.parquet")
    other.to_parquet(f"{path}/b.parquet")


def _broken_part(path):
    _parts(path, TABLE)
    _cut(f"{path}/b.parquet", 900)


DAMAGED = {  # how it is made; what is said; the line that keeps what is there, and what is there then
    "short.npy": (
        lambda path: (np.save(path, X), _cut(path, 1200)),
        "is cut short.* 33 rows are there",
        "numpy.save",
        X[:33],
    ),
    "turned.npy": (
        lambda path: (np.save(path, np.asfortranarray(X)), _cut(path, 1200)),
        "1072 are there; copy it",
        "",
        None,
    ),
    "head.npy": (lambda path: (np.save(path, X), _cut(path, 20)), "has no head of its kind", "", None),
    "empty.npy": (lambda path: Path(path).touch(), "is empty; copy it again", "", None),
    "text.npy": (lambda path: Path(path).write_text("hello"), r"is no \.npy file: it begins with b'hello'", "", None),
    "objects.npy": (lambda path: np.save(path, X.astype(object)), "holds Python objects", "numpy.save", X),
    "mixed.npy": (lambda path: np.save(path, TABLE.assign(k="x").to_numpy()), "holds Python objects", "numpy.save", X),
    "complex.npy": (lambda path: np.save(path, X * 1j), "Complex data not supported", "X = numpy", X),
    "records.npy": (lambda path: np.save(path, TABLE.to_records(index=False)), "must be real numbers", "X = numpy", X),
    "dates.npy": (lambda path: np.save(path, X.astype("M8[s]")), "must be real numbers", "X = numpy", X),
    "complex.zarr": (lambda path: zarr.create_array(path, data=X * 1j), "Complex data not supported", "X = dask", X),
    "short.parquet": (lambda path: (TABLE.to_parquet(path), _cut(path, 900)), "is no whole Parquet file", "", None),
    "text.parquet": (lambda path: Path(path).write_text("hello"), "is no whole Parquet file", "", None),
    "parts.parquet": (_broken_part, "holds 1 files that are no whole Parquet files", "pathlib.Path", X),
    "others.parquet": (
        lambda path: _parts(path, TABLE.rename(columns={"a": "z"})),
        "have different columns: 'b.parquet' has",
        "pandas",
        None,
    ),
    "short.h5ad": (lambda path: (inputs._cells(path), _cut(path, 9000)), "is cut short: it was written with", "", None),
    "short.h5": (lambda path: (inputs._hdf5(path), _cut(path, 3000)), "is cut short: it was written with", "", None),
    "short.npz": (lambda path: (np.savez(path, X=X), _cut(path, 1200)), "is no whole archive", "", None),
    "short.csv.gz": (
        lambda path: (TABLE.to_csv(path, index=False), _cut(path, 150)),
        "is cut short; copy it",
        "pathlib.Path",
        None,
    ),
    "long.csv": (
        lambda path: Path(path).write_text("a,b\n1,2\n1,2,3\n3,4\n"),
        "leave such lines out",
        "pandas",
        np.array([[1, 2], [3, 4]]),
    ),
    "bare.csv": (
        lambda path: Path(path).write_text("1;2\n1;2;3\n3;4\n"),
        "leave such lines out",
        "pandas",
        np.array([[1, 2], [3, 4]]),
    ),
    "short.zarr": (
        lambda path: (zarr.create_array(path, data=X), _cut(f"{path}/zarr.json", 300)),
        "; copy it again, or write it again$",
        "",
        None,
    ),
}
IN_PYTHON = (".parquet", ".npz", ".h5", ".h5ad", ".npy")  # what is seen at the path, before any reader is named


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DAMAGED)
def test_files_that_are_damaged_are_told_how_and_what_keeps_the_rest(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    make, said, line, kept = DAMAGED[name]
    make(name)
    done = inputs.run("fit", "mixture", name, "-k", 1, "-o", "m.zarr")
    assert done.exit_code == 2
    message = done.stderr.removeprefix("Error: ").strip()
    assert re.search(said, message), message
    assert "\n" not in message
    if name.startswith(("short", "head", "empty", "text", "parts")) and name.endswith(IN_PYTHON):
        assert re.search(said, inputs.refused(dca.GaussianMixture(1).fit, name))
    if not line:
        assert "again" in message
        return
    statements = re.search(rf"({re.escape(line)}.*)$", message)[1]
    exec(statements, {"pandas": pd, "dask": dask, "numpy": np, "np": np, "pathlib": pathlib, "zlib": zlib})
    written = (re.findall(r"numbers\.\w+", statements) or [name])[-1]
    done = inputs.run("fit", "mixture", written, "-k", 1, "-o", "m.zarr")
    assert done.exit_code == 0, done.output
    if kept is not None:
        means = dca.load_model("m.zarr").means_[0]
        wanted = kept.mean(axis=0) - (X.min() if name == "dates.npy" else 0)
        np.testing.assert_allclose(means, wanted, rtol=1e-4, atol=1e-4)
