"""Q-ablation: what each step of each model's default recipe is worth, and what it costs."""

from __future__ import annotations

import time
import warnings
from typing import ClassVar

import numpy as np

from benchmarks.ablated_steps import STEPS, Step
from benchmarks.ablation_data import CASES, MEASURES, data_of, fitted, quality
from benchmarks.harness import Benchmark, Check, Record, Table, group
from benchmarks.methods import MissingError

DEFAULT = "default"


class Ablation(Benchmark):
    """Every step of every recipe, taken away by itself."""

    id = "Q-ablation"
    title = "What each step of a recipe is worth"
    protocol = (
        "Default parameters; one step at a time is omitted, or replaced by the cheapest alternative (in brackets),"
        " on data of the benchmarks of quality in memory, five seeds for each case. Quality: "
        + "; ".join(f"{name}: {text}" for name, text in MEASURES.items())
        + ". Lost: the default's quality minus that without the step, on the same data and seed."
        " CPU: seconds of the fit without the step relative to the default's, averaged over cases."
    )
    param_names: ClassVar = ["model", "case", "seed", "method"]
    params: ClassVar = [
        tuple(STEPS),
        tuple(dict.fromkeys(case for cases in CASES.values() for case in cases)),
        tuple(range(5)),
        (DEFAULT, *dict.fromkeys(step for steps in STEPS.values() for step in steps)),
    ]
    quick_params: ClassVar = {"model": ("nmf",), "case": ("dirichlet1, 300 x 500, noise .3",), "seed": (0,)}
    tables: ClassVar = [
        Table("Quality of the default", ["model", "case"], "quality", digits=3, where={"method": DEFAULT}),
        Table("CPU seconds of the default", ["model", "case"], "seconds", better="min", where={"method": DEFAULT}),
        Table("Lost without the step (mean and worst)", ["model", "method"], "lost", "what", "min", 4),
        Table("Standard error of what is lost", ["model", "method"], "error", "what", "none", 4),
        Table("CPU without the step, the default's being 1", ["model", "method"], "cpu", "what", "none", 2),
    ]

    def __init__(self, *, quick: bool = False) -> None:
        super().__init__(quick=quick)
        self.imported: set[str] = set()

    def setup(self, model: str, case: str, seed: int, method: str) -> None:
        if case not in CASES[model] or method not in (DEFAULT, *STEPS[model]):
            raise MissingError("")
        self.data = data_of(model, case, seed)

    def measure(self, model: str, case: str, seed: int, method: str) -> Record:
        if model not in self.imported:  # else the first fit would take longer
            self._run(model, seed, Step())
            self.imported.add(model)
        found, seconds = self._run(model, seed, Step() if method == DEFAULT else STEPS[model][method])
        if method == DEFAULT:
            self.default = found, seconds
            return {"what": "default", "quality": found, "seconds": seconds, "lost": 0.0, "cpu": 1.0, "error": 0.0}
        best, before = self.default
        return {"what": "step", "quality": found, "seconds": seconds, "lost": best - found, "cpu": seconds / before}

    def _run(self, model: str, seed: int, step: Step) -> tuple[float, float]:
        begin = time.process_time()
        with warnings.catch_warnings(), step.away():
            warnings.simplefilter("ignore")
            found = fitted(model, self.data, seed, step.options)
            seconds = time.process_time() - begin
            return quality(model, self.data, found), seconds

    def check(self, records: list[Record]) -> list[Check]:
        """Steps without which nothing is lost, beyond twice the standard error."""
        useless = []
        for (model, method), some in group(
            [one for one in records if one["what"] == "step"], "model", "method"
        ).items():
            lost = np.array([one["lost"] for one in some])
            error = float(lost.std() / np.sqrt(len(lost)))
            for one in some:
                one["error"] = error
            if lost.mean() <= 2.0 * error:
                useless.append(f"{model}: {method} ({lost.mean():.4f} +- {error:.4f})")
        return [Check("steps without which no more is lost than chance explains", "; ".join(useless) or "-", None)]
