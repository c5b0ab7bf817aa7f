"""Sub-problems of more than two dimensions, by any solver: on hyperplanes, and MCH(X Phi, Y Phi) on random spaces.

A solver needs points in memory, and its result must not depend on blocks. A sub-problem is therefore solved on a
*pool*: the rows that are extreme among all rows in some direction inside some hyperplane, found exactly by one divide
pass. A row outside the pool lies between rows of the pool in all these directions. Every sub-problem uses the whole
pool, projected onto its own hyperplane. Where rows of Y are to cover X, both are projected exactly, block by block,
onto spaces of few dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dask_dca.anchoring.divide import Directions, Divided, divide
from dask_dca.anchoring.literal import n_planes, select_by_votes
from dask_dca.anchoring.parameters import AnchorResult, Settings, certify, check_integer, evaluation_rows
from dask_dca.anchoring.preprocess import Preprocessed, prepare_subspaces, spectral_counts
from dask_dca.engine.passes import Pass, Run, run_pass, step
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.engine.tiles import require_finite, tiles
from dask_dca.engine.types import stack_parts
from dask_dca.errors import FewerAnchorsWarning, InvalidParameterError, warn
from dask_dca.geometry import planes, solvers, votes
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.moments import Subspace, SubspaceCoordinates
from dask_dca.geometry.separation import COVERING_SOLVERS, covering_rows, prepare_cone
from dask_dca.geometry.solvers import SOLVERS

Solver = str | Callable[..., Any]
_N_TASKS: Final = 64  # number of tasks that the sub-problems are distributed over
_MAX_DIM: Final = 50  # greatest dimension of a sub-problem
_CHOICES_PER_ANCHOR: Final = 20.0  # s = 20 k ln k / d sub-problems choose as many rows as 10 k ln k planes
_MIN_HYPERPLANES: Final = 16  # least number of hyperplanes
_N_FRESH_DIRECTIONS: Final = 128  # directions that are not used for the selection, for the certificate
_MAX_PROJECTIONS: Final = 2**25  # bound on the numbers that all rows have on all spaces
_SAMPLE_RUNS: Final = (32, 8)  # number of runs of rows that the ensemble "data" draws from, and their length
_SUBSPACE_ENSEMBLES: Final = ("mixed", "row-space", "whitened", "gaussian")


@dataclass(frozen=True)
class Hyperplanes(Directions):
    """Directions of a divide pass that lie in hyperplanes, `each` of them per hyperplane and `count` in all.

    A hyperplane of d dimensions is spanned by the reference axis and d - 1 random directions, its axes.
    """

    n_axes: int = 1  # d - 1
    each: int = 1  # directions per hyperplane

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
        return votes.integer_directions(found).reshape(len(index), self.n_axes, self.dim)

    def regenerate(self) -> Floats:
        """Return the integer directions, shape (count + fresh, r): inside the hyperplanes, then fresh ones."""
        fresh = Directions(self.ensemble, self.seed, 0, self.fresh, self.dim, self.scales).regenerate()
        axes = self.axes(np.arange(self.n_hyperplanes))
        if self.each > 1 or self.n_axes > 1:
            seeds = planes.child_seeds(self.seed ^ 1, np.arange(self.count))
            mixtures = ndtri(planes.uniforms(seeds, self.n_axes)).reshape(-1, self.each, self.n_axes)
            inside = (mixtures @ axes).reshape(self.count, self.dim)
            inside = votes.integer_directions(inside / np.sqrt((inside**2).sum(axis=1, keepdims=True)))
        else:
            inside = axes[:, 0]
        found = np.zeros((self.count + self.fresh, len(self.scales)))
        found[: self.count, : self.dim] = inside
        found[self.count :] = fresh
        return found


@dataclass(frozen=True)
class Pool:
    """Rows that sub-problems are solved on: increasing numbers, and integer positions in the anchors' subspace."""

    numbers: Numbers  # (c,)
    positions: Floats  # (c, dim)


@dataclass(frozen=True)
class _Subproblems:
    """State of the tasks, each of which solves some of the sub-problems."""

    solver: Solver
    n_anchors: int
    n_tasks: int


