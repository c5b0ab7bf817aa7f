"""What a hidden Markov model is told about the frames before it has states: a sample, and their scale."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.anchoring.completion import completed_sample
from dask_dca.engine.checks import LEAST, require_size, require_squares
from dask_dca.engine.held import call
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import hold_rows, spread_rows
from dask_dca.models.kmeans import distinct_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.held import Held
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["FeatureScale", "FrameStretches", "SampledFrames", "feature_scale", "take_stretches", "with_local_floors"]

_STRETCH: Final = 256  # frames of each stretch of the sample
_SAMPLE_FRAMES: Final = 65_536
_SAMPLE_ENTRIES: Final = 4_000_000
_LEAST_STRETCHES: Final = 8
_PARTS: Final = 10  # of the model that fills holes, where states are not yet known
_LEAST_VARIANCE: Final = 1e-6  # share of a feature's own
_LEAST_WITHIN: Final = 1e-2  # and at most as a share of its variance within the states of the starts
_LOCAL: Final = 1e-14  # share of a feature's own below which no floor is


@dataclass(frozen=True)
class FrameStretches:
    """Frames in memory: all of them, or stretches of successive ones.

    rows: as they were given; edges: ends of the stretches, and of sequences within them; filled (n, p): where entries
    are missing, the frames with their holes filled.
    """

    rows: Rows
    edges: Numbers
    filled: Floats | None = None

    @property
    def frames(self) -> Floats:
        """All of them as one matrix.

        Returns (n, p): the frames, NaN where an entry is missing.
        """
        return np.asarray(self.rows.source, dtype=np.float64)

    @property
    def whole(self) -> Floats:
        """The frames without holes.

        Returns (n, p): with holes filled by their posterior means in a low-rank model.
        """
        return self.frames if self.filled is None else self.filled


@dataclass(frozen=True)
class SampledFrames:
    """Stretches that stay where the data are, and what is known of them."""

    held: Held[FrameStretches]
    whole: bool
    n_frames: int
    n_distinct: int  # frames that differ
    centre: Floats  # (p,), means
    spreads: Floats  # (p,), standard deviations


@dataclass(frozen=True)
class FeatureScale:
    """The scale of frames: a centre, standard deviations and least variances, all (p,).

    units (p,): what frames are divided by, none zero: their deviations, or the greatest of them for spherical states.
    """

    centre: Floats
    spreads: Floats
    floors: Floats
    units: Floats

    def standard(self, frames: Floats) -> Floats:
        """Take frames (n, p) to standard units."""
        found: Floats = (frames - self.centre) / self.units
        return found

    @property
    def least(self) -> Floats:
        """Least variances in standard units.

        Returns (p,).
        """
        found: Floats = self.floors / self.units**2
        return found

    @property
    def log_scale(self) -> float:
        """What densities per frame are lower by in the data's units.

        Returns the sum of the units' logarithms.
        """
        return float(np.log(self.units).sum())


def take_stretches(rows: Rows, edges: Numbers, run: Run, *, holes: bool = False) -> SampledFrames:
    """Take a sample of successive frames, by the number of frames alone.

    edges (m + 1,): ends of sequences; holes: whether entries may be missing. Returns all frames where they are few;
    else stretches of 256, which end where a sequence ends.
    Raises NotFiniteError: one of the frames is not finite; InvalidInputError: squares are out of the range of
    floating-point numbers.
    """
    groups = max(min(_SAMPLE_FRAMES, _SAMPLE_ENTRIES // rows.n_features) // _STRETCH, _LEAST_STRETCHES)
    numbers = spread_rows(rows.n_rows, groups, _STRETCH)
    every, ends = np.arange(rows.n_rows) if numbers is None else numbers, edges
    if numbers is not None:
        breaks = np.searchsorted(numbers, edges[1:-1])
        ends = np.unique(np.concatenate([np.arange(0, len(numbers) + 1, _STRETCH), breaks]))
    held = hold_rows(rows, numbers, run, partial(_stretches, every, ends, holes), holes=holes)
    return SampledFrames(held, numbers is None, len(every), *call(run, "describe", _described, held))


def _stretches(numbers: Numbers, edges: Numbers, holes: bool, frames: Floats) -> FrameStretches:
    require_squares(frames, numbers, missing=holes)
    require_size(frames, numbers)
    return FrameStretches(as_rows(frames), edges, completed_sample(frames, _PARTS)[0] if holes else None)


def _described(sample: FrameStretches) -> tuple[int, Floats, Floats]:
    frames = sample.whole
    return distinct_count(frames), frames.mean(axis=0), frames.std(axis=0)


def feature_scale(sample: SampledFrames, min_covar: float | None, kind: str) -> FeatureScale:
    """Measure the scale of frames on a sample.

    min_covar: least variance of a state; a millionth of each feature's own if None; kind: form of the covariances.
    Returns the scale. A feature that is constant except for rounding has a standard deviation of zero.
    """
    centre, spreads = sample.centre, sample.spreads
    spreads = np.where(spreads > np.maximum(1e-12 * np.abs(centre), LEAST), spreads, 0.0)
    typical = float(spreads.max()) or float(np.abs(centre).max()) or 1.0
    units = np.full(len(spreads), typical) if kind == "spherical" else np.where(spreads > 0.0, spreads, typical)
    floors = _LEAST_VARIANCE * np.where(spreads > 0.0, spreads, typical) ** 2
    floors = np.maximum(floors, np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
    return FeatureScale(centre, spreads, floors if min_covar is None else np.full(len(floors), min_covar), units)


def with_local_floors(frame: FeatureScale, within: Floats) -> FeatureScale:
    """Lower the least variances where they would be large beside those within states.

    frame: the scale, with least variances in proportion to the features' own; within (p,): rough variances of the
    features within states. Returns the same, with least variances of a hundredth of those within states where these are
    less.
    """
    local = np.maximum(_LEAST_WITHIN * within, _LOCAL * frame.spreads**2)
    return replace(frame, floors=np.where((frame.spreads > 0.0) & (local < frame.floors), local, frame.floors))
