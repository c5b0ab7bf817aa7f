"""Errors and warnings: one hierarchy, so that one `except` catches all that bad input can raise."""

from __future__ import annotations

import re
import sys
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_INSIDE: Final = (__name__.partition(".")[0], "sklearn", "contextlib", "numpy")  # of a call: decorators are among them

__all__ = [
    "CheckpointError",
    "CheckpointWarning",
    "ClusterError",
    "ClusterWarning",
    "DCAError",
    "FewEntriesWarning",
    "FewerAnchorsWarning",
    "FloorWarning",
    "IncompleteLibraryWarning",
    "InvalidInputError",
    "InvalidParameterError",
    "MissingChunksWarning",
    "MissingEntriesError",
    "MissingEntriesWarning",
    "ModelFileError",
    "NotFiniteError",
    "NotNumbersError",
    "NotPointedWarning",
    "PerformanceWarning",
    "SequenceWarning",
    "StartWarning",
    "kept_warnings",
    "naming_columns",
    "reason_of",
    "unreachable",
    "warn",
    "without_secrets",
]

# not for users: lines that mend an array of NumPy; `engine.advice` puts those of other kinds of data in their place
DROP: Final = "X = X[np.isfinite(X).all(axis=1)]"
MARK: Final = "X = np.where(np.isfinite(X), X, np.nan)"
CLIP: Final = "X = X.clip(0)"
FILL: Final = "X = np.where(np.isnan(X), np.nanmax(X) + 1, X)"
UNWEIGHTED: Final = f"rows with missing entries take no sample_weight; drop such rows first, for example {DROP}"

_REMOTE: Final = ("adlfs", "aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google", "requests", "urllib3")
_EXTRAS: Final = {"s3": "s3", "gs": "gcs", "gcs": "gcs"}  # of dask-dca, by how URLs begin
_URL: Final = re.compile(r"([A-Za-z][\w+.-]*://)((?:(?!::)[^\s'\"<>])+)")
_COLUMN: Final = re.compile(r"column (\d+)(?! \()")
_VALUE: Final = re.compile(r"=[^&;]*")
_LINES_OF_ARRAYS: Final = re.compile(r"\n +")
_SHOWN: Final = (600, 600)  # characters of the beginning and the end of a message
_kept: Final[ContextVar[list[tuple[str, type[Warning]]] | None]] = ContextVar("kept", default=None)


def without_secrets(text: str) -> str:
    """Hide what is not for logs, pages and messages: users and passwords of URLs, and all values of their queries.

    Returns the same with `***` in their places.
    """
    return _URL.sub(_without_secrets, text)


def _without_secrets(url: re.Match[str]) -> str:
    place, mark, query = url[2].partition("?")
    server = place.partition("/")[0]
    if "@" in server:
        place = "***@" + place[server.rindex("@") + 1 :]
    elif "@" in place and ":" in server and not server.rpartition(":")[2].isdecimal():  # a password that holds slashes
        place = "***@" + place.rpartition("@")[2]
    return url[1] + place + mark + _VALUE.sub("=***", query)


def _shortened(text: str) -> str:
    """A message without the middle of what it shows, where that is a whole array."""
    text = _LINES_OF_ARRAYS.sub(" ", text)
    if len(text) <= sum(_SHOWN):
        return text
    return " ".join(text[: _SHOWN[0]].split()) + " ... " + " ".join(text[-_SHOWN[1] :].split())


class DCAError(ValueError):
    """
    Base of all errors that this library raises on purpose; messages are of moderate length and show no secrets of URLs.

    Parameters
    ----------
    *args : object
        The message.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*(_shortened(without_secrets(part)) if isinstance(part, str) else part for part in args))


class InvalidInputError(DCAError):
    """The data can't be used: shape, dtype, sign, a path without an array."""


class NotNumbersError(InvalidInputError, TypeError):
    """Entries are objects that are no numbers; a TypeError too, as scikit-learn's is."""


class NotFiniteError(InvalidInputError):
    """The data hold NaN or infinity; the message names row and column."""


class MissingEntriesError(NotFiniteError):
    """The data hold NaN, a missing entry, where every entry is needed; the message names row and column."""


@contextmanager
def naming_columns(names: Any) -> Iterator[None]:
    """Say in errors of entries that are not finite what their column is called.

    names: of the columns; None if they have none.
    Raises NotFiniteError: with the name, where one was raised without it.
    """
    try:
        yield
    except NotFiniteError as error:
        found = _COLUMN.search(str(error))
        if names is None or found is None or int(found[1]) >= len(names):
            raise
        name = names[int(found[1])]
        raise type(error)(_COLUMN.sub(f"{found[0]} ({name!r})", str(error), count=1)) from error


