"""From the leading eigenvectors of the words' co-occurrence to anchor words, topics, and a start for EM.

Symbols are the paper's: Q (V, V) is the probability of a pair of words, p = Q 1 that of a word, O (V, k) the topics as
columns. Every word is a point R_i in k dimensions, a mixture of the topics' points; anchor words are its vertices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.cluster import hierarchy
from scipy.special import ndtri

from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import Workspace, power_of_two
from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.geometry.simplex import simplex_descent
from dask_dca.geometry.solvers import successive_projection
from dask_dca.geometry.votes import integer_directions

Reals = NDArray[np.floating]
Descent = Callable[[Floats, Floats, Floats | None, int], Floats]

_CORPUS_SHARE: Final = 0.01  # share of the corpus's word probabilities in smoothed topics
_TINY: Final = float(np.finfo(np.float64).tiny)  # avoids division by zero
_TOPICS_PER_GENERAL: Final = 16  # one general topic is made for this many topics
_SHARPENING_POWER: Final = 2.5  # power of the ratio of a word's probability to that in the corpus
_MIN_PROBABILITY: Final = 1e-15  # minimum probability of a word in a topic that is sharpened
_MIXTURE_BITS: Final = 16  # mixtures are rounded to multiples of 2**-16
_PRODUCT_BITS: Final = 24  # inner products of topics are rounded to multiples of 2**-24
_PAIR_BITS: Final = 10  # numbers of pairs per word are rounded to multiples of 2**-10


def smooth_topics(topics: Floats, probability: Floats) -> Floats:
    """Mix topics (V, k) with 1 % of the corpus's word probabilities (V,), so that all known words are possible."""
    whole = probability / probability.sum()
    return (1.0 - _CORPUS_SHARE) * topics + _CORPUS_SHARE * whole[:, None]


def topic_products(topics: Floats) -> Floats:
    """Compute the probability (k, k) that words drawn from two topics (V, k) are the same, as integers times 2**-24."""
    return np.rint(np.ldexp(topics.T @ topics, _PRODUCT_BITS))


def burstiness_sums(counts: sparse.csr_array, lengths: Floats, theta: Reals, same: Floats) -> tuple[Floats, Floats]:
    """Count pairs of a word with itself in documents, and the number that their mixtures predict.

    counts (n, V): integers; theta (n, k): mixtures; same (k, k): from `topic_products`. Returns seen, expected (n,),
    per word of each document, times 2**10 and rounded. The ratio of their sums is one if documents are drawn from the
    model.
    """
    squares = counts.copy()
    squares.data = squares.data * (squares.data - 1.0)
    seen = (squares @ np.ones(counts.shape[1])) / np.maximum(lengths - 1.0, 1.0)
    shares = np.rint(np.ldexp(theta.astype(np.float64), _MIXTURE_BITS))
    inner = np.rint(np.ldexp(shares @ same, -_MIXTURE_BITS))  # exact: sums of integers below 2**53, as the next line
    chance = np.ldexp((inner * shares).sum(axis=1), -_MIXTURE_BITS - _PRODUCT_BITS)
    expected = np.where(lengths > 1.0, lengths * chance, 0.0)
    return np.rint(np.ldexp(seen, _PAIR_BITS)), np.rint(np.ldexp(expected, _PAIR_BITS))


def two_level_topics(topics: Floats, weights: Floats, probability: Floats, n_given: int = 0) -> Floats:
    """Collect general words in a few topics, sharpen the others, and smooth all of them: (V, k).

    The lightest topics, one in sixteen, are replaced by the means of as many clusters of all topics (Ward's method on
    square roots of probabilities). In the others the ratio of a word's probability to that in the corpus is raised to
    the power 2.5. weights (k,): shares of the corpus; n_given: the first topics, of given anchor words, keep their
    place.
    """
    k = topics.shape[1]
    light = n_given + np.argsort(weights[n_given:], kind="stable")[: max(1, round(k / _TOPICS_PER_GENERAL))]
    found = _sharpen(topics, probability)
    for place, group in zip(light, _cluster_topics(topics, max(1, len(light))), strict=False):
        mean = topics[:, group] @ weights[group]
        found[:, place] = mean / mean.sum()
    return smooth_topics(found, probability)


