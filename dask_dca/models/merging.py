"""`merge`: one model of what two models saw, where their rows can't be put together."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from dask_dca.errors import InvalidParameterError

__all__ = ["merge"]


def merge(model: Any, other: Any) -> Any:
    """
    Put two models of different rows together, as if one had seen the rows of both.

    Two sites that can't share rows each fit a model by `partial_fit`, and send no more than the model.

    Parameters
    ----------
    model, other : NMF, GaussianMixture, GaussianHMM, CategoricalHMM, KalmanFilter or LatentDirichletAllocation
        NMF: models fitted by `partial_fit` with the same parameters, `random_state` among them, which sets the planes.
        The others: models that went on by `partial_fit`, each with rows of its own, from one fitted model that both
        sites had; what they had in common counts once.

    Returns
    -------
    object
        A new model. Of NMF the same as if the rows of `other` had arrived after those of `model`, whose numbers are
        counted on. Of the others the M-step of what both have seen: after one batch each, the same as if the two
        batches had been one, except for rounding.

    Raises
    ------
    InvalidParameterError
        The models are of two kinds, not fitted by `partial_fit`, or by other planes; or they began with two fits, whose
        components, states or topics have nothing to do with each other.

    See Also
    --------
    dask_dca.NMF.partial_fit : Fits them.

    Examples
    --------
    >>> import numpy as np
    >>> import dask_dca as dca
    >>> rng = np.random.default_rng(0)
    >>> X = rng.dirichlet(np.ones(3), 100) @ rng.random((3, 8))
    >>> here, there = dca.NMF(3).partial_fit(X[:60]), dca.NMF(3).partial_fit(X[60:])
    >>> both = dca.merge(here, there)
    >>> bool((both.components_ == dca.NMF(3).partial_fit(X).components_).all())
    True
    >>> from copy import deepcopy
    >>> start = dca.GaussianMixture(2).fit(X[:40])
    >>> here, there = deepcopy(start).partial_fit(X[40:70]), deepcopy(start).partial_fit(X[70:])
    >>> dca.merge(here, there).n_samples_seen_
    100
    """
    if type(model) is not type(other):
        msg = f"a {type(model).__name__} and a {type(other).__name__} can't be merged; pass two models of one class"
        raise InvalidParameterError(msg)
    if not hasattr(model, "_merged"):
        msg = f"models that can be merged are those with partial_fit; received {type(model).__name__}"
        raise InvalidParameterError(msg)
    for part in (model, other):
        check_is_fitted(part)
    return model._merged(other)
