"""What every fit does: it changes the model only when it has ended, and runs on one thread of BLAS."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from dask_dca.engine.threads import one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OF_FIT", "whole_fit"]

OF_FIT: Final = "_names_of_fit"  # attribute: names of what the last fit set

M = TypeVar("M")
P = ParamSpec("P")


def whole_fit(fit: Callable[Concatenate[M, P], M]) -> Callable[Concatenate[M, P], M]:
    """
    Make a fit all or nothing.

    The fit works on a copy of the model that lacks what an earlier fit found. When it has ended, the model becomes
    the copy in one step; a fit that fails or is interrupted leaves the model as it was, and until then methods of
    the model, called in other threads, answer by the earlier fit.

    Parameters
    ----------
    fit : callable
        A method `fit(self, ...)` that sets attributes of the model.

    Returns
    -------
    callable
        The method, which returns the model.
    """

    @functools.wraps(fit)
    def _fitted(self: M, /, *args: P.args, **kwargs: P.kwargs) -> M:
        earlier = {OF_FIT, *vars(self).get(OF_FIT, ())}
        start = {name: value for name, value in vars(self).items() if name not in earlier}
        trial = object.__new__(type(self))
        vars(trial).update(start)
        with one_blas_thread():
            fit(trial, *args, **kwargs)
        found = [name for name, value in vars(trial).items() if name not in start or start[name] is not value]
        vars(trial)[OF_FIT] = frozenset(found)
        self.__dict__ = vars(trial)
        return self

    return _fitted
