"""The paper's Algorithm 1 for X and Y with any solver: sub-problems MCH(X Phi, Y Phi) in d dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.passes import step
from dask_dca.engine.random_spaces import RandomSpaces, project_rows, solve_coverings
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.separation import prepare_cone
from dask_dca.geometry.votes import VoteHistogram
from dask_dca.models.paper import elect, n_planes, same_space

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.subproblems import Solver
    from dask_dca.models.parameters import Settings
    from dask_dca.models.result import AnchorResult

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["covering_anchors"]

_MOST_NUMBERS: Final = 2**25  # projections of all rows on all spaces
_SAMPLE: Final = (32, 8)  # rows that the ensemble "data" draws from


def covering_anchors(
    rows: Rows, others: Rows, n_anchors: int, dim: int, solver: Solver, settings: Settings, run: Run
) -> AnchorResult:
    """
    Find rows of Y whose cone covers X, by a solver on random spaces of d dimensions.

    One pass over X and one over Y, which leave d numbers a row and space; then the solver on each space, and votes.

    Parameters
    ----------
    rows, others : Rows
        X, to be covered, and Y, to choose from.
    n_anchors : int
        Number of anchors k.
    dim : int
        Dimension d of a space.
    solver : str or callable
        What solves a sub-problem.
    settings : Settings
        Number of spaces, ensemble and seed.
    run : Run
        How passes are run.

    Returns
    -------
    AnchorResult
        Row numbers of Y; a vote is a sub-problem that chose the row.

    Raises
    ------
    InvalidParameterError
        There are too many rows for sub-problems that see all of them.
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
