"""Q15: what few rows hold is found, wherever they are; and what only looks like it is not taken for it."""

from __future__ import annotations

import contextlib
import time
import warnings
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple
from unittest.mock import patch

import numpy as np

from benchmarks.harness import Benchmark, Check, Record, Table, group, mean
from benchmarks.peers import spa
from benchmarks.scores import angles

OURS, ONCE, EVERY = "dask_dca", "one divide", "all rows sampled"
WITHOUT = {  # what stands in for names under dask_dca.anchoring
    OURS: {},
    ONCE: {"robust._MAX_EXTRA_ROUNDS": 0},
    EVERY: {"preprocess.draw_rows": lambda *_: None},
}
ROWS, FEATURES = 200_000, 60
CLOSE = 5.0  # degrees


class Scene(NamedTuple):
    """Rows X (n, p), the same without noise, the rays (k, p), of which the last is the rare one, and who holds it."""

    X: np.ndarray
    clean: np.ndarray
    rays: np.ndarray
    holders: np.ndarray


@lru_cache(maxsize=1)
def scene(n: int, k: int, share: float, noise: float, places: int, seed: int) -> Scene:
    """Mixtures of k - 1 materials, ten pure rows each; some rows, in that many places, hold the k-th too."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, k, places]))
    rays, shares, count = rng.random((k, FEATURES)), np.zeros((n, k)), round(share * n)
    shares[:, :-1] = rng.dirichlet(np.full(k - 1, 0.4), n)
    shares[rng.choice(n, 10 * (k - 1), replace=False)] = np.repeat(np.eye(k)[:-1], 10, axis=0)
    holders = np.zeros(0, dtype=np.int64)
    if count:
        starts = rng.choice(n // count - 1, places, replace=False) * count  # so that none overlap
        parts = np.array_split(np.arange(count), places)
        holders = np.concatenate([start + np.arange(len(part)) for start, part in zip(starts, parts, strict=True)])
        held = rng.random((count, 1))
        held[rng.choice(count, 5, replace=False)] = 1.0
        shares[holders] = (1.0 - held) * shares[holders] + held * np.eye(k)[-1]
    clean = shares @ rays
    X = clean + noise * clean.std() * rng.standard_normal(clean.shape)
    return Scene(X.astype(np.float32), clean, rays, holders)


@contextlib.contextmanager
def _as(method: str) -> Any:
    with contextlib.ExitStack() as stack:
        for name, other in WITHOUT[method].items():
            stack.enter_context(patch(f"dask_dca.anchoring.{name}", other))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # fewer anchors than were asked for: that is scored
        yield


def _found(method: str, X: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Anchors, and the rows that a second divide was made for."""
    import dask_dca as dca

    if method == "spa":
        return spa(X.astype(np.float64), k), np.zeros(0, dtype=np.int64)
    with _as(method):
        found = dca.find_anchors(X, k)
    return found.indices, found.rare_rows


