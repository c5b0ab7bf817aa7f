"""What the package's metadata take from the checkout: the README, with links that work on a package index."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Readme(MetadataHookInterface):
    """Gives the build a readme whose links to files lead to the repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme; the repository's address is that of the project's URLs."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, metadata["urls"]["Source"])}


def absolute(text: str, source: str) -> str:
    """Make relative links of Markdown absolute: pictures to the files themselves, others to their pages."""

    def on_the_web(link: re.Match[str]) -> str:
        way = "raw" if link[1] else "blob"
        return f"{link[1]}[{link[2]}]({source}/{way}/main/{link[3]})"

    return re.sub(r"(!?)\[([^\]]*)\]\((?!https?://|#|mailto:)([^)\s]+)\)", on_the_web, text)
