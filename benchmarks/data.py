"""Real data sets, from the folder that the environment variable DASK_DCA_DATA names (see DATA.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.methods import MissingError

MINERALS = (
    "Alunite GDS82 Na82",
    "Andradite WS487",
    "Buddingtonite GDS85 D-206",
    "Calcite WS272",
    "Chalcedony CU91-6A",
    "Dumortierite HS190.3B",
    "Jarosite GDS99 K,Sy 200C",
    "Kaolinite CM9",
    "Montmorillonite SWy-1",
    "Muscovite GDS107",
    "Nontronite GDS41",
    "Sphene HS189.3B",
)


class Scene(NamedTuple):
    """Pixels X (n, p), true endmembers M (k, p), true abundances A (n, k) with rows of sum one."""

    X: np.ndarray
    M: np.ndarray
    A: np.ndarray


def samson() -> Scene:
    """The Samson scene: 95 x 95 pixels, 156 bands, soil, tree and water."""
    with np.load(path_to("samson/samson.npz")) as file:
        return Scene(file["V_x1402"].T / 1402.0, file["M"].T.astype(float), file["A"].T.astype(float))


def minerals() -> np.ndarray:
    """Reflectance (12, bands) of the minerals above, without bands that the library marks as deleted."""
    with np.load(path_to("usgs_library/usgs_1995_library.npz")) as file:
        names = list(file["names"])
        spectra = file["spectra"].T[[names.index(name) for name in MINERALS]].astype(float)
    usable = np.isfinite(spectra).all(axis=0) & (spectra >= 0).all(axis=0) & (spectra <= 1.2).all(axis=0)
    return spectra[:, usable]


def library() -> np.ndarray:
    """Reflectance (498, bands) of all spectra."""
    with np.load(path_to("usgs_library/usgs_1995_library.npz")) as file:
        return file["spectra"].T.astype(float)


def mixtures(n: int, snr: float, seed: int, *, alpha: float = 0.5, pure: int = 10) -> Scene:
    """Pixels of mixed minerals: Dirichlet(alpha) abundances, `pure` pure pixels each, noise at `snr` dB."""
    M = minerals()
    k = len(M)
    rng = np.random.default_rng(seed)
    A = rng.dirichlet(np.full(k, alpha), size=n)
    A[: k * pure] = np.repeat(np.eye(k), pure, axis=0)
    A = A[rng.permutation(n)]
    clean = A @ M
    N = rng.standard_normal(clean.shape)
    return Scene(clean + N * (10 ** (-snr / 20) * np.linalg.norm(clean) / np.linalg.norm(N)), M, A)


def path_to(name: str) -> Path:
    root = os.environ.get("DASK_DCA_DATA")
    if not root:
        raise MissingError(f"{name}: set DASK_DCA_DATA to the folder that holds it (its origin: DATA.md)")
    path = Path(root) / name
    if not path.exists():
        raise MissingError(f"{name} is not in the folder that DASK_DCA_DATA names (its origin: DATA.md)")
    return path


def archive(name: str) -> np.lib.npyio.NpzFile:
    """An .npz file of the folder, opened."""
    return np.load(path_to(name), allow_pickle=False)
