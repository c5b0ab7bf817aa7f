"""What data are the same data: shape, dtype and the content of some rows, never where they lie or how they are cut."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.sampling import spread_rows
from dask_dca.engine.tiles import tiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Numbers = NDArray[np.int64]

__all__ = ["data_identity"]

_RUNS: Final = (8, 4)  # runs of rows that are hashed, and their length


def data_identity(rows: Rows, run: Run) -> dict[str, Any]:
    """
    Say which data a fit is of.

    Parameters
    ----------
    rows : Rows
        The data.
    run : Run
        How passes are run.

    Returns
    -------
    dict
        Number of rows and features, dtype, and a hash of 32 rows spread over the data.
    """
    numbers = spread_rows(rows.n_rows, *_RUNS)
    fine = rows.by_chunk()
    wanted = np.arange(rows.n_rows) if numbers is None else numbers
    job: Pass[list[tuple[int, str]]] = Pass("identity", _hash_block, _merge_hashes)
    found = run_pass(fine, job, wanted, run, blocks=fine.blocks_with(wanted))
    content = "".join(text for _, text in sorted(found))
    return {
        "rows": rows.n_rows,
        "features": rows.n_features,
        "dtype": rows.dtype.str,
        "content": hashlib.sha256(content.encode()).hexdigest(),
    }


def _hash_block(wanted: Numbers, start: int, *columns: Any) -> list[tuple[int, str]]:
    found = []
    for numbers, tile in tiles(columns, start, wanted):
        clean = tile + 0.0  # -0 is 0
        clean[np.isnan(clean)] = np.nan  # of one form
        found += [(int(n), hashlib.sha256(row.tobytes()).hexdigest()) for n, row in zip(numbers, clean, strict=True)]
    return found


def _merge_hashes(parts: Sequence[list[tuple[int, str]]]) -> list[tuple[int, str]]:
    return [pair for part in parts for pair in part]
