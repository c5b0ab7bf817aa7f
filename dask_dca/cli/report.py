"""What the command `dask dca report` does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dask_dca.cli.jobs import lengths_of, match_names, opened
from dask_dca.errors import InvalidParameterError
from dask_dca.output import check_apart
from dask_dca.reporting.page import check_page, report
from dask_dca.store import load_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dask_dca.cli.results import OpenedCube


def write_report(
    model: str,
    output: str | None = None,
    *,
    data: str | None = None,
    array: str | None = None,
    features: str | None = None,
    lengths: Sequence[int] | None = None,
    shape: str | None = None,
    title: str | None = None,
    date: str | None = None,
    overwrite: bool = False,
) -> str:
    """
    Write the page of a model by path, or return its text.

    Parameters
    ----------
    model : str
        Path or URL of the saved model.
    output : str, optional
        Path or URL of the page; without one the report is plain text.
    data : str, optional
        Path or URL of the data.
    array : str, optional
        Which array of a zarr group the data are.
    features : str, optional
        Which dimensions of a cube the features are; all others are rows.
    lengths : sequence of int, optional
        Lengths of the sequences that the rows are, for models of sequences.
    shape : str, optional
        Lines x columns, where rows are pictures.
    title, date : str, optional
        Title and date of the page.
    overwrite : bool, default False
        Replace an HTML page that is there.

    Returns
    -------
    str
        The page, or the text.

    Raises
    ------
    DCAError
        Unusable paths, data or options; nothing is written then.
    """
    size = None if shape is None else _shape(shape)
    if output is not None:
        check_apart(output, model, *([] if data is None else [data]))
        check_page(output, overwrite=overwrite)
    loaded = load_model(model)
    matrix = None
    if data is not None:
        matrix, cube = _matrix(loaded, model, data, array, features)
        lengths = lengths_of(loaded, lengths, cube)
    form = "html" if output is not None else "text"
    return report(loaded, output, data=matrix, lengths=lengths, shape=size, title=title, date=date, form=form,
                  overwrite=overwrite)  # fmt: skip


def _shape(given: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,6})[xX]([0-9]{1,6})", given)
    if found is None:
        msg = f"--shape must be lines x columns like 28x28; received {given!r}"
        raise InvalidParameterError(msg)
    return int(found[1]), int(found[2])


def _matrix(
    model: Any, model_path: str, data: str, array: str | None, features: str | None
) -> tuple[Any, OpenedCube | None]:
    """Open the data, and compare the names of columns that a table has with those of the model."""
    given, cube = opened(data, array, features, model)
    match_names(model, model_path, given, cube, data)
    return given.matrix, cube
