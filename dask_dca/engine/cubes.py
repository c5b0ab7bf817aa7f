"""Labels of rows and features, and cubes of xarray; results keep dimensions, coordinates, or a table's index."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from numpy.typing import NDArray

from dask_dca.engine.stores import is_a
from dask_dca.errors import InvalidInputError, InvalidParameterError

_PLACES: Final = frozenset({"x", "y", "z", "lat", "lon", "latitude", "longitude", "time"})  # dimensions of rows, mostly


@dataclass(frozen=True)
class Labels:
    """Dimensions and coordinates of the rows and features of a matrix; either may have several dimensions."""

    rows: tuple[Any, ...]  # dimensions of the rows
    sizes: tuple[int, ...]  # sizes of these
    features: tuple[Any, ...]
    feature_sizes: tuple[int, ...]
    of_rows: Any  # xarray.Coordinates along the rows, and those without a dimension
    of_features: tuple[NDArray[Any] | None, ...]  # values of the coordinate of each of these dimensions
    parts: str = "component"  # name of the further dimension of a model's results
    of_parts: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def feature_name(self) -> str:
        """Names of the feature dimensions, joined by commas."""
        return ",".join(map(str, self.features))

    @property
    def feature_values(self) -> NDArray[Any] | None:
        """Names or coordinates of the features, if these have one dimension."""
        return self.of_features[0] if len(self.features) == 1 else None

    def with_features(self, name: str, values: Any, size: int) -> Labels:
        """Return labels with other features; values: their names or coordinates, if any."""
        return replace(self, features=(name,), feature_sizes=(size,), of_features=(values,))

    def frame_index(self) -> Any:
        """Index of a table of the same rows, with one level for each dimension of the rows."""
        import pandas as pd

        known = self.of_rows.to_dataset().indexes
        sides = [
            known[name] if name in known else pd.RangeIndex(size, name=name)
            for name, size in zip(self.rows, self.sizes, strict=True)
        ]
        return sides[0] if len(sides) == 1 else pd.MultiIndex.from_product(sides, names=self.rows)

    def given_to(self, values: Any, kinds: Sequence[str]) -> Any:
        """Give a result the dimensions and coordinates of the rows."""
        import xarray as xr

        names, sizes = list[Any](), list(self.sizes)
        for kind, size in zip(kinds, values.shape[1:], strict=True):
            names += [self.parts] if kind == "parts" else self.features
            sizes += [size] if kind == "parts" else self.feature_sizes
        further = distinct_names(names, [*self.rows, *self.of_rows])
        found = values if len(sizes) == values.ndim else values.reshape(sizes)
        found = xr.DataArray(found, dims=(*self.rows, *further), coords=self.of_rows).rename(None)
        if "features" in kinds:
            sides = zip(further[-len(self.features) :], self.of_features, strict=True)
            found = found.assign_coords({name: (name, own) for name, own in sides if own is not None})
        if "parts" in kinds:
            name = further[kinds.index("parts")]
            free = {key: (name, part) for key, part in self.of_parts.items() if key not in found.coords}
            found = found.assign_coords(free)
        return found


@dataclass(frozen=True)
class TableIndex:
    """The index of a Dask DataFrame, for results that are lazy too."""

    index: Any
    columns: tuple[Any, ...]
    parts: str = "component"  # what the columns of a result are called, with a number each
    of_parts: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def with_features(self, name: str, values: Any, size: int) -> TableIndex:
        """Return labels with other features; values: their names or coordinates, if any."""
        return replace(self, columns=tuple(column_names(name, size) if values is None else values))

    def frame_index(self) -> Any:
        """Index of a table of the same rows, in memory."""
        return self.index.compute()

    def given_to(self, values: Any, kinds: Sequence[str]) -> Any:
        """Turn a result with one number or vector per row into a Dask Series or DataFrame; others stay arrays."""
        import dask.dataframe as dd

        if len(kinds) > 1:
            return values
        columns = None
        if kinds:
            columns = self.columns if kinds[0] == "features" else column_names(self.parts, values.shape[1])
        return dd.from_dask_array(values, columns=columns, index=self.index)


@dataclass(frozen=True)
class FrameIndex(TableIndex):
    """The index of a pandas DataFrame that a result becomes, without column names; None for a plain array."""

    def given_to(self, values: Any, kinds: Sequence[str]) -> Any:
        """Compute a result with one vector per row."""
        import pandas as pd

        found = values.compute() if hasattr(values, "compute") else values
        return found if self.index is None else pd.DataFrame(found, index=self.index)


def column_names(name: str, size: int) -> list[str]:
    """Make column names, the same in all tables: component_0, component_1, ..."""
    return [f"{name}_{j}" for j in range(size)]


def labels_of(X: Any) -> Labels:
    """Return the labels of a DataArray.

    Raises InvalidInputError: it is not two-dimensional, or its features are stacked dimensions, so that it is probably
    transposed.
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
    of_rows = whole.drop_dims(features, errors="ignore").coords
    return Labels((rows,), X.shape[:1], (features,), X.shape[1:], of_rows, (values,))


