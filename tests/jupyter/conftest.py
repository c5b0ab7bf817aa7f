"""One JupyterLab and one Chromium for all tests of this folder."""

import pytest

from tests.browser import browser
from tests.jupyter.lab import jupyter_lab


@pytest.fixture(scope="module")
def chromium():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    with jupyter_lab(folder) as running:
        yield running


@pytest.fixture
def page(chromium, lab):
    """A page that is let into the server, and the errors that its console showed."""
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(120_000)
    opened = context.new_page()
    opened.errors = []
    opened.on(
        "console", lambda said: said.type == "error" and opened.errors.append(f"{said.text} ({said.location['url']})")
    )
    opened.on("pageerror", lambda error: opened.errors.append(str(error)))
    opened.goto(f"{lab.url}/login?token={lab.token}")
    yield opened
    context.close()
