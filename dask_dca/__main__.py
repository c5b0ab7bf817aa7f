"""`python -m dask_dca`: the commands of `dask-dca`."""

from dask_dca.cli.main import main

if __name__ == "__main__":
    main(prog_name="python -m dask_dca")
