"""Save and load fitted models: a zarr group of plain arrays and JSON, in which nothing is ever executed.

The group's attribute `dask_dca` holds the format, the class, the parameters, the small fitted attributes, and of
every array its dtype, shape and checksum; `dask_dca_told` the output of `dask dca info`. Arrays are uncompressed single
chunks. The group's own `zarr.json` is written last, so that an incomplete model can't be opened.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca import __version__
from dask_dca._registry import MODELS
from dask_dca.engine.files import is_mostly_holes, path_text, require_regular
from dask_dca.errors import DCAError, ModelFileError, unreachable
from dask_dca.models.base import FITTED_NAMES
from dask_dca.models.describe import DESCRIPTION, stored_description
from dask_dca.models.fitted import as_any_array, check_names, check_shapes, check_values
from dask_dca.output import atomic_output, file_system, is_url, local_path, store_errors

Record = dict[str, Any]

FITTED: Final = re.compile(r"[A-Za-z]\w*_")
_FORMAT: Final = 1
_CLASSES: Final = {name: model.home for name, model in MODELS.items()}
_GENERATOR_TYPES: Final = (np.random.Generator, np.random.RandomState, np.random.SeedSequence, np.random.BitGenerator)
_VERSION_PATTERN: Final = re.compile(r"\d[\w.+]{0,30}")
_RUNTIME_PARAMETERS: Final = ("checkpoint", "retries", "verbose")  # neither saved nor loaded
_START_PARAMETERS: Final = ("init", "means_init", "weights_init", "precisions_init")  # not saved
_UNKNOWN_ROWS: Final = 2**62  # stands for the number of rows of the fit, which is not saved
_RECORD_KEY: Final = "dask_dca"
_ATTEMPTS: Final = 3  # to load a model that is replaced meanwhile


def to_json(value: Any, name: str) -> Any:
    """Convert a value to JSON types.

    value: None, bool, int, float, str, a slice, list or tuple of these, an array of integers (which is loaded as a
    list), or a one-dimensional array of strings; name: for error messages.
    Raises ModelFileError: a value of another type.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, tuple):
        return {"tuple": [to_json(part, name) for part in value]}
    if isinstance(value, list):
        return [to_json(part, name) for part in value]
    if isinstance(value, np.ndarray) and value.ndim == 1 and all(isinstance(part, str) for part in value):
        return {"names": [str(part) for part in value]}
    if isinstance(value, np.integer) or (isinstance(value, np.ndarray) and value.dtype.kind in "biu"):
        return value.tolist()
    if isinstance(value, slice):
        return {"slice": [to_json(part, name) for part in (value.start, value.stop, value.step)]}
    msg = f"{name}={value!r} of type {type(value).__name__} can't be saved"
    raise ModelFileError(msg)


def from_json(value: Any, name: str) -> Any:
    """Undo `to_json`; name: for error messages.

    Raises ModelFileError: not a result of `to_json`.
    """
    if isinstance(value, list):
        return [from_json(part, name) for part in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"float": "nan" | "inf" | "-inf" as text} if len(value) == 1:
            return float(text)
        case {"tuple": list(parts)} if len(value) == 1:
            return tuple(from_json(part, name) for part in parts)
        case {"slice": [start, stop, step]} if len(value) == 1:
            return slice(*(from_json(part, name) for part in (start, stop, step)))
        case {"names": list(parts)} if len(value) == 1 and all(isinstance(part, str) for part in parts):
            return np.array(parts, dtype=object)
    msg = f"the saved value of {name!r} is not in a form that this library writes: {str(value)[:60]}"
    raise ModelFileError(msg)


