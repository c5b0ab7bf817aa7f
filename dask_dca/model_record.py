"""A fitted model as a record of plain values and a few arrays, and back: what doesn't fit together is refused."""

from __future__ import annotations

import hashlib
import importlib
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca import __version__
from dask_dca.errors import DCAError, ModelFileError
from dask_dca.jsonable import from_json, to_json
from dask_dca.models.fitted import array_of, check_names, check_shapes, check_values
from dask_dca.models.fitting import OF_FIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Record = dict[str, Any]

__all__ = ["FITTED", "described", "from_record", "to_record"]

FITTED: Final = re.compile(r"[A-Za-z]\w*_")
_FORMAT: Final = 1
_CLASSES: Final = {
    "NMF": "dask_dca.models.nmf",
    "GaussianMixture": "dask_dca.models.mixture",
    "GaussianHMM": "dask_dca.models.hmm",
    "KalmanFilter": "dask_dca.models.kalman",
    "LatentDirichletAllocation": "dask_dca.models.lda",
    "SubspaceClustering": "dask_dca.models.subspace",
}
_RANDOM: Final = (np.random.Generator, np.random.RandomState, np.random.SeedSequence, np.random.BitGenerator)
_OF_THE_MACHINE: Final = ("checkpoint", "retries", "verbose")  # neither saved nor loaded: they say nothing of the model
_MANY: Final = 2**62  # rows, where the number of rows of the fit is not known


def to_record(model: Any) -> tuple[Record, dict[str, NDArray[Any]]]:
    """
    Write a fitted model as plain values and arrays.

    Parameters
    ----------
    model : estimator
        A fitted model of this library.

    Returns
    -------
    record : dict
        What JSON can hold: format, version, class, parameters, small attributes, and of each array what it is.
    arrays : dict
        The arrays by name.

    Raises
    ------
    ModelFileError
        The model is none of this library's, is not fitted, or holds what could not be loaded again.
    """
    name = type(model).__name__
    if name not in _CLASSES:
        msg = f"can't save a {name}; models that can be saved: {', '.join(_CLASSES)}"
        raise ModelFileError(msg)
    values, arrays = {}, {}
    for key, value in sorted(vars(model).items()):
        if FITTED.fullmatch(key) and isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
            arrays[key] = np.asarray(value)
        elif FITTED.fullmatch(key):
            values[key] = to_json(value, key)
    record = {"format": _FORMAT, "version": __version__, "class": name}
    record |= {"parameters": _parameters(model), "attributes": values}
    record["arrays"] = {key: described(value) for key, value in arrays.items()}
    try:
        from_record(record, lambda key, _: _as_read(arrays[key]))
    except DCAError as error:
        msg = f"this {name} can't be saved, since it could not be loaded: {error}; fit it first"
        raise ModelFileError(msg) from error
    return record, arrays


def from_record(record: Record, read: Callable[[str, Any], Any]) -> Any:
    """
    Make a model of what a file holds.

    Parameters
    ----------
    record : dict
        As `to_record` gives it, or anything else.
    read : callable
        (name, description) -> array; called once names, parameters, sizes and shapes are known to be right.

    Returns
    -------
    estimator
        The model. `checkpoint`, `retries` and `verbose` have their defaults, whatever the record says.

    Raises
    ------
    DCAError
        A newer format, an unknown class, a parameter or an attribute that is not what the class declares.
    """
    _check_format(record)
    name = record.get("class")
    if not isinstance(name, str) or name not in _CLASSES:
        msg = f"unknown class {str(name)[:40]!r} in the saved model; known: {', '.join(_CLASSES)}"
        raise ModelFileError(msg)
    made = getattr(importlib.import_module(_CLASSES[name]), name)
    given = {key: from_json(value, key) for key, value in record["parameters"].items()}
    model = made().set_params(**given).set_params(**{key: getattr(made(), key) for key in _OF_THE_MACHINE})
    values = {key: from_json(value, key) for key, value in record["attributes"].items()}
    _check_sizes(model, values, {key: tuple(entry["shape"]) for key, entry in record["arrays"].items()})
    values |= {key: read(key, entry) for key, entry in record["arrays"].items()}
    check_values(made._fitted, model._form, model._known_sizes(), values)
    vars(model).update(values | {OF_FIT: frozenset(values)})
    return model


def _check_format(record: Record) -> None:
    version, known = record.get("format"), _FORMAT
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= known:
        msg = (
            f"the model has format {str(version)[:20]!r}, of dask-dca {str(record.get('version'))[:20]}; this is "
            f"{__version__} and reads formats up to {known}: pip install --upgrade dask-dca"
        )
        raise ModelFileError(msg)


def _check_sizes(model: Any, values: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
    """Check all that is known before any array is read, and give the model its small attributes."""
    check_names(model._fitted, values.keys() | shapes.keys())
    check_values(model._fitted, "", {}, {key: value for key, value in values.items() if not array_of(value).ndim})
    vars(model).update(values)
    shapes |= {key: array_of(value).shape for key, value in values.items()}
    check_shapes(model._fitted, model._form, model._known_sizes(), shapes)
    names = values.get("feature_names_in_")
    model._check_parameters(SimpleNamespace(n_rows=_MANY, n_features=model.n_features_in_, feature_names=names))


def _parameters(model: Any) -> dict[str, Any]:
    found = {key: value for key, value in model.get_params(deep=False).items() if key not in _OF_THE_MACHINE}
    if isinstance(found.get("random_state"), _RANDOM):
        found["random_state"] = None
    numbers = np.generic | np.ndarray  # as plain numbers and lists
    return {key: to_json(value.tolist() if isinstance(value, numbers) else value, key) for key, value in found.items()}


def _as_read(value: NDArray[Any]) -> Any:
    """An array as it comes back: one without dimensions as a number."""
    return value if value.ndim else value[()]


def described(value: NDArray[Any]) -> dict[str, Any]:
    """
    Say what an array is.

    Parameters
    ----------
    value : ndarray
        The array.

    Returns
    -------
    dict
        Its dtype, shape and checksum.
    """
    digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return {"dtype": value.dtype.str, "shape": list(value.shape), "sha256": digest}
