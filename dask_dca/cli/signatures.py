"""Parameters of the models, read from their source: options and `--help` need none of their imports."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from dask_dca._registry import MODELS

__all__ = ["Parameter", "fit_arguments", "parameters_of"]

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
