"""Blocks that are not what Dask was told give the right answer, or one line that names the block."""

import pytest

from benchmarks.block_faults import KINDS, METHODS, NAMES, judged

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_block_is_named(name, kind):
    """Half of the faults, fits and row-wise results in turn; `make soak` has all of them."""
    method = METHODS[(list(KINDS).index(kind) + NAMES.index(name)) % 2]
    verdict, said = judged(name, kind, method)
    assert verdict in ("right", "one clear line"), (method, verdict, said)
