"""A report as one self-contained HTML page, as a few lines in a notebook, and as plain text."""

from __future__ import annotations

import hashlib
import html
import importlib
import os
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dask_dca import __version__
from dask_dca._registry import MODELS, Model
from dask_dca.engine.process import numpy_defaults
from dask_dca.errors import InvalidInputError, InvalidParameterError, ModelFileError, without_secrets
from dask_dca.output import atomic_file, check_target, file_system, is_url, local_path, store_errors
from dask_dca.reporting.data import DataSummary, Inputs, check_shape
from dask_dca.reporting.pictures import (
    NO_PLOTS,
    Bar,
    Caveat,
    Figure,
    Gallery,
    Report,
    Table,
    can_draw,
    sequences_of,
    shortened,
    svg_of,
)

if TYPE_CHECKING:
    from jinja2 import Environment


class Page(str):
    """A page of HTML, which notebooks display."""

    def __repr__(self) -> str:
        return f"<page of {len(self):,} characters>"

    def _repr_html_(self) -> str:
        frame = 'style="width: 100%; height: 640px; border: 1px solid #ccc"'
        return f'<iframe title="report" sandbox {frame} srcdoc="{html.escape(self)}"></iframe>'


_TEXT_WIDTH: Final = 100  # characters per line of text
_BAR_LENGTH: Final = 20  # characters of a full bar


def as_text(title: str, body: Report, tables: Sequence[Table], made: str) -> str:
    """Format a report as plain text with lines of at most 100 characters, except wider tables.

    title: heading; tables: origin and parameters of the model; made: the call that makes such a model.
    """
    lines = [title, "=" * len(title), *_wrapped(body.headline), ""]
    lines += [f"{fact.value} {fact.name}: {fact.meaning}" for fact in body.facts]
    if body.warnings:
        lines += [*_heading("Caveats"), *(line for text in body.warnings for line in _wrapped(text, "- "))]
    for section in body.sections:
        lines += [*_heading(section.title), *(line for text in section.lead for line in _wrapped(text))]
        for part in section.parts:
            lines += _part_lines(part)
    lines += _heading("The certificate")
    for reading in body.readings:
        lines += _wrapped(f"{reading.statement} {reading.how}", "- ")
    lines += [*_heading("How it was made"), *_wrapped(made)]
    for table in tables:
        lines += _part_lines(table)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _wrapped(text: str, bullet: str = "") -> list[str]:
    return textwrap.wrap(text, _TEXT_WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet))


def _heading(name: str) -> list[str]:
    return ["", name, "-" * len(name)]


def _part_lines(part: Figure | Gallery | Table) -> list[str]:
    if isinstance(part, Table):
        return ["", f"{part.caption}:", *_columns(part), *_wrapped(part.note)]
    if isinstance(part, Figure):
        shown = part.label if part.label.startswith(part.title) else f"{part.title}: {part.label}"
        return _wrapped(f"[{shown}] {part.caption}")
    return [*(line for figure in part.figures for line in _part_lines(figure)), *_wrapped(part.note)]


def _columns(table: Table) -> list[str]:
    cells = [[_cell(cell) for cell in row] for row in (table.head, *table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.head))]
    right = [kind == "number" for kind in table.columns] if table.rows else [False] * len(widths)
    return [
        "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True))
        for row in cells
    ]


def _cell(cell: str | Bar) -> str:
    return "#" * round(_BAR_LENGTH * cell.ends[0] / 100.0) if isinstance(cell, Bar) else cell


_PLAIN_TYPES: Final = (bool, int, float, str, type(None), np.generic)
_HTML_BEGINNING: Final = b"<!doctype html>"
_PAPER_CAVEAT: Final = (
    'method="paper" is the published algorithm, kept for comparison; the default finds more in benchmarks.'
)


def parameter_table(model: Any) -> Table:
    """Make a table of a model's parameters: name, value, and whether it is the default."""
    usual = type(model)().get_params(deep=False)
    lines = []
    for name, value in model.get_params(deep=False).items():
        shown = _plain(value)
        lines.append((name, shown, "default" if shown == _plain(usual[name]) else "chosen"))
    return Table("Parameters", ("parameter", "value", "chosen or default"), tuple(lines))


def call_of(model: Any) -> str:
    """Return the call that makes a model of the same parameters, without defaults."""
    chosen = [f"{name}={value}" for name, value, kind in parameter_table(model).rows if kind == "chosen"]
    return f"{type(model).__name__}({', '.join(chosen)})"


