"""Each kind of file is accepted by each model, in Python and by command, or refused with a line that works."""

import os
import re
import shutil
import warnings
from pathlib import Path

import anndata as ad
import dask
import dask.dataframe
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy
import xarray as xr
import zarr
from click.testing import CliRunner
from scipy import io, sparse

import dask_dca as dca
from dask_dca.cli.main import main
from dask_dca.errors import DCAError
from tests.conftest import SOAK
from tests.models import test_supported_inputs as objects

X, WORDS, TABLE = objects.X, objects.WORDS, objects.TABLE
PAGE = Path(__file__).parents[2] / "docs" / "inputs.md"
KNOWN = objects.KNOWN | {
    "anndata": ad, "h5py": h5py, "pandas": pd, "scipy": scipy, "xarray": xr, "zarr": zarr
}  # fmt: skip
MODELS = {  # as they are asked for by a command
    "nmf": ("-k", 2),
    "mixture": ("-k", 2, "--covariance-type", "diag", "--max-iter", 1),
    "hmm": ("-k", 2, "--max-iter", 1),
    "kalman": ("-k", 1, "--max-iter", 1),
    "lda": ("-k", 2, "--min-df", 1, "--max-iter", 1),
    "subspace": ("-k", 2),
}


def _packed(path):
    zarr.create_array(path, data=X.astype(np.int16) * 2, attributes={"scale_factor": 0.5})


def _cells(path):
    cells = ad.AnnData(sparse.csr_matrix(X), var=pd.DataFrame(index=WORDS))
    cells.write_h5ad(path) if path.endswith(".h5ad") else cells.write_zarr(path)


def _group(path):
    group = zarr.open_group(path, mode="w")
    group["counts"], group["other"] = X, X + 1


def _variables(path):
    data = {word: (("y", "x"), objects.CUBE[..., j]) for j, word in enumerate(WORDS)}
    xr.Dataset(data).to_zarr(path, consolidated=False)


def _hdf5(path):
    with h5py.File(path, "w") as file:
        file["X"] = X


