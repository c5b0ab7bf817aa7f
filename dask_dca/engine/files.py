"""Files by name: paths, scratch folders, and code that reads files of other formats.

A scratch folder is named after the result and the machine, and its writer holds a lock in it. The operating system
releases the lock when the writer ends in any way; a folder whose lock can be acquired is a leftover.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import socket
import stat
import sys
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from dask_dca.errors import InvalidInputError, InvalidParameterError

SHARE: Final = "pass a path or URL that all workers share, and keep it until results are computed"
_HOME: Final = "~"
_SPECIAL_FILES: Final = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_MAX_UNCHECKED_BYTES: Final = 2**26  # size of a file up to which holes are not looked for
_MAX_EXPANSION: Final = 256  # greatest ratio of size to stored bytes; file systems may compress
_SUFFIX: Final = ".partial"
_LOCK: Final = "lock"
_REPLACED: Final = "old"  # name in the scratch folder of a file that is being replaced


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path as a string; raises InvalidParameterError if it is not a path."""
    try:
        return os.fspath(path)
    except TypeError as error:
        msg = f"a path is a text, for example 'model.zarr'; received {path!r}"
        raise InvalidParameterError(msg) from error


def expand_home(path: str | os.PathLike[str]) -> str:
    """Replace `~` by the home folder, which shells don't do in `--option=~/file` and in quotes.

    path: a path, or a URL, which is unchanged.
    Raises InvalidParameterError: the path is empty, or there is no such home folder.
    """
    text = path_text(path)
    if not text.strip():
        msg = f"a path is empty: {text!r}; give the name of a file or folder, for example model.zarr"
        raise InvalidParameterError(msg)
    found = os.path.expanduser(text)
    if text.startswith(_HOME) and found.startswith(_HOME):
        msg = f"there is no home folder for {text!r}; write the whole path, or ./{text} for a file of this name"
        raise InvalidParameterError(msg)
    return found


