"""What runs on blocks of frames for a hidden Markov model: the E-step, tile by tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.types import add_parts
from dask_dca.geometry.exact import Total, plain_total
from dask_dca.geometry.extremes import ArgBest
from dask_dca.models.hmm.emission import IncompleteStates
from dask_dca.models.hmm.expectation import Expected, expectation, in_time, tiles_of_block
from dask_dca.models.hmm.recursions import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.types import Window
    from dask_dca.models.hmm.expectation import Emissions, Layout, Tile
    from dask_dca.models.hmm.recursions import Markov

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["e_step_pass"]

_FINE: Final = 2.0**-30  # what the sums of a tile are rounded to


@dataclass(frozen=True)
class _Sums:
    total: Total
    nearest: ArgBest  # (k,), by density

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(self.total + other.total, self.nearest + other.nearest)


@dataclass(frozen=True)
class _State:
    layout: Layout
    emissions: Emissions
    markov: Markov
    features: Callable[[Floats], Floats]
    units: Floats


def e_step_pass(
    rows: Rows,
    layout: Layout,
    emissions: Emissions,
    markov: Markov,
    features: Callable[[Floats], Floats],
    run: Run,
) -> tuple[Expected, Numbers]:
    """Run the forward and backward recursions over all frames, and sum what the M-step needs.

    features: of tiles of frames, for the emissions. Returns the sums, and for each state the frame of greatest density:
    the same bits for any chunking.
    """
    k = len(markov.startprob)
    units = _FINE * np.concatenate([np.ones(1 + k + k * k), emissions.scales()])
    state = _State(layout, emissions, markov, features, units)
    job: Pass[_Sums] = Pass("refine", _block, add_parts, layout.halo)
    found = run_pass(rows, job, state, run)
    return Expected(found.total.value(), k), found.nearest.rows


def _block(state: _State, window: Window, *columns: Any) -> _Sums:
    k, scratch = len(state.markov.startprob), Scratch()
    found = _Sums(plain_total(np.zeros((0, len(state.units))), state.units), ArgBest.nobody(k))
    incomplete = state.emissions if isinstance(state.emissions, IncompleteStates) else None
    for tile in tiles_of_block(state.layout, window, columns, state.features, holes=incomplete is not None):
        seen = expectation(state.layout, tile, state.emissions, state.markov, scratch)
        total = plain_total(seen.sums[None], state.units)
        heights = seen.log_densities if incomplete is None else _typical(incomplete, tile)
        found += _Sums(total, _nearest(state.layout, tile, heights))
    return found


def _typical(states: IncompleteStates, tile: Tile) -> Floats:
    """How typical a tile's own frames are of each state (k, L, M)."""
    own = tile.features[:, :, 1:-1]
    return states.typicality(own.reshape(len(own), -1)).reshape(-1, *own.shape[1:])


def _nearest(layout: Layout, tile: Tile, log_densities: Floats) -> ArgBest:
    """The frame of greatest density in each state, the first of equal ones."""
    logs = in_time(layout, log_densities)
    if tile.exists is not None:
        logs[:, ~in_time(layout, tile.exists[:, 1:-1])] = -np.inf
    where = logs.argmax(axis=1)
    return ArgBest(logs[np.arange(len(logs)), where], tile.begin + where, np.zeros((len(logs), 0)))
