"""The commands `dask dca fit MODEL` as one table, and what `info` prints of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from dask_dca import __version__
from dask_dca.errors import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "COMMANDS",
    "ROW_RESULTS",
    "FitCommand",
    "count_option",
    "describe",
    "lengths_option",
    "model_facts",
    "path_of",
    "with_fit_options",
]


# methods that give one row a row
ROW_RESULTS: Final = ("transform", "predict", "predict_proba", "score_samples", "filter", "smooth", "impute")


def model_facts(model: Any) -> dict[str, Any]:
    """
    Collect what a fitted model says of itself.

    Parameters
    ----------
    model : estimator
        A fitted model.

    Returns
    -------
    dict
        Names and plain values, as `info --json` prints them.
    """
    given = model.get_params(deep=False)
    shown = {name: without_secrets(value) if isinstance(value, str) else value for name, value in given.items()}
    return {"model": type(model).__name__, "version": __version__, "parameters": shown} | model._facts()


def describe(model: Any) -> str:
    """
    Describe a fitted model in words and a table.

    Parameters
    ----------
    model : estimator
        A fitted model.

    Returns
    -------
    str
        A few lines of text.
    """
    n = model.n_passes_
    read = "once" if n == 1 else f"{n} times"
    several = getattr(model, "n_sequences_", 1)
    lines = [f"Fitted to {several} sequences: give those of other data too, by --lengths or lengths=."] * (several > 1)
    return "\n".join([*model._describe(), *lines, f"The fit read all rows {read}; samples of them are not counted."])


@dataclass(frozen=True)
class FitCommand:
    """One model's command: its name, its class, what it is, and which options it has beyond those of all."""

    name: str
    kind: str
    title: str
    count: str = "n_components"  # the parameter that -k sets
    counted: str = "Number of components."
    options: tuple[str, ...] = ()


COMMANDS: Final = (
    FitCommand(
        "nmf",
        "NMF",
        "Non-negative matrix factorization of DATA, whose basis is k of its rows, or another one.",
        counted="Number of anchors.",
        options=("basis", "max_iter", "ensemble"),
    ),
    FitCommand(
        "mixture",
        "GaussianMixture",
        "Gaussian mixture of DATA's rows.",
        options=("covariance_type", "max_iter", "tol", "views", "ensemble"),
    ),
    FitCommand(
        "hmm",
        "GaussianHMM",
        "Hidden Markov model of the sequences that DATA's rows are.",
        counted="Number of states.",
        options=("covariance_type", "max_iter", "tol", "recursion", "ensemble", "lengths"),
    ),
    FitCommand(
        "categorical",
        "CategoricalHMM",
        "Hidden Markov model of the symbols that DATA's one column holds.",
        counted="Number of states.",
        options=("max_iter", "tol", "recursion", "lengths"),
    ),
    FitCommand(
        "kalman",
        "KalmanFilter",
        "Linear dynamical system behind the sequences that DATA's rows are.",
        count="n_dim_state",
        counted="Dimension of the state.",
        options=("max_iter", "ensemble", "lengths"),
    ),
    FitCommand(
        "lda",
        "LatentDirichletAllocation",
        "Topics of the documents that DATA's rows are: counts of words, dense or sparse.",
        counted="Number of topics.",
        options=("max_iter", "tol", "min_df", "subsample", "ensemble"),
    ),
    FitCommand(
        "subspace",
        "SubspaceClustering",
        "Clusters of DATA's rows by the cones that they lie in.",
        count="n_clusters",
        counted="Number of clusters.",
        options=("damping", "ensemble"),
    ),
)


def with_fit_options(command: FitCommand) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """
    Give a function the options of a model's command.

    Parameters
    ----------
    command : FitCommand
        Which model.

    Returns
    -------
    callable
        A decorator.
    """

    # click options are added from the last to the first
    def _decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed([*_common(command), *(_EXTRA[name] for name in command.options)]):
            function = option(function)
        return function

    return _decorate


def _common(command: FitCommand) -> list[Callable[..., Any]]:
    number: dict[str, Any] = {"callback": _number, "default": "auto", "metavar": "N|auto", "show_default": True}
    return [
        click.argument("data"),
        click.option("-k", command.count, help=command.counted, **number),
        click.option("-o", "--output", required=True, metavar="MODEL.zarr", help="Where the model is written."),
        click.option("--array", metavar="PATH", help="Which array of a zarr group."),
        click.option(
            "--method", default="robust", show_default=True, help="robust, or paper: the paper's text as it stands."
        ),
        click.option("--subproblems", "n_subproblems", help="Number of random planes.", **number),
        click.option(
            "--seed", "random_state", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the fit."
        ),
        click.option(
            "--retries", type=click.IntRange(min=0), default=3, show_default=True, help="Retries of a failing task."
        ),
        click.option("--checkpoint", metavar="DIR", help="Keep finished passes there; begun again, the fit goes on."),
    ]


