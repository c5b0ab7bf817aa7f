"""Data of the mixture benchmarks: the paper's protocol, unequal and non-spherical mixtures, small sets, images."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from benchmarks.data import archive
from benchmarks.methods import MissingError

SIZES = (300, 500, 400, 300, 500)
WIDTHS = (200, 120, 160)
UNEQUAL = {  # k, separation, decades of a component's variances, decades of the features' scales
    "k=5 sep 2": (5, 2.0, 0.6, 0.0),
    "k=10 sep 2.5": (10, 2.5, 0.6, 0.0),
    "k=20 sep 3": (20, 3.0, 0.6, 0.0),
    "k=20 sep 4, scales": (20, 4.0, 1.0, 2.0),
    "k=50 sep 5": (50, 5.0, 0.6, 0.0),
}
HEAVY = {  # k, features, rows, degrees of freedom, form of the scales; "skew": exponentials of normal rows
    "t 3, k=5 p=5": (5, 5, 1500, 3.0, "diag"),
    "t 5, k=10 p=10": (10, 10, 2000, 5.0, "diag"),
    "t 4, k=5 p=10, full": (5, 10, 1500, 4.0, "full"),
    "t 5, k=8 p=20, full": (8, 20, 2400, 5.0, "full"),
    "skew, k=5 p=10": (5, 10, 1500, np.inf, "diag"),
    "breast_cancer": (2, 30, 569, 0.0, "full"),
}
SMALL = {"iris": "full", "wine": "full", "wine diag": "diag", "digits": "diag", "anisotropic": "full", "blobs": "diag"}
IMAGES = {  # file, array, number of classes
    "YALE": ("yale/yale.npz", "images32", 15),
    "UMIST": ("umist/umist_32x32.npz", "images", 20),
    "COIL-20": ("coil20/coil20_32x32.npz", "images", 20),
    "COIL-100": ("coil100/coil100_10views_64x64.npz", "images", 100),
    "USPS": ("usps/usps_9298_16x16.npz", "images_x1000", 10),
    "MNIST-5k": ("mnist5k/mnist_5k.npz", "images", 10),
}


class Sample(NamedTuple):
    """Rows X (n, p), labels (n,), and what is known of the truth."""

    X: np.ndarray
    labels: np.ndarray
    k: int
    means: np.ndarray | None = None
    weights: np.ndarray | None = None
    variances: np.ndarray | None = None
    planted: np.ndarray | None = None  # rows that are the means
    views: list[slice] | None = None
    test: np.ndarray | None = None  # other rows of the same mixture


@lru_cache(maxsize=2)
def paper(variance: float, noise: float, seed: int, part: int = 1) -> Sample:
    """
    The paper's protocol: five clusters in three views, and their means among the rows; `part` of it for quick runs.

    Means are uniform in [0, 1]; features vary by `variance` within a cluster, noise of standard deviation `noise` is
    added. Rows are shuffled: with the means as the first rows, no votes at all and a stable sort would find them.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, 480]))
    sizes, widths = (np.array(given) // part for given in (SIZES, WIDTHS))
    k, p = len(sizes), sum(widths)
    means = rng.random((k, p))
    labels = np.repeat(np.arange(k), sizes)
    X = means[labels] + np.sqrt(variance) * rng.standard_normal((len(labels), p))
    X += noise * rng.standard_normal(X.shape)
    X, labels = np.vstack([X, means]), np.concatenate([labels, np.arange(k)])
    order = rng.permutation(len(X))
    planted = np.argsort(order)[-k:]
    edges = np.cumsum([0, *widths])
    views = [slice(int(a), int(b)) for a, b in pairwise(edges)]
    weights = sizes / sum(sizes)
    variances = np.full((k, p), variance + noise**2)
    return Sample(X[order], labels[order], k, means, weights, variances, planted, views)


@lru_cache(maxsize=2)
def unequal(name: str, seed: int, n: int = 3000, p: int = 30) -> Sample:
    """Unequal weights, variances of their own for each component and feature; as many rows again to test on."""
    k, separation, own, shared = UNEQUAL[name]
    rng = np.random.default_rng(np.random.SeedSequence([seed, k, int(10 * separation)]))
    weights = rng.dirichlet(np.full(k, 2.0)) + 0.3 / k
    weights /= weights.sum()
    means = separation * rng.standard_normal((k, p)) / np.sqrt(p)
    scales = 10.0 ** rng.uniform(-shared / 2, shared / 2, p)
    variances = scales * np.mean(1 / scales) * 10.0 ** rng.uniform(-own / 2, own / 2, (k, p))
    labels = rng.choice(k, 2 * n, p=weights)
    X = means[labels] + np.sqrt(variances[labels]) * rng.standard_normal((2 * n, p))
    return Sample(X[:n], labels[:n], k, means, weights, variances, test=X[n:])


@lru_cache(maxsize=2)
def heavy(name: str, seed: int) -> Sample:
    """Clusters with heavy tails, six deviations apart; as many rows again to test on (of breast_cancer a fifth)."""
    from sklearn import datasets

    k, p, n, degrees, form = HEAVY[name]
    rng = np.random.default_rng(np.random.SeedSequence([seed, k, p, n]))
    if name == "breast_cancer":
        X, labels = datasets.load_breast_cancer(return_X_y=True)
        order, n = rng.permutation(len(X)), 455
        return Sample(X[order[:n]], labels[order[:n]], k, test=X[order[n:]])
    means = 6.0 * rng.standard_normal((k, p)) / np.sqrt(p)
    deviations = 10.0 ** rng.uniform(-0.25, 0.25, (k, 1, p))
    turns = np.linalg.qr(rng.standard_normal((k, p, p)))[0] if form == "full" else np.eye(p)
    factors = np.broadcast_to(turns * deviations, (k, p, p))
    labels = rng.choice(k, 2 * n, p=(rng.dirichlet(np.full(k, 2.0)) + 0.3 / k) / 1.3)
    away = np.einsum("nij,nj->ni", factors[labels], rng.standard_normal((2 * n, p)))
    if np.isfinite(degrees):
        away /= np.sqrt(rng.chisquare(degrees, (2 * n, 1)) / degrees)
    X = means[labels] + away
    X = X if np.isfinite(degrees) else np.exp(0.7 * X)
    return Sample(X[:n], labels[:n], k, test=X[n:])


@lru_cache(maxsize=2)
def small(name: str, seed: int) -> Sample:
    """Sets of few features: three that scikit-learn ships, and blobs in two dimensions."""
    from sklearn import datasets

    name = name.split()[0]
    if name in ("iris", "wine", "digits"):
        X, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    else:
        X, labels = datasets.make_blobs(1500, centers=5 if name == "blobs" else 3, random_state=seed)
        X = X @ [[0.6, -0.6], [-0.4, 0.8]] if name == "anisotropic" else X
    order = np.random.default_rng(seed).permutation(len(X))
    return Sample(X[order].astype(float), labels[order], len(np.unique(labels)))


@lru_cache(maxsize=2)
def images(name: str, k: int) -> Sample:
    """Grey images of the first k classes, pixels in [0, 1] (USPS: [-1, 1]), rows shuffled."""
    file, array, classes = IMAGES[name]
    if k > classes:
        raise MissingError("")
    with archive(file) as content:
        pixels, labels = content[array], content["y"]
    chosen = np.isin(labels, np.unique(labels)[:k])
    X = pixels[chosen].reshape(chosen.sum(), -1) / float(pixels.max())
    order = np.random.default_rng(0).permutation(len(X))
    return Sample(X[order], labels[chosen][order], k)
