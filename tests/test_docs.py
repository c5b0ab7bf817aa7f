"""The examples in docs/ run and print what the pages say."""

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
