"""Topic models side by side: each maps counts (n, V) and k to topics (k, V), rows on the simplex."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.methods import MissingError
from dask_dca.geometry.nnls import simplex_from_gram
from dask_dca.models.lda.documents import cooccurrence_sums, pair_weights, take_documents

if TYPE_CHECKING:
    from collections.abc import Callable

    from scipy import sparse

    Counts = sparse.csr_array
    Topics = np.ndarray


def dask_dca(**options) -> Callable[[Counts, int], Topics]:
    def fit(X: Counts, k: int) -> Topics:
        import dask_dca as dca

        return dca.LatentDirichletAllocation(k, **options).fit(X).components_

    return fit


def scikit_learn(method: str) -> Callable[[Counts, int], Topics]:
    def fit(X: Counts, k: int) -> Topics:
        from sklearn.decomposition import LatentDirichletAllocation

        model = LatentDirichletAllocation(k, learning_method=method, random_state=0).fit(X)
        return model.components_ / model.components_.sum(axis=1, keepdims=True)

    return fit


def tomotopy(sweeps: int) -> Callable[[Counts, int], Topics]:
    def fit(X: Counts, k: int) -> Topics:
        try:
            import tomotopy as tp
        except ImportError as error:
            raise MissingError("tomotopy is not installed") from error
        model = tp.LDAModel(k=k, seed=0)
        for words in _texts(X):
            model.add_doc(words)
        model.train(sweeps, workers=1)
        topics = np.zeros((k, X.shape[1]))
        topics[:, [int(word) for word in model.used_vocabs]] = [model.get_topic_word_dist(t) for t in range(k)]
        return topics

    return fit


def gensim(X: Counts, k: int) -> Topics:
    try:
        from gensim.models import LdaModel
    except ImportError as error:
        raise MissingError("gensim is not installed") from error
    corpus = [
        list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True))
        for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]
    names = {j: str(j) for j in range(X.shape[1])}
    return LdaModel(corpus, num_topics=k, id2word=names, passes=10, random_state=0).get_topics().astype(float)


def bayes_topics(products: np.ndarray, probability: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """Topics (V, k) by Arora et al., ICML 2013: solve for p(topic | word) on rows of sum one, and apply Bayes' rule.

    products (V, k): Q Q_A^T; probability (V,): p = Q 1; anchors (k,): anchor words A. The paper's theorem says that on
    exact moments these are the topics of `dask_dca.models.lda.paper.conical_topics`.
    """
    present = probability > 0.0
    inverse = np.where(present, 1.0 / np.where(present, probability, 1.0), 0.0)
    scaled = products * inverse[:, None] * inverse[anchors]
    C = simplex_from_gram(scaled[anchors], scaled)
    joint = C * probability[:, None]
    return joint / joint.sum(axis=0)


def greedy_anchors(X: Counts, k: int) -> Topics:
    """Arora et al., ICML 2013: farthest words of the row-normalised co-occurrence, recovery with least squares.

    Words of at least 10 documents may be anchors; rows are reduced to 1,000 random directions as in their code.
    """
    documents = take_documents(X)
    units = np.full(1, 2.0**-40)
    weights = pair_weights(documents, by_length=False)
    selves = np.asarray(X.T @ weights)

    def times(B: np.ndarray) -> np.ndarray:
        return (cooccurrence_sums(documents, B, units, by_length=False) - selves[:, None] * B) / documents.used.sum()

    p = np.maximum(times(np.ones((X.shape[1], 1)))[:, 0], 1e-300)
    seen = times(np.random.default_rng(0).standard_normal((X.shape[1], 1000)) / np.sqrt(1000)) / p[:, None]
    allowed = np.asarray((X > 0).sum(axis=0)).ravel() >= 10
    anchors = _farthest(seen, allowed, k)
    picked = np.zeros((X.shape[1], k))
    picked[anchors, np.arange(k)] = 1.0
    return bayes_topics(times(times(picked)), p, anchors).T


def _farthest(points: np.ndarray, allowed: np.ndarray, k: int) -> np.ndarray:
    left = np.where(allowed[:, None], points, 0.0)
    chosen = [int((left**2).sum(axis=1).argmax())]
    left = np.where(allowed[:, None], points - points[chosen[0]], 0.0)
    while len(chosen) < k:
        best = int((left**2).sum(axis=1).argmax())
        chosen.append(best)
        u = left[best] / np.linalg.norm(left[best])
        left = left - np.outer(left @ u, u)
    return np.array(chosen)


def anchortopics(X: Counts, k: int) -> Topics:
    try:
        from anchortopics import OTFR
    except ImportError as error:
        raise MissingError("anchortopics is not installed") from error
    topics = np.maximum(OTFR(k).fit(X).components_, 0.0)
    return topics / topics.sum(axis=1, keepdims=True)


def _texts(X: Counts):
    for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        yield np.repeat(X.indices[a:b], X.data[a:b].astype(int)).astype(str).tolist()


METHODS: dict[str, Callable[[Counts, int], Topics]] = {
    "dask_dca": dask_dca(),
    "dask_dca, 0 passes": dask_dca(max_iter=0),
    "paper": dask_dca(method="paper"),
    "greedy anchors": greedy_anchors,
    "scikit-learn batch": scikit_learn("batch"),
    "scikit-learn online": scikit_learn("online"),
    "tomotopy 200": tomotopy(200),
    "tomotopy 1000": tomotopy(1000),
    "gensim": gensim,
    "anchortopics": anchortopics,
}
