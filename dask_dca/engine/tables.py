"""DataFrames of pandas and Dask, Parquet files and .h5ad files: conversion of columns to one numeric dtype."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dask_dca.engine.stores import is_a
from dask_dca.errors import InvalidInputError, NotNumbersError, reason_of

_INSPECTED_ROWS: Final = 20  # rows of a table that are inspected for messages
_IN_CODE: Final = re.compile(r"\bX\b(?! (?:are|is) )")
_DECIMAL: Final = re.compile(r"[-+]?\d+,\d+")


def is_number(text: str) -> bool:
    """Whether a string is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_table(X: Any) -> bool:
    """Whether X is a DataFrame of pandas or Dask."""
    return is_a(X, "pandas", "DataFrame") or hasattr(X, "to_dask_array")


def is_foreign_table(X: Any) -> bool:
    """Whether X is a table of another library, such as polars or pyarrow, that converts to pandas."""
    streams = hasattr(X, "__dataframe__") or hasattr(X, "__arrow_c_stream__")
    return streams and hasattr(type(X), "to_pandas") and not is_a(X, "xarray", "DataArray")  # has labels of its own


def to_pandas_table(X: Any) -> Any:
    """Convert a table of another library to pandas; return anything else unchanged.

    Raises InvalidInputError: a package is missing, or the table is not computed yet.
    """
    if is_a(X, "polars", "LazyFrame"):
        msg = "a LazyFrame is a query whose rows are not known; pass X.collect()"
        raise InvalidInputError(msg)
    if not is_foreign_table(X):
        return X
    try:
        return X.to_pandas()
    except ImportError as error:
        msg = f"a {type(X).__name__} of {type(X).__module__.partition('.')[0]} needs what is not there: {error}"
        raise InvalidInputError(msg) from error
    except Exception as error:  # a column of a type that pandas lacks
        cast = "X.cast(polars.Float64)" if is_a(X, "polars", "DataFrame") else "columns of numbers"
        msg = f"the {type(X).__name__} can't become a table of pandas: {reason_of(error)}; pass {cast}"
        raise NotNumbersError(msg) from error


def numeric_table(X: Any, called: str = "X") -> Any:
    """Convert all columns of a DataFrame to one NumPy dtype, with NaN for missing entries; lazily for Dask.

    called: expression for X in messages.
    Raises NotNumbersError: columns are not numeric; the message names them, and says what to pass instead.
    """
    found, dtypes = _numeric_dtypes(X), list(X.dtypes)
    held = [dtype for dtype in found if dtype is not None]
    if len(held) < len(found):
        message = _advice(X, [j for j, dtype in enumerate(found) if dtype is None])
        raise NotNumbersError(_IN_CODE.sub(called, message))
    if all(isinstance(dtype, np.dtype) and dtype.kind in "iufc" for dtype in dtypes):
        return X
    if any(dtype.hasobject for dtype in dtypes if isinstance(dtype, np.dtype)):
        X = X.mask(X.isna())  # pandas' NA among objects is not a number, but NaN is
    return X.astype(np.result_type(*held))


def columns_without_numbers(X: Any) -> list[Any]:
    """Names of the columns of a DataFrame that `numeric_table` refuses."""
    return [name for name, dtype in zip(X.columns, _numeric_dtypes(X), strict=True) if dtype is None]


def numeric_selection(strange: Sequence[Any]) -> str:
    """Expression that selects the numeric columns of a DataFrame; strange: dtypes of the others."""
    spans = ", exclude='timedelta'" * any(getattr(dtype, "kind", "") == "m" for dtype in strange)  # a number to pandas
    return f"select_dtypes(['number', 'bool']{spans})"


def _numeric_dtypes(X: Any) -> list[np.dtype[Any] | None]:
    """NumPy dtype for the numbers of each column, None for a column without numbers."""
    found = [_numeric_dtype(dtype) for dtype in X.dtypes]
    for j, dtype in enumerate([] if hasattr(X, "to_dask_array") else X.dtypes):
        if isinstance(dtype, np.dtype) and dtype.hasobject and _are_numbers(X.iloc[:, j]):
            found[j] = np.dtype(np.float64)
    return found


def _numeric_dtype(dtype: Any) -> np.dtype[Any] | None:
    """NumPy dtype for the numbers of a column, and NaN if entries may be missing; None for other columns."""
    if isinstance(dtype, np.dtype):
        return dtype if dtype.kind in "biufc" else None
    categories = getattr(dtype, "categories", None)
    if categories is not None:  # a categorical column of numbers
        return np.dtype(np.float64) if categories.dtype.kind in "biuf" else None
    if dtype.name.startswith("decimal"):  # of Arrow
        return np.dtype(np.float64)
    if dtype.kind not in "biuf":
        return None
    inner: np.dtype[Any] = getattr(dtype, "numpy_dtype", getattr(dtype, "subtype", np.dtype(np.float64)))
    return inner if inner.kind == "f" else np.dtype(np.float64)


