"""Options of the commands: common ones, and those derived from the parameters of models."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from dask_dca._registry import MODELS, Model

if TYPE_CHECKING:
    from dask_dca.cli.clusters import Cluster


_INTEGER_LIST: Final = re.compile(r"[0-9]+(,[0-9]+)*")


class DocstringType(click.ParamType):  # type: ignore[type-arg]
    """A parameter type as described in a docstring: integers, numbers, words, or any text.

    kind: the description, such as 'int or "auto"'.
    """

    name = "value"

    def __init__(self, kind: str) -> None:
        self.words = re.findall(r'"([^"]+)"', kind)
        self.real, self.whole = "float" in kind, bool(re.search(r"\bint\b", kind))
        self.text = bool(re.search(r"\bstr\b", kind))

    @property
    def metavar(self) -> str:
        """Placeholder in help texts, such as N|auto."""
        number = ["NUMBER"] if self.real else ["N"] if self.whole else ["TEXT"] if self.text else []
        return "|".join([*number, *self.words])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert text, or a value of a configuration file."""
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
        """Complete words."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]


def parse_count(ctx: click.Context, param: click.Parameter, value: str) -> int | str:
    """Accept an integer of at least one, or "auto"."""
    if value == "auto" or value is None:
        return value
    if str(value).isdecimal() and int(value) >= 1:
        return int(value)
    msg = f"must be an integer of at least 1, or auto; received {value!r}"
    raise click.BadParameter(msg, ctx, param)


def parse_path(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Expand `~` in the value of an option."""
    from dask_dca.engine.files import expand_home

    return None if value is None else expand_home(value)


