"""What a fitted model says of itself: facts for programs, lines of text for people."""

from __future__ import annotations

from typing import Any

from dask_dca import __version__
from dask_dca.errors import without_secrets

__all__ = ["describe", "model_facts"]


def model_facts(model: Any) -> dict[str, Any]:
    """
    Collect what a fitted model says of itself.

    Parameters
    ----------
    model : estimator
        A fitted model.

    Returns
    -------
    dict
        Names and plain values, as `info --json` prints them.
    """
    given = model.get_params(deep=False)
    shown = {name: without_secrets(value) if isinstance(value, str) else value for name, value in given.items()}
    return {"model": type(model).__name__, "version": __version__, "parameters": shown} | model._facts()


def describe(model: Any) -> str:
    """
    Describe a fitted model in words and a table.

    Parameters
    ----------
    model : estimator
        A fitted model.

    Returns
    -------
    str
        A few lines of text.
    """
    n = model.n_passes_
    read = "once" if n == 1 else f"{n} times"
    several = getattr(model, "n_sequences_", 1)
    lines = [f"Fitted to {several} sequences: give those of other data too, by --lengths or lengths=."] * (several > 1)
    return "\n".join([*model._describe(), *lines, f"The fit read all rows {read}; samples of them are not counted."])
