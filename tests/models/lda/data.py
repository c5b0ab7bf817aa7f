"""Documents with known topics."""

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment


def planted_documents(n=400, n_words=120, k=5, length=60, seed=0, alpha=0.1):
    """Counts (n, V) in csr form, and the topics (k, V) that they were drawn from, each with words of its own."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n_words, 0.1), k)
    own = rng.permutation(n_words)[: 3 * k].reshape(k, 3)
    topics[:, own.ravel()] = 0.0
    for t in range(k):
        topics[t, own[t]] = topics[t].max()
    topics /= topics.sum(axis=1, keepdims=True)
    lengths = rng.integers(length // 2, 3 * length // 2, n)
    mixtures = rng.dirichlet(np.full(k, alpha), n)
    counts = np.array([rng.multinomial(m, h @ topics) for m, h in zip(lengths, mixtures, strict=True)])
    return sparse.csr_array(counts.astype(np.float64)), topics


def bursty(n, seed):
    """Documents of twelve topics whose words come again and again."""
    X, topics = planted_documents(n, 240, 12, 40, seed)
    X.data = X.data * np.random.default_rng(seed).geometric(0.35, X.nnz)
    return X, topics


def zipf_documents(n=1000, n_words=500, k=10, length=100, seed=0, correlated=False):
    """Counts and topics of Zipf's frequencies, no anchor words; mixtures Dirichlet, or logistic normal of low rank."""
    rng = np.random.default_rng(seed)
    zipf = 1.0 / np.arange(5, n_words + 5)
    topics = rng.dirichlet(0.05 * n_words * zipf / zipf.sum(), k)
    if correlated:
        shared = rng.standard_normal((k, max(k // 4, 2)))
        logits = rng.standard_normal((n, shared.shape[1])) @ shared.T + 0.5 * rng.standard_normal((n, k))
        mixtures = np.exp(1.5 * logits)
        mixtures /= mixtures.sum(axis=1, keepdims=True)
    else:
        mixtures = rng.dirichlet(np.full(k, 3.0 / k), n)
    lengths = rng.integers(length // 2, 3 * length // 2, n)
    counts = np.array([rng.multinomial(m, h @ topics) for m, h in zip(lengths, mixtures, strict=True)])
    return sparse.csr_array(counts.astype(np.float64)), topics


def topic_error(found, topics):
    """Mean l1 distance of topics, best matching."""
    apart = np.abs(found[:, None, :] - topics[None, :, :]).sum(axis=2)
    return apart[linear_sum_assignment(apart)].mean()


LDA_FITTED = (
    "components_",
    "anchor_words_",
    "topic_weights_",
    "alpha_",
    "word_probabilities_",
    "spectrum_",
    "noise_edge_",
    "log_likelihoods_",
    "candidates_",
    "candidate_votes_",
    "topic_distances_",
    "n_empty_documents_",
    "n_short_documents_",
)
