"""Topics on worker processes: the same bits for any number of workers, and for workers that die."""

import importlib
import os
import pickle
import signal

import distributed
import numpy as np
import pytest
import zarr
from scipy import sparse

import dask_dca as dca
from tests.cluster.workers import MARKS, Faulty, scaled
from tests.conftest import bits
from tests.engine.test_sparse_rows import write
from tests.models.lda.data import LDA_FITTED, planted_documents

pytestmark = MARKS
X, _ = planted_documents(600)


@pytest.fixture(scope="module")
def whole():
    return bits(dca.LatentDirichletAllocation(5, max_iter=2).fit(X), LDA_FITTED)


@pytest.fixture(scope="module")
def of_sample():
    return bits(dca.LatentDirichletAllocation(5, max_iter=2, subsample=200).fit(X), LDA_FITTED)


def sparse_blocks(matrix, name, marker):
    """Sparse blocks of 60 documents; a worker dies as it reads one in a task of that name."""
    import dask.array as da

    blocks = da.from_array(Faulty(matrix.toarray(), name, marker), chunks=(60, -1), name=False, meta=np.zeros((0, 0)))
    return blocks.map_blocks(sparse.csr_array, dtype=float, meta=sparse.csr_array((0, 0)))


def test_one_two_and_four_workers_give_the_same_bits(cluster, client, whole, of_sample, tmp_path):
    """user-reports 62: LdaMulticore differs with every number of workers."""
    group = write(zarr.open_group(tmp_path / "x.zarr", mode="w"), X, 4000)
    for _ in scaled(cluster, client, 1, 4, 2):
        assert bits(dca.LatentDirichletAllocation(5, max_iter=2).fit(group), LDA_FITTED) == whole
        assert bits(dca.LatentDirichletAllocation(5, max_iter=2, subsample=200).fit(group), LDA_FITTED) == of_sample


@pytest.mark.parametrize(
    ("name", "subsample"), [("census", None), ("cooccur", None), ("refine", None), ("census", 200), ("refine", 200)]
)
def test_a_worker_killed_in_a_pass_changes_no_bit(client, whole, of_sample, tmp_path, name, subsample):
    model, marker = dca.LatentDirichletAllocation(5, max_iter=2, subsample=subsample), tmp_path / "killed"
    expected = whole if subsample is None else of_sample
    assert bits(model.fit(sparse_blocks(X, f"dca-{name}", marker)), LDA_FITTED) == expected
    assert marker.exists()  # a worker did die


def let_die(module, function, marker):
    """Let the first worker that calls a function in a task die."""
    home = importlib.import_module(module)
    real = getattr(home, function)

    def deadly(*args, **kwargs):
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            setattr(home, function, real)
            return real(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    setattr(home, function, deadly)


@pytest.mark.parametrize(
    "place",
    [
        "passes extremes",
        "passes simplex_descent",
        "corpus cooccurrence_sums",
        "passes expected_counts",
    ],
)
def test_a_worker_killed_over_words_or_with_its_part_of_the_sample_changes_no_bit(client, of_sample, tmp_path, place):
    module, function = place.split()
    client.wait_for_workers(2)
    client.run(let_die, f"dask_dca.models.lda.{module}", function, str(tmp_path / "killed"))
    model = dca.LatentDirichletAllocation(5, max_iter=2, subsample=200)
    assert bits(model.fit(sparse_blocks(X, "none", None)), LDA_FITTED) == of_sample
    assert (tmp_path / "killed").exists()


def test_nothing_of_the_size_of_documents_reaches_the_driver(client, monkeypatch, tmp_path):
    many, _ = planted_documents(4000, 100, 4, 80)
    group = write(zarr.open_group(tmp_path / "x.zarr", mode="w"), many, 20_000)
    fetched, gather = [], distributed.Client.gather

    def counted(self, *args, **kwargs):
        found = gather(self, *args, **kwargs)
        fetched.append(len(pickle.dumps(found)))
        return found

    monkeypatch.setattr(distributed.Client, "gather", counted)
    model = dca.LatentDirichletAllocation(4, subsample=3000).fit(group)
    assert model.n_passes_ == 2
    before = 1 + 1 + 1 + 1 + 3 + 1  # census, that of the sample, spectrum, divide, recover, how words burst
    assert before < len(fetched) <= before + model.n_iter_ + 2, model.n_iter_  # EM
    assert max(fetched) < 2 * 8 * 100 * (4 + 10)  # V (k + 10) numbers, and what is around them
    assert max(fetched) < (many.data.nbytes + many.indices.nbytes) * 3000 / 4000 / 50
