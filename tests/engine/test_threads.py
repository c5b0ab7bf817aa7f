"""BLAS threads: one while passes run on this process, the former number afterwards."""

import dask.array as da
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.threads import one_blas_thread


def blas_threads(*_):
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_blas_has_one_thread_inside_and_the_former_number_after_an_error():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with pytest.raises(ZeroDivisionError), one_blas_thread():
            assert set(blas_threads()) == {1}
            _ = 1 / 0
        assert blas_threads() == before


@pytest.mark.parametrize("kind", ["memory", "threads"])
def test_passes_on_this_process_run_with_one_blas_thread(kind):
    """User reports 79 and 80: BLAS that takes all cores under a scheduler that has taken them already."""
    X = np.ones((40, 3)) if kind == "memory" else da.ones((40, 3), chunks=(10, 3))
    with threadpool_limits(2, user_api="blas"):
        seen = run_pass(as_rows(X), Pass("look", blas_threads, max), None)
    assert set(seen) == {1}