def to_record(model: Any) -> tuple[Record, dict[str, NDArray[Any]]]:
    """Convert a fitted model to a record of JSON types and arrays.

    Returns the record, with format, version, class, parameters, small attributes and a description of each array; and
    the arrays by name.
    Raises ModelFileError: not a model of this library, not fitted, or with values that can't be loaded again.
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
    record["arrays"] = {key: describe_array(value) for key, value in arrays.items()}
    try:
        from_record(record, lambda key, _: _as_read(arrays[key]))
    except DCAError as error:
        msg = f"this {name} can't be saved, since it could not be loaded: {error}; fit it first"
        raise ModelFileError(msg) from error
    return record, arrays


def from_record(record: Record, read: Callable[[str, Any], Any]) -> Any:
    """Make a model from a record, which is not trusted.

    record: from `to_record`, or anything else; read: (name, description) -> array, called after names, parameters,
    sizes and shapes are checked. `checkpoint`, `retries` and `verbose` get their defaults.
    Raises DCAError: a newer format, an unknown class, or a parameter or attribute that the class does not allow.
    """
    _check_format(record)
    name = record.get("class")
    if not isinstance(name, str) or name not in _CLASSES:
        msg = f"unknown class {str(name)[:40]!r} in the saved model; known: {', '.join(_CLASSES)}"
        raise ModelFileError(msg)
    made = getattr(importlib.import_module(_CLASSES[name]), name)
    given = {key: from_json(value, key) for key, value in record["parameters"].items()}
    model = made().set_params(**given).set_params(**{key: getattr(made(), key) for key in _RUNTIME_PARAMETERS})
    values = {key: from_json(value, key) for key, value in record["attributes"].items()}
    _check_sizes(model, values, {key: tuple(entry["shape"]) for key, entry in record["arrays"].items()})
    values |= {key: read(key, entry) for key, entry in record["arrays"].items()}
    check_values(made._fitted, model._form, model._known_sizes(), values)
    vars(model).update(values | {FITTED_NAMES: frozenset(values)})
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
    """Check everything that is known before arrays are read, and set the small attributes."""
    check_names(model._fitted, values.keys() | shapes.keys())
    check_values(model._fitted, "", {}, {key: value for key, value in values.items() if not as_any_array(value).ndim})
    vars(model).update(values)
    shapes |= {key: as_any_array(value).shape for key, value in values.items()}
    check_shapes(model._fitted, model._form, model._known_sizes(), shapes)
    names = values.get("feature_names_in_")
    model._check_parameters(SimpleNamespace(n_rows=_UNKNOWN_ROWS, n_features=model.n_features_in_, feature_names=names))


def _parameters(model: Any) -> dict[str, Any]:
    found = {
        key: value
        for key, value in model.get_params(deep=False).items()
        if key not in _RUNTIME_PARAMETERS + _START_PARAMETERS
    }
    if isinstance(found.get("random_state"), _GENERATOR_TYPES):
        found["random_state"] = None
    numbers = np.generic | np.ndarray  # saved as plain numbers and lists
    return {key: to_json(value.tolist() if isinstance(value, numbers) else value, key) for key, value in found.items()}


def _as_read(value: NDArray[Any]) -> Any:
    """Return an array as it is loaded: a scalar if it has no dimensions."""
    return value if value.ndim else value[()]


def describe_array(value: NDArray[Any]) -> dict[str, Any]:
    """Describe an array by dtype, shape and checksum."""
    digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return {"dtype": value.dtype.str, "shape": list(value.shape), "sha256": digest}


def save_model(model: Any, path: str | os.PathLike[str], *, overwrite: bool = False, **storage: Any) -> None:
    """
    Save a fitted model.

    Parameters
    ----------
    model : estimator
        A fitted model of this library.
    path : str or os.PathLike
        Path or URL that does not exist yet. A local model is written to a temporary path and renamed when complete.
    overwrite : bool, default False
        Replace an existing zarr group.
    **storage : object
        Options of the URL's file system, passed to fsspec.

    Raises
    ------
    ModelFileError
        The path exists or can't be written, or the model holds a value that can't be saved.

    See Also
    --------
    dask_dca.load_model : Loads a saved model.

    Examples
    --------
    >>> import tempfile
    >>> import dask_dca as dca
    >>> model = dca.NMF(2).fit(np.eye(3)[[0, 1, 0]] + 0.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, folder + "/model.zarr")
    ...     load_model(folder + "/model.zarr").anchor_indices_.tolist() == model.anchor_indices_.tolist()
    True
    """
    files = _encode(model)
    with atomic_output(path, overwrite=overwrite, **storage) as place:
        if is_url(place):
            remote, root = file_system(place, storage)
            for name, content in files.items():
                remote.pipe_file(f"{root}/{name}", content)
        else:
            for name, content in files.items():
                Path(place, name).parent.mkdir(parents=True, exist_ok=True)
                Path(place, name).write_bytes(content)


def load_model(path: str | os.PathLike[str], **storage: Any) -> Any:
    """
    Load a model that was saved with `save` or `save_model`.

    Parameters
    ----------
    path : str or os.PathLike
        Path or URL of the zarr group.
    **storage : object
        Options of the URL's file system, passed to fsspec.

    Returns
    -------
    estimator
        The saved model, with class, parameters and fitted attributes bit for bit the same. Random generators among the
        parameters are loaded as None; `init`, `means_init`, `weights_init`, `precisions_init`, `checkpoint`, `retries`
        and `verbose` are not saved, and have their defaults.

    Raises
    ------
    ModelFileError
        There is no model, it was written by a newer version, or it is damaged. All parameters and fitted attributes are
        checked, so that a model that loads can be used.

    See Also
    --------
    dask_dca.store.save_model : Saves a model, with an example.
    """
    where = path_text(path)
    for _ in range(_ATTEMPTS):
        before = _folder_identity(where)
        try:
            return _load(where, storage)
        except ModelFileError:
            if _folder_identity(where) == before:
                raise
    return _load(where, storage)


def _folder_identity(path: str) -> tuple[int, int] | None:
    """Return what changes if a local model is replaced; None if there is none."""
    try:
        found = os.stat(local_path(path))
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_mtime_ns  # another folder may get the same number later


def _load(where: str, storage: dict[str, Any]) -> Any:
    with _model_file_errors(where):
        group = _open_group(where, storage)
        record = group.attrs.asdict().get(_RECORD_KEY)
        if not isinstance(record, dict):
            msg = f"{where!r} is a zarr group but not a saved model; `dask dca fit` writes one"
            raise ModelFileError(msg)
        _check_format(record)
        with _version_errors(where, str(record.get("version"))):
            return from_record(record, lambda name, entry: _read_array(group, name, entry))


@contextmanager
def _version_errors(path: str, version: str) -> Iterator[None]:
    """Name the version that saved a model in errors of reading it, if it is another one."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        if version == __version__ or not _VERSION_PATTERN.fullmatch(version) or unreachable(path, error):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        msg = (
            f"the model at {path!r} was saved by dask-dca {version}, and this is {__version__}, which can't read it "
            f"({reason}); pip install dask-dca=={version}, or fit and save it again"
        )
        raise ModelFileError(msg) from error


