"""Advice on keywords and attributes of other libraries that have no counterpart here."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Container
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

_CLUSTER_DECIDES: Final = "leave it out: the active Dask client, or Dask's scheduler, decides on workers and threads"
_ANCHORED_START: Final = "leave it out: anchors are the start, so no restarts are needed"
_KNOWN_FILTER: Final = "use KalmanFilter.from_parameters(...) for known parameters, or init=dict(...) to start there"
_CONSTANT: Final = "leave it out, and make a filter of each step's parameters by KalmanFilter.from_parameters(...)"
_NO_OFFSETS: Final = (
    "use observation_offsets=C @ c, initial_state_mean=m - c, where c = np.linalg.solve(np.eye(len(A)) - A, offsets)"
)
_COLUMNS: Final = "leave it out: it is the number of columns"
_NO_ERROR: Final = "use reconstruction_err(X), one pass: a fit with basis='rows' needs no coefficients"
_ONLINE: Final = "leave it out: it belongs to online learning, which anchors replace"
_FIXED_STEPS: Final = "leave it out: a document's mixture takes a fixed number of steps"
_ALL_TOPICS: Final = "leave it out: transform gives the probabilities of all topics"
_NO_PRIORS: Final = "leave it out: there are no priors"
_SIDES: Final = ("transition", "observation")
_KEYWORDS: Final = {
    **dict.fromkeys(("n_jobs", "n_threads", "workers"), _CLUSTER_DECIDES),
    **dict.fromkeys(("n_init", "init", "init_params"), _ANCHORED_START),
    **dict.fromkeys(("n_iter", "max_epochs"), "use max_iter=, full passes over the data"),
    "tol": "leave it out: max_iter= is the number of passes",
    "seed": "use random_state=",
    **dict.fromkeys(("k", "n_topics", "num_topics", "n_states", "n_clusters"), "use n_components="),
    "alpha": "use alpha_W= and alpha_H= of NMF, doc_topic_prior= of topics",
    "eta": "use topic_word_prior=",
    "warm_start": "leave it out: every fit starts from anchors",
    "verbose_interval": "leave it out: verbose=True shows each pass",
    "algorithm_params": "leave it out: anchors come first, then EM passes",
    "copy_x": "leave it out: the data are never changed",
    "batch_size": "leave it out: the chunks of the data are the batches",
}
_MODEL_KEYWORDS: Final = {
    "NMF": {
        "init": "leave it out: anchors are the start (basis='free' is the factorization that scikit-learn finds)",
        "solver": "leave it out: coefficients are non-negative least squares",
        "shuffle": "leave it out: the order of the rows changes nothing",
        "regularization": "use alpha_W= and alpha_H=",
    },
    "GaussianMixture": {
        "n_init": "leave it out: split-and-merge moves take the place of restarts",
    },
    "LatentDirichletAllocation": {
        "learning_method": "leave it out: fits read the data a few times, whatever their size",
        **dict.fromkeys(("learning_decay", "learning_offset", "update_every", "decay", "offset"), _ONLINE),
        **dict.fromkeys(("evaluate_every", "eval_every"), "call perplexity(X) on documents held out"),
        "total_samples": "leave it out: the number of documents is that of the rows",
        "perp_tol": "use max_iter=, passes over the documents",
        **dict.fromkeys(("mean_change_tol", "max_doc_update_iter", "iterations", "gamma_threshold"), _FIXED_STEPS),
        "id2word": "give the words as columns of a DataFrame, or to top_words(feature_names=)",
        "chunksize": "leave it out: the chunks of the data are read one by one",
        "passes": "use max_iter=, passes over the documents",
        "corpus": "leave it out, and fit its counts: fit(gensim.matutils.corpus2csc(corpus).T)",
        **dict.fromkeys(("minimum_probability", "per_word_topics"), _ALL_TOPICS),
        "distributed": "leave it out: an active Dask client is used",
    },
    "GaussianHMM": {
        "n_starts": "leave it out: anchored starts are always compared, and the best one's states split and merged",
        "implementation": "leave it out: recursions are scaled",
        **dict.fromkeys(("startprob_prior", "transmat_prior", "emissionprob_prior"), _NO_PRIORS),
        **dict.fromkeys(("means_prior", "means_weight"), _NO_PRIORS),
        **dict.fromkeys(("covars_prior", "covars_weight"), "use min_covar=, the least variance"),
    },
    "KalmanFilter": {
        "n_components": "use n_dim_state=",
        **dict.fromkeys(("k_states", "k_factors", "dim_x"), "use n_dim_state="),
        **dict.fromkeys(("n_dim_obs", "k_endog", "dim_z"), _COLUMNS),
        "em_vars": "use params=, the same names",
        **{f"{part}_{name}": _KNOWN_FILTER for part in _SIDES for name in ("matrices", "covariance")},
        **dict.fromkeys(("initial_state_mean", "initial_state_covariance"), _KNOWN_FILTER),
        **{f"{part}_offsets": "leave it out: the mean of each channel is estimated" for part in _SIDES},
    },
    "KalmanFilter.from_parameters": {
        "transition_offsets": _NO_OFFSETS,
        "random_state": "use sample(n, random_state=)",
        "em_vars": "use em(X, em_vars=)",
        **dict.fromkeys(("n_dim_state", "n_dim_obs"), "leave it out: matrices have that size"),
    },
    "KalmanFilter.filter_update": {
        f"{part}_{name}": _CONSTANT for part in _SIDES for name in ("matrix", "offset", "covariance")
    },
    "SubspaceClustering": {
        "n_init": "leave it out: the cut of the graph is searched from several starts",
        "n_neighbors": "leave it out: each row keeps the landmarks that express it",
        **dict.fromkeys(("affinity", "gamma"), "leave it out: rows are similar where they express each other"),
    },
}


def advice_on(model: str, keyword: str, known: list[str]) -> str:
    """Return a message with advice on a keyword that a model does not have.

    model: name of its class, or of a method; known: the keywords that it has.
    """
    own = _MODEL_KEYWORDS.get("GaussianHMM" if model == "CategoricalHMM" else model, {})
    advice = own.get(keyword, _KEYWORDS.get(keyword))
    if advice is None:
        near = difflib.get_close_matches(keyword, known, 1)
        advice = f"did you mean {near[0]}=?" if near else f"it takes {', '.join(known)}"
    return f"{model} has no keyword {keyword!r}; {advice}"


def advised(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Add advice to the error for a keyword that a method does not have."""
    known = method.__code__.co_varnames[1 : method.__code__.co_argcount]

    @functools.wraps(method)
    def _call(own: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                raise TypeError(advice_on(method.__qualname__, name, list(known)))
        return method(own, *args, **kwargs)

    return _call


_ATTRIBUTES: Final = {
    "NMF": {"n_features_": "use n_features_in_", "reconstruction_err_": _NO_ERROR},
    "GaussianMixture": {
        "lower_bounds_": "use log_likelihoods_",
        "labels_": "use predict(X)",
        "cluster_centers_": "use means_",
        "inertia_": "use score(X)",
    },
    "LatentDirichletAllocation": {
        "exp_dirichlet_component_": "use components_, whose rows sum to one",
        "n_batch_iter_": "use n_passes_",
        "topic_word_prior_": "use topic_word_prior",
        "get_topics": "use components_",
        "get_document_topics": "use transform(X)",
        "show_topics": "use top_words()",
        "print_topics": "use top_words()",
        "show_topic": "use top_words()",
        "log_perplexity": "use perplexity(X)",
        "update": "use partial_fit(X)",
        "random_state_": "use random_state",
    },
    "KalmanFilter": {
        "smooth_sample": "use smooth(X) and sample(n)",
        "n_dim_obs": "use n_features_in_",
        "em_vars": "use params",
        "transition_offsets": "states have none: observation_offsets_ holds the mean of each channel",
    },
}


def _advice_on_attribute(model: str, name: str, fitted: Container[str]) -> str:
    """Return advice on an attribute that a model does not have; an empty text if there is none."""
    own = _ATTRIBUTES.get(model, {}).get(name)
    if own is None and f"{name}_" in fitted:
        own = f"fitted attributes end in an underscore: {name}_"
    return f"; {own}" if own else ""


class KeywordAdvice:
    """Mix-in that adds advice to the errors for keywords and attributes of other libraries."""

    def __getattr__(self, name: str) -> Any:
        """Raise an AttributeError with advice."""
        cls = type(self)
        own: Any = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
        if hasattr(own, "__get__"):  # a property or method, which raises its own error
            return own.__get__(self, cls)
        advice = _advice_on_attribute(cls.__name__, name, getattr(cls, "_fitted", ()))
        msg = f"{cls.__name__!r} object has no attribute {name!r}{advice}"
        raise AttributeError(msg, name=name, obj=self)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Raise a TypeError with advice if there is a keyword that the model does not have, or a value too many."""
        known = cls._get_param_names()  # type: ignore[attr-defined]  # of scikit-learn's BaseEstimator
        for name in kwargs:
            if name not in known:
                raise TypeError(advice_on(cls.__name__, name, known))
        code = cls.__init__.__code__
        kalman = cls.__name__ == "KalmanFilter"
        if len(args) >= code.co_argcount or (kalman and np.ndim(args) > 1):
            places = ", ".join(code.co_varnames[1 : code.co_argcount])
            advice = _KNOWN_FILTER if kalman else "give the others by name"
            received = f"{len(args)} values" if len(args) > 1 else "a matrix"
            msg = f"{cls.__name__} takes {places} by position, and received {received}; {advice}"
            raise TypeError(msg)
        return super().__new__(cls)
