"""The recipe: counts of pairs, anchor symbols, starts compared on a sample, Baum-Welch over all frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.held import call_each
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import hold_rows, spread_rows
from dask_dca.models.categorical.anchors import SymbolChain, anchored_chain, least_probability, random_chain
from dask_dca.models.categorical.passes import CategoricalEmission, PlainSymbols, count_pairs
from dask_dca.models.em import expectation_maximisation
from dask_dca.models.hmm.layout import lay_out
from dask_dca.models.hmm.passes import e_step_pass
from dask_dca.models.hmm.recursions import Markov

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows
    from dask_dca.models.em import Refined
    from dask_dca.models.hmm.expectation import Expected

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = [
    "CategoricalFit",
    "CategoricalSettings",
    "chain_of_counts",
    "emissions_of",
    "fit_categorical",
    "see_symbols",
]

_SAMPLE: Final = (64, 256)  # runs of frames, and their length
_TRIAL: Final = 20  # steps on the sample before starts are compared
_PIECE: Final = (128, 128)  # frames of a piece, and the burn-in
_SCARCE: Final = 1e-10  # of a transition, so that none is impossible


@dataclass(frozen=True)
class CategoricalSettings:
    """Checked parameters."""

    n_symbols: int
    n_starts: int
    max_iter: int
    tol: float
    seed: int


@dataclass(frozen=True)
class CategoricalFit:
    """A chain after Baum-Welch, the anchor symbols, and the likelihoods that starts reached on the sample."""

    refined: Refined[SymbolChain, Expected]
    anchors: Numbers
    start_scores: list[float]


def fit_categorical(rows: Rows, edges: Numbers, k: int, settings: CategoricalSettings, run: Run) -> CategoricalFit:
    """Fit a hidden Markov model of symbols: from anchors, and from random starts beside them."""
    v = settings.n_symbols
    pairs = count_pairs(rows, edges, v, run)
    anchored, anchors = anchored_chain(pairs, k)
    rng = np.random.default_rng(settings.seed)
    counts = (pairs.sum(axis=0) + pairs.sum(axis=1)).astype(np.float64)
    starts = [anchored, *(random_chain(counts, k, rng) for _ in range(settings.n_starts - 1))]
    start, scores = _best(rows, edges, starts, settings, run)
    refined = _refine(rows, edges, start, v, settings.max_iter, settings.tol, run)
    return CategoricalFit(refined, anchors, scores)


def _best(
    rows: Rows, edges: Numbers, starts: list[SymbolChain], settings: CategoricalSettings, run: Run
) -> tuple[SymbolChain, list[float]]:
    """The start that is likeliest after some steps on the sample, and the scores of all, the best first."""
    if len(starts) == 1:
        return starts[0], []
    numbers = spread_rows(rows.n_rows, *_SAMPLE)
    held = hold_rows(rows, numbers, run, _frames)
    own = edges if numbers is None else _ends_of_runs(numbers, edges)
    found = call_each(run, "starts", _tried, held, [(own, start, settings.n_symbols) for start in starts])
    order = sorted(range(len(found)), key=lambda i: -found[i][1])
    best: SymbolChain = found[order[0]][0]
    return best, [found[i][1] for i in order]


def _frames(frames: Floats) -> Floats:
    return frames


def _ends_of_runs(numbers: Numbers, edges: Numbers) -> Numbers:
    """Where runs of successive frames end in the sample, and sequences within them."""
    which = np.searchsorted(edges, numbers, side="right")
    begins = np.flatnonzero((np.diff(numbers) != 1) | (np.diff(which) != 0)) + 1
    return np.concatenate([[0], begins, [len(numbers)]])


def _tried(frames: Floats, edges: Numbers, start: SymbolChain, n_symbols: int) -> tuple[SymbolChain, float]:
    refined = _refine(as_rows(frames), edges, start, n_symbols, _TRIAL, 0.0, Run())
    return refined.model, refined.log_likelihoods[-1]


def _refine(
    rows: Rows, edges: Numbers, start: SymbolChain, n_symbols: int, max_iter: int, tol: float, run: Run
) -> Refined[SymbolChain, Expected]:
    """Baum-Welch over all frames."""

    def _look(chain: SymbolChain) -> tuple[Expected, float]:
        seen = see_symbols(rows, edges, chain, run)
        return seen, seen.log_likelihood / rows.n_rows

    def _step(chain: SymbolChain, seen: Expected) -> SymbolChain:
        del chain
        return chain_of_counts(seen.starts, seen.transitions, emissions_of(seen))

    return expectation_maximisation(start, _look, _step, max_iter=max_iter, tol=tol)


def see_symbols(rows: Rows, edges: Numbers, chain: SymbolChain, run: Run) -> Expected:
    """Run the E-step over all frames."""
    length, burn_in = _PIECE
    layout = lay_out(edges, len(chain.emissions), length, burn_in)
    emission = CategoricalEmission(np.log(chain.emissions))
    return e_step_pass(rows, layout, emission, chain.markov, PlainSymbols(), run)[0]


def emissions_of(seen: Expected) -> Floats:
    """Expected number of each symbol in each state, (k, v)."""
    return seen.moments[seen.k :].reshape(seen.k, -1)


def chain_of_counts(starts: Floats, transitions: Floats, emissions: Floats) -> SymbolChain:
    """Turn expected counts into a chain: the M-step.

    starts (k,), transitions (k, k), emissions (k, v).
    """
    transitions = transitions + _SCARCE
    transmat: Any = transitions / transitions.sum(axis=1, keepdims=True)
    return SymbolChain(Markov(starts / starts.sum(), transmat), least_probability(emissions))
