"""Where a Kalman filter doesn't start from anchors: parameters that are given, and streams that go on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.numerics import one_blas_thread
from dask_dca.errors import InvalidParameterError
from dask_dca.models.em import Refined, count_of_start, expectation_maximisation
from dask_dca.models.kalman.em import StateSums, left_of_channels, left_of_states, m_step, solve_moments
from dask_dca.models.kalman.fit import (
    ChannelScale,
    FrameLook,
    diagonal_of,
    fit_kalman,
    in_data_units,
    in_fit_units,
    take_frames,
)
from dask_dca.models.kalman.system import PARAMETERS, checked_system, positive_part, symmetric, without_growth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.models.kalman.fit import KalmanSettings
    from dask_dca.models.kalman.passes import SystemSums
    from dask_dca.models.kalman.system import LinearSystem

    Sums = dict[str, Floats]

_LEAST_NOISE: Final = 1e-8  # of a channel's variance, of a state's


def check_learnt(params: Any) -> frozenset[str]:
    """Check what is to be learnt.

    params: "all", or names of parameters. Returns the fields of a system.
    Raises InvalidParameterError: a name is none of a parameter.
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
    """Complete a start that has the matrices, as pykalman does: by identities and zeros.

    given: parameters by the names of a dict; n_features: number of channels.
    Raises InvalidParameterError: one of the two matrices is missing.
    """
    both = ("transition_matrices", "observation_matrices")
    for name, other in (both, both[::-1]):
        if name not in given:
            msg = f"init has {other} and no {name}, whose states would be other ones; pass both, or neither"
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


def _whole_start(
    given: Mapping[str, Floats], rows: Rows, edges: Numbers, settings: KalmanSettings, run: Run
) -> LinearSystem:
    """A whole start: what is given, beside identities and zeros, or beside what anchors say."""
    named = {name.removesuffix("_"): value for name, value in given.items()}
    if named.keys() & {"transition_matrices", "observation_matrices"}:
        named = complete_start(named, rows.n_features, settings.covariance_type)
        count_of_start({"": np.atleast_2d(named["transition_matrices"])}, settings.n_dim_state, "n_dim_state")
    else:
        system = fit_kalman(rows, edges, replace(settings, max_iter=0), run).refined.model
        named = {name: getattr(system, own) for name, own in PARAMETERS.items()} | named
    channels = len(np.atleast_2d(named["observation_matrices"]))
    if channels != rows.n_features:
        msg = f"init is of {channels} channels, and X has {rows.n_features}; pass observation_matrices of X's"
        raise InvalidParameterError(msg)
    if settings.covariance_type == "diag":
        named["observation_covariance"] = diagonal_of(np.asarray(named["observation_covariance"]))
    return checked_system(named)


def fit_from_system(
    rows: Rows,
    edges: Numbers,
    given: Mapping[str, Floats],
    learnt: frozenset[str],
    settings: KalmanSettings,
    run: Run,
) -> Refined[LinearSystem, SystemSums]:
    """Learn from a start in max_iter + 2 passes.

    edges (m + 1,): first frame of each sequence, and the number of frames; given: parameters by the names of
    attributes; learnt: fields of a system that are learnt. Returns a system in the data's units, whose other fields
    have the very bits of the start.
    """
    start, sample = _whole_start(given, rows, edges, settings, run), take_frames(rows, edges, run)
    look = FrameLook(rows, edges, sample.scale, run, settings.covariance_type, sample.missing)

    def _step(_: LinearSystem, seen: tuple[LinearSystem, SystemSums]) -> LinearSystem:
        system, found = seen
        return likeliest_system(found.sums, system, learnt)

    with one_blas_thread():
        refined = expectation_maximisation(
            in_fit_units(start, sample.scale), look, _step, max_iter=settings.max_iter, tol=settings.tol
        )
        system, seen = refined.seen
        found = in_data_units(system, sample.scale)
    kept = {name: getattr(start, name) for name in PARAMETERS.values() if name not in learnt}
    if look.missing and "observation_covariance" in kept:
        kept["observation_covariance"] = diagonal_of(kept["observation_covariance"])
    return Refined(replace(found, **kept), seen, refined.log_likelihoods, refined.converged)


