"""Data by path: zarr arrays, NumPy and Parquet files, and tables of numbers, none of them read before it is needed."""

from __future__ import annotations

import csv
import gzip
import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.advice import Form
from dask_dca.engine.cubes import VARIABLE
from dask_dca.engine.damaged import cut_table, damage_of, other_columns
from dask_dca.engine.files import FORMATS, converter_of, format_of, reader_of, require_regular
from dask_dca.engine.rows import as_rows
from dask_dca.engine.stores import is_a, open_array, open_npy
from dask_dca.engine.tables import cells_of_h5ad, frame_of_parquet, is_number
from dask_dca.errors import DCAError, InvalidInputError, MissingChunksWarning, unreachable
from dask_dca.output import is_url, local_path

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame

_TABLES: Final = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_STATEMENTS: Final = re.compile(r"X(\.data\[\S+\])? = .*$")
_OF_KIND: Final = re.compile(r"(?:received dtype|Complex data) .*; pass (?:X\.real or )?(.+?)(?: (?:for|of) \w+)?$")
_FIRST_AND_LAST: Final = {  # how a file is read, and how another is written
    **dict.fromkeys(_TABLES, ("X = {read}; ", "X.to_csv('numbers.csv', index=False)")),
    ".parquet": ("X = {read}; ", "X.to_parquet('numbers.parquet')"),
    ".npy": ("X = numpy.load({where}); ", "numpy.save('numbers.npy', X)"),
    ".h5ad": ("X = {read}; ", "anndata.AnnData(X).write_h5ad('numbers.h5ad')"),
    "": (
        "X = dask.array.from_zarr({where}); ",
        "X.compute_chunk_sizes().rechunk('auto').to_zarr('numbers.zarr')",
    ),
}
_WRITES: Final = re.compile(r"((?:save|write_zarr|write_h5ad|to_csv|to_parquet|to_zarr)\(')numbers\.")
_MARKS: Final = 5  # of missing numbers that a message names


def read_table(path: str) -> tuple[NDArray[np.float64], list[str] | None]:
    r"""Read a table of numbers; an empty cell is a missing number, NaN.

    path: `.csv` or `.tsv`, separated by commas, semicolons (with decimal commas where cells hold them) or tabs, also
    compressed (`.gz`). The first line is a header if a cell of it is no number, or if it counts the columns: 0, 1, ...
    A separator at the end of every line begins no column.
    Returns values (n, p); names: the header, where there is one.
    Raises InvalidInputError: something is no number, a row is too long, there are none, the first column is pandas'
    index, or pandas is missing.
    """
    first, separator = _first_line(path)
    names = first if _is_header(first) else None
    cells = _cells(path, separator, skip=int(names is not None))
    cells, names = _without_trailing(cells, names)
    if not cells.size:
        msg = f"{path!r} has no rows of numbers"
        raise InvalidInputError(msg)
    if names is not None and len(names) != cells.shape[1]:
        msg = f"{path!r} has {len(names)} names in its header and {cells.shape[1]} numbers in a row"
        raise InvalidInputError(msg)
    values = _numbers(path, cells, names, separator)
    if names is not None and not names[0] and np.array_equal(values[:, 0], np.arange(len(values))):
        msg = (
            f"the first column of {path!r} has no name and counts the rows, as pandas writes it; "
            "write the file with to_csv(..., index=False)"
        )
        raise InvalidInputError(msg)
    return values, names


def names_at(path: str, skip: int = 0) -> str:
    """What the columns of a file, or the features of a saved model, are called, in Python; skip: columns of names."""
    if format_of(path) == ".h5ad":
        return f"{reader_of(path)}.var_names"
    if format_of(path):
        return f"{reader_of(path)}.columns" + f"[{skip}:]" * bool(skip)
    return f"dask_dca.load_model({path!r}).feature_names_in_"


