"""Save and load fitted models: a zarr group of plain arrays and JSON, in which nothing is ever executed.

The group's one attribute, `dask_dca`, holds the format, the class, the parameters, the small fitted attributes, and of
every array its dtype, shape and checksum. Arrays are uncompressed single chunks. The group's own `zarr.json`
is written last: without it there is no model.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca import __version__
from dask_dca.errors import DCAError, ModelFileError
from dask_dca.jsonable import from_json, to_json
from dask_dca.output import file_system, is_url, local_path, written_beside

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["load_model", "save_model"]

_FORMAT: Final = 1
_MARK: Final = "dask_dca"
_CLASSES: Final = {
    "NMF": "dask_dca.models.nmf",
    "GaussianMixture": "dask_dca.models.mixture",
    "GaussianHMM": "dask_dca.models.hmm",
    "KalmanFilter": "dask_dca.models.kalman",
    "LatentDirichletAllocation": "dask_dca.models.lda",
    "SubspaceClustering": "dask_dca.models.subspace",
}
_RANDOM: Final = (np.random.Generator, np.random.RandomState, np.random.SeedSequence, np.random.BitGenerator)
_FITTED: Final = re.compile(r"[A-Za-z]\w*_")


def save_model(model: Any, path: str | os.PathLike[str], *, overwrite: bool = False, **storage: Any) -> None:
    """
    Save a fitted model.

    Parameters
    ----------
    model : estimator
        A fitted model of this library.
    path : str or os.PathLike
        Path or URL that doesn't exist yet. A path is written beside and renamed when complete.
    overwrite : bool, default False
        Replace a zarr group that is there.
    **storage : object
        Options of the URL's file system, as fsspec takes them.

    Raises
    ------
    ModelFileError
        The path exists or can't be written, or the model holds something that can't be saved.

    See Also
    --------
    dask_dca.load_model : The way back.

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
    with written_beside(path, overwrite=overwrite, **storage) as place:
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
        Options of the URL's file system, as fsspec takes them.

    Returns
    -------
    estimator
        The model as it was: class, parameters and fitted attributes, bit for bit. Random generators among the
        parameters come back as None.

    Raises
    ------
    ModelFileError
        There is no model, it was written by a newer version, or it is damaged.

    See Also
    --------
    dask_dca.store.save_model : Writes them, with an example.
    """
    with _explained(str(path)):
        group = _open_group(str(path), storage)
        record = group.attrs.asdict().get(_MARK)
        if not isinstance(record, dict):
            msg = f"{str(path)!r} is a zarr group but not a saved model; `dask dca fit` writes one"
            raise ModelFileError(msg)
        return _decode(record, group)


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Whatever a damaged or hostile file makes fail becomes one error with one line."""
    try:
        yield
    except DCAError:
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

    where = path
    if not is_url(path):
        where = str(local_path(path))
        if not Path(where).exists():
            msg = f"no model at {path!r}; check the path"
            raise ModelFileError(msg)
    elif not file_system(path, storage)[0].exists(path):
        msg = f"no model at {path!r}; check the URL"
        raise ModelFileError(msg)
    try:
        return zarr.open_group(where, mode="r", zarr_format=3, use_consolidated=False, storage_options=storage or None)
    except (FileNotFoundError, NotADirectoryError, zarr.errors.BaseZarrError) as error:
        msg = f"{path!r} is not a saved model, which save or fit -o write: no zarr group of format 3 is there"
        raise ModelFileError(msg) from error


def _encode(model: Any) -> dict[str, bytes]:
    """Return the files of the zarr group, the group's own metadata last."""
    import zarr
    from zarr.storage import MemoryStore

    name = type(model).__name__
    if name not in _CLASSES:
        msg = f"can't save a {name}; models that can be saved: {', '.join(_CLASSES)}"
        raise ModelFileError(msg)
    held: dict[str, Any] = {}
    group = zarr.create_group(MemoryStore(held), zarr_format=3)
    values, arrays = {}, {}
    for key, value in _fitted(model).items():
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
            arrays[key] = _describe(np.asarray(value))
            _add_array(group, key, np.asarray(value))
        else:
            values[key] = to_json(value, key)
    record = {"format": _FORMAT, "version": __version__, "class": name}
    record |= {"parameters": _parameters(model), "attributes": values, "arrays": arrays}
    files = {key: content.to_bytes() for key, content in held.items()}
    head = json.loads(files.pop("zarr.json")) | {"attributes": {_MARK: record}}
    return files | {"zarr.json": json.dumps(head, indent=1, allow_nan=False).encode()}


