"""Sequence ids of frames: which sequence each frame is of, instead of how long sequences are."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_dca.engine.stores import is_a
from dask_dca.errors import InvalidInputError

__all__ = ["by_groups"]


def by_groups(X: Any, lengths: Any, groups: Any) -> tuple[Any, Any]:
    """Turn sequence ids into lengths.

    groups (n,): id of each frame's sequence, or the name of a column or index level of a DataFrame, or of a coordinate
    of an xarray.DataArray; None leaves all as it is. Returns X, less a column of ids, and the lengths.
    Raises InvalidInputError: lengths are given too, ids are not there or missing, or a sequence is in several places.
    """
    if groups is None:
        return X, lengths
    if lengths is not None:
        msg = "lengths and groups say the same; pass one of them"
        raise InvalidInputError(msg)
    X, ids = _named(X, groups) if isinstance(groups, str) else (X, groups)
    ids = np.asarray(ids.compute() if hasattr(ids, "compute") else ids)
    if ids.ndim != 1:
        msg = f"groups must be one id per frame; received an array of shape {ids.shape}"
        raise InvalidInputError(msg)
    n_frames = getattr(X, "shape", (len(ids),))[0]
    if isinstance(n_frames, int) and n_frames != len(ids):
        msg = f"groups has {len(ids)} ids for {n_frames} frames; pass one per frame"
        raise InvalidInputError(msg)
    return X, _run_lengths(ids)


def _named(X: Any, name: str) -> tuple[Any, Any]:
    """X without the ids, and the ids of this name."""
    if is_a(X, "pandas", "DataFrame") or hasattr(X, "map_partitions"):
        if name in X.columns:
            return X.drop(columns=name), X[name]
        if name in getattr(X.index, "names", [X.index.name]):
            return X, X.index.get_level_values(name) if hasattr(X.index, "get_level_values") else X.index
    elif is_a(X, "xarray", "DataArray") and name in X.coords:
        return X, X[name].values
    msg = f"groups={name!r} is no column, index level or coordinate of X, a {type(X).__name__}; pass the ids themselves"
    raise InvalidInputError(msg)


def _run_lengths(ids: Any) -> Any:
    missing = np.asarray([value is None or value != value for value in ids.tolist()], dtype=bool)
    if missing.any():
        msg = f"groups has no id for frame {int(missing.argmax())}; drop such frames, or give them one"
        raise InvalidInputError(msg)
    begins = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])) if len(ids) else np.zeros(0, dtype=np.int64)
    seen: set[Any] = set()
    for begin in begins.tolist():
        if ids[begin] in seen:
            msg = (
                f"the frames of a sequence must follow each other, and {ids[begin]!s} begins again at frame {begin}; "
                "sort by it, in a way that keeps the order of time: order = np.argsort(ids, kind='stable')"
            )
            raise InvalidInputError(msg)
        seen.add(ids[begin])
    return np.diff(np.append(begins, len(ids)))