def in_order(path: str, names: str, dim: str = "") -> str:
    """The line that writes the columns of a file in another order.

    names: what gives their names in that order, in Python; dim: what the features of a cube are along.
    """
    if dim:
        chosen = f"[list({names})]" if dim == VARIABLE else f".sel({dim}=list({names}))"
        return f"xarray.open_zarr({path!r}){chosen}.to_zarr('ordered.zarr')"
    if format_of(path) == ".h5ad":
        return f"{reader_of(path)}[:, list({names})].write_h5ad('ordered.h5ad')"
    if format_of(path) == ".parquet":
        return f"{reader_of(path)}[list({names})].to_parquet('ordered.parquet')"
    if format_of(path):
        return f"{reader_of(path)}[list({names})].to_csv('ordered.csv', index=False)"
    return f"anndata.read_zarr({path!r})[:, list({names})].write_zarr('ordered.zarr')"


def mended_file(message: str, path: str, array: str | None = None) -> str:
    """Put the lines of a message in terms of a file: it is read, mended, and written to another.

    message: of an error, perhaps with statements that mend X at its end; path, array: of the data.
    """
    told = _in_terms_of_file(message, path, array)
    return _WRITES.sub(r"\1mended.", told) if Path(path).stem == "numbers" else told


def _in_terms_of_file(message: str, path: str, array: str | None) -> str:
    other = _OF_KIND.search(message)  # entries of another kind: an expression, which becomes a statement
    if other is not None:
        message = f"{message[: message.rindex('pass ')]}for example X = {other[1]}"
    found = _STATEMENTS.search(message)
    if found is None:
        return message
    kind, mended = format_of(path), found[0]
    if kind in _TABLES or kind == ".parquet":
        mended = Form("table").adapt(mended)
    first, last = _FIRST_AND_LAST.get(kind, _FIRST_AND_LAST[""])
    if mended.startswith("X = anndata"):
        last = "anndata.AnnData(X).write_zarr('numbers.zarr')"
    elif not kind:
        mended = mended.removeprefix("X = dask.array.from_zarr(X); ")
        last = last if "all(axis=1)" in mended or "np.isin" in mended else "X.to_zarr('numbers.zarr')"
    where = repr(path) if array is None else f"{path!r}, component={array!r}"
    read = _read_by(path, array)
    opened = "" if mended.startswith(("X = anndata", "X = dask")) else first.format(where=where, read=read)
    return f"{message[: found.start()]}{opened}{mended}; {last}"


def _read_by(path: str, array: str | None) -> str:
    if format_of(path) == ".h5ad":
        place = f".layers[{array.removeprefix('layers/')!r}]" if array not in (None, "X") else ".X"
        return reader_of(path) + place
    if format_of(path) not in _TABLES:
        return reader_of(path)
    first, separator = _first_line(str(local_path(path)))
    return _reading(path, separator, first if _is_header(first) else None, [])


def read_named_rows(path: str) -> tuple[Data, list[str] | None]:
    """Read a matrix whose rows may have names: the first column of a table, where it holds anything but numbers.

    path: as `open_data` takes it. Returns the matrix; names (n,): of the rows, where they have any.
    Raises InvalidInputError: as `open_data` does; or named rows differ in length.
    """
    if is_url(path) or format_of(path) not in _TABLES or not Path(local_path(path)).is_file():
        return open_data(path), None
    where = str(local_path(path))
    first, separator = _first_line(where)
    cells = _cells(where, separator, skip=int(_is_header(first[1:])))
    if cells.shape[1] < 2 or not len(cells.iloc[:, :1].select_dtypes(exclude="number").columns):
        return open_data(path), None
    values = _numbers(where, cells.iloc[:, 1:], None, separator)
    if np.isnan(values).any():
        msg = f"the rows of {path!r} differ in length, or cells are empty; each is a name and then its numbers"
        raise InvalidInputError(msg)
    return Data(values, first[1:] if _is_header(first[1:]) else None), [str(name).strip() for name in cells.iloc[:, 0]]


def _pandas(path: str) -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        msg = f"{path!r} is a table, which pandas reads: pip install pandas"
        raise InvalidInputError(msg) from error
    return pd


