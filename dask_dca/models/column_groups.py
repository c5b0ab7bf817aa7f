"""Views as groups of columns: checked as given, or a seeded random split in three."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.planes import child_seeds, uniforms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

__all__ = ["check_views", "split_views"]

_N_VIEWS: Final = 3


def check_views(views: Any, n_features: int) -> tuple[Numbers, Numbers, Numbers]:
    """
    Check three groups of columns.

    Parameters
    ----------
    views : sequence of three array-likes
        Each a slice, column numbers (negative ones count from the end) or a boolean mask. Columns in no group are
        not used as views.
    n_features : int
        Number of columns p.

    Returns
    -------
    tuple of ndarray of int64
        Column numbers of each view, in the order given.

    Raises
    ------
    InvalidParameterError
        Not three groups, an empty one, a column out of range or in two groups.

    Examples
    --------
    >>> check_views([slice(0, 2), [2, -1], [3]], 5)
    (array([0, 1]), array([2, 4]), array([3]))
    """
    if not isinstance(views, list | tuple | np.ndarray) or len(views) != _N_VIEWS:
        what = f"{len(views)} of them" if isinstance(views, list | tuple) else repr(views)
        _refuse(f"received {what}")
    groups = [_columns(group, n_features) for group in views]
    every = np.concatenate(groups)
    if len(np.unique(every)) < len(every):
        values, counts = np.unique(every, return_counts=True)
        _refuse(f"column {values[counts > 1][0]} is in more than one place")
    return groups[0], groups[1], groups[2]


def split_views(n_features: int, seed: int) -> tuple[Numbers, Numbers, Numbers]:
    """
    Split all columns at random into three groups of equal size, up to one column.

    Parameters
    ----------
    n_features : int
        Number of columns p, at least three.
    seed : int
        Root seed.

    Returns
    -------
    tuple of ndarray of int64
        Column numbers of each view, increasing.

    Examples
    --------
    >>> [len(view) for view in split_views(8, 0)]
    [3, 3, 2]
    """
    order = np.argsort(uniforms(np.atleast_1d(child_seeds(seed, 0)), n_features)[0], kind="stable")
    first, second, third = (np.sort(order[start::_N_VIEWS]) for start in range(_N_VIEWS))
    return first, second, third


def _columns(group: Any, n_features: int) -> Numbers:
    every = np.arange(n_features, dtype=np.int64)
    chosen = group if isinstance(group, slice) else np.asarray(group)
    if not isinstance(chosen, slice) and not chosen.size:
        _refuse(f"the group {group!r} holds no column")
    try:
        found = every[chosen]
    except IndexError as error:
        _refuse(f"{error} (columns 0 to {n_features - 1})")
    if found.ndim != 1 or not len(found):
        _refuse(f"the group {group!r} is no list of columns")
    return np.asarray(found)


def _refuse(what: str) -> NoReturn:
    msg = (
        "views must be three disjoint groups of columns, for example "
        f"views=[slice(0, 10), slice(10, 20), slice(20, 30)]; {what}"
    )
    raise InvalidParameterError(msg)