@contextmanager
def _model_file_errors(path: str) -> Iterator[None]:
    """Convert any error from a damaged or malicious file to a ModelFileError of one line."""
    try:
        with store_errors(path):
            yield
    except ModelFileError:
        raise
    except PermissionError as error:
        msg = f"no permission to read {path!r}"
        raise ModelFileError(msg) from error
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        msg = f"the model at {path!r} is damaged or was changed by something else ({reason}); fit and save it again"
        raise ModelFileError(msg) from error


def _open_group(path: str, storage: dict[str, Any]) -> Any:
    import zarr

    from dask_dca.engine.shared_stores import RegularFiles

    where: Any = path
    if not is_url(path):
        where = str(local_path(path))
        if not Path(where).exists():
            msg = f"no model at {path!r}; check the path"
            raise ModelFileError(msg)
        require_regular(where)
        where = RegularFiles(where, read_only=True)
    elif not file_system(path, storage)[0].exists(path):
        msg = f"no model at {path!r}; check the URL"
        raise ModelFileError(msg)
    try:
        return zarr.open_group(where, mode="r", zarr_format=3, use_consolidated=False, storage_options=storage or None)
    except (FileNotFoundError, NotADirectoryError, zarr.errors.BaseZarrError) as error:
        msg = f"{path!r} is not a saved model, which save or fit -o write: no zarr group of format 3 is there"
        raise ModelFileError(msg) from error


def _encode(model: Any) -> dict[str, bytes]:
    """Encode a model as the files of a zarr group, with the group's metadata last."""
    import zarr
    from zarr.storage import MemoryStore

    record, arrays = to_record(model)
    held: dict[str, Any] = {}
    group = zarr.create_group(MemoryStore(held), zarr_format=3)
    for name, value in arrays.items():
        _add_array(group, name, value)
    files = {key: content.to_bytes() for key, content in held.items()}
    # of the model as it will be loaded
    words = stored_description(from_record(record, lambda key, _: _as_read(arrays[key])), record)
    attributes = {_RECORD_KEY: record} | ({} if words is None else {DESCRIPTION: words})
    head = json.loads(files.pop("zarr.json")) | {"attributes": attributes}
    return files | {"zarr.json": json.dumps(head, indent=1, allow_nan=False).encode()}


def _add_array(group: Any, name: str, value: NDArray[Any]) -> None:
    chunk = tuple(max(1, size) for size in value.shape)
    made = group.create_array(
        name,
        shape=value.shape,
        dtype=value.dtype,
        chunks=chunk,
        compressors=None,
        filters=None,
        config={"write_empty_chunks": True},
    )
    made[...] = value


def _local_files(array: Any) -> list[Path]:
    """List the files of a local array."""
    root = getattr(array.store, "root", None)
    return [path for path in Path(root, array.path).rglob("*") if path.is_file()] if isinstance(root, Path) else []


def _read_array(group: Any, name: str, entry: Any) -> Any:
    """Read an array, after checking that it has no codecs and matches the record."""
    import zarr

    dtype = np.dtype(str(entry["dtype"]))
    array = group.get(name) if FITTED.fullmatch(name) and dtype.kind in "biuf" else None
    if (
        not isinstance(array, zarr.Array)
        or array.dtype.newbyteorder("=") != dtype.newbyteorder("=")
        or [codec.to_dict()["name"] for codec in array.metadata.codecs] != ["bytes"]
    ):
        msg = f"the array {name[:40]!r} of the model is missing or not stored as this library stores it"
        raise ModelFileError(msg)
    short = array.nbytes > array.nbytes_stored()  # checked before memory of the claimed size is allocated
    if list(array.shape) != entry["shape"] or short or array.nchunks_initialized != array.nchunks:
        msg = f"the array {name!r} of the model is incomplete: copy all files of the group again"
        raise ModelFileError(msg)
    if any(map(is_mostly_holes, _local_files(array))):
        msg = f"the array {name!r} of the model claims {array.nbytes} bytes, of which the disk holds almost none"
        raise ModelFileError(msg)
    value = np.asarray(array[...]).astype(dtype, copy=False)
    if describe_array(value) != entry:
        msg = f"the array {name!r} of the model has other content than was saved (checksum)"
        raise ModelFileError(msg)
    return value if value.ndim else value[()]
