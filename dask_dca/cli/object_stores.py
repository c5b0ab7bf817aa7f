"""How long the command line waits for object stores."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["bounded"]

# s3fs asks five times, and botocore as often each time: minutes for a store that doesn't answer. Settings of the user's
# own (~/.config/fsspec, FSSPEC_S3) go before these.
_TIMES: Final[dict[str, dict[str, Any]]] = {
    "s3": {"config_kwargs": {"connect_timeout": 5, "read_timeout": 15, "retries": {"total_max_attempts": 2}}},
    "gcs": {"requests_timeout": 30},
}


@contextmanager
def bounded() -> Iterator[None]:
    """Have file systems that are opened meanwhile give up a store that doesn't answer after three minutes or so."""
    from fsspec.config import conf

    before = {name: dict(settings) for name, settings in conf.items()}
    for name, settings in _TIMES.items():
        conf[name] = settings | conf.get(name, {})
    try:
        yield
    finally:
        conf.clear()
        conf.update(before)
