"""Groups and commands: errors of one line, an answer to unknown words, defaults from Dask's configuration."""

from __future__ import annotations

import atexit
import difflib
import logging
import os
import signal
import sys
import threading
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import click

from dask_dca.errors import without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# s3fs asks five times, and botocore as often each time: minutes for a store that doesn't answer. Settings of the user's
# own (~/.config/fsspec, FSSPEC_S3) go before these.
_TIMES: Final[dict[str, dict[str, Any]]] = {
    "s3": {"config_kwargs": {"connect_timeout": 5, "read_timeout": 15, "retries": {"total_max_attempts": 2}}},
    "gcs": {"requests_timeout": 30},
}


@contextmanager
def bounded() -> Iterator[None]:
    """Have file systems that are opened meanwhile give up a store that doesn't answer after three minutes or so."""
    from fsspec.config import conf

    before = {name: dict(settings) for name, settings in conf.items()}
    for name, settings in _TIMES.items():
        conf[name] = settings | conf.get(name, {})
    try:
        yield
    finally:
        conf.clear()
        conf.update(before)


_ENDINGS: Final = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))  # Windows has no SIGHUP
_DEBUG: Final = "DASK_DCA_DEBUG"  # in the environment: tracebacks and logs of libraries
_ALIASES: Final = {"gmm": "mixture", "topics": "lda", "lds": "kalman", "markov": "hmm", "clustering": "subspace"}


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Name the known word that is most like another one.

    Returns "; did you mean ...?", or nothing.
    """
    lower = word.lower()
    inside = [name for name in known if len(name) > 2 and (name in lower or lower in name)]
    near = [_ALIASES[lower]] if lower in _ALIASES else difflib.get_close_matches(lower, known, 1, 0.6) or inside
    return f"; did you mean {near[0]!r}?" if near and near[0] in known else ""


class Command(click.Command):
    """A command whose options have defaults in Dask's configuration, below `dask-dca`, and whose help has examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings["help_option_names"] = ["-h", "--help"]
        self.examples = examples

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        """Begin with the defaults that are configured."""
        if not extra.get("resilient_parsing"):
            above = [parent.info_name] if parent is not None and parent.command.name == "fit" else []
            extra["default_map"] = _configured([*above, info_name or ""], self.params)
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; lines that mend data are for the file that it was given."""
        try:
            return super().invoke(ctx)
        except ValueError as error:
            if os.environ.get(_DEBUG):
                raise
            told = _for_file(str(error), ctx)
            if told == str(error):
                raise
            raise type(error)(told) from error

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples below the options."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"  {line}\n")


def _for_file(message: str, context: click.Context | None) -> str:
    """Put the lines of a message in terms of the file that a command was given, if any."""
    data = context and context.params.get("data")
    if context is None or not isinstance(data, str):
        return message
    from dask_dca.inputs import mended_file

    return mended_file(message, data, context.params.get("array"))


def _configured(path: Sequence[str], params: Sequence[click.Parameter]) -> dict[str, Any]:
    """Defaults of a command's options: `dask-dca: {workers: 4, fit: {hmm: {max-iter: 9}}}` in Dask's configuration."""
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
    """A group whose usage errors are one line, and name the commands that there are."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings["help_option_names"] = ["-h", "--help"]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find a command, or name the one that was meant."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            near = did_you_mean(args[0], names) or self._written_by(ctx, args[0])
            ctx.fail(f"No such command {args[0]!r}{near or ';'} commands: {', '.join(names)}")
        return super().resolve_command(ctx, args)

    def _written_by(self, ctx: click.Context, method: str) -> str:
        """Name the command that writes what a method of a model gives."""
        for name in self.list_commands(ctx):
            for option in getattr(self.get_command(ctx, name), "params", ()):
                if method in getattr(option.type, "choices", ()):
                    return f"; use {name} {option.opts[0]} {method};"
        return ""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; whatever goes wrong in it is one line."""
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
        """Name the commands where none is given."""
        if not args and not self.no_args_is_help and not ctx.resilient_parsing:
            ctx.fail(f"Missing command; commands: {', '.join(self.list_commands(ctx))}")
        return super().parse_args(ctx, args)


def _told(error: Exception) -> str:
    from dask_dca.errors import DCAError, reason_of

    if isinstance(error, DCAError):
        return str(error)
    lost = isinstance(error, OSError) or type(error).__module__.startswith("distributed")
    return f"the cluster or a file failed: {reason_of(error)}" if lost else reason_of(error)


@contextmanager
def reported() -> Iterator[None]:
    """Turn signals into a tidy end and warnings into lines, and keep libraries' logs off standard error."""
    context = click.get_current_context(silent=True)
    with _terminable(), _quiet(), bounded(), warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _say(
            f"Warning: {_for_file(' '.join(str(message).split()), context)}"
        )
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence libraries, also where connections are closed as the process ends: errors are told once."""
    before = logging.root.manager.disable, sys.unraisablehook
    if not os.environ.get(_DEBUG):
        _hush()
        atexit.unregister(_hush)
    try:
        yield
    finally:
        if not os.environ.get(_DEBUG):
            atexit.register(_hush)  # after those of libraries, and so called before them
        logging.disable(before[0])
        sys.unraisablehook = before[1]


def _hush() -> None:
    logging.disable()
    sys.unraisablehook = _leave


def _leave(unraisable: Any) -> None:
    """Say nothing of what fails where nobody waits for it, such as a connection that is given up."""
    del unraisable


def _stop(message: str, code: int) -> None:
    _say("Error: " + " ".join(message.split()))
    sys.exit(code)


def _say(message: str) -> None:
    tell(message, err=True)


def tell(message: str, *, err: bool = False) -> None:
    """Write a line to standard output, or to standard error."""
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
