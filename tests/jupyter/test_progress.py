"""Progress as people see it: bars redrawn in a terminal and in a notebook, plain lines in a log file."""

import os
import pty
import re
import subprocess
import sys

import dask
import dask.array as da
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import dask_dca as dca
from tests.notebooks import written

FIT = """
import time

import dask.array as da
import numpy as np
from distributed import Client

import dask_dca as dca

X = da.from_array(np.random.default_rng(0).random((2000, 12)), chunks=(250, -1))
dca.NMF(3, verbose=True).fit(X)
with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0"):
    dca.NMF(3, verbose=True).fit(X)
    time.sleep(0.5)  # a scheduler that ends in the same tenth of a second as a bar complains of it
"""
BAR = re.compile(r"\[[# ]{40}\] \| +\d+% Completed \| .+")
PASSES = ("fetch", "gram", "divide")


def on_screen(text):
    """The lines that stay after carriage returns and the one escape sequence that clears a line."""
    lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        shown = ""
        for part in line.split("\r"):
            _, cleared, after = part.rpartition("\x1b[2K")
            shown = after if cleared else after + shown[len(after) :]
        lines.append(shown.strip())
    return [line for line in lines if line]


def check(lines):
    """Every pass begins and ends with a line of its own, and nothing is left but whole bars."""
    for name in PASSES:
        assert f"dca-{name} ..." in lines
        assert any(re.fullmatch(rf"dca-{name} done in [\d.]+ s", line) for line in lines)
    others = [line for line in lines if not re.fullmatch(r"dca-\w+ (\.\.\.|done in [\d.]+ s)", line)]
    assert [line for line in others if not BAR.fullmatch(line)] == []
    return others


def test_bars_are_redrawn_in_a_terminal():
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", FIT], stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 65_536):
                parts.append(part)
        except OSError:  # the other side has closed
            pass
        assert process.wait(60) == 0
    os.close(ours)
    text = b"".join(parts).decode()
    bars = check(on_screen(text))
    assert all("100% Completed" in bar for bar in bars)
    assert text.count("Completed") > len(bars)  # they were drawn more than once, in one line
    assert "Traceback" not in text


def test_bars_are_redrawn_in_a_notebook():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FIT)])
    NotebookClient(notebook, kernel_name="python3", timeout=100).execute()
    text = written(notebook, "stderr")
    check(on_screen(text))
    assert text.count("Completed") >= 2 * len(PASSES)
    assert written(notebook, "stdout") == ""


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_a_log_file_gets_lines(capfd, scheduler):
    X = da.from_array(np.random.default_rng(0).random((2000, 12)), chunks=(250, -1))
    with dask.config.set(scheduler=scheduler):
        dca.NMF(3, verbose=True).fit(X)
    out, err = capfd.readouterr()
    assert out == ""
    assert "\r" not in err
    assert "\x1b" not in err
    assert check(err.splitlines()) == []
