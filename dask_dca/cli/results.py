"""Results per row, output files, and data cubes of the command line."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.cli.commands import ROW_RESULTS
from dask_dca.engine.cubes import VARIABLE, column_names
from dask_dca.engine.files import FORMATS, format_of, require_regular
from dask_dca.engine.stores import check_array, open_npy, open_store
from dask_dca.errors import DCAError, InvalidInputError, InvalidParameterError
from dask_dca.inputs import Data
from dask_dca.output import atomic_file, check_target, is_url, local_path

_FEATURE_RESULTS: Final = ("predict", "impute")  # methods whose columns are the features of the data


def _write_npy(place: str, values: NDArray[Any], names: Sequence[str]) -> None:
    with open(place, "wb") as file:
        np.save(file, values, allow_pickle=False)


def _write_table(separator: str) -> Callable[[str, NDArray[Any], Sequence[str]], None]:
    def _write(place: str, values: NDArray[Any], names: Sequence[str]) -> None:
        form = "%d" if values.dtype.kind in "biu" else "%.17g"
        np.savetxt(place, values, fmt=form, delimiter=separator, header=separator.join(names), comments="")

    return _write


def _write_parquet(place: str, values: NDArray[Any], names: Sequence[str]) -> None:
    try:
        import pandas as pd

        pd.DataFrame(values, columns=list(names)).to_parquet(place)
    except ImportError as error:
        msg = "a .parquet file is written by pandas and pyarrow: pip install pandas pyarrow"
        raise InvalidInputError(msg) from error


_WRITERS: Final = {
    ".npy": _write_npy,
    ".csv": _write_table(","),
    ".tsv": _write_table("\t"),
    ".parquet": _write_parquet,
}


def file_ending(path: str) -> str:
    """Return the ending of a path of a file; an empty string for a zarr array."""
    return next((ending for ending in _WRITERS if path.lower().endswith(ending)), "")


def check_result(path: str, *, overwrite: bool) -> None:
    """Check that a result can be written to a path.

    overwrite: accept an existing zarr array, or a file of the same kind.
    Raises InvalidParameterError: the format of the ending is not supported; ModelFileError: the path exists, its folder
    does not, or it can't be written.
    """
    others = (*FORMATS, ".arrow", ".html", ".pkl", ".gz", ".zip", ".tar")
    if path.lower().endswith(others) and not file_ending(path):
        ending = format_of(path) or os.path.splitext(path)[1]
        msg = f"no {ending} file is written; end the output {path!r} with .zarr, {', '.join(_WRITERS)}"
        raise InvalidParameterError(msg)
    ending = file_ending(path)
    if ending and is_url(path):
        msg = f"{ending} files are written to local paths; received {path!r}; a zarr array can be at a URL"
        raise InvalidParameterError(msg)
    if not ending or not overwrite or not os.path.isfile(local_path(path)):
        check_target(path, overwrite=overwrite and not ending)


def write_file(path: str, values: NDArray[Any], names: Sequence[str], *, overwrite: bool) -> None:
    """Write a file atomically.

    path: with one of the endings; values (n, k); names: of the k columns; overwrite: replace an existing file.
    Raises ModelFileError: it can't be written, or the path was created meanwhile.
    """
    ending = file_ending(path)
    with atomic_file(path, overwrite=overwrite, ending=ending) as place:
        _WRITERS[ending](str(place), values, names)


def row_result(model: Any, what: str | None, matrix: Any, lengths: Sequence[int] | None) -> tuple[Any, Any]:
    """Apply a method of a model that gives a result per row.

    what: name of the method; None for the default one. Returns (n, k), lazy for chunked data; and the names of the
    columns: that of the method for one number per row, "features" for the features of the data.
    Raises InvalidParameterError: the model has no such method.
    """
    name = what or model._per_row
    own = [one for one in ROW_RESULTS if hasattr(model, one)]
    if name not in own:
        msg = f"a {type(model).__name__} has no {name!r}; --what is one of {', '.join(own)}"
        raise InvalidParameterError(msg)
    result = getattr(model, name)(matrix, **({} if lengths is None else {"lengths": lengths}))
    if isinstance(result, tuple):  # log likelihood and posteriors of a chain; means and covariances of a filter
        result = result[1] if name == "score_samples" else result[0]
    if result.ndim == 1:
        return result[:, None], [name]
    return result, "features" if name in _FEATURE_RESULTS else column_names(model._part, result.shape[1])


@dataclass(frozen=True)
class OpenedCube:
    """A cube as a matrix, with the dimensions of its rows in order."""

    data: Data
    dims: tuple[str, ...]
    sizes: tuple[int, ...]
    features: tuple[str, ...]  # dimensions of the features
    coordinates: Mapping[str, Any] = field(default_factory=dict)  # zarr arrays with those of the rows

    @property
    def lengths(self) -> tuple[int, ...] | None:
        """Lengths of the sequences, if the last dimension of the rows is time and the others count sequences."""
        return None if len(self.sizes) == 1 else (self.sizes[-1],) * math.prod(self.sizes[:-1])

    def unstacked(self, result: Any) -> Any:
        """Reshape a result (n, k), or a lazy one, to the cube's dimensions (..., k) with regular chunks."""
        maps = result.reshape(*self.sizes, result.shape[1])
        return maps.rechunk(tuple(max(sizes) for sizes in maps.chunks)) if hasattr(maps, "rechunk") else maps


