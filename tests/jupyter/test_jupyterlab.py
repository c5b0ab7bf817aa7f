"""A real JupyterLab with the settings of deploy/jupyter: dashboard by proxy, a notebook run by hand in a browser."""

import re
import threading
import time

import dask.array as da
import nbformat
import numpy as np
import pytest
from distributed import Client

import dask_dca as dca
from tests.conftest import SOAK_ONLY
from tests.notebooks import FOLDER

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(500)]

NOTEBOOK = "subspace_digits"
# Said by every JupyterLab, whatever runs in it: no workspace or translation is saved yet, no language server installed.
USUAL = re.compile(r"favicon|/lab/api/(workspaces|translations)/|/lsp/status|preload")


@pytest.fixture(scope="module")
def client():
    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address="127.0.0.1:0") as made:
        yield made


def status_page(client):
    port = client.scheduler_info()["services"]["dashboard"]
    return f"/proxy/{port}/status"


def unusual(errors):
    return [error for error in errors if not USUAL.search(error)]


def slowly(block):
    time.sleep(0.15)  # so that a pass takes longer than the dashboard takes to draw it
    return block


def test_the_dashboard_is_behind_jupyters_door(lab, client):
    code, text = lab.get(status_page(client))
    assert code == 200
    assert "<title>Dask" in text
    code, text = lab.get(status_page(client), token=False)
    assert code in (302, 403)
    assert "Dask" not in text


@SOAK_ONLY  # the names of tasks: tests/cluster/test_cluster.py
def test_the_dashboard_shows_the_passes_by_name(lab, client, page, tmp_path):
    """What its progress panel draws, read out of the page while a fit runs: names that people can read."""
    page.goto(lab.url + status_page(client).replace("/status", "/individual-progress"))
    page.evaluate(
        """() => {
        window.seen = new Set()
        window.setInterval(() => {
            for (const shown of window.Bokeh?.documents ?? [])
                for (const model of shown.all_models ?? shown._all_models.values())
                    for (const name of model.data?.name ?? []) window.seen.add(name)
        }, 50)}"""
    )
    page.wait_for_function("() => window.Bokeh?.documents?.length > 0")
    X = da.from_array(np.random.default_rng(0).random((1600, 20)), chunks=(100, -1)).map_blocks(slowly, dtype=float)
    fit = threading.Thread(target=lambda: dca.NMF(3).fit(X))
    fit.start()
    try:
        page.wait_for_function("() => window.seen.has('dca-divide')")
        page.screenshot(path=tmp_path / "dashboard.png")
    finally:
        fit.join(60)
    assert {"dca-fetch", "dca-gram", "dca-divide"} <= set(page.evaluate("() => [...window.seen]"))
    assert unusual(page.errors) == []


@pytest.fixture(scope="module")
def notebook(tmp_path_factory, lab):
    """The notebook without outputs, in the server's folder."""
    source = nbformat.read(FOLDER / f"{NOTEBOOK}.ipynb", as_version=4)
    for cell in source.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    folder = next(path for path in tmp_path_factory.getbasetemp().glob("lab*/work"))
    path = folder / f"{NOTEBOOK}.ipynb"
    nbformat.write(source, path)
    return path


def open_notebook(page, lab, path):
    page.goto(f"{lab.url}/lab/tree/{path.name}?reset")
    page.get_by_text("| Idle").wait_for()  # in the status bar: the notebook's kernel has come up


def run_all_cells(page):
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()


@SOAK_ONLY
def test_a_notebook_is_run_in_the_browser(lab, page, notebook, tmp_path):
    open_notebook(page, lab, notebook)
    run_all_cells(page)
    last = page.locator(".jp-CodeCell").last
    last.locator(".jp-OutputArea-output", has_text="the other half").wait_for(timeout=240_000)
    page.screenshot(path=tmp_path / "end.png")

    failed = ".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error']"
    assert (
        page.locator(f"{failed}, .jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    )
    outputs = page.locator(".jp-CodeCell .jp-OutputArea-output")
    assert outputs.filter(has_text=re.compile(r"^/proxy/\d+/status\s*$")).count() == 1  # the settings' form of the link
    assert page.locator(".jp-RenderedImage img").count() == 1
    certificate = page.locator(".jp-RenderedHTML", has_text="anchors").first
    certificate.scroll_into_view_if_needed()
    page.screenshot(path=tmp_path / "certificate.png")
    assert "coverage" in certificate.inner_text().lower()
    assert unusual(page.errors) == []


def test_the_panel_of_dask_finds_the_dashboard_by_the_proxy(lab, client, page, tmp_path):
    page.goto(f"{lab.url}/lab?reset")
    page.locator(".jp-SideBar li[title*='Dask']").first.click()
    panel = page.locator("#dask-dashboard-launcher")
    panel.get_by_role("textbox").first.fill(lab.url + status_page(client).removesuffix("/status"))
    panel.get_by_role("textbox").first.press("Enter")
    panel.get_by_role("button", name="Progress", exact=True).wait_for()
    page.screenshot(path=tmp_path / "panel.png")
    assert unusual(page.errors) == []
