"""A mixture has the same bits for each ensemble of planes, and reads all rows a few times."""

import dask
import dask.array as da
import pytest

import dask_dca as dca
from tests.models.mixture.data import mixture_bits, planted_mixture

pytestmark = pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")


@pytest.mark.parametrize("ensemble", ["row-space", "sparse", "data"])
def test_every_ensemble_gives_the_same_bits(ensemble):
    X = planted_mixture(300, 13, 4)[0]
    chunked = da.from_array(X, chunks=((7, 0, 1, 142, 150), (5, 8)))
    with dask.config.set(scheduler="synchronous"):
        whole = dca.GaussianMixture(4, ensemble=ensemble).fit(X)
        assert mixture_bits(dca.GaussianMixture(4, ensemble=ensemble).fit(chunked)) == mixture_bits(whole)


def test_all_rows_are_read_a_few_times_only(computes):
    """The sample; then refinement, which looks once more than it steps, and the first time for tails, too.

    Between them tasks learn on the sample, where it is.
    """
    X = da.from_array(planted_mixture(400, 15, 4)[0], chunks=100)
    model = dca.GaussianMixture(4, max_iter=2, tol=0.0).fit(X)
    assert model.n_iter_ == 2
    assert computes.passes == [
        "fetch", "describe", "start", "refine", "refine", "refine", "fetch",
    ]  # fmt: skip