def _cluster_topics(topics: Floats, count: int) -> list[NDArray[np.intp]]:
    if topics.shape[1] == 1:
        return [np.zeros(1, dtype=np.intp)]
    group = hierarchy.fcluster(hierarchy.linkage(np.sqrt(topics.T), "ward"), count, "maxclust")
    return [np.flatnonzero(group == number) for number in np.unique(group)]


def _sharpen(topics: Floats, probability: Floats) -> Floats:
    known = probability > 0.0
    p = np.where(known, probability, 1.0)[:, None]
    found = np.where(known[:, None], p * (np.maximum(topics, _MIN_PROBABILITY) / p) ** _SHARPENING_POWER, 0.0)
    return found / found.sum(axis=0)


_SLAB_ROWS: Final = 2**14  # rows that are multiplied at once
_MIN_SINGULAR_VALUE: Final = 1e-6  # relative to the greatest: directions of smaller ones are dropped
_KRYLOV_BLOCKS: Final = 4  # powers of the operator that span the Krylov space
_DIRECTIONS_FACTOR: Final = 20.0  # the number of directions is this times k ln k
_MAX_POSITION: Final = 2.0**31  # maximum length of integer positions: heights stay below 2**53
_PURE_SHARE: Final = 0.8  # a topic's group is the words with at least this share of its greatest coefficient
_GROUPING_ROUNDS: Final = 2  # how often vertices are replaced by the means of their groups
_DESCENT_STEPS: Final = 50  # descent steps for the coefficients of words
_EDGE_FACTOR: Final = 1.35  # safety factor of the noise edge, as the words of one topic vary together
T = TypeVar("T")


def call_now(function: Callable[..., T], *args: Any) -> T:
    """Call a function at once: the eager counterpart of a lazy call."""
    return function(*args)


def block_krylov(
    multiply: Callable[[Floats], Floats],
    n: int,
    width: int,
    seed: int,
    n_vectors: int | None = None,
    call: Callable[..., Any] = call_now,
) -> tuple[Floats, Floats]:
    """Find leading eigenpairs of a symmetric operator in a block Krylov space, by five products with it.

    multiply: maps (n, width) to the operator times it; n_vectors: number of eigenvectors, all if None; call: calls a
    function, at once or lazily; `multiply` then takes and returns lazy blocks, too. Returns as `rayleigh_ritz`.
    C. Musco, C. Musco, "Randomized block Krylov methods for stronger and faster approximate singular value
    decomposition", NIPS 2015.
    """
    block = call(_orthonormal, multiply(call(_first_block, n, width, seed)))
    blocks, products = [block], [multiply(block)]
    while len(blocks) < _KRYLOV_BLOCKS and len(blocks) * width < n:
        blocks.append(call(_orthonormal, products[-1]))
        products.append(multiply(blocks[-1]))
    return call(rayleigh_ritz, blocks, products, n_vectors)


def _first_block(n: int, width: int, seed: int) -> Floats:
    return _orthonormal(ndtri(uniforms(child_seeds(seed, np.arange(n)), width)))


def rayleigh_ritz(
    blocks: Sequence[Floats], products: Sequence[Floats], n_vectors: int | None = None
) -> tuple[Floats, Floats]:
    """Find the Ritz pairs of a symmetric operator in the span of some columns.

    blocks (n, width): columns, perhaps nearly dependent; products (n, width): the operator times them; n_vectors: all
    if None. Returns Ritz values (m,), the greatest first, and the first Ritz vectors (n, n_vectors), orthonormal.
    """
    mix = orthonormalising_matrix(blocks)
    pairs = zip(_slabs(blocks, mix), _slabs(products, mix), strict=True)
    inner = np.asarray(sum(basis.T @ images for basis, images in pairs))
    values, rotation = np.linalg.eigh((inner + inner.T) / 2.0)
    vectors = [(basis @ rotation[:, ::-1])[:, :n_vectors].copy() for basis in _slabs(blocks, mix)]
    return values[::-1], np.vstack(vectors)


