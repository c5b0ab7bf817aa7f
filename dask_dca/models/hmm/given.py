"""Hidden Markov models that do not start from anchors: fits from given parameters, and updates by `partial_fit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dask_dca.engine.passes import Run
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import Rows
from dask_dca.engine.sampling import call
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.models.em import check_chain, check_covariances, check_shape, expectation_maximisation
from dask_dca.models.gaussians import GaussianMoments, equal_covariances, shifted_moments, variances_of
from dask_dca.models.hmm.decoding import Decoder
from dask_dca.models.hmm.expectation import ExpectedCounts, lay_out
from dask_dca.models.hmm.fit import HMMFit, HMMSettings, fit_hmm, measure_burn_in
from dask_dca.models.hmm.model import (
    FrameFeatures,
    HiddenMarkov,
    hmm_moments,
    in_data_units,
    m_step,
    maximum_likelihood_model,
    mean_visit_times,
)
from dask_dca.models.hmm.passes import e_step_pass, exact_e_step
from dask_dca.models.hmm.recursions import Markov
from dask_dca.models.hmm.start import SampledFrames, feature_scale, take_stretches

Sums = dict[str, Floats]

_MAX_ORDER_STEPS: Final = 10_000  # maximum number of steps of a chain over which states are ordered in time


def fit_from_start(
    rows: Rows, edges: Numbers, k: int, given: Mapping[str, Floats], settings: HMMSettings, learnt: str, run: Run
) -> HMMFit:
    """Run EM from given parameters.

    edges (m + 1,): ends of sequences; given: parameters by the names of attributes; the others are derived from the
    data; learnt: letters of the parameters that are learnt.
    """
    with one_blas_thread():
        sample = take_stretches(rows, edges, run)
        scale = feature_scale(sample, settings.min_covar, settings.covariance_type)
        start = _starting_model(rows, edges, k, given, settings, sample, run)
        features = FrameFeatures(settings.covariance_type, scale.centre, scale.units)

        def _e_step(model: HiddenMarkov) -> tuple[tuple[ExpectedCounts, Numbers], float]:
            emission = in_data_units(model, scale.centre, scale.units).emission()
            decoder = Decoder(rows, edges, emission, model.markov, 0, run)
            seen = exact_e_step(decoder, model.states(scale.log_scale), features)
            return seen, seen[0].log_likelihood / rows.n_rows

        def _m_step(model: HiddenMarkov, seen: tuple[ExpectedCounts, Numbers]) -> HiddenMarkov:
            return maximum_likelihood_model(seen[0], model, scale.unit_floors, learnt)

        standard = in_data_units(start, -scale.centre / scale.units, 1.0 / scale.units)
        refined = expectation_maximisation(standard, _e_step, _m_step, max_iter=settings.max_iter, tol=settings.tol)
        model, no_votes = in_data_units(refined.model, scale.centre, scale.units), np.zeros(k, dtype=np.int64)
        fixed = [name for letter, name in (("m", "means"), ("c", "covariances")) if letter not in learnt]
        model = replace(model, **{name: getattr(start, name) for name in fixed})  # bit for bit those of the start
        burn_in = call(run, "forget", measure_burn_in, sample.held, model)
    return HMMFit(model, refined, [], no_votes, 0, wilson_bounds(no_votes, 0), burn_in, (k, k))


def _starting_model(
    rows: Rows,
    edges: Numbers,
    k: int,
    given: Mapping[str, Floats],
    settings: HMMSettings,
    sample: SampledFrames,
    run: Run,
) -> HiddenMarkov:
    """Complete given parameters: given means with a uniform chain and the data's variances; else from an anchored fit.

    The states of an anchored fit are ordered in time, so that they match a left-to-right chain.
    """
    kind, p = settings.covariance_type, rows.n_features
    if "means_" in given:
        variances = np.where(sample.spreads > 0.0, sample.spreads, sample.spreads.max() or 1.0) ** 2
        wide = equal_covariances(variances, kind, k, p)
        base = HiddenMarkov(uniform_chain(k), given["means_"], wide, kind, np.zeros(k, dtype=bool))
    else:
        found = fit_hmm(rows, edges, k, replace(settings, max_iter=0), run).model
        order = order_by_time(found.markov, edges)
        covariances = found.covariances if kind == "tied" else found.covariances[order]
        chain = permuted_chain(found.markov, order)
        base = HiddenMarkov(chain, found.means[order], covariances, kind, found.at_floor[order])
    means = check_shape("means", given.get("means_", base.means), (k, p))
    covariances = check_covariances(given.get("covariances_", base.covariances), kind, k, p)
    return HiddenMarkov(chain_of_start(given, base.markov), means, covariances, kind, base.at_floor)


def uniform_chain(k: int) -> Markov:
    """Return a chain of uniform probabilities."""
    return Markov(np.full(k, 1.0 / k), np.full((k, k), 1.0 / k))


def order_by_time(markov: Markov, edges: Numbers) -> NDArray[np.intp]:
    """Order the states by the mean time of their visits; edges (m + 1,): ends of sequences."""
    return np.argsort(mean_visit_times(markov, min(int(np.diff(edges).mean()) + 1, _MAX_ORDER_STEPS)), kind="stable")


def permuted_chain(markov: Markov, order: NDArray[np.intp]) -> Markov:
    """Permute the states of a chain."""
    return Markov(markov.startprob[order], markov.transmat[np.ix_(order, order)])


def chain_of_start(given: Mapping[str, Floats], otherwise: Markov) -> Markov:
    """Combine given start probabilities and transitions with those of another chain."""
    start, matrix = given.get("startprob_", otherwise.startprob), given.get("transmat_", otherwise.transmat)
    return Markov(*check_chain(start, matrix, len(otherwise.startprob)))


def initial_sums(model: Any, found: HMMFit) -> Sums:
    """Begin a stream with the sums of a fit.

    model: with its parameters set. Returns the sums of the last E-step, about the means, and sets the stream's
    attributes of the model.
    """
    assert found.scale is not None
    model.stream_origins_, model.stream_floor_ = model.means_.copy(), found.scale.floors
    seen, _ = found.refined.seen
    return _stream_sums(seen, found.refined.model.means, model.covariance_type_, found.scale.units)


def _stream_sums(expected: ExpectedCounts, origins: Floats, kind: str, units: Floats) -> Sums:
    """Sums of an E-step about other origins (k, p), in the data's units."""
    found = shifted_moments(hmm_moments(expected, kind), origins, kind)
    squares: Any = np.multiply.outer(units, units) if kind in ("full", "tied") else units**2
    return {
        "starts": expected.starts,
        "transitions": expected.transitions,
        "counts": found.counts,
        "sums": found.first * units,
        "products": found.second * (squares[0] if kind == "spherical" else squares),
    }


