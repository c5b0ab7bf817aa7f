"""Commands on a model of a cube: what its features are along is remembered; and columns have one name everywhere."""

import re
import warnings

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner

import dask_dca as dca
from dask_dca.cli.main import main

RNG = np.random.default_rng(0)
X = np.rint(5 * np.abs(RNG.standard_normal((60, 4)))) + np.repeat([[9.0, 0, 0, 1], [0, 9, 1, 0]], 30, axis=0)
CUBE = X.reshape(6, 10, 4)
TABLE = pd.DataFrame(X, columns=list("abcd"))
pytestmark = pytest.mark.filterwarnings("ignore:.*Zarr V3 specification")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Cubes and tables in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    np.save("cube.npy", CUBE)
    zarr.create_array("named.zarr", data=CUBE, chunks=(2, 10, 4), dimension_names=("y", "x", "band"))
    zarr.create_array("turned.zarr", data=CUBE.transpose(2, 1, 0), chunks=(4, 5, 3), dimension_names=("band", "x", "y"))
    maps = {name: (("y", "x"), CUBE[..., j]) for j, name in enumerate("abcd")}
    xr.Dataset(maps).to_zarr("maps.zarr", consolidated=False)
    TABLE.to_csv("x.csv", index=False)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def test_the_dimension_that_is_asked_for_is_named(folder):
    for data, name in (("cube.npy", "2"), ("named.zarr", "band"), ("turned.zarr", "band")):
        assert f"in a command --features {name};" in run("fit", "nmf", data, "-k", 2, "-o", "model.zarr").output


FILES = {"cube.npy": "2", "named.zarr": "band", "maps.zarr": "variable"}


@pytest.mark.parametrize("data", FILES)
def test_features_need_be_told_once(folder, data):
    features = FILES[data]
    done("fit", "nmf", data, "-k", 2, "--features", features, "-o", "model.zarr")
    assert dca.load_model("model.zarr").feature_dim_in_ == features
    done("transform", "model.zarr", data, "-o", "told.zarr", "--features", features)
    done("transform", "model.zarr", data, "-o", "kept.zarr")
    kept, told = (zarr.open_array(path, mode="r") for path in ("kept.zarr", "told.zarr"))
    assert kept.shape == (6, 10, 2)
    assert kept.metadata.dimension_names == told.metadata.dimension_names
    np.testing.assert_array_equal(kept[:], told[:])
    assert done("score", "model.zarr", data).stdout == done("score", "model.zarr", data, "--features", features).stdout
    done("in-cone", data, "model.zarr", "-o", "inside.zarr")
    assert zarr.open_array("inside.zarr", mode="r").shape == (6, 10, 1)
    assert "60 rows" in done("report", "model.zarr", "--data", data).stdout
    done("transform", "model.zarr", "x.csv", "-o", "rows.npy")
    np.testing.assert_array_equal(np.load("rows.npy"), kept[:].reshape(-1, 2))  # a matrix is one still


def test_a_cube_in_another_order_is_known_by_its_dimensions(folder):
    done("fit", "nmf", "named.zarr", "-k", 2, "--features", "band", "-o", "model.zarr")
    done("transform", "model.zarr", "named.zarr", "-o", "one.zarr")
    done("transform", "model.zarr", "turned.zarr", "-o", "other.zarr")
    found = zarr.open_array("other.zarr", mode="r")
    assert found.metadata.dimension_names == ("x", "y", "component")
    np.testing.assert_array_equal(found[:].swapaxes(0, 1), zarr.open_array("one.zarr", mode="r")[:])


def test_models_of_python_and_of_commands_know_the_same(folder):
    image = xr.DataArray(CUBE, dims=("y", "x", "band"))
    dca.NMF(2).fit(dca.Cube(image, "band")).save("python.zarr")
    done("transform", "python.zarr", "named.zarr", "-o", "maps_of.zarr")
    done("fit", "nmf", "named.zarr", "-k", 2, "--features", "band", "-o", "model.zarr")
    maps = dca.load_model("model.zarr").transform(image)
    assert maps.dims == ("y", "x", "component")
    np.testing.assert_array_equal(zarr.open_array("maps_of.zarr", mode="r")[:], maps.values)
    done("fit", "nmf", "cube.npy", "-k", 2, "--features", -1, "-o", "unnamed.zarr")
    assert dca.load_model("unnamed.zarr").to_xarray().components.dims == ("component", "feature")


@pytest.mark.parametrize("version", [2, 3])
def test_coordinates_of_a_cube_come_with_its_maps(folder, version):
    times, places = (
        np.datetime64("2024-01-01", "ns") + np.arange(6) * np.timedelta64(1, "D"),
        np.arange(60).reshape(6, 10),
    )
    names = np.array([f"x{i}" for i in range(10)], dtype=object)
    along = {"t": times, "x": names, "lon": (("t", "x"), places), "band": list("abcd"), "run": "r3"}
    cube = xr.DataArray(CUBE, dims=("t", "x", "band"), coords=along, name="v")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of zarr, on texts
        cube.to_dataset().to_zarr("scene.zarr", zarr_format=version)
    done("fit", "nmf", "scene.zarr", "--array", "v", "--features", "band", "-k", 2, "-o", "model.zarr")
    done("transform", "model.zarr", "scene.zarr", "--array", "v", "-o", "maps_of.zarr")
    wanted = dca.load_model("model.zarr").transform(cube).drop_vars("anchor")
    xr.testing.assert_equal(xr.open_zarr("maps_of.zarr").transform.load(), wanted)


