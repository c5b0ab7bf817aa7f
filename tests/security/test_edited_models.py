"""Saved models that were edited: refused when they are loaded, or every use of them works."""

import copy
import functools
import itertools
import json
import os
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest

import dask_dca as dca
from dask_dca import plotting
from dask_dca.errors import SequenceWarning
from dask_dca.models import describe as words
from dask_dca.store import describe_array, from_record, to_record
from tests.conftest import planted

SHARE = int(os.environ.get("DASK_DCA_EDITS", "29"))  # one edit in that many is tried; 1: all of them, half an hour
RNG = np.random.default_rng(0)
RAYS = planted(60, 6, 3)[0]
GROUPS = np.repeat(np.eye(3, 6) * 9, 20, axis=0) + RNG.standard_normal((60, 6))
COUNTS = np.array([RNG.multinomial(60, h @ np.kron(np.eye(3), np.full(4, 0.25))) for h in RNG.dirichlet([0.3] * 3, 60)])
MADE = {
    "nmf": (lambda: dca.NMF(3), RAYS),
    "nmf, paper": (lambda: dca.NMF(3, method="paper"), RAYS),
    **{
        f"mixture, {form}": (functools.partial(dca.GaussianMixture, 3, form), GROUPS)
        for form in ("diag", "full", "tied", "spherical", "tied-spherical")
    },
    "mixture, views": (lambda: dca.GaussianMixture(2, views=[slice(0, 2), [2, 3], [4, -1]], method="paper"), GROUPS),
    **{
        f"hmm, {form}": (functools.partial(dca.GaussianHMM, 2, form, max_iter=1), GROUPS)
        for form in ("diag", "full", "tied", "spherical", "auto")
    },
    "kalman": (lambda: dca.KalmanFilter(2, max_iter=1), GROUPS),
    "kalman, diag": (lambda: dca.KalmanFilter(2, covariance_type="diag", max_iter=1), GROUPS),
    "kalman, paper": (lambda: dca.KalmanFilter(2, method="paper"), GROUPS),
    "topics": (lambda: dca.LatentDirichletAllocation(3), COUNTS),
    "topics, paper": (lambda: dca.LatentDirichletAllocation(3, method="paper"), COUNTS),
    "clusters": (lambda: dca.SubspaceClustering(2, 6), GROUPS),
    "clusters, landmarks": (lambda: dca.SubspaceClustering(2, 6, max_iter=0), GROUPS),
    "clusters, paper": (lambda: dca.SubspaceClustering(2, 6, method="paper"), GROUPS),
}
DENSITIES = ("predict", "predict_proba", "score", "bic")
USES = {
    "NMF": {
        "transform": lambda m, X: m.transform(X),
        "inverse_transform": lambda m, X: m.inverse_transform(np.ones((2, m.n_components_))),
        "reconstruction_err": lambda m, X: m.reconstruction_err(X),
    },
    "GaussianMixture": {
        **{
            name: (lambda m, X, name=name: getattr(m, name)(X)) for name in ("predict", "predict_proba", "score", "bic")
        },
        "score_samples": lambda m, X: m.score_samples(X),
        "sample": lambda m, X: m.sample(5),
    },
    "GaussianHMM": {
        **{
            name: (lambda m, X, name=name: getattr(m, name)(X)) for name in ("predict", "predict_proba", "score", "bic")
        },
        "lengths": lambda m, X: m.score_samples(X, [20, 40]),
        "decode": lambda m, X: m.decode(X, algorithm="map"),
        "sample": lambda m, X: m.sample(5),
        "covars": lambda m, X: (m.covars_, m.monitor_, m.get_stationary_distribution()),
    },
    "KalmanFilter": {
        **{name: (lambda m, X, name=name: getattr(m, name)(X)) for name in ("filter", "smooth", "predict")},
        "likelihood": lambda m, X: m.loglikelihood(X, [20, 40]),
        "forecast": lambda m, X: m.forecast(X, 3),
        "sample": lambda m, X: m.sample(5),
    },
    "LatentDirichletAllocation": {
        **{name: (lambda m, X, name=name: getattr(m, name)(X)) for name in ("transform", "score", "perplexity")},
        "words": lambda m, X: (m.top_words(3), m.get_anchor_words(), m.average_topics()),
        "coherence": lambda m, X: m.coherence(X, 3),
    },
    "SubspaceClustering": {
        "predict": lambda m, X: m.predict(X),
        "anchors": lambda m, X: m.anchors_by_cluster_,
    },
}
PICTURES = {
    "NMF": lambda m, X: plotting.plot_votes(m),
    "GaussianMixture": lambda m, X: plotting.plot_components(m, X),
    "GaussianHMM": lambda m, X: plotting.plot_transitions(m),
    "KalmanFilter": lambda m, X: plotting.plot_eigenvalues(m),
    "LatentDirichletAllocation": lambda m, X: plotting.plot_topic_map(m),
    "SubspaceClustering": lambda m, X: plotting.plot_cluster_anchors(m, (2, 3)),
}
SAID = {
    "describe": lambda m, X: words.describe(m),
    "facts": lambda m, X: json.dumps(words.model_facts(m), default=words.plain),
    "html": lambda m, X: m._repr_html_(),
    "report": lambda m, X: dca.report(m, data=X),  # one without data says less
    "xarray": lambda m, X: m.to_xarray(),
    "plot": lambda m, X: plt.close(PICTURES[type(m).__name__](m, X).figure),
    "again": lambda m, X: to_record(m),
}
CHEAP = {use: SAID[use] for use in ("describe", "facts", "again")}


