"""On worker processes: the bits of memory for any number of workers, wherever one of them dies."""

import dask.array as da

from tests.cluster.conftest import client, cluster  # noqa: F401 - two workers for all of these
from tests.cluster.workers import MARKS, scaled
from tests.contract.deaths import counted
from tests.contract.entries import ENTRIES, example, example_results, fitted, fitted_bytes, result_bytes

pytestmark = MARKS


def fit(name):
    X = example(name)
    return fitted_bytes(ENTRIES[name].make().fit(da.from_array(X, chunks=(len(X) // 3 + 1, 5))))


def test_other_numbers_of_workers_give_the_bits_of_memory(cluster, client):  # noqa: F811
    for n_workers in scaled(cluster, client, 3, 2):
        for name in ENTRIES if n_workers == 3 else ():  # the next test's fits have two
            assert fit(name) == fitted_bytes(fitted(name)), name


def test_a_worker_that_dies_anywhere_in_a_fit_changes_no_bit(client, name, tmp_path):  # noqa: F811
    """Early or late, by turns: in a pass, where a sample is learnt on, or as results are merged."""
    found, n_tasks = counted(client, tmp_path / "whole", lambda: fit(name))
    assert found == fitted_bytes(fitted(name))
    fatal = (n_tasks // 4 + 1, 3 * n_tasks // 4)[list(ENTRIES).index(name) % 2]
    found, seen = counted(client, tmp_path / "fatal", lambda: fit(name), fatal)
    assert found == fitted_bytes(fitted(name)), fatal
    assert seen > fatal  # a worker did die, and the fit went on


def test_a_worker_that_dies_in_a_result_changes_no_bit(client, name, tmp_path):  # noqa: F811
    X = example(name)
    lazy = da.from_array(X, chunks=(len(X) // 3 + 1, 5))
    found, seen = counted(client, tmp_path / "tasks", lambda: result_bytes(name, fitted(name), lazy), 3)
    assert found == example_results(name)
    assert seen > 3
