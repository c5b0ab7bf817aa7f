"""Anchor symbols: those that one state alone emits, and a chain from how often symbols follow each other.

The rows of P(next symbol | symbol) and P(last symbol | symbol) are mixtures of k rows, one per state, by the
probabilities of the states given the symbol; where a state has a symbol of its own, that symbol's row is the state's:
X = F X_A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry.simplex import simplex_descent
from dask_dca.geometry.solvers import successive_projection
from dask_dca.models.hmm.recursions import Markov

if TYPE_CHECKING:
    from dask_dca.geometry.arrays import Floats, Numbers

_LEAST: Final = 1e-10  # probability of a symbol in a state: a symbol that was never seen there is not impossible
_SPREAD: Final = 0.5  # of random starts: Dirichlet parameter of a symbol in a state, over its share


@dataclass(frozen=True)
class SymbolChain:
    """A hidden Markov model of symbols: its chain, and probabilities of symbols (k, v)."""

    markov: Markov
    emissions: Floats


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
