"""Tables of numbers in `.csv` files: which line is a header, what is missing, and where something is no number."""

from __future__ import annotations

import csv
import itertools
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["read_table"]


def read_table(path: str) -> tuple[NDArray[np.float64], list[str] | None]:
    r"""
    Read a table of numbers separated by commas; an empty cell is a missing number, NaN.

    The first line is a header if a cell of it is no number, or if it counts the columns: 0, 1, 2, ... A comma at the
    end of every line begins no column.

    Parameters
    ----------
    path : str
        A local file, in UTF-8.

    Returns
    -------
    values : ndarray of float64, shape (n, p)
        The numbers.
    names : list of str or None
        The header, where there is one.

    Raises
    ------
    InvalidInputError
        Something is no number, rows differ in length, there are none, or the first column is pandas' index.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "X.csv").write_text("red,green\n1,2\n3,\n")
    ...     read_table(folder + "/X.csv")
    (array([[ 1.,  2.],
           [ 3., nan]]), ['red', 'green'])
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
