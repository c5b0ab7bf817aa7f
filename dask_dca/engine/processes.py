"""Which process this is, for messages about what one process sees and another does not."""

from __future__ import annotations

import socket
import sys
from typing import Final

__all__ = ["SHARE", "this_process"]

SHARE: Final = "pass a path or URL that all workers share, and keep it until results are computed"


def this_process() -> str:
    """
    Name this process in a message.

    Returns
    -------
    str
        The address of its worker, else the host.
    """
    distributed = sys.modules.get("distributed")
    try:
        return f"worker {distributed.get_worker().address}"  # type: ignore[union-attr]
    except (AttributeError, ValueError):
        return f"this process on {socket.gethostname()}"
