"""The fit of a Kalman filter: a start on a sample, EM over all frames, and anchor states as the axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

import numpy as np

from dask_dca.engine.passes import Run
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sampling import Held, call, hold_rows, spread_rows
from dask_dca.engine.sequences import run_edges
from dask_dca.engine.tiles import require_size, require_squares
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError, InvalidParameterError, warn, without_columns
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.exact import power_of_two
from dask_dca.models.em import Refined, expectation_maximisation
from dask_dca.models.kalman.em import EStep, StateSums, accelerated_em, change_sums_basis, corrected_e_step, m_step
from dask_dca.models.kalman.passes import AnchorStates, SystemSums, choose_anchor_states, e_step_pass, state_directions
from dask_dca.models.kalman.pieces import PreparedFilter, prepare
from dask_dca.models.kalman.scan import e_step
from dask_dca.models.kalman.start import MAX_CHANNELS, SystemStart, start_from_frames, without_zeros
from dask_dca.models.kalman.system import LinearSystem, change_basis, state_covariance

D = TypeVar("D")
_MAX_PIECE_FRAMES: Final = 256  # maximum length of a piece, without its burn-in
_MIN_START_STEPS: Final = 2  # minimum number of EM steps on a start before starts are compared
_MAX_START_STEPS: Final = 20  # maximum number of these steps, taken while the log likelihood falls
_CLEAR_GAIN: Final = 5.0  # nats by which the second start must exceed the first to replace it
_MAX_E_STEPS: Final = 10  # E-steps on the sample in one run of accelerated EM
_MAX_E_STEPS_INCOMPLETE: Final = 5  # the same with missing entries, where an E-step takes ten times as long
_CORRECTED_FACTOR: Final = 3  # factor of these numbers if the sample is not all frames
_BURN_IN_TOL: Final = 1e-7  # remaining share of an initial error after the burn-in of a piece
_N_STRETCHES: Final = 20  # number of stretches of the sample
_MAX_SAMPLE_ENTRIES: Final = 2 * 10**7  # maximum number of entries of the sample
_MAX_SAMPLE_FRAMES: Final = 20_480  # maximum number of frames of the sample
_MIN_UNIT: Final = 2.0**-480  # minimum unit of a channel: squares of it and of its inverse are floats


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
    """Result of a fit.

    refined: the system in the data's units, with anchor states as axes, and the last E-step over all frames;
    correlations (m,): canonical correlations of past and future, decreasing; correlated: gain of the sample's log
    likelihood by correlated noises, in nats, or NaN; sums: of the last E-step, in these axes and in units of `scale`.
    """

    refined: Refined[LinearSystem, SystemSums]
    anchors: AnchorStates
    correlations: Floats
    correlated: float
    sums: StateSums
    scale: ChannelScale


def fit_kalman(rows: Rows, edges: Numbers, settings: KalmanSettings, run: Run) -> KalmanFit:
    """Fit a Kalman filter in max_iter + 2 passes: one for a sample, then E-steps that include the divide step.

    rows: NaN where an entry is missing; edges (m + 1,): first frame of each sequence, and the number of frames.
    Raises DCAError: infinite frames, a channel without an entry, or only sequences of one frame.
    """
    if int(np.diff(edges).max()) < 2:
        msg = (
            f"a Kalman filter is learnt from successive frames, but no sequence has two of them (n_samples = "
            f"{rows.n_rows}); pass longer sequences"
        )
        raise InvalidInputError(msg)
    sample = take_frames(rows, edges, run)
    form = _FitOptions(sample.scale, sample.missing, _has_full_noise(settings, rows, sample))
    start = call(run, "start", _start_on_sample, sample.held, settings.n_dim_state, form, sample.is_all)
    _warn_fewer_states(settings.n_dim_state, start.system.n_dim_state, sample.n_frames, rows.n_features)
    directions = partial(state_directions, n_directions=settings.n_directions, seed=settings.seed)
    look = FullEStep(rows, edges, form.scale, run, settings.covariance_type, form.missing, directions)

    def _look(system: LinearSystem) -> tuple[tuple[LinearSystem, SystemSums], float]:
        seen, likelihood = look(system)
        _refuse_unobserved(seen[1].counts, rows)
        return seen, likelihood

    def _step(_: LinearSystem, seen: tuple[LinearSystem, SystemSums]) -> LinearSystem:
        system, found = seen
        return call(run, "climb", _corrected_m_step, sample.held, system, found.sums, look.form(system), sample.is_all)

    refined = expectation_maximisation(start.system, _look, _step, max_iter=settings.max_iter, tol=settings.tol)
    system, seen = refined.seen
    start_terms = contiguous(system), start.directions, start.likelihood
    correlated = call(run, "compare", _correlated_noise_gain, sample.held, look.form(system), *start_terms)
    with one_blas_thread():
        anchors = choose_anchor_states(seen.extremes, state_covariance(system))
        turned = in_data_units(change_basis(system, anchors.states), form.scale)
        sums = change_sums_basis(seen.sums, anchors.states)
    _warn_absent_states(anchors.indices, varied=bool((seen.variances > 0.0).any()))
    found = Refined(turned, seen, refined.log_likelihoods, refined.converged)
    return KalmanFit(found, anchors, start.correlations, correlated, sums, form.scale)


@dataclass(frozen=True)
class _FitOptions:
    """Options of an E-step: the units of the channels, whether entries are missing, and whether R is full."""

    scale: ChannelScale
    missing: bool
    full: bool

    @property
    def max_e_steps(self) -> int:
        """Maximum number of E-steps on the sample in one run of accelerated EM."""
        return _MAX_E_STEPS_INCOMPLETE if self.missing else _MAX_E_STEPS


def _start_on_sample(sample: ChannelStretches, k: int | None, form: _FitOptions, is_all: bool) -> SystemStart:
    """Estimate a system in closed form, and refine it by EM unless the sample is all frames."""
    look = _SampleEStep(sample, form)
    start = start_from_frames(look.frames, sample.edges, k, diagonal=not form.full)
    if form.missing and form.full:
        there = ~np.isnan(sample.frames[:, 0])
        start = replace(start, system=without_zeros(start.system, look.second / len(there), there))
    system = _short_em(start.system, look)
    if start.augmented is not None and not form.missing:
        system = _likelier_system(system, _short_em(start.augmented, look), look, form.max_e_steps)
    return contiguous(
        replace(start, system=contiguous(system if is_all else accelerated_em(system, look, form.max_e_steps)))
    )


def _short_em(system: LinearSystem, look: EStep) -> LinearSystem:
    """Take a few steps of EM, and more while the log likelihood falls as R loses its chance correlations."""
    before = -np.inf
    for number in range(_MAX_START_STEPS):
        sums, value = look(system)
        if number >= _MIN_START_STEPS and value >= before:
            break
        system, before = m_step(sums), value
    return system


def _likelier_system(one: LinearSystem, other: LinearSystem, look: EStep, max_e_steps: int) -> LinearSystem:
    """Choose the other system if it is clearly likelier both before and after accelerated EM."""
    if look(other)[1] < look(one)[1] + _CLEAR_GAIN:
        return one
    one, other = (contiguous(accelerated_em(system, look, max_e_steps)) for system in (one, other))
    return other if look(other)[1] > look(one)[1] + _CLEAR_GAIN else one


def _corrected_m_step(
    sample: ChannelStretches, system: LinearSystem, whole: StateSums, form: _FitOptions, is_all: bool
) -> LinearSystem:
    """Take the M-step, and further EM steps on the sample corrected by the sums of all frames."""
    look = corrected_e_step(_SampleEStep(sample, form), contiguous(whole), contiguous(system))
    return contiguous(accelerated_em(contiguous(system), look, form.max_e_steps * (1 if is_all else _CORRECTED_FACTOR)))


def contiguous(found: D) -> D:
    """Make all arrays of a dataclass contiguous, as after serialization, since the bits of products depend on it."""
    arrays = {name: value for name, value in vars(found).items() if isinstance(value, np.ndarray)}
    return replace(found, **{name: np.ascontiguousarray(value) for name, value in arrays.items()})  # type: ignore[type-var]


class _SampleEStep:
    """The E-step on a sample."""

    def __init__(self, sample: ChannelStretches, form: _FitOptions) -> None:
        self.sample, self.form = sample, form
        frames = (sample.frames - form.scale.centre) / form.scale.unit
        self.frames = np.where(np.isnan(frames), 0.0, frames)
        self.second = self.frames.T @ self.frames if form.full else (self.frames**2).sum(axis=0)

    def __call__(self, system: LinearSystem) -> tuple[StateSums, float]:
        if not self.form.missing:
            return e_step(system, self.frames, self.sample.edges, self.second)
        plan = prepare_fit(system, self.sample.edges, self.form.scale, missing=True)
        rows = as_rows(self.sample.frames)
        found = e_step_pass(rows, plan, Run(), missing=True, full=self.form.full, second=self.second)
        assert found is not None
        return found.sums, found.log_likelihood


def _correlated_noise_gain(
    sample: ChannelStretches, form: _FitOptions, system: LinearSystem, directions: Floats, likelihood: float
) -> float:
    """Gain of the log likelihood of the coordinates by the innovations form, in nats; NaN if it is unknown."""
    if form.missing or likelihood == -np.inf:
        return float("nan")
    z, noise = _SampleEStep(sample, form).frames @ directions, system.observation_covariance
    seen = (directions.T * noise if noise.ndim == 1 else directions.T @ noise) @ directions
    own = replace(
        system,
        observation=directions.T @ system.observation,
        observation_covariance=seen,
        offset=directions.T @ system.offset,
    )
    constant = 0.5 * z.size * (1.0 + np.log(2.0 * np.pi))
    return likelihood - constant - e_step(own, z, sample.edges, z.T @ z)[1]


@dataclass
class FullEStep:
    """The E-step over all frames, in units of a scale; R becomes diagonal when a frame with some entries is met.

    directions: maps the covariance of the states to the directions of the divide step; none by default. A call returns
    the system and its sums, and the mean log likelihood per frame in the data's units.
    Raises InvalidParameterError: a frame has some entries only, and covariance_type is "full".
    """

    rows: Rows
    edges: Numbers
    scale: ChannelScale
    run: Run
    covariance_type: str
    missing: bool
    directions: Callable[[Floats], Floats] | None = None
    _second: Floats | None = field(default=None, init=False)  # sums of products of channels, from the first pass

    def __call__(self, system: LinearSystem) -> tuple[tuple[LinearSystem, SystemSums], float]:
        """Run the E-step."""
        form = self.form(system)
        with one_blas_thread():
            plan = prepare_fit(system, self.edges, self.scale, missing=self.missing)
            heights = None if self.directions is None else self.directions(state_covariance(system))
        found = e_step_pass(
            self.rows, plan, self.run, missing=form.missing, full=form.full, second=self._second, directions=heights
        )
        if found is None:  # the first missing entries, or the first frame with some entries, are outside the sample
            system = self.without_covariances(system) if self.missing else system
            self.missing = True
            return self(system)
        self._second = found.sums.second
        volume = float((found.counts * np.log(self.scale.unit)).sum())  # densities are those of x, not of x / unit
        return (system, found), found.log_likelihood / self.rows.n_rows - volume / self.rows.n_rows

    def without_covariances(self, system: LinearSystem) -> LinearSystem:
        """Make R diagonal."""
        _refuse_full_noise(self.covariance_type)
        return replace(system, observation_covariance=diagonal_of(system.observation_covariance))

    def form(self, system: LinearSystem) -> _FitOptions:
        """Describe the E-step of this system."""
        return _FitOptions(self.scale, self.missing, system.observation_covariance.ndim == 2)


def _has_full_noise(settings: KalmanSettings, rows: Rows, sample: SampledChannels) -> bool:
    """Whether R is full: frames must be complete or missing as a whole.

    Raises InvalidParameterError: R must be full, and a frame of the sample has some entries only.
    """
    if settings.covariance_type == "auto":
        return not sample.partly_missing and rows.n_features <= MAX_CHANNELS
    if sample.partly_missing:
        _refuse_full_noise(settings.covariance_type)
    return settings.covariance_type == "full"


def _refuse_full_noise(covariance_type: str) -> None:
    if covariance_type == "full":
        msg = (
            "covariance_type='full' needs frames that are complete or missing as a whole, but frames of X have some "
            "of their entries; pass 'auto' or 'diag'"
        )
        raise InvalidParameterError(msg)


def _warn_fewer_states(wanted: int | None, found: int, n_frames: int, n_features: int) -> None:
    if wanted is not None and found < wanted:
        msg = (
            f"frames of shape ({n_frames}, {n_features}) determine only {found} of n_dim_state={wanted} dimensions; "
            f"fit again with n_dim_state={found}, or with more or longer sequences"
        )
        warn(msg, FewerAnchorsWarning)


def _refuse_unobserved(counts: Floats, rows: Rows) -> None:
    """Raise InvalidInputError if a channel has no entries at all."""
    unseen = np.flatnonzero(counts == 0.0)
    if len(unseen):
        name = "" if rows.feature_names is None else f" ({rows.feature_names[unseen[0]]!r})"
        msg = (
            f"column {unseen[0]}{name} of X is missing in all {rows.n_rows} frames ({len(unseen)} such columns), so "
            f"that nothing can be learnt of it; leave it out, for example {without_columns(unseen.tolist())}"
        )
        raise InvalidInputError(msg)


def diagonal_of(noise: Floats) -> Floats:
    """Return the variances (p,) of a full or diagonal covariance."""
    return noise if noise.ndim == 1 else np.ascontiguousarray(np.diagonal(noise))


def _warn_absent_states(indices: Numbers, *, varied: bool) -> None:
    """Warn if the states span fewer dimensions than requested, or do not vary at all."""
    count, there = len(indices), int((indices >= 0).sum())
    if there == count:
        return
    then = f"; fit again with n_dim_state={there}"
    if not there:
        why = "no frame predicts the next one" if varied else "all frames are equal"
        then = f", since {why}: every prediction is the mean frame, and a model adds nothing here"
    warn(f"the frames' states span {there} of n_dim_state={count} dimensions{then}", FewerAnchorsWarning)


def prepare_fit(system: LinearSystem, edges: Numbers, scale: ChannelScale, *, missing: bool) -> PreparedFilter:
    """Prepare a system for an E-step over all frames.

    system: in units of the scale; edges (m + 1,): first frame of each sequence, and the number of frames; missing:
    whether entries may be missing. Pieces have at most 256 frames, and fewer if there are few frames.
    """
    k, p, n = system.n_dim_state, system.n_dim_obs, int(edges[-1])
    length = int(np.clip(-(-n // 64), 32, _MAX_PIECE_FRAMES))
    width = p + (4 * k * k if missing else 4 * k)
    return prepare(system, edges, scale.centre, scale.unit, tolerance=_BURN_IN_TOL, n_frames=length, width=width)


def in_fit_units(system: LinearSystem, scale: ChannelScale) -> LinearSystem:
    """Convert a system of x to one of (x - centre) / unit."""
    return in_data_units(system, ChannelScale(-scale.centre / scale.unit, 1.0 / scale.unit))


def in_data_units(system: LinearSystem, scale: ChannelScale) -> LinearSystem:
    """Convert a system of (x - centre) / unit to one of x."""
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
    """Centre and scale of the channels: fits use (x - centre) / unit.

    centre (p,): means in the sample; unit (p,): powers of two at or above the standard deviations there.
    """

    centre: Floats
    unit: Floats


@dataclass(frozen=True)
class SampledChannels:
    """A sample that stays on a worker, and its summary.

    is_all: whether these are all frames; missing: whether an entry is missing; partly_missing: whether some entries of
    a frame are, but not all.
    """

    held: Held[ChannelStretches]
    is_all: bool
    n_frames: int
    missing: bool
    partly_missing: bool
    scale: ChannelScale


def take_frames(rows: Rows, edges: Numbers, run: Run) -> SampledChannels:
    """Take a sample of evenly spread stretches, which depend on the number of frames only.

    edges (m + 1,): first frame of each sequence, and the number of frames. Up to some 20,000 frames the sample is all
    of them.
    Raises NotFiniteError: a frame is infinite; InvalidInputError: squares are out of the range of floating-point
    numbers.
    """
    most = max(min(_MAX_SAMPLE_FRAMES, _MAX_SAMPLE_ENTRIES // rows.n_features), 64 * _N_STRETCHES)
    numbers = spread_rows(rows.n_rows, _N_STRETCHES, most // _N_STRETCHES)
    held = hold_rows(rows, numbers, run, partial(_make_sample, numbers, run_edges(numbers, edges)), missing=True)
    n_frames = rows.n_rows if numbers is None else len(numbers)
    return SampledChannels(held, numbers is None, n_frames, *call(run, "describe", _describe_sample, held))


def _make_sample(numbers: Numbers | None, edges: Numbers, frames: Floats) -> ChannelStretches:
    where = np.arange(len(frames)) if numbers is None else numbers
    require_squares(frames, where, missing=True)
    require_size(frames, where)
    return ChannelStretches(frames, edges)


def _describe_sample(sample: ChannelStretches) -> tuple[bool, bool, ChannelScale]:
    missing = np.isnan(sample.frames)
    some, every = missing.any(axis=1), missing.all(axis=1)
    return bool(some.any()), bool((some != every).any()), channel_scale(sample.frames)


def channel_scale(frames: Floats) -> ChannelScale:
    """Estimate centre and unit of the channels.

    frames (n, p): the sample, NaN where an entry is missing. A channel that is constant in the sample has the unit of
    its magnitude.
    """
    seen = ~np.isnan(frames)
    counts = np.maximum(seen.sum(axis=0), 1)
    size = power_of_two(np.abs(np.where(seen, frames, 0.0)).max(axis=0, initial=0.0))
    scaled = np.where(seen, frames, 0.0) / size
    low, high = np.where(seen, scaled, np.inf).min(axis=0), np.where(seen, scaled, -np.inf).max(axis=0)
    centre = np.where(low == high, low, scaled.sum(axis=0) / counts)  # exact for constants
    spread = np.sqrt((np.where(seen, scaled - centre, 0.0) ** 2).sum(axis=0) / counts)
    unit = size * power_of_two(np.where(spread > 1e-15, spread, 1.0))
    return ChannelScale(centre * size, np.maximum(unit, _MIN_UNIT))
