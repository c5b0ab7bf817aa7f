"""A sample that stays with the data, chosen by row number alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.checks import require_size, require_squares
from dask_dca.engine.held import call
from dask_dca.engine.sampling import hold_rows
from dask_dca.engine.weights import draw_rows
from dask_dca.models.kmeans import distinct_count
from dask_dca.models.mixture.cleaning import spreads_of
from dask_dca.models.mixture.learning import RowSample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.held import Held
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["SampledRows", "sample_numbers", "take_sample"]

_SAMPLE_ROWS: Final = 65_536
_SAMPLE_ENTRIES: Final = 2 * 10**7
_RUN_ROWS: Final = 20  # the sample is taken in runs of that many rows


@dataclass(frozen=True)
class SampledRows:
    """A sample that stays where the data are, and what is known of it.

    numbers (n,): row numbers; n_distinct: how many of the rows differ; centre, variances (p,): median of each feature,
    and mean square about it; deviations (p,): their roots, none of them zero.
    """

    held: Held[RowSample]
    numbers: Numbers
    n_distinct: int
    centre: Floats
    variances: Floats
    deviations: Floats


def take_sample(rows: Rows, n_components: int, run: Run) -> SampledRows:
    """Put some rows together.

    n_components: number of components k; there are at least 20 k rows. Returns the rows, and what is known of them.
    Raises InvalidInputError: squares are out of the range of floating-point numbers.
    """
    numbers = sample_numbers(rows, n_components, run)
    every = np.arange(rows.n_rows) if numbers is None else numbers
    held = hold_rows(rows, numbers, run, partial(_centred, every))
    return SampledRows(held, every, *call(run, "describe", _described, held))


def sample_numbers(rows: Rows, n_components: int, run: Run) -> Numbers | None:
    """Choose rows for the sample, by the shape of the data and their weights alone; None means all."""
    wanted = max(min(_SAMPLE_ROWS, _SAMPLE_ENTRIES // rows.n_features), 20 * n_components)
    return draw_rows(rows, -(-wanted // _RUN_ROWS), _RUN_ROWS, run)


def _centred(numbers: Numbers, rows: Floats) -> RowSample:
    require_squares(rows, numbers)
    require_size(rows, numbers)
    centre = np.median(rows, axis=0)
    rows -= centre
    return RowSample(rows, centre)


def _described(sample: RowSample) -> tuple[int, Floats, Floats, Floats]:
    variances = (sample.rows**2).mean(axis=0)
    return distinct_count(sample.rows), sample.centre, variances, spreads_of(sample.rows)
