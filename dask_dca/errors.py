"""Errors and warnings, in one hierarchy, so that one `except` catches all errors of bad input."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

# packages skipped when a warning is attributed to the caller's line; decorators are in some of them
_INTERNAL_PACKAGES: Final = (__name__.partition(".")[0], "sklearn", "contextlib", "numpy")

# code in messages that fixes a NumPy array; `engine.advice` replaces it by code for other kinds of data
DROP: Final = "X = X[np.isfinite(X).all(axis=1)]"  # drops rows that are not finite
MARK: Final = "X = np.where(np.isfinite(X), X, np.nan)"  # marks entries that are not finite as NaN
CLIP: Final = "X = X.clip(0)"  # raises negative entries to zero
FILL: Final = "X = np.where(np.isnan(X), np.nanmax(X) + 1, X)"  # makes missing symbols a symbol of their own
UNWEIGHTED: Final = f"rows with missing entries take no sample_weight; drop such rows first, for example {DROP}"

# packages whose errors are those of a server or of the network
_NETWORK: Final = ("adlfs", "aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google", "requests", "urllib3")
_EXTRAS: Final = {"s3": "s3", "gs": "gcs", "gcs": "gcs"}  # extras of dask-dca by the protocols of URLs
_URL_PATTERN: Final = re.compile(r"([A-Za-z][\w+.-]*://)((?:(?!::)[^\s'\"<>])+)")
_COLUMN_PATTERN: Final = re.compile(r"column (\d+)(?! \()")
_QUERY_VALUE: Final = re.compile(r"=[^&;]*")
_ARRAY_LINE_BREAK: Final = re.compile(r"\n +")
_MAX_CHARACTERS: Final = (600, 600)  # maximum characters kept from the beginning and the end of a message
_kept_warnings: Final[ContextVar[list[tuple[str, type[Warning]]] | None]] = ContextVar("kept", default=None)


def without_secrets(text: str) -> str:
    """Replace users, passwords and query values of URLs by `***`, for logs, pages and messages."""
    return _URL_PATTERN.sub(_mask_secrets, text)


def _mask_secrets(url: re.Match[str]) -> str:
    place, mark, query = url[2].partition("?")
    server = place.partition("/")[0]
    if "@" in server:
        place = "***@" + place[server.rindex("@") + 1 :]
    elif "@" in place and ":" in server and not server.rpartition(":")[2].isdecimal():  # a password with slashes
        place = "***@" + place.rpartition("@")[2]
    return url[1] + place + mark + _QUERY_VALUE.sub("=***", query)


def _shorten(text: str) -> str:
    """Shorten a message that contains a whole array, by its middle."""
    text = _ARRAY_LINE_BREAK.sub(" ", text)
    if len(text) <= sum(_MAX_CHARACTERS):
        return text
    return " ".join(text[: _MAX_CHARACTERS[0]].split()) + " ... " + " ".join(text[-_MAX_CHARACTERS[1] :].split())


class DCAError(ValueError):
    """
    Base of all errors that this library raises on purpose; messages are bounded in length and hide secrets of URLs.

    Parameters
    ----------
    *args : object
        The message.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*(_shorten(without_secrets(part)) if isinstance(part, str) else part for part in args))


class InvalidInputError(DCAError):
    """The data can't be used: shape, dtype, sign, a path without an array."""


class NotNumbersError(InvalidInputError, TypeError):
    """Entries are objects that are not numbers; also a TypeError, as in scikit-learn."""


class NotFiniteError(InvalidInputError):
    """The data hold NaN or infinity; the message names row and column."""


class MissingEntriesError(NotFiniteError):
    """The data hold NaN, a missing entry, where every entry is needed; the message names row and column."""


@contextmanager
def naming_columns(names: Any) -> Iterator[None]:
    """Add the name of the column to errors of entries that are not finite.

    names: of the columns, or None.
    Raises NotFiniteError: with the name.
    """
    try:
        yield
    except NotFiniteError as error:
        found = _COLUMN_PATTERN.search(str(error))
        if names is None or found is None or int(found[1]) >= len(names):
            raise
        text, end = str(error), found.end()
        raise type(error)(f"{text[:end]} ({names[int(found[1])]!r}){text[end:]}") from error


