"""What a fitted model holds: one declaration per attribute, with its dimensions, range and rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Dims = tuple[str, ...]

_ROUNDING: Final = 1e-6
_LEAST: Final = 1e-150
_LARGEST: Final = 1e100  # its square is a number too, and sums of such
_LARGEST_INTEGER: Final = 2**62
_FIXED: Final = {"bound": 2, "axis": 2, "count_and_bic": 2, "range": 2}
_KINDS: Final = {
    "f": "a number of type float",
    "iu": "a number of type int",
    "b": "true or false",
    "fiu": "a number",
    "O": "names",
    "U": "text",
}


def distribution(values: NDArray[Any], dims: Dims) -> str:
    """Require probabilities.

    Returns what is wrong; nothing if the last axis sums to one.
    """
    del dims
    good = np.abs(values.sum(axis=-1) - 1.0).max(initial=0.0) <= _ROUNDING
    return "" if good else "does not sum to one"


def definite(values: NDArray[Any], dims: Dims) -> str:
    """Require covariances that have an inverse.

    values: variances, or matrices along the last two dimensions where these are the same. Returns what is wrong;
    nothing for symmetric positive definite matrices, or positive variances.
    """
    if not _square(dims):
        return "" if (values > 0.0).all() else "is not positive"
    if not np.allclose(values, values.swapaxes(-1, -2)):
        return "is not symmetric"
    try:
        np.linalg.cholesky(values)
    except np.linalg.LinAlgError:
        return "is not positive definite"
    return ""


def of_some_size(values: NDArray[Any], dims: Dims) -> str:
    """Require rows whose squares are numbers too.

    Returns what is wrong; nothing if all are zero, or the greatest is above 1e-150.
    """
    del dims
    greatest = float(np.abs(values).max(initial=0.0))
    return "is too small to be squared" if 0.0 < greatest < _LEAST else ""


def positive_sum(values: NDArray[Any], dims: Dims) -> str:
    """Require amounts that have shares.

    Returns what is wrong; nothing if they are not all zero.
    """
    del dims
    return "" if float(values.sum()) > 1e-100 else "is zero throughout"


def semidefinite(values: NDArray[Any], dims: Dims) -> str:
    """Require covariances, which may be singular.

    values: variances, or a matrix where both dimensions are the same. Returns what is wrong; nothing for a symmetric
    matrix, or variances, without negative eigenvalues.
    """
    slack = 1e-8 * float(np.abs(values).max(initial=0.0))
    if not _square(dims):
        return "" if values.min(initial=0.0) >= -slack else "is negative"
    if np.abs(values - values.T).max(initial=0.0) > slack:
        return "is not symmetric"
    return "" if np.linalg.eigvalsh(values).min(initial=0.0) >= -slack else "is not positive semidefinite"


def factor(values: NDArray[Any], dims: Dims) -> str:
    """Require factors of inverse covariances.

    values: square roots of inverse variances, or triangular matrices. Returns what is wrong; nothing if what
    determinants are made of is positive.
    """
    found = np.diagonal(values, axis1=-2, axis2=-1) if _square(dims) else values
    return "" if (found > 0.0).all() else "has a diagonal that is not positive" if _square(dims) else "is not positive"


def _square(dims: Dims) -> bool:
    return len(dims) > 1 and dims[-1] == dims[-2]


@dataclass(frozen=True)
class Attribute:
    """Declaration of a fitted attribute."""

    # dimensions; where they depend on the form of the covariances, or their own number, one entry for each
    dims: Dims | Mapping[str | int, Dims] = ()
    kinds: str = "f"  # of its dtype
    least: float = -_LARGEST
    most: float | str = _LARGEST  # a name: below the size of this dimension
    undefined: bool = False  # NaN is a value, "not known"
    rule: Callable[[NDArray[Any], Dims], str] | None = None  # says what is wrong, or nothing
    filled: bool = False  # holds at least one entry
    group: str = ""  # attributes of a group are all there or none; those of no group must be there


def floats(*dims: str, **more: Any) -> Attribute:
    """Declare real numbers."""
    return Attribute(dims, "f", **more)


def integers(*dims: str, least: int = 0, **more: Any) -> Attribute:
    """Declare integers."""
    return Attribute(dims, "iu", least, **({"most": float(_LARGEST_INTEGER)} | more))


def together(group: str, declared: dict[str, Attribute]) -> dict[str, Attribute]:
    """Declare attributes of which a model has all or none.

    Returns the same, of this group.
    """
    return {name: replace(attribute, group=group) for name, attribute in declared.items()}


def array_of(value: Any) -> NDArray[Any]:
    """Take any value as an array, whatever it is.

    value: an array, a number, or what else a file may hold. Returns of its shape; of objects where it is no plain
    numbers.
    """
    if isinstance(value, list | tuple) and not all(type(part) is int for part in value):
        return np.empty(len(value), dtype=object)
    if type(value) is int:
        return np.asarray(float(value) if abs(value) > _LARGEST_INTEGER else value)
    return np.asarray(value)


def dims_of(attribute: Attribute, form: str, ndim: int) -> Dims | None:
    """Tell the dimensions of an attribute.

    form: form of the model's covariances; ndim: number of the attribute's dimensions. Returns the dimensions; None if
    it can't have that many.
    """
    if isinstance(attribute.dims, tuple):
        return attribute.dims
    return attribute.dims.get(form, attribute.dims.get(ndim))


def check_names(declared: Mapping[str, Attribute], names: set[str]) -> None:
    """Check that a model has the attributes that it needs, and no others.

    Raises ModelFileError: one is missing or unknown.
    """
    for name in sorted(names - declared.keys()):
        msg = f"{name[:40]!r} is no fitted attribute of the model"
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

    form: form of the model's covariances; sizes: sizes of dimensions that the model says.
    Raises ModelFileError: a shape is another one.
    """
    known = dict(_FIXED) | dict(sizes)
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
    """Check that attributes hold what is declared.

    form: form of the model's covariances; sizes: sizes of dimensions that the model says; values: attributes by name,
    their shapes checked.
    Raises ModelFileError: a value is of another kind, out of range, or breaks a rule.
    """
    for name, value in values.items():
        attribute, array = declared[name], array_of(value)
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
        endless = np.isposinf(array) & (attribute.most == np.inf) | np.isneginf(array) & (attribute.least == -np.inf)
        if not (np.isfinite(array) | unknown | endless).all():
            return "holds NaN or infinity"
        array = array[np.isfinite(array)]
    most = attribute.most
    greatest = sizes[most] - 1 if isinstance(most, str) else most
    if array.size and (float(array.min()) < attribute.least or float(array.max()) > greatest):
        return f"holds {array.min()} to {array.max()} where {attribute.least:g} to {greatest:g} are allowed"
    return ""
