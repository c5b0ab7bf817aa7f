"""Hypothesis strategies: chunkings as unkind as people's, and matrices with the ties that break argmax."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st


@st.composite
def chunkings(draw, length, most=9, empty=True):
    """Sizes of chunks that add up to `length`: irregular, with single rows, and empty ones."""
    cuts = draw(st.lists(st.integers(0, length), max_size=most - 1).map(sorted))
    if cuts and draw(st.booleans()):  # a chunk of one
        cuts = sorted([*cuts, min(cuts[0] + 1, length)])
    sizes = np.diff([0, *cuts, length]).tolist()
    return tuple(sizes) if empty else tuple(size for size in sizes if size)


@dataclass(frozen=True)
class Matrix:
    """A matrix, and how many anchors to ask it for."""

    X: np.ndarray
    k: int


@st.composite
def matrices(draw, dtypes=(np.float32, np.float64), max_rows=160, noise=(0.0, 0.02), ties=True):
    """Rows in the cone of k rays, with exact duplicates, scaled copies and all-zero rows among them."""
    k = draw(st.integers(2, 5))
    p = draw(st.integers(k, 14))
    n = draw(st.integers(4 * k, max_rows))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.dirichlet(np.full(k, draw(st.sampled_from([0.3, 1.0]))), n) @ rng.random((k, p))
    X[:k] = rng.random((k, p))
    X += draw(st.sampled_from(noise)) * X.mean() * rng.random(X.shape)
    X = X[rng.permutation(n)].astype(draw(st.sampled_from(dtypes)))
    if ties and draw(st.booleans()):
        X[rng.integers(n, size=n // 3)] = X[rng.integers(n, size=n // 3)]  # exact duplicates
    if ties and draw(st.booleans()):
        scales = rng.choice([0.5, 2.0, 8.0, 3.0, 0.7], n // 3)[:, None]
        X[rng.integers(n, size=n // 3)] = X[rng.integers(n, size=n // 3)] * scales.astype(X.dtype)
    if ties and draw(st.booleans()):
        zero = rng.integers(n, size=n // 8)
        X[zero] = 0.0
    return Matrix(X, k)
