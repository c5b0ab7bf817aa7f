"""Topics from exact moments, the paper's theorem, and the kernels against formulas written out."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from benchmarks.models.topic_peers import bayes_topics
from dask_dca.engine.passes import Run
from dask_dca.geometry.nnls import simplex_coefficients
from dask_dca.geometry.simplex import project_to_simplex, simplex_descent
from dask_dca.models.lda.documents import (
    TrainingCounts,
    cooccurrence_sums,
    count_scales,
    document_tiles,
    exact_product,
    expected_counts,
    mixture_rates,
    mixtures_and_rates,
    pair_weights,
    take_documents,
    type_halves,
)
from dask_dca.models.lda.paper import conical_topics
from dask_dca.models.lda.passes import WordBlocks
from dask_dca.models.lda.topics import (
    block_krylov,
    dirichlet_weights,
    grouped_vertices,
    mutual_information,
    rayleigh_ritz,
    recover_topics,
    select_words,
    topic_distances,
    word_points,
)


def exact_moments(n_words=40, k=4, seed=0, alpha=0.7):
    """O (V, k) with one anchor word a topic, the Dirichlet parameter, and Q = O E[h h^T] O^T."""
    rng = np.random.default_rng(seed)
    O = rng.dirichlet(np.full(n_words, 0.5), k).T
    O[:k] = 0.2 * np.eye(k)
    O[k:] *= 0.8 / O[k:].sum(axis=0)
    a = alpha * rng.uniform(0.5, 1.5, k)
    E = (np.diag(a) + np.outer(a, a)) / (a.sum() * (a.sum() + 1.0))
    order = rng.permutation(n_words)
    O = O[order]
    return O, a, O @ E @ O.T, np.argsort(order)[:k]


@pytest.mark.parametrize("seed", range(5))
def test_the_papers_theorem_both_recoveries_give_the_same_topics_on_exact_moments(seed):
    """Theorem (equivalence with Bayes recovery): Q = F Q_A and p(z | w) p(w) normalised are one."""
    O, _, Q, anchors = exact_moments(seed=seed)
    products = Q @ Q[anchors].T
    conical, bayes = conical_topics(products, anchors), bayes_topics(products, Q.sum(axis=1), anchors)
    np.testing.assert_allclose(conical, bayes, atol=1e-6)
    np.testing.assert_allclose(conical, O, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_robust_recipe_is_exact_on_exact_moments(seed):
    O, a, Q, anchors = exact_moments(seed=seed)
    p = Q.sum(axis=1)
    values, vectors = block_krylov(lambda B: (Q / np.sqrt(np.outer(p, p))) @ B, len(p), 12, 0)
    points = word_points(values[:4], vectors[:, :4], p, 0.0)
    found = WordBlocks(len(p), Run()).votes(points, values[:4], 28, 0)
    chosen = select_words(points, found.rows, 4)
    assert sorted(chosen) == sorted(anchors)
    assert found.votes.sum() <= 2 * found.n_subproblems
    topics, weights = recover_topics(points, points.recovery[chosen])
    order = np.argsort(chosen)
    back = np.argsort(anchors)
    np.testing.assert_allclose(topics[:, order], O[:, back], atol=2e-3)
    np.testing.assert_allclose(weights[order], (a / a.sum())[back], atol=2e-3)
    alpha = dirichlet_weights(O, p, 0.0, values[:4], vectors[:, :4])
    np.testing.assert_allclose(alpha, a, rtol=1e-4)
    vertices, _ = grouped_vertices(points, chosen)
    assert np.abs(vertices - points.recovery[chosen]).max() < 0.6 * np.abs(points.recovery).max()


def literal_cooccurrence(X):
    """The paper's equation: Xbar^T Xbar - Diag(1^T Xhat), documents without a pair left out."""
    X = X[X.sum(axis=1) >= 2]
    m = X.sum(axis=1)[:, None]
    bar = X / np.sqrt(m * (m - 1))
    return (bar.T @ bar - np.diag((X / (m * (m - 1))).sum(axis=0))) / len(X)


