"""How often a fit reads all rows: counted by hand from each model's recipe."""

from pathlib import Path

import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.models.describe import describe, model_facts
from dask_dca.store import load_model
from tests.contract.entries import ENTRIES, example

N = 24_000  # more rows than the samples; 6,000 and 3,000 are more than those that are made small
rng = np.random.default_rng(0)
CLOUDS = 4 * rng.standard_normal((3, 6))[np.repeat(rng.integers(3, size=N // 10), 10)] + rng.standard_normal((N, 6))
CONES = np.vstack([rng.dirichlet(np.ones(3), N // 2) @ rays for rays in rng.standard_normal((2, 3, 6))])
COUNTED = {
    "NMF": (dca.NMF(3), np.abs(CONES), 1),  # divide; the subspace comes from a sample
    "GaussianMixture": (
        dca.GaussianMixture(3, max_iter=2, tol=0.0),
        CLOUDS[:6000],
        2,
    ),  # EM; one divides, too
    "GaussianHMM": (dca.GaussianHMM(3, max_iter=2, tol=0.0), CLOUDS[:6000], 2 + 1),  # Baum-Welch, a last look
    "KalmanFilter": (dca.KalmanFilter(2, max_iter=1), CLOUDS[:6000], 1 + 1),  # EM, a last look
    "SubspaceClustering": (dca.SubspaceClustering(2, subspace_dim=3), CONES[::8], 1),  # divide
}
ALL_SAMPLED = {  # so few rows that samples are all of them
    "NMF": 3,  # the sample, its Gram matrix, divide
    "GaussianMixture": 1 + 1 + 1,  # the sample, EM, a last look
    "GaussianHMM": 1,  # brought to the driver once
    "CategoricalHMM": 1 + 1 + 2 + 1,  # symbols and their pairs, the sample, EM, a last look
    "KalmanFilter": 1 + 1 + 1,  # the sample, EM, a last look
    "LatentDirichletAllocation": 1 + 5 + 1 + 2,  # census, products of the Krylov space, how words burst, EM
    "SubspaceClustering": 2,
}


@pytest.mark.parametrize("name", COUNTED)
def test_passes_over_more_rows_than_the_sample(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, X, expected = COUNTED[name]
    if (sample := ENTRIES[name].sample) is not None:
        monkeypatch.setattr(f"dask_dca.models.{sample[0]}", sample[1])
    assert model.fit(X).n_passes_ == expected
    assert type(model).__doc__ is not None
    assert "n_passes_" in type(model).__doc__


@pytest.mark.parametrize("name", ENTRIES)
def test_any_form_counts_alike(name: str) -> None:
    """A resumed fit, too: tests/contract/test_checkpoints.py."""
    X = example(name)
    for given in (X, da.from_array(X, chunks=(40, -1))):
        n_passes = ENTRIES[name].make().fit(given).n_passes_
        assert type(n_passes) is int
        assert n_passes == ALL_SAMPLED[name]


def test_the_count_is_told_saved_and_loaded(tmp_path: Path) -> None:
    X = np.abs(CONES)
    once = dca.NMF(3).fit(X)
    assert model_facts(once)["n_passes"] == 1
    assert "The fit read all rows once" in describe(once)
    often = dca.NMF(3).fit(da.from_array(X[:500], chunks=(100, -1)))
    assert "The fit read all rows 3 times" in describe(often)
    often.save(str(tmp_path / "model.zarr"))
    assert load_model(tmp_path / "model.zarr").n_passes_ == 3
