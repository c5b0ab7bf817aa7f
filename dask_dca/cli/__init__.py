"""The command line: `dask dca ...`, also as `dask-dca ...`."""
