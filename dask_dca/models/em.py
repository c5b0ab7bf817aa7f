"""The one driver of expectation-maximisation: what `tol`, `max_iter`, `n_iter_` and `log_likelihoods_` mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

M = TypeVar("M")
S = TypeVar("S")


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
    def n_iter(self) -> int:
        """How many steps were made."""
        return len(self.log_likelihoods) - 1


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
