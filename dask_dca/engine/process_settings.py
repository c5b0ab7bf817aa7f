"""Settings of the process that hold while a context is open in any of its threads."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class ProcessSetting:
    """A setting that is restored when the last of the contexts that are open is left.

    begin: sets it; called at each entry, with True for the first; restore: restores the former setting.
    """

    begin: Callable[[bool], None]
    restore: Callable[[], None]
    _open: set[object] = field(default_factory=set)
    _lock: Any = field(default_factory=threading.Lock)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open a context, which may be nested, or beside others in other threads."""
        token = object()
        try:
            with self._lock:
                first = not self._open
                self._open.add(token)
                self.begin(first)
            yield
        finally:
            with self._lock:
                self._open.discard(token)
                if not self._open:
                    self.restore()
