"""The general problem MCH(X Phi, Y Phi) on random spaces of few dimensions, by any solver.

Rows of X and of Y are projected exactly, block by block; what is left is small, so each sub-problem sees all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.anchoring.hyperplanes import as_tasks, checked_choice
from dask_dca.anchoring.literal import elect, n_planes, same_space
from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.passes import Pass, run_pass, step
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.engine.tiles import require_finite, tiles
from dask_dca.engine.types import stack_parts
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry import planes, separation, votes
from dask_dca.geometry.separation import prepare_cone
from dask_dca.geometry.votes import VoteHistogram

if TYPE_CHECKING:
    from dask_dca.anchoring.hyperplanes import Solver
    from dask_dca.anchoring.parameters import Settings
    from dask_dca.anchoring.result import AnchorResult
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers


_TASKS: Final = 64  # tasks that the sub-problems are spread over
_MOST_NUMBERS: Final = 2**25  # projections of all rows on all spaces
_SAMPLE: Final = (32, 8)  # rows that the ensemble "data" draws from


@dataclass(frozen=True)
class RandomSpaces:
    """Spaces that workers regenerate: Phi (p x d) for each sub-problem, from the directions of d / 2 planes."""

    ensemble: str
    seed: int
    count: int
    dim: int
    sample: Floats | None = None

    def project(self, rows: Floats) -> Floats:
        """Project rows on all spaces.

        rows (n, p): rows; a row's projections do not depend on the others. Returns (n, s, d): coordinates, each row in
        a unit of its own.
        """
        half = -(-self.dim // 2)
        pairs = planes.plane_pairs(self.ensemble, self.seed, np.arange(self.count * half), rows.shape[1], self.sample)
        found = planes.inner_products(rows, planes.integer_pairs(pairs))[0].reshape(len(rows), 2, self.count, half)
        return found.transpose(0, 2, 3, 1).reshape(len(rows), self.count, 2 * half)[:, :, : self.dim]


@dataclass(frozen=True)
class _State:
    covered: Floats  # (n, s, d)
    points: Floats  # (m, s, d)
    solver: Solver
    n_anchors: int
    n_tasks: int


def project_rows(rows: Rows, spaces: RandomSpaces, run: Run) -> Floats:
    """Project all rows.

    Returns (n, s, d): in the order of the rows.
    """
    job: Pass[tuple[Numbers, Floats]] = Pass("project", _project_block, stack_parts)
    return step(run, "points", _in_order, run_pass(rows, job, spaces, run))


def solve_coverings(
    covered: Floats, points: Floats, solver: Solver, n_anchors: int, run: Run, *, spread: bool
) -> tuple[Numbers, Numbers]:
    """Solve MCH(X Phi, Y Phi) on every space and count how many chose each row of Y.

    Returns rows, votes (v,): row numbers of Y, increasing, and in how many sub-problems each was chosen.
    Raises InvalidParameterError: A callable returned something else than indices of rows of Y.
    """
    n_tasks = _TASKS if spread else 1
    state = step(run, "state", _State, covered, points, solver, n_anchors, n_tasks)
    job = Pass("solve", _solve_block, votes.merge_votes)
    every = np.arange(n_tasks)[:, None]
    return run_pass(as_tasks(every) if spread else as_rows(every), job, state, run)


def _project_block(spaces: RandomSpaces, start: int, *columns: Any) -> tuple[Numbers, Floats]:
    found = [(np.zeros(0, dtype=np.int64), np.zeros((0, spaces.count, spaces.dim)))]
    for numbers, tile in tiles(columns, start, copy=False):
        require_finite(tile, numbers)
        found.append((numbers, spaces.project(tile)))
    return stack_parts(found)


def _in_order(found: tuple[Numbers, Floats]) -> Floats:
    return found[1][np.argsort(found[0])]


def _solve_block(state: _State, start: int, *columns: Any) -> tuple[Numbers, Numbers]:
    found = [np.zeros(0, dtype=np.int64)]
    s = state.points.shape[1]
    for task in np.concatenate([np.asarray(column).ravel() for column in columns]):
        with one_blas_thread():
            own = range(s * task // state.n_tasks, s * (task + 1) // state.n_tasks)
            found.extend(_solve(state, state.covered[:, t], state.points[:, t]) for t in own)
    return np.unique(np.concatenate(found), return_counts=True)


def _solve(state: _State, X: Floats, Y: Floats) -> Numbers:
    if isinstance(state.solver, str):
        return separation.covering_rows(state.solver, X, Y)
    return checked_choice(state.solver(X, Y, state.n_anchors), len(Y))


def covering_anchors(
    rows: Rows, others: Rows, n_anchors: int, dim: int, solver: Solver, settings: Settings, run: Run
) -> AnchorResult:
    """Find rows of Y whose cone covers X, by a solver on random spaces of d dimensions.

    One pass over X and one over Y, which leave d numbers per row and space; then the solver on each space, and votes.
    rows, others: X, to be covered, and Y, to choose from; dim: dimension d of a space; settings: number of spaces,
    ensemble and seed. Returns row numbers of Y; a vote is a sub-problem that chose the row.
    Raises InvalidParameterError: there are too many rows for sub-problems that see all of them.
    """
    same_space(rows, others)
    s = n_planes(n_anchors, settings)
    numbers = (rows.n_rows + others.n_rows) * s * dim
    if numbers > _MOST_NUMBERS:
        msg = (
            f"{rows.n_rows:,} rows of X and {others.n_rows:,} of Y on {s} spaces of {dim} dimensions are too many for "
            "a solver that sees all of them; use solver='plane', which takes any number, or fewer n_subproblems"
        )
        raise InvalidParameterError(msg)
    sample = fetch_rows(rows, spread_rows(rows.n_rows, *_SAMPLE), run)
    spaces = step(run, "spaces", RandomSpaces, settings.ensemble, settings.seed, s, dim, sample)
    covered, points = project_rows(rows, spaces, run), project_rows(others, spaces, run)
    spread = rows.kind != "memory" or others.kind != "memory"
    voted = solve_coverings(covered, points, solver, n_anchors, run, spread=spread)
    return step(run, "anchors", _select, voted, n_anchors, covered, sample)


def _select(voted: tuple[Numbers, Numbers], n_anchors: int, covered: Floats, sample: Floats) -> AnchorResult:
    n_spaces = covered.shape[1]
    pointed = sum(prepare_cone(covered[:, t], n_planes=1).is_pointed for t in range(n_spaces))
    found = VoteHistogram(*voted, np.zeros((len(voted[0]), 0)), np.zeros((2, 0)), n_spaces)
    missing = f"no row of Y covers any row of X on any of {n_spaces} spaces: Y can't cover X"
    return elect(found, n_anchors, missing, n_pointed=pointed, sample=sample[:128])
