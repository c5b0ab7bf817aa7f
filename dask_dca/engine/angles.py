"""The divide passes of the paper's own algorithm: rows of least and greatest angle on random planes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.checks import Census, clip_rounding, count_unusable, require_finite
from dask_dca.engine.merges import beats
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.tiles import tiles
from dask_dca.geometry import angles, planes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["AngleExtremes", "angle_extremes", "angles_above"]

_ABSENT: Final = np.iinfo(np.int64).max
_CUT_ENTRIES: Final = 2**17  # angles that are held at once: rows times planes


@dataclass(frozen=True)
class AngleExtremes:
    """Greatest and least cosine on each plane, which rows they are, and the spread of signed angles."""

    low_keys: Floats  # (s,) greatest cosine: least angle
    low_rows: Numbers
    high_keys: Floats  # (s,) least cosine, negated
    high_rows: Numbers
    spread: Floats  # (2, s) greatest signed angle, and minus the least
    census: Census

    @property
    def pointed(self) -> NDArray[np.bool_]:
        """Planes on which all rows fit into less than half a turn, shape (s,)."""
        return np.abs(self.spread.sum(axis=0)) < np.pi  # infinite where no row was seen


@dataclass(frozen=True)
class _State:
    ensemble: str
    seed: int
    count: int
    sample: Floats | None
    middle: Floats
    nonnegative: bool = False
    inner: tuple[Floats, Floats] | None = None  # least and greatest key of the rows to be covered

    def pairs(self, n_features: int) -> Floats:
        every = np.arange(self.count)
        return angles.integer_pairs(planes.plane_pairs(self.ensemble, self.seed, every, n_features, self.sample))


def _state(ensemble: str, seed: int, count: int, sample: Floats, **more: Any) -> _State:
    exponents = np.frexp(np.abs(sample).max(axis=1, initial=0.0))[1]
    unit = np.ldexp(sample, -exponents[:, None])  # squares of huge and of tiny entries are out of range
    norms = np.sqrt((unit**2).sum(axis=1))
    middle = (unit[norms > 0] / norms[norms > 0, None]).sum(axis=0)
    return _State(ensemble, seed, count, unit if ensemble == "data" else None, middle, **more)


def angle_extremes(
    rows: Rows, ensemble: str, seed: int, count: int, sample: Floats, run: Run, *, nonnegative: bool = False
) -> AngleExtremes:
    """
    Find the rows of least and of greatest angle to the axis of each plane.

    Parameters
    ----------
    rows : Rows
        The data.
    ensemble : str
        What the planes are drawn from.
    seed, count : int
        Root seed and number of the planes.
    sample : ndarray of float64, shape (m, p)
        Some rows, for the ensemble "data" and the middle direction.
    run : Run
        How passes are run.
    nonnegative : bool, default False
        Refuse negative entries.

    Returns
    -------
    AngleExtremes
        Ties go to the lower row number.
    """
    state = _state(ensemble, seed, count, sample, nonnegative=nonnegative)
    job = Pass("divide", _angle_block, _merge)
    return run_pass(rows, job, state, run)


def angles_above(
    others: Rows, found: AngleExtremes, ensemble: str, seed: int, sample: Floats, run: Run
) -> tuple[Numbers, Numbers]:
    """
    Find the rows of Y just outside the angles of X: the paper's rule ()_+ for X != Y.

    Parameters
    ----------
    others : Rows
        Rows Y.
    found : AngleExtremes
        The angles of X.
    ensemble, seed, sample, run : str, int, ndarray, Run
        As `angle_extremes` had them.

    Returns
    -------
    low, high : ndarray of int64, shape (s,)
        Rows of Y; -1 where no row lies outside.
    """
    state = _state(ensemble, seed, len(found.low_keys), sample, inner=(-found.high_keys, found.low_keys))
    job = Pass("divide", _outside_block, _merge)
    outer = run_pass(others, job, state, run)
    return (
        np.where(outer.low_rows == _ABSENT, -1, outer.low_rows),
        np.where(outer.high_rows == _ABSENT, -1, outer.high_rows),
    )


def _cuts(state: _State, start: int, columns: Sequence[Any], census: Census) -> Any:
    for numbers, tile in tiles(columns, start, copy=False):
        if state.nonnegative:
            tile = clip_rounding(tile, numbers, census)
        require_finite(tile, numbers)
        usable: NDArray[np.bool_] = np.asarray(tile.any(axis=1))
        count_unusable(tile[~usable], numbers[~usable], census)
        step = max(16, _CUT_ENTRIES // state.count)
        for begin in range(0, len(numbers), step):
            some = np.flatnonzero(usable[begin : begin + step]) + begin
            if len(some):
                yield numbers[some], tile[some]


def _empty(count: int) -> AngleExtremes:
    nothing = np.full(count, -np.inf)
    nobody = np.full(count, _ABSENT)
    return AngleExtremes(nothing, nobody, nothing, nobody, np.full((2, count), -np.inf), Census())


def _angle_block(state: _State, start: int, *columns: Any) -> AngleExtremes:
    pairs = state.pairs(sum(part.shape[1] for part in columns))
    census = Census()
    found = [_empty(state.count)]
    for numbers, rows in _cuts(state, start, columns, census):
        keys = angles.cosine_keys(rows, pairs)
        turn = angles.signed_angles(rows, pairs, state.middle)
        spread = np.stack([_best(turn)[0], _best(-turn)[0]])
        found = [_merge([*found, _extreme(keys, -keys, numbers, spread)])]
    return _merge([*found, AngleExtremes(**{**vars(_empty(state.count)), "census": census})])


def _outside_block(state: _State, start: int, *columns: Any) -> AngleExtremes:
    """Least angle not below the greatest of X, and greatest angle not above the least of X."""
    assert state.inner is not None
    least, greatest = state.inner
    pairs = state.pairs(sum(part.shape[1] for part in columns))
    found = [_empty(state.count)]
    for numbers, rows in _cuts(state, start, columns, Census()):
        keys = angles.cosine_keys(rows, pairs)
        # the cosine falls as the angle grows
        beyond = np.where(keys <= least, keys, np.nan)
        before = np.where(keys >= greatest, -keys, np.nan)
        found = [_merge([*found, _extreme(before, beyond, numbers, found[0].spread)])]
    return found[0]


def _best(keys: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Greatest entry of each column and its first row, NaN left out."""
    known = np.where(np.isnan(keys), -np.inf, keys)
    where = known.argmax(axis=0)
    return known[where, np.arange(keys.shape[1])], where


def _extreme(low: Floats, high: Floats, numbers: Numbers, spread: Floats) -> AngleExtremes:
    low_keys, low_at = _best(low)
    high_keys, high_at = _best(high)
    return AngleExtremes(
        low_keys,
        np.where(np.isfinite(low_keys), numbers[low_at], _ABSENT),
        high_keys,
        np.where(np.isfinite(high_keys), numbers[high_at], _ABSENT),
        spread,
        Census(),
    )


def _merge(parts: Sequence[AngleExtremes]) -> AngleExtremes:
    best = parts[0]
    for part in parts[1:]:
        low = beats(part.low_keys, part.low_rows, best.low_keys, best.low_rows)
        high = beats(part.high_keys, part.high_rows, best.high_keys, best.high_rows)
        best = AngleExtremes(
            np.where(low, part.low_keys, best.low_keys),
            np.where(low, part.low_rows, best.low_rows),
            np.where(high, part.high_keys, best.high_keys),
            np.where(high, part.high_rows, best.high_rows),
            np.maximum(part.spread, best.spread),
            best.census + part.census,
        )
    return best
