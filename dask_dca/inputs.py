"""Data by path: zarr arrays, NumPy and Parquet files, which are read lazily, and tables of numbers."""

from __future__ import annotations

import csv
import gzip
import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.engine.advice import Form
from dask_dca.engine.cubes import VARIABLE
from dask_dca.engine.files import FORMATS, converter_of, format_of, reader_of, require_regular
from dask_dca.engine.rows import as_rows
from dask_dca.engine.stores import is_a, open_array, open_npy
from dask_dca.engine.tables import cells_of_h5ad, frame_of_parquet, is_number
from dask_dca.errors import DCAError, InvalidInputError, MissingChunksWarning, unreachable
from dask_dca.output import is_url, local_path

if TYPE_CHECKING:
    from pandas import DataFrame

_TABLE_ENDINGS: Final = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_REMEDY: Final = re.compile(r"X(\.data\[\S+\])? = .*$")
_DTYPE_REMEDY: Final = re.compile(
    r"(?:received dtype|Complex data) .*; pass (?:X\.real or )?(.+?)(?: (?:for|of) \w+)?$"
)
_READ_AND_WRITE: Final = {  # code that reads a file, and code that writes another one, by ending
    **dict.fromkeys(_TABLE_ENDINGS, ("X = {read}; ", "X.to_csv('numbers.csv', index=False)")),
    ".parquet": ("X = {read}; ", "X.to_parquet('numbers.parquet')"),
    ".npy": ("X = numpy.load({where}); ", "numpy.save('numbers.npy', X)"),
    ".h5ad": ("X = {read}; ", "anndata.AnnData(X).write_h5ad('numbers.h5ad')"),
    "": ("X = dask.array.from_zarr({where}); ", "X.compute_chunk_sizes().rechunk('auto').to_zarr('numbers.zarr')"),
}
_WRITTEN_NAME: Final = re.compile(r"((?:save|write_zarr|write_h5ad|to_csv|to_parquet|to_zarr)\(')numbers\.")
_NUMBERS_OF_OBJECTS: Final = (
    "pandas.DataFrame(numpy.load({0!r}, allow_pickle=True)).infer_objects().select_dtypes(['number', 'bool'])"
)
_MAX_MARKS: Final = 5  # maximum number of marks of missing numbers that a message lists


def read_table(path: str) -> tuple[NDArray[np.float64], list[str] | None]:
    r"""Read a table of numbers; an empty cell is a missing number, NaN.

    path: `.csv` or `.tsv`, separated by commas, semicolons (optionally with decimal commas) or tabs, also compressed
    (`.gz`). The first line is a header if one of its cells is not a number, or if it counts the columns: 0, 1, ... A
    trailing separator in every line does not start a column.
    Returns values (n, p), and the names of the header or None.
    Raises InvalidInputError: a cell is not a number, a row is too long, there are no rows, the first column is an index
    of pandas, or pandas is missing.
    """
    first, separator = _first_line(path)
    names = first if _is_header(first) else None
    cells = _read_cells(path, separator, skip=int(names is not None))
    cells, names = _drop_trailing_column(cells, names)
    if not cells.size:
        msg = f"{path!r} has no rows of numbers"
        raise InvalidInputError(msg)
    if names is not None and len(names) != cells.shape[1]:
        msg = f"{path!r} has {len(names)} names in its header and {cells.shape[1]} numbers in a row"
        raise InvalidInputError(msg)
    values = _to_numbers(path, cells, names, separator)
    if names is not None and not names[0] and np.array_equal(values[:, 0], np.arange(len(values))):
        msg = (
            f"the first column of {path!r} has no name and counts the rows, as pandas writes it; "
            "write the file with to_csv(..., index=False)"
        )
        raise InvalidInputError(msg)
    return values, names


def names_code(path: str, skip: int = 0) -> str:
    """Return Python code for the column names of a file, or the feature names of a model; skip: name columns."""
    if format_of(path) == ".h5ad":
        return f"{reader_of(path)}.var_names"
    if format_of(path):
        return f"{reader_of(path)}.columns" + f"[{skip}:]" * bool(skip)
    return f"dask_dca.load_model({path!r}).feature_names_in_"


