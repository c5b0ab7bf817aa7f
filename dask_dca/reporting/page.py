"""A report as one self-contained HTML page, as a few lines in a notebook, and as plain text."""

from __future__ import annotations

import hashlib
import html
import importlib
import os
import textwrap
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dask_dca import __version__
from dask_dca._registry import MODELS
from dask_dca.engine.numerics import numpy_defaults
from dask_dca.errors import InvalidInputError, InvalidParameterError, ModelFileError, without_secrets
from dask_dca.output import check_target, file_beside, file_system, is_url, local_path, reaching
from dask_dca.reporting.data import DataSummary, Given, check_shape
from dask_dca.reporting.pictures import MISSING, Bar, Caveat, Figure, Table, can_draw, sequences_of, shortened, svg_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import Environment

    from dask_dca._registry import Model
    from dask_dca.reporting.pictures import Gallery, Report


class Page(str):
    """A page of HTML, which a notebook shows as such."""

    def __repr__(self) -> str:
        return f"<page of {len(self):,} characters>"

    def _repr_html_(self) -> str:
        frame = 'style="width: 100%; height: 640px; border: 1px solid #ccc"'
        return f'<iframe title="report" sandbox {frame} srcdoc="{html.escape(self)}"></iframe>'


_WIDTH: Final = 100
_BAR: Final = 20  # letters of a full bar


def as_text(title: str, story: Report, tables: Sequence[Table], made: str) -> str:
    """Write a report as lines of at most 100 letters, wider tables excepted.

    title: its heading; tables: how the model was made; made: the call that makes such a model.
    """
    lines = [title, "=" * len(title), *_wrapped(story.headline), ""]
    lines += [f"{fact.value} {fact.name}: {fact.meaning}" for fact in story.facts]
    if story.warnings:
        lines += [*_heading("Caveats"), *(line for text in story.warnings for line in _wrapped(text, "- "))]
    for section in story.sections:
        lines += [*_heading(section.title), *(line for text in section.lead for line in _wrapped(text))]
        for part in section.parts:
            lines += _part(part)
    lines += _heading("The certificate")
    for reading in story.readings:
        lines += _wrapped(f"{reading.statement} {reading.how}", "- ")
    lines += [*_heading("How it was made"), *_wrapped(made)]
    for table in tables:
        lines += _part(table)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _wrapped(text: str, bullet: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet))


def _heading(name: str) -> list[str]:
    return ["", name, "-" * len(name)]


def _part(part: Figure | Gallery | Table) -> list[str]:
    if isinstance(part, Table):
        return ["", f"{part.caption}:", *_columns(part), *_wrapped(part.note)]
    if isinstance(part, Figure):
        shown = part.label if part.label.startswith(part.title) else f"{part.title}: {part.label}"
        return _wrapped(f"[{shown}] {part.caption}")
    return [*(line for figure in part.figures for line in _part(figure)), *_wrapped(part.note)]


def _columns(table: Table) -> list[str]:
    cells = [[_cell(cell) for cell in row] for row in (table.head, *table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.head))]
    right = [kind == "number" for kind in table.columns] if table.rows else [False] * len(widths)
    return [
        "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True))
        for row in cells
    ]


def _cell(cell: str | Bar) -> str:
    return "#" * round(_BAR * cell.ends[0] / 100.0) if isinstance(cell, Bar) else cell


_PLAIN: Final = (bool, int, float, str, type(None), np.generic)
_BEGIN: Final = b"<!doctype html>"
_PAPER: Final = (
    'method="paper" is the published algorithm as it stands, kept for comparison; the default has been measured '
    "to find more."
)


def parameter_table(model: Any) -> Table:
    """Set a model's parameters in a table.

    Returns name, value, and whether it is the default.
    """
    usual = type(model)().get_params(deep=False)
    lines = []
    for name, value in model.get_params(deep=False).items():
        shown = _plain(value)
        lines.append((name, shown, "default" if shown == _plain(usual[name]) else "chosen"))
    return Table("Parameters", ("parameter", "value", "chosen or default"), tuple(lines))


