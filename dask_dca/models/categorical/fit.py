"""The fit of a categorical HMM: counts of pairs, anchor symbols or a given start, and Baum-Welch over all frames.

The rows of P(next symbol | symbol) and P(previous symbol | symbol) are mixtures of k rows, one per state, with the
probabilities of the states given the symbol as weights. A symbol that only one state emits is an anchor, whose row is
that of the state: X = F X_A.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dask_dca.engine.graphs import identity
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import call_each, hold_rows, spread_rows
from dask_dca.engine.sequences import run_edges
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.simplex import simplex_descent
from dask_dca.geometry.solvers import successive_projection
from dask_dca.models.categorical.passes import CategoricalEmission, PlainSymbols, count_pairs
from dask_dca.models.em import Refined, check_distribution, check_shape, expectation_maximisation
from dask_dca.models.hmm.decoding import Decoder
from dask_dca.models.hmm.expectation import ExpectedCounts, lay_out
from dask_dca.models.hmm.given import chain_of_start, order_by_time, permuted_chain, uniform_chain
from dask_dca.models.hmm.model import maximum_likelihood_chain
from dask_dca.models.hmm.passes import e_step_pass, exact_e_step
from dask_dca.models.hmm.recursions import Markov, safe_log

_SAMPLE_RUNS: Final = (64, 256)  # number and length of the runs of frames of the sample
_TRIAL_STEPS: Final = 20  # EM steps on the sample before starts are compared
_PIECE_LAYOUT: Final = (128, 128)  # length and burn-in of a piece, in frames
_MIN_TRANSITIONS: Final = 1e-10  # pseudo-count of each transition, so that none is impossible
_MIN_PROBABILITY: Final = 1e-10  # minimum probability of a symbol in a state
_CONCENTRATION: Final = 0.5  # shape parameter of the random emission probabilities of random starts


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
    """A hidden Markov model of symbols: its chain, and emission probabilities (k, v)."""

    markov: Markov
    emissions: Floats


@dataclass(frozen=True)
class CategoricalFit:
    """The fitted chain, the anchor symbols, and the log likelihoods per frame of the starts on the sample."""

    refined: Refined[SymbolChain, ExpectedCounts]
    anchors: Numbers
    start_scores: list[float]


def fit_categorical(rows: Rows, edges: Numbers, k: int, settings: CategoricalSettings, run: Run) -> CategoricalFit:
    """Fit a hidden Markov model of symbols, from anchors and from random starts."""
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
    start, scores = _best_start(rows, edges, starts, run)
    refined = _refine(rows, edges, start, settings.max_iter, settings.tol, run)
    return CategoricalFit(refined, anchors, scores)


def _best_start(rows: Rows, edges: Numbers, starts: list[SymbolChain], run: Run) -> tuple[SymbolChain, list[float]]:
    """Choose the start of highest likelihood after EM on the sample; returns it, and all scores, best first."""
    if len(starts) == 1:
        return starts[0], []
    numbers = spread_rows(rows.n_rows, *_SAMPLE_RUNS)
    held = hold_rows(rows, numbers, run, identity)
    own = run_edges(numbers, edges)
    found = call_each(run, "starts", _run_trial, held, [(own, start) for start in starts])
    order = sorted(range(len(found)), key=lambda i: -found[i][1])
    best: SymbolChain = found[order[0]][0]
    return best, [found[i][1] for i in order]


def _run_trial(frames: Floats, edges: Numbers, start: SymbolChain) -> tuple[SymbolChain, float]:
    refined = _refine(as_rows(frames), edges, start, _TRIAL_STEPS, 0.0, Run())
    return refined.model, refined.log_likelihoods[-1]


def _refine(
    rows: Rows, edges: Numbers, start: SymbolChain, max_iter: int, tol: float, run: Run
) -> Refined[SymbolChain, ExpectedCounts]:
    """Run Baum-Welch over all frames."""

    def _e_step(chain: SymbolChain) -> tuple[ExpectedCounts, float]:
        seen = symbol_e_step(rows, edges, chain, run)
        return seen, seen.log_likelihood / rows.n_rows

    def _m_step(_: SymbolChain, seen: ExpectedCounts) -> SymbolChain:
        return symbol_m_step(seen.starts, seen.transitions, symbol_counts(seen))

    return expectation_maximisation(start, _e_step, _m_step, max_iter=max_iter, tol=tol)


def symbol_e_step(rows: Rows, edges: Numbers, chain: SymbolChain, run: Run) -> ExpectedCounts:
    """Run the E-step over all frames."""
    length, burn_in = _PIECE_LAYOUT
    layout = lay_out(edges, len(chain.emissions), length, burn_in)
    emission = CategoricalEmission(np.log(chain.emissions))
    return e_step_pass(rows, layout, emission, chain.markov, PlainSymbols(), run)[0]


def symbol_counts(seen: ExpectedCounts) -> Floats:
    """Expected number of each symbol in each state, (k, v)."""
    return seen.moments[seen.k :].reshape(seen.k, -1)


def symbol_m_step(starts: Floats, transitions: Floats, emissions: Floats) -> SymbolChain:
    """Run the M-step on expected counts: starts (k,), transitions (k, k), emissions (k, v)."""
    transitions = transitions + _MIN_TRANSITIONS
    transmat: Any = transitions / transitions.sum(axis=1, keepdims=True)
    return SymbolChain(Markov(starts / starts.sum(), transmat), floored_probabilities(emissions))


def fit_symbols_from_start(
    rows: Rows,
    edges: Numbers,
    k: int,
    given: Mapping[str, Floats],
    settings: CategoricalSettings,
    learnt: str,
    run: Run,
) -> CategoricalFit:
    """Run EM from given parameters.

    edges (m + 1,): ends of sequences; given: parameters by the names of attributes; the others are derived from the
    data; learnt: letters of the parameters that are learnt.
    """
    start = _starting_chain(rows, edges, k, given, settings, run)

    def _e_step(chain: SymbolChain) -> tuple[ExpectedCounts, float]:
        emission = CategoricalEmission(safe_log(chain.emissions))
        seen, _ = exact_e_step(Decoder(rows, edges, emission, chain.markov, 0, run), emission, np.ascontiguousarray)
        return seen, seen.log_likelihood / rows.n_rows

    def _m_step(chain: SymbolChain, seen: ExpectedCounts) -> SymbolChain:
        markov = maximum_likelihood_chain(seen.starts, seen.transitions, chain.markov, learnt)
        return SymbolChain(markov, _estimate_symbols(seen, chain.emissions) if "e" in learnt else chain.emissions)

    refined = expectation_maximisation(start, _e_step, _m_step, max_iter=settings.max_iter, tol=settings.tol)
    return CategoricalFit(refined, np.zeros(0, dtype=np.int64), [])


def _estimate_symbols(seen: ExpectedCounts, before: Floats) -> Floats:
    """Estimate emission probabilities from expected counts; empty states keep theirs."""
    counts = symbol_counts(seen)
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0.0, counts / np.where(total > 0.0, total, 1.0), before)


def _starting_chain(
    rows: Rows, edges: Numbers, k: int, given: Mapping[str, Floats], settings: CategoricalSettings, run: Run
) -> SymbolChain:
    """Complete given parameters: given emissions with a uniform chain; else from an anchored fit, ordered in time."""
    if "emissionprob_" in given:
        markov = uniform_chain(k)
        emissions = check_symbols(check_shape("emissionprob", given["emissionprob_"], (k, settings.n_symbols)))
    else:
        base = fit_categorical(rows, edges, k, replace(settings, max_iter=0), run).refined.model
        order = order_by_time(base.markov, edges)
        markov, emissions = permuted_chain(base.markov, order), base.emissions[order]
    return SymbolChain(chain_of_start(given, markov), emissions)


def check_symbols(values: Floats) -> Floats:
    """Check emission probabilities (k, v), and normalise them.

    Raises InvalidParameterError: no matrix, negative, or rows that do not sum to one.
    """
    if values.ndim != 2:
        msg = f"emissionprob_ must hold a row of probabilities per state; received an array of shape {values.shape}"
        raise InvalidParameterError(msg)
    return check_distribution("emissionprob_", values)


# --- anchor symbols ---


def anchored_chain(pairs: Numbers, n_states: int) -> tuple[SymbolChain, Numbers]:
    """Find anchor symbols, and the chain that follows from them.

    pairs (v, v): counts. Returns the chain, and the anchors, at most k symbols.
    """
    counts = pairs.sum(axis=0) + pairs.sum(axis=1)
    places = _symbol_coordinates(pairs, n_states)
    seen = np.flatnonzero(counts > 0)
    lifted = np.hstack([np.ones((len(seen), 1)), places[seen]])
    chosen = successive_projection(lifted, min(n_states, len(seen)))
    states = np.zeros((len(pairs), n_states))  # P(state | symbol)
    states[seen[:, None], np.arange(len(chosen))] = simplex_descent(places[seen], places[seen[chosen]])
    states[:, len(chosen) :] = 1.0 / n_states  # states without an anchor
    states /= np.maximum(states.sum(axis=1, keepdims=True), 1e-300)
    return _chain_of_posteriors(states, counts.astype(np.float64), pairs), seen[chosen]


def _symbol_coordinates(pairs: Numbers, n_states: int) -> Floats:
    """Coordinates of symbols by correspondence analysis of their neighbours, shrunk for rare symbols."""
    both = np.hstack([pairs, pairs.T]).astype(np.float64)
    total = both.sum()
    share, context = both.sum(axis=1) / total, both.sum(axis=0) / total
    left = 1.0 / np.sqrt(np.maximum(share, 1.0 / total))
    right = 1.0 / np.sqrt(np.maximum(context, 1.0 / total))
    scaled = (both / total - np.outer(share, context)) * left[:, None] * right
    U, values, _ = np.linalg.svd(scaled, full_matrices=False)
    kept = max(1, n_states - 1)
    expected = np.count_nonzero(context) / total  # expected squared norm of a row by sampling noise, times its share
    places = U[:, :kept] * values[:kept] * left[:, None]
    energy = (places**2).sum(axis=1)
    noise = expected / np.maximum(share, 1.0 / total)
    return places * (energy / (energy + noise))[:, None]


def _chain_of_posteriors(states: Floats, counts: Floats, pairs: Numbers) -> SymbolChain:
    """Compute a chain from P(state | symbol): emissions by Bayes' rule, and transitions from pairs of states."""
    joint = states * counts[:, None]
    between = states.T @ pairs @ states + 1.0 / len(states)
    start = joint.sum(axis=0) + 1.0
    return SymbolChain(
        Markov(start / start.sum(), between / between.sum(axis=1, keepdims=True)), floored_probabilities(joint.T)
    )


def random_chain(counts: Floats, n_states: int, rng: np.random.Generator) -> SymbolChain:
    """Draw a random chain, with emissions around the shares of symbols."""
    share = (counts + 1.0) / (counts + 1.0).sum()
    emissions = share * rng.gamma(_CONCENTRATION, size=(n_states, len(share)))
    transmat = 0.5 * np.eye(n_states) + 0.5 * rng.dirichlet(np.ones(n_states), n_states)
    return SymbolChain(Markov(np.full(n_states, 1.0 / n_states), transmat), floored_probabilities(emissions))


def floored_probabilities(expected: Floats) -> Floats:
    """Normalise expected counts (k, v) to positive probabilities."""
    total = np.maximum(expected.sum(axis=1, keepdims=True), 1e-300)
    found = np.maximum(expected / total, _MIN_PROBABILITY)
    return found / found.sum(axis=1, keepdims=True)
