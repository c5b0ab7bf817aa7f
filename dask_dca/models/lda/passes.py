"""Passes over documents with given topics, passes over words, and the spectrum of the words' co-occurrence.

Words are points, a matrix of words x topics that the driver holds. On a cluster it is sent to the workers directly, not
through the scheduler, and a task takes the words of its own block.

If the documents are a sample held by the workers, the spectrum is computed in one graph: blocks of words x topics stay
on the workers between products, and only the eigenvectors are fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dask_dca.engine.computing import compute_delayed, compute_with_state, task_threads
from dask_dca.engine.passes import Pass, PlaneGroup, Run, plane_groups, run_pass, step
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.tiles import counts_of_block
from dask_dca.engine.types import Groups, Summed, add_parts, stack_parts
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import Workspace
from dask_dca.geometry.simplex import SLAB_ROWS, simplex_descent
from dask_dca.geometry.votes import ArgBest, VoteHistogram, extremes, merge_histograms, votes_of_extremes
from dask_dca.models.lda.corpus import Columns, Cooccurrence, Products, documents_of, product_pass
from dask_dca.models.lda.documents import (
    TrainingCounts,
    damped_counts,
    document_keys,
    entry_slices,
    entry_values,
    expected_counts,
    mixture_rates,
    mixtures_and_rates,
    type_halves,
    with_data,
)
from dask_dca.models.lda.topics import (
    WordPoints,
    block_krylov,
    burstiness_sums,
    topic_products,
    word_directions,
    word_positions,
)

Reals = NDArray[np.floating]

_LOG_SCALE: Final = 2.0**20  # log likelihoods are summed as integers, in units of 2**-20
_COUNT_SCALE: Final = 2.0**13  # numbers of words are summed as integers, in units of 2**-13
_HELD_OUT_CORPUS_SHARE: Final = 0.03  # share of the corpus in topics that score held-out documents
_MIN_RATE: Final = 2.0**-30  # minimum rate of a word in a document, for logarithms
ALL_STATISTICS: Final = ("counts", "likelihood", "completion")  # what a pass of EM can compute


@dataclass(frozen=True)
class TopicModel:
    """Topics as passes need them.

    rates (V, k): topics over word probabilities, zero for words that are left out; mixtures have their dtype; prior:
    pseudo-words of each topic in a document; powers: of the steps of inference; max_length: longer documents count for
    an eighth of it in passes of EM; held_out_share: share of the documents that these only score; damped: whether the
    others count by `damped_counts`; training: their own part in the topics, if they were fitted to them.
    """

    rates: Reals
    probability: Floats
    prior: float
    powers: tuple[float, ...]
    max_length: float = np.inf
    held_out_share: float = 0.0
    damped: bool = False
    training: TrainingCounts | None = None


@dataclass(frozen=True)
class TopicCounts(Summed):
    """Sums of a pass of EM.

    counts (V, k): from `expected_counts`; likelihood: log likelihood of all words under the mixtures, in units of
    2**-20; n_words: number of these words, in units of 2**-13; completion, n_completed: the same for the hidden words
    of held-out documents.
    """

    counts: Numbers
    likelihood: int
    n_words: int
    completion: int = 0
    n_completed: int = 0

    @property
    def mean(self) -> float:
        """Log likelihood per word; zero if there are no words."""
        return _mean(self.likelihood, self.n_words)

    @property
    def held_out(self) -> float:
        """Log likelihood per hidden word of held-out documents; if there are none, of the other documents."""
        return _mean(self.completion, self.n_completed) if self.n_completed else self.mean


def burstiness(rows: Rows, model: TopicModel, topics: Floats, share: float, run: Run) -> float:
    """Compute the ratio of pairs of a word with itself in documents to the number that their mixtures predict.

    model, topics (V, k): the same topics; share: of the documents that are used. The ratio is one if documents are
    drawn from the model, and greater if words come in bursts; zero if no document has integer counts.
    """
    job: Pass[tuple[int, int]] = Pass("bursts", _bursts_block, add_parts, weighted=True)
    with one_blas_thread():
        state = model, topic_products(topics), share
    seen, expected = run_pass(rows, job, state, run)
    return seen / expected if expected else 0.0


def refine(
    rows: Rows, model: TopicModel, scales: Floats, run: Run, wanted: Sequence[str] = ALL_STATISTICS
) -> TopicCounts:
    """Run one pass of EM: infer the mixtures of all documents, and sum what the M-step needs.

    scales (V,): from `count_scales`; wanted: which of `ALL_STATISTICS` to compute; the others stay empty.
    """
    job: Pass[TopicCounts] = Pass("refine", _refine_block, add_parts, weighted=True)
    return run_pass(rows, job, (model, scales, tuple(wanted)), run)


def completion_likelihood(rows: Rows, model: TopicModel, run: Run) -> tuple[float, int]:
    """Score documents by completion: mixtures are inferred from half of the words, and the others are scored.

    Returns the log likelihood per scored word; the number of these words, in units of 2**-13.
    """
    job: Pass[tuple[int, int]] = Pass("score", _score_block, add_parts)
    likelihood, n_words = run_pass(rows, job, model, run)
    return _mean(likelihood, n_words), n_words


def count_documents_with(rows: Rows, words: Numbers, run: Run) -> tuple[Floats, int]:
    """Count the documents that contain pairs of words (t,).

    Returns counts (t, t): documents with both words, on the diagonal with the word; the number of documents that are
    not empty.
    """
    job: Pass[tuple[Any, Any]] = Pass("meet", _pairs_block, add_parts)
    counts, n_documents = run_pass(rows, job, words, run)
    return counts, int(n_documents)


def mixtures_block(model: TopicModel, start: int, *columns: Any) -> Floats:
    """Infer the mixtures (n, k) of the documents of a block, for `map_rows`."""
    counts = documents_of(columns, start).counts
    return np.asarray(mixtures_and_rates(counts, model.rates, model.prior, model.powers)[0], dtype=np.float64)


def topic_words_block(model: TopicModel, start: int, *columns: Any) -> Floats:
    """Infer the number of words (n, k) of each topic in the documents of a block, pseudo-words included."""
    counts = documents_of(columns, start).counts
    known, k = model.rates.any(axis=1), model.rates.shape[1]
    words = np.asarray(counts @ known.astype(np.float64)) + k * model.prior
    return mixtures_block(model, start, *columns) * words[:, None]


def _refine_block(
    state: tuple[TopicModel, Floats, tuple[str, ...]], start: int, *columns: Any, weights: Floats | None = None
) -> TopicCounts:
    (model, scales, wanted), space = state, Workspace()
    documents = documents_of(columns, start, model.max_length, weights)
    counts, weights = documents.counts, documents.weights
    found, own, likelihood, completed = np.zeros(0, dtype=np.int64), None, (0, 0), (0, 0)
    if model.held_out_share:
        held_out = document_keys(counts, space) < model.held_out_share
        if "completion" in wanted:
            completed = held_out_sums(counts[held_out], model, weights=weights[held_out])
        weights, own = np.where(held_out, 0.0, weights), ~held_out
    words = damped_counts(counts) if model.damped else counts
    theta, mixed = mixtures_and_rates(words, model.rates, model.prior, model.powers, None, own, model.training)
    if "likelihood" in wanted:
        likelihood = _likelihood(counts, mixed, model, weights, space)
    if "counts" in wanted:
        found = expected_counts(words, theta, mixed, scales, weights, space)
    return TopicCounts(found, *likelihood, *completed)


def _bursts_block(
    state: tuple[TopicModel, Floats, float], start: int, *columns: Any, weights: Floats | None = None
) -> tuple[int, int]:
    model, same, share = state
    documents = documents_of(columns, start, model.max_length, weights)
    chosen = ~documents.scaled & (share >= 1.0 or document_keys(documents.counts) < share)
    counts = documents.counts[chosen]
    theta, _ = mixtures_and_rates(counts, model.rates, model.prior, model.powers)
    sums = burstiness_sums(counts, documents.lengths[chosen], theta, same)
    seen, expected = (_integer_sum(np.rint(part * documents.weights[chosen])) for part in sums)
    return seen, expected


def held_out_sums(
    counts: sparse.csr_array, model: TopicModel, split: Any = type_halves, weights: Floats | None = None
) -> tuple[int, int]:
    """Score held-out documents by completion, with topics smoothed, as over-relaxed steps make them too sharp.

    counts (n, V): the documents; split: `type_halves` or `token_halves`; weights (n,): how often they count. Returns
    the log likelihood of the hidden words, and their number, as in `TopicCounts`.
    """
    smooth = model.rates * model.rates.dtype.type(1.0 - _HELD_OUT_CORPUS_SHARE)
    np.add(smooth, smooth.dtype.type(_HELD_OUT_CORPUS_SHARE), out=smooth, where=smooth > 0.0)
    often = np.ones(counts.shape[0]) if weights is None else weights
    return _completion(counts, replace(model, rates=smooth), often, split)


def _score_block(model: TopicModel, start: int, *columns: Any) -> tuple[int, int]:
    documents = documents_of(columns, start)
    return _completion(documents.counts, model, documents.weights)


def _completion(counts: Any, model: TopicModel, weights: Floats, split: Any = type_halves) -> tuple[int, int]:
    """Log likelihood of the hidden half of documents' words, with mixtures of the seen half; number of these words."""
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
    """Log likelihood of the words that the model knows, and their number, each rounded to integers by document."""
    known = model.probability > 0.0
    values, log_probability = entry_values(counts, space), np.log(np.where(known, model.probability, 1.0))
    for part in entry_slices(counts.nnz):
        np.log(np.maximum(mixed[part], _MIN_RATE), out=values[part])
        values[part] *= counts.data[part]
        if not known.all():
            values[part] *= known[counts.indices[part]]
    logs = with_data(counts, values)
    likelihood = np.rint((logs @ np.ones(len(known)) + counts @ log_probability) * _LOG_SCALE)
    n_words = np.floor(counts @ known.astype(np.float64) * _COUNT_SCALE)
    return _integer_sum(np.rint(likelihood * weights)), _integer_sum(np.floor(n_words * weights))


