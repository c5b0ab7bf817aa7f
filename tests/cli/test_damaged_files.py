"""Files that are not whole, or hold no real numbers: what is said of each, and that the line which is told works."""

import os
import re
from pathlib import Path

import dask
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
    "short.npy": (lambda path: (np.save(path, X), _cut(path, 1200)), "greater than file size; copy it again", "", None),
    "head.npy": (lambda path: (np.save(path, X), _cut(path, 20)), "reading array header.*; copy it again", "", None),
    "empty.npy": (lambda path: Path(path).touch(), "No data left in file; copy it again", "", None),
    "text.npy": (lambda path: Path(path).write_text("hello"), r"it is no \.npy file; copy it again", "", None),
    "objects.npy": (lambda path: np.save(path, X.astype(object)), "holds Python objects", "numpy.save", X),
    "mixed.npy": (lambda path: np.save(path, TABLE.assign(k="x").to_numpy()), "holds Python objects", "numpy.save", X),
    "complex.npy": (lambda path: np.save(path, X * 1j), "Complex data not supported", "X = numpy", X),
    "records.npy": (lambda path: np.save(path, TABLE.to_records(index=False)), "must be real numbers", "X = numpy", X),
    "dates.npy": (lambda path: np.save(path, X.astype("M8[s]")), "must be real numbers", "X = numpy", X),
    "complex.zarr": (lambda path: zarr.create_array(path, data=X * 1j), "Complex data not supported", "X = dask", X),
    "short.parquet": (lambda path: (TABLE.to_parquet(path), _cut(path, 900)), "magic bytes not found", "", None),
    "parts.parquet": (_broken_part, "magic bytes not found", "", None),
    "others.parquet": (
        lambda path: _parts(path, TABLE.rename(columns={"a": "z"})),
        "write it again, all of its files with the same columns",
        "",
        None,
    ),
    "short.h5ad": (lambda path: (inputs._cells(path), _cut(path, 9000)), "truncated file", "", None),
    "short.csv.gz": (lambda path: (TABLE.to_csv(path, index=False), _cut(path, 150)), "file ended before", "", None),
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
    if not line:
        assert "again" in message
        return
    statements = re.search(rf"({re.escape(line)}.*)$", message)[1]
    exec(statements, {"pandas": pd, "dask": dask, "numpy": np, "np": np})
    written = (re.findall(r"numbers\.\w+", statements) or [name])[-1]
    done = inputs.run("fit", "mixture", written, "-k", 1, "-o", "m.zarr")
    assert done.exit_code == 0, done.output
    if kept is not None:
        means = dca.load_model("m.zarr").means_[0]
        wanted = kept.mean(axis=0) - (X.min() if name == "dates.npy" else 0)
        np.testing.assert_allclose(means, wanted, rtol=1e-4, atol=1e-4)
