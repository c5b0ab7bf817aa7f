"""A hidden Markov model that goes on: expected counts, and moments about fixed points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dask_dca.engine.held import call
from dask_dca.models.gaussians import GaussianMoments, moved_moments, variances_of
from dask_dca.models.hmm.emission import FrameFeatures, moments_of
from dask_dca.models.hmm.fit import burn_in_of
from dask_dca.models.hmm.layout import lay_out
from dask_dca.models.hmm.model import HiddenMarkov, in_data_units, m_step
from dask_dca.models.hmm.passes import e_step_pass
from dask_dca.models.hmm.sample import take_stretches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.hmm.expectation import Expected
    from dask_dca.models.hmm.fit import HMMFit

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]
    Sums = dict[str, Floats]

__all__ = ["begin_chain", "memory_of_chain", "see_frames", "step_chain"]


def begin_chain(model: Any, found: HMMFit) -> Sums:
    """Keep what the M-step of a fitted model needs.

    model: its parameters are set. Returns the sums that its fit ended with, about its means.
    """
    assert found.scale is not None
    model.stream_origins_, model.stream_floor_ = model.means_.copy(), found.scale.floors
    seen = found.refined.seen
    return _sums(seen.expected, seen.origins, found.refined.model.means, model.covariance_type_, found.scale.units)


def _sums(expected: Expected, about: Floats, origins: Floats, kind: str, units: Floats) -> Sums:
    """Sums about other points (k, p), in the data's units."""
    found = moved_moments(moments_of(expected.moments, about, kind), origins, kind)
    squares: Any = np.multiply.outer(units, units) if kind in ("full", "tied") else units**2
    return {
        "starts": expected.starts,
        "transitions": expected.transitions,
        "counts": found.counts,
        "sums": found.first * units,
        "products": found.second * (squares[0] if kind == "spherical" else squares),
    }


def _chain(model: Any) -> HiddenMarkov:
    resting = np.zeros(len(model.means_), dtype=bool)
    return HiddenMarkov(model._chain(), model.means_, model.covariances_, model.covariance_type_, resting)


def see_frames(model: Any, rows: Rows, edges: Numbers, run: Run) -> tuple[Sums, float]:
    """Run the E-step over a batch, in units of the spread that the model says.

    Returns the sums, and the log likelihood per frame.
    """
    chain, kind = _chain(model), model.covariance_type_
    shares = model.state_counts_ / model.state_counts_.sum()
    centre = shares @ chain.means
    spread = np.broadcast_to(variances_of(chain.covariances, kind), chain.means.shape) + (chain.means - centre) ** 2
    units = np.sqrt(shares @ spread)
    units = np.full_like(units, units.max()) if kind == "spherical" else units
    states = in_data_units(chain, -centre / units, 1.0 / units).states(float(np.log(units).sum()))
    features = FrameFeatures(kind, centre, units)
    expected, _ = e_step_pass(rows, lay_out(edges, 4 * rows.n_features), states, chain.markov, features, run)
    origins = (model.stream_origins_ - centre) / units
    return _sums(expected, states.origins, origins, kind, units), expected.log_likelihood / rows.n_rows


def step_chain(model: Any, sums: Sums) -> None:
    """Run the M-step: set the parameters of the model."""
    moments = GaussianMoments(sums["counts"], sums["sums"], sums["products"], model.stream_origins_)
    kind, floors = model.covariance_type_, model.stream_floor_
    found = m_step(sums["starts"], sums["transitions"], moments, kind, floors, _chain(model))
    model.startprob_, model.transmat_ = found.markov.startprob, found.markov.transmat
    model.means_, model.covariances_ = found.means, found.covariances
    model.state_counts_ = moments.counts


def memory_of_chain(model: Any, rows: Rows, edges: Numbers, run: Run) -> int:
    """Measure on a batch after how many frames the chain forgets."""
    return int(call(run, "forget", burn_in_of, take_stretches(rows, edges, run).held, _chain(model)))
