"""Numbers and names in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["DASH", "MINUS", "counted", "feature_names", "figure_of", "listed", "percent", "shortened"]

MINUS: Final = "\N{MINUS SIGN}"
DASH: Final = "\N{EN DASH}"
_LONG: Final = 120  # characters after which a name is cut wherever it is shown


def figure_of(value: float, digits: int = 3) -> str:
    """
    Write a number with so many significant digits.

    Parameters
    ----------
    value : float
        The number.
    digits : int, default 3
        Significant digits.

    Returns
    -------
    str
        Its text; a dash for what is not finite.

    Examples
    --------
    >>> figure_of(0.97512), figure_of(1234567.0), figure_of(float("nan")), figure_of(-0.5)
    ('0.975', '1.23e+06', '–', '−0.5')
    """
    if not np.isfinite(value):
        return DASH
    value += 0.0  # -0 is 0
    text = f"{value:.{digits}g}" if abs(value) < 1000 or value != int(value) or abs(value) >= 1e6 else f"{value:,.0f}"
    return text.replace("-", MINUS) if text.startswith("-") else text


def percent(share: float, digits: int = 1) -> str:
    r"""
    Write a share in percent.

    Parameters
    ----------
    share : float
        1 is all.
    digits : int, default 1
        Digits after the point.

    Returns
    -------
    str
        Its text; a dash for what is not finite.

    Examples
    --------
    >>> percent(0.97512), percent(float("nan"))
    ('97.5\xa0%', '–')
    """
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%".replace("-", MINUS) if np.isfinite(share) else DASH


def counted(number: int, name: str, several: str | None = None) -> str:
    """
    Write how many of something there are.

    Parameters
    ----------
    number : int
        How many.
    name : str
        What one is called.
    several : str, optional
        What several are called; by default with an s.

    Returns
    -------
    str
        Number and name.

    Examples
    --------
    >>> counted(1, "row"), counted(40000, "row"), counted(2, "axis", "axes")
    ('1 row', '40,000 rows', '2 axes')
    """
    return f"{number:,} {name if number == 1 else several or name + 's'}"


def listed(items: Sequence[Any] | NDArray[Any], most: int = 8) -> str:
    """
    Write a list in words.

    Parameters
    ----------
    items : sequence
        What to name.
    most : int, default 8
        How many are named; of the others only the number is.

    Returns
    -------
    str
        Names with commas and "and".

    Examples
    --------
    >>> listed([3]), listed([3, 4, 5]), listed(range(20), 3)
    ('3', '3, 4 and 5', '0, 1, 2 and 17 more')
    """
    named = [str(item) for item in items[:most]]
    if len(items) > most:
        named.append(f"{len(items) - most} more")
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def sequences_of(lengths: Sequence[int]) -> str:
    """
    Say how many sequences frames are read as.

    Parameters
    ----------
    lengths : sequence of int
        Frames of each.

    Returns
    -------
    str
        In words.

    Examples
    --------
    >>> sequences_of([90]), sequences_of([30, 60])
    ('one sequence', '2 sequences')
    """
    return "one sequence" if len(lengths) == 1 else f"{len(lengths):,} sequences"


def shortened(name: Any, most: int = _LONG) -> str:
    """
    Cut a long name.

    Parameters
    ----------
    name : object
        The name.
    most : int, default 120
        Characters that are kept.

    Returns
    -------
    str
        The name without control characters, with dots where it was cut.

    Examples
    --------
    >>> shortened("temperature", 6)
    'tempe…'
    """
    text = "".join(char if char.isprintable() else " " for char in str(name)[: most + 1])
    return text if len(text) <= most else text[: most - 1] + "…"


def feature_names(model: Any) -> list[str]:
    """
    Name the features of a model.

    Parameters
    ----------
    model : estimator
        A fitted model.

    Returns
    -------
    list of str
        The names of the fit, or "feature 0", "feature 1", ...
    """
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return [f"feature {i}" for i in range(model.n_features_in_)]
    return [shortened(name) for name in names]
