"""A Kalman filter that goes on: sums over smoothed states, in the units of its fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.models.kalman.em import StateSums, m_step
from dask_dca.models.kalman.fit import diagonal_of, in_data_units, in_fit_units, prepare_fit, refuse_full
from dask_dca.models.kalman.passes import e_step_pass
from dask_dca.models.kalman.sample import ChannelScale

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.kalman.fit import KalmanFit
    from dask_dca.models.kalman.system import LinearSystem

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]
    Sums = dict[str, Floats]

__all__ = ["NAMES", "begin_filter", "see_sequences", "step_filter", "with_seen"]

NAMES = ("every", "pairs", "before", "after", "starts", "start_means", "cross", "second", "sequences", "seen?")


def begin_filter(model: Any, found: KalmanFit) -> Sums:
    """Keep the units of a fit. Returns the sums that it ended with."""
    model.stream_centre_, model.stream_unit_ = found.scale.centre, found.scale.unit
    return _named(found.sums)


def _named(sums: StateSums) -> Sums:
    names = ("every", "pairs", "before", "after", "cross", "second")
    found = {name: getattr(sums, name) for name in names}
    found |= {"starts": sums.first, "start_means": sums.first_mean, "sequences": np.array([float(sums.n_sequences)])}
    return found if sums.seen is None else found | {"seen": sums.seen}


def with_seen(sums: Sums) -> Sums:
    """Say sums over complete frames as those over frames that lack entries."""
    second = sums["second"] if sums["second"].ndim == 1 else np.ascontiguousarray(np.diagonal(sums["second"]))
    shape = (len(sums["cross"]), *sums["every"].shape)
    seen = sums["seen"] if "seen" in sums else np.broadcast_to(sums["every"], shape).copy()
    return sums | {"second": second, "seen": seen}


def see_sequences(model: Any, rows: Rows, edges: Numbers, run: Run, so_far: Sums) -> tuple[Sums, float]:
    """Run the E-step over a batch. Returns the sums, and the log likelihood per frame."""
    scale = ChannelScale(model.stream_centre_, model.stream_unit_)
    system, missing = in_fit_units(model._system(), scale), "seen" in so_far
    found = _look(system, rows, edges, scale, run, missing=missing)
    if found is None:  # the first batch that lacks entries
        refuse_full(model.covariance_type)
        system = replace(system, observation_covariance=diagonal_of(system.observation_covariance))
        found = _look(system, rows, edges, scale, run, missing=True)
    assert found is not None
    volume = float((found.counts * np.log(scale.unit)).sum())
    return _named(found.sums), (found.log_likelihood - volume) / rows.n_rows


def _look(system: LinearSystem, rows: Rows, edges: Numbers, scale: ChannelScale, run: Run, *, missing: bool) -> Any:
    tracker = prepare_fit(system, edges, scale, missing=missing)
    full = system.observation_covariance.ndim == 2
    return e_step_pass(rows, tracker, run, missing=missing, full=full, second=None)


def step_filter(model: Any, sums: Sums) -> LinearSystem:
    """Run the M-step. Returns the system, in the data's units."""
    whole = StateSums(
        n_frames=float(sums["every"][-1, -1]),
        n_sequences=float(sums["sequences"][0]),
        first=sums["starts"],
        first_mean=sums["start_means"],
        seen=sums.get("seen"),
        **{name: sums[name] for name in ("every", "pairs", "before", "after", "cross", "second")},
    )
    return in_data_units(m_step(whole), ChannelScale(model.stream_centre_, model.stream_unit_))
