"""The options of commands, and the values that they take: what all have in common, and the parameters of models."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from dask_dca._registry import MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from dask_dca._registry import Model
    from dask_dca.cli.clusters import Where


_NUMBERS: Final = re.compile(r"[0-9]+(,[0-9]+)*")


class Value(click.ParamType):  # type: ignore[type-arg]
    """What a docstring's line of a parameter's kind says: whole numbers, numbers, words, or any text.

    kind: such as 'int or "auto"'.
    """

    name = "value"

    def __init__(self, kind: str) -> None:
        self.words = re.findall(r'"([^"]+)"', kind)
        self.real, self.whole = "float" in kind, bool(re.search(r"\bint\b", kind))
        self.text = bool(re.search(r"\bstr\b", kind))

    @property
    def metavar(self) -> str:
        """What help shows, such as N|auto."""
        number = ["NUMBER"] if self.real else ["N"] if self.whole else ["TEXT"] if self.text else []
        return "|".join([*number, *self.words])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Turn what was written into a value.

        value: text, or what a configuration file holds.
        """
        if value in self.words:
            return value
        for read in (int,) * self.whole + (float,) * self.real:
            try:
                return read(str(value))
            except ValueError:
                continue
        if self.text:
            return value
        number = ["a number"] if self.real else ["a whole number"] if self.whole else []
        return self.fail(f"must be {' or '.join([*number, *self.words])}; received {str(value)!r}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Complete the words."""
        from click.shell_completion import CompletionItem

        del ctx, param
        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]


def count(ctx: click.Context, param: click.Parameter, value: str) -> int | str:
    """Accept an integer of at least one, or "auto"."""
    if value == "auto" or value is None:
        return value
    if str(value).isdecimal() and int(value) >= 1:
        return int(value)
    msg = f"must be an integer of at least 1, or auto; received {value!r}"
    raise click.BadParameter(msg, ctx, param)


