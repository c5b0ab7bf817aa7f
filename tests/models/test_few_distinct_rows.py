"""Data with fewer distinct rows, or rays, than what is asked for: the smaller answer, and a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.errors import FewerAnchorsWarning, InvalidParameterError
from dask_dca.geometry.votes import shortfalls

if TYPE_CHECKING:
    from pathlib import Path

FORMS = [np.asarray, lambda X: da.from_array(X, chunks=(max(1, len(X) // 3), -1))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("n_rays", [1, 2, 3])
def test_scaled_copies_of_a_ray_share_one_anchor(n_rays: int, dtype: Any, form: Any) -> None:
    rng = np.random.default_rng(0)
    rays, scales = rng.random((n_rays, 6)) + 0.1, 10 * rng.random(300) + 0.1
    X = (scales[:, None] * rays[np.arange(300) % n_rays]).astype(dtype)
    with pytest.warns(FewerAnchorsWarning, match=f"found only {n_rays} of the 5 anchors asked for"):
        model = dca.NMF(5).fit(form(X))
    assert sorted(model.anchor_indices_ % n_rays) == list(range(n_rays))
    assert model.coverage_ == 1.0


def test_one_anchor_reaches_all_of_an_outer_product() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        assert dca.NMF(1).fit(np.outer(rng.random(5), rng.random(3))).coverage_ == 1.0


def test_rows_a_billionth_apart_are_one() -> None:
    X = np.ones((8, 3)) + 1e-9 * np.random.default_rng(0).standard_normal((8, 3))
    assert dca.NMF("auto").fit(X).n_components_ == 1
    with pytest.warns(FewerAnchorsWarning, match="only 1 of the 3 anchors"):
        assert dca.NMF(3).fit(X).n_components_ == 1


def test_rows_that_differ_by_more_than_rounding_are_not_one() -> None:
    X = np.eye(3)[np.arange(30) % 3] * 1e-5 + 1.0
    assert sorted(dca.NMF(3).fit(X).anchor_indices_ % 3) == [0, 1, 2]


def test_shortfalls_up_to_rounding_are_none() -> None:
    positions, directions = np.array([[4.0], [3.0]]), np.array([[2.0]])
    np.testing.assert_array_equal(shortfalls(positions, directions, np.array([8.0]), 0.5)[:, 0], [0.0, 0.25])
    np.testing.assert_array_equal(shortfalls(positions, directions, np.array([8.0]), 1.1)[:, 0], [0.0, 0.0])


@pytest.mark.parametrize("form", FORMS)
def test_two_distinct_rows_are_two_clusters(form: Any) -> None:
    X = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    model = dca.SubspaceClustering(2).fit(form(X))
    labels = np.asarray(model.predict(X))
    assert model.n_clusters_ == 2
    assert labels.tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])


def test_clusters_of_two_distinct_rows_are_saved(tmp_path: Path) -> None:
    X = np.repeat([[1.0, 2.0, 3.0], [3.0, -1.0, 0.0]], 4, axis=0)
    model = dca.SubspaceClustering(2).fit(X)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(dca.load_model(tmp_path / "model").predict(X), model.labels_)


def test_copies_of_one_row_are_one_cluster() -> None:
    with pytest.warns(FewerAnchorsWarning, match="only 1 of the 2 clusters"):
        assert dca.SubspaceClustering(2).fit(np.ones((6, 2))).n_clusters_ == 1


@pytest.mark.parametrize("form", FORMS)
def test_constant_frames_have_one_state(form: Any) -> None:
    with pytest.warns(FewerAnchorsWarning, match=r"1 distinct values, fewer than n_components=3: one state is fitted"):
        model = dca.GaussianHMM(3).fit(form(np.full((50, 2), 7.0)))
    assert model.n_components_ == 1
    np.testing.assert_array_equal(model.means_, [[7.0, 7.0]])
    assert dca.GaussianHMM("auto").fit(form(np.full((50, 2), 7.0))).n_components_ == 1


def test_fewer_values_than_states_are_told() -> None:
    X = np.eye(2)[np.random.default_rng(0).integers(2, size=60)]
    with pytest.warns(FewerAnchorsWarning, match="2 distinct values, fewer than n_components=3"):
        dca.GaussianHMM(3).fit(X)


@pytest.mark.parametrize("form", FORMS)
def test_a_mixture_has_no_more_components_than_distinct_rows(form: Any) -> None:
    with pytest.warns(FewerAnchorsWarning, match="1 distinct rows, fewer than n_components=3"):
        assert dca.GaussianMixture(3).fit(form(np.ones((20, 2)))).n_components_ == 1


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical", "tied-spherical"])
@pytest.mark.parametrize("init", [None, {"means": [[0.0] * 3, [3.0] * 3]}])
def test_singular_covariances_are_told_where_nothing_is_added_to_them(kind: str, init: Any) -> None:
    X = np.repeat([[0.0, 0.1, 0.2], [2.8, 2.9, 3.0]], 8, axis=0)
    with pytest.raises(InvalidParameterError, match="reg_covar='auto'"):
        dca.GaussianMixture(2, kind, reg_covar=0, init=init).fit(X)
    assert np.isfinite(dca.GaussianMixture(2, kind).fit(X).score(X))
