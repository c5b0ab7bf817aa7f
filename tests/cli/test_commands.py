"""Commands beyond fit and transform, options from signatures, cubes, configuration, completion."""

import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path

import dask
import numpy as np
import pytest
import xarray as xr
import zarr
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import dask_dca as dca
from dask_dca._registry import MODELS
from dask_dca.cli.commands import fit_arguments, parameters_of
from dask_dca.cli.main import main

rng = np.random.default_rng(0)
X = np.vstack([np.eye(3), rng.dirichlet(np.ones(3), 97)]) @ rng.random((3, 8))
CUBE = X.reshape(10, 10, 8).transpose(2, 0, 1)  # band, y, x
FRAMES = np.cumsum(rng.normal(size=(90, 4)), axis=0)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Saved models."""
    place = tmp_path_factory.mktemp("models")
    made = {
        "nmf": dca.NMF(3).fit(X),
        "mixture": dca.GaussianMixture(2, max_iter=1).fit(X),
        "kalman": dca.KalmanFilter(2).fit(FRAMES),
    }
    for name, model in made.items():
        model.save(str(place / f"{name}.zarr"))
    return place, made


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with data; the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    np.save("X.npy", X)
    np.save("frames.npy", FRAMES)
    zarr.create_array("cube.zarr", data=CUBE, chunks=(4, 3, 10), dimension_names=("band", "y", "x"))
    return tmp_path


def run(*arguments, code=0):
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def test_anchors_are_printed_and_written(place):
    expected = dca.find_anchors(X, 3)
    facts = json.loads(run("find-anchors", "X.npy", "-k", 3, "--json", "-o", "anchors.csv").stdout)
    assert [anchor["row"] for anchor in facts["anchors"]] == expected.indices.tolist()
    np.testing.assert_allclose(np.loadtxt("anchors.csv", delimiter=",", skiprows=1), X[expected.indices])
    said = run("find-anchors", "X.npy", "-k", 3, "--method", "paper").stdout.splitlines()
    assert len(said) >= 4
    assert said[1].split()[1] in map(str, range(100))


def test_rows_in_a_cone_are_counted_and_written(place, models):
    assert run("in-cone", "X.npy", models[0] / "nmf.zarr", "--exact").stdout == "100 of 100 rows lie in the cone\n"
    np.save("rays.npy", X[[0, 1]])
    assert run("in-cone", "X.npy", "rays.npy", "-o", "inside.npy").stdout == "2 of 100 rows lie in the cone\n"
    np.testing.assert_array_equal(np.flatnonzero(np.load("inside.npy")[:, 0]), [0, 1])
    zarr.create_array("rays.zarr", data=X[[0, 1]])
    zarr.create_array("group.zarr", name="rays", data=X[[0, 1]])
    assert run("in-cone", "X.npy", "rays.zarr").stdout == run("in-cone", "X.npy", "group.zarr").stdout
    assert run("in-cone", "X.npy", "rays.zarr").stdout == "2 of 100 rows lie in the cone\n"
    run("in-cone", "cube.zarr", "rays.npy", "--features", "band", "-o", "inside.zarr")
    stored = zarr.open_array("inside.zarr", mode="r")
    assert stored.metadata.dimension_names == ("y", "x", "component")
    assert int(stored[...].sum()) == 2
    assert "KalmanFilter" in run("in-cone", "X.npy", models[0] / "kalman.zarr", code=2).stderr
    assert "has no components" in run("in-cone", "X.npy", models[0] / "kalman.zarr", code=2).stderr


def test_scores_are_those_of_the_method(place, models):
    folder, made = models
    assert float(run("score", folder / "mixture.zarr", "X.npy").stdout) == pytest.approx(made["mixture"].score(X))
    lengths = [40, 50]
    scored = run("score", folder / "kalman.zarr", "frames.npy", "--lengths", "40,50").stdout
    assert float(scored) == pytest.approx(made["kalman"].score(FRAMES, lengths=lengths))
    if not hasattr(dca.SubspaceClustering, "score"):
        dca.SubspaceClustering(1).fit(X).save("clusters.zarr")
        said = run("score", "clusters.zarr", "X.npy", code=2).stderr
        assert "has no score; models that have one: " in said
        assert "GaussianMixture" in said


def test_forecasts_are_those_of_the_method(place, models):
    folder, made = models
    assert run("forecast", folder / "kalman.zarr", "frames.npy", "-n", 5, "-o", "next.csv").exit_code == 0
    written = np.loadtxt("next.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(written, made["kalman"].forecast(FRAMES, 5)[0])
    assert "has no forecast" in run("forecast", folder / "nmf.zarr", "X.npy", "-o", "no.csv", code=2).stderr


def test_cubes_are_fitted_and_come_back_as_maps(place):
    run("fit", "nmf", "cube.zarr", "--features", "band", "-k", 3, "-o", "model.zarr")
    model = dca.load_model("model.zarr")
    np.testing.assert_array_equal(model.components_, dca.NMF(3).fit(X).components_)
    said = run("transform", "model.zarr", "cube.zarr", "--features", 0, "-o", "maps.zarr").stdout
    assert said == "10 x 10 rows of 3 numbers written to maps.zarr\n"
    maps = zarr.open_array("maps.zarr", mode="r")
    assert maps.metadata.dimension_names == ("y", "x", "component")
    np.testing.assert_allclose(maps[...].reshape(100, 3), model.transform(X), atol=1e-12)
    run("transform", "model.zarr", "cube.zarr", "--features", "band", "-o", "rows.csv")
    assert np.loadtxt("rows.csv", delimiter=",", skiprows=1).shape == (100, 3)
    said = run("fit", "nmf", "cube.zarr", "--features", "wavelength", "-o", "no.zarr", code=2).stderr
    assert "has the dimensions band, y, x" in said


def test_xarrays_coordinate_names_the_features(place):
    bands = [400.0, 410.0, 420.0, 430.0, 440.0, 450.0, 460.0, 470.0]
    cube = xr.DataArray(CUBE, dims=("band", "y", "x"), coords={"band": bands}, name="reflectance")
    cube.to_dataset().to_zarr("set.zarr", consolidated=False)
    run("fit", "nmf", "set.zarr", "--features", "band", "-k", 3, "-o", "model.zarr")
    assert dca.load_model("model.zarr").feature_names_in_.tolist() == [str(band) for band in bands]
    assert "100 rows" in run("report", "model.zarr", "--data", "set.zarr", "--features", "band").stdout
    assert "100 rows" in run("report", "model.zarr", "--data", "set.zarr").stdout  # the model remembers
    said = run("fit", "nmf", "set.zarr", "-k", 3, "-o", "other.zarr", code=2).stderr
    assert "of a cube say which dimension the features are, by --features NAME" in said


def test_features_along_several_dimensions(place):
    movie = np.abs(rng.normal(size=(20, 3, 4)))
    zarr.create_array("movie.zarr", data=movie, chunks=(7, 2, 4), dimension_names=("time", "lat", "lon"))
    run("fit", "nmf", "movie.zarr", "--features", "lat,lon", "-k", 2, "-o", "model.zarr")
    model = dca.NMF(2).fit(movie.reshape(20, 12))
    np.testing.assert_array_equal(dca.load_model("model.zarr").components_, model.components_)
    run("transform", "model.zarr", "movie.zarr", "--features", "lat,lon", "-o", "parts.zarr")
    assert zarr.open_array("parts.zarr", mode="r").metadata.dimension_names == ("time", "component")
    for wrong in ("lat,lat", "time,lat,lon"):
        assert (
            "must leave a dimension" in run("fit", "nmf", "movie.zarr", "--features", wrong, "-o", "n.z", code=2).stderr
        )


def test_arrays_of_a_group_are_features(place):
    coords = {"x": np.arange(7) * 5, "lat": (("y", "x"), np.zeros((9, 7)))}
    data = xr.Dataset({name: (("y", "x"), rng.normal(size=(9, 7))) for name in ("wind", "heat")}, coords)
    data.to_zarr("set.zarr", consolidated=False)
    run("fit", "mixture", "set.zarr", "--features", "variable", "--array", "heat,wind", "-k", 2, "-o", "model.zarr")
    model = dca.load_model("model.zarr")
    assert model.feature_names_in_.tolist() == ["heat", "wind"]
    same = dca.GaussianMixture(2).fit(dca.Cube(data[["heat", "wind"]]))
    np.testing.assert_array_equal(model.means_, same.means_)
    run("fit", "mixture", "set.zarr", "--features", "variable", "--array", "heat", "-k", 2, "-o", "one.zarr")
    assert dca.load_model("one.zarr").feature_names_in_.tolist() == ["heat"]
    said = run("fit", "mixture", "set.zarr", "--features", "x", "-o", "no.zarr", code=2).stderr
    assert "choose one array of 'set.zarr' by --array PATH" in said
    data["rain"] = ("y", np.zeros(9))
    data["flat"] = (("x", "y"), np.zeros((7, 9)))
    data.to_zarr("more.zarr", consolidated=False)
    said = run("fit", "mixture", "more.zarr", "--features", "variable", "-o", "no.zarr", code=2).stderr
    assert "differ in their dimensions: flat {'x': 7, 'y': 9} and heat {'y': 9, 'x': 7}; choose some" in said


def test_packed_cubes_are_decoded(place):
    packed = np.rint(CUBE / 0.01).astype(np.int16)
    packed[2, 3, 4] = -1
    store = zarr.create_array("packed.zarr", data=packed, chunks=(4, 3, 10), dimension_names=("band", "y", "x"))
    store.attrs.update({"scale_factor": 0.01, "_FillValue": -1})
    run("fit", "nmf", "packed.zarr", "--features", "band", "-k", 3, "-o", "model.zarr")
    meant = np.where(packed == -1, np.nan, packed * 0.01)
    expected = dca.NMF(3).fit(np.moveaxis(meant, 0, -1).reshape(100, 8))
    np.testing.assert_allclose(dca.load_model("model.zarr").components_, expected.components_, rtol=1e-6)


def test_arrays_say_what_they_hold(place, models):
    run(
        "transform", models[0] / "kalman.zarr", "frames.npy", "-o", "out.zarr", "--what", "filter", "--lengths", "40,50"
    )
    held = zarr.open_array("out.zarr", mode="r").attrs.asdict()
    assert held == {"model": "KalmanFilter", "what": "filter", "names": ["state_0", "state_1"], "lengths": [40, 50]}


@pytest.mark.parametrize("kind", MODELS)
def test_options_are_the_parameters_of_the_class(kind):
    made, command = getattr(dca, kind), MODELS[kind].room
    signature = {name: one.default for name, one in inspect.signature(made).parameters.items()}
    found = parameters_of(kind)
    assert {name: one.default for name, one in found.items()} == signature
    assert all(one.meaning.endswith((".", ":")) and one.kind for one in found.values())
    taken = inspect.signature(made.fit).parameters.values()
    assert set(fit_arguments(kind)) == {one.name for one in taken if one.kind is one.KEYWORD_ONLY}
    shown = run("fit", command, "--help").stdout
    assert f"dask dca fit {command}" in shown.partition("Examples:")[2]
    made = {name for name in dir(made()) if name in shown.replace("-", "_")}
    assert {"retries", "checkpoint"} <= made
    assert ("--lengths" in shown) == ("lengths" in fit_arguments(kind))


def test_options_reach_the_model(place):
    options = [
        "--basis",
        "free",
        "--beta-loss",
        "kullback-leibler",
        "--alpha-w",
        0.5,
        "--alpha-h",
        "same",
        "--max-iter",
        2,
    ]
    run("fit", "nmf", "X.npy", "-k", 3, "-o", "model.zarr", "--known", "0,1", *options)
    given = dca.load_model("model.zarr").get_params()
    expected = {"beta_loss": "kullback-leibler", "alpha_W": 0.5, "alpha_H": "same", "known": [0, 1], "max_iter": 2}
    assert {name: given[name] for name in expected} == expected
    run("fit", "hmm", "frames.npy", "-k", 2, "-o", "chain.zarr", "--covariance-type", "auto", "--min-covar", 0.01)
    assert dca.load_model("chain.zarr").get_params()["min_covar"] == 0.01


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["fit", "mixtrue"], "did you mean 'mixture'?"),
        (["fit", "GaussianMixture"], "did you mean 'mixture'?"),
        (["fit", "gmm"], "did you mean 'mixture'?"),
        (["trasform"], "did you mean 'transform'?"),
        (["fit", "nmf", "X.npy", "--max-itre", "3"], "--max-iter"),
        (["fit", "nmf", "X.npy", "--basis", "ray"], "'rows', 'rays', 'free', 'auto'"),
        (["fit", "nmf", "X.npy", "--max-iter", "many"], "must be a whole number; received 'many'"),
        (["fit", "nmf", "X.npy", "--missing", "none"], "must be a number or implicit; received 'none'"),
    ],
)
def test_what_is_not_known_is_answered(place, arguments, answer):
    said = run(*arguments, code=2).stderr
    assert answer in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("path", [[], ["fit"], *[[name] for name in main.commands if name != "fit"]])
def test_every_help_has_an_example(path):
    shown = run(*path, "--help").stdout
    assert path in ([], ["fit"]) or f"dask dca {path[0]}" in shown.partition("Examples:")[2]


@pytest.mark.parametrize("path", [[], ["fit"]])
def test_lists_of_commands_say_whole_sentences(path):
    listed = run(*path, "--help").stdout.partition("Commands:\n")[2].splitlines()
    assert len(listed) >= 8
    for line in listed:
        assert line.endswith(".")
        assert not line.endswith("...")
        assert len(line) < 80


def test_the_package_runs_as_a_module():
    found = subprocess.run([sys.executable, "-m", "dask_dca", "--help"], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("Usage: python -m dask_dca [OPTIONS]")
    found = subprocess.run([sys.executable, "-m", "dask_dca", "info", "none"], capture_output=True, text=True)
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)


def test_defaults_come_from_dasks_configuration(place):
    settings = {"fit": {"nmf": {"k": 3, "basis": "free", "max-iter": 4, "seed": 7}}, "overwrite": True}
    with dask.config.set({"dask-dca": settings}):
        run("fit", "nmf", "X.npy", "-o", "model.zarr")
        run("fit", "nmf", "X.npy", "-o", "model.zarr", "--seed", 8)
        given = dca.load_model("model.zarr").get_params()
        assert (given["n_components"], given["max_iter"], given["random_state"]) == (3, 4, 8)
    with dask.config.set({"dask-dca": {"fit": {"nmf": {"basiss": "rays"}}}}):
        said = run("fit", "nmf", "X.npy", "-o", "other.zarr", code=2).stderr
        assert "dask-dca.fit.nmf has 'basiss', which is no option; did you mean 'basis'?" in said


def test_words_options_and_files_are_completed(place):
    complete = ShellComplete(main, {}, "dask-dca", "_DASK_DCA_COMPLETE")

    def _words(*before, typed=""):
        return {item.value for item in complete.get_completions(list(before), typed)}

    assert "mixture" in _words("fit", typed="m")
    assert _words("fit", "nmf", "--basis") == {"rows", "rays", "free", "auto"}
    assert "--beta-loss" in _words("fit", "nmf", typed="--b")
    assert {item.type for item in complete.get_completions(["fit", "nmf"], "X")} == {"file"}
    assert _words("fit", "mixture", "--reg-covar") == {"auto"}


def test_help_and_completion_import_no_numbers():
    program = (
        "import sys; from click.testing import CliRunner; from dask_dca.cli.main import main\n"
        "assert 'rays' in CliRunner().invoke(main, ['fit', 'nmf', '--help']).output\n"
        "print([name for name in ('numpy', 'scipy', 'sklearn', 'zarr', 'pandas') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_reference_has_every_command():
    place = Path(__file__).parents[2] / "docs" / "_extensions" / "commands.py"
    found = importlib.util.spec_from_file_location("commands_of_docs", place)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    written = module.reference()
    named = [*main.commands, *(f"fit {model.room}" for model in MODELS.values()), "fit library"]
    assert written.count("\n## ") + 1 == len(set(named) - {"fit"})
    for name in set(named) - {"fit"}:
        assert f"## dask dca {name}\n" in written
    assert "[rows|rays|free|auto]" in written
    assert module.MARK in (place.parents[1] / "commands.md").read_text()
