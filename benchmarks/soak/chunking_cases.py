"""Data of each model in any form, cut at random; and all bits that a fit and its row-wise results have."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

import dask_dca as dca
from tests.contract.entries import COVARIANCES, ENTRIES, data

if TYPE_CHECKING:
    from collections.abc import Callable


DTYPES = ("float64", "float32", "float16", "int32", "int64", ">f8", ">f4", ">i4")
LARGE = 24_000  # rows: more than the samples hold
GENERATORS = np.random.default_rng(5).random((12, 6))


class Anchors:
    """`find_anchors` and `in_cone` as a model among the others."""

    def fit(self, X: Any) -> Anchors:
        for name, value in vars(dca.find_anchors(X, 3)).items():
            setattr(self, f"{name}_", value)
        return self

    def in_cone(self, X: Any) -> Any:
        return dca.in_cone(X, GENERATORS[:, : self.rows_.shape[1]], exact=True, return_proofs=True)


MODELS: dict[str, tuple[Callable[..., Any], str, tuple[str, ...]]] = {  # made, its data, row-wise results
    name: (entry.make, entry.kind, entry.results) for name, entry in ENTRIES.items() if entry.kind != "symbols"
} | {"find_anchors and in_cone": (Anchors, "cones", ("in_cone",))}
SEQUENCES = tuple(name for name, entry in ENTRIES.items() if entry.sequences)


@dataclass(frozen=True)
class Case:
    """One matrix, how it is cut, and the model that is to be fitted to it."""

    name: str
    form: str
    dtype: str
    parameters: dict[str, Any]
    lengths: list[int] | None
    whole: Any  # in memory, in native byte order
    parts: Any  # the same, in its form

    def model(self) -> Any:
        return MODELS[self.name][0](**self.parameters)

    def fit(self, X: Any) -> Any:
        return self.model().fit(X, **({"lengths": self.lengths} if self.name in SEQUENCES else {}))

    def results(self, model: Any, X: Any) -> dict[str, list[bytes]]:
        """Bits of every row-wise result of a fitted model."""
        more = {"lengths": self.lengths} if self.name in SEQUENCES else {}
        return {
            name: value_bits(getattr(model, name)(X, **({} if name in ("forecast", "bic", "aic") else more)))
            for name in MODELS[self.name][2]
        }


def value_bits(value: Any) -> list[bytes]:
    """All bits of a result: of arrays, lazy ones too, and of tuples of them."""
    if isinstance(value, tuple | list):
        return [part for one in value for part in value_bits(one)]
    array = np.asarray(value.compute() if hasattr(value, "compute") else value)
    content = repr(array.tolist()).encode() if array.dtype.kind in "OUT" else array.tobytes()
    return [f"{array.dtype} {array.shape} ".encode() + content]


def fitted_bits(model: Any) -> dict[str, list[bytes]]:
    """Bits of every attribute that a fit has set."""
    found = {name: value for name, value in vars(model).items() if name.endswith("_") and not name.startswith("_")}
    return {name: value_bits(value) for name, value in sorted(found.items())}


def unlike(one: dict[str, list[bytes]], other: dict[str, list[bytes]]) -> list[str]:
    """Names of what two of them do not have alike."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def sizes(n: int, rng: np.random.Generator, most: int = 9, *, empty: bool = True) -> tuple[int, ...]:
    """Sizes of chunks at random, with single rows and empty ones."""
    cuts = np.sort(rng.integers(0, n + 1, rng.integers(0, most)))
    if len(cuts) and rng.random() < 0.5:
        cuts = np.sort(np.append(cuts, min(cuts[0] + 1, n)))
    found = np.diff([0, *cuts, n]).tolist()
    return tuple(size for size in found if size or empty) or (n,)


def _dask(X: Any, chunks: Any) -> Any:
    import dask.array as da

    return da.from_array(X, chunks=chunks)


def _unknown(X: Any, rng: np.random.Generator) -> Any:
    chunks = sizes(len(X), rng)
    return _dask(X, (chunks, -1))[_dask(np.ones(len(X), dtype=bool), (chunks,))]


