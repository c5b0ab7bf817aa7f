"""
Sphinx extension: links from pages to files of the repository.

On GitHub `[text](../deploy/README.md)` opens the file. The site has a page of the changelog, of the results and of
every notebook; any other file comes as a download, and a folder as its name.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["setup"]

_PAGES = {"CHANGELOG.md": "changelog.md", "RESULTS.md": "results.md"}  # which include them

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)\s#]+)(?:#[^)\s]*)?\)")


def _on_site(text: str, page: Path, pages: Path) -> str:
    """Rewrite the links of a page for the site."""

    def _rewritten(link: re.Match[str]) -> str:
        label, target = link.groups()
        found = Path(os.path.normpath(page.parent / target))
        if found.is_relative_to(pages):
            return link[0]
        if page_of := _PAGES.get(found.name) or (found.suffix == ".ipynb" and f"generated/{found.name}"):
            return f"[{label}]({os.path.relpath(pages / page_of, page.parent)})"
        if found.is_dir():
            return f"`{found.relative_to(pages.parent)}`"
        return f"{{download}}`{label.strip('`')} <{target}>`"  # Sphinx warns of a missing file

    return _LINK.sub(_rewritten, text)


def _read_page(app: Sphinx, name: str, source: list[str]) -> None:
    page = Path(app.env.doc2path(name))
    if page.suffix == ".md":
        source[0] = _on_site(source[0], page, Path(app.srcdir))


def setup(app: Sphinx) -> dict[str, Any]:
    """
    Rewrite links as pages are read.

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
