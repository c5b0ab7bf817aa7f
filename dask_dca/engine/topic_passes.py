"""Passes over documents with given topics: refinement, held-out likelihood, and which top words meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.cooccurrence import documents_of
from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.sparse_rows import counts_of_block
from dask_dca.geometry.exact import plain_total
from dask_dca.kernels.topic_inference import expected_counts, halves, infer_mixtures, mixture_rates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.exact import Total

    Floats = NDArray[np.float64]

__all__ = ["Model", "Refined", "completion_likelihood", "meetings", "mixtures_block", "refine"]

_LOG_UNIT: Final = 2.0**-20
_LEAST_PROBABILITY: Final = 1e-12


@dataclass(frozen=True)
class Model:
    """
    Topics as passes need them.

    Attributes
    ----------
    rates : ndarray of float64, shape (V, k)
        Topics over word probabilities; zero for words that take no part.
    probability : ndarray of float64, shape (V,)
        Word probabilities.
    prior : float
        Pseudo-words of each topic in a document.
    n_steps : int
        Steps of inference for a document.
    """

    rates: Floats
    probability: Floats
    prior: float
    n_steps: int


@dataclass(frozen=True)
class Refined:
    """
    What a pass of EM found.

    Attributes
    ----------
    counts : Total of shape (V, k)
        Expected occurrences of each word in each topic, but for the factor `rates`.
    leading : ndarray of int64, shape (k,)
        Documents in which each topic has the greatest share.
    likelihood : Total of shape ()
        Log-likelihood of all words under the mixtures.
    n_words : Total of shape ()
        How many words these are.
    """

    counts: Total
    leading: NDArray[np.int64]
    likelihood: Total
    n_words: Total

    def __add__(self, other: Refined) -> Refined:
        return Refined(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def refine(rows: Rows, model: Model, run: Run) -> Refined:
    """
    Run one pass of EM: mixtures of all documents, and what they say of the topics.

    Parameters
    ----------
    rows : Rows
        The documents.
    model : Model
        The topics.
    run : Run
        How passes are run.

    Returns
    -------
    Refined
        Sums over documents, exact.
    """
    job: Pass[Refined] = Pass("refine", _refine_block, add_parts)
    return run_pass(rows, job, model, run)


def completion_likelihood(rows: Rows, model: Model, run: Run) -> tuple[float, float]:
    """
    Score documents by completion: the mixture is inferred from half of the words, the others are scored.

    Parameters
    ----------
    rows : Rows
        The documents.
    model : Model
        The topics.
    run : Run
        How passes are run.

    Returns
    -------
    likelihood : float
        Log-likelihood of all words scored.
    n_words : float
        How many these are.
    """
    job: Pass[tuple[Total, Total]] = Pass("score", _score_block, add_parts)
    likelihood, n_words = run_pass(rows, job, model, run)
    return float(likelihood.value()), float(n_words.value())


def meetings(rows: Rows, words: NDArray[np.int64], run: Run) -> tuple[Floats, int]:
    """
    Count in how many documents words meet.

    Parameters
    ----------
    rows : Rows
        The documents.
    words : ndarray of int64, shape (t,)
        Which words.
    run : Run
        How passes are run.

    Returns
    -------
    counts : ndarray of float64, shape (t, t)
        Documents with both words; on the diagonal, with the word.
    n_documents : int
        Documents that are not empty.
    """
    job: Pass[tuple[Any, Any]] = Pass("meet", _meetings_block, add_parts)
    counts, n_documents = run_pass(rows, job, words, run)
    return counts, int(n_documents)


def mixtures_block(model: Model, start: int, *columns: Any) -> Floats:
    """
    Infer the mixtures of a block, for `map_rows`.

    Parameters
    ----------
    model : Model
        The topics.
    start : int
        Row number of the block's first row.
    *columns : ndarray or sparse matrix or array, each of shape (n, p_j)
        The block's column chunks.

    Returns
    -------
    ndarray of float64, shape (n, k)
        Rows on the simplex.
    """
    counts = documents_of(columns, start).counts
    return infer_mixtures(counts, model.rates, model.prior, model.n_steps)


def _refine_block(model: Model, start: int, *columns: Any) -> Refined:
    counts = documents_of(columns, start).counts
    theta = infer_mixtures(counts, model.rates, model.prior, model.n_steps)
    mixed = mixture_rates(counts, model.rates, theta)
    there = np.diff(counts.indptr) > 0
    leading = np.bincount(theta[there].argmax(axis=1), minlength=theta.shape[1])
    likelihood, n_words = _likelihood(counts, mixed, model)
    return Refined(expected_counts(counts, theta, mixed), leading, likelihood, n_words)


def _score_block(model: Model, start: int, *columns: Any) -> tuple[Total, Total]:
    counts = documents_of(columns, start).counts
    known = model.probability > 0.0
    if not known.all():
        counts = counts.multiply(known[None, :]).tocsr()
        counts.eliminate_zeros()
    seen, hidden = halves(counts)
    theta = infer_mixtures(seen, model.rates, model.prior, model.n_steps)
    return _likelihood(hidden, mixture_rates(hidden, model.rates, theta), model)


def _likelihood(counts: Any, mixed: Floats, model: Model) -> tuple[Total, Total]:
    """Log-likelihood of the entries whose words the model knows, and their number."""
    probability = model.probability[counts.indices]
    known = probability > 0.0
    logs = counts.data[known] * np.log(np.maximum(mixed[known] * probability[known], _LEAST_PROBABILITY))
    return plain_total(logs, _LOG_UNIT), plain_total(counts.data[known], _LOG_UNIT)


def _meetings_block(words: NDArray[np.int64], start: int, *columns: Any) -> tuple[Floats, int]:
    rows = counts_of_block(columns, start)
    present = rows[:, words]
    present.data = np.ones_like(present.data)
    return (present.T @ present).toarray(), int((np.diff(rows.indptr) > 0).sum())
