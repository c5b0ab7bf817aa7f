"""What the commands `dask dca find-anchors`, `dask dca in-cone` and `dask dca fit library` do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.anchoring.anchors import find_anchors
from dask_dca.anchoring.in_cone import in_cone
from dask_dca.cli.clusters import Where, connected
from dask_dca.cli.jobs import deliver, opened
from dask_dca.cli.results import check_result
from dask_dca.engine.advice import refuse_other_names
from dask_dca.engine.cubes import column_names
from dask_dca.errors import InvalidInputError, naming_columns
from dask_dca.inputs import in_order, names_at, open_data, read_named_rows
from dask_dca.models.describe import RECORD, vote_facts, vote_table
from dask_dca.output import check_apart, is_url, local_path
from dask_dca.store import load_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.anchoring.parameters import AnchorResult

_SHOWN: Final = 5  # rows of a group


def find(
    data: str,
    where: Where | None = None,
    *,
    k: int | str = "auto",
    output: str | None = None,
    array: str | None = None,
    features: str | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Find anchors of data at a path, and write their rows if there is an output.

    k: how many; **settings: of `find_anchors`. Returns plain values: the anchors, their votes, the certificate.
    Raises DCAError: unusable paths, data or settings.
    """
    if output is not None:
        check_result(output, overwrite=overwrite)
        check_apart(output, data)
    given, _ = opened(data, array, features)
    with connected(where or Where()), naming_columns(given.names):
        found = find_anchors(given.matrix, k, **settings)
    if output is not None:
        names = given.names or column_names("feature", found.rows.shape[1])
        about = {"what": "anchors", "rows": found.indices.tolist(), "names": names}
        deliver(np.asarray(found.rows), output, None, about, part="feature", overwrite=overwrite)
    anchors = vote_facts(found.indices, found.votes, found.vote_share, found.confidence)
    return {"anchors": anchors, "n_subproblems": found.n_subproblems, "coverage": float(found.coverage)}


def table_of_anchors(facts: dict[str, Any]) -> str:
    """Set out in words what `find` returns: a line an anchor, and the certificate."""
    lines = vote_table(facts["anchors"])
    if np.isfinite(facts["coverage"]):
        lines.append(f"Coverage {facts['coverage']:.3f} on planes that took no part in choosing them.")
    return "\n".join(lines)


def inside(
    data: str,
    generators: str,
    where: Where | None = None,
    *,
    output: str | None = None,
    array: str | None = None,
    features: str | None = None,
    overwrite: bool = False,
    progress: bool = False,
    **settings: Any,
) -> tuple[int, int]:
    """Tell which rows of data at a path lie in a cone, and write it if there is an output.

    generators: a matrix by path, or a saved model, whose components it are; **settings: of `in_cone`. Returns how many
    rows lie in the cone, and how many rows there are.
    Raises DCAError: unusable paths, data or settings.
    """
    if output is not None:
        check_result(output, overwrite=overwrite)
        check_apart(output, data, generators)
    rays, names, model = _rays(generators)
    given, cube = opened(data, array, features, model)
    refuse_other_names(names, given.names, data, generators, in_order(data, names_at(generators)))
    with connected(where or Where()):
        found = in_cone(given.matrix, rays, **settings)
        found = np.asarray(found.compute() if hasattr(found, "compute") else found)
    if output is not None:
        about = {"what": "in_cone", "names": ["in_cone"]}
        deliver(found[:, None], output, None, about, cube, overwrite=overwrite, progress=progress)
    return int(found.sum()), len(found)


def _rays(path: str) -> tuple[NDArray[Any], Any, Any]:
    """The rows of a matrix, or the components of a saved model; what their columns are called; the model."""
    try:
        given = open_data(path)
    except InvalidInputError:
        head = Path(local_path(path)) / "zarr.json"
        if not is_url(path) and not (head.is_file() and f'"{RECORD}"' in head.read_text(errors="replace")):
            raise
    else:
        return np.asarray(given.matrix), given.names, None
    model = load_model(path)
    rays = np.asarray(model.components_ if hasattr(model, "components_") else model.anchors_)
    return rays, getattr(model, "feature_names_in_", None), model


def name_rows(
    data: str,
    library: str,
    k: int | str,
    where: Where | None = None,
    *,
    array: str | None = None,
    random_state: int = 0,
) -> dict[str, Any]:
    """Name the rows of a library that the rows of data at a path are mixtures of.

    library: path of the matrix; the first column of a table may hold names. Returns plain values: the anchors with
    their row numbers, names, votes and whom they could stand for; the certificate.
    Raises DCAError: unusable paths, data or parameters.
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


def table_of_library(facts: dict[str, Any]) -> str:
    """Set out in words what `name_rows` returns: a line an anchor, and the certificate."""
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
