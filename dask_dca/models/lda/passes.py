"""Passes over documents with given topics, passes over words, and the spectrum of their co-occurrence.

Words are points that the driver holds, a matrix of words x topics. On a cluster it goes to the workers past the
scheduler, and a task takes the words of its own block.

Where the documents are a sample that the workers hold, all of it is one graph: blocks of words x topics stay on the
workers between products, and only the eigenvectors asked for come back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.computing import compute_delayed, compute_with_state, task_threads
from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.passes import Pass, plane_groups, run_pass, step
from dask_dca.engine.rows import as_rows
from dask_dca.engine.tiles import counts_of_block
from dask_dca.engine.types import Groups, Summed, add_parts, stack_parts
from dask_dca.geometry.exact import Workspace
from dask_dca.geometry.simplex import SLAB_ROWS, simplex_descent
from dask_dca.geometry.votes import ArgBest, VoteHistogram, extremes, merge_histograms, votes_of_extremes
from dask_dca.models.lda.corpus import Products, documents_of, product_pass
from dask_dca.models.lda.documents import (
    LearntFrom,
    damped_counts,
    document_keys,
    entry_slices,
    entry_values,
    expected_counts,
    halves,
    mixture_rates,
    mixtures_and_rates,
    with_data,
)
from dask_dca.models.lda.topics import affinities, block_krylov, burstiness_sums, word_directions, word_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from scipy import sparse

    from dask_dca.engine.passes import PlaneGroup, Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.models.lda.corpus import Columns, Cooccurrence
    from dask_dca.models.lda.topics import WordPoints

    Reals = NDArray[np.floating]

_LOG_STEPS: Final = 2.0**20  # logarithms are added in whole numbers of 2**-20,
_COUNT_STEPS: Final = 2.0**13  # counts in such of 2**-13
_UNSEEN: Final = 0.03  # of the corpus that topics are mixed with to score documents that take no part
_LEAST_RATE: Final = 2.0**-30  # of a word in a document, relative to the corpus
EVERYTHING: Final = ("counts", "likelihood", "completion")  # that a pass of EM tells


@dataclass(frozen=True)
class TopicModel:
    """Topics as passes need them.

    rates (V, k): topics over word probabilities; zero for words that take no part. Mixtures are inferred in their
    dtype; probability (V,): word probabilities; prior: pseudo-words of each topic in a document; powers: steps of
    inference for a document, as `mixtures_and_rates` takes them; longest: documents beyond this length count for an
    eighth of it, in passes of EM; held: share of the documents that take no part in these, but are scored; damped:
    whether the others count by `damped_counts`; learnt: what topics have of these, if anything.
    """

    rates: Reals
    probability: Floats
    prior: float
    powers: tuple[float, ...]
    longest: float = np.inf
    held: float = 0.0
    damped: bool = False
    learnt: LearntFrom | None = None


@dataclass(frozen=True)
class TopicCounts(Summed):
    """What a pass of EM found.

    counts (V, k): from `expected_counts`: except for the factor `rates`, and scaled; likelihood: log-likelihood of all
    words under the mixtures, in steps of 2**-20; n_words: how many words these are, in steps of 2**-13; completion,
    n_completed: the same of the hidden words of documents that took no part.
    """

    counts: Numbers
    likelihood: int
    n_words: int
    completion: int = 0
    n_completed: int = 0

    @property
    def mean(self) -> float:
        """Log-likelihood per word.

        Returns zero if there are no words.
        """
        return _mean(self.likelihood, self.n_words)

    @property
    def held_out(self) -> float:
        """Log-likelihood per hidden word of the documents that took no part; of all others, if there is none."""
        return _mean(self.completion, self.n_completed) if self.n_completed else self.mean


def burstiness(rows: Rows, model: TopicModel, topics: Floats, share: float, run: Run) -> float:
    """Compare pairs of a word with itself in documents with what their mixtures make expect.

    model, topics (V, k): the same topics; share: of the documents that are looked at, by their words. Returns the
    ratio: one where documents are drawn from the model, more where words come in bursts; zero where no document holds
    whole numbers.
    """
    job: Pass[tuple[int, int]] = Pass("bursts", _bursts_block, add_parts, weighted=True)
    with one_blas_thread():
        state = model, affinities(topics), share
    seen, expected = run_pass(rows, job, state, run)
    return seen / expected if expected else 0.0


def refine(rows: Rows, model: TopicModel, scales: Floats, run: Run, wanted: Sequence[str] = EVERYTHING) -> TopicCounts:
    """Run one pass of EM: mixtures of all documents, and what they say of the topics.

    scales (V,): from `count_scales`; wanted: which of `EVERYTHING` is looked for; the rest is empty.
    """
    job: Pass[TopicCounts] = Pass("refine", _refine_block, add_parts, weighted=True)
    return run_pass(rows, job, (model, scales, tuple(wanted)), run)


def completion_likelihood(rows: Rows, model: TopicModel, run: Run) -> tuple[float, int]:
    """Score documents by completion: the mixture is inferred from half of the words, the others are scored.

    Returns likelihood: log-likelihood of the words scored, a word; n_words: how many these are, in steps of 2**-13.
    """
    job: Pass[tuple[int, int]] = Pass("score", _score_block, add_parts)
    likelihood, n_words = run_pass(rows, job, model, run)
    return _mean(likelihood, n_words), n_words


def meetings(rows: Rows, words: Numbers, run: Run) -> tuple[Floats, int]:
    """Count in how many documents words meet.

    words (t,): which words. Returns counts (t, t): documents with both words; on the diagonal, with the word;
    n_documents: documents that are not empty.
    """
    job: Pass[tuple[Any, Any]] = Pass("meet", _meetings_block, add_parts)
    counts, n_documents = run_pass(rows, job, words, run)
    return counts, int(n_documents)


def mixtures_block(model: TopicModel, start: int, *columns: Any) -> Floats:
    """Infer the mixtures of a block, for `map_rows`.

    start: row number of the block's first row; *columns (n, p_j): the block's column chunks. Returns (n, k): rows on
    the simplex.
    """
    counts = documents_of(columns, start).counts
    return np.asarray(mixtures_and_rates(counts, model.rates, model.prior, model.powers)[0], dtype=np.float64)


def amounts_block(model: TopicModel, start: int, *columns: Any) -> Floats:
    """Infer how many words of each topic the documents of a block hold, the prior's among them, for `map_rows`.

    As `mixtures_block`; returns (n, k).
    """
    counts = documents_of(columns, start).counts
    known, k = model.rates.any(axis=1), model.rates.shape[1]
    words = np.asarray(counts @ known.astype(np.float64)) + k * model.prior
    return mixtures_block(model, start, *columns) * words[:, None]


def _refine_block(
    state: tuple[TopicModel, Floats, tuple[str, ...]], start: int, *columns: Any, weights: Floats | None = None
) -> TopicCounts:
    (model, scales, wanted), space = state, Workspace()
    documents = documents_of(columns, start, model.longest, weights)
    counts, weights = documents.counts, documents.weights
    found, own, told, completed = np.zeros(0, dtype=np.int64), None, (0, 0), (0, 0)
    if model.held:
        held = document_keys(counts, space) < model.held
        if "completion" in wanted:
            completed = held_out_sums(counts[held], model, weights=weights[held])
        weights, own = np.where(held, 0.0, weights), ~held
    words = damped_counts(counts) if model.damped else counts
    theta, mixed = mixtures_and_rates(words, model.rates, model.prior, model.powers, None, own, model.learnt)
    if "likelihood" in wanted:
        told = _likelihood(counts, mixed, model, weights, space)
    if "counts" in wanted:
        found = expected_counts(words, theta, mixed, scales, weights, space)
    return TopicCounts(found, *told, *completed)


def _bursts_block(
    state: tuple[TopicModel, Floats, float], start: int, *columns: Any, weights: Floats | None = None
) -> tuple[int, int]:
    model, same, share = state
    documents = documents_of(columns, start, model.longest, weights)
    told = ~documents.scaled & (share >= 1.0 or document_keys(documents.counts) < share)
    counts = documents.counts[told]
    theta, _ = mixtures_and_rates(counts, model.rates, model.prior, model.powers)
    sums = burstiness_sums(counts, documents.lengths[told], theta, same)
    seen, expected = (_whole_sum(np.rint(part * documents.weights[told])) for part in sums)
    return seen, expected


def held_out_sums(
    counts: sparse.csr_array, model: TopicModel, split: Any = halves, weights: Floats | None = None
) -> tuple[int, int]:
    """Score documents by completion while topics are still made by long steps, which leave them too sharp.

    counts (n, V): documents that took no part; split: `halves` or `token_halves`; weights (n,): how often they count.
    Returns log-likelihood of the hidden words, and their number, as in `TopicCounts`.
    """
    smooth = model.rates * model.rates.dtype.type(1.0 - _UNSEEN)
    np.add(smooth, smooth.dtype.type(_UNSEEN), out=smooth, where=smooth > 0.0)
    often = np.ones(counts.shape[0]) if weights is None else weights
    return _completion(counts, replace(model, rates=smooth), often, split)


def _score_block(model: TopicModel, start: int, *columns: Any) -> tuple[int, int]:
    documents = documents_of(columns, start)
    return _completion(documents.counts, model, documents.weights)


def _completion(counts: Any, model: TopicModel, weights: Floats, split: Any = halves) -> tuple[int, int]:
    """Log-likelihood of the hidden half of documents' words by the mixtures of the others, and their number."""
    known = model.probability > 0.0
    if not known.all() and not known[counts.indices].all():
        counts = counts.multiply(known[None, :]).tocsr()
        counts.eliminate_zeros()
    seen, hidden = split(counts)
    theta, _ = mixtures_and_rates(seen, model.rates, model.prior, model.powers)
    return _likelihood(hidden, mixture_rates(hidden, model.rates, theta), model, weights)


