"""The divide step and its merge: sub-problems x blocks -> extremes -> tree.

Random planes depend on the seed alone, never on chunks, and every decisive comparison is exact, so any chunking and
any number of workers give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.engine.checks import Census, Reading, clip_rounding, count_unusable
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import tiles
from dask_dca.geometry import extremes as hulls
from dask_dca.geometry import planes
from dask_dca.geometry.frame import Frame, coordinates, glance, scale_in_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]

__all__ = ["Directions", "Divided", "divide"]


@dataclass(frozen=True)
class Divided:
    """What the divide step found: the extreme row of each signed direction, and what was met on the way."""

    extremes: hulls.Extremes
    census: Census


@dataclass(frozen=True)
class Directions:
    """What regenerates the directions of a divide pass anywhere."""

    ensemble: str
    seed: int
    count: int
    fresh: int  # further directions, in all r dimensions, that only test what the anchors reach
    dim: int
    scales: Floats
    features: Floats | None = None

    def regenerate(self) -> Floats:
        """Return the integer directions, shape (count + fresh, r)."""
        every = np.arange(self.count + self.fresh)
        features = None if self.features is None else self.features[:, : self.dim]
        found = np.zeros((len(every), len(self.scales)))
        found[: self.count, : self.dim] = planes.directions(
            self.ensemble, self.seed, every[: self.count], self.scales[: self.dim], features
        )
        # whitened, so that every ray counts alike; what is narrower than the anchors' own directions stays narrow
        widths = np.maximum(self.scales, self.scales[self.dim - 1])
        found[self.count :] = planes.directions("whitened", self.seed, every[self.count :], widths)
        return hulls.integer_directions(found)


@dataclass(frozen=True)
class _State:
    """How rows are read and placed, and what regenerates the planes."""

    reading: Reading
    frame: Frame
    planes: Directions


def divide(rows: Rows, reading: Reading, frame: Frame, directions: Directions, run: Run) -> Divided:
    """
    Solve all sub-problems on all rows: the divide step.

    Parameters
    ----------
    rows : Rows
        The data.
    reading : Reading
        How rows are read.
    frame : Frame
        The subspace that rows are placed in.
    directions : Planes
        What regenerates the planes' directions.
    run : Run
        How passes are run.

    Returns
    -------
    Divided
        The extreme row of each signed direction over all rows.
    """
    state = _State(reading, frame, directions)
    job = Pass("divide", _divide_block, _merge_divided)
    return run_pass(rows, job, state, run)


def _divide_block(state: _State, start: int, *columns: Any) -> Divided:
    directions = state.planes.regenerate()
    rough = directions.astype(np.float32)
    census = Census()
    best = hulls.no_extremes(*directions.shape)
    for numbers, tile in tiles(columns, start, copy=False):
        if state.reading.nonnegative:
            tile = clip_rounding(tile, numbers, census)
        near, margin = glance(tile, state.frame)
        where = hulls.contenders(best, near, margin, rough)
        scaled = tile[where]
        usable = scale_in_place(scaled, state.reading.axis)
        count_unusable(scaled[~usable], numbers[where[~usable]], census)
        if usable.any():
            positions = coordinates(scaled[usable], state.frame)
            best = hulls.extremes(positions, numbers[where[usable]], directions, best)
    return Divided(best, census)


def _merge_divided(parts: Sequence[Divided]) -> Divided:
    census = Census()
    for part in parts:
        census = census + part.census
    return Divided(hulls.merge_extremes([part.extremes for part in parts]), census)
