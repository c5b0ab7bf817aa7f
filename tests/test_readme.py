"""The README's examples run, and print what it says."""

import re
from pathlib import Path

import numpy as np
import pytest

import dask_dca as dca
from dask_dca.demo import image_rows, load_minerals

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


def test_figures_of_the_picture():
    minerals = load_minerals()
    X = np.vstack(list(image_rows(minerals)))
    model = dca.NMF(9).fit(X)
    assert max(minerals.nearest(row)[1] for row in model.components_) <= 1
    text = " ".join(README.split())
    assert (
        f"coverage {model.coverage_:.3f} with all nine anchors, {model.coverage_curve_[1]:.2f} with the first two"
        in text
    )
    row, angle = re.search(r"grey row (\d+), whose spectrum is ([\d.]+)° from the anchor of hematite", text).groups()
    hematite = next(anchor for anchor in model.components_ if minerals.nearest(anchor)[0] == "Hematite")
    seen = X[int(row)].astype(float)
    between = np.degrees(np.arccos(seen @ hematite / np.linalg.norm(seen) / np.linalg.norm(hematite)))
    assert (int(row) in model.candidates_, f"{between:.1f}") == (True, angle)
