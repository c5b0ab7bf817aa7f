"""Errors and warnings: one hierarchy, so that one `except` catches all that bad input can raise."""

from __future__ import annotations

import sys
import warnings

__all__ = [
    "CheckpointError",
    "CheckpointWarning",
    "ClusterError",
    "DCAError",
    "FewerAnchorsWarning",
    "FloorWarning",
    "InvalidInputError",
    "InvalidParameterError",
    "ModelFileError",
    "NotFiniteError",
    "NotPointedWarning",
    "PerformanceWarning",
    "warn",
]


class DCAError(ValueError):
    """Base of all errors that this library raises on purpose."""


class InvalidInputError(DCAError):
    """The data can't be used: shape, dtype, sign, a path without an array."""


class NotFiniteError(InvalidInputError):
    """The data hold NaN or infinity; the message names row and column."""


class InvalidParameterError(DCAError):
    """A parameter is out of its range or unknown."""


class ModelFileError(DCAError):
    """A saved model can't be read or written."""


class CheckpointError(DCAError):
    """A checkpoint belongs to another fit, or can't be used."""


class ClusterError(DCAError):
    """The cluster was lost while it worked; the data and parameters are not to blame."""


class CheckpointWarning(UserWarning):
    """A finished pass could not be kept, or not be read again."""


class FewerAnchorsWarning(UserWarning):
    """The data have fewer extreme rays than the number of anchors asked for."""


class FloorWarning(UserWarning):
    """Fitted variances rest on their least value: it decides them, not the data."""


class NotPointedWarning(UserWarning):
    """Many rows lie behind the reference axis: the data do not fit in one pointed cone."""


class PerformanceWarning(UserWarning):
    """Something costs a pass over the data that one line of the caller's would save."""


def warn(message: str, category: type[Warning]) -> None:
    """
    Warn at the line of the caller's that called the library, however deep inside it this is found out.

    Parameters
    ----------
    message : str
        What to say.
    category : type
        Class of the warning.
    """
    level, package = 2, __name__.partition(".")[0]
    while (sys._getframe(level - 1).f_globals.get("__name__") or "").partition(".")[0] in (package, "sklearn"):
        level += 1
    warnings.warn(message, category, stacklevel=level)
