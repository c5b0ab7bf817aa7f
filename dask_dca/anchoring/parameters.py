"""Checks of the parameters that all models share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.planes import PAIRS, check_ensemble

if TYPE_CHECKING:
    from dask_dca.engine.rows import Rows

_METHODS: Final = ("robust", "paper")
_SELECTIONS: Final = ("candidates", "votes")
_MOST_PLANES: Final = 1_000_000
_AUTO: Final = "'auto' or "


@dataclass(frozen=True)
class Settings:
    """Checked parameters of anchoring."""

    n_subproblems: int | None = None  # None: chosen from the number of anchors
    ensemble: str = "mixed"
    selection: str = "candidates"
    seed: int = 0


def check_settings(
    method: str,
    n_subproblems: int | str,
    ensemble: Any,
    selection: str,
    random_state: Any,
    *,
    own_directions: bool = False,
    views: bool = False,
) -> Settings:
    """Check the parameters that all anchoring shares.

    own_directions: whether the robust method draws its directions in a way of its own: then an ensemble is for the
    paper's only; views: whether the paper's method looks at three views of a row: then planes may lie among pairs of
    their features. Returns the same, checked and resolved.
    Raises InvalidParameterError: one of them is unknown or out of range.
    """
    check_option("method", method, _METHODS)
    check_option("selection", selection, ("auto", *_SELECTIONS))
    if not isinstance(ensemble, str):
        msg = f"ensemble must be a word such as 'auto'; received a {type(ensemble).__name__}"
        raise InvalidParameterError(msg)
    default = ("mixed", "candidates") if method == "robust" else ("gaussian", "votes")
    if ensemble == PAIRS and not (views and method == "paper"):
        msg = "ensemble 'pairs' draws planes among pairs of features of two views: it needs views and method='paper'"
        raise InvalidParameterError(msg)
    try:
        ensemble = default[0] if ensemble == "auto" else ensemble if ensemble == PAIRS else check_ensemble(ensemble)
    except ValueError as error:
        raise InvalidParameterError(str(error)) from None
    if method == "paper" and ensemble in ("mixed", "row-space", "whitened"):
        msg = f"ensemble {ensemble!r} needs the robust method's subspace; with method='paper' use 'gaussian'"
        raise InvalidParameterError(msg)
    if method == "robust" and own_directions and ensemble != default[0]:
        msg = f"ensemble={ensemble!r} is for method='paper'; the default method of this model has directions of its own"
        raise InvalidParameterError(msg)
    planes = None if is_auto(n_subproblems) else check_integer("n_subproblems", n_subproblems, 1, auto=True)
    if planes is not None and planes > _MOST_PLANES:
        msg = f"n_subproblems={planes} is above {_MOST_PLANES:,}; with k anchors some 10 k ln k are enough: use 'auto'"
        raise InvalidParameterError(msg)
    chosen = default[1] if selection == "auto" else selection
    return Settings(planes, ensemble, chosen, draw_seed(random_state))


def check_count(value: Any, rows: Rows, name: str) -> int | None:
    """Check a number of components against the data.

    name: the parameter's name, for the message. Returns the number; None for "auto".
    Raises InvalidParameterError: not an integer, below one, or above the number of rows.
    """
    if is_auto(value):
        return None
    count = check_integer(name, value, 1, auto=True)
    if count > rows.n_rows:
        msg = f"{name}={count} exceeds the number of rows, n_samples = {rows.n_rows}; use at most {rows.n_rows}"
        raise InvalidParameterError(msg)
    return count


def is_auto(value: Any) -> bool:
    """Whether a parameter is left to the library."""
    return isinstance(value, str) and value == "auto"


def check_integer(name: str, value: Any, least: int, *, auto: bool = False) -> int:
    """Check an integer parameter.

    auto: whether "auto" is another value that it may have, for the message.
    Raises InvalidParameterError: not an integer, or too small.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < least:
        msg = f"{name} must be {_AUTO * auto}an integer of at least {least}; received {value!r}"
        raise InvalidParameterError(msg)
    return int(value)


def check_number(
    name: str, value: Any, least: float = 0.0, most: float = np.inf, *, positive: bool = False, auto: bool = False
) -> float:
    """Check a parameter that is a number below infinity.

    least, most: both allowed; positive: whether zero is not; auto: whether "auto" is another value, for the message.
    Raises InvalidParameterError: no number, or out of range.
    """
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not real or not least <= value <= most or value == np.inf or (positive and value <= 0.0):
        kind = "positive number" if positive else "number" if least < 0.0 else "finite number of at least 0"
        msg = f"{name} must be {_AUTO * auto}a {kind if most == np.inf else f'number from {least:g} to {most:g}'}"
        msg += f"; received {value!r}"
        raise InvalidParameterError(msg)
    return float(value)


def check_option(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Check a parameter that is one of a few words.

    Raises InvalidParameterError: it is none of them.
    """
    if not isinstance(value, str) or value not in allowed:
        msg = f"unknown {name} {value!r}; use one of {', '.join(map(repr, allowed))}"
        raise InvalidParameterError(msg)
    return value


def draw_seed(random_state: Any) -> int:
    """Turn what scikit-learn calls a random state into one 64-bit seed.

    random_state: an integer gives the same seed each time; a generator is advanced; None draws a new one.
    Raises InvalidParameterError: none of these.
    """
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.SeedSequence):
        return int(random_state.generate_state(1, np.uint64)[0])
    whole = isinstance(random_state, int | np.integer) and random_state >= 0
    if random_state is not None and not whole:
        msg = f"random_state must be None, a non-negative integer or a NumPy generator; received {random_state!r}"
        raise InvalidParameterError(msg)
    return int(np.random.SeedSequence(random_state).generate_state(1, np.uint64)[0])
