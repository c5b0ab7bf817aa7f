"""Atomic output: results are written to a temporary path, and renamed when complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dask_dca.engine.files import expand_home, path_text, remove_leftovers, scratch_folder
from dask_dca.errors import DCAError, ModelFileError, reason_of, unreachable


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a URL of an object store; `file://` counts as a local path."""
    text = path_text(path)
    return "://" in text and not text.startswith("file://")


def local_path(path: str | os.PathLike[str]) -> Path:
    """Make a local path absolute, since workers may have another working directory.

    path: a path or a `file://` URL.
    Raises InvalidParameterError: the path is empty.
    """
    return Path(os.path.abspath(expand_home(path_text(path).removeprefix("file://"))))


@contextmanager
def atomic_output(path: str | os.PathLike[str], *, overwrite: bool = False, **storage: Any) -> Iterator[str]:
    """Yield a temporary path to write to, which is renamed to `path` on success and removed on failure.

    path: a URL is written in place, and removed if writing fails; the object `.NAME.partial` beside it marks unfinished
    output of a killed process; overwrite: replace a zarr group or array, once the new one is complete; **storage:
    options of the URL's file system.
    Raises ModelFileError: the path exists, its folder does not, or it can't be written.
    """
    with _file_errors(path):
        check_target(path, overwrite=overwrite, **storage)
        remote = is_url(path)
        place = _written_in_place(os.fspath(path), storage) if remote else _renamed(local_path(path), overwrite)
        with store_errors(path), place as new:
            yield new


@contextmanager
def _file_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert errors of writing files to one error that names the path."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # not a file error, such as a lost connection
            raise
        msg = f"could not write {os.fspath(path)!r}: {error.strerror or error}; nothing of it was left behind"
        raise ModelFileError(msg) from error


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, overwrite: bool, ending: str = "") -> Iterator[Path]:
    """Yield a temporary path for a local file, which is renamed to `path` on success and removed on failure.

    overwrite: replace an existing file; ending: of the temporary path.
    Raises ModelFileError: the path was created meanwhile, or it can't be written.
    """
    target = local_path(path)
    with _file_errors(path), scratch_folder(target) as folder:
        new = folder / f"new{ending}"
        yield new
        try:
            (os.replace if overwrite else _move_to_free_place)(new, target)
        except FileExistsError as error:
            msg = (
                f"{os.fspath(path)!r} was created meanwhile; choose another path, or allow to replace it: "
                "overwrite=True (--overwrite)"
            )
            raise ModelFileError(msg) from error


def _move_to_free_place(new: Path, target: Path) -> None:
    """Move a file to a path; raises FileExistsError if something is there."""
    try:
        os.link(new, target)
    except FileExistsError:
        raise
    except OSError:  # no hard links, as on many network file systems: an empty file takes the place
        target.touch(exist_ok=False)
        try:
            os.replace(new, target)
        except BaseException:
            target.unlink()
            raise


@contextmanager
def store_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert errors of an object store's client library to one error that names the URL.

    Raises ModelFileError: the store can't be reached, or denies access.
    """
    try:
        yield
    except DCAError:
        raise
    except Exception as error:
        failed = unreachable(os.fspath(path), error)
        if failed is None:
            raise
        raise ModelFileError(failed) from error


@contextmanager
def _renamed(target: Path, overwrite: bool) -> Iterator[str]:
    with scratch_folder(target) as folder:
        new, old = folder / "new", folder / "old"
        yield str(new)
        try:
            if overwrite and target.exists():
                target.rename(old)
            new.rename(target)
        except BaseException:
            if old.exists() and not target.exists():
                old.rename(target)
            raise


@contextmanager
def _written_in_place(path: str, storage: dict[str, Any]) -> Iterator[str]:
    files, root = file_system(path, storage)
    if files.exists(root):
        files.rm(root, recursive=True)
    marker = _partial_marker(root)
    files.pipe_file(marker, b"")
    try:
        yield path
    except BaseException:
        if files.exists(root):
            files.rm(root, recursive=True)
        raise
    finally:
        if files.exists(marker):
            files.rm_file(marker)


def _partial_marker(root: str) -> str:
    """Return the object that marks a URL as being written, or as left unfinished."""
    folder, _, name = root.rpartition("/")
    return f"{folder}/.{name}.partial"


def check_no_overlap(out: str | os.PathLike[str], *inputs: str | os.PathLike[str]) -> None:
    """Check that an output does not overlap with its inputs.

    out, *inputs: paths or URLs.
    Raises ModelFileError: the output is an input, is inside one, or contains one.
    """
    target = _path_parts(out)
    for path in inputs:
        source = _path_parts(path)
        shorter = min(len(target), len(source))
        if target[:shorter] == source[:shorter]:
            msg = f"the output {os.fspath(out)!r} and the input {os.fspath(path)!r} overlap; choose another output"
            raise ModelFileError(msg)


def _path_parts(path: str | os.PathLike[str]) -> tuple[str, ...]:
    if is_url(path):
        return tuple(os.fspath(path).rstrip("/").split("/"))
    return Path(os.path.realpath(local_path(path))).parts


def check_target(path: str | os.PathLike[str], *, overwrite: bool = False, **storage: Any) -> None:
    """Check that a result can be written to a path, and remove temporary files of killed processes.

    overwrite: accept an existing zarr group or array; **storage: options of the URL's file system.
    Raises ModelFileError: the path exists, its folder does not, or it can't be written.
    """
    name = repr(path_text(path))
    if is_url(path):
        files, root = file_system(path, storage)
        try:
            unfinished, there = files.exists(_partial_marker(root)), files.exists(root)
            replaceable = unfinished or files.exists(f"{root}/zarr.json")
        except Exception as error:  # file systems raise errors of their own
            msg = f"can't reach {name}: {reason_of(error)}; check the address, the credentials and the network"
            raise ModelFileError(msg) from error
        if unfinished and not overwrite:
            msg = (
                f"{name} is being written by another process, or was left unfinished by one that was killed; once it "
                "has ended, allow to replace it: overwrite=True (--overwrite)"
            )
            raise ModelFileError(msg)
    else:
        target = local_path(path)
        _check_folder(target.parent)
        remove_leftovers(target)
        there, replaceable = os.path.lexists(target), os.path.isfile(target / "zarr.json")
    if there and not overwrite:
        msg = f"{name} exists; choose another path, or allow to replace it: overwrite=True (--overwrite)"
        raise ModelFileError(msg)
    if there and not replaceable:
        msg = f"{name} exists and is not a zarr group or array, so it is not replaced; choose another path"
        raise ModelFileError(msg)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        msg = f"the folder {str(folder)!r} does not exist; make it first: mkdir -p {str(folder)!r}"
        raise ModelFileError(msg)
    if not os.access(folder, os.W_OK | os.X_OK):
        msg = f"no permission to write in {str(folder)!r}; choose another path, or allow it: chmod u+wx {str(folder)!r}"
        raise ModelFileError(msg)


def file_system(path: str | os.PathLike[str], storage: dict[str, Any]) -> tuple[Any, str]:
    """Find the file system of a URL.

    storage: options of its file system.
    Raises ModelFileError: no such protocol, or its package is missing.
    """
    import fsspec

    try:
        files, root = fsspec.core.url_to_fs(os.fspath(path), **storage)
    except (ImportError, ValueError, TypeError) as error:
        msg = unreachable(os.fspath(path), error) or f"can't use {os.fspath(path)!r}: {error}"
        raise ModelFileError(msg) from error
    return files, root
