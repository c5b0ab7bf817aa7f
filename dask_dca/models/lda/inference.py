"""Documents as mixtures of given topics, what they say of the topics in turn, and how good topics are.

Topics enter as *rates* (V, k): a word's probability in each topic over its probability in the whole corpus. Mixing
proportions do not change, and a word that a mixture explains has a rate near one, which bounds all sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import sparse

from dask_dca.models.lda.documents import document_tiles, entry_slices, with_data

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.geometry.arrays import Floats, Numbers

    Reals = NDArray[np.floating]

_LEAST_SHARE: Final = 1e-12
_NOTHING: Final = 1e-20  # rate of a word that is in no topic
_LEAST_RATE: Final = 2.0**-10  # a word counts as no rarer than this, relative to the corpus, in any document
_MIXTURE_BITS: Final = 16
_COUNT_BITS: Final = 36  # 36 + 16 + 10 bits: sums stay below 2**62
_MOST_SCALE: Final = 24  # bits of a count that are kept of any word: then few sums need more than float64 has
_EXACT: Final = 2.0**53


def token_halves(counts: sparse.csr_array) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Split the occurrences of each of a document's words in two; of an odd number one half has one more, in turn.

    counts (n, V): word counts, in canonical form. Returns seen, hidden (n, V): with the same places, zeros among them.
    """
    sizes = np.diff(counts.indptr)
    turn = (np.arange(counts.nnz) - np.repeat(counts.indptr[:-1], sizes)) % 2
    seen = np.floor((counts.data + turn) / 2.0)
    return with_data(counts, seen), with_data(counts, counts.data - seen)


def damped_counts(counts: sparse.csr_array) -> sparse.csr_array:
    """Take square roots of counts above one: a word that comes again tells less than one that comes first.

    counts (n, V): word counts. Returns (n, V): not a copy of where they are.
    """
    return with_data(counts, np.minimum(counts.data, np.sqrt(counts.data)))


def infer_mixtures(counts: sparse.csr_array, rates: Reals, prior: float, n_steps: int) -> Reals:
    """Infer the topic mixture of each document by EM on the mixtures alone.

    counts (n, V): word counts; rates (V, k): topics over word probabilities (any scale a word will do); prior:
    pseudo-words of each topic that a document begins with; n_steps: steps from the even mixture. Returns (n, k): in the
    paper h: rows on the simplex. A row depends on its document alone, to the bit.
    """
    return mixtures_and_rates(counts, rates, prior, (1.0,) * n_steps)[0]


def mixtures_and_rates(
    counts: sparse.csr_array, rates: Reals, prior: float, powers: Sequence[float], start: Reals | None = None
) -> tuple[Reals, Reals]:
    """Infer mixtures as `infer_mixtures` does, and the rate of each entry's word in its document's mixture.

    counts (n, V): word counts; rates (V, k): topics over word probabilities; prior: pseudo-words of each topic that a
    document begins with; powers: one for each step: by which power of EM's own factor the shares change. Two saves
    steps, one in the end takes back what went too far; start (n, k): mixtures to begin with, else even ones. Returns
    theta (n, k): mixtures; mixed (nnz,): theta_i . rates_j, in the order of the entries.
    """
    k, one = rates.shape[1], rates.dtype.type
    theta = np.full((counts.shape[0], k), 1.0 / k, dtype=rates.dtype) if start is None else start.copy()
    mixed = np.empty(counts.nnz, dtype=rates.dtype)
    for tile in document_tiles(counts, rates):
        mixture = theta[tile.documents]
        for power in powers:
            explained = tile.gathered(tile.counts / np.maximum(tile.mixed(mixture), one(_NOTHING)))
            moved = mixture * explained + one(prior)  # of the same sum in all steps, which hence doesn't matter
            mixture = moved if power == 1.0 else _further(mixture, moved, power)
        mixture /= mixture.sum(axis=1, keepdims=True)
        theta[tile.documents] = mixture
        mixed[tile.entries] = tile.mixed(mixture)
    return theta, mixed


def _further(mixture: Reals, moved: Reals, power: float) -> Reals:
    """Move shares by a power of the factor that EM moves them by."""
    moved = moved / moved.sum(axis=1, keepdims=True)
    further = mixture * (moved / mixture) ** power
    further /= further.sum(axis=1, keepdims=True)
    return np.maximum(further, mixture.dtype.type(_LEAST_SHARE))