def _number(ctx: click.Context, param: click.Parameter, value: str) -> int | str:
    """Accept an integer of at least one, or "auto"."""
    if value == "auto":
        return value
    if value.isdecimal() and int(value) >= 1:
        return int(value)
    msg = f"must be an integer of at least 1, or auto; received {value!r}"
    raise click.BadParameter(msg, ctx, param)


def _power(ctx: click.Context, option: click.Parameter, value: str) -> float | str:
    """Accept a number, or "auto"."""
    del ctx, option
    try:
        return value if value == "auto" else float(value)
    except ValueError:
        msg = f"must be a number from 0 to below 1, or auto; received {value!r}"
        raise click.BadParameter(msg) from None


def path_of(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """
    Put the home folder in the place of `~` in an option's value.

    Parameters
    ----------
    ctx, param : object
        As click gives them.
    value : str or None
        The value, if there is one.

    Returns
    -------
    str or None
        The path.
    """
    from dask_dca.engine.files import expanded

    return None if value is None else expanded(value)


def _lengths(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """Accept numbers separated by commas, or a file of them."""
    if value is None:
        return None
    try:
        if value.replace(",", "").isdecimal():
            return [int(part) for part in value.split(",")]
        import numpy as np

        from dask_dca.engine.files import expanded, require_regular

        path = expanded(value)
        require_regular(path)
        found = np.load(path, allow_pickle=False) if path.endswith(".npy") else np.loadtxt(path, delimiter=",")
        with np.errstate(invalid="ignore"):
            whole = found.ravel().astype(np.int64)
        if (whole == found.ravel()).all():
            return [int(part) for part in whole]
    except (OSError, ValueError):
        pass
    msg = f"must be numbers like 100,250,80, or a .npy or .csv file of whole numbers; received {value!r}"
    raise click.BadParameter(msg, ctx, param)


def _views(ctx: click.Context, param: click.Parameter, value: str | None) -> list[range] | None:
    """Accept three ranges of columns."""
    if value is None:
        return None
    ends = [part.split(":") for part in value.split(",")]
    if len(ends) == 3 and all(len(pair) == 2 and pair[0].isdecimal() and pair[1].isdecimal() for pair in ends):
        return [range(int(first), int(last)) for first, last in ends]
    msg = f"must be three ranges of columns like 0:200,200:320,320:480; received {value!r}"
    raise click.BadParameter(msg, ctx, param)


count_option: Final = click.option(
    "-k", callback=_number, default="auto", metavar="N|auto", show_default=True, help="Number of rows to name."
)
lengths_option: Final = click.option(
    "--lengths",
    callback=_lengths,
    metavar="N,N,...|FILE",
    help="Lengths of the sequences: numbers, or a .npy or .csv file of them.  [default: one sequence]",
)


_EXTRA: Final[dict[str, Callable[..., Any]]] = {
    "basis": click.option(
        "--basis",
        type=click.Choice(["rows", "rays", "free", "auto"]),
        default="rows",
        show_default=True,
        help="k rows; rays that no row need be on; what leaves least; or rays where rows are far from them.",
    ),
    "covariance_type": click.option(
        "--covariance-type",
        type=click.Choice(["auto", "diag", "full", "tied", "spherical", "tied-spherical"]),
        show_default="the model's own",
        help="Form of the covariances (tied-spherical: mixtures only).",
    ),
    "max_iter": click.option(
        "--max-iter",
        type=click.IntRange(min=0),
        show_default="the model's own",
        help="Refinement passes over the data; 0 is anchoring alone.",
    ),
    "tol": click.option(
        "--tol",
        type=click.FloatRange(min=0),
        show_default="the model's own",
        help="Passes end where the log likelihood rises by less.",
    ),
    "recursion": click.option(
        "--recursion",
        type=click.Choice(["auto", "segments", "scan"]),
        default="auto",
        show_default=True,
        help="How long sequences are cut: into segments with a burn-in, or by an exact scan.",
    ),
    "ensemble": click.option(
        "--ensemble", default="auto", show_default=True, help="Where the planes' directions are drawn from."
    ),
    "min_df": click.option(
        "--min-df",
        type=click.IntRange(min=0),
        default=1,
        show_default=True,
        help="Leave out words that are in fewer documents than this.",
    ),
    "subsample": click.option(
        "--subsample",
        type=click.IntRange(min=1),
        default=50_000,
        show_default=True,
        metavar="N",
        help="Of more documents than this, all passes but the first and the last see a sample of that many.",
    ),
    "damping": click.option(
        "--damping",
        callback=_power,
        default="auto",
        metavar="POWER|auto",
        show_default=True,
        help="The power of their energy that leading directions lose: 0 for none, .25 for changing light.",
    ),
    "lengths": lengths_option,
    "views": click.option(
        "--views",
        callback=_views,
        metavar="A:B,B:C,C:D",
        help="Three groups of columns that are independent within a component.  [default: drawn at random]",
    ),
}
