"""Results on disk: written beside their place and moved there when complete; nothing half-written is ever seen."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dask_dca.engine.files import expand_home, path_text, remove_leftovers, scratch_folder
from dask_dca.errors import DCAError, ModelFileError, reason_of, unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_url(path: str | os.PathLike[str]) -> bool:
    """Tell a URL of an object store from a path of this machine.

    path: either; `file://` counts as a path. Returns whether it is a URL.
    """
    text = path_text(path)
    return "://" in text and not text.startswith("file://")


def local_path(path: str | os.PathLike[str]) -> Path:
    """Make a local path absolute: workers may have another working directory.

    path: A path, or a `file://` URL.
    Raises InvalidParameterError: the path is empty.
    """
    return Path(os.path.abspath(expand_home(path_text(path).removeprefix("file://"))))


@contextmanager
def written_beside(path: str | os.PathLike[str], *, overwrite: bool = False, **storage: Any) -> Iterator[str]:
    """Give a place to write to, which becomes the path itself if all goes well and vanishes if anything goes wrong.

    path: where the result shall be. A URL is written in place, and removed again if writing it fails; what a writer
    that was killed has left there is known by the object `.NAME.partial` beside it; overwrite: replace a zarr group or
    array, once the new one is complete; **storage: options of the URL's file system. Returns the place to write to.
    Raises ModelFileError: the path exists, its folder doesn't, or it can't be written.
    """
    try:
        check_target(path, overwrite=overwrite, **storage)
        with (
            reaching(path),
            _in_place(os.fspath(path), storage) if is_url(path) else _moved(local_path(path), overwrite) as place,
        ):
            yield place
    except OSError as error:
        if error.errno is None:  # not of a file: a lost connection
            raise
        msg = f"could not write {os.fspath(path)!r}: {error.strerror or error}; nothing of it was left behind"
        raise ModelFileError(msg) from error


@contextmanager
def file_beside(path: str | os.PathLike[str], *, overwrite: bool, ending: str = "") -> Iterator[Path]:
    """Give a place for a local file, which becomes the path itself if all goes well and vanishes else.

    path: where the file shall be; overwrite: replace a file that is there; ending: what the place's name ends with.
    Raises ModelFileError: somebody wrote there meanwhile, or it can't be written.
    """
    target = local_path(path)
    try:
        with scratch_folder(target) as folder:
            new = folder / f"new{ending}"
            yield new
            (os.replace if overwrite else os.link)(new, target)
    except FileExistsError as error:
        msg = (
            f"{os.fspath(path)!r} has come into being meanwhile; choose another path, or allow to replace it: "
            "overwrite=True (--overwrite)"
        )
        raise ModelFileError(msg) from error
    except OSError as error:
        msg = f"could not write {os.fspath(path)!r}: {error.strerror or error}; nothing of it was left behind"
        raise ModelFileError(msg) from error


@contextmanager
def reaching(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn whatever the client library of an object store raises into one error that names the URL.

    path: what is asked for.
    Raises ModelFileError: the store can't be reached, or refuses.
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
def _moved(target: Path, overwrite: bool) -> Iterator[str]:
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
def _in_place(path: str, storage: dict[str, Any]) -> Iterator[str]:
    files, root = file_system(path, storage)
    if files.exists(root):
        files.rm(root, recursive=True)
    mark = _mark(root)
    files.pipe_file(mark, b"")
    try:
        yield path
    except BaseException:
        if files.exists(root):
            files.rm(root, recursive=True)
        raise
    finally:
        if files.exists(mark):
            files.rm_file(mark)


def _mark(root: str) -> str:
    """Return the object that is there while the objects under a URL are written, and after a writer was killed."""
    folder, _, name = root.rpartition("/")
    return f"{folder}/.{name}.partial"


def check_apart(out: str | os.PathLike[str], *inputs: str | os.PathLike[str]) -> None:
    """Refuse to write a result over something that it is made from.

    out: where the result shall be; *inputs: paths or URLs that are read.
    Raises ModelFileError: the output is one of them, lies inside one, or holds one.
    """
    target = _parts(out)
    for path in inputs:
        source = _parts(path)
        shorter = min(len(target), len(source))
        if target[:shorter] == source[:shorter]:
            msg = f"the output {os.fspath(out)!r} and the input {os.fspath(path)!r} overlap; choose another output"
            raise ModelFileError(msg)


def _parts(path: str | os.PathLike[str]) -> tuple[str, ...]:
    if is_url(path):
        return tuple(os.fspath(path).rstrip("/").split("/"))
    return Path(os.path.realpath(local_path(path))).parts


def check_target(path: str | os.PathLike[str], *, overwrite: bool = False, **storage: Any) -> None:
    """Refuse a path that a result can't be written to; what a writer that was killed has left beside it is removed.

    path: where the result shall be; overwrite: accept a zarr group or array that is there; **storage: options of the
    URL's file system.
    Raises ModelFileError: the path exists, its folder doesn't, or it can't be written.
    """
    name = repr(path_text(path))
    if is_url(path):
        files, root = file_system(path, storage)
        try:
            unfinished, there = files.exists(_mark(root)), files.exists(root)
            replaceable = unfinished or files.exists(f"{root}/zarr.json")
        except Exception as error:  # file systems raise what they like
            msg = f"can't reach {name}: {reason_of(error)}; check the address, the credentials and the network"
            raise ModelFileError(msg) from error
        if unfinished and not overwrite:
            msg = (
                f"{name} is written by another process, or was left unfinished by one that was killed; once it has "
                "ended, allow to replace it: overwrite=True (--overwrite)"
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
    Raises ModelFileError: no such protocol, or the package that speaks it is missing.
    """
    import fsspec

    try:
        files, root = fsspec.core.url_to_fs(os.fspath(path), **storage)
    except (ImportError, ValueError, TypeError) as error:
        msg = unreachable(os.fspath(path), error) or f"can't use {os.fspath(path)!r}: {error}"
        raise ModelFileError(msg) from error
    return files, root
