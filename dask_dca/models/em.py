"""Expectation-maximisation: loops over E- and M-steps, starts given by `init`, and checks of given parameters."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np
from sklearn.base import clone

from dask_dca.anchoring.parameters import check_integer
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.arrays import Floats
from dask_dca.models.attributes import COVARIANCES
from dask_dca.models.fitted import SUM_TOL, definite

_FORM_DEPENDENT: Final = ("covariances_", "precisions_")  # attributes whose first dimension depends on the form
_CLONED_ATTRIBUTES: Final = {"_metadata_request", "_sklearn_output_config"}  # cloned by scikit-learn beside parameters
M = TypeVar("M")
S = TypeVar("S")


class InitMixin:
    """Mix-in of models with `init` and `warm_start`."""

    init: Any
    warm_start: Any

    def _start(self) -> Any:  # not a property: pages of models evaluate all of these
        """Return the start of a fit: `init`, or with `warm_start` the model after the last fit; None for anchors."""
        if not isinstance(self.warm_start, bool | np.bool_):
            msg = f"warm_start must be True or False; received {self.warm_start!r:.80}"
            raise InvalidParameterError(msg)
        before: Any = vars(self).get("_before_fit", self)
        return before if self.warm_start and before.__sklearn_is_fitted__() else self.init

    def __sklearn_clone__(self) -> Self:
        """Clone the parameters, except for `init`: scikit-learn would return an unfitted copy of a fitted model."""
        given: dict[str, Any] = self.get_params(deep=False)  # type: ignore[attr-defined]  # of BaseEstimator
        found = type(self)(**{key: own if key == "init" else clone(own, safe=False) for key, own in given.items()})
        for name in _CLONED_ATTRIBUTES.intersection(vars(self)):
            setattr(found, name, copy.deepcopy(getattr(self, name)))
        return found


def read_init(model: Any, keys: Mapping[str, str]) -> dict[str, Floats]:
    """Read the `init` of a model: copies of the given parameters, by attribute.

    keys: keys of a dict, and the fitted attributes that they stand for.
    Raises InvalidParameterError: `init` is neither a fitted model nor a dict with such keys.
    """
    init = model._start()
    if init is None:
        return {}
    if isinstance(init, type(model)):
        found = {name: getattr(init, name) for name in keys.values() if hasattr(init, name)}
        if not found:
            msg = "init is a model that is not fitted; fit it first, or pass its parameters: init=dict(...)"
            raise InvalidParameterError(msg)
    elif isinstance(init, dict):
        known = {**keys, **{name: name for name in keys.values()}}
        unknown = [word for word in init if word not in known]
        if unknown:
            msg = f"init has no parameter {unknown[0]!r}; it takes {', '.join(keys)}"
            raise InvalidParameterError(msg)
        found = {known[word]: value for word, value in init.items() if value is not None}
    else:
        msg = f"init must be a fitted {type(model).__name__}, or a dict of {', '.join(keys)}; received {init!r:.80}"
        raise InvalidParameterError(msg)
    return {name: copy_numbers(name.rstrip("_"), value) for name, value in found.items()}


def copy_numbers(name: str, value: Any) -> Floats:
    """Copy a parameter of a start to a float64 array.

    Raises InvalidParameterError: it is not an array of numbers.
    """
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        msg = f"{name} must be an array of numbers; received {value!r:.80}"
        raise InvalidParameterError(msg) from error


def check_shape(name: str, value: Floats, shape: tuple[int, ...]) -> Floats:
    """Check the shape of a parameter of a start, and return it.

    Raises InvalidParameterError: it has another shape, or is not finite.
    """
    if value.shape != shape:
        msg = f"{name} of init has shape {value.shape}; it must have {shape}"
        raise InvalidParameterError(msg)
    if not np.isfinite(value).all():
        msg = f"{name} of init holds NaN or infinity; pass finite numbers"
        raise InvalidParameterError(msg)
    return value


def check_covariances(values: Any, covariance_type: str, k: int, p: int, name: str = "covars_") -> Floats:
    """Check covariances, or their inverses, of k parts and p features that were given or set by hand.

    Raises InvalidParameterError: they have another shape than their type, or are not positive definite.
    """
    found = np.asarray(values, dtype=np.float64)
    dims = COVARIANCES[covariance_type]
    shape = tuple(k if dim == "parts" else p for dim in dims)
    if found.shape != shape:
        msg = f"{name} of covariance_type={covariance_type!r} must have shape {shape}; received {found.shape}"
        raise InvalidParameterError(msg)
    if not np.isfinite(found).all() or definite(found, dims):
        msg = f"{name} of covariance_type={covariance_type!r} must be positive definite (and symmetric, and finite)"
        raise InvalidParameterError(msg)
    return found


def count_in_init(given: Mapping[str, Floats], n_parts: int | None, parameter: str = "n_components") -> int | None:
    """Return the number of parts of a start, or `n_parts` (None for "auto") if the start doesn't determine it.

    Raises InvalidParameterError: the two differ.
    """
    counts = [len(np.atleast_1d(value)) for name, value in given.items() if name not in _FORM_DEPENDENT]
    if not counts:
        return n_parts
    if n_parts is not None and n_parts != counts[0]:
        msg = f"{parameter}={n_parts}, and the start has {counts[0]}; pass {parameter}={counts[0]}"
        raise InvalidParameterError(msg)
    return counts[0]


def max_steps(model: Any) -> int:
    """Return the maximum number of steps: `max_iter`, or `n_iter`, its alias.

    Raises InvalidParameterError: it is not a number of steps, or both are given and differ.
    """
    steps = check_integer("max_iter", model.max_iter, 0)
    if model.n_iter is None:
        return steps
    named = check_integer("n_iter", model.n_iter, 0)
    if steps not in (named, inspect.signature(type(model)).parameters["max_iter"].default):
        msg = f"n_iter={named} and max_iter={steps} are one parameter: pass one of them"
        raise InvalidParameterError(msg)
    return named


def check_letters(name: str, given: Any, letters: str) -> None:
    """Check a selection of parameters by letters, as in hmmlearn; letters: those of the model's parameters.

    Raises InvalidParameterError: it is not a text of such letters.
    """
    if not isinstance(given, str) or not set(given) <= set(letters):
        msg = f"{name} must be letters of {letters!r}, such as {letters[1:]!r}; received {given!r}"
        raise InvalidParameterError(msg)


def check_chain(startprob: Any, transmat: Any, k: int) -> tuple[Floats, Floats]:
    """Check start and transition probabilities of k states that may have been set by hand; return them normalised.

    Raises InvalidParameterError: they have another shape, are negative or not finite, or rows don't sum to one.
    """
    start, matrix = np.asarray(startprob, dtype=np.float64), np.asarray(transmat, dtype=np.float64)
    for name, values, shape in (("startprob_", start, (k,)), ("transmat_", matrix, (k, k))):
        if values.shape != shape:
            msg = f"{name} has shape {values.shape}, but the means are those of {k} states: it must have shape {shape}"
            raise InvalidParameterError(msg)
    return check_distribution("startprob_", start), check_distribution("transmat_", matrix)


def check_distribution(name: str, values: Floats) -> Floats:
    """Check probabilities, and return them normalised along the last axis.

    Raises InvalidParameterError: they are negative or not finite, or don't sum to one.
    """
    total = values.sum(axis=-1, keepdims=True)
    if not np.isfinite(values).all() or (values < 0.0).any() or np.abs(total - 1.0).max(initial=0.0) > SUM_TOL:
        msg = f"{name} must hold probabilities, its last axis summing to one; sums are {total[..., 0]}"
        raise InvalidParameterError(msg)
    return np.asarray(values / total)


@dataclass(frozen=True)
class Refined(Generic[M, S]):
    """A model after steps of expectation-maximisation.

    seen: statistics of the last E-step; log_likelihoods: mean per row, before each step and at the end; converged:
    whether the last step raised it by less than the tolerance.
    """

    model: M
    seen: S
    log_likelihoods: list[float]
    converged: bool

    @property
    def history(self) -> dict[str, Any]:
        """Log likelihoods, number of steps and convergence, as fitted attributes."""
        rise = np.array(self.log_likelihoods)
        return {"log_likelihoods_": rise, "n_iter_": len(rise) - 1, "converged_": self.converged}


def expectation_maximisation(
    model: M,
    e_step: Callable[[M], tuple[S, float]],
    m_step: Callable[[M, S], M],
    *,
    max_iter: int,
    tol: float,
) -> Refined[M, S]:
    """Run up to `max_iter` steps of expectation-maximisation, and a last E-step.

    e_step: a pass that returns the statistics of the data under a model, and their mean log likelihood per row; tol:
    steps end when this rises by less.
    """
    history: list[float] = []
    while True:
        seen, log_likelihood = e_step(model)
        history.append(log_likelihood)
        converged = len(history) > 1 and history[-1] - history[-2] < tol
        if converged or len(history) > max_iter:
            return Refined(model, seen, history, converged)
        model = m_step(model, seen)


def corrected_maximisation(
    model: M,
    e_step: Callable[[M], tuple[S, float]],
    corrected_step: Callable[[M, S], tuple[M, float, float]],
    *,
    max_iter: int,
    tol: float,
) -> Refined[M, S]:
    """Run up to `max_iter` passes, each followed by steps on a sample; a single E-step if there are none.

    e_step: as for `expectation_maximisation`; corrected_step: returns the next model, the predicted rise of the mean
    log likelihood per row, and that of another pass: passes end when it is less than `tol`. The statistics returned are
    those of the model before the last step, and the last log likelihood is predicted.
    """
    history: list[float] = []
    while True:
        seen, log_likelihood = e_step(model)
        history.append(log_likelihood)
        if not max_iter:
            return Refined(model, seen, history, False)
        model, gain, remaining_gain = corrected_step(model, seen)
        if remaining_gain < tol or len(history) == max_iter:
            return Refined(model, seen, [*history, log_likelihood + gain], remaining_gain < tol)
