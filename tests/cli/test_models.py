"""Every model from the command line: fit, info, transform, and the same from Python."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import zarr
from click.testing import CliRunner
from scipy import sparse

import dask_dca as dca
from dask_dca.cli.main import main

rng = np.random.default_rng(0)
CENTRES = 4 * rng.standard_normal((3, 12))
STATES = np.repeat(rng.integers(3, size=60), 10)
CLOUDS = CENTRES[STATES] + rng.standard_normal((600, 12))
TOPICS = rng.dirichlet(np.full(40, 0.1), 3)
COUNTS = np.array([rng.multinomial(60, rng.dirichlet(np.full(3, 0.2)) @ TOPICS) for _ in range(300)]).astype(float)
RAYS = rng.random((3, 4, 20))
CONES = np.vstack([rng.dirichlet(np.ones(4), 100) @ rays for rays in RAYS])
CASES = {
    "nmf": (COUNTS, dca.NMF, [], 3),
    "mixture": (CLOUDS, dca.GaussianMixture, ["--covariance-type", "spherical", "--max-iter", 2], 3),
    "hmm": (CLOUDS, dca.GaussianHMM, ["--lengths", "250,350"], 1),
    "kalman": (CLOUDS, dca.KalmanFilter, ["--lengths", "250,350"], 12),
    "lda": (COUNTS, dca.LatentDirichletAllocation, ["--min-df", 2], 3),
    "subspace": (CONES, dca.SubspaceClustering, [], 1),
}


def run(*arguments: object) -> str:
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("name", ["hmm", "kalman"])
def test_lengths_are_those_of_the_fit(name: str, tmp_path, monkeypatch) -> None:
    X, kind, _, _ = CASES[name]
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    np.save("lengths.npy", [250, 350])
    run("fit", name, "X.npy", "-k", 3, "-o", "model.zarr", "--lengths", "lengths.npy")
    attribute = "transmat_" if name == "hmm" else "transition_matrices_"
    found = getattr(dca.load_model("model.zarr"), attribute)
    np.testing.assert_array_equal(found, getattr(kind(3).fit(X, lengths=[250, 350]), attribute))
    assert (found != getattr(kind(3).fit(X), attribute)).any()


SHORT = np.repeat(rng.integers(2, size=120), 5)  # 120 sequences of 5 frames, each of one state
SEQUENCES = np.array([[0.0, 0.0], [2.0, 2.0]])[SHORT] + rng.standard_normal((600, 2))


@pytest.mark.parametrize("name", ["hmm", "kalman"])
def test_sequences_are_never_glued_without_a_word(name: str, tmp_path, monkeypatch) -> None:
    kind, k = {"hmm": (dca.GaussianHMM, 2), "kalman": (dca.KalmanFilter, 1)}[name]
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", SEQUENCES)
    np.save("lengths.npy", [5] * 120)
    described = run("fit", name, "X.npy", "-k", k, "-o", "model.zarr", "--lengths", "lengths.npy")
    assert "Fitted to 120 sequences" in described
    assert json.loads(run("info", "model.zarr", "--json"))["n_sequences"] == 120
    run("transform", "model.zarr", "X.npy", "-o", "apart.zarr", "--lengths", "lengths.npy")
    expected = np.asarray(kind(k).fit(SEQUENCES, lengths=[5] * 120).predict(SEQUENCES, lengths=[5] * 120)).reshape(
        600, -1
    )
    np.testing.assert_array_equal(zarr.open_array("apart.zarr")[...], expected)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        glued = CliRunner().invoke(main, ["transform", "model.zarr", "X.npy", "-o", "glued.zarr"])
        page = CliRunner().invoke(main, ["report", "model.zarr", "-o", "glued.html", "--data", "X.npy"])
    assert (zarr.open_array("glued.zarr")[...] != expected).any()
    for done in (glued, page):
        assert done.exit_code == 0
        assert done.stderr.splitlines() == [
            (
                "Warning: the model was fitted to 120 sequences, and X is taken for one of 600 frames; pass "
                "lengths=[...] (--lengths), the frames of each, or lengths=[600] if it is one"
            )
        ]
    run("report", "model.zarr", "-o", "apart.html", "--data", "X.npy", "--lengths", "lengths.npy")
    assert "read as 120 sequences" in Path("apart.html").read_text()
    assert "read as one sequence" in Path("glued.html").read_text()


@pytest.mark.parametrize("command", [["transform", "m.zarr", "X.npy"], ["report", "m.zarr", "--data", "X.npy"]])
@pytest.mark.parametrize("name", ["nmf", "hmm"])
def test_lengths_that_fit_neither_model_nor_data(name: str, command: list[str], tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", np.abs(SEQUENCES))
    run("fit", name, "X.npy", "-k", 2, "-o", "m.zarr")
    done = CliRunner().invoke(
        main, [*command, "-o", f"out.{'html' if command[0] == 'report' else 'zarr'}", "--lengths", "300,299"]
    )
    assert done.exit_code == 2
    told = "NMF takes single rows; leave --lengths out" if name == "nmf" else "add up to 599 frames, but X has 600 rows"
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["X.npy", "m.zarr"]


def test_options_of_hidden_markov_models_are_those_of_the_fit(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", CLOUDS)
    run("fit", "hmm", "X.npy", "-k", 3, "-o", "m.zarr", "--tol", 0.5, "--recursion", "scan")
    model = dca.load_model("m.zarr")
    assert (model.tol, model.recursion) == (0.5, "scan")


def test_the_tolerance_is_the_models_own_unless_given(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", CLOUDS)
    for name, kind in (("mixture", dca.GaussianMixture), ("hmm", dca.GaussianHMM)):
        run("fit", name, "X.npy", "-k", 3, "-o", f"{name}.zarr")
        assert dca.load_model(f"{name}.zarr").tol == kind().tol


def test_views_are_those_of_the_fit(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", CLOUDS)
    run("fit", "mixture", "X.npy", "-k", 3, "-o", "model.zarr", "--method", "paper", "--views", "0:3,3:8,8:12")
    model = dca.load_model("model.zarr")
    views = [slice(0, 3), slice(3, 8), slice(8, 12)]
    direct = dca.GaussianMixture(3, views=views, method="paper", random_state=model.random_state).fit(CLOUDS)
    assert model.views == [list(range(3)), list(range(3, 8)), list(range(8, 12))]
    np.testing.assert_array_equal(model.means_, direct.means_)


def test_documents_are_converted_and_fitted(tmp_path, monkeypatch) -> None:
    from scipy.io import mmwrite

    monkeypatch.chdir(tmp_path)
    mmwrite("docs.mtx", sparse.coo_array(COUNTS.astype(int)))
    (tmp_path / "words.txt").write_text("\n".join(f"word{i}" for i in range(40)))
    assert "300 documents of 40 words" in run("convert", "docs.mtx", "-o", "docs.zarr", "--vocabulary", "words.txt")
    assert "word" in run("fit", "lda", "docs.zarr", "-k", 3, "-o", "model.zarr")
    model = dca.load_model("model.zarr")
    direct = dca.LatentDirichletAllocation(3).fit(sparse.csr_array(COUNTS))
    np.testing.assert_array_equal(model.components_, direct.components_)


def test_the_sample_of_documents_is_that_of_the_fit(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", COUNTS)
    assert dca.LatentDirichletAllocation().subsample == 50_000  # as the command says
    found = {}
    for few in (100, 300):
        run("fit", "lda", "X.npy", "-k", 3, "-o", f"{few}.zarr", "--subsample", few)
        found[few] = dca.load_model(f"{few}.zarr")
        direct = dca.LatentDirichletAllocation(3, subsample=few).fit(COUNTS)
        assert found[few].subsample == few
        np.testing.assert_array_equal(found[few].components_, direct.components_)
    assert found[100].n_passes_ == 2 < found[300].n_passes_


@pytest.mark.parametrize(
    "arguments",
    [
        ("hmm", "--lengths", "3,x"),
        ("hmm", "--lengths", "missing.npy"),
        ("hmm", "--recursion", "sideways"),
        ("hmm", "--n-starts", "0"),
        ("mixture", "--tol", "-1"),
        ("lda", "--subsample", "0"),
        ("mixture", "--views", "0:3,3:6"),
        ("mixture", "--covariance-type", "round"),
        ("subspace", "--damping", "loud"),
        ("unknown",),
    ],
)
def test_unusable_options_are_one_line(arguments: tuple[str, ...], tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", CLOUDS)
    done = CliRunner().invoke(main, ["fit", arguments[0], "X.npy", "-o", "m.zarr", *arguments[1:]])
    assert done.exit_code == 2
    assert not (tmp_path / "m.zarr").exists()


@pytest.mark.parametrize("arguments", [("fit", "gmm"), ("predict",)])
def test_an_unknown_command_names_those_that_there_are(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == 2
    assert f"No such command '{arguments[-1]}'; " in done.stderr
    assert "commands: " in done.stderr
    assert ("did you mean" if arguments[0] == "fit" else "use transform --what predict; ") in done.stderr


@pytest.mark.filterwarnings("default::dask_dca.errors.MissingEntriesWarning")
@pytest.mark.parametrize("name", ["numbers.csv", "rows.csv"])
def test_lines_of_warnings_are_for_the_file_and_write_another(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).standard_normal((60, 3))
    text = "\n".join(",".join(f"{value:.3f}" for value in row) for row in rows)
    Path(name).write_text(f"a,b,c\n{text}\n,1,2\n")
    done = CliRunner().invoke(main, ["fit", "mixture", name, "-k", "1", "-o", "model.zarr"])
    assert done.exit_code == 0, done.stderr
    line = next(line for line in done.stderr.splitlines() if "leave them out" in line).partition("leave them out: ")[2]
    before, other = Path(name).read_text(), "mended.csv" if name == "numbers.csv" else "numbers.csv"
    exec(line, {"pandas": pd, "np": np})
    assert Path(name).read_text() == before
    assert len(pd.read_csv(other)) == 60


def test_the_short_form_of_help_works_everywhere() -> None:
    assert CliRunner().invoke(main, ["transform", "-h"]).exit_code == 0
