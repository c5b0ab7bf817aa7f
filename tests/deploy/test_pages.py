"""Every command of docs/running is run by a test that takes it from the page, or has a reason why none does."""

import ast
from pathlib import Path

import pytest

from dask_dca.demo import write_image
from tests.conftest import ROOT
from tests.deploy import pages

NAMES = sorted(path.name for path in pages.FOLDER.glob("*.md"))


@pytest.mark.parametrize("page", NAMES)
def test_each_command_has_a_test_or_a_reason(page):
    found, listed = pages.commands(page), pages.COMMANDS[page]
    assert [command[: len(begin)] for command, (begin, _) in zip(found, listed, strict=True)] == [
        begin for begin, _ in listed
    ]
    assert len(pages.blocks(page, "py")) == len(pages.SCRIPTS.get(page, []))


EVERY = {who for own in pages.COMMANDS.values() for _, who in own} | {w for own in pages.SCRIPTS.values() for w in own}


@pytest.mark.parametrize("who", sorted(who for who in EVERY if not who.startswith("no: ")))
def test_who_runs_commands_takes_them_from_the_page(who):
    path, _, name = who.partition("::")
    [function] = [
        node
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    called = [ast.unparse(node) for node in ast.walk(function) if isinstance(node, ast.Call)]
    assert {f"pages.by('{name}')", f"pages.scripts('{name}')"} & set(called)


def test_fits_of_the_page_of_jupyter(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()
    write_image("demo/image.zarr")
    names = {}
    for script in pages.scripts("test_fits_of_the_page_of_jupyter"):
        exec(script, names)
        assert names["model"].components_.shape[0] == 9
    assert "dca-fetch" in capfd.readouterr().err  # with verbose=True
