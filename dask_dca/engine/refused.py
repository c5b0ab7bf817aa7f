"""Data that are no matrix of numbers: what is said of each kind of them, and the line that makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.engine.files import reader_of
from dask_dca.engine.stores import is_a
from dask_dca.errors import InvalidInputError, NotNumbersError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def as_numbers(X: Any) -> NDArray[Any]:
    """Take anything that NumPy makes an array of numbers of.

    Raises InvalidInputError: texts, objects, or rows of several lengths; the message has the line that helps.
    """
    if isinstance(X, list | tuple) and X and all(is_matrix(part) for part in X):
        msg = f"X is a {type(X).__name__} of {len(X)} matrices; put their rows one after the other: pass {_joined(X)}"
        raise InvalidInputError(msg)
    try:
        found = np.asarray(X)
    except (TypeError, ValueError) as error:
        reason = str(error).partition(". ")[0]
        msg = f"the data must be a matrix of real numbers, with rows of equal length ({reason}){_of_parts(X)}"
        raise InvalidInputError(msg) from error
    if found.size and found.dtype.kind in "USO":
        _refuse_text(found)
    try:
        return found.astype(np.float64) if found.dtype.kind == "O" else found
    except (TypeError, ValueError) as error:
        msg = (
            f"the data must be a matrix of real numbers; received an array of Python objects ({error}); pass "
            f"{_of_objects(X)}"
        )
        raise NotNumbersError(msg) from error


def beside_rows(name: str, values: Any) -> NDArray[Any]:
    """Take what is said of rows, frames or sequences as an array; name: of the argument.

    Raises InvalidInputError: it is a list of parts of several lengths.
    """
    try:
        found: NDArray[Any] = np.ma.asanyarray(values)
    except (TypeError, ValueError) as error:
        msg = f"{name} must hold one value each; received a {type(values).__name__} of parts that differ in length"
        raise InvalidInputError(msg) from error
    return found


def is_matrix(part: Any) -> bool:
    """Tell a matrix, of any kind, from rows and from promises."""
    return isinstance(getattr(part, "shape", None), tuple) and len(part.shape) == 2


def is_number(text: str) -> bool:
    """Tell a text that stands for a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _joined(X: Sequence[Any]) -> str:
    """What puts matrices of a kind one after the other."""
    first = X[0]
    if hasattr(first, "to_dask_array"):
        return "dask.dataframe.concat(X)"
    if is_a(first, "xarray", "DataArray"):
        return f"xarray.concat(X, {first.dims[0]!r})"
    tools = {
        "pandas": "pandas.concat",
        "dask": "dask.array.concatenate",
        "scipy": "scipy.sparse.vstack",
        "anndata": "anndata.concat",
        "polars": "polars.concat",
        "pyarrow": "pyarrow.concat_tables",
    }
    return f"{tools.get(type(first).__module__.partition('.')[0], 'numpy.concatenate')}(X)"


def _of_parts(X: Any) -> str:
    """What to pass in place of parts that differ in length: sequences, each of them a matrix."""
    if not isinstance(X, list | tuple) or not X:
        return ""
    if is_a(X[0], "dask", "Delayed"):
        return "; pass dask.compute(*X)"
    if (counted := _of_words(X)) is not None:
        return f"; of documents pass {counted}"
    sides = {getattr(part, "ndim", 1) for part in X}
    deep = any(isinstance(part, list) and part and isinstance(part[0], list | tuple | np.ndarray) for part in X)
    if sides - {1} or deep:
        return "; sequences are matrices: pass [numpy.asarray(part) for part in X]"
    return "; sequences of one channel are columns: pass [numpy.reshape(part, (-1, 1)) for part in X]"


