"""The documentation is built without a warning, nothing in it leads nowhere, and nothing in it asks the network."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import dask_dca
from dask_dca import errors, plotting
from dask_dca.cli.main import main
from tests.browser import browser
from tests.conftest import ROOT

DOCS = ROOT / "docs"
MODELS = {
    "NMF": "nmf",
    "GaussianMixture": "gaussian-mixture",
    "GaussianHMM": "hidden-markov-model",
    "KalmanFilter": "kalman-filter",
    "LatentDirichletAllocation": "topics",
    "SubspaceClustering": "subspace-clustering",
}
LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}  # without a click


@dataclass
class Page(HTMLParser):
    """What a page of the site links to, loads, and can be linked to by."""

    text: str
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def __post_init__(self):
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids.update(filter(None, [given.get("id"), given.get("name") if tag == "a" else None]))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get(LOADED.get(tag)):
            self.loads.append(given[LOADED[tag]])


def extension(name):
    """One of the site's own Sphinx extensions."""
    found = importlib.util.spec_from_file_location(name, DOCS / "_extensions" / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def copy_of(folder):
    """The sources beside links to what they link to, so that nothing is written into the repository."""
    shutil.copytree(DOCS, folder / "docs", ignore=shutil.ignore_patterns("generated", "_build", "__pycache__"))
    for neighbour in ROOT.iterdir():
        if neighbour.name not in ("docs", "site", "tests") and not neighbour.name.startswith("."):
            (folder / neighbour.name).symlink_to(neighbour)
    return folder / "docs"


def build(docs, site):
    """Run Sphinx as `make docs` does, in a process that can't reach a network by Python."""
    options = ["-W", "-n", "--keep-going", "-q", "-d", str(site.parent / "doctrees")]
    environment = {name: value for name, value in os.environ.items() if name != "DASK_DCA_DOCS_ONLINE"}
    code = (
        "import gc, socket, sys\n"
        "sys.modules['rfc3987_syntax'] = None\n"  # as tests/conftest.py does
        "gc.disable()\n"  # a third of the time, for half a gigabyte
        "def refuse(*_, **__): raise OSError('the site is built without a network')\n"
        "socket.getaddrinfo = socket.socket.connect = refuse\n"
        "from sphinx.cmd.build import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", code, *options, str(docs), str(site)]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site: its folder, and its pages by path."""
    folder = tmp_path_factory.mktemp("site")
    ran = build(copy_of(folder), folder / "html")
    assert (ran.returncode, ran.stderr) == (0, "")
    root = folder / "html"
    return root, {str(path.relative_to(root)): Page(path.read_text()) for path in root.rglob("*.html")}


def test_the_makefile_builds_as_the_test_does():
    assert "-m sphinx -W -n --keep-going -q" in (ROOT / "Makefile").read_text()


def test_no_link_leads_nowhere(site):
    root, pages = site
    lost = []
    for name, page in pages.items():
        for target in {*page.links, *page.loads}:
            parts = urlsplit(target)
            if parts.scheme:
                continue
            path = os.path.normpath(os.path.join(os.path.dirname(name), unquote(parts.path))) if parts.path else name
            there = (root / path).is_file()
            anchor = unquote(parts.fragment)
            if not there or (anchor and path in pages and anchor not in pages[path].ids):
                lost.append(f"{name}: {target}")
    assert not lost


def test_nothing_is_loaded_from_elsewhere(site):
    root, pages = site
    assert not [(name, target) for name, page in pages.items() for target in page.loads if urlsplit(target).netloc]
    far = re.compile(r"(url\(|@import)\s*['\"]?(https?:)?//")
    assert not [path for path in root.rglob("*.css") if far.search(path.read_text())]


def test_every_public_name_has_a_page_with_its_members(site):
    _, pages = site
    names = [
        *(f"dask_dca.{name}" for name in dask_dca.__all__),
        *(f"dask_dca.plotting.{name}" for name in plotting.__all__),
        *(f"dask_dca.errors.{name}" for name in vars(errors) if name.endswith(("Error", "Warning"))),
    ]
    known = set().union(*(page.ids for page in pages.values()))
    assert not set(names) - known
    for model in MODELS:
        members = {name: getattr(getattr(dask_dca, model), name) for name in dir(getattr(dask_dca, model))}
        ours = {
            name for name, member in members.items() if str(getattr(member, "__module__", "")).startswith("dask_dca")
        }
        own = ours | {name for name, member in members.items() if isinstance(member, property)}
        assert {"fit", "save"} <= own
        assert not {f"dask_dca.{model}.{name}" for name in own if not name.startswith("_")} - known, model


def test_all_pages_can_be_reached_from_the_first(site):
    _, pages = site
    seen, front = set(), ["index.html"]
    while front:
        name = front.pop()
        if name in seen or name not in pages:
            continue
        seen.add(name)
        front += [
            os.path.normpath(os.path.join(os.path.dirname(name), urlsplit(link).path))
            for link in pages[name].links
            if not urlsplit(link).scheme and urlsplit(link).path
        ]
    wanted = [f"models/{page}.html" for page in [*MODELS.values(), "anchors-and-cones"]]
    wanted += [f"running/{page}.html" for page in ("index", "kubernetes", "slurm", "jupyter")]
    wanted += [str(path.relative_to(DOCS).with_suffix(".html")) for path in DOCS.glob("*.md")]
    wanted += [f"generated/{path.stem}.html" for path in (ROOT / "examples" / "notebooks").glob("*.ipynb")]
    assert not set(wanted) - seen


def test_links_of_the_readme_are_pages(site):
    _, pages = site
    readme = (ROOT / "README.md").read_text()
    linked = re.findall(r"\]\(docs/([^)#]+)\.md", readme)
    assert {f"models/{MODELS[name]}" for name in MODELS if name != "NMF"} <= set(linked)
    assert not [name for name in linked if f"{name}.html" not in pages]


def test_formulas_are_drawn(site):
    _, pages = site
    assert pages["method.html"].text.count("<math") > 30
    for name, page in pages.items():
        if not name.startswith("generated/"):
            words = re.sub(r"<(pre|script|style)\b.*?</\1>", "", page.text, flags=re.DOTALL)
            assert not re.search(r"\\(?:begin|operatorname|mathbb|frac|top)\b|\$\$", words), name


@pytest.mark.parametrize("formula", [r"\nosuchcommand{x}", r"\frac{1}"])
def test_a_formula_that_cannot_be_drawn_stops_the_build(formula):
    node = SimpleNamespace(astext=lambda: formula)
    with pytest.raises(ValueError, match="can't be drawn"):
        extension("mathml")._mathml(node, as_block=True)


def test_files_of_the_repository_become_downloads(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "deploy").mkdir()
    on_site = extension("outside")._on_site
    page, pages = tmp_path / "docs" / "page.md", tmp_path / "docs"
    text = "[a](../deploy/README.md#top), [`b`](../deploy), [c](other.md), ![d](../x.png), [e](https://example.org)"
    text += ", [f](../CHANGELOG.md), [g](../examples/notebooks/g.ipynb)"
    wanted = "{download}`a <../deploy/README.md>`, `deploy`, [c](other.md), ![d](../x.png), [e](https://example.org)"
    wanted += ", [f](changelog.md), [g](generated/g.ipynb)"
    assert on_site(text, page, pages) == wanted


def test_planted_mistakes_stop_the_build(tmp_path):
    docs = copy_of(tmp_path)
    for name in ("api.md", "models", "running"):  # what has no part in this, to be quick
        target = docs / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    for page in docs.glob("*.md"):
        page.unlink()
    (docs / "index.md").write_text(
        "# Page\n\n[gone](nowhere.md) and [file](../nowhere.txt) and [part](#nopart)\n\n{py:func}`dask_dca.nothing`\n"
    )
    (docs / "orphan.md").write_text("# In no list\n")
    ran = build(docs, tmp_path / "html")
    assert ran.returncode == 1
    for sign in ("nowhere.md", "nowhere.txt", "nopart", "dask_dca.nothing", "orphan"):
        assert sign in ran.stderr, sign


def test_commands_of_the_first_model(tmp_path, monkeypatch):
    page = (DOCS / "first-model.md").read_text()
    commands = [
        line
        for block in re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        for line in block.splitlines()
    ]
    assert len(commands) >= 4
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).dirichlet(np.full(9, 0.2), 200) @ np.random.default_rng(1).random((9, 12))
    header = ",".join(f"band_{number}" for number in range(12))
    np.savetxt("spectra.csv", rows, delimiter=",", header=header, comments="")
    zarr.create_array("spectra.zarr", data=rows, chunks=(50, 12))
    for line in commands:
        words = shlex.split(line)
        assert words[:2] == ["dask", "dca"]
        ran = CliRunner().invoke(main, words[2:], catch_exceptions=False)
        assert ran.exit_code == 0, (line, ran.output)


def watched(opened, faults):
    """A browser's page whose requests beyond the site and whose messages are faults."""
    page = opened.new_page()
    page.on("request", lambda request: request.url.startswith(("file:", "data:")) or faults.append(request.url))
    page.on("console", lambda message: message.type in ("error", "warning") and faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    return page


@pytest.mark.slow
def test_pages_in_a_browser(site):
    root, pages = site
    names = [name for name in pages if not name.startswith("generated/")] + ["generated/dask_dca.GaussianHMM.html"]
    faults, widths = [], (390, 1280)
    with browser() as opened:
        page = watched(opened, faults)
        for name in names:
            page.goto((root / name).as_uri())
            widths = widths[::-1]  # the next page begins with the width that this one ends with
            for width in widths:
                page.set_viewport_size({"width": width, "height": 844})
                beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                faults += [f"{name} is {beyond} pixels too wide at {width}"] if beyond > 0 else []
    assert not faults


def test_search_finds_words(site):
    root, _ = site
    index = json.loads((root / "searchindex.js").read_text().removeprefix("Search.setIndex(").removesuffix(")"))
    assert {"anchor", "coverag"} <= set(index["terms"])
