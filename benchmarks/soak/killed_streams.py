"""Streams whose process gets SIGKILL again and again: after a batch, in the middle of one, and while it is saved."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from benchmarks.chunking_cases import fitted_bits
from benchmarks.harness import Benchmark, Check, Record, Table

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH = 20  # frames of a sequence
N = 200  # rows of a batch
COUNTED = ("batches", "kills", "after a batch", "within a batch", "while saving", "models that differ")


def rows(rng: np.random.Generator) -> np.ndarray:
    return rng.dirichlet(np.full(4, 0.3), N) @ (np.kron(np.eye(4), np.ones(3)) + 0.1) * (1 + 0.05 * rng.random((N, 1)))


def clusters(rng: np.random.Generator) -> np.ndarray:
    return (4.0 * np.eye(3, 4))[rng.integers(3, size=N)] + rng.standard_normal((N, 4))


def frames(rng: np.random.Generator) -> np.ndarray:
    return (4.0 * np.eye(3, 4))[np.repeat(rng.integers(3, size=N // 5), 5)] + rng.standard_normal((N, 4))


def motion(rng: np.random.Generator) -> np.ndarray:
    turn, seen = 0.9 * np.array([[0.9, 0.3], [-0.3, 0.9]]), np.arange(8.0).reshape(4, 2) / 3.0 - 1.0
    states = np.zeros((N, 2))
    for t in range(N):
        states[t] = (turn @ states[t - 1] if t % LENGTH else 0.0) + 0.4 * rng.standard_normal(2)
    return states @ seen.T + 0.3 * rng.standard_normal((N, 4))


def documents(rng: np.random.Generator) -> np.ndarray:
    topics = np.kron(np.eye(3), np.full(8, 0.1)) + 0.2 / 24
    return rng.poisson(40.0 * rng.dirichlet(np.full(3, 0.3), N) @ (topics / topics[0].sum())).astype(float)


# class, its parameter, its batches, whether these are of sequences
MODELS: dict[str, tuple[str, int, Callable[[np.random.Generator], np.ndarray], bool]] = {
    "NMF": ("NMF", 4, rows, False),
    "mixture": ("GaussianMixture", 3, clusters, False),
    "chain": ("GaussianHMM", 3, frames, True),
    "Kalman filter": ("KalmanFilter", 2, motion, True),
    "topics": ("LatentDirichletAllocation", 3, documents, False),
}


class KilledStreams(Benchmark):
    """A stream that goes on from its last saved model must end with the bits of one that nobody disturbed."""

    id = "streams"
    title = "Streams: SIGKILL at random moments of 200 batches"
    protocol = (
        f"200 batches of {N} rows, after each of which the model is saved in the place of the one before. The process"
        " gets SIGKILL repeatedly: half of the time right after a batch is saved, else at a random moment within some"
        " batches. The next process loads the saved model and continues with the next batch. The model after the"
        " last batch is compared, bit by bit, with that of an uninterrupted process."
    )
    param_names: ClassVar = ["model", "counted"]
    params: ClassVar = [tuple(MODELS), COUNTED]
    quick_params: ClassVar = {"model": ("NMF",)}
    tables: ClassVar = [Table("By model", ["model"], "value", columns="counted", counts=True)]

    def __init__(self, *, quick: bool = False) -> None:
        super().__init__(quick=quick)
        self.n_batches = 5 if quick else 200
        self.done: dict[str, Record] = {}

    def setup(self, model: str, counted: str) -> None:
        if model not in self.done:
            self.done[model] = self.one(model)

    def one(self, model: str) -> Record:
        """One stream that is killed, and one that is not."""
        import dask_dca as dca

        with tempfile.TemporaryDirectory(prefix="dask-dca-streams-") as folder:
            command = [sys.executable, "-m", __name__, model, folder, str(self.n_batches)]
            told = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]).stdout
            found, wanted = (dca.load_model(f"{folder}/{name}.zarr") for name in ("killed", "alone"))
            left = [name for name in os.listdir(folder) if name.startswith(".")]
        same = fitted_bits(found) == fitted_bits(wanted) and not left
        return json.loads(told) | {"batches": found.n_samples_seen_ // N, "models that differ": int(not same)}

    def measure(self, model: str, counted: str) -> Record:
        return {"value": self.done[model][counted]}

    def check(self, records: list[Record]) -> list[Check]:
        total = {name: sum(r["value"] for r in records if r["counted"] == name) for name in COUNTED}
        models = {model for model, _ in self.cases}
        within = total["within a batch"] + total["while saving"]
        return [
            Check(
                f"{self.n_batches} batches of each model",
                f"{total['batches']}",
                total["batches"] == self.n_batches * len(models),
            ),
            Check("killed in the middle, too", f"{within} of {total['kills']} times", within > 0 or self.quick),
            Check(
                "models that differ: 0",
                f"{total['models that differ']} of {len(models)}",
                not total["models that differ"],
            ),
        ]


def stream(name: str, path: str, n_batches: int, told: int, last: int) -> None:
    """Go on from what is saved; a byte for each batch that is, SIGKILL after the batch `last`."""
    import dask_dca as dca

    kind, k, make, in_time = MODELS[name]
    model = dca.load_model(path) if os.path.exists(path) else getattr(dca, kind)(k)
    for i in range(getattr(model, "n_samples_seen_", 0) // N, n_batches):
        os.write(told, b".")
        options: dict[str, Any] = {"lengths": [LENGTH] * (N // LENGTH)} if in_time else {}
        model.partial_fit(make(np.random.default_rng(i)), **options).save(path, overwrite=True)
        if i == last:
            os.kill(os.getpid(), signal.SIGKILL)


def child(*given: Any) -> tuple[int, int]:
    """A process of its own for a stream; its id, and where it tells of batches."""
    heard, told = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(heard)
        status = 1
        try:
            stream(*given[:3], told, *given[3:])
            status = 0
        finally:
            os._exit(status)
    os.close(told)
    return pid, heard


def disturbed(name: str, folder: str, n_batches: int) -> Record:
    """Begin processes until one comes to the last batch; how often they were killed, and where."""
    rng, path, counts = np.random.default_rng(0), f"{folder}/killed.zarr", dict.fromkeys(COUNTED[1:5], 0)
    seconds = 0.1  # that a batch takes, about
    while True:
        after, before = rng.random() < 0.5, unfinished(folder)
        pid, heard = child(name, path, n_batches, _seen(path) + int(rng.integers(2)) if after else -1)
        begun = 0
        if not after:
            begun += len(os.read(heard, 1))
            start = time.monotonic()
            time.sleep(rng.random() * 3.0 * seconds)
            os.kill(pid, signal.SIGKILL)
        while part := os.read(heard, 64):
            begun += len(part)
        if not after and begun > 1:
            seconds = 0.5 * seconds + 0.5 * (time.monotonic() - start) / begun
        os.close(heard)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            if os.WEXITSTATUS(status):
                raise SystemExit(1)
            return counts
        counts["kills"] += 1
        counts["after a batch" if after else "while saving" if unfinished(folder) - before else "within a batch"] += 1


def unfinished(folder: str) -> set[str]:
    """What is being written in a folder, or was when its process was killed."""
    return {entry for entry in os.listdir(folder) if entry.endswith(".partial")}


def _seen(path: str) -> int:
    """Batches that the saved model has seen, without the library, which starts threads in this process."""
    try:
        attributes = json.loads(Path(path, "zarr.json").read_text())["attributes"]["dask_dca"]["attributes"]
    except FileNotFoundError:
        return 0
    return int(attributes["n_samples_seen_"]) // N


def main(name: str, folder: str, n_batches: str) -> None:
    """Both streams, for a process without threads, from which others can be forked."""
    import zarr

    import dask_dca as dca

    _ = zarr.open, getattr(dca, MODELS[name][0]), dca.load_model  # imported once, for all
    pid, heard = child(name, f"{folder}/alone.zarr", int(n_batches), -1)
    while os.read(heard, 64):
        pass
    if os.waitpid(pid, 0)[1]:
        raise SystemExit(1)
    print(json.dumps(disturbed(name, folder, int(n_batches))))


if __name__ == "__main__":
    main(*sys.argv[1:])
