"""One frame more for a filter that follows frames as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dask_dca.models.kalman.system import (
    incomplete_numbers,
    prepare_observer,
    safe_system,
    split_numbers,
    symmetric,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.models.kalman.system import LinearSystem

    Floats = NDArray[np.float64]

__all__ = ["next_state"]


def next_state(system: LinearSystem, before: tuple[Floats, Floats] | None, frame: Floats) -> tuple[Floats, Floats]:
    """Filter one frame.

    before: mean (k,) and covariance (k, k) of the state at the frame before; None where a sequence begins; frame (p,):
    NaN where an entry is missing. Returns the mean and the covariance at this one.
    """
    if before is None:
        mean, covariance = system.initial_mean, system.initial_covariance
    else:
        mean = system.transition @ before[0]
        covariance = system.transition @ before[1] @ system.transition.T + system.transition_covariance
    observer = prepare_observer(safe_system(system))
    y, _, factor = (part[0] for part in split_numbers(incomplete_numbers(observer, frame[None]), len(mean)))
    seen = covariance @ factor.T
    gain = np.linalg.solve(factor @ seen + np.eye(len(mean)), seen.T).T
    left = np.eye(len(mean)) - gain @ factor
    return mean + gain @ (y - factor @ mean), symmetric(left @ covariance @ left.T + gain @ gain.T)
