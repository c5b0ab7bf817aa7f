"""The commands `dask dca ...` and `dask-dca ...`; what they do is imported when one of them runs."""

from __future__ import annotations

import atexit
import json
import logging
import os
import signal
import sys
import threading
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dask_dca import __version__
from dask_dca.cli.commands import COMMANDS, ROW_RESULTS, FitCommand, lengths_option, path_of, with_fit_options
from dask_dca.errors import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dask_dca.cli.clusters import Where

__all__ = ["main"]

_DATA: Final = "DATA is a zarr array or group (path or URL), Parquet, a .npy file, or a table of numbers (.csv, .tsv)."
_ENDINGS: Final = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))  # Windows has no SIGHUP
_DEBUG: Final = "DASK_DCA_DEBUG"  # in the environment: tracebacks and logs of libraries
Command = TypeVar("Command", bound="Callable[..., Any]")


class _OneLine(click.Group):
    """A group whose usage errors are one line, and name the commands that there are."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings["help_option_names"] = ["-h", "--help"]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = ", ".join(self.list_commands(ctx))
            ctx.fail(f"No such command {args[0]!r}; commands: {names}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.ctx = None
            raise
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            _stop("interrupted; nothing was written", 130)
        except Exception as error:  # of any library
            if os.environ.get(_DEBUG):
                raise
            _stop(_told(error), 2)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not self.no_args_is_help:
            ctx.fail(f"Missing command; commands: {', '.join(self.list_commands(ctx))}")
        return super().parse_args(ctx, args)


def _told(error: Exception) -> str:
    from dask_dca.errors import DCAError, reason_of

    if isinstance(error, DCAError):
        return str(error)
    lost = isinstance(error, OSError) or type(error).__module__.startswith("distributed")
    return f"the cluster or a file failed: {reason_of(error)}" if lost else reason_of(error)


@contextmanager
def _reported() -> Iterator[None]:
    """Turn signals into a tidy end and warnings into lines, and keep libraries' logs off standard error."""
    with _terminable(), _quiet(), warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _say(f"Warning: {' '.join(str(message).split())}")
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence logs, also those of connections that are closed as the process ends: errors are told once."""
    before = logging.root.manager.disable
    if not os.environ.get(_DEBUG):
        logging.disable()
        atexit.unregister(logging.disable)
    try:
        yield
    finally:
        if not os.environ.get(_DEBUG):
            atexit.register(logging.disable)  # after those of libraries, and so called before them
        logging.disable(before)


def _plain(value: Any) -> Any:
    """What JSON has no word for: NumPy's numbers, slices."""
    return value.item() if hasattr(value, "item") else str(value)


def _stop(message: str, code: int) -> None:
    _say("Error: " + " ".join(message.split()))
    sys.exit(code)


def _say(message: str) -> None:
    _tell(message, err=True)


def _tell(message: str, *, err: bool = False) -> None:
    with suppress(OSError):  # of a terminal that was closed
        click.echo(without_secrets(message), err=err)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM, and the SIGHUP of a closed terminal, unwind the stack, so that half-written results are removed."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in _ENDINGS}
    before = {number: was for number, was in before.items() if was != signal.SIG_IGN}  # as nohup leaves it
    for number in before:
        signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


def _terminate(number: int, frame: Any) -> None:
    """End once: what is sent again, as systemd and terminals do, must not stop the removal of what is half-written."""
    del frame
    for other in _ENDINGS:
        signal.signal(other, signal.SIG_IGN)
    _stop("terminated; nothing was written", 128 + number)