def require_regular(path: str | os.PathLike[str]) -> None:
    """Raise InvalidInputError for a local path whose opening could block: a named pipe, a socket, a device.

    A missing path passes: opening it raises an error.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    for is_one, kind in _SPECIAL_FILES:
        if is_one(mode):
            msg = f"{os.fspath(path)!r} is {kind}; pass a file or a folder, copying the data there first"
            raise InvalidInputError(msg)


def is_mostly_holes(path: Path) -> bool:
    """Whether less than 1 / 256 of a large file is stored, and the rest are holes."""
    size = path.stat().st_size
    if size <= _MAX_UNCHECKED_BYTES or not hasattr(os, "SEEK_DATA"):
        return False
    held, at = 0, 0
    with path.open("rb") as file:
        while at < size and held * _MAX_EXPANSION < size:
            try:
                start = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:  # there are no further data
                break
            at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            held += at - start
    return held * _MAX_EXPANSION < size


def this_process() -> str:
    """Name this process for a message, by the address of its worker, else by its host."""
    distributed = sys.modules.get("distributed")
    try:
        return f"worker {distributed.get_worker().address}"  # type: ignore[union-attr]
    except (AttributeError, ValueError):
        return f"this process on {socket.gethostname()}"


def refuse_pickles(array: Any) -> None:
    """Raise InvalidInputError for an array with a codec that unpickles; none of its chunks is read."""
    metadata = array.metadata
    codecs = [*(getattr(metadata, "filters", None) or ()), getattr(metadata, "compressor", None)]
    codecs += list(getattr(metadata, "codecs", ()))
    names = [
        f"{getattr(codec, 'codec_id', '')} {type(codec).__name__}".lower() for codec in codecs if codec is not None
    ]
    if any("pickle" in name for name in names):
        msg = f"the chunks of {array.store_path} are pickles, which can run code, and are not read; write plain numbers"
        raise InvalidInputError(msg)


if sys.platform != "win32":
    import fcntl


def is_scratch(name: str) -> bool:
    """Whether a name, without its folder, is that of a scratch folder."""
    return name.startswith(".") and name.endswith(_SUFFIX)


@contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """Make a scratch folder beside the target for this writer alone, and remove it with its content at the end.

    A file that is replaced may be moved into it under the name "old".
    """
    remove_leftovers(target)
    folder, lock = _create_folder(target)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_leftovers(target: Path) -> None:
    """Remove the scratch folders that killed writers of the target left on this machine.

    A file that one of them was replacing is restored, unless there is a new one.
    """
    for name in glob.glob(f".{glob.escape(target.name)}.{_machine_id()}.*{_SUFFIX}", root_dir=target.parent):
        folder = target.parent / name
        with suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT)
            try:
                if _try_lock(lock):
                    if os.path.lexists(folder / _REPLACED) and not os.path.lexists(target):
                        (folder / _REPLACED).rename(target)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _create_folder(target: Path) -> tuple[Path, int]:
    """Make a folder and acquire its lock; repeat if another writer takes it for a leftover in between."""
    while True:
        folder = target.with_name(f".{target.name}.{_machine_id()}.{uuid.uuid4().hex[:8]}{_SUFFIX}")
        folder.mkdir()
        with suppress(FileNotFoundError):
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT)
            if _try_lock(lock) is not False and os.fstat(lock).st_nlink:
                return folder, lock
            os.close(lock)


def _try_lock(lock: int) -> bool | None:
    """Try to acquire a lock; false if another writer has it, None if locks are not supported."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _machine_id() -> str:
    """Identify this machine in names of folders: locks of another machine may not be visible here."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


_SAVE: Final = "numpy.save('numbers.npy', {})"
_TABLE: Final = "{}.to_csv('numbers.csv', index=False)"
_CONVERT: Final = "dask dca convert {path} -o documents.zarr"

# by ending: code that reads a file, and code that converts it for the commands, empty if they read it themselves
FORMATS: Final = {
    ".npy": ("numpy.load({path!r}, mmap_mode='r')", ""),
    ".parquet": ("dask.dataframe.read_parquet({path!r})", ""),
    ".csv": ("pandas.read_csv({path!r}{separator})", ""),
    ".csv.gz": ("pandas.read_csv({path!r})", ""),
    ".tsv": ("pandas.read_csv({path!r}, sep='\\t')", ""),
    ".tsv.gz": ("pandas.read_csv({path!r}, sep='\\t')", ""),
    ".csv.bz2": ("pandas.read_csv({path!r})", _TABLE),
    ".csv.xz": ("pandas.read_csv({path!r})", _TABLE),
    ".csv.zip": ("pandas.read_csv({path!r})", _TABLE),
    ".xlsx": ("pandas.read_excel({path!r})", _TABLE),
    ".feather": ("pandas.read_feather({path!r})", _TABLE),
    ".json": ("pandas.read_json({path!r})", _TABLE),
    ".txt": ("numpy.loadtxt({path!r})", _SAVE),
    ".dat": ("numpy.loadtxt({path!r})", _SAVE),
    ".npz": ("numpy.load({path!r})[{name!r}]", _SAVE),
    ".mat": ("scipy.io.loadmat({path!r})['X']", _SAVE),
    ".h5": ("h5py.File({path!r})['X'][:]", _SAVE),
    ".hdf5": ("h5py.File({path!r})['X'][:]", _SAVE),
    ".nc": ("xarray.open_dataset({path!r}, chunks={{}})", "{}.to_zarr('data.zarr')"),
    ".h5ad": ("anndata.read_h5ad({path!r})", ""),
    ".mtx": ("scipy.io.mmread({path!r}, spmatrix=False)", _CONVERT),
    ".mtx.gz": ("scipy.io.mmread({path!r}, spmatrix=False)", _CONVERT),
}


def format_of(path: str) -> str:
    """Return the known ending of a path, empty if there is none."""
    return max((ending for ending in FORMATS if path.lower().endswith(ending)), key=len, default="")


def reader_of(path: str) -> str:
    """Return code that reads a file in Python, empty for unknown endings."""
    ending = format_of(path)
    if not ending:
        return ""
    name = _first_array_of_npz(path) if ending == ".npz" else ""
    if "indptr" in name:
        return f"scipy.sparse.load_npz({path!r})"
    separator = _separator_argument(path) if ending == ".csv" else ""
    return FORMATS[ending][0].format(path=path, name=name, separator=separator)


def converter_of(path: str) -> str:
    """Return code that converts a file for the commands, empty if they read it, or its ending is unknown."""
    ending = format_of(path)
    writer = FORMATS[ending][1] if ending else ""
    if writer == _CONVERT:
        return writer.format(path=path)
    reader = reader_of(path)
    if reader.startswith("scipy.sparse"):
        return f"scipy.io.mmwrite('d.mtx', {reader}) and dask dca convert d.mtx -o documents.zarr"
    return writer.format(reader) if writer else ""


def _first_array_of_npz(path: str) -> str:
    try:
        with zipfile.ZipFile(path) as held:
            names = held.namelist()
    except (OSError, zipfile.BadZipFile):
        return "X"
    return "indptr" if "indptr.npy" in names else names[0].removesuffix(".npy") if names else "X"


def _separator_argument(path: str) -> str:
    """Arguments of pandas for a table whose cells are separated by semicolons."""
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            line = lines.readline(4096)
    except OSError:
        return ""
    return ", sep=';', decimal=','" if ";" in line else ""