def _likelihood(
    counts: Any, mixed: Reals, model: TopicModel, weights: Floats, space: Workspace | None = None
) -> tuple[int, int]:
    """Log-likelihood of the entries whose words the model knows, and their number, in whole steps of each document."""
    known = model.probability > 0.0
    values, log_probability = entry_values(counts, space), np.log(np.where(known, model.probability, 1.0))
    for part in entry_slices(counts.nnz):
        np.log(np.maximum(mixed[part], _LEAST_RATE), out=values[part])
        values[part] *= counts.data[part]
        if not known.all():
            values[part] *= known[counts.indices[part]]
    logs = with_data(counts, values)
    likelihood = np.rint((logs @ np.ones(len(known)) + counts @ log_probability) * _LOG_STEPS)
    n_words = np.floor(counts @ known.astype(np.float64) * _COUNT_STEPS)
    return _whole_sum(np.rint(likelihood * weights)), _whole_sum(np.floor(n_words * weights))


def _whole_sum(values: Reals) -> int:
    """Sum of whole numbers below 2**63, which itself may be beyond."""
    whole = values.astype(np.int64)
    return (int((whole >> 32).sum()) << 32) + int((whole & 0xFFFFFFFF).sum())


def _mean(likelihood: int, n_words: int) -> float:
    return likelihood / _LOG_STEPS / (n_words / _COUNT_STEPS) if n_words else 0.0


