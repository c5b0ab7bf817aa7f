"""What a fitted model holds: one declaration an attribute, for loading, saving and named dimensions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Dims = tuple[str, ...]

__all__ = [
    "Attribute",
    "array_of",
    "check_names",
    "check_shapes",
    "check_values",
    "dims_of",
    "floats",
    "integers",
    "together",
]

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
    """
    Declare real numbers.

    Parameters
    ----------
    *dims : str
        Dimensions.
    **more : object
        Other fields of `Attribute`.

    Returns
    -------
    Attribute
        The declaration.
    """
    return Attribute(dims, "f", **more)


def integers(*dims: str, least: int = 0, **more: Any) -> Attribute:
    """
    Declare integers.

    Parameters
    ----------
    *dims : str
        Dimensions.
    least : int, default 0
        The least value.
    **more : object
        Other fields of `Attribute`.

    Returns
    -------
    Attribute
        The declaration.
    """
    return Attribute(dims, "iu", least, **({"most": float(_LARGEST_INTEGER)} | more))


def together(group: str, declared: dict[str, Attribute]) -> dict[str, Attribute]:
    """
    Declare attributes of which a model has all or none.

    Parameters
    ----------
    group : str
        A name for them.
    declared : dict
        Declarations by name.

    Returns
    -------
    dict
        The same, of this group.
    """
    return {name: replace(attribute, group=group) for name, attribute in declared.items()}


def array_of(value: Any) -> NDArray[Any]:
    """
    Take any value as an array, whatever it is.

    Parameters
    ----------
    value : object
        An array, a number, or what else a file may hold.

    Returns
    -------
    ndarray
        Of its shape; of objects where it is no plain numbers.

    Examples
    --------
    >>> array_of([1, [2]]).shape, array_of(2).shape
    ((2,), ())
    """
    if isinstance(value, list | tuple) and not all(type(part) is int for part in value):
        return np.empty(len(value), dtype=object)
    if type(value) is int:
        return np.asarray(float(value) if abs(value) > _LARGEST_INTEGER else value)
    return np.asarray(value)


def dims_of(attribute: Attribute, form: str, ndim: int) -> Dims | None:
    """
    Tell the dimensions of an attribute.

    Parameters
    ----------
    attribute : Attribute
        Its declaration.
    form : str
        Form of the model's covariances.
    ndim : int
        Number of the attribute's dimensions.

    Returns
    -------
    tuple of str or None
        The dimensions; None if it can't have so many.
    """
    if isinstance(attribute.dims, tuple):
        return attribute.dims
    return attribute.dims.get(form, attribute.dims.get(ndim))


def check_names(declared: Mapping[str, Attribute], names: set[str]) -> None:
    """
    Check that a model has the attributes that it needs, and no others.

    Parameters
    ----------
    declared : dict
        Declarations by name.
    names : set of str
        Names of the attributes.

    Raises
    ------
    ModelFileError
        One is missing or unknown.
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
    """
    Check that the shapes of arrays are those declared, and that each dimension has one size.

    Parameters
    ----------
    declared : dict
        Declarations by name.
    form : str
        Form of the model's covariances.
    sizes : dict
        Sizes of dimensions that the model says.
    shapes : dict
        Shapes by name.

    Raises
    ------
    ModelFileError
        A shape is another one.
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
    """
    Check that attributes hold what is declared.

    Parameters
    ----------
    declared : dict
        Declarations by name.
    form : str
        Form of the model's covariances.
    sizes : dict
        Sizes of dimensions that the model says.
    values : dict
        Attributes by name, their shapes checked.

    Raises
    ------
    ModelFileError
        A value is of another kind, out of range, or breaks a rule.
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
        good = ~np.isinf(array) if attribute.undefined else np.isfinite(array)
        if not good.all() and attribute.most != np.inf:
            return "holds NaN or infinity"
        array = array[np.isfinite(array)]
    most = attribute.most
    greatest = sizes[most] - 1 if isinstance(most, str) else most
    if array.size and (float(array.min()) < attribute.least or float(array.max()) > greatest):
        return f"holds {array.min()} to {array.max()} where {attribute.least:g} to {greatest:g} are allowed"
    return ""
