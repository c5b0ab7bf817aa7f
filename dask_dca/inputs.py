"""Data by path: zarr arrays, NumPy files and tables of numbers (`.csv`), none of them read before it is needed."""

from __future__ import annotations

import csv
import itertools
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.files import SHARE, require_regular, this_process
from dask_dca.engine.rows import as_rows, open_array
from dask_dca.errors import DCAError, InvalidInputError, MissingChunksWarning, unreachable
from dask_dca.output import is_url, local_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["Data", "open_data", "read_table"]

_BLOCK_BYTES: Final = 2**26


def read_table(path: str) -> tuple[NDArray[np.float64], list[str] | None]:
    r"""Read a table of numbers separated by commas; an empty cell is a missing number, NaN.

    The first line is a header if a cell of it is no number, or if it counts the columns: 0, 1, 2, ... A comma at the
    end of every line begins no column.
    Returns values (n, p); names: the header, where there is one.
    Raises InvalidInputError: something is no number, rows differ in length, there are none, or the first column is
    pandas' index.
    """
    with open(path, encoding="utf-8-sig", newline="") as lines:
        first = [cell.strip() for cell in next(csv.reader(lines), [])]
    names = first if _is_header(first) else None
    trimmed = _is_trailing(path, names)
    if trimmed and names is not None:
        names = _named(names)
    try:
        values = _loaded(path, names, trimmed)
    except ValueError as error:
        _explain(path, names, trimmed, error)  # raises unless cells are only empty
        values = _loaded(path, names, trimmed, converters=lambda cell: float(cell.strip() or "nan"))
    if not values.size:
        msg = f"{path!r} has no rows of numbers"
        raise InvalidInputError(msg)
    if names is not None and len(names) == values.shape[1] + 1:
        names = _named(names)
    if names is not None and len(names) != values.shape[1]:
        msg = f"{path!r} has {len(names)} names in its header and {values.shape[1]} numbers in a row"
        raise InvalidInputError(msg)
    if names is not None and not names[0] and np.array_equal(values[:, 0], np.arange(len(values))):
        msg = (
            f"the first column of {path!r} has no name and counts the rows, as pandas writes it; "
            "write the file with to_csv(..., index=False)"
        )
        raise InvalidInputError(msg)
    return values, names


def _named(names: list[str]) -> list[str]:
    """Leave out what is after a comma at the end of a header."""
    return names if names[-1] else names[:-1]


def _is_trailing(path: str, names: list[str] | None) -> bool:
    """Whether every row ends with a comma after which no column begins."""
    with open(path, encoding="utf-8-sig", newline="") as lines:
        rows = (line.rstrip() for line in itertools.islice(lines, int(names is not None), None))
        first = next(filter(None, rows), "")
        named = names is not None and names[-1] and len(names) > first.count(",")
        return first.endswith(",") and not named and all(row.endswith(",") for row in rows if row)


def _lines(path: str, trimmed: bool) -> Iterator[str]:
    with open(path, encoding="utf-8-sig", newline="") as lines:
        for line in lines:
            yield line.rstrip().removesuffix(",") + "\n" if trimmed else line


def _loaded(path: str, names: list[str] | None, trimmed: bool, **more: Any) -> NDArray[np.float64]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*input contained no data.*")
        found: NDArray[np.float64] = np.loadtxt(
            _lines(path, trimmed),
            delimiter=",",
            ndmin=2,
            quotechar='"',
            skiprows=int(names is not None),
            comments=None,
            **more,
        )
    return found


