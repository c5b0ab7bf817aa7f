"""How the values of blocks become one: sums and stacks."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["add_parts", "stack_parts"]

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
