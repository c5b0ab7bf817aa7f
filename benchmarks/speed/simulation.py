"""A discrete-event simulation of a pass on a cluster: scheduler, store, network and workers, each with its own pace.

Blocks are read (a request's latency, then bytes at the least of the rates of connection, worker and store), worked on,
and their values merged eight at a time. The scheduler handles one message after the other. A thread asks for its next
block when it begins to work on the one before, as the library does on slow stores.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

FAN_IN = 8
Key = tuple[int, int]  # level of the tree, number within


@dataclass(frozen=True)
class Pace:
    """What things take, in seconds, bytes, and bytes a second.

    latency: of a request; connection, worker, store: rates at most; byte: of computing, per byte of a block; block: of
    a block's task whatever its size, its share of merges included; message: bytes of a value; network: between two
    workers; task: of the scheduler, per message; cores: processors that all workers share, if any.
    """

    latency: float
    connection: float
    byte: float
    block: float
    message: float
    task: float
    worker: float = 1.25e9
    store: float = float("inf")
    network: float = 1.25e9
    cores: int | None = None


@dataclass(frozen=True)
class Outcome:
    """Seconds of a pass, and the shares of it in which the scheduler and the workers' threads are busy."""

    seconds: float
    scheduler: float
    threads: float


class _Queue:
    """Whatever works on one thing after the other, in that many places."""

    def __init__(self, places: int) -> None:
        self.free = [0.0] * places
        self.busy = 0.0

    def begin(self, time: float) -> float:
        return max(time, self.free[0])

    def take(self, begin: float, seconds: float) -> float:
        """Be busy from a time on; returns until when."""
        heapq.heapreplace(self.free, begin + seconds)
        self.busy += seconds
        return begin + seconds


class _Simulation:
    """What is left to hand out, and who is busy until when."""

    def __init__(self, pace: Pace, n_blocks: int, n_bytes: float, workers: int, threads: int) -> None:
        self.pace, self.n_blocks, self.n_bytes, self.threads = pace, n_blocks, n_bytes, threads
        self.processors = [_Queue(threads) for _ in range(workers)]
        self.cores = _Queue(workers * threads if pace.cores is None else pace.cores)
        self.scheduler = _Queue(1)
        self.reading, self.next_block = [0] * workers, 0
        self.levels = [n_blocks]
        while self.levels[-1] > 1:
            self.levels.append(-(-self.levels[-1] // FAN_IN))
        self.missing: dict[Key, int] = {}
        self.merges: deque[Key] = deque()
        self.events: list[tuple[float, int, str, int, Key]] = []
        self.n_events = 0

    def run(self) -> float:
        """Seconds until the last value is there."""
        for turn in range(self.threads):
            for worker in range(len(self.processors)):
                self.add(0.0, "free", worker, (0, turn))
        while True:
            time, _, kind, worker, key = heapq.heappop(self.events)
            if kind == "read":
                self.work(time, worker, key)
                continue
            time = self.scheduler.take(self.scheduler.begin(time), self.pace.task)
            if kind == "done" and self.finish(key):
                return time
            self.hand_out(time, worker)

    def add(self, time: float, kind: str, worker: int, key: Key) -> None:
        self.n_events += 1
        heapq.heappush(self.events, (time, self.n_events, kind, worker, key))

    def hand_out(self, time: float, worker: int) -> None:
        """Give a worker a merge if there is one, else a block to read if a thread of it reads nothing."""
        pace = self.pace
        if self.merges:
            key = self.merges.popleft()
            fetched = time + (self.parts(key) - 1) * pace.message / pace.network
            self.compute(fetched, 0.0, worker, key)
        if self.next_block < self.n_blocks and self.reading[worker] < self.threads:
            self.reading[worker] += 1
            rate = min(pace.connection, pace.worker / self.threads, pace.store / self.cores_reading())
            self.add(time + pace.latency + self.n_bytes / rate, "read", worker, (0, self.next_block))
            self.next_block += 1

    def cores_reading(self) -> int:
        return min(len(self.processors) * self.threads, self.n_blocks)

    def parts(self, key: Key) -> int:
        """How many values a merge takes."""
        return min(FAN_IN, self.levels[key[0] - 1] - key[1] * FAN_IN)

    def compute(self, time: float, seconds: float, worker: int, key: Key) -> float:
        """Compute on the thread and the core that are free first; returns when that begins."""
        begin = self.cores.begin(self.processors[worker].begin(time))
        self.cores.take(begin, seconds)
        self.add(self.processors[worker].take(begin, seconds), "done", worker, key)
        return begin

    def work(self, time: float, worker: int, key: Key) -> None:
        """Work on a block that is there; once that begins, the next one is asked for."""
        begin = self.compute(time, self.pace.byte * self.n_bytes + self.pace.block, worker, key)
        self.reading[worker] -= 1
        self.add(begin, "free", worker, key)

    def finish(self, key: Key) -> bool:
        """A value is there. Tells whether it is the last one."""
        if self.levels[key[0]] == 1:
            return True
        above = key[0] + 1, key[1] // FAN_IN
        self.missing[above] = self.missing.get(above, self.parts(above)) - 1
        if not self.missing[above]:
            del self.missing[above]
            self.merges.append(above)
        return False


def simulate(pace: Pace, n_blocks: int, n_bytes: float, workers: int, threads: int = 1) -> Outcome:
    """Simulate a pass over blocks of that many bytes each."""
    simulation = _Simulation(pace, n_blocks, n_bytes, workers, threads)
    seconds = simulation.run()
    computed = sum(queue.busy for queue in simulation.processors)
    return Outcome(seconds, simulation.scheduler.busy / seconds, computed / (seconds * workers * threads))