# kind: (name, how it is written, what `fit` says to pass instead, what a command asks for); empty where it is accepted
FILES = {
    "NumPy file": ("x.npy", lambda path: np.save(path, X), ["numpy.load('x.npy', mmap_mode='r')"], ""),
    "CSV": (
        "x.csv", lambda path: TABLE.to_csv(path, index=False), ["pandas.read_csv('x.csv')"], ""
    ),
    "CSV with semicolons": (
        "x1.csv", lambda path: TABLE.to_csv(path, sep=";", decimal=",", index=False),
        ["pandas.read_csv('x1.csv', sep=';', decimal=',')"], "",
    ),
    "TSV": (
        "x.tsv", lambda path: TABLE.to_csv(path, sep="\t", index=False), [r"pandas.read_csv('x.tsv', sep='\t')"], ""
    ),
    "CSV, compressed": (
        "x.csv.gz", lambda path: TABLE.to_csv(path, index=False), ["pandas.read_csv('x.csv.gz')"], ""
    ),
    "Parquet": ("x.parquet", TABLE.to_parquet, ["dask.dataframe.read_parquet('x.parquet')"], ""),
    "Parquet written by polars": (
        "polars.parquet", lambda path: pl.from_pandas(TABLE).write_parquet(path),
        ["dask.dataframe.read_parquet('polars.parquet')"], "",
    ),
    "zarr array": ("x.zarr", lambda path: zarr.create_array(path, data=X, chunks=(20, 4)), [], ""),
    "zarr array of packed values": ("packed.zarr", _packed, [], ""),
    "AnnData in zarr": ("cells.zarr", _cells, [], ""),
    "zarr group of several arrays": (
        "group.zarr", _group, ["zarr.open_array('group.zarr', path='counts')"], "--array counts"
    ),
    "zarr group of several maps": (
        "maps.zarr", _variables, ["dask_dca.Cube(xarray.open_zarr('maps.zarr'))"], "--features variable"
    ),
    "zarr array of three dimensions": (
        "cube.zarr", lambda path: zarr.create_array(path, data=objects.CUBE, chunks=(2, 10, 4)),
        ["dask.array.from_zarr(X).reshape(-1, 4)"], "--features 2",
    ),
    "NumPy file of three dimensions": (
        "cube.npy", lambda path: np.save(path, objects.CUBE),
        ["numpy.load('cube.npy', mmap_mode='r')", "X.reshape(-1, 4)"], "--features 2",
    ),
    "AnnData in HDF5": (
        "cells.h5ad", _cells, ["anndata.read_h5ad('cells.h5ad')"], "",
    ),
    "Matrix Market": (
        "x.mtx", lambda path: io.mmwrite(path, sparse.coo_array(X)), ["scipy.io.mmread('x.mtx', spmatrix=False)"],
        "dask dca convert x.mtx -o documents.zarr",
    ),
    "SciPy sparse matrix": (
        "x1.npz", lambda path: sparse.save_npz(path, sparse.csr_array(X)), ["scipy.sparse.load_npz('x1.npz')"],
        "scipy.io.mmwrite('d.mtx', scipy.sparse.load_npz('x1.npz')) and dask dca convert d.mtx -o documents.zarr",
    ),
    "NumPy archive": (
        "x.npz", lambda path: np.savez(path, X=X), ["numpy.load('x.npz')['X']"],
        "numpy.save('numbers.npy', numpy.load('x.npz')['X'])",
    ),
    "text file of numbers": (
        "x.txt", lambda path: np.savetxt(path, X), ["numpy.loadtxt('x.txt')"],
        "numpy.save('numbers.npy', numpy.loadtxt('x.txt'))",
    ),
    "Feather": (
        "x.feather", TABLE.to_feather, ["pandas.read_feather('x.feather')"],
        "pandas.read_feather('x.feather').to_csv('numbers.csv', index=False)",
    ),
    "JSON": (
        "x.json", TABLE.to_json, ["pandas.read_json('x.json')"],
        "pandas.read_json('x.json').to_csv('numbers.csv', index=False)",
    ),
    "MATLAB": (
        "x.mat", lambda path: io.savemat(path, {"X": X}), ["scipy.io.loadmat('x.mat')['X']"],
        "numpy.save('numbers.npy', scipy.io.loadmat('x.mat')['X'])",
    ),
    "HDF5": (
        "x.h5", _hdf5, ["h5py.File('x.h5')['X'][:]"], "numpy.save('numbers.npy', h5py.File('x.h5')['X'][:])"
    ),
    "netCDF": (
        "x.nc", lambda path: xr.Dataset({"X": (("time", "word"), X)}).to_netcdf(path, engine="scipy"),
        ["xarray.open_dataset('x.nc', chunks={})", "X['X']"],
        "xarray.open_dataset('x.nc', chunks={}).to_zarr('data.zarr')",
    ),
}  # fmt: skip


EVERY = SOAK  # else each kind into one of the models, in turn
CELLS = [(kind, name) for i, kind in enumerate(FILES) for j, name in enumerate(MODELS) if EVERY or i % len(MODELS) == j]


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a file of a kind into the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)

    def _write(kind):
        name, write, steps, command = FILES[kind]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # which format of zarr will be the default, say
            write(name)
        return name, steps, command

    return _write


@pytest.fixture(scope="module")
def whole():
    """What each model makes of a plain array."""
    made = {name: make().fit(X) for name, make in objects.MODELS.items()}
    return {name: objects.plain(getattr(model, model._per_row)(X)) for name, model in made.items()}


def refused(call, *given):
    """The one line that a call ends with."""
    with pytest.raises(DCAError) as raised:
        call(*given)
    message = str(raised.value)
    assert "\n" not in message
    return message


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "name"), CELLS)
def test_a_path_in_python(written, whole, name, kind):
    data, steps, _ = written(kind)
    for step in steps:
        if getattr(data, "ndim", 0) == 3 and name in objects.IN_TIME:
            assert objects.MODELS[name]().fit(data).n_sequences_ == 6
            return
        message = refused(objects.MODELS[name]().fit, data)
        assert step in message, message
        data = eval(step, {"X": data, **KNOWN})
    model = objects.MODELS[name]().fit(data)
    assert model.n_features_in_ == 4
    if kind == "zarr group of several maps" and name in objects.IN_TIME:
        assert model.n_sequences_ == 6
        return
    np.testing.assert_allclose(
        objects.plain(getattr(model, model._per_row)(data)).reshape(whole[name].shape),
        whole[name],
        rtol=1e-4,
        atol=1e-4,
    )


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def advised(advice):
    """Do what a command said; the file that is there then."""
    for step in advice.split(" and "):
        if step.startswith("dask dca"):
            assert run(*step.split()[2:]).exit_code == 0
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(step, KNOWN)
    return re.findall(r"[a-z]+\.(?:zarr|npy|csv)", advice)[-1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "name"), CELLS)
