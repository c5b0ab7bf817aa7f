"""What a fit of topics brings to the driver."""

import pickle

import distributed
import zarr

import dask_dca as dca
from tests.cluster.workers import MARKS
from tests.engine.test_sparse_rows import write
from tests.models.lda.data import planted_documents

pytestmark = MARKS


def test_nothing_of_the_size_of_documents_reaches_the_driver(client, monkeypatch, tmp_path):
    many, _ = planted_documents(4000, 100, 4, 80)
    group = write(zarr.open_group(tmp_path / "x.zarr", mode="w"), many, 20_000)
    fetched = []

    def count(kind, name):
        fetch = getattr(kind, name)

        def counted(*args, **kwargs):
            found = fetch(*args, **kwargs)
            fetched.append(len(pickle.dumps(found)))
            return found

        monkeypatch.setattr(kind, name, counted)

    count(distributed.Client, "gather")
    count(distributed.Future, "result")
    model = dca.LatentDirichletAllocation(4, subsample=3000).fit(group)
    assert model.n_passes_ == 2
    before = 1 + 1 + 1 + 1 + 3 + 1  # census, that of the sample, spectrum, divide, recover, how words burst
    assert before < len(fetched) <= before + model.n_iter_ + 2, model.n_iter_  # EM
    assert max(fetched) < 2 * 8 * 100 * (4 + 10)  # V (k + 10) numbers, and what is around them
    assert max(fetched) < (many.data.nbytes + many.indices.nbytes) * 3000 / 4000 / 50
