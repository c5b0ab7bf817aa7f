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
_SMALL: Final = 1024  # features, or rows, up to which all vectors are found at once
_POWERS: Final = 7  # steps of the randomized decomposition beyond that
_FLAT: Final = 1e-12  # of the greatest eigenvalue: directions of less are rounding


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
    p = y.shape[1]
    if p <= 2 * n_components + _SPARE:
        return Signatures(scaling, np.eye(p), np.zeros(p))
    vectors = _leading(y, 2 * n_components + _SPARE)
    return Signatures(scaling, vectors, np.zeros(vectors.shape[1]))


def _leading(y: Floats, width: int) -> Floats:
    """Leading right singular vectors of rows (n, p), shape (p, width); fewer where the rows span less."""
    n, p = y.shape
    if min(n, p) > _SMALL:
        from sklearn.utils.extmath import randomized_svd  # takes a second to import

        return np.ascontiguousarray(randomized_svd(y, width, n_iter=_POWERS, random_state=0)[2].T)
    if p <= n:
        return np.ascontiguousarray(np.linalg.eigh(y.T @ y / n)[1][:, ::-1][:, :width])
    values, vectors = np.linalg.eigh(y @ y.T / n)
    there = max(1, int((values[::-1][:width] > _FLAT * values[-1]).sum()))
    kept = vectors[:, ::-1][:, :there]
    found: Floats = y.T @ kept
    return np.ascontiguousarray(found / np.maximum(np.sqrt((found**2).sum(axis=0)), 1e-300))
