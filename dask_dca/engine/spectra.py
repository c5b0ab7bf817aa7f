"""The passes that find the subspace: exact moments, or power steps where those are too wide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.engine.checks import Census, Reading
from dask_dca.engine.passes import Pass, run_pass, step
from dask_dca.engine.tiles import usable_tiles
from dask_dca.geometry import moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.sketch import Subspace

    Floats = NDArray[np.float64]

__all__ = ["gram", "power"]


@dataclass(frozen=True)
class _GramState:
    """How rows are read and weighted, and how many there are."""

    reading: Reading
    mean: Floats
    energy: float
    n_total: int


@dataclass(frozen=True)
class _PowerState(_GramState):
    """The same, with feature weights and the basis to be multiplied."""

    gain: Floats
    basis: Floats


def gram(rows: Rows, reading: Reading, mean: Floats, energy: float, run: Run) -> moments.Moments:
    """
    Sum the exact second moments of rows.

    Parameters
    ----------
    rows : Rows
        The data, or a sample of them.
    reading : Reading
        How rows are read.
    mean, energy : ndarray of float64, shape (p,), and float
        Centre and radius of the Huber weights.
    run : Run
        How passes are run.

    Returns
    -------
    Moments
        Of all rows.
    """
    state = step(run, "state", _GramState, reading, mean, energy, rows.n_rows)
    job = Pass("gram", _gram_block, _merge_moments)
    return run_pass(rows, job, state, run)


def _gram_block(state: _GramState, start: int, *columns: Any) -> moments.Moments:
    found = [
        moments.moments(scaled, state.mean, state.energy, state.n_total)
        for _, scaled in usable_tiles(columns, start, state.reading, Census())
    ]
    width = len(state.mean) + 1
    return _merge_moments([moments.Moments(np.zeros((width, width)), 0), *found])


def _merge_moments(parts: Sequence[moments.Moments]) -> moments.Moments:
    total = parts[0].gram.copy()
    for part in parts[1:]:
        total += part.gram
    return moments.Moments(total, sum(part.n_rows for part in parts))


def power(rows: Rows, reading: Reading, start: Subspace, energy: float, basis: Floats, run: Run) -> moments.PowerSums:
    """
    Multiply the weighted covariance of rows by a basis: for data too wide for p x p moments.

    Parameters
    ----------
    rows : Rows
        The data, or a sample of them.
    reading : Reading
        How rows are read.
    start : Subspace
        Centre and feature weights.
    energy : float
        Squared radius of the Huber weights.
    basis : ndarray of float64, shape (p, m)
        Orthonormal columns.
    run : Run
        How passes are run.

    Returns
    -------
    PowerSums
        Over all rows.
    """
    state = step(run, "state", _PowerState, reading, start.mean, energy, rows.n_rows, start.feature_weights, basis)
    job = Pass("power", _power_block, _merge_power)
    return run_pass(rows, job, state, run)


def _power_block(state: _PowerState, start: int, *columns: Any) -> moments.PowerSums:
    found = [
        moments.power_sums(scaled, state.mean, state.energy, state.gain, state.basis, state.n_total)
        for _, scaled in usable_tiles(columns, start, state.reading, Census())
    ]
    return _merge_power([moments.PowerSums(np.zeros(state.basis.shape), 0.0, 0), *found])


def _merge_power(parts: Sequence[moments.PowerSums]) -> moments.PowerSums:
    product = parts[0].product.copy()
    for part in parts[1:]:
        product += part.product
    return moments.PowerSums(product, sum(part.trace for part in parts), sum(part.n_rows for part in parts))
