"""What the commands `dask dca find-anchors` and `dask dca in-cone` do."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.anchoring.anchors import find_anchors
from dask_dca.anchoring.in_cone import in_cone
from dask_dca.cli.clusters import Where, connected
from dask_dca.cli.jobs import deliver, opened
from dask_dca.cli.results import check_result
from dask_dca.engine.advice import refuse_other_names
from dask_dca.engine.cubes import column_names
from dask_dca.errors import InvalidInputError, naming_columns
from dask_dca.inputs import in_order, names_at, open_data
from dask_dca.output import check_apart, is_url, local_path
from dask_dca.store import load_model

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    anchors = [
        {"row": int(row), "votes": int(votes), "vote_share": float(share), "bounds": [float(low), float(high)]}
        for row, votes, share, (low, high) in zip(
            found.indices, found.votes, found.vote_share, found.confidence, strict=True
        )
    ]
    return {"anchors": anchors, "n_subproblems": found.n_subproblems, "coverage": float(found.coverage)}


def table(facts: dict[str, Any]) -> str:
    """Set out in words what `find` returns: a line an anchor, and the certificate."""
    lines = [f"{'anchor':>6} {'row':>10} {'votes':>7} {'share':>7}   95 % bounds"]
    for i, anchor in enumerate(facts["anchors"]):
        low, high = anchor["bounds"]
        numbers = f"{anchor['row']:>10} {anchor['votes']:>7} {anchor['vote_share']:>7.3f}"
        lines.append(f"{i:>6} {numbers}   {low:.3f} to {high:.3f}")
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
    model = None
    if is_url(path) or (Path(local_path(path)) / "zarr.json").exists():
        with suppress(InvalidInputError):
            model = load_model(path)
    if model is None:
        given = open_data(path)
        return np.asarray(given.matrix), given.names, None
    rays = np.asarray(model.components_ if hasattr(model, "components_") else model.anchors_)
    return rays, getattr(model, "feature_names_in_", None), model
