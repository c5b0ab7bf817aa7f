"""What data say of a model: which data they are, and a sample of them, small enough for drawings."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.advice import refuse_other_names
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.models.labelled import cube_of
from dask_dca.models.sequences import SequenceModel, no_sequences

if TYPE_CHECKING:
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers


_RUNS: Final = (8, 4)  # runs of rows that are hashed, and their length
_MOST: Final = 2000  # rows that are sampled, in runs of that many; of sequences the first frames, in one piece
_RUN: Final = 20
_ENTRIES: Final = 20_000_000  # of wide data fewer rows
_WORK: Final = 400_000_000  # rows times entries of the model: of large models fewer rows


def data_identity(rows: Rows, run: Run) -> dict[str, Any]:
    """Say which data a fit is of.

    Returns number of rows and features, dtype, and a hash of 32 rows spread over the data: the same for any chunks and
    any container.
    """
    sample = fetch_rows(rows, spread_rows(rows.n_rows, *_RUNS), run, holes=True) + 0.0  # -0 is 0
    sample[np.isnan(sample)] = np.nan  # of one form
    content = hashlib.sha256(sample.tobytes()).hexdigest()
    return {"rows": rows.n_rows, "features": rows.n_features, "dtype": rows.dtype.str, "content": content}


@dataclass(frozen=True)
class DataSummary:
    """Data that a report is made with, once they are known to fit the model."""

    model: Any  # without names of features: the data's are checked before
    matrix: Any
    rows: Rows
    edges: Numbers | None = None  # of sequences

    @classmethod
    def of(cls, model: Any, X: Any, lengths: Any = None) -> DataSummary:
        """Take data for a report.

        X (n, p): data, as the model takes them; lengths (m,): frames of each sequence, for models of sequences.
        Raises InvalidInputError: they have other features than the model, or are no such sequences.
        """
        rows, bare = as_rows(cube_of(model, X)), nameless(model)
        if rows.n_features != model.n_features_in_:
            msg = f"data has {rows.n_features} features, but the model was fitted to {model.n_features_in_} features"
            raise InvalidInputError(msg)
        refuse_other_names(getattr(model, "feature_names_in_", None), rows.feature_names, "data", "the model")
        matrix = X if rows.kind != "memory" and rows.labels is None else rows.source
        return cls(bare, matrix, bare._rows(matrix, reset=False), _edges_of(model, rows, lengths))

    def identity(self) -> dict[str, Any]:
        """Say which data they are.

        Returns number of rows and features, dtype, and a hash of some rows.
        """
        return data_identity(self.rows, Run())

    def sample(self, size: int = 1) -> Floats:
        """Bring rows that are spread over the data to this process.

        size: number of entries of the model that each row is compared with. Returns (m, p): at most 2,000 rows, their
        missing entries NaN.
        """
        most = int(np.clip(_WORK // max(size, 1), 10 * _RUN, self._most))
        return fetch_rows(self.rows, spread_rows(self.rows.n_rows, max(1, most // _RUN), _RUN), Run(), holes=True)

    @property
    def _most(self) -> int:
        return int(np.clip(_ENTRIES // max(self.rows.n_features, 1), _RUN, _MOST))

    def opening(self) -> Floats:
        """Bring the first rows to this process, missing entries as NaN.

        Returns (m, p): at most 2,000 rows.
        """
        part = self.rows.source[: self._most]
        part = part.compute() if hasattr(part, "compute") else part
        return np.asarray(part.toarray() if hasattr(part, "toarray") else part, dtype=np.float64)

    def opening_lengths(self) -> list[int]:
        """Say which sequences the first rows are.

        Returns their lengths, the last of them as far as it is among these rows.
        """
        assert self.edges is not None
        return np.diff(np.unique(np.minimum(self.edges, self._most))).tolist()


def _edges_of(model: Any, rows: Rows, lengths: Any) -> Numbers | None:
    if isinstance(model, SequenceModel):
        return model._edges(rows, lengths)
    if lengths is not None:
        raise InvalidParameterError(no_sequences(model))
    return None


@dataclass(frozen=True)
class Given:
    """What a report is made with besides the model."""

    evidence: DataSummary | None = None
    shape: tuple[int, int] | None = None


def nameless(model: Any) -> Any:
    """Copy a model without the names of its features.

    Returns a shallow copy, which takes bare arrays without a warning.
    """
    made = copy.copy(model)
    if hasattr(made, "feature_names_in_"):
        del made.feature_names_in_
    return made


def check_shape(shape: tuple[int, int] | None, n_features: int) -> None:
    """Refuse pictures of another size.

    n_features: how many numbers a row has.
    Raises InvalidParameterError: lines times columns is another number.
    """
    if shape is not None and (min(shape) < 1 or shape[0] * shape[1] != n_features):
        msg = f"shape {shape[0]} x {shape[1]} holds {shape[0] * shape[1]} values, but rows have {n_features} features"
        raise InvalidParameterError(msg)
