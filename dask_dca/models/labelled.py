"""Names of features in a model's input, and named dimensions and columns of its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dask_dca.engine.cubes import Cube, FrameIndex, Labels, as_cube, column_names, distinct_names, labels_of
from dask_dca.engine.rows import Rows
from dask_dca.engine.stores import is_a
from dask_dca.errors import DCAError, InvalidInputError
from dask_dca.models.fitted import dims_of

Dims = tuple[str, ...]

_STREAM_PREFIXES: Final = ("first_", "later_", "stream_")  # of attributes with the state of `partial_fit` and `merge`


def keep_features(model: Any, rows: Rows) -> None:
    """Store the dimension of the features and, if they are numbers, their coordinates in fitted attributes.

    `feature_dim_in_` and `feature_values_in_` are set, or deleted if the data don't have them.
    """
    for name in ("feature_dim_in_", "feature_values_in_"):
        vars(model).pop(name, None)
    if not isinstance(rows.labels, Labels):
        return
    model.feature_dim_in_ = rows.labels.feature_name
    values = rows.labels.feature_values
    if values is not None and values.dtype.kind in "iuf":
        model.feature_values_in_ = values.copy()


def cube_of(model: Any, X: Any) -> Any:
    """Convert labelled data to a cube if the model knows the dimension of its features; return other data unchanged."""
    return as_cube(X, getattr(model, "feature_dim_in_", None), getattr(model, "time_dim_in_", None))


def or_groups(model: Any, given: Any) -> str:
    """Advice to pass the one column that the fit did not have as ids of sequences; empty for models without these."""
    others = [name for name in given if name not in model.feature_names_in_]
    ids = len(others) == 1 and hasattr(model, "n_sequences_")
    return f"; or pass groups={others[0]!r}, if it holds the ids of sequences" if ids else ""


def _choice_of_features(labels: Labels | None) -> str:
    """Line that selects the features of the fit."""
    if labels is not None:
        return f"X.sel({labels.feature_name}=model.feature_names_in_), the labelled data themselves"
    return "X[model.feature_names_in_] of a table, X[:, model.feature_names_in_] of an AnnData"


def check_features(model: Any, rows: Rows) -> None:
    """Check that the features of data are those of the fit.

    Raises InvalidInputError: dimensions are transposed, or features differ in number, names or coordinates.
    """
    dim, labels = getattr(model, "feature_dim_in_", None), rows.labels if isinstance(rows.labels, Labels) else None
    if labels is not None and labels.rows == (dim,) and labels.feature_name != dim:
        msg = (
            f"the features of the fit are along {dim!r}, which are the rows of these data; "
            f"pass X.transpose({labels.feature_name!r}, {dim!r})"
        )
        raise InvalidInputError(msg)
    own = [] if dim is None else dim.split(",")
    if labels is not None and labels.feature_name != dim and sorted(map(str, labels.features)) == sorted(own):
        msg = f"the features of the fit are along {dim}, in this order; pass X itself, which the model puts in order"
        raise InvalidInputError(msg)
    names, given = getattr(model, "feature_names_in_", None), rows.feature_names
    if rows.n_features != model.n_features_in_:
        msg = (
            f"X has {rows.n_features} features, but {type(model).__name__} is expecting "
            f"{model.n_features_in_} features as input"
        )
        if names is not None and given is not None and set(names) <= set(given):
            msg += f"; select them: {_choice_of_features(labels)}{or_groups(model, given)}"
        raise InvalidInputError(msg)
    if names is not None and given is not None and (at := np.flatnonzero(names != given)).size:
        msg = (
            f"the feature names should match those of the fit: feature {at[0]} is {given[at[0]]!r} and was "
            f"{names[at[0]]!r}; select them in the same order: {_choice_of_features(labels)}"
        )
        raise InvalidInputError(msg)
    values, found = getattr(model, "feature_values_in_", None), None if labels is None else labels.feature_values
    if values is not None and found is not None and found.dtype.kind in "iuf" and not np.allclose(values, found):
        msg = (
            f"the coordinates along {dim!r} are not those of the fit; X.interp({dim}=model.feature_values_in_) has them"
        )
        raise InvalidInputError(msg)


class NamedParts(TransformerMixin):
    """Mix-in of models of non-negative data whose `transform` has a named column for each part."""

    _part: ClassVar[str]
    n_components_: int

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """
        Name the columns of what `transform` returns.

        Parameters
        ----------
        input_features : array-like of str, optional
            Ignored, as the columns are not those of the data.

        Returns
        -------
        ndarray of str, shape (k,)
            "component_0" (for topics "topic_0"), and so on, as in tables of results and of `dask dca transform`.
        """
        check_is_fitted(self)
        return np.array(column_names(self._part, self.n_components_), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _for_output(self, rows: Rows) -> Rows:
        """Prepare rows for the output that `set_output` asks for, if they have labels to make an index from."""
        chosen = vars(self).get("_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
        if rows.labels is None or chosen == "default":
            return rows
        return replace(rows, labels=FrameIndex(rows.labels.frame_index() if chosen == "pandas" else None, ()))


def part_dim(model: Any, X: Any) -> str:
    """Name of the dimension of coefficients: "other_component", for example, if rows have the parts' name."""
    sizes = dict(zip(getattr(X, "dims", ()), getattr(X, "shape", ()), strict=False))
    found = [str(name) for name, size in sizes.items() if size == model.n_components_]
    return next((name for name in reversed(found) if name.replace("other_", "") == model._part), model._part)


