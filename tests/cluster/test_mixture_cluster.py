"""Mixtures on worker processes: the same bits for any number of workers, and for workers that die."""

import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.models.mixture import sample as mixture_sample
from tests.cluster.workers import MARKS, faulty, scaled
from tests.models.mixture.data import mixture_bits, planted_mixture

pytestmark = MARKS

X = planted_mixture(2000, 18, 5, 4.0, dtype=np.float32)[0]
MODEL = dca.GaussianMixture(5, max_iter=1, tol=0.0)


@pytest.fixture(scope="module", autouse=True)
def sampled():
    """A sample smaller than the data, as large data have it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixture_sample, "_SAMPLE_ROWS", 500)
        yield


@pytest.fixture(scope="module")
def whole(sampled):
    return mixture_bits(MODEL.fit(X))


def test_one_two_and_four_workers_give_the_same_bits(cluster, client, whole):
    chunked = da.from_array(X, chunks=(450, 11))
    for _ in scaled(cluster, client, 1, 4, 2):
        assert mixture_bits(MODEL.fit(chunked)) == whole


@pytest.mark.parametrize("name", ["refine"])  # which divides, too
def test_a_worker_killed_in_a_pass_changes_no_bit(client, whole, tmp_path, name):
    marker = tmp_path / "killed"
    assert mixture_bits(MODEL.fit(faulty(X, f"dca-{name}", marker, chunk=500))) == whole
    assert marker.exists()  # a worker did die


def test_predictions_on_workers_are_those_of_the_driver(client):
    model = dca.GaussianMixture(5).fit(X)
    chunked = da.from_array(X, chunks=(450, 11))
    assert model.predict_proba(chunked).compute().tobytes() == model.predict_proba(X).tobytes()
    assert model.score(chunked) == model.score(X)
