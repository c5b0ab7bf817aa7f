"""The work of the commands `dask dca find-anchors`, `dask dca in-cone` and `dask dca fit library`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.anchoring.anchors import find_anchors
from dask_dca.anchoring.in_cone import in_cone
from dask_dca.anchoring.parameters import AnchorResult
from dask_dca.cli.clusters import Cluster, connected
from dask_dca.cli.jobs import deliver, open_input
from dask_dca.cli.results import check_result
from dask_dca.engine.advice import refuse_other_names
from dask_dca.engine.cubes import column_names
from dask_dca.errors import InvalidInputError, naming_columns
from dask_dca.inputs import names_code, open_data, read_named_rows, reorder_code
from dask_dca.models.describe import RECORD, vote_facts, vote_table
from dask_dca.output import check_no_overlap, is_url, local_path
from dask_dca.store import load_model

_MAX_LISTED_NAMES: Final = 5  # maximum number of equivalent library rows that are listed by name


def find(
    data: str,
    cluster: Cluster | None = None,
    *,
    k: int | str = "auto",
    output: str | None = None,
    array: str | None = None,
    features: str | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Find anchors of data at a path, and write their rows if there is an output.

    k: number of anchors; **settings: of `find_anchors`. Returns the anchors, their votes and the certificate as JSON
    types.
    Raises DCAError: unusable paths, data or settings.
    """
    if output is not None:
        check_result(output, overwrite=overwrite)
        check_no_overlap(output, data)
    given, _ = open_input(data, array, features)
    with connected(cluster), naming_columns(given.names):
        found = find_anchors(given.matrix, k, **settings)
    if output is not None:
        names = given.names or column_names("feature", found.rows.shape[1])
        about = {"what": "anchors", "rows": found.indices.tolist(), "names": names}
        deliver(np.asarray(found.rows), output, None, about, part="feature", overwrite=overwrite)
    anchors = vote_facts(found.indices, found.votes, found.vote_share, found.confidence)
    return {"anchors": anchors, "n_subproblems": found.n_subproblems, "coverage": float(found.coverage)}


def table_of_anchors(facts: dict[str, Any]) -> str:
    """Format the result of `find` as text: a line per anchor, and the certificate."""
    lines = vote_table(facts["anchors"])
    if np.isfinite(facts["coverage"]):
        lines.append(f"Coverage {facts['coverage']:.3f} on planes that took no part in choosing them.")
    return "\n".join(lines)


def inside(
    data: str,
    generators: str,
    cluster: Cluster | None = None,
    *,
    output: str | None = None,
    array: str | None = None,
    features: str | None = None,
    overwrite: bool = False,
    progress: bool = False,
    **settings: Any,
) -> tuple[int, int]:
    """Find the rows of data at a path that lie in a cone, and write the result if there is an output.

    generators: path of a matrix, or of a saved model whose components are used; **settings: of `in_cone`. Returns the
    number of rows in the cone, and the number of all rows.
    Raises DCAError: unusable paths, data or settings.
    """
    if output is not None:
        check_result(output, overwrite=overwrite)
        check_no_overlap(output, data, generators)
    rays, names, model = _open_generators(generators)
    given, cube = open_input(data, array, features, model)
    refuse_other_names(names, given.names, data, generators, reorder_code(data, names_code(generators)))
    with connected(cluster):
        found = in_cone(given.matrix, rays, **settings)
        found = np.asarray(found.compute() if hasattr(found, "compute") else found)
    if output is not None:
        about = {"what": "in_cone", "names": ["in_cone"]}
        deliver(found[:, None], output, None, about, cube, overwrite=overwrite, progress=progress)
    return int(found.sum()), len(found)


def _open_generators(path: str) -> tuple[NDArray[Any], Any, Any]:
    """Open generators: the rows of a matrix, or the components of a model; with column names, and the model or None."""
    try:
        given = open_data(path)
    except InvalidInputError:
        head = Path(local_path(path)) / "zarr.json"
        if not is_url(path) and not (head.is_file() and f'"{RECORD}"' in head.read_text(errors="replace")):
            raise
    else:
        return np.asarray(given.matrix), given.names, None
    model = load_model(path)
    rays = getattr(model, "components_", getattr(model, "anchors_", None))
    if rays is None:
        msg = f"the {type(model).__name__} at {path!r} has no components; pass a matrix, or a model that has"
        raise InvalidInputError(msg)
    return np.asarray(rays), getattr(model, "feature_names_in_", None), model


def name_rows(
    data: str,
    library: str,
    k: int | str,
    cluster: Cluster | None = None,
    *,
    array: str | None = None,
    random_state: int = 0,
) -> dict[str, Any]:
    """Find the rows of a library that the rows of data at a path are mixtures of.

    library: path of the matrix; the first column of a table may hold names. Returns JSON types: the anchors with row
    numbers, names, votes and equivalent rows; and the certificate.
    Raises DCAError: unusable paths, data or parameters.
    """
    given = open_data(data, array)
    known, names = read_named_rows(library)
    line = reorder_code(data, names_code(library, skip=int(names is not None)))
    refuse_other_names(known.names, given.names, data, library, line)
    with connected(cluster):
        found = find_anchors(given.matrix, k, Y=known.matrix, random_state=random_state)
    return _library_facts(found, names)


def _library_facts(found: AnchorResult, names: list[str] | None) -> dict[str, Any]:
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
    """Format the result of `name_rows` as text: a line per anchor, and the certificate."""
    width = max(len(anchor["name"]) for anchor in facts["anchors"])
    lines = [f"DATA's rows are mixtures of {len(facts['anchors'])} rows of the library:"]
    for anchor in facts["anchors"]:
        others = [other["name"] for other in anchor["alike"]]
        more = f" and {len(others) - _MAX_LISTED_NAMES} more" if len(others) > _MAX_LISTED_NAMES else ""
        alike = f"  or equally: {', '.join(others[:_MAX_LISTED_NAMES])}{more}" if others else ""
        lines.append(f"{anchor['row']:>8}  {anchor['name']:<{width}}{alike}".rstrip())
    if facts["offset"]:
        lines.append("A constant offset is mixed in as well.")
    return "\n".join(
        [*lines, f"Coverage {facts['coverage']:.3f}; unexplained {facts['unexplained']:.2%} of the spread."]
    )
