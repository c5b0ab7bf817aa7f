"""Checkpoints: finished passes on disk, from which a killed fit is resumed; nothing in them is executed.

A checkpoint is a folder (or URL) that belongs to one fit: `fit.json` describes data, model and parameters, and each
finished pass is one file, named by a hash of everything that its value depends on. Files are written to a scratch
folder and renamed. The first pass over all rows computes their fingerprint; no pass is kept before that, and none is
read before the data have been compared with the fingerprint.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import io
import json
import math
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.engine.files import is_scratch, require_regular, scratch_folder
from dask_dca.engine.fingerprint import Fingerprint, changed_rows, n_ranges
from dask_dca.errors import CheckpointError, CheckpointWarning, unreachable, warn

_PACKAGES: Final = ("dask_dca.geometry.", "dask_dca.engine.", "dask_dca.anchoring.", "dask_dca.models.")
_DTYPE_KINDS: Final = "biuf"  # kinds of arrays that are written
_HEAD_FILE: Final = "fit.json"
_FORMAT: Final = 2  # version of the format
_MAX_HEAD_BYTES: Final = 2**22  # greatest size of the head file


def to_bytes(value: Any) -> bytes:
    """Write a value as the bytes of an `.npz` file.

    value: None, numbers, strings, arrays, and lists, tuples, dictionaries and this library's dataclasses of them.
    Raises TypeError: a part is none of these.
    """
    arrays: list[NDArray[Any]] = []
    tree = json.dumps(_encode(value, arrays))
    held = io.BytesIO()
    named = {f"a{i}": array for i, array in enumerate(arrays)}
    np.savez(held, tree=np.frombuffer(tree.encode(), dtype=np.uint8), **named)  # type: ignore[arg-type]
    return held.getvalue()


def from_bytes(content: bytes) -> Any:
    """Read a value from the bytes of `to_bytes`.

    Raises ValueError: they are damaged, or contain something that this library doesn't write.
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
    """Refuse archives that are compressed, have overlapping members, or arrays larger than their members."""
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
    """Hash a value; equal values have equal hashes in any process."""
    arrays: list[NDArray[Any]] = []
    tree = json.dumps(_encode(value, arrays), sort_keys=True)
    found = hashlib.sha256(tree.encode())
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _encode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """Convert a value to JSON types, and append its arrays to a list."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and not isinstance(value, np.generic):
        return value
    if isinstance(value, float) and not isinstance(value, np.generic):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _DTYPE_KINDS:
        arrays.append(np.asarray(value))
        return {"scalar" if isinstance(value, np.generic) else "array": len(arrays) - 1}
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if isinstance(value, list | tuple):
        return {"list" if isinstance(value, list) else "tuple": [_encode(part, arrays) for part in value]}
    if isinstance(value, dict):
        return {"dict": [[_encode(key, arrays), _encode(part, arrays)] for key, part in value.items()]}
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith(_PACKAGES):
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
        case {"dtype": str(text)} if np.dtype(text).kind in _DTYPE_KINDS:
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
    """Find a dataclass of this library by name; nothing else is ever called."""
    module, _, kind = name.partition(":")
    if not module.startswith(_PACKAGES):
        msg = f"{module[:60]!r} holds no results of this library"
        raise ValueError(msg)
    found = getattr(importlib.import_module(module), kind)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found) and found.__module__ == module):
        msg = f"{name[:60]!r} is no result of this library"
        raise ValueError(msg)
    return found


@dataclass
class Checkpoint:
    """A folder of finished passes."""

    system: Any  # fsspec's file system
    root: str
    path: str  # as the user gave it
    facts: dict[str, Any]  # description of the fit: data, model, parameters, version
    source: Any = field(default=None, repr=False)  # the data; only passes over these are kept
    content: Fingerprint | None = None  # fingerprint of the data of the kept passes
    confirmed: bool = False  # whether the data have that fingerprint

    def confirm(self, content: Fingerprint) -> None:
        """Compare the fingerprint of the data with that of the kept passes, or write it to a new checkpoint.

        Raises CheckpointError: the data differ; the message names the rows.
        """
        head = _read_head(self.system, self.root)  # another fit may have started here in the meantime
        if head is not None:
            _require_same(self.path, head, self.facts)
        kept = _content_of_head(head, self.facts)
        if kept is None:
            text = "".join(f"{int(value):016x}" for value in content.sums)
            self._write(f"{self.root}/{_HEAD_FILE}", _head_bytes(self.facts | {"content": text}))
        else:
            _require_unchanged(self.path, kept, content, self.facts)
        self.content, self.confirmed = content, True

    def value(self, name: str, inputs: Any, compute: Callable[[], Any]) -> Any:
        """Return the kept value of a pass, or compute and keep it; inputs: what it depends on besides the data."""
        key, path = self._key_and_path(name, inputs)
        found = self._read(path, key)
        if found is None:
            found = key, compute()
            self._write(path, to_bytes(found))
        return found[1]

    def keep(self, name: str, inputs: Any, value: Any) -> None:
        """Keep the value of a pass."""
        key, path = self._key_and_path(name, inputs)
        self._write(path, to_bytes((key, value)))

    def _key_and_path(self, name: str, inputs: Any) -> tuple[str, str]:
        key = digest((self.facts, None if self.content is None else self.content.sums, name, inputs))
        return key, f"{self.root}/{name}-{key[:32]}.npz"

    def _read(self, path: str, key: str) -> tuple[str, Any] | None:
        try:
            _require_regular(self.system, path)
            return _read_pass(self.system.cat_file(path), key)
        except FileNotFoundError:
            return None
        except Exception as error:  # file systems raise errors of any type
            warn(f"the kept pass {path} can't be read and is computed again: {error}", CheckpointWarning)
            return None

    def _write(self, path: str, content: bytes) -> None:
        try:
            _write_beside(self.system, path, content)
        except Exception as error:
            warn(
                f"the checkpoint can't be written to {path} ({error}); the fit goes on, but can't be resumed from here",
                CheckpointWarning,
            )


def _read_pass(content: bytes, key: str) -> tuple[str, Any]:
    """Read the key and the value of a pass, and check the key: files may have been renamed."""
    match from_bytes(content):
        case (str(own), value) if own == key:
            return own, value
    msg = "it is of another pass"
    raise ValueError(msg)


def open_checkpoint(path: str, facts: dict[str, Any], source: Any = None) -> Checkpoint:
    """Open a checkpoint, or start one.

    facts: description of the fit in JSON types: data, model, parameters, version; source: the data, passes over which
    are kept.
    Raises CheckpointError: it belongs to another fit, or is not a checkpoint, or the folder can't be used.
    """
    import fsspec

    facts = json.loads(json.dumps({"format": _FORMAT, **facts}, sort_keys=True))
    try:
        system, root = fsspec.core.url_to_fs(path)
        used = _is_used(system, root)  # before the head is read, because another fit may start here now
        kept = _read_head(system, root)
        if kept is None and not used:
            system.makedirs(root, exist_ok=True)
            _write_beside(system, f"{root}/{_HEAD_FILE}", _head_bytes(facts))
            kept = _read_head(system, root)
    except Exception as error:  # file systems, and malicious files, raise errors of any type
        msg = f"the checkpoint {path!r} can't be used: {error}; choose another path"
        raise CheckpointError(unreachable(path, error) or msg) from error
    if kept is None:
        msg = f"{path!r} is neither empty nor a checkpoint; choose another path"
        raise CheckpointError(msg)
    _require_same(path, kept, facts)
    return Checkpoint(system, root, path, facts, source, _content_of_head(kept, facts))


def _is_used(system: Any, root: str) -> bool:
    """Whether the folder contains anything except scratch folders."""
    system.invalidate_cache()
    if not system.exists(root):
        return False
    return not all(is_scratch(name.rstrip("/").rpartition("/")[2]) for name in system.ls(root, detail=False))


def _read_head(system: Any, root: str) -> Any:
    """Read the head of a checkpoint; None if there is none yet."""
    try:
        _require_regular(system, f"{root}/{_HEAD_FILE}")
        text = system.cat_file(f"{root}/{_HEAD_FILE}", end=_MAX_HEAD_BYTES)
    except FileNotFoundError:
        return None
    found = json.loads(text)
    return [] if found is None else found


def _head_bytes(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, indent=1, sort_keys=True).encode()


def _require_regular(system: Any, path: str) -> None:
    if "file" in system.protocol:
        require_regular(path)


def _require_same(path: str, kept: Any, facts: dict[str, Any]) -> None:
    known = {name: fact for name, fact in kept.items() if name != "content"} if isinstance(kept, dict) else {}
    if known == facts:
        return
    names = [name for name in {**known, **facts} if known.get(name) != facts.get(name)]
    pairs = [(name, *_differing(known.get(name), facts.get(name))) for name in names[:4]]
    what = "; ".join(f"{name} {one!r:.60}, not {other!r:.60}" for name, one, other in pairs)
    msg = f"the checkpoint {path!r} is of another fit: {what}; choose another path, or remove it"
    raise CheckpointError(msg)


def _differing(one: Any, other: Any) -> tuple[Any, Any]:
    """The entries in which two dictionaries differ; other values are returned unchanged."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return one, other
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return {name: one.get(name) for name in names}, {name: other.get(name) for name in names}