def parse_lengths(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """Accept integers separated by commas, or a file of them."""
    if value is None:
        return None
    try:
        if _INTEGER_LIST.fullmatch(value):
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


def parse_views(ctx: click.Context, param: click.Parameter, value: str | None) -> list[range] | None:
    """Accept three ranges of columns."""
    if value is None:
        return None
    ends = [part.split(":") for part in value.split(",")]
    if len(ends) == 3 and all(len(pair) == 2 and pair[0].isdecimal() and pair[1].isdecimal() for pair in ends):
        return [range(int(first), int(last)) for first, last in ends]
    msg = f"must be three ranges of columns like 0:200,200:320,320:480; received {value!r}"
    raise click.BadParameter(msg, ctx, param)


def parse_image_shape(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Accept lines x columns."""
    if value is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6})[xX]([0-9]{1,6})", value)
    if found is None:
        msg = f"must be lines x columns like 28x28; received {value!r}"
        raise click.BadParameter(msg, ctx, param)
    return int(found[1]), int(found[2])


def parse_array(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Accept integers separated by commas, or a file that holds an array."""
    if value is None:
        return None
    import numpy as np

    if _INTEGER_LIST.fullmatch(value):
        return np.array([int(part) for part in value.split(",")])
    from dask_dca.engine.files import expand_home, require_regular

    path = expand_home(value)
    require_regular(path)
    if path.endswith(".npy") and os.path.exists(path):  # may have any number of dimensions
        return np.load(path, allow_pickle=False)
    from dask_dca.inputs import open_data

    return np.squeeze(np.asarray(open_data(path).matrix))


def parse_model(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Accept the path of a saved model."""
    if value is None:
        return None
    from dask_dca.store import load_model

    return load_model(value)


PARSERS: Final[dict[str, Callable[..., Any]]] = {"views": parse_views, "init": parse_model}


OUTPUT: Final = "Where the result is written: a zarr array, or a .npy, .csv, .tsv or .parquet file."
Command = TypeVar("Command", bound="Callable[..., Any]")


def _combine(*options: Callable[..., Any]) -> Callable[[Command], Command]:
    """Combine options to one decorator, in this order."""

    def _decorate(command: Command) -> Command:
        for option in reversed(options):  # click prepends each option
            command = option(command)
        return command

    return _decorate


def pop_cluster_options(given: dict[str, Any]) -> Cluster:
    """Remove the cluster's options from those given; --workers takes precedence over the environment's scheduler."""
    from dask_dca.cli.clusters import Cluster

    names = ("scheduler", "scheduler_file", "workers", "tls_ca_file", "tls_cert", "tls_key")
    found = {name: given.pop(name) for name in names}
    source = click.get_current_context().get_parameter_source("scheduler")
    by_environment = source is click.core.ParameterSource.ENVIRONMENT
    if by_environment and (found["workers"] or found["scheduler_file"]):
        found["scheduler"] = None
    return Cluster(**found)


def show_progress(progress: bool | None) -> bool:
    """Decide whether progress is shown: by default on terminals."""
    return sys.stderr.isatty() if progress is None else progress


_PACKAGE: Final = Path(__file__).parents[1]
_PARAMETER_ENTRY: Final = re.compile(r"^(\w[\w, ]*) : (.+(?:\n {4,}.+)*)", re.MULTILINE)


class Parameter(NamedTuple):
    """A parameter of a class: name, type in the docstring, default and description."""

    name: str
    kind: str
    default: Any
    meaning: str


@cache
def parameters_of(model: str) -> dict[str, Parameter]:
    """Parse the documented parameters of a model's class, in the order of its signature, without importing it.

    model: name of the class.
    """
    made = _class(model)
    texts = _parameter_entries(ast.get_docstring(made) or "")
    defaults = _defaults(next(part for part in made.body if _is_function(part, "__init__")))
    return {
        name: Parameter(name, *_parse_entry(texts[name], value)) for name, value in defaults.items() if name in texts
    }


@cache
def fit_arguments(model: str) -> tuple[str, ...]:
    """List the keyword-only arguments of the `fit` of a model's class, such as lengths; model: name of the class."""
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


def _parameter_entries(docstring: str) -> dict[str, str]:
    """Parse the entries of the parameters of a numpydoc docstring."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", docstring, re.DOTALL | re.MULTILINE)
    found = _PARAMETER_ENTRY.findall(section[1] if section else "")
    return {name: text for names, text in found for name in names.split(", ")}


def _parse_entry(text: str, default: Any) -> tuple[str, Any, str]:
    """Parse an entry to type, default and the first sentence of the description."""
    line, _, body = text.partition("\n")
    kind = line.partition(", default")[0].removesuffix(", optional")
    if isinstance(default, str) and f'"{default}"' not in kind and "str" not in kind:
        kind += f' or "{default}"'  # the entry describes several parameters
    words = " ".join(inspect.cleandoc(body).split()).replace("`", "")
    first = re.match(r".*?\.(?= [A-Z\"]|$)", words)
    return kind, default, first[0] if first else words


_FLAGS: Final = {"n_subproblems": "--subproblems", "random_state": "--seed"}
# replaced by --progress and --max-iter; commands have no previous fit
_HIDDEN: Final = ("verbose", "n_iter", "warm_start")
_METAVARS: Final = {"checkpoint": "DIR", "views": "A:B,B:C,C:D", "init": "MODEL.zarr"}

# methods with a result per row
ROW_RESULTS: Final = ("transform", "predict", "predict_proba", "score_samples", "filter", "smooth", "impute")


def with_fit_options(model: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a decorator that adds the options of a model's command; model: name of the class."""
    own = [_option(parameter, MODELS[model]) for parameter in parameters_of(model).values()]
    of_fit = [_FIT_OPTIONS[name] for name in fit_arguments(model) if name in _FIT_OPTIONS]
    data = _data_options("MODEL.zarr", "Where the model is written.")
    return _combine(*data, *filter(None, own), *of_fit, *_WRITING_OPTIONS)


def _data_options(metavar: str, what: str, *, required: bool = True) -> list[Callable[..., Any]]:
    """Make the argument and options for the data and the output."""
    return [
        data_argument,
        click.option("-o", "--output", type=click.Path(readable=False), required=required, metavar=metavar, help=what),
        array_option,
        features_option,
    ]


def _option(parameter: Parameter, model: Model) -> Callable[..., Any] | None:
    """Make the option of a parameter from its type; None if its values can't be given on a command line."""
    name, kind, default, meaning = parameter
    if name in _HIDDEN:
        return None
    help_text = _help(meaning, default)
    flag = _FLAGS.get(name, f"--{name.replace('_', '-').lower()}")
    if name == model.counter:
        return click.option(
            "-k", flag, name, callback=parse_count, metavar="N|auto", help=_help(model.counted, default)
        )
    if name in PARSERS:
        return click.option(flag, name, callback=PARSERS[name], metavar=_METAVARS[name], help=help_text)
    if "array" in kind:
        return click.option(flag, name, callback=parse_array, metavar="N,N,...|FILE", help=help_text)
    value = DocstringType(kind)
    if kind.startswith("{"):
        return click.option(flag, name, type=click.Choice(value.words), help=help_text)
    if not value.metavar:
        return None
    return click.option(flag, name, type=value, metavar=_METAVARS.get(name, value.metavar), help=help_text)


def _help(meaning: str, default: Any) -> str:
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
    callback=parse_lengths,
    metavar="N,N,...|FILE",
    help="Lengths of the sequences: numbers, or a .npy or .csv file of them.  [default: one sequence]",
)
_FIT_OPTIONS: Final[dict[str, Callable[..., Any]]] = {
    "lengths": lengths_option,
    "sample_weight": click.option(
        "--sample-weight", callback=parse_array, metavar="FILE", help="A weight for each row: a .npy or .csv file."
    ),
}
_CONNECTION_OPTIONS: Final = (
    click.option("--scheduler", metavar="ADDRESS", envvar="DASK_SCHEDULER_ADDRESS", show_envvar=True,
                 help="Address of a running scheduler, tcp://... or tls://..."),
    click.option("--scheduler-file", callback=parse_path, metavar="FILE",
                 help="File that the scheduler wrote its address to."),
    click.option("--workers", type=click.IntRange(min=1), metavar="N",
                 help="Start N worker processes on this machine."),
    click.option("--tls-ca-file", callback=parse_path, metavar="FILE",
                 help="Certificate of the authority (else Dask's configuration)."),
    click.option("--tls-cert", callback=parse_path, metavar="FILE", help="Certificate of this client."),
    click.option("--tls-key", callback=parse_path, metavar="FILE", help="Its key."),
)  # fmt: skip
_WRITING_OPTIONS: Final = (
    *_CONNECTION_OPTIONS,
    click.option("--progress/--no-progress", default=None,
                 help="Show progress on standard error (default: if it is a terminal)."),
    click.option("--overwrite", is_flag=True, help="Replace a zarr group or array at the output path."),
)  # fmt: skip
connection_options: Final = _combine(*_CONNECTION_OPTIONS)
cluster_options: Final = _combine(*_WRITING_OPTIONS)  # of commands that write
data_arguments: Final = _combine(*_data_options("OUT.zarr", OUTPUT))
read_arguments: Final = _combine(data_argument, array_option, features_option)
rows_arguments: Final = _combine(*_data_options("OUT.zarr", f"Also write the anchors' rows: {OUTPUT}", required=False))


def count_option(what: str, *names: str) -> Callable[[Command], Command]:
    """Make an option for a number or "auto"."""
    return click.option(*(names or ("-k",)), callback=parse_count, default="auto", metavar="N|auto", show_default=True,
                        help=what)  # fmt: skip