def _first_line(path: str) -> tuple[list[str], str]:
    """Cells of the first line, and what separates them: tabs if there are any outside quotes, else semicolons."""
    opener: Any = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig") as lines:
        line = lines.readline()
    cut = {mark: [cell.strip() for cell in next(csv.reader([line], delimiter=mark), [])] for mark in "\t;,"}
    separator = next((mark for mark, cells in cut.items() if len(cells) > 1), ",")
    return cut[separator], separator


def _cells(path: str, separator: str, skip: int) -> DataFrame:
    pandas = _pandas(path)
    options = {"header": None, "skiprows": skip, "skipinitialspace": True, "encoding": "utf-8-sig", "low_memory": False}
    if tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1):  # later ones read numbers exactly, and warn of it
        options["float_precision"] = "round_trip"
    try:
        return pandas.read_csv(path, sep=separator, **options)
    except pandas.errors.EmptyDataError:
        return pandas.DataFrame()
    except pandas.errors.ParserError as error:
        msg = (
            f"{path!r} can't be read as a table: {str(error).rpartition('error: ')[2].strip()}; leave such lines out: "
            f"{_reading(path, separator, [] if skip else None, [])[:-1]}, on_bad_lines='skip').to_csv('numbers.csv', "
            f"index=False{'' if skip else ', header=False'})"
        )
        raise InvalidInputError(msg) from error


def _without_trailing(cells: DataFrame, names: list[str] | None) -> tuple[DataFrame, list[str] | None]:
    """Leave out the column that a separator at the end of lines seems to begin, and the name that one begins."""
    n = cells.shape[1]
    named = names is not None and len(names) == n and names[-1] != ""
    if n > 1 and not named and cells.iloc[:, -1].isna().all():
        cells = cells.iloc[:, :-1]
    if names is not None and len(names) == cells.shape[1] + 1 and not names[-1]:
        names = names[:-1]
    return cells, names


def _numbers(path: str, cells: DataFrame, names: list[str] | None, separator: str) -> NDArray[np.float64]:
    """Cells as numbers; the first that is neither empty nor a number is told."""
    texts = cells.select_dtypes(exclude="number")
    if separator == ";":
        texts = texts.apply(lambda column: column.str.replace(",", "."))
    found = cells.copy()
    found[texts.columns] = texts.apply(_pandas(path).to_numeric, errors="coerce")
    odd = (found.isna() & cells.notna()).to_numpy()
    rows, columns = np.nonzero(odd)
    if len(rows):
        where = repr(names[columns[0]]) if names is not None else str(columns[0])
        mostly = odd & (2 * odd.sum(axis=0) < cells.notna().to_numpy().sum(axis=0))
        marks = list(dict.fromkeys(str(cell) for cell in cells.to_numpy()[mostly]))
        msg = (
            f"row {rows[0]} of {path!r}, column {where}, is no number: {str(cells.iat[rows[0], columns[0]])[:40]!r}; "
            f"{_made_numbers(_reading(path, separator, names, marks), odd, mostly)}.to_csv('numbers.csv', index=False)"
        )
        raise InvalidInputError(msg)
    values: NDArray[np.float64] = found.to_numpy(dtype=np.float64)
    return values


def _made_numbers(opened: str, odd: NDArray[np.bool_], marks: NDArray[np.bool_]) -> str:
    """What makes a table of numbers of one with texts: without these columns; of texts alone their values' numbers.

    odd, marks: cells that are no numbers, and those of them in columns of numbers.
    """
    n_texts = int((odd.any(axis=0) & ~marks.any(axis=0)).sum())
    if n_texts < odd.shape[1]:
        missing = ", with NaN for what is missing" * bool(marks.any())
        return f"keep the columns of numbers{missing}: {opened}.select_dtypes(['number', 'bool'])"
    if n_texts == 1:
        return f"number the texts: {opened}.apply(lambda column: pandas.factorize(column)[0])"
    return f"make columns of 0 and 1 of the texts: pandas.get_dummies({opened})"