def _integer_sum(values: Reals) -> int:
    """Sum integers below 2**63 exactly, even if the sum is greater."""
    whole = values.astype(np.int64)
    return (int((whole >> 32).sum()) << 32) + int((whole & 0xFFFFFFFF).sum())


def _mean(likelihood: int, n_words: int) -> float:
    return likelihood / _LOG_SCALE / (n_words / _COUNT_SCALE) if n_words else 0.0


def _pairs_block(words: Numbers, start: int, *columns: Any) -> tuple[Floats, int]:
    rows = counts_of_block(columns, start)
    present = rows[:, words]
    present.data = np.ones_like(present.data)
    return (present.T @ present).toarray(), int((np.diff(rows.indptr) > 0).sum())


@dataclass(frozen=True)
class WordBlocks:
    """The words, in blocks for passes: a single one for documents in memory, else as many as there are threads."""

    n_words: int
    run: Run
    in_memory: bool = True

    @cached_property
    def rows(self) -> Rows:
        """The words' numbers as a matrix of one column, in chunks of whole slabs of `simplex_descent`."""
        if self.in_memory:
            return as_rows(np.arange(self.n_words)[:, None])
        import dask.array as da

        n_slabs = -(-self.n_words // SLAB_ROWS)
        return as_rows(da.arange(self.n_words, chunks=SLAB_ROWS * -(-n_slabs // task_threads()))[:, None])

    def votes(
        self, points: WordPoints, values: Floats, n_planes: int, seed: int, *, n_groups: int | None = None
    ) -> VoteHistogram:
        """Find the votes of extreme words: the divide and the conquer step.

        A task is a block of words with a group of directions. Heights are exact, so that the result is the same for any
        number of either. values (k,): eigenvalues, as for `word_points`; n_groups: number of groups of directions; by
        default one, or as many as keep all threads busy.
        """
        state = _WordPlanes(word_positions(points), values, n_planes, seed)
        groups = plane_groups(self.rows, n_planes, n_groups)
        job: Pass[Any] = Pass("divide", _divide_block, add_parts, groups=Groups(groups, _count_votes, merge_histograms))
        return run_pass(self.rows, job, state, self.run)

    def mixtures(self, targets: Floats, vertices: Floats, start: Floats | None, n_steps: int) -> Floats:
        """Run `simplex_descent` on all words, block by block."""
        single = (
            None if start is None else start.astype(np.float32)
        )  # the precision of the first steps of `simplex_descent`
        job: Pass[Floats] = Pass("recover", _mixtures_block, stack_parts)
        return run_pass(self.rows, job, (targets, vertices, single, n_steps), self.run)


@dataclass(frozen=True)
class _WordPlanes:
    """Integer positions of words, and what the directions are drawn from: eigenvalues, number and seed."""

    places: Floats
    values: Floats
    count: int
    seed: int


def _divide_block(group: PlaneGroup, shared: Any, state: _WordPlanes, start: int, *columns: Any) -> ArgBest:
    own = slice(start, start + len(columns[0]))
    directions = word_directions(state.seed, group.range_of(state.count), state.values)
    return extremes(state.places[own], np.arange(own.start, own.stop), directions)


def _count_votes(group: PlaneGroup, found: ArgBest) -> VoteHistogram:
    return votes_of_extremes(found, len(found.rows) // 2)


def _mixtures_block(state: tuple[Floats, Floats, NDArray[np.float32] | None, int], start: int, *columns: Any) -> Floats:
    targets, vertices, single, n_steps = state
    own = slice(start, start + len(columns[0]))
    begin = None if single is None else single[own].astype(np.float64)
    return simplex_descent(targets[own], vertices, begin, n_steps)


@dataclass(frozen=True)
class _ScaledProducts:
    """What products with the scaled co-occurrence diag(h) Q diag(h) need beside the documents."""

    products: Products
    scale: Floats  # (V, 1): h

    def columns(self, block: Floats) -> Columns:
        return self.products.columns(self.scale * block)

    def product(self, block: Floats, sums: Floats) -> Floats:
        return self.scale * self.products.from_sums(self.scale * block, sums)


def leading_pairs(
    operator: Cooccurrence, scale: Floats, width: int, n_vectors: int, seed: int
) -> tuple[Floats, Floats]:
    """Find leading eigenpairs of diag(h) Q diag(h) in a block Krylov space.

    scale (V,): h; width: columns of a block. Returns eigenvalues (m,), the greatest first, and the first eigenvectors
    (V, min(m, n_vectors)).
    """
    scaled, rows, run = _ScaledProducts(operator.products, scale[:, None]), operator.rows, operator.run
    if not operator.held:
        return _leading_pairs(rows, scaled, width, n_vectors, seed, run)

    def compute(held: Any) -> Any:
        pairs = _leading_pairs(rows, held, width, n_vectors, seed, replace(run, lazy=True))
        return compute_delayed(pairs, "spectrum", run)

    return compute_with_state(scaled, compute, rows.source, "spectrum", run)


def _leading_pairs(rows: Rows, scaled: _ScaledProducts, width: int, n_vectors: int, seed: int, run: Run) -> Any:
    """Find the eigenpairs at once, or in a lazy run as a graph, for which `scaled` may be data on the workers."""

    def multiply(block: Floats) -> Floats:
        state = step(run, "columns", _ScaledProducts.columns, scaled, block)
        return step(run, "product", _ScaledProducts.product, scaled, block, run_pass(rows, product_pass(), state, run))

    return block_krylov(multiply, rows.n_features, width, seed, n_vectors, partial(step, run, "krylov"))
