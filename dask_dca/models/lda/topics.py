"""From the leading eigenvectors of the words' co-occurrence to anchor words, topics, and where EM starts.

Symbols are the paper's: Q (V, V) is the probability of a pair of words, p = Q 1 that of a word, O (V, k) the topics as
columns. Every word is a point R_i in k dimensions, a mixture of the topics' points; anchor words are vertices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from scipy.cluster import hierarchy
from scipy.special import ndtri

from dask_dca.geometry.exact import Workspace, power_of_two
from dask_dca.geometry.planes import child_seeds, uniforms
from dask_dca.geometry.simplex import simplex_descent
from dask_dca.geometry.solvers import successive_projection
from dask_dca.geometry.votes import integer_directions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from scipy import sparse

    from dask_dca.geometry.arrays import Floats, Numbers

    Reals = NDArray[np.floating]
    Descent = Callable[[Floats, Floats, Floats | None, int], Floats]

_SHARE_OF_CORPUS: Final = 0.01  # what topics are mixed with before likelihoods are taken
_TOPICS_PER_GENERAL: Final = 16
_SHARPNESS: Final = 2.5  # power of a word's probability over that in the corpus
_LEAST: Final = 1e-15
_MIXTURE_BITS, _AFFINITY_BITS, _BITS = 16, 24, 10


def smoothed(topics: Floats, probability: Floats) -> Floats:
    """Mix topics with a little of the corpus, so that no known word is impossible.

    topics (V, k): columns on the simplex; probability (V,): word probabilities, zero for words that take no part.
    Returns (V, k): 99 parts of the topics and one of the corpus.
    """
    whole = probability / probability.sum()
    return (1.0 - _SHARE_OF_CORPUS) * topics + _SHARE_OF_CORPUS * whole[:, None]


def affinities(topics: Floats) -> Floats:
    """Tell how often two words of two topics are the same, in whole numbers.

    topics (V, k): columns on the simplex. Returns (k, k): multiplied by 2**24, rounded.
    """
    return np.rint(np.ldexp(topics.T @ topics, _AFFINITY_BITS))


def burstiness_sums(counts: sparse.csr_array, lengths: Floats, theta: Reals, same: Floats) -> tuple[Floats, Floats]:
    """Count pairs of a word with itself in documents, and how many their mixtures make expect.

    counts (n, V): whole numbers; lengths (n,): of the documents; theta (n, k): mixtures; same (k, k): from
    `affinities`. Returns seen, expected (n,): per word of the document, times 2**10 and rounded; they do not depend on
    other documents. The ratio of their sums is one where documents are drawn from the model.
    """
    squares = counts.copy()
    squares.data = squares.data * (squares.data - 1.0)
    seen = (squares @ np.ones(counts.shape[1])) / np.maximum(lengths - 1.0, 1.0)
    shares = np.rint(np.ldexp(theta.astype(np.float64), _MIXTURE_BITS))
    inner = np.rint(np.ldexp(shares @ same, -_MIXTURE_BITS))  # sums of whole numbers below 2**53, as the next ones
    chance = np.ldexp((inner * shares).sum(axis=1), -_MIXTURE_BITS - _AFFINITY_BITS)
    expected = np.where(lengths > 1.0, lengths * chance, 0.0)
    return np.rint(np.ldexp(seen, _BITS)), np.rint(np.ldexp(expected, _BITS))


def two_levels(topics: Floats, weights: Floats, probability: Floats, n_given: int = 0) -> Floats:
    """Gather general words in a few topics, and sharpen the others.

    One topic in sixteen, the lightest ones, become the means of as many groups of all topics (Ward's, by the square
    roots of words' probabilities); in the others a word counts by the power 2.5 of what it has more than in the corpus.
    topics (V, k): columns on the simplex; weights (k,): shares of the corpus; probability (V,): word probabilities;
    n_given: so many topics at the front are of anchor words that were given, and keep their place. Returns (V, k):
    topics, smoothed.
    """
    k = topics.shape[1]
    light = n_given + np.argsort(weights[n_given:], kind="stable")[: max(1, round(k / _TOPICS_PER_GENERAL))]
    found = _sharpened(topics, probability)
    for place, group in zip(light, _groups(topics, max(1, len(light))), strict=False):
        mean = topics[:, group] @ weights[group]
        found[:, place] = mean / mean.sum()
    return smoothed(found, probability)


def _groups(topics: Floats, count: int) -> list[NDArray[np.intp]]:
    if topics.shape[1] == 1:
        return [np.zeros(1, dtype=np.intp)]
    group = hierarchy.fcluster(hierarchy.linkage(np.sqrt(topics.T), "ward"), count, "maxclust")
    return [np.flatnonzero(group == number) for number in np.unique(group)]


def _sharpened(topics: Floats, probability: Floats) -> Floats:
    known = probability > 0.0
    p = np.where(known, probability, 1.0)[:, None]
    found = np.where(known[:, None], p * (np.maximum(topics, _LEAST) / p) ** _SHARPNESS, 0.0)
    sharp: Floats = found / found.sum(axis=0)
    return sharp


_SLAB: Final = 2**14  # rows whose columns are put side by side
_DEPENDENT: Final = 1e-6  # singular value, relative to the first, from which a direction of the space is dropped
T = TypeVar("T")
_PLANES_PER_TOPIC: Final = 5.0  # s = 5 k ln k
_FURTHEST: Final = 2.0**31  # products with integer directions stay below 2**53
_NEAR: Final = 0.8  # words with this share of a vertex's greatest coefficient belong to its group
_GROUPINGS: Final = 2
_STEPS: Final = 50
_EDGE: Final = 1.35  # words of one topic vary together, which spreads the noise


def call(function: Callable[..., T], *args: Any) -> T:
    """Call a function."""
    return function(*args)


def block_krylov(
    multiply: Callable[[Floats], Floats],
    n: int,
    width: int,
    seed: int,
    n_blocks: int = 4,
    most: int | None = None,
    do: Callable[..., Any] = call,
) -> tuple[Floats, Floats]:
    """Find the eigenpairs of a symmetric operator in the space of its powers, by `n_blocks` + 1 products.

    multiply: maps an array of shape (n, width) to the operator times it; width: columns of a block, at most n; seed:
    seed of the first block; n_blocks: powers of the operator that span the space; most: how many vectors are wanted;
    do: calls a function with its arguments, at once or later: then blocks are what it returns, for `multiply` too.
    Returns as `rayleigh_ritz`; m <= n_blocks * width.
    C. Musco, C. Musco, "Randomized block Krylov methods for stronger and faster approximate singular value
    decomposition", NIPS 2015.
    """
    block = do(_orthonormal, multiply(do(_first_block, n, width, seed)))
    blocks, products = [block], [multiply(block)]
    while len(blocks) < n_blocks and len(blocks) * width < n:
        blocks.append(do(_orthonormal, products[-1]))
        products.append(multiply(blocks[-1]))
    found: tuple[Floats, Floats] = do(rayleigh_ritz, blocks, products, most)
    return found


def _first_block(n: int, width: int, seed: int) -> Floats:
    return _orthonormal(ndtri(uniforms(child_seeds(seed, np.arange(n)), width)))


def rayleigh_ritz(
    blocks: Sequence[Floats], products: Sequence[Floats], most: int | None = None
) -> tuple[Floats, Floats]:
    """Find the Ritz pairs of a symmetric operator in the span of some columns.

    blocks (n, width): columns, which may be nearly dependent; products (n, width): the operator times each of them;
    most: how many vectors are wanted; all if None. Returns values (m,): ritz values, the greatest first; vectors
    (n, most): the first ritz vectors as orthonormal columns.
    """
    mix = orthonormalising(blocks)
    pairs = zip(_slabs(blocks, mix), _slabs(products, mix), strict=True)
    inner = np.asarray(sum(basis.T @ images for basis, images in pairs))
    values, rotation = np.linalg.eigh((inner + inner.T) / 2.0)
    vectors = [(basis @ rotation[:, ::-1])[:, :most].copy() for basis in _slabs(blocks, mix)]
    return values[::-1], np.vstack(vectors)


def orthonormalising(blocks: Sequence[Floats]) -> Floats:
    """Find the combinations of columns that are an orthonormal basis of their span.

    By the eigenvectors of their Gram matrix, twice: for tall columns this is many times as fast as a singular value
    decomposition of the columns.
    blocks (n, width): columns, m in all, which may be nearly dependent. Returns (m, r): the columns times this are
    orthonormal; directions of less than 1e-6 of the greatest singular value are left out.
    """
    first = _whitening(_gram(_slabs(blocks)))
    mix: Floats = first @ _whitening(_gram(_slabs(blocks, first)))
    return mix


def _gram(slabs: Iterator[Floats]) -> Floats:
    return np.asarray(sum(slab.T @ slab for slab in slabs))


def _slabs(blocks: Sequence[Floats], mix: Floats | None = None) -> Iterator[Floats]:
    """Blocks side by side, times a matrix, some rows at a time in the same memory: all would be most of a worker's."""
    space, width = Workspace(), sum(block.shape[1] for block in blocks)
    for begin in range(0, len(blocks[0]), _SLAB):
        parts = [block[begin : begin + _SLAB] for block in blocks]
        slab = np.concatenate(parts, axis=1, out=space.array("slab", len(parts[0]), width))
        yield slab if mix is None else np.matmul(slab, mix, out=space.array("mixed", len(slab), mix.shape[1]))


def _orthonormal(columns: Floats) -> Floats:
    return columns @ orthonormalising([columns])


def _whitening(gram: Floats) -> Floats:
    """The combinations W with W^T G W = 1, of all but the least eigenvalues."""
    squares, vectors = np.linalg.eigh(gram)
    kept = squares > _DEPENDENT**2 * squares[-1]
    whitening: Floats = vectors[:, kept] / np.sqrt(squares[kept])
    return whitening


@dataclass(frozen=True)
class WordPoints:
    """Words as points in the space of the leading eigenvectors.

    probability (V,): in the paper p(w = i); zero for words that take no part; recovery (V, k): R: rows of Q over p, in
    k coordinates; voting (V, k): the same shrunk to their mean by the soft floor, less the mean: rare words lie near
    zero.
    """

    probability: Floats
    recovery: Floats
    voting: Floats


def word_points(values: Floats, vectors: Floats, probability: Floats, floor: float) -> WordPoints:
    """Give words their coordinates.

    values (k,): eigenvalues of diag(h) Q diag(h), h = (p + floor)^(-1/2); vectors (V, k): its eigenvectors; probability
    (V,): in the paper p; zero for words that take no part. Returns R_i = U_i lambda (p_i + tau)^(1/2) / p_i, and its
    shrunk form.
    """
    present = probability > 0.0
    masses = vectors * values * np.sqrt(probability + floor)[:, None] * present[:, None]  # p_i R_i
    recovery = masses / np.where(present, probability, 1.0)[:, None]
    mean = masses.sum(axis=0)
    voting = (masses + floor * mean) / (probability + floor)[:, None] - mean
    return WordPoints(probability, recovery, np.where(present[:, None], voting, 0.0))


def noise_edge(probability: Floats, floor: float, variance: float) -> float:
    """Greatest eigenvalue of the scaled co-occurrence that sampling alone makes: Wigner's edge for uneven variances.

    probability (V,): in the paper p; zero for words that take no part; variance: number of documents over the square of
    the number of words: variance of Q_ij / (p_i p_j)^(1/2) for words that know nothing of each other. Returns the edge,
    with a third to spare.
    """
    share = probability / (probability + floor)
    return float(_EDGE * 2.0 * np.sqrt(variance * (share**2).sum()))


def direction_count(n_topics: int, n_planes: int | None) -> int:
    """Return the number of directions s.

    n_planes: what was asked for, if anything. Returns that, else ceil(5 k ln k).
    """
    return n_planes or max(2, math.ceil(_PLANES_PER_TOPIC * n_topics * math.log(max(n_topics, 2))))


def word_places(points: WordPoints) -> Floats:
    """Round the points that vote to integers, so that heights along integer directions are exact.

    Returns (V, k): integers; no word is further than 2**31 from the origin.
    """
    T = points.voting
    furthest = np.sqrt((T**2).sum(axis=1).max(initial=0.0))
    return np.rint(T * (_FURTHEST / power_of_two(furthest)))


def word_directions(seed: int, numbers: Numbers, values: Floats) -> Floats:
    """Draw directions along which extreme words vote, by their numbers.

    Words are spread along a coordinate by its eigenvalue. Topics that are rare, or that come together with others,
    stand out along the last coordinates only, and directions that are drawn evenly hardly ever see their words, hence
    these are drawn evenly after division by the eigenvalues.
    numbers (s,); values (k,). Returns (s, k).
    """
    drawn = ndtri(uniforms(child_seeds(seed, numbers), len(values))) / np.where(values > 0.0, values, 1.0)
    return integer_directions(drawn / np.sqrt((drawn**2).sum(axis=1))[:, None])


def select_words(points: WordPoints, candidates: Numbers, n_topics: int, given: Numbers | None = None) -> Numbers:
    """Select anchor words among those with a vote, by successive projection.

    candidates (c,): words with a vote; given (r,): words that are chosen before all others. Returns (m,): words, in the
    order of choice; fewer than k where they span fewer dimensions.
    """
    T = points.voting[candidates]
    height = float(np.sqrt((T**2).sum(axis=1).mean())) or 1.0
    add_ones = np.column_stack([np.full(len(T), height), T])
    if given is None or not len(given):
        return candidates[successive_projection(add_ones, n_topics)]
    own = np.column_stack([np.full(len(given), height), points.voting[given]])
    span = orthonormalising([own.T])
    left = add_ones - ((add_ones @ own.T) @ span) @ (own.T @ span).T
    left[np.isin(candidates, given)] = 0.0
    return np.concatenate([given, candidates[successive_projection(left, n_topics - len(given))]])


def grouped_vertices(points: WordPoints, anchors: Numbers, descend: Descent = simplex_descent) -> tuple[Floats, Floats]:
    """Replace each anchor word by the mean of the words that are nearly as pure, twice.

    A single word's co-occurrences are noisy; those of a group, weighted by frequency, much less.
    anchors (k,): anchor words; descend: as `simplex_descent`: (targets, vertices, start, n_steps) -> coefficients.
    Returns vertices (k, k): points of the topics; coefficients (V, k): words in terms of the vertices of the round
    before.
    """
    R, p = points.recovery, points.probability
    vertices, B = R[anchors], None
    for _ in range(_GROUPINGS):
        B = descend(R, vertices, B, _STEPS)
        B[p <= 0.0] = 1.0 / len(anchors)
        inside = np.where(p[:, None] > 0.0, B, 0.0)
        weights = p[:, None] * (inside >= _NEAR * inside.max(axis=0))
        vertices = (weights.T @ R) / weights.sum(axis=0)[:, None]
    return vertices, np.asarray(B)


def recover_topics(
    points: WordPoints, vertices: Floats, start: Floats | None = None, descend: Descent = simplex_descent
) -> tuple[Floats, Floats]:
    """Recover topics: words as mixtures of the vertices, turned round by Bayes' rule.

    vertices (k, k): points of the topics; start (V, k): coefficients to start from; descend: as `simplex_descent`:
    (targets, vertices, start, n_steps) -> coefficients. Returns topics (V, k): in the paper O: columns are the topics'
    word probabilities; weights (k,): share of the corpus's words in each topic.
    """
    B = descend(points.recovery, vertices, start, 2 * _STEPS)
    joint = points.probability[:, None] * B
    weights = joint.sum(axis=0)
    topics = joint / np.where(weights > 0.0, weights, 1.0)
    topics[:, weights <= 0.0] = (points.probability / points.probability.sum())[:, None]
    return topics, weights / weights.sum()


def updated_topics(topics: Floats, counts: Floats, prior: Floats, power: float = 1.0) -> tuple[Floats, Floats]:
    """Make topics of what documents say of them.

    topics (V, k): the present ones; counts (V, k): expected occurrences of words in topics; prior (V,): pseudo-words in
    each topic; power: of the factor that topics are moved by; with more than one fewer steps are needed. Returns
    topics, and the words in each of them.
    """
    if power != 1.0:  # of words that are seen: pseudo-words would swing to and fro
        whole = counts.sum(axis=0)
        factor = np.divide(counts, topics * whole, out=np.ones_like(counts), where=topics > 0.0)
        counts = counts * factor ** (power - 1.0)
        counts *= whole / counts.sum(axis=0)
    counts = counts + prior[:, None]
    words = counts.sum(axis=0)
    return counts / words, words


def leading_words(components: Floats, n_words: int) -> Numbers:
    """Choose each topic's most probable words.

    components (k, V): topics as rows; n_words: how many of each, at most V. Returns (k, n_words): words, most probable
    first; ties go to the lower number.
    """
    return np.argsort(-components, axis=1, kind="stable")[:, :n_words]


def mutual_information(meetings: Floats, n_documents: int) -> Floats:
    """Normalised pointwise mutual information of pairs of words.

    Bouma, Normalized (pointwise) mutual information in collocation extraction, GSCL 2009.
    meetings (t, t): documents with both words; on the diagonal, with the word. Returns (t, t): in [-1, 1]: -1 for words
    that never meet, 1 for words that are never apart; NaN where one of them is in no document, and on the diagonal.
    """
    own = meetings.diagonal()
    n = max(n_documents, 1)
    joint = meetings / n
    with np.errstate(divide="ignore", invalid="ignore"):
        pointwise = np.log(joint * n * n / np.outer(own, own))
        scale = -np.log(joint)
        found = np.where(scale > 0.0, pointwise / scale, 1.0)  # a pair in all documents is never apart
    found = np.where(meetings > 0.0, found, -1.0)
    absent = own <= 0.0
    found[absent[:, None] | absent[None, :]] = np.nan
    np.fill_diagonal(found, np.nan)
    return found


def distances_to_corpus(components: Floats, probability: Floats) -> Floats:
    """Measure how far topics are from the corpus's own word probabilities.

    components (k, V): topics as rows; probability (V,): word probabilities. Returns (k,): total variation: 0 for the
    corpus average, 1 for words of their own.
    """
    return 0.5 * np.abs(components - probability).sum(axis=1)


def topic_distances(components: Floats) -> Floats:
    """Measure how far each topic is from the topic most like it.

    components (k, V): topics as rows. Returns (k,): total variation: 0 for a topic that is there twice, 1 for one that
    shares no word.
    """
    nearest = np.ones(len(components))
    for i in range(len(components) - 1):
        apart = 0.5 * np.abs(components[i + 1 :] - components[i]).sum(axis=1)
        nearest[i] = min(nearest[i], apart.min())
        nearest[i + 1 :] = np.minimum(nearest[i + 1 :], apart)
    return nearest


def dirichlet_weights(topics: Floats, probability: Floats, floor: float, values: Floats, vectors: Floats) -> Floats:
    """Recover the Dirichlet parameter from E[h h^T], the paper's equation for the second moment.

    Q = O E[h h^T] O^T is solved with Q = diag(1/h) U lambda U^T diag(1/h), the part that the topics were found from.
    topics (V, k): in the paper O; probability (V,): in the paper p; values, vectors: eigenpairs of diag(h) Q diag(h).
    Returns (k,): in the paper alpha. Its total says how mixed documents are: good where the model holds, too small on
    real text, in which words come in bursts.
    """
    present = probability > 0.0
    inverse = np.where(present, 1.0 / np.where(present, probability, 1.0), 0.0)
    P = np.linalg.pinv((topics.T * inverse) @ topics) @ (topics.T * inverse)
    seen = (P * np.sqrt(probability + floor)) @ vectors
    return dirichlet_of_moment((seen * values) @ seen.T)


def dirichlet_of_moment(moment: Floats) -> Floats:
    """Match a Dirichlet distribution to its second moment.

    moment (k, k): in the paper E[h h^T], up to scale. Returns (k,): in the paper alpha: means from the rows' sums, the
    total from the least-squares fit of the covariance.
    """
    E = moment
    w = np.maximum(E.sum(axis=1), 1e-9)
    E, w = E / w.sum(), w / w.sum()
    apart = np.diag(w) - np.outer(w, w)
    size = float((apart**2).sum())
    rho = float((apart * (E - np.outer(w, w))).sum()) / size if size > 0.0 else 0.5
    total = 1.0 / min(max(rho, 1e-4), 1.0 - 1e-4) - 1.0
    return total * w
