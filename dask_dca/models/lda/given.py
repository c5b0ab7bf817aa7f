"""Anchor words that are given: numbers of columns, or names of the vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.errors import InvalidParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

__all__ = ["check_given", "given_words"]


def given_words(given: Any, names: NDArray[Any] | None, n_words: int) -> Numbers:
    """Take anchor words as numbers of columns.

    given: numbers or names, None for none; names (V,): of the columns, if they have any. Returns (r,): distinct ones.
    Raises InvalidParameterError: neither of these, repeated, or not among the words.
    """
    if given is None:
        return np.zeros(0, dtype=np.int64)
    words = np.asarray(given)
    if words.ndim != 1 or words.dtype.kind not in "iuUO":
        msg = f"anchor_words must be column numbers from 0, or names of words; received {given!r}"
        raise InvalidParameterError(msg)
    words = words if words.dtype.kind in "iu" else _numbers(words.tolist(), names)
    if len(np.unique(words)) < len(words) or words.min() < 0 or words.max() >= n_words:
        msg = f"anchor_words must be distinct columns, from 0 to {n_words - 1}; received {given!r}"
        raise InvalidParameterError(msg)
    return words.astype(np.int64)


def _numbers(words: list[Any], names: NDArray[Any] | None) -> Numbers:
    if names is None:
        msg = (
            f"anchor_words names words ({words[0]!r}), and the columns of X have no names; pass their numbers, such as "
            "vectorizer.vocabulary_[word], or a table with named columns"
        )
        raise InvalidParameterError(msg)
    places = {name: place for place, name in enumerate(names)}
    absent = [word for word in words if word not in places]
    if absent:
        msg = f"anchor_words holds {absent[0]!r}, which is no column of X; words are spelt as in feature_names_in_"
        raise InvalidParameterError(msg)
    return np.array([places[word] for word in words])


def check_given(given: Numbers, known: NDArray[np.bool_], n_topics: int | None) -> None:
    """Check that words that are given can all be anchor words.

    given (r,): from `given_words`; known (V,): words that take part; n_topics: how many there are to be, if that is
    said.
    Raises InvalidParameterError: there are more of them than topics, or one takes no part.
    """
    if n_topics is not None and len(given) > n_topics:
        r = len(given)
        msg = f"anchor_words holds {r} words where n_components={n_topics}; ask for at least {r} topics"
        raise InvalidParameterError(msg)
    unknown = given[~known[given]]
    if len(unknown):
        msg = f"anchor_words holds column {unknown[0]}, which is in too few documents to take part; leave it out"
        raise InvalidParameterError(msg)