def path_of(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Put the home folder in the place of `~` in an option's value."""
    from dask_dca.engine.files import expand_home

    return None if value is None else expand_home(value)


def lengths(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """Accept numbers separated by commas, or a file of them."""
    if value is None:
        return None
    try:
        if _NUMBERS.fullmatch(value):
            return [int(part) for part in value.split(",")]
        import numpy as np

        from dask_dca.engine.files import expand_home, require_regular

        path = expand_home(value)
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


def views(ctx: click.Context, param: click.Parameter, value: str | None) -> list[range] | None:
    """Accept three ranges of columns."""
    if value is None:
        return None
    ends = [part.split(":") for part in value.split(",")]
    if len(ends) == 3 and all(len(pair) == 2 and pair[0].isdecimal() and pair[1].isdecimal() for pair in ends):
        return [range(int(first), int(last)) for first, last in ends]
    msg = f"must be three ranges of columns like 0:200,200:320,320:480; received {value!r}"
    raise click.BadParameter(msg, ctx, param)


def image_shape(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Accept lines x columns."""
    if value is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6})[xX]([0-9]{1,6})", value)
    if found is None:
        msg = f"must be lines x columns like 28x28; received {value!r}"
        raise click.BadParameter(msg, ctx, param)
    return int(found[1]), int(found[2])


def array_or_numbers(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Accept whole numbers separated by commas, or a file that holds an array."""
    del ctx, param
    if value is None:
        return None
    import numpy as np

    if _NUMBERS.fullmatch(value):
        return np.array([int(part) for part in value.split(",")])
    from dask_dca.engine.files import expand_home, require_regular

    path = expand_home(value)
    require_regular(path)
    if path.endswith(".npy") and os.path.exists(path):  # of any number of dimensions
        return np.load(path, allow_pickle=False)
    from dask_dca.inputs import open_data

    return np.squeeze(np.asarray(open_data(path).matrix))


def saved_model(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Accept the path of a saved model."""
    del ctx, param
    if value is None:
        return None
    from dask_dca.store import load_model

    return load_model(value)


READERS: Final[dict[str, Callable[..., Any]]] = {"views": views, "init": saved_model}


OUTPUT: Final = "Where the result is written: a zarr array, or a .npy, .csv, .tsv or .parquet file."
Command = TypeVar("Command", bound="Callable[..., Any]")


def _adding(*options: Callable[..., Any]) -> Callable[[Command], Command]:
    """Give a command options, in this order."""

    def _decorate(command: Command) -> Command:
        for option in reversed(options):  # click adds them from the last to the first
            command = option(command)
        return command

    return _decorate


def place_of(given: dict[str, Any]) -> Where:
    """Take the cluster's options out of those given; --workers goes before the environment's scheduler."""
    from dask_dca.cli.clusters import Where

    names = ("scheduler", "scheduler_file", "workers", "tls_ca_file", "tls_cert", "tls_key")
    found = {name: given.pop(name) for name in names}
    source = click.get_current_context().get_parameter_source("scheduler")
    by_environment = source is click.core.ParameterSource.ENVIRONMENT
    if by_environment and (found["workers"] or found["scheduler_file"]):
        found["scheduler"] = None
    return Where(**found)


def shown(progress: bool | None) -> bool:
    """Tell whether progress is shown: by default on terminals."""
    return sys.stderr.isatty() if progress is None else progress


_PACKAGE: Final = Path(__file__).parents[1]
_ENTRY: Final = re.compile(r"^(\w[\w, ]*) : (.+(?:\n {4,}.+)*)", re.MULTILINE)


class Parameter(NamedTuple):
    """A parameter of a class: its name, its kind as the docstring has it, its default, and what it is."""

    name: str
    kind: str
    default: Any
    meaning: str


@cache
def parameters_of(model: str) -> dict[str, Parameter]:
    """Read the parameters of a model's class, in the order of its signature.

    model: name of the class. Returns name -> parameter, of those that the docstring describes.
    """
    made = _class(model)
    told = _described(ast.get_docstring(made) or "")
    defaults = _defaults(next(part for part in made.body if _is_function(part, "__init__")))
    return {name: Parameter(name, *_split(told[name], value)) for name, value in defaults.items() if name in told}


@cache
def fit_arguments(model: str) -> tuple[str, ...]:
    """Name the arguments that a model's `fit` takes by name, such as lengths.

    model: name of the class.
    """
    function: Any = next(part for part in _class(model).body if _is_function(part, "fit"))
    return tuple(argument.arg for argument in function.args.kwonlyargs)


def _class(model: str) -> ast.ClassDef:
    path = _PACKAGE.parent.joinpath(*MODELS[model].home.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return next(part for part in tree.body if isinstance(part, ast.ClassDef) and part.name == model)


def _is_function(part: ast.stmt, name: str) -> bool:
    return isinstance(part, ast.FunctionDef) and part.name == name


def _defaults(function: Any) -> dict[str, Any]:
    given = function.args
    names = [argument.arg for argument in (*given.args[1:], *given.kwonlyargs)]
    values = [*given.defaults, *given.kw_defaults]
    return {name: ast.literal_eval(value) for name, value in zip(names, values, strict=True)}


def _described(docstring: str) -> dict[str, str]:
    """Each parameter's entry of a numpydoc docstring."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", docstring, re.DOTALL | re.MULTILINE)
    found = _ENTRY.findall(section[1] if section else "")
    return {name: text for names, text in found for name in names.split(", ")}


def _split(text: str, default: Any) -> tuple[str, Any, str]:
    """The kind, the default, and the first sentence of what is said."""
    line, _, body = text.partition("\n")
    kind = line.partition(", default")[0].removesuffix(", optional")
    if isinstance(default, str) and f'"{default}"' not in kind and "str" not in kind:
        kind += f' or "{default}"'  # of two parameters in one entry
    words = " ".join(inspect.cleandoc(body).split()).replace("`", "")
    first = re.match(r".*?\.(?= [A-Z\"]|$)", words)
    return kind, default, first[0] if first else words


_FLAGS: Final = {"n_subproblems": "--subproblems", "random_state": "--seed"}
_HIDDEN: Final = ("verbose", "n_iter", "warm_start")  # --progress, --max-iter; a command always begins anew
_METAVARS: Final = {"checkpoint": "DIR", "views": "A:B,B:C,C:D", "init": "MODEL.zarr"}

# methods that give one row a row
ROW_RESULTS: Final = ("transform", "predict", "predict_proba", "score_samples", "filter", "smooth", "impute")


def with_fit_options(model: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a decorator that gives a function the options of a model's command; model: name of the class."""
    own = [_option(parameter, MODELS[model]) for parameter in parameters_of(model).values()]
    of_fit = [_OF_FIT[name] for name in fit_arguments(model) if name in _OF_FIT]
    data = _data_options("MODEL.zarr", "Where the model is written.")
    return _adding(*data, *filter(None, own), *of_fit, *_CLUSTER)


def _data_options(metavar: str, what: str, *, required: bool = True) -> list[Callable[..., Any]]:
    """Make the argument and the options that say which data are read, and where the result goes."""
    return [
        data_argument,
        click.option("-o", "--output", type=click.Path(readable=False), required=required, metavar=metavar, help=what),
        array_option,
        features_option,
    ]


def _option(parameter: Parameter, model: Model) -> Callable[..., Any] | None:
    """The option of a parameter, by the kind that its docstring gives; none where a command line can't hold it."""
    name, kind, default, meaning = parameter
    if name in _HIDDEN:
        return None
    shown = _with_default(meaning, default)
    if name == model.counter:
        return click.option("-k", name, callback=count, metavar="N|auto", help=_with_default(model.counted, default))
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


data_argument: Final = click.argument("data", type=click.Path(readable=False))
model_argument: Final = click.argument("model", type=click.Path(readable=False))
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
seed_option: Final = click.option(
    "--seed", "random_state", type=click.IntRange(min=0), default=0, show_default=True, help="Seed."
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
_PLACE: Final = (
    click.option("--scheduler", metavar="ADDRESS", envvar="DASK_SCHEDULER_ADDRESS", show_envvar=True,
                 help="Address of a running scheduler, tcp://... or tls://..."),
    click.option("--scheduler-file", callback=path_of, metavar="FILE",
                 help="File that the scheduler wrote its address to."),
    click.option("--workers", type=click.IntRange(min=1), metavar="N",
                 help="Start N worker processes on this machine."),
    click.option("--tls-ca-file", callback=path_of, metavar="FILE",
                 help="Certificate of the authority (else Dask's configuration)."),
    click.option("--tls-cert", callback=path_of, metavar="FILE", help="Certificate of this client."),
    click.option("--tls-key", callback=path_of, metavar="FILE", help="Its key."),
)  # fmt: skip
_CLUSTER: Final = (
    *_PLACE,
    click.option("--progress/--no-progress", default=None,
                 help="Show progress on standard error (default: if it is a terminal)."),
    click.option("--overwrite", is_flag=True, help="Replace a zarr group or array at the output path."),
)  # fmt: skip
place_options: Final = _adding(*_PLACE)  # where a command runs
cluster_options: Final = _adding(*_CLUSTER)  # and of commands that write
data_arguments: Final = _adding(*_data_options("OUT.zarr", OUTPUT))
read_arguments: Final = _adding(data_argument, array_option, features_option)
rows_arguments: Final = _adding(*_data_options("OUT.zarr", f"Also write the anchors' rows: {OUTPUT}", required=False))


def count_option(what: str, *names: str) -> Callable[[Command], Command]:
    """Make an option of a number, or "auto"."""
    return click.option(*(names or ("-k",)), callback=count, default="auto", metavar="N|auto", show_default=True,
                        help=what)  # fmt: skip
