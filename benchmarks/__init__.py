"""
Benchmarks of dask_dca: planted data, baselines, quality and speed; run by ``python -m benchmarks``.

Folders are shelves, each with a README: a module is `benchmarks.NAME` wherever it stands.
"""

from pathlib import Path

__path__ += sorted(str(readme.parent) for readme in Path(__file__).parent.glob("*/README.md"))
