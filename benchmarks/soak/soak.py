"""The soak: fits during which machines die, hang, lose their disk or can't read, at random moments."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

import numpy as np

from benchmarks.harness import Benchmark, Check, Record, Table
from benchmarks.soak_cluster import PATIENCE, Cluster, start
from benchmarks.soak_fits import FITS, fit, whole, write

FAULTS = ("worker killed", "worker stopped", "scheduler killed", "driver killed", "read fails", "disk full")
COUNTED = (
    "runs",
    "faults in time",
    "same bits at once",
    "clear errors",
    "resumed to the same bits",
    "passes kept at resuming",
    "answers that differ",
    "states lost",
    "unclear or hung",
)
LONGEST = 300  # seconds after which a fit counts as hung


class Soak(Benchmark):
    """Every fit must end with the same bits, or with a clear error and a state from which it goes on to them."""

    id = "soak"
    title = "Soak: faults at random moments of fits with a checkpoint"
    protocol = (
        "50 seeded runs over the six models on a scheduler and two worker processes; in each one fault at a moment"
        " drawn over its passes: a worker gets SIGKILL or SIGSTOP, the scheduler or the driver SIGKILL, chunks"
        " of the zarr store are cut short (half of the time they are repaired meanwhile), or the driver's files can't"
        " grow any more. A fit that did not end with the bits of a fit in memory is begun again with the same"
        f" checkpoint on a healthy cluster. Workers without a heartbeat for {PATIENCE} s are removed (worker-ttl)."
    )
    param_names: ClassVar = ["fault", "counted"]
    params: ClassVar = [FAULTS, COUNTED]
    tables: ClassVar = [Table("Runs", ["fault"], "value", columns="counted", counts=True)]

    def __init__(self, *, quick: bool = False) -> None:
        super().__init__(quick=quick)
        self.n_runs = len(FAULTS) if quick else 50
        self.folder: Path | None = None
        self.done: dict[str, list[Record]] = {}

    def setup(self, fault: str, counted: str) -> None:
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="dask-dca-soak-"))
            write(self.folder)
            self.cluster = Cluster(self.folder)
            self.bits = {name: whole(self.folder, name) for name in FITS}
            self._reference("NMF")  # not counted: workers import the library
            self.passes = {name: self._reference(name) for name in FITS}
        if fault not in self.done:
            numbers = [i for i in range(self.n_runs) if FAULTS[i % len(FAULTS)] == fault]
            self.done[fault] = [self.one_run(i, fault) for i in numbers]

    def measure(self, fault: str, counted: str) -> Record:
        runs = self.done[fault]
        record: Record = {"value": len(runs) if counted == "runs" else sum(run[counted] for run in runs)}
        return record | ({"each": runs} if counted == "runs" else {})

    def _reference(self, name: str) -> tuple[int, float]:
        """Passes that are kept and seconds of a fit without a fault, which must give the bits of a fit in memory."""
        shutil.rmtree(self.folder / f"reference-{name}", ignore_errors=True)
        running = Fit(self, name, "zarr", f"reference-{name}")
        running.wait_for_passes(0, 0.0)
        begin = time.monotonic()
        ended = running.until_it_ends()
        if ended.get("bits") != self.bits[name]:
            raise AssertionError(f"{name} without a fault: {ended}")
        return len(running.kept()), time.monotonic() - begin

    def one_run(self, number: int, fault: str) -> Record:
        """One fit with a fault, and a second one where it is needed."""
        rng = np.random.default_rng([7, number])
        name = list(FITS)[(number + number // len(FAULTS)) % len(FITS)]
        form = ("zarr", "dask")[int(rng.integers(2))]
        begin = time.monotonic()
        running, mend = Fit(self, name, form, f"run-{number}"), Mend()
        passes, seconds = self.passes[name]
        running.wait_for_passes(int(rng.integers(passes)), float(rng.random()) * seconds / (passes + 1))
        in_time = running.is_running()
        try:
            mend.after(self, running, fault, rng)
            ended = running.until_it_ends()
        finally:
            mend.now()
        found = {
            "run": number,
            "model": name,
            "form": form,
            "fault": fault,
            **running.judged(ended),
            "faults in time": int(in_time),
            "resumed to the same bits": 0,
            "passes kept at resuming": 0,
            "states lost": 0,
        }
        if not found["same bits at once"] or fault == "disk full":
            found |= self._resumed(running, found)
        found["seconds"] = round(time.monotonic() - begin, 1)
        print(json.dumps(found), file=sys.stderr, flush=True)
        return found

    def _resumed(self, before: Fit, found: Record) -> Record:
        """Begin a fit again, twice if a clear error ends it: what was kept must be used, and the bits be the same."""
        kept = before.kept()
        for _ in range(2):  # a crowded machine can make healthy workers look dead
            again = Fit(self, before.name, before.form, before.place.name)
            ended = again.until_it_ends()
            same = ended.get("bits") == self.bits[before.name]
            if same or not ended.get("clear"):
                break
        lost = [path for path, stamp in kept.items() if again.kept().get(path) != stamp]
        differs = "bits" in ended and not same
        return {
            "resumed to the same bits": int(same),
            "passes kept at resuming": len(kept),
            "states lost": int(bool(lost) or not same),
            "answers that differ": found["answers that differ"] + int(differs),
        } | ({} if same else {"again": json.dumps(ended)})

    def check(self, records: list[Record]) -> list[Check]:
        total = {name: sum(r["value"] for r in records if r["counted"] == name) for name in COUNTED}
        runs = total["runs"]
        return [
            Check(
                f"{self.n_runs} runs",
                f"{runs} runs, {total['faults in time']} faults while the fit ran",
                runs == self.n_runs,
            ),
            *(
                Check(f"{name}: 0", f"{total[name]} of {runs}", total[name] == 0 if runs else None)
                for name in ("answers that differ", "states lost", "unclear or hung")
            ),
        ]

    def close(self) -> None:
        if self.folder is not None:
            self.cluster.stop()
            shutil.rmtree(self.folder, ignore_errors=True)


class Fit:
    """A fit in a process of its own."""

    def __init__(self, soak: Soak, name: str, form: str, place: str) -> None:
        soak.cluster.renew()
        self.soak, self.name, self.form, self.place = soak, name, form, soak.folder / place
        for ending in (".json", ".begun"):
            Path(f"{self.place}{ending}").unlink(missing_ok=True)
        self.process = start(fit, soak.cluster.address, str(soak.folder), name, form, str(self.place))

    def wait_for_passes(self, count: int, seconds: float) -> None:
        """Wait until that many passes are kept, and some seconds more."""
        deadline = time.monotonic() + 60
        while not Path(f"{self.place}.begun").exists() or len(self.kept()) < count:
            if time.monotonic() > deadline or not self.is_running():
                return
            time.sleep(0.005)
        self.process.join(seconds)

    def is_running(self) -> bool:
        return self.process.is_alive()

    def until_it_ends(self) -> Record:
        """What it said; a fit that takes too long is killed."""
        self.process.join(LONGEST)
        hung = self.process.is_alive()
        if hung:
            self.process.kill()
            self.process.join()
        with contextlib.suppress(FileNotFoundError):
            return json.loads(Path(f"{self.place}.json").read_text())
        return {"hung": True} if hung else {"killed": True}

    def judged(self, ended: Record) -> Record:
        """Whether the bits are right, and whether an error is clear."""
        same = ended.get("bits") == self.soak.bits[self.name]
        killed, clear = bool(ended.get("killed")), bool(ended.get("clear"))
        told = {key: ended[key] for key in ("error", "message", "warnings") if ended.get(key)}
        return {
            "same bits at once": int(same),
            "clear errors": int(clear),
            "answers that differ": int("bits" in ended and not same),
            "unclear or hung": int(not (same or clear or killed or "bits" in ended)),
            **told,
        }

    def kept(self) -> dict[str, int]:
        """Passes that are kept, and when they were written."""
        return {path.name: path.stat().st_mtime_ns for path in self.place.glob("*.npz")}


class Mend:
    """Do a fault, and undo what must not outlast the fit."""

    def __init__(self) -> None:
        self.damaged: dict[Path, bytes] = {}
        self.stopped: list[int] = []

    def after(self, soak: Soak, running: Fit, fault: str, rng: np.random.Generator) -> None:
        """Do the fault."""
        cluster, pid = soak.cluster, running.process.pid
        if fault in ("worker killed", "worker stopped"):
            pids = cluster.worker_pids()
            victim = pids[int(rng.integers(len(pids)))]
            os.kill(victim, signal.SIGKILL if fault == "worker killed" else signal.SIGSTOP)
            self.stopped = [victim] if fault == "worker stopped" else []
        elif fault == "scheduler killed":
            cluster.kill_scheduler()
        elif fault == "driver killed":
            running.process.kill()
        elif fault == "disk full":
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (50, resource.RLIM_INFINITY))
        else:
            chunks = sorted((soak.folder / f"{FITS[running.name][1]}.zarr").glob("c/*/0"))
            for i in rng.choice(len(chunks), 3, replace=False):
                self._cut(chunks[int(i)])
            if rng.random() < 0.5:
                running.process.join(0.05)
                self.now()

    def _cut(self, path: Path) -> None:
        self.damaged[path] = path.read_bytes()
        beside = path.with_name(".cut")
        beside.write_bytes(self.damaged[path][: len(self.damaged[path]) // 2])
        beside.replace(path)

    def now(self) -> None:
        """Undo it."""
        for path, content in self.damaged.items():
            beside = path.with_name(".whole")
            beside.write_bytes(content)
            beside.replace(path)
        self.damaged = {}
        for pid in self.stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.stopped = []
