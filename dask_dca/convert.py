"""Convert documents in the Matrix Market or UCI docword format to a zarr store.

The store has the layout of anndata: a group `X` of csr arrays, and words in `var`.
"""

from __future__ import annotations

import gzip
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import io, sparse

from dask_dca.engine.files import expand_home, require_regular
from dask_dca.errors import DCAError, InvalidInputError
from dask_dca.output import atomic_output

_LINES_PER_READ: Final = 2**18  # lines of a docword file that are read at a time
_MAX_LINE: Final = 4096  # maximum characters of a line that are read at once
_CHUNK_ENTRIES: Final = 2**20  # entries of a zarr chunk


def convert_documents(
    source: str, target: str, *, vocabulary: str | None = None, transpose: bool = False, overwrite: bool = False
) -> tuple[int, int, int]:
    r"""
    Convert a file of word counts to a zarr store of csr arrays.

    Parameters
    ----------
    source : str
        A Matrix Market file (`.mtx`) or a docword file of UCI's bag-of-words collection, optionally compressed (`.gz`).
        Docword files are read in pieces, Matrix Market files at once.
    target : str
        Path or URL of the store, which does not exist yet. It is renamed from a temporary path when complete.
    vocabulary : str, optional
        A text file with one word per line, in the order of the columns.
    transpose : bool, default False
        Transpose a Matrix Market file of words x documents.
    overwrite : bool, default False
        Replace an existing zarr group.

    Returns
    -------
    n_documents, n_words, n_entries : int
        Size of the result.

    Raises
    ------
    InvalidInputError
        The file has another format, is inconsistent, or the vocabulary has another number of words.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "docword.txt").write_text("2\n3\n3\n1 1 2\n1 3 1\n2 2 5\n")
    ...     convert_documents(folder + "/docword.txt", folder + "/documents.zarr")
    (2, 3, 3)
    """
    path = Path(expand_home(source))
    if not path.is_file():
        msg = f"there is no file {source!r}; check the path"
        raise InvalidInputError(msg)
    try:
        return _convert(path, target, vocabulary, transpose=transpose, overwrite=overwrite)
    except DCAError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        msg = f"{source!r} can't be converted: {reason}"
        raise InvalidInputError(msg) from error


def _convert(
    path: Path, target: str, vocabulary: str | None, *, transpose: bool, overwrite: bool
) -> tuple[int, int, int]:
    with _open_text(path) as lines:
        first = lines.readline(_MAX_LINE)
    matrix = first.startswith("%%MatrixMarket")
    if transpose and not matrix:
        msg = "docword files hold documents as rows; transpose=True is for Matrix Market files"
        raise InvalidInputError(msg)
    shape, pieces = _read_matrix_market(path, transpose) if matrix else _read_docword(path)
    names = None if vocabulary is None else _read_vocabulary(vocabulary, shape[1])
    with atomic_output(target, overwrite=overwrite) as place:
        _write(str(place), shape, pieces, names)
    return shape


def _require_plausible(path: Path, n_rows: int, n_entries: int) -> None:
    """Raise InvalidInputError if a header claims more than the file can hold, before memory is allocated."""
    size = path.stat().st_size * (1100 if path.suffix == ".gz" else 1)
    if n_rows > 100 * size + 10**6 or n_entries > size:
        msg = f"the header of {str(path)!r} claims {n_rows} rows and {n_entries} entries: more than the file can hold"
        raise InvalidInputError(msg)


