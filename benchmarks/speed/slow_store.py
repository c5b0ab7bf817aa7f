"""A local zarr store that answers like an object store, and a log of what each process asked of it and when."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from zarr.storage import WrapperStore

REQUESTED: Counter[str] = Counter()  # bytes of each key that this process asked for
READING: list[tuple[float, float]] = []  # when it did, (begin, end)


class SlowStore(WrapperStore):
    """Any store, with that many seconds per request and that many bytes per second for each connection."""

    def __init__(self, store: Any, seconds: float = 0.05, rate: float = 1e8) -> None:
        super().__init__(store)
        self.seconds, self.rate = seconds, rate

    def _with_store(self, store: Any) -> SlowStore:
        return type(self)(store, self.seconds, self.rate)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """The bytes, once their time is over."""
        begin = time.perf_counter()
        found = await self._store.get(key, prototype, byte_range)
        size = 0 if found is None else len(found)
        await asyncio.sleep(max(0.0, begin + self.seconds + size / self.rate - time.perf_counter()))
        if "c/" in key:
            REQUESTED[key] += size
            READING.append((begin, time.perf_counter()))
        return found


def take() -> tuple[dict[str, int], list[tuple[float, float]]]:
    """What this process logged since the last call."""
    found = dict(REQUESTED), list(READING)
    REQUESTED.clear()
    READING.clear()
    return found
