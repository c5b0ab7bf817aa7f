"""A headless Chromium for tests of pages: the one of the system, driven by playwright."""

import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",  # containers have none; the tests open pages of this repository only
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def chromium():
    """Path of the system's Chromium; without one the test is skipped, or fails where the variable CI is set."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    message = "no Chromium on this machine; on Debian: apt-get install chromium"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


@contextmanager
def browser():
    """A playwright Browser, closed at the end: `with browser() as opened: page = opened.new_page()`."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, headless=True, args=list(ARGUMENTS))
        try:
            yield opened
        finally:
            opened.close()
