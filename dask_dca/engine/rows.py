"""Any accepted input as blocks of rows with known offsets."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from scipy import sparse

from dask_dca.errors import InvalidInputError, PerformanceWarning, warn

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Rows", "as_rows", "open_array", "read_rows"]

_BLOCK_BYTES: Final = 2**26  # zarr chunks smaller than this are read several at a time
_LEAST_BLOCKS: Final = 16  # but not so many that workers have nothing to do


@dataclass(frozen=True)
class Rows:
    """A matrix as blocks of whole rows."""

    source: Any  # ndarray, csr matrix or array, zarr.Array, or dask.array.Array
    kind: Literal["memory", "zarr", "dask"]
    offsets: NDArray[np.int64]  # (n_blocks + 1,), the first row of each block, and the number of rows
    n_features: int
    dtype: np.dtype[Any]
    feature_names: NDArray[np.object_] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows n."""
        return int(self.offsets[-1])

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.offsets) - 1

    @property
    def output_dtype(self) -> np.dtype[Any]:
        """The floating dtype of results: the input's own, or float64 for integers."""
        return self.dtype.newbyteorder("=") if self.dtype.kind == "f" else np.dtype(np.float64)

    def by_chunk(self) -> Rows:
        """Return the same rows in the smallest blocks that can be read: for passes that want few rows of each."""
        if self.kind != "zarr":
            return self
        return replace(self, offsets=_edges(self.n_rows, _chunk_rows(self.source)))

    def blocks_with(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the blocks that hold some rows."""
        return np.unique(np.searchsorted(self.offsets, numbers, side="right") - 1)


def as_rows(X: Any, *, array: str | None = None) -> Rows:
    """
    Accept a matrix in any of the forms that people have.

    Parameters
    ----------
    X : array-like of shape (n, p)
        NumPy array or nested sequence, SciPy sparse matrix or array, dask.array (also chunked along features,
        with unknown or empty blocks, or of sparse blocks), Dask or pandas DataFrame, xarray.DataArray,
        zarr.Array or zarr.Group, or the path or URL of one.
    array : str, optional
        Which array of a zarr group.

    Returns
    -------
    Rows
        The same data, nothing read or copied.

    Raises
    ------
    InvalidInputError
        Not two-dimensional, empty, not of a real dtype, or a path without a single array.

    Examples
    --------
    >>> as_rows([[1, 2], [3, 4], [5, 6]]).n_rows
    3
    """
    X, names = _unwrap(X)
    if isinstance(X, str | os.PathLike) or _is(X, "zarr", "Group", "Array"):
        return _checked(_from_zarr(open_array(X, array), names))
    if _is(X, "dask.array", "Array"):
        return _checked(_from_dask(X, names))
    X = X.tocsr() if sparse.issparse(X) else _as_numbers(X)
    if X.ndim != 2:
        _refuse_shape(X.shape)
    return _checked(Rows(X, "memory", np.array([0, X.shape[0]]), X.shape[1], X.dtype, names))


def open_array(X: Any, array: str | None = None) -> Any:
    """
    Open the two-dimensional array of a zarr store.

    Parameters
    ----------
    X : zarr.Array, zarr.Group, str or os.PathLike
        An array, a group, or the path or URL of one.
    array : str, optional
        Path of the array inside the group; not needed when there is only one of two dimensions.

    Returns
    -------
    zarr.Array
        The array, opened for reading.

    Raises
    ------
    InvalidInputError
        There is nothing at the path, no such array, or more than one to choose from.
    """
    import zarr

    where = str(X) if isinstance(X, str | os.PathLike) else str(getattr(X, "store_path", X))
    if isinstance(X, str | os.PathLike):
        try:
            X = zarr.open(str(X), mode="r")
        except (FileNotFoundError, NotADirectoryError, KeyError) as error:
            hint = "check the path"
            if os.path.isfile(where):
                hint = (
                    f"a .npy file is read by np.load({where!r}, mmap_mode='r'), a table by pandas.read_csv({where!r})"
                )
            msg = f"no zarr array or group at {where!r}; {hint}"
            raise InvalidInputError(msg) from error
    if isinstance(X, zarr.Array):
        if array is not None:
            msg = f"{where!r} is an array itself and holds no array {array!r}; leave --array out"
            raise InvalidInputError(msg)
        return X
    names = sorted(name for name, member in X.members(max_depth=None) if isinstance(member, zarr.Array))
    return X[_choose(where, names, [name for name in names if X[name].ndim == 2], array)]


def read_rows(array: Any, start: int, stop: int) -> Any:
    """
    Read a slice of a zarr array.

    Parameters
    ----------
    array : zarr.Array
        The array.
    start, stop : int
        First row, and the row after the last.

    Returns
    -------
    ndarray of shape (stop - start, p)
        The rows.

    Raises
    ------
    InvalidInputError
        They can't be read or decoded; the message names them.
    """
    try:
        return array[start:stop]
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        msg = f"rows {start} to {stop} of {array.store_path} can't be read ({reason}); copy or write these chunks again"
        raise InvalidInputError(msg) from error


def _choose(where: str, names: list[str], planar: list[str], array: str | None) -> str:
    if array is not None:
        if array in names:
            return array
        msg = f"no array {array!r} in {where!r}; it holds {', '.join(names) or 'no arrays'}"
        raise InvalidInputError(msg)
    if len(planar) == 1:
        return planar[0]
    if not planar:
        msg = f"no two-dimensional array in {where!r}; it holds {', '.join(names) or 'no arrays'}"
        raise InvalidInputError(msg)
    msg = (
        f"{len(planar)} arrays in {where!r}: {', '.join(planar)}; choose one with --array {planar[0]}, or in Python "
        f"pass zarr.open_array({where!r}, path={planar[0]!r})"
    )
    raise InvalidInputError(msg)


def _is(X: Any, package: str, *names: str) -> bool:
    """Whether X is an instance of a class of a package, without importing the package."""
    return any(
        cls.__name__ in names and (cls.__module__ == package or cls.__module__.startswith(package + "."))
        for cls in type(X).__mro__
    )


def _unwrap(X: Any) -> tuple[Any, NDArray[np.object_] | None]:
    """Take the array and the names of its columns out of a labelled container."""
    if _is(X, "xarray", "DataArray"):
        names = X.coords[X.dims[-1]].values if X.ndim == 2 and X.dims[-1] in X.coords else None
        return X.data, _text_names(names)
    if hasattr(X, "to_dask_array"):  # a Dask DataFrame
        return X.to_dask_array(lengths=True), _text_names(X.columns)
    if _is(X, "pandas", "DataFrame"):
        return X.to_numpy(), _text_names(X.columns)
    return X, None


def _text_names(names: Any) -> NDArray[np.object_] | None:
    if names is None:
        return None
    found = np.asarray(names, dtype=object)
    return found if all(isinstance(name, str) for name in found) else None


def _from_dask(X: Any, names: NDArray[np.object_] | None) -> Rows:
    if X.ndim != 2:
        _refuse_shape(X.shape)
    if np.isnan(X.shape[0]):
        warn(
            "the rows of the blocks are not known and were counted with one more pass over the data; "
            "call X = X.compute_chunk_sizes() once to save it",
            PerformanceWarning,
        )
        X = X.copy().compute_chunk_sizes()
    offsets = np.concatenate([[0], np.cumsum(X.chunks[0])]).astype(np.int64)
    return Rows(X, "dask", offsets, X.shape[1], X.dtype, names)


def _from_zarr(X: Any, names: NDArray[np.object_] | None) -> Rows:
    if X.ndim != 2:
        _refuse_shape(X.shape)
    n, p = X.shape
    chunk = _chunk_rows(X)
    at_a_time = min(_BLOCK_BYTES // max(chunk * p * X.dtype.itemsize, 1), n // (chunk * _LEAST_BLOCKS))
    step = chunk * max(1, at_a_time)
    return Rows(X, "zarr", _edges(n, step), p, X.dtype, names)


def _chunk_rows(X: Any) -> int:
    """Rows of the smallest part of a zarr array that is read as a whole."""
    return int((X.shards or X.chunks)[0])


def _edges(n_rows: int, step: int) -> NDArray[np.int64]:
    return np.append(np.arange(0, n_rows, step, dtype=np.int64), n_rows)


def _as_numbers(X: Any) -> NDArray[Any]:
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X.astype(np.float64), np.nan) if np.ma.is_masked(X) else np.asarray(X.data)
    try:
        found = np.asarray(X)
    except ValueError as error:
        msg = f"the data must be a matrix of real numbers, with rows of equal length ({error})"
        raise InvalidInputError(msg) from error
    try:
        return found.astype(np.float64) if found.dtype.kind == "O" else found
    except (TypeError, ValueError) as error:
        msg = f"the data must be a matrix of real numbers; received an array of Python objects ({error})"
        raise InvalidInputError(msg) from error


def _refuse_shape(shape: tuple[int, ...]) -> None:
    hint = {
        0: "pass a matrix of shape (n_rows, n_features)",
        1: "Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one row",
    }.get(len(shape), "flatten the trailing dimensions: X.reshape(len(X), -1)")
    kind = "scalar" if not shape else f"{len(shape)}-D array"
    msg = f"Expected 2D array, got {kind} instead: shape {shape}. {hint}"
    raise InvalidInputError(msg)


def _checked(rows: Rows) -> Rows:
    if rows.dtype.kind == "c":
        msg = f"Complex data not supported: dtype {rows.dtype}; pass X.real or np.abs(X)"
        raise InvalidInputError(msg)
    if rows.dtype.kind not in "biuf":
        msg = f"the data must be real numbers; received dtype {rows.dtype}"
        raise InvalidInputError(msg)
    if rows.n_rows == 0 or rows.n_features == 0:
        what = "sample" if rows.n_rows == 0 else "feature"
        msg = (
            f"Found array with 0 {what}(s) (shape=({rows.n_rows}, {rows.n_features})) while a minimum of 1 is required."
        )
        raise InvalidInputError(msg)
    return rows
