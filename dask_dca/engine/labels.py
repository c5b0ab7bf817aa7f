"""Named dimensions: what an xarray.DataArray says of its rows and features, and results that keep it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dask_dca.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Labels", "distinct", "labelled", "labels_of"]


@dataclass(frozen=True)
class Labels:
    """Names of the dimensions of a matrix, and the coordinates along them."""

    rows: Any  # dimension of the rows
    features: Any
    of_rows: Any  # xarray.Coordinates along the rows, and those without a dimension
    of_features: NDArray[Any] | None  # values of the features' own coordinate
    parts: str = "component"  # dimension that the results of a model have beside the rows
    of_parts: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def labels_of(X: Any) -> Labels:
    """Take the names and coordinates of a labelled matrix.

    Returns its labels; the data are not touched.
    Raises InvalidInputError: not two dimensions, or the features are a stack of dimensions: then the rows are the other
    way.
    """
    if X.ndim != 2:
        msg = f"Expected 2D array, got dims {X.dims} of shape {X.shape} instead. {_shape_hint(X)}"
        raise InvalidInputError(msg)
    rows, features = X.dims
    if _is_stacked(X, features) and not _is_stacked(X, rows):
        msg = (
            f"the rows of dims {X.dims} are {rows!r}, and {features!r} is a stack of dimensions, which features are "
            f"not; pass X.transpose({features!r}, {rows!r})"
        )
        raise InvalidInputError(msg)
    whole = X.coords.to_dataset()
    values = X.coords[features].values if features in X.coords else None
    return Labels(rows, features, whole.drop_dims(features, errors="ignore").coords, values)


def _is_stacked(X: Any, dimension: Any) -> bool:
    return dimension in X.indexes and X.indexes[dimension].nlevels > 1


def _shape_hint(X: Any) -> str:
    if X.ndim < 2:
        return "Reshape your data: X.expand_dims('feature', axis=-1) for one feature"
    first, last = X.dims[:-1], X.dims[-1]
    names = ", ".join(map(repr, first))
    return f"Stack every dimension but that of the features: X.stack(row=({names})).transpose('row', {last!r})"


def distinct(names: Sequence[Any], taken: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Make the names of dimensions differ: a name that is taken becomes "other_" and the name.

    names: names, some perhaps the same; taken: names that are not free.
    """
    found: list[Any] = []
    for name in names:
        while name in found or name in taken:
            name = f"other_{name}"
        found.append(name)
    return tuple(found)


def labelled(labels: Labels | None, values: Any, *kinds: str) -> Any:
    """Give a result of one number, or one vector or matrix, a row the dimension and coordinates of the rows.

    labels: of the data that the result is of; None leaves the result as it is; values (n, ...): the result; *kinds:
    what its further dimensions are. Returns the same values; lazy as they were.
    """
    if labels is None:
        return values
    import xarray as xr

    names = [labels.parts if kind == "parts" else labels.features for kind in kinds]
    further = distinct(names, [labels.rows, *labels.of_rows])
    found = xr.DataArray(values, dims=(labels.rows, *further), coords=labels.of_rows).rename(None)
    if "features" in kinds and labels.of_features is not None:
        name = further[kinds.index("features")]
        found = found.assign_coords({name: (name, labels.of_features)})
    if "parts" in kinds:
        name = further[kinds.index("parts")]
        free = {key: (name, part) for key, part in labels.of_parts.items() if key not in found.coords}
        found = found.assign_coords(free)
    return found
