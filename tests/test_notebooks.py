"""The notebooks in examples/notebooks run as they are, and are saved with outputs that tell their story unrun."""

import json
import re

import nbformat
import pytest

from tests.notebooks import notebooks, printed, run, written

MOST_BYTES = 200_000
NOTEBOOKS = {path.stem: path for path in notebooks()}


def numbers(pattern, text):
    found = re.search(pattern, text)
    assert found, (pattern, text)
    return [float(number) for number in found.groups()]


def minerals(text):
    angles = [float(angle) for angle in re.findall(r": \w+ +([\d.]+) degrees", text)]
    assert len(angles) == len(set(re.findall(r": (\w+) +[\d.]+ degrees", text))) == 9
    assert max(angles) < 1.0
    assert "the same: True" in text


def wine(text):
    [agreement] = numbers(r"adjusted Rand index ([\d.]+)", text)
    assert agreement > 0.85


def exercises(text):
    [share] = numbers(r"(\d+)% of the frames", text)
    assert share > 90
    assert {"JumpJack", "Twist", "KneeRaise", "UpDown", "ToeTouchTwoHands", "ArmCircle"} <= set(text.split())


def dropouts(text):
    line, smoother = numbers(r"straight line ([\d.]+), of the Kalman smoother ([\d.]+)", text)
    assert smoother < 0.85 * line


def docstrings(text):
    perplexity, n_words = numbers(r"perplexity of \d+ other texts: (\d+), of (\d+) words", text)
    assert perplexity < n_words / 3
    assert len(re.findall(r"^ *\d+%  \w+", text, re.MULTILINE)) == 10


def digits(text):
    cones, kmeans = numbers(r"cones +([\d.]+)\nk-means +([\d.]+)", text)
    assert cones > 0.75 > kmeans


STORIES = {
    "nmf_minerals": minerals,
    "mixture_wine": wine,
    "hmm_exercises": exercises,
    "kalman_dropouts": dropouts,
    "lda_docstrings": docstrings,
    "subspace_digits": digits,
}


IN_A_KERNEL = "hmm_exercises"  # the quickest; tests/jupyter has another one in a browser


def test_there_is_a_notebook_for_each_model():
    assert set(NOTEBOOKS) == set(STORIES)


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STORIES)
def test_a_notebook_runs_and_tells_its_story(name):
    if name != IN_A_KERNEL:
        STORIES[name](printed(NOTEBOOKS[name]))
        return
    notebook = run(NOTEBOOKS[name])
    STORIES[name](written(notebook))
    complaints = written(notebook, "stderr").splitlines()
    assert [line for line in complaints if "distributed.nanny - WARNING - Worker process still alive" not in line] == []


@pytest.mark.parametrize("name", STORIES)
def test_the_saved_notebook_can_be_read(name):
    path = NOTEBOOKS[name]
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    STORIES[name](written(notebook))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    kinds = {kind for cell in code for output in cell.outputs for kind in output.get("data", {})}
    assert {"image/png", "text/html"} <= kinds
    assert path.stat().st_size < MOST_BYTES
    assert notebook.cells[0].source.startswith("# ")


@pytest.mark.parametrize("name", STORIES)
def test_nothing_of_the_machine_is_saved(name):
    text = NOTEBOOKS[name].read_text()
    assert not re.findall(
        r"/(?:tmp|home|root|work|Users)/\w+|http://(?!127\.0\.0\.1:8787/status|www\.w3\.org)\S+", text
    )
    assert '"stderr"' not in text
    assert "Traceback" not in text
    assert json.loads(text)["metadata"].keys() == {"kernelspec", "language_info"}


def test_links_between_notebooks_lead_somewhere():
    for path in NOTEBOOKS.values():
        for cell in nbformat.read(path, as_version=4).cells:
            for target in re.findall(r"\]\(([^)#]+)\)", cell.source if cell.cell_type == "markdown" else ""):
                assert "://" in target or (path.parent / target).exists(), target
