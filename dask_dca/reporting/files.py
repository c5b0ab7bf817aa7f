"""Pages on disk: written beside their place, then moved there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from dask_dca.engine.scratch import scratch_folder
from dask_dca.errors import ModelFileError
from dask_dca.output import check_target, file_system, is_url, local_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["check_page", "write_page"]

_BEGIN: Final = b"<!doctype html>"


def check_page(path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """
    Refuse a path that a page can't be written to.

    Parameters
    ----------
    path : str or os.PathLike
        Where the page shall be.
    overwrite : bool, default False
        Accept an HTML page that is there.

    Raises
    ------
    ModelFileError
        The path exists, its folder doesn't, or it can't be written.
    """
    begins = _first_bytes(path)
    if begins is None or not overwrite:
        check_target(path)  # also that the folder is there
    elif begins.lower() != _BEGIN:
        msg = f"{os.fspath(path)!r} exists and is not an HTML page, so it is not replaced; choose another path"
        raise ModelFileError(msg)


def _first_bytes(path: str | os.PathLike[str]) -> bytes | None:
    """How what is there begins; None if there is nothing."""
    if is_url(path):
        remote, root = file_system(path, {})
        return bytes(remote.cat_file(root, 0, len(_BEGIN))) if remote.exists(root) else None
    target = local_path(path)
    if not os.path.lexists(target):
        return None
    if not target.is_file():
        return b""
    with target.open("rb") as file:
        return file.read(len(_BEGIN))


def write_page(path: str | os.PathLike[str], content: str, *, overwrite: bool = False) -> None:
    """
    Write a page, so that what is at the path is always whole.

    Parameters
    ----------
    path : str or os.PathLike
        Path or URL.
    content : str
        The page.
    overwrite : bool, default False
        Replace an HTML page that is there.

    Raises
    ------
    ModelFileError
        The path exists, its folder doesn't, or it can't be written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(folder + "/page.html", "<!doctype html>")
    ...     pathlib.Path(folder, "page.html").read_text()
    '<!doctype html>'
    """
    check_page(path, overwrite=overwrite)
    try:
        if is_url(path):
            remote, root = file_system(path, {})
            remote.pipe_file(root, content.encode())
        else:
            _move_into(local_path(path), content.encode(), os.replace if overwrite else os.link)
    except FileExistsError as error:
        msg = (
            f"{os.fspath(path)!r} has come into being meanwhile; choose another path, or allow to replace it: "
            "overwrite=True"
        )
        raise ModelFileError(msg) from error
    except OSError as error:
        msg = f"could not write {os.fspath(path)!r}: {error.strerror or error}; nothing of it was left behind"
        raise ModelFileError(msg) from error


def _move_into(target: Path, content: bytes, move: Callable[[Path, Path], None]) -> None:
    with scratch_folder(target) as folder:
        new = folder / "new"
        new.write_bytes(content)
        move(new, target)