@dataclass(frozen=True)
class _HyperplaneSubproblems(_Subproblems):
    pool: Pool
    hyperplanes: Hyperplanes

    @property
    def count(self) -> int:
        return self.hyperplanes.n_hyperplanes

    def solve(self, t: int) -> Numbers:
        """Return the chosen row numbers; pursuits choose at most d rows, since further ones add little."""
        points = _project(self.pool.positions, self.hyperplanes.axes(np.array([t]))[0])
        some = solvers.hull_rows(points)
        points = points[some]
        if isinstance(self.solver, str):
            most = self.n_anchors if self.solver == "lp" else min(self.n_anchors, points.shape[1])
            chosen = solvers.solve(self.solver, points, most, seed=t)
        else:
            chosen = _checked_choice(self.solver(points, self.n_anchors), len(points))
        return self.pool.numbers[some[chosen]]


@dataclass(frozen=True)
class _SpaceSubproblems(_Subproblems):
    covered: Floats  # (n, s, d)
    points: Floats  # (m, s, d)

    @property
    def count(self) -> int:
        return self.points.shape[1]

    def solve(self, t: int) -> Numbers:
        """Return the chosen row numbers of Y."""
        X, Y = self.covered[:, t], self.points[:, t]
        if isinstance(self.solver, str):
            return covering_rows(self.solver, X, Y)
        return _checked_choice(self.solver(X, Y, self.n_anchors), len(Y))


def solve_subproblems(
    kind: type[_Subproblems], solver: Solver, n_anchors: int, run: Run, *parts: Any, spread: bool
) -> tuple[Numbers, Numbers]:
    """Solve every sub-problem and count how many chose each row.

    *parts: further arguments of `kind`; spread: whether to use several tasks. Returns row numbers (v,), increasing, and
    the numbers of sub-problems (v,) in which each was chosen.
    Raises InvalidParameterError: a callable returned something else than indices of points.
    """
    n_tasks = _N_TASKS if spread else 1
    state = step(run, "state", kind, solver, n_anchors, n_tasks, *parts)
    return run_pass(_task_rows(n_tasks), Pass("solve", _solve_block, votes.merge_votes), state, run)


def _task_rows(count: int) -> Rows:
    """A matrix with a row and a chunk for each task, so that a pass over it has these tasks; in memory if one."""
    numbers = np.arange(count)[:, None]
    if count == 1:
        return as_rows(numbers)
    import dask.array as da

    return as_rows(da.from_array(numbers, chunks=(1, 1)))