def mixture_rates(counts: sparse.csr_array, rates: Reals, theta: Reals) -> Reals:
    """Rate of each entry's word in its document's mixture.

    counts (n, V): word counts; rates (V, k): topics over word probabilities; theta (n, k): mixtures. Returns (nnz,):
    theta_i . rates_j, in the order of the entries.
    """
    mixed = np.empty(counts.nnz, dtype=rates.dtype)
    for tile in document_tiles(counts, rates):
        mixed[tile.entries] = tile.mixed(theta[tile.documents])
    return mixed


def count_scales(occurrences: Floats) -> Floats:
    """Choose what counts of each word are multiplied by before they are rounded: no sum then needs more than 62 bits.

    occurrences (V,): the most occurrences of each word, in all documents together. Returns (V,): powers of two: the
    more frequent a word, the fewer bits its counts keep.
    """
    bits = _COUNT_BITS - np.ceil(np.log2(np.maximum(occurrences, 1.0)))
    return np.asarray(np.exp2(np.minimum(bits, _MOST_SCALE)))


def expected_counts(
    counts: sparse.csr_array, theta: Reals, mixed: Reals, scales: Floats, weights: Floats | None = None
) -> Numbers:
    """Count how many of each word's occurrences belong to each topic, except for the factor `rates`, exactly.

    counts (n, V): word counts; theta (n, k): mixtures, rounded here to 2**-16; mixed (nnz,): from `mixture_rates`; less
    than 2**-10 counts as 2**-10; scales (V,): from `count_scales`; weights (n,): how often documents count. Returns
    (V, k): (X / (theta rates^T))^T theta times 2**16 and the scales: a whole number, the same in any order of
    documents.
    """
    values = np.empty(counts.nnz)
    for part in entry_slices(counts.nnz):
        near = values[part]
        scales.take(counts.indices[part], out=near, mode="clip")
        near *= counts.data[part]
        near /= np.maximum(mixed[part], mixed.dtype.type(_LEAST_RATE))
        np.rint(near, out=near)
    left = with_data(counts, values)
    right = theta.astype(np.float64)
    right *= 2.0**_MIXTURE_BITS
    np.rint(right, out=right)
    if weights is not None:  # whole ones have the sums of copies, to the bit
        right *= weights[:, None]
    return _whole_product(left, np.rint(right, out=right))


def _whole_product(left: sparse.csr_array, right: Floats) -> Numbers:
    """The transpose of `left` times `right`, of whole numbers that are not negative, exactly."""
    product = np.asarray(left.T @ right)
    if product.max(initial=0.0) < _EXACT:  # sums only rise, so none of them was rounded
        return product.astype(np.int64)
    whole = with_data(left, left.data.astype(np.int64))
    return np.asarray(whole.T @ right.astype(np.int64))  # slower


def halves(counts: sparse.csr_array) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Split each document's words in two: its first, third, ... different word, and the others.

    counts (n, V): word counts, in canonical form. Returns seen, hidden (n, V): A word is in one of them with all of its
    occurrences, so that bursts do not leak.
    """
    sizes = np.diff(counts.indptr)
    rank = np.arange(counts.nnz) - np.repeat(counts.indptr[:-1], sizes)
    parts = []
    for side in (0, 1):
        own = rank % 2 == side
        ends = np.concatenate([[0], np.cumsum((sizes + 1 - side) // 2)])
        parts.append(sparse.csr_array((counts.data[own], counts.indices[own], ends), shape=counts.shape))
    return parts[0], parts[1]


def updated_topics(topics: Floats, counts: Floats, prior: Floats, power: float = 1.0) -> tuple[Floats, Floats]:
    """Make topics of what documents say of them.

    topics (V, k): the present ones; counts (V, k): expected occurrences of words in topics; prior (V,): pseudo-words in
    each topic; power: of the factor that topics are moved by; with more than one fewer steps are needed. Returns
    topics, and their shares of the corpus.
    """
    if power != 1.0:  # of words that are seen: pseudo-words would swing to and fro
        whole = counts.sum(axis=0)
        factor = np.divide(counts, topics * whole, out=np.ones_like(counts), where=topics > 0.0)
        counts = counts * factor ** (power - 1.0)
        counts *= whole / counts.sum(axis=0)
    counts = counts + prior[:, None]
    weights = counts.sum(axis=0)
    return counts / weights, weights / weights.sum()


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
