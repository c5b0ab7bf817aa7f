"""Files of other formats: what reads one in Python, and what turns it into a file that the commands read."""

from __future__ import annotations

import zipfile
from typing import Final

__all__ = ["FORMATS", "converter_of", "format_of", "reader_of"]

_SAVE: Final = "numpy.save('numbers.npy', {})"
_TABLE: Final = "{}.to_csv('numbers.csv', index=False)"
_CONVERT: Final = "dask dca convert {path} -o documents.zarr"

# ending: what reads a file, and what writes the result for the commands; nothing where they read the file themselves
FORMATS: Final = {
    ".npy": ("numpy.load({path!r}, mmap_mode='r')", ""),
    ".parquet": ("dask.dataframe.read_parquet({path!r})", ""),
    ".csv": ("pandas.read_csv({path!r}{separator})", ""),
    ".csv.gz": ("pandas.read_csv({path!r})", ""),
    ".tsv": ("pandas.read_csv({path!r}, sep='\\t')", ""),
    ".tsv.gz": ("pandas.read_csv({path!r}, sep='\\t')", ""),
    ".csv.bz2": ("pandas.read_csv({path!r})", _TABLE),
    ".csv.xz": ("pandas.read_csv({path!r})", _TABLE),
    ".csv.zip": ("pandas.read_csv({path!r})", _TABLE),
    ".xlsx": ("pandas.read_excel({path!r})", _TABLE),
    ".feather": ("pandas.read_feather({path!r})", _TABLE),
    ".json": ("pandas.read_json({path!r})", _TABLE),
    ".txt": ("numpy.loadtxt({path!r})", _SAVE),
    ".dat": ("numpy.loadtxt({path!r})", _SAVE),
    ".npz": ("numpy.load({path!r})[{name!r}]", _SAVE),
    ".mat": ("scipy.io.loadmat({path!r})['X']", _SAVE),
    ".h5": ("h5py.File({path!r})['X'][:]", _SAVE),
    ".hdf5": ("h5py.File({path!r})['X'][:]", _SAVE),
    ".nc": ("xarray.open_dataset({path!r}, chunks={{}})", "{}.to_zarr('data.zarr')"),
    ".h5ad": ("anndata.read_h5ad({path!r})", "{}.write_zarr('cells.zarr')"),
    ".mtx": ("scipy.io.mmread({path!r})", _CONVERT),
    ".mtx.gz": ("scipy.io.mmread({path!r})", _CONVERT),
}


def format_of(path: str) -> str:
    """Return the ending of a path that tells how the file is read; none that is known gives nothing."""
    return max((ending for ending in FORMATS if path.lower().endswith(ending)), key=len, default="")


def reader_of(path: str) -> str:
    """Say what reads a file in Python; nothing for endings that are not known."""
    ending = format_of(path)
    if not ending:
        return ""
    name = _first_of_npz(path) if ending == ".npz" else ""
    if "indptr" in name:
        return f"scipy.sparse.load_npz({path!r})"
    return FORMATS[ending][0].format(path=path, name=name, separator=_separator(path) if ending == ".csv" else "")


def converter_of(path: str) -> str:
    """Say what makes a file of this one that commands read; nothing if they read it, or its ending is not known."""
    ending = format_of(path)
    writer = FORMATS[ending][1] if ending else ""
    if writer == _CONVERT:
        return writer.format(path=path)
    reader = reader_of(path)
    if reader.startswith("scipy.sparse"):
        return f"scipy.io.mmwrite('d.mtx', {reader}) and dask dca convert d.mtx -o documents.zarr"
    return writer.format(reader) if writer else ""


def _first_of_npz(path: str) -> str:
    try:
        names = zipfile.ZipFile(path).namelist()
    except (OSError, zipfile.BadZipFile):
        return "X"
    return "indptr" if "indptr.npy" in names else names[0].removesuffix(".npy") if names else "X"


def _separator(path: str) -> str:
    """What pandas has to be told of a table whose cells semicolons separate."""
    with open(path, encoding="utf-8", errors="replace") as lines:
        line = lines.readline(4096)
    return ", sep=';', decimal=','" if ";" in line else ""