def _solve_block(
    state: _HyperplaneSubproblems | _SpaceSubproblems, start: int, *columns: Any
) -> tuple[Numbers, Numbers]:
    found, s = [np.zeros(0, dtype=np.int64)], state.count
    for task in range(start, start + len(columns[0])):
        found += [state.solve(t) for t in range(s * task // state.n_tasks, s * (task + 1) // state.n_tasks)]
    return np.unique(np.concatenate(found), return_counts=True)


def _project(positions: Floats, axes: Floats) -> Floats:
    """Points (c, d) of a sub-problem: height one, then the position inside the hyperplane, divided by its spread."""
    basis = np.linalg.qr(axes.T)[0]
    inside = positions @ basis
    spread = np.sqrt((inside**2).sum(axis=1).mean())
    return np.hstack([np.ones((len(inside), 1)), inside / (spread if spread > 0 else 1.0)])


def _checked_choice(answer: Any, n_points: int) -> Numbers:
    """Check the indices that a user's solver returned for n_points points.

    Raises InvalidParameterError: they are not indices of points.
    """
    chosen = np.unique(np.asarray(answer))
    if len(chosen) and (chosen.dtype.kind not in "iu" or not 0 <= chosen[0] <= chosen[-1] < n_points):
        msg = f"the solver must return indices of its {n_points} points, integers; received {chosen[:5]!r}"
        raise InvalidParameterError(msg)
    return chosen.astype(np.int64)


def check_solver(
    dim: Any, solver: Any, method: str, ensemble: str, *, covers_other: bool = False
) -> tuple[int, Solver]:
    """Check the dimension and the solver of sub-problems.

    method, ensemble: checked already; covers_other: whether rows of another Y are to cover X (the paper's method only).
    Raises InvalidParameterError: they are out of range, unknown, or can't be combined.
    """
    dim = check_integer("dim", dim, 2)
    if dim > _MAX_DIM:
        msg = f"dim={dim} is above {_MAX_DIM}: sub-problems are there to be small; use dim=3 to 10"
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
    """Check a solver of MCH(X, Y)."""
    if method != "paper":
        msg = "the robust method chooses anchors from X itself; for Y use method='paper'"
        raise InvalidParameterError(msg)
    if not callable(solver) and solver not in COVERING_SOLVERS:
        names = ", ".join(map(repr, COVERING_SOLVERS))
        msg = f"solver={solver!r} chooses rows of X; for Y use {names}, 'plane', or a function(X, Y, n_anchors)"
        raise InvalidParameterError(msg)
    return solver


def hyperplane_anchors(
    rows: Rows, n_anchors: int | None, dim: int, solver: Solver, settings: Settings, run: Run
) -> AnchorResult:
    """Find anchors by a solver on random hyperplanes.

    The subspace is that of the robust method. One pass over all rows finds the extremes in directions inside the
    hyperplanes; the solver is applied to their projections onto each hyperplane; anchors are selected by votes.
    n_anchors: chosen from the spectrum if None; dim: dimension d of a hyperplane, at most that of the subspace.
    """
    with one_blas_thread():
        subspaces = prepare_subspaces(rows, run, nonnegative=False)
        view = subspaces.view
        counts = (n_anchors, n_anchors) if n_anchors is not None else spectral_counts(subspaces, rows)
        plan = step(run, "plan", _make_plan, view, subspaces.of(counts[0]), counts[0], dim, settings)
        n_planes = None if run.lazy else plan.planes.count
        found = divide(rows, view.reading, plan.frame, plan.planes, run, n_planes=n_planes)
        pool = step(run, "pool", _make_pool, found, plan)
        spread = rows.kind != "memory"
        chosen_by = solve_subproblems(_HyperplaneSubproblems, solver, counts[0], run, pool, plan.planes, spread=spread)
        return step(run, "anchors", _select, view, found, plan.planes, chosen_by, counts, settings)


@dataclass(frozen=True)
class _Plan:
    """The coordinate frame, and the hyperplanes."""

    frame: SubspaceCoordinates
    planes: Hyperplanes


def _make_plan(view: Preprocessed, sub: Subspace, k: int, dim: int, settings: Settings) -> _Plan:
    return _Plan(view.frame(sub), _make_hyperplanes(k, dim, max(sub.dim, 1), sub.scales, settings))


def _make_pool(found: Divided, plan: _Plan) -> Pool:
    """The rows that are extreme in some direction inside some hyperplane."""
    return Pool(found.votes.rows, found.votes.places[:, : plan.planes.dim])


def _select(
    view: Preprocessed,
    found: Divided,
    planes: Hyperplanes,
    chosen_by: tuple[Numbers, Numbers],
    counts: tuple[int, int],
    settings: Settings,
) -> AnchorResult:
    """Select anchors among the rows with a vote, and certify them; runs on the driver."""
    chosen = _choose_rows(found, planes, chosen_by, counts[0], settings.selection)
    if len(chosen) < counts[0]:
        warn(
            f"found only {len(chosen)} of the {counts[0]} anchors asked for: sub-problems of dimension "
            f"{planes.n_axes + 1} chose no other rows; use {len(chosen)}, or a greater dim or n_subproblems",
            FewerAnchorsWarning,
        )
    fresh = planes.regenerate()[planes.count :]
    places = found.votes.places[np.searchsorted(found.votes.rows, chosen)]
    short = votes.shortfalls(places, np.concatenate([fresh, -fresh]), found.fresh.ravel())
    return certify(
        chosen,
        chosen_by,
        planes.n_hyperplanes,  # all are pointed, because they contain the reference axis
        curve=votes.coverage_curve(short),
        row_counts=found.row_counts,
        n_range=(min(counts), max(counts)),
        sample=evaluation_rows(view.raw),
    )


def _make_hyperplanes(k: int, dim: int, most: int, scales: Floats, settings: Settings) -> Hyperplanes:
    n_axes = min(dim - 1, most)
    wanted = _CHOICES_PER_ANCHOR * k * math.log(max(k, 2))
    s = settings.n_subproblems or max(_MIN_HYPERPLANES, math.ceil(wanted / (n_axes + 1)))
    each = 1 if n_axes == 1 else max(n_axes, math.ceil(wanted / (2 * s)))
    return Hyperplanes(
        settings.ensemble, settings.seed, s * each, _N_FRESH_DIRECTIONS, most, scales, n_axes=n_axes, each=each
    )


def _choose_rows(found: Divided, planes: Hyperplanes, chosen_by: tuple[Numbers, Numbers], k: int, rule: str) -> Numbers:
    """Select k of the rows with a vote, by votes or by facility location."""
    voted, counted = chosen_by
    if rule == "votes":
        return votes.select_votes(voted, counted, k)
    directions = planes.regenerate()[: planes.count, : planes.dim]
    positions = found.votes.places[np.searchsorted(found.votes.rows, voted), : planes.dim]
    heights = found.votes.heights.ravel()
    short = votes.shortfalls(positions, np.concatenate([directions, -directions]), heights) ** 2
    chosen = votes.widen_simplex(positions, votes.select_candidates(short, k))
    return voted[chosen[votes.select_candidates(short[chosen], len(chosen))]]


@dataclass(frozen=True)
class RandomSpaces:
    """Random spaces that any process regenerates: Phi (p x d) for each sub-problem, from d / 2 planes."""

    ensemble: str
    seed: int
    count: int
    dim: int
    sample: Floats | None = None

    def project(self, rows: Floats) -> Floats:
        """Project rows (n, p) onto all spaces, (n, s, d), each row up to a factor of its own.

        The projections of a row do not depend on the other rows.
        """
        half = -(-self.dim // 2)
        pairs = planes.plane_pairs(self.ensemble, self.seed, np.arange(self.count * half), rows.shape[1], self.sample)
        found = planes.inner_products(rows, planes.integer_pairs(pairs))[0].reshape(len(rows), 2, self.count, half)
        return found.transpose(0, 2, 3, 1).reshape(len(rows), self.count, 2 * half)[:, :, : self.dim]


def _project_rows(rows: Rows, spaces: RandomSpaces, run: Run) -> Floats:
    """Project all rows onto all spaces, (n, s, d), in the order of the rows."""
    return run_pass(rows, Pass("project", _project_block, stack_parts), spaces, run)


def _project_block(spaces: RandomSpaces, start: int, *columns: Any) -> Floats:
    found = [np.zeros((0, spaces.count, spaces.dim))]
    for numbers, tile in tiles(columns, start, copy=False):
        require_finite(tile, numbers)
        found.append(spaces.project(tile))
    return stack_parts(found)


def covering_anchors(
    rows: Rows, others: Rows, n_anchors: int, dim: int, solver: Solver, settings: Settings, run: Run
) -> AnchorResult:
    """Find rows of Y whose cone covers X, by a solver on random spaces of d dimensions.

    One pass over X and one over Y project them; the solver is applied on each space, and anchors are selected by votes.
    rows, others: X, to be covered, and Y, to choose from.
    Raises InvalidParameterError: there are too many rows for sub-problems that see all of them.
    """
    s = n_planes(n_anchors, settings)
    numbers = (rows.n_rows + others.n_rows) * s * dim
    if numbers > _MAX_PROJECTIONS:
        msg = (
            f"{rows.n_rows:,} rows of X and {others.n_rows:,} of Y on {s} spaces of {dim} dimensions are too many for "
            "a solver that sees all of them; use solver='plane', which takes any number, or fewer n_subproblems"
        )
        raise InvalidParameterError(msg)
    sample = fetch_rows(rows, spread_rows(rows.n_rows, *_SAMPLE_RUNS), run)
    spaces = step(run, "spaces", RandomSpaces, settings.ensemble, settings.seed, s, dim, sample)
    covered, points = _project_rows(rows, spaces, run), _project_rows(others, spaces, run)
    spread = rows.kind != "memory" or others.kind != "memory"
    voted = solve_subproblems(_SpaceSubproblems, solver, n_anchors, run, covered, points, spread=spread)
    return step(run, "anchors", _select_covering, voted, n_anchors, covered, sample)


def _select_covering(voted: tuple[Numbers, Numbers], n_anchors: int, covered: Floats, sample: Floats) -> AnchorResult:
    n_spaces = covered.shape[1]
    pointed = sum(prepare_cone(covered[:, t], n_planes=1).is_pointed for t in range(n_spaces))
    missing = f"no row of Y covers any row of X on any of {n_spaces} spaces: Y can't cover X"
    return select_by_votes(voted, n_spaces, n_anchors, missing, n_pointed=pointed, sample=evaluation_rows(sample))
