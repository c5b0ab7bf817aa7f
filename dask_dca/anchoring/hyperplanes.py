"""Sub-problems on hyperplanes of more than two dimensions, by any solver.

A solver needs points, not blocks, and what it answers must not depend on where blocks are cut. So a sub-problem is
solved on a *pool*: the rows that are extreme, over all rows, in some directions inside some hyperplane, found by one
divide pass, exactly. A row that is not in the pool lies between rows of the pool in every direction looked at: it
can't be an extreme ray there. Every sub-problem sees the whole pool, projected on its own hyperplane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.anchoring.divide import Directions, divide
from dask_dca.anchoring.parameters import check_integer
from dask_dca.anchoring.preprocess import look, spectral_counts
from dask_dca.anchoring.result import AnchorResult
from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.passes import Pass, run_pass, step
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.errors import FewerAnchorsWarning, InvalidParameterError, warn
from dask_dca.geometry import extremes as hulls
from dask_dca.geometry import planes, solvers, votes
from dask_dca.geometry.separation import COVERING_SOLVERS
from dask_dca.geometry.solvers import SOLVERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.anchoring.divide import Divided
    from dask_dca.anchoring.parameters import Settings
    from dask_dca.anchoring.preprocess import Preprocessed
    from dask_dca.engine.passes import Run
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.geometry.coordinates import SubspaceCoordinates
    from dask_dca.geometry.moments import Subspace


Solver = str | Callable[..., Any]
_TASKS: Final = 64  # tasks that the sub-problems are spread over
_WIDEST: Final = 50
_CHOICES_PER_ANCHOR: Final = 20.0  # s = 20 k ln k / d: as many rows are chosen, over all, as by 10 k ln k planes
_LEAST: Final = 16  # hyperplanes, at least
_FRESH: Final = 128  # two-sided directions kept out of the selection, for the certificate
_JUDGES: Final = 128  # rows that a model may be judged by
_SUBSPACE_ENSEMBLES: Final = ("mixed", "row-space", "whitened", "gaussian")


@dataclass(frozen=True)
class Hyperplanes(Directions):
    """
    Directions of a divide pass that lie in hyperplanes, `each` of them in one; `count` is their number in all.

    A hyperplane of d dimensions is spanned by the reference axis and d - 1 random directions, its axes.
    """

    n_axes: int = 1  # d - 1
    each: int = 1

    @property
    def n_hyperplanes(self) -> int:
        """Number of hyperplanes."""
        return self.count // self.each

    def axes(self, index: NDArray[np.integer]) -> Floats:
        """Regenerate the axes of some hyperplanes.

        index (s,): which hyperplanes. Returns (s, d - 1, dim): integer vectors of a length of about 2**20.
        """
        every = (np.asarray(index)[:, None] * self.n_axes + np.arange(self.n_axes)).ravel()
        found = planes.directions(self.ensemble, self.seed, every, self.scales[: self.dim])
        return hulls.integer_directions(found).reshape(len(index), self.n_axes, self.dim)

    def regenerate(self) -> Floats:
        """Return the integer directions, shape (count + fresh, r): inside the hyperplanes, then fresh ones."""
        fresh = Directions(self.ensemble, self.seed, 0, self.fresh, self.dim, self.scales).regenerate()
        axes = self.axes(np.arange(self.n_hyperplanes))
        if self.each > 1 or self.n_axes > 1:
            seeds = planes.child_seeds(self.seed ^ 1, np.arange(self.count))
            mixtures = ndtri(planes.uniforms(seeds, self.n_axes)).reshape(-1, self.each, self.n_axes)
            inside = (mixtures @ axes).reshape(self.count, self.dim)
            inside = hulls.integer_directions(inside / np.sqrt((inside**2).sum(axis=1, keepdims=True)))
        else:
            inside = axes[:, 0]
        found = np.zeros((self.count + self.fresh, len(self.scales)))
        found[: self.count, : self.dim] = inside
        found[self.count :] = fresh
        return found


@dataclass(frozen=True)
class Pool:
    """Rows that sub-problems are solved on: sorted numbers, and integer places in the anchors' subspace."""

    numbers: Numbers  # (c,)
    positions: Floats  # (c, dim)


@dataclass(frozen=True)
class _State:
    pool: Pool
    hyperplanes: Hyperplanes
    solver: Solver
    n_anchors: int
    n_tasks: int


def solve_subproblems(
    pool: Pool, hyperplanes: Hyperplanes, solver: Solver, n_anchors: int, run: Run, *, spread: bool
) -> tuple[Numbers, Numbers]:
    """Solve every sub-problem and count how many chose each row.

    Returns rows, votes (v,): row numbers, increasing, and in how many sub-problems each was chosen.
    Raises InvalidParameterError: A callable returned something else than indices of points.
    """
    n_tasks = _TASKS if spread else 1
    state = step(run, "state", _State, pool, hyperplanes, solver, n_anchors, n_tasks)
    job = Pass("solve", _solve_block, votes.merge_votes)
    every = np.arange(n_tasks)[:, None]
    return run_pass(as_tasks(every) if spread else as_rows(every), job, state, run)