def without_columns(columns: Sequence[int]) -> str:
    """The line that leaves columns of an array out, as `DROP` is one for rows; the first twenty."""
    return f"X = X[:, ~np.isin(np.arange(X.shape[1]), {list(columns[:20])})]"


class InvalidParameterError(DCAError):
    """A parameter is out of its range or unknown."""


class ModelFileError(DCAError):
    """A saved model can't be read or written."""


class CheckpointError(DCAError):
    """A checkpoint belongs to another fit, or can't be used."""


class ClusterError(DCAError):
    """The cluster, or one worker after another, was lost, or its workers can't do the work."""


class CheckpointWarning(UserWarning):
    """A finished pass could not be kept, or not be read again."""


class ClusterWarning(UserWarning):
    """A cluster has no workers, so that the caller waits, or some lack this package or have another version of it."""


class FewEntriesWarning(UserWarning):
    """So many entries are missing that the anchors of the rows may not be found."""


class FewerAnchorsWarning(UserWarning):
    """The data have fewer extreme rays than the number of anchors asked for."""


class MissingEntriesWarning(UserWarning):
    """Entries are missing, so that a fit leaves out what takes complete rows."""


class FloorWarning(UserWarning):
    """Fitted variances rest on their least value: it decides them, not the data."""


class IncompleteLibraryWarning(UserWarning):
    """The library that anchors are chosen from lacks a row that the data are mixtures of."""


class MissingChunksWarning(UserWarning):
    """No chunk of a zarr array was ever written: all its entries are the fill value."""


class NotPointedWarning(UserWarning):
    """Many rows lie behind the reference axis: the data do not fit in one pointed cone."""


class PerformanceWarning(UserWarning):
    """Something costs a pass over the data that one line of the caller's would save."""


class SequenceWarning(UserWarning):
    """A model of several sequences was given rows without their lengths, and takes them for one sequence."""


class StartWarning(UserWarning):
    """Parameters that were set by hand are overwritten by a fit that was not asked to start from them."""


def reason_of(error: BaseException) -> str:
    r"""Say in one line what went wrong in a library that raises errors of its own.

    error: any error, or a group of them, of which the first counts. Returns the class and the text of the error, or of
    the one that caused it if it has no text.
    """
    told: BaseException | None = error
    while told is not None:
        if isinstance(told, BaseExceptionGroup):
            told = told.exceptions[0]
            continue
        text = " ".join([str(told), *getattr(told, "__notes__", ())]).split()
        if text:
            return f"{type(told).__name__}: {' '.join(text)[:400]}"
        told = told.__cause__ or told.__context__
    return type(error).__name__


def unreachable(path: str, error: BaseException) -> str | None:
    """Say in one line that an object store or another server failed, where that is what an error comes from.

    path: URL of what was asked for. Returns the line; None if no package that speaks to servers raised it, and none is
    missing.
    """
    told: list[BaseException] = [error]
    for each in told:
        told += [cause for cause in (each.__cause__, each.__context__) if cause is not None and cause not in told]
        told += each.exceptions if isinstance(each, BaseExceptionGroup) else []
        if type(each).__module__.partition(".")[0] in _REMOTE:
            return f"can't reach {path!r}: {reason_of(error)}; check the address, the credentials and the network"
        if "://" in path and isinstance(each, ImportError):
            extra = _EXTRAS.get(path.partition(":")[0])
            mend = "install it" if extra is None else f"pip install 'dask-dca[{extra}]'"
            return f"can't reach {path!r}, since a package for it is missing ({each}): {mend}, for workers too"
        if str(each).startswith("Protocol not known"):
            return f"can't reach {path!r}: no installed package knows {path.partition(':')[0]}://; check the address"
    return None


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line of the caller's that called the library, however deep inside it this is found out."""
    kept = _kept.get()
    if kept is not None:
        kept.append((message, category))
        return
    level = 2
    while (sys._getframe(level - 1).f_globals.get("__name__") or "").partition(".")[0] in _INSIDE:
        level += 1
    warnings.warn(without_secrets(message), category, stacklevel=level)


@contextmanager
def kept_warnings() -> Iterator[list[tuple[str, type[Warning]]]]:
    """Keep what `warn` says in this thread, for whoever can say it where the caller sees it."""
    kept: list[tuple[str, type[Warning]]] = []
    token = _kept.set(kept)
    try:
        yield kept
    finally:
        _kept.reset(token)
