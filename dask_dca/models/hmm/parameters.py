"""Parameters of hidden Markov models: checks of what people pass and set, and warnings of what was learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.anchoring.parameters import check_integer, check_number, check_option, is_auto
from dask_dca.errors import FewerAnchorsWarning, FloorWarning, InvalidParameterError, warn
from dask_dca.models.gaussians import COVARIANCE_TYPES, covariance_parameters, variances_of

if TYPE_CHECKING:
    from dask_dca.geometry.arrays import Floats, Mask

WIDEST: Final = 2000  # features up to which covariances of p x p are formed
_ROUNDING: Final = 1e-6


@dataclass(frozen=True)
class HMMSettings:
    """Checked parameters of a hidden Markov model."""

    covariance_type: str
    max_iter: int
    tol: float
    min_covar: float | None
    n_directions: int | None
    seed: int
    holes: bool = False  # whether entries of frames are missing


def check_hmm(model: Any, n_features: int) -> HMMSettings:
    """Check the parameters of a model before a fit.

    Returns the same, checked and resolved.
    Raises InvalidParameterError: one of them is unknown or out of range.
    """
    anchoring = model._anchoring()
    kind = check_option("covariance_type", model.covariance_type, (*COVARIANCE_TYPES, "auto"))
    kind = "diag" if kind == "auto" else kind
    if kind in ("full", "tied") and n_features > WIDEST:
        msg = (
            f"covariance_type={kind!r} forms matrices of {n_features} x {n_features}; above {WIDEST} features use "
            "covariance_type='diag', or reduce the data first"
        )
        raise InvalidParameterError(msg)
    check_option("algorithm", model.algorithm, ("viterbi", "map"))
    check_option("recursion", model.recursion, ("auto", "segments", "scan"))
    passes = check_integer("max_iter", model.max_iter if model.n_iter is None else model.n_iter, 0)
    least = None if is_auto(model.min_covar) else check_number("min_covar", model.min_covar, positive=True, auto=True)
    tol = check_number("tol", model.tol, -np.inf)
    return HMMSettings(kind, passes, tol, least, anchoring.n_subproblems, anchoring.seed)


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


def whole_covariances(covariances: Floats, covariance_type: str, k: int, p: int) -> Floats:
    """Write covariances as one matrix for each state, as hmmlearn's `covars_` does.

    covariances: in the shape of their type; k, p: number of states and of features. Returns (k, p, p): the matrices.
    """
    if covariance_type == "full":
        return covariances.copy()
    if covariance_type == "tied":
        return np.repeat(covariances[None], k, axis=0)
    variances = covariances if covariance_type == "diag" else np.repeat(covariances[:, None], p, axis=1)
    return variances[:, :, None] * np.eye(p)


def count_parameters(covariance_type: str, k: int, p: int) -> int:
    """Count the free parameters of a hidden Markov model.

    k, p: number of states and of features.
    """
    return k - 1 + k * (k - 1) + k * p + covariance_parameters(covariance_type, k, p)


def warn_of_floor(resting: Mask, covariances: Floats, covariance_type: str) -> None:
    """Warn of states whose variances rest on their least value.

    resting (k,): which ones do; covariances: in the shape of their type.
    """
    if not resting.any():
        return
    variances = variances_of(covariances, covariance_type)
    least = float(variances[resting].max() if len(variances) == len(resting) else variances.max())
    warn(
        f"variances of {int(resting.sum())} of {len(resting)} states rest on their least value (up to {least:.3g}). "
        "It is in proportion to the variance of all rows, which rows or clusters far from the others raise, and it "
        f"decides what is told apart: take far rows out, or set min_covar below the variances that count",
        FloorWarning,
    )


def warn_of_few_values(distinct: int | None, n_states: int) -> bool:
    """Warn of more states than the frames have values.

    distinct: number of distinct frames, if it was counted. Returns whether there was a warning.
    """
    if distinct is None or distinct >= n_states:
        return False
    alike = "states with the same values differ by their transitions alone"
    then = "one state is fitted" if distinct == 1 else alike
    msg = f"the frames have {distinct} distinct values, fewer than n_components={n_states}: {then}; use {distinct}"
    warn(msg, FewerAnchorsWarning)
    return True