def _plain(value: Any) -> str:
    """Format a value without anything that changes between runs, such as an address in memory."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN_TYPES):
        return shortened(without_secrets(repr(value)), 60)
    if isinstance(value, list | tuple):
        return shortened(
            "[" + ", ".join(_plain(part) for part in value[:20]) + (", ..." if len(value) > 20 else "") + "]", 60
        )
    return type(value).__name__


def made_table(model: Any, summary: DataSummary | None, date: str | None) -> Table:
    """Make a table of the origin of a model and its page.

    summary: data of the report; date: a date to include.
    """
    lines = [
        ("model", f"dask_dca.{type(model).__name__}"),
        ("features", f"{model.n_features_in_:,}" + (", with names" if hasattr(model, "feature_names_in_") else "")),
        ("fingerprint of what was fitted", _fingerprint(model)),
        ("page written by", f"dask-dca {__version__}"),
    ]
    if getattr(model, "n_sequences_", 1) > 1:
        lines.insert(2, ("sequences", f"{model.n_sequences_:,}"))
    if getattr(model, "n_passes_", 0):
        lines.insert(2, ("passes over all rows", f"{model.n_passes_}"))
    if summary is not None:
        known = summary.identity()
        size = f"{known['rows']:,} rows of {known['features']:,} features, {np.dtype(known['dtype']).name}"
        if summary.edges is not None:
            size += f", read as {sequences_of(np.diff(summary.edges).tolist())}"
        lines.append(("data", size))
        lines.append(("fingerprint of the data (shape, type and 32 rows)", known["content"][:16]))
    if date is not None:
        lines.append(("date", shortened(date)))
    return Table("Origin", ("what", "value"), tuple(lines))


def _fingerprint(model: Any) -> str:
    """Hash the fitted arrays; saving and loading does not change the result."""
    held = hashlib.sha256()
    for name, value in sorted(vars(model).items()):
        fitted = name.endswith("_") and not name.startswith("_") and name != "labels_"  # labels are not saved
        if fitted and isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            held.update(f"{name} {value.dtype.str} {value.shape}".encode())
            held.update(np.ascontiguousarray(value).tobytes())
    return held.hexdigest()[:16]


def check_page(path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Check that a page can be written to a path; overwrite: accept an existing HTML page.

    Raises ModelFileError: the path exists, its folder does not, or it can't be written.
    """
    begins = _first_bytes(path)
    if begins is None or not overwrite:
        check_target(path)  # also checks the folder
    elif begins.lower() != _HTML_BEGINNING:
        msg = f"{os.fspath(path)!r} exists and is not an HTML page, so it is not replaced; choose another path"
        raise ModelFileError(msg)


def _first_bytes(path: str | os.PathLike[str]) -> bytes | None:
    """Read the first bytes at a path; None if it does not exist."""
    if is_url(path):
        remote, root = file_system(path, {})
        with store_errors(path):
            return bytes(remote.cat_file(root, 0, len(_HTML_BEGINNING))) if remote.exists(root) else None
    target = local_path(path)
    if not os.path.lexists(target):
        return None
    if not target.is_file():
        return b""
    with target.open("rb") as file:
        return file.read(len(_HTML_BEGINNING))


def write_page(path: str | os.PathLike[str], content: str, *, overwrite: bool = False) -> None:
    """Write a page atomically; overwrite: replace an existing HTML page.

    Raises ModelFileError: the path exists, its folder does not, or it can't be written.
    """
    check_page(path, overwrite=overwrite)
    if not is_url(path):
        with atomic_file(path, overwrite=overwrite) as place:
            place.write_bytes(content.encode())
        return
    remote, root = file_system(path, {})
    try:
        with store_errors(path):
            remote.pipe_file(root, content.encode())
    except OSError as error:
        msg = f"could not write {os.fspath(path)!r}: {error.strerror or error}; nothing of it was left behind"
        raise ModelFileError(msg) from error


