"""Pictures of hidden states carry the right data."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

import dask_dca as dca
from dask_dca.errors import InvalidInputError
from dask_dca.plotting.canvas import ANCHOR
from dask_dca.plotting.sequences import plot_emissions, plot_states, plot_transitions
from tests.models.hmm.test_hmm import LENGTHS, X


@pytest.fixture(scope="module")
def model():
    return dca.GaussianHMM(3).fit(X, lengths=LENGTHS)


def test_bands_are_the_states_and_typical_frames_are_marked(model):
    ax = plot_states(model, X, LENGTHS, names=["one", "two", "three"], channels=[0, 2])
    states = model.predict(X, LENGTHS)
    assert len(ax.patches) == 1 + (np.diff(states) != 0).sum()
    marks = [line for line in ax.lines if to_hex(line.get_color()) == to_hex(ANCHOR)]
    assert sorted(line.get_xdata()[0] for line in marks) == sorted(model.anchor_indices_)
    assert {text.get_text().strip() for text in ax.texts} == {"one", "two", "three"}
    ends = [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"]
    assert ends == [149.5, 150.5, 349.5]
    signal = ax.lines[0].get_ydata()
    np.testing.assert_allclose(np.ptp(signal), 1.0)
    assert np.corrcoef(signal, X[:, 0])[0, 1] == pytest.approx(1.0)
    holes = X.copy()
    holes[5:9, 0] = np.nan
    for given in (holes, np.ma.masked_array(X, np.isnan(holes))):
        signal = plot_states(model, given, LENGTHS, channels=[0]).lines[0].get_ydata()
        assert (np.isnan(signal) == np.isnan(holes[:, 0])).all()


def test_transition_matrices_are_written_out(model):
    ax = plot_transitions(model)
    assert [text.get_text() for text in ax.texts] == [f"{value:.2f}" for value in model.transmat_.ravel()]
    np.testing.assert_array_equal(ax.images[0].get_array(), model.transmat_)


def test_too_many_frames_are_refused(model):
    with pytest.raises(InvalidInputError, match="at most 20000"):
        plot_states(model, np.ones((20_001, 3)))


def test_of_many_symbols_those_are_drawn_that_tell_states_apart():
    model = dca.CategoricalHMM(2)
    model.emissionprob_ = np.full((2, 60), 1e-3)
    model.emissionprob_[0, 7] = model.emissionprob_[1, 55] = 0.9
    drawn = np.asarray(plot_emissions(model).images[0].get_array())
    assert drawn.shape == (2, 40)
    assert sorted(drawn.max(axis=0))[-3:] == [1e-3, 0.9, 0.9]
    ax = plot_emissions(model, names=[f"s{j}" for j in range(60)])
    assert all(text.get_text().startswith("s") for text in ax.get_xticklabels())