def orthonormalising_matrix(blocks: Sequence[Floats]) -> Floats:
    """Find the matrix (m, r) by which the m columns of some blocks become an orthonormal basis of their span.

    It uses the eigenvectors of the columns' Gram matrix, twice, which for tall columns is many times as fast as their
    singular value decomposition. Directions with less than 1e-6 of the greatest singular value are left out.
    """
    first = _whitening_matrix(_gram(_slabs(blocks)))
    return first @ _whitening_matrix(_gram(_slabs(blocks, first)))


def _gram(slabs: Iterator[Floats]) -> Floats:
    return np.asarray(sum(slab.T @ slab for slab in slabs))


def _slabs(blocks: Sequence[Floats], mix: Floats | None = None) -> Iterator[Floats]:
    """Yield slabs of rows of the concatenated blocks, times a matrix if given; they share memory, to need little."""
    space, width = Workspace(), sum(block.shape[1] for block in blocks)
    for begin in range(0, len(blocks[0]), _SLAB_ROWS):
        parts = [block[begin : begin + _SLAB_ROWS] for block in blocks]
        slab = np.concatenate(parts, axis=1, out=space.array("slab", len(parts[0]), width))
        yield slab if mix is None else np.matmul(slab, mix, out=space.array("mixed", len(slab), mix.shape[1]))


def _orthonormal(columns: Floats) -> Floats:
    return columns @ orthonormalising_matrix([columns])


def _whitening_matrix(gram: Floats) -> Floats:
    """The matrix W with W^T G W = 1, without the directions of negligible eigenvalues."""
    squares, vectors = np.linalg.eigh(gram)
    kept = squares > _MIN_SINGULAR_VALUE**2 * squares[-1]
    return vectors[:, kept] / np.sqrt(squares[kept])


@dataclass(frozen=True)
class WordPoints:
    """Words as points in the space of the leading eigenvectors.

    probability (V,): the paper's p, zero for words that are left out; recovery (V, k): R, the rows of Q over p, in k
    coordinates; voting (V, k): the same shrunk towards their mean by the soft floor, less the mean, so that rare words
    are near zero.
    """

    probability: Floats
    recovery: Floats
    voting: Floats


def word_points(values: Floats, vectors: Floats, probability: Floats, floor: float) -> WordPoints:
    """Compute the words' coordinates R_i = U_i lambda (p_i + tau)^(1/2) / p_i, and their shrunk form.

    values (k,), vectors (V, k): eigenpairs lambda, U of diag(h) Q diag(h), with h = (p + tau)^(-1/2); floor: tau.
    """
    present = probability > 0.0
    masses = vectors * values * np.sqrt(probability + floor)[:, None] * present[:, None]  # p_i R_i
    recovery = masses / np.where(present, probability, 1.0)[:, None]
    mean = masses.sum(axis=0)
    voting = (masses + floor * mean) / (probability + floor)[:, None] - mean
    return WordPoints(probability, recovery, np.where(present[:, None], voting, 0.0))


def noise_edge(probability: Floats, floor: float, variance: float) -> float:
    """Greatest eigenvalue of the scaled co-occurrence that sampling noise makes: Wigner's edge for unequal variances.

    variance: number of documents over the squared number of words, which is the variance of Q_ij / (p_i p_j)^(1/2) for
    independent words. Returns the edge with a safety margin of a third.
    """
    share = probability / (probability + floor)
    return float(_EDGE_FACTOR * 2.0 * np.sqrt(variance * (share**2).sum()))


def direction_count(n_topics: int, n_planes: int | None) -> int:
    """Return the number of directions: `n_planes` if given, else ceil(20 k ln k)."""
    return n_planes or max(2, math.ceil(_DIRECTIONS_FACTOR * n_topics * math.log(max(n_topics, 2))))


