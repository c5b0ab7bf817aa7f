"""What models of sequences share: where these begin, and whether the caller has said so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask_dca.engine.sequences import as_edges
from dask_dca.errors import SequenceWarning, warn
from dask_dca.models.base import AnchorModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows

__all__ = ["SequenceModel", "no_sequences"]


class SequenceModel(AnchorModel):
    """Base of the models of sequences, whose methods take their lengths; not for direct use."""

    n_sequences_: int

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {"n_sequences": self.n_sequences_}

    def _edges(self, rows: Rows, lengths: Any) -> NDArray[np.int64]:
        """Where sequences begin; a model of several says so if it is given rows without their lengths."""
        edges, fitted = as_edges(lengths, rows.n_rows), getattr(self, "n_sequences_", 1)
        if lengths is None and fitted > 1:
            warn(
                f"the model was fitted to {fitted} sequences, and X is taken for one of {rows.n_rows} frames; pass "
                f"lengths=[...] (--lengths), the frames of each, or lengths=[{rows.n_rows}] if it is one",
                SequenceWarning,
            )
        return edges


def no_sequences(model: Any) -> str:
    """Say that a model has no use for lengths.

    model: A model of single rows. Returns the message of an error.
    """
    return f"lengths are for models of sequences, and {type(model).__name__} takes single rows; leave --lengths out"
