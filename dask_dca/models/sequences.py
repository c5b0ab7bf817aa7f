"""Base class of models of sequences; lengths and ids of sequences, and checks of frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dask_dca.anchoring.parameters import check_integer
from dask_dca.engine.advice import Form, array_per_row, form_of, is_matrix
from dask_dca.engine.cubes import Labels
from dask_dca.engine.graphs import as_dask
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sequences import as_edges
from dask_dca.engine.stores import is_a
from dask_dca.engine.tables import to_pandas_table
from dask_dca.errors import MARK, InvalidInputError, InvalidParameterError, NotNumbersError, SequenceWarning, warn
from dask_dca.models.base import AnchorModel


def by_groups(X: Any, lengths: Any, groups: Any) -> tuple[Any, Any]:
    """Convert sequence ids to lengths; return X, without a column of ids, and the lengths.

    groups (n,): id of each frame's sequence, or the name of a column or index level of a DataFrame, or of a coordinate
    of an xarray.DataArray; None to return X and lengths unchanged.
    Raises InvalidInputError: lengths are given, too, ids are missing, or the frames of a sequence are not contiguous.
    """
    if groups is None:
        return X, lengths
    if lengths is not None:
        msg = "lengths and groups have the same meaning; pass one of them"
        raise InvalidInputError(msg)
    X, ids = _split_ids(to_pandas_table(X), groups) if isinstance(groups, str) else (X, groups)
    ids = np.asarray(array_per_row("groups", ids.compute() if hasattr(ids, "compute") else ids))
    if ids.ndim != 1 or ids.dtype.kind == "V":
        msg = f"groups must be one id per frame; received an array of shape {ids.shape} and dtype {ids.dtype}"
        raise InvalidInputError(msg)
    n_frames = getattr(X, "shape", (len(ids),))[0]
    if isinstance(n_frames, int) and n_frames != len(ids):
        msg = f"groups has {len(ids)} ids for {n_frames} frames; pass one per frame"
        raise InvalidInputError(msg)
    return X, _run_lengths(ids)


def _split_ids(X: Any, name: str) -> tuple[Any, Any]:
    """Split X into the data and the ids of this name."""
    if is_a(X, "pandas", "DataFrame") or hasattr(X, "map_partitions"):
        if name in X.columns:
            return X.drop(columns=name), X[name]
        if name in getattr(X.index, "names", [X.index.name]):
            return X, X.index.get_level_values(name) if hasattr(X.index, "get_level_values") else X.index
    elif is_a(X, "xarray", "DataArray") and name in X.coords:
        return X, X[name].values
    elif is_a(X, "anndata", "AnnData") and name in X.obs:
        return X, X.obs[name]
    kind = type(X).__name__
    msg = f"groups={name!r} is not a column, index level or coordinate of X, a {kind}; pass the ids themselves"
    raise InvalidInputError(msg)


def _run_lengths(ids: Any) -> Any:
    missing = np.asarray([value is None or value != value for value in ids.tolist()], dtype=bool)
    if missing.any():
        msg = f"groups has no id for frame {int(missing.argmax())}; drop such frames, or give them one"
        raise InvalidInputError(msg)
    begins = np.flatnonzero(np.append(True, ids[1:] != ids[:-1])) if len(ids) else np.zeros(0, dtype=np.int64)
    seen: set[Any] = set()
    for begin in begins.tolist():
        if ids[begin] in seen:
            msg = (
                f"the frames of a sequence must follow each other, and {ids[begin]!s} begins again at frame {begin}; "
                "sort by it, in a way that keeps the order of time: order = np.argsort(ids, kind='stable')"
            )
            raise InvalidInputError(msg)
        seen.add(ids[begin])
    return np.diff(np.append(begins, len(ids)))


class SequenceModel(AnchorModel):
    """Base of models of sequences, whose methods take lengths; not for direct use."""

    _told: ClassVar[tuple[str, ...]] = ("n_sequences",)

    n_sequences_: int

    def _rows(self, X: Any, *, reset: bool) -> Rows:
        """Convert matrices, one per sequence, or a cube of sequences of equal length, to the rows of all of them."""
        joined, lengths = join_sequences(X)
        try:
            rows = super()._rows(joined, reset=reset)
        except NotNumbersError as error:
            if not hasattr(X, "columns"):
                raise
            msg = f"{error}; if a column holds the ids of sequences, pass its name as groups="
            raise NotNumbersError(msg) from error
        labels = rows.labels if isinstance(rows.labels, Labels) else None
        time = None if labels is None else str(labels.rows[-1])
        if reset:
            self.__dict__.pop("time_dim_in_", None)
            if time is not None:
                self.time_dim_in_ = time
        elif labels is not None and labels.rows == (getattr(self, "time_dim_in_", None),):
            rows = replace(rows, lengths=(rows.n_rows,))  # a single sequence, where the fit had several side by side
        elif labels is not None and rows.lengths is not None and time != getattr(self, "time_dim_in_", time):
            msg = (
                f"frames of the fit are along {self.time_dim_in_!r}, and those of this Cube along {time!r}, the last "
                f"dimension of its rows; pass the labelled data themselves, or X.transpose(..., {self.time_dim_in_!r}, "
                f"{labels.feature_name!r})"
            )
            raise InvalidInputError(msg)
        return rows if lengths is None else replace(rows, lengths=lengths, form=self._form_of(X))

    def _form_of(self, X: Any, form: Form | None = None) -> Form:
        several = is_matrix(X[0]) if isinstance(X, list | tuple) and X else _is_cube(X)
        form = replace(form_of(X[0]), parts=True) if several else super()._form_of(X, form)
        return replace(form, missing=self._advice[0], infinite=self._advice[1])

    @property
    def _advice(self) -> tuple[str, str]:
        """Advice on missing and on infinite entries, as frames can't be left out of a sequence."""
        if self.method == "paper":
            return "method='robust' takes missing entries", f"mark them as NaN for method='robust': {MARK}"
        return (
            "leave out sequences that have any; fit(X) without init takes them",
            f"mark them as NaN: {MARK}",
        )

    def _edges_to_fit(self, rows: Rows, y: Any, lengths: Any) -> NDArray[np.int64]:
        """Boundaries of the sequences of a fit; the rows' dimension is that of time if there is a single sequence."""
        edges = as_edges(self._lengths(rows, y, lengths), rows.n_rows)
        if rows.lengths is None and len(edges) > 2:
            self.__dict__.pop("time_dim_in_", None)
        return edges

    def _lengths(self, rows: Rows, y: Any, lengths: Any) -> Any:
        """Lengths that were given: by name, by the input itself, or in place of y."""
        if lengths is None:
            lengths = rows.lengths
        return lengths_in_place_of_y(y, rows.n_rows) if lengths is None else lengths

    def _edges(self, rows: Rows, lengths: Any) -> NDArray[np.int64]:
        """Boundaries of sequences; warn if the model was fitted to several, and no lengths are given."""
        lengths = self._lengths(rows, None, lengths)
        edges, fitted = as_edges(lengths, rows.n_rows), getattr(self, "n_sequences_", 1)
        if lengths is None and fitted > 1:
            warn(
                f"the model was fitted to {fitted} sequences, and X is taken for one of {rows.n_rows} frames; pass "
                f"lengths=[...] (--lengths), the frames of each, or lengths=[{rows.n_rows}] if it is one",
                SequenceWarning,
            )
        return edges