def feature_labels(model: Any) -> tuple[str, Any]:
    """Return the name of the features' dimension, and their names or coordinates (p,), if there were any."""
    dims = feature_dims(model)
    return ",".join(dims), getattr(model, "feature_names_in_", getattr(model, "feature_values_in_", None))


def feature_dims(model: Any) -> tuple[str, ...]:
    """Names of the features' dimensions in the data of the fit, made distinct from the parts' name."""
    own = getattr(model, "feature_dim_in_", model._feature)
    named = own.split(",")
    if all(name.isdecimal() for name in named):  # an array without names of dimensions
        named = [model._feature]
    return tuple(distinct_names(named, [model._part]))


def as_dataset(model: Any, X: Any = None) -> Any:
    """Convert all fitted arrays to an xarray.Dataset with named dimensions.

    X: the data of the fit, for the coordinates of the anchors' rows, and those beside the features' own; whether it is
    the same is not checked. Variables have the names of attributes without the underscore at the end; single numbers
    are attributes. Names that coincide with those of the data's features become "other_...".
    Raises DCAError: xarray is not installed, or X can't be the data of the fit.
    """
    try:
        import xarray as xr
    except ImportError as error:
        msg = 'named dimensions need xarray, which is not installed: pip install "dask-dca[xarray]"'
        raise DCAError(msg) from error
    labels = None if X is None else _labels_of_data(model, X)
    found = sorted(vars(model).items())
    fitted = {key: value for key, value in found if key[-1] == "_" != key[0] and not key.startswith(_STREAM_PREFIXES)}
    shapes = {key: _dimensions(model, key, value) for key, value in fitted.items() if np.ndim(value)}
    arrays = {key: kinds for key, kinds in shapes.items() if kinds is not None}
    named = _named_dimensions(model, arrays)
    dims = [tuple(named[kind][kind in kinds[:i]] for i, kind in enumerate(kinds)) for kinds in arrays.values()]
    taken = [*feature_dims(model), *(name for own in dims for name in own)]
    coordinates = _coordinates(model, labels, taken)
    names = distinct_names([key[:-1] for key in arrays], [*coordinates, *taken])
    variables = {name: (own, np.asarray(fitted[key])) for name, own, key in zip(names, dims, arrays, strict=True)}
    numbers = {
        key[:-1]: np.asarray(value).item() for key, value in fitted.items() if np.ndim(value) == 0 and _is_number(value)
    }
    found = xr.Dataset(variables, coordinates, {"model": type(model).__name__, **numbers})
    beside = [(name, one.variable) for name, one in getattr(X, "coords", {}).items() if one.dims == feature_dims(model)]
    found = found.assign_coords({name: one for name, one in beside if name not in found.variables})
    return found if labels is None or len(labels.features) < 2 else _unstacked(found, model, labels)


