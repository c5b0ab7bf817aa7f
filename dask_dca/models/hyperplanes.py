"""Anchoring with any solver: sub-problems on d-dimensional hyperplanes, solved on the rows that are extreme there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.divide import divide
from dask_dca.engine.passes import step
from dask_dca.engine.subproblems import Hyperplanes, Pool, Solver, solve_subproblems
from dask_dca.engine.threads import one_blas_thread
from dask_dca.errors import FewerAnchorsWarning, InvalidParameterError, warn
from dask_dca.geometry import selection, votes
from dask_dca.geometry.covering import COVERING_SOLVERS
from dask_dca.geometry.solvers import SOLVERS
from dask_dca.models.parameters import check_integer
from dask_dca.models.result import AnchorResult
from dask_dca.models.view import look, spectral_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.divide import Divided
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.frame import Frame
    from dask_dca.geometry.sketch import Subspace
    from dask_dca.models.parameters import Settings
    from dask_dca.models.view import View

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["check_solver", "hyperplane_anchors"]

_WIDEST: Final = 50
_CHOICES_PER_ANCHOR: Final = 20.0  # s = 20 k ln k / d: as many rows are chosen, over all, as by 10 k ln k planes
_LEAST: Final = 16  # hyperplanes, at least
_FRESH: Final = 128  # two-sided directions kept out of the selection, for the certificate
_JUDGES: Final = 128  # rows that a model may be judged by
_SUBSPACE_ENSEMBLES: Final = ("mixed", "row-space", "whitened", "gaussian")


@dataclass(frozen=True)
class _Solved:
    """What the passes found."""

    found: Divided
    planes: Hyperplanes
    pool: Pool
    voted: Numbers
    counted: Numbers


def check_solver(
    dim: Any, solver: Any, method: str, ensemble: str, *, covers_other: bool = False
) -> tuple[int, Solver]:
    """
    Check the dimension and the solver of sub-problems.

    Parameters
    ----------
    dim, solver : object
        As `find_anchors` takes them.
    method, ensemble : str
        The checked method and ensemble.
    covers_other : bool, default False
        Whether rows of another Y are to cover X, which is for the paper's method.

    Returns
    -------
    dim : int
        The dimension.
    solver : str or callable
        The solver.

    Raises
    ------
    InvalidParameterError
        They are out of range, unknown, or do not go together.
    """
    dim = check_integer("dim", dim, 2)
    if dim > _WIDEST:
        msg = f"dim={dim} is above {_WIDEST}: sub-problems are there to be small; use dim=3 to 10"
        raise InvalidParameterError(msg)
    names = ("plane", *SOLVERS)
    if not callable(solver) and solver not in names:
        msg = f"unknown solver {solver!r}; use one of {', '.join(map(repr, names))}, or a function(points, n_anchors)"
        raise InvalidParameterError(msg)
    if solver == "plane" and dim != 2:
        msg = f"solver='plane' is the closed form in two dimensions; with dim={dim} use solver='spa', 'xray' or 'lp'"
        raise InvalidParameterError(msg)
    if solver != "plane" and covers_other:
        return dim, _covering_solver(solver, method)
    if solver != "plane" and method != "robust":
        msg = f"solver={solver!r} works in the robust method's subspace; leave method={method!r} out"
        raise InvalidParameterError(msg)
    if solver != "plane" and ensemble not in _SUBSPACE_ENSEMBLES:
        msg = f"ensemble={ensemble!r} draws planes only; with a solver use one of {', '.join(_SUBSPACE_ENSEMBLES)}"
        raise InvalidParameterError(msg)
    return dim, solver


def _covering_solver(solver: Any, method: str) -> Solver:
    """A solver of MCH(X, Y)."""
    if method != "paper":
        msg = "the robust method chooses anchors from X itself; for Y use method='paper'"
        raise InvalidParameterError(msg)
    if not callable(solver) and solver not in COVERING_SOLVERS:
        names = ", ".join(map(repr, COVERING_SOLVERS))
        msg = f"solver={solver!r} chooses rows of X; for Y use {names}, 'plane', or a function(X, Y, n_anchors)"
        raise InvalidParameterError(msg)
    checked: Solver = solver
    return checked


def hyperplane_anchors(
    rows: Rows, n_anchors: int | None, dim: int, solver: Solver, settings: Settings, run: Run
) -> AnchorResult:
    """
    Find anchors by a solver on random hyperplanes.

    The robust method's subspace; one pass over all rows for the extremes in directions inside the hyperplanes; the
    solver on their projections, hyperplane by hyperplane; votes; selection among the rows with a vote.

    Parameters
    ----------
    rows : Rows
        The data.
    n_anchors : int or None
        How many anchors k; chosen from the spectrum if None.
    dim : int
        Dimension d of a hyperplane; at most the subspace's own is used.
    solver : str or callable
        What solves a sub-problem.
    settings : Settings
        Hyperplanes, selection and seed.
    run : Run
        How passes are run.

    Returns
    -------
    AnchorResult
        Anchors and certificate; a vote is a sub-problem that chose the row.
    """
    with one_blas_thread():
        subspaces = look(rows, run, nonnegative=False)
        view = subspaces.view
        counts = (n_anchors, n_anchors) if n_anchors is not None else spectral_counts(subspaces, rows)
        plan = step(run, "plan", _plan, view, subspaces.of(counts[0]), counts[0], dim, settings)
        n_planes = None if run.lazy else plan.planes.count
        found = divide(rows, view.reading, plan.frame, plan.planes, run, n_planes=n_planes)
        pool = step(run, "pool", _pool, found, plan)
        chosen_by = solve_subproblems(pool, plan.planes, solver, counts[0], run, spread=rows.kind != "memory")
        return step(run, "anchors", _select, view, found, plan.planes, pool, chosen_by, counts, settings)


@dataclass(frozen=True)
class _Plan:
    """How rows are placed, and the hyperplanes."""

    frame: Frame
    planes: Hyperplanes


def _plan(view: View, sub: Subspace, k: int, dim: int, settings: Settings) -> _Plan:
    return _Plan(view.frame(sub), _hyperplanes(k, dim, max(sub.dim, 1), sub.scales, settings))


def _pool(found: Divided, plan: _Plan) -> Pool:
    """The rows that are extreme on some direction inside some hyperplane."""
    return Pool(found.votes.rows, found.votes.places[:, : plan.planes.dim])


def _select(
    view: View,
    found: Divided,
    planes: Hyperplanes,
    pool: Pool,
    chosen_by: tuple[Numbers, Numbers],
    counts: tuple[int, int],
    settings: Settings,
) -> AnchorResult:
    """The driver's part: choose among the rows with a vote, and certify."""
    solved = _Solved(found, planes, pool, *chosen_by)
    chosen = _conquer(solved, counts[0], settings.selection)
    if len(chosen) < counts[0]:
        warn(
            f"only {len(chosen)} anchors were found where {counts[0]} were asked for: sub-problems of dimension "
            f"{planes.n_axes + 1} chose no other rows; use {len(chosen)}, or a greater dim or n_subproblems",
            FewerAnchorsWarning,
        )
    return _certify(view, solved, chosen, counts)


