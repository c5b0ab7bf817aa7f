"""Errors and warnings: one hierarchy, so that one `except` catches all that bad input can raise."""

from __future__ import annotations

__all__ = [
    "DCAError",
    "FewerAnchorsWarning",
    "InvalidInputError",
    "InvalidParameterError",
    "ModelFileError",
    "NotFiniteError",
    "NotPointedWarning",
    "PerformanceWarning",
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


class FewerAnchorsWarning(UserWarning):
    """The data have fewer extreme rays than the number of anchors asked for."""


class NotPointedWarning(UserWarning):
    """Many rows lie behind the reference axis: the data do not fit in one pointed cone."""


class PerformanceWarning(UserWarning):
    """Something costs a pass over the data that one line of the caller's would save."""
