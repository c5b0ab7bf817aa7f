"""Checks of the census: documents of words, and enough words for the topics asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.errors import InvalidInputError, InvalidParameterError, warn
from dask_dca.models.parameters import check_integer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.document_census import Census

__all__ = ["check_parameters", "check_topics", "known_words"]

_TRANSPOSED: Final = 2.0  # lengths of documents that are this much more uneven than frequencies of words


def check_parameters(model: Any, n_words: int) -> None:
    """
    Check the parameters of a model.

    Parameters
    ----------
    model : LatentDirichletAllocation
        The model.
    n_words : int
        Number of columns V.

    Raises
    ------
    InvalidParameterError
        One is out of range.
    """
    check_integer("max_iter", model.max_iter, 0)
    if model.subsample is not None:
        check_integer("subsample", model.subsample, 1)
    share = isinstance(model.min_df, float) and 0.0 <= model.min_df <= 1.0
    if not share:
        check_integer("min_df", model.min_df, 0)
    for name in ("doc_topic_prior", "topic_word_prior"):
        value = getattr(model, name)
        if value is not None and not (isinstance(value, int | float | np.number) and 0.0 < value < np.inf):
            msg = f"{name} must be a positive number; received {value!r}"
            raise InvalidParameterError(msg)
    if model.n_components == "auto":
        if model.method == "paper":
            msg = "method='paper' needs the number of topics; pass n_components=20, or use method='robust'"
            raise InvalidParameterError(msg)
    elif check_integer("n_components", model.n_components, 1) > n_words:
        msg = f"n_components={model.n_components} exceeds the number of words, n_features = {n_words}"
        raise InvalidParameterError(msg)


def known_words(census: Census, min_df: int | float) -> NDArray[np.bool_]:
    """
    Choose the words that take part, after checking that there are documents of words.

    Parameters
    ----------
    census : Census
        The counts.
    min_df : int or float
        Documents that a word must be in: a number, or a share of the documents.

    Returns
    -------
    ndarray of bool, shape (V,)
        True for these.

    Raises
    ------
    InvalidInputError
        No document has two words, or no word is in enough documents.
    """
    if census.n_used == 0:
        msg = (
            f"no document has two words: {census.n_empty} are empty, {census.n_short} have one; topics are learnt from "
            "pairs of words in a document, so pass documents as rows and words as columns"
        )
        raise InvalidInputError(msg)
    least = min_df if isinstance(min_df, int | np.integer) else np.ceil(min_df * census.n_used)
    known: NDArray[np.bool_] = census.documents >= max(1, least)
    if not known.any():
        msg = f"no word is in {int(least)} documents or more (min_df={min_df!r}); use a smaller min_df"
        raise InvalidInputError(msg)
    _warn_if_transposed(census)
    return known


def _warn_if_transposed(census: Census) -> None:
    """Words' frequencies are far more uneven than documents' lengths; the other way round, rows are words."""
    words = census.words[census.words > 0]
    n, p = census.n_used, len(words)
    if min(n, p) < 100:
        return
    rows = np.sqrt(max(census.squares * n / words.sum() ** 2 - 1.0, 0.0))
    columns = float(words.std() / words.mean())
    if rows > max(1.0, _TRANSPOSED * columns):
        warn(
            "rows of X look like words and columns like documents: the sums of rows are "
            f"{rows / max(columns, 1e-9):.1f} times as uneven as those of columns; if so, pass X.T: documents are rows",
            UserWarning,
        )


def check_topics(n_topics: int | None, known: NDArray[np.bool_]) -> None:
    """
    Check that there are enough words for the topics.

    Parameters
    ----------
    n_topics : int or None
        Number of topics asked for.
    known : ndarray of bool, shape (V,)
        Words that take part.

    Raises
    ------
    InvalidParameterError
        There are fewer words.
    """
    if n_topics is not None and n_topics > known.sum():
        msg = (
            f"n_components={n_topics} exceeds the number of words that take part, {known.sum()} of n_features = "
            f"{len(known)}; use at most that many"
        )
        raise InvalidParameterError(msg)