def test_products_are_those_of_the_papers_matrix():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.7, (60, 12)).astype(float)
    X[3], X[5] = 0, np.eye(12)[2]
    documents = take_documents(sparse.csr_array(X))
    B = rng.standard_normal((12, 3))
    used = documents.used
    found = cooccurrence_sums(documents, B, np.full(3, 2.0**-40), by_length=False)
    selves = X.T @ pair_weights(documents, by_length=False)
    np.testing.assert_allclose((found - selves[:, None] * B) / used.sum(), literal_cooccurrence(X) @ B, atol=1e-9)


def test_krylov_finds_leading_pairs_of_either_sign():
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    spectrum = np.concatenate([[9, 7, 5], rng.uniform(-1, 1, 57)])
    A = (basis * spectrum) @ basis.T
    values, vectors = block_krylov(lambda B: A @ B, 60, 6, 3)
    np.testing.assert_allclose(values[:3], [9, 7, 5], atol=1e-6)
    np.testing.assert_allclose(np.abs((vectors[:, :3] * basis[:, :3]).sum(axis=0)), 1.0, atol=1e-6)
    small = np.diag([2.0, 1.0, 0.0])
    np.testing.assert_allclose(block_krylov(lambda B: small @ B, 3, 3, 0)[0][:2], [2.0, 1.0], atol=1e-9)


def test_the_spectrum_takes_no_memory_for_all_columns_side_by_side():
    n, kept = 100_000, 10
    rng = np.random.default_rng(0)
    blocks, scale = [rng.standard_normal((n, 20)) for _ in range(4)], rng.random((n, 1))
    products = [scale * block for block in blocks]
    tracemalloc.start()
    values, vectors = rayleigh_ritz(blocks, products, kept)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    basis = np.linalg.qr(np.hstack(blocks))[0]
    np.testing.assert_allclose(values, np.linalg.eigvalsh(basis.T @ (scale * basis))[::-1], rtol=1e-9)
    np.testing.assert_allclose(vectors.T @ (scale * vectors), np.diag(values[:kept]), atol=1e-9)
    assert peak < 80 * n * 8  # all columns once


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
@settings(max_examples=50)
def test_projections_are_the_nearest_points_of_the_simplex(seed, k):
    points = np.random.default_rng(seed).standard_normal((20, k)) * 3
    found = project_to_simplex(points.T).T
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-9)
    np.testing.assert_allclose(found, simplex_coefficients(points, np.eye(k)), atol=1e-6)


def test_descent_reaches_the_least_squares():
    rng = np.random.default_rng(2)
    V, R = rng.standard_normal((6, 6)), rng.standard_normal((300, 6))
    exact = simplex_coefficients(R, V)
    found = simplex_descent(R, V, n_steps=400)
    np.testing.assert_allclose(found @ V, exact @ V, atol=1e-3)
    warm = simplex_descent(R, V, start=exact, n_steps=5)
    np.testing.assert_allclose(warm @ V, exact @ V, atol=1e-6)


def test_inference_is_em_and_rows_do_not_know_each_other():
    rng = np.random.default_rng(3)
    X, rates = sparse.csr_array(rng.poisson(0.4, (50, 30)).astype(float)), rng.gamma(0.5, 2.0, (30, 4)) + 1e-3
    theta = np.full((50, 4), 0.25)
    for _ in range(7):
        dense = X.toarray() / (theta @ rates.T)
        theta = theta * (dense @ rates) + 0.25
        theta /= theta.sum(axis=1, keepdims=True)
    found = mixtures_and_rates(X, rates, 0.25, (1.0,) * 7)[0]
    np.testing.assert_allclose(found, theta, rtol=1e-12)
    for part in (slice(0, 1), slice(13, 29)):
        assert mixtures_and_rates(X[part], rates, 0.25, (1.0,) * 7)[0].tobytes() == found[part].tobytes()
    mixed = mixture_rates(X, rates, found)
    np.testing.assert_allclose(mixed, (found @ rates.T)[X.nonzero()], rtol=1e-12)
    scales = count_scales(X.sum(axis=0))
    counts = expected_counts(X, found, mixed, scales) * (2.0**-16 / scales)[:, None]
    np.testing.assert_allclose(counts, (X.toarray() / np.maximum(found @ rates.T, 2**-10)).T @ found, atol=1e-3)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3, 20, 300]))
