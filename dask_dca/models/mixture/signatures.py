"""Signatures: the few coordinates of rows in which the means of a mixture are looked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.held import call
from dask_dca.models.mixture.passes import Scaling

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.models.mixture.start import RowSample, SampledRows

    Floats = NDArray[np.float64]

__all__ = ["Signatures", "find_signatures"]

_SPARE: Final = 10  # coordinates beyond twice the number of components


@dataclass(frozen=True)
class Signatures:
    """A linear map from rows to signatures.

    scaling: how rows are centred and scaled first; coordinates, offset: A scaled row y has the signature y @
    coordinates - offset.
    """

    scaling: Scaling
    coordinates: Floats
    offset: Floats

    def places(self, sample: RowSample) -> Floats:
        """Find the signatures of a sample.

        Returns (n, d): their signatures.
        """
        return (sample.rows * self.scaling.factor) @ self.coordinates - self.offset

    def of(self, rows: Floats) -> Floats:
        """Find the signatures of rows.

        rows (n, p): rows. Returns (n, d): their signatures.
        """
        return self.scaling.apply(rows) @ self.coordinates - self.offset

    def leading_axes(self) -> Floats:
        """Find the first two coordinates as directions in features.

        Returns (2, p): rows times these are signatures, except for a constant; the second is zero where there is one
        coordinate.
        """
        axes = np.zeros((2, len(self.scaling.factor)))
        found = (self.coordinates[:, :2] * self.scaling.factor[:, None]).T
        axes[: len(found)] = found
        return axes


def find_signatures(sample: SampledRows, n_components: int, *, scaled: bool, run: Run) -> Signatures:
    """Take the features themselves, or their leading principal directions in the sample.

    scaled: whether features are brought to similar variances first.
    """
    mean = float(sample.variances.mean())
    factor = np.ones(len(sample.centre))
    if scaled and mean > 0.0:
        factor = 1.0 / np.sqrt(sample.variances + mean)
    scaling = Scaling(sample.centre, factor, sample.deviations * factor)
    return call(run, "axes", _principal, sample.held, scaling, n_components)


def _principal(sample: RowSample, scaling: Scaling, n_components: int) -> Signatures:
    y = sample.rows * scaling.factor
    n, p = y.shape
    if p <= 2 * n_components + _SPARE:
        return Signatures(scaling, np.eye(p), np.zeros(p))
    vectors = np.linalg.eigh(y.T @ y / n)[1][:, ::-1][:, : 2 * n_components + _SPARE]
    return Signatures(scaling, np.ascontiguousarray(vectors), np.zeros(vectors.shape[1]))
