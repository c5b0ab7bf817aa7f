"""`dask dca info`: in no time, of what was kept beside the model, unless somebody changed it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import dask_dca as dca
from dask_dca.cli.main import main
from dask_dca.models import describe

X = np.random.default_rng(0).dirichlet(np.ones(3), 60) @ np.random.default_rng(1).random((3, 5))
HEAVY = ("numpy", "scipy", "sklearn", "zarr", "dask.array", "pandas", "matplotlib", "distributed")


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = dca.NMF(3).fit(X)
    made.feature_names_in_ = np.array(["a\x1b[2J", "b", "c", "d", "e"], dtype=object)
    made.save("model.zarr")
    return made


def info(*more):
    done = CliRunner().invoke(main, ["info", "model.zarr", *more])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_it_imports_no_library_of_numbers(model):
    program = (
        "import sys; from click.testing import CliRunner; from dask_dca.cli.main import main\n"
        "print(CliRunner().invoke(main, ['info', 'model.zarr', '--json']).output, file=sys.stderr)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    assert json.loads(found.stderr)["n_features"] == 5


def test_it_is_what_the_loaded_model_says(model):
    loaded = dca.load_model("model.zarr")
    assert info() == describe.describe(loaded) + "\n"
    assert json.loads(info("--json")) == json.loads(json.dumps(describe.model_facts(loaded), default=describe.plain))


def change(edit):
    with open("model.zarr/zarr.json") as file:
        head = json.load(file)
    edit(head["attributes"])
    with open("model.zarr/zarr.json", "w") as file:
        json.dump(head, file)


@pytest.mark.parametrize("how", ["record", "version", "none", "rubbish"])
def test_words_of_another_model_are_not_believed(model, how):
    def _edit(attributes):
        words = attributes[describe.DESCRIPTION]
        words["text"] = "Everything is fine"
        if how == "record":
            attributes["dask_dca"]["attributes"]["n_zero_rows_"] = 2
        elif how == "version":
            words["version"] = "0.0.1"
        elif how == "none":
            del attributes[describe.DESCRIPTION]
        else:
            attributes[describe.DESCRIPTION] = [1, 2]

    change(_edit)
    said = info()
    assert "Everything is fine" not in said
    assert said.startswith("NMF: 3 anchors of 5 features")
    assert ("2 rows are all zero" in said) == (how == "record")


def test_control_characters_are_not_printed(model):
    change(lambda attributes: attributes[describe.DESCRIPTION].update(text="clear\x1b[2Jed"))
    assert info() == "clear[2Jed\n"
