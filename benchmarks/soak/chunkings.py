"""The same bits for any form and chunking: 130 random ones of each model, in threads and in processes."""

from __future__ import annotations

import json
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from benchmarks.chunking_cases import FORMS, MODELS, Case, fitted_bits, make_case, unlike
from benchmarks.harness import Check, Record, Table
from benchmarks.two_workers import TwoWorkers
from dask_dca.errors import DCAError

if TYPE_CHECKING:
    from collections.abc import Callable

EACH = 130  # cases of a model
WAYS = ("one after the other", "threads", "a thread of a pool", "processes")
COUNTED = ("cases", "fits that differ", "row-wise results that differ", "errors that differ", "refused alike")


class Chunkings(TwoWorkers):
    """No fitted attribute and no row-wise result may differ in any bit from those of the matrix in memory."""

    id = "chunkings"
    title = "Chunkings: any form, chunking and scheduler against the matrix in memory"
    protocol = (
        f"{EACH} random cases per model: {', '.join(FORMS)}; integers, float16, float32, float64 and big-endian"
        " numbers; sequences of random lengths, all forms of covariances, both methods; fitted in"
        f" {', in '.join(WAYS)}. All fitted attributes are compared bit by bit, and, of the same model, all row-wise"
        " results and scores. Input that is refused in memory must be refused for the same reason."
    )
    param_names: ClassVar = ["model", "form", "counted"]
    params: ClassVar = [tuple(MODELS), tuple(FORMS), COUNTED]
    quick_params: ClassVar = {"form": tuple(FORMS)[:2]}
    tables: ClassVar = [
        Table("By model", ["model"], "value", columns="counted", counts=True),
        Table("By form", ["form"], "value", columns="counted", counts=True),
    ]

    def __init__(self, *, quick: bool = False) -> None:
        super().__init__(quick=quick)
        self.each = len(FORMS) if quick else EACH
        self.done: dict[tuple[str, str], list[Record]] = {}

    def setup(self, model: str, form: str, counted: str) -> None:
        if (model, form) not in self.done:
            numbers = [i for i in range(self.each) if list(FORMS)[i % len(FORMS)] == form]
            self.done[model, form] = [self.one(model, i) for i in numbers]

    def measure(self, model: str, form: str, counted: str) -> Record:
        cases = self.done[model, form]
        record = {"value": len(cases) if counted == "cases" else sum(bool(case.get(counted)) for case in cases)}
        return record | ({"each": [c for c in cases if c["unlike"]]} if counted == "cases" else {})

    def one(self, model: str, number: int) -> Record:
        """One case."""
        way = WAYS[int(np.random.default_rng(number).integers(len(WAYS)))]
        if way == "processes":
            self.start(memory_limit=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case = make_case(model, number)
            found = compared(case, ways(self.client)[way])
        record = {"number": number, "form": case.form, "dtype": case.dtype, "way": way, **found}
        record["unlike"] = any(found.get(name) for name in COUNTED[1:4])
        if record["unlike"]:
            print(json.dumps({"model": model} | record), file=sys.stderr, flush=True)
        return record

    def check(self, records: list[Record]) -> list[Check]:
        total = {name: sum(r["value"] for r in records if r["counted"] == name) for name in COUNTED}
        n, forms = total["cases"], {form for _, form, _ in self.cases}
        each = sum(list(FORMS)[i % len(FORMS)] in forms for i in range(self.each))
        return [
            Check(f"{each} cases of each model", f"{n} cases", n == each * len(MODELS)),
            *(Check(f"{name}: 0", f"{total[name]} of {n}", total[name] == 0 if n else None) for name in COUNTED[1:4]),
        ]


def ways(client: Any = None) -> dict[str, Callable[[Callable[[], Any]], Any]]:
    """How something is run: each takes what is to be run."""
    import dask

    def scheduled(scheduler: Any, function: Callable[[], Any]) -> Any:
        with dask.config.set(scheduler=scheduler, num_workers=3):
            return function()

    def pooled(function: Callable[[], Any]) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(scheduled, "threads", function).result()

    return {
        WAYS[0]: lambda function: scheduled("synchronous", function),
        WAYS[1]: lambda function: scheduled("threads", function),
        WAYS[2]: pooled,
        WAYS[3]: lambda function: scheduled(client, function),
    }


def outcome(function: Callable[[], Any]) -> tuple[Any, str]:
    """What came out, or the kind of error that refused it."""
    try:
        return function(), ""
    except DCAError as error:
        return None, type(error).__name__


def compared(case: Case, run: Callable[[Callable[[], Any]], Any]) -> Record:
    """What differs between the matrix in memory and the same in parts."""
    try:
        whole, refused = outcome(lambda: case.fit(case.whole))
        parts, refused_too = outcome(lambda: run(lambda: case.fit(case.parts)))
        if refused or refused_too:
            return {
                "refused alike": refused if refused == refused_too else "",
                "errors that differ": ""
                if refused == refused_too
                else f"{refused or 'fitted'}; {refused_too or 'fitted'}",
            }
        wanted = case.results(whole, case.whole)
        found = run(lambda: case.results(whole, case.parts))
    except Exception as error:  # a raw error is a result: it is shown, and the others go on
        return {"errors that differ": f"{type(error).__name__}: {error}"[:300]}
    return {
        "fits that differ": unlike(fitted_bits(whole), run(lambda: fitted_bits(parts))),
        "row-wise results that differ": unlike(wanted, found),
    }
