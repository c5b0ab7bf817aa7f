"""Baum-Welch on a sample in memory: plain steps, long ones (SQUAREM), and steps corrected by sums over all frames."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.gaussians import variances_of
from dask_dca.models.hmm.expectation import Expected, expectation, labels_of, lay_out, tiles_of_frames
from dask_dca.models.hmm.model import FrameFeatures, HiddenMarkov, IncompleteStates, floored, m_step, moments_of
from dask_dca.models.hmm.recursions import Markov, Scratch

if TYPE_CHECKING:
    from dask_dca.geometry.arrays import Floats, Labels, Numbers
    from dask_dca.models.hmm.expectation import Layout, Tile

_LEAST_KEPT: Final = 0.2  # of a transition's sample count, or of a variance, that a correction must leave
_MOST_LONGER: Final = 4.0  # a step is at most that many times the longest one so far
_SLACK: Final = 1e-9


@dataclass(frozen=True)
class StandardFrames:
    """Frames in standard units, laid out for recursions once."""

    frames: Floats  # (n, p)
    edges: Numbers
    kind: str
    floors: Floats  # (p,), least variances
    layout: Layout
    tiles: list[Tile]
    holes: bool = False  # whether entries are missing
    scratch: Scratch = field(default_factory=Scratch)

    def __len__(self) -> int:
        return len(self.frames)


@dataclass(frozen=True)
class ChainSums:
    """What an E-step sees: sums, and the likeliest state of each frame."""

    expected: Expected
    labels: Labels

    @property
    def log_likelihood(self) -> float:
        """Log likelihood of all sequences.

        Returns that of the model which looked.
        """
        return self.expected.log_likelihood


def standard_frames(
    frames: Floats, edges: Numbers, kind: str, floors: Floats, piece: tuple[int, int] | None = None
) -> StandardFrames:
    """Lay frames out.

    frames (n, p): in standard units, NaN where an entry is missing; edges (m + 1,): ends of sequences; floors (p,):
    least variances; piece: length and burn-in of a piece; by the number of frames if None.
    """
    p = frames.shape[1]
    layout = lay_out(edges, 4 * p) if piece is None else lay_out(edges, 4 * p, *piece)
    holes = bool(np.isnan(frames).any())
    zero, one = np.zeros(p), np.ones(p)
    features = FrameFeatures("full" if holes else kind, zero, one)
    return StandardFrames(frames, edges, kind, floors, layout, tiles_of_frames(layout, frames, features), holes)


def e_step(model: HiddenMarkov, sample: StandardFrames, origins: Floats | None = None) -> ChainSums:
    """Look at all frames.

    origins (k, p): what moments are taken about; as is best if None.
    """
    states, labels, lines = model.states(origins=origins), [], []
    emissions = IncompleteStates(states, np.zeros(len(sample.floors))) if sample.holes else states
    for tile in sample.tiles:
        found = expectation(sample.layout, tile, emissions, model.markov, sample.scratch)
        lines.append(found.sums)
        labels.append(labels_of(sample.layout, found.posteriors))
    expected = Expected(np.sum(lines, axis=0), len(model.means), states.origins)
    return ChainSums(expected, np.concatenate(labels)[: len(sample)])


def next_model(found: Expected, model: HiddenMarkov, sample: StandardFrames) -> HiddenMarkov:
    """Take the M-step.

    found: what the model saw.
    """
    moments = moments_of(found, sample.kind)
    return m_step(found.starts, found.transitions, moments, sample.kind, sample.floors, model)


def climb(model: HiddenMarkov, sample: StandardFrames, steps: int) -> tuple[HiddenMarkov, ChainSums]:
    """Take plain steps.

    Returns the model, and what it sees.
    """
    seen = e_step(model, sample)
    for _ in range(steps):
        model = next_model(seen.expected, model, sample)
        seen = e_step(model, sample)
    return model, seen


def squarem(model: HiddenMarkov, sample: StandardFrames, looks: int, tol: float) -> tuple[HiddenMarkov, ChainSums]:
    """Take long steps: two plain ones show a direction and how far to go along it.

    Varadhan and Roland, Scandinavian Journal of Statistics 35, 2008. A long step that ends below the first plain one is
    not taken.
    looks: E-steps at most; tol: it ends where the log likelihood rises by less. Returns the model, and what it sees.
    """
    seen, longest, used = e_step(model, sample), 1.0, 1
    while used < looks:
        one = next_model(seen.expected, model, sample)
        seen_one = e_step(one, sample)
        two = next_model(seen_one.expected, one, sample)
        far, length = _extrapolated(model, one, two, _MOST_LONGER * longest, sample.floors)
        seen_far, used, last = e_step(far, sample), used + 2, seen.log_likelihood
        if seen_far.log_likelihood >= seen_one.log_likelihood - _SLACK:
            model, seen, longest = far, seen_far, max(longest, length)
        else:
            model, seen, longest, used = two, e_step(two, sample), max(1.0, longest / _MOST_LONGER), used + 1
        if not seen.log_likelihood - last >= tol:
            break
    return model, seen


def _extrapolated(
    zero: HiddenMarkov, one: HiddenMarkov, two: HiddenMarkov, most: float, floors: Floats
) -> tuple[HiddenMarkov, float]:
    """Go on along two steps, in logarithms of probabilities and variances; the length is one for plain steps."""
    places = [_packed(model) for model in (zero, one, two)]
    first = places[1] - places[0]
    bend = places[2] - places[1] - first
    k = len(zero.means)
    weights = np.ones(len(first))
    weights[:k], weights[k : k + k * k] = 0.1, 0.3 * np.sqrt(zero.markov.transmat.ravel())
    ratio = np.linalg.norm(weights * first) / max(float(np.linalg.norm(weights * bend)), 1e-300)
    length = max(1.0, min(float(ratio), most))
    return _unpacked(places[0] + 2.0 * length * first + length**2 * bend, two, floors), length


def _packed(model: HiddenMarkov) -> Floats:
    round_ = model.covariance_type in ("diag", "spherical")
    shape = np.log(model.covariances) if round_ else np.linalg.cholesky(model.covariances)
    chain = np.log(model.markov.startprob), np.log(model.markov.transmat)
    return np.concatenate([part.ravel() for part in (*chain, model.means, shape)])


def _unpacked(place: Floats, like: HiddenMarkov, floors: Floats) -> HiddenMarkov:
    k, p = like.means.shape
    start, rows, means, shape = np.split(place, np.cumsum([k, k * k, k * p]))
    start, rows = np.exp(start - start.max()), rows.reshape(k, k)
    rows = np.exp(rows - rows.max(axis=1, keepdims=True))
    shape = shape.reshape(like.covariances.shape)
    if like.covariance_type in ("diag", "spherical"):
        covariances = np.exp(np.clip(shape, -80.0, 80.0))
    else:
        covariances = np.tril(shape) @ np.tril(shape).swapaxes(-1, -2)
    return replace(
        like,
        markov=Markov(start / start.sum(), rows / rows.sum(axis=1, keepdims=True)),
        means=means.reshape(k, p),
        covariances=floored(covariances, floors, like.covariance_type),
    )


def corrected_steps(
    model: HiddenMarkov, sample: StandardFrames, full: Expected, ratio: float, steps: int
) -> HiddenMarkov:
    """Go on from sums over all frames by steps on a sample, to whose sums the difference is added.

    full: sums of this model over all frames; ratio: of all frames to the sample's. Returns the model after the M-step
    and some more; starts are those of all frames; where the correction leaves a state nothing, the M-step alone.
    """
    k, kind = len(model.means), sample.kind
    plain = next_model(full, model, sample)
    difference, found = full.line - ratio * e_step(model, sample, full.origins).expected.line, plain
    for _ in range(steps):
        line = ratio * e_step(found, sample, full.origins).expected.line
        least, line = _LEAST_KEPT * line, line + difference
        line[: 1 + k + k * k] = np.maximum(line, least)[: 1 + k + k * k]
        line[1 : 1 + k] = full.starts
        seen = replace(full, line=line)
        if not (seen.counts > 0.0).all():
            return plain
        moved = next_model(seen, found, sample)
        if (variances_of(moved.covariances, kind) < _LEAST_KEPT * variances_of(plain.covariances, kind)).any():
            return plain
        found = moved
    return found
