"""Docstrings: all of numpydoc for what is public, a few lines for what is inside; their examples run."""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest
from numpydoc.validate import validate

import dask_dca
from dask_dca import plotting

PACKAGE = Path(dask_dca.__file__).parent
API = (PACKAGE.parent / "docs" / "api.md").read_text()
# all checks but: extended summaries, examples and "see also" everywhere, and matters of layout
LEFT_OUT = {"ES01", "EX01", "SA01", "SA04", "GL01", "PR02", "PR03", "RT02", "RT04", "SS05"}
RECORDS = ("dask_dca.AnchorResult", "dask_dca.VoteHistogram")  # their fields are attributes, and told as such
MOST_LINES = 12  # of a docstring inside, its quotes among them; the most of them have six or fewer


def own(found):
    """The function behind a method or property, if it is this library's."""
    found = getattr(found, "__func__", found)
    found = found.fget if isinstance(found, property) else found
    found = inspect.unwrap(found) if callable(found) else found
    return found if inspect.isfunction(found) and found.__module__.startswith("dask_dca") else None


def documented():
    """Names of all public functions and classes, and of their methods."""
    names = [f"dask_dca.{name}" for name in dask_dca.__all__]
    names += [f"dask_dca.plotting.{name}" for name in plotting.__all__]
    home = ""
    for line in API.splitlines():
        home = line.split()[-1] if line.startswith(".. currentmodule::") else home
        names += [f"{home}.{line.strip()}"] if re.fullmatch(r" {3}[a-z]\w*(\.\w+)+", line) else []
    for name in names:
        yield name
        module, _, last = name.rpartition(".")
        found = getattr(importlib.import_module(module), last)
        if inspect.isclass(found):
            for method in dir(found):
                if not method.startswith("_") and own(inspect.getattr_static(found, method)):
                    yield f"{name}.{method}"


DOCUMENTED = sorted(set(documented()))
EXAMPLES = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text())


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_docstrings_are_complete(name):
    left_out = LEFT_OUT | ({"PR01"} if name in RECORDS else set())
    assert not [error for error in validate(name)["errors"] if error[0] not in left_out]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_examples_run(path):
    module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert (found.failed, found.attempted > 0) == (0, True)


def test_many_names_are_public():
    assert len(DOCUMENTED) > 120


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: "-".join(path.relative_to(PACKAGE).parts)
)
def test_docstrings_inside_are_short(path):
    for node in ast.walk(ast.parse(path.read_text())):
        text = ast.get_docstring(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else None
        if text and not re.search(r"^-{3,}$", text, re.MULTILINE):  # else it is of a public name, or of a command
            assert text.count("\n") < MOST_LINES, node.name
