"""Q8, linear dynamical systems: how well frames are predicted one step ahead, and the eigenvalues."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.harness import Benchmark, Check, Record, Table, group, mean, timed
from benchmarks.hidden_systems import SHOWN, SYSTEMS, em_from_n4sid, em_from_truth, plant_hidden
from benchmarks.linear_dynamics_peers import PEERS, SMALL, Planted, Predictor, cva, n4sid, plant, steady
from benchmarks.methods import MAIN, MissingError

PLANTED = lru_cache(maxsize=1)(plant)
LIBRARY: dict[str, dict[str, Any]] = {
    MAIN: {},
    "dca_start": {"max_iter": 0},
    "dca_diag": {"covariance_type": "diag"},
    "dca_paper": {"method": "paper"},
}
LONG = 1000  # frames above which the slow peers are left out
CASES = ("4 x 20, n 1e3", "4 x 20 correlated, n 1e3", "4 x 20, n 1e4", "6 x 50, n 1e5")
SHAPES = {
    CASES[0]: (4, 20, 1000, False),
    CASES[1]: (4, 20, 1000, True),
    CASES[2]: (4, 20, 10_000, False),
    CASES[3]: (6, 50, 100_000, False),
    "small": (2, 6, 300, False),
}


class LinearDynamics(Benchmark):
    """Planted systems, with independent and with correlated noise."""

    id = "Q8-lds"
    title = "Linear dynamical systems"
    protocol = (
        "k states x p channels: turns and decays of size .7 to .98 in a random basis, unit state noise, noise "
        "variances in [.5, 2] ('correlated': plus three common factors), n frames; five seeds. Excess: squared "
        "error of prediction one step ahead on 5,000 fresh frames relative to that of the true system, minus one. "
        "Eigenvalue error: mean distance, best matching. pykalman: ten EM iterations, from its own start and from "
        "N4SID's, at 1,000 frames."
    )
    param_names: ClassVar[list[str]] = ["case", "seed", "method"]
    params: ClassVar = [CASES, tuple(range(5)), (*LIBRARY, *PEERS)]
    quick_params: ClassVar = {"case": ("small",), "seed": (0,)}
    tables: ClassVar = [
        Table("Excess one-step error", ["case"], "excess", better="min", digits=5),
        Table("Eigenvalue error", ["case"], "eigenvalues", better="min", digits=4),
        Table("Seconds", ["case"], "seconds", better="min", digits=3),
    ]
    planted: Planted

    def setup(self, case: str, seed: int, method: str) -> None:
        k, p, n, correlated = SHAPES[case]
        if method in SMALL and n > LONG:
            raise MissingError("")
        self.planted = PLANTED(k, p, 80 if self.quick else n, correlated, seed)

    def measure(self, case: str, seed: int, method: str) -> Record:
        data, k = self.planted, SHAPES[case][0]
        found, seconds = timed(lambda: learn(method, data.X, k, seed))
        distance = np.abs(np.linalg.eigvals(found.A)[:, None] - np.linalg.eigvals(data.A))
        return {
            "excess": found.errors(data.fresh) / data.truth.errors(data.fresh) - 1.0,
            "eigenvalues": float(distance[linear_sum_assignment(distance)].mean()),
            "seconds": seconds,
        }

    def track_excess(self, *params: Any) -> float:
        return self.measure(*params)["excess"]

    def time_fit(self, case: str, seed: int, method: str) -> None:
        learn(method, self.planted.X, SHAPES[case][0], seed)

    def check(self, records: list[Record]) -> list[Check]:
        return [_best(records, "excess"), _best(records, "eigenvalues"), _faster(records)]


class MissingFrames(Benchmark):
    """Planted systems of which whole frames are missing."""

    id = "Q8-lds-missing"
    title = "Linear dynamical systems of which whole frames are missing"
    protocol = (
        "Systems of 1,000 frames as in Q8-lds, of which a share is missing at random; five seeds. Excess: as there."
    )
    param_names: ClassVar[list[str]] = ["case", "share", "seed", "method"]
    params: ClassVar = [CASES[:2], (0.1, 0.3), tuple(range(5)), (MAIN, "dca_diag")]
    quick_params: ClassVar = {"case": ("small",), "share": (0.3,), "seed": (0,)}
    tables: ClassVar = [Table("Excess one-step error", ["case", "share"], "excess", better="min", digits=4)]
    planted: Planted

    def setup(self, case: str, share: float, seed: int, method: str) -> None:
        del method
        k, p, n, correlated = SHAPES[case]
        self.planted = PLANTED(k, p, n, correlated, seed)
        self.frames = self.planted.X.copy()
        self.frames[np.random.default_rng(seed).random(n) < share] = np.nan

    def measure(self, case: str, share: float, seed: int, method: str) -> Record:
        del share
        found = learn(method, self.frames, SHAPES[case][0], seed)
        return {"excess": found.errors(self.planted.fresh) / self.planted.truth.errors(self.planted.fresh) - 1.0}

    def check(self, records: list[Record]) -> list[Check]:
        must = "correlated noise: at most a fifth of what a diagonal covariance has; independent noise: at most twice"
        parts, met = [], True
        for (case, share), rows in group(records, "case", "share").items():
            means = {name: mean([r["excess"] for r in some]) for (name,), some in group(rows, "method").items()}
            if len(means) == 2:
                parts.append(f"{case}, {share:.0%} missing: {means[MAIN]:.4f} against {means['dca_diag']:.4f}")
                met = met and means[MAIN] <= (0.2 if SHAPES[case][3] else 2.0) * means["dca_diag"]
        return [Check(must, "; ".join(parts) or "not run", met if parts else None)]


class HiddenStates(Benchmark):
    """Sixteen systems, twelve of them of states that one frame does not show."""

    id = "Q8-lds-hidden"
    title = "Linear dynamical systems whose state one frame does not determine"
    protocol = (
        "Sixteen systems, in four of which a frame determines the state, and n frames; three seeds. Excess: as in "
        "Q8-lds; a filter that diverges, or a method that fails, counts as 10, and less than 1e-4 as that. n4sid, "
        "cva: subspace identification, eight block rows; n4sid_em: fifty EM iterations from the first; "
        "em_from_truth: EM started at the true system, which no start can be expected to beat."
    )
    param_names: ClassVar[list[str]] = ["system", "n", "seed", "method"]
    params: ClassVar = [
        SYSTEMS,
        (300, 1000, 10_000),
        tuple(range(3)),
        (MAIN, "n4sid", "cva", "n4sid_em", "em_from_truth"),
    ]
    quick_params: ClassVar = {"system": SYSTEMS[4:5], "n": (300,), "seed": (0,)}
    tables: ClassVar = [
        Table(f"Excess one-step error, {n:,} frames", ["system"], "excess", better="min", digits=4, where={"n": n})
        for n in (300, 1000, 10_000)
    ]
    planted: Any

    def setup(self, system: str, n: int, seed: int, method: str) -> None:
        del method
        self.planted = HIDDEN(system, n, seed)

    def measure(self, system: str, n: int, seed: int, method: str) -> Record:
        del system, n
        data, k, parts = self.planted
        found, seconds = timed(lambda: _learnt(method, data, k, parts, seed))
        excess = 10.0 if found is None else found.errors(data.fresh) / data.truth.errors(data.fresh) - 1.0
        return {"excess": float(np.clip(np.nan_to_num(excess, nan=10.0), 1e-4, 10.0)), "seconds": seconds}

    def check(self, records: list[Record]) -> list[Check]:
        checks = []
        for which, systems in (("all", SYSTEMS), ("hidden", SYSTEMS[len(SHOWN) :])):
            for (n,), some in group([r for r in records if r["system"] in systems], "n").items():
                means = {
                    name: float(np.exp(np.mean(np.log([r["excess"] for r in rows]))))
                    for (name,), rows in group(some, "method").items()
                }
                said = ", ".join(f"{name} {value:.5f}" for name, value in means.items())
                met = all(means[MAIN] <= means[name] for name in ("n4sid", "cva", "n4sid_em") if name in means)
                must = f"geometric mean of the excess over {which} systems below the peers', n = {n:,}"
                checks.append(Check(must, said, met))
        return checks


HIDDEN = lru_cache(maxsize=1)(plant_hidden)


def _learnt(method: str, data: Planted, k: int, parts: tuple[np.ndarray, ...], seed: int) -> Predictor | None:
    """A predictor; None where a method fails."""
    try:
        with np.errstate(all="ignore"):
            if method == "n4sid_em":
                return em_from_n4sid(data.X, k)
            if method == "em_from_truth":
                return em_from_truth(data.X, parts, data.truth.mu)
            return {"n4sid": n4sid, "cva": cva}.get(method, partial(learn, method))(data.X, k, seed)
    except (np.linalg.LinAlgError, ValueError):
        if method == MAIN:
            raise
        return None


def learn(method: str, X: np.ndarray, k: int, seed: int) -> Predictor:
    """A one-step predictor by any of the methods."""
    if method in PEERS:
        return PEERS[method](X, k, seed)
    import dask_dca as dca

    model = dca.KalmanFilter(k, random_state=seed, **LIBRARY[method]).fit(X)
    noise = model.observation_covariance_
    return steady(
        model.transition_matrices_,
        model.observation_matrices_,
        model.transition_covariance_,
        np.diag(noise) if noise.ndim == 1 else noise,
        model.observation_offsets_,
    )


def _best(records: list[Record], value: str) -> Check:
    """In every case at most the best peer's (means over seeds)."""
    must, parts, met = f"{value} at most every peer's in every case", [], True
    for (case,), rows in group(records, "case").items():
        means = {name: mean([r[value] for r in some]) for (name,), some in group(rows, "method").items()}
        peers = {name: number for name, number in means.items() if name in PEERS}
        if MAIN not in means or not peers:
            continue
        best = min(peers, key=peers.get)
        parts.append(f"{case}: {means[MAIN]:.5f} against {peers[best]:.5f} ({best})")
        met = met and means[MAIN] <= peers[best]
    return Check(must, "; ".join(parts) or "not run", met if parts else None)


def _faster(records: list[Record]) -> Check:
    must, ratios = ">= 10 times faster than pykalman's EM (median ratio)", []
    for cell in group(records, "case", "seed").values():
        seconds = {record["method"]: record["seconds"] for record in cell}
        if MAIN in seconds and "pykalman" in seconds:
            ratios.append(seconds["pykalman"] / seconds[MAIN])
    if not ratios:
        return Check(must, "not run", None)
    ratio = sorted(ratios)[len(ratios) // 2]
    return Check(must, f"{ratio:.0f} times", ratio >= 10)