@settings(max_examples=30)
def test_a_document_has_the_same_bits_in_any_company(seed, k):
    """Long and short ones, in single precision and with larger steps, as the passes of EM infer them."""
    rng = np.random.default_rng(seed)
    density = rng.choice([0.0, 0.02, 0.3, 0.9], (25, 1))
    X = sparse.csr_array(np.where(rng.random((25, 600)) < density, rng.integers(1, 9, (25, 600)), 0).astype(float))
    rates = (rng.gamma(0.5, 2.0, (600, k)) + 1e-3).astype(np.float32)
    powers = (2.0, 2.0, 1.0)
    theta, mixed = mixtures_and_rates(X, rates, 1.0 / k, powers)
    order = rng.permutation(25)
    assert mixtures_and_rates(X[order], rates, 1.0 / k, powers)[0].tobytes() == theta[order].tobytes()
    for part in (slice(0, 1), slice(7, 19)):
        alone = mixtures_and_rates(X[part], rates, 1.0 / k, powers)
        assert alone[0].tobytes() == theta[part].tobytes()
        assert alone[1].tobytes() == mixed[X.indptr[part.start] : X.indptr[part.stop]].tobytes()
    chosen = rng.random(25) < 0.5
    among = mixtures_and_rates(X, rates, 1.0 / k, powers, among=chosen)
    assert among[0][chosen].tobytes() == theta[chosen].tobytes()
    assert (among[0][~chosen] == np.float32(1.0 / k)).all()
    assert among[1].tobytes() == np.where(np.repeat(chosen, np.diff(X.indptr)), mixed, np.float32(0.0)).tobytes()
    training = TrainingCounts(np.full(600, 1e-3, dtype=np.float32), np.full(k, 50.0, dtype=np.float32))
    others = mixtures_and_rates(X, rates, 1.0 / k, powers, training=training)
    assert k == 1 or others[0].tobytes() != theta.tobytes()
    for part in (order, np.arange(7, 19)):
        alone = mixtures_and_rates(X[part], rates, 1.0 / k, powers, training=training)
        assert alone[0].tobytes() == others[0][part].tobytes()
    scales = count_scales(X.sum(axis=0))
    whole = expected_counts(X, theta, mixed, scales)
    parts = [
        expected_counts(X[i : i + 1], theta[i : i + 1], mixed[X.indptr[i] : X.indptr[i + 1]], scales) for i in order
    ]
    np.testing.assert_array_equal(sum(parts), whole)


def test_what_topics_have_of_a_document_itself_is_left_out_by_hand():
    rng = np.random.default_rng(5)
    p, words, prior = rng.dirichlet(np.ones(12)), np.array([9.0, 6.0, 30.0]), 0.2
    rates = rng.gamma(0.5, 1.0, (12, 3)) + 0.1
    counts = rng.poisson(1.5, (8, 12)).astype(float)
    theta, mixed = mixtures_and_rates(
        sparse.csr_array(counts), rates, prior, (1.0,) * 3, training=TrainingCounts(p, words)
    )
    for i, document in enumerate(counts):
        mixture, told = np.full(3, 1 / 3), rates
        for step in range(3):
            if step == 1:  # of each word's probability in each topic, what this document has brought
                brought = document[:, None] * (mixture * rates) / (rates @ mixture)[:, None] / words
                told = np.maximum(rates - brought / p[:, None], 0.0)
            near = told @ mixture
            mixture = mixture * (told.T @ np.where(near > 0.0, document / np.where(near > 0.0, near, 1.0), 0.0)) + prior
        mixture /= mixture.sum()
        np.testing.assert_allclose(theta[i], mixture, rtol=1e-9)
    np.testing.assert_allclose(mixed, (theta @ rates.T)[counts > 0.0], rtol=1e-9)  # with nothing left out


def test_larger_steps_reach_the_same_mixtures_sooner():
    rng = np.random.default_rng(4)
    rates = rng.gamma(0.3, 1.0, (200, 6)) + 1e-2
    topics = rates / rates.sum(axis=0)
    counts = np.array([rng.multinomial(60, topics @ h) for h in rng.dirichlet([0.3] * 6, 200)], dtype=float)
    X = sparse.csr_array(counts)
    limit = mixtures_and_rates(X, rates, 1 / 6, (1.0,) * 500)[0]
    plain = np.abs(mixtures_and_rates(X, rates, 1 / 6, (1.0,) * 4)[0] - limit).mean()
    larger = np.abs(mixtures_and_rates(X, rates, 1 / 6, (3.0, 2.0, 1.0))[0] - limit).mean()
    assert larger < 0.9 * plain
    for powers in ((3.0, 2.0, 1.0), (2.0, 2.0, 2.0, 1.0)):
        tiny = mixtures_and_rates(X, rates.astype(np.float32), 1e-30, powers)[0]
        assert np.isfinite(tiny).all()