def _fitted(model: Any) -> dict[str, Any]:
    return {key: value for key, value in sorted(vars(model).items()) if _FITTED.fullmatch(key)}


def _parameters(model: Any) -> dict[str, Any]:
    found = model.get_params(deep=False)
    if isinstance(found.get("random_state"), _RANDOM):
        found["random_state"] = None
    numbers = np.generic | np.ndarray  # as plain numbers and lists
    return {key: to_json(value.tolist() if isinstance(value, numbers) else value, key) for key, value in found.items()}


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


def _describe(value: NDArray[Any]) -> dict[str, Any]:
    digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return {"dtype": value.dtype.str, "shape": list(value.shape), "sha256": digest}


def _decode(record: dict[str, Any], group: Any) -> Any:
    from dask_dca.models.fitting import OF_FIT

    version, known = record.get("format"), _FORMAT
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= known:
        msg = (
            f"the model has format {str(version)[:20]!r}, of dask-dca {str(record.get('version'))[:20]}; this is "
            f"{__version__} and reads formats up to {known}: pip install --upgrade dask-dca"
        )
        raise ModelFileError(msg)
    name = record.get("class")
    if not isinstance(name, str) or name not in _CLASSES:
        msg = f"unknown class {str(name)[:40]!r} in the saved model; known: {', '.join(_CLASSES)}"
        raise ModelFileError(msg)
    made = getattr(importlib.import_module(_CLASSES[name]), name)
    found = {key: from_json(value, key) for key, value in record["parameters"].items()}
    model = made().set_params(**found)
    values = {key: from_json(value, key) for key, value in record["attributes"].items()}
    values |= {key: _read_array(group, key, entry) for key, entry in record["arrays"].items()}
    _check_scalars({"n_passes_": int} | made._scalars, values)
    _check_shapes(made._shapes, values)
    for key, value in values.items():
        if not _FITTED.fullmatch(key) or hasattr(made, key):
            msg = f"{key[:40]!r} is no fitted attribute of {name}"
            raise ModelFileError(msg)
        setattr(model, key, value)
    vars(model)[OF_FIT] = frozenset(values)
    return model


def _read_array(group: Any, name: str, entry: Any) -> Any:
    """Read an array after checking that doing so runs no codec and fits what was written."""
    import zarr

    dtype = np.dtype(str(entry["dtype"]))
    array = group.get(name) if _FITTED.fullmatch(name) and dtype.kind in "biuf" else None
    plain = isinstance(array, zarr.Array) and array.dtype.newbyteorder("=") == dtype.newbyteorder("=")
    if (
        not isinstance(array, zarr.Array)
        or not plain
        or [codec.to_dict()["name"] for codec in array.metadata.codecs] != ["bytes"]
    ):
        msg = f"the array {name[:40]!r} of the model is missing or not stored as this library stores it"
        raise ModelFileError(msg)
    short = array.nbytes > array.nbytes_stored()  # before anything of the size that it claims is made
    if list(array.shape) != entry["shape"] or short or array.nchunks_initialized != array.nchunks:
        msg = f"the array {name!r} of the model is incomplete: copy all files of the group again"
        raise ModelFileError(msg)
    value = np.asarray(array[...]).astype(dtype, copy=False)
    if _describe(value) != entry:
        msg = f"the array {name!r} of the model has other content than was saved (checksum)"
        raise ModelFileError(msg)
    return value if value.ndim else value[()]


def _check_scalars(scalars: dict[str, type], values: dict[str, Any]) -> None:
    for key, kind in scalars.items():
        value = values.get(key)
        if isinstance(value, bool) or not isinstance(value, kind) or (isinstance(value, int) and value < 0):
            msg = f"{key!r} of the model is {str(value)[:40]!r} where a number of type {kind.__name__} is needed"
            raise ModelFileError(msg)


def _check_shapes(shapes: dict[str, tuple[str | int, ...]], values: dict[str, Any]) -> None:
    for key, sizes in shapes.items():
        found = np.asarray(values.get(key)).shape
        wanted = tuple(values.get(size) if isinstance(size, str) else size for size in sizes)
        if found != wanted:
            msg = f"{key!r} of the model has shape {found} where {wanted} is needed"
            raise ModelFileError(msg)
