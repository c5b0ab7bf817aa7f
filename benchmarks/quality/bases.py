"""Q12: bases that are no rows: how little they leave of the data, and how near rays are that no row is on."""

from __future__ import annotations

import time
import warnings
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from benchmarks.data import archive
from benchmarks.harness import Benchmark, Check, Record, Table, group, mean
from benchmarks.methods import MissingError
from benchmarks.peers import sisal, vca
from benchmarks.regimes import REGIMES, plant
from benchmarks.scores import angles, match

FREE, RAYS, ROWS, AUTO = "dask_dca free", "dask_dca rays", "dask_dca rows", "dask_dca auto"
PEER, BATCHES = "scikit-learn", "scikit-learn MiniBatchNMF"
SETS = {
    "random": 20,
    "digits": 20,
    "digits, 28 x 28": 20,
    "faces (UMIST)": 25,
    "faces (YALE)": 15,
    "swimmer": 16,
    "AP counts": 20,
}
COUNTS = {"AP counts": {"beta_loss": "kullback-leibler"}}
SEEDS = (0, 1, 2, 3, 4)
CLOSE = 1.001  # of the peer's best loss


def _digits(quick: bool) -> np.ndarray:
    from sklearn.datasets import load_digits

    return load_digits().data[: 300 if quick else None]


@lru_cache(maxsize=1)
def matrix(name: str, quick: bool) -> Any:
    """Rows of a set, non-negative; sparse counts."""
    if name == "random":
        return np.random.default_rng(0).random((200, 30) if quick else (3000, 100))
    if name == "digits":
        return _digits(quick)
    if name in COUNTS:
        with archive("ap/ap_2246x10473_csr.npz") as file:
            parts = file["data"].astype(float), file["indices"], file["indptr"]
            return sparse.csr_matrix(parts, shape=file["shape"])
    file, key = {
        "digits, 28 x 28": ("mnist5k/mnist_5k.npz", "images"),
        "faces (UMIST)": ("umist/umist_32x32.npz", "images"),
        "faces (YALE)": ("yale/yale.npz", "images32"),
        "swimmer": ("swimmer/swimmer.npz", "images"),
    }[name]
    images = archive(file)[key]
    return images.reshape(len(images), -1) / 255.0


def _peer(X: Any, k: int, seed: int, **options: Any) -> Any:
    from sklearn.decomposition import NMF

    options |= {"solver": "mu"} if options else {}
    return NMF(k, init="random" if seed else None, random_state=seed, **options).fit(X)


def _batches(X: Any, k: int, seed: int, **options: Any) -> Any:
    from sklearn.decomposition import MiniBatchNMF

    return MiniBatchNMF(k, init="random" if seed else None, random_state=seed, **options).fit(X)


def _limbs(components: np.ndarray) -> int:
    """How many of the swimmer's sixteen limbs are alone in a component, its body aside (cosine above .8)."""
    images = matrix("swimmer", quick=False)
    places = np.array(np.unravel_index(np.arange(len(images)), (4, 4, 4, 4)))
    own = np.array(
        [images[limb == at].mean(axis=0) - images[limb != at].mean(axis=0) for limb in places for at in range(4)]
    )
    masks = (own > 0.5 * own.max(axis=1, keepdims=True)).astype(float)
    there = masks.any(axis=0)
    return int((angles(masks[:, there], components[:, there]).min(axis=1) < np.degrees(np.arccos(0.8))).sum())