def test_rates_that_came_over_a_network_give_the_same_bits():
    """Buffers of messages begin anywhere, and so do arrays that are unpacked from them."""
    rng = np.random.default_rng(5)
    rates = rng.gamma(0.5, 2.0, (30, 4)).astype(np.float32)
    buffer = np.zeros(rates.nbytes + 1, dtype=np.uint8)
    moved = np.frombuffer(buffer[1:], dtype=np.float32).reshape(30, 4)
    buffer[1:] = np.frombuffer(rates.tobytes(), dtype=np.uint8)
    assert not moved.flags.aligned
    X = sparse.csr_array(rng.poisson(0.4, (50, 30)).astype(float))
    assert (
        mixtures_and_rates(X, moved, 0.25, (1.0,) * 7)[0].tobytes()
        == mixtures_and_rates(X, rates, 0.25, (1.0,) * 7)[0].tobytes()
    )
    assert all(tile.rates.flags.aligned for tile in document_tiles(X, moved))


def test_sums_of_counts_are_exact_for_any_size_of_counts():
    """Counts of up to 2**31, words that are rare and very frequent, topics that fit badly."""
    rng = np.random.default_rng(0)
    X = sparse.csr_array(np.floor(2.0 ** rng.uniform(0, 31, (60, 4)) * (rng.random((60, 4)) < 0.7)))
    theta, mixed = rng.dirichlet([0.1] * 3, 60), 2.0 ** rng.uniform(-12, 8, X.nnz)
    scales = count_scales(X.sum(axis=0))
    whole = expected_counts(X, theta, mixed, scales)
    halves_ = [
        expected_counts(X[a:b], theta[a:b], mixed[X.indptr[a] : X.indptr[b]], scales) for a, b in ((0, 17), (17, 60))
    ]
    np.testing.assert_array_equal(halves_[0] + halves_[1], whole)
    mixed = np.maximum(mixed, 2.0**-10)
    direct = sparse.csr_array((X.data / mixed, X.indices, X.indptr), shape=X.shape).T @ theta
    np.testing.assert_allclose(whole * (2.0**-16 / scales)[:, None], direct, rtol=1e-3)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_sums_of_parts_are_the_sum_to_the_bit(seed):
    rng = np.random.default_rng(seed)
    X = sparse.csr_array(np.floor(rng.gamma(0.2, 2.0 ** rng.integers(1, 33), (40, 6))))
    right = np.floor(rng.random((40, 3)) * 2.0 ** rng.integers(1, 40))
    cut = int(rng.integers(0, 41))
    whole = exact_product(X, right)
    parts = exact_product(X[cut:], right[cut:]) + exact_product(X[:cut], right[:cut])
    assert parts.value().tobytes() == whole.value().tobytes()
    exact = [[sum(int(X[i, j]) * int(right[i, t]) for i in range(40)) for t in range(3)] for j in range(6)]
    np.testing.assert_allclose(whole.value(), np.array(exact, dtype=float), rtol=1e-15)


def test_halves_are_a_partition():
    X = sparse.csr_array(np.random.default_rng(0).poisson(0.5, (30, 9)).astype(float))
    seen, hidden = type_halves(X)
    np.testing.assert_array_equal((seen + hidden).toarray(), X.toarray())
    assert not (seen.multiply(hidden)).nnz
    sizes = np.diff(X.indptr)
    np.testing.assert_array_equal(np.diff(seen.indptr), (sizes + 1) // 2)


def test_quality_measures_have_their_limits():
    together = np.array([[4.0, 4.0, 0.0, 0.0], [4.0, 4.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    found = mutual_information(together, 8)
    assert found[0, 1] == pytest.approx(1.0)
    assert found[0, 2] == -1.0
    assert np.isnan(found[0, 3])
    assert mutual_information(np.full((2, 2), 8.0), 8)[0, 1] == 1.0
    assert topic_distances(np.array([[1.0, 0.0]])).tolist() == [1.0]
