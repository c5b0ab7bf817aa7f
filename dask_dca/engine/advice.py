"""Error messages with lines of code that repair the data, adapted to the kind of X.

The rest of the package writes these lines for NumPy arrays; here they are replaced by those for the kind of X.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dask_dca.engine.cubes import Cube, likely_features
from dask_dca.engine.files import reader_of
from dask_dca.engine.stores import CsrGroup, is_a, open_array
from dask_dca.engine.tables import is_foreign_table, is_number, is_table
from dask_dca.errors import CLIP, DROP, FILL, MARK, InvalidInputError, NotNumbersError, naming_columns

_MARKED_TABLE: Final = "X = X.replace([np.inf, -np.inf], np.nan)"
_FINITE_SUMS: Final = "np.isfinite(np.ravel(X.sum(axis=1)))"
_FINITE_ROWS: Final = {  # by kind of data, an expression for the rows whose entries are all finite
    "array": "np.isfinite(X).all(axis=1)",
    "masked": "~np.ma.getmaskarray(np.ma.masked_invalid(X)).any(axis=1)",
    "table": "np.asarray(~X.replace([np.inf, -np.inf], np.nan).isna().any(axis=1))",
    "labelled": "np.isfinite(X).all(axis=1).values",
    "sparse": _FINITE_SUMS,
    "sparse blocks": f"X.map_blocks(lambda X: {_FINITE_SUMS}, dtype=bool, drop_axis=1)",
}
_DROP_SUCH: Final = "drop such rows first, for example "
_KINDS: Final = {  # by kind of data, lines that differ from those for an array
    "masked": {
        DROP: "X = np.ma.compress_rows(np.ma.masked_invalid(X))",
        MARK: "X = np.ma.masked_invalid(X)",
        FILL: "X = np.ma.filled(X, X.max() + 1)",
    },
    "table": {DROP: _MARKED_TABLE + ".dropna()", MARK: _MARKED_TABLE, FILL: "X = X.fillna(X.max() + 1)"},
    "labelled": {
        DROP: "X = X[np.isfinite(X).all(axis=1).values]",
        MARK: "X = X.where(np.isfinite(X))",
        FILL: "X = X.fillna(X.max() + 1)",
    },
    "sparse": {
        DROP: f"X = X.tocsr()[{_FINITE_SUMS}]",
        MARK: "X.data[~np.isfinite(X.data)] = np.nan",
        CLIP: "X = X.maximum(0)",
    },
    "sparse blocks": {
        DROP: f"X = X.map_blocks(lambda X: X.tocsr()[{_FINITE_SUMS}], dtype=X.dtype).compute_chunk_sizes()",
        MARK: "X = X.map_blocks(lambda X: np.where(np.isfinite(X.todense()), X.todense(), np.nan), dtype=float)",
        CLIP: "X = X.map_blocks(lambda X: X.maximum(0), dtype=X.dtype)",
    },
}
_COLUMNS: Final = r"X = X\[:, ~np\.isin\(np\.arange\(X\.shape\[1\]\), (\[[\d, ]+\])\)\]"
_LINE: Final = re.compile("|".join([*map(re.escape, (DROP, MARK, CLIP, FILL)), r"X = X / \S+", _COLUMNS]))
_FILL_PARTS: Final = (  # one value for all parts
    "v = 1 + max(np.nanmax(np.asarray(part)) for part in X); X = [np.where(np.isnan(part), v, part) for part in X]"
)
_DROP: Final = _DROP_SUCH + DROP
_KEEP: Final = f"mark missing entries as NaN, for example {MARK}"
_ROW: Final = re.compile(r"\brow (\d+)")
_NAME: Final = re.compile(r"(?<!\.)\bX\b")


@dataclass(frozen=True)
class Form:
    """The kind of the data X, as far as lines that repair it differ."""

    kind: str = "array"
    first: str = ""  # expression that turns X into data of this kind
    labels: bool = False  # whether X is a labelled cube, so that lines that change its entries keep its labels
    parts: bool = False  # whether X is a list of such data
    missing: str = ""  # advice on NaN instead, if no row can be left out
    infinite: str = ""  # likewise on infinity
    name: str = "X"  # name of the data in messages
    weighted: bool = False  # whether rows have weights
    since: int = 0  # number of their first row in X

    def adapt(self, message: str) -> str:
        """Adapt the lines of a message to the kind of X."""
        instead = self.infinite if "infinity" in message else self.missing
        for line in (_DROP, _KEEP):
            message = message.replace(line, instead or line)
        if self.weighted:
            message = message.replace(_DROP_SUCH, "give such rows weight 0, for example ")
        adapted = _LINE.sub(self._line, message)
        adapted = _ROW.sub(lambda found: f"row {int(found[1]) + self.since}", adapted)
        return adapted if self.name == "X" else _NAME.sub(self.name, adapted)

    def _line(self, found: re.Match[str]) -> str:
        if self.parts and found[0] == FILL:
            return _FILL_PARTS
        if self.labels and found[0] != DROP and not found[1]:
            return _KINDS["labelled"].get(found[0], found[0])
        line = _KINDS.get(self.kind, {}).get(found[0], found[0])
        if self.kind == "table" and found[1]:
            line = f"X = X.drop(columns=X.columns[{found[1]}])"
        if self.weighted and found[0] == DROP:  # no row is removed
            line = f"sample_weight = sample_weight * {_FINITE_ROWS[self.kind]}"
        lines = [f"X = {self.first}"] * bool(self.first) + [line]
        return "; ".join(self._per_part(line) if self.parts else line for line in lines)

    def _per_part(self, line: str) -> str:
        made = _NAME.sub("part", line.removeprefix("X = "))
        return f"X = [{made} for part in X]" if line.startswith("X = ") else f"for part in X: {made}"


def form_of(X: Any, opened: Any = None) -> Form:
    """Return the kind of X; opened: what is at its path, if it is open already."""
    path = isinstance(X, str | os.PathLike)
    stored = (opened or open_array(X)) if path else X
    if isinstance(stored, CsrGroup):
        return Form("sparse", f"anndata.io.read_elem(zarr.open_group({str(stored.store_path)!r}))")
    if path:
        return Form(first=f"dask.array.from_zarr({str(stored.store_path)!r})")
    if is_a(X, "zarr", "Array"):
        return Form(first="dask.array.from_zarr(X)")
    if is_a(X, "xarray", "DataArray"):
        return Form("labelled")
    if isinstance(X, Cube):
        return replace(form_of(X.matrix), first="X.matrix")
    if is_a(X, "anndata", "AnnData", "Raw"):
        return replace(form_of(X.X), first="X.X")
    if is_foreign_table(X):
        return Form("table", "X.to_pandas()")
    if is_table(X):
        return Form("table")
    if hasattr(X, "to_scipy_sparse"):
        return Form("sparse", "X.to_scipy_sparse()")
    if isinstance(X, np.ma.MaskedArray):
        return Form("masked")
    if is_a(X, "dask.array", "Array"):
        return _form_of_blocks(X)
    if isinstance(X, list | tuple | np.matrix):
        return Form(first="np.asarray(X)")
    return Form("sparse") if hasattr(X, "tocsr") else Form()


def _form_of_blocks(X: Any) -> Form:
    from dask.array.utils import meta_from_array

    block = meta_from_array(X)
    if isinstance(block, np.ma.MaskedArray):
        return Form(first="dask.array.ma.filled(X.astype(float), np.nan)")
    return Form("sparse blocks") if sparse.issparse(block) or hasattr(block, "to_scipy_sparse") else Form()


@contextmanager
def in_terms_of(form: Form, names: Any = None) -> Iterator[None]:
    """Adapt errors raised in this context to the kind of the data, and to the names of their columns, if any."""
    try:
        with naming_columns(names):
            yield
    except InvalidInputError as error:
        adapted = form.adapt(str(error))
        if adapted == str(error) or getattr(error, "adapted", False):  # adapted already, with more knowledge of X
            raise
        found = type(error)(adapted)
        found.adapted = True  # type: ignore[attr-defined]
        raise found from error


@dataclass(frozen=True)
class WithErrorContext:
    """A block's function whose errors are adapted to the kind of X, for use on workers."""

    function: Callable[..., Any]
    form: Form
    names: Any = None

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        with in_terms_of(self.form, self.names):
            return self.function(*args)


