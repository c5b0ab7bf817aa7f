"""Files that are not whole, or don't fit together: what is wrong, and the line that keeps what is there, if any.

Only heads and ends are looked at before a file is read. What a reader says of such files helps nobody.
"""

from __future__ import annotations

import math
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

_AGAIN: Final = "copy it again from where it came, or write it again"
_HDF5: Final = b"\x89HDF\r\n\x1a\n"
_END_OF_HDF5: Final = {0: 40, 1: 44, 2: 28, 3: 28}  # version of the superblock: where the address of the end stands
_PARQUET: Final = (b"PAR1", b"PARE")  # the second: encrypted
_NPY: Final = b"\x93NUMPY"
_OBJECTS: Final = (
    "pandas.DataFrame(numpy.load({0!r}, allow_pickle=True)).infer_objects().select_dtypes(['number', 'bool'])"
)


def damage_of(path: str) -> str:
    """Say in which way a local file, or folder of files, is not a whole one of its kind.

    path: it ends as files of its kind do. Returns what is said after the path, with what to do; nothing where nothing
    is seen.
    """
    for endings, look in _KINDS:
        if path.lower().endswith(endings):
            try:
                return look(path)
            except (OSError, ValueError, EOFError, SyntaxError) as error:
                return f"has no head of its kind ({str(error).partition(chr(10))[0][:100]}); {_AGAIN}"
    return ""


def _npy(path: str) -> str:
    with open(path, "rb") as file:
        if file.read(6) != _NPY:
            return _of_another_kind(path, ".npy")
        file.seek(0)
        version = np.lib.format.read_magic(file)
        read: Any = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read:
            return ""
        shape, by_columns, dtype = read[version](file)
        return _objects(path) if dtype.hasobject else _cut_npy(path, file, shape, dtype, by_columns=by_columns)


def _objects(path: str) -> str:
    return (
        "holds Python objects, which are pickled and can run code; if you trust the file, write its numbers: "
        f"numpy.save('numbers.npy', {_OBJECTS.format(path)}.to_numpy(float))"
    )


def _cut_npy(path: str, file: BinaryIO, shape: tuple[int, ...], dtype: Any, *, by_columns: bool) -> str:
    """What is said of a file that is shorter than its head says."""
    start = file.tell()
    there = os.path.getsize(path) - start
    if there >= math.prod(shape) * dtype.itemsize:
        return ""
    told = f"is cut short: its array of shape {shape} would take {math.prod(shape) * dtype.itemsize} bytes, and "
    each = math.prod(shape[1:])
    rows = there // (each * dtype.itemsize)
    if by_columns or not rows:
        return f"{told}{there} are there; {_AGAIN}"
    kept = f"numpy.fromfile({path!r}, {dtype.str!r}, {rows * each}, offset={start}).reshape{(rows, *shape[1:])}"
    return f"{told}{rows} rows are there; {_AGAIN}, or keep these: numpy.save('numbers.npy', {kept})"


def _parquet(path: str) -> str:
    if not os.path.isdir(path):
        return "" if _is_parquet(path) else f"is no whole Parquet file: what it should end with is not there; {_AGAIN}"
    broken = [str(part) for part in sorted(Path(path).rglob("*.parquet")) if part.is_file() and not _is_parquet(part)]
    if not broken:
        return ""
    moved = f"pathlib.Path({broken[0]!r}).rename({os.path.basename(broken[0]) + '.broken'!r})"
    return f"holds {len(broken)} files that are no whole Parquet files; {_AGAIN}, or put them aside: {moved}"


def _is_parquet(path: str | Path) -> bool:
    if os.path.getsize(path) < 12:
        return False
    with open(path, "rb") as file:
        head = file.read(4)
        file.seek(-4, os.SEEK_END)
        return head in _PARQUET and file.read(4) == head


def _hdf5(path: str) -> str:
    with open(path, "rb") as file:
        head = file.read(64)
    if not head.startswith(_HDF5):
        return "" if len(head) == 64 and path.endswith(".h5") else _of_another_kind(path, "HDF5")
    where = _END_OF_HDF5.get(head[8])
    if where is None or head[13 if head[8] < 2 else 9] != 8:  # bytes of an address
        return ""
    end = int.from_bytes(head[where : where + 8], "little")
    size = os.path.getsize(path)
    return f"is cut short: it was written with {end} bytes, and {size} are there; {_AGAIN}" if size < end else ""


def _npz(path: str) -> str:
    return "" if zipfile.is_zipfile(path) else f"is no whole archive: its list of arrays is not there; {_AGAIN}"


def _of_another_kind(path: str, kind: str) -> str:
    with open(path, "rb") as file:
        head = file.read(16)
    return f"is no {kind} file: it begins with {head!r}; {_AGAIN}" if head else f"is empty; {_AGAIN}"


def cut_table(path: str) -> str:
    """Say that a compressed table ends in the middle, and what keeps the lines that are there."""
    held = f"zlib.decompressobj(31).decompress(pathlib.Path({path!r}).read_bytes())"
    return (
        f"{path!r} is cut short; copy it again, or keep the lines that are there: "
        f"pathlib.Path('numbers{Path(path).with_suffix('').suffix}').write_bytes({held}.rpartition(b'\\n')[0])"
    )


def other_columns(where: str) -> str:
    """What to say of a folder of Parquet files that don't have the same columns; nothing of others."""
    import dask.dataframe as dd

    parts = sorted(Path(where).glob("*.parquet"))
    names = {part.name: list(dd.read_parquet(part).columns) for part in parts}
    other = next((name for name, own in names.items() if own != names[parts[0].name]), None)
    if other is None:
        return ""
    put = f"[pandas.read_parquet(part) for part in pathlib.Path({where!r}).glob('*.parquet')]"
    return (
        f"the files of {where!r} have different columns: {other!r} has {', '.join(map(str, names[other][:5]))}; "
        f"put them together: pandas.concat({put}).to_parquet('numbers.parquet')"
    )


_KINDS: Final[tuple[tuple[tuple[str, ...], Callable[[str], str]], ...]] = (
    ((".npy",), _npy),
    ((".parquet",), _parquet),
    ((".h5ad", ".h5", ".hdf5"), _hdf5),
    ((".npz",), _npz),
)
