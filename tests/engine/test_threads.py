"""BLAS threads: one while passes run on this process, the former number afterwards."""

import os
import subprocess
import sys

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


SCRIPT = """
import hashlib, sys
import dask.array as da, numpy as np
import dask_dca as dca
rng = np.random.default_rng(0)
X = rng.dirichlet(np.ones(12), 2000) @ rng.random((12, 300)) + 0.01 * rng.random((2000, 300))
for data in (X, da.from_array(X, chunks=(450, 170))):
    model = dca.NMF(12).fit(data)
    print(hashlib.sha256(model.anchor_indices_.tobytes() + model.coverage_curve_.tobytes()).hexdigest())
"""


def test_the_same_bits_for_any_number_of_blas_threads():
    seen = set()
    for threads in ("1", "2", "4"):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        seen |= set(done.stdout.split())
    assert len(seen) == 1


def test_the_limit_is_set_once_and_lasts_until_the_last_context_is_left():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        outer, inner = one_blas_thread(), one_blas_thread()
        outer.__enter__()
        inner.__enter__()
        outer.__exit__(None, None, None)  # as when two threads of a scheduler overlap
        assert set(blas_threads()) == {1}
        inner.__exit__(None, None, None)
        assert blas_threads() == before
        with pytest.raises(KeyError), one_blas_thread():
            raise KeyError
        assert blas_threads() == before