def test_sequences_of_a_cube_are_sequences_as_in_python(folder):
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(2, size=(4, 5)), 8, axis=1)
    runs = np.eye(2, 3)[states] * 9 + rng.standard_normal((4, 40, 3))
    zarr.create_array("runs.zarr", data=runs, chunks=(2, 40, 3), dimension_names=("run", "time", "channel"))
    turned = runs.transpose(1, 2, 0)
    zarr.create_array("later.zarr", data=turned, chunks=(40, 3, 2), dimension_names=("time", "channel", "run"))
    done("fit", "hmm", "runs.zarr", "-k", 2, "--features", "channel", "-o", "chain.zarr", "--max-iter", 1)
    model = dca.load_model("chain.zarr")
    assert (model.n_sequences_, model.time_dim_in_) == (4, "time")
    named = xr.DataArray(runs, dims=("run", "time", "channel"))
    wanted = dca.GaussianHMM(2, max_iter=1).fit(dca.Cube(named, "channel"))
    np.testing.assert_array_equal(model.means_, wanted.means_)
    assert float(done("score", "chain.zarr", "runs.zarr").stdout) == wanted.score(named)
    assert float(done("score", "chain.zarr", "later.zarr").stdout) == wanted.score(named)
    done("transform", "chain.zarr", "later.zarr", "--what", "predict", "-o", "states.zarr")
    found = zarr.open_array("states.zarr", mode="r")
    assert found.metadata.dimension_names == ("run", "time", "state")
    np.testing.assert_array_equal(found[:, :, 0], wanted.predict(named))


def test_weights_may_have_the_shape_of_the_rows(folder):
    weights = np.abs(RNG.standard_normal((6, 10))) + 0.1
    np.save("w.npy", weights)
    done("fit", "nmf", "named.zarr", "-k", 2, "--features", "band", "--sample-weight", "w.npy", "-o", "model.zarr")
    wanted = dca.NMF(2).fit(X, sample_weight=weights.ravel())
    np.testing.assert_array_equal(dca.load_model("model.zarr").components_, wanted.components_)


def test_arrays_of_times_among_features_are_named(folder):
    maps = {name: (("y", "x"), CUBE[..., j]) for j, name in enumerate("ab")}
    maps["when"] = (
        ("y", "x"),
        np.datetime64("2024-01-01", "ns") + np.arange(60).reshape(6, 10) * np.timedelta64(1, "D"),
    )
    xr.Dataset(maps).to_zarr("times.zarr", consolidated=False)
    refused = run("fit", "nmf", "times.zarr", "-k", 2, "--features", "variable", "-o", "model.zarr")
    assert refused.exit_code == 2
    advice = re.search(r"'when' of .* hold no numbers, but times or texts; pass (--array \S+)", refused.stderr)
    assert advice, refused.stderr
    done("fit", "nmf", "times.zarr", "-k", 2, "--features", "variable", *advice[1].split(), "-o", "model.zarr")
    done("transform", "model.zarr", "times.zarr", "-o", "out.zarr")  # these arrays are remembered too


def test_a_cube_with_a_dimension_of_the_parts_name(folder):
    zarr.create_array("c.zarr", data=CUBE, chunks=(2, 10, 4), dimension_names=("component", "x", "band"))
    done("fit", "nmf", "c.zarr", "-k", 2, "--features", "band", "-o", "model.zarr")
    done("transform", "model.zarr", "c.zarr", "-o", "out.zarr")
    assert zarr.open_array("out.zarr", mode="r").metadata.dimension_names == ("component", "x", "other_component")


NAMES = {  # of columns, by model and method
    ("nmf", "transform"): ["component_0", "component_1"],
    ("nmf", "impute"): list("abcd"),
    ("mixture", "predict_proba"): ["component_0", "component_1"],
    ("mixture", "predict"): ["predict"],
    ("hmm", "filter"): ["state_0", "state_1"],
    ("hmm", "score_samples"): ["state_0", "state_1"],
    ("kalman", "smooth"): ["state_0", "state_1"],
    ("kalman", "predict"): list("abcd"),
    ("lda", "transform"): ["topic_0", "topic_1"],
}


