"""The passes of anchoring: fetch rows, exact moments, and the divide step with its merge.

Row numbers that are sampled depend on the number of rows alone, and random planes on the seed alone, never on
chunks; every decisive sum is exact. So any chunking and any number of workers give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import (
    Census,
    Reading,
    clip_rounding,
    count_unusable,
    require_finite,
    tiles,
    usable_tiles,
)
from dask_dca.geometry import extremes as hulls
from dask_dca.geometry import moments, planes
from dask_dca.geometry.frame import Frame, coordinates, glance, scale_in_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.sketch import Subspace

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Directions", "Divided", "Run", "divide", "fetch_rows", "gram", "power", "spread_rows"]


@dataclass(frozen=True)
class Run:
    """How passes are run."""

    retries: int = 3
    verbose: bool = False


@dataclass(frozen=True)
class Divided:
    """What the divide step found: the extreme row of each signed direction, and what was met on the way."""

    extremes: hulls.Extremes
    census: Census


@dataclass(frozen=True)
class Directions:
    """What regenerates the directions of a divide pass anywhere."""

    ensemble: str
    seed: int
    count: int
    scales: Floats
    features: Floats | None = None

    def regenerate(self) -> Floats:
        """Return the integer directions, shape (count, d)."""
        every = np.arange(self.count)
        return hulls.integer_directions(planes.directions(self.ensemble, self.seed, every, self.scales, self.features))


@dataclass(frozen=True)
class _State:
    """What the blocks' functions receive besides the block."""

    reading: Reading
    numbers: Numbers | None = None
    mean: Floats = field(default_factory=lambda: np.zeros(0))
    energy: float = 1.0
    n_total: int = 1
    frame: Frame | None = None
    planes: Directions | None = None
    gain: Floats | None = None
    basis: Floats | None = None


def spread_rows(n_rows: int, n_groups: int, group: int) -> Numbers | None:
    """
    Choose rows in short runs spread over the whole matrix, by the number of rows alone.

    Parameters
    ----------
    n_rows : int
        Number of rows of the matrix.
    n_groups, group : int
        How many runs, one in each equal stretch of the matrix, and how many rows each.

    Returns
    -------
    ndarray of int64 or None
        Sorted row numbers; None means all rows, where there are no more than asked for.

    Examples
    --------
    >>> spread_rows(100, 10, 10) is None
    True
    >>> len(spread_rows(1000, 2, 5))
    10
    """
    if n_rows <= n_groups * group:
        return None
    edges = np.arange(n_groups + 1) * n_rows // n_groups
    slack = np.diff(edges) - group
    draws = planes.uniforms(planes.child_seeds(0, np.arange(n_groups)), 1)[:, 0]
    starts = edges[:-1] + (draws * (slack + 1)).astype(np.int64)
    return (starts[:, None] + np.arange(group)).ravel()


def fetch_rows(rows: Rows, numbers: Numbers | None, run: Run, *, nonnegative: bool = False) -> Floats:
    """
    Bring some rows to the driver.

    Parameters
    ----------
    rows : Rows
        The data.
    numbers : ndarray of int64 or None
        Which rows, in any order, each once; all if None.
    run : Run
        How passes are run.
    nonnegative : bool, default False
        Clip negative entries that are mere rounding, refuse others.

    Returns
    -------
    ndarray of float64, shape (m, p)
        The rows, in the order of `numbers`.
    """
    wanted = np.arange(rows.n_rows) if numbers is None else np.sort(numbers)
    state = _State(Reading(nonnegative=nonnegative), wanted)
    found = run_pass(
        rows,
        Pass("fetch", _fetch_block, _merge_fetched),
        state,
        blocks=rows.blocks_with(wanted),
        retries=run.retries,
        verbose=run.verbose,
    )
    where, values = found
    values = values[np.argsort(where)]
    return values if numbers is None else values[np.searchsorted(wanted, numbers)]


def _fetch_block(state: _State, start: int, *columns: Any) -> tuple[Numbers, Floats]:
    found = []
    for numbers, tile in tiles(columns, start, state.numbers):
        require_finite(tile, numbers)
        found.append((numbers, clip_rounding(tile, numbers, Census()) if state.reading.nonnegative else tile))
    if not found:
        return np.zeros(0, dtype=np.int64), np.zeros((0, sum(part.shape[1] for part in columns)))
    return _merge_fetched(found)