def word_positions(points: WordPoints) -> Floats:
    """Round the points that vote to integers (V, k) within 2**31 of the origin, so that heights are exact."""
    T = points.voting
    radius = np.sqrt((T**2).sum(axis=1).max(initial=0.0))
    return np.rint(T * (_MAX_POSITION / power_of_two(radius)))


def word_directions(seed: int, numbers: Numbers, values: Floats) -> Floats:
    """Draw the directions (s, k) along which extreme words vote, by their numbers (s,).

    The spread of words along a coordinate is its eigenvalue. Rare topics, and those that occur together with others,
    stand out along the last coordinates only, where isotropic directions hardly ever find their words. So directions
    are isotropic after division by the eigenvalues (k,).
    """
    drawn = ndtri(uniforms(child_seeds(seed, numbers), len(values))) / np.where(values > 0.0, values, 1.0)
    return integer_directions(drawn / np.sqrt((drawn**2).sum(axis=1))[:, None])


def select_words(points: WordPoints, candidates: Numbers, n_topics: int, given: Numbers | None = None) -> Numbers:
    """Select anchor words from the candidates (c,), which have votes, by successive projection.

    given (r,): words that are chosen first. Returns words (m,) in the order of choice; fewer than k if they span fewer
    dimensions.
    """
    T = points.voting[candidates]
    height = float(np.sqrt((T**2).sum(axis=1).mean())) or 1.0
    lifted = np.column_stack([np.full(len(T), height), T])
    if given is None or not len(given):
        return candidates[successive_projection(lifted, n_topics)]
    own = np.column_stack([np.full(len(given), height), points.voting[given]])
    span = orthonormalising_matrix([own.T])
    left = lifted - ((lifted @ own.T) @ span) @ (own.T @ span).T
    left[np.isin(candidates, given)] = 0.0
    return np.concatenate([given, candidates[successive_projection(left, n_topics - len(given))]])


def grouped_vertices(points: WordPoints, anchors: Numbers, descend: Descent = simplex_descent) -> tuple[Floats, Floats]:
    """Replace each anchor word by the mean of the words that are nearly as pure, twice.

    The co-occurrences of a group, weighted by frequency, have much less noise than those of a single word. descend: a
    function like `simplex_descent`. Returns vertices (k, k): points of the topics; coefficients (V, k): words in terms
    of the vertices of the round before.
    """
    R, p = points.recovery, points.probability
    vertices, B = R[anchors], None
    for _ in range(_GROUPING_ROUNDS):
        B = descend(R, vertices, B, _DESCENT_STEPS)
        B = np.where((p > 0.0)[:, None], B, 1.0 / len(anchors))
        inside = np.where(p[:, None] > 0.0, B, 0.0)
        weights = p[:, None] * (inside >= _PURE_SHARE * inside.max(axis=0))
        vertices = (weights.T @ R) / weights.sum(axis=0)[:, None]
    return vertices, np.asarray(B)


def recover_topics(
    points: WordPoints, vertices: Floats, start: Floats | None = None, descend: Descent = simplex_descent
) -> tuple[Floats, Floats]:
    """Recover topics: p(topic | word) from words as mixtures of the vertices, then p(word | topic) by Bayes' rule.

    vertices (k, k): points of the topics; start (V, k): first coefficients; descend: a function like `simplex_descent`.
    Returns topics (V, k): the paper's O; weights (k,): share of the corpus's words in each topic.
    """
    B = descend(points.recovery, vertices, start, 2 * _DESCENT_STEPS)
    joint = points.probability[:, None] * B
    weights = joint.sum(axis=0)
    topics = joint / np.where(weights > 0.0, weights, 1.0)
    topics[:, weights <= 0.0] = (points.probability / points.probability.sum())[:, None]
    return topics, weights / weights.sum()


