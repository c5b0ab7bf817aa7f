"""Factorizations around anchors that are known beforehand."""

import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.errors import InvalidParameterError
from tests.conftest import planted

X, PURE = planted(200, 9, 4)


@pytest.mark.parametrize("known", [PURE[:2].tolist(), X[PURE[:2]]], ids=["numbers", "rows"])
def test_the_others_are_found_around_them(known, tmp_path):
    model = dca.NMF(4, known=known).fit(X)
    np.testing.assert_array_equal(model.components_[:2], X[PURE[:2]])
    assert set(model.anchor_indices_[2:]) == set(PURE[2:])
    chunked = dca.NMF(4, known=known).fit(da.from_array(X, chunks=(50, 9)))
    np.testing.assert_array_equal(chunked.components_, model.components_)
    model.save(str(tmp_path / "m"))
    loaded = dca.load_model(str(tmp_path / "m"))
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    np.testing.assert_array_equal(loaded.known, known)


def test_a_mixture_that_is_called_an_anchor_stays_one():
    mixed = next(i for i in range(200) if i not in PURE)
    assert dca.NMF(4, known=[mixed]).fit(X).anchor_indices_[0] == mixed


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: dca.NMF(4, known=[1], method="paper").fit(X), "known anchors need method='robust'"),
        (lambda: dca.NMF(2, known=[1, 2, 3]).fit(X), "known names 3 anchors where 2 are asked for"),
    ],
)
def test_what_can_not_be(fit, message):
    with pytest.raises(InvalidParameterError, match=message):
        fit()
