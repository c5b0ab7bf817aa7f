"""Fitting a Kalman filter: start on a sample, corrected EM steps over all frames, anchor states as axes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import call, hold_rows, spread_rows
from dask_dca.engine.sequences import ends_of_runs
from dask_dca.engine.tiles import require_size, require_squares
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError, InvalidParameterError, warn, without_columns
from dask_dca.geometry.exact import power_of_two
from dask_dca.models.em import Refined, expectation_maximisation
from dask_dca.models.kalman.em import change_sums_basis, climb, corrected, m_step
from dask_dca.models.kalman.passes import choose_anchor_states, e_step_pass, state_directions
from dask_dca.models.kalman.pieces import prepare
from dask_dca.models.kalman.scan import e_step
from dask_dca.models.kalman.start import WIDEST, start_from_frames
from dask_dca.models.kalman.system import balanced, change_basis, spread_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dask_dca.engine.rows import Rows
    from dask_dca.engine.sampling import Held
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.models.kalman.em import Look, StateSums
    from dask_dca.models.kalman.passes import AnchorStates, SystemSums
    from dask_dca.models.kalman.pieces import PreparedFilter
    from dask_dca.models.kalman.start import SystemStart
    from dask_dca.models.kalman.system import LinearSystem

D = TypeVar("D")
_PIECE: Final = 256  # own frames of a piece
_TRIALS: Final = 2  # EM steps that make a start's noises plausible
_MOST_TRIALS: Final = 20
_CLEARLY: Final = 5.0  # nats by which another start must be likelier
_LOOKS: Final = 10  # at the sample, in a climb
_LOOKS_AROUND_GAPS: Final = 5  # where entries are missing: then a look takes ten times as long
_CORRECTED: Final = 3  # times as many where the sample stands for all frames: the last digits count
_TOLERANCE: Final = 1e-7  # of the beginning of a piece
_STRETCHES: Final = 20  # of the sample
_SAMPLE_ENTRIES: Final = 2 * 10**7
_SAMPLE_ROWS: Final = 20_480


@dataclass(frozen=True)
class KalmanSettings:
    """Checked parameters."""

    n_dim_state: int | None
    covariance_type: str
    max_iter: int
    tol: float
    n_directions: int | None
    seed: int


@dataclass(frozen=True)
class KalmanFit:
    """What a fit found.

    refined: the system in the data's units, with anchor states for axes, and what the last look at all frames saw;
    correlations (m,): canonical correlations of past and future, decreasing; correlated: by how many nats the sample is
    likelier if noises are correlated, or NaN; sums, scale: what that look saw, with these axes,
    and in which units.
    """

    refined: Refined[LinearSystem, SystemSums]
    anchors: AnchorStates
    correlations: Floats
    correlated: float
    sums: StateSums
    scale: ChannelScale


def fit_kalman(rows: Rows, edges: Numbers, settings: KalmanSettings, run: Run) -> KalmanFit:
    """Learn a Kalman filter in max_iter + 2 passes: a sample, then EM, whose looks also divide.

    rows: the data; NaN where an entry is missing; edges (m + 1,): first frame of each sequence, and the number of
    frames.
    Raises DCAError: infinite frames, a channel without an entry, or sequences of one frame only.
    """
    if int(np.diff(edges).max()) < 2:
        msg = (
            f"a Kalman filter is learnt from successive frames, but no sequence has two of them (n_samples = "
            f"{rows.n_rows}); pass longer sequences"
        )
        raise InvalidInputError(msg)
    sample = take_frames(rows, edges, run)
    form = _Form(sample.scale, sample.missing, _is_full(settings, rows, missing=sample.missing))
    start = call(run, "start", _start, sample.held, settings.n_dim_state, form, sample.is_all)
    _warn_of_fewer(settings.n_dim_state, start.system.n_dim_state, sample.n_frames, rows.n_features)
    directions = partial(state_directions, n_directions=settings.n_directions, seed=settings.seed)
    look = FrameLook(rows, edges, form.scale, run, settings.covariance_type, form.missing, directions)

    def _look(system: LinearSystem) -> tuple[tuple[LinearSystem, SystemSums], float]:
        seen, likelihood = look(system)
        _refuse_unseen(seen[1].counts, rows)
        return seen, likelihood

    def _step(_: LinearSystem, seen: tuple[LinearSystem, SystemSums]) -> LinearSystem:
        system, found = seen
        return call(run, "climb", _followed, sample.held, system, found.sums, look.form(system), sample.is_all)

    refined = expectation_maximisation(start.system, _look, _step, max_iter=settings.max_iter, tol=settings.tol)
    system, seen = refined.seen
    told = contiguous(system), start.directions, start.likelihood
    correlated = call(run, "compare", _correlated, sample.held, look.form(system), *told)
    with one_blas_thread():
        anchors = choose_anchor_states(seen.extremes, spread_of(system))
        turned = in_data_units(change_basis(system, anchors.states), form.scale)
        sums = change_sums_basis(seen.sums, anchors.states)
    _warn_of_absent(anchors.indices, varied=bool((seen.variances > 0.0).any()))
    found = Refined(turned, seen, refined.log_likelihoods, refined.converged)
    return KalmanFit(found, anchors, start.correlations, correlated, sums, form.scale)


@dataclass(frozen=True)
class _Form:
    """How frames are taken: in these units; whether entries are missing; whether R is full."""

    scale: ChannelScale
    missing: bool
    full: bool

    @property
    def n_looks(self) -> int:
        """Looks at the sample in a climb."""
        return _LOOKS_AROUND_GAPS if self.missing else _LOOKS


def _start(sample: ChannelStretches, k: int | None, form: _Form, is_all: bool) -> SystemStart:
    """A system in closed form; and as likely as it can be made, where the sample is not all there is."""
    look = _SampleLook(sample, form)
    start = start_from_frames(look.frames, sample.edges, k, diagonal=not form.full)
    system = balanced(_plausible(start.system, look))
    if start.augmented is not None and not form.missing:
        system = _likelier(system, balanced(_plausible(start.augmented, look)), look, form.n_looks)
    return contiguous(replace(start, system=contiguous(system if is_all else climb(system, look, form.n_looks))))


def _plausible(system: LinearSystem, look: Look) -> LinearSystem:
    """A few steps of EM, and more as long as the likelihood falls: then chance correlations are going out of R."""
    before = -np.inf
    for number in range(_MOST_TRIALS):
        sums, value = look(system)
        if number >= _TRIALS and value >= before:
            break
        system, before = m_step(sums), value
    return system


def _likelier(one: LinearSystem, other: LinearSystem, look: Look, n_looks: int) -> LinearSystem:
    """The other, if it is clearly likelier now, and is so still after both have climbed."""
    if look(other)[1] < look(one)[1] + _CLEARLY:
        return one
    one, other = (contiguous(climb(system, look, n_looks)) for system in (one, other))
    return other if look(other)[1] > look(one)[1] + _CLEARLY else one


def _followed(
    sample: ChannelStretches, system: LinearSystem, whole: StateSums, form: _Form, is_all: bool
) -> LinearSystem:
    """The M-step, and those that follow it on the sample, corrected by the sums of all frames."""
    look = corrected(_SampleLook(sample, form), contiguous(whole), contiguous(system))
    return contiguous(climb(contiguous(system), look, form.n_looks * (1 if is_all else _CORRECTED)))


def contiguous(found: D) -> D:
    """The same dataclass with arrays as they are when they were sent: the bits of products depend on it."""
    arrays = {name: value for name, value in vars(found).items() if isinstance(value, np.ndarray)}
    return replace(found, **{name: np.ascontiguousarray(value) for name, value in arrays.items()})  # type: ignore[type-var]


class _SampleLook:
    """The E-step on a sample."""

    def __init__(self, sample: ChannelStretches, form: _Form) -> None:
        self.sample, self.form = sample, form
        frames = (sample.frames - form.scale.centre) / form.scale.unit
        self.frames = np.where(np.isnan(frames), 0.0, frames)
        self.second = self.frames.T @ self.frames if form.full else (self.frames**2).sum(axis=0)

    def __call__(self, system: LinearSystem) -> tuple[StateSums, float]:
        if not self.form.missing:
            return e_step(system, self.frames, self.sample.edges, self.second)
        tracker = prepare_fit(system, self.sample.edges, self.form.scale, missing=True)
        rows = as_rows(self.sample.frames)
        found = e_step_pass(rows, tracker, Run(), missing=True, full=False, second=self.second)
        assert found is not None
        return found.sums, found.log_likelihood

    def correlated(self, system: LinearSystem, directions: Floats, likelihood: float) -> float:
        """How much likelier coordinates are in innovations form, in nats; NaN where nothing tells."""
        if self.form.missing or likelihood == -np.inf:
            return float("nan")
        z, noise = self.frames @ directions, system.observation_covariance
        seen = (directions.T * noise if noise.ndim == 1 else directions.T @ noise) @ directions
        own = replace(
            system,
            observation=directions.T @ system.observation,
            observation_covariance=seen,
            offset=directions.T @ system.offset,
        )
        constant = 0.5 * z.size * (1.0 + np.log(2.0 * np.pi))
        return likelihood - constant - e_step(own, z, self.sample.edges, z.T @ z)[1]


def _correlated(sample: ChannelStretches, form: _Form, *args: Any) -> float:
    return _SampleLook(sample, form).correlated(*args)


@dataclass
class FrameLook:
    """The E-step over all frames, in units of a scale; noise is diagonal from the first missing entry on.

    directions: from the covariance of the states, those on which the divide step looks; none by default. Returns the
    system and what it sees, and the mean log likelihood per frame, in the data's units.
    Raises InvalidParameterError: entries are missing, and covariance_type is "full".
    """

    rows: Rows
    edges: Numbers
    scale: ChannelScale
    run: Run
    covariance_type: str
    missing: bool
    directions: Callable[[Floats], Floats] | None = None
    _second: Floats | None = field(default=None, init=False)  # sums of products of channels, from the first look

    def __call__(self, system: LinearSystem) -> tuple[tuple[LinearSystem, SystemSums], float]:
        """Look at all frames."""
        if self.missing and system.observation_covariance.ndim == 2:
            refuse_full(self.covariance_type)
            system = replace(system, observation_covariance=diagonal_of(system.observation_covariance))
        form = self.form(system)
        with one_blas_thread():
            tracker = prepare_fit(system, self.edges, self.scale, missing=self.missing)
            heights = None if self.directions is None else self.directions(spread_of(system))
        found = e_step_pass(
            self.rows,
            tracker,
            self.run,
            missing=form.missing,
            full=form.full,
            second=self._second,
            directions=heights,
        )
        if found is None:  # a missing entry outside the sample
            self.missing = True
            return self(system)
        self._second = found.sums.second
        volume = float((found.counts * np.log(self.scale.unit)).sum())  # densities are those of x, not of x / unit
        return (system, found), found.log_likelihood / self.rows.n_rows - volume / self.rows.n_rows

    def form(self, system: LinearSystem) -> _Form:
        """Say how frames are taken."""
        return _Form(self.scale, self.missing, system.observation_covariance.ndim == 2)


def _is_full(settings: KalmanSettings, rows: Rows, *, missing: bool) -> bool:
    if settings.covariance_type == "auto":
        return not missing and rows.n_features <= WIDEST
    if missing:
        refuse_full(settings.covariance_type)
    return settings.covariance_type == "full"


def refuse_full(covariance_type: str) -> None:
    """Raise an error if a full R was asked for, of frames that lack entries."""
    if covariance_type == "full":
        msg = "covariance_type='full' needs complete frames, but entries of X are missing; pass 'auto' or 'diag'"
        raise InvalidParameterError(msg)


def _warn_of_fewer(wanted: int | None, found: int, n_frames: int, n_features: int) -> None:
    if wanted is not None and found < wanted:
        msg = (
            f"{n_frames} frames of {n_features} features tell only {found} state dimensions apart, and "
            f"n_dim_state is {wanted}; fit again with n_dim_state={found}, or with more or longer sequences"
        )
        warn(msg, FewerAnchorsWarning)


def _refuse_unseen(counts: Floats, rows: Rows) -> None:
    """Raise an error that names the first channel without an entry."""
    unseen = np.flatnonzero(counts == 0.0)
    if len(unseen):
        name = "" if rows.feature_names is None else f" ({rows.feature_names[unseen[0]]!r})"
        msg = (
            f"column {unseen[0]}{name} of X is missing in all {rows.n_rows} frames ({len(unseen)} such columns), so "
            f"that nothing can be learnt of it; leave it out, for example {without_columns(unseen.tolist())}"
        )
        raise InvalidInputError(msg)


def diagonal_of(noise: Floats) -> Floats:
    """Take the variances (p,) of noise of either form."""
    return noise if noise.ndim == 1 else np.ascontiguousarray(np.diagonal(noise))


def _warn_of_absent(indices: Numbers, *, varied: bool) -> None:
    """Say that states have fewer dimensions than asked for, or do not move at all."""
    count, there = len(indices), int((indices >= 0).sum())
    if there == count:
        return
    then = f"; fit again with n_dim_state={there}"
    if not there:
        why = "no frame tells anything of the next one" if varied else "all frames are equal"
        then = f", since {why}: every prediction is the mean frame, and a model adds nothing here"
    warn(f"the frames' states span {there} dimensions where n_dim_state is {count}{then}", FewerAnchorsWarning)


def prepare_fit(system: LinearSystem, edges: Numbers, scale: ChannelScale, *, missing: bool) -> PreparedFilter:
    """Prepare a system for a pass of a fit.

    system: the parameters so far, in units of the scale; edges (m + 1,): first frame of each sequence, and the number
    of frames; missing: whether entries may be missing. Returns cut into pieces of at most 256 frames, fewer where there
    are not many.
    """
    k, p, n = system.n_dim_state, system.n_dim_obs, int(edges[-1])
    length = int(np.clip(-(-n // 64), 32, _PIECE))
    width = p + (4 * k * k if missing else 4 * k)
    return prepare(system, edges, scale.centre, scale.unit, tolerance=_TOLERANCE, n_frames=length, width=width)


def in_fit_units(system: LinearSystem, scale: ChannelScale) -> LinearSystem:
    """Turn a system of x into one of (x - centre) / unit.

    scale: centre and units, powers of two.
    """
    return in_data_units(system, ChannelScale(-scale.centre / scale.unit, 1.0 / scale.unit))


def in_data_units(system: LinearSystem, scale: ChannelScale) -> LinearSystem:
    """Turn a system of (x - centre) / unit into one of x.

    system: in units of the scale; scale: centre and units, powers of two.
    """
    noise, unit = system.observation_covariance, scale.unit
    return replace(
        system,
        observation=system.observation * unit[:, None],
        observation_covariance=noise * unit**2 if noise.ndim == 1 else noise * np.multiply.outer(unit, unit),
        offset=scale.centre + system.offset * unit,
    )


# --- the sample ---


@dataclass(frozen=True)
class ChannelStretches:
    """Frames in uninterrupted stretches.

    frames (n, p): frames; NaN where an entry is missing; edges (m + 1,): first frame of each stretch, and their number.
    """

    frames: Floats
    edges: Numbers


@dataclass(frozen=True)
class ChannelScale:
    """Where channels lie and how much they vary: frames are learnt from as (x - centre) / unit.

    centre (p,): their means in the sample; unit (p,): powers of two at or above their standard deviations there.
    """

    centre: Floats
    unit: Floats


@dataclass(frozen=True)
class SampledChannels:
    """Stretches that stay where the data are, and what is known of them.

    is_all: whether these are all frames there are; missing: whether an entry is missing.
    """

    held: Held[ChannelStretches]
    is_all: bool
    n_frames: int
    missing: bool
    scale: ChannelScale


def take_frames(rows: Rows, edges: Numbers, run: Run) -> SampledChannels:
    """Take a sample: stretches spread over all frames, chosen by the number of frames alone.

    edges (m + 1,): first frame of each sequence, and the number of frames. Returns the sample; all frames where there
    are no more than some 20,000.
    Raises NotFiniteError: a frame is infinite; InvalidInputError: squares are out of the range of floating-point
    numbers.
    """
    most = max(min(_SAMPLE_ROWS, _SAMPLE_ENTRIES // rows.n_features), 64 * _STRETCHES)
    numbers = spread_rows(rows.n_rows, _STRETCHES, most // _STRETCHES)
    held = hold_rows(rows, numbers, run, partial(_stretches, numbers, ends_of_runs(numbers, edges)), holes=True)
    n_frames = rows.n_rows if numbers is None else len(numbers)
    return SampledChannels(held, numbers is None, n_frames, *call(run, "describe", _described, held))


def _stretches(numbers: Numbers | None, edges: Numbers, frames: Floats) -> ChannelStretches:
    where = np.arange(len(frames)) if numbers is None else numbers
    require_squares(frames, where, missing=True)
    require_size(frames, where)
    return ChannelStretches(frames, edges)


def _described(sample: ChannelStretches) -> tuple[bool, ChannelScale]:
    return bool(np.isnan(sample.frames).any()), scale_of(sample.frames)


def scale_of(frames: Floats) -> ChannelScale:
    """Describe the channels.

    frames (n, p): the sample; NaN where an entry is missing. Returns centre and units. A channel that never varies in
    the sample has the unit of its size.
    """
    seen = ~np.isnan(frames)
    counts = np.maximum(seen.sum(axis=0), 1)
    size = power_of_two(np.abs(np.where(seen, frames, 0.0)).max(axis=0, initial=0.0))
    scaled = np.where(seen, frames, 0.0) / size
    low, high = np.where(seen, scaled, np.inf).min(axis=0), np.where(seen, scaled, -np.inf).max(axis=0)
    centre = np.where(low == high, low, scaled.sum(axis=0) / counts)  # a constant is met without rounding
    spread = np.sqrt((np.where(seen, scaled - centre, 0.0) ** 2).sum(axis=0) / counts)
    return ChannelScale(centre * size, size * power_of_two(np.where(spread > 1e-15, spread, 1.0)))
