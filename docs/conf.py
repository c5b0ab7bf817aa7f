"""Sphinx configuration; build by `make docs` or `python -m sphinx docs docs/_build`."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
for notebook in (HERE / "../examples/notebooks").glob("*.ipynb"):  # pages must be below this folder
    (HERE / "generated").mkdir(exist_ok=True)
    shutil.copy(notebook, HERE / "generated" / notebook.name)

project = "dask-dca"
author = "the dask-dca developers"
project_copyright = author
release = version = importlib.metadata.version("dask-dca")

extensions = [
    "mathml",  # in _extensions: formulas as MathML, which needs no script
    "myst_nb",  # Markdown, and notebooks with the outputs that they are saved with
    "numpydoc",
    "commands",  # in _extensions: the reference of the command line
    "outside",  # in _extensions: links to files of the repository become downloads
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
]
nb_execution_mode = "off"
exclude_patterns = ["_build", "_extensions", "_static", "_templates", "**.ipynb_checkpoints"]
templates_path = ["_templates"]
nitpicky = True
nitpick_ignore_regex = [
    # "See also" names other libraries: links where DASK_DCA_DOCS_ONLINE is set, names where it is not
    ("py:obj", r"(dask|hmmlearn|numpy|pykalman|scipy|sklearn|xarray|zarr)\..*"),
]

# Markdown: `$...$` and `$$...$$` are formulas, here and on GitHub; headings can be linked to
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

# Docstrings: types are in their sections, not in signatures; `...` is code
default_role = "literal"
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
autodoc_preserve_defaults = True
autosummary_generate = True
numpydoc_show_class_members = False  # the template lists them
numpydoc_xref_param_type = False

# Other libraries' inventories are fetched only if the network may be used
_ONLINE = bool(os.environ.get("DASK_DCA_DOCS_ONLINE"))
intersphinx_mapping = {
    name: (f"https://{address}", None)
    for name, address in {
        "dask": "docs.dask.org/en/stable/",
        "numpy": "numpy.org/doc/stable/",
        "scipy": "docs.scipy.org/doc/scipy/",
        "sklearn": "scikit-learn.org/stable/",
    }.items()
    if _ONLINE
}

html_theme = "furo"
_urls = dict(line.split(", ", 1) for line in importlib.metadata.metadata(project).get_all("Project-URL", []))
html_theme_options = {  # where the repository is, at the foot of each page
    "footer_icons": [{"name": name, "url": _urls[name], "html": name, "class": ""} for name in ("Source", "Issues")]
}
html_title = "dask-dca"
html_static_path = ["_static"]
html_css_files = ["dask_dca.css"]
html_copy_source = False
html_show_sphinx = False
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"


def _trim(app: Sphinx, page: nodes.document) -> None:
    """Remove the empty line at the end of a block of examples, which doctest needs before the closing fence."""
    del app
    for block in page.findall(nodes.literal_block):
        text = block.astext().rstrip()
        if block.rawsource == block.astext():
            block.rawsource = text
            block.children = []
            block += nodes.Text(text)


def setup(app: Sphinx) -> None:
    """Register the processing of every page."""
    app.connect("doctree-read", _trim)