@numpy_defaults
def report(
    model: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    data: Any = None,
    lengths: Any = None,
    shape: tuple[int, int] | None = None,
    title: str | None = None,
    date: str | None = None,
    form: str = "html",
    overwrite: bool = False,
) -> str:
    """
    Write a report of a fitted model as a self-contained HTML page, or as plain text.

    The report contains the result, the anchors, their certificate, caveats, and the origin of the model. The page uses
    no network and no scripts, and the same model gives the same bytes. Figures need matplotlib; without it the page has
    only text and tables, and says what to install.

    Parameters
    ----------
    model : estimator
        A fitted model of this library.
    path : str or os.PathLike, optional
        Path or URL where the page is written.
    data : array-like of shape (n, p), optional
        The data, as for the model: the report then includes results on a sample of 2,000 rows, or for topics the
        coherence over all documents.
    lengths : array-like of int, shape (m,), optional
        Lengths of the sequences in the data, for models of sequences; one sequence if None.
    shape : tuple of int, optional
        Lines and columns of the rows as images.
    title : str, optional
        Title of the report; by default the name of the model.
    date : str, optional
        A date to include. The clock is not used, so that pages can be compared.
    form : {"html", "text"}, default "html"
        A page, or plain text with descriptions of the figures. Text is returned, not written.
    overwrite : bool, default False
        Replace an existing HTML page.

    Returns
    -------
    str
        The page, which notebooks display as the value of a cell; or the text.

    Raises
    ------
    DCAError
        Not a model of this library, data or shape that do not match, or a path that can't be written.

    Examples
    --------
    >>> import numpy as np
    >>> import dask_dca as dca
    >>> rng = np.random.default_rng(0)
    >>> X = rng.dirichlet(np.ones(3), 100) @ rng.random((3, 8))
    >>> page = dca.report(dca.NMF(3).fit(X), data=X, title="Three sources")
    >>> page[:15], "<h1>Three sources</h1>" in page
    ('<!doctype html>', True)
    """
    kind = _registry_entry(model).title
    check_is_fitted(model)
    check_shape(shape, model.n_features_in_)
    _check_form(form, path)
    if path is not None:
        check_page(path, overwrite=overwrite)
    summary = None if data is None else DataSummary.of(model, data, lengths)
    body, heading = model_report(model, Inputs(summary, shape)), shortened(title or kind)
    made = shortened(call_of(model), 400)
    origin, parameters = made_table(model, summary, date), parameter_table(model)
    if form == "text":
        return as_text(heading, body, (origin, parameters), made)
    content = environment().get_template("report.html.j2").render(
        missing="" if can_draw() else NO_PLOTS,
        kind=kind,
        title=heading,
        body=body,
        parameters=parameters,
        origin=origin,
        made=made,
    )  # fmt: skip
    if path is not None:
        write_page(path, content, overwrite=overwrite)
    return Page(content)


def _check_form(form: str, path: Any) -> None:
    if form not in ("html", "text"):
        msg = f'form must be "html" or "text"; received {form!r}'
        raise InvalidParameterError(msg)
    if form == "text" and path is not None:
        msg = f"text is returned, not written; leave out the path {os.fspath(path)!r}"
        raise InvalidParameterError(msg)


def _registry_entry(model: Any) -> Model:
    """Return the registry entry of a model's class or of its base class."""
    for made in type(model).__mro__:
        if made.__name__ in MODELS and made.__module__.partition(".")[0] == "dask_dca":
            return MODELS[made.__name__]
    msg = (
        f"there is no report of a {type(model).__name__}; models that have one: {', '.join(MODELS)}; a saved one is "
        "opened by dask_dca.load_model(path)"
    )
    raise InvalidInputError(msg)


def model_report(model: Any, inputs: Inputs) -> Report:
    """Write the report of a fitted model, with caveats of missing entries and of the paper's method."""
    body: Report = importlib.import_module(_registry_entry(model).report).build_report(model, inputs)
    if missing := getattr(model, "n_missing_entries_", 0):
        caveat = Caveat(f"{missing:,} entries of the rows of the fit are missing.", model._missing_note)
        body = replace(body, readings=(*body.readings, caveat))
    return replace(body, warnings=(*body.warnings, _PAPER_CAVEAT)) if model.method == "paper" else body


@cache
def environment() -> Environment:
    """Make the Jinja environment of this package's templates, which escapes everything except Markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("dask_dca.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["svg"] = svg_of
    return made


_NOTEBOOK_LINES: Final = 10  # maximum number of rows of the table in notebooks


def notebook_html(model: Any) -> str | None:
    """Summarise a fitted model in a few lines of HTML, for notebooks.

    Returns a div with its own style, in the colours of the surrounding page; None for a model that is not fitted, or
    whose parameters were set by hand, without a certificate.
    """
    try:
        check_is_fitted(model)
        body = model_report(model, Inputs())
    except (NotFittedError, AttributeError, InvalidInputError):
        return None
    template = environment().get_template("notebook.html.j2")
    return template.render(
        name=type(model).__name__, body=body, found=_first_table(body), parameters=parameter_table(model)
    )


def _first_table(body: Report) -> Table:
    """Return the first rows of the first table: anchors, components, states, topics or clusters."""
    table = next(part for section in body.sections for part in section.parts if isinstance(part, Table))
    rest = len(table.rows) - _NOTEBOOK_LINES
    return replace(
        table, rows=table.rows[:_NOTEBOOK_LINES], note="The first lines; report(model) shows more." if rest > 0 else ""
    )
