"""Where a hidden Markov model doesn't start from anchors: parameters that are given, and streams that go on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.sampling import call
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.models.em import check_chain, check_covariances, check_shape, expectation_maximisation
from dask_dca.models.gaussians import GaussianMoments, shifted_moments, variances_of
from dask_dca.models.hmm.decoding import Decoder
from dask_dca.models.hmm.expectation import lay_out
from dask_dca.models.hmm.fit import HMMFit, burn_in_of, fit_hmm
from dask_dca.models.hmm.model import (
    FrameFeatures,
    HiddenMarkov,
    in_data_units,
    in_form,
    likeliest,
    m_step,
    mean_times,
    moments_of,
)
from dask_dca.models.hmm.passes import e_step_pass, exact_e_step
from dask_dca.models.hmm.recursions import Markov
from dask_dca.models.hmm.start import feature_scale, take_stretches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.geometry.arrays import Floats, Numbers
    from dask_dca.models.hmm.expectation import Expected
    from dask_dca.models.hmm.fit import HMMSettings
    from dask_dca.models.hmm.start import SampledFrames

    Sums = dict[str, Floats]

_LONGEST: Final = 10_000  # steps of a chain by which states are put in order


def fit_from_start(
    rows: Rows, edges: Numbers, k: int, given: Mapping[str, Floats], settings: HMMSettings, learnt: str, run: Run
) -> HMMFit:
    """Learn from a start.

    edges (m + 1,): ends of sequences; given: parameters by the names of attributes; others are made of the data;
    learnt: letters of those that are learnt.
    """
    with one_blas_thread():
        sample = take_stretches(rows, edges, run)
        scale = feature_scale(sample, settings.min_covar, settings.covariance_type)
        start = _completed(rows, edges, k, given, settings, sample, run)
        features = FrameFeatures(settings.covariance_type, scale.centre, scale.units)

        def _look(model: HiddenMarkov) -> tuple[tuple[Expected, Numbers], float]:
            emission = in_data_units(model, scale.centre, scale.units).emission()
            decoder = Decoder(rows, edges, emission, model.markov, 0, run)
            seen = exact_e_step(decoder, model.states(scale.log_scale), features)
            return seen, seen[0].log_likelihood / rows.n_rows

        def _step(model: HiddenMarkov, seen: tuple[Expected, Numbers]) -> HiddenMarkov:
            return likeliest(seen[0], model, scale.least, learnt)

        standard = in_data_units(start, -scale.centre / scale.units, 1.0 / scale.units)
        refined = expectation_maximisation(standard, _look, _step, max_iter=settings.max_iter, tol=settings.tol)
        model, nobody = in_data_units(refined.model, scale.centre, scale.units), np.zeros(k, dtype=np.int64)
        fixed = [name for letter, name in (("m", "means"), ("c", "covariances")) if letter not in learnt]
        model = replace(model, **{name: getattr(start, name) for name in fixed})  # in the very bits of the start
        burn_in = call(run, "forget", burn_in_of, sample.held, model)
    return HMMFit(model, refined, [], nobody, 0, wilson_bounds(nobody, 0), burn_in, (k, k))


def _completed(
    rows: Rows,
    edges: Numbers,
    k: int,
    given: Mapping[str, Floats],
    settings: HMMSettings,
    sample: SampledFrames,
    run: Run,
) -> HiddenMarkov:
    """A whole start: what means do not say is uniform, and as wide as the data; where they aren't given, from anchors.

    States of an anchored start are put in the order of time, so that they go with a chain that only moves on.
    """
    kind, p = settings.covariance_type, rows.n_features
    if "means_" in given:
        variances = np.where(sample.spreads > 0.0, sample.spreads, sample.spreads.max() or 1.0) ** 2
        wide = in_form(np.repeat(np.diag(variances)[None], k, axis=0), np.ones(k), kind)
        base = HiddenMarkov(even_chain(k), given["means_"], wide, kind, np.zeros(k, dtype=bool))
    else:
        found = fit_hmm(rows, edges, k, replace(settings, max_iter=0), run).model
        order = order_in_time(found.markov, edges)
        covariances = found.covariances if kind == "tied" else found.covariances[order]
        chain = chain_in_order(found.markov, order)
        base = HiddenMarkov(chain, found.means[order], covariances, kind, found.resting[order])
    means = check_shape("means", given.get("means_", base.means), (k, p))
    covariances = check_covariances(given.get("covariances_", base.covariances), kind, k, p)
    return HiddenMarkov(given_chain(given, base.markov), means, covariances, kind, base.resting)


def even_chain(k: int) -> Markov:
    """Return a chain all of whose probabilities are the same."""
    return Markov(np.full(k, 1.0 / k), np.full((k, k), 1.0 / k))


def order_in_time(markov: Markov, edges: Numbers) -> NDArray[np.intp]:
    """Order the states by when sequences are in them, on the average; edges (m + 1,): ends of sequences."""
    return np.argsort(mean_times(markov, min(int(np.diff(edges).mean()) + 1, _LONGEST)), kind="stable")


def chain_in_order(markov: Markov, order: NDArray[np.intp]) -> Markov:
    """Number the states of a chain anew."""
    return Markov(markov.startprob[order], markov.transmat[np.ix_(order, order)])


def given_chain(given: Mapping[str, Floats], otherwise: Markov) -> Markov:
    """Return the chain of a start, whose probabilities are another's where none are given."""
    start, matrix = given.get("startprob_", otherwise.startprob), given.get("transmat_", otherwise.transmat)
    return Markov(*check_chain(start, matrix, len(otherwise.startprob)))


def begin_chain(model: Any, found: HMMFit) -> Sums:
    """Keep what the M-step of a fitted model needs.

    model: its parameters are set. Returns the sums that its fit ended with, about its means.
    """
    assert found.scale is not None
    model.stream_origins_, model.stream_floor_ = model.means_.copy(), found.scale.floors
    seen, _ = found.refined.seen
    return _sums(seen, found.refined.model.means, model.covariance_type_, found.scale.units)


def _sums(expected: Expected, origins: Floats, kind: str, units: Floats) -> Sums:
    """Sums about other points (k, p), in the data's units."""
    found = shifted_moments(moments_of(expected, kind), origins, kind)
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
    return _sums(expected, origins, kind, units), expected.log_likelihood / rows.n_rows


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