class RareMaterials(Benchmark):
    """Whether a material is found that few rows hold, in one place or in several."""

    id = "Q15-rare"
    title = "A rare material"
    protocol = (
        "200,000 x 60, mixtures (Dirichlet(.4)) of k - 1 random rays with ten pure rows each; a share of the "
        "rows, in runs at one random place or at eight, contains the k-th material too (a uniform share; five "
        "rows are pure). Noise relative to the data's spread. Three seeds. Found: a row whose noiseless version "
        "is within 5 degrees of the ray is among the k anchors. One divide: without the second divide pass; all "
        "rows sampled: the subspace from all rows, one more read. Told: `rare_rows` has rows of the material, in "
        "fits that find it only by the second divide pass."
    )
    param_names: ClassVar = ["k", "share", "noise", "places", "seed", "method"]
    params: ClassVar = [
        (5, 10, 20),
        (0.0003, 0.001, 0.003, 0.01),
        (0.01, 0.1, 0.3, 1.0),
        (1, 8),
        (0, 1, 2),
        (OURS, ONCE, EVERY, "spa"),
    ]
    quick_params: ClassVar = {"k": (5,), "share": (0.003,), "noise": (0.1,), "places": (1,), "seed": (0,)}
    tables: ClassVar = [
        Table("The rare ray is found, share of fits", ["share", "places", "noise"], "rare"),
        Table("The same, by the number of anchors", ["k", "places"], "rare"),
        Table("Share of all rays that are found", ["k", "noise"], "recall"),
    ]

    def setup(self, k: int, share: float, noise: float, places: int, seed: int, method: str) -> None:
        self.scene = scene(40_000 if self.quick else ROWS, k, share, noise, places, seed)

    def measure(self, k: int, share: float, noise: float, places: int, seed: int, method: str) -> Record:
        start = time.process_time()
        found, rare = _found(method, self.scene.X, k)
        cpu = time.process_time() - start
        close = angles(self.scene.clean[found], self.scene.rays).min(axis=0) < CLOSE
        own = float(np.isin(rare, self.scene.holders).mean()) if len(rare) else 0.0
        return {"rare": float(close[-1]), "recall": float(close.mean()), "looked": len(rare), "own": own, "cpu": cpu}

    def track_rare(self, *params: Any) -> float:
        return self.measure(*params)["rare"]

    def check(self, records: list[Record]) -> list[Check]:
        means = {name: mean([r["rare"] for r in rs]) for (name,), rs in group(records, "method").items()}
        text = ", ".join(f"{name} {share:.3f}" for name, share in means.items())
        ours = [r for r in records if r["method"] == OURS]
        lost = {_case(r) for r in records if r["method"] == ONCE and not r["rare"]}
        told = [r for r in ours if _case(r) in lost and r["rare"]]
        quiet = sum(not r["own"] for r in told)
        return [
            Check("found in .95 of fits", text, bool(ours) and means[OURS] >= 0.95),
            Check("what is found by a second look only is told", f"untold: {quiet} of {len(told)}", quiet == 0),
        ]


def _case(record: Record) -> tuple:
    return tuple(record[name] for name in RareMaterials.param_names if name != "method")


def _nothing(X: np.ndarray, rng: np.random.Generator) -> None:
    """Leave rows as they are."""