def without_columns(columns: Sequence[int]) -> str:
    """Return code that drops columns of an array, at most twenty."""
    return f"X = X[:, ~np.isin(np.arange(X.shape[1]), {list(columns[:20])})]"


class InvalidParameterError(DCAError):
    """A parameter is out of its range or unknown."""


class ModelFileError(DCAError):
    """A saved model can't be read or written."""


class CheckpointError(DCAError):
    """A checkpoint belongs to another fit, or can't be used."""


class ClusterError(DCAError):
    """The connection to the cluster or several workers were lost, or workers can't run the tasks."""


class CheckpointWarning(UserWarning):
    """A finished pass could not be saved, or not be read again."""


class ClusterWarning(UserWarning):
    """The cluster has no workers yet, or workers lack this package or have another version of it."""


class FewEntriesWarning(UserWarning):
    """So many entries are missing that the anchors of the rows may not be found."""


class FewerAnchorsWarning(UserWarning):
    """The data have fewer extreme rays than the requested number of anchors."""


class MissingEntriesWarning(UserWarning):
    """Entries are missing, so that a fit skips steps that need complete rows."""


class FloorWarning(UserWarning):
    """Fitted variances are at their minimum, which determines them instead of the data."""


class IncompleteLibraryWarning(UserWarning):
    """The library from which anchors are chosen lacks a row that the data are mixtures of."""


class MissingChunksWarning(UserWarning):
    """No chunk of a zarr array was ever written: all its entries are the fill value."""


class NotPointedWarning(UserWarning):
    """Many rows lie behind the reference axis: the data do not fit in one pointed cone."""


class PerformanceWarning(UserWarning):
    """An operation costs a pass over the data that a line of the caller's code would save."""


class SequenceWarning(UserWarning):
    """A model of several sequences was given rows without lengths, and treats them as one sequence."""


class StartWarning(UserWarning):
    """Parameters that were set by hand are overwritten by a fit that does not start from them."""


def reason_of(error: BaseException) -> str:
    r"""Describe an error of another library in one line.

    error: any error, or a group, of which the first is described. Returns class and text of the error, or of its cause
    if it has no text.
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
    """Describe an error of an object store or another server in one line.

    path: the requested URL. Returns None if the error does not come from a network library, and none is missing.
    """
    told: list[BaseException] = [error]
    for each in told:
        told += [cause for cause in (each.__cause__, each.__context__) if cause is not None and cause not in told]
        told += each.exceptions if isinstance(each, BaseExceptionGroup) else []
        if type(each).__module__.partition(".")[0] in _NETWORK:
            return f"can't reach {path!r}: {reason_of(error)}; check the address, the credentials and the network"
        if "://" in path and isinstance(each, ImportError):
            extra = _EXTRAS.get(path.partition(":")[0])
            mend = "install it" if extra is None else f"pip install 'dask-dca[{extra}]'"
            return f"can't reach {path!r}, since a package for it is missing ({each}): {mend}, for workers too"
        if str(each).startswith("Protocol not known"):
            return f"can't reach {path!r}: no installed package knows {path.partition(':')[0]}://; check the address"
    return None


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning at the line of the user's code that called the library."""
    kept = _kept_warnings.get()
    if kept is not None:
        kept.append((message, category))
        return
    level = 2
    while (sys._getframe(level - 1).f_globals.get("__name__") or "").partition(".")[0] in _INTERNAL_PACKAGES:
        level += 1
    warnings.warn(without_secrets(message), category, stacklevel=level)


@contextmanager
def kept_warnings() -> Iterator[list[tuple[str, type[Warning]]]]:
    """Collect the warnings of `warn` in this thread, to be issued where the user sees them."""
    kept: list[tuple[str, type[Warning]]] = []
    token = _kept_warnings.set(kept)
    try:
        yield kept
    finally:
        _kept_warnings.reset(token)
