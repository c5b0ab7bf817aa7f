"""Planted separable data X = F W + noise in the regimes that make anchors hard to find.

Every regime draws vertices W (k x p, non-negative) and coefficients F (n x k), of which k rows (or 50 copies
of each) are pure: F_i = e_j, so that X_i is vertex j. Rows are shuffled by the seed. The rows that count as
found for ray j are those whose share F_ij / sum(F_i) is at least 1 - `tolerance` (0: the pure rows only).

Unless the table below says otherwise W is U[0, 1] and the rows of F are Dirichlet(1).

================== =======================================================================================
dirichlet1         as above: one pure row a ray
dirichlet.1        Dirichlet(.1): most rows lie near a face, only the pure row counts
uniform            coefficients U[0, 1], not normalised (the paper's protocol); pure rows have the least mass
ill                W of condition 100: its singular values fall geometrically from the second one on
sparse             W sparse: a fifth of the entries are not zero
smooth             max(5, n / 20k) rows a ray with share >= .95, one of them pure; all of them count
duplicates         Dirichlet(.05); 50 exact copies of each pure row (fewer if n < 200 k); share >= .98 counts
near-duplicates    the same, each copy with its own 2 % of noise
outliers           1.5 % of the rows replaced: random sparse directions, three times the mean norm
heteroscedastic    the noise levels of the features are log-uniform over two decades
poisson            counts: X ~ Poisson(c F W), c such that the relative noise is `noise`
rowscale           rows of F (pure ones too) multiplied by lognormal(sigma = 1.5); noise added after
================== =======================================================================================

Noise is Gaussian, added to all rows (pure ones and outliers too) and never clipped: |N|_F / |F W|_F = noise,
exactly (Poisson: in expectation). The same seed gives the same F, W and order of rows for every noise level.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np

OUTLIER_SHARE = 0.015
DENSITY = 0.2  # of sparse vertices and of outlier rows
CONDITION = 100.0


@dataclass(frozen=True)
class Regime:
    """How F, W and the noise of one regime are drawn; `alpha` None means uniform coefficients."""

    alpha: float | None = 1.0
    vertices: str = "uniform"
    noise: str = "gaussian"
    tolerance: float = 0.0
    copies: int = 1
    copy_noise: float = 0.0
    near: bool = False
    outliers: bool = False
    row_sigma: float = 0.0


REGIMES: dict[str, Regime] = {
    "dirichlet1": Regime(),
    "dirichlet.1": Regime(alpha=0.1),
    "uniform": Regime(alpha=None),
    "ill": Regime(vertices="ill"),
    "sparse": Regime(vertices="sparse"),
    "smooth": Regime(near=True, tolerance=0.05),
    "duplicates": Regime(alpha=0.05, copies=50, tolerance=0.02),
    "near-duplicates": Regime(alpha=0.05, copies=50, tolerance=0.02, copy_noise=0.02),
    "outliers": Regime(outliers=True),
    "heteroscedastic": Regime(noise="heteroscedastic"),
    "poisson": Regime(noise="poisson"),
    "rowscale": Regime(row_sigma=1.5),
}


@dataclass(frozen=True)
class Planted:
    """X (n, p), the rows that count for each ray (a pure one first), vertices W (k, p), X without noise."""

    X: np.ndarray
    anchors: list[np.ndarray]
    W: np.ndarray
    clean: np.ndarray = field(repr=False)


def make(regime: str, n: int, p: int, k: int, noise: float, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """X (n, p) float64 and, for each of the k rays, the rows of X that count as its anchor."""
    planted = plant(regime, n, p, k, noise, seed)
    return planted.X, planted.anchors


def plant(regime: str, n: int, p: int, k: int, noise: float, seed: int) -> Planted:
    """`make`, with the vertices and the noiseless rows."""
    if regime not in REGIMES:
        raise ValueError(f"unknown regime {regime!r}: one of {', '.join(REGIMES)}")
    spec = REGIMES[regime]
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(zlib.crc32(regime.encode()),)))
    W = _vertices(rng, spec.vertices, k, p)
    F, n_pure = _coefficients(rng, spec, n, k)
    clean = F @ W
    shares = F / F.sum(axis=1, keepdims=True)
    if spec.copy_noise:
        jitter = rng.standard_normal((n_pure, p)) / np.sqrt(p)
        clean[:n_pure] += spec.copy_noise * np.linalg.norm(clean[:n_pure], axis=1, keepdims=True) * jitter
    if spec.outliers:
        _put_outliers(rng, clean, shares)
    order = rng.permutation(n)
    clean, shares = clean[order], shares[order]
    X, clean = _add_noise(rng, spec.noise, clean, noise)
    return Planted(X, _hits(shares, spec.tolerance), W, clean)


def recall(indices: np.ndarray, anchors: list[np.ndarray] | np.ndarray) -> float:
    """Share of the rays that have at least one of their rows among `indices`."""
    return float(np.mean([np.isin(rows, indices).any() for rows in anchors]))


def _vertices(rng: np.random.Generator, kind: str, k: int, p: int) -> np.ndarray:
    W = rng.random((k, p))
    if kind == "sparse":
        keep = rng.random((k, p)) < DENSITY
        keep[np.arange(k), rng.integers(p, size=k)] = True
        return W * keep
    if kind == "ill" and k > 1:
        U, sv, Vt = np.linalg.svd(W, full_matrices=False)
        sv[1:] = np.geomspace(sv[1], sv[0] / CONDITION, k - 1)
        return np.maximum((U * sv) @ Vt, 0)
    return W


def _coefficients(rng: np.random.Generator, spec: Regime, n: int, k: int) -> tuple[np.ndarray, int]:
    """F (n, k) with its pure rows first, ray by ray, and how many these are."""
    F = rng.random((n, k)) if spec.alpha is None else rng.dirichlet(np.full(k, spec.alpha), size=n)
    copies = 1 if spec.copies == 1 else max(2, min(spec.copies, n // (4 * k)))
    n_pure = copies * k
    if n < n_pure:
        raise ValueError(f"{n} rows can't hold {n_pure} pure rows: more rows or fewer components")
    F[:n_pure] = np.repeat(np.eye(k), copies, axis=0)
    if spec.near:
        m = min(max(5, n // (20 * k)), n // k) - 1
        distance = rng.uniform(0, spec.tolerance, size=(m * k, 1))
        rows = slice(n_pure, n_pure + m * k)
        F[rows] = (1 - distance) * np.repeat(np.eye(k), m, axis=0) + distance * F[rows]
    if spec.row_sigma:
        F *= rng.lognormal(sigma=spec.row_sigma, size=(n, 1))
    return F, n_pure


def _put_outliers(rng: np.random.Generator, clean: np.ndarray, shares: np.ndarray) -> None:
    """Replace the last rows in place: they belong to no ray."""
    n, p = clean.shape
    m = max(1, round(OUTLIER_SHARE * n))
    norm = np.linalg.norm(clean, axis=1).mean()
    rows = _vertices(rng, "sparse", m, p)
    clean[-m:] = 3 * norm * rows / np.linalg.norm(rows, axis=1, keepdims=True)
    shares[-m:] = 0


def _add_noise(rng: np.random.Generator, kind: str, clean: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Noisy rows and the noiseless ones in the same unit (for counts: the expected ones)."""
    if noise == 0:
        return clean.copy(), clean
    if kind == "poisson":
        rates = clean * (clean.sum() / (noise**2 * np.sum(clean**2)))
        return rng.poisson(rates).astype(np.float64), rates
    N = rng.standard_normal(clean.shape)
    if kind == "heteroscedastic":
        N *= 10 ** rng.uniform(-1, 1, size=clean.shape[1])
    return clean + N * (noise * np.linalg.norm(clean) / np.linalg.norm(N)), clean


def _hits(shares: np.ndarray, tolerance: float) -> list[np.ndarray]:
    """Per ray the rows with a share of at least 1 - tolerance, greatest share first."""
    hits = []
    for share in shares.T:
        rows = np.flatnonzero(share >= 1 - tolerance - 1e-12)
        hits.append(rows[np.argsort(-share[rows], kind="stable")])
    return hits
