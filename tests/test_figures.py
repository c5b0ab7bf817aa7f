"""What pages say was measured is what the files of the benchmarks hold: a sentence or a row of a table each."""

import re

import pytest

from benchmarks import report
from tests.conftest import ROOT
from tests.figures import front, models, streams, topics
from tests.figures.results import document, family, text_of
from tests.figures.settings import SETTINGS, SIMULATED

STATED = {
    "README.md": front.readme,
    "docs/choosing-a-model.md": front.choosing,
    "docs/method.md": front.method,
    "docs/models/anchors-and-cones.md": models.cones,
    "docs/models/gaussian-mixture.md": models.mixture,
    "docs/models/hidden-markov-model.md": models.markov,
    "docs/models/kalman-filter.md": models.kalman,
    "docs/models/nmf.md": models.nmf,
    "docs/models/subspace-clustering.md": models.subspaces,
    "docs/models/topics.md": topics.topics,
    "docs/running/faults.md": front.faults,
    "docs/running/index.md": front.running,
    "docs/scale.md": front.scale,
    "docs/streams.md": streams.streams,
}


@pytest.mark.parametrize("page", STATED)
def test_figures_are_those_of_the_benchmarks(page: str) -> None:
    text = " ".join(text_of(page).split())
    missing = [sentence for sentence in STATED[page]() if sentence not in text]
    assert not missing, f"{page} should say"


PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]
BELOW = {str(below.relative_to(ROOT)) for page in PAGES for below in family(page)[1:]}
UNITS = "times|MB|MiB|GB|seconds|ms|%|microseconds|ns"
FIGURE = re.compile(rf"(?<![\w.])(?:\d[\d,]*\.\d+|\.\d+)(?![\w.]*\w)|(?<![\w.,])\d[\d,]*(?= (?:{UNITS})(?!\w))")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in BELOW])
def test_no_figure_is_without_a_file(page: str) -> None:
    """Fractions, times and sizes are in a sentence above, or are known to be no measurement."""
    text = " ".join(re.sub(r"```.*?```|\$\$.*?\$\$", " ", text_of(page), flags=re.DOTALL).split())
    if SIMULATED[0] in text:
        text = text[: text.index(SIMULATED[0])] + text[text.index(SIMULATED[1]) :]
    measured = list(STATED[page]()) if page in STATED else []
    for known in (*measured, *SETTINGS.get(page, ())):
        assert known in text or known in measured, f"{page} no longer says: {known}"
        text = text.replace(known, FIGURE.sub("", known))
    text = re.sub(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)", " ", text)
    assert not [text[max(0, found.start() - 40) : found.end() + 20] for found in FIGURE.finditer(text)], page


def test_results_are_made_from_the_files() -> None:
    """Each table of RESULTS.md is that of its JSON file."""
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    for path in (ROOT / "benchmarks" / "results").glob("[!.]*.json"):
        kept = document(path.stem)
        records = [record for record in kept["records"] if "failed" not in record]
        for spec in kept["tables"]:
            rows = [r for r in records if all(r[name] == value for name, value in (spec["where"] or {}).items())]
            if rows:
                made = (report.counted if spec.get("counts") else report.table)(spec, rows)
                assert made in text, f"{path.stem}: {spec['title']}"
