"""Zarr stores by path or URL: which array or sparse matrix of theirs is meant, and reading slices of it."""

from __future__ import annotations

import os
from typing import Any

from dask_dca.engine.codecs import refuse_pickles
from dask_dca.engine.local_files import require_regular
from dask_dca.engine.packed import Packed, unpacked
from dask_dca.engine.paths import expanded
from dask_dca.engine.sparse_rows import CsrGroup, is_csr_group, names_of_columns
from dask_dca.errors import DCAError, InvalidInputError, MissingChunksWarning

__all__ = ["is_a", "open_array", "read_rows"]


def is_a(X: Any, package: str, *names: str) -> bool:
    """
    Tell whether an object is an instance of a class of a package, without importing the package.

    Parameters
    ----------
    X : object
        Anything.
    package : str
        Name of the package.
    *names : str
        Names of its classes.

    Returns
    -------
    bool
        True if its class, or one that it is derived from, is one of them.
    """
    return any(
        cls.__name__ in names and (cls.__module__ == package or cls.__module__.startswith(package + "."))
        for cls in type(X).__mro__
    )


def open_array(X: Any, array: str | None = None) -> Any:
    """
    Open the two-dimensional array, or the sparse matrix, of a zarr store.

    Parameters
    ----------
    X : zarr.Array, zarr.Group, zarr.abc.store.Store, CsrGroup, Packed, str or os.PathLike
        An array, a group, a store that holds one, or the path or URL of one; also of a local `.zip` file.
    array : str, optional
        Path of the array (or group of csr triples) inside the group; not needed when there is only one of two
        dimensions, or in an anndata store, whose `X` is meant.

    Returns
    -------
    zarr.Array, Packed or CsrGroup
        The array, opened for reading; it knows what any other process must find at its place.

    Raises
    ------
    InvalidInputError
        There is nothing at the path, no such array, more than one to choose from, or a damaged one.
    """
    if isinstance(X, CsrGroup | Packed):
        return X
    where = str(X) if isinstance(X, str | os.PathLike) else str(getattr(X, "store_path", X))
    try:
        return _find_array(X, where, array)
    except (DCAError, MemoryError, MissingChunksWarning):
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        msg = f"{where!r} can't be read as a zarr array: {reason[:200]}"
        raise InvalidInputError(msg) from error


def _find_array(X: Any, where: str, array: str | None) -> Any:
    """Open what is at the path, and choose."""
    import zarr

    from dask_dca.engine.shared_stores import shared_array

    if isinstance(X, str | os.PathLike):
        X = _open(expanded(where))
    elif is_a(X, "zarr", "Store", "StorePath"):
        X = zarr.open(X, mode="r")
    if isinstance(X, zarr.Array):
        if array is not None:
            msg = f"{where!r} is an array itself and holds no array {array!r}; leave --array out"
            raise InvalidInputError(msg)
        refuse_pickles(X)
        return unpacked(shared_array(X))
    if is_csr_group(X):
        return CsrGroup(X)
    members = dict(X.members(max_depth=None))
    triples = {name for name, member in members.items() if is_csr_group(member)}
    names = sorted(
        name
        for name, member in members.items()
        if name in triples or (isinstance(member, zarr.Array) and name.rpartition("/")[0] not in triples)
    )
    if array is None and X.attrs.get("encoding-type") == "anndata" and "X" in names:
        array = "X"
    planar = [name for name in names if name in triples or members[name].ndim == 2]
    found = members[_choose(where, names, planar, array)]
    if is_csr_group(found):
        return CsrGroup(found, names_of_columns(X))
    refuse_pickles(found)
    return unpacked(shared_array(found))


def _open(where: str) -> Any:
    """Open what is at a path, or say what else to do with it."""
    import zarr

    from dask_dca.engine.regular_store import RegularFiles

    require_regular(where)
    try:
        if where.endswith(".zip") and os.path.isfile(where):
            return zarr.open(zarr.storage.ZipStore(where, mode="r"), mode="r")
        return zarr.open(RegularFiles(where, read_only=True) if os.path.isdir(where) else where, mode="r")
    except (FileNotFoundError, NotADirectoryError, KeyError) as error:
        hint = "check the path"
        if os.path.isfile(where):
            hint = f"a .npy file is read by np.load({where!r}, mmap_mode='r'), a table by pandas.read_csv({where!r})"
        msg = f"no zarr array or group at {where!r}; {hint}"
        raise InvalidInputError(msg) from error


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
    except DCAError:
        raise
    except Exception as error:  # stores raise what they like
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