def join_sequences(X: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Concatenate sequences; return the rows, and the number of frames of each sequence, None for a single matrix.

    X: a list of matrices (frames, channels) of any kind; or a cube (sequences, frames, channels): NumPy, Dask or zarr.
    Anything else is returned unchanged.
    Raises InvalidInputError: matrices differ in their channels.
    """
    if isinstance(X, list | tuple) and X and all(is_matrix(part) for part in X):
        return _concatenate_rows(X)
    if not _is_cube(X):
        return X, None
    if is_a(X, "zarr", "Array"):
        import dask.array as da

        X = da.from_zarr(X)
    return X.reshape(-1, X.shape[2]), (X.shape[1],) * X.shape[0]


def _is_cube(X: Any) -> bool:
    """Whether X is a cube (sequences, frames, channels) without names."""
    return (isinstance(X, np.ndarray) or is_a(X, "dask.array", "Array") or is_a(X, "zarr", "Array")) and X.ndim == 3


def _concatenate_rows(X: Sequence[Any]) -> tuple[Rows, tuple[int, ...]]:
    """Concatenate the rows of matrices that are not empty."""
    some = [part for part in X if not isinstance(part.shape[0], int) or part.shape[0]]
    parts = [as_rows(part) for part in some or X[:1]]
    widths = sorted({part.n_features for part in parts})
    if len(widths) > 1:
        msg = f"sequences must have the same channels; received {widths[0]} and {widths[-1]} columns"
        raise InvalidInputError(msg)
    named = [part.feature_names for part in parts if part.feature_names is not None]
    for names in named:
        if names.tolist() != named[0].tolist():
            msg = (
                f"sequences must have the same channels; one has {named[0][:5].tolist()}, another "
                f"{names[:5].tolist()}; pass those of the first: [part[X[0].columns] for part in X]"
            )
            raise InvalidInputError(msg)
    rows = as_rows(_concatenate_arrays(parts))
    return replace(rows, feature_names=named[0] if named else None), tuple(part.n_rows for part in parts)


def _concatenate_arrays(parts: Sequence[Rows]) -> Any:
    """Concatenate arrays: in memory if all are, sparse if all are."""
    sources = [part.source for part in parts]
    if any(part.kind != "memory" for part in parts):
        import dask.array as da

        return da.concatenate([as_dask(part).source for part in parts])
    if all(map(sparse.issparse, sources)):
        return sparse.vstack(sources, format="csr")
    return np.concatenate([part.toarray() if sparse.issparse(part) else part for part in sources])


def lengths_in_place_of_y(y: Any, n_rows: int) -> NDArray[np.int64] | None:
    """Return lengths that were passed by position, in place of y, as hmmlearn accepts them, with a warning.

    y: integers that add up to the number of rows; or labels, one per row, for which None is returned.
    """
    if y is None or np.ndim(y) != 1 or len(y) == n_rows:
        return None
    found = np.asarray(y)
    if found.dtype.kind not in "iu" or found.sum() != n_rows:
        total = f", which add up to {found.sum()}" if found.dtype.kind in "iu" else ""
        msg = f"y has {len(found)} entries{total}, for {n_rows} rows: neither labels nor lengths; pass lengths=[...]"
        raise InvalidInputError(msg)
    warn("lengths were passed by position, in place of y: pass lengths=[...]", SequenceWarning)
    return found


def check_vector(name: str, values: Any, size: int, *, missing: bool = False) -> NDArray[np.float64]:
    """Check a single frame or state, and return it as (size,); missing: whether NaN and masked entries are allowed.

    Raises InvalidInputError: it has another size, or is not finite.
    """
    try:
        found = np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan).ravel()
    except (TypeError, ValueError) as error:
        msg = f"{name} must be {size} numbers; received {values!r:.80}"
        raise InvalidInputError(msg) from error
    if len(found) != size:
        msg = f"{name} must have {size} entries; received {len(found)}"
        raise InvalidInputError(msg)
    if not (np.isfinite(found) | (np.isnan(found) & missing)).all():
        msg = f"{name} must be finite; received {found[~np.isfinite(found)][0]}: pass None for a missing frame"
        raise InvalidInputError(msg)
    return found


def check_steps(n_steps: Any) -> int:
    """Check a number of steps ahead; raise InvalidParameterError if it is not positive, or lengths by position."""
    if np.ndim(n_steps):
        msg = f"n_steps comes before lengths: pass lengths={n_steps!r:.80} by name"
        raise InvalidParameterError(msg)
    return check_integer("n_steps", n_steps, 1)


def no_sequences(model: Any) -> str:
    """Return the error message for lengths passed to a model of single rows."""
    return f"lengths are for models of sequences, and {type(model).__name__} takes single rows; leave --lengths out"
