"""The general problem MCH(X Phi, Y Phi) on random spaces of few dimensions, by any solver.

Rows of X and of Y are projected exactly, block by block; what is left is small, so each sub-problem sees all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.checks import require_finite
from dask_dca.engine.merges import stack_parts
from dask_dca.engine.passes import Pass, run_pass, step
from dask_dca.engine.rows import as_rows
from dask_dca.engine.subproblems import as_tasks, checked_choice
from dask_dca.engine.threads import one_blas_thread
from dask_dca.engine.tiles import tiles
from dask_dca.geometry import angles, covering, planes, votes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.subproblems import Solver

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["RandomSpaces", "project_rows", "solve_coverings"]

_TASKS: Final = 64  # tasks that the sub-problems are spread over


@dataclass(frozen=True)
class RandomSpaces:
    """Spaces that workers regenerate: Phi (p x d) for each sub-problem, from the directions of d / 2 planes."""

    ensemble: str
    seed: int
    count: int
    dim: int
    sample: Floats | None = None

    def project(self, rows: Floats) -> Floats:
        """
        Project rows on all spaces.

        Parameters
        ----------
        rows : ndarray of float64, shape (n, p)
            Rows; a row's projections do not depend on the others.

        Returns
        -------
        ndarray of float64, shape (n, s, d)
            Coordinates, each row in a unit of its own.
        """
        half = -(-self.dim // 2)
        pairs = planes.plane_pairs(self.ensemble, self.seed, np.arange(self.count * half), rows.shape[1], self.sample)
        found = angles.inner_products(rows, angles.integer_pairs(pairs))[0].reshape(len(rows), 2, self.count, half)
        return found.transpose(0, 2, 3, 1).reshape(len(rows), self.count, 2 * half)[:, :, : self.dim]


@dataclass(frozen=True)
class _State:
    covered: Floats  # (n, s, d)
    points: Floats  # (m, s, d)
    solver: Solver
    n_anchors: int
    n_tasks: int


def project_rows(rows: Rows, spaces: RandomSpaces, run: Run) -> Floats:
    """
    Project all rows.

    Parameters
    ----------
    rows : Rows
        The data, finite.
    spaces : RandomSpaces
        The spaces.
    run : Run
        How passes are run.

    Returns
    -------
    ndarray of float64, shape (n, s, d)
        In the order of the rows.
    """
    job: Pass[tuple[Numbers, Floats]] = Pass("project", _project_block, stack_parts)
    return step(run, "points", _in_order, run_pass(rows, job, spaces, run))


def solve_coverings(
    covered: Floats, points: Floats, solver: Solver, n_anchors: int, run: Run, *, spread: bool
) -> tuple[Numbers, Numbers]:
    """
    Solve MCH(X Phi, Y Phi) on every space and count how many chose each row of Y.

    Parameters
    ----------
    covered, points : ndarray of float64, shapes (n, s, d) and (m, s, d)
        X and Y on all spaces.
    solver : str or callable
        One of `geometry.covering.COVERING_SOLVERS`, or a function of X (n, d), Y (m, d) and the number of anchors that
        returns indices of rows of Y.
    n_anchors : int
        Number of anchors k.
    run : Run
        How passes are run.
    spread : bool
        Whether the sub-problems are tasks on the cluster; else they are solved here.

    Returns
    -------
    rows, votes : ndarray of int64, shape (v,)
        Row numbers of Y, increasing, and in how many sub-problems each was chosen.

    Raises
    ------
    InvalidParameterError
        A callable returned something else than indices of rows of Y.
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
        return covering.covering_rows(state.solver, X, Y)
    return checked_choice(state.solver(X, Y, state.n_anchors), len(Y))
