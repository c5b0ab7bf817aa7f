"""Baum-Welch on a sample in memory: plain steps, and steps corrected by sums over all frames."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.models.gaussians import variances_of
from dask_dca.models.hmm.expectation import Expected, expectation, labels_of, lay_out, lay_tile
from dask_dca.models.hmm.model import FrameFeatures, HiddenMarkov, IncompleteStates, m_step, moments_of
from dask_dca.models.hmm.recursions import Scratch

if TYPE_CHECKING:
    from dask_dca.geometry.arrays import Floats, Labels, Numbers
    from dask_dca.models.hmm.expectation import Layout, Tile

_LEAST_KEPT: Final = 0.2  # of a transition's sample count, or of a variance, that a correction must leave


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
    tiles = [lay_tile(layout, begin, frames, 0, features) for begin in range(0, len(frames), layout.frames)]
    return StandardFrames(frames, edges, kind, floors, layout, tiles, holes)


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


def climb(
    model: HiddenMarkov, sample: StandardFrames, steps: int, tol: float = -np.inf
) -> tuple[HiddenMarkov, ChainSums]:
    """Take steps.

    steps: at most; tol: they end where the log likelihood rises by less. Returns the model, and what it sees.
    """
    seen = e_step(model, sample)
    for _ in range(steps):
        model, last = next_model(seen.expected, model, sample), seen.log_likelihood
        seen = e_step(model, sample)
        if seen.log_likelihood - last < tol:
            break
    return model, seen


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
