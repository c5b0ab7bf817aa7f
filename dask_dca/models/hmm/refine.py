"""Baum-Welch in the frames themselves: expectation passes over all frames, M-steps on the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.gaussians import (
    FAR,
    GaussianMoments,
    are_far,
    mean_and_covariance,
    prepare_gaussians,
    rests_on_floor,
    variances_of,
)
from dask_dca.models.hmm.passes import Emission, Origins, e_step_pass
from dask_dca.models.hmm.recursions import smoothed_chain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.sequences import Cut
    from dask_dca.models.hmm.passes import Statistics
    from dask_dca.models.hmm.recursions import Markov
    from dask_dca.models.hmm.sample import FeatureScale

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["HiddenMarkov", "RefinedChain", "m_step", "moment_pass", "refine"]

_BORROWED: Final = 10.0  # frames that a state's covariance borrows from all states together, where there are few,
_ENOUGH: Final = 5000.0  # and fewer where there are many: one from 5,000 on
_FAR_TIED: Final = 16.0  # standard deviations from which on moments are not taken from the covariance of all frames
_BIASED: Final = 0.125  # of the least variance: down to here the rounding of sums may be all there is
_SHAPED: Final = 5.0  # frames from which on a state has a shape of its own
_VISITED: Final = 1e-3  # frames below which a state keeps the mean it had


@dataclass(frozen=True)
class HiddenMarkov:
    """A Markov chain and Gaussian emissions."""

    markov: Markov
    means: Floats  # (k, p)
    covariances: Floats  # in the shape of their type
    covariance_type: str
    resting: NDArray[np.bool_]  # (k,): states whose variances are least ones rather than their frames'

    def emission(self, centre: Floats | None = None) -> Emission:
        """Prepare the densities.

        centre (p,): A point amid the frames. Returns densities of frames in the states.
        """
        return Emission(prepare_gaussians(self.means, self.covariances, self.covariance_type, centre))

    def origins(self, frame: FeatureScale) -> Origins:
        """Choose what moments are best taken about.

        Returns the centre for states near it, for the others their means.
        """
        means = self.means - frame.centre
        far = _are_far(means, self.covariances, self.covariance_type)
        if not far.any():
            return Origins(frame.centre, frame.spreads)
        variances = variances_of(self.covariances, self.covariance_type)
        deviations = np.broadcast_to(np.sqrt(variances), means.shape)
        return Origins(frame.centre, frame.spreads, np.where(far[:, None], means, 0.0), deviations)


def m_step(found: Statistics, frame: FeatureScale, covariance_type: str, before: Floats | None = None) -> HiddenMarkov:
    """Turn expected counts and moments into parameters: the M-step.

    found: of all frames, about the frame's centre; before (k, p): means before: a state that no frame is in keeps its
    own. Returns the parameters. Covariances are drawn a little to those of all states together.
    """
    second = found.second
    if covariance_type == "tied" and not second.size:
        assert frame.covariance is not None
        second = frame.covariance * found.counts.sum()
    moments = GaussianMoments(found.counts, found.first, second, found.origins)
    means, covariances = mean_and_covariance(moments, covariance_type, 0.0)
    counts = found.counts.reshape(-1, *[1] * (covariances.ndim - 1))
    if covariance_type != "tied":
        pooled = (counts * covariances).sum(axis=0) / max(float(found.counts.sum()), 1e-300)
        borrowed = _borrowed(float(found.counts.sum()))
        covariances = (counts * covariances + borrowed * pooled) / (counts + borrowed)
    own = np.broadcast_to(variances_of(covariances, covariance_type), means.shape)
    resting = rests_on_floor(own, frame.floors, _BIASED * frame.floors) & (found.counts >= _SHAPED)
    means = means + frame.centre
    if before is not None:
        means = np.where(found.counts[:, None] > _VISITED, means, before)
    chain = smoothed_chain(found.starts, found.transitions)
    floored = _floored(covariances, frame.floors, covariance_type)
    return HiddenMarkov(chain, means, floored, covariance_type, resting)


def _borrowed(n_frames: float) -> float:
    """Frames that a covariance borrows: ten up to 500 frames, one from 5,000 on (benchmarks Q6, Q7 and Q8-hmm)."""
    return float(np.clip(_ENOUGH / max(n_frames, 1.0), 1.0, _BORROWED))


def _floored(covariances: Floats, floors: Floats, covariance_type: str) -> Floats:
    """Covariances whose variances are above the floor in every direction."""
    if covariance_type == "diag":
        return np.maximum(covariances, floors)
    if covariance_type == "spherical":
        return np.maximum(covariances, floors.mean())
    roots = np.sqrt(floors)
    scale = np.multiply.outer(roots, roots)
    variances, axes = np.linalg.eigh((covariances + covariances.swapaxes(-1, -2)) / (2 * scale))
    raised = (axes * np.maximum(variances, 1.0)[..., None, :]) @ axes.swapaxes(-1, -2)
    low = np.asarray(variances.min(axis=-1) < 1.0)
    return np.where(low[..., None, None], raised * scale, covariances)


def moment_pass(
    rows: Rows,
    cut: Cut,
    start: tuple[Emission, Markov],
    frame: FeatureScale,
    kind: str,
    run: Run,
    before: HiddenMarkov | None = None,
) -> tuple[Statistics, HiddenMarkov]:
    """Run one pass of Baum-Welch and its M-step, with moments about what is near.

    start: the model that the pass begins with; before: the same as a model of frames, where it is one. Returns model:
    after the M-step. Where its states turn out to be far from the points that moments were taken about, the pass is run
    once more, about the states' means.
    """
    kept = None if before is None else before.means
    origins = Origins(frame.centre, frame.spreads) if before is None else before.origins(frame)
    found = e_step_pass(rows, cut, *start, origins, _second(kind, origins), run)
    model = m_step(found, frame, kind, kept)
    if _are_far(model.means - frame.centre - found.origins, model.covariances, kind).any():
        origins = model.origins(frame)
        found = e_step_pass(rows, cut, *start, origins, _second(kind, origins), run)
        model = m_step(found, frame, kind, kept)
    return found, model


def _are_far(means: Floats, covariances: Floats, kind: str) -> NDArray[np.bool_]:
    """Far sooner for "tied": the covariance of all frames, from which that of the states is told, is rounded more."""
    return are_far(means, variances_of(covariances, kind), _FAR_TIED if kind == "tied" else FAR)


def _second(kind: str, origins: Origins) -> str:
    """Which second moments a pass must sum; none for "tied", as the covariance of all frames is known."""
    return "none" if kind == "tied" and not origins.far() else kind


@dataclass(frozen=True)
class RefinedChain:
    """What Baum-Welch ended with."""

    model: HiddenMarkov
    log_likelihoods: list[float]  # a frame, of the model that each pass began with
    nearest: Numbers  # (k,), the frame of greatest density in each state, in the last pass
    counts: Floats  # (k,), expected number of frames in each state, in the last pass


def refine(
    rows: Rows,
    cut: Cut,
    start: tuple[Emission, Markov] | HiddenMarkov,
    frame: FeatureScale,
    kind: str,
    passes: int,
    tol: float,
    run: Run,
) -> RefinedChain:
    """Run Baum-Welch: at least one pass.

    cut: how sequences are cut into pieces; tol: passes end where the likelihood per frame rises by less. Returns the
    model after the last M-step.
    """
    history: list[float] = []
    model = start if isinstance(start, HiddenMarkov) else None
    emission, markov = (start.emission(frame.centre), start.markov) if isinstance(start, HiddenMarkov) else start
    while True:
        found, model = moment_pass(rows, cut, (emission, markov), frame, kind, run, model)
        history.append(found.log_likelihood / rows.n_rows)
        if len(history) >= passes or (len(history) > 1 and history[-1] - history[-2] < tol):
            return RefinedChain(model, history, found.nearest, found.counts)
        emission, markov = model.emission(frame.centre), model.markov
