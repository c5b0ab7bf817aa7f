"""What all starts of a hidden Markov model share: checked parameters, a sample, its scale and coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dask_dca.models.hmm_frames import describe_frames, find_coordinates, take_stretches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.hmm_frames import Coordinates, Frame, Stretches

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["HMMSettings", "Prepared", "prepare"]


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

    rows: Rows  # in memory where the sample is all
    edges: Numbers
    sample: Stretches
    frame: Frame
    coordinates: Coordinates
    seen: Floats  # (n, d): discriminant coordinates of the sample


def prepare(rows: Rows, edges: Numbers, k: int, settings: HMMSettings, run: Run) -> Prepared:
    """
    Sample the frames and find their coordinates: the moment pass.

    Parameters
    ----------
    rows, edges, k, settings, run : object
        As `fit_hmm` takes them.

    Returns
    -------
    Prepared
        What all starts share.
    """
    sample = take_stretches(rows, edges, run)
    frame = describe_frames(sample, settings.min_covar)
    rows = sample.rows if sample.whole else rows
    whole = settings.covariance_type in ("full", "tied")
    coordinates, frame = find_coordinates(rows, edges, sample, frame, k, settings.seed, run, whole_covariance=whole)
    seen = np.ascontiguousarray((sample.frames - frame.centre) @ coordinates.discriminant)
    return Prepared(rows, edges, sample, frame, coordinates, seen)
