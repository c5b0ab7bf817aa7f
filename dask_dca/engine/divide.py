"""The divide step and its merge: sub-problems x blocks -> extremes -> tree.

Random planes depend on the seed alone, never on chunks, and every decisive comparison is exact, so any chunking and
any number of workers give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.checks import Census, Reading, clip_rounding, count_unusable
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import slabs, tiles
from dask_dca.geometry import extremes as hulls
from dask_dca.geometry import planes
from dask_dca.geometry.contenders import contenders
from dask_dca.geometry.frame import Frame, coordinates, scale_in_place
from dask_dca.geometry.glance import glance, sight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Directions", "Divided", "divide"]

_LOOK: Final = 1024  # rows that are looked at exactly at a time
_BROUGHT: Final = 2**24  # bytes of extreme rows that a pass may bring along


@dataclass(frozen=True)
class Divided:
    """What the divide step found: the extreme row of each signed direction, and what was met on the way."""

    extremes: hulls.Extremes
    census: Census
    numbers: Numbers  # of rows that are extreme and were brought along, increasing
    rows: NDArray[Any]  # (c, p) these rows as they were read; none if they weren't brought along


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
        """Return the integer directions, shape (count + fresh, r): made once a process, and never sent."""
        return self._integers

    @cached_property
    def _integers(self) -> Floats:
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

    def __getstate__(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self)}


@dataclass(frozen=True)
class _State:
    """How rows are read and placed, and what regenerates the planes."""

    reading: Reading
    frame: Frame
    planes: Directions
    bring: bool  # extreme rows come along, so that anchors need not be read again


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
    directions : Directions
        What regenerates the planes' directions.
    run : Run
        How passes are run.

    Returns
    -------
    Divided
        The extreme row of each signed direction over all rows.
    """
    state = _State(reading, frame, directions, _brings(rows, directions))
    job = Pass("divide", _divide_block, _merge_divided)
    return run_pass(rows, job, state, run)


def _brings(rows: Rows, directions: Directions) -> bool:
    """Whether extreme rows of all blocks are less to move than the few chunks with anchors are to read again."""
    most = 2 * directions.count
    if rows.kind == "memory" or most * rows.n_features * rows.dtype.itemsize > _BROUGHT:
        return False
    chunks = rows.by_chunk().n_blocks
    return 2 * most * rows.n_blocks * chunks < min(chunks, (directions.dim + 1)) * rows.n_rows


def _divide_block(state: _State, start: int, *columns: Any) -> Divided:
    directions = state.planes.regenerate()
    found = None
    census = Census()
    best = hulls.no_extremes(*directions.shape)
    for numbers, slab in slabs(columns, start):
        rows = slab
        if state.reading.nonnegative and not rows.min(initial=0.0) >= 0.0:
            rows = clip_rounding(rows.astype(np.float64), numbers, census)
        where = np.arange(len(rows))
        if len(rows) > 2 * len(directions):  # else most are extreme
            found, rough = found or sight(state.frame), directions.astype(np.float32)
            where = contenders(best, *glance(rows, found), rough)
        for some in (where[i : i + _LOOK] for i in range(0, len(where), _LOOK)):
            best = _look(state, best, rows[some].astype(np.float64), numbers[some], directions, census)
    return Divided(best, census, *_brought(state, best, start, columns))


def _look(
    state: _State, best: hulls.Extremes, rows: Floats, numbers: Numbers, directions: Floats, census: Census
) -> hulls.Extremes:
    """Let some rows compete exactly; overwrites them."""
    usable = scale_in_place(rows, state.reading.axis)
    if not usable.all():
        count_unusable(rows[~usable], numbers[~usable], census)
        rows, numbers = rows[usable], numbers[usable]
    return hulls.extremes(coordinates(rows, state.frame), numbers, directions, best) if len(rows) else best


def _brought(state: _State, best: hulls.Extremes, start: int, columns: Sequence[Any]) -> tuple[Numbers, NDArray[Any]]:
    """Extreme rows of a block that may be anchors, as they were read."""
    wanted = _candidates(best, state.planes.count) if state.bring else np.zeros(0, dtype=np.int64)
    single = all(part.dtype == np.float32 for part in columns)
    found = [np.zeros((0, len(state.frame.gain)), dtype=np.float32 if single else np.float64)]
    for numbers, tile in tiles(columns, start, wanted):
        rows = clip_rounding(tile, numbers, Census()) if state.reading.nonnegative else tile
        found.append(rows.astype(found[0].dtype))
    return wanted, np.concatenate(found)


def _candidates(best: hulls.Extremes, count: int) -> Numbers:
    """Numbers of the rows that are extreme on some of the first directions, increasing."""
    half = len(best.rows) // 2
    tops = np.isfinite(best.heights)
    tops[count:half] = tops[half + count :] = False
    return np.unique(best.rows[tops])


def _merge_divided(parts: Sequence[Divided]) -> Divided:
    census = Census()
    for part in parts:
        census = census + part.census
    best = hulls.merge_extremes([part.extremes for part in parts])
    kept = [np.isin(part.numbers, best.rows) for part in parts]
    numbers = np.concatenate([part.numbers[some] for part, some in zip(parts, kept, strict=True)])
    rows = np.concatenate([part.rows[some] for part, some in zip(parts, kept, strict=True)])
    order = np.argsort(numbers)
    return Divided(best, census, numbers[order], rows[order])
