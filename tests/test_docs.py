"""The examples in docs/ run and print what the pages say."""

import ast
import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_a_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS)
    assert found.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_page(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_finished(page):
    """No line is a word in capitals that stands for something still to come."""
    assert not re.findall(r"^[A-Z]{3,}$|\bTODO\b|\bTBD\b|\bFIXME\b", page.read_text(), re.MULTILINE)


NAMED = re.compile(r"`((?:[\w.]+/)*[\w.]+\.py|(?:\w+/)+)(?::[\w.]+)?`")


@pytest.mark.parametrize("page", [*sorted((ROOT / "docs/developing").glob("*.md")), ROOT / "CONTRIBUTING.md"], ids=str)
def test_files_that_pages_for_developers_name_are_there(page):
    """In the repository, the package, or, by a bare name, somewhere in them; `poisson` stands for a model to be."""
    names = {name for name in NAMED.findall(page.read_text()) if "poisson" not in name}
    every = {path.name for folder in ("dask_dca", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")}
    assert not {n for n in names if n not in every and not any((ROOT / on / n).exists() for on in ("", "dask_dca"))}


def test_the_page_for_developers_has_a_line_for_each_module():
    text = (ROOT / "docs/developing/index.md").read_text()
    modules = {path.name for path in (ROOT / "dask_dca").glob("*.py")} - {"__init__.py"}
    folders = {f"{path.parent.name}/" for path in (ROOT / "dask_dca").glob("*/__init__.py")}
    rows = set(re.findall(r"^\| `([\w./]+)` \|", text, re.MULTILINE))
    assert rows == modules | folders - set(re.findall(r"^(\w+/) ", text, re.MULTILINE))


PROMISES = ROOT / "docs" / "promises.md"
TESTS = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_each_promise_has_a_test():
    """Each row of the tables names tests that exist, in files that pytest collects."""
    rows = [line for line in PROMISES.read_text().splitlines() if line.startswith("| ") and "| held by |" not in line]
    assert len(rows) > 50
    assert not [row for row in rows if not TESTS.search(row.split(" | ")[1])]
    lost = []
    for path, name in TESTS.findall(PROMISES.read_text()):
        there = (ROOT / path).is_file() and name in functions(ROOT / path)
        lost += [] if there and Path(path).name.startswith("test_") else [f"{path}::{name}"]
    assert not lost


def functions(path):
    """Names of the tests in a file that are not skipped without a condition."""
    tests = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    marks = {node.name: [ast.unparse(mark) for mark in node.decorator_list] for node in tests}
    return {name for name, own in marks.items() if not any(mark.startswith("pytest.mark.skip(") for mark in own)}
