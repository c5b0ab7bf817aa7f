"""The work of the commands: fit, apply and report models by path."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from dask.system import CPU_COUNT

import dask_dca
from dask_dca._registry import MODELS
from dask_dca.anchoring.parameters import check_count
from dask_dca.cli.clusters import Cluster, connected
from dask_dca.cli.results import (
    OpenedCube,
    check_result,
    create_maps,
    cube_of_model,
    file_ending,
    open_cube,
    row_result,
    write_file,
)
from dask_dca.engine.advice import refuse_other_names
from dask_dca.engine.computing import announce, is_interactive, killed_worker_error, result_of
from dask_dca.engine.cubes import column_names, distinct_names
from dask_dca.engine.rows import as_rows
from dask_dca.engine.stores import is_a
from dask_dca.errors import InvalidParameterError, naming_columns
from dask_dca.inputs import Data, names_code, open_data, reorder_code
from dask_dca.models.sequences import SequenceModel, no_sequences
from dask_dca.output import atomic_output, check_no_overlap, check_target
from dask_dca.store import load_model, save_model

_DRAIN_SECONDS: Final = 60  # maximum time to wait for running tasks that still write, after a transform is cancelled


def fit(
    kind: str,
    data: str,
    out: str,
    parameters: Mapping[str, Any],
    cluster: Cluster | None = None,
    *,
    array: str | None = None,
    features: str | None = None,
    lengths: Sequence[int] | None = None,
    views: Sequence[range] | None = None,
    sample_weight: Any = None,
    overwrite: bool = False,
) -> Any:
    """Fit a model to data at a path, and save it.

    kind: name of the model's class; parameters: of the class; array: array of a zarr group; features: feature dimension
    of a cube; views: groups of columns, for mixtures. Returns the fitted model.
    Raises DCAError: unusable paths, data or parameters; nothing is written then.
    """
    check_target(out, overwrite=overwrite)
    check_no_overlap(out, data)
    given, cube = open_input(data, array, features)
    chosen = {**parameters, **({} if views is None else {"views": _columns_of(views, given)})}
    model = getattr(dask_dca, kind)(**chosen)
    model._anchoring()
    check_count(getattr(model, model._count), as_rows(given.matrix), "k")
    if cube is not None and np.shape(sample_weight) == cube.sizes:
        sample_weight = np.ravel(sample_weight)
    lengths = lengths_of(model, lengths, cube)
    with connected(cluster), naming_columns(given.names):
        model.fit(given.matrix, **_present(lengths=lengths, sample_weight=sample_weight))
    if given.is_bare_table:
        print(f"{data}: {given}, no header", file=sys.stderr)
    _set_names(model, given, cube)
    save_model(model, out, overwrite=overwrite)
    return model


def lengths_of(model: Any, lengths: Sequence[int] | None, cube: OpenedCube | None) -> Sequence[int] | None:
    """Return the given lengths; else, for a model of sequences, those of a cube's sequences."""
    return cube.lengths if lengths is None and cube is not None and isinstance(model, SequenceModel) else lengths


def _set_names(model: Any, given: Data, cube: OpenedCube | None) -> None:
    """Store the names of the features and of their dimension in the model."""
    if given.names is not None:
        model.feature_names_in_ = np.array(given.names, dtype=object)
    if cube is not None:
        model.feature_dim_in_ = ",".join(cube.features)
        if isinstance(model, SequenceModel):
            model.time_dim_in_ = cube.dims[-1]


def open_input(data: str, array: str | None, features: str | None, model: Any = None) -> tuple[Data, OpenedCube | None]:
    """Open data by path: a matrix, or a cube whose other dimensions are rows.

    model: supplies the feature dimension of its fit if `features` is None. Returns the matrix with the names of its
    columns; and the cube, or None.
    """
    if features is None:
        cube = None if model is None else cube_of_model(data, array, model)
    else:
        cube = open_cube(data, array, features, getattr(model, "time_dim_in_", None))
    return (open_data(data, array), None) if cube is None else (cube.data, cube)


