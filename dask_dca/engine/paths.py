"""Paths of this machine, as people write them."""

from __future__ import annotations

import os
from typing import Final

from dask_dca.errors import InvalidParameterError

__all__ = ["expanded"]

_HOME: Final = "~"


def expanded(path: str | os.PathLike[str]) -> str:
    """
    Put the home folder in the place of `~`: shells leave it alone in `--option=~/file` and in quotes.

    Parameters
    ----------
    path : str or os.PathLike
        A path, or a URL, which is left as it is.

    Returns
    -------
    str
        The path.

    Raises
    ------
    InvalidParameterError
        The path is empty, or nobody's home.

    Examples
    --------
    >>> expanded("s3://bucket/~/X.zarr"), expanded("~/X.zarr") == os.path.expanduser("~/X.zarr")
    ('s3://bucket/~/X.zarr', True)
    """
    text = os.fspath(path)
    if not text.strip():
        msg = f"a path is empty: {text!r}; give the name of a file or folder, for example model.zarr"
        raise InvalidParameterError(msg)
    found = os.path.expanduser(text)
    if text.startswith(_HOME) and found.startswith(_HOME):
        msg = f"there is no home folder for {text!r}; write the whole path, or ./{text} for a file of this name"
        raise InvalidParameterError(msg)
    return found
