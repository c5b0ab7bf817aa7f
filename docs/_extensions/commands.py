"""Sphinx extension: replace a mark on a page by the `--help` text of each command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

__all__ = ["reference", "setup"]

MARK = "<!-- the commands -->"


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the full name of each command and the command, including those of groups."""
    import click

    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def reference() -> str:
    """
    Write the reference.

    Returns
    -------
    str
        Markdown: a heading and a block for each command.
    """
    import click

    from dask_dca.cli.main import main

    parts = []
    for path, command in _commands(main, "dask dca"):
        context = click.Context(command, info_name=path, max_content_width=100, terminal_width=100)
        parts.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def _read_page(app: Sphinx, name: str, source: list[str]) -> None:
    del app, name
    if MARK in source[0]:
        source[0] = source[0].replace(MARK, reference())


def setup(app: Sphinx) -> dict[str, Any]:
    """
    Insert the reference when pages are read.

    Parameters
    ----------
    app : Sphinx
        What builds the pages.

    Returns
    -------
    dict
        What the extension can do.
    """
    app.connect("source-read", _read_page)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
