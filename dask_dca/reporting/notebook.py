"""A fitted model in a notebook: what was found, the certificate and the parameters, in a few lines of HTML."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dask_dca.reporting.data import Given
from dask_dca.reporting.page import environment, has_report, parameter_table, story_of
from dask_dca.reporting.parts import Table

if TYPE_CHECKING:
    from dask_dca.reporting.parts import Report

__all__ = ["notebook_html"]

_LINES: Final = 10


def notebook_html(model: Any) -> str | None:
    """Say in a few lines of HTML what a fitted model found.

    model: A model of this library. Returns A div with a style of its own, in the colours of the page that it stands on;
    None for a model that is not fitted, or whose parameters were set by hand, so that there is no certificate.
    """
    if not has_report(model):
        return None
    try:
        check_is_fitted(model)
        story = story_of(model, Given())
    except (NotFittedError, AttributeError):
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
