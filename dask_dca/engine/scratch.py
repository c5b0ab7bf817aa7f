"""Folders to write in, beside the place where a result shall be: what a process that was killed left there is removed.

A folder is named after the result and the machine, and holds a lock as long as its writer lives. The system gives
the lock up when the writer ends, however it ends; a folder whose lock can be had is a leftover.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import socket
import sys
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["is_scratch", "remove_leftovers", "scratch_folder"]

_SUFFIX: Final = ".partial"
_LOCK: Final = "lock"
_OLD: Final = "old"  # what is being replaced is put aside under this name


def is_scratch(name: str) -> bool:
    """
    Tell the names of such folders from others.

    Parameters
    ----------
    name : str
        Without the folder that it is in.

    Returns
    -------
    bool
        Whether some writer made it, or left it.
    """
    return name.startswith(".") and name.endswith(_SUFFIX)


@contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """
    Make a folder beside the target, and remove it with all that is left in it.

    What is replaced may be put aside in it under the name "old".

    Parameters
    ----------
    target : pathlib.Path
        Where the result shall be.

    Yields
    ------
    pathlib.Path
        The folder, of this writer alone.
    """
    remove_leftovers(target)
    folder, lock = _begun(target)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_leftovers(target: Path) -> None:
    """
    Remove what writers of the target that were killed on this machine have left.

    What one of them was replacing comes back, if nothing has taken its place.

    Parameters
    ----------
    target : pathlib.Path
        Where the result shall be.
    """
    for name in glob.glob(f".{glob.escape(target.name)}.{_machine()}.*{_SUFFIX}", root_dir=target.parent):
        folder = target.parent / name
        with suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT)
            try:
                if _is_had(lock):
                    if os.path.lexists(folder / _OLD) and not os.path.lexists(target):
                        (folder / _OLD).rename(target)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _begun(target: Path) -> tuple[Path, int]:
    """A new folder and its lock; another writer may take it for a leftover before the lock is had, hence the loop."""
    while True:
        folder = target.with_name(f".{target.name}.{_machine()}.{uuid.uuid4().hex[:8]}{_SUFFIX}")
        folder.mkdir()
        with suppress(FileNotFoundError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT)
            if _is_had(lock) is not False and os.fstat(lock).st_nlink:
                return folder, lock
            os.close(lock)


def _is_had(lock: int) -> bool | None:
    """Take a lock that no other writer has; None where there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _machine() -> str:
    """Tell this machine's folders from others': locks of another one may not be seen here."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
