"""Passes over frames and their neighbours in time: covariances at lags, and tails with their context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.checks import require_squares
from dask_dca.engine.halo import Halo
from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.sequences import pair_mask
from dask_dca.engine.tiles import even_tiles, tile_height
from dask_dca.geometry.exact import Total, plain_total, power_of_two, product_total, weighted_total
from dask_dca.kernels.discriminant import LagMoments, LagSketch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.halo import Window
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]
    Mask = NDArray[np.bool_]

__all__ = ["Tails", "lag_moments", "lag_sketch", "tails_in_context"]

_FINE: Final = 2.0**-14  # standard deviations: what frames are rounded to before they are multiplied
_LAGS: Final = (1, 2)
_REACH: Final = 2


@dataclass(frozen=True)
class _Lagged:
    """Frames about a centre, and what they are rounded to."""

    edges: Numbers
    centre: Floats  # (p,)
    units: Floats  # (p,)
    height: int
    basis: Floats | None = None  # (p, m): neighbours are seen through these columns alone
    basis_units: Floats | None = None  # (m,)


@dataclass(frozen=True)
class Tails:
    """
    The frames furthest out along signed directions, averaged.

    Attributes
    ----------
    counts : ndarray of float64, shape (2 s,)
        Frames in each tail.
    present : ndarray of float64, shape (2 s, d)
        Their mean.
    context : ndarray of float64, shape (2 s, 2 d)
        Mean of their predecessors and of their successors; zero where there is none.
    """

    counts: Floats
    present: Floats
    context: Floats


def lag_moments(rows: Rows, edges: Numbers, centre: Floats, spreads: Floats, run: Run) -> LagMoments:
    """
    Sum the products of frames with themselves and with their successors: the moment pass.

    Parameters
    ----------
    rows : Rows
        The data.
    edges : ndarray of int64, shape (m + 1,)
        First frame of each sequence, and the number of frames.
    centre, spreads : ndarray of float64, shape (p,)
        A point amid the frames, and their rough standard deviations.
    run : Run
        How passes are run.

    Returns
    -------
    LagMoments
        Mean, covariance, and covariances at lags one and two.
    """
    state = _lagged(rows, edges, centre, spreads)
    total = run_pass(rows, Pass("moments", _moment_block, add_parts, Halo(after=_REACH)), state, run).value()
    p, n = len(centre), rows.n_rows
    pairs = [int(np.maximum(np.diff(edges) - lag, 0).sum()) for lag in _LAGS]
    mean = total[p, :p] / n
    covariance = total[:p, :p] / n - np.outer(mean, mean)
    lagged = [total[:p, (1 + i) * p : (2 + i) * p] / max(pairs[i], 1) - np.outer(mean, mean) for i in range(len(_LAGS))]
    return LagMoments(n, centre + mean, covariance, lagged[0], lagged[1])


def lag_sketch(rows: Rows, edges: Numbers, centre: Floats, spreads: Floats, basis: Floats, run: Run) -> LagSketch:
    """
    Sum the products of frames with what a few columns see of their neighbours: the moment pass of wide data.

    Parameters
    ----------
    rows, edges, centre, spreads, run : object
        As `lag_moments` takes them.
    basis : ndarray of float64, shape (p, m)
        The columns.

    Returns
    -------
    LagSketch
        Mean, variances, and the products.
    """
    seen = np.sqrt(((basis * spreads[:, None]) ** 2).sum(axis=0))
    state = _lagged(rows, edges, centre, spreads, basis, _FINE * power_of_two(seen))
    job: Pass[tuple[Total, Total, Total]] = Pass("moments", _sketch_block, add_parts, Halo(_REACH, _REACH))
    sums, squares, products = run_pass(rows, job, state, run)
    n, mean = rows.n_rows, sums.value() / rows.n_rows
    return LagSketch(n, centre + mean, squares.value() / n - mean**2, products.value() / n)


def _lagged(
    rows: Rows,
    edges: Numbers,
    centre: Floats,
    spreads: Floats,
    basis: Floats | None = None,
    basis_units: Floats | None = None,
) -> _Lagged:
    height = max(tile_height(rows.n_rows, rows.n_features), 64)
    return _Lagged(edges, centre, _FINE * power_of_two(spreads), height, basis, basis_units)


def _stretches(
    state: _Lagged, window: Window, columns: Sequence[Any], before: int
) -> Iterator[tuple[int, int, int, Floats]]:
    """
    Cut a block into tiles that overlap, so that each frame meets its neighbours.

    Yields the number of the first own frame, how many there are, where they begin in the tile, and the tile, which is
    centred, and zero beyond the data.
    """
    own = state.height - before - _REACH
    last = window.first + columns[0].shape[0]
    for begin in range(window.start, window.stop, own):
        count = min(own, window.stop - begin)
        low, high = max(begin - before, window.first), min(begin + count + _REACH, last)
        parts = [part[low - window.first : high - window.first] for part in columns]
        for numbers, tile in even_tiles(parts, low, state.height):
            require_squares(tile[: len(numbers)], numbers)
            centred = tile - state.centre
            centred[len(numbers) :] = 0.0
            yield begin, count, begin - low, centred


def _shifted(state: _Lagged, values: Floats, begin: int, count: int, at: int, lag: int) -> Floats:
    """The frames at a lag of `count` frames; zero where their sequence has none."""
    there = pair_mask(state.edges, begin, begin + count, lag)
    found = np.zeros((count, values.shape[1]))
    low = max(at + lag, 0)
    high = max(min(at + lag + count, len(values)), low)
    if low < at + lag + count:
        found[low - at - lag : high - at - lag] = values[low:high]
    found[~there] = 0.0
    return found


def _moment_block(state: _Lagged, window: Window, *columns: Any) -> Total:
    p = len(state.centre)
    units = np.append(state.units, 1.0)
    thrice = np.tile(state.units, 1 + len(_LAGS))
    total = product_total(np.zeros((0, p + 1)), np.zeros((0, len(thrice))), units, thrice)
    for begin, count, at, tile in _stretches(state, window, columns, 0):
        present = tile[at : at + count]
        right = np.hstack([present, *(_shifted(state, tile, begin, count, at, lag) for lag in _LAGS)])
        total += product_total(np.hstack([present, np.ones((count, 1))]), right, units, thrice)
    return total


def _sketch_block(state: _Lagged, window: Window, *columns: Any) -> tuple[Total, Total, Total]:
    assert state.basis is not None
    assert state.basis_units is not None
    p, lags = len(state.centre), (1, -1, 2, -2)
    units, right_units = state.units, np.tile(state.basis_units, len(lags))
    squares_unit = state.units**2
    found = [
        plain_total(np.zeros((0, p)), units),
        plain_total(np.zeros((0, p)), squares_unit),
        product_total(np.zeros((0, p)), np.zeros((0, len(right_units))), units, right_units),
    ]
    for begin, count, at, tile in _stretches(state, window, columns, _REACH):
        present, seen = tile[at : at + count], tile @ state.basis
        right = np.hstack([_shifted(state, seen, begin, count, at, lag) for lag in lags])
        found[0] += plain_total(present, units)
        found[1] += plain_total(present**2, squares_unit)
        found[2] += product_total(present, right, units, right_units)
    return found[0], found[1], found[2]


@dataclass(frozen=True)
class _Directions:
    """Signed directions in the coordinates of frames, and the height from which on a frame is in the tail."""

    frames: _Lagged
    coordinates: Floats  # (p, d)
    directions: Floats  # (2 s, d)
    thresholds: Floats  # (2 s,)


def tails_in_context(
    rows: Rows,
    edges: Numbers,
    centre: Floats,
    coordinates: Floats,
    directions: Floats,
    thresholds: Floats,
    run: Run,
) -> Tails:
    """
    Average the frames furthest out along signed directions, and their neighbours in time: the divide pass.

    Parameters
    ----------
    rows, edges, centre, run : object
        As `lag_moments` takes them.
    coordinates : ndarray of float64, shape (p, d)
        A frame x has coordinates z = (x - centre) @ coordinates, of about unit variance.
    directions : ndarray of float64, shape (2 s, d)
        Signed directions.
    thresholds : ndarray of float64, shape (2 s,)
        Heights from which on a frame belongs to a tail.

    Returns
    -------
    Tails
        Means over all frames.
    """
    frames = _lagged(rows, edges, centre, np.ones(len(centre)))
    state = _Directions(frames, coordinates, directions, thresholds)
    total = run_pass(rows, Pass("divide", _tail_block, add_parts, Halo(1, _REACH)), state, run).value()
    d = coordinates.shape[1]
    counts = np.maximum(total[:, [0, 1 + d, 2 + 2 * d]], 1.0)
    groups = [total[:, 1 : 1 + d], total[:, 2 + d : 2 + 2 * d], total[:, 3 + 2 * d :]]
    means = [group / counts[:, [i]] for i, group in enumerate(groups)]
    return Tails(total[:, 0], means[0], np.hstack(means[1:]))


def _tail_block(state: _Directions, window: Window, *columns: Any) -> Total:
    d, sides = state.coordinates.shape[1], len(state.directions)
    units = np.tile(np.append(1.0, np.full(d, _FINE)), 3)
    total = weighted_total(np.zeros((0, sides)), np.zeros((0, len(units))), units, weight_bits=0)
    for begin, count, at, tile in _stretches(state.frames, window, columns, 1):
        seen = tile @ state.coordinates
        beyond = (seen @ state.directions.T)[at : at + count] >= state.thresholds
        with_ones = np.hstack([np.ones((len(seen), 1)), seen])
        values = [_shifted(state.frames, with_ones, begin, count, at, lag) for lag in (0, -1, 1)]
        total += weighted_total(beyond, np.hstack(values), units, weight_bits=0)
    return total
