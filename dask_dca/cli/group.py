"""Groups and commands: one-line errors, suggestions for unknown words, and defaults from Dask's configuration."""

from __future__ import annotations

import atexit
import difflib
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from typing import Any, Final

import click

from dask_dca.errors import without_secrets

# s3fs retries five times, and botocore as often each time, which takes minutes for a store that does not answer. The
# user's settings (~/.config/fsspec, FSSPEC_S3) take precedence over these.
_STORE_TIMEOUTS: Final[dict[str, dict[str, Any]]] = {
    "s3": {"config_kwargs": {"connect_timeout": 5, "read_timeout": 15, "retries": {"total_max_attempts": 2}}},
    "gcs": {"requests_timeout": 30},
}


@contextmanager
def bounded_timeouts() -> Iterator[None]:
    """Bound the time that file systems wait for a store that does not answer to about three minutes."""
    from fsspec.config import conf

    before = {name: dict(settings) for name, settings in conf.items()}
    for name, settings in _STORE_TIMEOUTS.items():
        conf[name] = settings | conf.get(name, {})
    try:
        yield
    finally:
        conf.clear()
        conf.update(before)


_SIGNALS: Final = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))  # not on Windows
_DEBUG_VARIABLE: Final = "DASK_DCA_DEBUG"  # environment variable that shows tracebacks and logs of libraries
_ALIASES: Final = {"gmm": "mixture", "topics": "lda", "lds": "kalman", "markov": "hmm", "clustering": "subspace"}


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return "; did you mean ...?" with the most similar known word, or an empty string."""
    lower = word.lower()
    inside = [name for name in known if len(name) > 2 and (name in lower or lower in name)]
    near = [_ALIASES[lower]] if lower in _ALIASES else difflib.get_close_matches(lower, known, 1, 0.6) or inside
    return f"; did you mean {near[0]!r}?" if near and near[0] in known else ""


class Command(click.Command):
    """A command with examples in its help, and defaults of options in Dask's configuration below `dask-dca`."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings["help_option_names"] = ["-h", "--help"]
        self.examples = examples

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        """Make a context with the configured defaults."""
        if not extra.get("resilient_parsing"):
            above = [parent.info_name] if parent is not None and parent.command.name == "fit" else []
            extra["default_map"] = _configured_defaults([*above, info_name or ""], self.params)
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; code in error messages is adapted to its input file."""
        try:
            return super().invoke(ctx)
        except ValueError as error:
            if os.environ.get(_DEBUG_VARIABLE):
                raise
            improved = _advice_for_file(str(error), ctx)
            if improved == str(error):
                raise
            raise type(error)(improved) from error

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples below the options."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"  {line}\n")


def _advice_for_file(message: str, context: click.Context | None) -> str:
    """Adapt the code in a message to the input file of a command, if any."""
    data = context and context.params.get("data")
    if context is None or not isinstance(data, str):
        return message
    from dask_dca.inputs import adapt_remedy

    return adapt_remedy(message, data, context.params.get("array"))


def _configured_defaults(path: Sequence[str], params: Sequence[click.Parameter]) -> dict[str, Any]:
    """Read defaults of options from Dask's configuration: `dask-dca: {workers: 4, fit: {hmm: {max-iter: 9}}}`."""
    from dask import config

    node = config.get("dask-dca", None) or {}
    found = {key: value for key, value in node.items() if not isinstance(value, dict)}
    for name in path:
        node = node.get(name) or {}
    options = {opt.lstrip("-"): param.name for param in params for opt in param.opts if opt.startswith("-")}
    for key in node:
        if key.replace("_", "-") not in options:
            where = ".".join(["dask-dca", *path])
            msg = f"Dask's configuration {where} has {key!r}, which is no option{did_you_mean(key, list(options))}"
            raise click.UsageError(msg)
    given = {key.replace("_", "-"): value for key, value in (found | node).items()}
    return {options[key]: value for key, value in given.items() if options.get(key)}


class Group(click.Group):
    """A group with one-line usage errors that list the available commands."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings["help_option_names"] = ["-h", "--help"]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find a command, or suggest a similar one."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            near = did_you_mean(args[0], names) or self._command_with_choice(ctx, args[0])
            ctx.fail(f"No such command {args[0]!r}{near or ';'} commands: {', '.join(names)}")
        return super().resolve_command(ctx, args)

    def _command_with_choice(self, ctx: click.Context, method: str) -> str:
        """Suggest the command and option for a method of a model."""
        for name in self.list_commands(ctx):
            for option in getattr(self.get_command(ctx, name), "params", ()):
                if method in getattr(option.type, "choices", ()):
                    return f"; use {name} {option.opts[0]} {method};"
        return ""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; every error becomes one line."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.ctx = None
            raise
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            _exit_with_error("interrupted; nothing was written", 130)
        except Exception as error:  # any library may raise its own
            if os.environ.get(_DEBUG_VARIABLE):
                raise
            _exit_with_error(_error_line(error), 2)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """List the commands if none is given."""
        if not args and not self.no_args_is_help and not ctx.resilient_parsing:
            ctx.fail(f"Missing command; commands: {', '.join(self.list_commands(ctx))}")
        return super().parse_args(ctx, args)


def _error_line(error: Exception) -> str:
    from dask_dca.errors import DCAError, reason_of

    if isinstance(error, DCAError):
        return str(error)
    external = isinstance(error, OSError) or type(error).__module__.startswith("distributed")
    return f"the cluster or a file failed: {reason_of(error)}" if external else reason_of(error)


@contextmanager
def command_context() -> Iterator[None]:
    """Clean up on signals, print warnings as lines, and silence libraries."""
    context = click.get_current_context(silent=True)
    with (
        open(os.devnull, "w") as nowhere,  # where standard error is closed, as by daemons
        redirect_stderr(sys.stderr or nowhere),
        _cleanup_on_signals(),
        _silenced_libraries(),
        bounded_timeouts(),
        warnings.catch_warnings(),
    ):
        warnings.showwarning = lambda message, *_, **__: _print_error(
            f"Warning: {_advice_for_file(' '.join(str(message).split()), context)}"
        )
        yield


@contextmanager
def _silenced_libraries() -> Iterator[None]:
    """Silence libraries, also while connections are closed at exit, so that an error is reported once."""
    before = logging.root.manager.disable, sys.unraisablehook
    if not os.environ.get(_DEBUG_VARIABLE):
        _silence()
        atexit.unregister(_silence)
    try:
        yield
    finally:
        if not os.environ.get(_DEBUG_VARIABLE):
            atexit.register(_silence)  # exit handlers run in reverse order, so before those of libraries
        logging.disable(before[0])
        sys.unraisablehook = before[1]


def _silence() -> None:
    logging.disable()
    sys.unraisablehook = lambda _: None  # of destructors and callbacks, such as those of an abandoned connection


def _exit_with_error(message: str, code: int) -> None:
    _print_error("Error: " + " ".join(message.split()))
    sys.exit(code)


def _print_error(message: str) -> None:
    print_line(message, err=True)


def print_line(message: str, *, err: bool = False) -> None:
    """Write a line to standard output, or to standard error."""
    with suppress(OSError):  # the terminal may be closed
        click.echo(without_secrets(message), err=err)


@contextmanager
def _cleanup_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack, so that half-written results are removed."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: was for number, was in before.items() if was != signal.SIG_IGN}  # ignored under nohup
    for number in before:
        signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


def _terminate(number: int, frame: Any) -> None:
    """Exit once: repeated signals, as sent by systemd and terminals, must not interrupt the cleanup."""
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    _exit_with_error("terminated; nothing was written", 128 + number)
