"""The recipe: counts of pairs, anchor symbols or a start that is given, and Baum-Welch over all frames.

The rows of P(next symbol | symbol) and P(last symbol | symbol) are mixtures of k rows, one per state, by the
probabilities of the states given the symbol; where a state has a symbol of its own, that symbol's row is the state's:
X = F X_A.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import call_each, hold_rows, spread_rows
from dask_dca.engine.sequences import run_edges
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.geometry.simplex import simplex_descent
from dask_dca.geometry.solvers import successive_projection
from dask_dca.models.categorical.passes import CategoricalEmission, PlainSymbols, count_pairs
from dask_dca.models.em import check_distribution, check_shape, expectation_maximisation
from dask_dca.models.hmm.decoding import Decoder
from dask_dca.models.hmm.expectation import lay_out
from dask_dca.models.hmm.given import chain_of_start, order_by_time, permuted_chain, uniform_chain
from dask_dca.models.hmm.model import maximum_likelihood_chain
from dask_dca.models.hmm.passes import e_step_pass, exact_e_step
from dask_dca.models.hmm.recursions import Markov, safe_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.models.em import Refined
    from dask_dca.models.hmm.expectation import ExpectedCounts

_SAMPLE: Final = (64, 256)  # runs of frames, and their length
_TRIAL: Final = 20  # steps on the sample before starts are compared
_PIECE: Final = (128, 128)  # frames of a piece, and the burn-in
_SCARCE: Final = 1e-10  # of a transition, so that none is impossible
_LEAST: Final = 1e-10  # probability of a symbol in a state: a symbol that was never seen there is not impossible
_SPREAD: Final = 0.5  # of random starts: Dirichlet parameter of a symbol in a state, over its share


@dataclass(frozen=True)
class CategoricalSettings:
    """Checked parameters."""

    n_symbols: int
    n_starts: int
    max_iter: int
    tol: float
    seed: int


@dataclass(frozen=True)
class SymbolChain:
    """A hidden Markov model of symbols: its chain, and probabilities of symbols (k, v)."""

    markov: Markov
    emissions: Floats


@dataclass(frozen=True)
class CategoricalFit:
    """A chain after Baum-Welch, the anchor symbols, and the likelihoods that starts reached on the sample."""

    refined: Refined[SymbolChain, ExpectedCounts]
    anchors: Numbers
    start_scores: list[float]


def fit_categorical(rows: Rows, edges: Numbers, k: int, settings: CategoricalSettings, run: Run) -> CategoricalFit:
    """Fit a hidden Markov model of symbols: from anchors, and from random starts beside them."""
    v = settings.n_symbols
    pairs = count_pairs(rows, edges, v, run)
    if not pairs.any():
        msg = (
            f"a hidden Markov model is learnt from successive symbols, but no sequence has two of them (n_samples = "
            f"{rows.n_rows}); pass longer sequences"
        )
        raise InvalidInputError(msg)
    anchored, anchors = anchored_chain(pairs, k)
    rng = np.random.default_rng(settings.seed)
    counts = (pairs.sum(axis=0) + pairs.sum(axis=1)).astype(np.float64)
    starts = [anchored, *(random_chain(counts, k, rng) for _ in range(settings.n_starts - 1))]
    start, scores = _best(rows, edges, starts, run)
    refined = _refine(rows, edges, start, settings.max_iter, settings.tol, run)
    return CategoricalFit(refined, anchors, scores)


def _best(rows: Rows, edges: Numbers, starts: list[SymbolChain], run: Run) -> tuple[SymbolChain, list[float]]:
    """The start that is likeliest after some steps on the sample, and the scores of all, the best first."""
    if len(starts) == 1:
        return starts[0], []
    numbers = spread_rows(rows.n_rows, *_SAMPLE)
    held = hold_rows(rows, numbers, run, _frames)
    own = run_edges(numbers, edges)
    found = call_each(run, "starts", _tried, held, [(own, start) for start in starts])
    order = sorted(range(len(found)), key=lambda i: -found[i][1])
    best: SymbolChain = found[order[0]][0]
    return best, [found[i][1] for i in order]


def _frames(frames: Floats) -> Floats:
    return frames


def _tried(frames: Floats, edges: Numbers, start: SymbolChain) -> tuple[SymbolChain, float]:
    refined = _refine(as_rows(frames), edges, start, _TRIAL, 0.0, Run())
    return refined.model, refined.log_likelihoods[-1]


def _refine(
    rows: Rows, edges: Numbers, start: SymbolChain, max_iter: int, tol: float, run: Run
) -> Refined[SymbolChain, ExpectedCounts]:
    """Baum-Welch over all frames."""

    def _look(chain: SymbolChain) -> tuple[ExpectedCounts, float]:
        seen = see_symbols(rows, edges, chain, run)
        return seen, seen.log_likelihood / rows.n_rows

    def _step(_: SymbolChain, seen: ExpectedCounts) -> SymbolChain:
        return chain_of_counts(seen.starts, seen.transitions, emissions_of(seen))

    return expectation_maximisation(start, _look, _step, max_iter=max_iter, tol=tol)


def see_symbols(rows: Rows, edges: Numbers, chain: SymbolChain, run: Run) -> ExpectedCounts:
    """Run the E-step over all frames."""
    length, burn_in = _PIECE
    layout = lay_out(edges, len(chain.emissions), length, burn_in)
    emission = CategoricalEmission(np.log(chain.emissions))
    return e_step_pass(rows, layout, emission, chain.markov, PlainSymbols(), run)[0]


def emissions_of(seen: ExpectedCounts) -> Floats:
    """Expected number of each symbol in each state, (k, v)."""
    return seen.moments[seen.k :].reshape(seen.k, -1)


def chain_of_counts(starts: Floats, transitions: Floats, emissions: Floats) -> SymbolChain:
    """Turn expected counts into a chain: the M-step.

    starts (k,), transitions (k, k), emissions (k, v).
    """
    transitions = transitions + _SCARCE
    transmat: Any = transitions / transitions.sum(axis=1, keepdims=True)
    return SymbolChain(Markov(starts / starts.sum(), transmat), least_probability(emissions))


def fit_symbols_from_start(
    rows: Rows,
    edges: Numbers,
    k: int,
    given: Mapping[str, Floats],
    settings: CategoricalSettings,
    learnt: str,
    run: Run,
) -> CategoricalFit:
    """Learn from a start.

    edges (m + 1,): ends of sequences; given: parameters by the names of attributes; others are made of the data;
    learnt: letters of those that are learnt.
    """
    start = _completed(rows, edges, k, given, settings, run)

    def _look(chain: SymbolChain) -> tuple[ExpectedCounts, float]:
        emission = CategoricalEmission(safe_log(chain.emissions))
        seen, _ = exact_e_step(Decoder(rows, edges, emission, chain.markov, 0, run), emission, np.ascontiguousarray)
        return seen, seen.log_likelihood / rows.n_rows

    def _step(chain: SymbolChain, seen: ExpectedCounts) -> SymbolChain:
        markov = maximum_likelihood_chain(seen.starts, seen.transitions, chain.markov, learnt)
        return SymbolChain(markov, _likeliest_symbols(seen, chain.emissions) if "e" in learnt else chain.emissions)

    refined = expectation_maximisation(start, _look, _step, max_iter=settings.max_iter, tol=settings.tol)
    return CategoricalFit(refined, np.zeros(0, dtype=np.int64), [])


def _likeliest_symbols(seen: ExpectedCounts, before: Floats) -> Floats:
    """Probabilities from expected counts; a state without frames keeps what it had."""
    counts = emissions_of(seen)
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0.0, counts / np.where(total > 0.0, total, 1.0), before)


def _completed(
    rows: Rows, edges: Numbers, k: int, given: Mapping[str, Floats], settings: CategoricalSettings, run: Run
) -> SymbolChain:
    """A whole start: a uniform chain where none is given; symbols from anchors, their states in the order of time."""
    if "emissionprob_" in given:
        markov = uniform_chain(k)
        emissions = check_symbols(check_shape("emissionprob", given["emissionprob_"], (k, settings.n_symbols)))
    else:
        base = fit_categorical(rows, edges, k, replace(settings, max_iter=0), run).refined.model
        order = order_by_time(base.markov, edges)
        markov, emissions = permuted_chain(base.markov, order), base.emissions[order]
    return SymbolChain(chain_of_start(given, markov), emissions)


def check_symbols(values: Floats) -> Floats:
    """Check probabilities of symbols (k, v). Returns the same, their sums exactly one.

    Raises InvalidParameterError: no matrix, negative, or rows that do not sum to one.
    """
    if values.ndim != 2:
        msg = f"emissionprob_ must hold a row of probabilities per state; received an array of shape {values.shape}"
        raise InvalidParameterError(msg)
    return check_distribution("emissionprob_", values)


# --- anchor symbols ---


def anchored_chain(pairs: Numbers, n_states: int) -> tuple[SymbolChain, Numbers]:
    """Find anchor symbols, and the chain that they make.

    pairs (v, v): counts. Returns the anchors, at most k symbols, and the chain.
    """
    counts = pairs.sum(axis=0) + pairs.sum(axis=1)
    places = _places(pairs, n_states)
    seen = np.flatnonzero(counts > 0)
    lifted = np.hstack([np.ones((len(seen), 1)), places[seen]])
    chosen = successive_projection(lifted, min(n_states, len(seen)))
    states = np.zeros((len(pairs), n_states))  # P(state | symbol)
    states[seen[:, None], np.arange(len(chosen))] = simplex_descent(places[seen], places[seen[chosen]])
    states[:, len(chosen) :] = 1.0 / n_states  # states that no symbol stands for
    states /= np.maximum(states.sum(axis=1, keepdims=True), 1e-300)
    return _chain_of(states, counts.astype(np.float64), pairs), seen[chosen]


def _places(pairs: Numbers, n_states: int) -> Floats:
    """Coordinates of symbols by their neighbours, as correspondence analysis has them; those of rare symbols shrunk."""
    both = np.hstack([pairs, pairs.T]).astype(np.float64)
    total = both.sum()
    share, context = both.sum(axis=1) / total, both.sum(axis=0) / total
    left = 1.0 / np.sqrt(np.maximum(share, 1.0 / total))
    right = 1.0 / np.sqrt(np.maximum(context, 1.0 / total))
    scaled = (both / total - np.outer(share, context)) * left[:, None] * right
    U, values, _ = np.linalg.svd(scaled, full_matrices=False)
    kept = max(1, n_states - 1)
    expected = np.count_nonzero(context) / total  # what chance leaves of a row's squared length, over its share
    places = U[:, :kept] * values[:kept] * left[:, None]
    energy = (places**2).sum(axis=1)
    noise = expected / np.maximum(share, 1.0 / total)
    shrunk: Floats = places * (energy / (energy + noise))[:, None]
    return shrunk


def _chain_of(states: Floats, counts: Floats, pairs: Numbers) -> SymbolChain:
    """A chain from P(state | symbol): symbols of a state by Bayes' rule, and pairs of states."""
    joint = states * counts[:, None]
    between = states.T @ pairs @ states + 1.0 / len(states)
    start = joint.sum(axis=0) + 1.0
    return SymbolChain(
        Markov(start / start.sum(), between / between.sum(axis=1, keepdims=True)), least_probability(joint.T)
    )


def random_chain(counts: Floats, n_states: int, rng: np.random.Generator) -> SymbolChain:
    """Draw a chain around the shares of symbols."""
    share = (counts + 1.0) / (counts + 1.0).sum()
    emissions = share * rng.gamma(_SPREAD, size=(n_states, len(share)))
    transmat = 0.5 * np.eye(n_states) + 0.5 * rng.dirichlet(np.ones(n_states), n_states)
    return SymbolChain(Markov(np.full(n_states, 1.0 / n_states), transmat), least_probability(emissions))


def least_probability(expected: Floats) -> Floats:
    """Turn expected counts (k, v) into probabilities, none of them zero."""
    total = np.maximum(expected.sum(axis=1, keepdims=True), 1e-300)
    found = np.maximum(expected / total, _LEAST)
    shares: Floats = found / found.sum(axis=1, keepdims=True)
    return shares