def _cluster_options(command: Command) -> Command:
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
        click.option("--progress/--no-progress", default=None,
                     help="Show progress on standard error (default: if it is a terminal)."),
        click.option("--overwrite", is_flag=True, help="Replace a zarr group or array at the output path."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def _where(ctx: click.Context, given: dict[str, Any]) -> Where:
    """Take the cluster's options out of those given; --workers goes before the environment's scheduler."""
    from dask_dca.cli.clusters import Where

    names = ("scheduler", "scheduler_file", "workers", "tls_ca_file", "tls_cert", "tls_key")
    found = {name: given.pop(name) for name in names}
    by_environment = ctx.get_parameter_source("scheduler") is click.core.ParameterSource.ENVIRONMENT
    if by_environment and (found["workers"] or found["scheduler_file"]):
        found["scheduler"] = None
    return Where(**found)


def _shown(progress: bool | None) -> bool:
    return sys.stderr.isatty() if progress is None else progress


@click.group("dca", cls=_OneLine)
@click.version_option(__version__, prog_name="dask-dca")
def main() -> None:
    """Latent-variable models of very large matrices by anchors."""


@main.group("fit", cls=_OneLine, no_args_is_help=False)
def fit() -> None:
    """Fit a model to a matrix and save it."""


def _add_fit(command: FitCommand) -> None:
    """Make the command of one model."""

    @fit.command(command.name, help=f"{command.title}\n\n{_DATA}")
    @with_fit_options(command)
    @_cluster_options
    @click.pass_context
    def run(ctx: click.Context, /, data: str, output: str, **given: Any) -> None:
        with _reported():
            from dask_dca.cli import commands as words
            from dask_dca.cli import jobs

            where = _where(ctx, given)
            given["verbose"] = _shown(given.pop("progress"))
            places = {name: given.pop(name, None) for name in ("array", "lengths", "views", "overwrite")}
            parameters = {name: value for name, value in given.items() if value is not None}  # else the model's own
            model = jobs.fit(command.kind, data, output, parameters, where, **places)
            click.echo(words.describe(model))
            _tell(f"Saved as {output}")


for _command in COMMANDS:
    _add_fit(_command)


@main.command("transform")
@click.argument("model")
@click.argument("data")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT.zarr",
    help="Where the result is written: a zarr array, or a .npy, .csv, .tsv or .parquet file.",
)
@click.option("--array", metavar="PATH", help="Which array of a zarr group.")
@click.option("--what", type=click.Choice(ROW_RESULTS), help="Which result, by the name of the model's method.")
@lengths_option
@_cluster_options
@click.pass_context
def transform(ctx: click.Context, /, model: str, data: str, output: str, **given: Any) -> None:
    """Write what MODEL says of each of DATA's rows: coefficients, probabilities, states."""
    with _reported():
        from dask_dca.cli import jobs

        where = _where(ctx, given)
        given["progress"] = _shown(given["progress"])
        n, k = jobs.transform(model, data, output, where, **given)
        _tell(f"{n} rows of {k} numbers written to {output}")


@main.command("convert")
@click.argument("source")
@click.option("-o", "--output", required=True, metavar="DOCS.zarr", help="Where the documents are written.")
@click.option("--vocabulary", metavar="FILE", help="A text file with one word a line.")
@click.option("--transpose", is_flag=True, help="Turn a Matrix Market file of words x documents round.")
@click.option("--overwrite", is_flag=True, help="Replace a zarr group at the output path.")
def convert(source: str, output: str, **given: Any) -> None:
    """Convert word counts, a Matrix Market or UCI docword file, to a zarr store that `fit lda` reads."""
    with _reported():
        from dask_dca.convert import convert_documents
        from dask_dca.output import check_apart, check_target

        check_target(output, overwrite=given["overwrite"])
        check_apart(output, source)
        documents, words, entries = convert_documents(source, output, **given)
        _tell(f"{documents} documents of {words} words, {entries} counts, written to {output}")


@main.command("info")
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(model: str, *, as_json: bool) -> None:
    """Print what a saved MODEL says of itself."""
    with _reported():
        from dask_dca import store
        from dask_dca.cli import commands as words

        loaded = store.load_model(model)
        click.echo(json.dumps(words.model_facts(loaded), default=_plain) if as_json else words.describe(loaded))


@main.command("report")
@click.argument("model")
@click.option("-o", "--output", required=True, metavar="REPORT.html", help="Where the page is written.")
@click.option("--data", metavar="DATA", help="The data, of which a sample is then shown too.")
@click.option("--array", metavar="PATH", help="Which array of a zarr group.")
@lengths_option
@click.option("--shape", metavar="LINESxCOLUMNS", help="Draw rows as pictures, for example 28x28.")
@click.option("--title", help="Title of the page.")
@click.option("--date", metavar="TEXT", help="A date to write on the page (none is taken from the clock).")
@click.option("--overwrite", is_flag=True, help="Replace an HTML page at the output path.")
def report(model: str, output: str, **given: Any) -> None:
    """Set a saved MODEL on one self-contained HTML page: what was found, how far to trust it, how it was made."""
    with _reported():
        from dask_dca.cli.report import write_report

        size = write_report(model, output, **given)
        _tell(f"Report of {size:,} bytes written to {output}")


@main.command("demo")
@click.option("-o", "--output", default="demo", show_default=True, metavar="DIR", help="Folder of the demo's files.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Worker processes.")
def demo(output: str, workers: int) -> None:
    """Find the minerals in an image mixed from real spectra, on a local cluster."""
    with _reported():
        from dask_dca.demo.run import run_demo

        run_demo(output, workers, click.echo)


if __name__ == "__main__":
    main()
