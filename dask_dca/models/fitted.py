"""Declarations of fitted attributes, with dimensions, range and rule, and checks of loaded models against them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.errors import ModelFileError

Dims = tuple[str, ...]

SUM_TOL: Final = 1e-6  # tolerance of sums of probabilities
_MIN_SIZE: Final = 1e-150  # minimum of the greatest entry of rows, whose squares must not underflow
_MAX_FLOAT: Final = 1e100  # maximum of floats, so that sums of their squares don't overflow
_MAX_INTEGER: Final = 2**62  # maximum of integers
_FIXED_SIZES: Final = {"bound": 2, "axis": 2, "count_and_bic": 2, "range": 2}  # dimensions that always have one size
_KINDS: Final = {
    "f": "a number of type float",
    "iu": "a number of type int",
    "b": "true or false",
    "fiu": "a number",
    "O": "names",
    "U": "text",
}


def distribution(values: NDArray[Any], dims: Dims) -> str:
    """Check that the last axis sums to one; like all rules, return what is wrong, or an empty text."""
    good = np.abs(values.sum(axis=-1) - 1.0).max(initial=0.0) <= SUM_TOL
    return "" if good else "does not sum to one"


def definite(values: NDArray[Any], dims: Dims) -> str:
    """Check that variances are positive; matrices, whose last two dimensions are the same, positive definite."""
    if not _square(dims):
        return "" if (values > 0.0).all() else "is not positive"
    if not np.allclose(values, values.swapaxes(-1, -2)):
        return "is not symmetric"
    try:
        np.linalg.cholesky(values)
    except np.linalg.LinAlgError:
        return "is not positive definite"
    return ""


def not_too_small(values: NDArray[Any], dims: Dims) -> str:
    """Check that the greatest entry is zero, or large enough to be squared."""
    greatest = float(np.abs(values).max(initial=0.0))
    return "is too small to be squared" if 0.0 < greatest < _MIN_SIZE else ""


def positive_sum(values: NDArray[Any], dims: Dims) -> str:
    """Check that amounts are not all zero."""
    return "" if float(values.sum()) > 1e-100 else "is zero throughout"


def semidefinite(values: NDArray[Any], dims: Dims) -> str:
    """Check that variances are not negative; a matrix, whose dimensions are the same, positive semidefinite."""
    slack = 1e-8 * float(np.abs(values).max(initial=0.0))
    if not _square(dims):
        return "" if values.min(initial=0.0) >= -slack else "is negative"
    if np.abs(values - values.T).max(initial=0.0) > slack:
        return "is not symmetric"
    return "" if np.linalg.eigvalsh(values).min(initial=0.0) >= -slack else "is not positive semidefinite"


def factor(values: NDArray[Any], dims: Dims) -> str:
    """Check that inverse standard deviations, or the diagonals of triangular factors, are positive."""
    found = np.diagonal(values, axis1=-2, axis2=-1) if _square(dims) else values
    return "" if (found > 0.0).all() else "has a diagonal that is not positive" if _square(dims) else "is not positive"


def _square(dims: Dims) -> bool:
    return len(dims) > 1 and dims[-1] == dims[-2]


@dataclass(frozen=True)
class Attribute:
    """Declaration of a fitted attribute."""

    # dimensions; an entry for each form of covariances, or number of dimensions, if they depend on it
    dims: Dims | Mapping[str | int, Dims] = ()
    kinds: str = "f"  # possible kinds of its dtype
    minimum: float = -_MAX_FLOAT  # of its values
    maximum: float | str = _MAX_FLOAT  # of its values; a name: less than the size of this dimension
    undefined: bool = False  # whether NaN is allowed, for "not known"
    rule: Callable[[NDArray[Any], Dims], str] | None = None  # returns what is wrong, or an empty text
    filled: bool = False  # whether it must have at least one entry
    group: str = ""  # a model has all attributes of a group or none; those without a group it must have


def floats(*dims: str, **more: Any) -> Attribute:
    """Declare an attribute of real numbers."""
    return Attribute(dims, "f", **more)


def integers(*dims: str, minimum: int = 0, **more: Any) -> Attribute:
    """Declare an attribute of integers."""
    return Attribute(dims, "iu", minimum, **({"maximum": float(_MAX_INTEGER)} | more))


def grouped(group: str, declared: dict[str, Attribute]) -> dict[str, Attribute]:
    """Put attributes into a group, of which a model has all or none."""
    return {name: replace(attribute, group=group) for name, attribute in declared.items()}


def as_any_array(value: Any) -> NDArray[Any]:
    """Convert any value of a file to an array, of objects if it is not made of plain numbers."""
    if isinstance(value, list | tuple) and not all(type(part) is int for part in value):
        return np.empty(len(value), dtype=object)
    if type(value) is int:
        return np.asarray(float(value) if abs(value) > _MAX_INTEGER else value)
    return np.asarray(value)


def dims_of(attribute: Attribute, form: str, ndim: int) -> Dims | None:
    """Return the dimensions of an attribute with `ndim` of them; None if it can't have that many.

    form: form of the model's covariances.
    """
    if isinstance(attribute.dims, tuple):
        return attribute.dims
    return attribute.dims.get(form, attribute.dims.get(ndim))


def check_names(declared: Mapping[str, Attribute], names: set[str]) -> None:
    """Check that a model has the attributes that it needs, and no others.

    Raises ModelFileError: one is missing or unknown.
    """
    for name in sorted(names - declared.keys()):
        msg = f"{name[:40]!r} is not a fitted attribute of the model"
        raise ModelFileError(msg)
    groups = {declared[name].group for name in names} | {""}
    for name, attribute in declared.items():
        if name not in names and attribute.group in groups:
            msg = f"the model has no {name!r}"
            raise ModelFileError(msg)


def check_shapes(
    declared: Mapping[str, Attribute],
    form: str,
    sizes: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    """Check that the shapes of arrays are those declared, and that each dimension has one size.

    form: form of the model's covariances; sizes: sizes of dimensions that other attributes give.
    Raises ModelFileError: a shape is wrong.
    """
    known = dict(_FIXED_SIZES) | dict(sizes)
    for name, shape in shapes.items():
        dims = dims_of(declared[name], form, len(shape))
        wanted = None if dims is None else tuple(known.get(dim, size) for dim, size in zip(dims, shape, strict=False))
        if dims is None or len(dims) != len(shape) or wanted != shape or (declared[name].filled and 0 in shape):
            needed = "another one" if dims is None else tuple(known.get(dim, dim) for dim in dims)
            msg = f"{name!r} of the model has shape {shape} where {needed} is needed"
            raise ModelFileError(msg)
        known |= dict(zip(dims, shape, strict=True))


def check_values(
    declared: Mapping[str, Attribute], form: str, sizes: Mapping[str, int], values: Mapping[str, Any]
) -> None:
    """Check kind, range and rule of attributes, whose shapes are checked already.

    form: form of the model's covariances; sizes: sizes of dimensions; values: attributes by name.
    Raises ModelFileError: a value is of another kind, out of range, or breaks a rule.
    """
    for name, value in values.items():
        attribute, array = declared[name], as_any_array(value)
        wrong = _wrong_kind(attribute, value, array)
        if not wrong and array.dtype.kind in "fiu":
            dims = dims_of(attribute, form, array.ndim) or ()
            wrong = _out_of_range(attribute, array, sizes) or (attribute.rule(array, dims) if attribute.rule else "")
        if wrong:
            msg = f"{name!r} of the model {wrong}"
            raise ModelFileError(msg)


def _wrong_kind(attribute: Attribute, value: Any, array: NDArray[Any]) -> str:
    kinds, needed = attribute.kinds, _KINDS[attribute.kinds]
    if attribute.dims == ("range",):
        good = type(value) is tuple and all(type(part) is int for part in value)
    elif array.ndim:
        good = isinstance(value, np.ndarray) and array.dtype.kind in kinds
        good = good and (kinds != "O" or all(isinstance(part, str) for part in value))
    elif kinds == "f":
        good = isinstance(value, float | np.floating | np.ndarray) and array.dtype.kind == "f"
    else:
        good = type(value) in {"iu": (int, np.int64), "b": (bool, np.bool_), "U": (str,)}.get(kinds, ())
    return "" if good else f"is {str(value)[:40]!r} where {needed} is needed"


def _out_of_range(attribute: Attribute, array: NDArray[Any], sizes: Mapping[str, int]) -> str:
    if array.dtype.kind == "f":
        unknown = np.isnan(array) & attribute.undefined
        infinite = np.isposinf(array) & (attribute.maximum == np.inf) | np.isneginf(array) & (
            attribute.minimum == -np.inf
        )
        if not (np.isfinite(array) | unknown | infinite).all():
            return "holds NaN or infinity"
        array = array[np.isfinite(array)]
    most = attribute.maximum
    greatest = sizes[most] - 1 if isinstance(most, str) else most
    if array.size and (float(array.min()) < attribute.minimum or float(array.max()) > greatest):
        return f"holds {array.min()} to {array.max()} where {attribute.minimum:g} to {greatest:g} are allowed"
    return ""