def _is_stacked(X: Any, dimension: Any) -> bool:
    return dimension in X.indexes and X.indexes[dimension].nlevels > 1


def _shape_hint(X: Any) -> str:
    if X.ndim < 2:
        return "Reshape your data: X.expand_dims('feature', axis=-1) for one feature, X.expand_dims('row') for one row"
    likely = likely_features(X.dims)
    return f"Say which dimension the features are: pass dask_dca.Cube(X, features={likely!r}); all others are rows"


def likely_features(dims: Sequence[Any]) -> Any:
    """Guess the dimension of the features: the last one that is no place or time."""
    return [*dims[-1:], *(name for name in dims if name not in _PLACES)][-1]


def distinct_names(names: Sequence[Any], taken: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Make names of dimensions distinct: "other_" is prepended to a name that is repeated, or in `taken`."""
    found: list[Any] = []
    for name in names:
        while name in found or name in taken:
            name = f"other_{name}"
        found.append(name)
    return tuple(found)


def labelled(labels: Labels | TableIndex | None, values: Any, *kinds: str) -> Any:
    """Give a result (n, ...) the labels of its rows, if there are any; lazily for Dask arrays.

    *kinds: kind of each further dimension.
    """
    return values if labels is None else labels.given_to(values, kinds)


VARIABLE: Final = "variable"  # name of the dimension of the variables of a Dataset, or of the arrays of a group


class Cube:
    """
    Labelled data of any number of dimensions as a matrix, some dimensions being features and the others rows.

    Parameters
    ----------
    X : xarray.DataArray or xarray.Dataset
        The data, in memory or chunked. The variables of a Dataset are features, along a dimension "variable"
        ("other_variable" if the data have that name already).
    features : str or sequence of str, default "variable"
        The feature dimension, or several: `("lat", "lon")` of a movie, so that each time is a row. All others, in their
        order, are rows.

    Attributes
    ----------
    matrix : numpy.ndarray or dask.array.Array, shape (n, p)
        The rows in C order; nothing is computed.
    labels : Labels
        Dimensions and coordinates.
    lengths : tuple of int or None
        Lengths of sequences for models of these: the last dimension of the rows is time, the others are sequences.

    Raises
    ------
    DCAError
        No labelled data, no such dimension, no dimension left for the rows, or variables with different dimensions.

    See Also
    --------
    dask_dca.find_anchors : Takes cubes, as all models do.

    Notes
    -----
    Models fitted to a cube accept further labelled data directly, `model.transform(X)`, since they know the dimensions
    of their features.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> import dask_dca as dca
    >>> image = xr.DataArray(np.random.default_rng(0).random((8, 20, 30)), dims=("band", "y", "x"))
    >>> pixels = dca.Cube(image, features="band")
    >>> pixels
    <Cube: 600 rows (y, x) x 8 (band)>
    >>> places = np.unravel_index(dca.find_anchors(pixels, 3).indices, pixels.labels.sizes)
    >>> image[:, places[0], places[1]].shape
    (8, 3, 3)
    >>> dca.in_cone(pixels, np.eye(8)).dims
    ('y', 'x')
    """

    def __init__(self, X: Any, features: str | Sequence[str] = VARIABLE) -> None:
        named = tuple(features) if isinstance(features, list | tuple) else (features,)
        variables = variables_of(X)
        X, names = _as_array(X), tuple(variables if name == VARIABLE else name for name in named)
        rest = _row_dimensions(X, names)
        cube = X.transpose(*rest, *names)
        sizes, p = cube.shape[: len(rest)], math.prod(cube.shape[len(rest) :])
        whole = X.coords.to_dataset()
        own = tuple(X.coords[name].values if name in X.coords else None for name in names)
        self.matrix = cube.data.reshape(math.prod(sizes), p)
        self.labels = Labels(
            rest, sizes, names, cube.shape[len(rest) :], whole.drop_dims(names, errors="ignore").coords, own
        )
        self.lengths = None if len(sizes) == 1 else (sizes[-1],) * math.prod(sizes[:-1])

    def __repr__(self) -> str:
        n, p = self.matrix.shape
        return f"<Cube: {n} rows ({', '.join(map(str, self.labels.rows))}) x {p} ({self.labels.feature_name})>"


def variables_of(X: Any) -> str:
    """Name of the dimension along which the variables of a Dataset are stacked; it differs from all others."""
    taken = [*X.dims, *X.coords] if is_a(X, "xarray", "Dataset") else []
    return str(distinct_names([VARIABLE], taken)[0])


def _as_array(X: Any) -> Any:
    if is_a(X, "xarray", "DataArray"):
        return X
    if not is_a(X, "xarray", "Dataset") or not X.data_vars:
        msg = f"a Cube is made of an xarray.DataArray or Dataset; received {_received(X)}"
        raise InvalidInputError(msg)
    strange = [name for name, variable in X.data_vars.items() if variable.dtype.kind not in "biufcO"]
    if strange:
        kind = X[strange[0]].dtype
        msg = f"variables {strange} of X are no numbers: dtype {kind}; leave them out: X.drop_vars({strange})"
        raise InvalidInputError(msg)
    dims = [frozenset(variable.dims) for variable in X.data_vars.values()]
    usual = max(dims, key=lambda one: (dims.count(one), len(one)))
    others = [name for name, one in zip(X.data_vars, dims, strict=True) if one != usual]
    if others:
        first = next(name for name, one in zip(X.data_vars, dims, strict=True) if one == usual)
        msg = (
            f"variables of a Cube must have the same dimensions: {first!r} has {X[first].dims}, {others[0]!r} "
            f"{X[others[0]].dims}; leave out what differs: X.drop_vars({others!r})"
        )
        raise InvalidInputError(msg)
    return X.to_dataarray(variables_of(X))


def _received(X: Any) -> str:
    """Describe an object that is not labelled data, with advice, for a message."""
    if is_a(X, "xarray", "Dataset"):
        return "a Dataset without variables; choose others"
    if is_a(X, "xarray", "DataTree"):
        return "a DataTree; pass one of its Datasets: X['/'].to_dataset()"
    if len(getattr(X, "shape", ())) == 2:
        return f"a {type(X).__name__} of two dimensions; models take it as it is"
    shape = getattr(X, "shape", ("p",))
    return f"a {type(X).__name__}; reshape arrays: X.reshape(-1, {shape[-1] if shape else 'p'})"


def _row_dimensions(X: Any, names: tuple[Any, ...]) -> tuple[Any, ...]:
    strange = [name for i, name in enumerate(names) if name not in X.dims or name in names[:i]]
    rest = tuple(name for name in X.dims if name not in names)
    if strange or not names:
        wrong = strange[0] if strange else ()
        msg = f"features={wrong!r} is no dimension of X, which has {X.dims}, or named twice; name others"
        raise InvalidParameterError(msg)
    if not rest:
        msg = f"all dimensions of X, {X.dims}, are features; leave one for the rows"
        raise InvalidParameterError(msg)
    return rest


def as_cube(X: Any, features: str | None, time: str | None = None) -> Any:
    """Turn labelled data into a cube, if they have the dimensions of a model's features.

    features: names of these, joined by commas, None if not known; time: dimension of the frames of a sequence, which
    becomes the last one of the rows. Returns X itself if it does not have these dimensions, or is a matrix.
    """
    if features is None or not is_a(X, "xarray", "DataArray", "Dataset"):
        return X
    names = tuple(features.split(","))
    if time in X.dims and time not in names:
        others = [name for name in X.dims if name not in (time, *names)]
        X = X.transpose(*others, time, *(name for name in X.dims if name in names))
    if is_a(X, "xarray", "Dataset"):
        return Cube(X, names) if variables_of(X) in names else X
    return Cube(X, names) if (X.ndim != 2 or len(names) > 1) and set(names) < set(X.dims) else X
