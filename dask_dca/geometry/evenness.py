"""Heights of rows that are the same up to noise: scaling rows by such heights would magnify the noise and say nothing.

A row is divided by its height, and with it by the noise of its height: a low one seems to reach further. Where noise
is most of what heights differ by, those near the level are taken for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.moments import UNEVEN, Evenness, top_eigenpairs

if TYPE_CHECKING:
    from dask_dca.geometry.arrays import Floats

_JUDGED: Final = (512, 2048)  # rows and features that noise is measured on, at most
_NOISY: Final = 2.0  # times the variance that noise gives to heights: even ones have less
_BAND: Final = 4.0  # deviations by which noise moves a height
_NATIVE: Final = 3.0  # times the median energy that is left of a row: one with more is an outlier


@np.errstate(over="ignore", invalid="ignore")  # rows at the end of the range are not even
def find_level(rows: Floats, height: Floats, axis: Floats | None, rank: int) -> Evenness:
    """Tell whether heights vary no more than noise makes them.

    rows (n, p): a sample; height (n,): of its rows along the axis; rank: how many directions may hold more than noise.
    """
    low, level, high = np.quantile(height, (0.25, 0.5, 0.75))
    if not (low > 0.0 and high < np.inf):
        return UNEVEN
    n, p = rows.shape
    unit, each = int(np.frexp(level)[1]), (-(-n // _JUDGED[0]), -(-p // _JUDGED[1]))
    spread = np.ldexp((high - low) / 1.349, -unit) ** 2  # of the normal distribution with these quartiles
    centred = np.ldexp(rows[:: each[0], :: each[1]], -unit)
    centred -= centred.mean(axis=0)
    if axis is not None:
        centred *= axis[:: each[1]]
    share = p / centred.shape[1]
    whole = share * np.square(centred).sum() / len(centred)
    if not (0.0 < spread <= _NOISY * whole < np.inf):  # noise can't be more than all
        return UNEVEN
    noise = share * _noise_of_sums(centred, rank)
    if spread > _NOISY * noise:
        return UNEVEN
    return Evenness(float(level), float(np.ldexp(_BAND * np.sqrt(noise), unit)))


def _noise_of_sums(centred: Floats, rank: int) -> float:
    """Variance of the sums of rows that independent noise of the features makes; zero where it can't be told."""
    n, p = centred.shape
    if 3 * rank > 2 * min(n, p):
        return 0.0
    products = centred.T @ centred if p <= n else centred @ centred.T
    leading = top_eigenpairs(products, rank, check_finite=False)[1]
    left = centred - (centred @ leading @ leading.T if p <= n else leading @ (leading.T @ centred))
    energy = np.vecdot(left, left)
    native = energy <= _NATIVE * np.median(energy)
    return float(energy[native].mean() / ((1.0 - rank / n) * (1.0 - rank / p)))
