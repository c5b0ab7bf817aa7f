"""Arrays of zarr stores whose chunks would be unpickled, which can run code, are not read."""

from __future__ import annotations

from typing import Any

from dask_dca.errors import InvalidInputError

__all__ = ["refuse_pickles"]


def refuse_pickles(array: Any) -> None:
    """
    Refuse an array that has a codec which unpickles.

    Parameters
    ----------
    array : zarr.Array
        The array; nothing of it is read.

    Raises
    ------
    InvalidInputError
        It has one.
    """
    metadata = array.metadata
    codecs = [*(getattr(metadata, "filters", None) or ()), getattr(metadata, "compressor", None)]
    codecs += list(getattr(metadata, "codecs", ()))
    names = [
        f"{getattr(codec, 'codec_id', '')} {type(codec).__name__}".lower() for codec in codecs if codec is not None
    ]
    if any("pickle" in name for name in names):
        msg = f"the chunks of {array.store_path} are pickles, which can run code, and are not read; write plain numbers"
        raise InvalidInputError(msg)
