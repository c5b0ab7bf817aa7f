"""Q8: a hidden Markov model of more frames than the workers' memory holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from benchmarks.harness import Check, Record, Table, mean, timed
from benchmarks.markov_data import chain
from benchmarks.two_workers import TwoWorkers

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = "2GB"
FIT = "GaussianHMM.fit"


class LongSequences(TwoWorkers):
    """One long recording on two worker processes."""

    id = "Q8-hmm-scale"
    title = "Hidden Markov model of 10,000,000 frames on two workers"
    protocol = (
        "10,000,000 x 20 float32 in zarr (chunks of 100,000 frames, zarr's default compression), frames of six planted"
        f" states; two worker processes of one thread and {LIMIT}; k = 6, five passes of Baum-Welch; against the sum of"
        " the same array. Peak: greatest resident memory of a worker during the fit, less that before it, in MB."
        " Error: mean distance of matched means, over the root of p."
    )
    param_names: ClassVar = ["n", "turn", "method"]
    params: ClassVar = [(10_000_000,), (0,), ("sum", FIT)]
    quick_params: ClassVar = {"n": (6000,)}
    tables: ClassVar = [
        Table("Seconds", ["n"], "seconds", better="min"),
        Table("Peak MB of a worker", ["n"], "peak", better="min", digits=0),
    ]

    def setup(self, n: int, turn: int, method: str) -> None:
        self.start(LIMIT)
        if not (self.folder / "frames.zarr").exists():
            self.truth = _write(self.folder / "frames.zarr", n)

    def measure(self, n: int, turn: int, method: str) -> Record:
        import dask.array as da
        import zarr

        import dask_dca
        from benchmarks.markov import _mean_error

        path = str(self.folder / "frames.zarr")
        if method == "sum":
            _, seconds = timed(lambda: da.from_zarr(path).sum().compute())
            return {"seconds": seconds}
        before = self.client.run(_resident)
        self.client.run(_watch_start)
        model, seconds = timed(lambda: dask_dca.GaussianHMM(6).fit(zarr.open_array(path, mode="r")))
        peaks = self.client.run(_peak)
        peak = max(peaks[worker] - before[worker] for worker in before) / 1e6
        return {"seconds": seconds, "peak": peak, "error": _mean_error(model.means_, self.truth)}

    def check(self, records: list[Record]) -> list[Check]:
        fits = [record for record in records if record["method"] == FIT]
        sums = mean([record["seconds"] for record in records if record["method"] == "sum"])
        if not fits:
            return []
        text = f"{fits[0]['seconds'] / sums:.1f} sums, peak {fits[0]['peak']:.0f} MB, error {fits[0]['error']:.4f}"
        return [Check("memory stays flat (peak <= 500 MB above idle)", text, fits[0]["peak"] <= 500)]


def _write(path: Path, n: int) -> np.ndarray:
    """Frames of planted states, a stretch at a time; the means."""
    import zarr

    data = chain(6, 20, 3.0, 100_000, 0)
    array = zarr.create_array(str(path), shape=(n, 20), chunks=(min(n, 100_000), 20), dtype="float32")
    rng = np.random.default_rng(1)
    for start in range(0, n, 100_000):
        count = min(100_000, n - start)
        states = np.roll(data.states, int(rng.integers(100_000)))[:count]
        noise = rng.standard_normal((count, 20), dtype=np.float32)
        array[start : start + count] = data.means[states] + data.deviations[states] * noise
    return data.means


_PEAKS: dict[str, Any] = {}


def _resident() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def _watch_start() -> None:
    """Note the resident memory twenty times a second, in a thread of the worker."""
    import threading

    stop = threading.Event()
    _PEAKS.update(peak=_resident(), stop=stop)

    def look() -> None:
        while not stop.wait(0.05):
            _PEAKS["peak"] = max(_PEAKS["peak"], _resident())

    threading.Thread(target=look, daemon=True).start()


def _peak() -> int:
    _PEAKS["stop"].set()
    return int(_PEAKS["peak"])