def reorder_code(path: str, names: str, dim: str = "") -> str:
    """Return Python code that writes the columns of a file in another order.

    names: code of the names in that order; dim: feature dimension of a cube.
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


def adapt_remedy(message: str, path: str, array: str | None = None) -> str:
    """Adapt the code in a message to a file: code that reads it, fixes the data, and writes another file.

    message: of an error, possibly ending in statements that fix X; path, array: of the data.
    """
    told = _adapted_remedy(message, path, array)
    return _WRITTEN_NAME.sub(r"\1mended.", told) if Path(path).stem == "numbers" else told


def _adapted_remedy(message: str, path: str, array: str | None) -> str:
    other = _DTYPE_REMEDY.search(message)  # an expression that converts the dtype, which becomes a statement
    if other is not None:
        message = f"{message[: message.rindex('pass ')]}for example X = {other[1]}"
    found = _REMEDY.search(message)
    if found is None:
        return message
    kind, mended = format_of(path), found[0]
    if kind in _TABLE_ENDINGS or kind == ".parquet":
        mended = Form("table").adapt(mended)
    first, last = _READ_AND_WRITE.get(kind, _READ_AND_WRITE[""])
    if mended.startswith("X = anndata"):
        last = "anndata.AnnData(X).write_zarr('numbers.zarr')"
    elif not kind:
        mended = mended.removeprefix("X = dask.array.from_zarr(X); ")
        last = last if "all(axis=1)" in mended or "np.isin" in mended else "X.to_zarr('numbers.zarr')"
    where = repr(path) if array is None else f"{path!r}, component={array!r}"
    read = _read_code(path, array)
    opened = "" if mended.startswith(("X = anndata", "X = dask")) else first.format(where=where, read=read)
    return f"{message[: found.start()]}{opened}{mended}; {last}"


def _read_code(path: str, array: str | None) -> str:
    if format_of(path) == ".h5ad":
        place = f".layers[{array.removeprefix('layers/')!r}]" if array not in (None, "X") else ".X"
        return reader_of(path) + place
    if format_of(path) not in _TABLE_ENDINGS:
        return reader_of(path)
    first, separator = _first_line(str(local_path(path)))
    return _csv_code(path, separator, first if _is_header(first) else None, [])


def read_named_rows(path: str) -> tuple[Data, list[str] | None]:
    """Read a matrix, with row names if the first column of a table is not numeric.

    path: as for `open_data`. Returns the matrix, and the names (n,) of the rows or None.
    Raises InvalidInputError: as for `open_data`; or named rows differ in length.
    """
    if is_url(path) or format_of(path) not in _TABLE_ENDINGS or not Path(local_path(path)).is_file():
        return open_data(path), None
    where = str(local_path(path))
    first, separator = _first_line(where)
    cells = _read_cells(where, separator, skip=int(_is_header(first[1:])))
    if cells.shape[1] < 2 or not len(cells.iloc[:, :1].select_dtypes(exclude="number").columns):
        return open_data(path), None
    values = _to_numbers(where, cells.iloc[:, 1:], None, separator)
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
    """Return the cells of the first line, and the separator: tab, semicolon or comma, the first that occurs."""
    opener: Any = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig") as lines:
        line = lines.readline()
    cut = {mark: [cell.strip() for cell in next(csv.reader([line], delimiter=mark), [])] for mark in "\t;,"}
    separator = next((mark for mark, cells in cut.items() if len(cells) > 1), ",")
    return cut[separator], separator


def _read_cells(path: str, separator: str, skip: int) -> DataFrame:
    pandas = _pandas(path)
    options = {"header": None, "skiprows": skip, "skipinitialspace": True, "encoding": "utf-8-sig", "low_memory": False}
    if tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1):  # later versions do so by default
        options["float_precision"] = "round_trip"
    try:
        return pandas.read_csv(path, sep=separator, **options)
    except pandas.errors.EmptyDataError:
        return pandas.DataFrame()
    except pandas.errors.ParserError as error:
        msg = (
            f"{path!r} can't be read as a table: {str(error).rpartition('error: ')[2].strip()}; leave such lines out: "
            f"{_csv_code(path, separator, [] if skip else None, [])[:-1]}, on_bad_lines='skip').to_csv('numbers.csv', "
            f"index=False{'' if skip else ', header=False'})"
        )
        raise InvalidInputError(msg) from error


def _drop_trailing_column(cells: DataFrame, names: list[str] | None) -> tuple[DataFrame, list[str] | None]:
    """Drop the empty column, and the empty name, that trailing separators produce."""
    n = cells.shape[1]
    named = names is not None and len(names) == n and names[-1] != ""
    if n > 1 and not named and cells.iloc[:, -1].isna().all():
        cells = cells.iloc[:, :-1]
    if names is not None and len(names) == cells.shape[1] + 1 and not names[-1]:
        names = names[:-1]
    return cells, names


def _to_numbers(path: str, cells: DataFrame, names: list[str] | None, separator: str) -> NDArray[np.float64]:
    """Convert cells to numbers; raise InvalidInputError for the first that is neither empty nor a number."""
    texts = cells.select_dtypes(exclude=["number", "bool"])
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
            f"{_encode_code(_csv_code(path, separator, names, marks), odd, mostly)}.to_csv('numbers.csv', index=False)"
        )
        raise InvalidInputError(msg)
    return found.to_numpy(dtype=np.float64)


def _encode_code(opened: str, odd: NDArray[np.bool_], marks: NDArray[np.bool_]) -> str:
    """Return code that converts a table with texts to numbers, by dropping or encoding the columns of texts.

    odd, marks: masks of cells that are not numbers, and of those in numeric columns.
    """
    n_texts = int((odd.any(axis=0) & ~marks.any(axis=0)).sum())
    if n_texts < odd.shape[1]:
        missing = ", with NaN for what is missing" * bool(marks.any())
        return f"keep the columns of numbers{missing}: {opened}.select_dtypes(['number', 'bool'])"
    if n_texts == 1:
        return f"number the texts: {opened}.apply(lambda column: pandas.factorize(column)[0])"
    return f"make columns of 0 and 1 of the texts: pandas.get_dummies({opened})"


def _csv_code(path: str, separator: str, names: list[str] | None, marks: list[str]) -> str:
    """Return the code by which pandas reads a table; marks: texts in numeric columns, read as NaN."""
    options = {
        "sep": separator if separator != "," else None,
        "decimal": "," if separator == ";" and _has_commas(path) else None,
        "na_values": marks[:_MAX_MARKS] or None,
    }
    said = [f"{name}={value!r}" for name, value in options.items() if value is not None]
    return f"pandas.read_csv({', '.join([repr(path), *said, *(['header=None'] if names is None else [])])})"


def _has_commas(path: str) -> bool:
    """Whether the first lines of a table with semicolons contain commas, as of decimals."""
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
    """A matrix, and the names of its columns if the file has them."""

    matrix: Any
    names: list[str] | None = None

    def __str__(self) -> str:
        n, p = self.matrix.shape
        return f"{n} row{'s' * (n != 1)} of {p} feature{'s' * (p != 1)}"

    @property
    def is_bare_table(self) -> bool:
        """Whether this is a table without a header."""
        return self.names is None and isinstance(self.matrix, np.ndarray)


def open_data(path: str, array: str | None = None) -> Data:
    r"""Open a matrix by path.

    path: a zarr array or group (path or URL), a `.npy` file, Parquet, a table of numbers with or without a header
    (`.csv`, `.tsv`, also `.gz`), or cells (`.h5ad`); array: an array of a zarr group, or a layer of cells. Workers read
    their own parts of a zarr array, a `.npy` file and Parquet; tables and cells are read at once.
    Raises InvalidInputError: nothing is at the path, or no matrix of numbers.
    """
    where = path if is_url(path) else str(local_path(path))
    if not is_url(path) and not Path(where).exists():
        msg = f"there is nothing at {path!r}; check the path, for example with: ls {str(Path(where).parent)!r}"
        raise InvalidInputError(msg)
    require_regular(where)
    try:
        data = _open(where, array)
        as_rows(data.matrix)  # raises an error unless it is a numeric matrix
    except (DCAError, MemoryError, MissingChunksWarning):
        raise
    except UnicodeDecodeError as error:
        msg = (
            f"{path!r} is no text in UTF-8; if it is in the code of Windows or of an old program, write it in UTF-8: "
            f"pathlib.Path('utf8.csv').write_text(pathlib.Path({path!r}).read_text('latin-1'), 'utf-8')"
        )
        raise InvalidInputError(msg) from error
    except Exception as error:
        raise InvalidInputError(unreachable(path, error) or _unreadable(path, error)) from error
    return data


def _unreadable(path: str, error: Exception) -> str:
    """Say what a reader found wrong with a file."""
    reason = str(error).rpartition("Original Message: ")[2].partition("\n")[0] or type(error).__name__  # of Dask's
    if "Python objects" in reason:
        return (
            f"{path!r} holds Python objects, which are pickled and can run code; if you trust the file, write its "
            f"numbers: numpy.save('numbers.npy', {_NUMBERS_OF_OBJECTS.format(path)}.to_numpy(float))"
        )
    if "pickled" in reason:  # NumPy takes any other file for one
        reason = "it is no .npy file"
    mend = "copy it again, or write it again" + ", all of its files with the same columns" * Path(path).is_dir()
    return f"{path!r} can't be read: {reason}; {mend}"


def _open(where: str, array: str | None) -> Data:
    kind = format_of(where)
    if kind == "":
        return Data(_as_column(open_array(where, array)))
    if array is not None and kind != ".h5ad":
        msg = f"{where!r} holds one array; leave out --array {array}"
        raise InvalidInputError(msg)
    if is_url(where) and kind != ".parquet":
        msg = f"{kind} files are read from local paths, not from {where!r}; copy it, or write zarr or Parquet there"
        if kind in _TABLE_ENDINGS:
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
        return Data(_as_column(found))
    return Data(*read_table(where))


def _as_column(found: Any) -> Any:
    """Reshape a vector to one column."""
    if found.ndim != 1:
        return found
    import dask.array as da

    return (found if is_a(found, "dask.array", "Array") else da.from_array(found, chunks=found.chunks))[:, None]
