"""Q11: which points lie inside a cone: false answers and speed, against one program a point."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.optimize import linprog, nnls

from benchmarks.harness import Benchmark, Check, Plot, Record, Table, group, timed

if TYPE_CHECKING:
    from collections.abc import Callable

POINTS = 8192  # for a method that takes all points at once
ONE_BY_ONE = {"nnls": 200, "linprog": 20}  # points of a method that takes one at a time
DIMENSIONS = {"independent": lambda k: 100, "dependent": lambda k: max(3, k // 2)}
REPEATS = 5


@dataclass(frozen=True)
class Points:
    """Rays, points, and which are inside."""

    rays: np.ndarray
    X: np.ndarray
    inside: np.ndarray


def points(k: int, rays: str, margin: float, seed: int, n: int = POINTS) -> Points:
    """
    Half of the points inside a cone of random rays, half outside.

    Outside points make an angle of `margin` degrees with the cone: a point of its surface, turned outwards. At
    margin 0 all points are inside, on faces. Lengths vary by a factor of a million.
    """
    rng = np.random.default_rng(seed)
    G = rng.random((k, DIMENSIONS[rays](k)))
    if margin == 0:
        F = rng.dirichlet(np.ones(k), n) * _few(rng, n, k, G.shape[1])
        X, inside = F @ G, np.ones(n, dtype=bool)
    else:
        surface, outwards = _surface(rng, G, min(n // 2, 1000))
        turned = math.cos(math.radians(margin)) * surface + math.sin(math.radians(margin)) * outwards
        X = np.vstack([rng.dirichlet(np.ones(k), n // 2) @ G, turned[np.arange(n // 2) % len(turned)]])
        inside = np.arange(len(X)) < n // 2
    order = rng.permutation(len(X))
    scales = 10.0 ** rng.uniform(-3, 3, (len(X), 1))
    return Points(G, (X * scales)[order], inside[order])


def _few(rng: np.random.Generator, n: int, k: int, p: int) -> np.ndarray:
    """Which rays a point is made of: fewer than dimensions."""
    order = rng.permuted(np.tile(np.arange(k), (n, 1)), axis=1)
    return order < rng.integers(1, max(2, min(k, p)), (n, 1))


def _surface(rng: np.random.Generator, G: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors on the surface, and unit vectors at right angles that lead away from the cone."""
    spread = 0.5 * np.linalg.norm(G, axis=1).mean()
    feet, out = [], []
    while len(feet) < n:
        x = rng.dirichlet(np.full(len(G), 0.5)) @ G + spread * rng.standard_normal(G.shape[1])
        foot = nnls(G.T, x)[0] @ G
        if min(np.linalg.norm(foot), np.linalg.norm(x - foot)) > 1e-3:
            feet.append(foot / np.linalg.norm(foot))
            out.append((x - foot) / np.linalg.norm(x - foot))
    return np.array(feet), np.array(out)


def _library(exact: bool) -> Callable[[Points], np.ndarray]:
    from dask_dca.anchoring.in_cone import in_cone

    return lambda data: in_cone(data.X, data.rays, exact=exact)


def _paper(data: Points) -> np.ndarray:
    """The paper's test to the letter: angles to an axis on 5 k ln k Gaussian planes."""
    k, p = data.rays.shape
    planes = np.random.default_rng(0).standard_normal((math.ceil(5 * k * math.log(k)), p, 2))
    inside = np.ones(len(data.X), dtype=bool)
    for plane in planes:
        angles, bounds = (np.arctan2(np.abs(Z[:, 0]), Z[:, 1]) for Z in (data.X @ plane, data.rays @ plane))
        inside &= (angles >= bounds.min() - 1e-9) & (angles <= bounds.max() + 1e-9)
    return inside


def _nnls(data: Points) -> np.ndarray:
    sizes = np.linalg.norm(data.X, axis=1)
    return np.array([nnls(data.rays.T, x / size)[1] <= 1e-9 for x, size in zip(data.X, sizes, strict=True)])


def _linprog(data: Points) -> np.ndarray:
    k = len(data.rays)
    scaled = data.X / np.abs(data.X).max(axis=1)[:, None]
    return np.array([linprog(np.zeros(k), A_eq=data.rays.T, b_eq=x, method="highs").status == 0 for x in scaled])