def _merge_fetched(parts: Sequence[tuple[Numbers, Floats]]) -> tuple[Numbers, Floats]:
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def gram(
    rows: Rows, numbers: Numbers | None, reading: Reading, mean: Floats, energy: float, run: Run
) -> moments.Moments:
    """
    Sum the exact second moments of some rows.

    Parameters
    ----------
    rows : Rows
        The data.
    numbers : ndarray of int64 or None
        Which rows, sorted; all if None.
    reading : Reading
        How rows are read.
    mean, energy : ndarray of float64, shape (p,), and float
        Centre and radius of the Huber weights.
    run : Run
        How passes are run.

    Returns
    -------
    Moments
        Of all these rows.
    """
    n_total = rows.n_rows if numbers is None else len(numbers)
    blocks = None if numbers is None else rows.blocks_with(numbers)
    state = _State(reading, numbers, mean, energy, n_total)
    job = Pass("gram", _gram_block, _merge_moments)
    return run_pass(rows, job, state, blocks=blocks, retries=run.retries, verbose=run.verbose)


def _gram_block(state: _State, start: int, *columns: Any) -> moments.Moments:
    found = [
        moments.moments(scaled, state.mean, state.energy, state.n_total)
        for _, scaled in usable_tiles(columns, start, state.reading, Census(), state.numbers)
    ]
    width = len(state.mean) + 1
    return _merge_moments([moments.Moments(np.zeros((width, width)), 0), *found])


def _merge_moments(parts: Sequence[moments.Moments]) -> moments.Moments:
    total = parts[0].gram.copy()
    for part in parts[1:]:
        total += part.gram
    return moments.Moments(total, sum(part.n_rows for part in parts))


def power(
    rows: Rows,
    numbers: Numbers | None,
    reading: Reading,
    start: Subspace,
    energy: float,
    basis: Floats,
    run: Run,
) -> moments.PowerSums:
    """
    Multiply the weighted covariance of some rows by a basis: for data too wide for p x p moments.

    Parameters
    ----------
    rows : Rows
        The data.
    numbers : ndarray of int64 or None
        Which rows, sorted; all if None.
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
        Over all these rows.
    """
    n_total = rows.n_rows if numbers is None else len(numbers)
    blocks = None if numbers is None else rows.blocks_with(numbers)
    state = _State(reading, numbers, start.mean, energy, n_total, gain=start.feature_weights, basis=basis)
    job = Pass("power", _power_block, _merge_power)
    return run_pass(rows, job, state, blocks=blocks, retries=run.retries, verbose=run.verbose)


def _power_block(state: _State, start: int, *columns: Any) -> moments.PowerSums:
    assert state.gain is not None
    assert state.basis is not None
    found = [
        moments.power_sums(scaled, state.mean, state.energy, state.gain, state.basis, state.n_total)
        for _, scaled in usable_tiles(columns, start, state.reading, Census(), state.numbers)
    ]
    return _merge_power([moments.PowerSums(np.zeros(state.basis.shape), 0.0, 0), *found])


def _merge_power(parts: Sequence[moments.PowerSums]) -> moments.PowerSums:
    product = parts[0].product.copy()
    for part in parts[1:]:
        product += part.product
    return moments.PowerSums(product, sum(part.trace for part in parts), sum(part.n_rows for part in parts))


def divide(rows: Rows, reading: Reading, frame: Frame, directions: Directions, run: Run) -> Divided:
    """
    Solve all sub-problems on all rows: the divide step.

    Parameters
    ----------
    rows : Rows
        The data.
    reading : Reading
        How rows are read.
    frame : Frame
        The subspace that rows are placed in.
    directions : Planes
        What regenerates the planes' directions.
    run : Run
        How passes are run.

    Returns
    -------
    Divided
        The extreme row of each signed direction over all rows.
    """
    state = _State(reading, frame=frame, planes=directions)
    job = Pass("divide", _divide_block, _merge_divided)
    return run_pass(rows, job, state, retries=run.retries, verbose=run.verbose)


def _divide_block(state: _State, start: int, *columns: Any) -> Divided:
    assert state.frame is not None
    assert state.planes is not None
    directions = state.planes.regenerate()
    rough = directions.astype(np.float32)
    census = Census()
    best = hulls.no_extremes(*directions.shape)
    for numbers, tile in tiles(columns, start, copy=False):
        if state.reading.nonnegative:
            tile = clip_rounding(tile, numbers, census)
        near, margin = glance(tile, state.frame)
        where = hulls.contenders(best, near, margin, rough)
        scaled = tile[where]
        usable = scale_in_place(scaled, state.reading.axis)
        count_unusable(scaled[~usable], numbers[where[~usable]], census)
        if usable.any():
            positions = coordinates(scaled[usable], state.frame)
            best = hulls.extremes(positions, numbers[where[usable]], directions, best)
    return Divided(best, census)


def _merge_divided(parts: Sequence[Divided]) -> Divided:
    census = Census()
    for part in parts:
        census = census + part.census
    return Divided(hulls.merge_extremes([part.extremes for part in parts]), census)
