"""Subspace clustering on worker processes: the same bits for any number of workers, and for workers that die."""

from unittest.mock import patch

import dask.array as da
import numpy as np
import pytest
import zarr

import dask_dca as dca
from dask_dca.models.subspace import fit as subspace_fit
from tests.cluster.workers import MARKS, faulty, scaled
from tests.models.subspace.test_subspace import bits, cones

PAPER = {"method": "paper", "n_subproblems": 60}
MODELS = {"subspaces": {}, "codes": {"max_iter": 0}, "paper": PAPER}
pytestmark = MARKS
X = cones(60, 0.2, 0, common=True, n=300, p=40, rays=5, dtype=np.float32)[0]


@pytest.fixture(autouse=True)
def small_sample():
    with patch.object(subspace_fit, "_SAMPLE", 512):
        yield


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_one_two_and_four_workers_give_the_same_bits(cluster, client, options):
    whole = dca.SubspaceClustering(4, **options).fit(X)
    chunked = da.from_array(X, chunks=(450, 17))
    for _ in scaled(cluster, client, 1, 4, 2):
        model = dca.SubspaceClustering(4, **options).fit(chunked)
        assert bits(model) == bits(whole)
        np.testing.assert_array_equal(model.predict(chunked).compute(), whole.labels_)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sample", {}),
        ("divide", {}),
        ("divide", {"max_iter": 0}),
        ("angles", PAPER),
        ("divide", PAPER),
    ],
)
def test_a_worker_killed_in_a_pass_changes_no_bit(client, tmp_path, name, options):
    whole = bits(dca.SubspaceClustering(4, **options).fit(X))
    marker = tmp_path / "killed"
    assert bits(dca.SubspaceClustering(4, **options).fit(faulty(X, f"dca-{name}", marker))) == whole
    assert marker.exists()


def test_a_worker_killed_in_predict_changes_no_label(client, tmp_path):
    model = dca.SubspaceClustering(4).fit(X)
    labels = model.predict(faulty(X, "", tmp_path / "killed")).compute()
    np.testing.assert_array_equal(labels, model.labels_)
    assert (tmp_path / "killed").exists()


def test_a_stored_array_is_read_by_the_workers_in_few_passes(cluster, client, tmp_path):
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(200, 40))
    assert bits(dca.SubspaceClustering(4).fit(stored)) == bits(dca.SubspaceClustering(4).fit(X))
    names = set(cluster.scheduler.task_prefixes)
    assert {"dca-sketch", "dca-place", "dca-divide"} <= names
