"""Pictures of topics."""

import numpy as np
import pytest

import dask_dca as dca
from dask_dca.plotting.rows import plot_coherence, plot_topic_map, plot_topics
from tests.models.lda.data import planted_documents

X, _ = planted_documents()
NAMES = [f"word{j}" for j in range(X.shape[1])]


@pytest.fixture(scope="module")
def model():
    return dca.LatentDirichletAllocation(5, max_iter=1).fit(X)


def test_bars_have_the_anchor_on_top(model):
    figure = plot_topics(model, n_words=6, feature_names=NAMES)
    assert len([ax for ax in figure.axes if ax.axison]) == 5
    for t, ax in enumerate(figure.axes[:5]):
        labels = [label.get_text() for label in ax.get_yticklabels()]
        assert labels[0] == f"word{model.anchor_words_[t]}"
        assert len(set(labels)) == 6
        sizes = [patch.get_width() for patch in ax.patches]
        assert sizes[0] == model.components_[t, model.anchor_words_[t]]
        assert sizes[1:] == sorted(sizes[1:], reverse=True)
    assert len(plot_topics(model, topics=[3]).axes) == 1


def test_the_map_names_every_topic(model):
    ax = plot_topic_map(model)
    assert [text.get_text() for text in ax.texts] == [str(word) for word in model.anchor_words_]
    assert len(plot_topic_map(dca.LatentDirichletAllocation(1, max_iter=0).fit(X)).texts) == 1


def test_coherence_is_drawn_against_the_number_of_topics(model):
    ax = plot_coherence({5: model.coherence(X), 2: [0.1, np.nan]})
    assert list(ax.lines[-1].get_xdata()) == [2, 5]
    assert ax.lines[-1].get_ydata()[0] == pytest.approx(0.1)
