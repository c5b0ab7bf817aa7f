"""Expectation-maximisation: what `tol`, `max_iter`, `n_iter_`, `log_likelihoods_` mean, and starts by `init=`."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import numpy as np
from sklearn.base import clone

from dask_dca.anchoring.parameters import check_integer
from dask_dca.errors import InvalidParameterError
from dask_dca.models.attributes import COVARIANCES
from dask_dca.models.fitted import definite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dask_dca.geometry.arrays import Floats

_ROUNDING: Final = 1e-6  # of sums of probabilities
_OF_FORMS: Final = ("covariances_", "precisions_")  # whose first dimension may be another than parts
_CLONED: Final = {"_metadata_request", "_sklearn_output_config"}  # what scikit-learn clones beside parameters
M = TypeVar("M")
S = TypeVar("S")


class StartsAnywhere:
    """A model with `init=`, which stays fitted when the model is cloned."""

    init: Any
    warm_start: Any

    def _start(self) -> Any:  # no property: pages of models ask for all of these
        """Where a fit starts: `init`, or with `warm_start` the model as the last fit left it; None for anchors."""
        if not isinstance(self.warm_start, bool | np.bool_):
            msg = f"warm_start must be True or False; received {self.warm_start!r:.80}"
            raise InvalidParameterError(msg)
        before: Any = vars(self).get("_before_fit", self)
        return before if self.warm_start and before.__sklearn_is_fitted__() else self.init

    def __sklearn_clone__(self) -> Self:
        """Clone the parameters, the start excepted: scikit-learn would empty a model that is one."""
        given: dict[str, Any] = self.get_params(deep=False)  # type: ignore[attr-defined]  # of BaseEstimator
        found = type(self)(**{key: own if key == "init" else clone(own, safe=False) for key, own in given.items()})
        for name in _CLONED.intersection(vars(self)):
            setattr(found, name, copy.deepcopy(getattr(self, name)))
        return found


def given_start(model: Any, words: Mapping[str, str]) -> dict[str, Floats]:
    """Read the `init` of a model.

    words: what parameters are called in a dict, and as fitted attributes. Returns those that are given, by the name of
    the attribute: copies, so that a fit changes none.
    Raises InvalidParameterError: neither a fitted model nor a dict of such words.
    """
    init = model._start()
    if init is None:
        return {}
    if isinstance(init, type(model)):
        found = {name: getattr(init, name) for name in words.values() if hasattr(init, name)}
        if not found:
            msg = "init is a model that is not fitted; fit it first, or pass its parameters: init=dict(...)"
            raise InvalidParameterError(msg)
    elif isinstance(init, dict):
        known = {**words, **{name: name for name in words.values()}}
        strange = [word for word in init if word not in known]
        if strange:
            msg = f"init has no parameter {strange[0]!r}; it takes {', '.join(words)}"
            raise InvalidParameterError(msg)
        found = {known[word]: value for word, value in init.items() if value is not None}
    else:
        msg = f"init must be a fitted {type(model).__name__}, or a dict of {', '.join(words)}; received {init!r:.80}"
        raise InvalidParameterError(msg)
    return {name: given_numbers(name.rstrip("_"), value) for name, value in found.items()}


def given_numbers(name: str, value: Any) -> Floats:
    """Copy a parameter of a start.

    Raises InvalidParameterError: it is no array of numbers.
    """
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        msg = f"{name} must be an array of numbers; received {value!r:.80}"
        raise InvalidParameterError(msg) from error


def one_of_shapes(name: str, value: Floats, shape: tuple[int, ...]) -> Floats:
    """Check a parameter of a start.

    Raises InvalidParameterError: of another shape, or not finite.
    """
    if value.shape != shape:
        msg = f"{name} of init has shape {value.shape}; it must have {shape}"
        raise InvalidParameterError(msg)
    if not np.isfinite(value).all():
        msg = f"{name} of init holds NaN or infinity; pass finite numbers"
        raise InvalidParameterError(msg)
    return value


def check_covariances(values: Any, covariance_type: str, k: int, p: int, name: str = "covars_") -> Floats:
    """Check covariances that were given or set by hand, or their inverses.

    values: "full" (k, p, p), "tied" (p, p), "diag" (k, p), "spherical" (k,), "tied-spherical" (); k, p: number of parts
    and of features.
    Raises InvalidParameterError: of another shape, or not positive definite.
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


