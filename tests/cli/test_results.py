"""What `transform` writes: by the ending of its output, and by the name of a method."""

import numpy as np
import pandas as pd
import pytest
import zarr
from click.testing import CliRunner

import dask_dca as dca
from dask_dca.cli.main import main
from dask_dca.engine.files import FORMATS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data of two clusters that follow each other, and models of them."""
    place = tmp_path_factory.mktemp("results")
    X = np.random.default_rng(0).normal(size=(120, 3)) + np.repeat([[0.0], [9.0]], 60, axis=0)
    zarr.create_array(place / "x.zarr", data=X, chunks=(50, 3))
    dca.GaussianMixture(2, random_state=0).fit(X).save(str(place / "mixture.zarr"))
    dca.GaussianHMM(2, random_state=0, max_iter=1).fit(X).save(str(place / "hmm.zarr"))
    dca.KalmanFilter(1, random_state=0).fit(X).save(str(place / "kalman.zarr"))
    return place


def transform(folder, model, out, *more):
    arguments = [str(folder / f"{model}.zarr"), str(folder / "x.zarr"), "-o", str(out), *more]
    return CliRunner().invoke(main, ["transform", *arguments])


READERS = {
    "npy": np.load,
    "csv": lambda path: pd.read_csv(path).to_numpy(),
    "tsv": lambda path: pd.read_csv(path, sep="\t").to_numpy(),
    "parquet": lambda path: pd.read_parquet(path).to_numpy(),
    "zarr": lambda path: zarr.open_array(path, mode="r")[:],
}


@pytest.mark.parametrize("ending", READERS)
def test_the_ending_of_the_output_is_its_format(folder, tmp_path, ending):
    out = tmp_path / f"out.{ending}"
    done = transform(folder, "mixture", out)
    assert done.exit_code == 0, done.output
    model = dca.load_model(str(folder / "mixture.zarr"))
    X = zarr.open_array(folder / "x.zarr", mode="r")[:]
    np.testing.assert_allclose(READERS[ending](out), model.predict_proba(X), atol=1e-12)
    again = transform(folder, "mixture", out)
    assert again.exit_code == 2
    assert "overwrite" in again.stderr
    assert transform(folder, "mixture", out, "--overwrite").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize("ending", ["csv", "TSV"])
def test_a_table_holds_every_digit(folder, tmp_path, ending):
    out = tmp_path / f"out.{ending}"
    assert transform(folder, "mixture", out, "--what", "score_samples").exit_code == 0
    X = zarr.open_array(folder / "x.zarr", mode="r")[:]
    found = pd.read_csv(out, sep="," if ending == "csv" else "\t", converters={0: float}).to_numpy()
    np.testing.assert_array_equal(found[:, 0], dca.load_model(str(folder / "mixture.zarr")).score_samples(X))


def test_of_a_chain_the_rows_are_written_and_not_its_score(folder, tmp_path):
    assert transform(folder, "hmm", tmp_path / "out.npy", "--what", "score_samples").exit_code == 0
    X = zarr.open_array(folder / "x.zarr", mode="r")[:]
    _, wanted = dca.load_model(str(folder / "hmm.zarr")).score_samples(X)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), wanted, atol=1e-12)


def test_columns_of_a_table_have_names(folder, tmp_path):
    assert transform(folder, "mixture", tmp_path / "out.csv").exit_code == 0
    assert list(pd.read_csv(tmp_path / "out.csv")) == ["component_0", "component_1"]
    assert transform(folder, "mixture", tmp_path / "labels.csv", "--what", "predict").exit_code == 0
    labels = pd.read_csv(tmp_path / "labels.csv")
    assert labels["predict"].dtype == np.int64
    assert labels["predict"].nunique() == 2


def test_an_array_says_what_it_holds(folder, tmp_path):
    assert transform(folder, "kalman", tmp_path / "out.zarr", "--what", "smooth").exit_code == 0
    written = zarr.open_array(tmp_path / "out.zarr", mode="r")
    assert dict(written.attrs) == {"model": "KalmanFilter", "what": "smooth", "names": ["state_0"]}
    means, _ = dca.load_model(str(folder / "kalman.zarr")).smooth(zarr.open_array(folder / "x.zarr", mode="r")[:])
    np.testing.assert_allclose(written[:], means, atol=1e-10)


@pytest.mark.parametrize(
    ("out", "more", "message"),
    [
        *(
            (f"out{end}", (), f"no {end} file is written; end the output")
            for end in (*FORMATS, ".zip")
            if end[1:] not in READERS
        ),
        ("out.csv", ("--what", "smooth"), "has no 'smooth'; --what is one of predict, predict_proba, score_samples"),
        ("nowhere/out.csv", (), "mkdir -p"),
    ],
)
def test_what_can_not_be_written_is_refused_before_anything_is_computed(folder, tmp_path, out, more, message):
    done = transform(folder, "mixture", tmp_path / out, *more)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_file_is_not_replaced_by_an_array_nor_a_folder_by_a_file(folder, tmp_path):
    (tmp_path / "out.zarr").write_text("mine")
    assert transform(folder, "mixture", tmp_path / "out.zarr", "--overwrite").exit_code == 2
    (tmp_path / "out.csv").mkdir()
    assert transform(folder, "mixture", tmp_path / "out.csv", "--overwrite").exit_code == 2
    assert (tmp_path / "out.zarr").read_text() == "mine"
