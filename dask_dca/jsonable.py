"""Values as JSON and back; what JSON has no word for becomes a dictionary of one entry."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dask_dca.errors import ModelFileError

__all__ = ["from_json", "to_json"]


def to_json(value: Any, name: str) -> Any:
    """
    Turn a value into what JSON can hold.

    Parameters
    ----------
    value : object
        None, bool, int, float, str, a slice, list or tuple of these, an array of integers (it comes back as a
        list), or a one-dimensional array of strings.
    name : str
        Its name, for the message.

    Returns
    -------
    object
        The same in JSON's types.

    Raises
    ------
    ModelFileError
        The value is none of these.

    Examples
    --------
    >>> to_json((1, float("inf")), "n_range_")
    {'tuple': [1, {'float': 'inf'}]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, tuple):
        return {"tuple": [to_json(part, name) for part in value]}
    if isinstance(value, list):
        return [to_json(part, name) for part in value]
    if isinstance(value, np.ndarray) and value.ndim == 1 and all(isinstance(part, str) for part in value):
        return {"names": [str(part) for part in value]}
    if isinstance(value, np.integer) or (isinstance(value, np.ndarray) and value.dtype.kind in "biu"):
        return value.tolist()
    if isinstance(value, slice):
        return {"slice": [to_json(part, name) for part in (value.start, value.stop, value.step)]}
    msg = f"{name}={value!r} of type {type(value).__name__} can't be saved"
    raise ModelFileError(msg)


def from_json(value: Any, name: str) -> Any:
    """
    Turn JSON back into the value.

    Parameters
    ----------
    value : object
        What `to_json` gave.
    name : str
        Its name, for the message.

    Returns
    -------
    object
        The value.

    Raises
    ------
    ModelFileError
        `to_json` gives nothing like this.

    Examples
    --------
    >>> from_json({"tuple": [1, {"float": "inf"}]}, "n_range_")
    (1, inf)
    """
    if isinstance(value, list):
        return [from_json(part, name) for part in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"float": "nan" | "inf" | "-inf" as text} if len(value) == 1:
            return float(text)
        case {"tuple": list(parts)} if len(value) == 1:
            return tuple(from_json(part, name) for part in parts)
        case {"slice": [start, stop, step]} if len(value) == 1:
            return slice(*(from_json(part, name) for part in (start, stop, step)))
        case {"names": list(parts)} if len(value) == 1 and all(isinstance(part, str) for part in parts):
            return np.array(parts, dtype=object)
    msg = f"the saved value of {name!r} is none that this library writes: {str(value)[:60]}"
    raise ModelFileError(msg)