def _certify(view: View, solved: _Solved, chosen: Numbers, counts: tuple[int, int]) -> AnchorResult:
    s, census = solved.planes.n_hyperplanes, solved.found.census
    own = solved.counted[np.searchsorted(solved.voted, chosen)]
    curve = _coverage(solved, chosen)
    return AnchorResult(
        indices=chosen,
        votes=own,
        vote_share=own / s,
        confidence=votes.wilson_bounds(own, s),
        n_subproblems=s,
        n_pointed=s,  # the reference axis is in every hyperplane
        candidates=solved.voted,
        candidate_votes=solved.counted,
        coverage=float(curve[-1]),
        coverage_curve=curve,
        n_range=(min(counts), max(counts)),
        sample=view.raw[:: -(-len(view.raw) // _JUDGES)],
        n_zero_rows=census.zero_rows,
        n_behind_rows=census.behind_rows,
        n_clipped_entries=census.clipped_entries,
    )


def _hyperplanes(k: int, dim: int, most: int, scales: Floats, settings: Settings) -> Hyperplanes:
    n_axes = min(dim - 1, most)
    wanted = _CHOICES_PER_ANCHOR * k * math.log(max(k, 2))
    s = settings.n_subproblems or max(_LEAST, math.ceil(wanted / (n_axes + 1)))
    each = 1 if n_axes == 1 else max(n_axes, math.ceil(wanted / (2 * s)))
    return Hyperplanes(settings.ensemble, settings.seed, s * each, _FRESH, most, scales, n_axes=n_axes, each=each)


def _conquer(solved: _Solved, k: int, rule: str) -> Numbers:
    """Choose k of the rows with a vote: those with most votes, or those that reach furthest together."""
    if rule == "votes":
        return votes.select_votes(solved.voted, solved.counted, k)
    directions = solved.planes.regenerate()[: solved.planes.count, : solved.planes.dim]
    positions = solved.pool.positions[np.searchsorted(solved.pool.numbers, solved.voted)]
    heights = solved.found.votes.heights.ravel()
    short = selection.shortfalls(positions, np.concatenate([directions, -directions]), heights) ** 2
    chosen = selection.widen_simplex(positions, selection.select_candidates(short, k))
    return solved.voted[chosen[selection.select_candidates(short[chosen], len(chosen))]]


def _coverage(solved: _Solved, chosen: Numbers) -> Floats:
    """What the anchors reach on fresh directions, as shares of the data's height."""
    fresh = solved.planes.regenerate()[solved.planes.count :]
    histogram = solved.found.votes
    places = histogram.places[np.searchsorted(histogram.rows, chosen)]
    short = selection.shortfalls(places, np.concatenate([fresh, -fresh]), solved.found.fresh.ravel())
    return selection.coverage_curve(short)
