"""`find_anchors`: the minimum conical hull problem on data of any size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.divide import Run
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.planes import check_ensemble
from dask_dca.models.robust import Settings, robust_anchors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dask_dca.models.result import AnchorResult

__all__ = ["anchors_of", "find_anchors", "n_subproblems"]

_METHODS: Final = ("robust", "paper")
_SELECTIONS: Final = ("candidates", "votes")


def n_subproblems(k: int, *, delta: float = 0.01, c: float = 1.0) -> int:
    """
    Number of sub-problems that find all anchors with probability 1 - delta.

    The paper's corollary to its Theorem on the probability bound: ceil(3 k / c * log(k / delta)).

    Parameters
    ----------
    k : int
        Number of anchors.
    delta : float, default 0.01
        Probability of failure, between 0 and 1.
    c : float, default 1.0
        Flatness: every anchor's probability of a vote exceeds twice that of a false one by at least c / k.

    Returns
    -------
    int
        Number of planes s.

    Raises
    ------
    InvalidParameterError
        k < 1, or delta or c out of range.

    Examples
    --------
    >>> n_subproblems(10)
    208
    """
    if k < 1 or not 0 < delta < 1 or c <= 0:
        msg = f"need k >= 1, 0 < delta < 1 and c > 0; received k={k}, delta={delta}, c={c}"
        raise InvalidParameterError(msg)
    return math.ceil(3 * k / c * math.log(k / delta))


def find_anchors(
    X: Any,
    n_anchors: int | str,
    *,
    Y: Any = None,
    method: str = "robust",
    n_subproblems: int | str = "auto",
    ensemble: str = "auto",
    dim: int = 2,
    solver: str = "plane",
    selection: str = "auto",
    random_state: Any = 0,
) -> AnchorResult:
    """
    Find k rows whose conical hull contains the data.

    Parameters
    ----------
    X : array-like of shape (n, p)
        Rows to be covered: NumPy, SciPy sparse, Dask array or DataFrame, xarray, zarr array or its path.
    n_anchors : int or "auto"
        Number of anchors k.
    Y : array-like of shape (m, p), optional
        Rows that the anchors are chosen from, X itself if None (method "paper" only).
    method : {"robust", "paper"}, default "robust"
        "robust" is the measured default: planes with a reference axis inside a robust subspace, facility location
        among the candidates. "paper" is Algorithm 1 as it stands: random planes in feature space, angles to an
        axis, the k rows with most votes.
    n_subproblems : int or "auto", default "auto"
        Number of planes s.
    ensemble : str, default "auto"
        Where directions are drawn from: "mixed", "row-space", "whitened", "gaussian", "sparse", "unit", "data".
    dim : int, default 2
        Dimension of a sub-problem.
    solver : str, default "plane"
        Solver of a sub-problem; "plane" is the closed form in two dimensions.
    selection : {"auto", "candidates", "votes"}, default "auto"
        How k rows are chosen: by facility location among the candidates, or by votes.
    random_state : int, Generator, RandomState or None, default 0
        Seed of the planes; None draws a new one each time.

    Returns
    -------
    AnchorResult
        Row numbers, votes and certificate.

    Raises
    ------
    DCAError
        Unusable data or parameters; the message says which, and how to go on.

    Notes
    -----
    Zhou, Bilmes and Guestrin, Divide-and-Conquer Learning by Anchoring a Conical Hull, NIPS 2014, Algorithm 1.
    The same input gives the same bits for any chunking, number of workers, or worker death.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rays = rng.random((3, 8))
    >>> X = np.vstack([rng.dirichlet(np.ones(3), 50) @ rays, rays])
    >>> sorted(find_anchors(X, 3).indices.tolist())
    [50, 51, 52]
    """
    if dim != 2 or solver != "plane":
        msg = f"only planar sub-problems are there: dim=2, solver='plane'; received dim={dim!r}, solver={solver!r}"
        raise InvalidParameterError(msg)
    settings = check_settings(method, n_subproblems, ensemble, selection, random_state)
    rows = as_rows(X)
    return anchors_of(rows, check_count(n_anchors, rows, "n_anchors"), method, settings, Run(), Y=Y)


def anchors_of(
    rows: Rows,
    n_anchors: int | None,
    method: str,
    settings: Settings,
    run: Run,
    *,
    Y: Any = None,
    nonnegative: bool = False,
) -> AnchorResult:
    """
    Find anchors with checked parameters; for models.

    Parameters
    ----------
    rows : Rows
        The data.
    n_anchors : int or None
        How many; None chooses.
    method : {"robust", "paper"}
        Which algorithm.
    settings : Settings
        Its parameters.
    run : Run
        How passes are run.
    Y : array-like, optional
        Rows to choose from.
    nonnegative : bool, default False
        Refuse negative entries.

    Returns
    -------
    AnchorResult
        Anchors and certificate.
    """
    if method == "robust" and Y is None:
        return robust_anchors(rows, n_anchors, settings, run, nonnegative=nonnegative)
    if method == "robust":
        msg = "the robust method chooses anchors from X itself; for Y use method='paper'"
        raise InvalidParameterError(msg)
    if n_anchors is None:
        msg = "method='paper' needs the number of anchors: pass an integer instead of 'auto'"
        raise InvalidParameterError(msg)
    from dask_dca.models.paper import paper_anchors

    return paper_anchors(rows, n_anchors, settings, run, Y=Y, nonnegative=nonnegative)


def check_settings(method: str, n_subproblems: int | str, ensemble: str, selection: str, random_state: Any) -> Settings:
    """
    Check the parameters that all anchoring shares.

    Parameters
    ----------
    method, n_subproblems, ensemble, selection, random_state : object
        As `find_anchors` takes them.

    Returns
    -------
    Settings
        The same, checked and resolved.

    Raises
    ------
    InvalidParameterError
        One of them is unknown or out of range.
    """
    _one_of("method", method, _METHODS)
    _one_of("selection", selection, ("auto", *_SELECTIONS))
    default = ("mixed", "candidates") if method == "robust" else ("gaussian", "votes")
    try:
        ensemble = default[0] if ensemble == "auto" else check_ensemble(ensemble)
    except ValueError as error:
        raise InvalidParameterError(str(error)) from None
    if method == "paper" and ensemble in ("mixed", "row-space", "whitened"):
        msg = f"ensemble {ensemble!r} needs the robust method's subspace; with method='paper' use 'gaussian'"
        raise InvalidParameterError(msg)
    planes = None if n_subproblems == "auto" else check_integer("n_subproblems", n_subproblems, 1)
    chosen = default[1] if selection == "auto" else selection
    return Settings(planes, ensemble, chosen, draw_seed(random_state))


def check_count(value: Any, rows: Rows, name: str) -> int | None:
    """
    Check a number of components against the data.

    Parameters
    ----------
    value : int or "auto"
        The number asked for.
    rows : Rows
        The data.
    name : str
        The parameter's name, for the message.

    Returns
    -------
    int or None
        The number; None for "auto".

    Raises
    ------
    InvalidParameterError
        Not an integer, below one, or above the number of rows.
    """
    if isinstance(value, str) and value == "auto":
        return None
    count = check_integer(name, value, 1)
    if count > rows.n_rows:
        msg = f"{name}={count} exceeds the number of rows, n_samples = {rows.n_rows}; use at most {rows.n_rows}"
        raise InvalidParameterError(msg)
    return count


def check_integer(name: str, value: Any, least: int) -> int:
    """
    Check an integer parameter.

    Parameters
    ----------
    name : str
        Its name.
    value : object
        What was passed.
    least : int
        The least value allowed.

    Returns
    -------
    int
        The value.

    Raises
    ------
    InvalidParameterError
        Not an integer, or too small.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < least:
        msg = f"{name} must be 'auto' or an integer of at least {least}; received {value!r}"
        raise InvalidParameterError(msg)
    return int(value)


def draw_seed(random_state: Any) -> int:
    """
    Turn what scikit-learn calls a random state into one 64-bit seed.

    Parameters
    ----------
    random_state : int, Generator, RandomState, SeedSequence or None
        An integer gives the same seed each time; a generator is advanced; None draws a new one.

    Returns
    -------
    int
        The seed.

    Raises
    ------
    InvalidParameterError
        None of these.

    Examples
    --------
    >>> draw_seed(3) == draw_seed(3)
    True
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


def _one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        msg = f"unknown {name} {value!r}; use one of {', '.join(map(repr, allowed))}"
        raise InvalidParameterError(msg)
