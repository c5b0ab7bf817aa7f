"""Zarr arrays that workers read themselves, with a check that every process finds the same array.

Zarr reads a missing chunk as the fill value. A process that can't see the store at all (another machine, another
working directory) would read zeros without any error. The stores here know what the client found, and check it in each
process that reads or writes a chunk, and again wherever a chunk is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zarr
from zarr.storage import LocalStore, MemoryStore, WrapperStore, ZipStore

from dask_dca.engine.files import SHARE, require_regular, this_process
from dask_dca.errors import InvalidInputError, MissingChunksWarning, warn

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

_METADATA: Final = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
_N_PROBES: Final = 16  # chunks that are probed before all existing chunks are listed
_seen: set[tuple[str, str]] = set()  # arrays that this process has checked


@dataclass(frozen=True)
class _Expected:
    """What the client found in a store, and other processes must find."""

    key: str  # of the array's metadata
    text: str  # the metadata, as canonical JSON
    chunk: str | None  # key of a chunk that exists


class RegularFiles(LocalStore):
    """A zarr store in a folder that reads only regular files."""

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        """Read a file.

        *args, **kwargs: as zarr's own store takes them.
        """
        require_regular(self.root / key)
        return await super().get(key, *args, **kwargs)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[Any]) -> list[Any]:
        """Read parts of files.

        prototype: as zarr's own store takes it; key_ranges: names and ranges of bytes.
        """
        wanted = list(key_ranges)
        for key, _ in wanted:
            require_regular(self.root / key)
        return await super().get_partial_values(prototype, wanted)

    def get_sync(self, key: str, **kwargs: Any) -> Any:
        """Read a file at once.

        **kwargs: as zarr's own store takes them.
        """
        require_regular(self.root / key)
        return super().get_sync(key, **kwargs)


class _SharedStore(WrapperStore[Any]):
    """A store of one array that any process reads or writes; found: what must be in it."""

    def __init__(self, store: Any, found: _Expected) -> None:
        super().__init__(store)
        self._found = found

    @property
    def answers_slowly(self) -> bool:  # numpydoc ignore=RT01
        """Whether requests have a high latency: all stores except folders, archives and memory."""
        return not isinstance(self._store, LocalStore | MemoryStore | ZipStore)

    def with_read_only(self, read_only: bool = False) -> _SharedStore:  # numpydoc ignore=GL08
        return _SharedStore(self._store.with_read_only(read_only), self._found)

    def __str__(self) -> str:
        return str(self._store)

    async def get(  # numpydoc ignore=GL08
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        if key.endswith(_METADATA):
            return await super().get(key, prototype, byte_range)
        await self._require_same(prototype)
        value = await super().get(key, prototype, byte_range)
        if value is None:
            await self._require_same(prototype, again=True)
        return value

    async def set(self, key: str, value: Buffer) -> None:  # numpydoc ignore=GL08
        if not await self.exists(self._found.key):
            self._raise_mismatch(f"finds no array there ({self._found.key} is missing)")
        await super().set(key, value)

    async def _require_same(self, prototype: BufferPrototype, *, again: bool = False) -> None:
        """Check the store against what the client found, once per process, and again where a chunk is missing."""
        place = str(self), self._found.text
        if place in _seen and not again:
            return
        found = self._found
        value = await super().get(found.key, prototype)
        if value is None:
            self._raise_mismatch(f"finds no array there ({found.key} is missing)")
        elif _metadata_text(value.to_bytes()) != found.text:
            self._raise_mismatch(
                f"finds another array there ({_difference(_metadata_text(value.to_bytes()), found.text)})"
            )
        elif found.chunk is not None and not await self.exists(found.chunk):
            self._raise_mismatch(f"finds no chunk {found.chunk} there")
        _seen.add(place)

    def _raise_mismatch(self, what: str) -> None:
        where = f"{self}/{self._found.key.rpartition('/')[0]}".rstrip("/")
        msg = f"the array is at {where}, but {this_process()} {what}; {SHARE}"
        raise InvalidInputError(msg)


class _Recorder(WrapperStore[Any]):
    """A store that records metadata and existing chunks without reading chunks."""

    def __init__(self, store: Any, documents: dict[str, bytes], chunks: list[str]) -> None:
        super().__init__(store)
        self.documents, self.chunks = documents, chunks

    def with_read_only(self, read_only: bool = False) -> _Recorder:
        return _Recorder(self._store.with_read_only(read_only), self.documents, self.chunks)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        if not key.endswith(_METADATA):
            if await self.exists(key):
                self.chunks.append(key)
            return None
        value = await super().get(key, prototype, byte_range)
        if value is not None:
            self.documents[key] = value.to_bytes()
        return value


def shared_array(array: Any, *, complain: bool = True) -> Any:
    """Reopen an array so that other processes read it only if they find the same one.

    A relative path of its store becomes absolute. complain: warn if no chunk was ever written.
    Raises InvalidInputError: it is not there, or not any more.
    """
    if isinstance(array.store, _SharedStore):
        return array
    store, path, version = _with_absolute_path(array.store), array.path, array.metadata.zarr_format
    documents: dict[str, bytes] = {}
    chunks: list[str] = []
    probe = zarr.open_array(_Recorder(store, documents, chunks), path=path, zarr_format=version, mode=_mode(store))
    key = f"{path}/zarr.json" if version == 3 else f"{path}/.zarray"
    key = key.lstrip("/")
    for where in _probe_chunks(probe):
        _ = probe[where]
        if chunks:
            break
    if complain and probe.size and not chunks and not _any_written(array):
        place = f"{store}/{path}".rstrip("/")
        msg = (
            f"no chunk of {place} was ever written: all its entries are the fill value {array.fill_value}; "
            "check that the copy of the store is complete"
        )
        warn(msg, MissingChunksWarning)
    found = _Expected(key, _metadata_text(documents[key]), chunks[0] if chunks else None)
    return zarr.open_array(_SharedStore(store, found), path=path, zarr_format=version, mode=_mode(store))


def _mode(store: Any) -> Any:
    return "r" if store.read_only else "r+"


def _with_absolute_path(store: Any) -> Any:
    """Make the path of a store absolute, because workers have other working directories."""
    if isinstance(store, LocalStore) and not store.root.is_absolute():
        return type(store)(store.root.absolute(), read_only=store.read_only)
    if type(store) is ZipStore and store.read_only and not store.path.is_absolute():
        return ZipStore(store.path.absolute(), mode="r")
    return store


def _probe_chunks(array: Any) -> Iterator[tuple[slice, ...]]:
    """Yield the index of one entry in each of a few chunks, from the first to the last."""
    sides = array.shards or array.chunks
    grid = [-(-n // side) for n, side in zip(array.shape, sides, strict=True)]
    total = int(np.prod(grid, dtype=object))
    for number in dict.fromkeys(i * (total - 1) // max(_N_PROBES - 1, 1) for i in range(min(total, _N_PROBES))):
        coordinates = np.unravel_index(number, grid)
        yield tuple(slice(int(c) * side, int(c) * side + 1) for c, side in zip(coordinates, sides, strict=True))


def _any_written(array: Any) -> bool:
    """Whether any chunk exists; true if the store can't list chunks."""
    try:
        return bool(array.nchunks_initialized)
    except Exception:
        return True


def _metadata_text(document: bytes) -> str:
    """Metadata without attributes, as canonical JSON."""
    held = json.loads(document)
    return json.dumps({name: held[name] for name in sorted(held) if name != "attributes"})


def _difference(here: str, client: str) -> str:
    """Describe the first entry in which two metadata differ."""
    own, other = json.loads(here), json.loads(client)
    name = next(name for name in {**own, **other} if own.get(name) != other.get(name))
    return f"its {name} is {own.get(name)!r:.40}, not {other.get(name)!r:.40}"
