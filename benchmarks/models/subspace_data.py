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
    shared = rng.standard_normal(p)
    centres = (shared if common else rng.standard_normal(p) for _ in range(k))
    return _noisy([_cone(centre, span, n, rng, balanced=common) for centre in centres], noise, rng)


@lru_cache(maxsize=2)
def cones_apart(angle: float, noise: float, seed: int, *, k: int = 4, n: int = 250, p: int = 300) -> Planted:
    """As `cones`, 60 degrees wide, but the centres of any two stand at a given angle, and the rays of each balance."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, int(angle), int(100 * noise), 60]))
    shared, *own = np.linalg.qr(rng.standard_normal((p, k + 1)))[0].T
    near = np.sqrt(np.cos(np.deg2rad(angle)))  # of every centre to what they share
    parts = [_cone(near * shared + np.sqrt(1.0 - near**2) * one, 60, n, rng, balanced=True) for one in own]
    return _noisy(parts, noise, rng)


def rare_cone(seed: int, *, n: int = 5000, few: int = 12, p: int = 60) -> Planted:
    """Cones of five rays, three of n rows each and one of a few, in slight noise."""
    rng = np.random.default_rng(seed)
    sizes = (n, n, n, few)
    parts = [rng.random((m, 5)) @ (rng.standard_normal(p) + 2 * rng.standard_normal((5, p))) for m in sizes]
    X = np.vstack(parts)
    X += 0.1 / np.sqrt(p) * np.linalg.norm(X, axis=1, keepdims=True) * rng.standard_normal(X.shape)
    order = rng.permutation(len(X))
    return Planted(X[order], np.repeat(np.arange(4), sizes)[order], 4)


def _cone(centre: np.ndarray, span: float, n: int, rng: np.random.Generator, *, balanced: bool) -> np.ndarray:
    """Rows of a cone, its ten rays first."""
    half, rays = np.deg2rad(span / 2), 10
    centre = centre / np.linalg.norm(centre)
    sides = rng.standard_normal((rays, len(centre)))
    sides -= np.outer(sides @ centre, centre)
    sides -= sides.mean(axis=0) if balanced else 0.0
    sides /= np.linalg.norm(sides, axis=1, keepdims=True)
    F = rng.random((n, rays))
    F[:rays] = np.eye(rays)
    return F @ (np.cos(half) * centre + np.sin(half) * sides)


def _noisy(parts: list[np.ndarray], noise: float, rng: np.random.Generator) -> Planted:
    """The rows of all cones, shuffled, with noise."""
    clean, n = np.vstack(parts), len(parts[0])
    labels = np.repeat(np.arange(len(parts)), n)
    is_ray = np.tile(np.arange(n) < 10, len(parts))
    scale = noise * np.linalg.norm(clean, axis=1, keepdims=True) / np.sqrt(clean.shape[1])
    X = clean + scale * rng.standard_normal(clean.shape)
    order = rng.permutation(len(X))
    return Planted(X[order], labels[order], len(parts), is_ray[order], clean[order])


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