def as_numbers(X: Any) -> NDArray[Any]:
    """Convert to an array of numbers by NumPy.

    Raises InvalidInputError: strings, objects, or rows of different lengths; the message says what to pass instead.
    """
    if isinstance(X, list | tuple) and X and all(is_matrix(part) for part in X):
        what = f"X is a {type(X).__name__} of {len(X)} matrices"
        msg = f"{what}; put their rows one after the other: pass {_concatenation(X)}"
        raise InvalidInputError(msg)
    try:
        found = np.asarray(X)
    except (TypeError, ValueError) as error:
        reason = str(error).partition(". ")[0]
        msg = f"the data must be a matrix of real numbers, with rows of equal length ({reason}){_advice_for_parts(X)}"
        raise InvalidInputError(msg) from error
    if found.size and found.dtype.kind in "USO":
        _refuse_text(found)
    try:
        return found.astype(np.float64) if found.dtype.kind == "O" else found
    except (TypeError, ValueError) as error:
        msg = (
            f"the data must be a matrix of real numbers; received an array of Python objects ({error}); pass "
            f"{_advice_for_objects(X)}"
        )
        raise NotNumbersError(msg) from error


def array_per_row(name: str, values: Any) -> NDArray[Any]:
    """Convert values per row, frame or sequence to an array; name: of the argument.

    Raises InvalidInputError: it is a list of parts of different lengths.
    """
    try:
        found: NDArray[Any] = np.ma.asanyarray(values)
    except (TypeError, ValueError) as error:
        msg = f"{name} must hold one value each; received a {type(values).__name__} of parts that differ in length"
        raise InvalidInputError(msg) from error
    return found


