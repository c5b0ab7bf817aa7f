"""Blocks that are not what Dask was told: each gives the right answer, or one line that names the block."""

from __future__ import annotations

import json
import re
import sys
import warnings
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import dask
import dask.array as da
import numpy as np
from scipy import sparse

from benchmarks.chunking_cases import MODELS, SEQUENCES, Case, fitted_bits
from benchmarks.harness import Benchmark, Check, Record, Table
from dask_dca.errors import DCAError
from tests.contract.entries import data

if TYPE_CHECKING:
    from collections.abc import Callable

N, CHUNK, BAD = 600, 100, 2  # rows, rows of a block, and which block is wrong
NAMES = tuple(MODELS)[:6]
METHODS = ("fit", "rows")
COUNTED = ("faults", "right", "one clear line", "silently wrong", "raw error", "error that names no block")


def _with_infinity(block: Any) -> Any:
    block = block.copy()
    block[7, 1] = np.inf
    return block


KINDS: dict[str, Callable[[Any], Any]] = {
    "fewer rows": lambda block: block[block[:, 0] > np.median(block[:, 0])],
    "no rows": lambda block: block[:0],
    "more rows": lambda block: np.vstack([block, block]),
    "fewer columns": lambda block: block[:, :-1],
    "more columns": lambda block: np.hstack([block, block[:, :1]]),
    "one dimension": lambda block: block[:, 0],
    "complex numbers": lambda block: block + 1j,
    "text": lambda block: np.full(block.shape, "four"),
    "nothing": lambda block: None,
    "infinity": _with_infinity,
    "single precision": lambda block: block.astype(np.float32),
    "sparse": sparse.csr_array,
}
GOOD = ("single precision", "sparse")  # whose numbers are known, so that an answer can be right


def told_wrongly(X: Any, kind: str) -> Any:
    """A Dask array one of whose blocks is not as declared."""
    chunked = da.from_array(X, chunks=(CHUNK, -1))
    return chunked.map_blocks(partial(_spoilt, kind=kind), dtype=X.dtype, chunks=chunked.chunks, meta=X[:0])


def _spoilt(block: Any, *, kind: str, block_id: Any = None) -> Any:
    return KINDS[kind](block) if block_id[0] == BAD else block


def actual(X: Any, kind: str) -> Any:
    """The numbers that its blocks hold, in memory."""
    X = X.copy()
    if kind == "single precision":
        X[BAD * CHUNK : (BAD + 1) * CHUNK] = X[BAD * CHUNK : (BAD + 1) * CHUNK].astype(np.float32)
    return X


@lru_cache(maxsize=2)
def fitted(name: str, known: str) -> tuple[Any, Case]:
    """A model that is fitted in memory."""
    X = data(MODELS[name][1], N, 6, np.random.default_rng(0))
    lengths = [N // 2, N // 2] if name in SEQUENCES else None
    parameters = {"max_iter": 1} if name in SEQUENCES else {}
    case = Case(name, "row chunks", "float64", parameters, lengths, actual(X, known), X)
    return case.fit(case.whole), case


def judged(name: str, kind: str, method: str) -> tuple[str, str]:
    """What a fit, or the results of a fitted model, make of such blocks: one of COUNTED, and what was said."""
    whole, case = fitted(name, kind if kind in GOOD else "none")
    case = replace(case, parts=told_wrongly(case.parts, kind))
    try:
        with dask.config.set(scheduler="synchronous"):
            if method == "fit":
                right = fitted_bits(case.fit(case.parts)) == fitted_bits(whole)
            else:
                right = case.results(whole, case.parts) == case.results(whole, case.whole)
    except Exception as error:  # of any kind: that is the question
        return _error(error)
    return ("right", "") if right and kind in GOOD else ("silently wrong", "")


def _error(error: Exception) -> tuple[str, str]:
    text = " ".join([str(error), *getattr(error, "__notes__", [])])
    said = f"{type(error).__name__}: {text}"[:300]
    if not isinstance(error, DCAError) or "\n" in str(error) or len(str(error)) > 400:
        return "raw error", said
    named = re.search(rf"\b{BAD}\d\d\b|\bblock {BAD}\b", text)
    return ("one clear line" if named else "error that names no block"), said


class BlockFaults(Benchmark):
    """Each fault must end in the right answer or in one line that names the block."""

    id = "blocks"
    title = "Blocks that differ from what Dask was told"
    protocol = (
        f"A Dask array of {N // CHUNK} blocks of which one is wrong ({', '.join(KINDS)}), {len(NAMES)} models, their"
        " fit and all their row-wise results. A right result has the bits of the same numbers in memory; otherwise a"
        " DCAError of one line must name the block."
    )
    param_names: ClassVar = ["model", "kind", "counted"]
    params: ClassVar = [NAMES, tuple(KINDS), COUNTED]
    quick_params: ClassVar = {"model": NAMES[:1]}
    tables: ClassVar = [
        Table("By model", ["model"], "value", columns="counted", counts=True),
        Table("By kind", ["kind"], "value", columns="counted", counts=True),
    ]

    def __init__(self, *, quick: bool = False) -> None:
        super().__init__(quick=quick)
        self.done: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}

    def setup(self, model: str, kind: str, counted: str) -> None:
        if (model, kind) not in self.done:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.done[model, kind] = {method: judged(model, kind, method) for method in METHODS}
            for method, (verdict, said) in self.done[model, kind].items():
                told = {"model": model, "kind": kind, "method": method, "verdict": verdict, "said": said}
                print(json.dumps(told), file=sys.stderr, flush=True)

    def measure(self, model: str, kind: str, counted: str) -> Record:
        found = self.done[model, kind]
        if counted == "faults":
            return {"value": len(found), "each": {method: f"{v}: {said}" for method, (v, said) in found.items()}}
        return {"value": sum(verdict == counted for verdict, _ in found.values())}

    def check(self, records: list[Record]) -> list[Check]:
        total = {name: sum(r["value"] for r in records if r["counted"] == name) for name in COUNTED}
        good, n = total["right"] + total["one clear line"], total["faults"]
        value = "; ".join([f"{good} of {n}", *(f"{total[name]} {name}" for name in COUNTED[3:])])
        return [Check("each fault: right, or one clear line", value, good == n if n else None)]
