"""States of many megabytes: they go past the scheduler, and are not lost with the workers that hold them."""

import os
import signal
import threading
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import get_worker
from scipy import sparse

import dask_dca as dca
from dask_dca.engine.computing import scatter
from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.types import add_parts
from tests.cluster.workers import MARKS, scaled

pytestmark = MARKS

STATE = (np.arange(2_000_000.0), "marker")  # 16 MB
X = np.arange(24.0).reshape(12, 2)


def look(state, start, *columns):
    """The sum of a block, after every worker that comes by has died once."""
    values, marker = state
    if marker:
        try:
            os.close(os.open(f"{marker}-{get_worker().name}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return float(columns[0].sum()) + float(values[-1])


def seen(marker):
    rows = as_rows(da.from_array(X, chunks=(3, 2)))
    return run_pass(rows, Pass("look", look, add_parts), (STATE[0], marker), Run())


def test_no_large_graph_is_sent(client):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert seen("") == X.sum() + 4 * 1_999_999.0


@pytest.mark.parametrize("n_workers", [2, 1])
def test_a_state_outlives_the_workers_that_hold_it(cluster, client, tmp_path, n_workers):
    for _ in scaled(cluster, client, n_workers):
        assert seen(str(tmp_path / "died")) == X.sum() + 4 * 1_999_999.0
    assert len(list(tmp_path.iterdir())) >= 1


def test_a_first_worker_is_awaited_before_a_state_goes_with_the_graph(cluster, client):
    (gone,) = scaled(cluster, client, 0)
    assert gone == 0
    assert scatter(STATE) is STATE
    later = threading.Timer(0.5, cluster.scale, [1])
    later.start()
    held = scatter(STATE, patience=30.0)
    later.join()
    assert held.result()[0][-1] == STATE[0][-1]


def test_topics_of_many_words_send_no_large_graph(client):
    rng = np.random.default_rng(0)
    counts = sparse.random_array((400, 12_000), density=0.003, rng=rng, format="csr")
    counts.data = np.ceil(3 * counts.data)
    blocks = [da.from_array(counts[i : i + 100], chunks=(100, -1), asarray=False) for i in range(0, 400, 100)]
    with warnings.catch_warnings(), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1.5MB"}):
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*rest on noise.*|.*orientation.*|.*look like words.*")
        model = dca.LatentDirichletAllocation(20, max_iter=1).fit(da.concatenate(blocks))
    assert model.components_.shape == (20, 12_000)


def test_a_local_scheduler_that_was_chosen_is_used_beside_a_client(client):
    with dask.config.set(scheduler="synchronous"):
        assert seen("") == X.sum() + 4 * 1_999_999.0
