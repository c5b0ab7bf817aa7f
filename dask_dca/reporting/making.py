"""How a model was made: parameters, library, a fingerprint of what was fitted, the data."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca import __version__
from dask_dca.errors import without_secrets
from dask_dca.reporting.parts import Table
from dask_dca.reporting.wording import sequences_of, shortened

if TYPE_CHECKING:
    from dask_dca.reporting.evidence import Evidence

__all__ = ["call_of", "made_table", "parameter_table"]

_PLAIN: Final = (bool, int, float, str, type(None), np.generic)


def parameter_table(model: Any) -> Table:
    """
    Set a model's parameters in a table.

    Parameters
    ----------
    model : estimator
        Any of the models.

    Returns
    -------
    Table
        Name, value, and whether it is the default.
    """
    usual = type(model)().get_params(deep=False)
    lines = []
    for name, value in model.get_params(deep=False).items():
        shown = _plain(value)
        lines.append((name, shown, "default" if shown == _plain(usual[name]) else "chosen"))
    return Table("Parameters", ("parameter", "value", "chosen or default"), tuple(lines))


def call_of(model: Any) -> str:
    """
    Write the call that makes a model of the same parameters.

    Parameters
    ----------
    model : estimator
        Any of the models.

    Returns
    -------
    str
        The class with the parameters that are not the default.
    """
    chosen = [f"{name}={value}" for name, value, kind in parameter_table(model).rows if kind == "chosen"]
    return f"{type(model).__name__}({', '.join(chosen)})"


def _plain(value: Any) -> str:
    """Write a value without anything that changes from run to run, such as an address in memory."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return shortened(without_secrets(repr(value)), 60)
    if isinstance(value, list | tuple):
        return shortened(
            "[" + ", ".join(_plain(part) for part in value[:20]) + (", ..." if len(value) > 20 else "") + "]", 60
        )
    return type(value).__name__


def made_table(model: Any, evidence: Evidence | None, date: str | None) -> Table:
    """
    Say where a model and its page come from.

    Parameters
    ----------
    model : estimator
        A fitted model.
    evidence : Evidence or None
        The data that the page was made with.
    date : str or None
        A date to write, as given.

    Returns
    -------
    Table
        Names and values.
    """
    lines = [
        ("model", f"dask_dca.{type(model).__name__}"),
        ("features", f"{model.n_features_in_:,}" + (", with names" if hasattr(model, "feature_names_in_") else "")),
        ("fingerprint of what was fitted", _fingerprint(model)),
        ("page written by", f"dask-dca {__version__}"),
    ]
    if getattr(model, "n_sequences_", 1) > 1:
        lines.insert(2, ("sequences", f"{model.n_sequences_:,}"))
    if getattr(model, "n_passes_", 0):
        lines.insert(2, ("passes over all rows", f"{model.n_passes_}"))
    if evidence is not None:
        known = evidence.identity()
        size = f"{known['rows']:,} rows of {known['features']:,} features, {np.dtype(known['dtype']).name}"
        if evidence.edges is not None:
            size += f", read as {sequences_of(np.diff(evidence.edges).tolist())}"
        lines.append(("data", size))
        lines.append(("fingerprint of the data (shape, type and 32 rows)", known["content"][:16]))
    if date is not None:
        lines.append(("date", shortened(date)))
    return Table("Origin", ("what", "value"), tuple(lines))


def _fingerprint(model: Any) -> str:
    """Hash the fitted arrays: the same for a model that was saved and loaded."""
    held = hashlib.sha256()
    for name, value in sorted(vars(model).items()):
        fitted = name.endswith("_") and not name.startswith("_") and name != "labels_"  # these are not saved
        if fitted and isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            held.update(f"{name} {value.dtype.str} {value.shape}".encode())
            held.update(np.ascontiguousarray(value).tobytes())
    return held.hexdigest()[:16]
