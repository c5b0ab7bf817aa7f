"""
Sphinx extension: formulas as MathML, which every current browser renders natively.

Sphinx's own renderers fetch MathJax from the network or need LaTeX. docutils, which Sphinx is built on, turns LaTeX
into MathML; this hands its formulas to Sphinx's HTML pages. The font for them is in `_static/fonts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml

if TYPE_CHECKING:
    from docutils.nodes import math, math_block
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

__all__ = ["setup"]


def _mathml(node: math | math_block, *, as_block: bool) -> str:
    """Convert the formula of a node to MathML without visible white space."""
    try:
        drawn = tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        msg = f"the formula {node.astext()!r} can't be drawn: {error}"
        raise ValueError(msg) from error
    return "".join(line.strip() for line in drawn.splitlines())


def _visit_math(translator: HTML5Translator, node: math) -> None:
    translator.body.append(f'<span class="math">{_mathml(node, as_block=False)}</span>')
    raise nodes.SkipNode


def _visit_math_block(translator: HTML5Translator, node: math_block) -> None:
    # a region that can be scrolled by keyboard, since long formulas are wider than a phone
    translator.body.append(f'<div class="math" role="group" tabindex="0">{_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """
    Add the renderer.

    Parameters
    ----------
    app : Sphinx
        What builds the pages.

    Returns
    -------
    dict
        What the extension can do.
    """
    app.add_html_math_renderer("mathml", (_visit_math, None), (_visit_math_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
