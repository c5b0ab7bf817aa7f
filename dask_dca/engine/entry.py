"""What enters tasks: blocks, compared with what was declared of them, and states, whose arrays begin at whole words.

Dask never looks into blocks: what a function of `map_blocks` returns may have other rows, columns or numbers than the
array says. A kernel that believed it would name wrong rows.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np
from scipy import sparse

from dask_dca.errors import InvalidInputError, NotNumbersError

if TYPE_CHECKING:
    from collections.abc import Sequence

_OF_KIND: Final = {  # what makes numbers of entries of other kinds
    "M": "(X - X.min()) / numpy.timedelta64(1, 's') for seconds",
    "m": "X / numpy.timedelta64(1, 's') for seconds",
    "O": "X.astype(float)",
    "V": "pandas.DataFrame(X) of records",
    "U": "X.astype(float) of numbers",
    "S": "X.astype(float) of numbers",
    "T": "X.astype(float) of numbers",
}
T = TypeVar("T")


def held_bytes(value: Any) -> int:
    """Count the bytes of the arrays in a value.

    value: arrays, and dataclasses, lists, tuples and dictionaries that hold some. Returns their bytes; of anything else
    none.
    """
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, list | tuple):
        return sum(map(held_bytes, value))
    if isinstance(value, dict):
        return sum(map(held_bytes, value.values()))
    if dataclasses.is_dataclass(value):
        return sum(held_bytes(getattr(value, field.name)) for field in dataclasses.fields(value))
    return 0


def aligned(given: T) -> T:
    """Let arrays begin at whole words, as they do where they were made.

    Those that came over the network may begin anywhere in a message, and NumPy adds the entries of such an array in
    other pieces, so that sums have other bits.
    given: arrays, and dataclasses, lists, tuples and dictionaries that hold some. Returns the value itself where all
    arrays do, else one with copies of those that don't.
    """
    value: Any = given
    found: Any = value
    if isinstance(value, np.ndarray):
        found = value if value.flags.aligned else value.copy()
    elif isinstance(value, list | tuple):
        parts = [aligned(part) for part in value]
        if any(new is not old for new, old in zip(parts, value, strict=True)):
            found = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    elif isinstance(value, dict):
        changed = {key: new for key, old in value.items() if (new := aligned(old)) is not old}
        found = value | changed if changed else value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        changed = {name: new for name, old in fields.items() if (new := aligned(old)) is not old}
        found = dataclasses.replace(value, **changed) if changed else value
    return cast("T", found)


@dataclass(frozen=True)
class Declared:
    """What the blocks of a matrix were declared to be, all of them alike."""

    edges: tuple[int, ...]  # first column of each column chunk, and the number of columns
    dtype: np.dtype[Any]

    def chunk(self, j: int) -> Declared:  # numpydoc ignore=PR01,RT01
        """Return what one column chunk was declared to be."""
        return Declared(self.edges[j : j + 2], self.dtype)


def admitted(chunks: Sequence[Any], rows: range, declared: Declared) -> list[Any]:
    """Let a block into a task.

    Returns (len(rows), columns of the chunk): the same numbers as real NumPy arrays of two dimensions or sparse rows in
    a byte order that SciPy takes, with NaN for masked entries, and no wider than declared where a floating dtype was.
    Raises InvalidInputError: other rows, columns or kinds of numbers than declared; the message names the block and
    both shapes.
    """
    sides = zip(declared.edges[:-1], declared.edges[1:], strict=True)
    return [
        _admitted(chunk, rows, range(left, right), declared.dtype)
        for chunk, (left, right) in zip(chunks, sides, strict=True)
    ]


def _admitted(chunk: Any, rows: range, columns: range, dtype: np.dtype[Any]) -> Any:
    try:
        found = plain(chunk)
    except Exception as error:  # arrays of other packages raise what they like
        what = "" if isinstance(chunk, np.ndarray) or sparse.issparse(chunk) else f"a {type(chunk).__name__}: "
        raise _not_as_declared(what + str(error).partition("\n")[0][:120], rows, columns, dtype) from error
    if found.shape != (len(rows), len(columns)):
        hint = "declare the shapes that blocks have, for example by X = X.compute_chunk_sizes()"
        raise _not_as_declared(f"its shape is {found.shape}; {hint}", rows, columns, dtype)
    if dtype.kind != "f" or np.can_cast(found.dtype, dtype, "safe"):
        return found
    with np.errstate(over="ignore"):  # infinity is found, and named, where rows are read
        return found.astype(_sparse_dtype(dtype) if sparse.issparse(found) else dtype)


def _not_as_declared(what: str, rows: range, columns: range, dtype: np.dtype[Any]) -> InvalidInputError:
    return InvalidInputError(
        f"the block of rows {rows.start} to {rows.stop}, columns {columns.start} to {columns.stop}, is not what was "
        f"declared, of shape {(len(rows), len(columns))} and dtype {dtype}: {what}"
    )


def plain(values: Any) -> Any:
    """Bring an array to one of the two forms that kernels take.

    values: dense or sparse, masked or labelled, of any real dtype. Returns A plain array, with NaN in place of what is
    masked, or sparse rows in native byte order. Nothing is copied that need not be.
    Raises InvalidInputError: the entries are no real numbers.
    """
    if hasattr(values, "to_scipy_sparse"):  # of the package sparse
        values = values.to_scipy_sparse()
    if hasattr(values, "tocsr"):
        return _rows_of_sparse(values)
    if isinstance(values, np.ma.MaskedArray):
        require_real(values.dtype)
        if np.ma.is_masked(values):
            dtype = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
            return np.ma.filled(values.astype(dtype), np.nan)
        return np.asarray(values.data)
    found = np.asarray(values)
    require_real(found.dtype)
    return aligned(found)


def _rows_of_sparse(values: Any) -> Any:
    require_real(values.dtype)
    dtype = _sparse_dtype(values.dtype)
    return (values if values.dtype == dtype else values.astype(dtype)).tocsr()


def _sparse_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Of numbers that SciPy's sparse matrices can hold: in native byte order, and no half precision."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype.newbyteorder("=")


def require_real(dtype: np.dtype[Any]) -> None:
    """Refuse entries that are no real numbers.

    Raises InvalidInputError: the message says what makes numbers of them.
    """
    if dtype.kind == "c":
        msg = f"Complex data not supported: dtype {dtype}; pass X.real or np.abs(X)"
        raise InvalidInputError(msg)
    if dtype.kind not in "biuf":
        hint = _OF_KIND.get(dtype.kind, "")
        msg = f"the data must be real numbers; received dtype {dtype}{hint and '; pass '}{hint}"
        raise NotNumbersError(msg)
