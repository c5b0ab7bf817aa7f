"""Pictures carry the right data."""

import builtins

import dask.array as da
import numpy as np
import pytest
import zarr
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import dask_dca as dca
from dask_dca import plotting
from dask_dca.errors import DCAError, InvalidInputError
from dask_dca.plotting.canvas import ANCHOR

rng = np.random.default_rng(0)
X = np.vstack([rng.dirichlet(np.ones(4), 296), np.eye(4)]) @ rng.random((4, 12))
LABELS = ["one", "two", "three", "four"]


@pytest.fixture(scope="module")
def model():
    return dca.NMF(4).fit(X)


def anchors_of(ax):
    (found,) = [dots for dots in ax.collections if dots.get_label() == "anchors"]
    return np.asarray(found.get_offsets())


@pytest.mark.parametrize("pair", [None, (0, 2)])
def test_plane_marks_anchors_where_they_are(model, pair):
    ax = plotting.plot_plane(model, X, pair=pair)
    marks = anchors_of(ax)
    heights = model.components_.sum(axis=1) / np.sqrt(12)
    np.testing.assert_allclose(marks[:, 0], heights)
    if pair is not None:
        first, second = (model.components_[i] / heights[i] for i in pair)
        across = (second - first) / np.linalg.norm(second - first)
        np.testing.assert_allclose(marks[:, 1], model.components_ @ across, atol=1e-12)
    rows = np.asarray(ax.collections[0].get_offsets())
    assert len(rows) == 300
    slopes = marks[:, 1] / marks[:, 0]
    assert (rows[:, 1] / rows[:, 0]).min() >= slopes.min() - 1e-9
    assert (rows[:, 1] / rows[:, 0]).max() <= slopes.max() + 1e-9
    edges = [line.get_ydata()[1] / line.get_xdata()[1] for line in ax.lines]
    np.testing.assert_allclose(sorted(edges), [slopes.min(), slopes.max()])


def test_plane_of_a_result_and_of_data_of_any_sign():
    result = dca.find_anchors(X, 4)
    marks = anchors_of(plotting.plot_plane(result, X, labels=LABELS))
    np.testing.assert_allclose(marks[:, 0], X[result.indices].sum(axis=1) / np.sqrt(12))
    tilted = X @ np.linalg.qr(rng.standard_normal((12, 12)))[0]
    assert np.isfinite(anchors_of(plotting.plot_plane(dca.find_anchors(tilted, 4), tilted))).all()


def test_chunked_data_are_sampled(model):
    read = []

    def block(block_info=None):
        start, stop = block_info[None]["array-location"][0]
        read.append(stop - start)
        return np.resize(X, (stop - start, 12))

    chunked = da.map_blocks(block, chunks=((100,) * 3000, 12), dtype=float, meta=np.empty((0, 0)))
    ax = plotting.plot_plane(model, chunked)
    assert len(ax.collections[0].get_offsets()) <= 4096
    assert sum(read) < 20_000


def test_votes(model):
    ax = plotting.plot_votes(model, top=3, labels=LABELS)
    heights = [bar.get_height() for bar in ax.patches]
    names = [tick.get_text() for tick in ax.get_xticklabels()]
    orange = [
        name for name, bar in zip(names, ax.patches, strict=True) if to_hex(bar.get_facecolor()).upper() == ANCHOR
    ]
    assert sorted(orange) == sorted(LABELS)
    shown = dict(zip(names, heights, strict=True))
    np.testing.assert_allclose([shown[name] for name in LABELS], model.vote_share_)
    assert heights == sorted(heights, reverse=True)
    (bars,) = ax.collections
    low_high = {tuple(np.round(segment[:, 1], 9)) for segment in bars.get_segments()}
    assert {tuple(np.round(bounds, 9)) for bounds in model.vote_confidence_} <= low_high


def test_coverage(model):
    ax = plotting.plot_coverage(model)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), model.coverage_curve_)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [1, 2, 3, 4])
    result = dca.find_anchors(X, 4)
    assert plotting.plot_coverage(result).lines[0].get_ydata()[-1] <= 1
    assert repr(result).startswith(f"<AnchorResult: 4 anchors, coverage {result.coverage:.3f}, in rows [")


def test_spectra(model):
    axis = np.linspace(0.4, 2.5, 12)
    ax = plotting.plot_spectra(model, feature_axis=axis, label="µm", labels=LABELS)
    np.testing.assert_array_equal([line.get_ydata() for line in ax.lines], model.components_)
    assert ax.get_xlabel() == "µm"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == LABELS
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == 4


def test_coefficient_images(model):
    F = model.transform(X)
    figure = plotting.plot_coefficients(F, (15, 20), labels=LABELS)
    images = [ax.images[0] for ax in figure.axes if ax.images]
    np.testing.assert_array_equal(images[2].get_array(), F[:, 2].reshape(15, 20))
    with pytest.raises(InvalidInputError, match="300 rows"):
        plotting.plot_coefficients(F, (10, 20))


def test_large_coefficient_images_are_thinned():
    F = da.arange(1_000_000, chunks=100_000).reshape(-1, 1)
    figure = plotting.plot_coefficients(F, (1000, 1000))
    (drawn,) = [np.asarray(ax.images[0].get_array()) for ax in figure.axes if ax.images]
    assert drawn.size <= 2**16
    assert drawn[0, 1] - drawn[0, 0] == (drawn[1, 0] - drawn[0, 0]) / 1000


def test_given_axes_are_used(model):
    ax = Figure().subplots()
    assert plotting.plot_votes(model, ax=ax) is ax


@pytest.mark.parametrize("shape", [None, (15, 20)])
def test_summary(model, shape, tmp_path):
    stored = zarr.create_array(tmp_path / "X.zarr", data=X, chunks=(50, 12))
    figure = plotting.plot_summary(model, stored, shape=shape)
    figure.savefig(tmp_path / "summary.png")
    assert (tmp_path / "summary.png").stat().st_size > 10_000
    titles = [ax.get_title() for part in figure.subfigs for ax in part.axes]
    assert sum(title.startswith("row ") for title in titles) == (4 if shape else 0)


def test_missing_matplotlib_is_explained(model, monkeypatch):
    original = builtins.__import__

    def without(name, *args, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DCAError, match=r"dask-dca\[plot\]"):
        plotting.plot_coverage(model)
