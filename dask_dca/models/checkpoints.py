"""What a fit is of, so that a checkpoint resumes this fit and no other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca import __version__
from dask_dca.engine.resume import Checkpoint, open_checkpoint
from dask_dca.errors import InvalidParameterError

if TYPE_CHECKING:
    from dask_dca.engine.rows import Rows

__all__ = ["fit_checkpoint"]

_NO_MATTER: Final = ("checkpoint", "retries", "verbose")  # parameters that don't change the result


def fit_checkpoint(model: Any, rows: Rows) -> Checkpoint:
    """
    Open the checkpoint of a fit.

    Parameters
    ----------
    model : AnchorModel
        The model that is fitted.
    rows : Rows
        The data.

    Returns
    -------
    Checkpoint
        Keeps the passes over these rows.

    Raises
    ------
    InvalidParameterError
        `checkpoint` is no path, or `random_state` is no integer, so that no two fits are the same.
    CheckpointError
        The checkpoint belongs to another fit, or can't be used.
    """
    path, seed = model.checkpoint, model.random_state
    if not isinstance(path, str | os.PathLike):
        msg = f"checkpoint must be a path or URL; received {path!r}"
        raise InvalidParameterError(msg)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        msg = f"a checkpoint needs an integer random_state, since a resumed fit must draw the same; received {seed!r}"
        raise InvalidParameterError(msg)
    given = {name: _plain(value) for name, value in model.get_params(deep=False).items() if name not in _NO_MATTER}
    facts = {"model": type(model).__name__, "version": __version__, "parameters": given}
    data = {"rows": rows.n_rows, "features": rows.n_features, "dtype": rows.dtype.str}  # and, once read, their content
    return open_checkpoint(str(path), facts | {"data": data}, rows.source)


def _plain(value: Any) -> Any:
    """A parameter as JSON holds it."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
