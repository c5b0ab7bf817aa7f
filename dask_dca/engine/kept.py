"""Small results as files and back: a tree of JSON and plain arrays in one `.npz`, in which nothing is executed."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import io
import json
import math
import zipfile
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["digest", "from_bytes", "to_bytes"]

_HOMES: Final = ("dask_dca.geometry.", "dask_dca.kernels.", "dask_dca.engine.", "dask_dca.models.")
_KINDS: Final = "biuf"


def to_bytes(value: Any) -> bytes:
    """
    Write a value as the bytes of an `.npz` file.

    Parameters
    ----------
    value : object
        None, numbers, strings, plain arrays, and lists, tuples, dictionaries and this library's dataclasses of them.

    Returns
    -------
    bytes
        The file.

    Raises
    ------
    TypeError
        Something in it is none of these.
    """
    arrays: list[NDArray[Any]] = []
    tree = json.dumps(_encode(value, arrays))
    held = io.BytesIO()
    named = {f"a{i}": array for i, array in enumerate(arrays)}
    np.savez(held, tree=np.frombuffer(tree.encode(), dtype=np.uint8), **named)  # type: ignore[arg-type]
    return held.getvalue()


def from_bytes(content: bytes) -> Any:
    """
    Read a value back.

    Parameters
    ----------
    content : bytes
        What `to_bytes` gave.

    Returns
    -------
    object
        The value.

    Raises
    ------
    ValueError
        The file is damaged or holds something that this library doesn't write.

    Examples
    --------
    >>> from_bytes(to_bytes((1, [2.5, None], np.arange(3))))
    (1, [2.5, None], array([0, 1, 2]))
    """
    try:
        _require_plain(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        return _decode(json.loads(arrays.pop("tree").tobytes()), arrays)
    except Exception as error:
        msg = f"not a result that this library keeps: {type(error).__name__}: {error}"
        raise ValueError(msg) from error


def _require_plain(content: bytes) -> None:
    """Refuse what unpacks to more than its own size: nothing here is compressed, stored twice, or longer than told."""
    with zipfile.ZipFile(io.BytesIO(content)) as held:
        if sum(part.file_size for part in held.infolist()) > len(content):
            msg = "it is compressed"
            raise ValueError(msg)
        for part in held.infolist():
            with held.open(part) as array:
                np.lib.format.read_magic(array)
                shape, _, dtype = np.lib.format.read_array_header_1_0(array)
            if math.prod(shape) * dtype.itemsize > part.file_size:
                msg = f"{part.filename} is cut short"
                raise ValueError(msg)


def digest(value: Any) -> str:
    """
    Hash a value: the same for equal values in any process.

    Parameters
    ----------
    value : object
        As `to_bytes` takes it.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> digest((1, np.arange(3))) == digest((1, np.arange(3)))
    True
    """
    arrays: list[NDArray[Any]] = []
    tree = json.dumps(_encode(value, arrays), sort_keys=True)
    found = hashlib.sha256(tree.encode())
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _encode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Turn a value into what JSON holds, and put its arrays aside."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and not isinstance(value, np.generic):
        return value
    if isinstance(value, float) and not isinstance(value, np.generic):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _KINDS:
        arrays.append(np.asarray(value))
        return {"scalar" if isinstance(value, np.generic) else "array": len(arrays) - 1}
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if isinstance(value, list | tuple):
        return {"list" if isinstance(value, list) else "tuple": [_encode(part, arrays) for part in value]}
    if isinstance(value, dict):
        return {"dict": [[_encode(key, arrays), _encode(part, arrays)] for key, part in value.items()]}
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith(_HOMES):
        parts = {f.name: _encode(getattr(value, f.name), arrays) for f in dataclasses.fields(value)}
        return {"class": f"{type(value).__module__}:{type(value).__qualname__}", "fields": parts}
    msg = f"can't keep a {type(value).__name__}"
    raise TypeError(msg)


def _decode(tree: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    match tree:
        case None | bool() | int() | float() | str():
            return tree
        case {"array": int(i)}:
            return arrays[f"a{i}"]
        case {"scalar": int(i)}:
            return arrays[f"a{i}"][()]
        case {"float": "nan" | "inf" | "-inf" as text}:
            return float(text)
        case {"dtype": str(text)} if np.dtype(text).kind in _KINDS:
            return np.dtype(text)
        case {"list": list(parts)}:
            return [_decode(part, arrays) for part in parts]
        case {"tuple": list(parts)}:
            return tuple(_decode(part, arrays) for part in parts)
        case {"dict": list(pairs)}:
            return {_decode(key, arrays): _decode(part, arrays) for key, part in pairs}
        case {"class": str(name), "fields": dict(parts)}:
            return _dataclass(name)(**{key: _decode(part, arrays) for key, part in parts.items()})
    msg = f"unknown entry {str(tree)[:60]}"
    raise ValueError(msg)


def _dataclass(name: str) -> Any:
    """Find one of this library's own dataclasses; nothing else is ever called."""
    module, _, kind = name.partition(":")
    if not module.startswith(_HOMES):
        msg = f"{module[:60]!r} holds no results of this library"
        raise ValueError(msg)
    found = getattr(importlib.import_module(module), kind)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found) and found.__module__ == module):
        msg = f"{name[:60]!r} is no result of this library"
        raise ValueError(msg)
    return found