def call_of(model: Any) -> str:
    """Write the call that makes a model of the same parameters.

    Returns the class with the parameters that are not the default.
    """
    chosen = [f"{name}={value}" for name, value, kind in parameter_table(model).rows if kind == "chosen"]
    return f"{type(model).__name__}({', '.join(chosen)})"


def _plain(value: Any) -> str:
    """Write a value without anything that changes from run to run, such as an address in memory."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return shortened(without_secrets(repr(value)), 60)
    if isinstance(value, list | tuple):
        return shortened(
            "[" + ", ".join(_plain(part) for part in value[:20]) + (", ..." if len(value) > 20 else "") + "]", 60
        )
    return type(value).__name__


def made_table(model: Any, evidence: DataSummary | None, date: str | None) -> Table:
    """Say where a model and its page come from.

    evidence: the data that the page was made with; date: a date to write, as given.
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
    if evidence is not None:
        known = evidence.identity()
        size = f"{known['rows']:,} rows of {known['features']:,} features, {np.dtype(known['dtype']).name}"
        if evidence.edges is not None:
            size += f", read as {sequences_of(np.diff(evidence.edges).tolist())}"
        lines.append(("data", size))
        lines.append(("fingerprint of the data (shape, type and 32 rows)", known["content"][:16]))
    if date is not None:
        lines.append(("date", shortened(date)))
    return Table("Origin", ("what", "value"), tuple(lines))


def _fingerprint(model: Any) -> str:
    """Hash the fitted arrays: the same for a model that was saved and loaded."""
    held = hashlib.sha256()
    for name, value in sorted(vars(model).items()):
        fitted = name.endswith("_") and not name.startswith("_") and name != "labels_"  # these are not saved
        if fitted and isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            held.update(f"{name} {value.dtype.str} {value.shape}".encode())
            held.update(np.ascontiguousarray(value).tobytes())
    return held.hexdigest()[:16]