def _model_of(model: Any) -> HiddenMarkov:
    at_floor = np.zeros(len(model.means_), dtype=bool)
    return HiddenMarkov(model._chain(), model.means_, model.covariances_, model.covariance_type_, at_floor)


def chain_e_step(model: Any, rows: Rows, edges: Numbers, run: Run) -> tuple[Sums, float]:
    """Run the E-step on a batch, in units of the model's marginal standard deviations.

    Returns the sums, and the log likelihood per frame.
    """
    chain, kind = _model_of(model), model.covariance_type_
    shares = model.state_counts_ / model.state_counts_.sum()
    centre = shares @ chain.means
    spread = np.broadcast_to(variances_of(chain.covariances, kind), chain.means.shape) + (chain.means - centre) ** 2
    units = np.sqrt(shares @ spread)
    units = np.full_like(units, units.max()) if kind == "spherical" else units
    states = in_data_units(chain, -centre / units, 1.0 / units).states(float(np.log(units).sum()))
    features = FrameFeatures(kind, centre, units)
    expected, _ = e_step_pass(rows, lay_out(edges, 4 * rows.n_features), states, chain.markov, features, run)
    origins = (model.stream_origins_ - centre) / units
    return _stream_sums(expected, origins, kind, units), expected.log_likelihood / rows.n_rows


def chain_m_step(model: Any, sums: Sums) -> None:
    """Run the M-step, and set the parameters of the model."""
    moments = GaussianMoments(sums["counts"], sums["sums"], sums["products"], model.stream_origins_)
    kind, floors = model.covariance_type_, model.stream_floor_
    found = m_step(sums["starts"], sums["transitions"], moments, kind, floors, _model_of(model))
    model.startprob_, model.transmat_ = found.markov.startprob, found.markov.transmat
    model.means_, model.covariances_ = found.means, found.covariances
    model.state_counts_ = moments.counts


def measure_chain_burn_in(model: Any, rows: Rows, edges: Numbers, run: Run) -> int:
    """Measure the burn-in of a model on a batch."""
    return int(call(run, "forget", measure_burn_in, take_stretches(rows, edges, run).held, _model_of(model)))