@functools.cache
def saved(name):
    """Record and arrays of a model of each kind, and data that it was fitted to."""
    made, X = MADE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return *to_record(made().fit(X)), X


def loaded(record, arrays):
    return from_record(record, lambda name, entry: arrays[name] if arrays[name].ndim else arrays[name][()])


MISSING = object()


def array_edits(value):
    """Other arrays in the place of one."""
    yield "missing", MISSING
    yield "one more row", np.concatenate([value, value[:1]]) if value.ndim and len(value) else np.zeros((1, 1))
    yield "one row less", value[:-1] if value.ndim else value[None]
    yield "transposed", value.T.copy() if value.ndim > 1 else value[None]
    yield "empty", np.zeros((0, *value.shape[1:]), value.dtype)
    for kind in ("f4", "f8", "i8", "u1", "?"):
        with np.errstate(invalid="ignore"):
            yield kind, value.astype(kind)
    if value.size and value.dtype.kind == "f":
        for new in (np.nan, np.inf, -np.inf, -1.0, 0.0, 1.5, 999.0, 1e12, 1e99, 1e200, -1e300, 1e-300):
            yield f"an entry {new}", with_entry(value, new)
            yield f"all {new}", np.full_like(value, new)
        yield "doubled", value * 2.0
        yield "negated", -value
    elif value.size:
        for new in (-1, -7, 10**4, 2**62, -(2**63)):
            yield f"an entry {new}", with_entry(value.astype(np.int64), new)
    if value.ndim and len(value) > 1:
        yield "reversed", value[::-1].copy()


def with_entry(value, new):
    found = value.copy()
    found.flat[min(1, found.size - 1)] = new
    return found


PLAIN = {
    "missing": MISSING,
    "none": None,
    "true": True,
    "minus one": -1,
    "zero": 0,
    "one": 1,
    "seven": 7,
    "huge": 10**30,
    "half": 0.5,
    "tiny": 1e-300,
    "1e200": 1e200,
    "nan": {"float": "nan"},
    "infinity": {"float": "inf"},
    "word": "word",
    "diag": "diag",
    "full": "full",
    "auto": "auto",
    "paper": "paper",
    "list": [1, 2],
    "lists": [[1], [2], ["x"]],
    "numbers in tuples": {"tuple": [3, {"tuple": [4]}]},
    "pair": {"tuple": [5, 4]},
    "slice": {"slice": [0, "x", None]},
    "names": {"names": ["a", "b", "c", "d", "e", "f"]},
}


def edits(name):
    """All edits of a kind of model: where, what, and the part of its record that is another one then."""
    record, arrays, _ = saved(name)
    for key, value in arrays.items():
        yield from (("arrays", key, what, new) for what, new in array_edits(value))
    for part in ("attributes", "parameters"):
        names = {"feature_names_in_", "feature_dim_in_", "feature_values_in_", "fit", "_form", "labels_", "new_"}
        for key in [*record[part], *(names if part == "attributes" else ("checkpoint", "verbose", "retries", "new"))]:
            yield from ((part, key, what, new) for what, new in PLAIN.items())


def edited(name, part, key, new):
    """The model of an edit."""
    record, arrays, _ = saved(name)
    record = copy.deepcopy(record)
    if new is MISSING:
        record[part].pop(key, None)
    elif part == "arrays":
        record[part][key], arrays = describe_array(new), arrays | {key: new}
    else:
        record[part][key] = new
    return loaded(record, arrays)


def failures(name, share, first, uses):
    """Uses that fail of models that load: of each edit by itself, or of a share of them."""
    _, _, X = saved(name)
    found, n_loaded = [], 0
    for part, key, what, new in itertools.islice(edits(name), first, None, share):
        try:
            model = edited(name, part, key, new)
        except Exception:  # what `load_model` makes one error of
            continue
        n_loaded += 1
        assert (model.checkpoint, model.verbose, model.retries) == (None, False, 3)
        for use, function in uses(model).items():
            try:
                function(model, X)
            except Exception as error:
                found.append(f"{part} {key}, {what}: {use}: {type(error).__name__}: {error}")
    return found, n_loaded


@pytest.fixture(autouse=True)
def bare_arrays():
    """Models that were given names of features warn of arrays that have none, those of several sequences of one."""
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    warnings.filterwarnings("ignore", category=SequenceWarning)


@pytest.mark.parametrize("name", MADE)
def test_edited_models_are_refused_or_work(name):
    first = list(MADE).index(name)
    found, n_loaded = failures(name, SHARE, first % SHARE, lambda m: USES[type(m).__name__] | CHEAP)
    assert not found
    assert n_loaded > 3


@pytest.mark.usefixtures("unlaid")
@pytest.mark.parametrize("name", MADE)
def test_pages_and_pictures_of_edited_models(name):
    first = list(MADE).index(name)
    found, _ = failures(name, 40 * SHARE, 7 * first % SHARE, lambda m: SAID)
    assert not found


@pytest.mark.parametrize("name", MADE)
def test_models_come_back_as_they_were(name):
    record, arrays, X = saved(name)
    model = loaded(record, arrays)
    assert loaded(*to_record(model)).get_params() == model.get_params()
    for use in (USES[type(model).__name__] | CHEAP).values():
        use(model, X)
