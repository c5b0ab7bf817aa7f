"""What many commands have in common: where they run, which data they read, where the result goes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dask_dca.cli.commands import data_options
from dask_dca.cli.values import path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dask_dca.cli.clusters import Where

__all__ = [
    "OUTPUT",
    "cluster_options",
    "data_arguments",
    "place_of",
    "place_options",
    "read_arguments",
    "rows_arguments",
    "shown",
]

OUTPUT: Final = "Where the result is written: a zarr array, or a .npy, .csv, .tsv or .parquet file."
Command = TypeVar("Command", bound="Callable[..., Any]")


def place_options(command: Command) -> Command:
    """Add the options that say where a command runs."""
    options = (
        click.option("--scheduler", metavar="ADDRESS", envvar="DASK_SCHEDULER_ADDRESS", show_envvar=True,
                     help="Address of a running scheduler, tcp://... or tls://..."),
        click.option("--scheduler-file", callback=path_of, metavar="FILE",
                     help="File that the scheduler wrote its address to."),
        click.option("--workers", type=click.IntRange(min=1), metavar="N",
                     help="Start N worker processes on this machine."),
        click.option("--tls-ca-file", callback=path_of, metavar="FILE",
                     help="Certificate of the authority (else Dask's configuration)."),
        click.option("--tls-cert", callback=path_of, metavar="FILE", help="Certificate of this client."),
        click.option("--tls-key", callback=path_of, metavar="FILE", help="Its key."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def cluster_options(command: Command) -> Command:
    """Add those, and the options of commands that write."""
    options = (
        click.option("--progress/--no-progress", default=None,
                     help="Show progress on standard error (default: if it is a terminal)."),
        click.option("--overwrite", is_flag=True, help="Replace a zarr group or array at the output path."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return place_options(command)


def data_arguments(command: Command) -> Command:
    """Add the data and the output."""
    for option in reversed(data_options("OUT.zarr", OUTPUT)):
        command = option(command)
    return command


def place_of(ctx: click.Context, given: dict[str, Any]) -> Where:
    """Take the cluster's options out of those given; --workers goes before the environment's scheduler."""
    from dask_dca.cli.clusters import Where

    names = ("scheduler", "scheduler_file", "workers", "tls_ca_file", "tls_cert", "tls_key")
    found = {name: given.pop(name) for name in names}
    by_environment = ctx.get_parameter_source("scheduler") is click.core.ParameterSource.ENVIRONMENT
    if by_environment and (found["workers"] or found["scheduler_file"]):
        found["scheduler"] = None
    return Where(**found)


def shown(progress: bool | None) -> bool:
    """Tell whether progress is shown: by default on terminals."""
    return sys.stderr.isatty() if progress is None else progress


def read_arguments(command: Command) -> Command:
    """Add the data, of commands that print."""
    argument, _, *options = data_options("", "")
    for option in reversed([argument, *options]):
        command = option(command)
    return command


def rows_arguments(command: Command) -> Command:
    """Add the data and an output that may be left out."""
    for option in reversed(data_options("OUT.zarr", f"Also write the anchors' rows: {OUTPUT}", required=False)):
        command = option(command)
    return command
