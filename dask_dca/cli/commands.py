"""The commands `dask dca fit MODEL` as one table, their options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from dask_dca.cli.signatures import Parameter, fit_arguments, parameters_of
from dask_dca.cli.values import READERS, Value, array_or_numbers, count, lengths
from dask_dca.told import describe, model_facts

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "COMMANDS",
    "ROW_RESULTS",
    "FitCommand",
    "array_option",
    "count_option",
    "data_options",
    "describe",
    "features_option",
    "lengths_option",
    "model_facts",
    "with_fit_options",
]

_FLAGS: Final = {"n_subproblems": "--subproblems", "random_state": "--seed"}
_HIDDEN: Final = ("verbose", "n_iter", "warm_start")  # --progress, --max-iter; a command always begins anew
_METAVARS: Final = {"checkpoint": "DIR", "views": "A:B,B:C,C:D", "init": "MODEL.zarr"}

# methods that give one row a row
ROW_RESULTS: Final = ("transform", "predict", "predict_proba", "score_samples", "filter", "smooth", "impute")


@dataclass(frozen=True)
class FitCommand:
    """One model's command: its name, its class, what it is, and what is shown of it."""

    name: str
    kind: str
    title: str
    counted: str = "Number of components."
    count: str = "n_components"  # the parameter that -k sets
    example: str = ""


COMMANDS: Final = (
    FitCommand(
        "nmf",
        "NMF",
        "Non-negative matrix factorization of DATA, whose basis is k of its rows, or another one.",
        "Number of anchors.",
        example="cube.zarr --features band --basis rays",
    ),
    FitCommand("mixture", "GaussianMixture", "Gaussian mixture of DATA's rows.", example="cells.csv --max-iter 20"),
    FitCommand(
        "hmm",
        "GaussianHMM",
        "Hidden Markov model of the sequences that DATA's rows are.",
        "Number of states.",
        example="frames.npy --lengths lengths.csv --covariance-type auto",
    ),
    FitCommand(
        "categorical",
        "CategoricalHMM",
        "Hidden Markov model of the symbols that DATA's one column holds.",
        "Number of states.",
        example="symbols.npy --lengths 250,350",
    ),
    FitCommand(
        "kalman",
        "KalmanFilter",
        "Linear dynamical system behind the sequences that DATA's rows are.",
        "Dimension of the state.",
        "n_dim_state",
        example="frames.npy --lengths lengths.csv",
    ),
    FitCommand(
        "lda",
        "LatentDirichletAllocation",
        "Topics of the documents that DATA's rows are: counts of words, dense or sparse.",
        "Number of topics.",
        example="documents.zarr --min-df 5 --topic-word-prior 0.02",
    ),
    FitCommand(
        "subspace",
        "SubspaceClustering",
        "Clusters of DATA's rows by the cones that they lie in.",
        "Number of clusters.",
        "n_clusters",
        example="images.zarr --damping 0.25",
    ),
)


def with_fit_options(command: FitCommand) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """
    Give a function the options of a model's command: its class's parameters.

    Parameters
    ----------
    command : FitCommand
        Which model.

    Returns
    -------
    callable
        A decorator.
    """
    own = [_option(parameter, command) for parameter in parameters_of(command.kind).values()]
    options = [*data_options("MODEL.zarr", "Where the model is written."), *filter(None, own)]
    options += [_OF_FIT[name] for name in fit_arguments(command.kind) if name in _OF_FIT]

    # click options are added from the last to the first
    def _decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return _decorate


def data_options(metavar: str, what: str, *, required: bool = True) -> list[Callable[..., Any]]:
    """Make the argument and the options that say which data are read, and where the result goes."""
    return [
        click.argument("data", type=click.Path(readable=False)),
        click.option("-o", "--output", type=click.Path(readable=False), required=required, metavar=metavar, help=what),
        array_option,
        features_option,
    ]


def _option(parameter: Parameter, command: FitCommand) -> Callable[..., Any] | None:
    """The option of a parameter, by the kind that its docstring gives; none where a command line can't hold it."""
    name, kind, default, meaning = parameter
    if name in _HIDDEN:
        return None
    shown = _with_default(meaning, default)
    if name == command.count:
        return click.option("-k", name, callback=count, metavar="N|auto", help=_with_default(command.counted, default))
    flag = _FLAGS.get(name, f"--{name.replace('_', '-').lower()}")
    if name in READERS:
        return click.option(flag, name, callback=READERS[name], metavar=_METAVARS[name], help=shown)
    if "array" in kind:
        return click.option(flag, name, callback=array_or_numbers, metavar="N,N,...|FILE", help=shown)
    value = Value(kind)
    if kind.startswith("{"):
        return click.option(flag, name, type=click.Choice(value.words), help=shown)
    if not value.metavar:
        return None
    return click.option(flag, name, type=value, metavar=_METAVARS.get(name, value.metavar), help=shown)


def _with_default(meaning: str, default: Any) -> str:
    return meaning if default is None else f"{meaning}  [default: {default}]"


count_option: Final = click.option(
    "-k", callback=count, default="auto", metavar="N|auto", show_default=True, help="Number of rows to name."
)
array_option: Final = click.option("--array", metavar="PATH", help="Which array of a zarr group.")
features_option: Final = click.option(
    "--features",
    metavar="NAME[,NAME]",
    help="Which dimension (or dimensions) of a cube, a zarr array of more than two, the features are, by name or "
    "number; all others are its rows. Of the arrays of a group: variable.",
)
lengths_option: Final = click.option(
    "--lengths",
    callback=lengths,
    metavar="N,N,...|FILE",
    help="Lengths of the sequences: numbers, or a .npy or .csv file of them.  [default: one sequence]",
)
_OF_FIT: Final[dict[str, Callable[..., Any]]] = {
    "lengths": lengths_option,
    "sample_weight": click.option(
        "--sample-weight", callback=array_or_numbers, metavar="FILE", help="A weight for each row: a .npy or .csv file."
    ),
}
