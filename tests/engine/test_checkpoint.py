"""Checkpoints: what was finished is read again, other fits are refused, nothing half-written is taken for whole."""

import json
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from fsspec.implementations.local import LocalFileSystem

from dask_dca.engine import checkpoint as resume
from dask_dca.engine import computing
from dask_dca.engine.checkpoint import open_checkpoint
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.errors import CheckpointError, CheckpointWarning, ClusterError
from dask_dca.reporting.data import data_identity

FACTS = {"model": "NMF", "parameters": {"n_components": 3}, "data": {"rows": 10}}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "kept")


def test_a_finished_pass_is_not_run_again(folder: str) -> None:
    calls: list[int] = []

    def compute() -> np.ndarray:
        calls.append(1)
        return np.arange(3.0)

    for _ in range(2):  # as two processes
        found = open_checkpoint(folder, FACTS).value("gram", (1, "state"), compute)
        np.testing.assert_array_equal(found, np.arange(3.0))
    assert len(calls) == 1
    open_checkpoint(folder, FACTS).value("gram", (2, "state"), compute)
    open_checkpoint(folder, FACTS).value("power", (1, "state"), compute)
    assert len(calls) == 3


def test_none_is_a_value_too(folder: str) -> None:
    kept = open_checkpoint(folder, FACTS)
    assert kept.value("a", 0, lambda: None) is None
    assert kept.value("a", 0, lambda: 1) is None


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({**FACTS, "model": "GaussianMixture"}, "model 'NMF', not 'GaussianMixture'"),
        ({**FACTS, "parameters": {"n_components": 4}}, "parameters {'n_components': 3}, not {'n_components': 4}"),
        ({**FACTS, "data": {"rows": 11}}, "data {'rows': 10}, not {'rows': 11}"),
        ({**FACTS, "version": "9"}, "version None, not '9'"),
    ],
)
def test_the_checkpoint_of_another_fit_is_refused_with_the_reason(folder: str, facts: dict, reason: str) -> None:
    open_checkpoint(folder, FACTS)
    with pytest.raises(CheckpointError, match="is of another fit") as caught:
        open_checkpoint(folder, facts)
    assert reason in str(caught.value)


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(CheckpointError, match="neither empty nor a checkpoint"):
        open_checkpoint(str(tmp_path), FACTS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("head", ["", "[]", "{", '{"format": 1}', "null"])
def test_a_damaged_head_is_refused(folder: str, head: str) -> None:
    open_checkpoint(folder, FACTS)
    Path(folder, "fit.json").write_text(head)
    with pytest.raises(CheckpointError):
        open_checkpoint(folder, FACTS)


@pytest.mark.parametrize("cut", [0, 10, -20])
def test_a_damaged_pass_is_computed_again_with_a_warning(folder: str, cut: int) -> None:
    kept = open_checkpoint(folder, FACTS)
    kept.value("gram", 0, lambda: np.arange(100))
    (path,) = Path(folder).glob("gram-*.npz")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.warns(CheckpointWarning, match="computed again"):
        np.testing.assert_array_equal(kept.value("gram", 0, lambda: np.arange(100)), np.arange(100))
    np.testing.assert_array_equal(kept.value("gram", 0, lambda: 1 / 0), np.arange(100))


def test_a_full_disk_costs_the_checkpoint_not_the_fit(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = open_checkpoint(folder, FACTS)

    def full(path: str, content: bytes) -> None:
        Path(path).write_bytes(content[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept.system, "pipe_file", full)
    with pytest.warns(CheckpointWarning, match="No space left"):
        assert kept.value("gram", 0, lambda: 5) == 5
    assert [path.name for path in Path(folder).iterdir()] == ["fit.json"]


def test_fits_that_write_the_same_file_at_once_do_not_meet(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, values = LocalFileSystem.pipe_file, []

    def while_another_does(self, path: str, content: bytes) -> None:
        monkeypatch.setattr(LocalFileSystem, "pipe_file", real)
        real(self, path, content)
        values.append(open_checkpoint(folder, FACTS).value("gram", 0, lambda: np.arange(5)))

    for _ in range(2):  # while the head is written, and while a pass is
        monkeypatch.setattr(LocalFileSystem, "pipe_file", while_another_does)
        values.append(open_checkpoint(folder, FACTS).value("gram", 0, lambda: np.arange(5)))
        for path in Path(folder).glob("*.npz"):
            path.unlink()
    monkeypatch.setattr(LocalFileSystem, "pipe_file", while_another_does)
    values.append(open_checkpoint(folder, FACTS).value("gram", 0, lambda: np.arange(5)))
    assert [value.tolist() for value in values] == [[0, 1, 2, 3, 4]] * 6
    assert sorted(path.suffix for path in Path(folder).iterdir()) == [".json", ".npz"]


def test_of_two_fits_that_begin_at_once_one_is_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, others = LocalFileSystem.pipe_file, {**FACTS, "model": "GaussianMixture"}

    def while_another_does(self, path: str, content: bytes) -> None:
        monkeypatch.setattr(LocalFileSystem, "pipe_file", real)
        real(self, path, content)
        open_checkpoint(folder, others)

    monkeypatch.setattr(LocalFileSystem, "pipe_file", while_another_does)
    open_checkpoint(folder, FACTS)
    with pytest.raises(CheckpointError, match="of another fit"):
        open_checkpoint(folder, others)


def test_a_fit_whose_head_another_has_replaced_is_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, others = resume._write_beside, {**FACTS, "format": 2, "model": "GaussianMixture"}

    def and_another_does(system, path: str, content: bytes) -> None:
        real(system, path, content)
        real(system, path, json.dumps(others).encode())

    monkeypatch.setattr(resume, "_write_beside", and_another_does)
    with pytest.raises(CheckpointError, match="model 'GaussianMixture', not 'NMF'"):
        open_checkpoint(folder, FACTS)


def test_an_object_store_will_do() -> None:
    place = "memory://checkpoints/one"
    open_checkpoint(place, FACTS).value("gram", 0, lambda: (1, np.arange(2)))
    assert open_checkpoint(place, FACTS).value("gram", 0, lambda: 1 / 0)[0] == 1


def test_a_url_of_no_file_system_is_refused() -> None:
    with pytest.raises(CheckpointError, match="no installed package knows nonsense:"):
        open_checkpoint("nonsense://x", FACTS)


def test_the_same_data_in_any_form_have_one_identity(tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((500, 7))
    X[3, 2] = np.nan
    stored = zarr.create_array(str(tmp_path / "x.zarr"), shape=X.shape, dtype=X.dtype, chunks=(60, 3))
    stored[...] = X
    forms = [X, stored, da.from_array(X, chunks=(37, 7)), da.from_array(X, chunks=(100, 2))]
    found = [data_identity(as_rows(form), Run()) for form in forms]
    assert all(one == found[0] for one in found)
    json.dumps(found[0])
    assert data_identity(as_rows(X + 1e-9), Run()) != found[0]
    assert data_identity(as_rows(X[:-1]), Run()) != found[0]
    assert data_identity(as_rows(X.astype(np.float32)), Run()) != found[0]


def test_a_lost_scheduler_names_the_checkpoint_as_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its protocol: the text is what the next fit is given."""

    class Gone:
        status = "closed"

    def lose(state: None) -> None:
        raise OSError

    monkeypatch.setattr(computing, "active_client", Gone)
    run = Run(checkpoint=open_checkpoint("memory://kept/fit", FACTS))
    with pytest.raises(ClusterError, match=r"lost or restarted in the pass dca-gram.*is kept in 'memory://kept/fit'"):
        computing.compute_with_state(None, lose, None, "gram", run)