def as_tasks(numbers: NDArray[np.integer]) -> Rows:
    """Make numbers the rows of a chunked matrix, so that a pass over them makes a task of each.

    numbers (n, 1): numbers of the tasks.
    """
    import dask.array as da

    return as_rows(da.from_array(numbers, chunks=(1, 1)))


def _solve_block(state: _State, start: int, *columns: Any) -> tuple[Numbers, Numbers]:
    found = [np.zeros(0, dtype=np.int64)]
    for task in np.concatenate([np.asarray(column).ravel() for column in columns]):
        s = state.hyperplanes.n_hyperplanes
        index = np.arange(s * task // state.n_tasks, s * (task + 1) // state.n_tasks)
        with one_blas_thread():
            for t, axes in zip(index, state.hyperplanes.axes(index), strict=True):
                points = _project(state.pool.positions, axes)
                some = solvers.hull_rows(points)
                chosen = _solve(state.solver, points[some], state.n_anchors, int(t))
                found.append(state.pool.numbers[some[chosen]])
    return np.unique(np.concatenate(found), return_counts=True)


def _project(positions: Floats, axes: Floats) -> Floats:
    """Points (c, d) of a sub-problem: height one, then the place inside the hyperplane in units of its spread."""
    basis = np.linalg.qr(axes.T)[0]
    inside = positions @ basis
    spread = np.sqrt((inside**2).sum(axis=1).mean())
    return np.hstack([np.ones((len(inside), 1)), inside / (spread if spread > 0 else 1.0)])


def _solve(solver: Solver, points: Floats, n_anchors: int, t: int) -> Numbers:
    """Indices of the chosen points. Pursuits stop at d of them: further ones say little that d did not."""
    if isinstance(solver, str):
        most = n_anchors if solver == "lp" else min(n_anchors, points.shape[1])
        return solvers.solve(solver, points, most, seed=t)
    return checked_choice(solver(points, n_anchors), len(points))


def checked_choice(answer: Any, n_points: int) -> Numbers:
    """Check what a solver of one's own returned.

    n_points: how many points it could choose from.
    Raises InvalidParameterError: it is no set of indices of points.
    """
    chosen = np.unique(np.asarray(answer))
    if chosen.dtype.kind not in "iu" or (len(chosen) and not 0 <= chosen[0] <= chosen[-1] < n_points):
        msg = f"the solver must return indices of its {n_points} points, integers; received {chosen[:5]!r}"
        raise InvalidParameterError(msg)
    return chosen.astype(np.int64)


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
    """Check the dimension and the solver of sub-problems.

    method, ensemble: the checked method and ensemble; covers_other: whether rows of another Y are to cover X, which is
    for the paper's method.
    Raises InvalidParameterError: they are out of range, unknown, or do not go together.
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
    """Find anchors by a solver on random hyperplanes.

    The robust method's subspace; one pass over all rows for the extremes in directions inside the hyperplanes; the
    solver on their projections, hyperplane by hyperplane; votes; selection among the rows with a vote.
    n_anchors: how many anchors k; chosen from the spectrum if None; dim: dimension d of a hyperplane; at most the
    subspace's own is used. Returns anchors and certificate; a vote is a sub-problem that chose the row.
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

    frame: SubspaceCoordinates
    planes: Hyperplanes


def _plan(view: Preprocessed, sub: Subspace, k: int, dim: int, settings: Settings) -> _Plan:
    return _Plan(view.frame(sub), _hyperplanes(k, dim, max(sub.dim, 1), sub.scales, settings))


def _pool(found: Divided, plan: _Plan) -> Pool:
    """The rows that are extreme on some direction inside some hyperplane."""
    return Pool(found.votes.rows, found.votes.places[:, : plan.planes.dim])


def _select(
    view: Preprocessed,
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


def _certify(view: Preprocessed, solved: _Solved, chosen: Numbers, counts: tuple[int, int]) -> AnchorResult:
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
    short = votes.shortfalls(positions, np.concatenate([directions, -directions]), heights) ** 2
    chosen = votes.widen_simplex(positions, votes.select_candidates(short, k))
    return solved.voted[chosen[votes.select_candidates(short[chosen], len(chosen))]]


def _coverage(solved: _Solved, chosen: Numbers) -> Floats:
    """What the anchors reach on fresh directions, as shares of the data's height."""
    fresh = solved.planes.regenerate()[solved.planes.count :]
    histogram = solved.found.votes
    places = histogram.places[np.searchsorted(histogram.rows, chosen)]
    short = votes.shortfalls(places, np.concatenate([fresh, -fresh]), solved.found.fresh.ravel())
    return votes.coverage_curve(short)
