"""Run notebooks, and keep the same outputs of them every time: python -m tests.notebooks [NAME ...] saves them."""

import base64
import contextlib
import io
import re
import sys
from pathlib import Path

import nbformat
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient
from traitlets.config import Config

FOLDER = Path(__file__).parents[1] / "examples" / "notebooks"
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
          "language_info": {"name": "python"}}  # fmt: skip
DASHBOARD = re.compile(r"http://[\d.]+:\d+/status")
COLOURS = 48  # of a saved picture


def notebooks():
    return sorted(FOLDER.glob("*.ipynb"))


def run(path):
    """The notebook with new outputs; an error of a cell is an error here."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, kernel_name="python3", timeout=240, resources={"metadata": {"path": path.parent}})
    client.execute()
    return notebook


class Shell(InteractiveShell):
    """IPython without a window or a terminal, which draws inline."""

    def enable_gui(self, gui=None):
        """Nothing to enable."""


def printed(path):
    """What the cells write to standard output in this process: no kernel starts, and workers are forked ready."""
    config = Config()
    config.HistoryManager.enabled = False
    shell, held = Shell(config=config), io.StringIO()
    with contextlib.chdir(path.parent), contextlib.redirect_stdout(held):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                shell.run_cell(cell.source).raise_error()
    return held.getvalue()


def written(notebook, name="stdout"):
    """What the cells wrote to a stream."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == name)


def tidy(notebook):
    """Take out what differs from run to run or from machine to machine, and make pictures small."""
    notebook.metadata = nbformat.from_dict(KERNEL)
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", nbformat.from_dict({})
        if "outputs" in cell:  # without what a busy machine makes Dask say when workers end
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
            if "text" in output:
                output.text = _anywhere(output.text)
            for kind, value in output.get("data", {}).items():
                output.data[kind] = _small(value) if kind == "image/png" else _anywhere(value)
    return notebook


def _anywhere(text):
    return DASHBOARD.sub("http://127.0.0.1:8787/status", text)


def _small(picture):
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        held = io.BytesIO()
        image.convert("RGB").quantize(COLOURS).save(held, "png", optimize=True)
    return base64.b64encode(held.getvalue()).decode()


def main(names):
    for path in notebooks():
        if not names or path.stem in names:
            nbformat.write(tidy(run(path)), path)
            print(f"{path.name}: {path.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
