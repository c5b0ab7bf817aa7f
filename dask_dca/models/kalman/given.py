"""Kalman filters that do not start from anchors: fits from given parameters, and updates by `partial_fit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dask_dca.engine.passes import Run
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import Rows
from dask_dca.errors import InvalidParameterError, MissingEntriesWarning, warn
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.models.em import Refined, count_in_init, expectation_maximisation
from dask_dca.models.kalman.em import StateSums, estimate_q, estimate_r, m_step, solve_normal_equations
from dask_dca.models.kalman.fit import (
    ChannelScale,
    FullEStep,
    KalmanSettings,
    diagonal_of,
    fit_kalman,
    in_data_units,
    in_fit_units,
    take_frames,
)
from dask_dca.models.kalman.passes import SystemSums
from dask_dca.models.kalman.start import MAX_CHANNELS
from dask_dca.models.kalman.system import (
    PARAMETERS,
    LinearSystem,
    checked_system,
    limit_eigenvalues,
    positive_part,
    symmetric,
)

Sums = dict[str, Floats]

_NOISE_FLOOR: Final = 1e-8  # minimum noise variance of a channel, relative to the mean variance of the channels


def check_learnt(params: Any) -> frozenset[str]:
    """Check which parameters are to be learnt.

    params: "all", or names of parameters. Returns the corresponding fields of `LinearSystem`.
    Raises InvalidParameterError: an unknown name.
    """
    if not isinstance(params, str | list | tuple | set | frozenset):
        msg = f"params must be 'all' or a list of names; received {params!r}"
        raise InvalidParameterError(msg)
    if isinstance(params, str):
        params = list(PARAMETERS) if params == "all" else params.split(",")
    strange = [name for name in params if name not in PARAMETERS]
    if strange:
        msg = f"params names {strange[0]!r}; it must be 'all', or some of {', '.join(PARAMETERS)}"
        raise InvalidParameterError(msg)
    return frozenset(PARAMETERS[name] for name in params)


def complete_start(given: Mapping[str, Any], n_features: int, covariance_type: str) -> dict[str, Any]:
    """Fill in parameters that are not given with pykalman's defaults, identities and zeros.

    given: parameters by name, without trailing underscores; n_features: number of channels.
    Raises InvalidParameterError: only one of the transition and the observation matrix is given.
    """
    both = ("transition_matrices", "observation_matrices")
    for name, other in (both, both[::-1]):
        if name not in given:
            msg = f"init has {other} but not {name}, and they must share a state space; pass both, or neither"
            raise InvalidParameterError(msg)
    k = len(np.atleast_2d(given["transition_matrices"]))
    rest = {
        "transition_covariance": np.eye(k),
        "observation_covariance": np.ones(n_features) if covariance_type == "diag" else np.eye(n_features),
        "initial_state_mean": np.zeros(k),
        "initial_state_covariance": np.eye(k),
        "observation_offsets": np.zeros(n_features),
    }
    return {**rest, **given}


def _starting_system(
    given: Mapping[str, Floats], rows: Rows, edges: Numbers, settings: KalmanSettings, run: Run
) -> LinearSystem:
    """Complete the given parameters: by defaults if they include T and O, else from an anchored fit."""
    named = {name.removesuffix("_"): value for name, value in given.items()}
    form = settings.covariance_type
    form = "diag" if form == "auto" and rows.n_features > MAX_CHANNELS else form
    if named.keys() & {"transition_matrices", "observation_matrices"}:
        named = complete_start(named, rows.n_features, form)
        count_in_init({"": np.atleast_2d(named["transition_matrices"])}, settings.n_dim_state, "n_dim_state")
    else:
        system = fit_kalman(rows, edges, replace(settings, max_iter=0), run).refined.model
        named = {name: getattr(system, own) for name, own in PARAMETERS.items()} | named
    channels = len(np.atleast_2d(named["observation_matrices"]))
    if channels != rows.n_features:
        msg = (
            f"init has {channels} channels, and X has {rows.n_features}; pass observation_matrices with that many rows"
        )
        raise InvalidParameterError(msg)
    if form == "diag":
        named["observation_covariance"] = diagonal_of(np.asarray(named["observation_covariance"]))
    return checked_system(named)


def fit_from_system(
    rows: Rows, edges: Numbers, given: Mapping[str, Floats], learnt: frozenset[str], settings: KalmanSettings, run: Run
) -> Refined[LinearSystem, SystemSums]:
    """Run EM from given parameters, in max_iter + 2 passes.

    edges (m + 1,): first frame of each sequence, and the number of frames; given: parameters by the names of
    attributes; learnt: fields of `LinearSystem` that are learnt. Returns a system in the data's units, whose other
    fields are bit for bit those of the start.
    """
    start, sample = _starting_system(given, rows, edges, settings, run), take_frames(rows, edges, run)
    look = FullEStep(rows, edges, sample.scale, run, settings.covariance_type, sample.missing)

    def _step(_: LinearSystem, seen: tuple[LinearSystem, SystemSums]) -> LinearSystem:
        system, found = seen
        return partial_m_step(found.sums, system, learnt)

    with one_blas_thread():
        first = in_fit_units(start, sample.scale)
        first = look.without_covariances(first) if sample.partly_missing else first
        refined = expectation_maximisation(first, look, _step, max_iter=settings.max_iter, tol=settings.tol)
        system, seen = refined.seen
        found = in_data_units(system, sample.scale)
    kept = {name: getattr(start, name) for name in PARAMETERS.values() if name not in learnt}
    if found.observation_covariance.ndim < start.observation_covariance.ndim:
        _warn_of_dropped_covariances(start.observation_covariance)
        if "observation_covariance" in kept:
            kept["observation_covariance"] = diagonal_of(kept["observation_covariance"])
    return Refined(replace(found, **kept), seen, refined.log_likelihoods, refined.converged)


def _warn_of_dropped_covariances(noise: Floats) -> None:
    dropped = float(np.abs(noise - np.diag(diagonal_of(noise))).max())
    if dropped > 0.0:
        msg = (
            "frames of X have some of their entries only, so that observation_covariance_ is diagonal: the covariances "
            f"between channels of the start, up to {dropped:.3g}, are left out"
        )
        warn(msg, MissingEntriesWarning)


def partial_m_step(sums: StateSums, before: LinearSystem, learnt: frozenset[str]) -> LinearSystem:
    """Maximise the expected log likelihood over some of the parameters.

    learnt: fields to be maximised over; the others keep their values from `before`.
    """
    found = _partial_dynamics(sums, before, learnt)
    found = _partial_observation(sums, found, learnt)
    mean, n = sums.start_means / sums.n_sequences, sums.n_sequences
    if "initial_mean" in learnt:
        found = replace(found, initial_mean=mean)
    if "initial_covariance" in learnt:
        away = np.multiply.outer(found.initial_mean, mean)
        own = sums.starts / n - away - away.T + np.multiply.outer(found.initial_mean, found.initial_mean)
        found = replace(found, initial_covariance=positive_part(symmetric(own)))
    return found


def _partial_dynamics(sums: StateSums, before: LinearSystem, learnt: frozenset[str]) -> LinearSystem:
    transition = before.transition
    if "transition" in learnt:
        transition = limit_eigenvalues(solve_normal_equations(sums.before, sums.pairs.T).T)
    if "transition_covariance" not in learnt:
        return replace(before, transition=transition)
    noise_covariance = positive_part(estimate_q(sums, transition))
    return replace(before, transition=transition, transition_covariance=noise_covariance)


def _partial_observation(sums: StateSums, before: LinearSystem, learnt: frozenset[str]) -> LinearSystem:
    k = before.n_dim_state
    chosen = np.append(np.full(k, "observation" in learnt), "offset" in learnt)
    weights = np.column_stack([before.observation, before.offset])
    if chosen.any():
        weights = _regression_weights(sums, weights, chosen)
    found = replace(before, observation=weights[:, :k].copy(), offset=weights[:, k].copy())
    if "observation_covariance" not in learnt:
        return found
    noise, squares = estimate_r(sums, weights), diagonal_of(sums.second)
    least = _NOISE_FLOOR * (float(squares.mean()) / sums.n_frames or 1.0)  # channels have about unit variance here
    noise = positive_part(noise, least) if noise.ndim == 2 else np.maximum(noise, least)
    return replace(found, observation_covariance=noise)


def _regression_weights(sums: StateSums, weights: Floats, chosen: Any) -> Floats:
    """Solve for the chosen columns of (O, offset) by least squares, with the other columns fixed."""
    found = weights.copy()
    every = sums.observed
    if every.ndim == 2:
        left = sums.cross[:, chosen] - weights[:, ~chosen] @ every[np.ix_(~chosen, chosen)]
        found[:, chosen] = solve_normal_equations(every[np.ix_(chosen, chosen)], left.T).T
        return found
    for i, seen in enumerate(every):  # each channel is observed in frames of its own
        left = sums.cross[i, chosen] - weights[i, ~chosen] @ seen[np.ix_(~chosen, chosen)]
        if seen[-1, -1] > 0.0:
            found[i, chosen] = solve_normal_equations(seen[np.ix_(chosen, chosen)], left[:, None])[:, 0]
    return found


SUM_NAMES = ("every", "pairs", "before", "after", "starts", "start_means", "cross", "second", "sequences", "seen?")


def named_sums(sums: StateSums) -> Sums:
    """List sums by the names under which a model stores them."""
    return {name: value for name, value in vars(sums).items() if value is not None}


def as_incomplete_sums(sums: Sums, like: Sums) -> Sums:
    """Convert sums to the form of others over frames of which more is missing; else return them as they are."""
    if "seen" not in like or ("seen" in sums and sums["seen"].ndim >= like["seen"].ndim):
        return sums
    seen = np.broadcast_to(sums.get("seen", sums["every"]), like["seen"].shape).copy()
    return sums | {"second": sums["second"] if seen.ndim == 2 else diagonal_of(sums["second"]), "seen": seen}


def count_missing(counts: Floats, n_frames: int) -> int:
    """Count missing entries; counts (p,): frames in which each channel is observed."""
    return len(counts) * n_frames - int(counts.sum())


def filter_e_step(model: Any, rows: Rows, edges: Numbers, run: Run, so_far: Sums) -> tuple[Sums, float, int]:
    """Run the E-step on a batch. Returns the sums, the log likelihood per frame, and the number of missing entries."""
    scale = ChannelScale(model.stream_centre_, model.stream_unit_)
    look = FullEStep(rows, edges, scale, run, model.covariance_type, "seen" in so_far)
    (_, found), likelihood = look(in_fit_units(model._system(), scale))
    return named_sums(found.sums), likelihood, count_missing(found.counts, rows.n_rows)


def filter_m_step(model: Any, sums: Sums) -> LinearSystem:
    """Run the M-step. Returns a system in the data's units."""
    return in_data_units(m_step(StateSums(**sums)), ChannelScale(model.stream_centre_, model.stream_unit_))
