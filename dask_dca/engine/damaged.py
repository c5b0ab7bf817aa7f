"""Messages on damaged or inconsistent files, with code that recovers the intact part, if any.

Only headers and ends of files are inspected. The errors of the libraries that read such files are of little help.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

_COPY_AGAIN: Final = "copy it again from where it came, or write it again"
_HDF5: Final = b"\x89HDF\r\n\x1a\n"
# by version of the superblock, the offset of the address of the end of the file
_HDF5_END_OFFSETS: Final = {0: 40, 1: 44, 2: 28, 3: 28}
_PARQUET: Final = (b"PAR1", b"PARE")  # the second one marks encrypted files
_NPY: Final = b"\x93NUMPY"
_NUMBERS_OF_OBJECTS: Final = (
    "pandas.DataFrame(numpy.load({0!r}, allow_pickle=True)).infer_objects().select_dtypes(['number', 'bool'])"
)


def damage_of(path: str) -> str:
    """Describe the damage of a local file, or of a folder of files, by its ending.

    Returns the rest of a sentence that begins with the path, and advice; empty if no damage is seen.
    """
    for endings, look in _KINDS:
        if path.lower().endswith(endings):
            try:
                return look(path)
            except (OSError, ValueError, EOFError, SyntaxError) as error:
                return f"has no head of its kind ({str(error).partition(chr(10))[0][:100]}); {_COPY_AGAIN}"
    return ""


def _npy_damage(path: str) -> str:
    with open(path, "rb") as file:
        if file.read(6) != _NPY:
            return _other_kind(path, ".npy")
        file.seek(0)
        version = np.lib.format.read_magic(file)
        read: Any = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read:
            return ""
        shape, by_columns, dtype = read[version](file)
        if dtype.hasobject:
            return _objects_advice(path)
        return _cut_npy_advice(path, file, shape, dtype, by_columns=by_columns)


def _objects_advice(path: str) -> str:
    return (
        "holds Python objects, which are pickled and can run code; if you trust the file, write its numbers: "
        f"numpy.save('numbers.npy', {_NUMBERS_OF_OBJECTS.format(path)}.to_numpy(float))"
    )


def _cut_npy_advice(path: str, file: BinaryIO, shape: tuple[int, ...], dtype: Any, *, by_columns: bool) -> str:
    """Describe a file that is shorter than its header says; empty if it is not."""
    start = file.tell()
    there = os.path.getsize(path) - start
    if there >= math.prod(shape) * dtype.itemsize:
        return ""
    cut = f"is cut short: its array of shape {shape} would take {math.prod(shape) * dtype.itemsize} bytes, and "
    each = math.prod(shape[1:])
    rows = there // (each * dtype.itemsize)
    if by_columns or not rows:
        return f"{cut}{there} are there; {_COPY_AGAIN}"
    kept = f"numpy.fromfile({path!r}, {dtype.str!r}, {rows * each}, offset={start}).reshape{(rows, *shape[1:])}"
    return f"{cut}{rows} rows are there; {_COPY_AGAIN}, or keep these: numpy.save('numbers.npy', {kept})"


def _parquet_damage(path: str) -> str:
    if not os.path.isdir(path):
        cut = f"is no whole Parquet file: what it should end with is not there; {_COPY_AGAIN}"
        return "" if _is_parquet(path) else cut
    broken = [str(part) for part in sorted(Path(path).rglob("*.parquet")) if part.is_file() and not _is_parquet(part)]
    if not broken:
        return ""
    moved = f"pathlib.Path({broken[0]!r}).rename({os.path.basename(broken[0]) + '.broken'!r})"
    return f"holds {len(broken)} files that are no whole Parquet files; {_COPY_AGAIN}, or put them aside: {moved}"


def _is_parquet(path: str | Path) -> bool:
    if os.path.getsize(path) < 12:
        return False
    with open(path, "rb") as file:
        head = file.read(4)
        file.seek(-4, os.SEEK_END)
        return head in _PARQUET and file.read(4) == head


def _hdf5_damage(path: str) -> str:
    with open(path, "rb") as file:
        head = file.read(64)
    if not head.startswith(_HDF5):
        return "" if len(head) == 64 and path.endswith(".h5") else _other_kind(path, "HDF5")
    where = _HDF5_END_OFFSETS.get(head[8])
    if where is None or head[13 if head[8] < 2 else 9] != 8:  # only addresses of 8 bytes are supported
        return ""
    end = int.from_bytes(head[where : where + 8], "little")
    size = os.path.getsize(path)
    return f"is cut short: it was written with {end} bytes, and {size} are there; {_COPY_AGAIN}" if size < end else ""


def _npz_damage(path: str) -> str:
    return "" if zipfile.is_zipfile(path) else f"is no whole archive: its list of arrays is not there; {_COPY_AGAIN}"


def _other_kind(path: str, kind: str) -> str:
    with open(path, "rb") as file:
        head = file.read(16)
    return f"is no {kind} file: it begins with {head!r}; {_COPY_AGAIN}" if head else f"is empty; {_COPY_AGAIN}"


def cut_table(path: str) -> str:
    """Message on a truncated compressed table, with code that recovers its complete lines."""
    held = f"zlib.decompressobj(31).decompress(pathlib.Path({path!r}).read_bytes())"
    return (
        f"{path!r} is cut short; copy it again, or keep the lines that are there: "
        f"pathlib.Path('numbers{Path(path).with_suffix('').suffix}').write_bytes({held}.rpartition(b'\\n')[0])"
    )


def other_columns(where: str) -> str:
    """Message on a folder of Parquet files with different columns; empty for others."""
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
    ((".npy",), _npy_damage),
    ((".parquet",), _parquet_damage),
    ((".h5ad", ".h5", ".hdf5"), _hdf5_damage),
    ((".npz",), _npz_damage),
)
