"""One description, several renderings: the page, plain text, and a page without pictures."""

import copy
import re

import numpy as np
import pytest
from click.testing import CliRunner

import dask_dca as dca
from dask_dca.cli.main import main
from dask_dca.errors import InvalidParameterError
from dask_dca.reporting import page as rendering
from dask_dca.reporting import pictures
from dask_dca.reporting.data import Inputs
from dask_dca.reporting.page import model_report
from dask_dca.reporting.pictures import Bar, Figure, Gallery, Table
from tests.report.conftest import SHAPES, example
from tests.report.test_page import words


def _plain(text):
    return " ".join(text.split())


def _parts(story):
    for section in story.sections:
        for part in section.parts:
            yield from part.figures if isinstance(part, Gallery) else (part,)


def test_text_says_what_the_description_says(name):
    model, _ = example(name)
    story = model_report(model, Inputs(shape=SHAPES.get(name)))
    text = dca.report(model, shape=SHAPES.get(name), form="text")
    flat = _plain(text)
    said = [story.headline, *story.warnings, *(reading.statement for reading in story.readings)]
    said += [line for section in story.sections for line in (section.title, *section.lead)]
    for part in _parts(story):
        said += [part.label, part.caption] if isinstance(part, Figure) else [part.caption]
        if isinstance(part, Table):
            said += [cell for row in part.rows for cell in row if not isinstance(cell, Bar)]
    for line in said:
        assert _plain(line) in flat.replace("- ", "") or _plain(line) in flat, line
    assert "<" not in re.sub(r"<[^a-z/]", "", text)


def test_no_figure_says_its_title_twice(name):
    model, _ = example(name)
    text = _plain(dca.report(model, shape=SHAPES.get(name), form="text"))
    for part in _parts(model_report(model, Inputs(shape=SHAPES.get(name)))):
        if isinstance(part, Figure):
            assert f"{_plain(part.title)}: {_plain(part.title)}" not in text
            assert _plain(part.label) in text


def test_without_matplotlib_a_page_has_text_and_tables(monkeypatch):
    model, X = example("hmm")
    monkeypatch.setattr(pictures, "can_draw", lambda: False)
    monkeypatch.setattr(rendering, "can_draw", lambda: False)
    page = dca.report(model, data=X)
    assert 'class="chart' not in page
    said = words(page)
    assert said.count(pictures.NO_PLOTS) == 1
    story = model_report(model, Inputs())
    assert story.headline in said
    assert page.count("<table") == sum(isinstance(part, Table) for part in _parts(story)) + 2


def test_the_command_prints_text_without_an_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, _ = example("nmf")
    model.save("model.zarr")
    done = CliRunner().invoke(main, ["report", "model.zarr"])
    assert done.exit_code == 0
    assert done.stdout == dca.report(model, form="text")
    assert [path.name for path in tmp_path.iterdir()] == ["model.zarr"]


def test_words_of_any_script_are_drawn():
    model = copy.copy(example("lda")[0])
    model.feature_names_in_ = np.array([f"主题{i} $x$" for i in range(model.n_features_in_)], dtype=object)
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", dca.report(model))
    assert f"主题{model.anchor_words_[0]} $x$" in [text.strip() for text in drawn]


def test_text_is_not_written(tmp_path):
    model, _ = example("nmf")
    with pytest.raises(InvalidParameterError, match="returned, not written"):
        dca.report(model, tmp_path / "report.txt", form="text")
    with pytest.raises(InvalidParameterError, match='"html" or "text"; received \'pdf\''):
        dca.report(model, form="pdf")


def test_numbers_are_written_as_in_print():
    values = (0.0, -0.0, 999.4, 999.7, 1000.0, 1556.2, -1556.2, 12_345.0, 999_999.6, 1_234_567.0, 1e-5, -3.21, np.nan)
    shown = [pictures.formatted(value).replace(pictures.MINUS, "-") for value in values]
    assert shown[:9] == ["0", "0", "999", "1,000", "1,000", "1,560", "-1,560", "12,345", "1e+06"]
    assert shown[9:] == ["1.23e+06", "1e-05", "-3.21", pictures.DASH]
