"""What fills the threads where blocks don't: groups of planes, the sub-problems of one task, and parts of blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.progress import task_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows

__all__ = ["PlaneGroup", "plane_groups", "row_parts"]

_LEAST: Final = (
    256  # planes of a group: with fewer, what each group does per tile of rows costs more than it saves (S13)
)


_PART: Final = 2**21  # entries of a part of a block: with fewer, a task costs more than it saves


@dataclass(frozen=True)
class PlaneGroup:
    """One of several equal ranges of planes."""

    number: int
    of: int
    label: str

    def range_of(self, count: int) -> NDArray[np.int64]:
        """Return its numbers.

        count: how many there are in all groups. Returns A range of 0, ..., count - 1.
        """
        return np.arange(count * self.number // self.of, count * (self.number + 1) // self.of)


def plane_groups(rows: Rows, n_planes: int | None, n_groups: int | None = None) -> tuple[PlaneGroup, ...]:
    """Cut the planes of a pass into groups: one where blocks, or parts of them, fill the threads, else as many as do.

    n_planes: number of planes; None if it is not known before the pass, which has one group then. Returns called by
    their first and last plane, where these are known.
    """
    if n_groups is None:
        n_groups = 1
        if n_planes is not None and rows.kind != "memory" and row_parts(rows) == 1:
            n_groups = max(1, min(-(-task_threads() // rows.n_blocks), n_planes // _LEAST))
    groups = [PlaneGroup(i, n_groups, f"{i + 1}-of-{n_groups}") for i in range(n_groups)]
    if n_planes is not None:
        edges = [group.range_of(n_planes)[[0, -1]] for group in groups]
        groups = [replace(group, label=f"{first}-{last}") for group, (first, last) in zip(groups, edges, strict=True)]
    return tuple(groups)


def row_parts(rows: Rows) -> int:
    """Return into how many parts the rows of blocks are cut: as many as fill the threads, if blocks are large.

    Returns one where blocks fill the threads, or are small.
    """
    if rows.kind == "memory":
        return 1
    entries = int(np.diff(rows.offsets).max()) * rows.n_features
    return max(1, min(-(-task_threads() // rows.n_blocks), entries // _PART))
