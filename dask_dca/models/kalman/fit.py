"""Fitting a Kalman filter: start on a sample, EM passes over all frames, anchor states as axes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.held import call
from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError, InvalidParameterError, warn
from dask_dca.models.kalman.anchors import choose_anchor_states, extreme_states
from dask_dca.models.kalman.em import m_step
from dask_dca.models.kalman.passes import e_step_pass, prepare
from dask_dca.models.kalman.sample import take_frames
from dask_dca.models.kalman.start import WIDEST, start_from_frames
from dask_dca.models.kalman.system import change_basis

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows
    from dask_dca.models.kalman.anchors import AnchorStates, StateExtremes
    from dask_dca.models.kalman.passes import PreparedFilter
    from dask_dca.models.kalman.sample import ChannelScale, ChannelStretches
    from dask_dca.models.kalman.system import LinearSystem

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["KalmanFit", "KalmanSettings", "fit_kalman", "in_data_units", "prepare_fit"]

_PIECE: Final = 256  # own frames of a piece
_SAMPLE_PASSES: Final = 10  # EM passes on the sample, where it is not all there is
_TOLERANCE: Final = 1e-7  # of the beginning of a piece


@dataclass(frozen=True)
class KalmanSettings:
    """Checked parameters."""

    n_dim_state: int | None
    covariance_type: str
    max_iter: int
    n_directions: int | None
    seed: int


@dataclass(frozen=True)
class KalmanFit:
    """What a fit found.

    system: in the data's units, with anchor states for axes; look: what the last pass saw; log_likelihoods: of all
    frames, before each EM pass and at the end; correlations (m,): canonical correlations of past and future,
    decreasing.
    """

    system: LinearSystem
    anchors: AnchorStates
    look: StateExtremes
    log_likelihoods: list[float]
    correlations: Floats


def fit_kalman(rows: Rows, edges: Numbers, settings: KalmanSettings, run: Run) -> KalmanFit:
    """Learn a Kalman filter in max_iter + 2 passes: a sample, the EM passes, and the divide pass.

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
    sample, form = take_frames(rows, edges, run), settings.covariance_type
    full = _is_full(settings, rows, missing=sample.missing)
    problem = _Problem(rows, edges, sample.scale, sample.missing, full, form)
    known = problem.scale, problem.missing, full, form
    system, correlations = call(run, "start", _start, sample.held, settings.n_dim_state, *known, sample.is_all)
    _warn_of_fewer(settings.n_dim_state, system.n_dim_state, sample.n_frames, rows.n_features)
    refined = _refine(problem, system, settings.max_iter, run)
    return _finish(refined, settings, correlations, run)


def _start(
    sample: ChannelStretches,
    k: int | None,
    scale: ChannelScale,
    missing: bool,
    full: bool,
    covariance_type: str,
    is_all: bool,
) -> tuple[LinearSystem, Floats]:
    """A system from the sample, after EM passes over it where it is not all there is; and canonical correlations."""
    frames = (sample.frames - scale.centre) / scale.unit
    filled, centre = np.where(np.isnan(frames), 0.0, frames), np.zeros(frames.shape[1])
    start = start_from_frames(filled, sample.edges, k, centre, diagonal=not full)
    system = replace(start.system, observation=np.ascontiguousarray(start.system.observation))  # as it is when sent
    if is_all:
        return system, start.correlations
    small = _Problem(as_rows(sample.frames), sample.edges, scale, missing, full, covariance_type, sampled=True)
    return _refine(small, system, _SAMPLE_PASSES, Run()).system, start.correlations


@dataclass(frozen=True)
class _Problem:
    """What is learnt from."""

    rows: Rows
    edges: Numbers
    scale: ChannelScale
    missing: bool  # some entries are
    full: bool  # R is
    covariance_type: str  # as it was asked for
    sampled: bool = False  # these are not all frames


@dataclass(frozen=True)
class _Refined:
    """What EM passes arrived at."""

    problem: _Problem
    system: LinearSystem
    spread: Floats  # (k, k), second moment of the states
    log_likelihoods: list[float]


def _is_full(settings: KalmanSettings, rows: Rows, *, missing: bool) -> bool:
    if settings.covariance_type == "auto":
        return not missing and rows.n_features <= WIDEST
    if missing:
        _refuse_full(settings.covariance_type)
    return settings.covariance_type == "full"


def _refuse_full(covariance_type: str) -> None:
    if covariance_type == "full":
        msg = "covariance_type='full' needs complete frames, but entries of X are missing; pass 'auto' or 'diag'"
        raise InvalidParameterError(msg)


def _refine(problem: _Problem, system: LinearSystem, n_passes: int, run: Run) -> _Refined:
    """Run EM passes; at least the E-step of one, which also tells whether entries are missing."""
    likelihoods: list[float] = []
    second: Floats | None = None
    while True:
        with one_blas_thread():
            tracker = prepare_fit(system, problem.edges, problem.scale, missing=problem.missing)
        found = e_step_pass(problem.rows, tracker, run, missing=problem.missing, full=problem.full, second=second)
        if found is None:  # a missing entry outside the sample
            _refuse_full(problem.covariance_type)
            problem = replace(problem, missing=True, full=False)
            system = replace(system, observation_covariance=_diagonal(system.observation_covariance))
            continue
        if found.sums.seen is not None and not problem.sampled:
            _refuse_unseen(found.sums.seen[:, -1, -1], problem.rows)
        second = found.sums.second
        likelihoods.append(found.log_likelihood)
        with one_blas_thread():
            k = system.n_dim_state
            spread = found.sums.every[:k, :k] / found.sums.n_frames
            if n_passes > 0:
                system = m_step(found.sums, np.zeros(problem.rows.n_features))
        if len(likelihoods) >= n_passes:
            return _Refined(problem, system, spread, likelihoods[:n_passes])


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
            "that nothing can be learnt of it; leave it out, for example X[:, ~np.isnan(X).all(axis=0)]"
        )
        raise InvalidInputError(msg)


def _diagonal(noise: Floats) -> Floats:
    return noise if noise.ndim == 1 else np.ascontiguousarray(np.diagonal(noise))


def _finish(refined: _Refined, settings: KalmanSettings, correlations: Floats, run: Run) -> KalmanFit:
    """Look at all states once more, and make anchor states the axes."""
    problem, system = refined.problem, refined.system
    with one_blas_thread():
        tracker = prepare_fit(system, problem.edges, problem.scale, missing=problem.missing)
    look = extreme_states(
        problem.rows, tracker, refined.spread, settings.n_directions, settings.seed, run, missing=problem.missing
    )
    with one_blas_thread():
        anchors = choose_anchor_states(look, refined.spread)
        turned = in_data_units(change_basis(system, anchors.states), problem.scale)
    _warn_of_absent(anchors.indices, varied=bool((look.variances > 0.0).any()))
    volume = float((look.counts * np.log(problem.scale.unit)).sum())  # densities are those of x, not of x / unit
    likelihoods = [value - volume for value in [*refined.log_likelihoods, look.log_likelihood]]
    return KalmanFit(turned, anchors, look, likelihoods, correlations)


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
