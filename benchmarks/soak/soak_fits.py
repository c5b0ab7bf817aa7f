"""What the soak fits: small data of each model in a zarr store, and a fit that tells in a file how it ended."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dask_dca as dca
from dask_dca.errors import DCAError

CHUNKS = 20  # of each array
FITS: dict[str, tuple[Any, str]] = {
    "NMF": (dca.NMF(3), "cones"),
    "GaussianMixture": (dca.GaussianMixture(3, max_iter=4, tol=0.0), "clouds"),
    "GaussianHMM": (dca.GaussianHMM(3, max_iter=4, tol=0.0), "clouds"),
    "KalmanFilter": (dca.KalmanFilter(3, max_iter=4), "clouds"),
    "LatentDirichletAllocation": (dca.LatentDirichletAllocation(3, max_iter=3), "counts"),
    "SubspaceClustering": (dca.SubspaceClustering(3, subspace_dim=4), "cones"),
}


def write(folder: Path) -> None:
    """The data: 20 chunks each; of frames more than the samples hold."""
    import zarr

    rng = np.random.default_rng(0)
    centres = 4 * rng.standard_normal((3, 6))
    topics = rng.dirichlet(np.full(40, 0.1), 3)
    weights = rng.dirichlet(np.full(3, 0.2), 2000)
    cones = [rng.dirichlet(np.ones(4), 700) @ rays for rays in rng.random((3, 4, 20))]
    made = {
        "clouds": centres[np.repeat(rng.integers(3, size=4000), 10)] + rng.standard_normal((40_000, 6)),
        "counts": np.array([rng.multinomial(60, p) for p in weights @ topics], dtype=np.float64),
        "cones": np.vstack(cones),
    }
    for name, X in made.items():
        zarr.create_array(str(folder / f"{name}.zarr"), data=X, chunks=(len(X) // CHUNKS, X.shape[1]))


def bits(model: Any) -> str:
    """A hash of all that the fit found."""
    found = hashlib.sha256()
    for name, value in sorted(vars(model).items()):
        if name.endswith("_"):
            array = np.asarray(value)
            found.update(f"{name}{array.dtype}{array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def whole(folder: Path, name: str) -> str:
    """The bits of a fit in memory."""
    import zarr

    model, data = FITS[name]
    return bits(model.fit(zarr.open_array(str(folder / f"{data}.zarr"), mode="r")[:]))


def fit(address: str, folder: str, name: str, form: str, checkpoint: str) -> None:
    """Fit on a cluster: `<checkpoint>.begun` tells that it began, and `<checkpoint>.json` how it ended."""
    import dask.array as da
    from distributed import Client

    made, data = FITS[name]
    path = f"{folder}/{data}.zarr"
    model = type(made)(**made.get_params() | {"checkpoint": checkpoint})
    Client(address, timeout=60)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        Path(f"{checkpoint}.begun").touch()
        try:
            model.fit(da.from_zarr(path) if form == "dask" else path)
            ended = {"bits": bits(model)}
        except Exception as error:
            told = " ".join([str(error), *getattr(error, "__notes__", [])])
            clear = isinstance(error, DCAError) or "in the block of rows" in told
            ended = {"error": type(error).__name__, "message": told, "clear": clear and not is_fitted(model)}
    ended["warnings"] = sorted({type(one.message).__name__ for one in warned})
    resource_unlimited()
    beside = Path(f"{checkpoint}.part")
    beside.write_text(json.dumps(ended))
    beside.replace(f"{checkpoint}.json")
    os._exit(0)  # a client without a scheduler is slow to leave


def is_fitted(model: Any) -> bool:
    """Whether a model can be used."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True


def resource_unlimited() -> None:
    """Lift the limit on the size of files, by which the soak fills the disk of this process."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
