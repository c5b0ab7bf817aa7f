"""What options accept: numbers, words, lengths, column groups, files."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBERS: Final = re.compile(r"[0-9]+(,[0-9]+)*")


class Value(click.ParamType):  # type: ignore[type-arg]
    """
    What a docstring's line of a parameter's kind says: whole numbers, numbers, words, or any text.

    Parameters
    ----------
    kind : str
        Such as 'int or "auto"'.
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


def lengths(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """Accept numbers separated by commas, or a file of them."""
    if value is None:
        return None
    try:
        if _NUMBERS.fullmatch(value):
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
    from dask_dca.engine.files import expanded, require_regular

    path = expanded(value)
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
