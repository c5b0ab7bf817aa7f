"""What a Kalman filter is told about the frames before there is a state: a sample in stretches, centre and scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.sampling import call, hold_rows, spread_rows
from dask_dca.engine.sequences import ends_of_runs
from dask_dca.engine.tiles import require_size, require_squares
from dask_dca.geometry.exact import power_of_two

if TYPE_CHECKING:
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.sampling import Held
    from dask_dca.geometry.arrays import Floats, Numbers

_STRETCHES: Final = 20
_SAMPLE_ENTRIES: Final = 2 * 10**7
_SAMPLE_ROWS: Final = 20_480


@dataclass(frozen=True)
class ChannelStretches:
    """Frames in uninterrupted stretches.

    frames (n, p): frames; NaN where an entry is missing; edges (m + 1,): first frame of each stretch, and their number.
    """

    frames: Floats
    edges: Numbers


@dataclass(frozen=True)
class ChannelScale:
    """Where channels lie and how much they vary: frames are learnt from as (x - centre) / unit.

    centre (p,): their means in the sample; unit (p,): powers of two at or above their standard deviations there.
    """

    centre: Floats
    unit: Floats


@dataclass(frozen=True)
class SampledChannels:
    """Stretches that stay where the data are, and what is known of them.

    is_all: whether these are all frames there are; missing: whether an entry is missing.
    """

    held: Held[ChannelStretches]
    is_all: bool
    n_frames: int
    missing: bool
    scale: ChannelScale


def take_frames(rows: Rows, edges: Numbers, run: Run) -> SampledChannels:
    """Take a sample: stretches spread over all frames, chosen by the number of frames alone.

    edges (m + 1,): first frame of each sequence, and the number of frames. Returns the sample; all frames where there
    are no more than some 20,000.
    Raises NotFiniteError: A frame is infinite; InvalidInputError: squares are out of the range of floating-point
    numbers.
    """
    most = max(min(_SAMPLE_ROWS, _SAMPLE_ENTRIES // rows.n_features), 64 * _STRETCHES)
    numbers = spread_rows(rows.n_rows, _STRETCHES, most // _STRETCHES)
    held = hold_rows(rows, numbers, run, partial(_stretches, numbers, ends_of_runs(numbers, edges)), holes=True)
    n_frames = rows.n_rows if numbers is None else len(numbers)
    return SampledChannels(held, numbers is None, n_frames, *call(run, "describe", _described, held))


def _stretches(numbers: Numbers | None, edges: Numbers, frames: Floats) -> ChannelStretches:
    where = np.arange(len(frames)) if numbers is None else numbers
    require_squares(frames, where, missing=True)
    require_size(frames, where)
    return ChannelStretches(frames, edges)


def _described(sample: ChannelStretches) -> tuple[bool, ChannelScale]:
    return bool(np.isnan(sample.frames).any()), scale_of(sample.frames)


def scale_of(frames: Floats) -> ChannelScale:
    """Describe the channels.

    frames (n, p): the sample; NaN where an entry is missing. Returns centre and units. A channel that never varies in
    the sample has the unit of its size.
    """
    seen = ~np.isnan(frames)
    counts = np.maximum(seen.sum(axis=0), 1)
    size = power_of_two(np.abs(np.where(seen, frames, 0.0)).max(axis=0, initial=0.0))
    scaled = np.where(seen, frames, 0.0) / size
    low, high = np.where(seen, scaled, np.inf).min(axis=0), np.where(seen, scaled, -np.inf).max(axis=0)
    centre = np.where(low == high, low, scaled.sum(axis=0) / counts)  # a constant is met without rounding
    spread = np.sqrt((np.where(seen, scaled - centre, 0.0) ** 2).sum(axis=0) / counts)
    return ChannelScale(centre * size, size * power_of_two(np.where(spread > 1e-15, spread, 1.0)))
