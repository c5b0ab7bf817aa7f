"""BLAS threads: one while the library computes, on any thread; the former number afterwards."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import dask.array as da
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import dask_dca as dca
from dask_dca.engine import process as threads
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import as_rows


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


def test_the_limit_is_set_from_any_thread_and_the_users_is_in_force_afterwards():
    """Threadpoolctl 3.8 lets one thread alone set limits, here the main one; the others' do nothing, silently."""

    def look():
        with one_blas_thread():
            inside = blas_threads()
        return set(inside)

    with ThreadPoolExecutor(4) as pool:
        for number in (1, 2, 3):
            with threadpool_limits(number, user_api="blas"):
                assert [set(blas_threads()), pool.submit(look).result(), set(blas_threads())] == [
                    {number},
                    {1},
                    {number},
                ]
                assert all(found == {1} for found in pool.map(lambda _: look(), range(50)))
                assert set(blas_threads()) == {number}
            with threadpool_limits(5, user_api="blas"):  # the user's own contexts work as before
                assert set(blas_threads()) == {5}


class Library:
    """A BLAS whose limit is that of the calling thread, as MKL's and that of OpenBLAS on OpenMP."""

    internal_api = "mkl"

    def __init__(self):
        self.own = threading.local()

    def get_num_threads(self):
        return getattr(self.own, "number", 8)

    def set_num_threads(self, number):
        self.own.number = number


def test_limits_of_a_thread_are_set_and_restored_in_each_thread(monkeypatch):
    library = Library()
    monkeypatch.setattr(threads, "_libraries", lambda: ([], [library]))

    def look(number):
        library.set_num_threads(number)
        with one_blas_thread(), one_blas_thread():
            inside = library.get_num_threads()
        return inside, library.get_num_threads()

    with one_blas_thread(), ThreadPoolExecutor(2) as pool:
        assert list(pool.map(look, (4, 6))) == [(1, 4), (1, 6)]
        assert library.get_num_threads() == 1
    assert library.get_num_threads() == 8


ANYWHERE = """
import asyncio, hashlib, sys, warnings
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from threadpoolctl import threadpool_limits
import dask_dca as dca
warnings.simplefilter("ignore")  # few documents

def digest(*parts):
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()

def fits(seed):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(400, 0.05), 5)
    counts = rng.poisson(150 * rng.dirichlet(np.full(5, 0.2), 150) @ topics).astype(float)
    lda = dca.LatentDirichletAllocation(5, max_iter=1).fit(counts)
    bases = rng.standard_normal((4, 3, 30))
    points = np.einsum("nd,ndp->np", rng.random((200, 3)), bases[rng.integers(4, size=200)])
    groups = dca.SubspaceClustering(4).fit(points)
    mixture = dca.GaussianMixture(3, covariance_type="full", max_iter=1).fit(points)
    return digest(lda.components_, lda.spectrum_, lda.transform(counts), groups.centres_, groups.labels_,
                  mixture.precisions_cholesky_, mixture.predict_proba(points), mixture.sample(5)[0])

async def awaited():
    return await asyncio.to_thread(fits, 0)

if __name__ == "__main__":
    seen = [fits(0)]
    with threadpool_limits(2, user_api="blas"), ThreadPoolExecutor(3) as pool:
        seen += pool.map(fits, [0, 0])
        seen += [asyncio.run(awaited())]
    from distributed import Client
    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        with threadpool_limits(2, user_api="blas"):
            seen += client.gather([client.submit(fits, 0, pure=False) for _ in range(2)])
    print(*seen)
"""


def test_fits_have_the_same_bits_in_whichever_thread_they_run(tmp_path):
    """In a pool, concurrently, awaited, and in tasks of threaded workers."""
    script = tmp_path / "anywhere.py"
    script.write_text(ANYWHERE)
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = done.stdout.split()
    assert len(seen) == 6
    assert len(set(seen)) == 1


def test_the_same_bits_for_any_number_of_blas_threads():
    rng = np.random.default_rng(0)
    X = rng.dirichlet(np.ones(12), 2000) @ rng.random((12, 300)) + 0.01 * rng.random((2000, 300))
    seen = set()
    for number in (1, 4):
        with threadpool_limits(number, user_api="blas"):
            for data in (X, da.from_array(X, chunks=(450, 170))):
                model = dca.NMF(12).fit(data)
                seen.add(model.anchor_indices_.tobytes() + model.coverage_curve_.tobytes())
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
