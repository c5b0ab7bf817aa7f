"""Data for a report: their identity, and samples that are small enough for figures."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dask_dca.engine.advice import refuse_other_names
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.models.labelled import cube_of
from dask_dca.models.sequences import SequenceModel, no_sequences

_HASHED_RUNS: Final = (8, 4)  # number and length of the runs of rows that are hashed
_MAX_SAMPLED_ROWS: Final = 2000  # maximum number of rows of a sample
_RUN_ROWS: Final = 20  # length of the runs of a sample
_MAX_ENTRIES: Final = 20_000_000  # maximum number of entries of a sample
_MAX_WORK: Final = 400_000_000  # maximum product of the rows of a sample and the entries of the model


def data_identity(rows: Rows, run: Run) -> dict[str, Any]:
    """Identify data by size, dtype and a hash of 32 evenly spread rows, independently of chunks and container."""
    sample = fetch_rows(rows, spread_rows(rows.n_rows, *_HASHED_RUNS), run, missing=True) + 0.0  # -0 is 0
    sample[np.isnan(sample)] = np.nan  # one bit pattern
    content = hashlib.sha256(sample.tobytes()).hexdigest()
    return {"rows": rows.n_rows, "features": rows.n_features, "dtype": rows.dtype.str, "content": content}


@dataclass(frozen=True)
class DataSummary:
    """Data of a report, which match the model."""

    model: Any  # without feature names, which are checked before
    matrix: Any
    rows: Rows
    edges: Numbers | None = None  # of sequences

    @classmethod
    def of(cls, model: Any, X: Any, lengths: Any = None) -> DataSummary:
        """Open data for a report.

        X (n, p): data, as for the model; lengths (m,): of the sequences, for models of sequences.
        Raises InvalidInputError: features differ from those of the model, or lengths do not match.
        """
        rows, bare = as_rows(cube_of(model, X)), without_feature_names(model)
        if rows.n_features != model.n_features_in_:
            msg = f"data has {rows.n_features} features, but the model was fitted to {model.n_features_in_} features"
            raise InvalidInputError(msg)
        refuse_other_names(getattr(model, "feature_names_in_", None), rows.feature_names, "data", "the model")
        matrix = X if rows.kind != "memory" and rows.labels is None else rows.source
        return cls(bare, matrix, bare._rows(matrix, reset=False), _edges_of(model, rows, lengths))

    def identity(self) -> dict[str, Any]:
        """Identify the data by size, dtype and a hash of some rows."""
        return data_identity(self.rows, Run())

    def sample(self, size: int = 1) -> Floats:
        """Fetch evenly spread rows (m, p), at most 2,000, with NaN for missing entries.

        size: number of entries of the model with which each row is compared; large models get fewer rows.
        """
        most = int(np.clip(_MAX_WORK // max(size, 1), 10 * _RUN_ROWS, self._max_rows))
        return fetch_rows(
            self.rows, spread_rows(self.rows.n_rows, max(1, most // _RUN_ROWS), _RUN_ROWS), Run(), missing=True
        )

    @property
    def _max_rows(self) -> int:
        return int(np.clip(_MAX_ENTRIES // max(self.rows.n_features, 1), _RUN_ROWS, _MAX_SAMPLED_ROWS))

    def first_rows(self) -> Floats:
        """Fetch the first rows (m, p), at most 2,000, with NaN for missing entries."""
        part = self.rows.source[: self._max_rows]
        part = part.compute() if hasattr(part, "compute") else part
        return np.asarray(part.toarray() if hasattr(part, "toarray") else part, dtype=np.float64)

    def first_lengths(self) -> list[int]:
        """Return the lengths of the sequences of the first rows, the last one truncated."""
        assert self.edges is not None
        return np.diff(np.unique(np.minimum(self.edges, self._max_rows))).tolist()


def _edges_of(model: Any, rows: Rows, lengths: Any) -> Numbers | None:
    if isinstance(model, SequenceModel):
        return model._edges(rows, lengths)
    if lengths is not None:
        raise InvalidParameterError(no_sequences(model))
    return None


@dataclass(frozen=True)
class Inputs:
    """Optional inputs of a report: data, and the shape of rows as images."""

    summary: DataSummary | None = None
    shape: tuple[int, int] | None = None


def without_feature_names(model: Any) -> Any:
    """Copy a model without its feature names, so that it accepts arrays without a warning; a shallow copy."""
    made = copy.copy(model)
    if hasattr(made, "feature_names_in_"):
        del made.feature_names_in_
    return made


def check_shape(shape: tuple[int, int] | None, n_features: int) -> None:
    """Check the shape of rows as images.

    Raises InvalidParameterError: lines times columns is not the number of features.
    """
    if shape is not None and (min(shape) < 1 or shape[0] * shape[1] != n_features):
        msg = f"shape {shape[0]} x {shape[1]} holds {shape[0] * shape[1]} values, but rows have {n_features} features"
        raise InvalidParameterError(msg)
