"""What a model says of itself: computed once, kept beside a saved model, and read without any library of numbers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from dask_dca import __version__
from dask_dca.errors import without_secrets

TOLD: Final = "dask_dca_told"  # attribute of a saved model's zarr group
_RECORD: Final = "dask_dca"
_MOST: Final = 2**26  # bytes


def model_facts(model: Any) -> dict[str, Any]:
    """Collect what a fitted model says of itself: names and plain values, as `info --json` prints them."""
    given = model.get_params(deep=False)
    shown = {name: without_secrets(value) if isinstance(value, str) else value for name, value in given.items()}
    return {"model": type(model).__name__, "version": __version__, "parameters": shown} | model._facts()


def describe(model: Any) -> str:
    """Describe a fitted model in words and a table: a few lines of text."""
    n = model.n_passes_
    read = "once" if n == 1 else f"{n} times"
    several = getattr(model, "n_sequences_", 1)
    lines = [f"Fitted to {several} sequences: give those of other data too, by --lengths or lengths=."] * (several > 1)
    return "\n".join([*model._describe(), *lines, f"The fit read all rows {read}; samples of them are not counted."])


def plain(value: Any) -> Any:
    """Give JSON what it has no word for: NumPy's numbers and arrays, slices."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def kept_words(model: Any, record: dict[str, Any]) -> dict[str, str] | None:
    """Write down what a model says of itself, to be kept beside it.

    record: the model as it is saved, of which these are the words. Returns text, and facts in JSON; None for a model
    that has nothing to say, since its parameters were given.
    """
    if not hasattr(model, "n_passes_"):
        return None
    facts = json.dumps(model_facts(model), default=plain)
    return {"text": describe(model), "facts": facts, "of": _digest(record), "version": __version__}


def read_words(path: str) -> tuple[str, dict[str, Any]] | None:
    """Read what was kept beside a saved model, without loading the model.

    path: of this machine, or a URL. Returns text, and facts; None where nothing was kept, or something of it was
    changed, or another version wrote it: then the model has to be loaded.
    """
    head = Path(path).expanduser() / "zarr.json"
    try:
        if not head.is_file() or head.stat().st_size > _MOST:
            return None
        attributes = json.loads(head.read_bytes())["attributes"]
        words = attributes[TOLD]
        if words["of"] != _digest(attributes[_RECORD]) or words["version"] != __version__:
            return None
        text = "".join(char for char in words["text"] if char.isprintable() or char == "\n")
        return text, dict(json.loads(words["facts"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _digest(record: Any) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
