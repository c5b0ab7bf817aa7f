"""Data of the subspace clustering benchmarks: the paper's cones, cones with a common centre, images."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from benchmarks.data import archive
from benchmarks.markov_data import windows

IMAGES = {  # file, array, number of classes
    "YALE": ("yale/yale.npz", "images32", 15),
    "UMIST": ("umist/umist_32x32.npz", "images", 20),
    "COIL-20": ("coil20/coil20_32x32.npz", "images", 20),
    "COIL-100": ("coil100/coil100_10views_64x64.npz", "images", 100),
    "MNIST-5k": ("mnist5k/mnist_5k.npz", "images", 10),
    "USPS": ("usps/usps_9298_16x16.npz", "images_x1000", 10),
}


class Planted(NamedTuple):
    """Rows X (n, p), labels (n,), number of clusters, and for planted cones which rows are rays."""

    X: np.ndarray
    labels: np.ndarray
    k: int
    is_ray: np.ndarray | None = None
    clean: np.ndarray | None = None


@lru_cache(maxsize=2)
def cones(span: float, noise: float, seed: int, *, common: bool, k: int = 4, n: int = 500, p: int = 300) -> Planted:
    """
    The paper's protocol: n rows in each of k cones of ten rays, coefficients U[0, 1], the rays among the rows.

    Rays stand span / 2 degrees off the centre of their cone; noise is relative to each row's norm. With `common` the
    cones share one centre, on which the rays of each balance: no mean tells clusters apart.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, int(span), int(100 * noise), int(common)]))
    half, rays, shared, parts = np.deg2rad(span / 2), 10, rng.standard_normal(p), []
    for _ in range(k):
        centre = shared if common else rng.standard_normal(p)
        centre = centre / np.linalg.norm(centre)
        sides = rng.standard_normal((rays, p))
        sides -= np.outer(sides @ centre, centre)
        sides -= sides.mean(axis=0) if common else 0.0
        sides /= np.linalg.norm(sides, axis=1, keepdims=True)
        F = rng.random((n, rays))
        F[:rays] = np.eye(rays)
        parts.append(F @ (np.cos(half) * centre + np.sin(half) * sides))
    clean, labels = np.vstack(parts), np.repeat(np.arange(k), n)
    is_ray = np.tile(np.arange(n) < rays, k)
    scale = noise * np.linalg.norm(clean, axis=1, keepdims=True) / np.sqrt(p)
    X = clean + scale * rng.standard_normal(clean.shape)
    order = rng.permutation(len(X))
    return Planted(X[order], labels[order], k, is_ray[order], clean[order])


@lru_cache(maxsize=2)
def images(name: str, classes: int | None = None) -> Planted:
    """Images as rows in [0, 1]; `classes`: only that many classes, the first ones. COIL-100 is halved to 32 x 32."""
    path, array, k = IMAGES[name]
    with archive(path) as file:
        X, labels = file[array].astype(float), np.unique(file["y"], return_inverse=True)[1]
    if X.shape[1] == 64:
        X = X.reshape(len(X), 32, 2, 32, 2).mean(axis=(2, 4))
    X = X.reshape(len(X), -1)
    X = (X - min(X.min(), 0.0)) / (X.max() - min(X.min(), 0.0))
    keep = labels < (classes or k)
    return Planted(X[keep], labels[keep], classes or k)


@lru_cache(maxsize=16)
def motions(sequence: str, reach: int) -> Planted:
    """Frames of a labelled recording; with `reach` > 0 mean and deviation over that many frames on either side."""
    with archive("mocap6/mocap6.npz") as file:
        frames, labels = file[f"X_{sequence}"], np.unique(file[f"z_{sequence}"], return_inverse=True)[1]
    return Planted(windows(frames, reach) if reach else frames, labels, int(labels.max()) + 1)