def test_a_path_on_the_command_line(written, whole, name, kind):
    data, _, advice = written(kind)
    options = [*MODELS[name], "-o", "model.zarr"]
    if advice:
        done = run("fit", name, data, *options)
        assert done.exit_code == 2, done.output
        said = done.stderr.replace(f"{os.getcwd()}/", "")
        assert advice in said, said
        assert said.count("\n") == 1
        if advice.startswith("--"):
            options += advice.split()
        else:
            data = advised(advice)
    done = run("fit", name, data, *options)
    assert done.exit_code == 0, done.output
    model = dca.load_model("model.zarr")
    np.testing.assert_allclose(
        objects.plain(getattr(model, model._per_row)(X)).reshape(whole[name].shape), whole[name], rtol=1e-4, atol=1e-4
    )


def code(text):
    return f"`{text}`"


def test_the_page_has_what_happens():
    rows = [f"| {kind} | accepted |" for kind in objects.ACCEPTED]
    for kind, (make, pattern) in objects.ADVISED.items():
        found = re.search(pattern, refused(objects.MODELS["mixture"]().fit, make()))
        too = objects.SEQUENCES.get(kind)
        by = f"; {too[1]}, by hidden Markov models and Kalman filters" if too else ""
        rows.append(f"| {kind} | {code(found[1])}{by} |")
    for kind, (name, _, steps, advice) in FILES.items():
        told = ", then ".join(map(code, steps)) or "accepted"
        rows.append(f"| {kind}: `{name}` | {told} | {code(advice) if advice else 'accepted'} |")
    page = PAGE.read_text()
    missing = "\n".join(row for row in rows if row not in page)
    assert not missing, f"the page should have\n{missing}"
    assert page.count("\n| ") == len(rows) + 2


def reversed_files():
    """Files whose columns are in another order than those of a model of a, b, c, d."""
    names = WORDS[::-1]
    turned = TABLE[names]
    cube = xr.DataArray(X[:, ::-1].reshape(6, 10, 4), dims=("y", "x", "band"), coords={"band": names})
    TABLE.to_csv("in.csv", index=False)
    turned.to_csv("r.csv", index=False)
    turned.to_csv("s.csv", index=False, sep=";", decimal=",")
    turned.to_parquet("r.parquet")
    ad.AnnData(sparse.csr_matrix(X[:, ::-1]), var=pd.DataFrame(index=names)).write_zarr("r.zarr")
    ad.AnnData(sparse.csr_matrix(X[:, ::-1]), var=pd.DataFrame(index=names)).write_h5ad("r.h5ad")
    cube.to_dataset(name="v").to_zarr("cube.zarr")
    TABLE.assign(name=[f"r{i}" for i in range(60)])[["name", *WORDS]].to_csv("library.csv", index=False)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_layers_of_cells_and_what_mends_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    counts = X.copy()
    counts[3, 1] = -1
    cells = ad.AnnData(obs=pd.DataFrame(index=map(str, range(60))), var=pd.DataFrame(index=WORDS))
    cells.layers["counts"], cells.layers["bad"] = sparse.csr_array(X), sparse.csr_array(counts)
    cells.write_h5ad("cells.h5ad")
    told = run("fit", "nmf", "cells.h5ad", "-k", 2, "-o", "m.zarr")
    assert told.exit_code == 2
    assert "pass one of its own: --array layers/bad, --array layers/counts" in told.stderr
    assert run("fit", "nmf", "cells.h5ad", "--array", "layers/counts", "-k", 2, "-o", "m.zarr").exit_code == 0
    whole = dca.NMF(2).fit(sparse.csr_array(X))
    found = dca.load_model("m.zarr")
    np.testing.assert_array_equal(found.components_, whole.components_)
    assert list(found.feature_names_in_) == WORDS
    told = run("fit", "nmf", "cells.h5ad", "--array", "layers/bad", "-k", 2, "-o", "m.zarr", "--overwrite").stderr
    exec(re.search(r"for example (X = .*)", told)[1], {"anndata": ad})
    assert run("fit", "nmf", "numbers.h5ad", "-k", 2, "-o", "m.zarr", "--overwrite").exit_code == 0


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_columns_in_another_order_are_told_the_line_that_orders_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    reversed_files()
    assert run("fit", "nmf", "in.csv", "-k", 2, "-o", "model.zarr").exit_code == 0
    files = ("r.csv", "s.csv", "r.parquet", "r.zarr", "r.h5ad")
    commands = [("transform", "model.zarr", file, "-o", "out.npy") for file in files]
    commands += [
        ("transform", "model.zarr", "cube.zarr", "--features", "band", "-o", "out.npy"),
        ("score", "model.zarr", "r.csv"),
        ("report", "model.zarr", "--data", "r.csv"),
        ("in-cone", "r.csv", "in.csv"),
        ("in-cone", "r.csv", "model.zarr"),
        ("fit", "library", "r.csv", "--library", "library.csv", "-k", 2),
        ("fit", "library", "r.csv", "--library", "in.csv", "-k", 2),
    ]
    for command in commands:
        refused = run(*command)
        assert refused.exit_code == 2, command
        line = re.search(r"in the same order: (.*'(ordered\.\w+)'.*)$", refused.output.strip())
        assert line, refused.output
        eval(line[1], {"pandas": pd, "dask": dask, "xarray": xr, "anndata": ad, "dask_dca": dca})
        file = next(part for part in command if part in (*files, "cube.zarr"))
        done = run(*(line[2] if part == file else part for part in command))
        assert done.exit_code == 0, done.output
        if "out.npy" in command:
            np.testing.assert_array_equal(np.load("out.npy").reshape(60, 2), dca.load_model("model.zarr").transform(X))
        shutil.rmtree("ordered.zarr", ignore_errors=True)
        Path("out.npy").unlink(missing_ok=True)


