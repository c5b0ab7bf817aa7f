"""Pictures of mixtures carry the right data."""

import dask.array as da
import numpy as np
import pytest
from sklearn.datasets import load_digits

import dask_dca as dca
from dask_dca.errors import InvalidInputError
from dask_dca.plotting.clusters import plot_anchor_images, plot_components
from tests.models.mixture.data import FORMS, planted_mixture

X = planted_mixture(400, 15, 4, 6.0)[0]


@pytest.mark.parametrize("form", FORMS)
def test_components_and_anchors_are_where_they_are(form):
    model = dca.GaussianMixture(4, form).fit(X)
    ax = plot_components(model, da.from_array(X, chunks=150), labels=list("abcd"))
    (marks,) = [dots for dots in ax.collections if dots.get_label() == "anchors"]
    np.testing.assert_allclose(marks.get_offsets(), X[model.anchor_indices_] @ model.signature_axes_.T)
    assert [text.get_text() for text in ax.texts] == list("abcd")
    drawn = np.vstack([dots.get_offsets() for dots in ax.collections if dots is not marks])
    assert drawn.shape == (400, 2)
    for line, mean in zip(ax.lines, model.means_ @ model.signature_axes_.T, strict=True):
        np.testing.assert_allclose(np.transpose(line.get_data())[:-1].mean(axis=0), mean, atol=1e-6)
    assert not [dots for dots in plot_components(model, X, anchors=False).collections if dots.get_label() == "anchors"]


def test_half_of_a_round_components_rows_are_in_its_ellipse():
    Z = np.random.default_rng(0).standard_normal((4000, 2)) * [3.0, 1.0]
    model = dca.GaussianMixture(1, "full").fit(Z)
    (line,) = plot_components(model, Z).lines
    outline, points = np.transpose(line.get_data()), Z @ model.signature_axes_.T
    whitener = np.linalg.inv(np.linalg.cholesky(np.cov(points.T)))
    radius = np.linalg.norm((outline - points.mean(axis=0)) @ whitener.T, axis=1)
    assert radius.std() < 0.05
    inside = np.linalg.norm((points - points.mean(axis=0)) @ whitener.T, axis=1) < radius.mean()
    assert inside.mean() == pytest.approx(0.5, abs=0.03)


def test_anchor_images_stand_above_their_means():
    digits = load_digits().data[:600]
    model = dca.GaussianMixture(5, "tied-spherical").fit(digits)
    figure = plot_anchor_images(model, (8, 8))
    images = [np.asarray(ax.images[0].get_array()) for ax in figure.axes]
    for j in range(5):
        np.testing.assert_array_equal(images[j], digits[model.anchor_indices_[j]].reshape(8, 8))
        np.testing.assert_allclose(images[5 + j], model.means_[j].reshape(8, 8))
        assert str(model.anchor_indices_[j]) in figure.axes[j].get_title()
    with pytest.raises(InvalidInputError, match="63 pixels"):
        plot_anchor_images(model, (9, 7))