def _sparse(X: Any, rng: np.random.Generator) -> Any:
    layout = (sparse.csr_array, sparse.csr_matrix, sparse.csc_array)[rng.integers(3)]
    if rng.random() < 0.3 or X.dtype.byteorder == ">":  # which Dask can't declare
        found = layout(X.astype(X.dtype.newbyteorder("=")))
        found.data = found.data.astype(X.dtype)
        return found
    chunks = (sizes(len(X), rng), sizes(X.shape[1], rng, 3, empty=False))
    return _dask(X, chunks).map_blocks(layout, dtype=X.dtype, meta=layout((0, 0), dtype=X.dtype))


def _masked(X: Any, rng: np.random.Generator, mask: Any = np.ma.nomask) -> Any:
    masked = np.ma.masked_array(X, mask)
    return masked if rng.random() < 0.2 else _dask(masked, (sizes(len(X), rng), sizes(X.shape[1], rng, 3, empty=False)))


def _frame(X: Any, rng: np.random.Generator) -> Any:
    import dask.dataframe as dd

    frame, ends = _pandas(X), np.cumsum([0, *sizes(len(X), rng, 6)])
    return dd.from_map(lambda ends: frame.iloc[ends[0] : ends[1]], list(itertools.pairwise(ends)))


def _pandas(X: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(X, columns=[f"feature {j}" for j in range(X.shape[1])])


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="dask-dca-forms-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _zarr(X: Any, rng: np.random.Generator, *, shards: bool) -> Any:
    import zarr

    chunks = (int(rng.integers(max(1, len(X) // 20), len(X) // 4)), int(rng.integers(1, X.shape[1] + 1)))
    more = {"shards": tuple(int(rng.integers(1, 5)) * c for c in chunks)} if shards else {}
    path = str(_folder() / f"{rng.integers(2**62)}.zarr")
    stored = zarr.create_array(path, data=X, chunks=chunks, overwrite=True, **more)
    return (path, stored)[rng.integers(2)]


FORMS: dict[str, Callable[[Any, np.random.Generator], Any]] = {
    "row chunks": lambda X, rng: _dask(X, (sizes(len(X), rng), -1)),
    "feature chunks": lambda X, rng: _dask(X, (sizes(len(X), rng), sizes(X.shape[1], rng, 3, empty=False))),
    "unknown chunks": _unknown,
    "sparse": _sparse,
    "masked without entries": _masked,
    "masked with entries": lambda X, rng: _masked(X, rng, np.random.default_rng(3).random(X.shape) < 0.05),
    "DataFrame": _frame,
    "zarr": partial(_zarr, shards=False),
    "sharded zarr": partial(_zarr, shards=True),
}


def make_case(name: str, number: int, *, large: bool = True) -> Case:
    """Draw the case of a number: its form goes round, all else is random."""
    rng = np.random.default_rng([number, list(MODELS).index(name)])
    form = list(FORMS)[number % len(FORMS)]
    dtype = DTYPES[rng.integers(len(DTYPES))]
    if (form == "sparse" and dtype == "float16") or (form == "DataFrame" and dtype[0] == ">"):
        dtype = "float64"  # SciPy and pandas have none of these
    n = LARGE if large and number % 13 == 0 else int(rng.integers(60, 400))
    X = data(MODELS[name][1], n, int(rng.integers(4, 7)), rng)
    X = (np.rint(8.0 * X) if "i" in dtype.replace("float", "") and MODELS[name][1] != "counts" else X).astype(dtype)
    whole = X.astype(X.dtype.newbyteorder("="))
    if form == "masked with entries":
        whole = np.ma.masked_array(whole, np.random.default_rng(3).random(X.shape) < 0.05)
    lengths = [int(size) for size in sizes(n, rng, 5)] if name in SEQUENCES and rng.random() < 0.7 else None
    parameters = {"covariance_type": COVARIANCES[rng.integers(4)]} if name.startswith("Gaussian") else {}
    if rng.random() < 0.15 and name != "find_anchors and in_cone":
        parameters["method"] = "paper"
    return Case(
        name, form, dtype, parameters, lengths, _pandas(whole) if form == "DataFrame" else whole, FORMS[form](X, rng)
    )
