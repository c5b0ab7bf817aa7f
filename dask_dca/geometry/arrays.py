"""What arrays hold: names for annotations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Labels = NDArray[np.intp]
Mask = NDArray[np.bool_]
