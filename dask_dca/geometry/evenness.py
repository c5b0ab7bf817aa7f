"""Detection of heights that are equal up to noise.

Dividing a row by its height also divides it by the noise of the height, and a row whose height is low by chance seems
to reach further. Where most of the variance of heights is noise, heights near their common level are replaced by it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dask_dca.geometry.arrays import Floats
from dask_dca.geometry.moments import UNEVEN, Evenness, top_eigenpairs

_MAX_SAMPLE_SHAPE: Final = (512, 2048)  # rows and features that the noise is estimated from
_MAX_VARIANCE_RATIO: Final = 2.0  # even heights have at most this multiple of the variance that noise explains
_BAND_DEVIATIONS: Final = 4.0  # half width of the band, in standard deviations of the noise of a height
_OUTLIER_FACTOR: Final = 3.0  # multiple of the median residual energy above which a row is an outlier


@np.errstate(over="ignore", invalid="ignore")  # overflowing heights are not even
def find_level(rows: Floats, height: Floats, axis: Floats | None, rank: int) -> Evenness:
    """Find the level of heights that are equal up to noise, and the band about it; `UNEVEN` if they are not.

    rows (n, p): a sample; height (n,): their heights along the axis; rank: number of directions that contain signal.
    """
    low, level, high = np.quantile(height, (0.25, 0.5, 0.75))
    if not (low > 0.0 and high < np.inf):
        return UNEVEN
    n, p = rows.shape
    unit, stride = int(np.frexp(level)[1]), (-(-n // _MAX_SAMPLE_SHAPE[0]), -(-p // _MAX_SAMPLE_SHAPE[1]))
    spread = np.ldexp((high - low) / 1.349, -unit) ** 2  # variance of the normal distribution with these quartiles
    centred = np.ldexp(rows[:: stride[0], :: stride[1]], -unit)
    centred -= centred.mean(axis=0)
    if axis is not None:
        centred *= axis[:: stride[1]]
    share = p / centred.shape[1]
    whole = share * np.square(centred).sum() / len(centred)
    if not (
        0.0 < spread <= _MAX_VARIANCE_RATIO * whole < np.inf
    ):  # the variance of noise is at most the whole variance
        return UNEVEN
    noise = share * _noise_of_sums(centred, rank)
    if spread > _MAX_VARIANCE_RATIO * noise:
        return UNEVEN
    return Evenness(float(level), float(np.ldexp(_BAND_DEVIATIONS * np.sqrt(noise), unit)))


def _noise_of_sums(centred: Floats, rank: int) -> float:
    """Variance of the row sums due to independent noise in the features; zero if it can't be estimated."""
    n, p = centred.shape
    if 3 * rank > 2 * min(n, p):
        return 0.0
    products = centred.T @ centred if p <= n else centred @ centred.T
    leading = top_eigenpairs(products, rank, check_finite=False)[1]
    left = centred - (centred @ leading @ leading.T if p <= n else leading @ (leading.T @ centred))
    energy = np.vecdot(left, left)
    inliers = energy <= _OUTLIER_FACTOR * np.median(energy)
    return float(energy[inliers].mean() / ((1.0 - rank / n) * (1.0 - rank / p)))
