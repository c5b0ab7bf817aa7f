"""Pictures of clusters carry the right data."""

import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.errors import InvalidInputError
from dask_dca.plotting.clusters import plot_anchor_graph, plot_cluster_anchors, plot_clusters
from tests.models.subspace.test_subspace import SMALL


@pytest.fixture(scope="module", params=["robust", "paper"])
def model(request):
    return dca.SubspaceClustering(3, 12, method=request.param).fit(SMALL)


def test_every_row_is_drawn_in_the_colour_of_its_cluster(model):
    for form in (SMALL, da.from_array(SMALL, chunks=(50, 10))):
        ax = plot_clusters(model, form)
        drawn = [len(dots.get_offsets()) for dots in ax.collections]
        assert drawn[::2] == model.cluster_sizes_.tolist()
        assert sum(drawn[1::2]) == 12
        assert len({tuple(dots.get_facecolor()[0]) for dots in ax.collections[::2]}) == 3


def test_anchors_are_drawn_as_images_or_frames(model):
    figure = plot_cluster_anchors(model, (4, 6))
    images = [ax.images[0].get_array() for ax in figure.axes if ax.images]
    assert len(images) == 12
    np.testing.assert_allclose(images[0].ravel(), model.components_[0])
    frames = [ax.lines[0].get_ydata() for ax in plot_cluster_anchors(model, most=2).axes if ax.lines]
    assert len(frames) == 6
    with pytest.raises(InvalidInputError, match="24 features"):
        plot_cluster_anchors(model, (5, 5))


def test_the_graph_has_a_node_for_each_anchor(model):
    ax = plot_anchor_graph(model)
    assert sum(len(dots.get_offsets()) for dots in ax.collections) == 12
    assert len(ax.texts) == 12
    plot_anchor_graph(model, labels=[f"a{i}" for i in range(12)], ax=ax)
    assert ax.texts[-1].get_text() == "a11"