def _meetings_block(words: Numbers, start: int, *columns: Any) -> tuple[Floats, int]:
    rows = counts_of_block(columns, start)
    present = rows[:, words]
    present.data = np.ones_like(present.data)
    return (present.T @ present).toarray(), int((np.diff(rows.indptr) > 0).sum())


@dataclass(frozen=True)
class Words:
    """The words of some documents, in blocks: one for documents in memory, else as many as there are threads."""

    n_words: int
    run: Run
    in_memory: bool = True

    @cached_property
    def rows(self) -> Rows:
        """The words' numbers as a matrix of one column.

        Returns cut where whole slabs of `simplex_descent` end.
        """
        if self.in_memory:
            return as_rows(np.arange(self.n_words)[:, None])
        import dask.array as da

        n_slabs = -(-self.n_words // SLAB_ROWS)
        return as_rows(da.arange(self.n_words, chunks=SLAB_ROWS * -(-n_slabs // task_threads()))[:, None])

    def votes(
        self, points: WordPoints, values: Floats, n_planes: int, seed: int, *, n_groups: int | None = None
    ) -> VoteHistogram:
        """Let extreme words vote: the divide and the conquer step.

        A task is a block of words with a group of directions. All that decides is exact, so that the result is the same
        for any number of either.
        values (k,): the eigenvalues, as for `word_points`; n_groups: number of groups of directions; where there are
        fewer blocks than threads, as many as fill these.
        """
        state = _Planes(word_places(points), values, n_planes, seed)
        groups = plane_groups(self.rows, n_planes, n_groups)
        job: Pass[Any] = Pass("divide", _divide_block, add_parts, groups=Groups(groups, _count_votes, merge_histograms))
        found: VoteHistogram = run_pass(self.rows, job, state, self.run)
        return found

    def mixtures(self, targets: Floats, vertices: Floats, start: Floats | None, n_steps: int) -> Floats:
        """Do `simplex_descent` on all words.

        Returns (V, k): what it returns.
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


def _divide_block(group: PlaneGroup, shared: Any, state: _Planes, start: int, *columns: Any) -> ArgBest:
    del shared
    own = slice(start, start + len(columns[0]))
    directions = word_directions(state.seed, group.range_of(state.count), state.values)
    return extremes(state.places[own], np.arange(own.start, own.stop), directions)


def _count_votes(group: PlaneGroup, found: ArgBest) -> VoteHistogram:
    del group
    return votes_of_extremes(found, len(found.rows) // 2)


def _mixtures_block(state: tuple[Floats, Floats, NDArray[np.float32] | None, int], start: int, *columns: Any) -> Floats:
    targets, vertices, single, n_steps = state
    own = slice(start, start + len(columns[0]))
    begin = None if single is None else single[own].astype(np.float64)
    return simplex_descent(targets[own], vertices, begin, n_steps)


@dataclass(frozen=True)
class _Scaled:
    """What products of the scaled co-occurrence need besides the documents."""

    products: Products
    scale: Floats  # (V, 1)

    def columns(self, block: Floats) -> Columns:
        return self.products.columns(self.scale * block)

    def product(self, block: Floats, sums: Floats) -> Floats:
        return self.scale * self.products.finished(self.scale * block, sums)


def leading_pairs(operator: Cooccurrence, scale: Floats, width: int, most: int, seed: int) -> tuple[Floats, Floats]:
    """Find eigenpairs of diag(h) Q diag(h) by a block Krylov space.

    scale (V,): in the method's description h; seed: seed of the first block. Returns values (m,): eigenvalues, the
    greatest first; vectors (V, min(m, most)): the first eigenvectors.
    """
    scaled, rows, run = _Scaled(operator.products, scale[:, None]), operator.rows, operator.run
    if not operator.kept:
        return _pairs(rows, scaled, width, most, seed, run)

    def compute(held: Any) -> Any:
        return compute_delayed(_pairs(rows, held, width, most, seed, replace(run, lazy=True)), "spectrum", run)

    return compute_with_state(scaled, compute, rows.source, "spectrum", run)


def _pairs(rows: Rows, scaled: _Scaled, width: int, most: int, seed: int, run: Run) -> Any:
    """Find the pairs now, or as a graph in a lazy run: then `scaled` may have been sent before."""

    def multiply(block: Floats) -> Floats:
        state = step(run, "columns", _Scaled.columns, scaled, block)
        return step(run, "product", _Scaled.product, scaled, block, run_pass(rows, product_pass(), state, run))

    do = partial(step, run, "krylov")
    return block_krylov(multiply, rows.n_features, width, seed, most=most, do=do)
