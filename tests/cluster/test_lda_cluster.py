"""Topics on worker processes: the same bits for any number of workers, and for workers that die."""

import numpy as np
import pytest
import zarr
from scipy import sparse

import dask_dca as dca
from tests.cluster.workers import MARKS, Faulty, scaled
from tests.conftest import bits
from tests.engine.test_sparse_rows import write
from tests.models.lda_data import LDA_FITTED, planted_documents

pytestmark = MARKS
X, _ = planted_documents(600)


@pytest.fixture(scope="module")
def whole():
    return bits(dca.LatentDirichletAllocation(5, max_iter=2).fit(X), LDA_FITTED)


def test_one_two_and_four_workers_give_the_same_bits(cluster, client, whole, tmp_path):
    """user-reports 62: LdaMulticore differs with every number of workers."""
    group = write(zarr.open_group(tmp_path / "x.zarr", mode="w"), X, 4000)
    for _ in scaled(cluster, client, 1, 4, 2):
        assert bits(dca.LatentDirichletAllocation(5, max_iter=2).fit(group), LDA_FITTED) == whole


@pytest.mark.parametrize(
    ("name", "subsample"), [("census", None), ("cooccur", None), ("refine", None), ("census", 200)]
)
def test_a_worker_killed_in_a_pass_changes_no_bit(client, whole, tmp_path, name, subsample):
    import dask.array as da

    model = dca.LatentDirichletAllocation(5, max_iter=2, subsample=subsample)
    if subsample is not None:
        whole = bits(model.fit(X), LDA_FITTED)

    marker = tmp_path / "killed"
    faulty = Faulty(X.toarray(), f"dca-{name}", marker)
    blocks = da.from_array(faulty, chunks=(60, -1), name=False, meta=np.zeros((0, 0)))
    blocks = blocks.map_blocks(sparse.csr_array, dtype=float, meta=sparse.csr_array((0, 0)))
    assert bits(model.fit(blocks), LDA_FITTED) == whole
    assert marker.exists()  # a worker did die
