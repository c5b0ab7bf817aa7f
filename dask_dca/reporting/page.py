"""The page: what a model says of itself, set in one self-contained HTML file."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sklearn.utils.validation import check_is_fitted

from dask_dca.engine.numerics import numpy_defaults
from dask_dca.errors import InvalidInputError
from dask_dca.reporting.evidence import Evidence, Given, check_shape
from dask_dca.reporting.files import check_page, write_page
from dask_dca.reporting.making import call_of, made_table, parameter_table
from dask_dca.reporting.wording import shortened

if TYPE_CHECKING:
    import os

    from jinja2 import Environment

    from dask_dca.reporting.parts import Story

__all__ = ["environment", "report", "story_of"]

_STORIES: Final = {
    "NMF": ("dask_dca.reporting.nmf", "Non-negative matrix factorization"),
    "GaussianMixture": ("dask_dca.reporting.mixture", "Gaussian mixture"),
    "GaussianHMM": ("dask_dca.reporting.hmm", "Hidden Markov model"),
    "KalmanFilter": ("dask_dca.reporting.kalman", "Linear dynamical system"),
    "LatentDirichletAllocation": ("dask_dca.reporting.lda", "Topic model"),
    "SubspaceClustering": ("dask_dca.reporting.subspace", "Subspace clustering"),
}
_PAPER: Final = (
    'method="paper" is the published algorithm as it stands, kept for comparison; the default has been measured '
    "to find more."
)


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
    overwrite: bool = False,
) -> str:
    """
    Set a fitted model on one self-contained HTML page.

    The page says what was found, shows the anchors, says how far to trust it and what to mind, and how it was made. It
    needs no network and no script, and the same model gives the same bytes.

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
    overwrite : bool, default False
        Replace an HTML page at the path.

    Returns
    -------
    str
        The page.

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
    kind = _kind_of(model)
    check_is_fitted(model)
    check_shape(shape, model.n_features_in_)
    if path is not None:
        check_page(path, overwrite=overwrite)
    evidence = None if data is None else Evidence.of(model, data, lengths)
    content = environment().get_template("report.html.j2").render(
        kind=kind,
        title=shortened(title or kind),
        story=story_of(model, Given(evidence, shape)),
        parameters=parameter_table(model),
        origin=made_table(model, evidence, date),
        made=shortened(call_of(model), 400),
    )  # fmt: skip
    if path is not None:
        write_page(path, content, overwrite=overwrite)
    return content


def _kind_of(model: Any) -> str:
    for made in type(model).__mro__:
        if made.__name__ in _STORIES and made.__module__.partition(".")[0] == "dask_dca":
            return _STORIES[made.__name__][1]
    msg = f"there is no report of a {type(model).__name__}; models that have one: {', '.join(_STORIES)}"
    raise InvalidInputError(msg)


def story_of(model: Any, given: Given) -> Story:
    """
    Tell what a model found.

    Parameters
    ----------
    model : estimator
        A fitted model of this library.
    given : Given
        Data, and the shape of pictures.

    Returns
    -------
    Story
        What a page says.
    """
    from dataclasses import replace

    name = next(made.__name__ for made in type(model).__mro__ if made.__name__ in _STORIES)
    story: Story = importlib.import_module(_STORIES[name][0]).tell(model, given)
    return replace(story, warnings=(*story.warnings, _PAPER)) if model.method == "paper" else story


@cache
def environment() -> Environment:
    """
    Make what fills the templates in, with everything escaped that isn't Markup.

    Returns
    -------
    jinja2.Environment
        The templates of this package.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("dask_dca.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