def updated_topics(topics: Floats, counts: Floats, prior: Floats, power: float = 1.0) -> tuple[Floats, Floats]:
    """Run the M-step: topics (V, k) from the expected occurrences (V, k) of words in topics.

    topics (V, k): the present ones; prior (V,): pseudo-words in each topic; power: of EM's factor on topics: more than
    one, an over-relaxed step, needs fewer steps. Returns topics, and the number of words in each.
    """
    if power != 1.0:  # without pseudo-words, whose over-relaxation would oscillate
        whole = counts.sum(axis=0)
        expected = topics * whole
        factor = np.divide(counts, expected, out=np.ones_like(counts), where=expected > 0.0)
        counts = counts * factor ** (power - 1.0)
        counts *= whole / np.maximum(counts.sum(axis=0), _TINY)
    counts = counts + prior[:, None]
    words = counts.sum(axis=0)
    return counts / words, words


def leading_words(components: Floats, n_words: int) -> Numbers:
    """Find the most probable words (k, n_words) of topics (k, V) in order; ties go to the lower number."""
    return np.argsort(-components, axis=1, kind="stable")[:, :n_words]


def mutual_information(together: Floats, n_documents: int) -> Floats:
    """Compute the normalised pointwise mutual information (t, t) of pairs of words, between -1 and 1.

    Bouma, Normalized (pointwise) mutual information in collocation extraction, GSCL 2009.
    together (t, t): number of documents with both words; with the word, on the diagonal. The result is -1 for words
    that never occur together, 1 for words that always do, and NaN for absent words and on the diagonal.
    """
    own = together.diagonal()
    n = max(n_documents, 1)
    joint = together / n
    with np.errstate(divide="ignore", invalid="ignore"):
        pointwise = np.log(joint * n * n / np.outer(own, own))
        scale = -np.log(joint)
        found = np.where(scale > 0.0, pointwise / scale, 1.0)  # for pairs in all documents both are zero
    found = np.where(together > 0.0, found, -1.0)
    absent = own <= 0.0
    found[absent[:, None] | absent[None, :]] = np.nan
    np.fill_diagonal(found, np.nan)
    return found


def distances_to_corpus(components: Floats, probability: Floats) -> Floats:
    """Compute the total variation distance (k,) of topics (k, V) from the corpus's word probabilities (V,)."""
    return 0.5 * np.abs(components - probability).sum(axis=1)


def topic_distances(components: Floats) -> Floats:
    """Compute the total variation distance (k,) of each topic of (k, V) from the most similar other topic."""
    nearest = np.ones(len(components))
    for i in range(len(components) - 1):
        apart = 0.5 * np.abs(components[i + 1 :] - components[i]).sum(axis=1)
        nearest[i] = min(nearest[i], apart.min())
        nearest[i + 1 :] = np.minimum(nearest[i + 1 :], apart)
    return nearest


def dirichlet_weights(topics: Floats, probability: Floats, floor: float, values: Floats, vectors: Floats) -> Floats:
    """Recover the Dirichlet parameter alpha (k,) from E[h h^T], by the paper's equation for the second moment.

    Q = O E[h h^T] O^T is solved with the low-rank Q = diag(1/h) U lambda U^T diag(1/h) that the topics came from.
    topics (V, k): O; values, vectors: eigenpairs of diag(h) Q diag(h). The total of alpha is accurate if the model
    holds, and too small for real text, in which words come in bursts.
    """
    present = probability > 0.0
    inverse = np.where(present, 1.0 / np.where(present, probability, 1.0), 0.0)
    P = np.linalg.pinv((topics.T * inverse) @ topics) @ (topics.T * inverse)
    seen = (P * np.sqrt(probability + floor)) @ vectors
    return dirichlet_of_moment((seen * values) @ seen.T)


def dirichlet_of_moment(moment: Floats) -> Floats:
    """Match a Dirichlet distribution to its second moment E[h h^T] (k, k), given up to scale: returns alpha (k,).

    Means come from the sums of rows, the total from a least-squares fit of the covariance.
    """
    E = moment
    w = np.maximum(E.sum(axis=1), 1e-9)
    E, w = E / w.sum(), w / w.sum()
    apart = np.diag(w) - np.outer(w, w)
    size = float((apart**2).sum())
    rho = float((apart * (E - np.outer(w, w))).sum()) / size if size > 0.0 else 0.5
    total = 1.0 / min(max(rho, 1e-4), 1.0 - 1e-4) - 1.0
    return total * w
