"""How the values of blocks become one: sums, stacks, and the row that is best."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["add_parts", "beats", "stack_parts"]

T = TypeVar("T")


def add_parts(parts: Sequence[T]) -> T:
    """
    Add values, or tuples and lists of values entry by entry.

    Parameters
    ----------
    parts : sequence
        At least one value that has a sum, such as arrays and `Total`; or tuples or lists of such, all of one length.

    Returns
    -------
    object
        The sum, of the type of the parts.

    Examples
    --------
    >>> add_parts([3, 4]), add_parts([(1, 2.5), (3, 0.5)])
    (7, (4, 3.0))
    """
    first = parts[0]
    if isinstance(first, tuple | list):
        return type(first)(reduce(add, some) for some in zip(*parts, strict=True))
    whole: T = reduce(add, parts)
    return whole


def stack_parts(parts: Sequence[T]) -> T:
    """
    Put arrays one below the other, or the arrays of tuples entry by entry.

    Parameters
    ----------
    parts : sequence of ndarray, or of tuple of ndarray
        At least one.

    Returns
    -------
    ndarray or tuple of ndarray
        The whole.

    Examples
    --------
    >>> stack_parts([np.array([1]), np.array([2, 3])])
    array([1, 2, 3])
    """
    arrays: Any = parts
    if isinstance(parts[0], tuple):
        return tuple(np.concatenate(some) for some in zip(*arrays, strict=True))  # type: ignore[return-value]
    whole: Any = np.concatenate(arrays)
    return whole


def beats(
    keys: NDArray[np.float64], rows: NDArray[np.int64], old_keys: NDArray[np.float64], old_rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """
    Tell where new rows are better than old ones: by a greater key, among equals by a lower number.

    Parameters
    ----------
    keys, old_keys : ndarray of float64
        What rows are compared by.
    rows, old_rows : ndarray of int64
        Their numbers, of the same shape.

    Returns
    -------
    ndarray of bool
        True where the new one wins.

    Examples
    --------
    >>> beats(np.array([1.0, 2.0]), np.array([3, 3]), np.array([1.0, 1.0]), np.array([2, 2]))
    array([False,  True])
    """
    return (keys > old_keys) | ((keys == old_keys) & (rows < old_rows))