def _open_text(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")


def _read_vocabulary(vocabulary: str, n_words: int) -> NDArray[np.object_]:
    require_regular(expand_home(vocabulary))
    names = Path(expand_home(vocabulary)).read_text(encoding="utf-8").splitlines()
    if len(names) != n_words:
        msg = f"{vocabulary!r} has {len(names)} words, and the documents have {n_words} columns"
        raise InvalidInputError(msg)
    return np.array(names, dtype=object)


def _read_matrix_market(path: Path, transpose: bool) -> tuple[tuple[int, int, int], Iterator[sparse.csr_array]]:
    try:
        rows, columns, entries, *_ = io.mminfo(path)
        _require_plausible(path, columns if transpose else rows, entries)
        found = sparse.csr_array(io.mmread(path, spmatrix=False))
    except DCAError:
        raise
    except (ValueError, OSError, TypeError, OverflowError) as error:
        msg = f"{str(path)!r} can't be read as a Matrix Market file: {error}; copy it again from where it came"
        raise InvalidInputError(msg) from error
    if found.dtype.kind not in "biuf":
        msg = f"{str(path)!r} holds numbers of type {found.dtype}; counts must be real"
        raise InvalidInputError(msg)
    found = sparse.csr_array(found.T) if transpose else found
    found.sum_duplicates()
    return (found.shape[0], found.shape[1], found.nnz), iter([found])


def _read_docword(path: Path) -> tuple[tuple[int, int, int], Iterator[sparse.csr_array]]:
    """Return the three numbers of the header, and an iterator over batches of whole documents."""
    with _open_text(path) as lines:
        head = [lines.readline(_MAX_LINE).strip() for _ in range(3)]
    if not all(re.fullmatch(r"\d{1,18}", text) for text in head):
        msg = (
            f"{str(path)!r} is neither a Matrix Market file (%%MatrixMarket in its first line) nor a docword file "
            f"(documents, words and entries in its first three lines, here {[text[:20] for text in head]!r})"
        )
        raise InvalidInputError(msg)
    n, p, entries = map(int, head)
    _require_plausible(path, n, entries)
    return (n, p, entries), _document_batches(path, n, p, entries)


def _document_batches(path: Path, n: int, p: int, entries: int) -> Iterator[sparse.csr_array]:
    done, seen, rest = 0, 0, np.zeros((0, 3), dtype=np.int64)
    with _open_text(path) as lines:
        for _ in range(3):
            lines.readline(_MAX_LINE)
        pieces = iter(lambda: lines.readline(_MAX_LINE), "")
        while True:
            part = list(itertools.islice(pieces, _LINES_PER_READ))
            table = np.vstack([rest, _parse_lines(part, path)])
            _check_table(table, path, n, p, done)
            whole = len(table) if not part else int(np.searchsorted(table[:, 0], table[-1, 0])) if len(table) else 0
            last = n if not part else int(table[whole - 1, 0]) if whole else done
            run, rest = table[:whole], table[whole:]
            seen += len(run)
            yield sparse.csr_array((run[:, 2], (run[:, 0] - 1 - done, run[:, 1] - 1)), shape=(last - done, p))
            done = last
            if not part:
                break
    if seen != entries:
        msg = f"{str(path)!r} has {seen} entries where its header says {entries}; copy it again"
        raise InvalidInputError(msg)


def _parse_lines(lines: list[str], path: Path) -> NDArray[np.int64]:
    lines = [line for line in lines if not line.isspace()]
    if not lines:
        return np.zeros((0, 3), dtype=np.int64)
    try:
        return np.loadtxt(lines, dtype=np.int64, ndmin=2).reshape(-1, 3)
    except ValueError as error:
        msg = f"{str(path)!r} has lines that are not document, word and count: {error}"
        raise InvalidInputError(msg) from error


def _check_table(table: NDArray[np.int64], path: Path, n: int, p: int, done: int) -> None:
    if not len(table):
        return
    documents, words = table[:, 0], table[:, 1]
    if documents[0] <= done or documents.max() > n or np.any(np.diff(documents) < 0):
        msg = f"{str(path)!r} must list documents 1 to {n} in order; sort it first: sort -n -k1,1 (after its header)"
        raise InvalidInputError(msg)
    if words.min() < 1 or words.max() > p:
        msg = f"{str(path)!r} has words outside 1 to {p}: {words.min()} to {words.max()}"
        raise InvalidInputError(msg)


def _write(
    place: str, shape: tuple[int, int, int], pieces: Iterator[sparse.csr_array], names: NDArray[np.object_] | None
) -> None:
    import zarr

    n, p, entries = shape
    root = zarr.open_group(place, mode="w")
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    group = root.create_group("X")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [n, p]})
    arrays: dict[str, Any] = {}
    ends, at = np.zeros(n + 1, dtype=np.int64), (0, 0)
    for piece in pieces:
        if not arrays:
            kinds = {"data": piece.dtype, "indices": np.dtype(np.int32)}
            for name, kind in kinds.items():
                arrays[name] = group.create_array(name, shape=(entries,), dtype=kind, chunks=(_CHUNK_ENTRIES,))
        row, entry = at
        for name in arrays:
            arrays[name][entry : entry + piece.nnz] = getattr(piece, name)
        ends[row + 1 : row + 1 + piece.shape[0]] = entry + piece.indptr[1:]
        at = row + piece.shape[0], entry + piece.nnz
    for array in arrays.values():
        array.resize((at[1],))  # duplicate entries of a word were summed
    group.create_array("indptr", data=ends, chunks=(min(len(ends), _CHUNK_ENTRIES),))
    if names is not None:
        var = root.create_group("var")
        var.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
        var.attrs["column-order"] = []
        var.create_array("_index", shape=names.shape, dtype=str, chunks=names.shape)[:] = names
