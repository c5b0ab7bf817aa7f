"""Cubes of xarray: some dimensions hold the features, all others are the rows of a matrix; results are cubes again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from dask_dca.engine.labels import Labels
from dask_dca.engine.stores import is_a
from dask_dca.errors import InvalidInputError, InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["VARIABLE", "Cube", "as_cube"]

VARIABLE: Final = "variable"  # dimension of the variables of a Dataset, or the arrays of a group


class Cube:
    """
    Labelled data of any number of dimensions as a matrix: which dimensions are features, and which are rows.

    Parameters
    ----------
    X : xarray.DataArray or xarray.Dataset
        The data, in memory or chunked. The variables of a Dataset are features, along a dimension "variable".
    features : str or sequence of str, default "variable"
        The dimension that the features are along, or several: of a movie `("lat", "lon")`, so that each time is a row.
        All others, in their order, are rows.

    Attributes
    ----------
    matrix : numpy.ndarray or dask.array.Array, shape (n, p)
        The rows in C order; nothing is computed.
    labels : Labels
        Dimensions and coordinates.
    lengths : tuple of int or None
        For models of sequences: the last dimension of the rows is time, and the others count sequences.

    Raises
    ------
    DCAError
        No labelled data, no such dimension, no dimension left for the rows, or variables that differ in theirs.

    See Also
    --------
    dask_dca.find_anchors : Takes cubes, as all models do.

    Notes
    -----
    Models of a cube take later ones as they are, `model.transform(X)`, since they know what their features are along.

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
        X = _as_array(X)
        names = tuple(features) if isinstance(features, list | tuple) else (features,)
        rest = _rows_beside(X, names)
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


def _as_array(X: Any) -> Any:
    if is_a(X, "xarray", "DataArray"):
        return X
    if not is_a(X, "xarray", "Dataset") or not X.data_vars:
        what = "a Dataset without variables" if is_a(X, "xarray", "Dataset") else f"a {type(X).__name__}"
        msg = f"a Cube is made of an xarray.DataArray or Dataset; received {what}; reshape arrays: X.reshape(-1, p)"
        raise InvalidInputError(msg)
    first = next(iter(X.data_vars))
    for name, variable in X.data_vars.items():
        if set(variable.dims) != set(X[first].dims):
            msg = (
                f"variables of a Cube must have the same dimensions: {first!r} has {X[first].dims}, {name!r} "
                f"{variable.dims}; choose some: X[[{first!r}, ...]]"
            )
            raise InvalidInputError(msg)
    return X.to_dataarray(VARIABLE)


def _rows_beside(X: Any, names: tuple[Any, ...]) -> tuple[Any, ...]:
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
    """Take labelled data for a cube if their dimensions tell.

    features: what features are along; None if that is not known; time: what frames of a sequence are along, the last
    dimension of the rows, whatever their order is here. Returns X itself where they don't, or X is a matrix.
    """
    if features is None or not is_a(X, "xarray", "DataArray", "Dataset"):
        return X
    names = tuple(features.split(","))
    if time in X.dims and time not in names:
        others = [name for name in X.dims if name not in (time, *names)]
        X = X.transpose(*others, time, *(name for name in X.dims if name in names))
    if is_a(X, "xarray", "Dataset"):
        return Cube(X, names) if VARIABLE in names else X
    return Cube(X, names) if (X.ndim != 2 or len(names) > 1) and set(names) < set(X.dims) else X
