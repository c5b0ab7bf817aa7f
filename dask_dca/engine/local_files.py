"""Local files that are opened by name: regular ones and folders, nothing whose opening waits, or is felt elsewhere."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from dask_dca.errors import InvalidInputError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["mostly_holes", "require_regular"]

_OTHERS: Final = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_SMALL: Final = 2**26  # bytes up to which a file may be all hole
_DENSEST: Final = 256  # bytes that a stored one may stand for, where the file system compresses


def require_regular(path: str | os.PathLike[str]) -> None:
    """
    Refuse a path whose opening could wait for ever: a named pipe, a socket, a device.

    Parameters
    ----------
    path : str or os.PathLike
        A local path; one where nothing is passes, since whoever opens it says so.

    Raises
    ------
    InvalidInputError
        It is neither a file nor a folder.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    for is_one, kind in _OTHERS:
        if is_one(mode):
            msg = f"{os.fspath(path)!r} is {kind}; pass a file or a folder, copying the data there first"
            raise InvalidInputError(msg)


def mostly_holes(path: Path) -> bool:
    """
    Tell whether a file claims far more bytes than the disk holds of it.

    Parameters
    ----------
    path : pathlib.Path
        A regular file.

    Returns
    -------
    bool
        True for a large file that is all hole but for less than a part in 256.
    """
    size = path.stat().st_size
    if size <= _SMALL or not hasattr(os, "SEEK_DATA"):
        return False
    held, at = 0, 0
    with path.open("rb") as file:
        while at < size and held * _DENSEST < size:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:  # no data beyond
                break
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            held += at - start
    return held * _DENSEST < size