def _of_words(X: Sequence[Any]) -> str | None:
    """What counts the words of documents that are lists: of words, of gensim's pairs; None where they are neither."""
    held = [part[0] for part in X if isinstance(part, list | tuple) and part]
    if held and all(isinstance(word, str) for word in held):
        return "sklearn.feature_extraction.text.CountVectorizer(analyzer=list).fit_transform(X)"
    if held and all(isinstance(pair, tuple) and len(pair) == 2 for pair in held):
        return "gensim.matutils.corpus2csc(X).T"
    return None


def _of_objects(X: Any) -> str:
    """What makes numbers of objects: of a dict, a generator, promises."""
    if isinstance(X, dict):
        flat = all(np.ndim(value) == 1 for value in X.values())
        return "pandas.DataFrame(X), a table" if flat else "list(X.values()), its parts"
    if isinstance(X, list | tuple) and X and is_a(X[0], "dask", "Delayed"):
        return "dask.compute(*X), their values"
    if isinstance(X, list | tuple) and X and is_a(X[0], "polars", "LazyFrame"):
        return "polars.collect_all(X), their rows"
    if isinstance(X, list | tuple) and X and all(isinstance(part, dict) for part in X):
        return "sklearn.feature_extraction.DictVectorizer().fit_transform(X), a column for each key"
    return "list(X), a list of rows or of sequences"


def refuse_shape(shape: tuple[int, ...], reshape: str = "X.reshape{}") -> None:
    """Refuse what is not of two dimensions; reshape: how its kind is given others."""
    if len(shape) < 2:
        hint = (
            "pass a matrix of shape (n_rows, n_features)",
            f"Reshape your data: {reshape.format((-1, 1))} for one feature, {reshape.format((1, -1))} for one row",
        )[len(shape)]
    else:
        n, m, *_, p = shape
        hint = (
            f"Reshape your data: pass {reshape.format((-1, p))}, of a zarr array "
            f"dask.array.from_zarr(X).reshape(-1, {p}), in a command --features {len(shape) - 1}; of {n} sequences of "
            f"{m} frames pass lengths=[{m}] * {n} too"
        )
    kind = "scalar" if not shape else f"{len(shape)}-D array"
    msg = f"Expected 2D array, got {kind} instead: shape {shape}. {hint}"
    raise InvalidInputError(msg)


def refuse_other_names(names: Any, others: Any, what: str, of: str = "X", line: str = "") -> None:
    """Refuse columns that are called otherwise than those of X, or are in another order.

    names, others (p,): of the columns of X, and of what is compared; None where there are none; what, of: names of
    both; line: what puts them in order.
    Raises InvalidInputError: they differ.
    """
    if names is None or others is None or len(names) != len(others):
        return
    at = next((j for j, pair in enumerate(zip(names, others, strict=True)) if pair[0] != pair[1]), None)
    if at is not None:
        msg = (
            f"the columns of {what} are not those of {of}: column {at} is {others[at]!r}, and {of} has {names[at]!r}; "
            f"select them in the same order: {line or f'{what}[list(X.columns)] of a table'}"
        )
        raise InvalidInputError(msg)


def _refuse_text(X: NDArray[Any]) -> None:
    """Refuse texts, before their shape is looked at: numbers that are written as such, and others."""
    first = X.ravel()[0]
    if X.dtype.kind == "O" and not isinstance(first, str):
        return
    if is_number(first):
        first = next((text for text in X.ravel().tolist() if isinstance(text, str) and not is_number(text)), first)
        hint = "X = numpy.asarray(X, dtype=float) makes numbers of them"
        if not is_number(first):
            hint = "X = pandas.DataFrame(X).apply(pandas.to_numeric, errors='coerce') makes NaN of them"
    else:
        of_lists = "analyzer=list" if X.ndim == 2 else ""  # rows of words
        hint = f"count their words: X = sklearn.feature_extraction.text.CountVectorizer({of_lists}).fit_transform(X)"
    if reader_of(str(first)):
        hint = f"read the files first, such as {reader_of(str(first))}"
    msg = f"the data must be real numbers; received dtype {X.dtype}, texts such as {str(first)[:30]!r}; {hint}"
    raise NotNumbersError(msg)
