"""Q3-library: which spectra of a library an image is mixed from, though no pixel is pure."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import nnls

from benchmarks import data
from benchmarks.harness import Benchmark, Check, Record, Table, group, mean, timed
from benchmarks.scores import angles

PIXELS = 10_000
SAMPLE = 50  # pixels that peers regress on


def spectra() -> np.ndarray:
    """All usable spectra of the library, on the bands that nearly all have."""
    with data.archive("usgs_library/usgs_1995_library.npz") as file:
        found = file["spectra"].T.astype(float)
    usable = np.isfinite(found) & (found >= 0) & (found <= 1.2)
    rows = usable.mean(axis=1) > 0.9
    bands = usable[rows].mean(axis=0) > 0.98
    found, usable = found[rows][:, bands], usable[rows][:, bands]
    return found[usable.all(axis=1)]


def scene(library: np.ndarray, k: int, snr: float, purest: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(library), k, replace=False)
    shares = rng.dirichlet(np.full(k, 0.5), 12 * PIXELS)
    clean = shares[shares.max(axis=1) <= purest][:PIXELS] @ library[rows]
    noise = rng.standard_normal(clean.shape)
    return clean + noise * (10 ** (-snr / 20) * np.linalg.norm(clean) / np.linalg.norm(noise)), rows


def dask_dca(X: np.ndarray, library: np.ndarray, k: int) -> np.ndarray:
    import dask_dca as dca

    return dca.find_anchors(X, k, Y=library).indices


def pruned_nnls(X: np.ndarray, library: np.ndarray, k: int) -> np.ndarray:
    """Non-negative least squares on some pixels; the half of least weight leaves, until k rows are left."""
    some, left = X[:: len(X) // SAMPLE], np.arange(len(library))
    while True:
        weights = sum(nnls(library[left].T, row)[0] for row in some)
        kept = max(k, len(left) // 2)
        left = left[np.sort(np.argsort(-weights)[:kept])]
        if kept == k:
            return left


def collaborative(X: np.ndarray, library: np.ndarray, k: int, weight: float = 0.01, sweeps: int = 100) -> np.ndarray:
    """CLSUnSAL: sparse regression with a penalty on the rows of the coefficients, by ADMM; the k longest rows."""
    some, m = X[:: len(X) // SAMPLE].T, len(library)
    A, rho = library.T, 0.1
    inverse = np.linalg.inv(A.T @ A + 2 * rho * np.eye(m))
    right, Z = A.T @ some, np.zeros((m, some.shape[1]))
    P, U, V = Z.copy(), Z.copy(), Z.copy()
    for _ in range(sweeps):
        F = inverse @ (right + rho * (Z - U) + rho * (P - V))
        lengths = np.linalg.norm(F + U, axis=1, keepdims=True)
        Z = (F + U) * np.maximum(1.0 - weight / rho / np.maximum(lengths, 1e-12), 0.0)
        P = np.maximum(F + V, 0.0)
        U, V = U + F - Z, V + F - P
    return np.argsort(-np.linalg.norm(P, axis=1))[:k]


def nearest(X: np.ndarray, library: np.ndarray, k: int) -> np.ndarray:
    """The anchors of the image, each by the row of least angle."""
    import dask_dca as dca

    rows = dca.find_anchors(X, k).rows
    unit = library / np.linalg.norm(library, axis=1, keepdims=True)
    return np.unique((rows @ unit.T).argmax(axis=1))


METHODS = {"dask_dca": dask_dca, "nnls_pruned": pruned_nnls, "clsunsal": collaborative, "nearest": nearest}


class Library(Benchmark):
    """Spectra of a library, by name."""

    id = "Q3-library"
    title = "Hyperspectral: which of 498 measured spectra is an image mixed from?"
    protocol = (
        "10,000 pixels, Dirichlet(.5) shares of k random spectra of the USGS library, none above the greatest "
        "share; Gaussian noise at 20, 30 and 40 dB; one seed. Named: share of the k spectra that are identified. "
        "Peers regress 50 of the pixels."
    )
    param_names: ClassVar = ["k", "snr", "purest", "seed", "method"]
    params: ClassVar = [(5, 10, 15), (20, 30, 40), (0.6, 1.0), (0,), tuple(METHODS)]
    quick_params: ClassVar = {"k": (5,), "snr": (30,), "seed": (0,)}
    tables: ClassVar = [
        Table("Share of the spectra that are named", ["k", "snr", "purest"], "named", better="max"),
        Table("Seconds", ["k", "snr", "purest"], "seconds", better="min", digits=2),
    ]

    def setup(self, k: int, snr: float, purest: float, seed: int, method: str) -> None:
        self.library = spectra()
        self.X, self.rows = scene(self.library, k, snr, purest, seed)

    def measure(self, k: int, snr: float, purest: float, seed: int, method: str) -> dict[str, float]:
        found, seconds = timed(lambda: METHODS[method](self.X, self.library, k))
        return {"named": float(np.isin(self.rows, found).mean()), "seconds": seconds}

    def track_named(self, *params: Any) -> float:
        return self.measure(*params)["named"]

    def check(self, records: list[Record]) -> list[Check]:
        must = "mean share named >= .95, and >= each peer's"
        means = {name: mean([r["named"] for r in rs]) for (name,), rs in group(records, "method").items()}
        text = ", ".join(f"{name} {share:.2f}" for name, share in means.items())
        ours = means.get("dask_dca", 0.0)
        return [Check(must, text, ours >= 0.95 and ours >= max(means.values()))]


class LackingLibrary(Benchmark):
    """Whether a fit tells that spectra are not in the library."""

    id = "Q3-lacking"
    title = "Hyperspectral: an incomplete library"
    protocol = (
        "As Q3-library, no pixel purer than .8; none, one or two of the k spectra, and all within three degrees "
        "of them, are removed from the library. Told: IncompleteLibraryWarning, share of fits; left: "
        "`unexplained`. Three seeds."
    )
    param_names: ClassVar = ["k", "snr", "lacking", "seed", "method"]
    params: ClassVar = [(5, 10), (20, 30, 40), (0, 1, 2), (0, 1, 2), ("dask_dca",)]
    quick_params: ClassVar = {"k": (5,), "snr": (30,), "seed": (0,)}
    tables: ClassVar = [
        Table("Told, share of fits", ["k", "snr"], "told", columns="lacking", better="none"),
        Table("Share of the spread that is unexplained", ["k", "snr"], "left", "lacking", better="none", digits=3),
        Table("Share of the spectra in the library that are named", ["k", "snr"], "named", "lacking", better="none"),
    ]

    def setup(self, k: int, snr: float, lacking: int, seed: int, method: str) -> None:
        whole = spectra()
        self.X, rows = scene(whole, k, snr, 0.8, seed)
        far = (angles(whole, whole[rows[:lacking]]) > 3.0).all(axis=1)
        self.library, self.rows = whole[far], np.flatnonzero(np.isin(np.flatnonzero(far), rows))

    def measure(self, k: int, snr: float, lacking: int, seed: int, method: str) -> Record:
        import dask_dca as dca

        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = dca.find_anchors(self.X, k, Y=self.library)
        warned = any(issubclass(each.category, dca.errors.IncompleteLibraryWarning) for each in told)
        named = float(np.isin(self.rows, found.indices).mean())
        return {"told": float(warned), "left": float(found.unexplained), "named": named}

    def track_told(self, *params: Any) -> float:
        return self.measure(*params)["told"]

    def check(self, records: list[Record]) -> list[Check]:
        falsely = [f"{r['k']} {r['snr']}" for r in records if not r["lacking"] and r["told"]]
        silent = [f"{r['k']} {r['snr']} {r['lacking']}" for r in records if r["lacking"] and not r["told"]]
        whole = sum(not r["lacking"] for r in records)
        return [
            Check(
                "no warning of a whole library", f"{len(falsely)} of {whole} {', '.join(falsely)}".strip(), not falsely
            ),
            Check(
                "a warning of each that lacks spectra",
                f"silent: {len(silent)} of {len(records) - whole} {', '.join(silent)}".strip(),
                not silent,
            ),
        ]