def _are_numbers(column: Any) -> bool:
    """Whether a column of objects contains numbers, not strings."""
    held = column.dropna()
    try:
        np.asarray(held, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return not any(isinstance(value, str) for value in held)


def _advice(X: Any, strange: Sequence[int]) -> str:
    """Compose the message on columns that are not numeric: how to convert them, or to leave them out."""
    lazy = hasattr(X, "to_dask_array")
    dtypes, names = [X.dtypes.iloc[j] for j in strange], [X.columns[j] for j in strange]
    message = f"columns {', '.join(map(repr, names[:5]))} of X are no numbers: dtype {dtypes[0]}; pass "
    if len(strange) == X.shape[1] and not lazy and (misread := _misread_advice(X)):
        return misread
    ways = [f"X.{numeric_selection(dtypes)} to leave them out"] if len(strange) < X.shape[1] else []
    if not lazy and (vectors := [name for name, j in zip(names, strange, strict=True) if holds_vectors(X.iloc[:, j])]):
        ways.append(f"numpy.stack(X[{vectors[0]!r}]) for the vectors that {vectors[0]!r} holds")
        return message + ", or ".join(ways)
    if not lazy and isinstance(X.iloc[0, strange[0]] if len(X) else None, dict):
        return message + ", or ".join(
            [*ways, f"pandas.json_normalize(X[{names[0]!r}]) for the numbers that {names[0]!r} holds"]
        )
    texts = [] if lazy or dtypes[0].kind != "O" else [v for v in X.iloc[:, strange[0]].dropna() if isinstance(v, str)]
    if texts and all(map(is_number, texts)):
        ways = [f"X.astype({dict.fromkeys(names, float)})".replace("<class 'float'>", "float")]
    elif texts and len(strange) == X.shape[1] == 1 and any(len(text.split()) > 1 for text in texts[:100]):
        counted = f"sklearn.feature_extraction.text.CountVectorizer().fit_transform(X[{names[0]!r}])"
        ways = [f"{counted} to count their words"]
    elif all(dtype.name in ("object", "category") or "str" in dtype.name for dtype in dtypes):
        made = "dask.dataframe.get_dummies(X.categorize())" if lazy else "pandas.get_dummies(X)"
        ways.append(f"{made} for a column of 0 and 1 for each value")
    elif not ways and all(dtype.kind == "M" for dtype in dtypes):
        ways = ["(X - X.min()) / numpy.timedelta64(1, 's') for seconds"]
    return message + (", or ".join(ways) or "columns of numbers")


def holds_vectors(column: Any) -> bool:
    """Whether each entry is a vector of numbers, all of one length."""
    held = column.head(_INSPECTED_ROWS).tolist()
    sides = {np.shape(part) if isinstance(part, list | tuple | np.ndarray) else () for part in held}
    return len(sides) == 1 and len(sides.pop()) == 1


def _misread_advice(X: Any) -> str:
    """Message on a table that was probably read with a wrong separator or decimal sign, empty otherwise."""
    cells = [str(cell) for cell in X.iloc[:_INSPECTED_ROWS].to_numpy().ravel().tolist()]
    odd = next((cell for cell in cells if _DECIMAL.fullmatch(cell)), "")
    if not odd and not set(str(X.columns[0])) & set(";\t"):
        return ""
    return (
        f"no column of X is of numbers alone: {str(X.columns[0])[:30]!r} holds {(odd or cells[0])[:30]!r}; read the "
        "table with its separator, decimal sign and marks of missing numbers, for example "
        "pandas.read_csv(path, sep=';', decimal=',', na_values=['n.a.'])"
    )


def cells_of_h5ad(where: str, array: str | None) -> tuple[Any, list[str]]:
    """Read a matrix of an .h5ad file, X or a layer by its path in the file, and the names of its columns.

    Raises InvalidInputError: it is not there, or anndata is not installed.
    """
    try:
        import anndata
    except ImportError as error:
        msg = f"{where!r} is read by anndata, which is not there: pip install anndata"
        raise InvalidInputError(msg) from error
    cells = anndata.read_h5ad(where)
    places = {} if cells.X is None else {"X": cells.X}
    places |= {f"layers/{name}": layer for name, layer in cells.layers.items()}
    if (array or "X") not in places:
        others = ", ".join(f"--array {place}" for place in places) or "it holds none"
        msg = f"{where!r} has no array {array or 'X'!r}; pass one of its own: {others}"
        raise InvalidInputError(msg)
    return places[array or "X"], [str(name) for name in cells.var_names]


def frame_of_parquet(where: str) -> tuple[Any, list[str]]:
    """Open a Parquet file, or a folder of them, as a Dask array; also returns the names of its columns.

    Raises InvalidInputError: columns are not numeric, or dask.dataframe is not installed.
    """
    try:
        import dask.dataframe as dd
    except ImportError as error:
        msg = f"{where!r} is read by dask.dataframe, which is not there: pip install 'dask[dataframe]'"
        raise InvalidInputError(msg) from error
    frame = dd.read_parquet(where)
    strange, opened = columns_without_numbers(frame), f"dask.dataframe.read_parquet({where!r})"
    if strange:
        keep = f"keep those that are: {opened}.{numeric_selection(frame[strange].dtypes)}"
        if len(strange) == len(frame.columns):
            keep = f"make columns of 0 and 1 of their values: dask.dataframe.get_dummies({opened}.categorize())"
        looked_at = frame[strange].head()
        vectors = [name for name in strange if holds_vectors(looked_at[name])]
        if vectors:
            opened = f"pandas.read_parquet({where!r})"
            keep = f"take the vectors: pandas.DataFrame({opened}[{vectors[0]!r}].to_list()).add_prefix('v')"
        msg = (
            f"columns {', '.join(repr(str(name)) for name in strange[:5])} of {where!r} are no numbers; "
            f"{keep}.to_parquet('numbers.parquet')"
        )
        raise InvalidInputError(msg)
    return numeric_table(frame).to_dask_array(lengths=True), [str(name) for name in frame.columns]