def _outliers(X: np.ndarray, rng: np.random.Generator) -> None:
    X[rng.choice(len(X), len(X) // 100, replace=False)] = 5.0 * rng.random((len(X) // 100, X.shape[1])) ** 8


def _near_outliers(X: np.ndarray, rng: np.random.Generator) -> None:
    X[rng.choice(len(X), len(X) // 100, replace=False)] = rng.random((len(X) // 100, X.shape[1]))


def _tiny_rows(X: np.ndarray, rng: np.random.Generator) -> None:
    some = rng.choice(len(X), len(X) // 100, replace=False)
    X[some] = 0.02 * X[some] + 0.05 * X.std() * rng.standard_normal((len(some), X.shape[1]))


def _zero_rows(X: np.ndarray, rng: np.random.Generator) -> None:
    X[::3] = 0.0


def _brightness(X: np.ndarray, rng: np.random.Generator) -> None:
    X *= np.exp(0.7 * rng.standard_normal((len(X), 1)))


def _heavy_tails(X: np.ndarray, rng: np.random.Generator) -> None:
    X += 0.05 * X.std() * rng.standard_t(3, X.shape)


def _stretch(X: np.ndarray, rng: np.random.Generator) -> slice:
    start = int(rng.integers(len(X) - 200))
    return slice(start, start + 200)


def _dead_sensor(X: np.ndarray, rng: np.random.Generator) -> None:
    X[_stretch(X, rng), 7] = 0.0


def _two_dead_sensors(X: np.ndarray, rng: np.random.Generator) -> None:
    X[_stretch(X, rng), 7:9] = 0.0


def _stuck_sensor(X: np.ndarray, rng: np.random.Generator) -> None:
    X[_stretch(X, rng), 7] = 4.0


def _spikes(X: np.ndarray, rng: np.random.Generator) -> None:
    X[rng.choice(len(X), 2000), rng.choice(X.shape[1], 2000)] += 3.0


SPOILT = {
    "nothing": _nothing,
    "1 % outliers, far": _outliers,
    "1 % outliers, near": _near_outliers,
    "1 % tiny rows": _tiny_rows,
    "a third zero rows": _zero_rows,
    "brightness": _brightness,
    "heavy tails": _heavy_tails,
    "a dead sensor": _dead_sensor,
    "two dead sensors": _two_dead_sensors,
    "a stuck sensor": _stuck_sensor,
    "spikes": _spikes,
}


class SpoiltRows(Benchmark):
    """What only looks like a rare material: it makes no second look, and hides no material."""

    id = "Q15-spoilt"
    title = "Corrupted rows and features, with and without a rare material"
    protocol = (
        "As Q15-rare with k = 10, noise .1: no rare material, or .1 % of the rows in one place; then rows or "
        "features are corrupted: outliers (uniform rows, or to the eighth power and five times as long), rows of "
        "a fiftieth of the height with the same noise, every third row zero, log normal brightness (sd .7), "
        "Student's noise of three degrees of freedom, a feature (or two) that is zero, or stuck at 4, in 200 "
        "rows, 2,000 single entries 3 higher. Three seeds. Second looks: the share of fits that made a second "
        "divide pass; found as in Q15-rare."
    )
    param_names: ClassVar = ["spoilt", "share", "seed", "method"]
    params: ClassVar = [tuple(SPOILT), (0.0, 0.001), (0, 1, 2), (OURS, ONCE, EVERY)]
    quick_params: ClassVar = {"spoilt": ("a dead sensor",), "seed": (0,)}
    tables: ClassVar = [
        Table("Second looks, share of fits", ["spoilt", "share"], "looked", better="none", where={"method": OURS}),
        Table("The rare ray is found, share of fits", ["spoilt"], "rare", where={"share": 0.001}),
    ]

    def setup(self, spoilt: str, share: float, seed: int, method: str) -> None:
        self.scene = _spoilt(40_000 if self.quick else ROWS, spoilt, share, seed)

    def measure(self, spoilt: str, share: float, seed: int, method: str) -> Record:
        found, rare = _found(method, self.scene.X, 10 if share else 9)
        close = angles(self.scene.clean[found], self.scene.rays).min(axis=0) < CLOSE
        return {"rare": float(close[-1]), "recall": float(close.mean()), "looked": float(len(rare) > 0)}

    def track_rare(self, *params: Any) -> float:
        return self.measure(*params)["rare"]

    def check(self, records: list[Record]) -> list[Check]:
        ours = [r for r in records if r["method"] == OURS]
        falsely = [r["spoilt"] for r in ours if not r["share"] and r["looked"]]
        lost = [r["spoilt"] for r in ours if r["share"] and not r["rare"]]
        return [
            Check("no second look without a rare material", _listed(falsely, len(ours) // 2), not falsely),
            Check(
                "a rare material is found beside what is spoilt", "lost in " + _listed(lost, len(ours) // 2), not lost
            ),
        ]


def _listed(names: list[str], of: int) -> str:
    return f"{len(names)} of {of} fits{': ' if names else ''}{', '.join(dict.fromkeys(names))}"


@lru_cache(maxsize=1)
def _spoilt(n: int, kind: str, share: float, seed: int) -> Scene:
    clean = scene(n, 10, share, 0.1, 1, seed)
    X = clean.X.copy()
    SPOILT[kind](X, np.random.default_rng(np.random.SeedSequence([seed, 15])))
    return clean._replace(X=X)
