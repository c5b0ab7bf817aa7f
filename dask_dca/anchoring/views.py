"""The problem X = F Y_A of latent variable models: moments of three views, and rows just outside their angles.

X consists of the moments E[x1 (x) x2] and E[<eta, x3> x1 (x) x2], Y of the outer products x1 (x) x2 of single rows (the
paper's section on latent variable models, and its multi-view mixture model). Neither moments nor outer products are
formed, only their coordinates on the planes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from dask_dca.anchoring.literal import n_planes, select_by_votes
from dask_dca.anchoring.parameters import AnchorResult, Settings, evaluation_rows
from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import Rows
from dask_dca.engine.sampling import spread_rows
from dask_dca.engine.tiles import require_squares, tiles
from dask_dca.engine.types import add_parts
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry import exact
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.nnls import nonnegative_from_gram
from dask_dca.geometry.planes import (
    PAIR_ENSEMBLE,
    Axes,
    child_seeds,
    cosine_keys,
    draw_axes,
    draw_pair_axes,
    draw_weights,
    inner_products,
    integer_axes,
    keys_outside,
    n_pairs,
    outer_products,
    pointed_planes,
    uniforms,
)
from dask_dca.geometry.votes import ArgBest, count_votes

Three = tuple[Floats, Floats, Floats]

_N_VIEWS: Final = 3
_CUT_ENTRIES: Final = 2**17  # coordinates that are computed at once: rows times axes
_RELATIVE_UNIT: Final = 2.0**-30  # unit of the exact sums of moments, relative to the root mean square of their terms
_MAX_PAIR_ENTRIES: Final = 2**25  # greatest number of entries of all planes on a set of feature pairs
_SAMPLE_RUNS: Final = (32, 8)  # number and length of runs of rows that set the units of sums; "data" draws from them


class Views(Protocol):
    """How a block of rows is read as three views: column groups, or successive observations."""

    def tiles(self, columns: Sequence[Any], start: int) -> Iterator[tuple[Numbers, Three]]:
        """Cut a block into row numbers and three float64 matrices of these rows.

        columns (n, p_j): the block's column chunks; start: row number of the block's first row.
        """


@dataclass(frozen=True)
class ColumnViews:
    """Three groups of columns as views."""

    groups: tuple[Numbers, Numbers, Numbers]

    def tiles(self, columns: Sequence[Any], start: int) -> Iterator[tuple[Numbers, Three]]:
        """Cut a block of rows into its views.

        columns (n, p_j): the block's column chunks; start: row number of the block's first row.
        Raises NotFiniteError: a row has NaN or infinite entries.
        """
        first, second, third = self.groups
        for numbers, tile in tiles(columns, start, copy=False):
            require_squares(tile, numbers)
            yield numbers, (tile[:, first], tile[:, second], tile[:, third])


def fetch_views(rows: Rows, views: Views, numbers: Numbers | None, run: Run) -> Three:
    """Fetch the views of some rows, of all if `numbers` is None, in their order.

    Rows that have no views, such as the first of a sequence, are left out.
    """
    wanted = np.arange(rows.n_rows) if numbers is None else np.unique(numbers)
    job = Pass("fetch", _fetch_block, _merge_fetched)
    rows, blocks = (rows, None) if numbers is None else rows.blocks_for(wanted)
    found, first, second, third = run_pass(rows, job, (views, wanted), run, blocks=blocks)
    if numbers is None:
        return first, second, third
    order = np.searchsorted(found, numbers[np.isin(numbers, found)])
    return first[order], second[order], third[order]


def _fetch_block(state: tuple[Views, Numbers], start: int, *columns: Any) -> tuple[Any, ...]:
    views, wanted = state
    found = []
    for numbers, parts in views.tiles(columns, start):
        kept = np.isin(numbers, wanted, assume_unique=True)
        found.append((numbers[kept], *(part[kept] for part in parts)))
    return _merge_fetched(found)


def _merge_fetched(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    parts = [part for part in parts if part]
    return tuple(np.concatenate(some) for some in zip(*parts, strict=True))


def check_views(views: Any, n_features: int) -> tuple[Numbers, Numbers, Numbers]:
    """Check three groups of columns.

    views: each a slice, column numbers (negative ones count from the end) or a boolean mask. Columns in no group are
    not used. Returns the column numbers of each view, in the order given.
    Raises InvalidParameterError: not three groups, an empty one, a column out of range or in two groups.
    """
    if not isinstance(views, list | tuple | np.ndarray) or not getattr(views, "ndim", 1) or len(views) != _N_VIEWS:
        what = f"{len(views)} of them" if isinstance(views, list | tuple) else repr(views)
        _refuse_views(f"received {what}")
    groups = [_column_numbers(group, n_features) for group in views]
    every = np.concatenate(groups)
    if len(np.unique(every)) < len(every):
        values, counts = np.unique(every, return_counts=True)
        _refuse_views(f"column {values[counts > 1][0]} is in more than one place")
    return groups[0], groups[1], groups[2]


def split_views(n_features: int, seed: int) -> tuple[Numbers, Numbers, Numbers]:
    """Split p >= 3 columns at random into three groups of equal size, up to one column; numbers increase."""
    order = np.argsort(uniforms(np.atleast_1d(child_seeds(seed, 0)), n_features)[0], kind="stable")
    first, second, third = (np.sort(order[start::_N_VIEWS]) for start in range(_N_VIEWS))
    return first, second, third


def _column_numbers(group: Any, n_features: int) -> Numbers:
    every = np.arange(n_features, dtype=np.int64)
    chosen = group if isinstance(group, slice) else np.asarray(group)
    if not isinstance(chosen, slice) and not chosen.size:
        _refuse_views(f"the group {group!r} holds no column")
    try:
        found = every[chosen]
    except IndexError as error:
        _refuse_views(f"{error} (columns 0 to {n_features - 1})")
    if found.ndim != 1 or not len(found):
        _refuse_views(f"the group {group!r} is no list of columns")
    return np.asarray(found)


def _refuse_views(what: str) -> NoReturn:
    msg = (
        "views must be three disjoint groups of columns, for example "
        f"views=[slice(0, 10), slice(10, 20), slice(20, 30)]; {what}"
    )
    raise InvalidParameterError(msg)


@dataclass(frozen=True)
class Planes:
    """Planes that any process regenerates, or given axes, and the weights of the moments."""

    ensemble: str
    seed: int
    count: int  # of planes s
    n_weights: int  # number of moments: one, and one for each vector eta
    sample: Three  # views of some rows, which set the units of sums
    given: tuple[Floats, Floats] | None = None  # integer axes (1, s, p1) and (1, s, p2)
    n_pairs: int = 0  # size of Omega, for the ensemble "pairs"

    def axes(self) -> Axes:
        """Return the axes of both views, as `draw_axes` or `draw_pair_axes` does."""
        first, second, _ = self.sample
        if self.given is not None:
            return self.given
        widths = (first.shape[1], second.shape[1])
        if self.ensemble == PAIR_ENSEMBLE:
            return draw_pair_axes(self.seed, self.count, widths, self.n_pairs)
        return draw_axes(self.ensemble, self.seed, self.count, widths, (first, second))

    def etas(self) -> Floats:
        """Return the vectors eta (1, q, p3), as `draw_weights` does."""
        return draw_weights(self.seed, self.n_weights - 1, self.sample[2].shape[1])


@dataclass(frozen=True)
class _State:
    """What a task needs besides its block."""

    views: Views
    planes: Planes
    exponents: tuple[int, int, int] = (0, 0, 0)  # binary exponents of the views, by which terms are scaled to about one
    units: tuple[Floats, Floats] | None = None
    inner: tuple[Floats, Floats] | None = None  # least and greatest key of the moments on each plane


def moment_coordinates(rows: Rows, views: Views, planes: Planes, run: Run) -> Floats:
    """Compute the coordinates of the moments E[x1 (x) x2] and E[<eta, x3> x1 (x) x2] on the axes of planes.

    Returns (q, l, s): exact sums over all rows, up to one positive factor each, with l = 2 axes per plane, or 1 where
    axes are given.
    """
    exponents = tuple(int(np.frexp(np.abs(view).max(initial=0.0))[1]) for view in planes.sample)
    state = _State(views, planes, exponents)  # type: ignore[arg-type]
    axes, etas = planes.axes(), planes.etas()
    seen = [
        _terms(state, views, axes, etas)
        for _, views in _cut_views(state, np.arange(len(planes.sample[0])), planes.sample)
    ]
    terms, weights = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    units = (_rounding_unit(weights, axis=0), np.full(terms.shape[1], _rounding_unit(terms, axis=None)))
    job = Pass("moments", _moment_block, add_parts)
    total = run_pass(rows, job, replace(state, units=units), run)
    levels = 2 if planes.given is None else 1
    return total.value().reshape(planes.n_weights, levels, planes.count)


def rows_outside(
    rows: Rows, views: Views, planes: Planes, inner: tuple[Floats, Floats], run: Run
) -> tuple[Numbers, Numbers]:
    """Find the rows whose outer products lie just outside the angles of the moments: the paper's ()_+.

    inner: least and greatest cosine key of the moments on each plane. Returns low, high (s,): rows of greatest angle
    not above the least of the moments, and of least angle not below the greatest; the lower row on a tie, -1 where no
    row lies outside.
    """
    job = Pass("divide", _outside_block, add_parts)
    low, high = run_pass(rows, job, _State(views, planes, inner=inner), run).found
    return low, high


def _cuts_of_block(state: _State, start: int, columns: Sequence[Any]) -> Iterator[tuple[Numbers, Three]]:
    for numbers, views in state.views.tiles(columns, start):
        yield from _cut_views(state, numbers, views)


def _cut_views(state: _State, numbers: Numbers, views: Three) -> Iterator[tuple[Numbers, Three]]:
    step = max(16, _CUT_ENTRIES // max(2 * state.planes.count, state.planes.n_pairs))
    first, second, third = views
    for begin in range(0, len(numbers), step):
        some = slice(begin, begin + step)
        yield numbers[some], (first[some], second[some], third[some])


def _rounding_unit(values: Floats, axis: int | None) -> Floats:
    """Unit to which values are rounded: 30 bits below their root mean square."""
    return exact.power_of_two(np.sqrt(np.mean(values**2, axis=axis))) * _RELATIVE_UNIT


def _terms(state: _State, views: Three, axes: Axes, etas: Floats) -> tuple[Floats, Floats]:
    """Terms (n, l s) of the first moment, and weights (n, q) of all moments, in units of all rows."""
    first, second, third = state.exponents
    terms = _in_one_unit(*outer_products(*views[:2], axes), first + second)
    weights = _in_one_unit(*inner_products(views[2], etas), third)
    return terms, np.hstack([np.ones((len(weights), 1)), weights])


def _in_one_unit(values: Floats, exponents: NDArray[np.int32], exponent: int) -> Floats:
    """Convert values with an exponent per row to one unit, shape (n, l s)."""
    return np.ldexp(values, (exponents - exponent)[:, None, None]).reshape(len(values), -1)


def _moment_block(state: _State, start: int, *columns: Any) -> exact.Total:
    assert state.units is not None
    weight_unit, unit = state.units
    axes, etas = state.planes.axes(), state.planes.etas()
    nothing = np.zeros((0, len(weight_unit))), np.zeros((0, len(unit)))
    total = exact.product_total(*nothing, weight_unit, unit)
    for _, views in _cuts_of_block(state, start, columns):
        terms, weights = _terms(state, views, axes, etas)
        total = total + exact.product_total(weights, terms, weight_unit, unit)
    return total


def _outside_block(state: _State, start: int, *columns: Any) -> ArgBest:
    assert state.inner is not None
    axes = state.planes.axes()
    found = ArgBest.empty((2, state.planes.count))
    for numbers, views in _cuts_of_block(state, start, columns):
        keys = cosine_keys(outer_products(*views[:2], axes)[0])
        found += ArgBest.of_rows(keys_outside(keys, *state.inner), numbers)
    return found


@dataclass(frozen=True)
class PaperMixture:
    """The parameters of a multi-view mixture that the paper recovers: means, which are rows, and weights."""

    anchors: AnchorResult
    means: Three  # (k, p1), (k, p2), (k, p3): the views of the anchors, the paper's O_1, O_2, O_3 transposed
    weights: Floats  # (k,), their sum one


def paper_anchors_of_views(rows: Rows, views: Views, n_anchors: int, settings: Settings, run: Run) -> AnchorResult:
    """Find k rows whose outer products x1 (x) x2 span a cone around the moments: the paper's DCA for mixtures.

    Two passes follow a sample: the moments on the planes, and the rows just outside them. `n_pointed` counts the planes
    in which the moments lie within less than pi.
    Raises InvalidInputError: no row lies outside the moments on any plane.
    """
    sample = fetch_views(rows, views, spread_rows(rows.n_rows, *_SAMPLE_RUNS), run)
    s, q = n_planes(n_anchors, settings), min(n_anchors, sample[2].shape[1])
    planes = Planes(
        settings.ensemble, settings.seed, s, 1 + q, sample, n_pairs=_n_pairs(sample, s, n_anchors, settings)
    )
    moments = moment_coordinates(rows, views, planes, run)
    keys = cosine_keys(moments)
    there = ~np.isnan(keys)
    least = np.where(there, keys, np.inf).min(axis=0)
    greatest = np.where(there, keys, -np.inf).max(axis=0)
    extremes = rows_outside(rows, views, planes, (least, greatest), run)
    missing = f"no row's outer product lies outside the moments on any of {s} planes: are all rows of a view zero?"
    return select_by_votes(
        count_votes(*extremes),
        s,
        n_anchors,
        missing,
        n_pointed=int(pointed_planes(moments).sum()),
        sample=evaluation_rows(np.hstack(sample)),
    )


def _n_pairs(sample: Three, n_planes: int, n_anchors: int, settings: Settings) -> int:
    """Size of the set Omega; checks that its planes fit into the memory of a task."""
    if settings.ensemble != PAIR_ENSEMBLE:
        return 0
    m = n_pairs((sample[0].shape[1], sample[1].shape[1]), n_anchors)
    if 2 * n_planes * m > _MAX_PAIR_ENTRIES:
        msg = (
            f"ensemble='pairs' needs {n_planes} planes of {m:,} feature pairs, more than a task should hold; use "
            "ensemble='unit', which takes a pair for each axis, or 'gaussian', or fewer n_subproblems"
        )
        raise InvalidParameterError(msg)
    return m


def paper_mixture(rows: Rows, views: Views, n_components: int, settings: Settings, run: Run) -> PaperMixture:
    """Fit a mixture by the paper's method: means are anchors, weights solve E[x1 (x) x2] = sum_s w_s o1_s (x) o2_s.

    The paper recovers no covariances.
    """
    anchors = paper_anchors_of_views(rows, views, n_components, settings, run)
    means = fetch_views(rows, views, anchors.indices, run)
    return PaperMixture(anchors, means, _solve_weights(rows, views, means, run))


def _solve_weights(rows: Rows, views: Views, means: Three, run: Run) -> Floats:
    """Solve for the weights by non-negative least squares in Gram form, from the moment on the anchors' axes."""
    axes = (integer_axes(means[0]), integer_axes(means[1]))
    planes = Planes("given", 0, len(means[0]), 1, means, axes)
    unit = [whole[0] / np.linalg.norm(whole[0], axis=1, keepdims=True) for whole in axes]
    gram = (unit[0] @ unit[0].T) * (unit[1] @ unit[1].T)
    products = moment_coordinates(rows, views, planes, run)[0]
    shares = nonnegative_from_gram(gram, products / np.abs(products).max())[0]
    if not shares.any():
        return np.full(len(shares), 1.0 / len(shares))
    # shares of unit vectors; a mean of twice the length needs half of the weight
    lengths = _log_lengths(means[0]) + _log_lengths(means[1])
    weights = shares * np.exp(np.minimum(lengths[shares > 0.0].min() - lengths, 0.0))
    return np.asarray(weights / weights.sum())


def _log_lengths(points: Floats) -> Floats:
    """Logarithms of the lengths of points (k, p), whose squares may be out of range."""
    size = np.maximum(np.abs(points).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return np.asarray(np.log(size[:, 0]) + np.log(np.linalg.norm(points / size, axis=1)))
