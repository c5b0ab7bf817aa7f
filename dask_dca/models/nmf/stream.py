"""The stream of a factorization: how it begins, and how it stands among the fitted attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.anchoring.parameters import check_integer
from dask_dca.anchoring.stream import AnchorStream, FixedPlanes, KeptRows, begin
from dask_dca.engine.tiles import RowCensus
from dask_dca.errors import InvalidParameterError, ModelFileError
from dask_dca.geometry.coordinates import ratios
from dask_dca.models.attributes import COMMON

if TYPE_CHECKING:
    from dask_dca.anchoring.parameters import Settings


def can_stream(model: Any) -> bool:
    """Tell that a model's planes can be fixed beforehand.

    Raises InvalidParameterError: the number of anchors is "auto", or the method is the paper's.
    """
    if model.n_components == "auto":
        msg = "the planes of a stream are fixed before its first row: pass an integer instead of n_components='auto'"
        raise InvalidParameterError(msg)
    if model.method != "robust":
        msg = f"method={model.method!r} is for fit(X) alone; a stream takes method='robust'"
        raise InvalidParameterError(msg)
    return True


def check_stream(model: Any) -> int:
    """Refuse parameters that a stream has no use for.

    Returns the number of anchors.
    Raises InvalidParameterError: it is "auto", or planes are asked for that depend on the data.
    """
    can_stream(model)
    if model.known is not None:
        msg = "known anchors are for fit(X) alone; a stream takes known=None"
        raise InvalidParameterError(msg)
    for name, allowed in (("basis", ("rows",)), ("ensemble", ("auto", "gaussian")), ("selection", ("auto",))):
        value = getattr(model, name)
        if value not in allowed:
            msg = f"{name}={value!r} is for fit(X) alone; a stream takes {name}={allowed[0]!r}"
            raise InvalidParameterError(msg)
    return check_integer("n_components", model.n_components, 1)


def check_resumed(model: Any, kind: type) -> int:
    """Check the model that a fit shall go on from.

    Returns the number of rows that it saw.
    Raises InvalidParameterError: it is no fitted model of this kind.
    """
    if not isinstance(model, kind) or not hasattr(model, "n_samples_seen_"):
        msg = f"resume must be a fitted {kind.__name__}, of the first rows of X; received {model!r}"
        raise InvalidParameterError(msg)
    return int(model.n_samples_seen_)


def check_same_stream(model: Any, other: Any) -> None:
    """Check that two models can be put together.

    Raises InvalidParameterError: one has no stream, or their planes, features or numbers of anchors differ.
    """
    for part in (model, other):
        if not hasattr(part, "stream_rows_"):
            msg = "models that were fitted by fit(X) keep no extreme rows: fit both by partial_fit(X), then merge them"
            raise InvalidParameterError(msg)
    for name in ("n_components", "n_features_in_", "n_subproblems_", "stream_seed_"):
        own, foreign = getattr(model, name), getattr(other, name)
        if own != foreign:
            what = "random_state, an integer" if name == "stream_seed_" else name.rstrip("_")
            msg = f"the models differ in {name}: {own} and {foreign}; fit both by partial_fit with the same {what}"
            raise InvalidParameterError(msg)


def keep_features_of(model: Any, earlier: Any) -> None:
    """Keep the features of an earlier model, which the data that follow must have too."""
    for name in COMMON.keys() - {"n_passes_"}:
        if hasattr(earlier, name):
            setattr(model, name, getattr(earlier, name))


def stream_of(earlier: Any, settings: Settings, n_components: int, n_features: int) -> AnchorStream:
    """Take up a stream: of an earlier model, or a new one if that is None.

    Where `fit` made the model, its anchors stand for the rows that it saw.
    Raises ModelFileError: the model was loaded, and what it holds can't be gone on from.
    """
    if hasattr(earlier, "stream_rows_"):
        return _of_attributes(earlier)
    stream = begin(settings.seed >> 2, settings.n_subproblems, n_components, n_features)
    if earlier is None:
        return stream
    rows = earlier.components_.astype(np.float64)
    kept = KeptRows.of_rows(rows, ratios(rows)[0], earlier.anchor_indices_, stream.planes)
    return AnchorStream(stream.planes, kept, earlier.n_samples_seen_, _census_of(earlier))


def _of_attributes(earlier: Any) -> AnchorStream:
    count, holders = int(earlier.n_subproblems_), earlier.stream_extremes_
    fresh = holders.shape[1] - count
    if fresh < 1 or holders.max() >= len(earlier.stream_rows_):
        msg = f"the stream of the model, {holders.shape[1]} planes and {len(earlier.stream_rows_)} rows, is damaged"
        raise ModelFileError(msg)
    planes = FixedPlanes(int(earlier.stream_seed_), count, fresh, earlier.n_features_in_)
    kept = KeptRows.again(earlier.stream_rows_, earlier.stream_numbers_, holders, planes)
    return AnchorStream(planes, kept, earlier.n_samples_seen_, _census_of(earlier))


def _census_of(earlier: Any) -> RowCensus:
    return RowCensus(earlier.n_zero_rows_, 0, earlier.n_clipped_entries_)


def keep_stream(model: Any, stream: AnchorStream) -> None:
    """Keep a stream as fitted attributes, so that a saved model goes on."""
    model.n_samples_seen_, model.stream_seed_ = stream.n_rows, stream.planes.seed
    model.stream_rows_, model.stream_numbers_ = stream.kept.rows, stream.kept.numbers
    model.stream_extremes_ = stream.kept.holders