def _present(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _columns_of(views: Sequence[range], given: Data) -> list[list[int]]:
    """List the columns of ranges, which must be within the data."""
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
    cluster: Cluster | None = None,
    *,
    array: str | None = None,
    features: str | None = None,
    lengths: Sequence[int] | None = None,
    what: str | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> tuple[int, ...]:
    """Write a model's result per row of data at a path, as a zarr array chunk by chunk, or as a file at once.

    what: name of the model's method; by default that of its class for coefficients, posterior probabilities, states or
    labels. Returns the shape of the result, for a cube that of its maps.
    Raises DCAError: unusable paths or data; nothing is left behind then.
    """
    check_result(out, overwrite=overwrite)
    check_no_overlap(out, data, model_path)
    found = _load_inputs(model_path, data, array, features, lengths)
    name = what or found.model._per_row
    result, columns = row_result(found.model, name, found.data.matrix, found.lengths)
    names = found.features if columns == "features" else columns
    about = {"model": type(found.model).__name__, "what": name, "names": names} | _present(lengths=lengths)
    deliver(result, out, cluster, about, found.cube, part=found.model._part, overwrite=overwrite, progress=progress)
    return result.shape if found.cube is None else (*found.cube.sizes, result.shape[1])


@dataclass(frozen=True)
class _LoadedInputs:
    """A model, and data that match it."""

    model: Any
    data: Data
    cube: OpenedCube | None
    lengths: Sequence[int] | None
    features: list[str]  # names of the features in the model


def _load_inputs(
    model_path: str, data: str, array: str | None, features: str | None, lengths: Sequence[int] | None
) -> _LoadedInputs:
    model = load_model(model_path)
    given, cube = open_input(data, array, features, model)
    names = getattr(model, "feature_names_in_", None)
    named = column_names("feature", model.n_features_in_) if names is None else [str(name) for name in names]
    match_names(model, model_path, given, cube, data)
    vars(model).pop("feature_names_in_", None)
    if lengths is not None and not isinstance(model, SequenceModel):
        raise InvalidParameterError(no_sequences(model))
    return _LoadedInputs(model, given, cube, lengths_of(model, lengths, cube), named)


def deliver(
    result: Any,
    out: str,
    cluster: Cluster | None,
    about: dict[str, Any],
    cube: OpenedCube | None = None,
    *,
    part: str = "component",
    overwrite: bool = False,
    progress: bool = False,
) -> None:
    """Compute a result on the chosen cluster, and write it in the format of the path's ending.

    result (n, k): an array, or a lazy one; about: attributes of a zarr array, including the names of the columns; cube:
    gives a zarr array the dimensions of its rows; part: name of the columns' dimension.
    """
    line = announce(str(about["what"])) if progress and not isinstance(result, np.ndarray) else nullcontext()
    if file_ending(out):
        with connected(cluster) as client, line:
            if client is not None and not isinstance(result, np.ndarray):
                result = _compute_on(client, result, result, progress=progress)
            values = result.compute() if hasattr(result, "compute") else result
        write_file(out, values, about["names"], overwrite=overwrite)
        return
    dims = ("row",) if cube is None else cube.dims
    result, dims = result if cube is None else cube.unstacked(result), (*dims, *distinct_names([part], dims))
    coordinates = {} if cube is None else cube.coordinates
    with atomic_output(out, overwrite=overwrite) as place, connected(cluster) as client, line:
        make = partial(create_maps, place, str(about["what"]), coordinates, dimension_names=dims, attributes=about)
        _write_zarr(result, make, client, progress=progress)


def score(
    model_path: str,
    data: str,
    cluster: Cluster | None = None,
    *,
    array: str | None = None,
    features: str | None = None,
    lengths: Sequence[int] | None = None,
) -> float:
    """Score data at a path by the `score` method of a saved model; larger is better.

    lengths: of the sequences.
    Raises DCAError: unusable paths or data, or the model has no score.
    """
    found = _load_inputs(model_path, data, array, features, lengths)
    method = _get_method(found.model, "score")
    with connected(cluster):
        return float(method(found.data.matrix, **_present(lengths=found.lengths)))


def forecast(
    model_path: str,
    data: str,
    out: str,
    cluster: Cluster | None = None,
    *,
    steps: int = 1,
    array: str | None = None,
    features: str | None = None,
    lengths: Sequence[int] | None = None,
    overwrite: bool = False,
) -> tuple[int, int]:
    """Write the frames that a saved model of sequences predicts after the data at a path.

    steps: number of frames. Returns the shape (steps, features) of the result.
    Raises DCAError: unusable paths or data, or the model has no forecast.
    """
    check_result(out, overwrite=overwrite)
    check_no_overlap(out, data, model_path)
    found = _load_inputs(model_path, data, array, features, lengths)
    method, model = _get_method(found.model, "forecast"), found.model
    with connected(cluster):
        parts = method(found.data.matrix, steps, **_present(lengths=found.lengths))
    shape = (steps, model.n_features_in_)
    arrays = [np.asarray(part) for part in (parts if isinstance(parts, tuple) else (parts,))]
    frames = next(part for part in arrays if part.shape == shape)
    about = {"model": type(model).__name__, "what": "forecast", "names": found.features} | _present(lengths=lengths)
    deliver(frames, out, None, about, part="feature", overwrite=overwrite)
    return shape


def _get_method(model: Any, name: str) -> Any:
    if not hasattr(model, name):
        having = [kind for kind in MODELS if hasattr(getattr(dask_dca, kind), name)]
        msg = f"a {type(model).__name__} has no {name}; models that have one: {', '.join(having)}"
        raise InvalidParameterError(msg)
    return getattr(model, name)


def match_names(model: Any, model_path: str, given: Data, cube: OpenedCube | None, data: str) -> None:
    """Check that the names of the columns are those of the model.

    Raises InvalidInputError: names differ, or are in another order.
    """
    own = as_rows(given.matrix).feature_names if given.names is None else given.names
    line = reorder_code(data, names_code(model_path), "" if cube is None else ",".join(cube.features))
    refuse_other_names(getattr(model, "feature_names_in_", None), own, data, "the model", line)


def _write_zarr(result: Any, make: Callable[..., Any], client: Any, *, progress: bool) -> None:
    """Write a result to a zarr array; make: creates it."""
    chunked = not isinstance(result, np.ndarray)
    chunks = (
        tuple(max(1, *sizes) for sizes in result.chunks) if chunked else tuple(max(1, size) for size in result.shape)
    )
    target = make(shape=result.shape, chunks=chunks, dtype=result.dtype)
    if not chunked:
        target[...] = result
        return
    import dask.array as da

    from dask_dca.engine.shared_stores import shared_array

    stored = da.store(result, shared_array(target, complain=False), lock=False, compute=False)
    if client is None:
        _compute_here(stored, progress=progress)
    else:
        _compute_on(client, stored, result, progress=progress)


def _compute_here(stored: Any, *, progress: bool) -> None:
    """Compute in this process; if interrupted, return only when no thread writes any more."""
    import dask
    from dask.diagnostics import ProgressBar

    with (
        ThreadPoolExecutor(dask.config.get("num_workers", None) or CPU_COUNT) as pool,
        dask.config.set(pool=pool),
        ProgressBar(out=sys.stderr) if progress and is_interactive() else nullcontext(),
    ):
        stored.compute()


def _compute_on(client: Any, lazy: Any, result: Any, *, progress: bool) -> Any:
    """Compute a result, or its storing tasks, on a cluster; if interrupted, wait until no task writes any more."""
    future = client.compute(lazy, retries=3)
    try:
        return result_of(future, client, shown=progress and is_interactive())
    except BaseException as error:
        future.cancel()
        tokens, end = {_token(key) for key in lazy.__dask_graph__()}, time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < end and any(client.run(_is_running, tokens).values()):
            time.sleep(0.1)
        if is_a(error, "distributed", "KilledWorker"):
            rows = as_rows(result).with_chunks() if result.ndim == 2 else None
            raise killed_worker_error(error, "dca-", rows) from error
        raise


def _is_running(tokens: set[str], dask_worker: Any) -> bool:
    """On a worker: whether one of these tasks still runs, as cancelled ones do until they finish."""
    return any(_token(task.key) in tokens for task in dask_worker.state.executing)


def _token(key: Any) -> str:
    """Return the hash at the end of a task's key, which fusion keeps."""
    return str(key[0] if isinstance(key, tuple) else key).rpartition("-")[2]


def write_report(
    model: str,
    output: str | None = None,
    *,
    data: str | None = None,
    array: str | None = None,
    features: str | None = None,
    lengths: Sequence[int] | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> str:
    """Write the report of a saved model as an HTML page, or return it as text if there is no output.

    data: path of data, of which a sample is shown; **settings: of `report`. Returns the page, or the text.
    Raises DCAError: unusable paths, data or options; nothing is written then.
    """
    from dask_dca.reporting.page import check_page, report

    if output is not None:
        check_no_overlap(output, model, *([] if data is None else [data]))
        check_page(output, overwrite=overwrite)
    loaded = load_model(model)
    if data is not None:
        given, cube = open_input(data, array, features, loaded)
        match_names(loaded, model, given, cube, data)
        settings |= {"data": given.matrix}
        lengths = lengths_of(loaded, lengths, cube)
    form = "html" if output is not None else "text"
    return report(loaded, output, lengths=lengths, form=form, overwrite=overwrite, **settings)
