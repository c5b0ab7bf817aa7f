"""Passes over rows with three views: moments of the views on planes of rank one, and the rows just outside them.

Neither a moment nor an outer product is ever formed: only their coordinates on the planes are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.geometry import angles, exact, rank_one
from dask_dca.geometry.arg_best import ArgBest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.views import Three, Views

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Planes", "moment_coordinates", "rows_outside"]

_CUT_ENTRIES: Final = 2**17  # coordinates that are held at once: rows times axes
_UNIT: Final = 2.0**-30  # what moments are summed in, in parts of their terms' size


@dataclass(frozen=True)
class Planes:
    """Planes that workers regenerate, or axes that are given; and the weights of the moments."""

    ensemble: str
    seed: int
    count: int  # of planes s
    n_weights: int  # moments in all: one, and as many as there are vectors eta
    sample: Three  # some rows, which set the units of sums
    given: tuple[Floats, Floats] | None = None  # whole axes (1, s, p1) and (1, s, p2)
    n_pairs: int = 0  # size of Omega, for the ensemble "pairs"

    def axes(self) -> rank_one.Axes:
        """
        Return the axes of both views.

        Returns
        -------
        tuple of ndarray or scipy.sparse.csr_array, or PairAxes
            As `draw_axes` or `draw_pair_axes` returns them.
        """
        first, second, _ = self.sample
        if self.given is not None:
            return self.given
        widths = (first.shape[1], second.shape[1])
        if self.ensemble == rank_one.PAIRS:
            return rank_one.draw_pair_axes(self.seed, self.count, widths, self.n_pairs)
        return rank_one.draw_axes(self.ensemble, self.seed, self.count, widths, (first, second))

    def etas(self) -> Floats:
        """
        Return the vectors eta.

        Returns
        -------
        ndarray of float64, shape (1, q, p3)
            As `draw_weights` returns them.
        """
        return rank_one.draw_weights(self.seed, self.n_weights - 1, self.sample[2].shape[1])


@dataclass(frozen=True)
class _State:
    views: Views
    planes: Planes
    exponents: tuple[int, int, int] = (0, 0, 0)  # of the views' sizes: terms of the moments are near one
    units: tuple[Floats, Floats] | None = None
    inner: tuple[Floats, Floats] | None = None  # least and greatest key of the moments on each plane


def moment_coordinates(rows: Rows, views: Views, planes: Planes, run: Run) -> Floats:
    """
    Coordinates of the moments E[x1 (x) x2] and E[<eta, x3> x1 (x) x2] on the axes of planes.

    Parameters
    ----------
    rows : Rows
        The data.
    views : Views
        How they are read.
    planes : Planes
        Axes and weights.
    run : Run
        How passes are run.

    Returns
    -------
    ndarray of float64, shape (q, l, s)
        Sums over all rows, exact, up to one positive factor each; l = 2 axes a plane, 1 where axes are given.
    """
    exponents = tuple(_exponent(view) for view in planes.sample)
    state = _State(views, planes, exponents)  # type: ignore[arg-type]
    axes, etas = planes.axes(), planes.etas()
    seen = [
        _terms(state, views, axes, etas) for _, views in _slices(state, np.arange(len(planes.sample[0])), planes.sample)
    ]
    terms, weights = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    units = (_units(weights, axis=0), np.full(terms.shape[1], _units(terms, axis=None)))
    job = Pass("moments", _moment_block, add_parts)
    total = run_pass(rows, job, replace(state, units=units), run)
    levels = 2 if planes.given is None else 1
    return total.value().reshape(planes.n_weights, levels, planes.count)


def rows_outside(
    rows: Rows, views: Views, planes: Planes, inner: tuple[Floats, Floats], run: Run
) -> tuple[Numbers, Numbers]:
    """
    Find the rows whose outer products lie just outside the angles of the moments: the paper's rule ()_+.

    Parameters
    ----------
    rows : Rows
        The data.
    views : Views
        How they are read.
    planes : Planes
        The planes.
    inner : tuple of ndarray of float64, shapes (s,)
        Least and greatest cosine of the moments on each plane, as `cosine_keys` has them.
    run : Run
        How passes are run.

    Returns
    -------
    low, high : ndarray of int64, shape (s,)
        Rows of greatest angle not above the least of the moments, and of least angle not below the greatest; the
        lower row on a tie, -1 where no row lies outside.
    """
    job = Pass("divide", _outside_block, add_parts)
    low, high = run_pass(rows, job, _State(views, planes, inner=inner), run).found
    return low, high


def _cuts(state: _State, start: int, columns: Sequence[Any]) -> Iterator[tuple[Numbers, Three]]:
    for numbers, views in state.views.tiles(columns, start):
        yield from _slices(state, numbers, views)


def _slices(state: _State, numbers: Numbers, views: Three) -> Iterator[tuple[Numbers, Three]]:
    step = max(16, _CUT_ENTRIES // max(2 * state.planes.count, state.planes.n_pairs))
    first, second, third = views
    for begin in range(0, len(numbers), step):
        some = slice(begin, begin + step)
        yield numbers[some], (first[some], second[some], third[some])


def _exponent(view: Floats) -> int:
    return int(np.frexp(np.abs(view).max(initial=0.0))[1])


def _units(values: Floats, axis: int | None) -> Floats:
    """What values like these are rounded to: 30 bits below their root mean square."""
    return exact.power_of_two(np.sqrt(np.mean(values**2, axis=axis))) * _UNIT


def _terms(state: _State, views: Three, axes: rank_one.Axes, etas: Floats) -> tuple[Floats, Floats]:
    """Terms (n, l s) of the first moment, and weights (n, q) of all moments, in the data's own unit."""
    first, second, third = state.exponents
    terms = _scaled(*rank_one.outer_products(*views[:2], axes), first + second)
    weights = _scaled(*angles.inner_products(views[2], etas), third)
    return terms, np.hstack([np.ones((len(weights), 1)), weights])


def _scaled(values: Floats, exponents: NDArray[np.int32], exponent: int) -> Floats:
    """Values of each row in one unit, shape (n, l s)."""
    return np.ldexp(values, (exponents - exponent)[:, None, None]).reshape(len(values), -1)


def _moment_block(state: _State, start: int, *columns: Any) -> exact.Total:
    assert state.units is not None
    weight_unit, unit = state.units
    axes, etas = state.planes.axes(), state.planes.etas()
    nothing = np.zeros((0, len(weight_unit))), np.zeros((0, len(unit)))
    total = exact.product_total(*nothing, weight_unit, unit)
    for _, views in _cuts(state, start, columns):
        terms, weights = _terms(state, views, axes, etas)
        total = total + exact.product_total(weights, terms, weight_unit, unit)
    return total


def _outside_block(state: _State, start: int, *columns: Any) -> ArgBest:
    assert state.inner is not None
    least, greatest = state.inner
    axes = state.planes.axes()
    found = ArgBest.nobody((2, state.planes.count))
    for numbers, views in _cuts(state, start, columns):
        keys = angles.cosine_keys(rank_one.outer_products(*views[:2], axes)[0])
        # the cosine falls as the angle grows
        before = np.where(keys >= greatest, -keys, -np.inf)
        beyond = np.where(keys <= least, keys, -np.inf)
        found += ArgBest.of_rows(np.stack([before, beyond], axis=1), numbers)
    return found
