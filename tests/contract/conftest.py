"""Each contract takes each model of the list in turn, on one thread unless it says otherwise."""

import dask
import pytest

from tests.contract.entries import NAMES


def pytest_generate_tests(metafunc):
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def _one_thread(request):
    if request.node.get_closest_marker("cluster"):
        yield
        return
    with dask.config.set(scheduler="synchronous"):
        yield
