"""Data by path: zarr arrays, NumPy files and tables of numbers, none of them read before it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.local_files import require_regular
from dask_dca.engine.processes import SHARE, this_process
from dask_dca.engine.rows import as_rows, open_array
from dask_dca.errors import DCAError, InvalidInputError, MissingChunksWarning
from dask_dca.output import is_url, local_path
from dask_dca.tables import read_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Data", "open_data"]

_BLOCK_BYTES: Final = 2**26


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
        """
        Whether this is a table whose first line was taken for data.

        Returns
        -------
        bool
            True for a table without a header.
        """
        return self.names is None and isinstance(self.matrix, np.ndarray)


def open_data(path: str, array: str | None = None) -> Data:
    r"""
    Open a matrix by path.

    Parameters
    ----------
    path : str
        A zarr array or group (path or URL), a `.npy` file, or a `.csv` file of numbers with or without a header.
    array : str, optional
        Which array of a zarr group.

    Returns
    -------
    Data
        The matrix. Workers read their own slices of a zarr array or `.npy` file; a `.csv` file is read at once.

    Raises
    ------
    InvalidInputError
        There is nothing at the path, or no matrix of numbers.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "X.csv").write_text("red,green\n1,2\n3,4\n5,6\n")
    ...     open_data(folder + "/X.csv").names
    ['red', 'green']
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
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        msg = f"{path!r} can't be read as a zarr array, a .npy file or a .csv table of numbers: {reason}"
        raise InvalidInputError(msg) from error
    return data


def _open(where: str, array: str | None) -> Data:
    suffix = Path(where).suffix.lower()
    if suffix not in (".npy", ".csv"):
        return Data(open_array(where, array))
    if is_url(where) or array is not None:
        msg = f"{suffix} files are read from local paths and hold one array; received {where!r}, --array {array}"
        raise InvalidInputError(msg)
    return Data(_slices_of_npy(where)) if suffix == ".npy" else Data(*read_table(where))


class _NpyFile:
    """A `.npy` file of which whoever holds this reads slices: it travels to workers as a path."""

    def __init__(self, path: str) -> None:
        self.path = path
        held = np.load(path, mmap_mode="r", allow_pickle=False)
        self.shape, self.dtype, self.ndim = held.shape, held.dtype, held.ndim

    def __getitem__(self, index: Any) -> NDArray[Any]:
        try:
            held = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError as error:
            raise InvalidInputError(self._elsewhere("finds no file")) from error
        if (held.shape, held.dtype) != (self.shape, self.dtype):
            raise InvalidInputError(self._elsewhere(f"finds an array of shape {held.shape} and dtype {held.dtype}"))
        return np.array(held[index])

    def _elsewhere(self, what: str) -> str:
        return (
            f"the array of shape {self.shape} and dtype {self.dtype} is at {self.path}, but {this_process()} {what} "
            f"there; {SHARE}"
        )


def _slices_of_npy(path: str) -> Any:
    import dask.array as da

    held = _NpyFile(path)
    as_rows(np.load(path, mmap_mode="r", allow_pickle=False))
    width = max(held.shape[1] * held.dtype.itemsize, 1)
    return da.from_array(
        held, chunks=(max(1, _BLOCK_BYTES // width), -1), asarray=False, meta=np.empty((0, 0), held.dtype)
    )
