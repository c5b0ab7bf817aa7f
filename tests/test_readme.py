"""The README's examples run, and print what it says."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_example_runs(block, capsys):
    exec(compile(block, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    if "unrelated" in block:
        pattern = (
            r"coverage ([\d.]+) and explained ([\d.]+) with pure rows, ([\d.]+) and ([\d.]+) for blends, "
            r"([\d.]+) and (-?[\d.]+) for unrelated"
        )
        stated = re.search(pattern, " ".join(README.split()))
        assert [float(number) for number in stated.groups()] == [float(n) for n in re.findall(r"-?\d\.\d+", printed)]


def test_main_example_is_short():
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 15


def test_links_and_picture_are_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (Path(__file__).parents[1] / target).exists(), target
