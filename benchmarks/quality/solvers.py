"""Q1 extended: every solver of the minimum conical hull problem, alone and on the sub-problems of DCA."""

from __future__ import annotations

import statistics
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.harness import Benchmark, Check, Plot, Record, Table, group, mean, timed
from benchmarks.methods import MissingError
from benchmarks.regimes import Planted, plant, recall

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

DIM = 5
NOISES = (0.0, 0.1)
PLANTED = lru_cache(maxsize=2)(plant)
# rows up to which a solver is run alone: less than a minute
MOST_ROWS = {
    "spa": 100_000,
    "xray": 100_000,
    "xray-dist": 3000,
    "xray-rand": 100_000,
    "lp": 300,
    "lp+planes": 300,
    "greedy": 3000,
}


def _alone(name: str) -> Callable[[np.ndarray, int], np.ndarray]:
    from dask_dca.geometry import solvers

    if name == "spa":
        return lambda X, k: solvers.successive_projection(X / X.sum(axis=1, keepdims=True), k)
    if name.startswith("xray"):
        return lambda X, k: solvers.xray(X, k, rule=name[5:] or "max")
    if name.startswith("lp"):
        return lambda X, k: solvers.backward_removal(X, k, planes=name == "lp+planes")
    return lambda X, k: solvers.greedy_cover(X, k)


def _inside(name: str) -> Callable[[np.ndarray, int], np.ndarray]:
    from dask_dca import find_anchors

    if name == "plane":
        return lambda X, k: find_anchors(X, k).indices
    return lambda X, k: find_anchors(X, k, dim=DIM, solver=name).indices


INSIDE = ("plane", "spa", "xray", "xray-dist", "xray-rand", "lp", "greedy")
METHODS = (*(f"dca({name})" for name in INSIDE), *MOST_ROWS)


class Solvers(Benchmark):
    """Accuracy and seconds of every solver, by the number of rows."""

    id = "Q1-solvers"
    title = "Every solver inside DCA and alone"
    protocol = (
        "Dirichlet(1) rows, p = 100, k = 10, relative noise 0 and .1; the library's own solvers, alone on all "
        "rows and on the sub-problems of find_anchors (dim = 5; dca(plane): the default, planes). lp: one linear "
        "program per row; lp+planes: planes and least squares first. Alone only up to sizes that take less than a "
        "minute."
    )
    param_names: ClassVar = ["n", "noise", "seed", "method"]
    params: ClassVar = [(100, 300, 1000, 3000, 10_000, 30_000, 100_000), NOISES, (0,), METHODS]
    quick_params: ClassVar = {"n": (20,), "noise": (0.1,)}
    tables: ClassVar = [
        Table("Share of the anchors found", ["n", "noise"], "recall"),
        Table("Seconds", ["n", "noise"], "seconds", better="min", digits=3),
    ]
    plots: ClassVar = [Plot("noise .1", "n", ["recall", "seconds"], {"noise": 0.1})]
    planted: Planted

    def setup(self, n: int, noise: float, seed: int, method: str) -> None:
        if n > MOST_ROWS.get(method, n):
            raise MissingError("")
        self.k = 4 if self.quick else 10
        self.planted = PLANTED("dirichlet1", n, 100, self.k, noise, seed)

    def measure(self, n: int, noise: float, seed: int, method: str) -> dict[str, Any]:
        solve = _inside(method[4:-1]) if method.startswith("dca(") else _alone(method)
        found, first = timed(lambda: solve(self.planted.X, self.k))
        more = [
            timed(lambda: solve(self.planted.X, self.k))[1] for _ in range(4 if first < 1.0 and not self.quick else 0)
        ]
        return {"recall": recall(found, self.planted.anchors), "seconds": statistics.median([first, *more])}

    def time_solve(self, n: int, noise: float, seed: int, method: str) -> None:
        self.measure(n, noise, seed, method)

    def check(self, records: list[Record]) -> list[Check]:
        return [_ratio(records, name) for name in MOST_ROWS]


def _ratio(records: list[Record], name: str) -> Check:
    """How much slower the solver is alone than inside, at every size that both were run at."""
    inside = f"dca({name.partition('+')[0]})"
    must = f"{name}, noise .1: the time alone over the time inside DCA grows with n, and is above 1 at the end"
    ratios = []
    for (n,), cell in group([r for r in records if r["noise"] == max(NOISES)], "n").items():
        times = {m: mean([r["seconds"] for r in rs]) for (m,), rs in group(cell, "method").items()}
        if {inside, name} <= times.keys():
            ratios.append((n, times[name] / times[inside]))
    if not ratios:
        return Check(must, "not run", None)
    text = ", ".join(f"{n:,}: {ratio:.2g}" for n, ratio in ratios)
    return Check(must, text, ratios[-1][1] > max(1.0, ratios[0][1]))
