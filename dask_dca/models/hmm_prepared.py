"""What all starts of a hidden Markov model share: checked parameters, a sample, its scale and coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dask_dca.models.hmm_frames import describe_frames, find_coordinates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.hmm_frames import Coordinates, Frame, Sampled, Stretches

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["HMMSettings", "Prepared", "Seen", "prepare", "see"]


@dataclass(frozen=True)
class HMMSettings:
    """Checked parameters of a hidden Markov model."""

    covariance_type: str
    max_iter: int
    tol: float
    min_covar: float | None
    n_starts: int | None
    n_directions: int | None
    seed: int


@dataclass(frozen=True)
class Prepared:
    """What all starts share."""

    rows: Rows
    edges: Numbers
    sample: Sampled
    frame: Frame
    coordinates: Coordinates


@dataclass(frozen=True)
class Seen:
    """The same where the sample is."""

    frames: Floats  # (n, p)
    edges: Numbers
    centred: Floats  # (n, p): frames less the centre
    places: Floats  # (n, d): their discriminant coordinates


def prepare(rows: Rows, edges: Numbers, sample: Sampled, k: int, settings: HMMSettings, run: Run) -> Prepared:
    """
    Find the scale of frames and their coordinates: the moment pass.

    Parameters
    ----------
    rows, edges, k, settings, run : object
        As `fit_hmm` takes them.
    sample : Sampled
        Some of the frames.

    Returns
    -------
    Prepared
        What all starts share.
    """
    frame = describe_frames(sample, settings.min_covar)
    whole = settings.covariance_type in ("full", "tied")
    coordinates, frame = find_coordinates(rows, edges, sample, frame, k, settings.seed, run, whole_covariance=whole)
    return Prepared(rows, edges, sample, frame, coordinates)


def see(sample: Stretches, frame: Frame, coordinates: Coordinates) -> Seen:
    """
    Look at a sample in its coordinates.

    Parameters
    ----------
    sample : Stretches
        Frames in memory.
    frame, coordinates : Frame and Coordinates
        Their scale and coordinates.

    Returns
    -------
    Seen
        The frames.
    """
    frames = sample.frames
    centred = frames - frame.centre
    return Seen(frames, sample.edges, centred, np.ascontiguousarray(centred @ coordinates.discriminant))
