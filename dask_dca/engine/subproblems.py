"""Sub-problems on hyperplanes of more than two dimensions, by any solver.

A solver needs points, not blocks, and what it answers must not depend on where blocks are cut. So a sub-problem is
solved on a *pool*: the rows that are extreme, over all rows, in some directions inside some hyperplane, found by one
divide pass, exactly. A row that is not in the pool lies between rows of the pool in every direction looked at: it
can't be an extreme ray there. Every sub-problem sees the whole pool, projected on its own hyperplane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.special import ndtri

from dask_dca.engine.divide import Directions
from dask_dca.engine.passes import Pass, run_pass, step
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.threads import one_blas_thread
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry import extremes as hulls
from dask_dca.geometry import planes, solvers, votes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Hyperplanes", "Pool", "Solver", "as_tasks", "checked_choice", "solve_subproblems"]

Solver = str | Callable[..., Any]
_TASKS: Final = 64  # tasks that the sub-problems are spread over


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
        """
        Number of hyperplanes.

        Returns
        -------
        int
            The number s.
        """
        return self.count // self.each

    def axes(self, index: NDArray[np.integer]) -> Floats:
        """
        Regenerate the axes of some hyperplanes.

        Parameters
        ----------
        index : ndarray of int, shape (s,)
            Which hyperplanes.

        Returns
        -------
        ndarray of float64, shape (s, d - 1, dim)
            Integer vectors of a length of about 2**20.
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
    """
    Solve every sub-problem and count how many chose each row.

    Parameters
    ----------
    pool : Pool
        The rows.
    hyperplanes : Hyperplanes
        Where to project them.
    solver : str or callable
        One of `geometry.solvers.SOLVERS`, or a function of points (c, d), whose first coordinate is one, and the
        number of anchors, that returns indices of points.
    n_anchors : int
        How many a sub-problem may choose.
    run : Run
        How passes are run.
    spread : bool
        Whether the sub-problems are tasks on the cluster; else they are solved here.

    Returns
    -------
    rows, votes : ndarray of int64, shape (v,)
        Row numbers, increasing, and in how many sub-problems each was chosen.

    Raises
    ------
    InvalidParameterError
        A callable returned something else than indices of points.
    """
    n_tasks = _TASKS if spread else 1
    state = step(run, "state", _State, pool, hyperplanes, solver, n_anchors, n_tasks)
    job = Pass("solve", _solve_block, votes.merge_votes)
    every = np.arange(n_tasks)[:, None]
    return run_pass(as_tasks(every) if spread else as_rows(every), job, state, run)


def as_tasks(numbers: NDArray[np.integer]) -> Rows:
    """
    Make numbers the rows of a chunked matrix, so that a pass over them makes a task of each.

    Parameters
    ----------
    numbers : ndarray of int, shape (n, 1)
        Numbers of the tasks.

    Returns
    -------
    Rows
        One block each.
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
    """
    Check what a solver of one's own returned.

    Parameters
    ----------
    answer : object
        Its answer.
    n_points : int
        How many points it could choose from.

    Returns
    -------
    ndarray of int64
        Different indices, increasing.

    Raises
    ------
    InvalidParameterError
        It is no set of indices of points.
    """
    chosen = np.unique(np.asarray(answer))
    if chosen.dtype.kind not in "iu" or (len(chosen) and not 0 <= chosen[0] <= chosen[-1] < n_points):
        msg = f"the solver must return indices of its {n_points} points, integers; received {chosen[:5]!r}"
        raise InvalidParameterError(msg)
    return chosen.astype(np.int64)
