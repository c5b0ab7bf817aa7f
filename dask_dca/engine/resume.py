"""Finished passes kept on disk, so that a fit that was killed goes on where it stopped.

A checkpoint is a folder (or URL) that belongs to one fit: `fit.json` says of which data, model and parameters, and
each finished pass is one file, named by a hash of all that its value depends on. Files are written beside and renamed.
The first pass over all rows takes their fingerprint; before it nothing is kept, and nothing that was kept is used
before the data at hand have been compared with it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.fingerprint import Fingerprint, changed_rows, n_ranges
from dask_dca.engine.kept import digest, from_bytes, to_bytes
from dask_dca.engine.scratch import is_scratch, scratch_folder
from dask_dca.errors import CheckpointError, CheckpointWarning, warn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Checkpoint", "open_checkpoint"]

_HEAD: Final = "fit.json"
_FORMAT: Final = 2
_LONGEST_HEAD: Final = 2**22  # bytes of it that are read


@dataclass
class Checkpoint:
    """A folder of finished passes."""

    system: Any  # fsspec's file system
    root: str
    facts: dict[str, Any]  # what the fit is of
    source: Any = field(default=None, repr=False)  # passes over this are kept, others are not
    content: Fingerprint | None = None  # of the data that the kept passes are of
    confirmed: bool = False  # the data at hand are these

    def confirm(self, content: Fingerprint) -> None:
        """
        Compare the data at hand with those of the kept passes; of a new checkpoint keep their fingerprint.

        Parameters
        ----------
        content : Fingerprint
            Of the data at hand, all rows.

        Raises
        ------
        CheckpointError
            They are other data; the message names the rows that differ.
        """
        head = _read_head(self.system, self.root)  # another fit may have begun here meanwhile
        if head is not None:
            _require_same(self.root, head, self.facts)
        kept = _content(head, self.facts)
        if kept is None:
            self._write(f"{self.root}/{_HEAD}", _head_bytes(self.facts | {"content": _as_text(content)}))
        else:
            _require_unchanged(self.root, kept, content, self.facts)
        self.content, self.confirmed = content, True

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
        key, path = self._place(name, inputs)
        found = self._read(path, key)
        if found is not None:
            return found[1]
        value = compute()
        self._write(path, to_bytes((key, value)))
        return value

    def keep(self, name: str, inputs: Any, value: Any) -> None:
        """
        Keep the value of a pass.

        Parameters
        ----------
        name, inputs : str and object
            As `value` takes them.
        value : object
            What the pass gave.
        """
        key, path = self._place(name, inputs)
        self._write(path, to_bytes((key, value)))

    def _place(self, name: str, inputs: Any) -> tuple[str, str]:
        key = digest((self.facts, None if self.content is None else self.content.sums, name, inputs))
        return key, f"{self.root}/{name}-{key[:32]}.npz"

    def _read(self, path: str, key: str) -> tuple[str, Any] | None:
        try:
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
        used = _is_used(system, root)  # before the head is looked for: another fit may begin here now
        kept = _read_head(system, root)
        if kept is None and not used:
            system.makedirs(root, exist_ok=True)
            _write_beside(system, f"{root}/{_HEAD}", _head_bytes(facts))
            kept = _read_head(system, root)
    except Exception as error:  # file systems raise what they like, and so do hostile files
        msg = f"the checkpoint {path!r} can't be used: {error}; choose another path"
        raise CheckpointError(msg) from error
    if kept is None:
        msg = f"{path!r} is neither empty nor a checkpoint; choose another path"
        raise CheckpointError(msg)
    _require_same(path, kept, facts)
    return Checkpoint(system, root, facts, source, _content(kept, facts))


def _is_used(system: Any, root: str) -> bool:
    """Whether there is anything but what others are writing just now."""
    system.invalidate_cache()
    if not system.exists(root):
        return False
    return not all(is_scratch(name.rstrip("/").rpartition("/")[2]) for name in system.ls(root, detail=False))


def _read_head(system: Any, root: str) -> Any:
    """What the checkpoint says it is of; None where there is none yet."""
    try:
        text = system.cat_file(f"{root}/{_HEAD}", end=_LONGEST_HEAD)
    except FileNotFoundError:
        return None
    found = json.loads(text)
    return [] if found is None else found


def _head_bytes(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, indent=1, sort_keys=True).encode()


def _require_same(path: str, kept: Any, facts: dict[str, Any]) -> None:
    known = {name: fact for name, fact in kept.items() if name != "content"} if isinstance(kept, dict) else {}
    if known == facts:
        return
    names = [name for name in {**known, **facts} if known.get(name) != facts.get(name)]
    what = "; ".join(f"{name} {known.get(name)!r:.60}, not {facts.get(name)!r:.60}" for name in names[:4])
    msg = f"the checkpoint {path!r} is of another fit: {what}; choose another path, or remove it"
    raise CheckpointError(msg)


def _as_text(content: Fingerprint) -> str:
    return "".join(f"{int(value):016x}" for value in content.sums)


def _content(head: Any, facts: dict[str, Any]) -> Fingerprint | None:
    """The fingerprint of the data, as the head holds it; where it is no longer one, none."""
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
        "the old data: choose another path, or remove it"
    )
    raise CheckpointError(msg)


def _write_beside(system: Any, path: str, content: bytes) -> None:
    """Write so that a file is whole or not there."""
    if "file" not in system.protocol:  # object stores put whole objects
        system.pipe_file(path, content)
        return
    with scratch_folder(Path(path)) as folder:
        beside = folder / "new"
        system.pipe_file(str(beside), content)
        beside.replace(path)
