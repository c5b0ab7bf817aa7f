"""Lines that mend data: code within names those for an array of NumPy, and here they become those for what X is."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from dask_dca.engine.cubes import Cube
from dask_dca.engine.sparse_rows import CsrGroup
from dask_dca.engine.stores import is_a, open_array
from dask_dca.engine.tables import is_foreign_table, is_table
from dask_dca.errors import CLIP, DROP, MARK, InvalidInputError, naming_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_MARKED: Final = "X = X.replace([np.inf, -np.inf], np.nan)"
_SUMS: Final = "np.isfinite(np.ravel(X.sum(axis=1)))"
_GOOD: Final = {  # what tells the rows whose entries are all finite
    "array": "np.isfinite(X).all(axis=1)",
    "masked": "~np.ma.getmaskarray(np.ma.masked_invalid(X)).any(axis=1)",
    "table": "np.asarray(~X.replace([np.inf, -np.inf], np.nan).isna().any(axis=1))",
    "labelled": "np.isfinite(X).all(axis=1).values",
    "sparse": _SUMS,
    "sparse blocks": f"X.map_blocks(lambda X: {_SUMS}, dtype=bool, drop_axis=1)",
}
_CUT: Final = {  # what is given beside X, without the rows that are dropped
    "lengths": "lengths = [n for n in np.add.reduceat(good, np.cumsum(lengths) - lengths, dtype=int).tolist() if n]",
    "groups": "groups = np.asarray(groups)[good]",
}
_WEIGHT: Final = "sample_weight"
_DROP_SUCH: Final = "drop such rows first, for example "
_KINDS: Final = {  # lines that differ from those of an array
    "masked": {
        DROP: "X = np.ma.compress_rows(np.ma.masked_invalid(X))",
        MARK: "X = np.ma.masked_invalid(X)",
    },
    "table": {DROP: _MARKED + ".dropna()", MARK: _MARKED},
    "labelled": {DROP: "X = X[np.isfinite(X).all(axis=1).values]", MARK: "X = X.where(np.isfinite(X))"},
    "sparse": {
        DROP: f"X = X.tocsr()[{_SUMS}]",
        MARK: "X.data[~np.isfinite(X.data)] = np.nan",
        CLIP: "X = X.maximum(0)",
    },
    "sparse blocks": {
        DROP: f"X = X.map_blocks(lambda X: X.tocsr()[{_SUMS}], dtype=X.dtype).compute_chunk_sizes()",
        MARK: "X = X.map_blocks(lambda X: np.where(np.isfinite(X.todense()), X.todense(), np.nan), dtype=float)",
        CLIP: "X = X.map_blocks(lambda X: X.maximum(0), dtype=X.dtype)",
    },
}
_COLUMNS: Final = r"X = X\[:, ~np\.isin\(np\.arange\(X\.shape\[1\]\), (\[[\d, ]+\])\)\]"
_LINE: Final = re.compile("|".join([*map(re.escape, (DROP, MARK, CLIP)), r"X = X / \S+", _COLUMNS]))
_NAME: Final = re.compile(r"(?<!\.)\bX\b")


@dataclass(frozen=True)
class Form:
    """What kind of data X is, as far as lines that mend it differ."""

    kind: str = "array"
    first: str = ""  # what makes data of this kind out of X
    parts: bool = False  # X is a list of such
    gaps: bool = False  # frames may be missing, and none can be left out
    name: str = "X"  # what the caller calls it
    beside: tuple[str, ...] = ()  # what was given with it, a number or an id for each row, or lengths

    def mended(self, message: str) -> str:
        """Put the lines of a message in terms of X."""
        if self.gaps and "infinity" in message:
            message = message.replace(_DROP_SUCH + DROP, f"mark them as NaN: {MARK}")
        if _WEIGHT in self.beside:
            message = message.replace(_DROP_SUCH, "give such rows weight 0, for example ")
        told = _LINE.sub(self._line, message)
        return told if self.name == "X" else _NAME.sub(self.name, told)

    def _line(self, found: re.Match[str]) -> str:
        line = _KINDS.get(self.kind, {}).get(found[0], found[0])
        if self.kind == "table" and found[1]:
            line = f"X = X.drop(columns=X.columns[{found[1]}])"
        lines = [f"X = {self.first}"] * bool(self.first) + (self._with_others(line) if found[0] == DROP else [line])
        return "; ".join(self._of_parts(line) if self.parts else line for line in lines)

    def _with_others(self, line: str) -> list[str]:
        """The line that drops rows, with what cuts the things beside them; a weight of 0 leaves rows where they are."""
        if _WEIGHT in self.beside:
            return [f"sample_weight = sample_weight * {_GOOD[self.kind]}"]
        cut = [_CUT[name] for name in self.beside]
        return [f"good = np.asarray({_GOOD[self.kind]})", *cut, line] if cut else [line]

    def _of_parts(self, line: str) -> str:
        made = _NAME.sub("part", line.removeprefix("X = "))
        return f"X = [{made} for part in X]" if line.startswith("X = ") else f"for part in X: {made}"


def form_of(X: Any, opened: Any = None) -> Form:
    """Tell what kind of data X is; opened: what is at its path, where that is known."""
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


def beside(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of what was given beside X and goes row by row, as Form has them."""
    ids = isinstance(given.get("groups"), str)  # of a column of X
    named = [name for name in (_WEIGHT, *_CUT) if given.get(name) is not None]
    return tuple(name for name in named if name != "groups" or not ids)


def _form_of_blocks(X: Any) -> Form:
    from dask.array.utils import meta_from_array

    block = meta_from_array(X)
    if isinstance(block, np.ma.MaskedArray):
        return Form(first="dask.array.ma.filled(X.astype(float), np.nan)")
    return Form("sparse blocks") if sparse.issparse(block) or hasattr(block, "to_scipy_sparse") else Form()


@contextmanager
def in_terms_of(form: Form, names: Any = None) -> Iterator[None]:
    """Say in errors how data of this form are mended, and what the column of an entry is called.

    names: of the columns; None if they have none.
    Raises InvalidInputError: with other lines, where one was raised with those of an array.
    """
    try:
        with naming_columns(names):
            yield
    except InvalidInputError as error:
        told = form.mended(str(error))
        if told == str(error) or getattr(error, "mended", False):  # by who knew more of X
            raise
        found = type(error)(told)
        found.mended = True  # type: ignore[attr-defined]
        raise found from error


@dataclass(frozen=True)
class Telling:
    """A function of a block that runs where nobody else knows what X is."""

    function: Callable[..., Any]
    form: Form
    names: Any = None

    def __call__(self, *args: Any) -> Any:
        """Call it."""
        with in_terms_of(self.form, self.names):
            return self.function(*args)
