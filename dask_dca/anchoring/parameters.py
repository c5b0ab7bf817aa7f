"""Parameters of anchoring, with the checks that all models share, and its result, anchors with a certificate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.engine.advice import Form, in_terms_of, refuse_other_names
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.tiles import RowCounts
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.low_rank import LowRank
from dask_dca.geometry.planes import PAIR_ENSEMBLE, check_ensemble
from dask_dca.geometry.votes import wilson_bounds

_MIN_EVALUATION_ROWS: Final = 2**7  # rows that models are evaluated on, even if they have more entries
_MAX_EVALUATION_ROWS: Final = 2**11
_MAX_EVALUATION_ENTRIES: Final = 2**20
_METHODS: Final = ("robust", "paper")
_SELECTIONS: Final = ("candidates", "votes")
_MAX_PLANES: Final = 1_000_000  # greatest number of sub-problems
_AUTO_PREFIX: Final = "'auto' or "  # of messages on parameters that may be "auto"


def evaluation_rows(sample: NDArray[np.float64]) -> NDArray[np.float64]:
    """Take rows to evaluate a model on, spread over a sample (m, p): 2,048, or fewer if they are wide."""
    affordable = _MAX_EVALUATION_ENTRIES // max(1, sample.shape[1])
    wanted = max(_MIN_EVALUATION_ROWS, min(_MAX_EVALUATION_ROWS, affordable))
    return sample[:: max(1, -(-len(sample) // wanted))]


@dataclass(frozen=True, repr=False)
class AnchorResult:
    """
    Anchors with their certificate.

    Attributes
    ----------
    indices : ndarray of int64, shape (k,)
        Row numbers of the anchors (rows of Y where Y was given, else of X), most useful first.
    votes : ndarray of int64, shape (k,)
        In how many planes each is an extreme row.
    vote_share : ndarray of float64, shape (k,)
        Votes over pointed planes: the paper's g-hat.
    confidence : ndarray of float64, shape (k, 2)
        Wilson's 95 % bounds on the probability of a vote.
    n_subproblems : int
        Number of planes s.
    n_pointed : int
        How many of them were pointed, so that their extremes are rays of the projected cone.
    candidates : ndarray of int64, shape (c,)
        All rows with a vote.
    candidate_votes : ndarray of int64, shape (c,)
        Their votes.
    coverage : float
        Share of the data's extent that the anchors reach, averaged over fresh planes that took no part in
        choosing them: 1 means that their cone reaches all rows on every plane.
    coverage_curve : ndarray of float64, shape (k,)
        The same for the first 1, 2, ... k anchors.
    n_range : tuple of int
        Least and greatest number of anchors that the data speak for, (k, k) where k was given.
    sample : ndarray of float64, shape (m, p)
        At most 2,048 rows (of more than 512 features 2**20 entries, but 128 rows at least), spread over the data, to
        judge a model by.
    rows : ndarray of float64, shape (k, p)
        The anchors' rows; none with views, whose anchors are outer products that are never formed.
    rare_rows : ndarray of int64, shape (j,)
        Rows in a direction that the sample had missed, such as rows all in one region of the data: they were added to
        the sample, and the divide step was repeated. Usually none.
    groups : tuple of ndarray of int64
        With a library (Y): for each anchor, the rows of Y that the data do not distinguish from it, itself first.
    offset : bool
        With a library: whether rows of X also contain a constant, the same for all features of a row.
    unexplained : float
        With a library: the share of the spread of X, beyond its noise, that lies outside the span of the anchors; NaN
        without one.
    n_zero_rows, n_behind_rows, n_clipped_entries : int
        All-zero rows, rows behind the reference axis (both left out), negative entries clipped as rounding.
    n_unobserved_rows : int
        Rows without any observed entry, left out too; zero unless entries are missing.
    n_missing_entries : int
        Entries of all rows that are missing.
    completion : LowRank or None
        The model that filled missing entries, None if every entry was observed.
    """

    indices: NDArray[np.int64]
    votes: NDArray[np.int64]
    vote_share: NDArray[np.float64]
    confidence: NDArray[np.float64]
    n_subproblems: int
    n_pointed: int
    candidates: NDArray[np.int64]
    candidate_votes: NDArray[np.int64]
    coverage: float = float("nan")
    coverage_curve: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    n_range: tuple[int, int] = (0, 0)
    sample: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)), compare=False)
    rows: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)), compare=False)
    n_zero_rows: int = 0
    n_behind_rows: int = 0
    n_clipped_entries: int = 0
    rare_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    groups: tuple[NDArray[np.int64], ...] = field(default=(), compare=False)
    offset: bool = False
    unexplained: float = float("nan")
    n_unobserved_rows: int = 0
    n_missing_entries: int = 0
    completion: LowRank | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        reach = "" if np.isnan(self.coverage) else f", coverage {self.coverage:.3f}"
        rows = np.array2string(self.indices, separator=", ", threshold=100)
        return f"<AnchorResult: {len(self.indices)} anchors{reach}, in rows {rows}>"


def certify(
    chosen: Numbers,
    candidates: tuple[Numbers, Numbers],
    n_planes: int,
    *,
    own: Numbers | None = None,
    curve: Floats | None = None,
    row_counts: RowCounts | None = None,
    **more: Any,
) -> AnchorResult:
    """Make the result of anchoring, with the certificate by votes; all planes are pointed unless `more` says otherwise.

    chosen (k,): the anchors; candidates: rows with a vote, increasing, and their votes; own (k,): votes of the anchors,
    if not all are candidates; curve (k,): coverage by the first anchors; row_counts: counts of unusable rows.
    """
    rows, counts = candidates
    own = counts[np.searchsorted(rows, chosen)] if own is None else own
    facts: dict[str, Any] = {"n_pointed": n_planes, "n_range": (len(chosen), len(chosen))}
    if curve is not None:
        facts |= {"coverage": float(curve[-1]), "coverage_curve": curve}
    if row_counts is not None:
        facts |= {"n_zero_rows": row_counts.zero_rows, "n_behind_rows": row_counts.behind_rows}
        facts |= {"n_clipped_entries": row_counts.clipped_entries}
    return AnchorResult(
        indices=chosen,
        votes=own,
        vote_share=own / n_planes,
        confidence=wilson_bounds(own, n_planes),
        n_subproblems=n_planes,
        candidates=rows,
        candidate_votes=counts,
        **facts | more,
    )


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

    own_directions: whether the model's robust method has its own directions, so that `ensemble` is for the paper's
    method only; views: whether rows have three views, so that the ensemble "pairs" is allowed. Returns them with "auto"
    resolved.
    Raises InvalidParameterError: one of them is unknown or out of range.
    """
    check_option("method", method, _METHODS)
    check_option("selection", selection, ("auto", *_SELECTIONS))
    if not isinstance(ensemble, str):
        msg = f"ensemble must be a word such as 'auto'; received a {type(ensemble).__name__}"
        raise InvalidParameterError(msg)
    default = ("mixed", "candidates") if method == "robust" else ("gaussian", "votes")
    if ensemble == PAIR_ENSEMBLE and not (views and method == "paper"):
        msg = "ensemble 'pairs' draws planes among pairs of features of two views: it needs views and method='paper'"
        raise InvalidParameterError(msg)
    try:
        ensemble = (
            default[0] if ensemble == "auto" else ensemble if ensemble == PAIR_ENSEMBLE else check_ensemble(ensemble)
        )
    except ValueError as error:
        raise InvalidParameterError(str(error)) from None
    if method == "paper" and ensemble in ("mixed", "row-space", "whitened"):
        msg = f"ensemble {ensemble!r} needs the robust method's subspace; with method='paper' use 'gaussian'"
        raise InvalidParameterError(msg)
    if method == "robust" and own_directions and ensemble != default[0]:
        msg = f"ensemble={ensemble!r} is for method='paper'; the default method of this model has directions of its own"
        raise InvalidParameterError(msg)
    planes = None if is_auto(n_subproblems) else check_integer("n_subproblems", n_subproblems, 1, auto=True)
    if planes is not None and planes > _MAX_PLANES:
        msg = f"n_subproblems={planes} is above {_MAX_PLANES:,}; with k anchors some 10 k ln k are enough: use 'auto'"
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


