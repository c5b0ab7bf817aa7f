"""Keywords of neighbouring libraries: each is ours too, or answered with a line that says what to do."""

import inspect
import pickle

import numpy as np
import pytest
from hmmlearn.hmm import CategoricalHMM, GaussianHMM
from pykalman import KalmanFilter
from sklearn.base import clone
from sklearn.cluster import SpectralClustering
from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.mixture import GaussianMixture

import dask_dca as dca

NEIGHBOURS = {
    NMF: dca.NMF,
    GaussianMixture: dca.GaussianMixture,
    LatentDirichletAllocation: dca.LatentDirichletAllocation,
    GaussianHMM: dca.GaussianHMM,
    CategoricalHMM: dca.CategoricalHMM,
    KalmanFilter: dca.KalmanFilter,
}
FOREIGN = [
    (own, word)
    for cls, own in NEIGHBOURS.items()
    for word in list(inspect.signature(cls).parameters)
    if word not in own._get_param_names()
]
GENSIM = (
    "corpus num_topics id2word distributed chunksize passes update_every alpha eta decay offset eval_every iterations "
    "gamma_threshold minimum_probability per_word_topics"
)
FOREIGN += [(dca.LatentDirichletAllocation, word) for word in GENSIM.split()]


@pytest.mark.parametrize(("model", "word"), FOREIGN, ids=lambda value: getattr(value, "__name__", value))
def test_a_neighbours_keyword_is_answered(model, word):
    with pytest.raises(TypeError, match=f"^{model.__name__} has no keyword '{word}'; (use|leave it out|call|give)"):
        model(**{word: 3})


@pytest.mark.parametrize(
    ("method", "theirs"),
    [(dca.KalmanFilter.from_parameters, KalmanFilter), (dca.KalmanFilter(2).filter_update, KalmanFilter.filter_update)],
    ids=["from_parameters", "filter_update"],
)
def test_pykalmans_keywords_of_methods_are_answered(method, theirs):
    foreign = [
        name for name in inspect.signature(theirs).parameters if name not in inspect.signature(method).parameters
    ]
    for word in {*foreign} - {"self"}:
        with pytest.raises(TypeError, match=rf"^KalmanFilter\.\w+ has no keyword '{word}'; (use|leave it out)"):
            method(**{word: 3})


def test_values_by_position_are_answered():
    with pytest.raises(TypeError, match=r"takes n_dim_state by position, and received 2 values; use .*from_parameters"):
        dca.KalmanFilter([[1.0]], [[1.0]])
    with pytest.raises(TypeError, match=r"takes n_dim_state by position, and received a matrix; use .*from_parameters"):
        dca.KalmanFilter(np.eye(2))
    with pytest.raises(TypeError, match=r"takes n_components, covariance_type by position, .* give the others by name"):
        dca.GaussianMixture(3, "full", 1e-3)


def test_pykalmans_offsets_of_states_are_those_of_the_advice():
    A, C, offsets, m = 0.5 * np.eye(2) + 0.1 * np.eye(2, k=1), np.eye(2), np.array([0.3, -0.2]), np.array([1.0, 2.0])
    with pytest.raises(TypeError, match="transition_offsets") as error:
        dca.KalmanFilter.from_parameters(A, C, transition_offsets=offsets)
    options, where = str(error.value).split("; use ")[1].split(", where c = ")
    c = eval(where)
    own = eval(f"dca.KalmanFilter.from_parameters(A, C, {options})")
    theirs, X = KalmanFilter(A, C, transition_offsets=offsets, initial_state_mean=m), np.ones((5, 2))
    assert own.loglikelihood(X) == pytest.approx(theirs.loglikelihood(X))
    np.testing.assert_allclose(own.smooth(X)[0] + c, theirs.smooth(X)[0])


@pytest.mark.parametrize("word", ["n_init", "affinity", "n_neighbors", "gamma", "n_jobs"])
def test_spectral_clusterings_keywords_are_answered(word):
    assert word in inspect.signature(SpectralClustering).parameters
    with pytest.raises(TypeError, match="leave it out"):
        dca.SubspaceClustering(3, **{word: 1})


def test_a_slip_of_the_pen_is_guessed():
    with pytest.raises(TypeError, match="NMF has no keyword 'n_component'; did you mean n_components="):
        dca.NMF(n_component=3)
    with pytest.raises(TypeError, match=r"NMF has no keyword 'zzz'; it takes .*n_components, "):
        dca.NMF(zzz=3)


def test_models_are_still_made_by_position_cloned_and_pickled():
    model = dca.NMF(3, random_state=7)
    assert clone(model).get_params() == pickle.loads(pickle.dumps(model)).get_params() == model.get_params()


def test_the_package_shows_what_is_public():
    assert set(dca.__all__) | {"errors", "plotting", "__version__"} <= set(dir(dca))
    assert not [name for name in dir(dca) if name.startswith("_") and not name.startswith("__")]
    assert issubclass(dca.errors.NotFiniteError, ValueError)
    assert callable(dca.plotting.plot_summary)