def count_of_start(given: Mapping[str, Floats], n_parts: int | None, parameter: str = "n_components") -> int | None:
    """Tell the number of parts that a start has, if it tells any.

    n_parts: what was asked for; None for "auto".
    Raises InvalidParameterError: both are there, and differ.
    """
    counts = [len(np.atleast_1d(value)) for name, value in given.items() if name not in _OF_FORMS]
    if not counts:
        return n_parts
    if n_parts is not None and n_parts != counts[0]:
        msg = f"{parameter}={n_parts}, and the start has {counts[0]}; pass {parameter}={counts[0]}"
        raise InvalidParameterError(msg)
    return counts[0]


def most_steps(model: Any) -> int:
    """Return `max_iter`, or `n_iter`, its other name.

    Raises InvalidParameterError: no number of steps, or both are given and differ.
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
    """Check which parameters are meant, as hmmlearn says it.

    letters: those of the model's parameters.
    Raises InvalidParameterError: no text of such letters.
    """
    if not isinstance(given, str) or not set(given) <= set(letters):
        msg = f"{name} must be letters of {letters!r}, such as {letters[1:]!r}; received {given!r}"
        raise InvalidParameterError(msg)


def check_chain(startprob: Any, transmat: Any, k: int) -> tuple[Floats, Floats]:
    """Check probabilities that may have been set by hand.

    k: number of states, as the means have it. Returns startprob, transmat: the same, their sums exactly one.
    Raises InvalidParameterError: of another shape, negative, not finite, or rows that do not sum to one.
    """
    start, matrix = np.asarray(startprob, dtype=np.float64), np.asarray(transmat, dtype=np.float64)
    for name, values, shape in (("startprob_", start, (k,)), ("transmat_", matrix, (k, k))):
        if values.shape != shape:
            msg = f"{name} has shape {values.shape}, but the means are those of {k} states: it must have shape {shape}"
            raise InvalidParameterError(msg)
    return check_distribution("startprob_", start), check_distribution("transmat_", matrix)


def check_distribution(name: str, values: Floats) -> Floats:
    """Check probabilities. Returns the same, the sums of the last axis exactly one.

    Raises InvalidParameterError: they are negative, not finite, or do not sum to one.
    """
    total = values.sum(axis=-1, keepdims=True)
    if not np.isfinite(values).all() or (values < 0.0).any() or np.abs(total - 1.0).max(initial=0.0) > _ROUNDING:
        msg = f"{name} must hold probabilities, its last axis summing to one; sums are {total[..., 0]}"
        raise InvalidParameterError(msg)
    return np.asarray(values / total)


@dataclass(frozen=True)
class Refined(Generic[M, S]):
    """A model after steps of expectation-maximisation.

    seen: what the last look at the data gave, of this model; log_likelihoods: mean per row, before each step and at the
    end; converged: whether the last step raised it by less than the tolerance.
    """

    model: M
    seen: S
    log_likelihoods: list[float]
    converged: bool

    @property
    def history(self) -> dict[str, Any]:
        """How the fit went, as fitted attributes."""
        rise = np.array(self.log_likelihoods)
        return {"log_likelihoods_": rise, "n_iter_": len(rise) - 1, "converged_": self.converged}


def expectation_maximisation(
    model: M,
    look: Callable[[M], tuple[S, float]],
    step: Callable[[M, S], M],
    *,
    max_iter: int,
    tol: float,
) -> Refined[M, S]:
    """Run steps of expectation-maximisation; the data are looked at once more than there are steps.

    look: the E-step, a pass: what a model sees in the data, and the mean log likelihood per row; step: the M-step;
    max_iter: steps at most; tol: they end where the mean log likelihood per row rises by less.
    """
    history: list[float] = []
    while True:
        seen, log_likelihood = look(model)
        history.append(log_likelihood)
        converged = len(history) > 1 and history[-1] - history[-2] < tol
        if converged or len(history) > max_iter:
            return Refined(model, seen, history, converged)
        model = step(model, seen)


def corrected_maximisation(
    model: M,
    look: Callable[[M], tuple[S, float]],
    step: Callable[[M, S], tuple[M, float, float]],
    *,
    max_iter: int,
    tol: float,
) -> Refined[M, S]:
    """Run passes after each of which the step goes on with a sample; none of them only looks, unless all do.

    look: as for `expectation_maximisation`; step: the next model, how much its mean log likelihood per row is predicted
    to be above the last one's, and how much another pass may bring: passes end where that is less than tol; max_iter:
    passes at most; with none the data are looked at once. Returns what the last pass saw, of the model before; the last
    log likelihood is predicted.
    """
    history: list[float] = []
    while True:
        seen, log_likelihood = look(model)
        history.append(log_likelihood)
        if not max_iter:
            return Refined(model, seen, history, False)
        model, gain, left = step(model, seen)
        if left < tol or len(history) == max_iter:
            return Refined(model, seen, [*history, log_likelihood + gain], left < tol)
