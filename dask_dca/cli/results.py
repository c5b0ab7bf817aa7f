"""Where a result goes: a zarr array, of any size, or a file that other programs open, by its ending."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.cli.commands import ROW_RESULTS
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.output import check_target, file_beside, is_url, local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["check_result", "file_ending", "row_result", "write_file"]

_OTHERS: Final = (
    ".txt",
    ".xlsx",
    ".h5",
    ".hdf5",
    ".h5ad",
    ".nc",
    ".mat",
    ".json",
    ".feather",
    ".arrow",
    ".mtx",
    ".html",
)


def _write_npy(place: str, values: NDArray[Any], names: Sequence[str]) -> None:
    del names
    with open(place, "wb") as file:
        np.save(file, values, allow_pickle=False)


def _write_table(separator: str) -> Callable[[str, NDArray[Any], Sequence[str]], None]:
    def _write(place: str, values: NDArray[Any], names: Sequence[str]) -> None:
        form = "%d" if values.dtype.kind in "biu" else "%.17g"
        np.savetxt(place, values, fmt=form, delimiter=separator, header=separator.join(names), comments="")

    return _write


def _write_parquet(place: str, values: NDArray[Any], names: Sequence[str]) -> None:
    try:
        import pandas as pd

        pd.DataFrame(values, columns=list(names)).to_parquet(place)
    except ImportError as error:
        msg = "a .parquet file is written by pandas and pyarrow: pip install pandas pyarrow"
        raise InvalidInputError(msg) from error


_WRITERS: Final = {
    ".npy": _write_npy,
    ".csv": _write_table(","),
    ".tsv": _write_table("\t"),
    ".parquet": _write_parquet,
}


def file_ending(path: str) -> str:
    """Return the ending of a path that stands for a file; none for a zarr array."""
    return next((ending for ending in _WRITERS if path.lower().endswith(ending)), "")


def check_result(path: str, *, overwrite: bool) -> None:
    """Refuse a path that a result can't be written to.

    path: where it shall be; overwrite: accept a zarr array, or a file of the same kind, that is there.
    Raises InvalidParameterError: the ending is of a format that is not written; ModelFileError: the path exists, its
    folder doesn't, or it can't be written.
    """
    if path.lower().endswith(_OTHERS):
        ending = os.path.splitext(path)[1]
        msg = f"no {ending} file is written; end the output {path!r} with .zarr, {', '.join(_WRITERS)}"
        raise InvalidParameterError(msg)
    ending = file_ending(path)
    if ending and is_url(path):
        msg = f"{ending} files are written to local paths; received {path!r}; a zarr array can be at a URL"
        raise InvalidParameterError(msg)
    if not ending or not overwrite or not os.path.isfile(local_path(path)):
        check_target(path, overwrite=overwrite and not ending)


def write_file(path: str, values: NDArray[Any], names: Sequence[str], *, overwrite: bool) -> None:
    """Write a file beside its place and move it there.

    path: where it shall be, with one of the endings; values (n, k): what is written; names: of the k columns;
    overwrite: replace a file that is there.
    Raises ModelFileError: it can't be written, or somebody wrote there meanwhile.
    """
    ending = file_ending(path)
    with file_beside(path, overwrite=overwrite, ending=ending) as place:
        _WRITERS[ending](str(place), values, names)


def row_result(model: Any, what: str | None, matrix: Any, lengths: Sequence[int] | None) -> Any:
    """Compute, or plan, what a model says of each row.

    what: name of one of the model's methods; None for its usual one. Returns (n, k): lazy for chunked data.
    Raises InvalidParameterError: the model has no such method.
    """
    name = what or model._per_row
    own = [one for one in ROW_RESULTS if hasattr(model, one)]
    if name not in own:
        msg = f"a {type(model).__name__} has no {name!r}; --what is one of {', '.join(own)}"
        raise InvalidParameterError(msg)
    result = getattr(model, name)(matrix, **({} if lengths is None else {"lengths": lengths}))
    if isinstance(result, tuple):  # score and rows of a chain; means and covariances of a filter
        result = result[1] if name == "score_samples" else result[0]
    return result[:, None] if result.ndim == 1 else result