@pytest.mark.parametrize(("kind", "what"), NAMES)
def test_columns_have_one_name_in_files_and_in_tables(folder, kind, what):
    more = {"lda": ("--min-df", 1, "--max-iter", 1), "nmf": ()}.get(kind, ("--max-iter", 1))
    done("fit", kind, "x.csv", "-k", 2, "-o", "model.zarr", *more)
    done("transform", "model.zarr", "x.csv", "--what", what, "-o", "out.csv")
    assert pd.read_csv("out.csv").columns.tolist() == NAMES[kind, what]
    done("transform", "model.zarr", "x.csv", "--what", what, "-o", "out.zarr")
    assert zarr.open_array("out.zarr", mode="r").attrs["names"] == NAMES[kind, what]
    model = dca.load_model("model.zarr")
    if what == "score_samples":
        return
    found = getattr(model, what)(dd.from_pandas(TABLE, npartitions=2))
    found = found[0] if isinstance(found, tuple) else found
    if what != "predict" or kind == "kalman":
        assert found.columns.tolist() == NAMES[kind, what]
    if what == "transform":
        assert model.get_feature_names_out().tolist() == NAMES[kind, what]
        assert model.set_output(transform="pandas").transform(TABLE).columns.tolist() == NAMES[kind, what]


TEXTS = ["dry", "wet", "wet"] * 20
SYMBOLS = np.array([["dry", "wet"].index(text) for text in TEXTS])


@pytest.mark.parametrize("ending", ["npy", "csv", "zarr"])
def test_symbols_may_be_a_vector(folder, ending):
    path = f"symbols.{ending}"
    if ending == "npy":
        np.save(path, SYMBOLS)
    elif ending == "csv":
        pd.DataFrame({"symbol": SYMBOLS}).to_csv(path, index=False)
    else:
        zarr.create_array(path, data=SYMBOLS, chunks=(20,))
    done("fit", "categorical", path, "-k", 2, "-o", "model.zarr")
    wanted = dca.CategoricalHMM(2).fit(SYMBOLS[:, None])
    np.testing.assert_array_equal(dca.load_model("model.zarr").emissionprob_, wanted.emissionprob_)


@pytest.mark.parametrize("ending", ["npy", "csv"])
def test_texts_in_a_file_are_numbered_by_the_line_that_is_told(folder, ending):
    path = f"texts.{ending}"
    np.save(path, np.array(TEXTS)) if ending == "npy" else pd.DataFrame({"s": TEXTS}).to_csv(path, index=False)
    refused = run("fit", "categorical", path, "-k", 2, "-o", "model.zarr")
    advice = re.search(r"number (?:them|the texts): (.*)$", refused.stderr.strip())
    assert advice, refused.stderr
    exec(advice[1], {"numpy": np, "pandas": pd})
    done("fit", "categorical", f"numbers.{ending}", "-k", 2, "-o", "model.zarr")
    wanted = dca.CategoricalHMM(2).fit(SYMBOLS[:, None])
    np.testing.assert_array_equal(dca.load_model("model.zarr").emissionprob_, wanted.emissionprob_)


@pytest.mark.filterwarnings("ignore::dask_dca.errors.MissingEntriesWarning")
def test_parquet_of_nullable_numbers_and_flags(folder):
    lacking = TABLE.astype("Int64").mask(TABLE == 4).assign(flag=TABLE["a"] > 4)
    lacking.to_parquet("x.parquet")
    done("fit", "mixture", "x.parquet", "-k", 2, "--covariance-type", "diag", "--max-iter", 1, "-o", "model.zarr")
    wanted = dca.GaussianMixture(2, "diag", max_iter=1).fit(lacking)
    np.testing.assert_array_equal(dca.load_model("model.zarr").means_, wanted.means_)


def test_parquet_of_texts_is_told_a_line_that_works(folder):
    for name, table, n in (("some", TABLE.assign(k=TEXTS), 4), ("all", pd.DataFrame({"k": TEXTS, "j": TEXTS}), 4)):
        table.to_parquet(f"{name}.parquet")
        refused = run("fit", "mixture", f"{name}.parquet", "-k", 1, "-o", "model.zarr")
        advice = re.search(r": (dask\.dataframe\..*)$", refused.stderr.strip())
        assert advice, refused.stderr
        exec(advice[1], {"dask": dask})
        done("fit", "mixture", "numbers.parquet", "-k", 1, "-o", f"{name}.zarr")
        assert dca.load_model(f"{name}.zarr").n_features_in_ == n


def test_columns_of_generators_are_those_of_the_data(folder):
    done("fit", "nmf", "x.csv", "-k", 2, "-o", "model.zarr")
    TABLE[list("badc")].to_csv("other.csv", index=False)
    for generators in ("model.zarr", "x.csv"):
        refused = run("in-cone", "other.csv", generators, "-o", "inside.csv")
        assert refused.exit_code == 2
        assert f"column 0 is 'b', and {generators} has 'a'" in refused.stderr
        done("in-cone", "x.csv", generators)


def test_reports_of_sequences_take_those_of_a_cube(folder):
    done("fit", "hmm", "named.zarr", "-k", 2, "--features", "band", "-o", "chain.zarr", "--max-iter", 1)
    told = done("report", "chain.zarr", "--data", "named.zarr")  # a warning of lengths would be an error
    assert "60" in told.stdout