def _cpu(function: Any) -> tuple[Any, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the peer says when it stops before convergence; that is its default
        start = time.process_time()
        found = function()
    return found, time.process_time() - start


class FreeBases(Benchmark):
    """What is left of the data."""

    id = "Q12-free"
    title = "Residual of a free basis on data without pure rows"
    protocol = (
        "Random numbers (3,000 x 100, k = 20), scikit-learn's digits (1,797 x 64, k = 20), 5,000 digits of 28 x "
        "28 (k = 20), faces (UMIST 575 and YALE 165 x 1,024, k = 25 and 15), the noisy swimmer (256 x 1,024, k = "
        "16), words of AP (2,246 x 10,473 counts, k = 20). Left: the residual by the fit's own "
        "reconstruction_err_, as a share of the sum of squares; for counts the divergence per word, in nats. "
        "Ratios are to the smallest of scikit-learn's (its default start and four random ones, default "
        "parameters; multiplicative steps for counts); CPU seconds of one fit. Ours is one fit."
    )
    param_names: ClassVar = ["set", "method", "seed"]
    params: ClassVar = [tuple(SETS), (FREE, ROWS, PEER, BATCHES), SEEDS]
    quick_params: ClassVar = {"set": ("random", "digits"), "seed": (0,)}
    tables: ClassVar = [
        Table("Share of the squares (nats a word) that is left", ["set"], "left", better="min", digits=5),
        Table("Limbs of the swimmer, of sixteen", ["set"], "limbs", where={"set": "swimmer"}, digits=1),
        Table("CPU seconds", ["set"], "cpu", better="min"),
    ]

    def setup(self, name: str, method: str, seed: int) -> None:
        if (method in (FREE, ROWS) and seed) or (method == ROWS and name in COUNTS):
            raise MissingError("")
        self.X, self.k = matrix(name, self.quick), 4 if self.quick else SETS[name]

    def measure(self, name: str, method: str, seed: int) -> Record:
        from dask_dca import NMF

        X, k, options = self.X, self.k, COUNTS.get(name, {})
        fits = {
            PEER: lambda: _peer(X, k, seed, **options),
            BATCHES: lambda: _batches(X, k, seed, **options),
            FREE: lambda: NMF(k, basis="free", **options).fit(X),
            ROWS: lambda: NMF(k).fit(X),
        }
        model, cpu = _cpu(fits[method])
        error = model.reconstruction_err(X) if method == ROWS else model.reconstruction_err_
        left = error**2 / (2.0 * X.sum() if options else (X**2).sum())
        return {"left": float(left), "cpu": cpu} | ({"limbs": _limbs(model.components_)} if name == "swimmer" else {})

    def track_left(self, *params: Any) -> float:
        return self.measure(*params)["left"]

    def check(self, records: list[Record]) -> list[Check]:
        checks = []
        for (name,), rows in group(records, "set").items():
            by = {part: [row["left"] for row in rows if row["method"] == part] for part in (FREE, PEER)}
            if by[FREE] and by[PEER]:
                ratio = by[FREE][0] / min(by[PEER])
                checks.append(Check(f"{name}: at most 1.001 of the peer's best", f"{ratio:.4f}", ratio <= CLOSE))
        limbs = [row["limbs"] for row in records if row["method"] == FREE and "limbs" in row]
        return checks + [Check("all 16 limbs of the swimmer", str(found), found == 16) for found in limbs]


class RayBases(Benchmark):
    """Mean angle to the true rays."""

    id = "Q12-rays"
    title = "Rays of data without pure rows"
    protocol = (
        "4,000 rows of 5, 10 and 20 rays in 60, 100 and 200 features, uniform rays, shares from Dirichlet(1) (of "
        "20 rays: Dirichlet(.5)) of which none is above the greatest share, noise as a share of the rays' range; "
        "1: with ten pure rows per ray. Mean degrees to the true rays by the best matching. SISAL: with its "
        "program's parameters, and with a tenth of its weight for rows outside."
    )
    param_names: ClassVar = ["share", "noise", "k", "method", "seed"]
    params: ClassVar = [
        (0.6, 0.8, 1.0),
        (0.002, 0.02, 0.06, 0.2),
        (5, 10, 20),
        (RAYS, AUTO, ROWS, "vca", "sisal", "sisal, .1", PEER),
        (0,),
    ]
    quick_params: ClassVar = {"share": (0.8,), "noise": (0.02,), "k": (5,), "seed": (0,)}
    tables: ClassVar = [
        Table("Degrees to the true rays", ["share", "noise", "k"], "angle", better="min"),
        Table("CPU seconds", ["k"], "cpu", better="min"),
    ]

    def setup(self, share: float, noise: float, k: int, method: str, seed: int) -> None:
        X, self.rays = _mixtures(share, noise, k, seed)
        self.X = X[:400] if self.quick else X

    def measure(self, share: float, noise: float, k: int, method: str, seed: int) -> Record:
        from dask_dca import NMF

        X = self.X
        fits = {
            "vca": lambda: X[vca(X, k, seed)],
            "sisal": lambda: sisal(X, k, seed),
            "sisal, .1": lambda: sisal(X, k, seed, tau=0.1),
            PEER: lambda: _peer(X, k, seed).components_,
        }
        fits |= {f"dask_dca {basis}": partial(_components, NMF, k, basis, X) for basis in ("rays", "auto", "rows")}
        found, cpu = _cpu(fits[method])
        degrees = angles(found, self.rays)
        return {"angle": float(degrees[match(degrees), np.arange(k)].mean()), "cpu": cpu}

    def track_angle(self, *params: Any) -> float:
        return self.measure(*params)["angle"]

    def check(self, records: list[Record]) -> list[Check]:
        lost, cells, peers = [], group(records, "share", "noise", "k"), (ROWS, "vca", "sisal", "sisal, .1", PEER)
        for cell, rows in cells.items():
            by = {name: mean([row["angle"] for row in rows if row["method"] == name]) for name in self.params[3]}
            best = min(peers, key=by.get)
            if by[RAYS] > by[best]:
                lost.append(f"{' '.join(map(str, cell))} ({by[RAYS]:.2f} > {by[best]:.2f} {best})")
        text = f"lost in {len(lost)} of {len(cells)}: {', '.join(lost) or 'none'}"
        return [Check("rays are nearer than anchors, VCA, SISAL and scikit-learn in every cell", text, not lost)]


class AutoBases(Benchmark):
    """Whether taking rays where their simplex is larger loses anywhere."""

    id = "Q12-auto"
    title = "NMF with an automatic basis, on the regimes of Q1"
    protocol = (
        "The twelve regimes of Q1-regimes, 10,000 x 100 with 10 rays and 300 x 500 with 20, negative entries set "
        "to zero; one seed. Mean degrees from each true ray to the nearest component. Taken: share of fits in "
        "which basis='auto' chose rays."
    )
    param_names: ClassVar = ["n", "regime", "noise", "method"]
    params: ClassVar = [(10_000, 300), tuple(REGIMES), (0.0, 0.1, 0.3, 1.0), (ROWS, AUTO)]
    quick_params: ClassVar = {"n": (300,), "regime": ("uniform", "ill"), "noise": (0.1,)}
    tables: ClassVar = [
        Table("Degrees to the nearest component", ["n", "noise"], "angle", better="min"),
        Table("The same, by regime", ["regime"], "angle", better="min"),
        Table("Rays taken, share of fits", ["n", "noise"], "taken", better="none", where={"method": AUTO}),
    ]

    def setup(self, n: int, regime: str, noise: float, method: str) -> None:
        p, self.k = {10_000: (100, 10), 300: (500, 20)}[n]
        planted = plant(regime, n, p, self.k, noise, 0)
        self.X, self.rays = np.maximum(planted.X, 0.0), planted.W

    def measure(self, n: int, regime: str, noise: float, method: str) -> Record:
        from dask_dca import NMF

        model, cpu = _cpu(lambda: NMF(self.k, basis=method.split()[1]).fit(self.X))
        near = angles(model.components_, self.rays).min(axis=0)
        return {"angle": float(near.mean()), "taken": float(model.basis_ == "rays"), "cpu": cpu}

    def track_angle(self, *params: Any) -> float:
        return self.measure(*params)["angle"]

    def check(self, records: list[Record]) -> list[Check]:
        worse, cells = [], group(records, "n", "regime", "noise")
        for cell, rows in cells.items():
            by = {row["method"]: row["angle"] for row in rows}
            if by[AUTO] > by[ROWS] + 0.01:
                worse.append(f"{' '.join(map(str, cell))} ({by[AUTO]:.2f} > {by[ROWS]:.2f})")
        text = f"further in {len(worse)} of {len(cells)}: {', '.join(worse) or 'none'}"
        return [Check("'auto' is nowhere further from the rays than rows", text, not worse)]


def _components(model: Any, k: int, basis: str, X: np.ndarray) -> np.ndarray:
    return model(k, basis=basis).fit(X).components_


@lru_cache(maxsize=1)
def _mixtures(share: float, noise: float, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p, alpha = {5: (60, 1.0), 10: (100, 1.0), 20: (200, 0.5)}[k]
    rays, shares = rng.random((k, p)), rng.dirichlet(np.full(k, alpha), 60_000)
    shares = shares[shares.max(axis=1) <= share][:4000]
    if share == 1.0:
        shares[: 10 * k] = np.repeat(np.eye(k), 10, axis=0)
    X = rng.permutation(shares) @ rays
    return np.maximum(X + noise * rng.standard_normal(X.shape), 0.0), rays
