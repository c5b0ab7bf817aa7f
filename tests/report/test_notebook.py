"""What notebooks show of a model: scikit-learn's diagram before the fit, what was found after it."""

import copy

import html5lib
import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils import estimator_html_repr

import dask_dca as dca
from tests.report.conftest import example


def test_a_fitted_model_says_what_it_found(name):
    model, _ = example(name)
    text = model._repr_html_()
    tree = html5lib.HTMLParser(strict=True).parseFragment(text)
    said = " ".join("".join(tree.itertext()).split())
    assert model._repr_mimebundle_() == {"text/plain": repr(model), "text/html": text}
    assert "The certificate" in said
    assert ("n_starts" if name == "categorical" else "n_subproblems") in said
    assert type(model).__name__ in said
    assert name in ("categorical", "kalman", "lda", "subspace") or str(model.anchor_indices_[0]) in said
    assert "<script" not in text
    assert len(text) < 20_000


def test_a_report_shows_itself_and_prints_as_a_few_words():
    page = dca.report(example("nmf")[0])
    assert repr(page) == f"<page of {len(page):,} characters>"
    frame = html5lib.HTMLParser(strict=True).parseFragment(page._repr_html_())[0]
    assert frame.get("srcdoc") == str(page)
    assert frame.get("sandbox") == ""
    assert type(page[:15]) is str


def test_the_style_stays_in_its_own_element(name):
    """Every rule begins at the div of the model; colours are those of the page that it stands on."""
    text = example(name)[0]._repr_html_()
    style = text.partition("<style>")[2].partition("</style>")[0]
    rules = [rule.partition("{")[0].strip() for rule in style.split("}") if rule.strip()]
    assert rules
    assert all(part.strip().startswith(".dask-dca") for rule in rules for part in rule.split(","))
    assert "#" not in style


def test_before_the_fit_it_is_the_diagram_of_scikit_learn():
    model = dca.NMF(3)
    bundle = model._repr_mimebundle_()
    assert "sk-container" in bundle["text/html"]
    assert "sk-container" in model._repr_html_()
    assert bundle["text/plain"] == repr(model) == "NMF(n_components=3)"


def test_plain_text_is_that_of_scikit_learn(name):
    model, _ = example(name)
    assert repr(model) == BaseEstimator.__repr__(model)


def test_text_display_of_scikit_learn_is_respected():
    with config_context(display="text"):
        assert list(example("nmf")[0]._repr_mimebundle_()) == ["text/plain"]
        assert example("nmf")[0]._repr_html_() is None


def test_pipelines_are_diagrams():
    pipeline = make_pipeline(MinMaxScaler(), dca.NMF(2)).fit(example("nmf")[1][:200])
    assert "sk-container" in estimator_html_repr(pipeline)
    assert "MinMaxScaler" in pipeline._repr_html_()


def test_parameters_set_by_hand_fall_back_to_the_diagram():
    """As hmmlearn's users do: without a fit there is nothing to certify."""
    model = dca.GaussianHMM(2)
    model.startprob_, model.transmat_ = np.array([0.5, 0.5]), np.eye(2)
    model.means_ = np.zeros((2, 3))
    assert "sk-container" in model._repr_html_()


def test_many_parts_are_cut():
    model = copy.copy(example("lda")[0])
    for name in ("components_", "anchor_words_", "topic_weights_", "topic_distances_"):
        setattr(model, name, np.concatenate([getattr(model, name)] * 5))
    for name in ("distance_to_corpus_", "vote_share_", "votes_", "vote_confidence_"):
        setattr(model, name, np.concatenate([getattr(model, name)] * 5))
    model.n_components_ = 25
    assert "The first lines" in model._repr_html_()


@pytest.mark.parametrize("method", ["_repr_html_", "_repr_mimebundle_"])
def test_showing_a_model_computes_nothing(name, method, computes):
    getattr(example(name)[0], method)()
    assert computes.passes == []