def _is_header(cells: list[str]) -> bool:
    counted = cells[1:] if cells and not cells[0] else cells
    if len(counted) > 1 and counted == [str(i) for i in range(len(counted))]:
        return True
    return any(cell and not _is_number(cell) for cell in cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _explain(path: str, names: list[str] | None, trimmed: bool, error: ValueError) -> None:
    """Find the first cell that is neither empty nor a number, or the first row of another length."""
    rows = csv.reader(_lines(path, trimmed))
    width = len(names) if names is not None and next(rows) else None
    for row in filter(None, rows):
        width = width or len(row)
        if len(row) != width:
            msg = f"line {rows.line_num} of {path!r} has {len(row)} cells, those before it {width}"
            raise InvalidInputError(msg) from error
        for j, cell in enumerate(row):
            if cell.strip() and not _is_number(cell):
                raise InvalidInputError(_no_number(path, rows.line_num, names, j, cell)) from error


def _no_number(path: str, line: int, names: list[str] | None, column: int, cell: str) -> str:
    where = repr(names[column]) if names is not None else str(column + 1)
    if ";" in cell or "\t" in cell:
        mark = ";" if ";" in cell else "\t"
        mended = f"pandas.read_csv({path!r}, sep={mark!r}).to_csv('numbers.csv', index=False)"
        return f"cells of {path!r} are separated by {mark!r}; write them with commas: {mended}"
    mended = f"pandas.read_csv({path!r}).select_dtypes('number').to_csv('numbers.csv', index=False)"
    found = f"line {line} of {path!r}, column {where}, is no number: {cell.strip()[:40]!r}"
    return f"{found}; keep the columns of numbers: {mended}"


@dataclass(frozen=True)
class Data:
    """A matrix that a model takes, and the names of its columns where the file has them."""

    matrix: Any
    names: list[str] | None = None

    def __str__(self) -> str:
        n, p = self.matrix.shape
        return f"{n} row{'s' * (n != 1)} of {p} feature{'s' * (p != 1)}"

    @property
    def is_bare_table(self) -> bool:
        """Whether this is a table whose first line was taken for data.

        Returns true for a table without a header.
        """
        return self.names is None and isinstance(self.matrix, np.ndarray)


def open_data(path: str, array: str | None = None) -> Data:
    r"""Open a matrix by path.

    path: A zarr array or group (path or URL), a `.npy` file, or a `.csv` file of numbers with or without a header;
    array: which array of a zarr group. Returns the matrix. Workers read their own slices of a zarr array or `.npy`
    file; a `.csv` file is read at once.
    Raises InvalidInputError: there is nothing at the path, or no matrix of numbers.
    """
    where = path if is_url(path) else str(local_path(path))
    if not is_url(path) and not Path(where).exists():
        msg = f"there is nothing at {path!r}; check the path, for example with: ls {str(Path(where).parent)!r}"
        raise InvalidInputError(msg)
    require_regular(where)
    try:
        data = _open(where, array)
        as_rows(data.matrix)  # refuses what has no rows and columns of numbers
    except (DCAError, MemoryError, MissingChunksWarning):
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        msg = f"{path!r} can't be read as a zarr array, a .npy file or a .csv table of numbers: {reason}"
        raise InvalidInputError(unreachable(path, error) or msg) from error
    return data


def _open(where: str, array: str | None) -> Data:
    suffix = Path(where).suffix.lower()
    if suffix not in (".npy", ".csv"):
        return Data(open_array(where, array))
    if is_url(where) or array is not None:
        msg = f"{suffix} files are read from local paths and hold one array; received {where!r}, --array {array}"
        raise InvalidInputError(msg)
    return Data(_slices_of_npy(where)) if suffix == ".npy" else Data(*read_table(where))


class _NpyFile:
    """A `.npy` file of which whoever holds this reads slices: it travels to workers as a path."""

    def __init__(self, path: str) -> None:
        self.path = path
        held = np.load(path, mmap_mode="r", allow_pickle=False)
        self.shape, self.dtype, self.ndim = held.shape, held.dtype, held.ndim

    def __getitem__(self, index: Any) -> NDArray[Any]:
        try:
            held = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError as error:
            raise InvalidInputError(self._elsewhere("finds no file")) from error
        if (held.shape, held.dtype) != (self.shape, self.dtype):
            raise InvalidInputError(self._elsewhere(f"finds an array of shape {held.shape} and dtype {held.dtype}"))
        return np.array(held[index])

    def _elsewhere(self, what: str) -> str:
        return (
            f"the array of shape {self.shape} and dtype {self.dtype} is at {self.path}, but {this_process()} {what} "
            f"there; {SHARE}"
        )


def _slices_of_npy(path: str) -> Any:
    import dask.array as da

    held = _NpyFile(path)
    as_rows(np.load(path, mmap_mode="r", allow_pickle=False))
    width = max(held.shape[1] * held.dtype.itemsize, 1)
    return da.from_array(
        held, chunks=(max(1, _BLOCK_BYTES // width), -1), asarray=False, meta=np.empty((0, 0), held.dtype)
    )
