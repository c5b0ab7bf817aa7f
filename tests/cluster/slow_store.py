"""A slow store that kills who reads it, and a kernel that logs when it computes."""

import os
import signal
import time

from benchmarks import slow_store
from benchmarks.slow_store import SlowStore

COMPUTING = []  # (begin, end)


class DeadlyStore(SlowStore):
    """A store that kills the process which reads one of its keys first."""

    def __init__(self, store, seconds=0.02, rate=1e9, key="", marker=""):
        super().__init__(store, seconds, rate)
        self.key, self.marker = key, marker

    def _with_store(self, store):
        return type(self)(store, self.seconds, self.rate, self.key, self.marker)

    async def get(self, key, prototype, byte_range=None):
        if key == self.key and os.path.exists(self.marker):
            os.remove(self.marker)
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().get(key, prototype, byte_range)


def compute(state, start, block):
    """Take a while, as a kernel would."""
    begin = time.perf_counter()
    time.sleep(0.05)
    COMPUTING.append((begin, time.perf_counter()))
    return float(block.sum())


def take():
    """What this process logged since the last call."""
    found = *slow_store.take(), list(COMPUTING)
    COMPUTING.clear()
    return found
