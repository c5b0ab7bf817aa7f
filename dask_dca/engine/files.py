"""Files that are opened by name: paths, scratch folders, and what reads a file of another format.

A folder is named after the result and the machine, and holds a lock as long as its writer lives. The system gives
the lock up when the writer ends, however it ends; a folder whose lock can be had is a leftover.
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
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from dask_dca.errors import InvalidInputError, InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHARE: Final = "pass a path or URL that all workers share, and keep it until results are computed"
_HOME: Final = "~"
_OTHERS: Final = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_SMALL: Final = 2**26  # bytes up to which a file may be all hole
_DENSEST: Final = 256  # bytes that a stored one may stand for, where the file system compresses
_SUFFIX: Final = ".partial"
_LOCK: Final = "lock"
_OLD: Final = "old"  # what is being replaced is put aside under this name


def text_of(path: str | os.PathLike[str]) -> str:
    """A path as text.

    Raises InvalidParameterError: it is no path.
    """
    try:
        return os.fspath(path)
    except TypeError as error:
        msg = f"a path is a text, for example 'model.zarr'; received {path!r}"
        raise InvalidParameterError(msg) from error


def expanded(path: str | os.PathLike[str]) -> str:
    """Put the home folder in the place of `~`: shells leave it alone in `--option=~/file` and in quotes.

    path: A path, or a URL, which is left as it is.
    Raises InvalidParameterError: the path is empty, or nobody's home.
    """
    text = text_of(path)
    if not text.strip():
        msg = f"a path is empty: {text!r}; give the name of a file or folder, for example model.zarr"
        raise InvalidParameterError(msg)
    found = os.path.expanduser(text)
    if text.startswith(_HOME) and found.startswith(_HOME):
        msg = f"there is no home folder for {text!r}; write the whole path, or ./{text} for a file of this name"
        raise InvalidParameterError(msg)
    return found


def require_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a path whose opening could wait for ever: a named pipe, a socket, a device.

    path: A local path; one where nothing is passes, since whoever opens it says so.
    Raises InvalidInputError: it is neither a file nor a folder.
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
    """Tell whether a file claims far more bytes than the disk holds of it.

    Returns true for a large file that is all hole except for less than a part in 256.
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


def this_process() -> str:
    """Name this process in a message.

    Returns the address of its worker, else the host.
    """
    distributed = sys.modules.get("distributed")
    try:
        return f"worker {distributed.get_worker().address}"  # type: ignore[union-attr]
    except (AttributeError, ValueError):
        return f"this process on {socket.gethostname()}"


def refuse_pickles(array: Any) -> None:
    """Refuse an array that has a codec which unpickles.

    array: the array; nothing of it is read.
    Raises InvalidInputError: it has one.
    """
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
    """Tell the names of such folders from others.

    name: without the folder that it is in. Returns whether some writer made it, or left it.
    """
    return name.startswith(".") and name.endswith(_SUFFIX)


@contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """Make a folder beside the target, and remove it with all that is left in it.

    What is replaced may be put aside in it under the name "old".
    target: where the result shall be. Returns the folder, of this writer alone.
    """
    remove_leftovers(target)
    folder, lock = _begun(target)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_leftovers(target: Path) -> None:
    """Remove what writers of the target that were killed on this machine have left.

    What one of them was replacing comes back, if nothing has taken its place.
    target: where the result shall be.
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


_SAVE: Final = "numpy.save('numbers.npy', {})"
_TABLE: Final = "{}.to_csv('numbers.csv', index=False)"
_CONVERT: Final = "dask dca convert {path} -o documents.zarr"

# ending: what reads a file, and what writes the result for the commands; nothing where they read the file themselves
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
    """Return the ending of a path that tells how the file is read; none that is known gives nothing."""
    return max((ending for ending in FORMATS if path.lower().endswith(ending)), key=len, default="")


def reader_of(path: str) -> str:
    """Say what reads a file in Python; nothing for endings that are not known."""
    ending = format_of(path)
    if not ending:
        return ""
    name = _first_of_npz(path) if ending == ".npz" else ""
    if "indptr" in name:
        return f"scipy.sparse.load_npz({path!r})"
    return FORMATS[ending][0].format(path=path, name=name, separator=_separator(path) if ending == ".csv" else "")


def converter_of(path: str) -> str:
    """Say what makes a file of this one that commands read; nothing if they read it, or its ending is not known."""
    ending = format_of(path)
    writer = FORMATS[ending][1] if ending else ""
    if writer == _CONVERT:
        return writer.format(path=path)
    reader = reader_of(path)
    if reader.startswith("scipy.sparse"):
        return f"scipy.io.mmwrite('d.mtx', {reader}) and dask dca convert d.mtx -o documents.zarr"
    return writer.format(reader) if writer else ""


def _first_of_npz(path: str) -> str:
    try:
        names = zipfile.ZipFile(path).namelist()
    except (OSError, zipfile.BadZipFile):
        return "X"
    return "indptr" if "indptr.npy" in names else names[0].removesuffix(".npy") if names else "X"


def _separator(path: str) -> str:
    """What pandas has to be told of a table whose cells semicolons separate."""
    with open(path, encoding="utf-8", errors="replace") as lines:
        line = lines.readline(4096)
    return ", sep=';', decimal=','" if ";" in line else ""