METHODS: dict[str, Callable[[Points], np.ndarray]] = {
    "in_cone": lambda data: _library(False)(data),
    "in_cone_exact": lambda data: _library(True)(data),
    "paper_planes": _paper,
    "nnls": _nnls,
    "linprog": _linprog,
}


class Membership(Benchmark):
    """False answers and microseconds a point."""

    id = "Q11"
    title = "Cone membership"
    protocol = (
        "k rays U[0, 1]: 'independent' in 100 dimensions, 'dependent' in max(3, k/2). 8,192 points, half inside "
        "(Dirichlet(1)), half outside at an angle of `margin` degrees from the cone's surface; margin 0: all "
        "inside, on faces. Lengths over six decades. in_cone with its defaults and with exact=True, preparation "
        "of the cone included; the paper's literal test (Gaussian planes); scipy.optimize.nnls on 200 points and "
        "HiGHS on 20, one at a time. Methods run in turn, median of five."
    )
    param_names: ClassVar = ["rays", "k", "margin", "seed", "method"]
    params: ClassVar = [
        tuple(DIMENSIONS),
        (5, 10, 20, 50),
        (0.0, 0.1, 1.0, 5.0, 20.0),
        (0, 1),
        tuple(METHODS),
    ]
    quick_params: ClassVar = {"k": (5,), "margin": (0.0, 5.0), "seed": (0,)}
    tables: ClassVar = [
        Table("Points inside that are called outside, share", ["rays", "k"], "false_outside", better="min", digits=4),
        Table("Points outside that are called inside, share", ["rays", "k", "margin"], "false_inside", better="min"),
        Table("Microseconds a point", ["rays", "k"], "microseconds", better="min", digits=1),
    ]
    plots: ClassVar = [
        Plot("dependent rays, k = 20", "margin", ["false_inside", "microseconds"], {"rays": "dependent", "k": 20}),
    ]

    def setup(self, rays: str, k: int, margin: float, seed: int, method: str) -> None:
        self.data = points(k, rays, margin, seed, 512 if self.quick else POINTS)
        some = slice(ONE_BY_ONE.get(method))
        self.data = Points(self.data.rays, self.data.X[some], self.data.inside[some])

    def measure(self, rays: str, k: int, margin: float, seed: int, method: str) -> dict[str, Any]:
        inside = METHODS[method](self.data)
        repeats = 1 if self.quick or method == "linprog" else REPEATS
        seconds = statistics.median(timed(lambda: METHODS[method](self.data))[1] for _ in range(repeats))
        true = self.data.inside
        record = {"false_outside": float((~inside[true]).mean()), "microseconds": 1e6 * seconds / len(true)}
        return record if true.all() else record | {"false_inside": float(inside[~true].mean())}

    def time_test(self, rays: str, k: int, margin: float, seed: int, method: str) -> None:
        METHODS[method](self.data)

    def check(self, records: list[Record]) -> list[Check]:
        ours = [r for r in records if r["method"] in ("in_cone", "in_cone_exact")]
        exact = [r["false_inside"] for r in ours if r["method"] == "in_cone_exact" and "false_inside" in r]
        wrong = max((r["false_outside"] for r in ours), default=math.nan)
        missed = max(exact, default=math.nan)
        return [
            Check("no point inside is ever called outside", f"worst share {wrong:.4f}", wrong == 0 if ours else None),
            Check("with exact=True none outside is called inside", f"worst share {missed:.4f}", missed == 0),
            *(_ratio(records, rays, method) for rays in DIMENSIONS for method in ("in_cone", "in_cone_exact")),
        ]


def _ratio(records: list[Record], rays: str, method: str) -> Check:
    must = f"{method}, {rays} rays: >= 20 times faster than NNLS a point (median over cases; least)"
    ratios = []
    for cell in group([r for r in records if r["rays"] == rays], "k", "margin", "seed").values():
        times = {r["method"]: r["microseconds"] for r in cell}
        if {"nnls", method} <= times.keys():
            ratios.append(times["nnls"] / times[method])
    if not ratios:
        return Check(must, "not run", None)
    middle = statistics.median(ratios)
    return Check(must, f"{middle:.0f} times; {min(ratios):.1f}", middle >= 20)
