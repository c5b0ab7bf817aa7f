"""What the moments of hidden states are taken about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.exact import power_of_two

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Origins"]

_LEAST_DEVIATION: Final = 2.0**-40  # of a feature's own: moments about a point are not rounded finer


@dataclass(frozen=True)
class Origins:
    """
    Points that moments are taken about, and what they are rounded by.

    Attributes
    ----------
    centre, spreads : ndarray of float64, shape (p,)
        A point amid the frames, and their rough standard deviations.
    points : ndarray of float64, shape (k, p), optional
        For each state a point less the centre: zero where the centre will do, and always if None.
    deviations : ndarray of float64, shape (k, p), optional
        Rough standard deviations in the states whose point is not zero.
    """

    centre: Floats
    spreads: Floats
    points: Floats | None = None
    deviations: Floats | None = None

    def far(self) -> list[int]:
        """
        Say which states have a point of their own.

        Returns
        -------
        list of int
            Their numbers.
        """
        return [] if self.points is None else np.flatnonzero(self.points.any(axis=1)).tolist()

    def scales(self, k: int) -> Floats:
        """
        Return powers of two by which moments are rounded.

        Parameters
        ----------
        k : int
            Number of states.

        Returns
        -------
        ndarray of float64, shape (k, p)
            Of the size of the standard deviations.
        """
        scales = np.repeat(power_of_two(self.spreads)[None], k, axis=0)
        if self.deviations is not None:
            far = self.far()
            scales[far] = power_of_two(np.maximum(self.deviations[far], _LEAST_DEVIATION * self.spreads))
        return scales