def likeliest_system(sums: StateSums, before: LinearSystem, learnt: frozenset[str]) -> LinearSystem:
    """Take the M-step of greatest likelihood, of which some parameters stay.

    learnt: fields that are learnt, each given those that stay.
    """
    found = _likeliest_dynamics(sums, before, learnt)
    found = _likeliest_observation(sums, found, learnt)
    mean, n = sums.start_means / sums.n_sequences, sums.n_sequences
    if "initial_mean" in learnt:
        found = replace(found, initial_mean=mean)
    if "initial_covariance" in learnt:
        away = np.multiply.outer(found.initial_mean, mean)
        own = sums.starts / n - away - away.T + np.multiply.outer(found.initial_mean, found.initial_mean)
        found = replace(found, initial_covariance=positive_part(symmetric(own)))
    return found


def _likeliest_dynamics(sums: StateSums, before: LinearSystem, learnt: frozenset[str]) -> LinearSystem:
    transition = before.transition
    if "transition" in learnt:
        transition = without_growth(solve_moments(sums.before, sums.pairs.T).T)
    if "transition_covariance" not in learnt:
        return replace(before, transition=transition)
    kicks = positive_part(left_of_states(sums, transition))
    return replace(before, transition=transition, transition_covariance=kicks)


def _likeliest_observation(sums: StateSums, before: LinearSystem, learnt: frozenset[str]) -> LinearSystem:
    k = before.n_dim_state
    chosen = np.append(np.full(k, "observation" in learnt), "offset" in learnt)
    weights = np.column_stack([before.observation, before.offset])
    if chosen.any():
        weights = _regressed(sums, weights, chosen)
    found = replace(before, observation=weights[:, :k].copy(), offset=weights[:, k].copy())
    if "observation_covariance" not in learnt:
        return found
    noise, squares = left_of_channels(sums, weights), diagonal_of(sums.second)
    least = _LEAST_NOISE * (float(squares.mean()) / sums.n_frames or 1.0)  # in units in which channels vary by about 1
    noise = positive_part(noise, least) if noise.ndim == 2 else np.maximum(noise, least)
    return replace(found, observation_covariance=noise)


def _regressed(sums: StateSums, weights: Floats, chosen: Any) -> Floats:
    """Weights of states and of one, of which the chosen are those of least squares given the others."""
    found = weights.copy()
    if sums.seen is None:
        left = sums.cross[:, chosen] - weights[:, ~chosen] @ sums.every[np.ix_(~chosen, chosen)]
        found[:, chosen] = solve_moments(sums.every[np.ix_(chosen, chosen)], left.T).T
        return found
    for i, seen in enumerate(sums.seen):  # every channel has its own frames
        left = sums.cross[i, chosen] - weights[i, ~chosen] @ seen[np.ix_(~chosen, chosen)]
        if seen[-1, -1] > 0.0:
            found[i, chosen] = solve_moments(seen[np.ix_(chosen, chosen)], left[:, None])[:, 0]
    return found


NAMES = ("every", "pairs", "before", "after", "starts", "start_means", "cross", "second", "sequences", "seen?")


def named_sums(sums: StateSums) -> Sums:
    """Take sums apart, by the names under which a model keeps them."""
    return {name: value for name, value in vars(sums).items() if value is not None}


def with_seen(sums: Sums) -> Sums:
    """Say sums over complete frames as those over frames that lack entries."""
    shape = (len(sums["cross"]), *sums["every"].shape)
    seen = sums["seen"] if "seen" in sums else np.broadcast_to(sums["every"], shape).copy()
    return sums | {"second": diagonal_of(sums["second"]), "seen": seen}


def n_missing(counts: Floats, n_frames: int) -> int:
    """Count missing entries; counts (p,): frames in which each channel is not missing."""
    return len(counts) * n_frames - int(counts.sum())


def see_sequences(model: Any, rows: Rows, edges: Numbers, run: Run, so_far: Sums) -> tuple[Sums, float, int]:
    """Run the E-step over a batch. Returns the sums, the log likelihood per frame, and how many entries are missing."""
    scale = ChannelScale(model.stream_centre_, model.stream_unit_)
    look = FrameLook(rows, edges, scale, run, model.covariance_type, "seen" in so_far)
    (_, found), likelihood = look(in_fit_units(model._system(), scale))
    return named_sums(found.sums), likelihood, n_missing(found.counts, rows.n_rows)


def step_filter(model: Any, sums: Sums) -> LinearSystem:
    """Run the M-step. Returns the system, in the data's units."""
    return in_data_units(m_step(StateSums(**sums)), ChannelScale(model.stream_centre_, model.stream_unit_))
