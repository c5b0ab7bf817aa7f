"""What all tests share: hypothesis profiles, planted data, and schedulers that count what is computed."""

import gc
import os
import random
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed.utils import get_mp_context
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:  # tests.strategies, and benchmarks.regimes
    sys.path.insert(0, str(ROOT))

SOAK = "DASK_DCA_SOAK" in os.environ  # `make soak`, which runs what takes long
SOAK_ONLY = pytest.mark.skipif(not SOAK, reason="run by make soak")

collect_ignore = ["swapped"]  # scripts, which a test runs

gc.disable()  # while tests are collected: nothing of them goes, and looking for it is a third of the time

sys.modules.setdefault("rfc3987_syntax", None)  # jsonschema compiles 38 grammars of it, which nothing here asks for

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("random", parent=settings.get_profile("default"), print_blob=True, database=None)
RANDOM_SECONDS = float(os.environ.get("RANDOM_SECONDS", "0"))  # `make random`: how long to try examples of its seed
settings.load_profile("random" if RANDOM_SECONDS else "ci" if os.environ.get("CI") else "default")
_began = []  # when the first test did

# Two test processes on two cores wait for each other's threads otherwise, in scikit-learn's k-means above all.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Worker processes that tests start are forked from one that has imported all they need, which takes four seconds of
# each otherwise. Commands, notebooks, examples and manifests start theirs as users do.
MODELS = ("categorical", "hmm", "kalman", "lda", "mixture", "nmf", "subspace")
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
# As in distributed's own tests: else two idle workers take .09 of a core to look at stacks and clocks, not .03.
dask.config.set({"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"})
get_mp_context().set_forkserver_preload(["distributed", *(f"dask_dca.models.{name}.estimator" for name in MODELS)])


# Files that take long go first: each runs in one process, and the other one waits for the last of them.
LONG = (
    "tests/benchmarks/test_peers.py",
    "tests/cluster/test_page_of_workers.py",
    "tests/deploy/test_pods.py",
    "tests/cluster/test_cluster.py",
    "tests/cli/test_cli.py",
    "tests/test_site.py",
    "tests/contract/test_workers.py",
    "tests/test_types.py",
    "tests/test_docs.py",
    "tests/contract/test_chunking.py",
    "tests/test_notebooks.py",
    "tests/models/mixture/test_tails.py",
    "tests/models/mixture/test_mixture.py",
    "tests/report/test_page.py",
    "tests/models/kalman/test_kalman.py",
    "tests/faults/test_shared_stores.py",
    "tests/models/subspace/test_subspace.py",
    "tests/models/kalman/test_statistics.py",
    "tests/report/test_browser.py",
    "tests/engine/test_passes.py",
    "tests/faults/test_blocks.py",
    "tests/models/mixture/test_statistics.py",
    "tests/models/hmm/test_statistics.py",
)


# Files that share what is dear to make run in one process: fitted examples and their pages; what forks the workers.
TOGETHER = (
    ("tests/report/", "tests/test_plotting_models.py"),
    ("tests/cluster/", "tests/contract/test_workers.py", "tests/faults/test_shared_stores.py",
     "tests/faults/test_reads.py", "tests/engine/test_allocator.py", "tests/anchoring/test_subproblems.py",
     "tests/test_examples.py", "tests/test_notebooks.py"),
)  # fmt: skip


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """As --dist loadfile does, but for the files that run together."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return next((str(files) for files in TOGETHER if nodeid.startswith(files)), super()._split_scope(nodeid))

    return Scheduling(config, log)


def pytest_collection_modifyitems(config, items):
    """Long files first; random examples in the order of the seed, so that each comes into the time of some run."""
    places = {name: i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(LONG)))
    if RANDOM_SECONDS:
        random.Random(config.getoption("--hypothesis-seed")).shuffle(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    """What was collected stays: the collector need not look through it again and again."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup():
    _began or _began.append(time.monotonic())
    if RANDOM_SECONDS and time.monotonic() - _began[0] > RANDOM_SECONDS:
        pytest.skip("the time for random examples is over")


class CountingScheduler:
    """A synchronous scheduler that keeps the graph of each compute, and refuses more than `most` of them."""

    def __init__(self, most=None):
        self.most = most
        self.graphs = []

    def __call__(self, dsk, keys, **kwargs):
        self.graphs.append(dict(dsk.__dask_graph__() if hasattr(dsk, "__dask_graph__") else dsk))
        if self.most is not None and len(self.graphs) > self.most:
            pytest.fail(f"computed {len(self.graphs)} times, where {self.most} times were allowed")
        return dask.get(dsk, keys, **kwargs)

    @property
    def passes(self):
        """The name of each compute: of the longest run of tasks whose names begin with dca-, without its token."""
        return [pass_name(graph) for graph in self.graphs]


def pass_name(graph):
    names = [key[0] for key in graph if isinstance(key, tuple) and str(key[0]).startswith("dca-")]
    names = [name.split("-")[1] for name in names if not name.startswith(("dca-conquer", "dca-merge"))]
    return max(set(names), key=names.count) if names else ""


@contextmanager
def raise_if_dask_computes(most=0):
    """Fail where Dask computes more than `most` graphs."""
    counter = CountingScheduler(most)
    with dask.config.set(scheduler=counter):
        yield counter


@pytest.fixture
def computes():
    """A scheduler that counts, in force for the test."""
    counter = CountingScheduler()
    with dask.config.set(scheduler=counter):
        yield counter


@pytest.fixture
def unlaid(monkeypatch):
    """Parts of pictures stay where matplotlib puts them first: to move them takes half of the time of a page."""
    monkeypatch.setattr("matplotlib.layout_engine.ConstrainedLayoutEngine.execute", lambda *_: None)


def planted(n, p, k, seed=0, dtype=np.float64, noise=0.0):
    """X (n, p) whose cone has k extreme rays, and the sorted rows that are on them."""
    rng = np.random.default_rng(seed)
    F = rng.dirichlet(np.ones(k), n)
    anchors = np.sort(rng.choice(n, k, replace=False))
    F[anchors] = np.eye(k)
    X = F @ rng.random((k, p))
    return np.maximum(X + noise * X.mean() * rng.standard_normal(X.shape), 0.0).astype(dtype), anchors


CERTIFICATE = (
    "indices",
    "votes",
    "vote_share",
    "confidence",
    "candidates",
    "candidate_votes",
    "coverage_curve",
    "n_zero_rows",
    "n_behind_rows",
    "n_clipped_entries",
    "n_pointed",
)
FITTED = (
    "components_",
    "anchor_indices_",
    "votes_",
    "vote_confidence_",
    "candidates_",
    "candidate_votes_",
    "coverage_curve_",
    "n_zero_rows_",
    "n_clipped_entries_",
)


def bits(found, names=None):
    """All that an AnchorResult or a fitted model says, as bytes: equal if and only if every bit is."""
    names = names or (FITTED if hasattr(found, "components_") else CERTIFICATE)
    return {name: np.asarray(getattr(found, name)).tobytes() for name in names}
