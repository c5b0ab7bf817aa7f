"""The sample that a mixture is learnt on: rows put together where the data are, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.checks import require_size, require_squares
from dask_dca.engine.held import call
from dask_dca.engine.sampling import hold_rows, spread_rows
from dask_dca.kernels.labels import distinct_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.held import Held
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Sample", "Sampled", "spreads_of", "take_sample"]

_SAMPLE_ROWS: Final = 20_000
_SAMPLE_ENTRIES: Final = 2 * 10**7
_RUN_ROWS: Final = 20  # the sample is taken in runs of so many rows
_LEAST_SPREAD: Final = 1e-3  # of the root mean square: units of exact sums are not finer for features that hardly vary


@dataclass(frozen=True)
class Sample:
    """
    Some rows, or all if they are few.

    Attributes
    ----------
    rows : ndarray of float64, shape (n, p)
        The rows less the centre.
    centre, variances : ndarray of float64, shape (p,)
        Mean and variance of each feature.
    """

    rows: Floats
    centre: Floats
    variances: Floats


@dataclass(frozen=True)
class Sampled:
    """
    A sample that stays where the data are, and what is known of it.

    Attributes
    ----------
    held : Held
        The sample.
    n_rows, n_distinct : int
        How many rows, and how many of them differ.
    centre, variances : ndarray of float64, shape (p,)
        Mean and variance of each feature.
    deviations : ndarray of float64, shape (p,)
        Standard deviations, none of them zero.
    """

    held: Held[Sample]
    n_rows: int
    n_distinct: int
    centre: Floats
    variances: Floats
    deviations: Floats


def take_sample(rows: Rows, n_components: int, run: Run) -> Sampled:
    """
    Put some rows together, chosen by row number alone.

    Parameters
    ----------
    rows : Rows
        The data.
    n_components : int
        Number of components k; there are at least 20 k rows.
    run : Run
        How passes are run.

    Returns
    -------
    Sampled
        The rows, and their first two moments.

    Raises
    ------
    InvalidInputError
        Squares are out of the range of floating-point numbers.
    """
    wanted = max(min(_SAMPLE_ROWS, _SAMPLE_ENTRIES // rows.n_features), 20 * n_components)
    numbers = spread_rows(rows.n_rows, -(-wanted // _RUN_ROWS), _RUN_ROWS)
    every = np.arange(rows.n_rows) if numbers is None else numbers
    held = hold_rows(rows, numbers, run, partial(_centred, every))
    return Sampled(held, len(every), *call(run, "describe", _described, held))


def _centred(numbers: Numbers, rows: Floats) -> Sample:
    require_squares(rows, numbers)
    require_size(rows, numbers)
    centre = rows.mean(axis=0)
    rows -= centre
    return Sample(rows, centre, (rows**2).mean(axis=0))


def _described(sample: Sample) -> tuple[int, Floats, Floats, Floats]:
    return distinct_count(sample.rows), sample.centre, sample.variances, spreads_of(sample.rows)


def spreads_of(rows: Floats) -> Floats:
    """
    Take root mean squares of columns, none of them zero.

    Parameters
    ----------
    rows : ndarray of float64, shape (n, d)
        Centred rows.

    Returns
    -------
    ndarray of float64, shape (d,)
        Their spreads.
    """
    squares = (rows**2).mean(axis=0)
    mean = float(squares.mean())
    return np.sqrt(np.maximum(squares, _LEAST_SPREAD**2 * mean if mean > 0.0 else 1.0))
