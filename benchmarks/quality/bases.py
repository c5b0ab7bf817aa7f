"""Q12: bases that are no rows: how little they leave of the data, and how near rays are that no row is on."""

from __future__ import annotations

import time
import warnings
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from benchmarks.data import archive
from benchmarks.harness import Benchmark, Check, Record, Table, group, mean
from benchmarks.methods import MissingError
from benchmarks.peers import vca
from benchmarks.scores import angles, match

FREE, RAYS, ROWS = "dask_dca free", "dask_dca rays", "dask_dca rows"
PEER = "scikit-learn"
SETS = {"random": 20, "digits": 20, "faces (UMIST)": 25, "faces (YALE)": 15, "swimmer": 16}
SEEDS = (0, 1, 2)
CLOSE = 1.001  # of the peer's best loss


def _digits(quick: bool) -> np.ndarray:
    from sklearn.datasets import load_digits

    return load_digits().data[: 300 if quick else None]


@lru_cache(maxsize=1)
def matrix(name: str, quick: bool) -> np.ndarray:
    """Rows of a set, non-negative."""
    if name == "random":
        return np.random.default_rng(0).random((200, 30) if quick else (3000, 100))
    if name == "digits":
        return _digits(quick)
    file, key = {
        "faces (UMIST)": ("umist/umist_32x32.npz", "images"),
        "faces (YALE)": ("yale/yale.npz", "images32"),
        "swimmer": ("swimmer/swimmer.npz", "images"),
    }[name]
    images = archive(file)[key]
    return images.reshape(len(images), -1) / 255.0


def _peer(X: np.ndarray, k: int, seed: int) -> Any:
    from sklearn.decomposition import NMF

    return NMF(k, init="random" if seed else None, random_state=seed).fit(X)


def _cpu(function: Any) -> tuple[Any, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the peer says when it stops before convergence; that is its default
        start = time.process_time()
        found = function()
    return found, time.process_time() - start


class FreeBases(Benchmark):
    """The share of the energy that is left."""

    id = "Q12-free"
    title = "What a free basis leaves of data without pure rows"
    protocol = (
        "Random numbers (3,000 x 100, k = 20), scikit-learn's digits (1,797 x 64, k = 20), faces (UMIST 575 and YALE "
        "165 x 1,024, k = 25 and 15), the noisy swimmer (256 x 1,024, k = 16). Share of the squares that is left by "
        "the fit's own reconstruction_err_, over the least of scikit-learn's (its default start and two random ones, "
        "default parameters); CPU seconds of one fit. Ours is one fit."
    )
    param_names: ClassVar = ["set", "method", "seed"]
    params: ClassVar = [tuple(SETS), (FREE, ROWS, PEER), SEEDS]
    quick_params: ClassVar = {"set": ("random", "digits"), "seed": (0,)}
    tables: ClassVar = [
        Table("Share of the squares that is left", ["set"], "left", better="min", digits=5),
        Table("CPU seconds", ["set"], "cpu", better="min"),
    ]

    def setup(self, name: str, method: str, seed: int) -> None:
        if method != PEER and seed:
            raise MissingError("")
        self.X, self.k = matrix(name, self.quick), 4 if self.quick else SETS[name]

    def measure(self, name: str, method: str, seed: int) -> Record:
        from dask_dca import NMF

        X, k = self.X, self.k
        if method == PEER:
            model, cpu = _cpu(lambda: _peer(X, k, seed))
        else:
            model, cpu = _cpu(lambda: NMF(k, basis="free" if method == FREE else "rows").fit(X))
        error = model.reconstruction_err(X) if method == ROWS else model.reconstruction_err_
        return {"left": float(error**2 / (X**2).sum()), "cpu": cpu}

    def track_left(self, *params: Any) -> float:
        return self.measure(*params)["left"]

    def check(self, records: list[Record]) -> list[Check]:
        checks = []
        for (name,), rows in group(records, "set").items():
            by = {part: [row["left"] for row in rows if row["method"] == part] for part in (FREE, PEER)}
            if by[FREE] and by[PEER]:
                ratio = by[FREE][0] / min(by[PEER])
                checks.append(Check(f"{name}: at most 1.001 of the peer's best", f"{ratio:.4f}", ratio <= CLOSE))
        return checks


class RayBases(Benchmark):
    """Mean angle to the true rays."""

    id = "Q12-rays"
    title = "Rays that no row is on"
    protocol = (
        "4,000 rows (5 and 10 rays) in 60 and 100 features, uniform rays, shares from Dirichlet(1) of which none "
        "is above the greatest share, noise as a share of the rays' range; 1 is with ten pure rows a ray. Mean "
        "degrees to the true rays by the best matching."
    )
    param_names: ClassVar = ["share", "noise", "k", "method", "seed"]
    params: ClassVar = [(0.6, 0.8, 1.0), (0.002, 0.02, 0.06, 0.2), (5, 10), (RAYS, ROWS, "vca", PEER), (0,)]
    quick_params: ClassVar = {"share": (0.8,), "noise": (0.02,), "k": (5,), "seed": (0,)}
    tables: ClassVar = [Table("Degrees to the true rays", ["share", "noise", "k"], "angle", better="min")]

    def setup(self, share: float, noise: float, k: int, method: str, seed: int) -> None:
        self.X, self.rays = _mixtures(share, noise, k, seed)

    def measure(self, share: float, noise: float, k: int, method: str, seed: int) -> Record:
        from dask_dca import NMF

        X = self.X
        if method == "vca":
            found, cpu = _cpu(lambda: X[vca(X, k, seed)])
        elif method == PEER:
            found, cpu = _cpu(lambda: _peer(X, k, seed).components_)
        else:
            basis = "rays" if method == RAYS else "rows"
            found, cpu = _cpu(lambda: NMF(k, basis=basis).fit(X).components_)
        degrees = angles(found, self.rays)
        return {"angle": float(degrees[match(degrees), np.arange(k)].mean()), "cpu": cpu}

    def track_angle(self, *params: Any) -> float:
        return self.measure(*params)["angle"]

    def check(self, records: list[Record]) -> list[Check]:
        lost, cells = [], group(records, "share", "noise", "k")
        for cell, rows in cells.items():
            by = {name: mean([row["angle"] for row in rows if row["method"] == name]) for name in self.params[3]}
            if by[RAYS] > min(by[ROWS], by["vca"], by[PEER]):
                lost.append(" ".join(map(str, cell)))
        text = f"lost in {len(lost)} of {len(cells)}: {', '.join(lost) or 'none'}"
        return [Check("rays are nearer than anchors, VCA and scikit-learn in every cell", text, not lost)]


@lru_cache(maxsize=1)
def _mixtures(share: float, noise: float, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rays, shares = rng.random((k, 12 * k if k == 5 else 10 * k)), rng.dirichlet(np.ones(k), 60_000)
    shares = shares[shares.max(axis=1) <= share][:4000]
    if share == 1.0:
        shares[: 10 * k] = np.repeat(np.eye(k), 10, axis=0)
    X = rng.permutation(shares) @ rays
    return np.maximum(X + noise * rng.standard_normal(X.shape), 0.0), rays