COLUMNS = {  # beside numbers, and how many columns there are in the file that is written
    "categories": (pl.Series(["dry", "wet"] * 30).cast(pl.Categorical), 4),
    "spans": (pl.Series(pd.to_timedelta(np.arange(60), "h")), 4),
    "decimals": (pl.Series(X[:, 0]).cast(pl.Decimal(20, 2)), 5),
    "flags": (pl.Series([True, None] * 30), 5),
    "vectors": (pl.Series(X[:, :3].tolist()), 3),
}


@pytest.mark.filterwarnings("ignore::dask_dca.errors.MissingEntriesWarning")
@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_parquet_that_are_no_numbers_are_told_a_line_that_writes_numbers(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    column, width = COLUMNS[kind]
    pl.from_pandas(TABLE).with_columns(k=column).write_parquet("x.parquet")
    done = run("fit", "mixture", "x.parquet", "-k", 1, "-o", "m.zarr")
    if width < 5:
        assert done.exit_code == 2
        exec(re.search(r"(?:are|vectors): (.*)$", done.output.strip())[1], {"pandas": pd, "dask": dask})
        done = run("fit", "mixture", "numbers.parquet", "-k", 1, "-o", "m.zarr")
    assert done.exit_code == 0, done.output
    assert dca.load_model("m.zarr").n_features_in_ == width


BROKEN = {
    "n.csv": lambda rows: pd.DataFrame(rows, columns=WORDS).to_csv("n.csv", index=False),
    "bare.csv": lambda rows: np.savetxt("bare.csv", rows, delimiter=";"),
    "n.parquet": lambda rows: pd.DataFrame(rows, columns=WORDS).to_parquet("n.parquet"),
    "n.npy": lambda rows: np.save("n.npy", rows),
    "n.zarr": lambda rows: zarr.create_array("n.zarr", data=rows, chunks=(20, 4)),
    "cells.zarr": lambda rows: ad.AnnData(sparse.csr_matrix(rows)).write_zarr("cells.zarr"),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("value", [np.inf, -3.0])
@pytest.mark.parametrize("file", BROKEN)
def test_entries_that_no_model_takes_are_told_the_lines_that_write_another_file(tmp_path, monkeypatch, file, value):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    rows = X.copy()
    rows[50, 1] = value
    BROKEN[file](rows)
    dca.NMF(2).fit(X).save("good.zarr")
    for command in (("fit", "nmf", file, "-k", 2, "-o", "m.zarr"), ("transform", "good.zarr", file, "-o", "out.npy")):
        refused = run(*command)
        assert refused.exit_code == 2
        lines = re.search(r"for example (.*'(numbers\.\w+)'.*)$", refused.output.strip())
        assert lines, refused.output
        exec(lines[1], {"pandas": pd, "dask": dask, "numpy": np, "np": np, "zarr": zarr, "anndata": ad})
        done = run(*(lines[2] if part == file else part for part in command))
        assert done.exit_code == 0, done.output
        shutil.rmtree("numbers.zarr", ignore_errors=True)
