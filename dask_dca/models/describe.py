"""Descriptions of fitted models: facts for programs, tables and sentences for people.

They are also stored with a saved model, and can be read without importing NumPy.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dask_dca import __version__
from dask_dca.errors import without_secrets

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def anchor_facts(model: Any) -> list[dict[str, Any]]:
    """Collect row number and votes of each anchor of a fitted model, as plain values."""
    return vote_facts(model.anchor_indices_, model.votes_, model.vote_share_, model.vote_confidence_)


def plain_fact(value: Any) -> Any:
    """Convert an attribute to a plain value: arrays and tuples to lists, numbers that are not finite to None."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return [plain_fact(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def vote_facts(rows: Any, votes: Any, shares: Any, bounds: Any) -> list[dict[str, Any]]:
    """Convert row numbers (k,), votes (k,), their shares (k,) and bounds of these (k, 2) to plain values."""
    return [
        {"row": int(row), "votes": int(number), "vote_share": float(share), "bounds": [float(low), float(high)]}
        for row, number, share, (low, high) in zip(rows, votes, shares, bounds, strict=True)
    ]


def anchor_table(model: Any) -> list[str]:
    """Format the anchors of a fitted model and their votes as a table."""
    return vote_table(anchor_facts(model))


def vote_table(anchors: list[dict[str, Any]]) -> list[str]:
    """Format rows and their votes, from `vote_facts`, as a table."""
    lines = [f"{'anchor':>6} {'row':>10} {'votes':>7} {'share':>7}   95 % bounds"]
    for i, one in enumerate(anchors):
        bounds = "{:.3f} to {:.3f}".format(*one["bounds"])
        lines.append(f"{i:>6} {one['row']:>10} {one['votes']:>7} {one['vote_share']:>7.3f}   {bounds}")
    return lines


def certificate(model: Any) -> list[str]:
    """Describe coverage and explained variance of a fitted model in sentences."""
    least, most = model.n_components_range_
    lines = [
        f"The model explains {100 * model.explained_variance_ratio_:.1f} % of the variance of a sample of the rows."
    ]
    if math.isfinite(model.coverage_):
        reach = f"the anchors reach {100 * model.coverage_:.1f} % of the extent of the data"
        lines.insert(0, f"Coverage {model.coverage_:.3f}: on planes that took no part in choosing them, {reach}.")
    if model.n_components == "auto":
        rules = f"both suggest {least}" if least == most else f"suggest {least} and {most}"
        lines.append(f"The two rules that choose the number of anchors {rules}.")
    if model.n_zero_rows_:
        lines.append(f"{model.n_zero_rows_} rows are all zero and were left out.")
    return lines


def passes_of(model: Any) -> str:
    """Return the number of refining passes of a fitted model in words."""
    return f"{model.n_iter_} pass{'es' * (model.n_iter_ != 1)}"


def indices_of(model: Any) -> NDArray[np.int64]:
    """Return the row numbers (k,) of the anchors, or for a topic model the columns of its anchor words."""
    names = ("anchor_indices_", "anchor_words_", "indices")  # the last of `find_anchors`
    return getattr(model, next(name for name in names if hasattr(model, name)))


DESCRIPTION: Final = "dask_dca_told"  # attribute of a saved model's zarr group that holds its description
RECORD: Final = "dask_dca"  # attribute of a saved model's zarr group that holds the model itself
_MAX_BYTES: Final = 2**26  # maximum size of the metadata that are read for a description


def model_facts(model: Any) -> dict[str, Any]:
    """Collect the facts of a fitted model as names and plain values, as `info --json` prints them."""
    given = model.get_params(deep=False)
    shown = {name: without_secrets(value) if isinstance(value, str) else value for name, value in given.items()}
    return {"model": type(model).__name__, "version": __version__, "parameters": shown} | model._facts()


def describe(model: Any) -> str:
    """Describe a fitted model in a few lines of text and a table."""
    n = model.n_passes_
    read = "once" if n == 1 else f"{n} times"
    several = getattr(model, "n_sequences_", 1)
    missing = getattr(model, "n_missing_entries_", 0)
    lacking = "1 entry of the rows of the fit is" if missing == 1 else f"{missing} entries of the rows of the fit are"
    note = [f"{lacking} missing. {model._missing_note}"] * (missing > 0)
    lines = [f"Fitted to {several} sequences: pass the lengths of other data, too (--lengths or lengths=)."] * (
        several > 1
    )
    passes = f"The fit read all rows {read}; samples of them are not counted."
    return "\n".join([*model._describe(), *note, *lines, passes])


def plain(value: Any) -> Any:
    """Convert what JSON can't represent, NumPy's numbers and arrays and slices, to plain values."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def stored_description(model: Any, record: dict[str, Any]) -> dict[str, str] | None:
    """Return the description of a model, to be stored with it: text, and facts in JSON.

    record: the model as it is saved. Returns None for a model that was made from parameters, without a fit.
    """
    if not hasattr(model, "n_passes_"):
        return None
    facts = json.dumps(model_facts(model), default=plain)
    return {"text": describe(model), "facts": facts, "of": _digest(record), "version": __version__}


def read_description(path: str) -> tuple[str, dict[str, Any]] | None:
    """Read the description that was stored with a saved model, without loading the model.

    path: a local path, or a URL. Returns text and facts; None, so that the model must be loaded, if there is no
    description, the model was changed, or another version wrote it.
    """
    head = Path(path).expanduser() / "zarr.json"
    try:
        if not head.is_file() or head.stat().st_size > _MAX_BYTES:
            return None
        attributes = json.loads(head.read_bytes())["attributes"]
        words = attributes[DESCRIPTION]
        if words["of"] != _digest(attributes[RECORD]) or words["version"] != __version__:
            return None
        text = "".join(char for char in words["text"] if char.isprintable() or char == "\n")
        return text, dict(json.loads(words["facts"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _digest(record: Any) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
