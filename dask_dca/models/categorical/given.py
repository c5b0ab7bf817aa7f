"""The recipe for symbols where the user says where to start: plain steps of Baum-Welch with exact messages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.errors import InvalidParameterError
from dask_dca.models.categorical.anchors import SymbolChain
from dask_dca.models.categorical.fit import CategoricalFit, fit_categorical
from dask_dca.models.categorical.passes import CategoricalEmission
from dask_dca.models.em import expectation_maximisation
from dask_dca.models.hmm.decoding import Decoder
from dask_dca.models.hmm.exact import exact_e_step
from dask_dca.models.hmm.given import require_likelihood
from dask_dca.models.hmm.parameters import check_chain
from dask_dca.models.hmm.plain import likeliest_chain, mean_times
from dask_dca.models.hmm.recursions import Markov, safe_log
from dask_dca.models.starting import one_of_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.categorical.fit import CategoricalSettings
    from dask_dca.models.hmm.expectation import Expected

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["check_symbols", "fit_symbols_from_start"]

_ROUNDING: Final = 1e-6
_LONGEST: Final = 10_000  # steps of a chain by which states are put in order


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

    def _look(chain: SymbolChain) -> tuple[Expected, float]:
        emission = CategoricalEmission(safe_log(chain.emissions))
        seen, _ = exact_e_step(Decoder(rows, edges, emission, chain.markov, 0, run), emission, np.ascontiguousarray)
        require_likelihood(seen.log_likelihood)
        return seen, seen.log_likelihood / rows.n_rows

    def _step(chain: SymbolChain, seen: Expected) -> SymbolChain:
        markov = likeliest_chain(seen.starts, seen.transitions, chain.markov, learnt)
        return SymbolChain(markov, _likeliest_symbols(seen, chain.emissions) if "e" in learnt else chain.emissions)

    refined = expectation_maximisation(start, _look, _step, max_iter=settings.max_iter, tol=settings.tol)
    return CategoricalFit(refined, np.zeros(0, dtype=np.int64), [])


def _likeliest_symbols(seen: Expected, before: Floats) -> Floats:
    """Probabilities from expected counts; a state without frames keeps what it had."""
    counts = seen.moments[len(before) :].reshape(before.shape)
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0.0, counts / np.where(total > 0.0, total, 1.0), before)


def _completed(
    rows: Rows, edges: Numbers, k: int, given: Mapping[str, Floats], settings: CategoricalSettings, run: Run
) -> SymbolChain:
    """A whole start: a uniform chain where none is given; symbols from anchors, their states in the order of time."""
    if "emissionprob_" in given:
        markov: Any = Markov(np.full(k, 1.0 / k), np.full((k, k), 1.0 / k))
        emissions = check_symbols(one_of_shapes("emissionprob", given["emissionprob_"], (k, settings.n_symbols)))
    else:
        base = fit_categorical(rows, edges, k, replace(settings, max_iter=0), run).refined.model
        order = np.argsort(mean_times(base.markov, min(int(np.diff(edges).mean()) + 1, _LONGEST)), kind="stable")
        markov = Markov(base.markov.startprob[order], base.markov.transmat[np.ix_(order, order)])
        emissions = base.emissions[order]
    chain = check_chain(given.get("startprob_", markov.startprob), given.get("transmat_", markov.transmat), k)
    return SymbolChain(Markov(*chain), emissions)


def check_symbols(values: Floats) -> Floats:
    """Check probabilities of symbols.

    values (k, v). Returns the same, their sums exactly one.
    Raises InvalidParameterError: negative, or rows that do not sum to one.
    """
    if values.ndim != 2 or not (values >= 0.0).all() or np.abs(values.sum(axis=1) - 1.0).max() > _ROUNDING:
        msg = f"emissionprob_ must hold a row of probabilities per state; received an array of shape {values.shape}"
        raise InvalidParameterError(msg)
    found: Floats = values / values.sum(axis=1, keepdims=True)
    return found
