"""Planes in groups: the sub-problems of one task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.watch import task_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows

__all__ = ["PlaneGroup", "plane_groups"]

_LEAST: Final = (
    256  # planes of a group: with fewer, what each group does per tile of rows costs more than it saves (S13)
)


@dataclass(frozen=True)
class PlaneGroup:
    """One of several equal ranges of planes."""

    number: int
    of: int
    label: str

    def range_of(self, count: int) -> NDArray[np.int64]:
        """
        Return its numbers.

        Parameters
        ----------
        count : int
            How many there are in all groups.

        Returns
        -------
        ndarray of int64
            A range of 0, ..., count - 1.
        """
        return np.arange(count * self.number // self.of, count * (self.number + 1) // self.of)


def plane_groups(rows: Rows, n_planes: int | None, n_groups: int | None = None) -> tuple[PlaneGroup, ...]:
    """
    Cut the planes of a pass into groups: one where blocks fill the threads, else as many as fill them.

    Parameters
    ----------
    rows : Rows
        The data.
    n_planes : int or None
        Number of planes; None if it is not known before the pass, which has one group then.
    n_groups : int, optional
        Number of groups, instead.

    Returns
    -------
    tuple of PlaneGroup
        Called by their first and last plane, where these are known.
    """
    if n_groups is None:
        n_groups = 1
        if n_planes is not None and rows.kind != "memory":
            n_groups = max(1, min(-(-task_threads() // rows.n_blocks), n_planes // _LEAST))
    groups = [PlaneGroup(i, n_groups, f"{i + 1}-of-{n_groups}") for i in range(n_groups)]
    if n_planes is not None:
        edges = [group.range_of(n_planes)[[0, -1]] for group in groups]
        groups = [replace(group, label=f"{first}-{last}") for group, (first, last) in zip(groups, edges, strict=True)]
    return tuple(groups)