def is_matrix(part: Any) -> bool:
    """Whether an object is a matrix of any kind with a known shape."""
    return isinstance(getattr(part, "shape", None), tuple) and len(part.shape) == 2


def _concatenation(X: Sequence[Any]) -> str:
    """Expression that concatenates matrices of this kind."""
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


def _advice_for_parts(X: Any) -> str:
    """Advice on parts of different lengths: pass sequences, each of them a matrix."""
    if not isinstance(X, list | tuple) or not X:
        return ""
    if is_a(X[0], "dask", "Delayed"):
        return "; pass dask.compute(*X)"
    if (counted := _advice_for_words(X)) is not None:
        return f"; of documents pass {counted}"
    sides = {getattr(part, "ndim", 1) for part in X}
    deep = any(isinstance(part, list) and part and isinstance(part[0], list | tuple | np.ndarray) for part in X)
    if sides - {1} or deep:
        return "; sequences are matrices: pass [numpy.asarray(part) for part in X]"
    return "; sequences of one channel are columns: pass [numpy.reshape(part, (-1, 1)) for part in X]"


def _advice_for_words(X: Sequence[Any]) -> str | None:
    """Expression that counts words, for lists of words or of gensim's pairs; None for others."""
    held = [part[0] for part in X if isinstance(part, list | tuple) and part]
    if held and all(isinstance(word, str) for word in held):
        return "sklearn.feature_extraction.text.CountVectorizer(analyzer=list).fit_transform(X)"
    if held and all(isinstance(pair, tuple) and len(pair) == 2 for pair in held):
        return "gensim.matutils.corpus2csc(X).T"
    return None


def _advice_for_objects(X: Any) -> str:
    """Expression that turns objects into numbers: dicts, generators, Delayed objects."""
    if isinstance(X, dict):
        with suppress(ValueError):  # of a value that is ragged itself
            if all(np.ndim(value) == 1 for value in X.values()):
                return "pandas.DataFrame(X), a table"
        return "list(X.values()), its parts"
    if isinstance(X, list | tuple) and X and is_a(X[0], "dask", "Delayed"):
        return "dask.compute(*X), their values"
    if isinstance(X, list | tuple) and X and is_a(X[0], "polars", "LazyFrame"):
        return "polars.collect_all(X), their rows"
    if isinstance(X, list | tuple) and X and all(isinstance(part, dict) for part in X):
        return "sklearn.feature_extraction.DictVectorizer().fit_transform(X), a column for each key"
    return "list(X), a list of rows or of sequences"


def refuse_shape(shape: tuple[int, ...], reshape: str = "X.reshape{}", dims: Sequence[str] | None = None) -> None:
    """Refuse data that are not two-dimensional; reshape: template of the line that reshapes them; dims: their names."""
    if len(shape) < 2:
        hint = (
            "pass a matrix of shape (n_rows, n_features)",
            f"Reshape your data: {reshape.format((-1, 1))} for one feature, {reshape.format((1, -1))} for one row",
        )[len(shape)]
    else:
        (n, m, *_, p), features = shape, likely_features(dims or range(len(shape)))
        hint = (
            f"Reshape your data: pass {reshape.format((-1, p))}, of a zarr array "
            f"dask.array.from_zarr(X).reshape(-1, {p}), in a command --features {features}; of {n} sequences of "
            f"{m} frames pass lengths=[{m}] * {n} too"
        )
    kind = "scalar" if not shape else f"{len(shape)}-D array"
    msg = f"Expected 2D array, got {kind} instead: shape {shape}. {hint}"
    raise InvalidInputError(msg)


def refuse_other_names(names: Any, others: Any, what: str, of: str = "X", line: str = "") -> None:
    """Refuse columns with other names than those of X, or in another order.

    names, others (p,): column names of X, and of the data that are compared, None if there are none; what, of: names of
    both in the message; line: code that selects columns in order.
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
    """Refuse strings, whether they are numbers or other text."""
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