def _coordinates(model: Any, labels: Labels | None, taken: list[str]) -> dict[str, Any]:
    """Coordinates of features and of parts: the parts' labels, and the coordinates of their anchors' rows."""
    feature, values = feature_labels(model)
    found: dict[str, Any] = {name: own for name, own in model._part_labels().items() if name != "anchor"}
    found |= {} if labels is None else _labels_of_anchors(model, labels)
    of_parts = {
        name: (model._part, own) for name, own in zip(distinct_names(list(found), taken), found.values(), strict=True)
    }
    return of_parts if values is None else {feature: (feature, values), **of_parts}


def _named_dimensions(model: Any, shapes: Mapping[str, Dims]) -> dict[str, tuple[str, str]]:
    """Names of each kind of dimension, for its first and for a second occurrence in one array."""
    part, own = model._part, feature_dims(model)
    kinds = sorted({kind for kinds in shapes.values() for kind in kinds} - {"parts", "features"})
    wanted = [f"next_{part}" if kind == "next" else kind for kind in kinds]
    known = distinct_names([part, ",".join(own), *wanted], own if len(own) > 1 else ())
    again = distinct_names(known, [*known, *own])
    return dict(zip(["parts", "features", *kinds], zip(known, again, strict=True), strict=True))


def _labels_of_data(model: Any, X: Any) -> Labels:
    X = cube_of(model, X)
    if isinstance(X, Cube):
        return X.labels
    if is_a(X, "xarray", "DataArray"):
        return labels_of(X)
    msg = f"the coordinates of rows are those of an xarray.DataArray; received {type(X).__name__}: leave X out"
    raise InvalidInputError(msg)


def _unstacked(found: Any, model: Any, labels: Labels) -> Any:
    """Unstack features that are along several dimensions; in matrices of features, the first dimension only."""
    import pandas as pd
    import xarray as xr

    sides = [
        np.arange(size) if own is None else own
        for own, size in zip(labels.of_features, labels.feature_sizes, strict=True)
    ]
    dims = feature_dims(model)
    index, feature = pd.MultiIndex.from_product(sides, names=dims), ",".join(dims)
    return found.assign_coords(xr.Coordinates.from_pandas_multiindex(index, feature)).unstack(feature)


def _dimensions(model: Any, name: str, value: Any) -> tuple[str, ...] | None:
    """Dimensions of a fitted array; None for other attributes."""
    declared = model._fitted.get(name)
    if declared is None or not isinstance(value, np.ndarray) or name.startswith("feature_"):
        return None
    return dims_of(declared, model._form, value.ndim)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.generic | np.ndarray) and np.asarray(value).dtype.kind in "iuf"


def _labels_of_anchors(model: Any, labels: Labels) -> dict[str, Any]:
    """Coordinates of the anchors' rows; missing for anchors that are not rows."""
    rows, n = getattr(model, "anchor_indices_", None), int(np.prod(labels.sizes))
    if rows is None or rows.max(initial=-1) >= n:
        what = "features" if rows is None else f"rows up to {rows.max()}, and X has {n}"
        msg = f"the anchors of this model are {what}: leave X out, or pass the data of the fit"
        raise InvalidInputError(msg)
    found = labels.of_rows.to_dataset()
    stacked = [name for name in labels.rows if name in found.indexes and found.indexes[name].nlevels > 1]
    found = found.reset_index(stacked).drop_vars(stacked, errors="ignore")  # whose levels are coordinates of their own
    known = np.where(rows >= 0, rows, 0)
    places = {name: ("anchor", at) for name, at in zip(labels.rows, np.unravel_index(known, labels.sizes), strict=True)}
    names = [name for name, one in found.coords.items() if one.dims and set(one.dims) <= set(labels.rows)]
    taken = {name: found[name].isel({dim: places[dim] for dim in found[name].dims}) for name in names}
    whole = known == rows
    return {f"anchor_{name}": (part if whole.all() else part.where(whole)).values for name, part in taken.items()}