def check_page(path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Refuse a path that a page can't be written to.

    path: where the page shall be; overwrite: accept an HTML page that is there.
    Raises ModelFileError: the path exists, its folder doesn't, or it can't be written.
    """
    begins = _first_bytes(path)
    if begins is None or not overwrite:
        check_target(path)  # also that the folder is there
    elif begins.lower() != _BEGIN:
        msg = f"{os.fspath(path)!r} exists and is not an HTML page, so it is not replaced; choose another path"
        raise ModelFileError(msg)


def _first_bytes(path: str | os.PathLike[str]) -> bytes | None:
    """How what is there begins; None if there is nothing."""
    if is_url(path):
        remote, root = file_system(path, {})
        with reaching(path):
            return bytes(remote.cat_file(root, 0, len(_BEGIN))) if remote.exists(root) else None
    target = local_path(path)
    if not os.path.lexists(target):
        return None
    if not target.is_file():
        return b""
    with target.open("rb") as file:
        return file.read(len(_BEGIN))


def write_page(path: str | os.PathLike[str], content: str, *, overwrite: bool = False) -> None:
    """Write a page, so that what is at the path is always whole.

    overwrite: replace an HTML page that is there.
    Raises ModelFileError: the path exists, its folder doesn't, or it can't be written.
    """
    check_page(path, overwrite=overwrite)
    if not is_url(path):
        with file_beside(path, overwrite=overwrite) as place:
            place.write_bytes(content.encode())
        return
    remote, root = file_system(path, {})
    try:
        with reaching(path):
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
    Set a fitted model on one self-contained HTML page, or in plain text.

    The page says what was found, shows the anchors, says how far to trust it, has caveats, and says how it was made. It
    needs no network and no script, and the same model gives the same bytes. Its pictures need matplotlib; without it
    the page has text and tables, and says what to install.

    Parameters
    ----------
    model : estimator
        A fitted model of this library.
    path : str or os.PathLike, optional
        Path or URL where the page is written.
    data : array-like of shape (n, p), optional
        The data, as the model takes them: the page then also says what a sample of them shows (2,000 rows; for topics
        their coherence over all documents).
    lengths : array-like of int, shape (m,), optional
        Frames of each sequence in the data, for models of sequences; one sequence if None.
    shape : tuple of int, optional
        Lines and columns, where rows are pictures.
    title : str, optional
        The page's title; by default the name of the model.
    date : str, optional
        A date to be written on the page. None is taken from the clock, so that pages can be compared.
    form : {"html", "text"}, default "html"
        A page, or the same in plain text, its figures described in words. Text is returned and not written.
    overwrite : bool, default False
        Replace an HTML page at the path.

    Returns
    -------
    str
        The page, which a notebook shows as the value of a cell; or the text.

    Raises
    ------
    DCAError
        The model is none of this library's, data or shape don't fit it, or the path can't be written.

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
    kind = _kind_of(model).title
    check_is_fitted(model)
    check_shape(shape, model.n_features_in_)
    _check_form(form, path)
    if path is not None:
        check_page(path, overwrite=overwrite)
    evidence = None if data is None else DataSummary.of(model, data, lengths)
    story, heading = story_of(model, Given(evidence, shape)), shortened(title or kind)
    made = shortened(call_of(model), 400)
    origin, parameters = made_table(model, evidence, date), parameter_table(model)
    if form == "text":
        return as_text(heading, story, (origin, parameters), made)
    content = environment().get_template("report.html.j2").render(
        missing="" if can_draw() else MISSING,
        kind=kind,
        title=heading,
        story=story,
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


def _kind_of(model: Any) -> Model:
    """Where the parts of a model's kind are; a subclass of users' is of the kind of its base."""
    for made in type(model).__mro__:
        if made.__name__ in MODELS and made.__module__.partition(".")[0] == "dask_dca":
            return MODELS[made.__name__]
    msg = f"there is no report of a {type(model).__name__}; models that have one: {', '.join(MODELS)}"
    raise InvalidInputError(msg)


def story_of(model: Any, given: Given) -> Report:
    """Tell what a model found.

    model: a fitted model of this library; given: data, and the shape of pictures.
    """
    story: Report = importlib.import_module(_kind_of(model).report).tell(model, given)
    if missing := getattr(model, "n_missing_entries_", 0):
        holes = Caveat(f"{missing:,} entries of the rows of the fit are missing.", model._missing_note)
        story = replace(story, readings=(*story.readings, holes))
    return replace(story, warnings=(*story.warnings, _PAPER)) if model.method == "paper" else story


@cache
def environment() -> Environment:
    """Make what fills the templates in, with everything escaped that isn't Markup.

    Returns the templates of this package.
    """
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


_LINES: Final = 10


def notebook_html(model: Any) -> str | None:
    """Say in a few lines of HTML what a fitted model found.

    model: a model of this library. Returns a div with a style of its own, in the colours of the page that it stands on;
    None for a model that is not fitted, or whose parameters were set by hand, so that there is no certificate.
    """
    try:
        check_is_fitted(model)
        story = story_of(model, Given())
    except (NotFittedError, AttributeError, InvalidInputError):
        return None
    template = environment().get_template("notebook.html.j2")
    return template.render(
        name=type(model).__name__, story=story, found=_short(story), parameters=parameter_table(model)
    )


def _short(story: Report) -> Table:
    """The first lines of the first table: anchors, components, states, topics or clusters."""
    table = next(part for section in story.sections for part in section.parts if isinstance(part, Table))
    rest = len(table.rows) - _LINES
    return replace(
        table, rows=table.rows[:_LINES], note="The first lines; report(model) shows more." if rest > 0 else ""
    )