def open_beside(rows: Rows, given: Any, name: str) -> Rows:
    """Open a further matrix, whose features must be those of X.

    rows: X; name: of the matrix, for messages.
    Raises InvalidInputError: it is no matrix, or has other features.
    """
    with in_terms_of(Form(name=name)):
        found = as_rows(given)
    refuse_other_names(rows.feature_names, found.feature_names, name)
    if found.n_features != rows.n_features:
        msg = (
            f"X has {rows.n_features} features and {name} {found.n_features}: they must live in the same space; pass "
            f"{name} of shape (m, {rows.n_features})"
        )
        raise InvalidInputError(msg)
    return replace(found, form=replace(found.form, name=name))


def is_auto(value: Any) -> bool:
    """Whether a parameter is "auto"."""
    return isinstance(value, str) and value == "auto"


def check_integer(name: str, value: Any, least: int, *, auto: bool = False) -> int:
    """Check an integer parameter.

    auto: whether "auto" is allowed too, for the message.
    Raises InvalidParameterError: not an integer, or too small.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < least:
        msg = f"{name} must be {_AUTO_PREFIX * auto}an integer of at least {least}; received {value!r}"
        raise InvalidParameterError(msg)
    return int(value)


def check_number(
    name: str, value: Any, least: float = 0.0, most: float = np.inf, *, positive: bool = False, auto: bool = False
) -> float:
    """Check a parameter that is a number below infinity.

    least, most: inclusive bounds; positive: whether zero is refused; auto: whether "auto" is allowed too, for the
    message.
    Raises InvalidParameterError: no number, or out of range.
    """
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not real or not least <= value <= most or value == np.inf or (positive and value <= 0.0):
        kind = "positive number" if positive else "number" if least < 0.0 else "finite number of at least 0"
        kind = kind if most == np.inf else f"number from {least:g} to {most:g}"
        msg = f"{name} must be {_AUTO_PREFIX * auto}a {kind}; received {value!r}"
        raise InvalidParameterError(msg)
    return float(value)


def check_option(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Check a parameter that is one of a few strings.

    Raises InvalidParameterError: it is none of them.
    """
    if not isinstance(value, str) or value not in allowed:
        msg = f"unknown {name} {value!r}; use one of {', '.join(map(repr, allowed))}"
        raise InvalidParameterError(msg)
    return value


def draw_seed(random_state: Any) -> int:
    """Turn a scikit-learn random state into a 64-bit seed.

    random_state: an integer gives the same seed each time; a generator is advanced; None draws a new seed.
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