def _content_of_head(head: Any, facts: dict[str, Any]) -> Fingerprint | None:
    """The fingerprint of the data in the head, None if there is none or it is invalid."""
    text = head.get("content") if isinstance(head, dict) else None
    if not isinstance(text, str) or not re.fullmatch(r"([0-9a-f]{16})*", text):
        return None
    found = Fingerprint(0, np.frombuffer(bytes.fromhex(text), dtype=">u8").astype(np.uint64))
    return found if len(found.sums) == n_ranges(facts["data"]["rows"]) else None


def _require_unchanged(path: str, kept: Fingerprint, found: Fingerprint, facts: dict[str, Any]) -> None:
    n_rows = facts["data"]["rows"]
    changed = changed_rows(kept, found, n_rows)
    if not changed:
        return
    named = [f"{first} to {last - 1}" if last - first > 1 else str(first) for first, last in changed[:4]]
    where = ", ".join([*named, "..."] if len(changed) > 4 else named)
    msg = (
        f"the data changed since the checkpoint {path!r} was begun, in rows {where} of {n_rows}; what it holds is of "
        "the old data, or of a sample_weight that left out other rows: choose another path, or remove it"
    )
    raise CheckpointError(msg)


def _write_beside(system: Any, path: str, content: bytes) -> None:
    """Write a file atomically: it is complete, or not there."""
    if "file" not in system.protocol:  # object stores write whole objects
        system.pipe_file(path, content)
        return
    with scratch_folder(Path(path)) as folder:
        beside = folder / "new"
        system.pipe_file(str(beside), content)
        beside.replace(path)
