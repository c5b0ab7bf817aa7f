"""What data say of a model: which data they are, and a sample of them, small for data of any size."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.identity import data_identity
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows, spread_rows
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.models.sequences import SequenceModel, no_sequences

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]

__all__ = ["Evidence", "Given", "check_shape", "nameless"]

_MOST: Final = 2000  # rows that are sampled, in runs of so many; of sequences the first frames, in one piece
_RUN: Final = 20
_ENTRIES: Final = 20_000_000  # of wide data fewer rows
_WORK: Final = 400_000_000  # rows times entries of the model: of large models fewer rows


@dataclass(frozen=True)
class Evidence:
    """Data that a report is made with, once they are known to fit the model."""

    model: Any  # without names of features: the data's are checked before
    matrix: Any
    rows: Rows
    edges: NDArray[np.int64] | None = None  # of sequences

    @classmethod
    def of(cls, model: Any, X: Any, lengths: Any = None) -> Evidence:
        """
        Take data for a report.

        Parameters
        ----------
        model : estimator
            A fitted model.
        X : array-like of shape (n, p)
            Data, as the model takes them.
        lengths : array-like of int, shape (m,), optional
            Frames of each sequence, for models of sequences.

        Returns
        -------
        Evidence
            The data.

        Raises
        ------
        InvalidInputError
            They have other features than the model, or are no such sequences.
        """
        rows, bare = as_rows(X), nameless(model)
        if rows.n_features != model.n_features_in_:
            msg = f"data has {rows.n_features} features, but the model was fitted to {model.n_features_in_} features"
            raise InvalidInputError(msg)
        fitted = getattr(model, "feature_names_in_", None)
        if fitted is not None and rows.feature_names is not None and list(fitted) != list(rows.feature_names):
            msg = (
                f"the columns {list(rows.feature_names)[:5]} ... are not those of the model, {fitted[:5].tolist()} ..."
            )
            raise InvalidInputError(msg)
        matrix = rows.source if rows.kind == "memory" else X
        return cls(bare, matrix, bare._rows(matrix, reset=False), _edges_of(model, rows, lengths))

    def identity(self) -> dict[str, Any]:
        """
        Say which data they are.

        Returns
        -------
        dict
            Number of rows and features, dtype, and a hash of some rows.
        """
        return data_identity(self.rows, Run())

    def sample(self, size: int = 1) -> Floats:
        """
        Bring rows that are spread over the data to this process.

        Parameters
        ----------
        size : int, default 1
            Number of entries of the model that each row is compared with.

        Returns
        -------
        ndarray of float64, shape (m, p)
            At most 2,000 rows.
        """
        most = int(np.clip(_WORK // max(size, 1), 10 * _RUN, self._most))
        return fetch_rows(self.rows, spread_rows(self.rows.n_rows, max(1, most // _RUN), _RUN), Run())

    @property
    def _most(self) -> int:
        return int(np.clip(_ENTRIES // max(self.rows.n_features, 1), _RUN, _MOST))

    def opening(self) -> Floats:
        """
        Bring the first rows to this process, missing entries as NaN.

        Returns
        -------
        ndarray of float64, shape (m, p)
            At most 2,000 rows.
        """
        part = self.rows.source[: self._most]
        part = part.compute() if hasattr(part, "compute") else part
        return np.asarray(part.toarray() if hasattr(part, "toarray") else part, dtype=np.float64)

    def opening_lengths(self) -> list[int]:
        """
        Say which sequences the first rows are.

        Returns
        -------
        list of int
            Their lengths, the last of them as far as it is among these rows.
        """
        assert self.edges is not None
        return np.diff(np.unique(np.minimum(self.edges, self._most))).tolist()


def _edges_of(model: Any, rows: Rows, lengths: Any) -> NDArray[np.int64] | None:
    if isinstance(model, SequenceModel):
        return model._edges(rows, lengths)
    if lengths is not None:
        raise InvalidParameterError(no_sequences(model))
    return None


@dataclass(frozen=True)
class Given:
    """What a report is made with besides the model."""

    evidence: Evidence | None = None
    shape: tuple[int, int] | None = None


def nameless(model: Any) -> Any:
    """
    Copy a model without the names of its features.

    Parameters
    ----------
    model : estimator
        A fitted model.

    Returns
    -------
    estimator
        A shallow copy, which takes bare arrays without a warning.
    """
    made = copy.copy(model)
    if hasattr(made, "feature_names_in_"):
        del made.feature_names_in_
    return made


def check_shape(shape: tuple[int, int] | None, n_features: int) -> None:
    """
    Refuse pictures of another size.

    Parameters
    ----------
    shape : tuple of int or None
        Lines and columns.
    n_features : int
        How many numbers a row has.

    Raises
    ------
    InvalidParameterError
        Lines times columns is another number.
    """
    if shape is not None and (min(shape) < 1 or shape[0] * shape[1] != n_features):
        msg = f"shape {shape[0]} x {shape[1]} holds {shape[0] * shape[1]} values, but rows have {n_features} features"
        raise InvalidParameterError(msg)
