"""Floating-point errors: what the library's arithmetic does at them, whatever the caller has set with np.seterr."""

from __future__ import annotations

from typing import Final

import numpy as np

__all__ = ["numpy_defaults"]

# NumPy's own defaults, as a decorator: underflow is part of the work, anything else would be a fault
numpy_defaults: Final = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
