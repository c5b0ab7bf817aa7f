"""Where a hidden Markov model doesn't start from anchors: parameters that are given, and streams that go on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.numerics import one_blas_thread
from dask_dca.engine.sampling import call
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.models.em import expectation_maximisation
from dask_dca.models.gaussians import GaussianMoments, moved_moments, prepare_gaussians, variances_of
from dask_dca.models.hmm.decoding import Decoder, GaussianEmission
from dask_dca.models.hmm.emission import FrameFeatures, moments_of
from dask_dca.models.hmm.exact import exact_e_step
from dask_dca.models.hmm.expectation import lay_out
from dask_dca.models.hmm.fit import HMMFit, Look, burn_in_of, fit_hmm
from dask_dca.models.hmm.model import Counts, HiddenMarkov, in_data_units, in_form, likeliest, m_step, mean_times
from dask_dca.models.hmm.parameters import check_chain
from dask_dca.models.hmm.passes import e_step_pass
from dask_dca.models.hmm.recursions import Markov
from dask_dca.models.hmm.start import feature_scale, take_stretches
from dask_dca.models.starting import check_covariances, one_of_shapes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.models.hmm.expectation import Expected
    from dask_dca.models.hmm.parameters import HMMSettings
    from dask_dca.models.hmm.start import FeatureScale, SampledFrames

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]
    Sums = dict[str, Floats]

__all__ = [
    "begin_chain",
    "fit_from_start",
    "memory_of_chain",
    "require_likelihood",
    "see_frames",
    "step_chain",
]


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
        kind = settings.covariance_type
        features = FrameFeatures(kind, scale.centre, scale.units)

        def _look(model: HiddenMarkov) -> tuple[Look, float]:
            states, own = model.states(scale.log_scale), in_data_units(model, scale.centre, scale.units)
            gaussians = prepare_gaussians(own.means, own.covariances, kind, own.means.mean(axis=0))
            decoder = Decoder(rows, edges, GaussianEmission(gaussians), model.markov, 0, run)
            expected, nearest = exact_e_step(decoder, states, features)
            require_likelihood(expected.log_likelihood)
            return Look(expected, states.origins, nearest), expected.log_likelihood / rows.n_rows

        def _step(model: HiddenMarkov, seen: Look) -> HiddenMarkov:
            found = seen.expected
            moments = moments_of(found.moments, seen.origins, kind)
            return likeliest(Counts(found.starts, found.transitions, moments), model, scale.least, learnt)

        refined = expectation_maximisation(
            _standard(start, scale), _look, _step, max_iter=settings.max_iter, tol=settings.tol
        )
        model, nobody = in_data_units(refined.model, scale.centre, scale.units), np.zeros(k, dtype=np.int64)
        model = _as_given(model, start, learnt)
        burn_in = call(run, "forget", burn_in_of, sample.held, model)
    return HMMFit(model, refined, [], nobody, 0, wilson_bounds(nobody, 0), burn_in, (k, k))


def require_likelihood(log_likelihood: float) -> None:
    """Refuse a start under which the data can't be.

    Raises InvalidParameterError: the likelihood is zero.
    """
    if not np.isfinite(log_likelihood):
        msg = "the start makes the data impossible: a zero of startprob, transmat or emissionprob forbids what they do"
        raise InvalidParameterError(msg)


def _standard(model: HiddenMarkov, scale: FeatureScale) -> HiddenMarkov:
    """A model of frames in standard units; `in_data_units` leads back."""
    return in_data_units(model, -scale.centre / scale.units, 1.0 / scale.units)


def _as_given(model: HiddenMarkov, start: HiddenMarkov, learnt: str) -> HiddenMarkov:
    """The same, with what was not learnt in the very bits of the start."""
    kept = {
        name: getattr(start, name) for letter, name in (("m", "means"), ("c", "covariances")) if letter not in learnt
    }
    return replace(model, **kept)


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
        even = Markov(np.full(k, 1.0 / k), np.full((k, k), 1.0 / k))
        variances = np.where(sample.spreads > 0.0, sample.spreads, sample.spreads.max() or 1.0) ** 2
        wide = in_form(np.repeat(np.diag(variances)[None], k, axis=0), np.ones(k), kind)
        base = HiddenMarkov(even, given["means_"], wide, kind, np.zeros(k, dtype=bool))
    else:
        base = fit_hmm(rows, edges, k, replace(settings, max_iter=0), run).model
        base = _in_time(base, min(int(np.diff(edges).mean()) + 1, _LONGEST))
    means = one_of_shapes("means", given.get("means_", base.means), (k, p))
    covariances = check_covariances(given.get("covariances_", base.covariances), kind, k, p)
    chain = check_chain(given.get("startprob_", base.markov.startprob), given.get("transmat_", base.markov.transmat), k)
    return HiddenMarkov(Markov(*chain), means, covariances, kind, base.resting)


def _in_time(model: HiddenMarkov, n_steps: int) -> HiddenMarkov:
    order = np.argsort(mean_times(model.markov, n_steps), kind="stable")
    chain = Markov(model.markov.startprob[order], model.markov.transmat[np.ix_(order, order)])
    covariances = model.covariances if model.covariance_type == "tied" else model.covariances[order]
    return replace(model, markov=chain, means=model.means[order], covariances=covariances, resting=model.resting[order])


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
