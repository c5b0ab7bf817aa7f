"""What the commands do: fit, transform and describe models by path."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from dask.system import CPU_COUNT

import dask_dca
from dask_dca.anchoring.parameters import check_count
from dask_dca.cli.clusters import Where, connected
from dask_dca.cli.results import check_result, file_ending, row_result, write_file
from dask_dca.engine.progress import is_watched
from dask_dca.engine.rows import as_rows
from dask_dca.errors import InvalidInputError, InvalidParameterError, naming_columns
from dask_dca.inputs import Data, open_data
from dask_dca.models.sequences import SequenceModel, no_sequences
from dask_dca.output import check_apart, check_target, written_beside
from dask_dca.store import load_model, save_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["fit", "transform"]

_DRAIN: Final = 60  # seconds to wait for tasks that still write when a transform is given up


def fit(
    kind: str,
    data: str,
    out: str,
    parameters: Mapping[str, Any],
    where: Where | None = None,
    *,
    array: str | None = None,
    lengths: Sequence[int] | None = None,
    views: Sequence[range] | None = None,
    overwrite: bool = False,
) -> Any:
    """
    Fit a model to data at a path, and save it.

    Parameters
    ----------
    kind : str
        Name of the model's class.
    data : str
        Path or URL of the matrix.
    out : str
        Path or URL of the model.
    parameters : dict
        Parameters of the class.
    where : Where, optional
        Cluster to run on.
    array : str, optional
        Which array of a zarr group.
    lengths : sequence of int, optional
        Lengths of the sequences that the rows are, for models of sequences.
    views : sequence of range, optional
        Groups of columns, for mixtures.
    overwrite : bool, default False
        Replace a model that is there.

    Returns
    -------
    estimator
        The fitted model, saved at `out`.

    Raises
    ------
    DCAError
        Unusable paths, data or parameters; nothing is written then.
    """
    check_target(out, overwrite=overwrite)
    check_apart(out, data)
    given = open_data(data, array)
    chosen = {**parameters, **({} if views is None else {"views": _columns_of(views, given)})}
    model = getattr(dask_dca, kind)(**chosen)
    model._anchoring()
    check_count(getattr(model, model._count), as_rows(given.matrix), "k")
    with connected(where or Where()), naming_columns(given.names):
        model.fit(given.matrix, **({} if lengths is None else {"lengths": lengths}))
    if given.is_bare_table:
        print(f"{data}: {given}, no header", file=sys.stderr)
    if given.names is not None:
        model.feature_names_in_ = np.array(given.names, dtype=object)
    save_model(model, out, overwrite=overwrite)
    return model


def _columns_of(views: Sequence[range], given: Data) -> list[list[int]]:
    """List the columns of ranges, none of them longer than the data are wide."""
    p = given.matrix.shape[1]
    for part in views:
        if part.stop > p:
            msg = f"--views {part.start}:{part.stop} goes beyond the data, which have {p} columns; end at {p}"
            raise InvalidParameterError(msg)
    return [list(part) for part in views]


def transform(
    model_path: str,
    data: str,
    out: str,
    where: Where | None = None,
    *,
    array: str | None = None,
    lengths: Sequence[int] | None = None,
    what: str | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> tuple[int, int]:
    """
    Write what a model says of each row of data at a path: a zarr array chunk by chunk, or a file at once.

    Coefficients, posterior probabilities, states or labels: what the model's class gives per row.

    Parameters
    ----------
    model_path : str
        Path or URL of the model.
    data : str
        Path or URL of the matrix.
    out : str
        Path or URL of the result: a zarr array, or a local path that ends in .npy, .csv, .tsv or .parquet.
    where : Where, optional
        Cluster to run on.
    array : str, optional
        Which array of a zarr group.
    lengths : sequence of int, optional
        Lengths of the sequences that the rows are, for models of sequences.
    what : str, optional
        Name of the model's method that is called; else the usual one of its class.
    overwrite : bool, default False
        Replace a zarr array, or file of the same kind, that is there.
    progress : bool, default False
        Show progress on standard error.

    Returns
    -------
    tuple of int
        Shape of what was written.

    Raises
    ------
    DCAError
        Unusable paths or data; nothing is left behind then.
    """
    check_result(out, overwrite=overwrite)
    check_apart(out, data, model_path)
    model = load_model(model_path)
    given = open_data(data, array)
    _match_names(model, given)
    if lengths is not None and not isinstance(model, SequenceModel):
        raise InvalidParameterError(no_sequences(model))
    result = row_result(model, what, given.matrix, lengths)
    if file_ending(out):
        with connected(where or Where()):
            values = result if isinstance(result, np.ndarray) else result.compute()
        write_file(out, values, _columns(what or model._per_row, values.shape[1]), overwrite=overwrite)
    else:
        about = {"model": type(model).__name__, "what": what or model._per_row}
        with written_beside(out, overwrite=overwrite) as place, connected(where or Where()) as client:
            _write(result, place, client, about, progress=progress)
    n, k = result.shape
    return n, k


def _columns(what: str, count: int) -> list[str]:
    return [what] if count == 1 else [f"{what}_{j}" for j in range(count)]


def _match_names(model: Any, given: Data) -> None:
    """Compare the names of columns, which data opened by path carry beside the matrix."""
    fitted = getattr(model, "feature_names_in_", None)
    if fitted is None:
        return
    del model.feature_names_in_
    if given.names is not None and given.names != fitted.tolist():
        msg = f"the columns {given.names[:5]} ... are not those of the model, {fitted[:5].tolist()} ...; reorder them"
        raise InvalidInputError(msg)


def _write(result: Any, place: str, client: Any, about: dict[str, str], *, progress: bool) -> None:
    import zarr

    chunked = not isinstance(result, np.ndarray)
    chunk = max(1, max(result.chunks[0], default=1) if chunked else len(result))
    target = zarr.create_array(
        place,
        shape=result.shape,
        chunks=(chunk, result.shape[1]),
        dtype=result.dtype,
        dimension_names=("row", "component"),
        attributes=about,
    )
    if not chunked:
        target[...] = result
        return
    import dask.array as da

    from dask_dca.engine.shared_stores import shared_array

    stored = da.store(result, shared_array(target, complain=False), lock=False, compute=False)
    if client is None:
        _compute_here(stored, progress=progress)
    else:
        _compute_on(client, stored, progress=progress)


def _compute_here(stored: Any, *, progress: bool) -> None:
    """Compute in this process; if given up, return only when no thread writes any more."""
    import dask
    from dask.diagnostics import ProgressBar

    with (
        ThreadPoolExecutor(dask.config.get("num_workers", None) or CPU_COUNT) as pool,
        dask.config.set(pool=pool),
        ProgressBar(out=sys.stderr) if progress and is_watched() else nullcontext(),
    ):
        stored.compute()


def _compute_on(client: Any, stored: Any, *, progress: bool) -> None:
    """Compute on a cluster; if given up, return only when no task writes any more."""
    future = client.compute(stored, retries=3)
    try:
        if progress and is_watched():
            _show(future)
        future.result()
    except BaseException:
        future.cancel()
        tokens, end = {_token(key) for key in stored.__dask_graph__()}, time.monotonic() + _DRAIN
        while time.monotonic() < end and any(client.run(_still_runs, tokens).values()):
            time.sleep(0.1)
        raise


def _still_runs(tokens: set[str], dask_worker: Any) -> bool:
    """On a worker: whether a task of these still runs there; one that is given up does until it is done."""
    return any(_token(task.key) in tokens for task in dask_worker.state.executing)


def _token(key: Any) -> str:
    """Take the hash that ends a task's name: fusion changes what stands before it."""
    return str(key[0] if isinstance(key, tuple) else key).rpartition("-")[2]


def _show(future: Any) -> None:
    from distributed import progress

    with redirect_stdout(sys.stderr):
        progress(future, notebook=False)
        print()
