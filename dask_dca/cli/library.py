"""What the command `dask dca fit library` does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dask_dca.anchoring.anchors import find_anchors
from dask_dca.cli.clusters import Where, connected
from dask_dca.engine.advice import refuse_other_names
from dask_dca.inputs import in_order, names_at, open_data, read_named_rows

if TYPE_CHECKING:
    from dask_dca.anchoring.result import AnchorResult

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
        Paths or URLs of the matrices; the first column of a table may hold the names of a library's rows.
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
    given = open_data(data, array)
    known, names = read_named_rows(library)
    line = in_order(data, names_at(library, skip=int(names is not None)))
    refuse_other_names(known.names, given.names, data, library, line)
    with connected(where or Where()):
        found = find_anchors(given.matrix, k, Y=known.matrix, random_state=random_state)
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
