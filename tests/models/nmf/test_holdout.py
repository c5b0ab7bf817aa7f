"""The number of components by entries that are held out, of data without holes too."""

import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.errors import InvalidParameterError
from tests.contract.entries import fitted_bytes
from tests.models.nmf.test_missing import planted, with_random_holes


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_planted_numbers_are_found(noise):
    for seed in range(3):
        X, _, _ = planted(seed, k=3 + seed, noise=noise)
        assert dca.NMF(criterion="holdout").fit(X).n_components_ == 3 + seed


def test_any_chunking_chooses_the_same_and_the_model_is_that_of_the_number():
    X, _, rng = planted(0, noise=0.02)
    chosen = dca.NMF(criterion="holdout").fit(X)
    assert fitted_bytes(dca.NMF(criterion="holdout").fit(da.from_array(X, chunks=(170, 9)))) == fitted_bytes(chosen)
    given = dca.NMF(chosen.n_components_).fit(X)
    assert given.components_.tobytes() == chosen.components_.tobytes()
    holes = with_random_holes(X, 0.3, rng)  # by which it is chosen anyway
    assert (
        fitted_bytes(dca.NMF(criterion="holdout").fit(holes))["components_"]
        == fitted_bytes(dca.NMF().fit(holes))["components_"]
    )


def test_it_serves_other_bases_and_the_paper_too_and_leaves_numbers_that_are_given():
    X, _, _ = planted(1, k=4, noise=0.02)
    assert len(dca.NMF(criterion="holdout", method="paper").fit(X).components_) == 4
    assert len(dca.NMF(criterion="holdout", basis="free").fit(X).components_) == 4
    assert len(dca.NMF(3, criterion="holdout").fit(X).components_) == 3


def test_other_criteria_are_refused():
    with pytest.raises(InvalidParameterError, match="unknown criterion 'bic'"):
        dca.NMF(criterion="bic").fit(np.eye(4))
