"""Passes over documents with given topics: refinement, held-out likelihood, and which top words meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.document_census import documents_of
from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.sparse_rows import counts_of_block
from dask_dca.kernels.document_tiles import entry_slices
from dask_dca.kernels.topic_inference import (
    expected_counts,
    halves,
    mixture_rates,
    mixtures_and_rates,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]
    Reals = NDArray[np.floating]

__all__ = ["Model", "Refined", "completion_likelihood", "meetings", "mixtures_block", "refine"]

_LOG_STEPS: Final = 2.0**20  # logarithms are added in whole numbers of 2**-20,
_COUNT_STEPS: Final = 2.0**13  # counts in such of 2**-13
_LEAST_RATE: Final = 2.0**-30  # of a word in a document, relative to the corpus


@dataclass(frozen=True)
class Model:
    """
    Topics as passes need them.

    Attributes
    ----------
    rates : ndarray of float32 or float64, shape (V, k)
        Topics over word probabilities; zero for words that take no part. Mixtures are inferred in their dtype.
    probability : ndarray of float64, shape (V,)
        Word probabilities.
    prior : float
        Pseudo-words of each topic in a document.
    powers : tuple of float
        Steps of inference for a document, as `mixtures_and_rates` takes them.
    longest : float
        Documents beyond this length count for an eighth of it, in passes of EM.
    """

    rates: Reals
    probability: Floats
    prior: float
    powers: tuple[float, ...]
    longest: float = np.inf


@dataclass(frozen=True)
class Refined:
    """
    What a pass of EM found.

    Attributes
    ----------
    counts : ndarray of int64, shape (V, k)
        From `expected_counts`: but for the factor `rates`, and scaled.
    likelihood : int
        Log-likelihood of all words under the mixtures, in steps of 2**-20.
    n_words : int
        How many words these are, in steps of 2**-13.
    """

    counts: NDArray[np.int64]
    likelihood: int
    n_words: int

    def __add__(self, other: Refined) -> Refined:
        return Refined(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def mean(self) -> float:
        """
        Log-likelihood a word.

        Returns
        -------
        float
            Zero if there are no words.
        """
        return _mean(self.likelihood, self.n_words)


def refine(rows: Rows, model: Model, scales: Floats, run: Run) -> Refined:
    """
    Run one pass of EM: mixtures of all documents, and what they say of the topics.

    Parameters
    ----------
    rows : Rows
        The documents.
    model : Model
        The topics.
    scales : ndarray of float64, shape (V,)
        From `count_scales`.
    run : Run
        How passes are run.

    Returns
    -------
    Refined
        Sums over documents, exact.
    """
    job: Pass[Refined] = Pass("refine", _refine_block, add_parts)
    return run_pass(rows, job, (model, scales), run)


def completion_likelihood(rows: Rows, model: Model, run: Run) -> tuple[float, int]:
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
        Log-likelihood of the words scored, a word.
    n_words : int
        How many these are, in steps of 2**-13.
    """
    job: Pass[tuple[int, int]] = Pass("score", _score_block, add_parts)
    likelihood, n_words = run_pass(rows, job, model, run)
    return _mean(likelihood, n_words), n_words


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
    return np.asarray(mixtures_and_rates(counts, model.rates, model.prior, model.powers)[0], dtype=np.float64)


def _refine_block(state: tuple[Model, Floats], start: int, *columns: Any) -> Refined:
    model, scales = state
    counts = documents_of(columns, start, model.longest).counts
    theta, mixed = mixtures_and_rates(counts, model.rates, model.prior, model.powers)
    return Refined(expected_counts(counts, theta, mixed, scales), *_likelihood(counts, mixed, model))


def _score_block(model: Model, start: int, *columns: Any) -> tuple[int, int]:
    counts = documents_of(columns, start).counts
    known = model.probability > 0.0
    if not known.all():
        counts = counts.multiply(known[None, :]).tocsr()
        counts.eliminate_zeros()
    seen, hidden = halves(counts)
    theta, _ = mixtures_and_rates(seen, model.rates, model.prior, model.powers)
    return _likelihood(hidden, mixture_rates(hidden, model.rates, theta), model)


def _likelihood(counts: Any, mixed: Reals, model: Model) -> tuple[int, int]:
    """Log-likelihood of the entries whose words the model knows, and their number, in whole steps."""
    known = model.probability > 0.0
    log_probability = np.log(np.where(known, model.probability, 1.0)).astype(mixed.dtype)
    likelihood, n_words = 0, 0
    for part in entry_slices(counts.nnz):
        words, times = counts.indices[part], counts.data[part]
        if not known.all():
            times = np.where(known[words], times, 0.0)
        logs = np.log(np.maximum(mixed[part], _LEAST_RATE)) + log_probability[words]
        likelihood += _whole_sum(np.rint(logs * (times * _LOG_STEPS)))
        n_words += _whole_sum(np.floor(times * _COUNT_STEPS))
    return likelihood, n_words


def _whole_sum(values: Reals) -> int:
    """Sum of whole numbers below 2**63, which itself may be beyond."""
    whole = values.astype(np.int64)
    return (int((whole >> 32).sum()) << 32) + int((whole & 0xFFFFFFFF).sum())


def _mean(likelihood: int, n_words: int) -> float:
    return likelihood / _LOG_STEPS / (n_words / _COUNT_STEPS) if n_words else 0.0


def _meetings_block(words: NDArray[np.int64], start: int, *columns: Any) -> tuple[Floats, int]:
    rows = counts_of_block(columns, start)
    present = rows[:, words]
    present.data = np.ones_like(present.data)
    return (present.T @ present).toarray(), int((np.diff(rows.indptr) > 0).sum())
