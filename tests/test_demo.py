"""The demo finds every mineral, says so, and draws them."""

import hashlib

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from dask_dca import demo
from dask_dca.cli.main import main


def test_spectra_are_small_real_and_distinct():
    minerals = demo.load_minerals()
    assert minerals.spectra.shape == (len(minerals.names), 224)
    assert minerals.spectra.dtype == np.float32
    assert 0 < minerals.spectra.min() < minerals.spectra.max() < 1.2
    assert (np.diff(minerals.wavelength_um) >= 0).all()
    unit = minerals.spectra / np.linalg.norm(minerals.spectra, axis=1)[:, None]
    assert np.degrees(np.arccos(np.sort((unit @ unit.T).ravel())[-len(unit) - 1])) > 3


def test_nearest_names_a_scaled_spectrum():
    minerals = demo.load_minerals()
    name, angle = minerals.nearest(3 * minerals.spectra[4].astype(float))
    assert name == minerals.names[4]
    assert angle < 0.01


def test_image_is_the_same_each_time():
    first, again = (next(demo.image_rows(demo.load_minerals())) for _ in range(2))
    assert hashlib.sha256(first).digest() == hashlib.sha256(again).digest()
    shares = demo.abundances(9)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert (shares == 1).sum(axis=0).tolist() == [3] * 9


def test_demo_refuses_a_file_for_a_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in ("file", "no/such/folder"):
        result = CliRunner().invoke(main, ["demo", "-o", str(tmp_path / path)])
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.cluster
def test_demo_finds_all_minerals_and_can_run_again(tmp_path):
    for _ in range(2):
        result = CliRunner().invoke(main, ["demo", "-o", str(tmp_path / "demo"), "--workers", "2"])
        assert result.exit_code == 0, result.output
        assert "9 of the 9 minerals were found." in result.stdout
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == ["demo.png", "image.zarr", "model.zarr"]
    assert zarr.open_array(tmp_path / "demo" / "image.zarr", mode="r").shape == (40_000, 224)
