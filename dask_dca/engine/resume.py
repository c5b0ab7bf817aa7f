"""Finished passes kept on disk, so that a fit that was killed goes on where it stopped.

A checkpoint is a folder (or URL) that belongs to one fit: `fit.json` says of which data, model and parameters, and
each finished pass is one file, named by a hash of all that its value depends on. Files are written beside and renamed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dask_dca.engine.kept import digest, from_bytes, to_bytes
from dask_dca.engine.local_files import require_regular
from dask_dca.errors import CheckpointError, CheckpointWarning, warn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Checkpoint", "open_checkpoint"]

_HEAD: Final = "fit.json"
_FORMAT: Final = 1
_LONGEST_HEAD: Final = 2**22  # bytes of it that are read


@dataclass(frozen=True)
class Checkpoint:
    """A folder of finished passes."""

    system: Any  # fsspec's file system
    root: str
    identity: str  # hash of the facts of the fit
    source: Any = field(default=None, compare=False, repr=False)  # passes over this are kept, others are not

    def value(self, name: str, inputs: Any, compute: Callable[[], Any]) -> Any:
        """
        Return the value of a pass: the kept one, else compute and keep it.

        Parameters
        ----------
        name : str
            The pass's name.
        inputs : object
            All that its value depends on besides the data.
        compute : callable
            Runs the pass.

        Returns
        -------
        object
            The value.
        """
        key = digest((self.identity, name, inputs))
        path = f"{self.root}/{name}-{key[:32]}.npz"
        found = self._read(path, key)
        if found is not None:
            return found[1]
        value = compute()
        self._write(path, to_bytes((key, value)))
        return value

    def _read(self, path: str, key: str) -> tuple[str, Any] | None:
        try:
            _require_regular(self.system, path)
            return _of_pass(self.system.cat_file(path), key)
        except FileNotFoundError:
            return None
        except Exception as error:  # file systems raise what they like
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


def _of_pass(content: bytes, key: str) -> tuple[str, Any]:
    """The pass's key and value; a file that was renamed holds another key."""
    match from_bytes(content):
        case (str(own), value) if own == key:
            return own, value
    msg = "it is of another pass"
    raise ValueError(msg)


def open_checkpoint(path: str, facts: dict[str, Any], source: Any = None) -> Checkpoint:
    """
    Open a checkpoint, or start one.

    Parameters
    ----------
    path : str
        Folder or URL.
    facts : dict
        What the fit is of, as JSON holds it: data, model, parameters, version.
    source : object, optional
        The data themselves: passes over them are kept.

    Returns
    -------
    Checkpoint
        With the passes that were finished before.

    Raises
    ------
    CheckpointError
        It belongs to another fit, or is no checkpoint, or the folder can't be used.
    """
    import fsspec

    facts = json.loads(json.dumps({"format": _FORMAT, **facts}, sort_keys=True))
    try:
        system, root = fsspec.core.url_to_fs(path)
        head = f"{root}/{_HEAD}"
        _require_regular(system, head)
        kept = json.loads(system.cat_file(head, end=_LONGEST_HEAD)) if system.exists(head) else None
        used = kept is None and system.exists(root) and bool(system.ls(root, detail=False))
        if kept is None and not used:
            system.makedirs(root, exist_ok=True)
            _write_beside(system, head, json.dumps(facts, indent=1, sort_keys=True).encode())
            kept = facts
    except Exception as error:  # file systems raise what they like, and so do hostile files
        msg = f"the checkpoint {path!r} can't be used: {error}; choose another path"
        raise CheckpointError(msg) from error
    if used:
        msg = f"{path!r} is neither empty nor a checkpoint; choose another path"
        raise CheckpointError(msg)
    _require_same(path, kept, facts)
    return Checkpoint(system, root, digest(json.dumps(facts, sort_keys=True)), source)


def _require_regular(system: Any, path: str) -> None:
    if "file" in system.protocol:
        require_regular(path)


def _require_same(path: str, kept: Any, facts: dict[str, Any]) -> None:
    if kept == facts:
        return
    known = kept if isinstance(kept, dict) else {}
    names = [name for name in {**known, **facts} if known.get(name) != facts.get(name)]
    what = "; ".join(f"{name} {known.get(name)!r:.60}, not {facts.get(name)!r:.60}" for name in names[:4])
    msg = f"the checkpoint {path!r} is of another fit: {what}; choose another path, or remove it"
    raise CheckpointError(msg)


def _write_beside(system: Any, path: str, content: bytes) -> None:
    """Write so that a file is whole or not there."""
    if "file" not in system.protocol:  # object stores put whole objects
        system.pipe_file(path, content)
        return
    folder, _, name = path.rpartition("/")
    beside = f"{folder}/.{name}.part"
    try:
        system.pipe_file(beside, content)
        system.mv(beside, path)
    finally:
        if system.exists(beside):
            system.rm_file(beside)
