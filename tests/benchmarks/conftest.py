"""The benchmarks are a package next to the library's, not installed: put the project's root on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