def _reading(path: str, separator: str, names: list[str] | None, marks: list[str]) -> str:
    """The line by which pandas reads a table; marks: what stands in columns of numbers and is none."""
    options = {
        "sep": separator if separator != "," else None,
        "decimal": "," if separator == ";" and _has_commas(path) else None,
        "na_values": marks[:_MARKS] or None,
    }
    said = [f"{name}={value!r}" for name, value in options.items() if value is not None]
    return f"pandas.read_csv({', '.join([repr(path), *said, *(['header=None'] if names is None else [])])})"


def _has_commas(path: str) -> bool:
    """Whether commas are in the first lines of a table that semicolons separate: of decimals, or of names."""
    opener: Any = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig") as lines:
        return any("," in line for line in itertools.islice(lines, 1, 100))


def _is_header(cells: list[str]) -> bool:
    counted = cells[1:] if cells and not cells[0] else cells
    if len(counted) > 1 and counted == [str(i) for i in range(len(counted))]:
        return True
    return any(cell and not is_number(cell.replace(",", ".")) for cell in cells)


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

    path: A zarr array or group (path or URL), a `.npy` file, Parquet, or a table of numbers with or without a header
    (`.csv`, `.tsv`, `.gz` of them), or cells (`.h5ad`); array: which array of a zarr group, or layer of cells. Returns
    the matrix. Workers read their own parts of a zarr array, a `.npy` file and Parquet; tables and cells are read at
    once.
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
    except UnicodeDecodeError as error:
        msg = (
            f"{path!r} is no text in UTF-8; if it is in the code of Windows or of an old program, write it in UTF-8: "
            f"pathlib.Path('utf8.csv').write_text(pathlib.Path({path!r}).read_text('latin-1'), 'utf-8')"
        )
        raise InvalidInputError(msg) from error
    except Exception as error:
        if isinstance(error, EOFError) and where.endswith(".gz"):
            raise InvalidInputError(cut_table(path)) from error
        if Path(where).is_dir() and format_of(where) == ".parquet" and (others := other_columns(where)):
            raise InvalidInputError(others) from error
        reason = str(error).rpartition("Original Message: ")[2].partition("\n")[0] or type(error).__name__  # of Dask's
        msg = f"{path!r} can't be read as a zarr array, a .npy or .parquet file or a table of numbers: {reason}"
        raise InvalidInputError(unreachable(path, error) or msg) from error
    return data


def _open(where: str, array: str | None) -> Data:
    kind = format_of(where)
    if kind == "":
        return Data(_column(open_array(where, array)))
    if not is_url(where) and (damage := damage_of(where)):
        msg = f"{where!r} {damage}"
        raise InvalidInputError(msg)
    if array is not None and kind != ".h5ad":
        msg = f"{where!r} holds one array; leave out --array {array}"
        raise InvalidInputError(msg)
    if is_url(where) and kind != ".parquet":
        msg = f"{kind} files are read from local paths, not from {where!r}; copy it, or write zarr or Parquet there"
        if kind in _TABLES:
            msg += f": pandas.read_csv({where!r}).to_parquet({where.removesuffix(kind) + '.parquet'!r})"
        raise InvalidInputError(msg)
    if FORMATS[kind][1]:
        msg = f"{where!r} is read after {converter_of(where)}"
        raise InvalidInputError(msg)
    if kind == ".parquet":
        return Data(*frame_of_parquet(where))
    if kind == ".h5ad":
        return Data(*cells_of_h5ad(where, array))
    if kind == ".npy":
        found = open_npy(where)
        if found.dtype.kind in "US":
            msg = (
                f"{where!r} holds texts; number them: numpy.save('numbers.npy', numpy.unique(numpy.load({where!r}), "
                "return_inverse=True)[1])"
            )
            raise InvalidInputError(msg)
        return Data(_column(found))
    return Data(*read_table(where))


def _column(found: Any) -> Any:
    """A vector as one column."""
    if found.ndim != 1:
        return found
    import dask.array as da

    return (found if is_a(found, "dask.array", "Array") else da.from_array(found, chunks=found.chunks))[:, None]
