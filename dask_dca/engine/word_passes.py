"""Passes over words: which are extreme along random directions, and how they mix given vertices.

Words are points that the driver holds, a matrix of words x topics. On a cluster it goes to the workers past the
scheduler, and a task takes the words of its own block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.engine.groups import plane_groups
from dask_dca.engine.job import Groups
from dask_dca.engine.merges import stack_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.watch import task_threads
from dask_dca.geometry.extremes import Extremes, extremes, merge_extremes
from dask_dca.geometry.votes import VoteHistogram, merge_histograms, votes_of_extremes
from dask_dca.kernels.simplex import SLAB_ROWS, simplex_descent
from dask_dca.kernels.topics import word_directions, word_places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.groups import PlaneGroup
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.kernels.topics import WordPoints

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Words"]


@dataclass(frozen=True)
class Words:
    """
    The words of some documents, in blocks: one where the documents are in memory, else as many as there are threads.

    Attributes
    ----------
    n_words : int
        Number of words V.
    run : Run
        How passes are run.
    in_memory : bool
        Whether the documents are.
    """

    n_words: int
    run: Run
    in_memory: bool = True

    @cached_property
    def rows(self) -> Rows:
        """
        The words' numbers as a matrix of one column.

        Returns
        -------
        Rows
            Cut where whole slabs of `simplex_descent` end.
        """
        if self.in_memory:
            return as_rows(np.arange(self.n_words)[:, None])
        import dask.array as da

        n_slabs = -(-self.n_words // SLAB_ROWS)
        return as_rows(da.arange(self.n_words, chunks=SLAB_ROWS * -(-n_slabs // task_threads()))[:, None])

    def votes(
        self, points: WordPoints, values: Floats, n_planes: int, seed: int, *, n_groups: int | None = None
    ) -> VoteHistogram:
        """
        Let extreme words vote: the divide and the conquer step.

        A task is a block of words with a group of directions. All that decides is exact, so that the result is the
        same for any number of either.

        Parameters
        ----------
        points : WordPoints
            Words as points.
        values : ndarray of float64, shape (k,)
            The eigenvalues, as for `word_points`.
        n_planes : int
            Number of directions s.
        seed : int
            Seed of the directions.
        n_groups : int, optional
            Number of groups of directions; where there are fewer blocks than threads, as many as fill these.

        Returns
        -------
        VoteHistogram
            Its rows are words.
        """
        state = _Planes(word_places(points), values, n_planes, seed)
        groups = plane_groups(self.rows, n_planes, n_groups)
        job: Pass[Any] = Pass(
            "divide", _divide_block, merge_extremes, groups=Groups(groups, _count_votes, merge_histograms)
        )
        found: VoteHistogram = run_pass(self.rows, job, state, self.run)
        return found

    def mixtures(self, targets: Floats, vertices: Floats, start: Floats | None, n_steps: int) -> Floats:
        """
        Do `simplex_descent` on all words.

        Parameters
        ----------
        targets, vertices, start, n_steps : object
            As `simplex_descent` takes them.

        Returns
        -------
        ndarray of float64, shape (V, k)
            What it returns.
        """
        single = None if start is None else start.astype(np.float32)  # as `simplex_descent` begins
        job: Pass[Floats] = Pass("recover", _mixtures_block, stack_parts)
        return run_pass(self.rows, job, (targets, vertices, single, n_steps), self.run)


@dataclass(frozen=True)
class _Planes:
    """Where words lie, and what regenerates the directions along which they vote."""

    places: Floats
    values: Floats
    count: int
    seed: int


def _divide_block(group: PlaneGroup, shared: Any, state: _Planes, start: int, *columns: Any) -> Extremes:
    del shared
    own = slice(start, start + len(columns[0]))
    directions = word_directions(state.seed, group.range_of(state.count), state.values)
    return extremes(state.places[own], np.arange(own.start, own.stop), directions)


def _count_votes(group: PlaneGroup, found: Extremes) -> VoteHistogram:
    del group
    return votes_of_extremes(found, len(found.rows) // 2)


def _mixtures_block(state: tuple[Floats, Floats, NDArray[np.float32] | None, int], start: int, *columns: Any) -> Floats:
    targets, vertices, single, n_steps = state
    own = slice(start, start + len(columns[0]))
    begin = None if single is None else single[own].astype(np.float64)
    return simplex_descent(targets[own], vertices, begin, n_steps)