def open_cube(path: str, array: str | None, features: str, time: str | None = None) -> OpenedCube:
    """Open a cube by path.

    path: a zarr array, a `.npy` file, or a group as written by xarray, whose coordinate names the features; array: name
    of an array of a group, or several separated by commas; features: names or numbers of the feature dimensions,
    separated by commas, "variable" for the arrays of a group; time: dimension of the rows that is moved last.
    Raises InvalidInputError: there is no such array, or no such dimension.
    """
    import dask.array as da

    wanted = features.split(",")
    group, found = _open_arrays(path, array, several=VARIABLE in wanted)
    dims = _common_dims(path, found)
    parts = [_chunked(one) for one in found.values()]
    stacked = group is not None and VARIABLE in wanted and VARIABLE not in dims
    if len(parts) > 1 and not stacked:
        msg = f"arrays of {path!r} have a dimension {VARIABLE!r} themselves; choose one by --array {next(iter(found))}"
        raise InvalidInputError(msg)
    if stacked:
        _refuse_nonnumeric(path, found)
    cube, dims = (da.stack(parts), (VARIABLE, *dims)) if stacked else (parts[0], dims)
    axes = [_axis(path, dims, name) for name in wanted]
    rest = sorted((axis for axis in range(cube.ndim) if axis not in axes), key=lambda axis: dims[axis] == time)
    if not rest or len(rest) + len(axes) > cube.ndim:
        msg = f"--features {features} must leave a dimension of {', '.join(dims)} for the rows, and name none twice"
        raise InvalidInputError(msg)
    cube = cube.transpose(*rest, *axes)
    sizes, width = cube.shape[: len(rest)], math.prod(cube.shape[len(rest) :])
    names = list(found) if stacked and dims[axes[0]] == VARIABLE else _coordinate_names(group, dims[axes[0]], width)
    names = names if len(axes) == 1 else None
    data = Data(cube.reshape(math.prod(sizes), width), names)
    rows = tuple(dims[axis] for axis in rest)
    return OpenedCube(data, rows, sizes, tuple(dims[axis] for axis in axes), _coordinates(group, found, rows))


def cube_of_model(path: str, array: str | None, model: Any) -> OpenedCube | None:
    """Open data at a path as a cube with the feature dimension of a model's fit.

    Returns None if the model has none, or the data are not such a cube.
    """
    features = getattr(model, "feature_dim_in_", None)
    if features is None:
        return None
    names = getattr(model, "feature_names_in_", None)
    if array is None and VARIABLE in features.split(",") and names is not None:
        array = ",".join(names)
    try:
        found = open_cube(path, array, features, getattr(model, "time_dim_in_", None))
    except InvalidInputError:
        return None
    return found if set(found.features) == set(features.split(",")) else None


def _chunked(array: Any) -> Any:
    import dask.array as da
    import zarr

    return da.from_array(check_array(array), chunks=array.chunks) if isinstance(array, zarr.Array) else array


