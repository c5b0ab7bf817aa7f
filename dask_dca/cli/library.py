"""What the command `dask dca fit library` does."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.anchoring.anchors import find_anchors
from dask_dca.cli.clusters import Where, connected
from dask_dca.errors import InvalidInputError
from dask_dca.inputs import open_data
from dask_dca.output import is_url, local_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.anchoring.result import AnchorResult

__all__ = ["name_rows", "table"]

_SHOWN: Final = 5  # rows of a group


def name_rows(
    data: str,
    library: str,
    k: int | str,
    where: Where | None = None,
    *,
    array: str | None = None,
    random_state: int = 0,
) -> dict[str, Any]:
    """
    Name the rows of a library that the rows of data at a path are mixtures of.

    Parameters
    ----------
    data, library : str
        Paths or URLs of the matrices; the first column of a library in a `.csv` file may hold the rows' names.
    k : int or "auto"
        How many.
    where : Where, optional
        Cluster to run on.
    array : str, optional
        Which array of a zarr group the data are.
    random_state : int, default 0
        Seed of the planes.

    Returns
    -------
    dict
        Plain values: the anchors with their row numbers, names, votes and whom they could stand for; the certificate.

    Raises
    ------
    DCAError
        Unusable paths, data or parameters.
    """
    matrix = open_data(data, array).matrix
    rows, names = _open_library(library)
    with connected(where or Where()):
        found = find_anchors(matrix, k, Y=rows, random_state=random_state)
    return _facts(found, names)


def _facts(found: AnchorResult, names: list[str] | None) -> dict[str, Any]:
    def _named(row: int) -> str:
        return f"row {row}" if names is None else names[row]

    anchors = [
        {
            "row": int(row),
            "name": _named(row),
            "vote_share": float(share),
            "alike": [{"row": int(other), "name": _named(other)} for other in group[1:]],
        }
        for row, share, group in zip(found.indices, found.vote_share, found.groups, strict=True)
    ]
    certificate = {"coverage": found.coverage, "unexplained": found.unexplained, "offset": found.offset}
    return {"anchors": anchors, **certificate}


def table(facts: dict[str, Any]) -> str:
    """
    Set out what was found in words.

    Parameters
    ----------
    facts : dict
        As `name_rows` returns it.

    Returns
    -------
    str
        A line for each row of the library, and the certificate.
    """
    width = max(len(anchor["name"]) for anchor in facts["anchors"])
    lines = [f"DATA's rows are mixtures of {len(facts['anchors'])} rows of the library:"]
    for anchor in facts["anchors"]:
        others = [other["name"] for other in anchor["alike"]]
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        alike = f"  or, as far as the data tell: {', '.join(others[:_SHOWN])}{more}" if others else ""
        lines.append(f"{anchor['row']:>8}  {anchor['name']:<{width}}{alike}".rstrip())
    if facts["offset"]:
        lines.append("A constant is mixed in as well.")
    return "\n".join(
        [*lines, f"Coverage {facts['coverage']:.3f}; unexplained {facts['unexplained']:.2%} of the spread."]
    )


def _open_library(path: str) -> tuple[Any, list[str] | None]:
    """The rows of a library and their names, where the first column of a table holds any."""
    if is_url(path) or not path.lower().endswith(".csv") or not Path(local_path(path)).is_file():
        return open_data(path).matrix, None
    with open(local_path(path), encoding="utf-8-sig", newline="") as lines:
        cells = [row for row in csv.reader(lines) if row]
    if len(cells) < 2 or _is_number(cells[-1][0]):
        return open_data(path).matrix, None
    first = 0 if len(cells[0]) > 1 and _is_number(cells[0][1]) and not _is_number(cells[0][0]) else 1
    values = [[_number(path, line, cell) for cell in row[1:]] for line, row in enumerate(cells[first:], first + 1)]
    if len({len(row) for row in values}) > 1:
        msg = f"the rows of {path!r} differ in length; each is a name and then as many numbers as DATA has columns"
        raise InvalidInputError(msg)
    found: NDArray[np.float64] = np.array(values)
    return found, [row[0].strip() for row in cells[first:]]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(path: str, line: int, cell: str) -> float:
    if not _is_number(cell):
        msg = (
            f"line {line} of {path!r} holds {cell.strip()[:40]!r}, which is no number; only the first column has names"
        )
        raise InvalidInputError(msg)
    return float(cell)