def _open_arrays(path: str, array: str | None, *, several: bool) -> tuple[Any, dict[str, Any]]:
    """Open the chosen arrays by name; returns the zarr group, or None, and the arrays."""
    import zarr

    where = path if is_url(path) else str(local_path(path))
    try:
        if format_of(where) == ".npy" and not is_url(path):
            require_regular(where)
            return None, {path: open_npy(where)}
        found = open_store(where)
    except DCAError:
        raise
    except Exception as error:
        msg = f"{path!r} can't be read as a zarr array, a group or a .npy file, which --features is for: {error}"
        raise InvalidInputError(msg) from error
    if isinstance(found, zarr.Array):
        return None, {path: found}
    every = dict(found.arrays())
    least = 2 if several else 3
    chosen = [name for name, one in every.items() if one.ndim >= least] if array is None else array.split(",")
    if not chosen or (len(chosen) > 1 and not several) or not all(isinstance(found.get(n), zarr.Array) for n in chosen):
        hint = "" if several else f", or take several as features by --features {VARIABLE}"
        msg = f"choose one array of {path!r} by --array PATH{hint}: {', '.join(sorted(every)) or 'there is none'}"
        raise InvalidInputError(msg)
    return found, {name: found[name] for name in sorted(chosen)}


def _common_dims(path: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the common dimensions of arrays; raise InvalidInputError if they differ."""
    every = {name: (_dims_of(one), one.shape) for name, one in found.items()}
    first = next(iter(every))
    other = next((name for name in every if every[name] != every[first]), None)
    if other is not None:
        told = " and ".join(f"{name} {dict(zip(*every[name], strict=True))}" for name in (first, other))
        msg = f"arrays of {path!r} differ in their dimensions: {told}; choose some by --array {first},..."
        raise InvalidInputError(msg)
    return every[first][0]


def _dims_of(stored: Any) -> tuple[str, ...]:
    named: Sequence[Any] | None = None
    if hasattr(stored, "metadata"):
        named = getattr(stored.metadata, "dimension_names", None) or stored.attrs.get("_ARRAY_DIMENSIONS")
    return tuple(str(i) if named is None or named[i] is None else str(named[i]) for i in range(stored.ndim))


def _refuse_nonnumeric(path: str, found: Mapping[str, Any]) -> None:
    """Raise InvalidInputError if a feature holds times, which xarray stores as numbers, or texts."""
    strange = [
        name for name, one in found.items() if one.dtype.kind not in "biuf" or " since " in str(one.attrs.get("units"))
    ]
    if strange:
        others = ",".join(name for name in found if name not in strange)
        names = ", ".join(map(repr, strange[:5]))
        msg = f"{names} of {path!r} hold no numbers, but times or texts; pass --array {others}"
        raise InvalidInputError(msg)


def _coordinate_names(group: Any, dim: str, width: int) -> list[str] | None:
    """Return the names of the features from their coordinate, if there is one."""
    named = None if group is None else group.get(dim)
    if named is None or named.ndim != 1 or named.shape != (width,):
        return None
    return [str(value) for value in np.asarray(named[...]).tolist()]


def _coordinates(group: Any, found: Mapping[str, Any], dims: tuple[str, ...]) -> dict[str, Any]:
    """Find the coordinates of the rows in a group as xarray writes them."""
    if group is None:
        return {}
    further = " ".join(str(one.attrs.get("coordinates", "")) for one in (group, *found.values())).split()
    arrays = {name: group.get(name) for name in dict.fromkeys((*dims, *further))}
    return {name: one for name, one in arrays.items() if one is not None and set(_dims_of(one)) <= set(dims)}


def create_maps(place: str, name: str, coordinates: Mapping[str, Any], **array: Any) -> Any:
    """Create a zarr array; if there are coordinates, under this name in a group that xarray opens."""
    import zarr

    if not coordinates:
        return zarr.create_array(place, **array)
    array["attributes"] = array["attributes"] | {"coordinates": " ".join(coordinates)}
    with warnings.catch_warnings():  # of what is not in zarr's specification yet: consolidated metadata, texts
        warnings.simplefilter("ignore")
        group = zarr.create_group(place)
        target = group.create_array(name, **array)
        for key, one in coordinates.items():
            own = {word: value for word, value in one.attrs.items() if word != "_ARRAY_DIMENSIONS"}
            about = {"fill_value": one.fill_value, "dimension_names": _dims_of(one), "attributes": own}
            group.create_array(key, data=np.asarray(one[...]), **about)
        zarr.consolidate_metadata(place)
    return target


def _axis(path: str, dims: tuple[str, ...], features: str) -> int:
    if features in dims:
        return dims.index(features)
    if features.lstrip("-").isdecimal() and -len(dims) <= int(features) < len(dims):
        return int(features) % len(dims)
    msg = f"{path!r} has the dimensions {', '.join(dims)}, none of which is {features!r}; --features names one of them"
    raise InvalidInputError(msg)
